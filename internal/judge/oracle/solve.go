package oracle

// The solver: is there an order of the pieces of one component that explains all that was seen?
//
// The pieces are members of a relation "must come before", kept closed under itself: succ has for
// each member those after it, pred those before. A component of two writes and a read of their
// bytes:
//
//	members   0 initial content   1 write A   2 write B   3 read, saw A   4 final content, saw B
//	exact     read 3 is from 1:   1 before 3, and every other writer of the bytes is before 1 or after 3
//	          final 4 is from 2:  2 before 4, and every other writer is before 2
//
//	succ      0 │ · 1 1 1 1      by time and exact:   0 ─► 1 ─► 3 ─► 4
//	          1 │ · · 1 1 1      then forced:              1 ─► 2   (1 is before 2, since 4 is from 2)
//	          2 │ · · · · 1      and so:                   2 after 3 (2 is not before 1)
//	          3 │ · · 1 · 1
//	          4 │ · · · · ·      every triple is closed: kept
//
// constrain writes down what was seen: exact for bytes with one possible source, choices for zeroes
// and sizes, which have several. fixpoint adds the edges that these force, until nothing changes or
// a cycle shows. open finds a question that is left, answer tries one side, and solve goes back to
// the other when the first fails. place reads the order off the relation.
//
//	decide ─► peel                        no reads and no sizes: tier 1
//	       └► constrain ─► solve ─► fixpoint ─► apply, narrow ─► before
//	                         └► open, answer, solve
//
// explain.go reads exact, choices and masks to say why there is no order; it keeps a relation of
// its own, with reasons.

import (
	"math"
	"math/bits"
)

// solver decides one component. Its members are numbered from 0: 0 is the initial content, which
// comes before everything, 1 to n-2 are the units, n-1 is the final content, which comes after
// everything. Sets of members are rows of w words.
type solver struct {
	n, w       int
	unit       []int32  // member -> unit; -1 for the first and the last
	start, end []int64  // of members
	writers    []uint64 // segment - seg0 -> members that change it
	zero       bitset   // members that write zeroes
	// tier 1: segments that keep a member from being the last; in place, the number of members
	// before it
	asked []int32
	free  []bool  // tier 1: segments no longer asked for
	gone  bitset  // tier 1: members that were taken away
	last  []int32 // in this order

	succ, pred []uint64 // member -> members after, before it; closed
	exact      []exact
	masks      []uint64
	slot       []int32 // source -> its constraint of the current reader, plus 1
	choices    []choice
	cand       []uint64 // the sets of choices that shrink while solving
	zeroFrom   bitset   // zeroSeen: the members that a zero byte may be from,
	zeroOthers bitset   // and the others that write the byte
	rank       []int32  // a guess at the order, to branch on the likelier side first
	saved      []uint64
	savedS     []int32

	weight     []int32 // reader -> contradictions it was in: the harder ones are asked about first
	finalSize  bool
	branches   int
	budget     int
	untilAgain int // guesses after which the search starts again
}

// exact says: s is before r, and every w in masks[m:] is before s or after r.
type exact struct {
	r, s int32
	m    int32
	seg  int32 // one segment that says so
}

// choice says the same for one s out of a set. For a size there must also be, when s leaves it
// smaller than min, an extending write between s and r. cand[at:] holds three rows: sources,
// extending writes, sources that need one.
type choice struct {
	r, s int32 // s is -1 while it is open
	m    int32
	at   int32
	seg  int32 // -1: this is about the size
	ext  bool
}

// decide judges component k and appends its order to placed when it is kept.
func (c *Checker) decide(k int32) Outcome {
	seg0, seg1, search := c.members(k)
	if !search {
		c.tier = 1
		return c.peel(k, seg0, seg1)
	}
	c.tier = 2
	s := &c.s
	s.weight = resize(s.weight, s.n)
	clear(s.weight)
	for patience := 64; ; patience *= 2 {
		if !c.constrain(k, seg0, seg1) {
			return Broken
		}
		// A search that takes long is stuck below guesses that have nothing to do with its
		// contradictions. It starts again and asks first about the readers that contradictions came
		// from.
		s.untilAgain = min(s.budget, s.branches+patience)
		out := c.solve(0)
		if out == Kept {
			c.place()
		}
		if out != Undecided || s.branches >= s.budget {
			return out
		}
	}
}

