package sched_test

import (
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"btrlab/internal/lock"
	"btrlab/internal/lock/extentio"
	"btrlab/internal/lock/lockdep"
	"btrlab/internal/lock/workqueue"
	"btrlab/internal/sched"
)

var (
	classA = lockdep.NewTestClass("a_lock", "")
	classB = lockdep.NewTestClass("b_lock", "")
)

// event is one that a task owes.
type event struct{ q lock.WaitQueue }

func (*event) Event() (name, verb string) { return "the scrub", "complete" }

// job is an object of a workqueue.
type job struct{ event }

// meet makes both of two tasks go on together.
func meet() func() {
	var both sync.WaitGroup
	both.Add(2)
	return func() {
		both.Done()
		both.Wait()
	}
}

// never is a condition that does not come.
func never() bool { return false }

// stuck are programs that get stuck under the real runtime, and what the watch says of them.
var stuck = []struct {
	name string
	run  func(root *sched.Task)
	want []string
}{
	{"two locks", func(root *sched.Task) {
		var a lock.Mutex
		var b lock.RWSem
		a.Init(classA)
		b.Init(classB)
		together := meet()
		x := root.Go("x", func(t *sched.Task) { a.Lock(t); together(); b.RLock(t) })
		y := root.Go("y", func(t *sched.Task) { b.Lock(t); together(); a.Lock(t) })
		root.Join(x)
		root.Join(y)
	}, []string{
		"deadlock: task x#2 waits for b_lock, which task y#3 holds; task y#3 waits for a_lock, which task x#2 holds\n",
		"task root#1 waits for task x#2 to end\n",
		"task x#2 waits for b_lock, which task y#3 holds; holds a_lock\n",
		"task y#3 waits for a_lock, which task x#2 holds; holds b_lock\n",
	}},
	{"lost wake-up", func(root *sched.Task) {
		var e event
		e.q.Init(classA)
		root.Join(root.Go("waiter", func(t *sched.Task) { e.q.Wait(t, never) }))
	}, []string{"stuck: no task has gone on for 200ms, and every goroutine waits\n", "task waiter#2 waits for a_lock\n"}},
	{"event", func(root *sched.Task) {
		var a lock.Mutex
		var e event
		a.Init(classA)
		e.q.Init(classB)
		together := meet()
		w := root.Go("waiter", func(t *sched.Task) { a.Lock(t); together(); e.q.WaitFor(t, &e, never) })
		root.Go("scrub", func(t *sched.Task) { t.Owe(&e); together(); a.Lock(t) })
		root.Join(w)
	}, []string{"deadlock: task waiter#2 waits for the scrub, which task scrub#3 must complete; task scrub#3 waits for a_lock, which task waiter#2 holds\n"}},
	{"count", func(root *sched.Task) {
		var a lock.Mutex
		var n lock.Counter
		a.Init(classA)
		n.Init(classB)
		together := meet()
		n.Inc(root)
		n.Dec(root)
		w := root.Go("io", func(t *sched.Task) { n.Inc(t); together(); a.Lock(t) })
		root.Go("truncate", func(t *sched.Task) { a.Lock(t); together(); n.WaitZero(t) })
		root.Join(w)
	}, []string{"deadlock: task io#2 waits for a_lock, which task truncate#3 holds; task truncate#3 waits for b_lock, which task io#2 must complete\n"}},
	{"queue", func(root *sched.Task) {
		var a lock.Mutex
		a.Init(classA)
		q := workqueue.New(root, "endio", workqueue.Config{Workers: 1}, func(t *sched.Task, j *job) { a.Lock(t) })
		w := &workqueue.Work[*job]{Of: new(job)}
		w.Of.q.Init(classB)
		a.Lock(root)
		q.Queue(root, w)
		w.Of.q.WaitFor(root, w.Of, never)
	}, []string{"deadlock: task root#1 waits for the scrub, which task endio/0#2 must complete; task endio/0#2 waits for a_lock, which task root#1 holds\n"}},
	{"delegated", func(root *sched.Task) {
		var a lock.Mutex
		var e event
		a.Init(classA)
		e.q.Init(classB)
		together := meet()
		root.Go("server", func(t *sched.Task) { t.Serve(&a); together(); a.Lock(t) })
		a.Lock(root)
		root.Delegate(&e, &a)
		together()
		e.q.WaitFor(root, &e, never)
	}, []string{"deadlock: task root#1 waits for the scrub, which task server#2 must complete; task server#2 waits for a_lock, which task root#1 holds\n"}},
	{"range", func(root *sched.Task) {
		var x extentio.Tree
		x.Init(nil)
		x.SetNovalidate(true)
		together := meet()
		a := root.Go("a", func(t *sched.Task) { x.Lock(t, 0, 4096); together(); x.Lock(t, 8192, 12288) })
		root.Go("b", func(t *sched.Task) { x.Lock(t, 8192, 16384); together(); x.Lock(t, 0, 4096) })
		root.Join(a)
	}, []string{"deadlock: task a#2 waits for extent [8K, 12K), which task b#3 holds; task b#3 waits for extent [0, 4K), which task a#2 holds\n"}},
	{"itself", func(root *sched.Task) {
		var a lock.Mutex
		a.Init(classA)
		a.Lock(root)
		a.Lock(root)
	}, []string{"deadlock: task root#1 waits for a_lock, which it holds itself\n"}},
}

// A process whose tasks all wait for each other ends, and says who waits for whom.
func TestStuck(t *testing.T) {
	if name := os.Getenv("STUCK"); name != "" {
		sched.SetStuckAfter(200 * time.Millisecond)
		sched.SetChecked(true)
		for _, c := range stuck {
			if c.name == name {
				c.run(sched.NewTask("root"))
			}
		}
		return
	}
	for _, c := range stuck {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			cmd := exec.Command(os.Args[0], "-test.run=^TestStuck$", "-test.timeout=60s")
			cmd.Env = append(os.Environ(), "STUCK="+c.name)
			out, err := cmd.CombinedOutput()
			if err == nil || strings.Contains(string(out), "test timed out") {
				t.Fatalf("it ended with %v:\n%s", err, out)
			}
			for _, want := range c.want {
				if !strings.Contains(string(out), want) {
					t.Errorf("no %q in\n%s", want, out)
				}
			}
		})
	}
}

// A process in which a goroutine computes, sleeps or waits for the system is not stuck, however
// long a task waits for it.
func TestNotStuck(t *testing.T) {
	if how := os.Getenv("NOT_STUCK"); how != "" {
		sched.SetStuckAfter(time.Millisecond)
		sched.SetChecked(true)
		root := sched.NewTask("root")
		var e event
		e.q.Init(classA)
		var done atomic.Bool
		w := root.Go("waiter", func(t *sched.Task) { e.q.Wait(t, done.Load) })
		switch how {
		case "compute":
			for i := range 300_000_000 {
				done.Store(i < 0)
			}
		case "sleep":
			root.Sleep(200 * time.Millisecond)
		case "system":
			if err := exec.Command("sleep", "0.2").Run(); err != nil {
				t.Fatal(err)
			}
		}
		done.Store(true)
		e.q.Wake(root)
		root.Join(w)
		return
	}
	for _, how := range []string{"compute", "sleep", "system"} {
		cmd := exec.Command(os.Args[0], "-test.run=^TestNotStuck$")
		cmd.Env = append(os.Environ(), "NOT_STUCK="+how)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%s: %v\n%s", how, err, out)
		}
	}
}
