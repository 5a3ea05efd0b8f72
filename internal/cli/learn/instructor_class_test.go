package learn

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"btrlab/internal/cli/app"
	"btrlab/internal/study/course"
	"btrlab/internal/study/sandbox"
)

// TestGradeAllResumed: a class whose grading is interrupted after some submissions has these in the
// table, and is graded to the end by the same command; what upsets the grader is one student's
// matter.
func TestGradeAllResumed(t *testing.T) {
	root, err := sandbox.Root(".")
	if err != nil {
		t.Fatal(err)
	}
	l, err := course.Lookup(0)
	if err != nil {
		t.Fatal(err)
	}
	class := t.TempDir()
	for name, text := range map[string]string{"ada": "lost-update = 3:1\n", "bob": "\x00\xff", "cyd": "one-lock = never\n", "dee": "lost-update = " + strings.Repeat("9", 1<<20) + "\n", "eve": "one-lock = never\n"} {
		if err := os.MkdirAll(filepath.Join(class, name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(class, name, "answers.txt"), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	// a folder where a file should be
	if err := os.MkdirAll(filepath.Join(class, "fay", "answers.txt"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(class, "list.txt"), []byte("no submission\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	table := filepath.Join(t.TempDir(), "grades.csv")
	// interrupted grades n submissions and returns the table.
	interrupted := func(n int) string {
		t.Helper()
		graded := n
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		_, err := gradeInto(ctx, root, l, &gradeFlags{class: class, table: table}, func(course.Submission) {
			if n--; n == 0 {
				stop()
			}
		})
		if !errors.Is(err, context.Canceled) {
			t.Fatalf("graded to the end: %v", err)
		}
		rows := map[int]string{3: "3 rows of 6 stand in ", 1: "2 rows of 6 stand in "}[graded]
		if says := (&gradeFlags{class: class, table: table}).interrupted(graded).Error(); !strings.Contains(says, rows+table+", and the same command goes on with the rest") {
			t.Error(says)
		}
		if says := (&gradeFlags{class: class}).interrupted(graded).Error(); !strings.Contains(says, "of 6 submissions, and nothing is kept; with --csv FILE") {
			t.Error(says)
		}
		b, err := os.ReadFile(table)
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	b := interrupted(3)
	lines := strings.SplitAfter(b, "\n")
	if len(lines) != 5 || !strings.HasPrefix(lines[3], "cyd,8,") {
		t.Fatalf("the table of an interrupted grading:\n%s", b)
	}
	// Of cyd only is something known; the next grading ends after ada and has not come to it.
	if err := os.WriteFile(table, []byte(lines[0]+lines[3]), 0o644); err != nil {
		t.Fatal(err)
	}
	b = interrupted(1)
	if strings.Count(b, "\n") != 3 || !strings.Contains(b, "\nada,5,") || !strings.Contains(b, "\ncyd,8,") {
		t.Fatalf("the table of a grading that is interrupted again:\n%s", b)
	}
	// A score that grading never gives shows what is taken over.
	if err := os.WriteFile(table, []byte(strings.Replace(b, "\ncyd,8,", "\ncyd,77,", 1)), 0o644); err != nil {
		t.Fatal(err)
	}
	lab := verbs{app.New(nil, io.Discard, io.Discard)}.lab()
	lab.SetArgs([]string{"grade", "0", "--all", class, "--csv", table})
	if err := lab.Execute(); err != nil {
		t.Fatal(err)
	}
	whole, err := os.ReadFile(table)
	if err != nil || strings.Count(string(whole), "\n") != 7 {
		t.Fatalf("%v\n%s", err, whole)
	}
	for _, want := range []string{"\nada,5,", "\nbob,0,100,false,", "check: line 1", "\ncyd,77,", "\ndee,0,100,false,", "\neve,8,", "\nfay,0,100,false,", "check: answers.txt: is a folder, want a regular file"} {
		if !strings.Contains(string(whole), want) {
			t.Errorf("no %q in\n%.3000s", want, whole)
		}
	}
}
