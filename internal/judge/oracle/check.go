package oracle

import (
	"math"
	"slices"
)

// Checker judges histories and keeps its memory from one to the next. The zero value is ready; one
// Checker serves one goroutine.
type Checker struct {
	// Budget bounds the guesses of tier 2 for one history; 0 means a million.
	Budget int

	h    *History
	rule Rule

	bounds []int64 // ascending; segment i is [bounds[i], bounds[i+1])
	zero0  []bool  // segment i is zero at the start
	opOf   []int32 // ID -> index in h.Ops, plus 1
	ids    int     // opOf is cleared beyond what this history set
	obs    []ID    // what was seen, segment by segment: each read's range, then the final content
	obsAt  []int32 // read op -> where its part of obs begins
	finAt  int     // where the final content begins in obs; -1 without a final read

	order  []keyed // tier 0
	opRank []int32 // op -> its place in order
	owner  []int32

	units    []unit
	first    []int32 // op -> its first unit
	pieces   []int32 // op -> number of its units with bytes; the units are in order of bytes
	comp     []int32 // segment -> component
	ncomp    int
	sizeComp int32
	isSize   []bool
	need     []bool
	seg0     []int32 // component -> first segment, and one past its last
	seg1     []int32
	byComp   []int32 // units sorted by component
	// component -> where its units begin in byComp, and after the last their number
	compAt []int32

	s      solver
	placed []int32 // units in an order that explains, component by component
	sets   []int32 // where each component ends in placed
	tier   int
	broken int32  // the component that no order explains, or -1
	why    string // an impossible source, for the explanation
	whyAt  Seen
	whyBy  int32 // unit, or -1 for the final content
}

type keyed struct {
	key int64
	i   int32
}

const (
	flagRead = 1 << iota
	flagWrite
	flagZero    // writes zeroes
	flagMax     // makes the size at least val
	flagSet     // makes the size val
	flagSizeObs // saw a size in [min, max]
)

// unit is a piece of an operation: what the contract says takes effect at one instant.
type unit struct {
	start, end int64
	val        int64
	min, max   int64
	op         int32
	lo, hi     int32 // segments
	comp       int32
	local      int32
	flags      uint8
}

// Check says whether there is one order of the pieces of all operations, within the times of each,
// that explains everything the history saw. It is exact unless the verdict is Undecided. The
// history must be Valid.
func (c *Checker) Check(h *History, r Rule) Verdict {
	c.h, c.rule = h, r
	c.tier, c.broken, c.why = 0, -1, ""
	c.units, c.placed, c.sets = c.units[:0], c.placed[:0], c.sets[:0]
	c.indexOps()
	c.compress(false)
	if c.witness() {
		return Verdict{Outcome: Kept}
	}
	if r.Write != Request || r.Read != Request {
		c.compress(true)
	}
	return c.judge()
}

// Climb checks h against each rule of the ladder: what it keeps is what the design that made it
// promises, as far as h can tell.
func (c *Checker) Climb(h *History, ladder []Rule) []Verdict {
	var out []Verdict
	for _, r := range ladder {
		out = append(out, c.Check(h, r))
	}
	return out
}

// judge is Check without tier 0, on compressed offsets.
func (c *Checker) judge() Verdict {
	c.cut()
	c.components()
	v := Verdict{Tier: 1, Pieces: len(c.units)}
	c.opRank = resize(c.opRank, len(c.order))
	for i, o := range c.order {
		c.opRank[o.i] = int32(i)
	}
	c.s.branches, c.s.budget = 0, c.Budget
	if c.s.budget == 0 {
		c.s.budget = 1_000_000
	}
	for k := range c.ncomp {
		if !c.need[k] {
			continue
		}
		out := c.decide(int32(k))
		v.Tier = max(v.Tier, c.tier)
		v.Branches = c.s.branches
		if out != Kept {
			v.Outcome = out
			c.broken = int32(k)
			return v
		}
	}
	return v
}

