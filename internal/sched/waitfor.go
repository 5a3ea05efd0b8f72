package sched

import "fmt"

// WaitGraph is told which task waits for which: the wait-for graph, as a general resource graph
// (Holt 1972). Its reusable resources are locks, whose holders are in HeldLocks. Its consumable
// ones are events: an ordered extent finishes, a transaction commits, a ticket is granted. No task
// holds an event. The task that must bring it about, its producer, owes it; lockdep's cross-release
// and the obligations of Kobayashi's type systems follow the same edge.
//
// An event is any comparable value, mostly a pointer. An event that no task owes is no edge: a bio
// in the hands of the device.
type WaitGraph interface {
	// BlockedOn says what t waits for in the Park that follows. Models task_struct.blocked_on.
	BlockedOn(t *Task, obj any)
	// Owe obliges t to bring ev about.
	Owe(t *Task, ev any)
	// Serve is Owe for a task's life: a worker serves its queue.
	Serve(t *Task, ev any)
	// Delegate makes the tasks that serve `to` owe ev, and ends an obligation of t's own: a work is
	// queued, its queue has workers.
	Delegate(t *Task, ev, to any)
	// Discharge ends one obligation for ev: t's own, or else the oldest.
	Discharge(t *Task, ev any)
}

// Event is an event that reports can name: "task 0 writer waits for NAME, which task 2 endio must
// VERB". One with a method Range() (start, end uint64) is named with its bytes.
type Event interface {
	Event() (name, verb string)
}

// BlockedOn is WaitGraph's. Like the others it costs one test where there is no graph.
func (t *Task) BlockedOn(obj any) {
	if t.graph != nil {
		t.graph.BlockedOn(t, obj)
	}
}

// Owe is WaitGraph's.
func (t *Task) Owe(ev any) {
	if t.graph != nil {
		t.graph.Owe(t, ev)
	}
}

// Serve is WaitGraph's.
func (t *Task) Serve(ev any) {
	if t.graph != nil {
		t.graph.Serve(t, ev)
	}
}

// Delegate is WaitGraph's.
func (t *Task) Delegate(ev, to any) {
	if t.graph != nil {
		t.graph.Delegate(t, ev, to)
	}
}

// Discharge is WaitGraph's.
func (t *Task) Discharge(ev any) {
	if t.graph != nil {
		t.graph.Discharge(t, ev)
	}
}

// Span is a range lock, or an event, that says which bytes it is about.
type Span interface {
	Range() (start, end uint64)
}

// RangeText prints the bytes of a range lock or event, " [0, 4K)"; it is empty for what has none.
func RangeText(obj any) string {
	r, ok := obj.(Span)
	if !ok {
		return ""
	}
	start, end := r.Range()
	return fmt.Sprintf(" [%s, %s)", bytesText(start), bytesText(end))
}

// bytesText is a file offset for people.
func bytesText(n uint64) string {
	switch {
	case n >= 1<<62:
		return "end"
	case n != 0 && n%1024 == 0:
		return fmt.Sprintf("%dK", n>>10)
	}
	return fmt.Sprint(n)
}

// Overlapper is a range lock that knows those of its tree.
type Overlapper interface {
	Overlaps(other any) bool
}

// Overlap says that two range locks of one tree have bytes in common.
func Overlap(held, wanted any) bool {
	r, ok := held.(Overlapper)
	return ok && r.Overlaps(wanted)
}
