package explore_test

import (
	"slices"
	"strings"
	"testing"

	"btrlab/internal/data/ordered"
	"btrlab/internal/lock"
	"btrlab/internal/lock/extentio"
	"btrlab/internal/lock/lockdep"
	"btrlab/internal/lock/workqueue"
	"btrlab/internal/meta/spaceinfo"
	"btrlab/internal/sched"
	"btrlab/internal/sched/explore"
)

// completion is an event that one task owes and another waits for, as struct completion of the
// kernel.
type completion struct {
	name string
	q    lock.WaitQueue
	done bool
}

func (c *completion) Event() (name, verb string) { return c.name, "complete" }

func (c *completion) init(name string) {
	c.name = name
	c.q.Init(bClass)
}

func (c *completion) wait(t *sched.Task) { c.q.WaitFor(t, c, func() bool { return c.done }) }

func (c *completion) complete(t *sched.Task) {
	c.done = true
	t.Discharge(c)
	c.q.Wake(t)
}

// completionUnderLock waits for a completion with the lock that the completer needs; right, it
// waits first.
func completionUnderLock(right bool) func(w *explore.World) {
	return func(w *explore.World) {
		var s struct {
			mu lock.Mutex
			c  completion
		}
		s.mu.Init(aClass)
		s.c.init("the scrub")
		w.Name(&s.mu, "mu")
		w.Go("waiter", func(t *sched.Task) {
			if right {
				s.c.wait(t)
			}
			s.mu.Lock(t)
			if !right {
				s.c.wait(t)
			}
			s.mu.Unlock(t)
		})
		w.Go("worker", func(t *sched.Task) {
			t.Owe(&s.c)
			s.mu.Lock(t)
			s.mu.Unlock(t)
			s.c.complete(t)
		})
	}
}

// delegatedUnderLock waits for a completion that it has given to a queue, with the lock that the
// server of the queue needs before it takes anything off it; right, it waits without the lock.
func delegatedUnderLock(right bool) func(w *explore.World) {
	return func(w *explore.World) {
		var s struct {
			mu    lock.Mutex
			c     completion
			queue int
		}
		s.mu.Init(aClass)
		s.c.init("the scrub")
		w.Name(&s.mu, "mu")
		w.Go("waiter", func(t *sched.Task) {
			t.Delegate(&s.c, &s.queue)
			if !right {
				s.mu.Lock(t)
			}
			s.c.wait(t)
			if !right {
				s.mu.Unlock(t)
			}
		})
		w.Go("server", func(t *sched.Task) {
			t.Serve(&s.queue)
			s.mu.Lock(t)
			s.mu.Unlock(t)
			s.c.complete(t)
		})
	}
}

// countUnderLock is a truncate that waits for the writes in flight with i_rwsem, which a write in
// flight takes; right, the write has taken it before it counts.
func countUnderLock(right bool) func(w *explore.World) {
	return func(w *explore.World) {
		var s struct {
			rwsem lock.RWSem
			dio   lock.Counter
		}
		s.rwsem.Init(aClass)
		s.dio.Init(bClass)
		w.Name(&s.rwsem, "i_rwsem")
		w.Name(&s.dio, "i_dio_count")
		w.Go("write", func(t *sched.Task) {
			if !right {
				s.dio.Inc(t)
			}
			s.rwsem.RLock(t)
			if right {
				s.dio.Inc(t)
			}
			s.rwsem.RUnlock(t)
			s.dio.Dec(t)
		})
		w.Go("truncate", func(t *sched.Task) {
			s.rwsem.Lock(t)
			s.dio.WaitZero(t)
			s.rwsem.Unlock(t)
		})
	}
}

const k = 1024

// orderedExtents is a range lock, and ordered extents that a queue's worker finishes with their
// range locked.
type orderedExtents struct {
	io   extentio.Tree
	pool ordered.Pool
	tree ordered.Tree
	q    *workqueue.Queue[*ordered.Extent]
}

func (s *orderedExtents) init(w *explore.World, mode extentio.Mode) {
	s.io.Init(nil)
	s.io.SetLockMode(mode)
	s.pool.Init()
	s.tree.Init(&s.pool)
	s.q = workqueue.New(w.Task(), "endio", workqueue.Config{Workers: 1}, func(t *sched.Task, oe *ordered.Extent) {
		s.io.Lock(t, oe.Start, oe.End())
		s.io.Unlock(t, oe.Start, oe.End())
		s.tree.Remove(t, oe)
	})
}

