package cli

import (
	"bufio"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"btrlab/internal/study/course"
	"btrlab/internal/study/sandbox"
)

// clone makes what looks like a clone with lab 0, whose answers are in the file that it returns.
func clone(t *testing.T) (dir, answers string) {
	t.Helper()
	dir = t.TempDir()
	answers = filepath.Join(dir, "labs", "00-warm-up", "answers.txt")
	if err := os.MkdirAll(filepath.Dir(answers), 0o755); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{filepath.Join(dir, "go.mod"): "module btrlab\n", filepath.Join(dir, "labs", "00-warm-up", "predict.json"): "[]", answers: "one-lock = never\n"} {
		if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir, answers
}

// TestLabWatch: watch grades at once, again when the file is saved, shows how far all labs are,
// keeps the score for lab status, and ends with exit code 0 at SIGINT.
func TestLabWatch(t *testing.T) {
	dir, answers := clone(t)
	bin := program(t)
	cmd := exec.CommandContext(t.Context(), bin, "lab", "watch", "0")
	cmd.Dir = dir
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	// for a watch that sees nothing
	nothing := time.AfterFunc(time.Minute, func() { cmd.Process.Kill() })
	defer nothing.Stop()
	lines := bufio.NewScanner(out)
	until := func(want ...string) {
		t.Helper()
		nothing.Reset(time.Minute)
		for lines.Scan() {
			if len(want) > 0 && strings.Contains(lines.Text(), want[0]) {
				if want = want[1:]; len(want) == 0 {
					return
				}
			}
		}
		t.Fatalf("watch has ended without a line with %q", want)
	}
	// as a whole: watch may look at any moment, and would grade a file without its text as well
	save := func(text string) {
		t.Helper()
		name := filepath.Join(t.TempDir(), "answers")
		if err := errors.Join(os.WriteFile(name, []byte(text), 0o644), os.Rename(name, answers)); err != nil {
			t.Fatal(err)
		}
	}
	until("one-lock", "sum", "8/100  begun", " labs done", "save to grade again")
	save("lost-update = 3:1\none-lock = never\n")
	until("sum", "13/100  begun", "save to grade again")
	if err := os.Remove(answers); err != nil {
		t.Fatal(err)
	}
	until("has no answers.txt; it is graded once it has")
	save("one-lock = never\n")
	until("8/100  begun", "save to grade again")
	if err := cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	for lines.Scan() {
		if lines.Text() != "" {
			t.Errorf("after the interrupt it prints %q", lines.Text())
		}
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("interrupted: %v", err)
	}
	status := func(want string) {
		t.Helper()
		c := exec.Command(bin, "lab", "status")
		c.Dir = dir
		if b, err := c.CombinedOutput(); err != nil || !strings.Contains(strings.Join(strings.Fields(string(b)), " "), want) {
			t.Errorf("lab status: %v, want %q in\n%s", err, want, b)
		}
	}
	status("0 Warm-up 8/100 begun 1 Be")
	if err := os.WriteFile(answers, []byte("one-lock = ?\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	status("0 Warm-up 8/100 changed: btrlab lab grade 0 1 Be")
}

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
	verb(t, 0, "lab", "grade", "0", "--all", class, "--csv", table)
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
