package explore

import (
	"sync"
	"sync/atomic"

	"btrlab/internal/sched"
)

// item is an execution to be made: a schedule that differs from an execution made before in its
// last deviation.
type item struct {
	devs schedule
	pre  int
	want uint64 // hash of what happened before the last deviation
}

// queue holds what is to be tried: Bound tries all with n preemptions before the first with n+1.
//
// The state before a decision is known by its happens-before hash and the task that ran last; a
// second execution that reaches it, with as many preemptions or more, could only repeat what
// followed the first and is cut off. (Sleep sets would be cheaper and are wrong here: they leave to
// another schedule what the bound then forbids.)
type queue struct {
	mu    sync.Mutex
	more  sync.Cond
	stack []item // of this level
	level []item
	head  int
	next  []item // of the next level
	pre   int
	busy  int // workers that may still add items
	done  bool

	hungry atomic.Int32 // workers that wait for items

	levels levels // for the estimate
}

// take returns the next item, waiting for those who may still add some.
func (q *queue) take(s *search) (item, bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for {
		if q.done || s.stop.Load() {
			q.done = true
			q.more.Broadcast()
			return item{}, false
		}
		if n := len(q.stack); n > 0 {
			it := q.stack[n-1]
			q.stack = q.stack[:n-1]
			q.busy++
			return it, true
		}
		if q.head < len(q.level) {
			it := q.level[q.head]
			q.level[q.head] = item{}
			if s.cfg.Progress != nil {
				q.levels.taken(q.head, len(q.level), s.made())
			}
			q.head++
			q.busy++
			return it, true
		}
		if q.busy > 0 {
			q.hungry.Add(1)
			q.more.Wait()
			q.hungry.Add(-1)
			continue
		}
		s.mu.Lock()
		s.pre = q.pre
		q.levels.ended(s.runs)
		s.mu.Unlock()
		if len(q.next) == 0 {
			q.done = true
			continue
		}
		q.level, q.next, q.head = q.next, q.level[:0], 0
		q.pre++
	}
}

// put adds items; with idle set their worker has nothing of its own left.
func (q *queue) put(same, next []item, idle bool) {
	q.mu.Lock()
	q.stack = append(q.stack, same...)
	q.next = append(q.next, next...)
	if idle {
		q.busy--
	}
	if q.hungry.Load() > 0 {
		q.more.Broadcast()
	}
	q.mu.Unlock()
}

// byQueue searches by preemption bound, by states, or everything.
func (s *search) byQueue() {
	q := &queue{stack: []item{{}}}
	q.more.L = &q.mu
	seen := newSeen()
	limit := -1
	if s.cfg.Method == Bound && s.cfg.Preemptions != 0 {
		limit = max(0, s.cfg.Preemptions)
	}
	s.jobs(func(_ int, w *world) {
		d := &queueDriver{s: s, seen: seen, limit: limit}
		// A worker goes through the alternatives of its own executions first, and shares when
		// others have none.
		var own []item
		for {
			if n := len(own); n > 0 && !s.stop.Load() {
				d.start(own[n-1])
				own = own[:n-1]
			} else if it, ok := q.take(s); ok {
				d.start(it)
			} else {
				return
			}
			s.execute(w, d)
			d.shard()
			if s.cfg.Progress != nil {
				d.open.done(len(d.same))
			}
			for i := len(d.same) - 1; i >= 0; i-- {
				own = append(own, d.same[i])
			}
			d.same = d.same[:0]
			if !d.foreign || w.viol != nil {
				s.account(w)
			}
			if d.limited {
				s.leave()
			}
			if s.due() {
				d.estimate(q, len(own) == 0)
				s.tell()
			}
			switch {
			case len(own) == 0 || s.stop.Load():
				q.put(own, d.next, true)
				own, d.next = own[:0], d.next[:0]
			case q.hungry.Load() > 0 && len(own) > 1:
				half := len(own) / 2
				q.put(own[:half], d.next, false)
				own, d.next = append(own[:0], own[half:]...), d.next[:0]
			}
		}
	})
	if len(q.stack) > 0 || q.head < len(q.level) || len(q.next) > 0 {
		s.left = true
	}
}