// submit makes an ordered extent whose data is on the device at once.
func (s *orderedExtents) submit(t *sched.Task, start, n uint64) *ordered.Extent {
	oe := s.tree.Add(t, nil, ordered.Regular, start, n, 0)
	oe.Done(t, n, nil)
	t.Discharge(oe)
	s.q.Queue(t, &oe.Completion)
	return oe
}

// waitLocked waits for oe with [start, end) locked, which lockdep would name at once.
func (s *orderedExtents) waitLocked(t *sched.Task, oe *ordered.Extent, start, end uint64) {
	s.io.SetNovalidate(true)
	s.io.Lock(t, start, end)
	oe.Wait(t)
	s.io.Unlock(t, start, end)
}

// orderedUnderRange waits for an ordered extent with its range locked; right, it lets the range go,
// waits and locks it again.
func orderedUnderRange(right bool) func(w *explore.World) {
	return func(w *explore.World) {
		s := new(orderedExtents)
		s.init(w, extentio.BackOff)
		w.Go("writer", func(t *sched.Task) {
			oe := s.submit(t, 0, 4*k)
			defer oe.Put(t)
			if !right {
				s.waitLocked(t, oe, 0, 8*k)
				return
			}
			s.io.Lock(t, 0, 8*k)
			s.io.Unlock(t, 0, 8*k)
			oe.Wait(t)
			s.io.Lock(t, 0, 8*k)
			s.io.Unlock(t, 0, 8*k)
		})
	}
}

// holdAndWait is the shape of labs/reference 9.2 #18: a fiemap that has locked the front of its
// range waits for the rest, whose holder waits for an ordered extent at the front; right, who waits
// for a range holds nothing of it.
func holdAndWait(right bool) func(w *explore.World) {
	return func(w *explore.World) {
		s := new(orderedExtents)
		mode := extentio.HoldAndWait
		if right {
			mode = extentio.BackOff
		}
		s.init(w, mode)
		w.Go("fallocate", func(t *sched.Task) {
			oe := s.submit(t, 0, 4*k)
			defer oe.Put(t)
			s.waitLocked(t, oe, 8*k, 16*k)
		})
		w.Go("fiemap", func(t *sched.Task) {
			s.io.Lock(t, 0, 16*k)
			s.io.Unlock(t, 0, 16*k)
		})
	}
}

// flushing is spaceinfo's door to a file system whose writeback takes a lock, unless its user has
// it.
type flushing struct {
	mu    *lock.Mutex
	owner **sched.Task
}

func (f flushing) FlushDelalloc(t *sched.Task, bytes uint64, wait bool) {
	if *f.owner != t {
		f.mu.Lock(t)
		f.mu.Unlock(t)
	}
}

func (f flushing) CommitTransaction(t *sched.Task) error              { return nil }
func (f flushing) AllocChunk(t *sched.Task, typ uint64) (bool, error) { return false, nil }
func (f flushing) DirtyDelalloc() uint64                              { return 4 * k }
func (flushing) Preempt(*sched.Task)                                  {}
func (f flushing) FreeDeviceBytes() uint64                            { return 0 }

// ticketUnderLock waits for space with the lock that the flusher needs; right, it reserves first.
func ticketUnderLock(right bool) func(w *explore.World) {
	return func(w *explore.World) {
		mu := new(lock.Mutex)
		mu.Init(aClass)
		w.Name(mu, "mu")
		space := spaceinfo.New(16*k, 1)
		var owner *sched.Task
		space.SetFlushers(flushing{mu, &owner})
		reserve := func(t *sched.Task) {
			if space.Data().Reserve(t, 4*k, spaceinfo.FlushData) == nil {
				panic("space from nowhere")
			}
		}
		w.Go("flusher", reserve)
		w.Go("writer", func(t *sched.Task) {
			if right {
				reserve(t)
			}
			mu.Lock(t)
			owner = t
			if !right {
				reserve(t)
			}
			owner = nil
			mu.Unlock(t)
		})
	}
}

