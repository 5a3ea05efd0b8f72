package oracle

import (
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
)

// What the rules about sizes, stale bytes and time say is implied by the weakest contract: they
// find nothing in a history that it keeps. And what they do find, it does not keep.
func TestRulesAreImplied(t *testing.T) {
	s := seed(t)
	var c Checker
	eof, stale := 0, 0
	for i := range 20000 {
		rng := rand.New(rand.NewPCG(s, uint64(i)))
		h := randomHistory(rng, 2+rng.IntN(5))
		v := c.Check(h, Rule{Write: Byte, Read: Byte, Sizes: SizesApart})
		e, st := CheckEOF(h), CheckStale(h)
		if v.Outcome == Kept && len(e)+len(st) > 0 {
			t.Fatalf("case %d: kept, and yet %v %v\n%s", i, e, st, dump(h))
		}
		if len(e) > 0 {
			eof++
		}
		if len(st) > 0 {
			stale++
		}
	}
	if eof < 100 || stale < 100 {
		t.Errorf("the histories hardly test anything: %d break a rule of EOF, %d of stale data", eof, stale)
	}
}

// The contracts climb: what is kept whole is kept in pieces, and what is kept with sizes is kept
// without.
func TestContractsClimb(t *testing.T) {
	s := seed(t)
	var c Checker
	for i := range 5000 {
		rng := rand.New(rand.NewPCG(s, uint64(i)))
		h := randomHistory(rng, 2+rng.IntN(5))
		for _, sizes := range []Sizes{SizesOff, SizesApart, SizesWith} {
			kept := map[Contract]bool{}
			for k := range numContracts {
				kept[k] = c.Check(h, Rule{Write: k, Read: k, Sizes: sizes, PageSize: 2}).Outcome == Kept
			}
			for k := range numContracts {
				if kept[Request] && !kept[k] || kept[k] && !kept[Byte] {
					t.Fatalf("case %d, sizes %d: kept %v\n%s", i, sizes, kept, dump(h))
				}
			}
			if sizes != SizesOff && kept[Request] && c.Check(h, Calls).Outcome != Kept {
				t.Fatalf("case %d: kept with sizes %d, not without\n%s", i, sizes, dump(h))
			}
		}
	}
}

// A design that copies page by page without a lock: its run shows on the ladder where it stands.
func TestLadder(t *testing.T) {
	const p = 4096
	h := &History{Size: 4 * p, FinalSize: 4 * p, Ops: []Op{
		{ID: 1, Lo: 0, Hi: 4 * p, Start: 1, End: 9, Batches: []int64{2 * p}, Extents: []int64{p}},
		{ID: 2, Lo: 0, Hi: 4 * p, Start: 2, End: 8, Batches: []int64{2 * p}, Extents: []int64{p}},
	}, Final: []Seen{{0, 2 * p, 1}, {2 * p, 4 * p, 2}}}
	var c Checker
	var have []Outcome
	for _, v := range c.Climb(h, Ladder) {
		have = append(have, v.Outcome)
	}
	if want := []Outcome{Kept, Kept, Kept, Broken, Broken, Broken, Broken}; !slices.Equal(have, want) {
		t.Errorf("have %v want %v", have, want)
	}
}

// One fact less never breaks a history.
func TestFewerFacts(t *testing.T) {
	s := seed(t)
	var c Checker
	for i := range 5000 {
		rng := rand.New(rand.NewPCG(s, uint64(i)))
		h, r := randomHistory(rng, 2+rng.IntN(5)), randomRule(rng)
		if c.Check(h, r).Outcome != Kept {
			continue
		}
		n := *h
		n.Ops = slices.Clone(h.Ops)
		if k := rng.IntN(len(n.Ops) + 1); k < len(n.Ops) {
			if j := len(n.Ops[k].See); j > 0 {
				at := rng.IntN(j)
				n.Ops[k].See = slices.Delete(slices.Clone(n.Ops[k].See), at, at+1)
			}
			n.Ops[k].End += 5
		} else {
			n.Final, n.FinalSize = nil, NoSize
		}
		if c.Check(&n, r).Outcome != Kept {
			t.Fatalf("case %d: fewer facts broke it\n%s", i, dump(&n))
		}
	}
}