// queueDriver makes one item's execution and collects the alternatives it passes.
type queueDriver struct {
	s       *search
	seen    *seenSet
	it      item
	pos     int
	pre     int
	limit   int
	limited bool
	foreign bool // the first execution, which another shard counts
	hash    uint64
	task    int8   // of the step whose value is asked for, -1 if by default
	same    []item // alternatives of this level
	next    []item // and of the next, since they were put into the queue
	mark    int
	open    branch // for the estimate
}

// estimate estimates the search; idle says that the worker has done the item it took, with all of
// its level that came from it. State and Naive by several workers are not estimated: they take
// items from each other.
func (d *queueDriver) estimate(q *queue, idle bool) {
	s := d.s
	if s.cfg.Method != Bound {
		if s.cfg.Jobs == 1 {
			whole := d.open.whole()
			if s.cfg.Method == State && whole > wildly*float64(d.open.runs) {
				whole = 0
			}
			s.estimates(0, whole)
		}
		return
	}
	made := s.made()
	q.mu.Lock()
	l, n, of := &q.levels, q.head-q.busy, len(q.level)
	if idle {
		n++
	}
	n = min(max(0, n), of)
	part := max(0, float64(made-l.begun))
	whole := l.whole(n, of, part)
	all := float64(l.begun) + whole + l.beyond(whole, part/whole, of, len(q.next), d.limit)
	level := q.pre
	q.mu.Unlock()
	s.estimates(0, all)
	s.mu.Lock()
	s.level, s.share = level, part/whole
	s.mu.Unlock()
}

func (q *queueDriver) start(it item) {
	q.it, q.pos, q.pre, q.limited, q.foreign = it, 0, 0, false, false
	q.mark = len(q.next)
}

// shard leaves the part of the first execution's alternatives that is this shard's.
func (q *queueDriver) shard() {
	c := q.s.cfg
	if c.Shards == 1 || len(q.it.devs) > 0 {
		return
	}
	q.foreign = c.Shard != 0
	n := 0
	mine := func(l []item) []item {
		keep := l[:0]
		for _, it := range l {
			if n%c.Shards == c.Shard {
				keep = append(keep, it)
			}
			n++
		}
		return keep
	}
	q.same, q.next = mine(q.same), append(q.next[:q.mark], mine(q.next[q.mark:])...)
}

func cost(d *decision, pick int) int {
	if d.last >= 0 && d.last != pick && d.mask&(1<<d.last) != 0 {
		return 1
	}
	return 0
}

func (q *queueDriver) pick(w *world, d *decision) int {
	devs := q.it.devs
	q.task = -1
	if q.pos < len(devs) {
		v := devs[q.pos]
		if int(v.step) != d.step {
			return d.def
		}
		q.pos++
		if q.pos == len(devs) {
			if q.hash = w.trail ^ sched.Mix(d.mask, 3); q.hash != q.it.want {
				w.fail(Violation{Kind: KindMismatch, Named: true, What: "another state in the same schedule"})
				return -1
			}
		}
		pick := d.def
		if v.task >= 0 {
			pick, q.task = int(v.task), v.task
		}
		q.pre += cost(d, pick)
		return pick
	}
	q.hash = w.trail ^ sched.Mix(d.mask, 3)
	switch q.s.cfg.Method {
	case Bound:
		h := w.orderHash()
		key := h
		if d.last >= 0 && d.mask&(1<<d.last) != 0 {
			key = sched.Mix(h, w.ev[w.tasks[d.last].last].hash)
		}
		if !q.s.cfg.NoCache && !q.seen.add(sched.Mix(key, w.pendingHash())) {
			return -1
		}
	case State:
		h := sched.Mix(w.orderHash(), w.pendingHash())
		if !q.s.cfg.Plain {
			h = w.stateHash()
		}
		if !q.seen.add(h) {
			return -1
		}
	}
	for m := d.mask &^ (1 << d.def); m != 0; m &= m - 1 {
		alt := lowest(m)
		q.push(deviation{int32(d.step), int8(alt), -1}, q.pre+cost(d, alt), devs)
	}
	return d.def
}