// A deadlock through a wait that is no lock is a cycle all the same, and the report names its
// edges; with the right order there is none. Package transaction has the waits of a commit.
func TestDeadlockByEvent(t *testing.T) {
	for _, tc := range []struct {
		name string
		prog func(right bool) func(w *explore.World)
		on   []*lockdep.Class // scheduling points, all when empty
		want string
	}{
		{"completion", completionUnderLock, nil,
			"deadlock: task 0 waiter waits for the scrub, which task 1 worker must complete; task 1 worker waits for mu, which task 0 waiter holds\n"},
		{"delegated", delegatedUnderLock, nil,
			"deadlock: task 0 waiter waits for the scrub, which task 1 server must complete; task 1 server waits for mu, which task 0 waiter holds\n"},
		{"count", countUnderLock, nil,
			"deadlock: task 0 write waits for i_rwsem, which task 1 truncate holds; task 1 truncate waits for i_dio_count, which task 0 write must complete\n"},
		{"ordered extent", orderedUnderRange, []*lockdep.Class{extentio.ExtentClass, ordered.WaitClass},
			"deadlock: task 0 writer waits for ordered extent [0, 4K), which task 1 endio/0 must finish; task 1 endio/0 waits for extent [0, 4K), which task 0 writer holds\n"},
		{"hold and wait", holdAndWait, []*lockdep.Class{extentio.ExtentClass, ordered.WaitClass},
			"deadlock: task 0 fallocate waits for ordered extent [0, 4K), which task 2 endio/0 must finish; task 2 endio/0 waits for extent [0, 4K), which task 1 fiemap holds; " +
				"task 1 fiemap waits for extent [8K, 16K), which task 0 fallocate holds\n"},
		{"space ticket", ticketUnderLock, []*lockdep.Class{aClass},
			"deadlock: task 0 flusher waits for mu, which task 1 writer holds; task 1 writer waits for a ticket for data space, which task 0 flusher must flush for\n"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var cfg explore.Config
			for _, c := range tc.on {
				cfg.Switch = append(cfg.Switch, c.ID)
			}
			r := explore.Run(cfg, tc.prog(false))
			if r.Kind != explore.KindDeadlock || !strings.HasPrefix(r.Violation.String(), tc.want) {
				t.Errorf("%s, %s, schedule %q\nhave %s\nwant %s", r.Bound, r.Kind, r.Schedule, r.Violation, tc.want)
			}
			if x := explore.Replay(cfg, r.Schedule, tc.prog(false)); x.Verdict != explore.KindDeadlock || !strings.HasPrefix(x.Violation.String(), tc.want) {
				t.Errorf("replay: %s: %s\n%s", x.Verdict, x.Violation, x.Trace())
			}
			// by chance and with nothing checked: the report comes from one execution more
			bare := cfg
			bare.Method, bare.Off, bare.NoShrink, bare.Schedules = explore.Random, ^explore.Checks(0), true, 5000
			r = explore.Run(bare, tc.prog(false))
			if x := explore.Replay(cfg, r.Schedule, tc.prog(false)); r.Kind != explore.KindDeadlock || !strings.Contains(r.Violation.String(), "deadlock: ") || x.Violation.String() != r.Violation.String() {
				t.Errorf("by chance: %s, %s, schedule %q\nhave %s\nreplay %s", r.Bound, r.Kind, r.Schedule, r.Violation, x.Violation)
			}
			if r := explore.Run(cfg, tc.prog(true)); r.Verdict != explore.Exhausted {
				t.Errorf("the right order: %s, %s, schedule %q: %s", r.Bound, r.Kind, r.Schedule, r.Violation)
			}
		})
	}
}

// Who waits for the rest of a range holds what it has got of it, and no more.
func TestHeldWhileWaiting(t *testing.T) {
	cfg := explore.Config{Switch: []sched.ClassID{extentio.ExtentClass.ID, ordered.WaitClass.ID}}
	r := explore.Run(cfg, holdAndWait(false))
	for _, line := range []string{
		"\ntask 0 fallocate waits for ordered extent [0, 4K); holds extent [8K, 16K)",
		"\ntask 1 fiemap waits for extent [8K, 16K); holds extent [0, 8K)",
		"\ntask 2 endio/0 waits for extent [0, 4K); holds nothing",
	} {
		if !strings.Contains(r.Violation.String(), line) {
			t.Errorf("no %q in\n%s", line, r.Violation)
		}
	}
}

