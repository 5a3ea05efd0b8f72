package explore_test

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	"btrlab/internal/blockdev"
	"btrlab/internal/blockdev/dm"
	"btrlab/internal/lock"
	"btrlab/internal/lock/extentio"
	"btrlab/internal/lock/lockdep"
	"btrlab/internal/lock/workqueue"
	"btrlab/internal/sched"
	"btrlab/internal/sched/explore"
)

var (
	semClass  = lockdep.NewTestClass("sem", "i_rwsem")
	muClass   = lockdep.NewTestClass("mu", "page")
	waitClass = lockdep.NewTestClass("wait", "ordered_extent")
)

func config(schedule string) explore.OnceConfig {
	return explore.OnceConfig{Schedule: schedule}
}

// twoWriters is the smallest write path: each writer reads a size under a shared lock, and stores
// it plus one under an exclusive lock. A counter knows how many are in flight, the program waits
// until there are none. With whole set the lock is held over both, and nothing can come between.
func twoWriters(size *int, whole bool) func(t *sched.Task) {
	return func(t *sched.Task) {
		*size = 0
		var sem lock.RWSem
		var mu lock.Mutex
		var q lock.WaitQueue
		var inflight lock.Counter
		sem.Init(semClass)
		mu.Init(muClass)
		q.Init(waitClass)
		inflight.Init(waitClass)
		turns := 0
		for i := range 2 {
			inflight.Inc(t)
			t.Go(fmt.Sprint("writer", i), func(t *sched.Task) {
				if whole {
					sem.Lock(t)
					*size++
					sem.Unlock(t)
				} else {
					sem.RLock(t)
					v := *size
					sem.RUnlock(t)
					sem.Lock(t)
					*size = v + 1
					sem.Unlock(t)
				}
				mu.Lock(t)
				turns++
				mu.Unlock(t)
				q.Wake(t)
				inflight.Dec(t)
			})
		}
		q.Wait(t, func() bool { return turns > 0 })
		inflight.WaitZero(t)
	}
}

// One step at a time: without preemption each writer finishes and the size is 2. When writer 1 runs
// between the first one's read and its store, one update is lost. The schedule that shows it has
// one deviation, and the trace tells the story.
func TestLostUpdate(t *testing.T) {
	var size int
	r := explore.Once(config(""), twoWriters(&size, false))
	if r.Verdict != explore.OK || size != 2 || r.Schedule != "" {
		t.Fatalf("without preemption: %v size %d %q\n%s%s", r.Verdict, size, r.Schedule, r.Violation, r.Trace())
	}
	const schedule = "7:2"
	r = explore.Once(config(schedule), twoWriters(&size, false))
	if r.Verdict != explore.OK || size != 1 || r.Schedule != schedule {
		t.Fatalf("schedule %s: %v size %d, want a lost update\n%s%s", schedule, r.Verdict, size, r.Violation, r.Trace())
	}
	const want = `
   0  0 main         start
   1  0 main         atomic wait #1
   2  1 writer0      start
   3  0 main         atomic wait #1
   4  2 writer1      start
   5  0 main         wait wait #2
   6  1 writer0      lock sem #3
   7 >2 writer1      lock sem #3
   8  2 writer1      unlock sem #3
   9  2 writer1      arrive sem #4
  10  1 writer0      unlock sem #3
  11  1 writer0      arrive sem #4
  12  1 writer0      lock sem #3
  13  1 writer0      unlock sem #3
  14  1 writer0      lock mu #5
  15  1 writer0      unlock mu #5
  16  1 writer0      wake wait #2
  17  1 writer0      atomic wait #1
  18  0 main         resume wait
  19  2 writer1      lock sem #3
  20  2 writer1      unlock sem #3
  21  2 writer1      lock mu #5
  22  2 writer1      unlock mu #5
  23  2 writer1      wake wait #2
  24  2 writer1      atomic wait #1
  25  0 main         wait wait #1
`
	if r.Trace() != want[1:] {
		t.Errorf("have\n%s\nwant%s", r.Trace(), want)
	}
	for seed := range uint64(200) { // the fix holds in whatever order
		cfg := config("")
		cfg.Strategy = explore.RandomWalk(seed)
		if r := explore.Once(cfg, twoWriters(&size, true)); r.Verdict != explore.OK || size != 2 {
			t.Fatalf("seed %d: %v size %d\n%s%s", seed, r.Verdict, size, r.Violation, r.Trace())
		}
	}
}