func (c *Checker) indexOps() {
	for i := range c.opOf[:min(c.ids, len(c.opOf))] {
		c.opOf[i] = 0
	}
	c.ids = 0
	for i := range c.h.Ops {
		id := int(c.h.Ops[i].ID)
		if id >= len(c.opOf) {
			c.opOf = append(c.opOf, make([]int32, id+1-len(c.opOf))...)
		}
		c.opOf[id] = int32(i) + 1
		c.ids = max(c.ids, id+1)
	}
}

// opIndex returns the index of an operation in the history, or -1.
func (c *Checker) opIndex(id ID) int32 {
	if id <= 0 || int(id) >= len(c.opOf) {
		return -1
	}
	return c.opOf[id] - 1
}

// compress collects every offset at which anything begins or ends, and fills zero0 and obs. With
// cuts it adds the offsets at which the contract cuts; a page that no other offset touches stays
// part of a longer segment, because nothing can tell it from its neighbours.
func (c *Checker) compress(cuts bool) {
	h, b := c.h, c.bounds[:0]
	b = append(b, 0, math.MaxInt64, h.Size)
	sizes := c.rule.Sizes != SizesOff
	for i := range h.Ops {
		o := &h.Ops[i]
		switch o.Kind {
		case Write, Append, Punch:
			b = append(b, o.Lo, o.Hi)
		case Truncate:
			b = append(b, o.Lo)
		case Read:
			b = append(b, o.Lo, o.Lo+o.Got)
			b = appendSeen(b, o.See)
			if sizes {
				b = append(b, o.Hi)
			}
		case Allocate:
			if sizes {
				b = append(b, o.Hi)
			}
		case Stat:
			if sizes {
				b = append(b, o.Size)
			}
		}
		if cuts {
			switch c.contract(o.Kind) {
			case Batch:
				b = append(b, o.Batches...)
			case Extent:
				b = append(b, o.Extents...)
			}
			// The first piece of an append or a truncate is not like the others: it sees, or sets,
			// the size.
			if c.rule.Sizes == SizesWith && (o.Kind == Append || o.Kind == Truncate) {
				switch size := c.rule.pageSize(); {
				case c.rule.Write == Byte:
					b = append(b, o.Lo+1)
				case c.rule.Write == Page && o.Lo < math.MaxInt64-size:
					b = append(b, o.Lo-o.Lo%size+size)
				}
			}
		}
	}
	b = appendSeen(b, h.Final)
	for _, r := range h.Holes {
		b = append(b, r.Lo, r.Hi)
	}
	if sizes && h.FinalSize >= 0 {
		b = append(b, h.FinalSize)
	}
	if cuts && (c.rule.Write == Page || c.rule.Read == Page) {
		size := c.rule.pageSize()
		for _, x := range b {
			if at := x - x%size; at != x {
				b = append(b, at)
				if at <= math.MaxInt64-size {
					b = append(b, at+size)
				}
			}
		}
	}
	sortInt64(b)
	b = slices.Compact(b)
	c.bounds = b

	n := len(b) - 1
	c.zero0 = resize(c.zero0, n)
	for i := range n {
		c.zero0[i] = b[i] >= h.Size
	}
	for _, r := range h.Holes {
		for i := c.seg(r.Lo); i < c.seg(r.Hi); i++ {
			c.zero0[i] = true
		}
	}
	c.obs = c.obs[:0]
	c.obsAt = resize(c.obsAt, len(h.Ops))
	for i := range h.Ops {
		if o := &h.Ops[i]; o.Kind == Read {
			c.obsAt[i] = int32(len(c.obs))
			c.observe(o.Lo, o.Lo+o.Got, o.See)
		}
	}
	c.finAt = -1
	if h.Final != nil {
		c.finAt = len(c.obs)
		c.observe(0, math.MaxInt64, h.Final)
	}
}

// appendSeen appends the offsets at which the source changes.
func appendSeen(b []int64, seen []Seen) []int64 {
	for i := range seen {
		s := &seen[i]
		if i == 0 || seen[i-1].Hi != s.Lo {
			b = append(b, s.Lo)
		}
		if i+1 == len(seen) || seen[i+1].Lo != s.Hi || seen[i+1].From != s.From {
			b = append(b, s.Hi)
		}
	}
	return b
}

