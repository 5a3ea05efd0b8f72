package oracle

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// A witness is a proof: its facts alone are broken, its cycles close, and what it says about time
// is so.
func TestExplain(t *testing.T) {
	s := seed(t)
	var c, c2 Checker
	n := 4000
	if testing.Short() {
		n = 500
	}
	cycles, cases, impossible, omitted := 0, 0, 0, 0
	for i := range n {
		rng := rand.New(rand.NewPCG(s, uint64(i)))
		h, r := randomHistory(rng, 2+rng.IntN(5)), randomRule(rng)
		switch i % 8 {
		case 0: // many readers beside few writers: guesses
			h, r = bigHistory(rng, 6+rng.IntN(30), 40, true, false, true), Calls
		case 1:
			h, r = eofHistory(rng, 4+rng.IntN(12), 12), CallsSize
			if h.FinalSize -= 4096; h.FinalSize < 0 || rng.IntN(2) == 0 {
				h.FinalSize += 8192
			}
			for j := range h.Ops {
				if o := &h.Ops[j]; o.Kind == Stat && rng.IntN(3) == 0 {
					o.Size += 4096
				}
			}
		}
		if i%8 > 4 {
			h, r = denseHistory(rng, i%8 > 5), Calls
			if i%8 > 5 {
				r = CallsSize
			}
		}
		w := c.Explain(h, r)
		if broken := c2.Check(h, r).Outcome == Broken; broken != (w != nil) {
			t.Fatalf("case %d: broken %v, witness %v\n%s", i, broken, w, dump(h))
		}
		if w == nil {
			continue
		}
		fail := func(format string, a ...any) {
			t.Helper()
			t.Fatalf("case %d: %s\n%v\n%v\n%s", i, fmt.Sprintf(format, a...), w, r, dump(h))
		}
		if len(w.Facts) == 0 || len(w.Lines()) < 3 {
			fail("an empty witness")
		}
		op := func(id ID) *Op {
			for j := range h.Ops {
				if h.Ops[j].ID == id {
					return &h.Ops[j]
				}
			}
			return nil
		}
		var walk func(p *Proof)
		walk = func(p *Proof) {
			switch {
			case p.Omitted:
				omitted++
			case p.Impossible != "":
				impossible++
			case len(p.Cases) > 0:
				cases++
				for k := range p.Cases {
					walk(&p.Cases[k])
				}
				return
			default:
				cycles++
				if len(p.Cycle) == 0 {
					fail("no cycle")
				}
				for k, st := range p.Cycle {
					if next := p.Cycle[(k+1)%len(p.Cycle)]; st.After != next.Before {
						fail("the cycle does not close")
					}
				}
			}
			for _, st := range append(slices.Clone(p.Cycle), p.Because...) {
				a, b := op(st.Before.Op), op(st.After.Op)
				if st.Why == InTime && a != nil && b != nil && a.End >= b.Start {
					fail("%v is not before %v in time", st.Before, st.After)
				}
			}
		}
		walk(&w.Proof)
		only := *h
		only.Ops, only.Final, only.FinalSize = slices.Clone(h.Ops), nil, NoSize
		for j := range only.Ops {
			only.Ops[j].See, only.Ops[j].muted = nil, true
		}
		for _, f := range w.Facts {
			o := op(f.By)
			if o != nil {
				o = &only.Ops[slices.Index(ids(h), f.By)]
			}
			switch {
			case f.Size && o == nil:
				only.FinalSize = f.Min
			case f.Size:
				o.muted = false
			case o == nil:
				only.Final = append(only.Final, f.Seen)
			default:
				o.See = append(o.See, f.Seen)
			}
		}
		if c2.Check(&only, r).Outcome != Broken {
			fail("the facts alone are not broken")
		}
	}
	t.Logf("%d cycles, %d times by cases, %d impossible, %d left out", cycles, cases, impossible, omitted)
}

func ids(h *History) (ids []ID) {
	for i := range h.Ops {
		ids = append(ids, h.Ops[i].ID)
	}
	return ids
}

var rewrite = flag.Bool("rewrite", false, "write the texts of testdata anew")

