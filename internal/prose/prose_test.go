package prose

import (
	"slices"
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
		{"are bytes [4K, 8K) too", 14, "are bytes|[4K, 8K) too"},
	} {
		if got := strings.Join(Words(c.text, c.w), "|"); got != c.want {
			t.Errorf("%q at %d: %q, want %q", c.text, c.w, got, c.want)
		}
	}
	if got := strings.Join(Hang("name  ", "      ", "one two three", 13), "|"); got != "name  one two|      three" {
		t.Errorf("%q", got)
	}
}

// Paragraphs and items are broken anew, the rest stays.
func TestFill(t *testing.T) {
	got := Fill("# A heading that is long\na paragraph\nof two lines.\n\nanother\n  item one is long\n  item two\n1. the first\n   of all items\n2. two\n\n"+
		"```\ncode that is not broken\n```\n| a table | is not |\nend", 14)
	if want := "# A heading that is long\na paragraph of\ntwo lines.\n\nanother\n  item one is long\n  item two\n1. the first\n   of all\n   items\n2. two\n\n" +
		"```\ncode that is not broken\n```\n| a table | is not |\nend"; got != want {
		t.Errorf("%s\nwant\n%s", got, want)
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
	got := []string{Count(1, "step"), Count(0, "step"), Count(int64(2), "step"), Count(2, "flush"), Count(1, "directory"), Count(2, "directory")}
	if want := []string{"1 step", "0 steps", "2 steps", "2 flushes", "1 directory", "2 directories"}; !slices.Equal(got, want) {
		t.Errorf("have %q want %q", got, want)
	}
}

func TestNearest(t *testing.T) {
	names := []string{"unlocked", "locked", "block", "size", "bsize"}
	for word, want := range map[string]string{
		"lockd": "locked", "locked": "locked", "unlockde": "unlocked", "sizes": "size", "bsise": "bsize", "": "", "nothing": "",
		"lock": "block", // one letter less than two
	} {
		if have := Nearest(word, names); have != want {
			t.Errorf("%q: have %q, want %q", word, have, want)
		}
	}
	if have := Nearest("ac", []string{"ab", "aa"}); have != "aa" {
		t.Errorf("of two as near: have %q, want the first in order, aa", have)
	}
	if have := Nearest("abcde", []string{"abc"}) + Nearest("abcde", []string{"ab"}); have != "abc" {
		t.Errorf("two letters and three: have %q, want abc alone", have)
	}
}