// observe appends what was seen of [lo, hi), a value for each segment.
func (c *Checker) observe(lo, hi int64, seen []Seen) {
	x, end := c.seg(lo), c.seg(hi)
	for _, s := range seen {
		for ; c.bounds[x] < s.Lo; x++ {
			c.obs = append(c.obs, unseen)
		}
		for ; c.bounds[x] < s.Hi; x++ {
			c.obs = append(c.obs, s.From)
		}
	}
	for ; x < end; x++ {
		c.obs = append(c.obs, unseen)
	}
}

// seg returns the segment that begins at off, which is a boundary.
func (c *Checker) seg(off int64) int {
	lo, hi := 0, len(c.bounds)-1
	for lo < hi {
		m := int(uint(lo+hi) >> 1)
		if c.bounds[m] < off {
			lo = m + 1
		} else {
			hi = m
		}
	}
	return lo
}

func (c *Checker) contract(k Kind) Contract {
	if k == Read {
		return c.rule.Read
	}
	return c.rule.Write
}

// sizeSeen returns the bounds that the length of a read, or a stat, puts on the size.
func (o *Op) sizeSeen() (lo, hi int64, ok bool) {
	switch {
	case o.Kind == Stat:
		return o.Size, o.Size, true
	case o.Kind != Read || o.Hi == o.Lo:
		return 0, 0, false
	case o.Got == o.Hi-o.Lo:
		return o.Hi, math.MaxInt64, true
	case o.Got > 0:
		return o.Lo + o.Got, o.Lo + o.Got, true
	}
	return 0, o.Lo, true
}

// witness is tier 0: it replays the whole operations in one likely order.
func (c *Checker) witness() bool {
	h := c.h
	hints := true
	for i := range h.Ops {
		if h.Ops[i].Commit == 0 {
			hints = false
			break
		}
	}
	ord := c.order[:0]
	for i := range h.Ops {
		k := h.Ops[i].End
		if hints {
			k = h.Ops[i].Commit
		}
		ord = append(ord, keyed{k, int32(i)})
	}
	c.order = ord
	sortKeyed(ord)
	c.owner = resize(c.owner, len(c.bounds)-1)
	clear(c.owner)
	sizes, size := c.rule.Sizes != SizesOff, h.Size
	latest := int64(math.MinInt64)
	for _, k := range ord {
		o := &h.Ops[k.i]
		if o.End < latest {
			return false
		}
		latest = max(latest, o.Start)
		switch o.Kind {
		case Write, Append, Punch:
			if o.Kind == Append && sizes && !o.muted && o.Lo != o.Hi && size != o.Lo {
				return false
			}
			for x := c.seg(o.Lo); c.bounds[x] < o.Hi; x++ {
				c.owner[x] = k.i + 1
			}
			if o.Kind != Punch && o.Lo != o.Hi {
				size = max(size, o.Hi)
			}
		case Truncate:
			for x := c.seg(o.Lo); x < len(c.owner); x++ {
				c.owner[x] = k.i + 1
			}
			size = o.Lo
		case Allocate:
			if o.Lo != o.Hi {
				size = max(size, o.Hi)
			}
		case Read:
			x := c.seg(o.Lo)
			for j := int(c.obsAt[k.i]); c.bounds[x] < o.Lo+o.Got; x, j = x+1, j+1 {
				if !c.explains(x, c.obs[j]) {
					return false
				}
			}
		}
		if sizes {
			if lo, hi, ok := o.sizeSeen(); ok && !o.muted && (size < lo || size > hi) {
				return false
			}
		}
	}
	if c.finAt >= 0 {
		for x := range c.owner {
			if !c.explains(x, c.obs[c.finAt+x]) {
				return false
			}
		}
	}
	return !sizes || h.FinalSize == NoSize || size == h.FinalSize
}

// explains reports whether the owner of segment x may show as id.
func (c *Checker) explains(x int, id ID) bool {
	w := c.owner[x]
	switch id {
	case unseen:
		return true
	case Zero:
		if w == 0 {
			return c.zero0[x]
		}
		return c.h.Ops[w-1].Kind.zeroes()
	case Initial:
		return w == 0 && !c.zero0[x]
	}
	return w != 0 && c.h.Ops[w-1].ID == id
}

