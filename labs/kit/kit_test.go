package kit

import (
	"reflect"
	"strings"
	"testing"

	"btrlab/internal/sched"
	"btrlab/internal/sched/explore"
)

func ready() (*Mutex, *Cond) {
	m, c := &Mutex{}, &Cond{}
	m.Init()
	c.Init()
	return m, c
}

// TestMisuse: what a lock that is used wrongly does is said in the words of its user, and in every
// schedule.
func TestMisuse(t *testing.T) {
	for _, tt := range []struct {
		want string
		run  func(t *Task)
	}{
		{"kit.Mutex.Lock before Init", func(t *Task) { new(Mutex).Lock(t) }},
		{"kit.Mutex.Unlock before Init", func(t *Task) { new(Mutex).Unlock(t) }},
		{"kit.Cond.Broadcast before Init", func(t *Task) { new(Cond).Broadcast(t) }},
		{"kit.Cond.Wait before Init", func(t *Task) { m, _ := ready(); m.Lock(t); new(Cond).Wait(t, m) }},
		{"kit.Cond.Wait by a task that does not hold the mutex", func(t *Task) { m, c := ready(); c.Wait(t, m) }},
		{"kit.Mutex.Unlock by a task that does not hold the mutex", func(t *Task) { m, _ := ready(); m.Lock(t); m.Unlock(t); m.Unlock(t) }},
		{"kit.Mutex.Lock by the task that holds it", func(t *Task) { m, _ := ready(); m.Lock(t); m.Lock(t) }},
		{"kit.Mutex.Lock by a task that holds another Mutex", func(t *Task) { m, _ := ready(); n, _ := ready(); m.Lock(t); n.Lock(t) }},
		{"kit.Mutex.Lock without a task", func(t *Task) { m, _ := ready(); m.Lock(nil) }},
	} {
		x := explore.Run(explore.Config{}, func(w *explore.World) { w.Go("user", func(t *sched.Task) { tt.run(On(t)) }) })
		if x.Kind != explore.KindPanic || !strings.Contains(x.Violation.String(), tt.want) {
			t.Errorf("want %q, have %s: %s", tt.want, x.Kind, x.Violation)
		}
	}
}

// TestVar: tasks that change a map in place, outside one another's mutex sections, race though the
// field is never stored again.
func TestVar(t *testing.T) {
	for _, locked := range []bool{true, false} {
		x := explore.Run(explore.Config{}, func(w *explore.World) {
			m, _ := ready()
			v := &Var[map[int]bool]{}
			for i := range 2 {
				w.Go("user", func(k *sched.Task) {
					t := On(k)
					m.Lock(t)
					if v.Load(t) == nil {
						v.Store(t, map[int]bool{})
					}
					if !locked {
						m.Unlock(t)
					}
					v.Load(t)[i] = true
					if locked {
						m.Unlock(t)
					}
				})
			}
		})
		if kept := x.Verdict == explore.Exhausted; kept != locked || !locked && x.Kind != explore.KindRace {
			t.Errorf("locked %v: %s %s: %s", locked, x.Verdict, x.Kind, x.Violation)
		}
	}
}

// TestRefers: which values lead to memory that a Store does not show.
func TestRefers(t *testing.T) {
	type node struct {
		R    Range
		Next *node
	}
	for _, tt := range []struct {
		of   reflect.Type
		want bool
	}{
		{reflect.TypeFor[int](), false}, {reflect.TypeFor[Range](), false}, {reflect.TypeFor[[2]Range](), false}, {reflect.TypeFor[string](), false},
		{reflect.TypeFor[[]Range](), true}, {reflect.TypeFor[map[int]bool](), true}, {reflect.TypeFor[*node](), true}, {reflect.TypeFor[node](), true},
	} {
		if got := refers(tt.of); got != tt.want {
			t.Errorf("%v: have %v want %v", tt.of, got, tt.want)
		}
	}
}