// Offsets as they are in files, up to the end of the world, give the verdict of the small ones.
func TestScale(t *testing.T) {
	s := seed(t)
	var c Checker
	for i := range 5000 {
		rng := rand.New(rand.NewPCG(s, uint64(i)))
		h, r := randomHistory(rng, 2+rng.IntN(5)), randomRule(rng)
		want := c.Check(h, r).Outcome
		for _, by := range []int64{512, 4096, 1 << 40} {
			if r.Write == Byte || r.Read == Byte {
				break // a size in the middle of what was a byte is another size
			}
			n := *h
			scale := func(x int64) int64 {
				if x < 0 {
					return x
				}
				return x * by
			}
			seen := func(in []Seen) (out []Seen) {
				if in != nil {
					out = []Seen{}
				}
				for _, x := range in {
					out = append(out, Seen{scale(x.Lo), scale(x.Hi), x.From})
				}
				return out
			}
			n.Size, n.FinalSize, n.Final = scale(h.Size), scale(h.FinalSize), seen(h.Final)
			n.Holes, n.Ops = slices.Clone(h.Holes), slices.Clone(h.Ops)
			for j := range n.Holes {
				n.Holes[j] = Range{scale(n.Holes[j].Lo), scale(n.Holes[j].Hi)}
			}
			for j := range n.Ops {
				o := &n.Ops[j]
				o.Lo, o.Hi, o.Got, o.Size, o.See = scale(o.Lo), scale(o.Hi), scale(o.Got), scale(o.Size), seen(o.See)
				o.Batches, o.Extents = slices.Clone(o.Batches), slices.Clone(o.Extents)
				for k := range o.Batches {
					o.Batches[k] = scale(o.Batches[k])
				}
				for k := range o.Extents {
					o.Extents[k] = scale(o.Extents[k])
				}
			}
			q := r
			q.PageSize *= by
			if have := c.Check(&n, q).Outcome; have != want {
				t.Fatalf("case %d times %d: have %v want %v\n%v\n%s", i, by, have, want, r, dump(h))
			}
		}
	}
}

// A small budget gives Undecided or the right answer, never a wrong one.
func TestBudget(t *testing.T) {
	s := seed(t)
	c, tight := Checker{}, Checker{Budget: 1}
	undecided := 0
	for i := range 4000 {
		rng := rand.New(rand.NewPCG(s, uint64(i)))
		h := bigHistory(rng, 24, 20, true, false, i%2 == 0)
		want, have := c.Check(h, Calls), tight.Check(h, Calls)
		if have.Outcome == Undecided {
			undecided++
		} else if have.Outcome != want.Outcome {
			t.Fatalf("case %d: have %v want %v", i, have, want)
		}
		if i%2 == 1 && want.Outcome != Kept {
			t.Fatalf("case %d: have %v of a history that was run whole", i, want)
		}
	}
	if undecided == 0 {
		t.Error("no history needed more than one guess")
	}
}

// Histories of more than 64 operations use rows of several words; the answer is that of a run that
// is known.
func TestManyOperations(t *testing.T) {
	s := seed(t)
	var c Checker
	for i := range 60 {
		rng := rand.New(rand.NewPCG(s, uint64(i)))
		n := 70 + rng.IntN(150)
		for _, reads := range []bool{false, true} {
			h := bigHistory(rng, n, 8, reads, false, false)
			if v := c.Check(h, CallsSize); v.Outcome != Kept {
				t.Fatalf("case %d: have %v of %d operations that were run whole", i, v, n)
			}
			// The first operation's bytes, seen at the end although another covered them wholly
			// later.
			for j := range h.Final {
				if x := h.Final[j]; x.From > 1 && h.Ops[0].Lo <= x.Lo && x.Hi <= h.Ops[0].Hi && h.Ops[x.From-1].Start > h.Ops[0].End {
					h.Final[j].From = 1
					if v := c.Check(h, PerPage); v.Outcome != Broken {
						t.Fatalf("case %d: have %v of %d operations, with a byte from the past", i, v, n)
					}
					break
				}
			}
		}
	}
}

