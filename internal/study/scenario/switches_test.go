package scenario

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"btrlab/internal/policy"
	"btrlab/internal/sched/explore"
	"btrlab/internal/testing/need"
)

// What the table of the switches names as showing an effect shows it: with the switch turned the
// search of that scenario takes other steps, or ends with another verdict. A file of testdata/crash
// is there; package crash cuts the power in it.
func TestSwitchesShow(t *testing.T) {
	need.Long(t)
	t.Parallel()
	for x := range policy.Switches() {
		g := x.Toggle()
		if g.Scenario == "" {
			continue
		}
		if strings.HasPrefix(g.Scenario, "testdata/") {
			if _, err := os.Stat(filepath.Join("../../..", g.Scenario)); err != nil {
				t.Errorf("%s: %v", g.Name, err)
			}
			continue
		}
		s, err := Lookup(g.Scenario)
		if err != nil {
			t.Errorf("%s: %v", g.Name, err)
			continue
		}
		var seen [2]string
		for i, p := range []*policy.Policy{policy.MustParse(g.Base), policy.MustParse(g.Base)} {
			p.Put(x, p.Has(x) != (i == 1))
			r, err := Run(s, p, Options{Config: func(c *explore.Config) { c.Schedules, c.Jobs = 600, 1 }})
			if err != nil {
				t.Fatalf("%s: %v", g.Name, err)
			}
			seen[i] = fmt.Sprint(r.Verdict, " ", r.Kind, " ", r.Violation, " ", r.Schedules, " schedules ", r.Steps, " steps")
		}
		if seen[0] == seen[1] {
			t.Errorf("%s: %s under %s is %s with it and without it", g.Name, g.Scenario, g.Base, seen[0])
		}
	}
}
