package crash

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
)

// State is one crash: the power goes before flush number Flush of the recording has ended, or after
// its last flush. Of the writes since the flush before, numbered from 1 in the order in which they
// ended, those in Lost are lost, those in Torn are there in part, and the others are there.
type State struct {
	Flush int
	Lost  []int
	Torn  []Tear
}

// Tear leaves the bytes [From, To) of a write.
type Tear struct{ Write, From, To int }

// String is the state as ParseState reads it: "5", or "5:2,4,7[0-4096]", which loses writes 2 and 4
// and all but a part of 7.
func (s State) String() string {
	var l []string
	for _, n := range s.Lost {
		l = append(l, strconv.Itoa(n))
	}
	for _, x := range s.Torn {
		l = append(l, fmt.Sprintf("%d[%d-%d]", x.Write, x.From, x.To))
	}
	if len(l) == 0 {
		return strconv.Itoa(s.Flush)
	}
	return fmt.Sprintf("%d:%s", s.Flush, strings.Join(l, ","))
}

// ParseState reads what String writes.
func ParseState(text string) (State, error) {
	bad := func() (State, error) {
		return State{}, fmt.Errorf("bad crash state, have %q want FLUSH or FLUSH:WRITE,WRITE[FROM-TO]", text)
	}
	flush, list, some := strings.Cut(text, ":")
	var s State
	var err error
	if s.Flush, err = strconv.Atoi(flush); err != nil || s.Flush < 1 {
		return bad()
	}
	if !some {
		return s, nil
	}
	for _, w := range strings.Split(list, ",") {
		number, part, torn := strings.Cut(w, "[")
		n, err := strconv.Atoi(number)
		if err != nil || n < 1 {
			return bad()
		}
		if !torn {
			s.Lost = append(s.Lost, n)
			continue
		}
		from, to, _ := strings.Cut(strings.TrimSuffix(part, "]"), "-")
		x := Tear{Write: n}
		var ferr, terr error
		x.From, ferr = strconv.Atoi(from)
		x.To, terr = strconv.Atoi(to)
		if ferr != nil || terr != nil || x.From < 0 || x.To < x.From || !strings.HasSuffix(part, "]") {
			return bad()
		}
		s.Torn = append(s.Torn, x)
	}
	return s, nil
}

// Has says whether the recording has the state; the error names what it has not.
func (r *Recording) Has(s State) error {
	if s.Flush > len(r.epochs) {
		return fmt.Errorf("bad crash state %s, have flush %d want at most %d", s, s.Flush, len(r.epochs))
	}
	e := &r.epochs[s.Flush-1]
	for _, n := range s.Lost {
		if n > len(e.pending) {
			return fmt.Errorf("bad crash state %s, have write %d want at most %d", s, n, len(e.pending))
		}
	}
	for _, x := range s.Torn {
		if x.Write > len(e.pending) || x.To > len(r.records[e.pending[x.Write-1]].Data) {
			return fmt.Errorf("bad crash state %s, have write %d[%d-%d], which is not there or shorter", s, x.Write, x.From, x.To)
		}
	}
	return nil
}

// Choice says which states are looked at.
type Choice struct {
	// PerFlush is the number of states at each flush; 0 is DefaultPerFlush. Where the writes that
	// are pending have no more subsets than that, all of them are taken; else none, all, each alone
	// lost and each alone there come first, and random ones follow. Torn writes come besides, no
	// more than as many again.
	PerFlush int
	Seed     uint64
	// From leaves out the states before operation From begins.
	From int
	// Points takes what is on the medium when an operation with a promise has returned, and no
	// other state.
	Points bool
}

// DefaultPerFlush is PerFlush when it is zero.
const DefaultPerFlush = 64

// States are the crash states of the choice, the earliest first.
func (r *Recording) States(c Choice) []State {
	if c.PerFlush == 0 {
		c.PerFlush = DefaultPerFlush
	}
	var l []State
	for i := range r.epochs {
		e := &r.epochs[i]
		if e.begun <= c.From && c.From > 0 {
			continue
		}
		if c.Points {
			before := c.From
			if i > 0 {
				before = max(before, r.epochs[i-1].ended)
			}
			if slices.ContainsFunc(r.Ops[min(before, e.ended):e.ended], func(op Op) bool { return op.Promise != Nothing }) {
				l = append(l, State{Flush: i + 1, Lost: all(len(e.pending))})
			}
			continue
		}
		rng := rand.New(rand.NewPCG(c.Seed, uint64(i)))
		l = append(l, r.subsets(i+1, c.PerFlush, rng)...)
		l = append(l, r.tears(i+1, c.PerFlush, rng)...)
	}
	return l
}

func all(n int) []int {
	var l []int
	for i := range n {
		l = append(l, i+1)
	}
	return l
}

// subsets are the states of one flush without torn writes.
func (r *Recording) subsets(flush, limit int, rng *rand.Rand) []State {
	n := len(r.epochs[flush-1].pending)
	var l []State
	if n < 30 && 1<<n <= limit {
		for mask := range 1 << n {
			s := State{Flush: flush}
			for i := range n {
				if mask&(1<<i) != 0 {
					s.Lost = append(s.Lost, i+1)
				}
			}
			l = append(l, s)
		}
		return l
	}
	l = append(l, State{Flush: flush, Lost: all(n)}, State{Flush: flush})
	for _, i := range rng.Perm(n) {
		if len(l)+2 > limit {
			return l
		}
		alone := slices.Delete(all(n), i, i+1)
		l = append(l, State{Flush: flush, Lost: []int{i + 1}}, State{Flush: flush, Lost: alone})
	}
	for len(l) < limit {
		s := State{Flush: flush}
		for i := range n {
			if rng.IntN(2) == 0 {
				s.Lost = append(s.Lost, i+1)
			}
		}
		l = append(l, s)
	}
	return l
}

// sector is the smallest unit that a device writes at once, in bytes.
const sector = 512

// tears are the states of one flush with one torn write: the others are there, or a random part of
// them.
func (r *Recording) tears(flush, limit int, rng *rand.Rand) []State {
	e := &r.epochs[flush-1]
	var l []State
	for _, i := range rng.Perm(len(e.pending)) {
		rec := &r.records[e.pending[i]]
		n := len(rec.Data)
		if kindOf(rec, &r.sb) == kindSuper {
			continue
		}
		at := sector * (1 + rng.IntN(n/sector-1))
		if n > blockSize {
			at = blockSize * (1 + rng.IntN(n/blockSize-1))
		}
		for _, x := range []Tear{{i + 1, 0, at}, {i + 1, at, n}} {
			if len(l) == limit {
				return l
			}
			s := State{Flush: flush, Torn: []Tear{x}}
			if rng.IntN(2) == 0 {
				for j := range e.pending {
					if j != i && rng.IntN(2) == 0 {
						s.Lost = append(s.Lost, j+1)
					}
				}
			}
			l = append(l, s)
		}
	}
	return l
}
