package oracle

import (
	"fmt"
	"math"
	"math/bits"
	"slices"
	"strings"
)

// Ending is the ID of the observer in explanations that reads the file after all operations have
// returned.
const Ending ID = -4

// Witness explains a broken contract: facts that cannot all be true, and why not.
type Witness struct {
	Rule  Rule
	Facts []Fact // minimal: without any one of them the rest has an explanation
	Proof Proof

	ops   map[ID]Op
	kinds map[ID]Kind
	torn  map[ID]bool // operations of more than one piece
	image ID          // the read that is a recovered image
}

// Fact is something seen: By (an operation, or Ending) found the bytes of Seen coming from
// Seen.From, or, with Size, a size from Min to Max.
type Fact struct {
	By ID
	Seen
	Size     bool
	Min, Max int64
}

// Proof shows that no order works, in one of three ways. Impossible: an operation saw bytes that no
// other can have written. Cycle: each piece must come before the next, and the last before the
// first. Cases: every possible case has a proof of its own.
type Proof struct {
	Assume     string // in a case: what is assumed
	Impossible string
	Cycle      []Step
	Because    []Step // what steps of the cycle rest on
	Cases      []Proof
	Omitted    bool // the proof goes on, too long to print
}

// Step says that Before comes before After.
type Step struct {
	Before, After Placed
	Why           Why
	By            Placed // From, Replaced, NotYet: the observer
	Bytes         Range  // where it looked; empty when it is about the size
	Source        Placed // Replaced, NotYet: whose bytes, or size, By saw
}

// Why is the reason of a step.
type Why uint8

const (
	InTime   Why = iota // Before returned when After had not started
	From                // After saw what Before wrote
	Replaced            // Before changed the same bytes as After, is before By, and By saw After's
	NotYet              // Before saw Source's bytes; After changed them and comes after Source
	// about the size: Source is the only one that can have extended the file to what By saw
	OnlyIt
	Assumed
)

// maxTrials bounds the shortening of the facts, and maxProofs the cases that are written out.
const (
	maxTrials = 4000
	maxProofs = 40
)

// Explain returns why h breaks r, or nil when it does not, or when Check cannot decide. It leaves
// away every fact that is not needed, so that what remains is short; it takes a few hundred times
// as long as Check.
func (c *Checker) Explain(h *History, r Rule) *Witness {
	if c.Check(h, r).Outcome != Broken {
		return nil
	}
	core := c.core(h, r)
	if c.Check(core, r).Outcome != Broken {
		panic(fmt.Sprintf("oracle: a history of %d operations is broken, and its own core is not", len(h.Ops)))
	}
	w := &Witness{Rule: r, ops: map[ID]Op{}, kinds: map[ID]Kind{}, torn: map[ID]bool{}}
	for i := range core.Ops {
		o := &core.Ops[i]
		w.ops[o.ID], w.kinds[o.ID] = *o, o.Kind
		w.torn[o.ID] = c.pieces[i] > 1
		if o.image {
			w.image = o.ID
		}
		for _, s := range o.See {
			w.Facts = append(w.Facts, Fact{By: o.ID, Seen: s})
		}
		if lo, hi, ok := o.sizeFact(); ok && !o.muted && r.Sizes != SizesOff {
			w.Facts = append(w.Facts, Fact{By: o.ID, Size: true, Min: lo, Max: hi})
		}
	}
	for _, s := range core.Final {
		w.Facts = append(w.Facts, Fact{By: Ending, Seen: s})
	}
	if r.Sizes != SizesOff && core.FinalSize != NoSize {
		w.Facts = append(w.Facts, Fact{By: Ending, Size: true, Min: core.FinalSize, Max: core.FinalSize})
	}
	if c.why == "" {
		seg0, seg1, _ := c.members(c.broken)
		if c.constrain(c.broken, seg0, seg1) {
			d := newDeduction(c)
			left := maxProofs
			w.Proof = d.prove(&left)
			return w
		}
	}
	by := "are there at the end"
	if c.whyBy >= 0 {
		by = "were seen by " + w.name(c.placedAt(c.whyBy))
	}
	from := ""
	if c.whyAt.From > 0 {
		from = " of " + w.name(Placed{Op: c.whyAt.From})
	} else if c.whyAt.From == Zero {
		from = " of zeroes"
	}
	w.Proof.Impossible = fmt.Sprintf("%s%s %s, but %s", bytesText(Range{c.whyAt.Lo, c.whyAt.Hi}), from, by, c.why)
	return w
}

