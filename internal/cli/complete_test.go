package cli

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestCompletion: the words that a shell is offered, and nothing where there is nothing to offer.
func TestCompletion(t *testing.T) {
	for _, c := range []struct{ line, want, none string }{
		{"lab grade ", "4\tThe truncate race", "truncate-race"},
		{"lab hint ", "1\tBe the scheduler", ""},
		{"lab run ", "0\tWarm-up", ""},
		{"lab run 0 ", "lost-update", "Warm-up"},
		{"lab watch ", "4\tThe truncate race", ""},
		{"lab autograder ", "5\tA range lock", ""},
		{"lab autograder 5 ", "zip", "A range lock"},
		{"lab autograder 5 x.zip --student ", "email", ""},
		{"lab ", "status", ""},
		{"museum ", "23\t", ""},
		{"museum 23 ", ":4", "23"},
		{"explore ", "truncate-race", ""},
		{"explore truncate-race --policy ", "range-lock\t", "SETSIZE_DRAIN_FIRST"},
		{"explore truncate-race --policy unlocked+", "unlocked+SETSIZE_DRAIN_FIRST", "range-lock"},
		{"compare --policy locked,unlocked!", "locked,unlocked!PUNCH_RECHECK_OE", ""},
		{"compare --policy locked,", "locked,prewait", ""},
		{"replay ", "truncate-race", ""},
		{"replay truncate-race --policy unlocked ", "11:1\tviolates its rule under unlocked", ""},
		{"replay truncate-race --policy unlocked-drain ", ":4", "violates"},
		{"replay no-such ", ":4", "violates"},
		{"policy show ", "SETSIZE_DRAIN_FIRST", ""},
	} {
		var out, errw bytes.Buffer
		args := append([]string{"__complete"}, strings.Fields(c.line)...)
		if strings.HasSuffix(c.line, " ") {
			args = append(args, "")
		}
		if code := Main(args, strings.NewReader(""), &out, &errw); code != 0 || !strings.Contains(out.String(), c.want) || c.none != "" && strings.Contains(out.String(), c.none) {
			t.Errorf("%q: exit %d, want %q and not %q in\n%s%s", c.line, code, c.want, c.none, out.String(), errw.String())
		}
	}
}

// TestMan: a page for each verb, with its options and examples.
func TestMan(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "man1")
	var out, errw bytes.Buffer
	if code := Main([]string{"man", dir}, strings.NewReader(""), &out, &errw); code != 0 {
		t.Fatalf("exit %d: %s", code, errw.String())
	}
	pages, err := filepath.Glob(filepath.Join(dir, "*.1"))
	if err != nil || len(pages) < 40 {
		t.Errorf("%d pages, %v", len(pages), err)
	}
	for name, want := range map[string]string{"btrlab.1": "btrlab-compare(1)", "btrlab-compare.1": `--policy`, "btrlab-lab-grade.1": ".SH EXAMPLE", "btrlab-lab-watch.1": "Ctrl-C", "btrlab-lab-status.1": "last score", "btrlab-lab-autograder.1": "Gradescope", "btrlab-mkfs.1": `.TH "BTRLAB" "1"`} {
		b, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil || !strings.Contains(string(b), want) {
			t.Errorf("%s: %v, want %q in\n%.600s", name, err, want, b)
		}
	}
}

// TestNoColour: what is printed has no escape sequence, whatever NO_COLOR says: the program marks
// with letters and words.
func TestNoColour(t *testing.T) {
	for _, no := range []string{"", "1"} {
		t.Setenv("NO_COLOR", no)
		for _, line := range []string{"--help", "policy list", "explore truncate-race --policy unlocked", "replay truncate-race 11:1 --policy unlocked", "lab list"} {
			var out, errw bytes.Buffer
			Main(strings.Fields(line), strings.NewReader(""), &out, &errw)
			if text := out.String() + errw.String(); text == "" || strings.Contains(text, "\x1b") {
				t.Errorf("%s: %q", line, text)
			}
		}
	}
}