// A trace names the range that a step locks, which nobody has told the explorer by name.
func TestRangesInTrace(t *testing.T) {
	cfg := explore.Config{Switch: []sched.ClassID{extentio.ExtentClass.ID, ordered.WaitClass.ID}}
	r := explore.Run(cfg, holdAndWait(false))
	x := explore.Replay(cfg, r.Schedule, holdAndWait(false))
	var objects []string
	for _, d := range x.Details {
		objects = append(objects, d.Object)
	}
	for _, want := range []string{"extent [0, 4K)", "extent [8K, 16K)"} {
		if !slices.Contains(objects, want) {
			t.Errorf("no step locks %s: %q", want, objects)
		}
	}
}

// A task that holds a lock somebody waits for is named with what it is at: what it has taken on
// last and not done. That it serves a queue for life says nothing about why it does not go on.
func TestDutyIsNotForLife(t *testing.T) {
	r := explore.Run(explore.Config{Off: explore.CheckLockOrder | explore.CheckLeftovers}, func(w *explore.World) {
		var a, b lock.Mutex
		a.Init(aClass)
		b.Init(bClass)
		w.Name(&a, "a")
		w.Name(&b, "b")
		scrub, queue := new(completion), new(completion)
		scrub.init("the scrub")
		queue.init("the queue")
		w.Go("server", func(t *sched.Task) {
			t.Owe(scrub)
			t.Serve(queue)
			a.Lock(t)
			b.Lock(t)
			b.Unlock(t)
			a.Unlock(t)
			scrub.complete(t)
		})
		w.Go("other", func(t *sched.Task) {
			b.Lock(t)
			a.Lock(t)
			a.Unlock(t)
			b.Unlock(t)
		})
	})
	if v := r.Violation.String(); r.Kind != explore.KindDeadlock || !strings.Contains(v, "task 0 server, which must complete the scrub, waits for b") {
		t.Errorf("%s, %s: %s", r.Bound, r.Kind, v)
	}
}

// An event that is owed by somebody who has ended never comes; nobody is in a cycle. One that has
// come, and whose waiter was not woken, is owed by nobody any more.
func TestOwedByNobody(t *testing.T) {
	prog := func(complete bool) func(w *explore.World) {
		return func(w *explore.World) {
			c := new(completion)
			c.init("the scrub")
			w.Go("waiter", func(t *sched.Task) { c.wait(t) })
			w.Go("worker", func(t *sched.Task) {
				t.Owe(c)
				if complete {
					t.Discharge(c)
				}
			})
		}
	}
	r := explore.Run(explore.Config{}, prog(false))
	if r.Kind != explore.KindGone || !strings.HasPrefix(r.Violation.String(), "task 0 waiter waits for the scrub, which task 1 worker owed when it ended\n") {
		t.Errorf("%s, %s: %s", r.Bound, r.Kind, r.Violation)
	}
	r = explore.Run(explore.Config{}, prog(true))
	if r.Kind != explore.KindGone || !strings.HasPrefix(r.Violation.String(), "task 0 waiter waits for the scrub, and nobody is left to wake it\n") {
		t.Errorf("%s, %s: %s", r.Bound, r.Kind, r.Violation)
	}
}

// Two tasks owe one event. The one that discharges it pays its own debt, so the report of a
// deadlock names the other.
func TestDischargeIsOnesOwn(t *testing.T) {
	found := 0
	cfg := explore.Config{Method: explore.DPOR, All: true, NoShrink: true, Done: func(n int, e *explore.End) {
		if e.Violation == nil {
			return
		}
		found++
		if v := e.Violation.String(); e.Violation.Kind != explore.KindDeadlock || !strings.Contains(v, "waits for the scrub, which task 1 worker must complete") {
			t.Errorf("%s: %s", e.Violation.Kind, v)
		}
	}}
	explore.Run(cfg, func(w *explore.World) {
		var s struct {
			mu lock.Mutex
			c  completion
		}
		s.mu.Init(aClass)
		s.c.init("the scrub")
		w.Go("waiter", func(t *sched.Task) {
			s.mu.Lock(t)
			s.c.wait(t)
			s.mu.Unlock(t)
		})
		w.Go("worker", func(t *sched.Task) {
			t.Owe(&s.c)
			s.mu.Lock(t)
			s.mu.Unlock(t)
			s.c.complete(t)
		})
		w.Go("helper", func(t *sched.Task) {
			t.Enter(sched.PointAtomic, 0, &s)
			t.Owe(&s.c)
			t.Discharge(&s.c)
		})
	})
	if found == 0 {
		t.Error("no deadlock")
	}
}
