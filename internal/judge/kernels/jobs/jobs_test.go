package jobs

import (
	"bytes"
	"maps"
	"os"
	"path/filepath"
	"testing"
)

// TestManifest: what a folder holds, and that a change of any of it shows.
func TestManifest(t *testing.T) {
	dir := t.TempDir()
	for _, err := range []error{os.Mkdir(filepath.Join(dir, "d"), 0o755), os.WriteFile(filepath.Join(dir, "d", "f"), []byte("abc"), 0o600),
		os.Symlink("d/f", filepath.Join(dir, "l"))} {
		if err != nil {
			t.Fatal(err)
		}
	}
	have, err := Manifest(dir)
	want := map[string]string{"d": "dir", filepath.Join("d", "f"): Sum([]byte("abc")), "l": "d/f"}
	if err != nil || !maps.Equal(have, want) {
		t.Errorf("have %v, %v want %v", have, err, want)
	}
	if Sum([]byte("abc")) == Sum([]byte("abd")) || Sum([]byte{0}) == Sum([]byte{0, 0}) {
		t.Error("two contents have one sum")
	}
}

// TestMainIsAJob: the program is a job only where its arguments say so, and one that it does not
// know is an error.
func TestMainIsAJob(t *testing.T) {
	var out, errs bytes.Buffer
	if _, yes := Main([]string{"btrlab", "ls"}, &out, &errs); yes {
		t.Error("a verb is taken for a job")
	}
	if code, yes := Main(append([]string{"btrlab"}, Args("none")...), &out, &errs); !yes || code == 0 || errs.Len() == 0 {
		t.Errorf("a job that is not there: code %d, %t, %q", code, yes, errs.String())
	}
}

// TestNowaitCells: at least sixty writes are asked of each kernel, each under a name of its own.
func TestNowaitCells(t *testing.T) {
	keys := map[string]bool{}
	n := 0
	for g := NowaitGroup(0); ; g++ {
		list := NowaitCells(g)
		if len(list) == 0 {
			break
		}
		for _, c := range list {
			keys[c.Key()] = true
			n++
		}
	}
	if n < 60 || len(keys) != n {
		t.Errorf("%d writes with %d names, want 60 at least, and as many", n, len(keys))
	}
}
