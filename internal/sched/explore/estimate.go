package explore

import (
	"math"
	"math/bits"
)

// How many schedules a search will have made is estimated while it runs.
//
// DPOR, State and Naive walk a tree. The closed part of it is known. The open part is a path from
// the root: each node on it has some closed children, one in hand, and some to come. Knuth
// (Estimating the Efficiency of Backtrack Programs, 1975) takes all children of a node for equal.
// Here they are not: a step that sleeps or a state that was seen is not tried again, so the second
// child of a node is smaller than the first, and the third smaller still. The closed nodes show by
// how much: shrinks has the sizes of neighbours. The estimate goes from the leaf up: the child in
// hand as estimated, and each child to come as much smaller than its elder as children of that size
// have been, or would be if the trend went on. The recursion is that of Kilby, Slaney, Thiébaux and
// Walsh (Estimating Search Tree Size, AAAI 2006). DPOR adds children to open nodes as it finds
// races; the estimate does not foresee them, and is too low at the beginning.
//
// State meets most states early, so at first almost everything seems to be left: an estimate of
// more than wildly times what was made is not given.
//
// Bound goes by levels, of one preemption more each. The level in hand is done as far as its items
// are; its later items cost less, as did those of the level before, whose shape is kept. The levels
// after it are extrapolated: they grow and then shrink, and the logarithm of their size bends down.
// The bend is taken from the levels so far.
//
// TestEstimate of package scenario measures the error on searches that end. Of 19 searches of 1,000
// to 70,000 schedules, after so much of the work the estimate was too high or too low by
//
//	          10 %  25 %  50 %  75 %
//	median     3.3   1.9   1.3   1.1 times
//	worst     11.6   4.6   2.8   1.3 times

const wildly = 20

// shrinks is the experience of closed nodes: n children of about 1<<i executions had so many in
// all, and the next children of their nodes so many.
type shrinks [48]struct{ n, this, next int64 }

// closed says that a child of size this was followed by one of size next.
func (s *shrinks) closed(this, next int) {
	x := &s[bits.Len(uint(this))]
	x.n++
	x.this += int64(this)
	x.next += int64(next)
}

// after estimates the child after one of the given size, from children of about that size and of
// half of it, or of the next smaller size that was seen.
func (s *shrinks) after(size float64) float64 {
	top := len(s) - 1
	for top > 0 && s[top].n == 0 {
		top--
	}
	i := bits.Len64(uint64(size))
	if i > top {
		return s.beyond(size)
	}
	for i > 0 && s[i].n == 0 {
		i--
	}
	var this, next int64
	for n := 0; i > 0 && n < 2; i, n = i-1, n+1 {
		this, next = this+s[i].this, next+s[i].next
	}
	return shrunk(size, float64(next)/float64(this))
}

// beyond estimates the child after one that is larger than all that were seen. The larger a child,
// the more the next one has shrunk, and open nodes above each other multiply what is wrong here:
// the ratio goes on as it fell, by a line through the logarithms (least squares, each child counts
// once).
func (s *shrinks) beyond(size float64) float64 {
	var n, x, y, xx, xy float64
	sizes := 0
	for _, b := range s {
		if b.n == 0 {
			continue
		}
		w, this, ratio := float64(b.n), math.Log(float64(b.this)/float64(b.n)), math.Log(float64(b.next)/float64(b.this))
		n, x, y, xx, xy = n+w, x+w*this, y+w*ratio, xx+w*this*this, xy+w*this*ratio
		sizes++
	}
	slope := 0.0
	if sizes > 1 {
		slope = min((n*xy-x*y)/(n*xx-x*x), 0)
	}
	return shrunk(size, math.Exp((y-slope*x)/n+slope*math.Log(size)))
}

// shrunk is size by ratio. A ratio of small children, or none, lets nothing grow: it would without
// end.
func shrunk(size, ratio float64) float64 {
	if !(ratio < 1) {
		return size
	}
	return max(1, size*ratio)
}

// open is the knowledge of a node on the path to the present execution.
type open struct {
	begun int // executions before the node
	child int // executions before the child in hand
	prior int // size of the child before that; 0 is none
}

// next closes the child in hand after runs executions, and begins another.
func (o *open) next(s *shrinks, runs int) {
	size := runs - o.child
	if o.prior > 0 && size > 0 {
		s.closed(o.prior, size)
	}
	o.child, o.prior = runs, size
}

