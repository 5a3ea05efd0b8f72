package workqueue

import (
	"os"
	"slices"
	"sync/atomic"
	"testing"

	"btrlab/internal/sched"
	"btrlab/internal/sched/explore"
)

func TestMain(m *testing.M) {
	sched.SetChecked(true)
	os.Exit(m.Run())
}

// One worker does works in the order they came.
func TestFIFO(t *testing.T) {
	k := sched.NewTask("test")
	var got []int
	q := New(k, "fifo", Config{Workers: 1}, func(_ *sched.Task, i int) { got = append(got, i) })
	works := make([]Work[int], 200)
	for i := range works {
		works[i].Of = i
		q.Queue(k, &works[i])
	}
	q.Close(k)
	if len(got) != len(works) {
		t.Fatalf("%d works done, want %d", len(got), len(works))
	}
	for i, v := range got {
		if v != i {
			t.Fatalf("work %d ran as number %d", v, i)
		}
	}
}

// With Newest the worker takes the work that came last, of those that are there.
func TestNewest(t *testing.T) {
	k := sched.NewTask("test")
	var got []int
	begun, all := make(chan bool), make(chan bool)
	q := New(k, "newest", Config{Workers: 1, Newest: true}, func(_ *sched.Task, i int) {
		if i == 0 {
			close(begun)
			<-all
		}
		got = append(got, i)
	})
	works := make([]Work[int], 4)
	for i := range works {
		works[i].Of = i
		q.Queue(k, &works[i])
		if i == 0 {
			<-begun
		}
	}
	close(all)
	q.Close(k)
	if want := []int{0, 3, 2, 1}; !slices.Equal(got, want) {
		t.Errorf("have %v want %v", got, want)
	}
}

// A work may queue itself again; Drain waits for the whole chain.
func TestDrainWaitsForRequeued(t *testing.T) {
	k := sched.NewTask("test")
	var runs atomic.Int64
	type again struct {
		Work[*again]
		left int
	}
	var q *Queue[*again]
	q = New(k, "requeue", Config{Workers: 3, Batch: 4}, func(t *sched.Task, a *again) {
		runs.Add(1)
		if a.left--; a.left > 0 {
			q.Queue(t, &a.Work)
		}
	})
	works := make([]again, 8)
	for i := range works {
		works[i].Of, works[i].left = &works[i], 10
		q.Queue(k, &works[i].Work)
	}
	q.Drain(k)
	if n := runs.Load(); n != 80 {
		t.Fatalf("%d runs after Drain, want 80", n)
	}
	q.Close(k)
}

func TestQueueTwicePanics(t *testing.T) {
	k := sched.NewTask("test")
	stop := make(chan struct{})
	q := New(k, "twice", Config{Workers: 1}, func(_ *sched.Task, wait bool) {
		if wait {
			<-stop
		}
	})
	first, second := Work[bool]{Of: true}, Work[bool]{}
	q.Queue(k, &first)
	q.Queue(k, &second)
	func() {
		defer func() {
			if recover() == nil {
				t.Error("queueing a queued work did not panic")
			}
			q.mu.Unlock(k)
		}()
		q.Queue(k, &second)
	}()
	close(stop)
	q.Close(k)
}

// event is something to wait for.
type event struct{}

func (*event) Event() (name, verb string) { return "event", "happen" }

// With a threshold a running worker takes what comes, in batches, and the idle ones sleep on until
// it has too much to do.
func TestWake(t *testing.T) {
	const wake, batch = 3, 2
	k := sched.NewTask("test")
	running := make(chan int)
	done := make(chan bool)
	q := New(k, "wake", Config{Workers: 2, Batch: batch, Wake: wake}, func(_ *sched.Task, i int) {
		running <- i
		<-done
	})
	for idle := 0; idle < 2; { // both workers sleep
		q.mu.Lock(k)
		idle = q.idle
		q.mu.Unlock(k)
	}
	works := make([]Work[int], 10)
	add := func(i int) {
		works[i].Of = i
		q.Queue(k, &works[i])
	}
	add(0)
	if i := <-running; i != 0 {
		t.Fatalf("work %d runs first", i)
	}
	for i := 1; i <= wake; i++ {
		add(i)
	}
	q.mu.Lock(k)
	idle := q.idle
	q.mu.Unlock(k)
	if idle != 1 {
		t.Fatalf("%d idle workers with %d works waiting, want 1", idle, wake)
	}
	add(wake + 1)
	if i := <-running; i != 1 {
		t.Fatalf("work %d runs second", i)
	}
	q.mu.Lock(k)
	idle, queued := q.idle, q.queued
	q.mu.Unlock(k)
	if idle != 0 || queued != wake+1-batch {
		t.Fatalf("%d idle workers and %d works queued, want 0 and %d", idle, queued, wake+1-batch)
	}
	close(done) // which of the two goes on first is the runtime's choice
	for range wake {
		<-running
	}
	q.Close(k)
}

func TestNoAllocation(t *testing.T) {
	sched.SetChecked(false)
	defer sched.SetChecked(true)
	k := sched.NewTask("test")
	q := New(k, "alloc", Config{Workers: 1}, func(*sched.Task, *event) {})
	w := Work[*event]{Of: new(event)}
	if n := testing.AllocsPerRun(200, func() {
		q.Queue(k, &w)
		q.Drain(k)
	}); n != 0 {
		t.Errorf("%v allocations per work, want 0", n)
	}
	q.Close(k)
}

// In every order of a queue's users and workers each work is done once, Drain waits for it and for
// what it queues, and Close ends all workers.
func TestInEveryOrder(t *testing.T) {
	type again struct {
		Work[*again]
		left, done int
	}
	for _, cfg := range []Config{{Workers: 1}, {Workers: 2}, {Workers: 2, Batch: 2, Wake: 1}} {
		for _, drain := range []bool{false, true} {
			r := explore.Run(explore.Config{Method: explore.Bound, Preemptions: 2, Schedules: 2000}, func(w *explore.World) {
				var q *Queue[*again]
				q = New(w.Task(), "q", cfg, func(t *sched.Task, a *again) {
					a.done++
					if a.left--; a.left > 0 {
						q.Queue(t, &a.Work)
					}
				})
				w.Go("user", func(t *sched.Task) {
					var works [3]again
					for i := range works {
						works[i].Of, works[i].left = &works[i], 1+i%2
						q.Queue(t, &works[i].Work)
						if drain && i < 2 {
							q.Drain(t)
							if works[i].left != 0 {
								panic("Drain did not wait")
							}
						}
					}
					q.Close(t)
					for i := range works {
						if works[i].done != 1+i%2 {
							panic("a work is not done, or done twice")
						}
					}
				})
			})
			if r.Verdict == explore.Violated {
				t.Errorf("%+v, drain %v: %s, schedule %q: %s", cfg, drain, r.Bound, r.Schedule, r.Violation)
			}
		}
	}
}
