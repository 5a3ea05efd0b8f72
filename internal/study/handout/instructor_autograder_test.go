package handout

import (
	"archive/zip"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"btrlab/internal/study/course"
	"btrlab/internal/study/sandbox"
	"btrlab/internal/testing/need"
)

// results is Gradescope's results.json, as its documentation has it.
type results struct {
	Score         *float64 `json:"score"`
	ExecutionTime float64  `json:"execution_time"`
	Output        string   `json:"output"`
	Visibility    string   `json:"visibility"`
	Tests         []struct {
		Name       string   `json:"name"`
		Score      *float64 `json:"score"`
		MaxScore   *float64 `json:"max_score"`
		Status     string   `json:"status"`
		Output     string   `json:"output"`
		Visibility string   `json:"visibility"`
	} `json:"tests"`
}

// unzip writes a zip below dir, as Gradescope does.
func unzip(t *testing.T, b []byte, dir string) {
	t.Helper()
	z, err := zip.NewReader(bytes.NewReader(b), int64(len(b)))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range z.File {
		to := filepath.Join(dir, filepath.FromSlash(f.Name))
		if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
			t.Fatal(err)
		}
		r, err := f.Open()
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(to, text, f.Mode()); err != nil {
			t.Fatal(err)
		}
	}
}

// autograder makes the zip of lab l as the last commit has it.
func autograder(t *testing.T, l *course.Lab, o AutograderOptions) []byte {
	t.Helper()
	root, err := sandbox.Root(".")
	if err != nil {
		t.Fatal(err)
	}
	files, err := From(committed(t))
	if err != nil {
		t.Fatal(err)
	}
	if files, err = Autograder(root, l, files, o); err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if err := WriteZip(&b, "", files); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// TestAutograderZip: the zip of every lab has the two scripts, no test, no solution and nothing
// that grading does not need, and the same commit gives the same bytes.
func TestAutograderZip(t *testing.T) {
	need.Long(t)
	for _, l := range course.Labs {
		if l.N != 0 && l.N != 5 && l.N != 12 { // without code, with, and with more imports
			continue
		}
		o := AutograderOptions{Student: "email", Limit: 5 * time.Minute, Go: []byte("\x1f\x8b")}
		b := autograder(t, l, o)
		if again := autograder(t, l, o); !bytes.Equal(b, again) {
			t.Errorf("lab %d: two zips of one commit differ", l.N)
		}
		dir := t.TempDir()
		unzip(t, b, dir)
		for name, want := range map[string]string{
			"setup.sh":                        "go build ",
			"run_autograder":                  fmt.Sprintf(`"$base/btrlab-autograder" -base "$base" -limit 5m0s -student email %d ||`, l.N),
			"go.mod":                          "module ",
			"vendor/modules.txt":              "## explicit",
			"go.tar.gz":                       "\x1f\x8b",
			"labs/" + l.Folder + "/README.md": "#",
		} {
			text, err := os.ReadFile(filepath.Join(dir, name))
			if err != nil || !strings.Contains(string(text), want) || strings.Contains(string(text), "@") && strings.HasSuffix(name, ".sh") {
				t.Errorf("lab %d: %s: %v, want %q in\n%.400s", l.N, name, err, want, text)
			}
			if st, err := os.Stat(filepath.Join(dir, name)); err == nil && (st.Mode()&0o100 != 0) != (name == "setup.sh" || name == "run_autograder") {
				t.Errorf("lab %d: %s has mode %v", l.N, name, st.Mode())
			}
		}
		z, err := zip.NewReader(bytes.NewReader(b), int64(len(b)))
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range z.File {
			if !kept(f.Name) || strings.HasSuffix(f.Name, "_test.go") && !strings.HasPrefix(f.Name, "labs/"+l.Folder) || strings.HasPrefix(f.Name, "internal/cli/") ||
				strings.HasPrefix(f.Name, "labs/0") && !strings.HasPrefix(f.Name, "labs/"+l.Folder) {
				t.Errorf("lab %d: %s is in the zip", l.N, f.Name)
			}
		}
		if len(b) > 4<<20 {
			t.Errorf("lab %d: the zip has %d bytes", l.N, len(b))
		}
	}
}

// TestAutograderSum: setup.sh unpacks no archive of Go with another sum than the one that it was
// made with, be it downloaded or taken along, and says so in one line. The version that go.mod
// wants has a sum.
func TestAutograderSum(t *testing.T) {
	need.Long(t)
	l, err := course.Lookup(0)
	if err != nil {
		t.Fatal(err)
	}
	archive := []byte("\x1f\x8bno archive")
	// no go, and a curl that always has the same
	bin := t.TempDir()
	for _, name := range []string{"bash", "cut", "cat", "tar", "rm", "sha256sum", "uname"} {
		at, err := exec.LookPath(name)
		if err != nil {
			t.Skipf("SKIPPED: no %s", name)
		}
		if err := os.Symlink(at, filepath.Join(bin, name)); err != nil {
			t.Fatal(err)
		}
	}
	curl := "#!/bin/sh\nwhile [ \"$1\" != -o ]; do shift; done\nprintf '\\037\\213no archive' >\"$2\"\n"
	if err := os.WriteFile(filepath.Join(bin, "curl"), []byte(curl), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name string
		o    AutograderOptions
		late []byte // in the place of what was taken along
		want string
	}{
		{"downloaded", AutograderOptions{}, nil, "^bad archive of Go .*/go.tar.gz, have sha256 [0-9a-f]{64} want [0-9a-f]{64}\n$"},
		{"taken along, and changed", AutograderOptions{Go: archive}, []byte("\x1f\x8banother"), "^bad archive of Go go.tar.gz, have sha256 [0-9a-f]{64} want [0-9a-f]{64}\n$"},
		{"taken along", AutograderOptions{Go: archive}, nil, "(?s)^[^b].*gzip"}, // tar has it
	} {
		base := t.TempDir()
		source := filepath.Join(base, "source")
		unzip(t, autograder(t, l, tt.o), source)
		if tt.late != nil {
			if err := os.WriteFile(filepath.Join(source, "go.tar.gz"), tt.late, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		c := exec.CommandContext(t.Context(), filepath.Join(bin, "bash"), filepath.Join(source, "setup.sh"))
		c.Env = []string{"PATH=" + bin, "BTRLAB_AUTOGRADER=" + base}
		out, err := c.CombinedOutput()
		if err == nil || !regexp.MustCompile(tt.want).Match(out) {
			t.Errorf("%s: %v, %q, want %q", tt.name, err, out, tt.want)
		}
		if _, err := os.Stat(filepath.Join(base, "go")); err == nil {
			t.Errorf("%s: it is unpacked", tt.name)
		}
	}
}

// TestAutograderMissing: a package of the grader that is not committed is an error that names it,
// not a zip that does not build.
func TestAutograderMissing(t *testing.T) {
	root, err := sandbox.Root(".")
	if err != nil {
		t.Fatal(err)
	}
	l, err := course.Lookup(4)
	if err != nil {
		t.Fatal(err)
	}
	files, err := From(committed(t))
	if err != nil {
		t.Fatal(err)
	}
	files = slices.DeleteFunc(files, func(f File) bool { return f.Path == "labs/kit/kit.go" })
	if _, err := Autograder(root, l, files, AutograderOptions{}); err == nil || !strings.HasPrefix(err.Error(), "labs/kit/kit.go is not in the last commit") {
		t.Errorf("%v", err)
	}
}

// TestAutograder: an /autograder elsewhere, set up by setup.sh and run by run_autograder, grades a
// solution, the starter, code that does not end, code that does not build, and nothing. Each has a
// results.json, and the network has no part in it.
func TestAutograder(t *testing.T) {
	need.Long(t)
	if testing.Short() {
		t.Skip("builds the engine anew, in another folder")
	}
	l, err := course.Lookup(4)
	if err != nil {
		t.Fatal(err)
	}
	base := t.TempDir()
	unzip(t, autograder(t, l, AutograderOptions{Limit: 5 * time.Minute}), filepath.Join(base, "source"))
	cache, err := exec.Command("go", "env", "GOCACHE").Output() // with the standard library
	if err != nil {
		t.Fatal(err)
	}
	env := append(os.Environ(), "BTRLAB_AUTOGRADER="+base, "http_proxy=http://127.0.0.1:1", "https_proxy=http://127.0.0.1:1", "GOCACHE="+strings.TrimSpace(string(cache)))
	run := func(name string) string {
		t.Helper()
		c := exec.CommandContext(t.Context(), "bash", filepath.Join(base, "source", name))
		c.Dir, c.Env = base, env
		out, err := c.CombinedOutput()
		if err != nil {
			t.Fatalf("%s: %v\n%s", name, err, out)
		}
		return string(out)
	}
	run("setup.sh")
	root, err := sandbox.Root(".")
	if err != nil {
		t.Fatal(err)
	}
	own := func(name ...string) string {
		b, err := os.ReadFile(filepath.Join(append([]string{l.Dir(root)}, name...)...))
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	for _, tt := range []struct {
		name, file, text string
		score            float64
		rows             int
		output           string // of the first row that fails
	}{
		{"solution", "setsize.go", own("instructor", "_solution", "setsize.go"), 100, 10, ""},
		{"starter", "setsize.go", own("setsize.go"), 0, 10, "replay: btrlab lab grade 4 --replay truncate-race="},
		{"hangs", "setsize.go", "package p\n\nimport \"btrlab/internal/policy\"\n\nfunc Steps() []policy.SetsizeStep {\n\tfor {\n\t}\n}\n\nfunc Answers() map[string]string { return nil }\n", 0, 1,
			"setsize.go:6: Steps took 2s of processor time and did not end"},
		{"does not build", "setsize.go", "package p\n\nimport \"btrlab/internal/policy\"\n\nfunc Steps() []policy.SetsizeStep { return 1 }\n", 0, 1, "setsize.go:5:"},
		{"is not Go", "setsize.go", "Steps:", 0, 1, "setsize.go:1:1: expected 'package'"},
		{"nothing", "notes.txt", "", 0, 1, "the submission has no Go file"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := filepath.Join(base, "submission")
			if err := os.RemoveAll(dir); err != nil {
				t.Fatal(err)
			}
			file := filepath.Join(dir, filepath.FromSlash(tt.file))
			if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(file, []byte(tt.text), 0o644); err != nil {
				t.Fatal(err)
			}
			said := run("run_autograder")
			b, err := os.ReadFile(filepath.Join(base, "results", "results.json"))
			if err != nil {
				t.Fatalf("%v\n%s", err, said)
			}
			var r results
			d := json.NewDecoder(bytes.NewReader(b))
			if err := d.Decode(&r); err != nil {
				t.Fatalf("%v\n%s", err, b)
			}
			if r.Score == nil || *r.Score != tt.score || len(r.Tests) != tt.rows || r.ExecutionTime <= 0 || r.Visibility != "visible" {
				t.Fatalf("want %g points in %d rows:\n%s%s", tt.score, tt.rows, b, said)
			}
			sum, most, failed := 0.0, 0.0, ""
			for _, x := range r.Tests {
				if x.Name == "" || x.Score == nil || x.MaxScore == nil || x.Visibility != "visible" || x.Status != "passed" && x.Status != "failed" {
					t.Fatalf("row %+v of\n%s", x, b)
				}
				sum, most = sum+*x.Score, most+*x.MaxScore
				if x.Status == "failed" && failed == "" {
					failed = x.Output
				}
			}
			if sum != tt.score || most != 100 || !strings.Contains(failed, tt.output) || (failed == "") != (tt.output == "") {
				t.Errorf("%g of %g points, want %g; the first failure is %q, want %q", sum, most, tt.score, failed, tt.output)
			}
		})
	}
	// A grader that cannot run, or is killed, leaves a result as well.
	if err := os.Remove(filepath.Join(base, "btrlab-autograder")); err != nil {
		t.Fatal(err)
	}
	run("run_autograder")
	var r results
	if b, err := os.ReadFile(filepath.Join(base, "results", "results.json")); err != nil || json.Unmarshal(b, &r) != nil || r.Score == nil || *r.Score != 0 || !strings.Contains(r.Output, "ask your teacher") {
		t.Errorf("%v\n%s", err, b)
	}
}