func TestNoAllocations(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	var c Checker
	for _, n := range []int{4, 60} {
		for _, hints := range []bool{false, true} {
			h := bigHistory(rng, n, 6, true, hints, false)
			for _, r := range []Rule{Calls, CallsSize, PerPage} {
				c.Check(h, r)
				if a := testing.AllocsPerRun(20, func() { c.Check(h, r) }); a != 0 {
					t.Errorf("%d operations, %v: %v allocations", n, r, a)
				}
			}
		}
	}
}

// The lost truncate, labs/reference 9.2 #1, in four ways it can show.
func TestEOF(t *testing.T) {
	const p = 4096
	truncate := Op{ID: 2, Kind: Truncate, Lo: p, Start: 5, End: 8}
	for _, k := range []struct {
		name  string
		write Op
		final []Seen
		size  int64
		want  string
	}{
		{"lost", Op{ID: 1, Lo: 0, Hi: 4 * p, Start: 1, End: 4}, nil, 4 * p,
			"lost truncate: the end saw a size of at least 16384, after truncate 2 to 4096 returned, and nothing since reaches beyond 4096"},
		{"beside it", Op{ID: 1, Lo: 0, Hi: 4 * p, Start: 1, End: 6}, []Seen{{0, 4 * p, 1}}, 4 * p, ""},
		{"after it", Op{ID: 1, Lo: 2 * p, Hi: 4 * p, Start: 9, End: 10}, []Seen{{0, p, Initial}, {p, 2 * p, Zero}, {2 * p, 4 * p, 1}}, 4 * p, ""},
		{"half", Op{ID: 1, Lo: 0, Hi: 3 * p, Start: 1, End: 6}, nil, 4 * p,
			"lost truncate: the end saw a size of at least 16384, after truncate 2 to 4096 returned, and nothing since reaches beyond 12288"},
		{"too small", Op{ID: 1, Lo: 0, Hi: 3 * p, Start: 9, End: 10}, nil, p,
			"lost end of file: the end saw a size of at most 4096, after write 1, which reaches 12288, returned, and nothing makes the file smaller than 12288 since"},
		{"bytes", Op{ID: 1, Lo: 3 * p, Hi: 4 * p, Start: 9, End: 10}, []Seen{{p, 3 * p, Initial}, {3 * p, 4 * p, 1}}, 4 * p,
			"bytes beyond a truncate came back: the end saw bytes [4096, 12288) from the initial content, after truncate 2 to 4096 returned"},
	} {
		t.Run(k.name, func(t *testing.T) {
			h := &History{Size: 4 * p, Ops: []Op{k.write, truncate}, Final: k.final, FinalSize: k.size}
			if err := h.Validate(); err != nil {
				t.Fatal(err)
			}
			have := ""
			for _, f := range CheckEOF(h) {
				have += f.String()
			}
			if have != k.want {
				t.Errorf("have %q\nwant %q", have, k.want)
			}
		})
	}
}

