package sched

import (
	"slices"
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
	k.BeginTaskWork()
	for range 2 {
		if !k.AddTaskWork(w) {
			t.Error("a task that has begun puts no works off")
		}
	}
	if k.AddTaskWork(new(works)) {
		t.Error("works of two queues")
	}
	k.EndTaskWork()
	k.EndTaskWork()
	if k.AddTaskWork(w) {
		t.Error("a task that has ended puts works off")
	}
	k.BeginTaskWork()
	k.AddTaskWork(w)
	k.Unpark()
	k.Park(0)
	k.EndTaskWork()
	if want := []string{"do", "wake"}; !slices.Equal(w.said, want) {
		t.Errorf("said %q, want %q", w.said, want)
	}
}