// members makes component k the one at hand: its members, its segments, and whether it needs tier
// 2.
func (c *Checker) members(k int32) (seg0, seg1 int32, search bool) {
	s := &c.s
	us := c.unitsOf(k)
	s.n = len(us) + 2
	s.w = (s.n + 63) / 64
	n, w := s.n, s.w
	s.unit = resize(s.unit, n)
	s.start, s.end = resize(s.start, n), resize(s.end, n)
	s.unit[0], s.unit[n-1] = -1, -1
	seg0, seg1 = c.seg0[k], c.seg1[k]
	if seg1 < seg0 {
		seg0, seg1 = 0, 0
	}
	s.writers = resize(s.writers, int(seg1-seg0)*w)
	clear(s.writers)
	s.zero = resize(s.zero, w)
	clear(s.zero)
	search = k == c.sizeComp
	for i, id := range us {
		u, l := &c.units[id], int32(i+1)
		u.local = l
		s.unit[l] = id
		s.start[l], s.end[l] = u.start, u.end
		if u.flags&flagWrite != 0 {
			for x := u.lo; x < u.hi; x++ {
				row(s.writers, int(x-seg0), w).add(l)
			}
		}
		if u.flags&flagZero != 0 {
			s.zero.add(l)
		}
		if u.flags&flagRead != 0 {
			search = true
		}
	}
	return seg0, seg1, search
}

// source returns the member that put id on segment x, or -1 when nobody can have: the reader by (a
// unit, or -1 for the end) saw the impossible.
func (c *Checker) source(id ID, x int32, by int32) int32 {
	if id == Initial {
		if c.zero0[x] {
			c.impossible(id, x, by)
			return -1
		}
		return 0
	}
	u := c.pieceAt(c.opIndex(id), x)
	if u < 0 {
		c.impossible(id, x, by)
		return -1
	}
	return c.units[u].local
}

func (c *Checker) impossible(id ID, x int32, by int32) {
	c.whyAt, c.whyBy = Seen{c.bounds[x], c.bounds[x+1], id}, by
	switch {
	case id == Foreign:
		c.why = "nobody in this history wrote them"
	case id == Zero:
		c.why = "no hole was there, and no truncate or punch reached there"
	case id == Initial:
		c.why = "a hole was there at the start, or nothing"
	case c.opIndex(id) < 0:
		c.why = "there is no such operation"
	default:
		c.why = "it never changed them"
	}
}

// peel is tier 1.
func (c *Checker) peel(k, seg0, seg1 int32) Outcome {
	s, w := &c.s, c.s.w
	nseg := int(seg1 - seg0)
	s.asked = resize(s.asked, s.n)
	clear(s.asked)
	s.free = resize(s.free, nseg)
	s.masks = resize(s.masks, nseg*w) // members that must not be the last on a segment
	for i := range nseg {
		x := seg0 + int32(i)
		id := c.obs[c.finAt+int(x)]
		if c.comp[x] != k || id == unseen {
			s.free[i] = true
			continue
		}
		s.free[i] = false
		m, writers := row(s.masks, i, w), row(s.writers, i, w)
		copy(m, writers)
		if id == Zero {
			for j := range m {
				m[j] &^= s.zero[j]
			}
		} else {
			src := c.source(id, x, -1)
			if src < 0 {
				return Broken
			}
			m.drop(src)
		}
		for j, b := range m {
			for ; b != 0; b &= b - 1 {
				s.asked[member(j, b)]++
			}
		}
	}
	s.last = s.last[:0]
	left := s.n - 2
	s.gone = resize(s.gone, w)
	gone := s.gone
	clear(gone)
	for left > 0 {
		// latest is the latest start of those left: the last one must not have returned before it.
		latest := int64(math.MinInt64)
		for l := int32(1); int(l) < s.n-1; l++ {
			if !gone.has(l) {
				latest = max(latest, s.start[l])
			}
		}
		before := left
		for l := int32(1); int(l) < s.n-1; l++ {
			if s.asked[l] != 0 || s.end[l] < latest || gone.has(l) {
				continue
			}
			gone.add(l)
			left--
			s.last = append(s.last, l)
			u := &c.units[s.unit[l]]
			for x := u.lo; x < u.hi; x++ {
				i := int(x - seg0)
				if s.free[i] || u.flags&flagWrite == 0 {
					continue
				}
				s.free[i] = true
				for j, b := range row(s.masks, i, w) {
					for b &^= gone[j]; b != 0; b &= b - 1 {
						s.asked[member(j, b)]--
					}
				}
			}
		}
		if left == before {
			return Broken
		}
	}
	for i := range nseg {
		if s.free[i] {
			continue
		}
		x := seg0 + int32(i)
		switch id := c.obs[c.finAt+int(x)]; {
		case id == Zero && !c.zero0[x]:
			c.impossible(id, x, -1)
			return Broken
		case id > 0:
			return Broken // its owner was not there to be taken away
		}
	}
	for i := len(s.last) - 1; i >= 0; i-- {
		c.placed = append(c.placed, s.unit[s.last[i]])
	}
	c.sets = append(c.sets, int32(len(c.placed)))
	return Kept
}