// TestEOFEdges: one byte and one tick to either side of what CheckEOF promises. A file of 10 bytes
// is cut to 5 by truncate 1, which takes the ticks 5 to 8. An operation that ends in the tick in
// which another starts is beside it, not before it.
func TestEOFEdges(t *testing.T) {
	write := func(lo, hi, start, end int64) Op { return Op{ID: 2, Lo: lo, Hi: hi, Start: start, End: end} }
	stat := func(size, start, end int64) Op { return Op{ID: 3, Kind: Stat, Size: size, Start: start, End: end} }
	for _, k := range []struct {
		name string
		ops  []Op
		seen []Seen
		size int64
		want string // the words before the colon
	}{
		{"the size", nil, nil, 5, ""},
		{"one byte more", nil, nil, 6, "lost truncate"},
		{"one byte less", nil, nil, 4, "lost end of file"},
		{"a write before", []Op{write(0, 7, 1, 4)}, nil, 5, ""},
		{"a write before, one byte more", []Op{write(0, 7, 1, 4)}, nil, 6, "lost truncate"},
		{"a write that ends as the truncate starts", []Op{write(0, 7, 1, 5)}, nil, 7, ""},
		{"it reaches no farther", []Op{write(0, 7, 1, 5)}, nil, 8, "lost truncate"},
		{"a write after", []Op{write(6, 7, 9, 10)}, nil, 7, ""},
		{"a write after, one byte more", []Op{write(6, 7, 9, 10)}, nil, 8, "lost truncate"},
		{"a write after, one byte less", []Op{write(6, 7, 9, 10)}, nil, 6, "lost end of file"},
		{"a write that starts as the truncate ends", []Op{write(6, 7, 8, 10)}, nil, 5, ""},
		{"a write that starts a tick later", []Op{write(6, 7, 9, 10)}, nil, 5, "lost end of file"},
		{"a stat as the truncate ends", []Op{stat(10, 8, 9)}, nil, 5, ""},
		{"a stat a tick later", []Op{stat(10, 9, 9)}, nil, 5, "lost truncate"},
		{"a stat as the truncate starts", []Op{stat(10, 4, 5)}, nil, 5, ""},
		{"a stat before it", []Op{stat(9, 3, 4)}, nil, 5, "lost end of file"},
		{"a stat before it, too much", []Op{stat(11, 3, 4)}, nil, 5, "lost truncate"},
		{"a write that starts as the stat ends", []Op{stat(7, 9, 11), write(6, 7, 11, 12)}, nil, 7, ""},
		{"a write that starts a tick after the stat", []Op{stat(7, 9, 10), write(6, 7, 11, 12)}, nil, 7, "lost truncate"},
		{"the last byte that stays", nil, []Seen{{4, 5, Initial}}, 5, ""},
		{"the first byte that goes", nil, []Seen{{5, 6, Initial}}, NoSize, "bytes beyond a truncate came back"},
		{"both", nil, []Seen{{4, 6, Initial}}, NoSize, "bytes beyond a truncate came back"},
		{"bytes of a write before", []Op{write(5, 6, 1, 4)}, []Seen{{5, 6, 2}}, NoSize, "bytes beyond a truncate came back"},
		{"bytes of a write beside", []Op{write(5, 6, 1, 5)}, []Seen{{5, 6, 2}}, NoSize, ""},
	} {
		h := &History{Size: 10, Ops: append([]Op{{ID: 1, Kind: Truncate, Lo: 5, Start: 5, End: 8}}, k.ops...), Final: k.seen, FinalSize: k.size}
		have := ""
		for _, f := range CheckEOF(h) {
			if w, _, _ := strings.Cut(f.Text, ":"); w != have {
				have += w
			}
		}
		if have != k.want {
			t.Errorf("%s: have %q want %q: %v", k.name, have, k.want, CheckEOF(h))
		}
	}
}