// sizeFact is sizeSeen, with appends, which see the size they begin at.
func (o *Op) sizeFact() (lo, hi int64, ok bool) {
	if o.Kind == Append && o.Hi > o.Lo {
		return o.Lo, o.Lo, true
	}
	return o.sizeSeen()
}

// core leaves away facts as long as the history stays broken: first in big groups, then one by one.
func (c *Checker) core(h *History, r Rule) *History {
	type fact struct{ op, see int } // op -1: the end; see -1: the size
	var facts []fact
	for i := range h.Ops {
		for j := range h.Ops[i].See {
			facts = append(facts, fact{i, j})
		}
		if _, _, ok := h.Ops[i].sizeFact(); ok {
			facts = append(facts, fact{i, -1})
		}
	}
	for j := range h.Final {
		facts = append(facts, fact{-1, j})
	}
	if h.FinalSize != NoSize {
		facts = append(facts, fact{-1, -1})
	}
	build := func(facts []fact) *History {
		n := *h
		n.Ops = slices.Clone(h.Ops)
		for i := range n.Ops {
			n.Ops[i].See = nil
			n.Ops[i].muted = true
		}
		n.Final, n.FinalSize = nil, NoSize
		for _, f := range facts {
			switch {
			case f.op < 0 && f.see < 0:
				n.FinalSize = h.FinalSize
			case f.op < 0:
				n.Final = append(n.Final, h.Final[f.see])
			case f.see < 0:
				n.Ops[f.op].muted = h.Ops[f.op].muted
			default:
				n.Ops[f.op].See = append(n.Ops[f.op].See, h.Ops[f.op].See[f.see])
			}
		}
		return &n
	}
	trials := 0
	for size := max(1, len(facts)/2); size > 0 && trials < maxTrials; size /= 2 {
		for at := 0; at < len(facts) && trials < maxTrials; trials++ {
			less := slices.Concat(facts[:at], facts[min(at+size, len(facts)):])
			if c.Check(build(less), r).Outcome == Broken {
				facts = less
			} else {
				at += size
			}
		}
	}
	return build(facts)
}

// deduction derives what must come before what, slowly and with reasons, for the component at hand.
type deduction struct {
	c     *Checker
	n, w  int
	edges []edge
	to    [][]int32 // member -> edges that leave it
	reach []uint64
	rules []exact  // sources that are known; masks are those of the solver
	open  []choice // sources to be chosen from
	ext   []extending
}

type edge struct {
	a, b   int32
	why    Why
	r, s   int32
	seg    int32
	p, q   int32 // Replaced, NotYet: because p is before q
	hidden bool  // an edge from the initial content or to the end: not printed
}

// extending: one of the writes in set is between s and r.
type extending struct {
	r, s int32
	set  []int32
}

func newDeduction(c *Checker) *deduction {
	s := &c.s
	d := &deduction{c: c, n: s.n, w: s.w, to: make([][]int32, s.n), reach: make([]uint64, s.n*s.w)}
	last := int32(d.n - 1)
	for a := int32(0); a <= last; a++ {
		for b := int32(0); b <= last; b++ {
			switch {
			case a == b || a == last || b == 0:
			case a == 0 || b == last:
				d.add(edge{a: a, b: b, why: InTime, hidden: true})
			case s.end[a] < s.start[b]:
				d.add(edge{a: a, b: b, why: InTime})
			}
		}
	}
	d.rules = slices.Clone(s.exact)
	d.open = slices.Clone(s.choices)
	return d
}

func (d *deduction) clone() *deduction {
	n := *d
	n.edges = slices.Clone(d.edges)
	n.to = make([][]int32, len(d.to))
	for i := range n.to {
		n.to[i] = slices.Clone(d.to[i])
	}
	n.reach = slices.Clone(d.reach)
	n.rules, n.open, n.ext = slices.Clone(d.rules), slices.Clone(d.open), slices.Clone(d.ext)
	return &n
}

func (d *deduction) before(a, b int32) bool { return row(d.reach, int(a), d.w).has(b) }

