package course

import (
	"strings"
	"testing"
)

// TestKept: the last grade of a lab, and whether its files are still those that were graded; a
// report of one's own counts as a file.
func TestKept(t *testing.T) {
	l, dir := lab(t, 12), t.TempDir()
	if k, _, err := l.Kept(dir); k != nil || err != nil {
		t.Errorf("nothing was graded: %+v, %v", k, err)
	}
	own := l.Dir(dir)
	put(t, own, "policy.go", "package p\n")
	put(t, own, "REPORT.md", "## Idea\n")
	o := Options{Student: "ada"}
	if err := l.Keep(dir, &Report{Score: 30, Max: 100}, o, l.Digest(dir, o)); err != nil {
		t.Fatal(err)
	}
	want := func(want bool) {
		t.Helper()
		if k, changed, err := l.Kept(dir); err != nil || k.Score != 30 || k.Max != 100 || changed != want {
			t.Errorf("%+v, changed %v, want %v; %v", k, changed, want, err)
		}
	}
	want(false)
	put(t, own, "REPORT.md", "## Idea\nmore\n")
	want(true)
	put(t, own, "REPORT.md", "## Idea\n")
	want(false)
	put(t, own, "personal.txt", "1 = a\n")
	want(true)
	put(t, dir, "labs/_grade/score-12.json", "{")
	if _, _, err := l.Kept(dir); err == nil || !strings.Contains(err.Error(), "score-12.json") {
		t.Errorf("a broken file: %v", err)
	}
}
