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

// A file system that was put back is one that was just opened: after thousands of executions, many of them given up in the middle, every
// scenario takes the same steps as on a fresh one, and ends with the same state.
func TestRestore(t *testing.T) {
	for _, s := range All() {
		cfg, err := s.Config()
		must(t, err)
		p := policy.MustParse("unlocked")
		fresh, err := s.Program(p, true)
		must(t, err)
		want := explore.Replay(cfg, "", fresh)
		dev, err := s.prepare()
		must(t, err)
		o, n := s.open(dev, p), 0
		prog := func(w *explore.World) { n++; o.start(s, w, p, s.rule(p, true)) }
		c := cfg
		c.Method, c.All, c.NoShrink, c.Schedules = explore.Random, true, true, 200
		explore.Run(c, prog)
		c.Method = explore.Bound // many of these are cut off in the middle
		explore.Run(c, prog)
		got := explore.Replay(cfg, "", prog)
		if n < 200 || len(got.Steps) != len(want.Steps) {
			t.Fatalf("%s: %d runs, %d steps want %d (%v %s)", s.Name, n, len(got.Steps), len(want.Steps), got.Verdict, got.Message)
		}
		for i := range got.Steps {
			if got.Steps[i] != want.Steps[i] || strings.Join(got.Details[i].State, " ") != strings.Join(want.Details[i].State, " ") {
				t.Fatalf("%s: step %d is %+v %v, want %+v %v", s.Name, i, got.Steps[i], got.Details[i].State, want.Steps[i], want.Details[i].State)
			}
		}
	}
}