// add adds an edge and returns whether it closes a cycle.
func (d *deduction) add(e edge) (cycle bool) {
	d.to[e.a] = append(d.to[e.a], int32(len(d.edges)))
	d.edges = append(d.edges, e)
	cycle = e.a == e.b || d.before(e.b, e.a)
	for p := range int32(d.n) {
		if p == e.a || d.before(p, e.a) {
			rp := row(d.reach, int(p), d.w)
			rp.add(e.b)
			for i, y := range row(d.reach, int(e.b), d.w) {
				rp[i] |= y
			}
		}
	}
	return cycle
}

// path returns the fewest edges, of the first n, that lead from a to b.
func (d *deduction) path(a, b int32, n int) []int32 {
	via := make([]int32, d.n)
	for i := range via {
		via[i] = -1
	}
	queue := []int32{a}
	for len(queue) > 0 {
		x := queue[0]
		queue = queue[1:]
		for _, i := range d.to[x] {
			e := &d.edges[i]
			if int(i) >= n || e.b == a || via[e.b] >= 0 {
				continue
			}
			via[e.b] = i
			if e.b == b {
				var p []int32
				for x := b; x != a; x = d.edges[via[x]].a {
					p = append(p, via[x])
				}
				slices.Reverse(p)
				return p
			}
			queue = append(queue, e.b)
		}
	}
	return nil
}

// force adds the edges that rule x implies now. It returns whether it added one, and whether that
// closed a cycle.
func (d *deduction) force(x exact) (changed, cycle bool) {
	if !d.before(x.s, x.r) {
		if changed = true; d.add(edge{a: x.s, b: x.r, why: From, r: x.r, s: x.s, seg: x.seg}) {
			return true, true
		}
	}
	for j, m := range d.c.s.masks[x.m : int(x.m)+d.w] {
		for ; m != 0; m &= m - 1 {
			l := member(j, m)
			if l == x.s || l == x.r {
				continue
			}
			e := edge{r: x.r, s: x.s, seg: d.where(x, l)}
			switch {
			case x.s != 0 && d.before(l, x.r) && !d.before(l, x.s):
				e.a, e.b, e.why, e.p, e.q = l, x.s, Replaced, l, x.r
			case d.before(x.s, l) && !d.before(x.r, l):
				e.a, e.b, e.why, e.p, e.q = x.r, l, NotYet, x.s, l
			default:
				continue
			}
			changed = true
			if d.add(e) {
				return true, true
			}
		}
	}
	return changed, false
}

// where returns a segment at which r saw s although l changed it too.
func (d *deduction) where(x exact, l int32) int32 {
	if x.seg < 0 {
		return -1
	}
	c := d.c
	u := &c.units[c.s.unit[l]]
	obs, lo, hi := c.obs, u.lo, u.hi
	if by := c.s.unit[x.r]; by < 0 {
		obs = obs[c.finAt:]
	} else {
		r := &c.units[by]
		o := &c.h.Ops[r.op]
		lo, hi = max(lo, r.lo), min(hi, r.hi)
		obs = obs[c.obsAt[r.op]:]
		first := int32(c.seg(o.Lo))
		for i := lo; i < hi; i++ {
			if d.shows(obs[i-first], i, x.s) {
				return i
			}
		}
		return x.seg
	}
	for i := lo; i < hi; i++ {
		if d.shows(obs[i], i, x.s) {
			return i
		}
	}
	return x.seg
}

func (d *deduction) shows(id ID, seg, s int32) bool {
	c := d.c
	switch id {
	case unseen, Foreign:
		return false
	case Initial:
		return s == 0 && !c.zero0[seg]
	case Zero:
		if s == 0 {
			return c.zero0[seg]
		}
		u := &c.units[c.s.unit[s]]
		return u.flags&flagZero != 0 && u.lo <= seg && seg < u.hi
	}
	return s > 0 && c.h.Ops[c.units[c.s.unit[s]].op].ID == id
}

