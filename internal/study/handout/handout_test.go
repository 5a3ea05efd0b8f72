package handout

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"btrlab/internal/study/course"
	"btrlab/internal/study/judges"
	"btrlab/internal/study/sandbox"
	"btrlab/internal/testing/need"
)

// committed is the last commit of the clone that the test runs in. A handout has none.
func committed(t *testing.T) []File {
	t.Helper()
	root, err := sandbox.Root(".")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(root, judges.HandoutFile)); err == nil {
		t.Skip("SKIPPED: this tree is a handout; what is handed out is judged in a clone")
	}
	if _, err := os.Stat(filepath.Join(root, ".git")); errors.Is(err, fs.ErrNotExist) {
		t.Skip("SKIPPED: this tree is no git clone, of whose last commit a handout is made")
	}
	tree, err := Committed(root)
	if err != nil {
		t.Fatal(err)
	}
	return tree
}

// TestNoSolution: nothing of an instructor's folder and no line of a solution is handed out, no
// test that is looks for one, and the same commit gives the same bytes.
func TestNoSolution(t *testing.T) {
	need.Long(t)
	tree := committed(t)
	out, err := From(tree)
	if err != nil {
		t.Fatal(err)
	}
	if len(out) < 500 || len(out) >= len(tree) {
		t.Errorf("%d of %d files are handed out", len(out), len(tree))
	}
	for _, f := range out {
		if strings.Contains(f.Path, "instructor") || strings.Contains(f.Path, "_mutants") || strings.Contains(f.Path, "_solution") {
			t.Errorf("%s is handed out", f.Path)
		}
		// make test passes in a handout (TestInside, with -handout.all, in ten minutes).
		if strings.HasSuffix(f.Path, "_test.go") && bytes.Contains(f.Data, []byte("\"instructor\", \"_")) {
			t.Errorf("%s is handed out and reads what is not: want it in a file instructor_..._test.go", f.Path)
		}
	}
	for _, l := range Leaks(tree, out) {
		t.Error(l)
	}
	var first, second bytes.Buffer
	slices.Reverse(tree)
	again, err := From(tree)
	if err := errors.Join(err, WriteZip(&first, "btrlab", out), WriteZip(&second, "btrlab", again)); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(first.Bytes(), second.Bytes()) {
		t.Error("the same files give two zips")
	}
}

// small is a tree with a starter for every lab, and more files.
func small(more ...File) []File {
	for _, l := range course.Labs {
		more = append(more, File{Path: "labs/" + l.Folder + "/" + l.File, Data: []byte("starter\n")})
	}
	return more
}

// TestKept: folders and files that have instructor as their name or its first word stay here,
// answers go sealed.
func TestKept(t *testing.T) {
	out, err := From(small(File{Path: "a/instructor/x"}, File{Path: "b/instructor_test.go"}, File{Path: "c/instructors.txt"}, File{Path: "d/run", Exec: true},
		File{Path: "labs/04-truncate-race/instructor/predict.json", Data: []byte(`[{"answer":"b"}]`)}))
	if err != nil {
		t.Fatal(err)
	}
	has := map[string]File{}
	for _, f := range out {
		has[f.Path] = f
	}
	for path, want := range map[string]bool{"a/instructor/x": false, "b/instructor_test.go": false, "c/instructors.txt": true, "d/run": true,
		"labs/04-truncate-race/predict.sealed": true, "labs/05-range-lock/predict.sealed": false, "HANDOUT": true} {
		if _, ok := has[path]; ok != want {
			t.Errorf("%s is there: %v, want %v", path, ok, want)
		}
	}
	if bytes.Contains(has["labs/04-truncate-race/predict.sealed"].Data, []byte("answer")) {
		t.Error("the answers can be read")
	}
	if n := bytes.Count(has["HANDOUT"].Data, []byte("  labs/")); n != len(course.Labs) {
		t.Errorf("%d starters, want %d\n%s", n, len(course.Labs), has["HANDOUT"].Data)
	}
	if _, err := From(nil); err == nil || !strings.Contains(err.Error(), "has no starter") {
		t.Errorf("a tree without labs: %v", err)
	}
	dir := filepath.Join(t.TempDir(), "out")
	if err := WriteTree(dir, out); err != nil {
		t.Fatal(err)
	}
	if st, err := os.Stat(filepath.Join(dir, "d/run")); err != nil || st.Mode()&0o100 == 0 {
		t.Errorf("d/run: %v, %v", st, err)
	}
	if err := WriteTree(dir, out); !errors.Is(err, fs.ErrExist) {
		t.Errorf("a tree over a tree: %v", err)
	}
	half := filepath.Join(t.TempDir(), "half")
	// a file where a folder is wanted
	err = WriteTree(half, []File{{Path: "a", Data: []byte("a")}, {Path: "a/b"}})
	left, lerr := os.ReadDir(filepath.Dir(half))
	if err == nil || lerr != nil || len(left) != 0 {
		t.Errorf("a tree that cannot be written: %v, and %v is left (%v)", err, left, lerr)
	}
}

