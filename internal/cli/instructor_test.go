package cli

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"btrlab/internal/cli/app"
	"btrlab/internal/testing/need"
)

// TestLabRun: a level is lost or won by an argument; what wins is kept, and then the next level is
// named.
func TestLabRun(t *testing.T) {
	dir := t.TempDir()
	answers := filepath.Join(dir, "answers.txt")
	if err := os.WriteFile(answers, []byte("# mine\nlost-update = ?\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		args string
		code int
		want []string
	}{
		{"run 0", 0, []string{"lost-update    Two increments", "next: btrlab lab run 0 lost-update"}},
		{"run 0 lost-update", 0, []string{"0 a          1 b\nr = x        r = x\n", "x is 2 at the end", "lab run 0 lost-update SCHEDULE, or never"}},
		{"run 0 lost-update 2:1", 1, []string{"LOST: this schedule breaks nothing: x is 2 at the end"}},
		{"run 0 lost-update never", 1, []string{"LOST: it can be broken, with 1 preemption: x is 1 at the end, want 2"}},
		{"run 0 lost-update 2:5", 2, []string{"lost-update: this is no schedule of the level: step 2"}},
		{"run 0 no-level 2:1", 2, []string{`unknown level "no-level"`}},
		{"run 4", 2, []string{`lab "4" has no levels`}},
		{"grade 0 --replay lost-update=2:1", 2, []string{"use btrlab lab run"}},
		{"run 0 lost-update 3:1", 0, []string{"WON: broken (oracle), with 1 preemption", ">3-4", "this is a preemption", "next: btrlab lab run 0 three-lost"}},
		{"run 00 one-lock never", 0, []string{"WON: never: exhausted: 2 schedules; in each of them x is 2 at the end"}},
		{"run 0", 0, []string{"Two increments               won", "One lock                     won", "next: btrlab lab run 0 three-lost"}},
	} {
		args := append([]string{"lab"}, strings.Fields(c.args)...)
		if args[1] == "run" {
			args = append(args, "--dir", dir)
		}
		var out, errw bytes.Buffer
		code := Main(args, strings.NewReader(""), &out, &errw)
		for _, want := range c.want {
			if text := out.String() + errw.String(); code != c.code || !strings.Contains(text, want) {
				t.Errorf("%s: exit %d, want %d, %q in\n%s", c.args, code, c.code, want, text)
			}
		}
	}
	// a folder without answers gets them
	for to, code := range map[string]int{t.TempDir(): 0, "/none": 2} {
		var out bytes.Buffer
		if have := Main([]string{"lab", "run", "0", "one-lock", "never", "--dir", to}, strings.NewReader(""), &out, &out); have != code {
			t.Errorf("--dir %s: exit %d, want %d\n%s", to, have, code, &out)
		}
		if b, err := os.ReadFile(filepath.Join(to, "answers.txt")); code == 0 && string(b) != "one-lock = never\n" {
			t.Errorf("in a new folder is %q, %v", b, err)
		}
	}
	if b, err := os.ReadFile(answers); err != nil || string(b) != "# mine\nlost-update = 3:1\none-lock = never\n" {
		t.Errorf("kept is %q, %v", b, err)
	}
}

// TestGradeAll: a folder of submissions is graded into a table. One without files and one with a
// bad file have no points, a copy is named, and what has not changed is not graded again.
func TestGradeAll(t *testing.T) {
	dir := t.TempDir()
	class, table := filepath.Join(dir, "class"), filepath.Join(dir, "grades.csv")
	hand := func(name, text string) {
		t.Helper()
		if err := os.MkdirAll(filepath.Join(class, name), 0o755); err != nil {
			t.Fatal(err)
		}
		if text == "" {
			return
		}
		if err := os.WriteFile(filepath.Join(class, name, "answers.txt"), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	hand("ada", "lost-update = 3:1\none-lock = never\n")
	hand("bob", "one-lock = never # mine\nlost-update  =  3:1\n")
	hand("cyd", "lost-update: 3:1\n")
	hand("dee", "")
	hand("eve", "one-step = never\n")
	grade := func(args ...string) string {
		t.Helper()
		var out, errw bytes.Buffer
		if code := Main(append([]string{"lab", "grade", "0", "--all", class}, args...), strings.NewReader(""), &out, &errw); code != 0 {
			t.Fatalf("exit %d: %s", code, errw.String())
		}
		if text := errw.String(); strings.Count(text, " of 100 points\n") != 5 || !strings.Contains(text, "cyd: 0 of 100 points\n") {
			t.Errorf("standard error is no line for each submission: %q", text)
		}
		return out.String()
	}
	check := func(text string, want ...string) {
		t.Helper()
		lines := strings.Split(strings.TrimSpace(text), "\n")
		if len(lines) != len(want)+1 {
			t.Fatalf("have %d lines:\n%s", len(lines), text)
		}
		for i, w := range want {
			if ok, err := filepath.Match(w, lines[i+1]); err != nil || !ok {
				t.Errorf("have %s\nwant %s", lines[i+1], w)
			}
		}
	}
	want := []string{"ada,13,100,false,*,three-lost: no answer,bob,1.00,1", "bob,13,100,false,*,three-lost: no answer,ada,1.00,1",
		`cyd,0,100,false,*,check: line 1: want NAME = ANSWER,,0.00,`, "dee,0,100,false,*,not graded: dee has no answers.txt,,0.00,", "eve,8,100,false,*,lost-update: no answer,,0.00,"}
	text := grade()
	check(strings.ReplaceAll(text, class+string(filepath.Separator), ""), want...)
	if out := grade("--csv", table); out != "5 submissions in "+table+"\nthe same but for comments, layout and names: ada, bob\n" {
		t.Errorf("have %q", out)
	}
	b, err := os.ReadFile(table)
	if err != nil || string(b) != text {
		t.Fatalf("the file is not what is printed: %v\n%s", err, b)
	}
	// A score that grading never gives shows which lines are taken over.
	if err := os.WriteFile(table, bytes.ReplaceAll(bytes.ReplaceAll(b, []byte("ada,13"), []byte("ada,99")), []byte("eve,8"), []byte("eve,98")), 0o644); err != nil {
		t.Fatal(err)
	}
	hand("eve", "lost-update = 3:1\none-step = never\n")
	grade("--csv", table)
	if b, err = os.ReadFile(table); err != nil || !bytes.Contains(b, []byte("\nada,99,")) || !bytes.Contains(b, []byte("\neve,13,")) {
		t.Errorf("%v\n%s", err, b)
	}
}

// TestHandoutFails: a handout whose zip cannot be written, or whose tree, leaves no tree, no folder
// for one, and what was there before as it was.
func TestHandoutFails(t *testing.T) {
	need.Long(t)
	dir := t.TempDir()
	if err := os.MkdirAll(filepath.Join(dir, "out.zip", "mine"), 0o755); err != nil {
		t.Fatal(err)
	}
	long := strings.Repeat("x", 250) // with .part~ it is longer than a name may be
	for _, to := range []string{"out", "new/deep/" + long} {
		var out, errw bytes.Buffer
		if code := Main([]string{"lab", "handout", filepath.Join(dir, to)}, strings.NewReader(""), &out, &errw); code != app.ExitFailed {
			t.Errorf("%s: exit %d\n%s%s", to, code, out.String(), errw.String())
		}
		if left, err := filepath.Glob(filepath.Join(dir, "*")); err != nil || len(left) != 1 || filepath.Base(left[0]) != "out.zip" {
			t.Errorf("%s leaves %v, %v; want out.zip only", to, left, err)
		}
	}
	if _, err := os.Stat(filepath.Join(dir, "out.zip", "mine")); err != nil {
		t.Error(err)
	}
}