func TestStale(t *testing.T) {
	h := &History{Size: 100, Holes: []Range{{40, 60}}, FinalSize: NoSize, Ops: []Op{
		{ID: 1, Lo: 10, Hi: 20, Start: 5, End: 6},
		{ID: 2, Kind: Punch, Lo: 70, Hi: 80, Start: 1, End: 2},
		{ID: 3, Kind: Read, Lo: 0, Hi: 100, Got: 100, Start: 1, End: 3, See: []Seen{{10, 20, 1}, {30, 50, Initial}, {50, 90, Zero}}},
	}, Final: []Seen{{0, 5, Foreign}, {8, 22, 1}, {25, 30, 3}, {30, 31, 9}, {40, 60, Zero}, {95, 120, Zero}}}
	if err := h.Validate(); err != nil {
		t.Fatal(err)
	}
	want := []string{
		"stale data: read 3 saw bytes [10, 20) as write 1's, but it had not started",
		"stale data: read 3 saw bytes [40, 50) as the initial content, but a hole was there at the start, or nothing",
		"stale data: read 3 saw bytes [60, 70) as zeroes, but no hole was there, and no truncate or punch reached there",
		"stale data: read 3 saw bytes [80, 90) as zeroes, but no hole was there, and no truncate or punch reached there",
		"stale data: the end saw bytes [0, 5) as a stranger's, but nobody in this history wrote them",
		"stale data: the end saw bytes [8, 10) as write 1's, but it never changed them",
		"stale data: the end saw bytes [20, 22) as write 1's, but it never changed them",
		"stale data: the end saw bytes [25, 30) as read 3's, but it never changed them",
		"stale data: the end saw bytes [30, 31) as operation 9's, but there is none of that number",
		"stale data: the end saw bytes [95, 100) as zeroes, but no hole was there, and no truncate or punch reached there",
	}
	var have []string
	for _, f := range CheckStale(h) {
		have = append(have, f.Text)
	}
	if !slices.Equal(have, want) {
		t.Errorf("have\n%s\nwant\n%s", strings.Join(have, "\n"), strings.Join(want, "\n"))
	}
}

// Zeroes over data that was written need somebody who put them there. A truncate zeroes what is
// beyond its size, and nothing before it; one that had returned before the write, or began after
// the look, zeroed nothing of it. Before, zeroes beyond the first end of the file were never asked
// about.
func TestStaleZeroes(t *testing.T) {
	write := func(id ID, lo, hi, start, end int64) Op {
		return Op{ID: id, Kind: Write, Lo: lo, Hi: hi, Start: start, End: end}
	}
	truncate := func(id ID, size, start, end int64) Op {
		return Op{ID: id, Kind: Truncate, Lo: size, Start: start, End: end}
	}
	punch := func(id ID, lo, hi, start, end int64) Op {
		return Op{ID: id, Kind: Punch, Lo: lo, Hi: hi, Start: start, End: end}
	}
	const begin, end = 50, 60 // of the look
	for _, k := range []struct {
		name string
		ops  []Op
		want []Range // of the zeroes at [0, 200) of a file of 100 bytes without holes
	}{
		{"nothing but data before the end", nil, []Range{{0, 100}}},
		{"a truncate before it", []Op{truncate(1, 30, 1, 2)}, []Range{{0, 30}}},
		{"a truncate to nothing", []Op{truncate(1, 0, 1, 2)}, nil},
		{"a truncate beyond it", []Op{truncate(1, 120, 1, 2)}, []Range{{0, 100}}},
		{"a write beyond the end", []Op{truncate(1, 0, 1, 2), write(2, 150, 180, 3, 4)}, []Range{{150, 180}}},
		{"a write beyond the end, still under way", []Op{truncate(1, 0, 1, 2), write(2, 150, 180, 3, begin)}, nil},
		{"a truncate after the write", []Op{truncate(1, 0, 1, 2), write(2, 150, 180, 3, 4), truncate(3, 160, 5, 6)}, []Range{{150, 160}}},
		{"a truncate beside the write", []Op{truncate(1, 0, 1, 2), write(2, 150, 180, 3, 5), truncate(3, 160, 4, 6)}, []Range{{150, 160}}},
		{"a punch of a part", []Op{truncate(1, 0, 1, 2), write(2, 150, 180, 3, 4), punch(3, 155, 170, 5, 6)}, []Range{{150, 155}, {170, 180}}},
		{"a punch beside the look", []Op{truncate(1, 0, 1, 2), write(2, 150, 180, 3, 4), punch(3, 150, 180, end, end+1)}, nil},
		{"a punch after the look", []Op{truncate(1, 0, 1, 2), write(2, 150, 180, 3, 4), punch(3, 150, 180, end+1, end+2)}, []Range{{150, 180}}},
		{"two writes, one of them punched", []Op{truncate(1, 0, 1, 2), write(2, 10, 20, 3, 4), punch(3, 10, 20, 5, 6), write(4, 15, 30, 7, 8)}, []Range{{15, 30}}},
		{"two writes of the same", []Op{truncate(1, 0, 1, 2), write(2, 10, 20, 3, 4), write(3, 10, 20, 5, 6)}, []Range{{10, 20}}},
	} {
		h := &History{Size: 100, FinalSize: NoSize, Ops: append([]Op{{ID: 99, Kind: Read, Lo: 0, Hi: 200, Got: 200, Start: begin, End: end, See: []Seen{{0, 200, Zero}}}}, k.ops...)}
		if err := h.Validate(); err != nil {
			t.Fatalf("%s: %v", k.name, err)
		}
		var have []Range
		for _, f := range CheckStale(h) {
			have = append(have, f.Bytes)
		}
		if !slices.Equal(have, k.want) {
			t.Errorf("%s: have %v want %v", k.name, have, k.want)
		}
	}
}