// TestLeaks: a line of a solution is found wherever it is; one of the starter, the kit or anybody
// is not.
func TestLeaks(t *testing.T) {
	const dir = "labs/10-unaligned/"
	tree := []File{
		{Path: dir + "instructor/_solution/sectors.go", Data: []byte("package x\n\nfunc Write() {\n\tif w.Look(t) == kit.Written { // so\n\t\treturn\n\t}\n\tsend(t, w, theStarter)\n}\n")},
		{Path: "labs/01-be-the-scheduler/instructor/_solution/schedules.txt", Data: []byte("lose = 11:1\nkeep = unlocked-drain\n")},
	}
	for _, tt := range []struct {
		path, text string
		want       string
	}{
		{"a/x_test.go", "// labs/kit\n	if w.Look(t) == kit.Written {\n", "a/x_test.go:2 has a line of labs/10"},
		{"a/engine.go", "	if w.Look(t) == kit.Written {\n", ""},
		{"notes.txt", "do `if w.Look(t) == kit.Written {` then\n", "notes.txt:1 has a line of labs/10"},
		{"b.txt", "return\n}\nsend(t, w, theStarter)\n", ""},
		{"c.txt", "\nthe answer to lose is 11:1.\n", "c.txt:2 has a line of labs/01"},
		{"c_test.go", "judge(\"lose\", \"11:1\")\n", "c_test.go:1 has a line of labs/01"},
		{"d.txt", "lose, or so\n11:1\n", ""},
		{"e.txt", "lose = 11:10, or 1:11:1\n", ""},
		{"f.txt", "lose 4:0,11:1\n", ""},
		{"g.txt", "keep = unlocked-drain\n", ""},
	} {
		out := []File{{Path: dir + "sectors.go", Data: []byte("send(t, w, theStarter)\n")}, {Path: tt.path, Data: []byte(tt.text)}}
		got := Leaks(tree, out)
		if (len(got) > 0) != (tt.want != "") || tt.want != "" && !strings.HasPrefix(got[0], tt.want) {
			t.Errorf("%s: have %q want %q", tt.path, got, tt.want)
		}
	}
}

var everything = flag.Bool("handout.all", false, "TestInside: make test and every lab in the handout, for minutes; TestOtherPath")

// TestInside: a handout is a tree to work in: its code vets, the tests of what students touch pass,
// and its labs can be graded.
func TestInside(t *testing.T) {
	need.Long(t)
	if testing.Short() {
		t.Skip("builds the labs anew, in another folder")
	}
	out, err := From(committed(t))
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(t.TempDir(), "btrlab")
	if err := WriteTree(dir, out); err != nil {
		t.Fatal(err)
	}
	run := func(name string, args ...string) {
		t.Helper()
		c := exec.CommandContext(t.Context(), name, args...)
		c.Dir = dir
		if b, err := c.CombinedOutput(); err != nil {
			t.Errorf("%s %s: %v\n%s", name, strings.Join(args, " "), err, b)
		}
	}
	if *everything {
		run("make", "test")
		run("go", "vet", "./...")
	}
	run("go", "vet", "./labs/...")
	run("go", "test", "-short", "./labs/...")
	for _, l := range course.Labs {
		qs, err := l.Questions(dir)
		if err != nil || len(qs) == 0 || qs[0].Answer == "" {
			t.Errorf("lab %d: a prediction would not be judged: %+v, %v", l.N, qs, err)
		}
		if l.N > 1 && !*everything { // they build the engine in the new folder
			continue
		}
		r, err := course.Grade(t.Context(), dir, l, course.Options{})
		if err != nil || r.Score != 0 || len(r.Rows) < 2 {
			t.Errorf("lab %d: %+v, %v", l.N, r, err)
		}
	}
}

// TestUncommitted: a teacher is told of what is changed, new, renamed or gone since the commit that
// is handed out.
func TestUncommitted(t *testing.T) {
	dir := t.TempDir()
	git := func(args ...string) {
		t.Helper()
		c := exec.Command("git", append([]string{"-C", dir, "-c", "user.name=t", "-c", "user.email=t@example.org"}, args...)...)
		if out, err := c.CombinedOutput(); err != nil {
			t.Fatalf("git %v: %v\n%s", args, err, out)
		}
	}
	write := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	git("init", "-q")
	for _, name := range []string{"same", "a name", "the old name", "gone"} {
		write(name, "the text of "+name)
	}
	git("add", ".")
	git("commit", "-q", "-m", "all")
	if l, err := Uncommitted(dir); err != nil || len(l) != 0 {
		t.Errorf("all is committed: have %q, %v", l, err)
	}
	write("a name", "ändert")
	write("neu.ü", "new")
	git("mv", "the old name", "moved")
	git("rm", "-q", "gone")
	l, err := Uncommitted(dir)
	slices.Sort(l)
	if want := []string{"a name", "gone", "moved", "neu.ü"}; err != nil || !slices.Equal(l, want) {
		t.Errorf("have %q, %v, want %q", l, err, want)
	}
}

// TestAround: what stands around the labs is in the tree, each file at its place.
func TestAround(t *testing.T) {
	l, err := aroundTree()
	if err != nil || len(l) != len(around) {
		t.Fatalf("%d files, %v, want %d", len(l), err, len(around))
	}
	for _, f := range l {
		if strings.HasSuffix(f.Path, ".json") && !json.Valid(f.Data) {
			t.Errorf("%s is no JSON", f.Path)
		}
	}
}
