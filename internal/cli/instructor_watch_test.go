package cli

import (
	"bufio"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
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