// A write that returned before fsync was called must be in the image; one that ran beside fsync, or
// after it, may be.
func TestFsync(t *testing.T) {
	const p = 4096
	h := &History{Size: p, FinalSize: NoSize, Ops: []Op{
		{ID: 1, Lo: 0, Hi: p, Start: 1, End: 2},
		{ID: 2, Lo: p, Hi: 2 * p, Start: 3, End: 11},
		{ID: 3, Lo: 0, Hi: p, Start: 20, End: 25},
		{ID: 4, Kind: Truncate, Lo: 0, Start: 40, End: 41},
	}}
	sync := []Sync{{10, 15}, {30, 99}} // the second never returned
	var c Checker
	for _, k := range []struct {
		name string
		rec  Recovered
		rule Rule
		want Outcome
	}{
		{"as fsync left it", Recovered{35, []Seen{{0, p, 1}, {p, 2 * p, 2}}, 2 * p}, CallsSize, Kept},
		{"the write beside it is lost", Recovered{35, []Seen{{0, p, 1}}, p}, CallsSize, Kept},
		{"a later write is there", Recovered{35, []Seen{{0, p, 3}, {p, 2 * p, 2}}, 2 * p}, CallsSize, Kept},
		{"the write before it is lost", Recovered{35, []Seen{{0, p, Initial}}, p}, PerPageSync, Broken},
		{"the size is lost", Recovered{35, []Seen{{0, p / 2, 1}}, p / 2}, PerPageSync, Broken},
		{"a later write without one before it", Recovered{35, []Seen{{0, p, 3}}, p}, CallsSize, Broken},
		{"which page by page is fine but for the size", Recovered{35, []Seen{{0, p, 3}}, NoSize}, PerPageSync, Kept},
		{"a truncate that had not started", Recovered{35, nil, 0}, PerPageSync, Broken},
		{"a truncate at work", Recovered{40, nil, 0}, PerPageSync, Kept},
		{"no fsync returned", Recovered{12, []Seen{{0, p, Initial}}, p}, PerPageSync, Kept},
		{"a byte from nowhere", Recovered{12, []Seen{{0, p, Foreign}}, p}, PerPageSync, Broken},
	} {
		t.Run(k.name, func(t *testing.T) {
			if v := c.CheckFsync(h, sync, k.rec, k.rule); v.Outcome != k.want {
				t.Errorf("have %v want %v: %v", v.Outcome, k.want, c.ExplainFsync(h, sync, k.rec, k.rule))
			}
			w := c.ExplainFsync(h, sync, k.rec, k.rule)
			if (w != nil) != (k.want == Broken) {
				t.Errorf("have witness %v", w)
			} else if w != nil && !strings.Contains(w.String(), "the recovered image") {
				t.Errorf("the witness does not name the image: %v", w)
			}
		})
	}
}

