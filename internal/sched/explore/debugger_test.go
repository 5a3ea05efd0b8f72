package explore_test

import (
	"runtime"
	"slices"
	"strings"
	"testing"

	"btrlab/internal/lock"
	"btrlab/internal/sched"
	"btrlab/internal/sched/explore"
)

// A debugger is told of each step but a task's start, in the order of the steps, on the stack of
// the task that does it: the function of the task's own is among the callers.
func TestDebugger(t *testing.T) {
	d := &listener{t: t}
	explore.Attached = d
	defer func() { explore.Attached = nil }()
	x := explore.Replay(explore.Config{}, "4:1", func(w *explore.World) {
		m := &lock.Mutex{}
		w.Go("left", func(t *sched.Task) { leftTask(t, m) })
		w.Go("right", func(t *sched.Task) { rightTask(t, m) })
	})
	var want []int
	for i, s := range x.Steps {
		if s.Kind.String() != "start" {
			want = append(want, i)
		}
	}
	if x.Verdict != explore.OK || !slices.Equal(d.told, want) || len(want) < 8 {
		t.Errorf("told of the steps %v, want %v of an execution that is %s:\n%s", d.told, want, x.Verdict, x.Trace())
	}
}

type listener struct {
	t    *testing.T
	told []int
}

func (d *listener) AtStep(x *explore.Execution, step int) {
	d.told = append(d.told, step)
	pc := make([]uintptr, 64)
	var names []string
	for frames, more := runtime.CallersFrames(pc[:runtime.Callers(1, pc)]), true; more; {
		var f runtime.Frame
		f, more = frames.Next()
		names = append(names, f.Function)
	}
	task := x.Tasks[x.Steps[step].Task]
	if !slices.ContainsFunc(names, func(n string) bool { return strings.HasSuffix(n, "."+task+"Task") }) {
		d.t.Errorf("step %d of task %s is on the stack %q", step, task, names)
	}
}

//go:noinline
func leftTask(t *sched.Task, m *lock.Mutex) {
	for range 2 {
		m.Lock(t)
		m.Unlock(t)
	}
}

//go:noinline
func rightTask(t *sched.Task, m *lock.Mutex) {
	for range 2 {
		m.Lock(t)
		m.Unlock(t)
	}
}