// constrain sets up tier 2; it returns false when something seen has no possible source.
func (c *Checker) constrain(k, seg0, seg1 int32) bool {
	s, n, w := &c.s, c.s.n, c.s.w
	s.succ, s.pred = resize(s.succ, n*w), resize(s.pred, n*w)
	clear(s.succ)
	clear(s.pred)
	s.zeroFrom, s.zeroOthers = resize(s.zeroFrom, w), resize(s.zeroOthers, w)
	s.slot = resize(s.slot, n)
	clear(s.slot)
	s.rank = resize(s.rank, n)
	s.exact, s.choices = s.exact[:0], s.choices[:0]
	s.masks, s.cand = s.masks[:0], s.cand[:0]
	s.saved, s.savedS = s.saved[:0], s.savedS[:0]

	last := int32(n - 1)
	for a := int32(0); a <= last; a++ {
		sa := row(s.succ, int(a), w)
		for b := int32(0); b <= last; b++ {
			if a != b && (a == 0 || b == last || a != last && b != 0 && s.end[a] < s.start[b]) {
				sa.add(b)
				row(s.pred, int(b), w).add(a)
			}
		}
	}
	for l := int32(1); l < last; l++ {
		s.rank[l] = c.opRank[c.units[s.unit[l]].op]
	}
	s.rank[0], s.rank[last] = -1, math.MaxInt32

	for l := int32(1); l <= last; l++ {
		var obs []ID
		var lo, hi, by int32
		if l == last {
			if c.finAt < 0 {
				continue
			}
			obs, lo, hi, by = c.obs[c.finAt+int(seg0):], seg0, seg1, -1
		} else {
			u := &c.units[s.unit[l]]
			if u.flags&flagRead == 0 {
				continue
			}
			o := &c.h.Ops[u.op]
			obs = c.obs[int(c.obsAt[u.op])+int(u.lo)-c.seg(o.Lo):]
			lo, hi, by = u.lo, u.hi, s.unit[l]
		}
		e0, c0 := len(s.exact), len(s.choices)
		for x := lo; x < hi; x++ {
			id := obs[x-lo]
			if id == unseen || c.comp[x] != k {
				continue
			}
			writers := row(s.writers, int(x-seg0), w)
			if id == Zero {
				if !c.zeroSeen(l, x, writers, c0) {
					c.impossible(id, x, by)
					return false
				}
				continue
			}
			src := c.source(id, x, by)
			if src < 0 {
				return false
			}
			at := s.slot[src]
			if at == 0 {
				s.exact = append(s.exact, exact{l, src, int32(len(s.masks)), x})
				at = int32(len(s.exact))
				s.slot[src] = at
				for range w {
					s.masks = append(s.masks, 0)
				}
			}
			m := bitset(s.masks[s.exact[at-1].m:])
			for j, b := range writers {
				m[j] |= b
			}
			m.drop(src)
		}
		for _, e := range s.exact[e0:] {
			s.slot[e.s] = 0
		}
	}
	if k == c.sizeComp {
		c.sizesSeen()
	}
	return true
}

// zeroSeen adds the constraint of a zero byte that l saw at segment x; those since c0 are of the
// same reader.
func (c *Checker) zeroSeen(l, x int32, writers []uint64, c0 int) bool {
	s, w := &c.s, c.s.w
	cand, m := s.zeroFrom, s.zeroOthers
	for j, b := range writers {
		cand[j] = b & s.zero[j]
		m[j] = b &^ s.zero[j]
	}
	if c.zero0[x] {
		cand.add(0)
		if m.empty() {
			return true
		}
	}
	if cand.empty() {
		return false
	}
next:
	for i := c0; i < len(s.choices); i++ {
		h := &s.choices[i]
		for j := range w {
			if s.cand[int(h.at)+j] != cand[j] || s.masks[int(h.m)+j] != m[j] {
				continue next
			}
		}
		return true
	}
	s.choices = append(s.choices, choice{r: l, s: -1, m: int32(len(s.masks)), at: int32(len(s.cand)), seg: x})
	s.masks = append(s.masks, m...)
	s.cand = append(s.cand, cand...)
	for range 2 * w {
		s.cand = append(s.cand, 0)
	}
	return true
}