// close closes the node with its last child.
func (o *open) close(s *shrinks, runs int) {
	if o.prior > 0 {
		o.next(s, runs)
	}
}

// whole estimates the node: what is closed, the child in hand of the given size, and the children
// left after it.
func (o *open) whole(s *shrinks, child float64, left int) float64 {
	n := float64(o.child-o.begun) + child
	for range left {
		child = s.after(child)
		n += child
	}
	return n
}

// branch is the path of items to the present execution of State or Naive. An item whose execution
// leaves others is a node, and the search takes the others next.
type branch struct {
	runs    int
	path    []twig
	shrinks shrinks
}

type twig struct {
	open
	left int // children that are not closed
}

// done says that an item was executed and has left so many others.
func (b *branch) done(others int) {
	b.runs++
	if others > 0 {
		b.path = append(b.path, twig{open{begun: b.runs - 1, child: b.runs}, others})
		return
	}
	for n := len(b.path); n > 0; n = len(b.path) {
		x := &b.path[n-1]
		if x.left--; x.left > 0 {
			x.next(&b.shrinks, b.runs)
			return
		}
		x.close(&b.shrinks, b.runs)
		b.path = b.path[:n-1]
	}
}

// whole estimates the executions of the tree.
func (b *branch) whole() float64 {
	est := 0.0
	for i := len(b.path) - 1; i >= 0; i-- {
		x := &b.path[i]
		if est == 0 { // the child in hand has not begun
			est = 1
			if x.prior > 0 {
				est = b.shrinks.after(float64(x.prior))
			}
		}
		est = x.whole(&b.shrinks, est, x.left-1)
	}
	return max(est, float64(b.runs))
}

// levels is the knowledge of the levels of Bound.
type levels struct {
	sizes  []int // executions of the levels that are done
	before []int // executions of the last one of them after each part of its items
	now    []int // the same of the level in hand
	begun  int   // executions before the level in hand
}

// levelParts is the number of parts of a level's shape.
const levelParts = 16

// taken says that the n-th item, from 0, of the level in hand is taken after runs executions.
func (l *levels) taken(n, of, runs int) {
	for len(l.now) < levelParts && n*levelParts >= of*len(l.now) {
		l.now = append(l.now, runs-l.begun)
	}
}

// ended says that the level in hand has ended.
func (l *levels) ended(runs int) {
	l.sizes = append(l.sizes, runs-l.begun)
	l.before, l.now, l.begun = append(l.now, runs-l.begun), l.before[:0], runs
}

// whole estimates the executions of the level in hand, of which made were made and n of its items
// are done.
func (l *levels) whole(n, of int, made float64) float64 {
	share := float64(n) / float64(max(of, 1))
	if all := len(l.before) - 1; all == levelParts && n < of {
		at, rest := math.Modf(share * levelParts)
		i := int(at)
		share = (float64(l.before[i])*(1-rest) + float64(l.before[i+1])*rest) / float64(l.before[all])
	}
	least := made + float64(of-n) // an item is an execution at least
	if share <= 0 {
		return max(least, 1)
	}
	return max(least, made/share, 1)
}

// beyond estimates the executions of the levels after the one in hand, which has items and is
// estimated to come to whole executions, of which share is made. The next level has next items so
// far; last is the last level, -1 for none.
func (l *levels) beyond(whole, share float64, items, next, last int) float64 {
	if next == 0 || share <= 0 {
		return 0
	}
	size := float64(next) / share * whole / float64(max(items, 1))
	var logs []float64
	for _, n := range l.sizes {
		logs = append(logs, math.Log(float64(max(n, 1))))
	}
	logs = append(logs, math.Log(whole), math.Log(size))
	k := len(logs) - 1
	grows, bend, n := logs[k]-logs[k-1], 0.0, 0.0
	for i := k; i >= 3 && n < 3; i-- {
		bend += logs[i] - 2*logs[i-1] + logs[i-2]
		n++
	}
	bend = min(bend/max(n, 1), -leastBend)
	sum := 0.0
	for level := len(l.sizes) + 1; size >= 1 && (last < 0 || level <= last); level++ {
		sum += size
		grows += bend
		size *= math.Exp(grows)
	}
	return sum
}

// leastBend keeps the extrapolation finite.
const leastBend = 0.15
