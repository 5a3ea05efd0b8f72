package scenario_test

import (
	"reflect"
	"testing"

	"btrlab/internal/policy"
	"btrlab/internal/sched/explore"
	"btrlab/internal/study/scenario"
	"btrlab/internal/testing/need"
	"btrlab/labs/kit"
)

// What is drawn is the same each time, by itself or among others, and is found by its name.
func TestRandomIsTheSame(t *testing.T) {
	l := scenario.Random(7, 20)
	if !reflect.DeepEqual(l[:5], scenario.Random(7, 5)) {
		t.Error("five are others than the first five of twenty")
	}
	if reflect.DeepEqual(l[0].Tasks, scenario.Random(8, 1)[0].Tasks) && reflect.DeepEqual(l[1].Tasks, scenario.Random(8, 2)[1].Tasks) {
		t.Error("another seed draws the same")
	}
	for _, s := range l {
		if have, err := scenario.Lookup(s.Name); err != nil || !reflect.DeepEqual(have, s) {
			t.Errorf("%s by its name: %v", s.Name, err)
		}
	}
	for _, name := range []string{"random-7", "random-7-0", "random-07-1", "random-7-1-1", "random--1", "random-7-+1"} {
		if s, err := scenario.Lookup(name); err == nil {
			t.Errorf("%s: have %s want none", name, s.Name)
		}
	}
}

// Drawn scenarios are questions that have an answer: locked keeps all of them, and so does a leader
// that counts its members, the unlocked policy breaks some, and one that counts two members as one
// is broken by one that nobody has thought of.
func TestRandomFindsWhatIsWrong(t *testing.T) {
	need.Long(t)
	n, schedules := 60, 400
	if testing.Short() {
		n = 25
	}
	own := ownPolicy(func() kit.Policy { return newJoiners(false) })
	for _, tt := range []struct {
		name   string
		policy *policy.Policy
		broken bool
	}{
		{"locked", policy.MustParse("locked"), false},
		{"unlocked", policy.MustParse("unlocked"), true},
		{"a leader and its members", own, false},
	} {
		broken := 0
		for _, s := range scenario.Random(7, n) {
			r, err := scenario.Run(s, tt.policy, scenario.Options{Config: func(c *explore.Config) { c.Schedules, c.NoShrink = schedules, true }})
			if err != nil {
				t.Fatal(err)
			}
			if r.Verdict == explore.Violated {
				broken++
				if !tt.broken {
					t.Errorf("%s under %s: %s: %s\n%s\n%s", s.Name, tt.name, r.Bound, r.Violation, r.Schedule, s.Text())
				}
			}
		}
		t.Logf("%s: %d of %d broken", tt.name, broken, n)
		if tt.broken && broken == 0 {
			t.Errorf("%s: have none of %d broken, want some", tt.name, n)
		}
	}
}

// A wrong count of members, which needs three writers and a truncate, falls by drawn scenarios.
func TestRandomBreaksAWrongCount(t *testing.T) {
	if testing.Short() {
		t.Skip("searches up to thirty scenarios")
	}
	wrong := ownPolicy(func() kit.Policy { return newJoiners(true) })
	const n = 30
	for i, s := range scenario.Random(7, n) {
		r, err := scenario.Run(s, wrong, scenario.Options{Config: func(c *explore.Config) { c.Schedules, c.NoShrink = 4000, true }})
		if err != nil {
			t.Fatal(err)
		}
		if r.Verdict == explore.Violated {
			t.Logf("the %dth: %s, %s: %s", i+1, s.About, r.Bound, r.Schedule)
			return
		}
	}
	t.Errorf("have none of %d drawn scenarios broken, want one", n)
}