// TestOrderWords: an order is told as explanations tell it. An operation that the rule cuts is told
// in its pieces, those that touch and follow each other as one: the reader takes two pages before
// the write, and one after it.
func TestOrderWords(t *testing.T) {
	const p = 4096
	for _, k := range []struct {
		h    History
		want string
	}{
		{History{Size: p, FinalSize: 2 * p, Final: []Seen{{0, p, 1}, {p, 2 * p, Zero}}, Ops: []Op{
			{ID: 1, Lo: 0, Hi: p, Start: 1, End: 4}, {ID: 2, Kind: Truncate, Lo: 2 * p, Start: 2, End: 3}}}, "truncate 2, write 1"},
		{History{Size: 3 * p, FinalSize: 3 * p, Final: []Seen{{0, 3 * p, 1}}, Ops: []Op{
			{ID: 1, Lo: 0, Hi: 3 * p, Start: 1, End: 9},
			{ID: 2, Kind: Read, Lo: 0, Hi: 3 * p, Got: 3 * p, See: []Seen{{0, 2 * p, Initial}, {2 * p, 3 * p, 1}}, Start: 2, End: 8}}},
			"read 2 [0, 8192), write 1, read 2 [8192, 12288)"},
	} {
		var c Checker
		if v := c.Check(&k.h, Rule{Write: Request, Read: Page, Sizes: SizesWith}); v.Outcome != Kept {
			t.Fatalf("%v: %v", k.h.Ops, v)
		}
		if have := strings.Join(c.OrderWords(), ", "); have != k.want {
			t.Errorf("have %s want %s", have, k.want)
		}
	}
}

func TestPaint(t *testing.T) {
	p := make([]byte, 100)
	Paint(p[:30], 1)
	Paint(p[20:40], MaxPaint)
	Paint(p[40:50], Initial)
	Paint(p[60:70], 7)
	p[70], p[71] = 0xf3, 0xf4
	Paint(p[80:90], Zero)
	have := Unpaint(nil, p, 1000, MaxPaint)
	want := []Seen{{1000, 1020, 1}, {1020, 1040, MaxPaint}, {1040, 1050, Initial}, {1050, 1060, Zero}, {1060, 1070, 7}, {1070, 1072, Foreign}, {1072, 1100, Zero}}
	if !reflect.DeepEqual(have, want) {
		t.Errorf("have %v\nwant %v", have, want)
	}
	if have := Unpaint(nil, p[15:25], 0, 2); !reflect.DeepEqual(have, []Seen{{0, 5, 1}, {5, 10, Foreign}}) {
		t.Errorf("have %v", have)
	}
}