// cut makes the units: of each operation its pieces with bytes, in their order, and then what is
// about the size alone.
func (c *Checker) cut() {
	h := c.h
	c.units = c.units[:0]
	c.first = resize(c.first, len(h.Ops))
	c.pieces = resize(c.pieces, len(h.Ops))
	for i := range h.Ops {
		c.first[i] = int32(len(c.units))
		c.bytePieces(int32(i), &h.Ops[i])
		c.pieces[i] = int32(len(c.units)) - c.first[i]
		if c.rule.Sizes == SizesWith || c.rule.Sizes == SizesApart {
			c.sizePiece(int32(i), &h.Ops[i])
		}
	}
}

// bytePieces cuts the bytes of operation i where the contract may cut it. With SizesWith a piece
// makes or sees the size as well.
func (c *Checker) bytePieces(i int32, o *Op) {
	lo, hi, flags := o.Lo, o.Hi, uint8(0)
	switch o.Kind {
	case Write, Append:
		flags = flagWrite
	case Punch:
		flags = flagWrite | flagZero
	case Truncate:
		flags, hi = flagWrite|flagZero, math.MaxInt64
	case Read:
		flags, hi = flagRead, o.Lo+o.Got
	case Allocate, Stat:
		return
	}
	for a := c.seg(lo); c.bounds[a] < hi; {
		z := a + 1
		for c.bounds[z] < hi && !c.cutsAt(o, z) {
			z++
		}
		u := unit{op: i, start: o.Start, end: o.End, lo: int32(a), hi: int32(z), flags: flags}
		if c.rule.Sizes == SizesWith {
			c.sizeOfPiece(&u, o, hi)
		}
		c.units = append(c.units, u)
		a = z
	}
}

// sizeOfPiece adds what a piece of o, which ends at hi, makes of the size or sees of it.
func (c *Checker) sizeOfPiece(u *unit, o *Op, hi int64) {
	from, to := c.bounds[u.lo], c.bounds[u.hi]
	switch {
	case o.Kind == Write || o.Kind == Append:
		u.flags |= flagMax
		u.val = to
		if o.Kind == Append && from == o.Lo && !o.muted {
			u.flags |= flagSizeObs
			u.min, u.max = o.Lo, o.Lo
		}
	case o.Kind == Truncate && from == o.Lo:
		u.flags |= flagSet
		u.val = o.Lo
	case o.Kind == Read && !o.muted:
		u.flags |= flagSizeObs
		u.min, u.max = to, math.MaxInt64
		if to == hi && o.Got < o.Hi-o.Lo && !c.cutsAt(o, int(u.hi)) {
			u.max = hi
		}
	}
}

// sizePiece makes the unit of operation i that is about the size alone: a read that found the end
// at a cut, a call without bytes, and, with SizesApart, whatever makes or sees the size.
func (c *Checker) sizePiece(i int32, o *Op) {
	u := unit{op: i, start: o.Start, end: o.End}
	apart := c.rule.Sizes == SizesApart
	switch {
	case o.Kind == Read && !apart:
		end := o.Lo + o.Got
		if o.Got == o.Hi-o.Lo || o.Got > 0 && !c.cutsAt(o, c.seg(end)) {
			return // its pieces have seen the size
		}
		u.flags, u.max = flagSizeObs, end
	case o.Kind == Allocate, apart && (o.Kind == Write || o.Kind == Append):
		if o.Hi == o.Lo {
			return
		}
		u.flags, u.val = flagMax, o.Hi
		if o.Kind == Append {
			u.flags |= flagSizeObs
			u.min, u.max = o.Lo, o.Lo
		}
	case apart && o.Kind == Truncate:
		u.flags, u.val = flagSet, o.Lo
	default:
		var ok bool
		if u.min, u.max, ok = o.sizeSeen(); !ok {
			return
		}
		u.flags = flagSizeObs
	}
	if o.muted {
		u.flags &^= flagSizeObs
	}
	if u.flags != 0 {
		c.units = append(c.units, u)
	}
}

