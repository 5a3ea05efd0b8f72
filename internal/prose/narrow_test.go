package prose

import (
	"strings"
	"testing"
	"unicode/utf8"
)

// narrow is text as a Narrow of w columns writes it, which gets it in small pieces.
func narrow(t *testing.T, text string, w int) string {
	t.Helper()
	var b strings.Builder
	n := &Narrow{W: &b, Columns: w}
	for _, piece := range strings.SplitAfter(text, " ") {
		if _, err := n.Write([]byte(piece)); err != nil {
			t.Fatal(err)
		}
	}
	if err := n.Close(); err != nil {
		t.Fatal(err)
	}
	for l := range strings.Lines(b.String()) {
		if utf8.RuneCountInString(strings.TrimSuffix(l, "\n")) > w {
			t.Errorf("%d columns: %q is longer", w, l)
		}
	}
	return b.String()
}

// A table's columns go below each other, with the first one in each part; sentences are wrapped;
// what fits stays.
func TestNarrow(t *testing.T) {
	const table = "   policy   iops ratio image\n   locked 48,376  1.00    ok\n unlocked 70,473  1.55    ok\n"
	if have := narrow(t, table, 40); have != table {
		t.Errorf("a table that fits is another one:\n%s", have)
	}
	want := "  policy   iops\n  locked 48,376\nunlocked 70,473\n\n  policy ratio image\n  locked  1.00    ok\nunlocked  1.55    ok\n"
	if have := narrow(t, table, 20); have != want {
		t.Errorf("have\n%s\nwant\n%s", have, want)
	}
	const text = "one of the policies lets go of the lock\nand the other one keeps it to the end\n\nlast words, which have no end of line"
	if have := narrow(t, text, 25); strings.Count(have, "\n") != 6 || strings.Join(strings.Fields(have), " ") != strings.Join(strings.Fields(text), " ") {
		t.Errorf("have\n%s", have)
	}
	const list = "locked   takes the lock for the whole of a write\nnone     does not\n"
	want = "locked takes the lock for\n       the whole of a\n       write\nnone   does not\n"
	if have := narrow(t, list, 25); have != want {
		t.Errorf("have\n%s\nwant\n%s", have, want)
	}
}