// sizesSeen adds the constraints of sizes. The size that r sees is the largest of the size its last
// truncate T set and the ends of the writes between T and r. So a size in [min, max] has a T with
// size <= max; every other truncate, and every write beyond max, is before T or after r; and if T
// left less than min, a write that ends in [min, max] is between.
func (c *Checker) sizesSeen() {
	s, w := &c.s, c.s.w
	for l := int32(1); int(l) < s.n; l++ {
		lo, hi := int64(0), int64(0)
		if int(l) == s.n-1 {
			if !s.finalSize {
				return
			}
			lo, hi = c.h.FinalSize, c.h.FinalSize
		} else {
			u := &c.units[s.unit[l]]
			if u.flags&flagSizeObs == 0 {
				continue
			}
			lo, hi = u.min, u.max
		}
		h := choice{r: l, s: -1, m: int32(len(s.masks)), at: int32(len(s.cand)), seg: -1, ext: true}
		for range w {
			s.masks = append(s.masks, 0)
		}
		for range 3 * w {
			s.cand = append(s.cand, 0)
		}
		m := bitset(s.masks[h.m:])
		src, ext, low := row(s.cand[h.at:], 0, w), row(s.cand[h.at:], 1, w), row(s.cand[h.at:], 2, w)
		base := func(l int32, size int64) {
			if size <= hi {
				src.add(l)
			}
			if size < lo {
				low.add(l)
			}
		}
		base(0, c.h.Size)
		for o := int32(1); int(o) < s.n-1; o++ {
			u := &c.units[s.unit[o]]
			if o == l {
				continue
			}
			switch {
			case u.flags&flagSet != 0:
				base(o, u.val)
				m.add(o)
			case u.flags&flagMax != 0 && u.val > hi:
				m.add(o)
			case u.flags&flagMax != 0 && u.val >= lo:
				ext.add(o)
			}
		}
		s.choices = append(s.choices, h)
	}
}

// before adds the edge a -> b and closes the relation; false when b is before a.
func (s *solver) before(a, b int32) bool {
	w := s.w
	after, prior := row(s.succ, int(b), w), row(s.pred, int(a), w)
	if row(s.succ, int(a), w).has(b) {
		return true
	}
	if a == b || after.has(a) {
		return false
	}
	s.reach(s.succ, prior, b)
	s.reach(s.pred, after, a)
	row(s.succ, int(a), w).join(b, after)
	row(s.pred, int(b), w).join(a, prior)
	return true
}

// reach lets each of from, which lead to a new edge, reach its other end to in rel, and all that to
// reaches.
func (s *solver) reach(rel []uint64, from bitset, to int32) {
	beyond := row(rel, int(to), s.w)
	for j := range from {
		for x := from[j]; x != 0; x &= x - 1 {
			if r := row(rel, int(member(j, x)), s.w); !r.has(to) {
				r.join(to, beyond)
			}
		}
	}
}

// apply forces what s before r, and nothing of m between them, forces now. It reports a
// contradiction by ok, and whether it added anything.
func (s *solver) apply(r, src int32, m []uint64) (changed, ok bool) {
	w := s.w
	if !row(s.succ, int(src), w).has(r) {
		if !s.before(src, r) {
			return false, false
		}
		changed = true
	}
	ss, sr := row(s.succ, int(src), w), row(s.succ, int(r), w)
	ps, pr := row(s.pred, int(src), w), row(s.pred, int(r), w)
	for j := range w {
		for x := m[j] & ss[j] &^ sr[j]; x != 0; x &= x - 1 {
			l := member(j, x)
			if l == src || l == r {
				continue
			}
			if !s.before(r, l) {
				return false, false
			}
			changed = true
		}
		for x := m[j] & pr[j] &^ ps[j]; x != 0; x &= x - 1 {
			l := member(j, x)
			if l == src || l == r {
				continue
			}
			if !s.before(l, src) {
				return false, false
			}
			changed = true
		}
	}
	return changed, true
}

