package explore_test

import (
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"btrlab/internal/lock"
	"btrlab/internal/lock/workqueue"
	"btrlab/internal/sched"
	"btrlab/internal/sched/explore"
)

// withDaemons opens something with workers and a timer, as a file system does, and leaves them
// running.
func withDaemons(fail bool) func(w *explore.World) {
	return func(w *explore.World) {
		t := w.Task()
		var done lock.Counter
		done.Init(waitClass)
		sum := 0
		q := workqueue.New(t, "endio", workqueue.Config{Workers: 2}, func(t *sched.Task, i int) {
			if i < 0 {
				return
			}
			sum = sum*2 + i
			done.Dec(t)
		})
		t.Go("timer", func(t *sched.Task) {
			for {
				t.Sleep(time.Second)
			}
		})
		warm := workqueue.Work[int]{Of: -1}
		q.Queue(t, &warm)
		q.Drain(t)
		for i := range 2 {
			work := &workqueue.Work[int]{Of: i}
			w.Go(fmt.Sprint("submit", i), func(t *sched.Task) {
				done.Inc(t)
				q.Queue(t, work)
				done.WaitZero(t)
			})
		}
		w.Finally(func(t *sched.Task) error {
			q.Drain(t)
			if fail && sum == 2 { // the second work went first
				return errors.New("out of order")
			}
			return nil
		})
	}
}

// Daemons take part in the schedules and are ended with the execution; no goroutine is left but a
// few that the next search uses, whether executions end, are cut off, fail or get stuck.
func TestDaemonsAndGoroutines(t *testing.T) {
	daemonsAndGoroutines(t)
	// Jobs 2: another time a second world with its few is kept as well
	most := runtime.NumGoroutine() + 8
	for range 3 {
		daemonsAndGoroutines(t)
	}
	// a goroutine that ends may be on a thread that the system does not run just now
	for range 1_000_000 {
		if runtime.NumGoroutine() <= most {
			return
		}
		runtime.Gosched()
	}
	buf := make([]byte, 1<<20)
	t.Errorf("%d goroutines, want at most %d\n%s", runtime.NumGoroutine(), most, buf[:runtime.Stack(buf, true)])
}

func daemonsAndGoroutines(t *testing.T) {
	for _, m := range []explore.Method{explore.Bound, explore.DPOR, explore.Portfolio} {
		r := explore.Run(explore.Config{Method: m, Preemptions: 2, Schedules: 3000}, withDaemons(false))
		if r.Verdict == explore.Violated {
			t.Errorf("%s: %s %s", m, r.Bound, r.Violation)
		}
		r = explore.Run(explore.Config{Method: m, Preemptions: 3, Schedules: 20_000}, withDaemons(true))
		if r.Kind != explore.KindOracle {
			t.Errorf("%s: %s %s", m, r.Bound, r.Violation)
		}
	}
	explore.Run(explore.Config{All: true, Schedules: 500}, twoLocks(true))
	explore.Run(explore.Config{All: true, Off: explore.CheckLockOrder, Jobs: 2}, philosophers(3, false))
}

// A task that waits for a daemon that only sleeps is stuck, though the clock could go on for ever.
func TestStuckBesideTimer(t *testing.T) {
	r := explore.Run(explore.Config{}, func(w *explore.World) {
		w.Task().Go("timer", func(t *sched.Task) {
			for {
				t.Sleep(time.Second)
			}
		})
		mu := new(lock.Mutex)
		mu.Init(aClass)
		w.Name(mu, "mu")
		w.Go("twice", func(t *sched.Task) {
			mu.LockNested(t, 1)
			mu.LockNested(t, 2)
		})
	})
	if r.Kind != explore.KindDeadlock && r.Kind != explore.KindGone || !strings.Contains(r.Violation.String(), "task 0 twice waits for mu") {
		t.Errorf("%s %s: %s", r.Bound, r.Kind, r.Violation)
	}
}

// Two operations whose calls and returns can be told apart only by real time are not taken for one.
func TestCallAndReturn(t *testing.T) {
	prog := func(w *explore.World) {
		tick := 0
		var start, end [2]int
		for i := range 2 {
			w.Go("op", func(t *sched.Task) {
				w.Call(t)
				tick++
				start[i] = tick
				w.Return(t)
				tick++
				end[i] = tick
			})
		}
		w.Check(func() error {
			if start[0] > end[1] {
				return errors.New("0 begins after 1")
			}
			return nil
		})
	}
	for _, m := range searches {
		if r := explore.Run(explore.Config{Method: m}, prog); r.Kind != explore.KindOracle {
			t.Errorf("%s: %s", m, r.Bound)
		}
	}
}

// What a reader is shown: names, notes, watched state, stacks and where a task was preempted.
func TestReplayDetails(t *testing.T) {
	prog := func(w *explore.World) {
		x := new(explore.Atomic[int])
		w.Name(x, "x")
		w.Watch("x", func() string { return fmt.Sprint(x.Peek()) })
		for i := range 2 {
			w.Go(fmt.Sprint("task", i), func(t *sched.Task) {
				v := x.Load(t)
				w.Note(fmt.Sprintf("read %d", v))
				x.Store(t, v+1)
			})
		}
	}
	x := explore.Replay(explore.Config{}, "3:1", prog)
	want := `   0  0 task0        start
   1  1 task1        start
   2  0 task0        load x
                        read 0
   3 >1 task1        load x
                        read 0
   4  1 task1        atomic x
   5  0 task0        atomic x
`
	if x.Verdict != explore.OK || x.Trace() != want || x.Preemptions != 1 {
		t.Errorf("%s %s\n%s", x.Verdict, x.Violation, x.Trace())
	}
	var states []string
	for _, d := range x.Details {
		states = append(states, strings.Join(d.State, " "))
	}
	if got := strings.Join(states, ","); got != "0,0,0,0,1,1" {
		t.Errorf("x after each step: %s", got)
	}
	if !strings.Contains(x.Details[3].Stack.String(), "TestReplayDetails") {
		t.Errorf("stack of step 3: %s", x.Details[3].Stack)
	}
}

func BenchmarkVar(b *testing.B) {
	t := sched.NewTask("bench")
	var v sched.Var[uint64]
	var plain uint64
	b.Run("plain", func(b *testing.B) {
		for range b.N {
			plain++
		}
	})
	b.Run("var", func(b *testing.B) {
		for range b.N {
			v.Store(t, v.Load(t)+1)
		}
	})
	_ = plain
}
