package oracle

import (
	"strings"
	"testing"
)

// Bytes that nobody can have put there: the witness says where, who saw them, and why that is
// impossible. A wrong reason sends its reader to look for a hole or a writer that the history does
// not have.
func TestImpossibleReasons(t *testing.T) {
	h := func(from ID) *History {
		return &History{Size: 100, Holes: []Range{{40, 60}}, FinalSize: NoSize, Ops: []Op{
			{ID: 1, Lo: 10, Hi: 20, Start: 1, End: 2},
		}, Final: []Seen{{45, 50, from}}}
	}
	for _, c := range []struct {
		from ID
		want string
	}{
		{Foreign, "but nobody in this history wrote them"},
		{Initial, "but a hole was there at the start, or nothing"},
		{9, "but there is no such operation"},
		{1, "but it never changed them"},
	} {
		var k Checker
		w := k.Explain(h(c.from), Calls)
		if w == nil || !strings.HasSuffix(w.Proof.Impossible, c.want) || !strings.Contains(w.Proof.Impossible, "[45, 50)") {
			t.Errorf("bytes from %d: have %v want %q", c.from, w, c.want)
		}
	}
	written := h(Zero)
	written.Final = []Seen{{70, 80, Zero}}
	var k Checker
	if w := k.Explain(written, Calls); w == nil || !strings.HasSuffix(w.Proof.Impossible, "but no hole was there, and no truncate or punch reached there") {
		t.Errorf("zeroes: have %v", w)
	}
	if w := k.Explain(h(Zero), Calls); w != nil {
		t.Errorf("zeroes of a hole: %v", w)
	}
}