// What a random search finds, its schedule string replays, step for step.
func TestFoundScheduleReplays(t *testing.T) {
	var size int
	lost := 0
	for seed := range uint64(100) {
		cfg := config("")
		cfg.Strategy = explore.RandomWalk(seed)
		r := explore.Once(cfg, twoWriters(&size, false))
		found := size
		if found == 1 {
			lost++
		}
		again := config(r.Schedule)
		again.Expect = r.Steps
		if r2 := explore.Once(again, twoWriters(&size, false)); r2.Verdict != explore.OK || size != found || r2.Schedule != r.Schedule || r2.Trace() != r.Trace() {
			t.Fatalf("seed %d, schedule %s: size %d, replayed %v size %d %s", seed, r.Schedule, found, r2.Verdict, size, r2.Violation)
		}
	}
	if lost < 5 || lost > 95 {
		t.Errorf("%d of 100 random runs lost an update", lost)
	}
}

// abba takes two mutexes in opposite orders. The subs lie, so that lockdep lets it happen.
func abba(t *sched.Task) {
	var a, b lock.Mutex
	a.Init(muClass)
	b.Init(muClass)
	x := t.Go("ab", func(t *sched.Task) {
		a.LockNested(t, 1)
		defer a.Unlock(t)
		b.LockNested(t, 2)
		defer b.Unlock(t)
	})
	y := t.Go("ba", func(t *sched.Task) {
		b.LockNested(t, 1)
		defer b.Unlock(t)
		a.LockNested(t, 2)
		defer a.Unlock(t)
	})
	t.Join(x)
	t.Join(y)
}

// AB-BA: fine without preemption, stuck when the second task runs between the two acquires of the
// first; the message says who holds what and waits for what.
func TestDeadlock(t *testing.T) {
	if r := explore.Once(config(""), abba); r.Verdict != explore.OK {
		t.Fatalf("without preemption: %v %s", r.Verdict, r.Violation)
	}
	r := explore.Once(config("4:2"), abba)
	want := `deadlock: task 1 ab waits for mu #2, which task 2 ba holds; task 2 ba waits for mu #1, which task 1 ab holds
task 0 main waits for task 1 ab to end; holds nothing
task 1 ab waits for mu #2; holds mu #1
task 2 ba waits for mu #1; holds mu #2`
	if r.Verdict != explore.KindDeadlock || r.Violation.String() != want {
		t.Fatalf("%v, have\n%swant\n%s%s", r.Verdict, r.Violation, want, r.Trace())
	}
}

// With honest classes lockdep names the wrong order in the first run, without the deadlock.
func TestLockdepNeedsNoDeadlock(t *testing.T) {
	r := explore.Once(config(""), func(t *sched.Task) {
		var a, b lock.Mutex
		a.Init(muClass)
		b.Init(muClass)
		b.LockNested(t, 2)
		a.LockNested(t, 1)
	})
	if r.Verdict != explore.KindOrder || !strings.Contains(r.Violation.String(), "acquires mu (rank 70, sub 1) while it holds mu (rank 70, sub 2)") {
		t.Fatalf("%v %s", r.Verdict, r.Violation)
	}
}

// A change without a Wake leaves the waiter asleep in the schedules where it looked first.
func TestLostWakeup(t *testing.T) {
	prog := func(t *sched.Task) {
		var q lock.WaitQueue
		q.Init(waitClass)
		flag := false
		t.Go("waiter", func(t *sched.Task) { q.Wait(t, func() bool { return flag }) })
		t.Sleep(1)
		flag = true
	}
	if r := explore.Once(config(""), prog); r.Verdict != explore.KindGone || !strings.Contains(r.Violation.String(), "task 1 waiter waits in wait, and nobody is left to wake it") {
		t.Errorf("waiter first: %v %s\n%s", r.Verdict, r.Violation, r.Trace())
	}
}

