package explore

import (
	"iter"

	"btrlab/internal/sched"
)

// Tasks run on coroutines, of which one runs at any time. A decision leaves the task that is to go
// on in cur, and the coroutine that decided goes there: it resumes that task's coroutine, unless
// that is active already, which means that it waits further up the chain of resumes; then it
// yields, and the next one up looks at cur in turn.
//
//	search ─resume─► A ─resume─► B      B runs; A and the search are active
//	                                    cur = C: B resumes C
//	                                    cur = A: B yields, A finds itself in cur and goes on
//	                                    cur = nil: all yield, and the search unwinds them
//
// So a switch costs one resume or one yield most of the time, and the search is left alone until
// the execution is over.

// coro is a pooled coroutine: it runs one task after the other.
type coro struct {
	k      *task
	active bool // it runs, or has resumed the one that runs
	next   func() (struct{}, bool)
	stop   func()
	yield  func(struct{}) bool
}

// coroutines is the tasks of an execution, and the coroutines that they run on.
type coroutines struct {
	root     *task   // runs the program, on the stack of the search
	hosting  *coro   // of the task that runs where the search does
	stepping *task   // the machine whose step it does
	hosts    bool    // no task is a machine
	all      []*task // by Task.Slot; 0 is root
	nAll     int     // those beyond are of other executions
	cur      *task   // the task that runs, or is to run; nil ends the execution
	coros    []*coro
	free     []*coro
	aborting bool // tasks only unwind
}

func (c *coroutines) reset() { c.nAll, c.aborting, c.hosts = 1, false, true }

// kept is the part that another search may use: tasks and coroutines, without what leads to a
// program.
func (c *coroutines) kept() coroutines {
	for _, k := range c.all {
		k.name, k.f, k.machine, k.parkOn, k.callers = "", nil, nil, nil, nil
		if k.t != nil {
			k.t.Reset("")
			clear(k.t.HeldLocks[:cap(k.t.HeldLocks)])
		}
	}
	return coroutines{root: c.root, hosting: c.hosting, all: c.all, nAll: 1, coros: c.coros, free: c.free}
}

// small says that the coroutines are few and nobody uses one.
func (c *coroutines) small() bool {
	return len(c.free) == len(c.coros) && len(c.coros) <= spareCorosMax
}

// stopAll ends the coroutines.
func (c *coroutines) stopAll() {
	for _, co := range c.coros {
		co.stop()
	}
	c.coros, c.free = nil, nil
}

// slot returns a task to use, its sched.Task numbered.
func (w *world) slot() *task {
	if w.nAll == len(w.all) {
		w.all = append(w.all, &task{})
	}
	k := w.all[w.nAll]
	k.life = life{num: -1, last: -1, wake: -1, dataEv: -1}
	if w.nAll != 0 {
		k.co, k.machine = nil, nil
	}
	k.parkOn = nil
	w.nAll++
	return k
}

// ready makes k, the newest slot, ready to start.
func (w *world) ready(k *task, name string, user bool) {
	k.name, k.user = name, user
	k.t.Slot = int32(w.nAll - 1)
	k.opKind, k.op = stepStart, &k.t.Next
	if user {
		w.users++
	}
}

// start gives k a coroutine and makes it ready.
func (w *world) start(k *task, name string, f func(t *sched.Task), user bool) {
	w.ready(k, name, user)
	k.f = f
	var c *coro
	if n := len(w.free); n > 0 {
		c = w.free[n-1]
		w.free = w.free[:n-1]
	} else {
		c = w.newCoro()
	}
	c.k, k.co = k, c
}

func (w *world) newCoro() *coro {
	c := &coro{}
	w.coros = append(w.coros, c)
	c.next, c.stop = iter.Pull(func(yield func(struct{}) bool) {
		c.yield = yield
		for {
			w.body(c.k)
			if !w.transfer(c) {
				return
			}
		}
	})
	return c
}

// host runs k, the first task to go, on the stack of the search and not in a coroutine, so that
// there is one less to switch to and from. An execution that records stacks does not host: the
// search would be in them. Nor does one with machines, whose steps the search itself does.
func (w *world) host(k *task) {
	w.release(k)
	k.co = w.hosting
	w.body(k)
}

// resume runs c until it yields. Its task may have ended by then, and c have another one.
func (c *coro) resume() {
	c.active = true
	c.next()
	c.active = false
}

// body runs one task to its end.
func (w *world) body(k *task) {
	defer w.ended(k)
	k.running = true
	if w.aborting {
		return
	}
	k.f(k.t)
	if k.finish {
		k.t.Finish()
	}
}

// ended is deferred by every task: it turns a panic into the verdict and hands over.
func (w *world) ended(k *task) {
	r := recover()
	w.leave(k)
	if w.aborting { // what deferred calls did while unwinding does not count
		w.release(k)
		w.cur = nil
		return
	}
	if r != nil {
		w.panicked(k, r)
		w.release(k)
		w.cur = nil
		return
	}
	w.next(k)
	w.release(k)
}

// next decides who goes on after k, which has ended.
func (w *world) next(k *task) {
	if w.walk == nil || !w.walkOn(k) {
		w.decide(k)
	}
}

// leave ends k.
func (w *world) leave(k *task) {
	k.state, *k.op = ended, sched.Op{}
	if k.user {
		w.left()
	}
}

// transfer lets others run until it is c's turn again; false ends the coroutine.
func (w *world) transfer(c *coro) bool {
	for {
		n := w.cur
		if n != nil && n.co == c {
			return true
		}
		if n == nil || n.co.active {
			if !c.yield(struct{}{}) {
				return false
			}
			continue
		}
		n.co.resume()
	}
}

// drive is transfer for the root.
func (w *world) drive() {
	for {
		n := w.cur
		switch {
		case n == nil || n == w.root:
			return
		case n.machine != nil:
			w.machines()
		default:
			n.co.resume()
		}
	}
}

// wait gives up the processor until k is picked.
func (w *world) wait(k *task) {
	if w.cur == k {
		return
	}
	if k == w.root {
		w.drive()
		if w.cur != k {
			panic(abort{})
		}
		return
	}
	if !w.transfer(k.co) || w.aborting {
		panic(abort{})
	}
}

// unwind ends the tasks that have not ended.
func (w *world) unwind() {
	w.aborting = true
	for i := 1; i < w.nAll; i++ {
		k := w.all[i]
		if k.co == nil || k.machine != nil {
			continue
		}
		if k.state == ended || !k.running {
			w.release(k)
			continue
		}
		w.cur = k
		k.co.resume()
	}
	w.cur = nil
}

func (w *world) release(k *task) {
	if k.co == w.hosting {
		k.co = nil
	}
	if k.co != nil {
		k.co.k = nil
		w.free = append(w.free, k.co)
		k.co = nil
	}
}

// abort unwinds a task whose execution is over.
type abort struct{}