// cutsAt reports whether the contract may cut o at the boundary b.
func (c *Checker) cutsAt(o *Op, b int) bool {
	off := c.bounds[b]
	switch c.contract(o.Kind) {
	case Byte:
		return true
	case Page:
		return off%c.rule.pageSize() == 0
	case Batch:
		_, ok := slices.BinarySearch(o.Batches, off)
		return ok
	case Extent:
		_, ok := slices.BinarySearch(o.Extents, off)
		return ok
	}
	return false
}

// trimSizes drops the size units that can neither matter nor fail. It reports whether anything is
// left to judge.
func (c *Checker) trimSizes() (final bool, any bool) {
	if c.rule.Sizes == SizesOff {
		return false, false
	}
	least, most := c.h.Size, c.h.Size
	for i := range c.units {
		u := &c.units[i]
		if u.flags&flagSet != 0 {
			least = min(least, u.val)
		}
		if u.flags&(flagSet|flagMax) != 0 {
			most = max(most, u.val)
		}
	}
	for i := range c.units {
		u := &c.units[i]
		if u.flags&flagMax != 0 && u.val <= least {
			u.flags &^= flagMax
		}
		if u.flags&flagSizeObs != 0 {
			if u.min <= least && u.max >= most {
				u.flags &^= flagSizeObs
			} else {
				any = true
			}
		}
	}
	if f := c.h.FinalSize; f != NoSize && (f > least || f < most || f < least) {
		final, any = true, true
	}
	if !any {
		for i := range c.units {
			c.units[i].flags &^= flagMax | flagSet
		}
	}
	return final, any
}

// components finds the segments that are joined by pieces: what lies in different components can be
// judged apart.
func (c *Checker) components() {
	finalSize, sizes := c.trimSizes()
	n := len(c.bounds) - 1
	c.comp = resize(c.comp, n+1)
	clear(c.comp)
	for i := range c.units {
		u := &c.units[i]
		if u.hi > u.lo+1 { // joins lo..hi-1: no new component begins at lo+1..hi-1
			c.comp[u.lo+1]++
			c.comp[u.hi]--
		}
	}
	depth, id := int32(0), int32(-1)
	for x := range n {
		depth += c.comp[x]
		if depth == 0 {
			id++
		}
		c.comp[x] = id
	}
	k := int(id) + 1
	c.sizeComp = -1
	if sizes {
		c.sizeComp = int32(k)
		c.isSize = resize(c.isSize, k)
		clear(c.isSize)
		for i := range c.units {
			if u := &c.units[i]; u.flags&(flagMax|flagSet|flagSizeObs) != 0 && u.hi > u.lo {
				c.isSize[c.comp[u.lo]] = true
			}
		}
		for x := range n {
			if c.isSize[c.comp[x]] {
				c.comp[x] = c.sizeComp
			}
		}
		k++
	}
	c.ncomp = k
	c.need = resize(c.need, k)
	clear(c.need)
	c.seg0, c.seg1 = resize(c.seg0, k), resize(c.seg1, k)
	for i := range k {
		c.seg0[i], c.seg1[i] = int32(n), 0
	}
	for x := range n {
		i := c.comp[x]
		c.seg0[i] = min(c.seg0[i], int32(x))
		c.seg1[i] = int32(x) + 1
		if c.finAt >= 0 && c.obs[c.finAt+x] != unseen {
			c.need[i] = true
		}
	}
	if sizes {
		c.need[c.sizeComp] = true
		c.s.finalSize = finalSize
	} else {
		c.s.finalSize = false
	}
	for i := range c.units {
		u := &c.units[i]
		if u.hi > u.lo {
			u.comp = c.comp[u.lo]
		} else if u.comp = c.sizeComp; u.comp < 0 || u.flags == 0 {
			u.comp = -1
			continue
		}
		if u.flags&flagRead != 0 {
			c.need[u.comp] = true
		}
	}
	c.sortUnits()
}