// A writer that waits keeps new readers out, here as with sync.RWMutex: a reader that reads twice
// gets stuck.
func TestWaitingWriterKeepsReadersOut(t *testing.T) {
	prog := func(t *sched.Task) {
		var s lock.RWSem
		s.Init(semClass)
		s.RLock(t)
		w := t.Go("writer", func(t *sched.Task) { s.Lock(t); s.Unlock(t) })
		for i := range 2 {
			t.Enter(sched.PointYield, 0, nil)
			if i == 1 && s.TryRLock(t) {
				s.RUnlock(t)
				panic("a reader passed a waiting writer")
			}
		}
		s.RUnlock(t)
		t.Join(w)
	}
	if r := explore.Once(config("3:1"), prog); r.Verdict != explore.OK {
		t.Errorf("%v %s\n%s", r.Verdict, r.Violation, r.Trace())
	}
}

func TestMismatch(t *testing.T) {
	var size int
	for schedule, want := range map[string]string{
		"0:1":     "the schedule names step 0, which is a task's start and no decision",
		"1:3":     "step 1: there is no task 3, enabled are [0]",
		"11:0":    "step 11: task 0 cannot run",
		"999:1":   "the schedule names step 999",
		"5:1,4:1": "step 4 comes after step 5",
		"5:1,5:0": "step 5 comes twice",
		"3=1":     "the schedule gives step 3 a value, and it is no choice",
		"x":       `not a schedule: "x"; want step:task`,
		"-1:0":    "not a schedule",
	} {
		if r := explore.Once(config(schedule), twoWriters(&size, false)); r.Verdict != explore.KindMismatch || !strings.Contains(r.Violation.String(), want) {
			t.Errorf("%s: %v %s, want %q", schedule, r.Verdict, r.Violation, want)
		}
	}
}

// A program that does something else the second time is caught at the step where it does.
func TestNondeterminism(t *testing.T) {
	run := 0
	prog := func(t *sched.Task) {
		run++
		var a, b lock.Mutex
		a.Init(muClass)
		b.Init(semClass)
		t.Enter(sched.PointYield, 0, nil)
		if run == 1 {
			a.Lock(t)
			a.Unlock(t)
		} else {
			b.Lock(t)
			b.Unlock(t)
		}
	}
	r := explore.Once(config(""), prog)
	cfg := config("")
	cfg.Expect = r.Steps
	r = explore.Once(cfg, prog)
	if want := "nondeterminism at step 2: task 0 lock sem #1, enabled 1; recorded was task 0 lock mu #1, enabled 1"; r.Verdict != explore.KindMismatch || r.Violation.String() != want {
		t.Errorf("%v %s, want %s", r.Verdict, r.Violation, want)
	}
}

func TestPanicAndTooLong(t *testing.T) {
	r := explore.Once(config(""), func(t *sched.Task) {
		var m lock.Mutex
		m.Init(muClass)
		t.Go("bystander", func(t *sched.Task) { m.Lock(t); defer m.Unlock(t); t.Enter(sched.PointYield, 0, nil) })
		t.Enter(sched.PointYield, 0, nil)
		panic("broken invariant, have 1 want 2")
	})
	if r.Verdict != explore.KindPanic || !strings.HasPrefix(r.Violation.String(), "task 0 main: panic: broken invariant, have 1 want 2\n") {
		t.Errorf("%v %s", r.Verdict, r.Violation)
	}
	cfg := config("")
	cfg.MaxSteps = 100
	if r := explore.Once(cfg, func(t *sched.Task) {
		for {
			t.Enter(sched.PointYield, 0, nil)
		}
	}); r.Verdict != explore.KindLivelock {
		t.Errorf("%v %s", r.Verdict, r.Violation)
	}
}

// Two writes to one block of a memory device: the device is a scheduling point, and the schedule
// decides which one is left.
func TestMemoryDevice(t *testing.T) {
	var got byte
	prog := func(t *sched.Task) {
		d := blockdev.NewMemory(1 << 20)
		var tasks []*sched.Task
		for i := range 2 {
			tasks = append(tasks, t.Go(fmt.Sprint("writer", i), func(t *sched.Task) {
				if err := blockdev.Write(t, d, bytes.Repeat([]byte{byte(i + 1)}, 4096), 0); err != nil {
					panic(err)
				}
			}))
		}
		for _, c := range tasks {
			t.Join(c)
		}
		p := make([]byte, 4096)
		if err := blockdev.Read(t, d, p, 0); err != nil {
			panic(err)
		}
		got = p[0]
	}
	for schedule, want := range map[string]byte{"": 2, "3:2": 1} {
		if r := explore.Once(config(schedule), prog); r.Verdict != explore.OK || got != want {
			t.Errorf("schedule %q: %v block %d want %d\n%s%s", schedule, r.Verdict, got, want, r.Violation, r.Trace())
		}
	}
}

