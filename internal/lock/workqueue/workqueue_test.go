package workqueue

import (
	"os"
	"sync/atomic"
	"testing"

	"btrlab/internal/sched"
)

func TestMain(m *testing.M) {
	sched.SetChecked(true)
	os.Exit(m.Run())
}

// One worker does works in the order they came.
func TestFIFO(t *testing.T) {
	k := sched.NewTask("test")
	q := New(k, "fifo", 1)
	var got []int
	works := make([]Work, 200)
	for i := range works {
		works[i] = Work{Private: i, Fn: func(_ *sched.Task, w *Work) { got = append(got, w.Private.(int)) }}
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

// A work may queue itself again; Drain waits for the whole chain.
func TestDrainWaitsForRequeued(t *testing.T) {
	k := sched.NewTask("test")
	q := New(k, "requeue", 3)
	var runs atomic.Int64
	works := make([]Work, 8)
	for i := range works {
		left := 10
		works[i].Fn = func(t *sched.Task, w *Work) {
			runs.Add(1)
			if left--; left > 0 {
				q.Queue(t, w)
			}
		}
		q.Queue(k, &works[i])
	}
	q.Drain(k)
	if n := runs.Load(); n != 80 {
		t.Fatalf("%d runs after Drain, want 80", n)
	}
	q.Close(k)
}

func TestQueueTwicePanics(t *testing.T) {
	k := sched.NewTask("test")
	q := New(k, "twice", 1)
	stop := make(chan struct{})
	first := Work{Fn: func(*sched.Task, *Work) { <-stop }}
	second := Work{Fn: func(*sched.Task, *Work) {}}
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

func TestNoAllocation(t *testing.T) {
	sched.SetChecked(false)
	defer sched.SetChecked(true)
	k := sched.NewTask("test")
	q := New(k, "alloc", 1)
	w := Work{Fn: func(*sched.Task, *Work) {}}
	if n := testing.AllocsPerRun(200, func() {
		q.Queue(k, &w)
		q.Drain(k)
	}); n != 0 {
		t.Errorf("%v allocations per work, want 0", n)
	}
	q.Close(k)
}
