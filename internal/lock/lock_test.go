package lock

import (
	"fmt"
	"os"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"btrlab/internal/lock/lockdep"
	"btrlab/internal/sched"
	"btrlab/internal/trace"
)

func TestMain(m *testing.M) {
	sched.SetChecked(true)
	os.Exit(m.Run())
}

var (
	testClass  = lockdep.NewTestClass("test", "i_rwsem")
	waitClass  = lockdep.NewTestClass("test_wait", "ordered_extent")
	innerClass = lockdep.NewTestClass("test_inner", "page")
	leafClass  = lockdep.NewTestClass("test_leaf", "io_tree")
)

// both runs f with and without lockdep: the two ways through every lock in the real runtime.
func both(t *testing.T, f func(t *testing.T)) {
	for _, on := range []bool{true, false} {
		sched.SetChecked(on)
		t.Run(fmt.Sprintf("checked=%v", on), f)
	}
	sched.SetChecked(true)
}

// crowd runs f in n tasks and waits for them.
func crowd(n int, f func(t *sched.Task, i int)) {
	root := sched.NewTask("root")
	var tasks []*sched.Task
	for i := range n {
		tasks = append(tasks, root.Go(fmt.Sprint("task", i), func(t *sched.Task) { f(t, i) }))
	}
	for _, c := range tasks {
		root.Join(c)
	}
}

func TestMutexExcludes(t *testing.T) {
	both(t, func(t *testing.T) {
		var m Mutex
		m.Init(testClass)
		n := 0
		crowd(4, func(k *sched.Task, i int) {
			for j := range 2000 {
				if j%4 == 0 {
					for !m.TryLock(k) {
						runtime.Gosched()
					}
				} else {
					m.Lock(k)
				}
				m.AssertHeld(k)
				n++
				m.Unlock(k)
			}
		})
		if n != 8000 {
			t.Fatalf("counted %d, want 8000", n)
		}
	})
}

func TestRWSemExcludes(t *testing.T) {
	each(t, func(t *testing.T, s *RWSem) {
		var readers, writers atomic.Int64
		crowd(5, func(k *sched.Task, i int) {
			for range 1000 {
				if i < 2 {
					s.Lock(k)
					if w, r := writers.Add(1), readers.Load(); w != 1 || r != 0 {
						t.Errorf("writer with %d writers and %d readers", w, r)
					}
					writers.Add(-1)
					s.Unlock(k)
				} else {
					s.RLock(k)
					readers.Add(1)
					if w := writers.Load(); w != 0 {
						t.Errorf("reader with %d writers", w)
					}
					runtime.Gosched()
					readers.Add(-1)
					s.RUnlock(k)
				}
			}
		})
	})
}

// Readers share, and nobody else does.
func TestTryLocks(t *testing.T) {
	each(t, func(t *testing.T, s *RWSem) {
		a, b := sched.NewTask("a"), sched.NewTask("b")
		s.RLock(a)
		if s.TryLock(b) {
			t.Error("TryLock got a lock that is read-held")
		}
		if !s.TryRLock(b) {
			t.Error("two readers do not share")
		}
		s.RUnlock(a)
		s.RUnlock(b)
		s.Lock(a)
		if s.TryLock(b) || s.TryRLock(b) {
			t.Error("a try got a lock that is write-held")
		}
		s.Unlock(a)
		if len(a.HeldLocks)+len(b.HeldLocks) != 0 {
			t.Errorf("held: %v %v", a.HeldLocks, b.HeldLocks)
		}
	})
}

// Producers and consumers over one Cond: nothing is lost, everybody comes home.
func TestCond(t *testing.T) {
	both(t, func(t *testing.T) {
		var m Mutex
		m.Init(testClass)
		var k Cond
		k.Init(&m, waitClass)
		have, got := 0, 0
		crowd(6, func(task *sched.Task, i int) {
			for range 500 {
				m.Lock(task)
				if i%2 == 0 {
					have++
					k.Signal(task)
				} else {
					for have == 0 {
						k.Wait(task)
					}
					have--
					got++
				}
				m.Unlock(task)
			}
		})
		if have != 0 || got != 1500 {
			t.Fatalf("have %d got %d", have, got)
		}
	})
}

