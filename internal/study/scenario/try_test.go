package scenario_test

import (
	"testing"

	"btrlab/internal/sched/explore"
	"btrlab/internal/study/scenario"
	"btrlab/labs/kit"
)

// tries is a policy that tries before it waits: a write that gets i_rwsem at once is alone; another
// one shares it, with its range locked, and waits for that only if a try did not get it.
type tries struct {
	joiners
	count kit.Mutex
	alone kit.Var[int] // writes that were, where nobody else was counting

	careless bool // goes on without the range that it did not get
}

func newTries(careless bool) *tries {
	p := &tries{careless: careless}
	p.count.Init()
	return p
}

func (p *tries) Write(t *kit.Task, w *kit.WriteOp) {
	alone := w.TryAlone(t)
	if !alone && !w.Appends(t) {
		w.Share(t)
		if r := w.Range(t); r.End <= w.Size(t) { // no truncate comes between now
			got := w.TryLockRange(t, r.Start, r.End)
			if !got && !p.careless {
				w.LockRange(t, r.Start, r.End)
				got = true
			}
			copyAll(t, w)
			if got {
				w.UnlockRange(t)
			}
			w.Unlock(t)
			w.Balance(t)
			return
		}
		w.Unlock(t)
	}
	if !alone {
		w.Alone(t)
	}
	if p.count.TryLock(t) {
		p.alone.Store(t, p.alone.Load(t)+1)
		p.count.Unlock(t)
	}
	copyAll(t, w)
	w.Unlock(t)
	w.Balance(t)
}

// A policy that tries a lock and then waits for another could not be written. It keeps the rule
// where its second way waits for the range, and a try whose answer is not looked at breaks it.
func TestTryingPolicy(t *testing.T) {
	for _, tt := range []struct {
		scenario string
		careless bool
		broken   bool
	}{
		{"truncate-race", false, false},
		{"two-writers-overlap", false, false},
		{"three-overlap", false, false},
		{"three-overlap", true, true},
	} {
		s, err := scenario.Lookup(tt.scenario)
		if err != nil {
			t.Fatal(err)
		}
		r, err := scenario.Run(s, ownPolicy(func() kit.Policy { return newTries(tt.careless) }), scenario.Options{Config: func(c *explore.Config) { c.Schedules = 5000 }})
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("%s, careless %v: %s, %s", tt.scenario, tt.careless, r.Bound, r.Schedule)
		if broken := r.Verdict == explore.Violated; broken != tt.broken {
			t.Errorf("%s, careless %v: have broken %v want %v: %s: %s", tt.scenario, tt.careless, broken, tt.broken, r.Bound, r.Violation)
		}
	}
}
