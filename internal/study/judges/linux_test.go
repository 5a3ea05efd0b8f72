package judges

import (
	"fmt"
	"slices"
	"testing"

	"btrlab/internal/judge/park"
)

// TestLinuxTasks: every student has the tasks of the lab, they differ, and their answers are
// judged: the right one passes, its neighbours do not.
func TestLinuxTasks(t *testing.T) {
	seen := map[string]bool{}
	for i := range 40 {
		student := fmt.Sprintf("student-%d", i)
		list := edgesOf(student)
		if len(list) != 3 || len(ordersOf(student)) != 2 {
			t.Fatalf("%s: %d edges, %d orders", student, len(list), len(ordersOf(student)))
		}
		key := ""
		for _, e := range list {
			key += e.scenario + e.version + " "
			for schedule := range e.refused {
				for _, first := range []bool{true, false} {
					want := e.last
					if first {
						want = e.first
					}
					wrong, err := e.judge(schedule, first)
					if err != nil || (wrong == "") != (schedule == want) {
						t.Errorf("%s in Linux %s, %s: %q, %v", e.scenario, e.version, schedule, wrong, err)
					}
				}
			}
		}
		for _, o := range ordersOf(student) {
			key += o.Scenario + o.Schedule
			right := 0
			for set := range 1 << len(recordings()) {
				answer := "none"
				for k, r := range recordings() {
					if set>>k&1 == 1 {
						answer += ", " + r.Version
					}
				}
				if answer != "none" {
					answer = answer[len("none, "):]
				}
				wrong, err := sameOn(answer, o)
				if err != nil {
					t.Fatal(err)
				}
				if wrong == "" {
					right++
				}
			}
			if right != 1 {
				t.Errorf("%s '%s': %d right answers", o.Scenario, o.Schedule, right)
			}
		}
		seen[key] = true
	}
	if len(seen) < 30 {
		t.Errorf("of 40 students %d have tasks of their own", len(seen))
	}
	have := 0.0
	for _, w := range (Linux{}).Workloads() {
		have += w.points
	}
	if have != 100 {
		t.Errorf("%g points, want 100", have)
	}
}

// TestLinuxBugs: a bug counts for the kernels that have it and for no others.
func TestLinuxBugs(t *testing.T) {
	for _, c := range []struct {
		answer string
		broken []string
		right  bool
	}{
		{"direct-mapped modern!DIO_NOFAULT", lab17[0].broken, true},
		{"direct-mapped modern!DIO_NOFAULT ''", lab17[0].broken, true},
		{"nowait-dio-range nowait-5.8 10:1,12:0", lab17[0].broken, true},
		{"nowait-stable nowait-6.1+NOWAIT_TRY_ORDERED 8:1", lab17[0].broken, false},
		{"nowait-stable nowait-6.1+NOWAIT_TRY_ORDERED 8:1", lab17[1].broken, true},
		{"nowait-quota nowait-6.1", lab17[1].broken, false},
		{"nowait-quota linux-6.1", lab17[2].broken, true}, // the same places
		{"nowait-quota nowait-6.1", lab17[2].broken, true},
		{"nowait-stable nowait-6.1+NOWAIT_TRY_ORDERED", lab17[1].broken, false}, // kept here
		{"truncate-race unlocked 11:1", lab17[1].broken, false},                 // refused
		{"truncate-race unlocked 11:1,99:1", lab17[1].broken, false},
		{"truncate-race unlocked", lab17[1].broken, false},
		{"no-such unlocked 1:1", lab17[1].broken, false},
		{"truncate-race", lab17[1].broken, false},
		{"truncate-race no-policy 1:1", lab17[1].broken, false},
	} {
		wrong, err := breaksOn(c.answer, c.broken)
		if err != nil || (wrong == "") != c.right {
			t.Errorf("%q for %v: %q, %v", c.answer, c.broken, wrong, err)
		}
	}
}

// TestLinuxOrders: a kernel that takes the order and ends otherwise is not one that ends so.
func TestLinuxOrders(t *testing.T) {
	for _, r := range recordings() {
		for _, x := range r.Runs {
			if x.Outcome() == park.Other && slices.Contains(sameAs(recordings(), x), r.Version) {
				t.Errorf("%s '%s' under %s: Linux %s ends otherwise", x.Scenario, x.Schedule, x.Policy, r.Version)
			}
		}
	}
}
