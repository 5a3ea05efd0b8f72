package explore

import (
	"math"
	"testing"
)

// A child is estimated from the children of about its size; beyond those that were seen the ratio
// goes on as it fell.
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

// A level is estimated by how far it has come: by the shape of the level before it, where most of
// the executions may belong to the first items; without one, each item counts alike.
func TestLevels(t *testing.T) {
	var l levels
	if have := l.whole(1, 4, 10); have != 40 {
		t.Errorf("the first level: have %g want 40", have)
	}
	// 32 items, of which the first half has 896 executions and the second 96.
	runs := 0
	for i := range 32 {
		l.taken(i, 32, runs)
		if i < 16 {
			runs += 56
		} else {
			runs += 6
		}
	}
	l.ended(1000) // 8 of them beside
	if l.begun != 1000 || len(l.sizes) != 1 || l.sizes[0] != 1000 {
		t.Fatalf("after a level of 1000 executions: begun %d, sizes %v", l.begun, l.sizes)
	}
	for _, n := range []int{4, 8, 16} {
		made := float64(3 * n * 56) // three times as many as last time
		if have := l.whole(n, 32, made); have < 2990 || have > 3010 {
			t.Errorf("%d of 32 items are done in %g executions: have %g want 3000", n, made, have)
		}
	}
	l.taken(0, 2, 1000)
	l.ended(1500)
	if l.begun != 1500 || l.sizes[1] != 500 || len(l.now) != 0 {
		t.Errorf("after the second level: begun %d, sizes %v, now %v", l.begun, l.sizes, l.now)
	}
}
