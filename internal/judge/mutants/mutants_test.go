package mutants

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

var plant = flag.String("plant", "", "plant the faults whose id matches this expression")

// fault is one block of the catalogue.
type fault struct {
	id, file, pkg, test, why, old, new string
}

func catalogue(t *testing.T) []fault {
	t.Helper()
	files, err := filepath.Glob("testdata/catalogue/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no catalogue: %v", err)
	}
	var blocks []string
	for _, name := range files {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		blocks = append(blocks, strings.Split("\n"+string(text), "\n== ")[1:]...)
	}
	var faults []fault
	for _, b := range blocks {
		var f fault
		f.id, b, _ = strings.Cut(b, "\n")
		for name, to := range map[string]*string{"file": &f.file, "pkg": &f.pkg, "test": &f.test, "why": &f.why} {
			if m := regexp.MustCompile(`(?m)^` + name + `: (.*)$`).FindStringSubmatch(b); m != nil {
				*to = strings.TrimSpace(m[1])
			}
		}
		for name, to := range map[string]*string{"old": &f.old, "new": &f.new} {
			if m := regexp.MustCompile(`(?ms)^` + name + `<<\n(.*?)^>>$`).FindStringSubmatch(b); m != nil {
				*to = m[1]
			}
		}
		faults = append(faults, f)
	}
	return faults
}

func root(t *testing.T) string {
	t.Helper()
	dir, err := filepath.Abs("../../..")
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// The catalogue keeps up with the code: every fault has its fields, an id of its own, and a text that stands once in its file.
func TestCatalogue(t *testing.T) {
	top := root(t)
	ids := map[string]bool{}
	for _, f := range catalogue(t) {
		if f.id == "" || f.file == "" || f.pkg == "" || f.why == "" || f.old == "" || f.old == f.new {
			t.Errorf("fault %q: a field is missing: %+v", f.id, f)
			continue
		}
		if ids[f.id] {
			t.Errorf("fault %s: two have this id", f.id)
		}
		ids[f.id] = true
		src, err := os.ReadFile(filepath.Join(top, f.file))
		if err != nil {
			t.Errorf("fault %s: %v", f.id, err)
			continue
		}
		if n := bytes.Count(src, []byte(f.old)); n != 1 {
			t.Errorf("fault %s: its text stands in %s %d times, want once:\n%s", f.id, f.file, n, f.old)
		}
	}
}

// Each fault that -plant names is noticed by the fast tests of its packages. A test that hangs is no notice: it must end by itself
// before go test's timeout does.
func TestPlanted(t *testing.T) {
	if *plant == "" {
		t.Skip("plants nothing without -plant; make mutants plants all")
	}
	pick, err := regexp.Compile(*plant)
	if err != nil {
		t.Fatal(err)
	}
	top := root(t)
	for _, f := range catalogue(t) {
		if !pick.MatchString(f.id) {
			continue
		}
		t.Run(f.id, func(t *testing.T) {
			src, err := os.ReadFile(filepath.Join(top, f.file))
			if err != nil {
				t.Fatal(err)
			}
			dir := t.TempDir()
			changed := filepath.Join(dir, "changed.go")
			if err := os.WriteFile(changed, bytes.Replace(src, []byte(f.old), []byte(f.new), 1), 0o644); err != nil {
				t.Fatal(err)
			}
			overlay := filepath.Join(dir, "overlay.json")
			text, err := json.Marshal(map[string]map[string]string{"Replace": {filepath.Join(top, f.file): changed}})
			if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(overlay, text, 0o644); err != nil {
				t.Fatal(err)
			}
			args := []string{"test", "-short", "-timeout", "120s", "-overlay", overlay}
			if f.test != "" {
				args = append(args, "-run", f.test)
			}
			began := time.Now()
			c := exec.Command("go", append(args, strings.Fields(f.pkg)...)...)
			c.Dir = top
			out, err := c.CombinedOutput()
			switch {
			case err == nil:
				t.Errorf("survives in %s: %s", f.pkg, f.why)
			case bytes.Contains(out, []byte("[build failed]")) || bytes.Contains(out, []byte("[setup failed]")):
				t.Errorf("does not build:\n%s", out)
			case bytes.Contains(out, []byte("panic: test timed out")):
				t.Errorf("hangs in %s: %s", f.pkg, f.why)
			default:
				t.Logf("killed after %.0f s", time.Since(began).Seconds())
			}
		})
	}
}
