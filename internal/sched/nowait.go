package sched

// The audit of NOWAIT: the places at which requests that must not sleep slept. The functions that
// may not sleep are told so by their callers; this only looks on.

// NowaitSleep counts the sleeps of a task's NOWAIT requests at one place.
type NowaitSleep struct {
	Step  string  // of the request, as At named it; "" outside of any
	Class ClassID // the lock or event that the task waited for; 0 is a plain Sleep
	Count int64
}

// Awaited is the name of the lock or event that the task waited for.
func (s *NowaitSleep) Awaited() string {
	if s.Class == 0 {
		return "a plain sleep"
	}
	return ClassByID(s.Class).Name
}

// String gives "stable_page in prepare_pages".
func (s *NowaitSleep) String() string {
	if s.Step == "" {
		return s.Awaited()
	}
	return s.Awaited() + " in " + s.Step
}

// AddNowaitSleep adds s to the list, which has one entry for each place.
func AddNowaitSleep(list []NowaitSleep, s NowaitSleep) []NowaitSleep {
	for i := range list {
		if e := &list[i]; e.Step == s.Step && e.Class == s.Class {
			e.Count += s.Count
			return list
		}
	}
	return append(list, s)
}

// audit is the record of a task's NOWAIT requests.
type audit struct {
	step   string
	sleeps []NowaitSleep
}

// BeginNowait and EndNowait bracket a NOWAIT request: in between the task may not sleep.
func (t *Task) BeginNowait() {
	if t.audit == nil {
		t.audit = new(audit)
	}
	t.nowait++
}

// EndNowait ends what BeginNowait began.
func (t *Task) EndNowait() {
	if t.nowait == 0 {
		panic("sched: EndNowait without BeginNowait")
	}
	if t.nowait--; t.nowait == 0 {
		t.audit.step = ""
	}
}

// Nowait reports whether the task's request is NOWAIT.
func (t *Task) Nowait() bool { return t.nowait > 0 }

// At names the step that the task's request does next, for the record of sleeps. It does nothing
// unless the request is NOWAIT.
func (t *Task) At(step string) {
	if t.nowait > 0 {
		t.audit.step = step
	}
}

// Step is the last step that At named in this NOWAIT request, or "".
func (t *Task) Step() string {
	if t.audit == nil {
		return ""
	}
	return t.audit.step
}

// NowaitSleeps lists the places at which the task slept while its request was NOWAIT. Ask when the
// task is not running.
func (t *Task) NowaitSleeps() []NowaitSleep {
	if t.audit == nil {
		return nil
	}
	return t.audit.sleeps
}

func (t *Task) sleptNowait(c ClassID) {
	t.audit.sleeps = AddNowaitSleep(t.audit.sleeps, NowaitSleep{t.audit.step, c, 1})
}

// resetNowait forgets everything.
func (t *Task) resetNowait() {
	t.nowait = 0
	if t.audit != nil {
		t.audit.step, t.audit.sleeps = "", t.audit.sleeps[:0]
	}
}
