package explore

import (
	"math"
	"testing"
)

// A child is estimated from the children of about its size; beyond those that were seen the ratio goes on as it fell.
func TestShrinks(t *testing.T) {
	type pair struct{ this, next, times int }
	root := []pair{{4, 2, 1}, {16, 4, 1}, {64, 8, 1}} // the next child is the root of the size
	for _, c := range []struct {
		name       string
		seen       []pair
		size, want float64
	}{
		{"nothing seen", nil, 100, 100},
		{"the size", root, 16, 4},
		{"the size and the next smaller", []pair{{4, 2, 1}, {8, 2, 1}, {64, 8, 1}}, 8, 8 * 4. / 12},
		{"no such size, some larger", root, 32, 8},
		{"a size below all", []pair{{64, 8, 3}}, 5, 5},
		{"one size", []pair{{8, 4, 3}}, 100, 50},
		{"a falling ratio", root, 1024, 32},
		{"each child counts once", []pair{{1, 1, 1}, {4, 1, 2}, {16, 4, 1}}, 64, 64 * math.Pow(4, -1.75)},
		{"a rising ratio does not go on", []pair{{4, 1, 1}, {16, 8, 1}}, 64, 64 / math.Sqrt(8)},
		{"larger children", []pair{{1, 3, 9}}, 1, 1},
		{"larger children, then beyond", []pair{{1, 2, 9}, {2, 6, 9}}, 100, 100},
		{"less than one", []pair{{2, 1, 1}, {16, 1, 1}}, 1 << 20, 1},
	} {
		var s shrinks
		for _, p := range c.seen {
			for range p.times {
				s.closed(p.this, p.next)
			}
		}
		if have := s.after(c.size); !(math.Abs(have-c.want) < 1e-9*c.want) {
			t.Errorf("%s: have %g after %g, want %g", c.name, have, c.size, c.want)
		}
	}
}