// fixpoint forces everything that is forced; false is a contradiction.
func (s *solver) fixpoint() bool {
	for {
		changed := false
		for i := range s.exact {
			e := &s.exact[i]
			ch, ok := s.apply(e.r, e.s, s.masks[e.m:int(e.m)+s.w])
			if !ok {
				s.weight[e.r]++
				return false
			}
			changed = changed || ch
		}
		for i := range s.choices {
			ch, ok := s.narrow(&s.choices[i])
			if !ok {
				s.weight[s.choices[i].r]++
				return false
			}
			changed = changed || ch
		}
		if !changed {
			return true
		}
	}
}

// narrow takes away the sources that are no longer possible, and forces what the only one left
// forces.
func (s *solver) narrow(h *choice) (changed, ok bool) {
	w := s.w
	m := s.masks[h.m : int(h.m)+w]
	src, ext, low := row(s.cand[h.at:], 0, w), row(s.cand[h.at:], 1, w), row(s.cand[h.at:], 2, w)
	if h.s < 0 {
		sr, pr := row(s.succ, int(h.r), w), row(s.pred, int(h.r), w)
		noExt := h.ext && ext.empty()
		for j := range w {
			for x := src[j]; x != 0; x &= x - 1 {
				l := member(j, x)
				bad := sr.has(l) || noExt && low.has(l)
				if !bad {
					for i, y := range row(s.succ, int(l), w) {
						if y&m[i]&pr[i] != 0 {
							bad = true
							break
						}
					}
				}
				if bad {
					src.drop(l)
					changed = true
				}
			}
		}
		l, alone := src.single()
		if l < 0 {
			return false, false
		}
		if !alone {
			return changed, true
		}
		h.s = l
		changed = true
	}
	ch, ok := s.apply(h.r, h.s, m)
	if !ok {
		return false, false
	}
	changed = changed || ch
	if h.ext && low.has(h.s) {
		// An extending write must be between.
		ps, sr := row(s.pred, int(h.s), w), row(s.succ, int(h.r), w)
		for j := range w {
			if x := ext[j] & (ps[j] | sr[j]); x != 0 {
				ext[j] &^= x
				changed = true
			}
		}
		l, alone := ext.single()
		if l < 0 {
			return false, false
		}
		if alone && !(row(s.succ, int(h.s), w).has(l) && row(s.pred, int(h.r), w).has(l)) {
			if !s.before(h.s, l) || !s.before(l, h.r) {
				return false, false
			}
			changed = true
		}
	}
	return changed, true
}

// satisfied reports whether choice h holds in every order that respects the relation as it is.
func (s *solver) satisfied(h *choice) bool {
	w := s.w
	m := s.masks[h.m : int(h.m)+w]
	src, ext, low := row(s.cand[h.at:], 0, w), row(s.cand[h.at:], 1, w), row(s.cand[h.at:], 2, w)
	sr, pr := row(s.succ, int(h.r), w), row(s.pred, int(h.r), w)
	for j := range w {
	sources:
		for x := src[j] & pr[j]; x != 0; x &= x - 1 {
			l := member(j, x)
			if h.s >= 0 && h.s != l {
				continue
			}
			pl, sl := row(s.pred, int(l), w), row(s.succ, int(l), w)
			for i := range w {
				open := m[i] &^ pl[i] &^ sr[i]
				if i == int(l>>6) {
					open &^= 1 << (uint(l) & 63)
				}
				if open != 0 {
					continue sources
				}
			}
			if !h.ext || !low.has(l) {
				return true
			}
			for i := range w {
				if ext[i]&sl[i]&pr[i] != 0 {
					return true
				}
			}
		}
	}
	return false
}

// question is something open: either a before b or (c before d); or a choice of a source or an
// extending write.
type question struct {
	a, b, c, d int32
	ch         int32 // choice, or -1
	pick       int32
	ext        bool
}

