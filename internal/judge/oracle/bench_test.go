package oracle

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
)

// bigHistory runs n operations on 64 blocks, up to width at a time, each whole and at one instant;
// with torn, some take effect block by block.
func bigHistory(rng *rand.Rand, n, width int, reads, hints, torn bool) *History {
	const blocks, size = 64, 4096
	h := &History{Size: blocks * size, FinalSize: blocks * size, Final: []Seen{}}
	type event struct {
		at     int64
		op     int
		lo, hi int
	}
	var events []event
	for i := range n {
		lo := rng.IntN(blocks - 1)
		hi := min(blocks, lo+1+rng.IntN(16))
		o := Op{ID: ID(i + 1), Lo: int64(lo) * size, Hi: int64(hi) * size}
		o.Start = int64(i)*100 + rng.Int64N(50)
		o.End = o.Start + 1 + rng.Int64N(int64(width)*100)
		if reads && i%2 == 1 {
			o.Kind, o.Got = Read, o.Hi-o.Lo
		}
		at := o.Start + rng.Int64N(o.End-o.Start)
		if hints {
			o.Commit = at
		}
		if torn && rng.IntN(4) == 0 {
			for x := lo; x < hi; x++ {
				events = append(events, event{o.Start + rng.Int64N(o.End-o.Start), i, x, x + 1})
			}
		} else {
			events = append(events, event{at, i, lo, hi})
		}
		h.Ops = append(h.Ops, o)
	}
	slices.SortStableFunc(events, func(a, b event) int { return int(a.at - b.at) })
	var data [blocks]ID
	for _, e := range events {
		o := &h.Ops[e.op]
		for x := e.lo; x < e.hi; x++ {
			if o.Kind == Read {
				o.See = append(o.See, Seen{int64(x) * size, int64(x+1) * size, data[x]})
			} else {
				data[x] = o.ID
			}
		}
	}
	for i := range h.Ops {
		o := &h.Ops[i]
		slices.SortFunc(o.See, func(a, b Seen) int { return int(a.Lo - b.Lo) })
		o.See = runs(o.See)
	}
	for x, id := range data {
		h.Final = append(h.Final, Seen{int64(x) * size, int64(x+1) * size, id})
	}
	h.Final = runs(h.Final)
	return h
}

// eofHistory runs n operations that extend, append, truncate, punch, read and stat one file around
// its end, up to width at a time, each at one instant.
func eofHistory(rng *rand.Rand, n, width int) *History {
	const size = 4096
	h := &History{Size: 8 * size}
	type event struct {
		at int64
		op int
	}
	var events []event
	for i := range n {
		o := Op{ID: ID(i + 1), Kind: []Kind{Write, Write, Append, Truncate, Read, Stat, Punch}[rng.IntN(7)]}
		o.Lo = rng.Int64N(16) * size
		o.Hi = o.Lo + (1+rng.Int64N(4))*size
		o.Start = int64(i)*100 + rng.Int64N(50)
		o.End = o.Start + 1 + rng.Int64N(int64(width)*100)
		events = append(events, event{o.Start + rng.Int64N(o.End-o.Start), i})
		h.Ops = append(h.Ops, o)
	}
	slices.SortStableFunc(events, func(a, b event) int { return int(a.at - b.at) })
	var data [256]ID
	for x := range data {
		if data[x] = Zero; x < 8 {
			data[x] = Initial
		}
	}
	put := func(lo, hi int64, id ID) {
		for x := lo / size; x < hi/size; x++ {
			data[x] = id
		}
	}
	see := func(lo, hi int64) (out []Seen) {
		out = []Seen{}
		for x := lo; x < hi; x += size {
			out = append(out, Seen{x, x + size, data[x/size]})
		}
		return runs(out)
	}
	now := h.Size
	for _, e := range events {
		switch o := &h.Ops[e.op]; o.Kind {
		case Append:
			o.Lo, o.Hi = now, now+size
			fallthrough
		case Write:
			put(o.Lo, o.Hi, o.ID)
			now = max(now, o.Hi)
		case Truncate:
			put(o.Lo, 256*size, Zero)
			now = o.Lo
		case Punch:
			put(o.Lo, o.Hi, Zero)
		case Stat:
			o.Size = now
		case Read:
			o.Got = min(o.Hi, max(now, o.Lo)) - o.Lo
			o.See = see(o.Lo, o.Lo+o.Got)
		}
	}
	h.Final, h.FinalSize = see(0, now), now
	return h
}