// Wake-ups must not get lost between looking at the condition and going to sleep.
func TestWaitQueueLosesNothing(t *testing.T) {
	both(t, func(t *testing.T) {
		var q WaitQueue
		q.Init(waitClass)
		var turn atomic.Int64
		const n, rounds = 4, 1500
		crowd(n, func(k *sched.Task, i int) {
			for r := range rounds {
				want := int64(r*n + i)
				q.Wait(k, func() bool { return turn.Load() == want })
				turn.Store(want + 1)
				q.Wake(k)
			}
		})
		if turn.Load() != n*rounds {
			t.Fatalf("turn %d", turn.Load())
		}
		if len(q.list) != 0 || q.n.Load() != 0 {
			t.Fatalf("%d waiters are left", len(q.list))
		}
	})
}

// A wait that ends by the clock is off the queue, and takes the wake-up with it that met it on the
// way: the next wait of the task does not end early, and the waker does not hang.
func TestWaitAtMost(t *testing.T) {
	both(t, func(t *testing.T) {
		var q WaitQueue
		var m Mutex
		var next Cond
		q.Init(waitClass)
		m.Init(testClass)
		next.Init(&m, waitClass)
		var stop, now atomic.Bool
		told, waits, byClock := false, 0, 0
		crowd(2, func(k *sched.Task, i int) {
			if i == 1 {
				for !stop.Load() {
					// with one processor the other would wait for the end of a time slice, twice in
					// a round
					runtime.Gosched()
					now.Store(true)
					q.Wake(k)
					m.Lock(k)
					if len(next.list) > 0 {
						told = true
						next.Signal(k)
					}
					m.Unlock(k)
				}
				return
			}
			defer stop.Store(true)
			for r := range 300 {
				now.Store(false)
				q.WaitAtMost(k, time.Duration(r%20)*time.Microsecond, now.Load)
				if waits++; !now.Load() {
					byClock++
				}
				m.Lock(k)
				told = false
				next.Wait(k)
				early := !told
				m.Unlock(k)
				if early {
					t.Errorf("round %d: an old wake-up ends the next wait", r)
					return
				}
			}
		})
		if len(q.list) != 0 || q.n.Load() != 0 {
			t.Errorf("%d waiters are left", len(q.list))
		}
		k := sched.NewTask("alone")
		start := k.Now()
		q.WaitAtMost(k, time.Millisecond, func() bool { return false })
		if d := k.Now() - start; d < int64(time.Millisecond) || len(q.list) != 0 {
			t.Errorf("a wait of 1 ms takes %d ns and leaves %d waiters", d, len(q.list))
		}
		t.Logf("%d waits, %d ended by the clock", waits, byClock)
	})
}

// The same meeting on purpose: the wake-up waits for the list's lock, then the clock ends the wait,
// and the task comes for that lock after it.
func TestWaitAtMostMeetsAWaker(t *testing.T) {
	both(t, func(t *testing.T) {
		var q WaitQueue
		q.Init(waitClass)
		k := sched.Adopt("request")
		looks := 0
		callAtMost(k, &q, func() bool {
			if looks++; looks == 2 { // it is on the list, and sleeps next
				q.mu.Lock()
				go callWake(&q)
				awaitAsleep("callWake")
				go func() {
					awaitAsleep("callAtMost")
					q.mu.Unlock()
				}()
			}
			return false
		})
		if looks != 2 || len(q.list) != 0 {
			t.Errorf("%d looks, %d waiters are left", looks, len(q.list))
		}
		defer func() {
			if r := recover(); r != nil {
				t.Errorf("after the wait: %v", r)
			}
		}()
		k.Retire() // refuses a task with a wake-up that no wait has taken
	})
}

//go:noinline
func callAtMost(t *sched.Task, q *WaitQueue, cond func() bool) { q.WaitAtMost(t, 1, cond) }

//go:noinline
func callWake(q *WaitQueue) { q.Wake(sched.NewTask("waker")) }

func TestCounter(t *testing.T) {
	both(t, func(t *testing.T) {
		var c Counter
		c.Init(waitClass)
		var ended atomic.Int64
		root := sched.NewTask("root")
		const n = 8
		for range n {
			c.Inc(root)
		}
		for range n {
			root.Go("io", func(k *sched.Task) {
				ended.Add(1)
				c.Dec(k)
			})
		}
		c.WaitZero(root)
		if ended.Load() != n || c.Load() != 0 {
			t.Fatalf("WaitZero came back after %d of %d, count %d", ended.Load(), n, c.Load())
		}
		defer func() {
			if recover() == nil {
				t.Error("a count below zero did not panic")
			}
		}()
		c.Dec(root)
	})
}

// sink keeps the function that each wait is reported for.
type sink struct {
	mu    sync.Mutex
	funcs map[string]string
}

