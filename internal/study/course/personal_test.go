package course

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"btrlab/internal/study/grade"
	"btrlab/internal/study/judges"
	"btrlab/internal/study/practice"
	"btrlab/internal/testing/need"
)

// solve answers a personal question as a student with an explorer of his own would: it reads what
// was found after a wrong answer.
func solve(t *testing.T, q *practice.Question) string {
	t.Helper()
	wrong := map[practice.Kind]string{practice.Break: "", practice.See: map[bool]string{true: "777777", false: "ZZ"}[q.Level <= 3], practice.Count: "0", practice.Fewest: "0"}[q.Kind]
	v, err := q.Judge(wrong, practice.Options{})
	if err != nil || v.Right {
		t.Fatalf("%q: %+v, %v", wrong, v, err)
	}
	for _, says := range []string{`which end with (.*); the schedule`, `counted by running each of them: (\d+) schedule`} {
		if m := regexp.MustCompile(says).FindStringSubmatch(v.Count); m != nil {
			return m[1]
		}
	}
	t.Fatalf("no answer in %q", v.Count)
	return ""
}

func put(t *testing.T, dir, name, text string) {
	t.Helper()
	file := filepath.Join(dir, filepath.FromSlash(name))
	if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o755), os.WriteFile(file, []byte(text), 0o644)); err != nil {
		t.Fatal(err)
	}
}

// TestPersonal: some labs have a question of each student's own. What exploring finds is
// right, for that student only; the row does not give it away.
func TestPersonal(t *testing.T) {
	need.Long(t)
	r := root(t)
	for _, n := range []int{1, 3, 4, 5, 6, 7, 9, 10} {
		l := lab(t, n)
		var texts []string
		var questions []*practice.Question
		for _, student := range []string{"ada", "bob"} {
			qs, err := l.Personal(r, student)
			if err != nil || len(qs) != 1 {
				t.Fatalf("lab %d: %d personal questions, %v", n, len(qs), err)
			}
			texts = append(texts, fmt.Sprint(qs[0].Text()))
			questions = append(questions, qs[0])
		}
		if texts[0] == texts[1] {
			t.Errorf("lab %d: two students have one question: %s", n, texts[0])
		}
		dir, answer := t.TempDir(), solve(t, questions[0])
		grade := func() grade.Row {
			t.Helper()
			rows, err := l.gradePersonal(t.Context(), r, dir, " Ada", nil)
			if err != nil || len(rows) != 1 || rows[0].Max != personalPoints {
				t.Fatalf("lab %d: %+v, %v", n, rows, err)
			}
			return rows[0]
		}
		if x := grade(); x.Pass || x.Result != judges.NoAnswer {
			t.Errorf("lab %d, no file: %+v", n, x)
		}
		put(t, dir, personalFile, "# mine\n1 = "+answer+"\n")
		if x := grade(); !x.Pass || x.Score != personalPoints {
			t.Errorf("lab %d, %q: %+v", n, answer, x)
		}
		wrong := "1"
		if n > 1 {
			wrong, _, _ = strings.Cut(answer, ",")
		}
		put(t, dir, personalFile, "1 = "+wrong)
		if x := grade(); x.Pass || x.Score != 0 || strings.Contains(x.Result, answer) || x.Trace != "" || x.Schedule != "" {
			t.Errorf("lab %d, %q: %+v", n, wrong, x)
		}
		for bad, want := range map[string]string{"2 = 1": "personal.txt, line 1: want NUMBER = ANSWER, with a number from 1 to 1", "1": "line 1: want", "1 = 1\n1 = 2": "line 2: 1 comes twice",
			"1 = " + strings.Repeat("A", 500): "want at most 400", "1 = {}": "want "} {
			put(t, dir, personalFile, bad)
			if x := grade(); x.Pass || !strings.Contains(x.Result, want) {
				t.Errorf("lab %d, %q: %+v, want %q", n, bad, x, want)
			}
		}
	}
}

// TestByName: in a class whose folders are named by the ids each student is graded by the question
// of that name.
func TestByName(t *testing.T) {
	r, l, class := root(t), lab(t, 1), t.TempDir()
	qs, err := l.Personal(r, "ada")
	if err != nil {
		t.Fatal(err)
	}
	answer := solve(t, qs[0])
	for _, name := range []string{"ada", "bob"} {
		dir := filepath.Join(class, name)
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		put(t, dir, "schedules.txt", "lose-the-truncate = ?\n")
		put(t, dir, personalFile, "1 = "+answer)
	}
	for byName, want := range map[bool][2]float64{true: {personalPoints, 0}, false: {0, 0}} {
		all, err := GradeAll(t.Context(), r, l, class, byName, Options{}, nil, func([]Submission) error { return nil })
		if err != nil || len(all) != 2 || all[0].Score != want[0] || all[1].Score != want[1] {
			t.Errorf("by name %v: %+v, %v, want %v", byName, all, err, want)
		}
	}
}
