package sched

// TaskWork is a queue of works that a task may do itself, at the end of the request that queued
// them, so that no other task need be woken.
type TaskWork interface {
	// Do does works of the queue on t, if there are any left. It may sleep.
	Do(t *Task)
	// Wake wakes one who does them. It does not sleep.
	Wake(t *Task)
}

// taskWork is what a task has promised to do.
type taskWork struct {
	on   bool
	owed TaskWork
}

// BeginTaskWork lets t, if it is of the real runtime, put off works until EndTaskWork, which is the
// caller's if it reports true: else t is of another runtime, or has begun already. Before t sleeps
// others are woken for its works. The task that began may hold nothing.
//
// Models task_work_add() and task_work_run(). Difference: there a task that sleeps keeps its works.
func (t *Task) BeginTaskWork() (began bool) {
	if t.rt != nil {
		return false
	}
	if t.works == nil {
		t.works = new(taskWork)
	}
	began = !t.works.on
	t.works.on = true
	return began
}

// EndTaskWork does what t has put off. Preconditions: BeginTaskWork has reported true; t holds no
// lock.
func (t *Task) EndTaskWork() {
	t.works.on = false
	if w := t.works.owed; w != nil {
		t.works.owed = nil
		w.Do(t)
	}
}

// AddTaskWork reports whether t does the works of w at its end: then w need wake nobody for them.
// Any lock may be held.
func (t *Task) AddTaskWork(w TaskWork) bool {
	k := t.works
	if k == nil || !k.on || k.owed != nil && k.owed != w {
		return false
	}
	k.owed = w
	return true
}

// LendTaskWork lets t, which is another task on of's goroutine for a while, put works off for of. A
// nil of ends that.
func (t *Task) LendTaskWork(of *Task) {
	t.works = nil
	if of != nil {
		t.works = of.works
	}
}

// WakeTaskWork wakes others for what t has put off, before it sleeps.
func (t *Task) WakeTaskWork() {
	if k := t.works; k != nil && k.owed != nil {
		w := k.owed
		k.owed = nil
		w.Wake(t)
	}
}
