package explore_test

import (
	"fmt"
	"reflect"
	"strings"
	"testing"

	"btrlab/internal/lock"
	"btrlab/internal/lock/lockdep"
	"btrlab/internal/sched"
	"btrlab/internal/sched/explore"
)

// script is a task that takes and lets go locks in the given order; +i takes lock i, -i lets it go,
// counted from 1.
type script struct {
	locks []lock.Mutex
	ops   []int
	at    int
}

func (s *script) Step(t *sched.Task) bool {
	if s.at > 0 {
		if i := s.ops[s.at-1]; i > 0 {
			s.locks[i-1].EndLock(t)
		} else {
			s.locks[-i-1].EndUnlock(t)
		}
	}
	if s.at == len(s.ops) {
		return false
	}
	if i := s.ops[s.at]; i > 0 {
		s.locks[i-1].BeginLock(t)
	} else {
		s.locks[-i-1].BeginUnlock(t)
	}
	s.at++
	return true
}

// scripts is a program whose tasks are machines, in memory that executions use one after the other.
func scripts(locks int, tasks ...[]int) func(w *explore.World) {
	type program struct {
		locks []lock.Mutex
		tasks []script
	}
	return func(w *explore.World) {
		p, ok := (*w.Kept()).(*program)
		if !ok {
			p = &program{make([]lock.Mutex, locks), make([]script, len(tasks))}
			for i := range p.locks {
				p.locks[i].Init([]*lockdep.Class{aClass, bClass, cClass}[i])
			}
			*w.Kept() = p
		}
		for i := range p.locks {
			p.locks[i].Reset()
			w.Name(&p.locks[i], lockNames[i])
		}
		for i := range tasks {
			p.tasks[i] = script{locks: p.locks, ops: tasks[i]}
			w.GoMachine(taskNames[i], &p.tasks[i])
		}
	}
}

var (
	lockNames = []string{"a", "b", "c"}
	taskNames = []string{"task0", "task1", "task2"}
)

// sectionsByMachine is sections as a program that is data.
func sectionsByMachine(n, m int) func(w *explore.World) {
	var ops []int
	for range m {
		ops = append(ops, 1, -1)
	}
	return scripts(1, repeated(ops, n)...)
}

func repeated(ops []int, n int) (all [][]int) {
	for range n {
		all = append(all, ops)
	}
	return all
}

// A task that is a machine has the same steps as the same operations in a function: every search
// makes the same executions, in the same order, and finds the same.
func TestMachineIsTask(t *testing.T) {
	ab, ba := []int{1, 2, -2, -1, 1, 2, -2, -1}, []int{2, 1, -1, -2, 2, 1, -1, -2}
	for _, p := range []struct {
		name            string
		machines, tasks func(w *explore.World)
	}{
		{"sections 2x3", sectionsByMachine(2, 3), sections(2, 3)},
		{"sections 3x2", sectionsByMachine(3, 2), sections(3, 2)},
		{"two locks", scripts(2, ab, ab, ab), twoLocks(false)},
		{"two locks inverted", scripts(2, ab, ab, ba), twoLocks(true)},
	} {
		for _, m := range []explore.Method{explore.Bound, explore.DPOR, explore.State, explore.Naive, explore.Random, explore.PCT, explore.POS} {
			for _, off := range []explore.Checks{0, explore.CheckLockOrder, ^explore.Checks(0)} {
				var ends [2][]string
				var results [2]explore.Result
				for i, prog := range []func(w *explore.World){p.machines, p.tasks} {
					var all []string
					r := explore.Run(explore.Config{Method: m, Off: off, Schedules: 500, All: true, Done: func(n int, x *explore.End) {
						all = append(all, fmt.Sprint(n, x.Schedule(), x.Order, x.Steps, x.Violation))
					}}, prog)
					r.Seconds = 0
					ends[i], results[i] = all, r
				}
				if !reflect.DeepEqual(results[0], results[1]) {
					t.Errorf("%s, %s, checks off %b:\nhave %+v\nwant %+v", p.name, m, off, results[0], results[1])
				}
				if !reflect.DeepEqual(ends[0], ends[1]) {
					t.Errorf("%s, %s, checks off %b: the executions differ", p.name, m, off)
				}
			}
		}
	}
}

// Machines and tasks with stacks take turns in one execution.
func TestMachineAmongTasks(t *testing.T) {
	mixed := func(machines uint) func(w *explore.World) {
		return func(w *explore.World) {
			locks := make([]lock.Mutex, 1)
			locks[0].Init(aClass)
			w.Name(&locks[0], "mu")
			for i := range 3 {
				if machines>>i&1 != 0 {
					w.GoMachine("task", &script{locks: locks, ops: []int{1, -1, 1, -1}})
					continue
				}
				w.Go("task", func(t *sched.Task) {
					for range 2 {
						locks[0].Lock(t)
						locks[0].Unlock(t)
					}
				})
			}
		}
	}
	for _, m := range []explore.Method{explore.Bound, explore.DPOR, explore.Random} {
		want := explore.Run(explore.Config{Method: m, Schedules: 2000, Seed: 1}, mixed(0))
		for set := uint(1); set < 8; set++ {
			have := explore.Run(explore.Config{Method: m, Schedules: 2000, Seed: 1}, mixed(set))
			if have.Seconds = want.Seconds; !reflect.DeepEqual(have, want) {
				t.Errorf("%s, machines %03b:\nhave %+v\nwant %+v", m, set, have, want)
			}
		}
	}
}

// panics is a machine that panics in its second step, or waits there.
type panics struct {
	mu    *lock.Mutex
	waits bool
	at    int
}

func (p *panics) Step(t *sched.Task) bool {
	if p.at++; p.at == 1 {
		p.mu.BeginLock(t)
		return true
	}
	p.mu.EndLock(t)
	if p.waits {
		t.Park(0)
	}
	panic("boom")
}

// A panic in a step is the machine's, and so is a wait, which a machine has no stack for.
func TestMachinePanics(t *testing.T) {
	for _, c := range []struct {
		waits bool
		want  string
	}{{false, "task 1 machine: panic: boom"}, {true, "is a machine and waits in its step"}} {
		r := explore.Run(explore.Config{}, func(w *explore.World) {
			mu := new(lock.Mutex)
			mu.Init(aClass)
			w.Go("task", func(t *sched.Task) { mu.Lock(t); mu.Unlock(t) })
			w.GoMachine("machine", &panics{mu: mu, waits: c.waits})
		})
		if r.Kind != explore.KindPanic || !strings.Contains(r.Violation.String(), c.want) {
			t.Errorf("have %s %q want %q", r.Kind, r.Violation, c.want)
		}
	}
}

// A schedule by chance allocates nothing once the first ones have made the memory for it: neither
// the search nor a program whose executions use one memory.
func TestMachineAllocatesNothing(t *testing.T) {
	allocs := func(schedules int) float64 {
		return testing.AllocsPerRun(1, func() {
			explore.Run(explore.Config{Method: explore.Random, Schedules: schedules}, sectionsByMachine(2, 3))
		})
	}
	if few, many := allocs(1_000), allocs(11_000); many-few > 100 {
		t.Errorf("10000 schedules more: have %g allocations want none", many-few)
	}
}
