package scenario

import (
	"os"
	"strings"
	"testing"
	"time"

	"btrlab/internal/iopath/policy"
	"btrlab/internal/sched"
	"btrlab/internal/sched/explore"
)

func TestMain(m *testing.M) {
	sched.SetChecked(true)
	os.Exit(m.Run())
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// The truncate race of seed 002 (kernel-semantics 1.3): as posted the truncate is lost, with the wait first it is not. The
// schedule is the shortest there is: one preemption.
func TestTruncateRace(t *testing.T) {
	s, err := Lookup("truncate-race")
	must(t, err)
	r, err := Run(s, policy.MustParse("unlocked"), Options{})
	must(t, err)
	t.Logf("%+v", r)
	if r.Verdict != explore.Violated || r.Preemptions != 1 || r.Schedules > 200 {
		t.Fatalf("%+v", r)
	}
	tr, err := Replay(s, policy.MustParse("unlocked"), r.Schedule, false)
	must(t, err)
	var b strings.Builder
	must(t, tr.WriteText(&b))
	t.Log("\n" + b.String())
	start := time.Now()
	r, err = Run(s, policy.MustParse("unlocked-drain"), Options{Config: func(c *explore.Config) { c.Time = 20 * time.Second }})
	must(t, err)
	t.Logf("%+v %v", r, time.Since(start))
	if r.Verdict == explore.Violated {
		t.Fatalf("%+v", r)
	}
}