// settle applies the choices with one source left and adds all edges that follow. It returns true
// at a contradiction, which the last edge closed.
func (d *deduction) settle() bool {
	for {
		changed := false
		for i := 0; i < len(d.open); i++ {
			h := d.open[i]
			if s, alone := row(d.c.s.cand[h.at:], 0, d.w).single(); alone && s >= 0 {
				d.take(i, s)
				i--
				changed = true
			}
		}
		for i := 0; i < len(d.ext); i++ {
			x := &d.ext[i]
			x.set = slices.DeleteFunc(slices.Clone(x.set), func(l int32) bool { return d.before(l, x.s) || d.before(x.r, l) })
			if len(x.set) != 1 {
				continue
			}
			l := x.set[0]
			for _, e := range [2]edge{{a: x.s, b: l, why: OnlyIt, r: x.r, s: l, seg: -1}, {a: l, b: x.r, why: OnlyIt, r: x.r, s: l, seg: -1}} {
				if !d.before(e.a, e.b) {
					changed = true
					if d.add(e) {
						return true
					}
				}
			}
		}
		for _, x := range d.rules {
			ch, cycle := d.force(x)
			if cycle {
				return true
			}
			changed = changed || ch
		}
		if !changed {
			return false
		}
	}
}

// take settles choice i: the source is s.
func (d *deduction) take(i int, s int32) {
	h := d.open[i]
	d.open = slices.Delete(d.open, i, i+1)
	d.rules = append(d.rules, exact{h.r, s, h.m, h.seg})
	if !h.ext || !row(d.c.s.cand[h.at:], 2, d.w).has(s) {
		return
	}
	x := extending{r: h.r, s: s}
	for l := range int32(d.n) {
		if row(d.c.s.cand[h.at:], 1, d.w).has(l) {
			x.set = append(x.set, l)
		}
	}
	d.ext = append(d.ext, x)
}

// narrowest is the index of the open question with the fewest candidates.
func (d *deduction) narrowest() (best int) {
	candidates := func(i int) int { return count(row(d.c.s.cand[d.open[i].at:], 0, d.w)) }
	for i := range d.open {
		if candidates(i) < candidates(best) {
			best = i
		}
	}
	return best
}

func (d *deduction) prove(left *int) Proof {
	if *left--; *left < 0 {
		return Proof{Omitted: true}
	}
	if d.settle() {
		return d.cycle()
	}
	var p Proof
	try := func(assume string, n *deduction, edges ...edge) {
		for _, e := range edges {
			if n.add(e) {
				q := n.cycle()
				q.Assume = assume
				p.Cases = append(p.Cases, q)
				return
			}
		}
		q := n.prove(left)
		q.Assume = assume
		p.Cases = append(p.Cases, q)
	}
	c := d.c
	name := func(l int32) string { return c.nameOf(l) }
	for i, x := range d.ext {
		if len(x.set) == 0 {
			p.Impossible = fmt.Sprintf("%s left the size smaller than %s saw it, and nothing between them can have extended it", name(x.s), name(x.r))
			return p
		}
		if len(x.set) == 1 {
			continue
		}
		for _, l := range x.set {
			n := d.clone()
			n.ext = slices.Delete(n.ext, i, i+1)
			try(fmt.Sprintf("%s made the size that %s saw", name(l), name(x.r)), n,
				edge{a: x.s, b: l, why: Assumed}, edge{a: l, b: x.r, why: Assumed})
		}
		return p
	}
	if len(d.open) > 0 {
		best := d.narrowest()
		h := d.open[best]
		src := row(c.s.cand[h.at:], 0, d.w)
		if count(src) == 0 {
			p.Impossible = fmt.Sprintf("nothing can have left the size as small as %s saw it", name(h.r))
			return p
		}
		for s := range int32(d.n) {
			if !src.has(s) {
				continue
			}
			n := d.clone()
			n.take(best, s)
			what := "the last before " + name(h.r) + " to set the size was " + name(s)
			if h.seg >= 0 {
				what = fmt.Sprintf("the zeroes that %s saw at %s come from %s", name(h.r), bytesText(c.segment(h.seg)), name(s))
			}
			try(what, n)
		}
		return p
	}
	for _, x := range d.rules {
		for j, m := range c.s.masks[x.m : int(x.m)+d.w] {
			for ; m != 0; m &= m - 1 {
				l := member(j, m)
				if l == x.s || l == x.r || d.before(l, x.s) || d.before(x.r, l) {
					continue
				}
				try(name(l)+" is before "+name(x.s), d.clone(), edge{a: l, b: x.s, why: Assumed})
				try(name(x.r)+" is before "+name(l), d.clone(), edge{a: x.r, b: l, why: Assumed})
				return p
			}
		}
	}
	panic("oracle: a broken history has an order after all")
}

