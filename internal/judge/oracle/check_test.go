package oracle

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"
)

// seed is new in every run and printed when a test fails.
func seed(t testing.TB) uint64 {
	s := uint64(time.Now().UnixNano())
	t.Logf("seed %d", s)
	return s
}

// Every verdict on small histories agrees with trying all orders, whatever the rule.
func TestBruteForce(t *testing.T) {
	s := seed(t)
	var c Checker
	n := 20000
	if testing.Short() {
		n = 3000
	}
	var kept, broken, tier [3]int
	for i := range n {
		rng := rand.New(rand.NewPCG(s, uint64(i)))
		h, r := randomHistory(rng, 2+rng.IntN(4)), randomRule(rng)
		if i%4 == 0 {
			h = denseHistory(rng, i%8 == 0)
		}
		if err := h.Validate(); err != nil {
			t.Fatalf("case %d: %v\n%s", i, err, dump(h))
		}
		b := newBrute(h, r)
		if len(b.pieces) > 12 {
			continue
		}
		v := c.Check(h, r)
		tier[v.Tier]++
		want := Broken
		if b.try(0) {
			want = Kept
			kept[v.Tier]++
		} else {
			broken[v.Tier]++
		}
		if v.Outcome != want {
			t.Fatalf("case %d: have %v (tier %d) want %v\n%v page %d\n%s", i, v.Outcome, v.Tier, want, r, r.pageSize(), dump(h))
		}
		if err := replay(h, r, c.Order(), v.Tier == 0); want == Kept && err != nil {
			t.Fatalf("case %d: %v (tier %d)\n%v page %d\n%s%v", i, err, v.Tier, r, r.pageSize(), dump(h), c.Order())
		}
		if v.Tier > 0 {
			continue
		}
		// What the witness settled must be settled the same without it.
		c.compress(true)
		if v = c.judge(); v.Outcome != want {
			t.Fatalf("case %d: without a witness have %v (tier %d) want %v\n%v page %d\n%s", i, v.Outcome, v.Tier, want, r, r.pageSize(), dump(h))
		}
		if err := replay(h, r, c.Order(), false); err != nil {
			t.Fatalf("case %d: without a witness: %v\n%v page %d\n%s%v", i, err, r, r.pageSize(), dump(h), c.Order())
		}
	}
	t.Logf("kept by tier %v, broken by tier %v", kept, broken)
	for k := range 3 {
		if kept[k] == 0 || k > 0 && broken[k] == 0 {
			t.Errorf("tier %d had nothing to do: kept %v broken %v", k, kept, broken)
		}
	}
}

// replay runs an order that is said to explain h, and finds fault with it.
func replay(h *History, r Rule, order []Placed, whole bool) error {
	if whole {
		r.Write, r.Read = Request, Request
	}
	b := newBrute(h, r)
	done := uint64(0)
	for _, p := range order {
		for i := range b.pieces {
			q := &b.pieces[i]
			if done>>i&1 != 0 || q.op.ID != p.Op {
				continue
			}
			// A piece of the order is a run of pieces that nothing tells apart, or, without bytes,
			// about the size.
			switch n := len(q.bytes); {
			case whole:
			case n == 0 && p.Lo < p.Hi, n > 0 && (q.bytes[0] < p.Lo || q.bytes[n-1] >= p.Hi):
				continue
			}
			if b.before[i]&^done != 0 {
				return fmt.Errorf("%v of %d is too early in time", p, q.op.ID)
			}
			if q.seesSize && (b.size < q.sMin || b.size > q.sMax) {
				return fmt.Errorf("%d saw another size than %d", q.op.ID, b.size)
			}
			for _, x := range q.bytes {
				if q.op.Kind != Read {
					b.data[x] = q.op.ID
					continue
				}
				for _, s := range q.op.See {
					if s.Lo <= x && x < s.Hi && !b.has(x, s.From) {
						return fmt.Errorf("%d saw byte %d from %v, have %v", q.op.ID, x, s.From, b.data[x])
					}
				}
			}
			if q.size {
				b.size = max(b.size, q.to)
			}
			if q.truncates {
				b.size = q.to
			}
			done |= 1 << i
		}
	}
	if done != 1<<len(b.pieces)-1 {
		return fmt.Errorf("the order leaves pieces out: have %b of %d", done, len(b.pieces))
	}
	if !b.final() {
		return fmt.Errorf("the order ends in %v, size %d", b.data, b.size)
	}
	return nil
}