// What a student reads, for the stories of the labs; each has its text in testdata.
func TestWitnessText(t *testing.T) {
	const p = 4096
	for _, k := range []struct {
		name, story string
		h           *History
		r           Rule
	}{
		{"torn", "two writers of the same three pages, without a lock: pages of both", &History{Size: 3 * p, FinalSize: 3 * p, Ops: []Op{
			{ID: 1, Lo: 0, Hi: 3 * p, Start: 1, End: 9},
			{ID: 2, Lo: 0, Hi: 3 * p, Start: 2, End: 8},
		}, Final: []Seen{{0, 2 * p, 1}, {2 * p, 3 * p, 2}}}, Calls},
		{"lost-truncate", "the truncate returns while an unlocked writer is still at work, and the writer extends the file again from inside", &History{
			Size: 4 * p, FinalSize: 3 * p, Ops: []Op{
				{ID: 1, Lo: p, Hi: 3 * p, Start: 1, End: 5},
				{ID: 2, Kind: Truncate, Lo: p, Start: 2, End: 8},
			}, Final: []Seen{{0, p, Initial}, {p, 2 * p, Zero}, {2 * p, 3 * p, 1}}}, CallsSize},
		{"torn-read", "a reader sees half of a write", &History{Size: 2 * p, FinalSize: NoSize, Ops: []Op{
			{ID: 1, Lo: 0, Hi: 2 * p, Start: 1, End: 9},
			{ID: 2, Kind: Read, Lo: 0, Hi: 2 * p, Got: 2 * p, Start: 2, End: 8, See: []Seen{{0, p, 1}, {p, 2 * p, Initial}}},
		}}, Calls},
		{"backwards", "two readers see two writes in different orders", &History{Size: 2 * p, FinalSize: NoSize, Ops: []Op{
			{ID: 1, Lo: 0, Hi: p, Start: 1, End: 20},
			{ID: 2, Lo: p, Hi: 2 * p, Start: 1, End: 20},
			{ID: 3, Kind: Read, Lo: 0, Hi: 2 * p, Got: 2 * p, Start: 2, End: 8, See: []Seen{{0, p, 1}, {p, 2 * p, Initial}}},
			{ID: 4, Kind: Read, Lo: 0, Hi: 2 * p, Got: 2 * p, Start: 2, End: 8, See: []Seen{{0, p, Initial}, {p, 2 * p, 2}}},
		}}, Calls},
		{"four-views", "each page is written twice, so it changes once between the two; but the readers saw all four pairs", &History{Size: 2 * p, FinalSize: NoSize, Ops: []Op{
			{ID: 1, Lo: 0, Hi: p, Start: 1, End: 20},
			{ID: 2, Lo: 0, Hi: p, Start: 1, End: 20},
			{ID: 3, Lo: p, Hi: 2 * p, Start: 1, End: 20},
			{ID: 4, Lo: p, Hi: 2 * p, Start: 1, End: 20},
			{ID: 5, Kind: Read, Lo: 0, Hi: 2 * p, Got: 2 * p, Start: 1, End: 20, See: []Seen{{0, p, 1}, {p, 2 * p, 3}}},
			{ID: 6, Kind: Read, Lo: 0, Hi: 2 * p, Got: 2 * p, Start: 1, End: 20, See: []Seen{{0, p, 1}, {p, 2 * p, 4}}},
			{ID: 7, Kind: Read, Lo: 0, Hi: 2 * p, Got: 2 * p, Start: 1, End: 20, See: []Seen{{0, p, 2}, {p, 2 * p, 3}}},
			{ID: 8, Kind: Read, Lo: 0, Hi: 2 * p, Got: 2 * p, Start: 1, End: 20, See: []Seen{{0, p, 2}, {p, 2 * p, 4}}},
		}}, Calls},
		{"extended", "the size can only be that of one of two writes, and both were cut off again", &History{Size: 2 * p, FinalSize: NoSize, Ops: []Op{
			{ID: 1, Lo: 0, Hi: 6 * p, Start: 1, End: 4},
			{ID: 2, Lo: 2 * p, Hi: 6 * p, Start: 2, End: 5},
			{ID: 3, Kind: Truncate, Lo: p, Start: 6, End: 8},
			{ID: 4, Lo: 0, Hi: 2 * p, Start: 9, End: 10},
			{ID: 5, Kind: Stat, Size: 6 * p, Start: 9, End: 12},
		}}, CallsSize},
		{"append", "two appends that found the same end", &History{Size: p, FinalSize: 2 * p, Ops: []Op{
			{ID: 1, Kind: Append, Lo: p, Hi: 2 * p, Start: 1, End: 9},
			{ID: 2, Kind: Append, Lo: p, Hi: 2 * p, Start: 2, End: 8},
		}, Final: []Seen{{0, p, Initial}, {p, 2 * p, 2}}}, CallsSize},
		{"stale-zeroes", "zeroes that a punch made come back over a later write", &History{Size: 2 * p, FinalSize: 2 * p, Ops: []Op{
			{ID: 1, Kind: Punch, Lo: 0, Hi: p, Start: 1, End: 3},
			{ID: 2, Kind: Punch, Lo: 0, Hi: 2 * p, Start: 1, End: 4},
			{ID: 3, Lo: 0, Hi: 2 * p, Start: 5, End: 8},
		}, Final: []Seen{{0, p, Zero}, {p, 2 * p, 3}}}, Calls},
		{"foreign", "a byte that no operation wrote", &History{Size: p, FinalSize: p, Ops: []Op{
			{ID: 1, Lo: 0, Hi: 512, Start: 1, End: 3},
		}, Final: []Seen{{0, 512, 1}, {512, p, Foreign}}}, PerPage},
	} {
		t.Run(k.name, func(t *testing.T) {
			if err := k.h.Validate(); err != nil {
				t.Fatal(err)
			}
			var c Checker
			w := c.Explain(k.h, k.r)
			if w == nil {
				t.Fatal("kept")
			}
			have := k.story + "\n----\n" + w.Plain("at the end") + "\n" + strings.Join(w.Lines(), "\n") + "\n"
			file := filepath.Join("testdata", k.name+".txt")
			if *rewrite {
				if err := os.WriteFile(file, []byte(have), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if have != string(want) {
				t.Errorf("have\n%s\nwant\n%s", have, want)
			}
		})
	}
}
