package own_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"btrlab/internal/policy"
	"btrlab/internal/study/own"
	"btrlab/internal/study/sandbox"
	"btrlab/internal/study/scenario"
	"btrlab/internal/testing/need"
)

// built is a program with the six templates, my-PRESET, and the three tries of the tutorial, and
// what it says of every scenario with two hundred schedules, which is enough to find what is
// broken.
var built = sync.OnceValues(func() ([]result, error) {
	root, err := sandbox.Root(".")
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "own")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	dirs := []string{"testdata/try1", "testdata/try2", "testdata/try3"}
	for _, preset := range own.Presets() {
		at := filepath.Join(dir, "my-"+preset)
		if err := own.Make(at, preset, ""); err != nil {
			return nil, err
		}
		dirs = append(dirs, at)
	}
	var folders []*own.Folder
	names := own.Presets()
	args := []string{"explore", "--all", "--schedules", "200", "--json", "--jobs", "2"}
	for _, at := range dirs {
		x, err := own.Read(at)
		if err != nil {
			return nil, err
		}
		folders, names = append(folders, x), append(names, x.Name)
		args = append(args, "--policy-dir", at)
	}
	bin, remove, err := own.Build(context.Background(), root, folders)
	defer remove()
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(bin, append(args, "--policy", strings.Join(names, ","))...)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	var exit *exec.ExitError
	if err != nil && (!errors.As(err, &exit) || exit.ExitCode() != 1) { // 1: some are broken
		return nil, fmt.Errorf("%w\n%s", err, stderr.String())
	}
	var results []result
	return results, json.Unmarshal(out, &results)
})

// result is what explore says of a scenario under a policy.
type result struct{ Scenario, Policy, Verdict, Kind, Schedule, Violation string }

func builtResults(t *testing.T) (broken map[string]result, cells map[string]int) {
	if testing.Short() {
		t.Skip("builds a program")
	}
	results, err := built()
	if err != nil {
		t.Fatal(err)
	}
	broken, cells = map[string]result{}, map[string]int{}
	for _, r := range results {
		cells[r.Policy]++
		if r.Verdict == "violated" {
			broken[r.Scenario+" "+r.Policy] = r
		}
	}
	return broken, cells
}

// A template does what its preset does: under each, every scenario of the matrix has the same
// verdict, and every switch of the preset holds where the Go has no say.
func TestTemplates(t *testing.T) {
	need.Long(t)
	broken, cells := builtResults(t)
	for _, s := range scenario.Names() {
		for _, preset := range own.Presets() {
			if have, want := broken[s+" my-"+preset].Kind, broken[s+" "+preset].Kind; have != want {
				t.Errorf("%s: have %q under the template of %s, want %q", s, have, preset, want)
			}
		}
	}
	for _, preset := range own.Presets() {
		if cells["my-"+preset] != cells[preset] || cells[preset] < 60 {
			t.Errorf("%s: have %d scenarios for the template, want the %d of the preset", preset, cells["my-"+preset], cells[preset])
		}
	}
	if len(broken) < 20 {
		t.Errorf("have %d broken cells, want those of unlocked, of its drain and of direct I/O", len(broken))
	}
}

// The tutorial's tries are broken and kept as its page says, and the page shows their code.
func TestTutorial(t *testing.T) {
	need.Long(t)
	broken, _ := builtResults(t)
	count := map[string]int{}
	for _, s := range scenario.Names() {
		for _, try := range []string{"try1", "try2", "try3"} {
			r, bad := broken[s+" "+try]
			if _, base := broken[s+" locked"]; bad && !base {
				count[try]++
				if try == "try1" && s == "truncate-race" && !strings.Contains(r.Violation, "a write that leaves a gap") {
					t.Errorf("have %s, want the gap", r.Violation)
				}
			}
		}
	}
	if count["try1"] < 6 || count["try2"] != 8 || count["try3"] != 0 || broken["two-writers-same try2"].Schedule != "15:1" {
		t.Errorf("have broken %v, two-writers-same by %q; want more than 6, 8 and 0, by 15:1", count, broken["two-writers-same try2"].Schedule)
	}
	page, err := os.ReadFile("../../../labs/guide/own-policy.md")
	if err != nil {
		t.Fatal(err)
	}
	blocks := strings.Split(string(page), "```go\n")[1:]
	if len(blocks) != 3 {
		t.Fatalf("have %d blocks of Go, want 3", len(blocks))
	}
	for i, b := range blocks {
		b, _, _ = strings.Cut(b, "```")
		code, err := os.ReadFile(fmt.Sprintf("testdata/try%d/policy.go", i+1))
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(string(code), b) {
			t.Errorf("try %d has not what the page shows:\n%s", i+1, b)
		}
	}
}