func (q *queueDriver) push(v deviation, pre int, devs schedule) {
	if q.limit >= 0 && pre > q.limit {
		q.limited = true
		return
	}
	it := item{devs: append(append(make(schedule, 0, len(devs)+1), devs...), v), pre: pre, want: q.hash}
	if q.s.cfg.Method == Bound && pre > q.pre {
		q.next = append(q.next, it)
		return
	}
	q.same = append(q.same, it)
}

func (q *queueDriver) value(w *world, step, n int) int {
	devs := q.it.devs
	if p := q.pos - 1; p >= 0 && int(devs[p].step) == step {
		if devs[p].val >= 0 {
			return int(devs[p].val)
		}
		if q.pos < len(devs) {
			return 0
		}
		devs = devs[:p]
	} else if q.pos < len(devs) {
		return 0
	}
	for v := 1; v < n; v++ {
		q.push(deviation{int32(step), q.task, int16(v)}, q.pre, devs)
	}
	return 0
}

func (q *queueDriver) end(w *world) {}

// Hashed is an object with a state of its own, which two executions must share to be in one state.
type Hashed interface {
	Hash() uint64
}

// stateHash is the hash of everything that can matter (but see Config.Plain) from here on: what
// each task did and saw, whether it waits and until when, the values of annotated data and what
// orders its last accesses (racesHash), the order of queues (Keep), and the program's own hash of
// the rest. The holders of a lock, and the value of a Counter, follow from the steps of the tasks.
//
// Two executions number tasks and objects differently, so the hash names neither by number: a task
// by its seed, an object by its uses (object.sig). The terms of a kind are added, because their
// order is not the same either.
func (w *world) stateHash() uint64 {
	h := sched.Mix(uint64(w.clock), uint64(w.idle))
	for _, k := range w.tasks {
		x := k.obs
		x = sched.Mix(x, uint64(k.state)<<8|uint64(k.opKind))
		if k.state == sleeping {
			x = sched.Mix(x, uint64(k.due))
		}
		if k.token {
			x++
		}
		if k.yielded {
			x += 2
		}
		h += sched.Mix(x, k.seed)
	}
	for i := range w.objs {
		if v, ok := w.objs[i].id.(Hashed); ok {
			h += sched.Mix(w.objs[i].sig, v.Hash())
		}
	}
	for _, x := range w.keeps {
		h += sched.Mix(x.sig, x.of.Hash())
	}
	for i := range w.vars {
		h += sched.Mix(w.vars[i].version, 4)
	}
	if len(w.vars) > 0 && w.cfg.checks(CheckRaces) {
		h += w.racesHash()
	}
	for _, f := range w.data {
		h = sched.Mix(h, f())
	}
	return h
}

// seenSet is a concurrent set of hashes.
type seenSet struct {
	parts [64]seenPart
}

type seenPart struct {
	mu sync.Mutex
	n  int
	t  []uint64
}

func (p *seenPart) slot(h uint64) uint64 {
	m := uint64(len(p.t) - 1)
	i := h & m
	for p.t[i] != 0 && p.t[i] != h {
		i = (i + 1) & m
	}
	return i
}

func newSeen() *seenSet { return &seenSet{} }

// add reports whether h is new.
func (s *seenSet) add(h uint64) bool {
	if h == 0 {
		h = 1
	}
	p := &s.parts[h>>58]
	p.mu.Lock()
	defer p.mu.Unlock()
	if 2*p.n >= len(p.t) {
		old := p.t
		p.t = make([]uint64, max(32, 2*len(old)))
		for _, x := range old {
			if x != 0 {
				p.t[p.slot(x)] = x
			}
		}
	}
	i := p.slot(h)
	if p.t[i] == h {
		return false
	}
	p.t[i] = h
	p.n++
	return true
}