func count(r []uint64) int {
	n := 0
	for _, x := range r {
		n += bits.OnesCount64(x)
	}
	return n
}

// cycle writes out the cycle that the last edge closed, and what its steps rest on.
func (d *deduction) cycle() Proof {
	last := len(d.edges) - 1
	e := d.edges[last]
	in := map[int32]bool{}
	var p Proof
	ring := []int32{int32(last)}
	if e.a != e.b {
		ring = append(ring, d.path(e.b, e.a, last)...)
	}
	for _, i := range ring {
		p.Cycle = append(p.Cycle, d.step(i))
		in[i] = true
	}
	need := map[int32]bool{}
	var rest func(i int32)
	rest = func(i int32) {
		e := &d.edges[i]
		if e.why != Replaced && e.why != NotYet {
			return
		}
		for _, j := range d.path(e.p, e.q, int(i)) {
			if !need[j] && !d.edges[j].hidden {
				need[j] = true
				rest(j)
			}
		}
	}
	for _, i := range ring {
		rest(i)
	}
	for i := range int32(len(d.edges)) {
		if need[i] && !in[i] {
			p.Because = append(p.Because, d.step(i))
		}
	}
	return p
}

func (d *deduction) step(i int32) Step {
	e, c := &d.edges[i], d.c
	s := Step{Before: c.memberAt(e.a), After: c.memberAt(e.b), Why: e.why}
	if e.why != InTime && e.why != Assumed {
		s.By, s.Source = c.memberAt(e.r), c.memberAt(e.s)
		if e.seg >= 0 {
			s.Bytes = c.segment(e.seg)
		}
	}
	return s
}

func (c *Checker) segment(x int32) Range { return Range{c.bounds[x], c.bounds[x+1]} }

func (c *Checker) memberAt(l int32) Placed {
	switch {
	case l == 0:
		return Placed{Op: Initial}
	case int(l) == c.s.n-1:
		return Placed{Op: Ending}
	}
	return c.placedAt(c.s.unit[l])
}

func (c *Checker) placedAt(u int32) Placed {
	x := &c.units[u]
	return Placed{c.h.Ops[x.op].ID, c.bounds[x.lo], c.bounds[x.hi]}
}

func (c *Checker) nameOf(l int32) string {
	p := c.memberAt(l)
	if i := c.opIndex(p.Op); i >= 0 {
		return nameText(p, c.h.Ops[i].Kind, c.pieces[i] > 1, c.h.Ops[i].image)
	}
	return nameText(p, 0, false, false)
}

func (w *Witness) name(p Placed) string {
	return nameText(p, w.kinds[p.Op], w.torn[p.Op], w.image != 0 && p.Op == w.image)
}

func nameText(p Placed, k Kind, torn, image bool) string {
	switch p.Op {
	case Initial, Zero, Foreign:
		return p.Op.String()
	case Ending:
		return "the end"
	}
	s := fmt.Sprintf("%v %d", k, int32(p.Op))
	if image {
		s = "the recovered image"
	}
	switch {
	case torn && p.Hi == math.MaxInt64:
		s += fmt.Sprintf(" (from %d on)", p.Lo)
	case torn && p.Lo < p.Hi:
		s += fmt.Sprintf(" [%d, %d)", p.Lo, p.Hi)
	}
	return s
}

// OrderWords names the pieces of Order, in its order, as explanations do: "write 1", "truncate 2",
// "write 1 [4096, 8192)". Pieces of one operation that follow each other and touch are one. Like
// Order it may be called after a Check whose verdict was Kept.
func (c *Checker) OrderWords() []string {
	var joined []Placed
	for _, p := range c.Order() {
		if n := len(joined); n > 0 && joined[n-1].Op == p.Op && joined[n-1].Hi == p.Lo {
			joined[n-1].Hi = p.Hi
			continue
		}
		joined = append(joined, p)
	}
	times := map[ID]int{}
	for _, p := range joined {
		times[p.Op]++
	}
	var out []string
	for _, p := range joined {
		o := &c.h.Ops[c.opIndex(p.Op)]
		out = append(out, nameText(p, o.Kind, times[p.Op] > 1, o.image))
	}
	return out
}

