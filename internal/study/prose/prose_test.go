package prose

import (
	"strings"
	"testing"
	"unicode/utf8"
)

// What is set has the words of the text, in order, in lines that fit.
func TestWords(t *testing.T) {
	for _, c := range []struct {
		text string
		w    int
		want string
	}{
		{"", 10, ""},
		{"one two three", 7, "one two|three"},
		{"one two three", 80, "one two three"},
		{"  one two three", 9, "  one two|  three"},
		{"- one two three", 9, "- one two|  three"},
		{"a abcdefghijkl b", 5, "a|abcde|fghij|kl b"},
		{"äöü äöü", 3, "äöü|äöü"},
	} {
		if got := strings.Join(Words(c.text, c.w), "|"); got != c.want {
			t.Errorf("%q at %d: %q, want %q", c.text, c.w, got, c.want)
		}
	}
	if got := strings.Join(Hang("name  ", "      ", "one two three", 13), "|"); got != "name  one two|      three" {
		t.Errorf("%q", got)
	}
}

func TestFill(t *testing.T) {
	got := Fill("a paragraph\nof two lines.\n\nanother\n  item one\n  item two\nend", 14)
	if want := "a paragraph of\ntwo lines.\n\nanother\n  item one\n  item two\nend"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

// A shell reads a command that goes on in the next line as the same command.
func TestCommand(t *testing.T) {
	const c = "btrlab replay range-and-space '' --policy locked+WRONG --deep --own"
	for w := 20; w < 90; w++ {
		got := Command("  ", c, w)
		if whole := strings.Join(strings.Fields(strings.ReplaceAll(got, "\\\n", "")), " "); whole != c {
			t.Errorf("width %d: %q", w, whole)
		}
		for i, line := range strings.Split(got, "\n") {
			if n := utf8.RuneCountInString(line); w >= 40 && n > w {
				t.Errorf("width %d, line %d has %d: %q", w, i, n, line)
			}
		}
	}
}

func TestCount(t *testing.T) {
	if got := Count(1, "step") + Count(0, "step") + Count(int64(2), "step"); got != "1 step0 steps2 steps" {
		t.Error(got)
	}
}