// A device model, a work queue and a range lock run under it too: time is the run's own.
func TestEverythingBelowRuns(t *testing.T) {
	for seed := range uint64(20) {
		cfg := config("")
		cfg.Strategy = explore.RandomWalk(seed)
		var took int64
		r := explore.Once(cfg, func(t *sched.Task) {
			p, err := dm.Parse("delay:read=1ms,write=2ms,depth=2")
			if err != nil {
				panic(err)
			}
			d := dm.New(t, blockdev.NewMemory(1<<20), p)
			var x extentio.Tree
			x.Init(nil)
			works := make([]workqueue.Work[int], 4)
			bios := make([]blockdev.Bio, 4)
			owner := -1
			q := workqueue.New(t, "endio", workqueue.Config{Workers: 2}, func(t *sched.Task, i int) {
				start, end := uint64(i/2)*4096, uint64(i/2+1)*4096
				x.Lock(t, start, end)
				owner = i
				t.Sleep(time.Millisecond)
				if start == 0 && owner/2 == 0 && owner != i {
					panic("two tasks in one range")
				}
				x.Unlock(t, start, end)
			})
			for i := range works {
				works[i].Of = i
				start := uint64(i/2) * 4096
				bios[i] = blockdev.Bio{Op: blockdev.OpWrite, Off: int64(start), Vecs: [][]byte{make([]byte, 4096)},
					EndIO: func(t *sched.Task, _ *blockdev.Bio) { q.Queue(t, &works[i]) }}
				d.Submit(t, &bios[i])
			}
			if err := blockdev.Flush(t, d); err != nil {
				panic(err)
			}
			q.Close(t)
			took = t.Now()
			d.Close()
		})
		if r.Verdict != explore.OK || took < int64(4*time.Millisecond) {
			t.Fatalf("seed %d: %v after %v\n%s%s", seed, r.Verdict, time.Duration(took), r.Violation, r.Trace())
		}
	}
}

func BenchmarkRun(b *testing.B) {
	var size int
	steps := 0
	for b.Loop() {
		r := explore.Once(explore.OnceConfig{}, twoWriters(&size, false))
		steps += len(r.Steps)
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(steps), "ns/step")
}

// A value that a choice does not have is no other one.
func TestMismatchOfChoice(t *testing.T) {
	prog := func(w *explore.World) {
		w.Go("task", func(*sched.Task) { w.Choose(3, "which") })
	}
	x := explore.Replay(explore.Config{}, "", prog)
	at := len(x.Steps) - 1
	if x.Steps[at].NVal != 3 {
		t.Fatalf("the last step is no choice:\n%s", x.Trace())
	}
	if x := explore.Replay(explore.Config{}, fmt.Sprintf("%d=2", at), prog); x.Verdict != explore.OK || x.Steps[at].Val != 2 {
		t.Errorf("%v %s", x.Verdict, x.Violation)
	}
	want := fmt.Sprintf("the schedule gives step %d the value 3, and its choice is 0 to 2", at)
	if x := explore.Replay(explore.Config{}, fmt.Sprintf("%d=3", at), prog); x.Verdict != explore.KindMisfit || x.Violation.String() != want {
		t.Errorf("%v %q, want %q", x.Verdict, x.Violation, want)
	}
}

// Tasks of an execution are numbered from 0, in each execution alike: reports, and programs that
// print a task, say the same again.
func TestTaskNumbers(t *testing.T) {
	var have [2]string
	for i := range have {
		r := explore.Once(config(""), func(t *sched.Task) {
			k := t.Go("writer", func(t *sched.Task) { have[i] += t.String() + " " })
			have[i] += t.String() + " "
			t.Join(k)
		})
		if r.Verdict != explore.OK {
			t.Fatal(r.Violation)
		}
	}
	if !strings.Contains(have[0], "#0 ") || !strings.Contains(have[0], "writer#1 ") || have[1] != have[0] {
		t.Errorf("have %q, then %q", have[0], have[1])
	}
}
