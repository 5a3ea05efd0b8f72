package sched

import (
	"slices"
	"sync/atomic"
	"testing"
)

// works notes what it is asked.
type works struct{ said []string }

func (w *works) Do(*Task)   { w.said = append(w.said, "do") }
func (w *works) Wake(*Task) { w.said = append(w.said, "wake") }

// A task does at its end what it has put off, once; before it sleeps it wakes another for it.
func TestTaskWork(t *testing.T) {
	k, w := NewTask("k"), new(works)
	if k.AddTaskWork(w) {
		t.Error("a task that has not begun puts works off")
	}
	if !k.BeginTaskWork() || k.BeginTaskWork() {
		t.Error("a task begins twice, or not at all")
	}
	for range 2 {
		if !k.AddTaskWork(w) {
			t.Error("a task that has begun puts no works off")
		}
	}
	if k.AddTaskWork(new(works)) {
		t.Error("works of two queues")
	}
	k.EndTaskWork()
	if k.AddTaskWork(w) {
		t.Error("a task that has ended puts works off")
	}
	k.BeginTaskWork()
	k.EndTaskWork()
	k.BeginTaskWork()
	k.AddTaskWork(w)
	k.Unpark()
	k.Park(0)
	k.EndTaskWork()
	if want := []string{"do", "wake"}; !slices.Equal(w.said, want) {
		t.Errorf("said %q, want %q", w.said, want)
	}
}

// A task that ends the requests of another on its goroutine puts works off for that one, as long as
// it does so.
func TestTaskWorkLent(t *testing.T) {
	k, ender, w := NewTask("k"), NewTask("ender"), new(works)
	k.BeginTaskWork()
	ender.LendTaskWork(k)
	if !ender.AddTaskWork(w) {
		t.Error("a task that was lent them puts no works off")
	}
	ender.LendTaskWork(nil)
	if ender.AddTaskWork(w) {
		t.Error("a task puts works off for one that it has left")
	}
	k.EndTaskWork()
	if want := []string{"do"}; !slices.Equal(w.said, want) {
		t.Errorf("said %q, want %q", w.said, want)
	}
}

// ending is a device whose Poll ends a request, which leaves works to the task, and goes.
type ending struct{ w TaskWork }

func (e ending) Poll(t *Task, _ *atomic.Int32) { t.AddTaskWork(e.w) }
func (ending) Kick()                           {}

// freeing are works that the task itself waits for.
type freeing struct{ works }

func (w *freeing) Wake(t *Task) {
	w.works.Wake(t)
	t.Unpark()
}

// What a task puts off while it polls is done by others, too, if it has to sleep after all.
func TestTaskWorkOfPoll(t *testing.T) {
	SetChecked(true) // a test that stands still ends
	defer SetChecked(false)
	const class = MaxClasses - 1
	WaitsForDevice(class)
	k, w := NewTask("k"), new(freeing)
	var p Poller = ending{w}
	k.PollAt(&p)
	k.BeginTaskWork()
	k.Park(class)
	k.EndTaskWork()
	if want := []string{"wake"}; !slices.Equal(w.said, want) {
		t.Errorf("said %q, want %q", w.said, want)
	}
	k.BeginTaskWork()
	k.Unpark()
	k.Park(class)
	k.EndTaskWork()
	if want := []string{"wake", "do"}; !slices.Equal(w.said, want) {
		t.Errorf("of a task that was woken: said %q, want %q", w.said, want)
	}
}