func (s *sink) Waited(w trace.Wait) {
	var pcs [16]uintptr
	frames := runtime.CallersFrames(pcs[:runtime.Callers(2, pcs[:])])
	f, more := frames.Next()
	for more && trace.Inside(&f) {
		f, more = frames.Next()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.funcs[w.Task] = f.Function
}

// A wait is booked on the task and reported with the class, and outside of the frames of lock and
// sched its stack begins at the code that called the lock.
func TestWaitIsReportedWhereItHappens(t *testing.T) {
	s := &sink{funcs: map[string]string{}}
	defer trace.SetSink(trace.SetSink(s))
	both(t, func(t *testing.T) {
		var m Mutex
		var r, r2 RWSem
		var l Mutex
		var k Cond
		var q WaitQueue
		var c Counter
		m.Init(testClass)
		r.Init(testClass)
		r2.Init(testClass)
		k.Init(&l, waitClass)
		q.Init(waitClass)
		c.Init(waitClass)
		var flag atomic.Bool
		var signalled bool
		root := sched.NewTask("root")
		cases := []struct {
			name    string
			prepare func()
			wait    func(t *sched.Task)
			release func()
		}{
			{"mutex", func() { m.Lock(root) }, func(t *sched.Task) { callMutex(t, &m) }, func() { m.Unlock(root) }},
			{"write", func() { r.RLock(root) }, func(t *sched.Task) { callWrite(t, &r) }, func() { r.RUnlock(root) }},
			{"read", func() { r2.Lock(root) }, func(t *sched.Task) { callRead(t, &r2) }, func() { r2.Unlock(root) }},
			{"cond", func() {}, func(t *sched.Task) { callCond(t, &k, &signalled) }, func() {
				l.Lock(root)
				signalled = true
				k.Signal(root)
				l.Unlock(root)
			}},
			{"queue", func() {}, func(t *sched.Task) { callQueue(t, &q, &flag) }, func() { flag.Store(true); q.Wake(root) }},
			{"counter", func() { c.Inc(root) }, func(t *sched.Task) { callCounter(t, &c) }, func() { c.Dec(root) }},
		}
		for _, tc := range cases {
			tc.prepare()
			w := root.Go(tc.name, tc.wait)
			call := "call" + strings.ToUpper(tc.name[:1]) + tc.name[1:]
			awaitAsleep(call)
			tc.release()
			root.Join(w)
			if got := s.funcs[tc.name]; !strings.HasSuffix(got, "."+call) {
				t.Errorf("%s: reported at %s", tc.name, got)
			}
			if n := w.Waits.Of(testClass.ID).Count + w.Waits.Of(waitClass.ID).Count; n != 1 {
				t.Errorf("%s: %d waits booked, want 1", tc.name, n)
			}
		}
	})
}

//go:noinline
func callMutex(t *sched.Task, m *Mutex) { m.Lock(t); m.Unlock(t) }

//go:noinline
func callWrite(t *sched.Task, r *RWSem) { r.Lock(t); r.Unlock(t) }

//go:noinline
func callRead(t *sched.Task, r *RWSem) { r.RLock(t); r.RUnlock(t) }

//go:noinline
func callQueue(t *sched.Task, q *WaitQueue, flag *atomic.Bool) { q.Wait(t, flag.Load) }

//go:noinline
func callCounter(t *sched.Task, c *Counter) { c.WaitZero(t) }

//go:noinline
func callCond(t *sched.Task, k *Cond, flag *bool) {
	k.L.Lock(t)
	for !*flag {
		k.Wait(t)
	}
	k.L.Unlock(t)
}

// awaitAsleep returns when a goroutine sleeps inside the function of this package with the name.
// That it is on a list of waiters is not enough: it looks at its condition once more before it
// sleeps.
func awaitAsleep(name string) {
	buf := make([]byte, 1<<20)
	for {
		for g := range strings.SplitSeq(string(buf[:runtime.Stack(buf, true)]), "\n\n") {
			head, stack, _ := strings.Cut(g, "\n")
			_, state, _ := strings.Cut(head, " [")
			asleep := strings.HasPrefix(state, "chan receive") || strings.HasPrefix(state, "sync.")
			if asleep && strings.Contains(stack, "/lock."+name+"(") {
				return
			}
		}
		runtime.Gosched()
	}
}

// What a NOWAIT request slept on is on record.
func TestNowaitSleepIsRecorded(t *testing.T) {
	var q WaitQueue
	q.Init(waitClass)
	var flag atomic.Bool
	root := sched.NewTask("root")
	w := root.Go("nowait", func(k *sched.Task) {
		k.BeginNowait()
		callQueue(k, &q, &flag)
		k.EndNowait()
		flag.Store(false)
	})
	awaitAsleep("callQueue")
	flag.Store(true)
	q.Wake(root)
	root.Join(w)
	if len(w.NowaitSleeps()) != 1 || w.NowaitSleeps()[0].Class != waitClass.ID {
		t.Fatalf("NowaitSleeps %v, want [%d]", w.NowaitSleeps(), waitClass.ID)
	}
}

func TestFastPathsDoNotAllocate(t *testing.T) {
	sched.SetChecked(false)
	defer sched.SetChecked(true)
	k := sched.NewTask("test")
	var m Mutex
	var s, q RWSem
	q.InitHandoff(testClass)
	var c Counter
	if n := testing.AllocsPerRun(100, func() {
		m.Lock(k)
		m.Unlock(k)
		s.Lock(k)
		s.Unlock(k)
		s.RLock(k)
		s.RUnlock(k)
		q.Lock(k)
		q.Unlock(k)
		q.RLock(k)
		q.RUnlock(k)
		c.Inc(k)
		c.Dec(k)
		c.WaitZero(k)
	}); n != 0 {
		t.Errorf("%v allocations, want 0", n)
	}
}

// What relies on a lock that its task does not hold panics in tests, and nowhere else.
func TestAssertHeld(t *testing.T) {
	var m Mutex
	var s RWSem
	m.Init(testClass)
	s.Init(waitClass)
	panics := func(f func()) (r any) {
		defer func() { r = recover() }()
		f()
		return nil
	}
	a, b := sched.NewTask("a"), sched.NewTask("b")
	for _, c := range []struct {
		name   string
		held   bool
		assert func()
	}{
		{"mutex", true, func() { m.AssertHeld(a) }},
		{"mutex of another task", false, func() { m.AssertHeld(b) }},
		{"read", true, func() { s.AssertRHeld(a) }},
		{"read where write is wanted", false, func() { s.AssertHeld(a) }},
		{"rwsem of another task", false, func() { s.AssertRHeld(b) }},
	} {
		m.Lock(a)
		s.RLock(a)
		_, violation := panics(c.assert).(sched.OrderViolation)
		s.RUnlock(a)
		m.Unlock(a)
		if violation == c.held {
			t.Errorf("%s: violation %v", c.name, violation)
		}
	}
	u := benchTask()
	m.AssertHeld(u)
	s.AssertHeld(u)
}

// Lockdep gets the order inside the class, the mode, and whether it was a try, from each way to
// take a lock.
func TestNested(t *testing.T) {
	k := sched.NewTask("test")
	var m Mutex
	var s RWSem
	for _, c := range []struct {
		name   string
		take   func(sub uint64)
		drop   func()
		read   bool
		itself bool // lockdep checks it
	}{
		{"mutex", func(n uint64) { m.LockNested(k, n) }, func() { m.Unlock(k) }, false, true},
		{"mutex, try", func(n uint64) { m.TryLockNested(k, n) }, func() { m.Unlock(k) }, false, false},
		{"write", func(n uint64) { s.LockNested(k, n) }, func() { s.Unlock(k) }, false, true},
		{"write, try", func(n uint64) { s.TryLockNested(k, n) }, func() { s.Unlock(k) }, false, false},
		{"read", func(n uint64) { s.RLockNested(k, n) }, func() { s.RUnlock(k) }, true, true},
		{"read, try", func(n uint64) { s.TryRLockNested(k, n) }, func() { s.RUnlock(k) }, true, false},
	} {
		var outer Mutex
		outer.Init(testClass)
		outer.LockNested(k, 4)
		m, s = Mutex{}, RWSem{}
		m.Init(testClass)
		s.Init(testClass)
		c.take(5)
		if h := k.HeldLocks; len(h) != 2 || h[1].Class != testClass.ID || h[1].Sub != 5 || h[1].Read != c.read {
			t.Errorf("%s: held %+v", c.name, h)
		}
		c.drop()
		violated := func() (v bool) {
			defer func() { _, v = recover().(sched.OrderViolation) }()
			c.take(3)
			return
		}()
		if violated != c.itself {
			t.Errorf("%s: an inner lock with a lower number is a violation: %v", c.name, violated)
		}
		if !violated {
			c.drop()
		}
		k.HeldLocks = k.HeldLocks[:0]
	}
}

// Every wait is checked against what the task holds, also one that has nothing to wait for.
func TestWaitsAreChecked(t *testing.T) {
	var inner, l Mutex
	var k Cond
	var q WaitQueue
	var c Counter
	inner.Init(innerClass)
	l.Init(leafClass)
	k.Init(&l, waitClass)
	q.Init(waitClass)
	c.Init(waitClass)
	for name, wait := range map[string]func(t *sched.Task){
		"cond": func(t *sched.Task) { l.Lock(t); t.Unpark(); k.Wait(t) },
		"wait queue": func(t *sched.Task) {
			q.Wait(t, func() bool { return true })
		},
		"counter": func(t *sched.Task) { c.WaitZero(t) },
	} {
		task := sched.NewTask("test")
		inner.Lock(task)
		func() {
			defer func() {
				if _, ok := recover().(sched.OrderViolation); !ok {
					t.Errorf("%s: a wait for %s under %s passes", name, waitClass.Name, innerClass.Name)
				}
			}()
			wait(task)
		}()
		inner.mu.Unlock()
	}
}

// Signal wakes the tasks in the order in which they came.
func TestCondFIFO(t *testing.T) {
	var m Mutex
	var k Cond
	m.Init(testClass)
	k.Init(&m, waitClass)
	root := sched.NewTask("root")
	var waiters []*sched.Task
	for i := range 3 {
		waiters = append(waiters, root.Go("waiter", func(t *sched.Task) {
			m.Lock(t)
			k.Wait(t)
			m.Unlock(t)
		}))
		for n := 0; n <= i; {
			m.Lock(root)
			n = len(k.list)
			m.Unlock(root)
		}
	}
	for i := range waiters {
		m.Lock(root)
		k.Signal(root)
		if left := k.list; len(left) != 2-i || len(left) > 0 && left[0] != waiters[i+1] {
			t.Fatalf("signal %d leaves %v", i, left)
		}
		m.Unlock(root)
		root.Join(waiters[i])
	}
}

// A waiter looks at its condition again once a waker would see it, and is off the list when it does
// not sleep.
func TestWaitQueueLooksTwice(t *testing.T) {
	var q WaitQueue
	q.Init(waitClass)
	k := sched.NewTask("test")
	k.Unpark() // so that a sleep would end, and be on record
	looks := 0
	q.Wait(k, func() bool { looks++; return looks > 1 })
	if looks != 2 || len(k.Waits) != 0 || len(q.list) != 0 || q.n.Load() != 0 {
		t.Errorf("%d looks, waits %v, %d on the list, which says %d", looks, k.Waits, len(q.list), q.n.Load())
	}
	k.Park(0)
}

// A wait for zero waits for the last one, and the last one wakes it.
func TestCounterWaitsForTheLast(t *testing.T) {
	both(t, func(t *testing.T) {
		var c Counter
		c.Init(waitClass)
		root := sched.NewTask("root")
		c.Inc(root)
		var ended atomic.Bool
		w := root.Go("waiter", func(k *sched.Task) { c.WaitZero(k); ended.Store(true) })
		for c.q.n.Load() == 0 && !ended.Load() {
			runtime.Gosched()
		}
		if ended.Load() {
			t.Fatal("one is not none")
		}
		c.Dec(root)
		if c.q.n.Load() != 0 {
			t.Fatal("the last one woke nobody")
		}
		root.Join(w)
	})
}

// notes are works that say when another task is woken for them.
type notes struct{ woken chan struct{} }

func (notes) Do(*sched.Task)     {}
func (n notes) Wake(*sched.Task) { close(n.woken) }

// The holder of a lock may wait for works that a task has put off: who sleeps for the lock wakes
// another for them first.
func TestLockWakesTaskWork(t *testing.T) {
	m, s, c := new(Mutex), new(RWSem), lockdep.NewTestClass("sleeps", "")
	m.Init(c)
	s.Init(c)
	for _, l := range []struct{ hold, release, lock, unlock func(*sched.Task) }{
		{m.Lock, m.Unlock, m.Lock, m.Unlock},
		{s.Lock, s.Unlock, s.Lock, s.Unlock},
		{s.Lock, s.Unlock, s.RLock, s.RUnlock},
		{s.RLock, s.RUnlock, s.Lock, s.Unlock},
	} {
		holder, k, n := sched.NewTask("holder"), sched.NewTask("k"), notes{make(chan struct{})}
		l.hold(holder)
		other := k.Go("other", func(o *sched.Task) {
			o.BeginTaskWork()
			o.AddTaskWork(n)
			l.lock(o)
			l.unlock(o)
			o.EndTaskWork()
		})
		<-n.woken
		l.release(holder)
		k.Join(other)
	}
}
