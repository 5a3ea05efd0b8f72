package sched

import (
	"strings"
	"testing"
)

// A request of a foreign goroutine costs no allocation for its task, also when the request waits.
func TestAdoptAllocatesNothing(t *testing.T) {
	n := testing.AllocsPerRun(1000, func() {
		k := Adopt("request")
		k.Unpark()
		k.Park(0)
		k.Waited(7, "class", 0)
		k.HeldLocks = append(k.HeldLocks, Held{Class: 7})[:0]
		k.Retire()
	})
	if n != 0 && !UnderRace {
		t.Errorf("%v allocations, want 0", n)
	}
}

// The next request sees nothing of the last but what it dirtied, and lockdep watches it if it
// watches new tasks.
func TestAdoptIsANewLife(t *testing.T) {
	seen := map[uint64]bool{}
	for i := range 100 {
		SetChecked(i%2 == 1)
		k := Adopt("request")
		if seen[k.ID] || k.ID == 0 || k.Name != "request" || k.Op != "" || len(k.Waits)+len(k.NowaitSleeps()) != 0 || k.Slow() != (i%2 == 1) || k.Checked() != k.Slow() {
			t.Fatalf("request %d: %+v", i, k)
		}
		seen[k.ID] = true
		before := k.Dirty.Pages
		k.Op, k.Dirty.Pages = "write", before+1
		k.BeginNowait()
		k.Waited(7, "class", 0)
		k.EndNowait()
		if k.Retire(); k.Dirty.Pages != before+1 {
			t.Fatalf("request %d: %d dirty pages after Retire, want %d", i, k.Dirty.Pages, before+1)
		}
	}
	SetChecked(false)
}

// A task in use would serve two goroutines: Retire refuses it.
func TestRetireRefuses(t *testing.T) {
	child := NewTask("root").Go("child", func(*Task) {})
	for _, c := range []struct {
		want string
		task *Task
		use  func(*Task)
	}{
		{"no Adopt returned", child, func(*Task) {}},
		{"no Adopt returned", Adopt("k"), (*Task).Retire},
		{"holding unclassed (1 locks)", Adopt("k"), func(k *Task) { k.HeldLocks = []Held{{}} }},
		{"open transaction", Adopt("k"), func(k *Task) { k.Journal = 1 }},
		{"in a NOWAIT request", Adopt("k"), (*Task).BeginNowait},
		{"before the Park", Adopt("k"), (*Task).Unpark},
	} {
		func() {
			defer func() {
				if r, _ := recover().(string); !strings.Contains(r, c.want) {
					t.Errorf("have panic %q, want %q", r, c.want)
				}
			}()
			c.use(c.task)
			c.task.Retire()
		}()
	}
}