func (s *solver) open() (question, bool) {
	w := s.w
	triple := func(r, src int32, m []uint64) (question, bool) {
		ps, sr := row(s.pred, int(src), w), row(s.succ, int(r), w)
		for j := range w {
			for x := m[j] &^ ps[j] &^ sr[j]; x != 0; x &= x - 1 {
				l := member(j, x)
				if l == src || l == r {
					continue
				}
				if s.rank[l] > s.rank[src] {
					return question{a: r, b: l, c: l, d: src, ch: -1}, true
				}
				return question{a: l, b: src, c: r, d: l, ch: -1}, true
			}
		}
		return question{}, false
	}
	// The reader with most contradictions first, then the earliest: a contradiction shows close to
	// the guess that made it.
	best, found := int32(0), false
	var out question
	follows := func(r int32) bool {
		return found && (s.weight[r] < s.weight[best] || s.weight[r] == s.weight[best] && s.rank[r] >= s.rank[best])
	}
	for i := range s.exact {
		e := &s.exact[i]
		if follows(e.r) {
			continue
		}
		if q, ok := triple(e.r, e.s, s.masks[e.m:int(e.m)+w]); ok {
			out, found, best = q, true, e.r
		}
	}
	for i := range s.choices {
		h := &s.choices[i]
		if follows(h.r) || s.satisfied(h) {
			continue
		}
		found, best = true, h.r
		if h.s < 0 {
			out = question{ch: int32(i), pick: s.likely(row(s.cand[h.at:], 0, w), h.r)}
		} else if q, ok := triple(h.r, h.s, s.masks[h.m:int(h.m)+w]); ok {
			out = q
		} else {
			out = question{ch: int32(i), pick: s.likely(row(s.cand[h.at:], 1, w), h.r), ext: true}
		}
	}
	return out, found
}

// likely returns the member of r that seems to be the last before reader by.
func (s *solver) likely(r []uint64, by int32) int32 {
	best := int32(-1)
	for j := range r {
		for x := r[j]; x != 0; x &= x - 1 {
			l := member(j, x)
			if best < 0 || s.rank[l] <= s.rank[by] && (s.rank[best] > s.rank[by] || s.rank[l] > s.rank[best]) {
				best = l
			}
		}
	}
	return best
}

// answer adds one side of q; false is a contradiction at once.
func (s *solver) answer(q question, yes bool) bool {
	if q.ch < 0 {
		if yes {
			return s.before(q.a, q.b)
		}
		return s.before(q.c, q.d)
	}
	h := &s.choices[q.ch]
	r := row(s.cand[h.at:], 0, s.w)
	if q.ext {
		r = row(s.cand[h.at:], 1, s.w)
	}
	if yes {
		clear(r)
		r.add(q.pick)
	} else {
		r.drop(q.pick)
	}
	return true
}

// solve is the search: Kept leaves an order in the relation.
func (c *Checker) solve(depth int) Outcome {
	s := &c.s
	size := len(s.succ) + len(s.pred) + len(s.cand)
	for {
		if !s.fixpoint() {
			return Broken
		}
		q, ok := s.open()
		if !ok {
			return Kept
		}
		if s.branches >= s.untilAgain {
			return Undecided
		}
		s.branches++
		s.saved = append(append(append(s.saved[:depth*size], s.succ...), s.pred...), s.cand...)
		s.savedS = s.savedS[:depth*len(s.choices)]
		for i := range s.choices {
			s.savedS = append(s.savedS, s.choices[i].s)
		}
		if s.answer(q, true) {
			if out := c.solve(depth + 1); out != Broken {
				return out
			}
		}
		at := s.saved[depth*size:]
		at = at[copy(s.succ, at):]
		at = at[copy(s.pred, at):]
		copy(s.cand, at)
		for i := range s.choices {
			s.choices[i].s = s.savedS[depth*len(s.choices)+i]
		}
		if !s.answer(q, false) {
			return Broken
		}
	}
}

// place appends the units in an order that the relation allows: by the number of those before.
func (c *Checker) place() {
	s := &c.s
	from := len(c.placed)
	s.asked = resize(s.asked, s.n)
	for l := 1; l < s.n-1; l++ {
		n := int32(0)
		for _, x := range row(s.pred, l, s.w) {
			n += int32(bits.OnesCount64(x))
		}
		s.asked[l] = n
		c.placed = append(c.placed, int32(l))
		p := c.placed[from:]
		j := len(p) - 1
		for ; j > 0 && s.asked[p[j-1]] > n; j-- {
			p[j] = p[j-1]
		}
		p[j] = int32(l)
	}
	for i := from; i < len(c.placed); i++ {
		c.placed[i] = s.unit[c.placed[i]]
	}
	c.sets = append(c.sets, int32(len(c.placed)))
}