// What is wrong with a folder is one line that names it, and nothing is built.
func TestRead(t *testing.T) {
	const good = "// Package p is a thought.\npackage p\n\nimport \"btrlab/labs/kit\"\n\nfunc Write(t *kit.Task, w *kit.WaitedWrite) error { return nil }\n"
	for _, tt := range []struct {
		name  string
		files map[string]string
		want  string // of the error; empty is none
		base  string
	}{
		{"empty", nil, "have neither Go nor toggles.txt", ""},
		{"toggles", map[string]string{"toggles.txt": "# A thought.\nprewait+WRITE_RANGE_LOCK\n"}, "", "prewait+WRITE_RANGE_LOCK"},
		{"no preset", map[string]string{"toggles.txt": "prewat\n"}, `toggles.txt: line 1: unknown policy "prewat" (did you mean "prewait"?)`, ""},
		{"no toggle", map[string]string{"toggles.txt": "\nlocked+RANGE\n"}, "toggles.txt: line 2: unknown toggle", ""},
		{"two", map[string]string{"toggles.txt": "locked\nmodern\n"}, "toggles.txt: line 2: have a second policy", ""},
		{"comment", map[string]string{"toggles.txt": "# nothing\n"}, "toggles.txt: have no policy", ""},
		{"go", map[string]string{"p.go": good}, "", own.Switches},
		{"both", map[string]string{"p.go": good, "toggles.txt": "modern\n"}, "", "modern"},
		{"other", map[string]string{"p.go": "package p\nfunc Wirte() {}\n"}, "have no function of a policy, want one of New, Write, NewRangeLock, Extent, Sectors, Put", ""},
		{"no go", map[string]string{"p.go": "package p\nfunc {\n"}, "p.go:2:6: expected 'IDENT'", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			for name, text := range tt.files {
				if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			x, err := own.Read(dir)
			switch {
			case tt.want == "" && err != nil:
				t.Fatal(err)
			case tt.want == "":
				if x.Base != tt.base || tt.base != "modern" && x.Name == "go" && x.About != "a thought" {
					t.Errorf("have base %q, about %q, want base %q", x.Base, x.About, tt.base)
				}
			case err == nil || !strings.Contains(err.Error(), tt.want):
				t.Errorf("have %v, want %q", err, tt.want)
			}
		})
	}
	if _, err := own.Read(filepath.Join(t.TempDir(), "none")); !os.IsNotExist(err) {
		t.Errorf("have %v, want that of a folder that is not there", err)
	}
}

// What the labs do not allow, a policy may not do either: the line says where.
func TestBuildRefuses(t *testing.T) {
	root, err := sandbox.Root(".")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	code := "package p\n\nimport (\n\t\"os\"\n\n\t\"btrlab/labs/kit\"\n)\n\nvar n int\n\nfunc Extent(t *kit.Task, x *kit.NowaitExtent) error { os.Exit(0); return nil }\n"
	if err := os.WriteFile(filepath.Join(dir, "p.go"), []byte(code), 0o644); err != nil {
		t.Fatal(err)
	}
	x, err := own.Read(dir)
	if err != nil {
		t.Fatal(err)
	}
	_, remove, err := own.Build(context.Background(), root, []*own.Folder{x})
	remove()
	for _, want := range []string{`p.go:4: imports "os"`, "p.go:9: has a variable of the package"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("have %v, want %q", err, want)
		}
	}
}

// A name of a policy is one that no preset has, and a word for --policy.
func TestNameable(t *testing.T) {
	for name, ok := range map[string]bool{"mine": true, "a.b-c_9": true, "locked": false, "modern": false, "a+b": false, "a!b": false, "": false, "-x": false,
		strings.Repeat("x", 41): false, "nowait-6.1": false} {
		if err := policy.Nameable(name); (err == nil) != ok {
			t.Errorf("%q: have %v, want ok %v", name, err, ok)
		}
	}
	dir := filepath.Join(t.TempDir(), "twice")
	for i, ok := range []bool{true, false} {
		if err := own.Make(dir, "locked", ""); (err == nil) != ok {
			t.Errorf("time %d: have %v", i+1, fmt.Sprint(err))
		}
	}
}

// TestAboutOfTemplate: the first line of a verdict and of its page was the sentence that the
// template has about its preset. Until somebody says what the policy is, it says that nobody has.
func TestAboutOfTemplate(t *testing.T) {
	for _, preset := range own.Presets() {
		dir := filepath.Join(t.TempDir(), "my-idea")
		if err := own.Make(dir, preset, ""); err != nil {
			t.Fatal(err)
		}
		file := filepath.Join(dir, "policy.go")
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, tt := range []struct{ text, want string }{
			{string(text), "begun from " + preset + "; the package comment does not say yet what it is about"},
			{"// Package myidea is a leader and its members.\n//\n" + string(text), "a leader and its members"},
		} {
			if err := os.WriteFile(file, []byte(tt.text), 0o644); err != nil {
				t.Fatal(err)
			}
			x, err := own.Read(dir)
			if err != nil || x.About != tt.want {
				t.Errorf("%s: have %q (%v) want %q", preset, x.About, err, tt.want)
			}
		}
	}
}
