package sched

// TraceEvent is a step that Linux has a tracepoint at, under the tracepoint's name, or "plan_step",
// a step of a plan (What: "write reserve"). The name says which other fields are set.
type TraceEvent struct {
	Name string // "btrfs_cow_block"
	// Root is the tree's number, or 0 of a block that has just been made.
	Root       uint64
	Start, Len uint64 // bytes of the file, or only their number
	Val        int64  // a change of a counter, a level, a page's index
	What       string // bits, flags or a kind, in the tracepoint's words
}

// SetTracer makes f see the steps of t and of the tasks that it starts from now on; nil ends it for
// t. It is called on the task that makes the step, with whatever locks are held there, so it may
// not block nor call the file system.
func (t *Task) SetTracer(f func(t *Task, e TraceEvent)) { t.tracer = f }

// Tracing reports whether somebody sees the task's steps. Ask before Trace: it costs one load.
func (t *Task) Tracing() bool { return t.tracer != nil }

// Trace tells the tracer a step.
//
// Preconditions: Tracing.
func (t *Task) Trace(e TraceEvent) { t.tracer(t, e) }