func bytesText(r Range) string {
	if r.Hi == math.MaxInt64 {
		return fmt.Sprintf("bytes from %d on", r.Lo)
	}
	return fmt.Sprintf("bytes [%d, %d)", r.Lo, r.Hi)
}

// Lines is the witness in words, a line each.
func (w *Witness) Lines() []string {
	out := []string{fmt.Sprintf("no order explains this (%v):", w.Rule)}
	for _, f := range w.joined() { // neighbours read as one
		out = append(out, "  "+w.fact(f))
	}
	return w.Proof.lines(w, out, "")
}

func (w *Witness) String() string { return strings.Join(w.Lines(), "\n") }

func (w *Witness) fact(f Fact) string {
	who := "at the end"
	if f.By != Ending {
		who = w.name(Placed{Op: f.By})
	}
	switch {
	case f.Size && f.Min == f.Max && w.kinds[f.By] == Append:
		return fmt.Sprintf("%s began at the end of the file, at %d", who, f.Min)
	case f.Size && f.By == Ending:
		return fmt.Sprintf("at the end the size is %d", f.Min)
	case f.Size && f.Min == f.Max:
		return fmt.Sprintf("%s saw the size %d", who, f.Min)
	case f.Size && f.Max == math.MaxInt64:
		return fmt.Sprintf("%s saw a size of at least %d", who, f.Min)
	case f.Size:
		return fmt.Sprintf("%s saw a size of at most %d", who, f.Max)
	}
	verb := "come from"
	if f.From == Zero {
		verb = "are"
	}
	whom := w.name(Placed{Op: f.From})
	if f.By == Ending {
		return fmt.Sprintf("at the end %s %s %s", bytesText(Range{f.Lo, f.Hi}), verb, whom)
	}
	return fmt.Sprintf("%s saw %s that %s %s", who, bytesText(Range{f.Lo, f.Hi}), verb, whom)
}

func (p *Proof) lines(w *Witness, out []string, in string) []string {
	if p.Assume != "" {
		out = append(out, in+"if "+p.Assume+":")
		in += "  "
	}
	switch {
	case p.Omitted:
		return append(out, in+"(that leads to nothing either; left out)")
	case p.Impossible != "":
		return append(out, in+p.Impossible)
	case len(p.Cases) > 0:
		for i := range p.Cases {
			out = p.Cases[i].lines(w, out, in)
		}
		return out
	}
	for _, s := range p.Because {
		out = append(out, in+w.step(s))
	}
	for _, s := range p.Cycle {
		out = append(out, in+w.step(s))
	}
	ring := w.name(p.Cycle[0].Before)
	for _, s := range p.Cycle {
		ring += " -> " + w.name(s.After)
	}
	return append(out, in+"a cycle: "+ring)
}

func (w *Witness) step(s Step) string {
	t := w.name(s.Before) + " is before " + w.name(s.After) + ": "
	what, change := bytesText(s.Bytes), "changed"
	if s.Bytes == (Range{}) {
		what = "the size"
	}
	switch s.Why {
	case InTime:
		switch {
		case s.Before.Op == Initial:
			return t + "it was there at the start"
		case s.After.Op == Ending:
			return t + "all have returned by then"
		}
		return t + "it returned before the other started"
	case From:
		return t + w.name(s.By) + " saw " + what + " as " + w.name(s.Source) + " made " + them(s.Bytes)
	case Replaced:
		seen := w.name(s.By) + " saw those of " + w.name(s.Source)
		if s.Bytes == (Range{}) {
			seen = w.name(s.By) + " saw the size that came of " + w.name(s.Source)
		} else if s.By.Op == Ending {
			seen = "at the end those of " + w.name(s.Source) + " are there"
		}
		return t + "both " + change + " " + what + ", and " + seen
	case OnlyIt:
		return t + "only " + w.name(s.Source) + " can have extended the file to the size that " + w.name(s.By) + " saw"
	case NotYet:
		return t + w.name(s.By) + " saw " + what + " as " + w.name(s.Source) + " left " + them(s.Bytes) + ", and " + w.name(s.After) + " " + change + " " + them(s.Bytes) + " after that"
	}
	return t + "assumed"
}

func them(r Range) string {
	if r == (Range{}) {
		return "it"
	}
	return "them"
}