func TestValidate(t *testing.T) {
	good := func() *History {
		return &History{Size: 10, FinalSize: 10, Ops: []Op{
			{ID: 1, Lo: 0, Hi: 10, Start: 1, End: 2, Batches: []int64{3, 5}},
			{ID: 2, Kind: Read, Lo: 0, Hi: 10, Got: 10, Start: 1, End: 2, See: []Seen{{0, 4, 1}, {4, 10, Initial}}},
		}, Final: []Seen{{0, 10, 1}}}
	}
	if err := good().Validate(); err != nil {
		t.Fatal(err)
	}
	last := good() // the largest number an operation can have is one that can be seen
	last.Ops[0].ID, last.Ops[1].See[0].From, last.Final[0].From = MaxID, MaxID, MaxID
	if err := last.Validate(); err != nil {
		t.Errorf("with the largest ID: %v", err)
	}
	for name, spoil := range map[string]func(h *History){
		"id":              func(h *History) { h.Ops[0].ID = 0 },
		"big id":          func(h *History) { h.Ops[0].ID = MaxID + 1 },
		"same id":         func(h *History) { h.Ops[1].ID = 1 },
		"kind":            func(h *History) { h.Ops[0].Kind = numKinds },
		"range":           func(h *History) { h.Ops[0].Lo = 11 },
		"time":            func(h *History) { h.Ops[0].End = 0 },
		"got":             func(h *History) { h.Ops[1].Got = 11 },
		"writer sees":     func(h *History) { h.Ops[0].See = h.Final },
		"sees too far":    func(h *History) { h.Ops[1].Got = 9 },
		"overlap":         func(h *History) { h.Ops[1].See[1].Lo = 3 },
		"source":          func(h *History) { h.Final[0].From = -3 },
		"big source":      func(h *History) { h.Final[0].From = MaxID + 1 },
		"cut":             func(h *History) { h.Ops[0].Batches[1] = 10 },
		"cut order":       func(h *History) { h.Ops[0].Batches[1] = 3 },
		"hole":            func(h *History) { h.Holes = []Range{{4, 3}} },
		"final in flight": func(h *History) { h.Ops[0].End = Never },
		"size":            func(h *History) { h.Size = -1 },
		"final size":      func(h *History) { h.FinalSize = math.MinInt64 },
	} {
		h := good()
		if spoil(h); h.Validate() == nil {
			t.Errorf("%s: not noticed", name)
		}
	}
}

func TestNames(t *testing.T) {
	for k := range numContracts {
		if have, err := ParseContract(k.String()); err != nil || have != k {
			t.Errorf("have %v, %v of %v", have, err, k)
		}
	}
	if _, err := ParseContract("word"); err == nil {
		t.Error("there is no contract by words")
	}
}

// Runs around the end of the file, of up to a hundred operations: what was run whole is kept; with
// one fact bent, the answer still comes without many guesses.
func TestAroundEOF(t *testing.T) {
	s := seed(t)
	c := Checker{Budget: 20000}
	most, broken := 0, 0
	for i := range 600 {
		rng := rand.New(rand.NewPCG(s, uint64(i)))
		h := eofHistory(rng, 5+rng.IntN(95), 2+rng.IntN(6))
		if err := h.Validate(); err != nil {
			t.Fatalf("case %d: %v", i, err)
		}
		if v := c.Check(h, CallsSize); v.Outcome != Kept {
			t.Fatalf("case %d: have %v of a run that was whole\n%s", i, v, dump(h))
		}
		if f := append(CheckEOF(h), CheckStale(h)...); f != nil {
			t.Fatalf("case %d: have %v of a run that was whole\n%s", i, f, dump(h))
		}
		switch o := &h.Ops[rng.IntN(len(h.Ops))]; {
		case o.Kind == Stat:
			o.Size += 4096
		case o.Kind == Read && len(o.See) > 0:
			o.See[rng.IntN(len(o.See))].From = ID(1 + rng.IntN(len(h.Ops)))
		case len(h.Final) > 0 && rng.IntN(2) == 0:
			h.Final[rng.IntN(len(h.Final))].From = ID(1 + rng.IntN(len(h.Ops)))
		default:
			h.FinalSize += 4096
		}
		v := c.Check(h, CallsSize)
		if v.Outcome == Broken {
			broken++
		}
		if v.Outcome == Undecided {
			t.Errorf("case %d: undecided after %d guesses, %d operations", i, v.Branches, len(h.Ops))
		}
		most = max(most, v.Branches)
	}
	t.Logf("%d of 600 bent runs are broken; at most %d guesses", broken, most)
	if broken < 100 {
		t.Errorf("hardly any bent run is broken: %d of 600", broken)
	}
}
