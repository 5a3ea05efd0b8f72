package course

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestPersonalRow: with a student's name the personal question is a row more; without, the hundred
// points stay, and the report says what was left out.
func TestPersonalRow(t *testing.T) {
	r, l, dir := root(t), lab(t, 1), t.TempDir()
	b, err := os.ReadFile(filepath.Join(l.Dir(r), "instructor", "_solution", "schedules.txt"))
	if err != nil {
		t.Fatal(err)
	}
	qs, err := l.Personal(r, "ada")
	if err != nil {
		t.Fatal(err)
	}
	put(t, dir, "schedules.txt", string(b))
	put(t, dir, personalFile, "1 = "+solve(t, qs[0]))
	for student, want := range map[string]struct {
		score, max float64
		left       int
	}{"": {100, 100, 1}, "ada": {110, 110, 0}, "bob": {100, 110, 0}} {
		x, err := Grade(t.Context(), r, l, Options{Dir: dir, Student: student})
		if err != nil {
			t.Fatal(err)
		}
		if x.Score != want.score || x.Max != want.max || x.LeftOut != want.left || x.Pass != (want.score == want.max) {
			t.Errorf("student %q: %g of %g, %d left out\n%s", student, x.Score, x.Max, x.LeftOut, text(x))
		}
		if says := strings.Contains(text(x), "left out: 1 personal question; --student ID grades it"); says != (student == "") {
			t.Errorf("student %q: the report says that something is left out: %v", student, says)
		}
	}
	if _, err := l.Personal(r, " "); err == nil {
		t.Error("a student without a name")
	}
	if l.digest(dir, "ada") == l.digest(dir, "bob") || l.digest(dir, "ada") == l.digest(dir, "") {
		t.Error("a submission that was graded for somebody else is not graded again")
	}
	d := l.digest(dir, "ada")
	put(t, dir, personalFile, "1 = 2")
	if l.digest(dir, "ada") == d {
		t.Error("a changed answer is not graded again")
	}
}

// TestWhoseImages: answers to lab 15 count for the student whose images they are about, also when
// the file does not say who that is.
func TestWhoseImages(t *testing.T) {
	r, l := root(t), lab(t, 15)
	b, err := os.ReadFile(filepath.Join(l.Dir(r), "instructor", "_solution", l.File))
	if err != nil {
		t.Fatal(err)
	}
	_, unnamed, _ := strings.Cut(string(b), "\n")
	for _, c := range []struct {
		answers, student string
		score            float64
	}{
		{string(b), "", 100},
		{string(b), " KEY-2026", 100},
		{string(b), "bob", 0},
		{unnamed, "key-2026", 100},
		{unnamed, "bob", 0},
		{unnamed, "", 0},
	} {
		dir := t.TempDir()
		put(t, dir, l.File, c.answers)
		x, err := Grade(t.Context(), r, l, Options{Dir: dir, Student: c.student})
		if err != nil {
			t.Fatal(err)
		}
		if x.Score != c.score || x.Max != 100 {
			t.Errorf("student %q: %g of %g points\n%s", c.student, x.Score, x.Max, text(x))
		}
	}
}
