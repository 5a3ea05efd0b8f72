package scenario

import (
	"testing"
	"time"

	"btrlab/internal/sched/explore"
)

// Every exhibit proves itself twice: the named wrong order is broken, by the kind of violation it tells about, and the right one passes.
func TestMuseum(t *testing.T) {
	for i := range Museum {
		e := &Museum[i]
		x, err := e.Show(Options{Config: func(c *explore.Config) { c.Time = 10 * time.Second; c.Schedules = 20_000 }})
		must(t, err)
		if !x.OK {
			t.Errorf("%d %s: wrong order %s %q %q, right order %s %q", e.Number, e.Title, x.Found.Bound, x.Found.Kind, x.Found.Violation, x.Proof.Bound, x.Proof.Violation)
		}
		t.Logf("%d %s: %s %s; %s", e.Number, x.Found.Bound, x.Found.Schedule, x.Found.Kind, x.Proof.Bound)
	}
}
