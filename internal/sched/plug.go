package sched

// Unplugger is a device that keeps back requests in a task's plug.
type Unplugger interface {
	// Unplug starts all requests that t holds back. It may sleep.
	Unplug(t *Task)
}

// plug holds the requests that a task holds back. Models struct blk_plug, which schedule() flushes.
// Differences: one device at a time; only a Simulator knows when a task sleeps, so the other
// runtimes hold back nothing.
type plug struct {
	held Unplugger
}

// StartPlug lets t hold back the requests that it submits, until it sleeps or calls FinishPlug.
// Models blk_start_plug().
func (t *Task) StartPlug() {
	if t.sim != nil {
		t.plug = new(plug)
	}
}

// FinishPlug starts the requests that t holds back, and those that follow at once. Models
// blk_finish_plug().
func (t *Task) FinishPlug() {
	t.Unplug()
	t.plug = nil
}

// HoldFor reports whether t holds back the request that it submits to u now: then u starts it once
// Unplug is called. Models blk_check_plugged().
func (t *Task) HoldFor(u Unplugger) bool {
	if t.plug == nil {
		return false
	}
	if t.plug.held != u {
		t.Unplug()
		t.plug.held = u
	}
	return true
}

// Unplug starts the requests that t holds back; a Simulator calls it before t sleeps. Models
// blk_schedule_flush_plug().
func (t *Task) Unplug() {
	if t.plug == nil || t.plug.held == nil {
		return
	}
	u := t.plug.held
	t.plug.held = nil
	u.Unplug(t)
}
