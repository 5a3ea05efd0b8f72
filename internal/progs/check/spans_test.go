package check

import (
	"fmt"
	"testing"
)

// TestUncovered: what several lists cover together is covered, in whatever order their spans
// alternate.
func TestUncovered(t *testing.T) {
	for _, c := range []struct {
		lists string
		want  string
	}{
		{"", "10"},
		{"10-20", "-"},
		{"0-30", "-"},
		{"0-10 20-30", "10"},
		{"0-15", "15"},
		{"12-20", "10"},
		{"10-14 15-20", "14"},
		{"10-14 16-20; 14-16", "-"}, // log, tree, log
		{"14-16; 10-14 16-20", "-"}, // tree, log, tree
		{"10-15; 15-20", "-"},
		{"15-20; 10-15", "-"},
		{"10-16; 12-20", "-"},
		{"10-12 14-16 18-20; 12-14 16-17", "17"},
		{"10-12; 13-20", "12"},
	} {
		var lists [][]Span
		l := []Span{}
		for rest := c.lists; rest != ""; {
			var s Span
			var sep rune
			n, _ := fmt.Sscanf(rest, "%d-%d%c", &s.Start, &s.End, &sep)
			if l = append(l, s); n == 2 {
				break
			}
			if sep == ';' {
				lists, l = append(lists, l), nil
			}
			rest = rest[len(fmt.Sprintf("%d-%d%c", s.Start, s.End, sep)):]
			for rest[0] == ' ' {
				rest = rest[1:]
			}
		}
		lists = append(lists, l)
		have := "-"
		if at, missing := uncovered(10, 20, lists...); missing {
			have = fmt.Sprint(at)
		}
		if have != c.want {
			t.Errorf("[10, 20) by %q: have %s want %s", c.lists, have, c.want)
		}
	}
}

// TestStrays: each part of a checksum item without data is noted by itself: a log may have the data
// of one gap while the next extent goes on in the commit. The judge took everything after the first
// gap for stray.
func TestStrays(t *testing.T) {
	c := &checker{Seen: Seen{Broken: map[string]bool{}, ExtentsWhole: true, Extents: []Extent{{Start: 10, Length: 5}, {Start: 20, Length: 4, tree: true}, {Start: 30, Length: 10}, {Start: 50, Length: 10}}}}
	x := c.straysOf(Span{5, 35}, 0, on(AtSlot, 1))
	x = c.straysOf(Span{35, 45}, x, on(AtSlot, 2))
	c.straysOf(Span{52, 70}, x, on(AtSlot, 3))
	strays := ""
	for _, x := range c.stray {
		strays += fmt.Sprint(x.Span, x.where) + " "
	}
	if want := "{5 10} slot=1 {15 20} slot=1 {20 24} slot=1 {24 30} slot=1 {40 45} slot=2 {60 70} slot=3 "; strays != want {
		t.Errorf("have %s want %s", strays, want)
	}
	// Logs name two of the gaps, one of them twice.
	r := &logs{c: c, extents: []Span{{16, 18}, {14, 30}, {55, 100}}}
	r.strayCsums()
	have := ""
	for _, f := range c.Findings {
		have += f.Have.String() + "\n"
	}
	if want := "csums of 5..10\ncsums of 40..45\n"; have != want {
		t.Errorf("have\n%swant\n%s", have, want)
	}
}