// runs joins neighbours from one source, as Unpaint returns them.
func runs(in []Seen) (out []Seen) {
	for _, s := range in {
		if n := len(out); n > 0 && out[n-1].From == s.From && out[n-1].Hi == s.Lo {
			out[n-1].Hi = s.Hi
		} else {
			out = append(out, s)
		}
	}
	return out
}

// Each figure is over 64 histories in turn, so that no one history is learnt. Kept ones without
// hints mostly need the tier named; torn ones are mostly broken.
func BenchmarkCheck(b *testing.B) {
	for _, k := range []struct {
		name               string
		reads, hints, torn bool
		rule               Rule
	}{
		{"witness", true, true, false, Calls},
		{"writes", false, false, false, Calls},
		{"reads", true, false, false, Calls},
		{"torn", true, false, true, Calls},
		{"eof", true, false, false, CallsSize},
		{"perpage", true, false, true, PerPage},
	} {
		for _, n := range []int{4, 8, 16, 32, 60} {
			b.Run(fmt.Sprintf("%s/ops=%d", k.name, n), func(b *testing.B) {
				rng := rand.New(rand.NewPCG(1, uint64(n)))
				var hs [64]*History
				for i := range hs {
					if hs[i] = bigHistory(rng, n, 6, k.reads, k.hints, k.torn); k.name == "eof" {
						hs[i] = eofHistory(rng, n, 4)
					}
				}
				var c Checker
				branches, broken, tier2 := 0, 0, 0
				for _, h := range hs {
					v := c.Check(h, k.rule)
					branches += v.Branches
					if v.Outcome == Broken {
						broken++
					}
					if v.Tier == 2 {
						tier2++
					}
				}
				b.ReportAllocs()
				b.ResetTimer()
				for i := range b.N {
					c.Check(hs[i%len(hs)], k.rule)
				}
				b.ReportMetric(float64(branches)/64, "branches")
				b.ReportMetric(float64(broken)/64, "broken")
				b.ReportMetric(float64(tier2)/64, "tier2")
			})
		}
	}
}

// The case an explorer asks for a million times: two writers, or two writers and a truncate, on a
// few pages.
func BenchmarkSmall(b *testing.B) {
	page := func(n int64) int64 { return n * 4096 }
	twoWriters := &History{Size: page(4), FinalSize: page(4), Ops: []Op{
		{ID: 1, Lo: 0, Hi: page(3), Start: 1, End: 9},
		{ID: 2, Lo: page(1), Hi: page(4), Start: 2, End: 8},
	}, Final: []Seen{{0, page(1), 1}, {page(1), page(4), 2}}}
	torn := *twoWriters
	torn.Final = []Seen{{0, page(2), 1}, {page(2), page(3), 2}, {page(3), page(4), 1}}
	torn.Ops = slices.Clone(torn.Ops)
	torn.Ops[0].Hi = page(4)
	truncate := &History{Size: page(4), FinalSize: page(4), Ops: []Op{
		{ID: 1, Lo: 0, Hi: page(3), Start: 1, End: 9},
		{ID: 2, Lo: page(1), Hi: page(4), Start: 2, End: 8},
		{ID: 3, Kind: Truncate, Lo: page(1), Start: 3, End: 12},
		{ID: 4, Kind: Read, Lo: 0, Hi: page(4), Got: page(1), See: []Seen{{0, page(1), Initial}}, Start: 4, End: 6},
	}, Final: []Seen{{0, page(1), 1}, {page(1), page(4), 2}}}
	for _, k := range []struct {
		name string
		h    *History
		r    Rule
	}{{"two-writers", twoWriters, Calls}, {"two-writers-torn", &torn, Calls}, {"truncate-and-reader", truncate, CallsSize}} {
		b.Run(k.name, func(b *testing.B) {
			var c Checker
			v := c.Check(k.h, k.r)
			b.ReportAllocs()
			for range b.N {
				c.Check(k.h, k.r)
			}
			b.ReportMetric(float64(v.Tier), "tier")
			b.ReportMetric(float64(v.Outcome), "broken")
		})
	}
}

// The explanation is for the one history that broke: milliseconds are fine.
func BenchmarkExplain(b *testing.B) {
	for _, n := range []int{4, 16, 60} {
		b.Run(fmt.Sprintf("ops=%d", n), func(b *testing.B) {
			rng := rand.New(rand.NewPCG(1, uint64(n)))
			var c Checker
			h := bigHistory(rng, n, 6, true, false, true)
			for c.Check(h, Calls).Outcome != Broken {
				h = bigHistory(rng, n, 6, true, false, true)
			}
			lines := 0
			for range b.N {
				lines = len(c.Explain(h, Calls).Lines())
			}
			b.ReportMetric(float64(lines), "lines")
		})
	}
}
