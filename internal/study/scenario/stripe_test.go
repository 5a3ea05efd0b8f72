package scenario

import (
	"strings"
	"testing"

	"btrlab/internal/judge/oracle"
	"btrlab/internal/policy"
	"btrlab/internal/sched/explore"
)

const noStripeLock = "locked+WRONG_STRIPE_UNLOCKED"

// TestStripeWriters: two writers of one full stripe, each of whom reads the other's device and
// writes P. With the stripe lock no schedule is left in which a block is lost with a device.
// Without it the first one does it, and its replay shows the same.
func TestStripeWriters(t *testing.T) {
	s, err := Lookup("stripe-writers")
	must(t, err)
	r, err := Run(s, policy.MustParse("locked"), Options{Config: func(c *explore.Config) { c.Method = explore.DPOR }})
	must(t, err)
	if r.Verdict != explore.Exhausted || r.Schedules < 1000 {
		t.Errorf("with the lock: %s: %s", r.Bound, r.Violation)
	}
	wrong := policy.MustParse(noStripeLock)
	if r, err = Run(s, wrong, Options{}); err != nil || r.Kind != explore.KindOracle || r.Schedules > 100 {
		t.Fatalf("without the lock: %s, %v: %s", r.Bound, err, r.Violation)
	}
	tr, err := Replay(s, wrong, r.Schedule, false)
	must(t, err)
	const want = "has returned, yet without device "
	if have := tr.Violation.String(); !strings.Contains(r.Violation.String(), want) || !strings.Contains(have, want) {
		t.Errorf("have %s\nand by the replay %s\nwant both to say %q", r.Violation, have, want)
	}
}

// TestStripeRead: while all devices are there the wrong order shows nothing. Without one of them a
// block is old, without another one it has bytes that no task has written, and without the third,
// which has P, nothing is wrong. Of RAID6 every two devices are left out as well.
func TestStripeRead(t *testing.T) {
	for _, c := range []struct {
		profile, policy    string
		reads, old, others int
	}{
		{"raid5", "locked", 2 + 3, 0, 0},
		{"raid5", noStripeLock, 2 + 3, 1, 1},
		{"raid6", "locked", 2 + 4 + 6, 0, 0},
		// P and Q fit one new block and one old: the old one comes back whatever else is lost, and
		// the other is wrong as long as the new one takes part
		{"raid6", noStripeLock, 2 + 4 + 6, 4, 3},
	} {
		s, err := Lookup("stripe-writers")
		must(t, err)
		n := *s
		n.Image, n.Profile = c.profile, c.profile
		var reads, old, others int
		s = n.WithEnd(func(h *oracle.History) error {
			reads++
			isOld, isOther := false, false
			for _, x := range h.Final {
				isOld = isOld || x.From == oracle.Initial && (x.Lo == 0 || x.Lo == unit)
				isOther = isOther || x.From == oracle.Foreign
			}
			if isOld {
				old++
			}
			if isOther {
				others++
			}
			return nil
		})
		r, err := Replay(s, policy.MustParse(c.policy), "", false)
		must(t, err)
		if r.Kind != explore.OK || reads != c.reads || old != c.old || others != c.others {
			t.Errorf("%s under %s: read %d times, %d old and %d other bytes, want %+v: %s", c.profile, c.policy, reads, old, others, c, r.Violation)
		}
	}
}

// TestStripeRAID6 searches a part of the same scenario on four devices, of which two may be lost.
func TestStripeRAID6(t *testing.T) {
	s, err := Lookup("stripe-writers")
	must(t, err)
	n := *s
	n.Image, n.Profile = "raid6", "raid6"
	for _, p := range []string{"locked", noStripeLock} {
		r, err := Run(&n, policy.MustParse(p), Options{Config: func(c *explore.Config) { c.Schedules = 300 }})
		must(t, err)
		if (r.Verdict == explore.Violated) != (p == noStripeLock) {
			t.Errorf("under %s: %s: %s", p, r.Bound, r.Violation)
		}
	}
}

// TestNoOneDisk: a scenario on several devices has no disk that a kernel could be given.
func TestNoOneDisk(t *testing.T) {
	s, err := Lookup("stripe-writers")
	must(t, err)
	if _, err := s.Disk(); err == nil || !strings.Contains(err.Error(), "have 3 devices, want one") {
		t.Errorf("have %v", err)
	}
}
