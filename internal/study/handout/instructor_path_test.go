package handout

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"btrlab/internal/study/course"
	"btrlab/internal/study/sandbox"
)

// TestOtherPath: the commands of CONTRIBUTING.md give a copy of the module another path, and a lab
// is graded in it as in ours: what reads the path at run time (the root of a clone, the program
// that is built, what a lab may import, whose line in a stack is the student's) has followed.
func TestOtherPath(t *testing.T) {
	if !*everything {
		t.Skip("only with -handout.all: builds the engine anew, under another path")
	}
	root, err := sandbox.Root(".")
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(root, "CONTRIBUTING.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, after, found := strings.Cut(string(text), "**Another module path.**")
	parts := strings.SplitN(after, "```", 3)
	if !found || len(parts) < 3 || !strings.Contains(parts[1], "new=") {
		t.Fatal("CONTRIBUTING.md has no commands for another module path")
	}
	l, err := course.Lookup(5)
	if err != nil {
		t.Fatal(err)
	}
	base := t.TempDir()
	source := filepath.Join(base, "source")
	unzip(t, autograder(t, l, AutograderOptions{}), source)
	// which grading does not need
	if err := os.Mkdir(filepath.Join(source, "notebooks"), 0o755); err != nil {
		t.Fatal(err)
	}
	run := func(name string, args ...string) {
		t.Helper()
		c := exec.CommandContext(t.Context(), name, args...)
		c.Dir = source
		if out, err := c.CombinedOutput(); err != nil {
			t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
		}
	}
	run("bash", "-euo", "pipefail", "-c", parts[1])
	for _, name := range []string{"go.mod", "internal/module/module.go", "labs/kit/kit.go"} {
		b, err := os.ReadFile(filepath.Join(source, filepath.FromSlash(name)))
		if err != nil || !bytes.Contains(b, []byte("example.org/you/btrlab")) {
			t.Errorf("%s has not followed: %v\n%.200s", name, err, b)
		}
	}
	// Of the solution a lock without its mutex: a race, whose lines are the student's.
	b, err := os.ReadFile(filepath.Join(l.Dir(root), "instructor", "_mutants", "no-mutex", "rangelock.go"))
	if err != nil {
		t.Fatal(err)
	}
	submission := filepath.Join(base, "submission")
	if err := os.Mkdir(submission, 0o755); err != nil {
		t.Fatal(err)
	}
	b = bytes.ReplaceAll(b, []byte(`"btrlab/`), []byte(`"example.org/you/btrlab/`))
	if err := os.WriteFile(filepath.Join(submission, "rangelock.go"), b, 0o644); err != nil {
		t.Fatal(err)
	}
	run("go", "run", "./cmd/btrlab-autograder", "-base", base, "5")
	b, err = os.ReadFile(filepath.Join(base, "results", "results.json"))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"violated (data race)", "rangelock.go:", ", in Lock", "not measured: a workload is violated"} {
		if !bytes.Contains(b, []byte(want)) {
			t.Errorf("no %q in\n%s", want, b)
		}
	}
	for _, bad := range []string{"example.org", "judge.go"} {
		if bytes.Contains(b, []byte(bad)) {
			t.Errorf("%q in\n%s", bad, b)
		}
	}
}