// sortUnits sorts the units by component: those of component k are byComp[compAt[k]:compAt[k+1]],
// in their own order.
func (c *Checker) sortUnits() {
	c.compAt = resize(c.compAt, c.ncomp+1)
	clear(c.compAt)
	n := int32(0)
	for i := range c.units {
		if k := c.units[i].comp; k >= 0 {
			c.compAt[k]++
			n++
		}
	}
	end := int32(0)
	// the end of each, which becomes its beginning as it is filled from the back
	for k := range c.compAt {
		end += c.compAt[k]
		c.compAt[k] = end
	}
	c.byComp = resize(c.byComp, int(n))
	for i := len(c.units) - 1; i >= 0; i-- {
		if k := c.units[i].comp; k >= 0 {
			c.compAt[k]--
			c.byComp[c.compAt[k]] = int32(i)
		}
	}
}

// unitsOf are the units of component k.
func (c *Checker) unitsOf(k int32) []int32 { return c.byComp[c.compAt[k]:c.compAt[k+1]] }

// pieceAt returns the unit of op that changes segment x, or -1.
func (c *Checker) pieceAt(op int32, x int32) int32 {
	if op < 0 || !c.h.Ops[op].Kind.changes() {
		return -1
	}
	lo, hi := c.first[op], c.first[op]+c.pieces[op]
	for lo < hi {
		m := (lo + hi) / 2
		switch u := &c.units[m]; {
		case x < u.lo:
			hi = m
		case x >= u.hi:
			lo = m + 1
		default:
			return m
		}
	}
	return -1
}

// Order returns, after a Check whose verdict was Kept, one order of the pieces that explains the
// history. After tier 0 the pieces are the whole operations. It allocates.
func (c *Checker) Order() []Placed {
	var out []Placed
	if len(c.units) == 0 {
		for _, k := range c.order {
			o := &c.h.Ops[k.i]
			hi := o.Hi
			if o.Kind == Truncate {
				hi = math.MaxInt64
			}
			out = append(out, Placed{o.ID, o.Lo, hi})
		}
		return out
	}
	// Each component has its order; together with the order in time they have no cycle (locality).
	// Take, again and again, a unit that is next in its component and that no other remaining one
	// wholly precedes.
	next := make([]int32, len(c.units)) // its follower in its component
	free := make([]bool, len(c.units))
	placed := make([]bool, len(c.units))
	for i := range next {
		next[i], free[i] = -1, true
	}
	from := int32(0)
	for _, end := range c.sets {
		for i := from; i+1 < end; i++ {
			next[c.placed[i]] = c.placed[i+1]
			free[c.placed[i+1]] = false
		}
		from = end
	}
	for range c.units {
		early := int64(math.MaxInt64)
		for i := range c.units {
			if !placed[i] {
				early = min(early, c.units[i].end)
			}
		}
		for i := range c.units {
			if u := &c.units[i]; !placed[i] && free[i] && u.start <= early {
				placed[i] = true
				if next[i] >= 0 {
					free[next[i]] = true
				}
				out = append(out, Placed{c.h.Ops[u.op].ID, c.bounds[u.lo], c.bounds[u.hi]})
				break
			}
		}
	}
	return out
}

func resize[T any](s []T, n int) []T {
	if cap(s) < n {
		return make([]T, n, n+n/2)
	}
	return s[:n]
}

// sortInt64 and sortKeyed sort by insertion what is short, which is nearly always.
func sortInt64(b []int64) {
	if len(b) > 48 {
		slices.Sort(b)
		return
	}
	for i := 1; i < len(b); i++ {
		x, j := b[i], i
		for ; j > 0 && b[j-1] > x; j-- {
			b[j] = b[j-1]
		}
		b[j] = x
	}
}

func sortKeyed(b []keyed) {
	if len(b) > 48 {
		slices.SortFunc(b, func(x, y keyed) int {
			switch {
			case x.key < y.key:
				return -1
			case x.key > y.key:
				return 1
			}
			return int(x.i) - int(y.i)
		})
		return
	}
	for i := 1; i < len(b); i++ {
		x, j := b[i], i
		for ; j > 0 && b[j-1].key > x.key; j-- {
			b[j] = b[j-1]
		}
		b[j] = x
	}
}
