package disk

import (
	"errors"
	"math"
	"os"
	"testing"

	"btrlab/internal/sched"
	"btrlab/internal/sched/explore"
	"btrlab/labs/kit"
	"btrlab/labs/kit/starter"
)

func TestMain(m *testing.M) {
	os.Exit(starter.Main(m, "disk.go", "3de43dc5a795e12c72c85adb9532b99102465c2f6d498fe546545643f0d64955"))
}

// cache is the disk of the test: writes that were answered, and how many of them are durable.
type cache struct {
	at                explore.Atomic[int]
	answered, durable int
	failing           bool
}

func (c *cache) Connection() int { return 0 }

func (c *cache) Sync(t *sched.Task) error {
	covers := 0
	c.at.Update(t, func(n int) int { covers = c.answered; return n + 1 })
	c.at.Update(t, func(n int) int { c.durable = max(c.durable, covers); return n + 1 })
	if c.failing {
		return errors.New("the device is gone")
	}
	return nil
}

// TestTwo explores two connections that write and flush. More is in btrlab lab grade 16.
func TestTwo(t *testing.T) {
	x := explore.Run(explore.Config{}, func(w *explore.World) {
		var c cache
		f := New()
		for _, name := range []string{"a", "b"} {
			w.Go(name, func(t *sched.Task) {
				covers := 0
				c.at.Update(t, func(n int) int { c.answered++; covers = c.answered; return n + 1 })
				err := kit.RunFlush(f, kit.On(t), &c)
				c.at.Update(t, func(n int) int {
					if err == nil && c.durable < covers {
						panic("a flush has returned nil, and a power cut loses a write that was answered before it came")
					}
					return n + 1
				})
			})
		}
	})
	if x.Verdict != explore.Exhausted {
		t.Errorf("%s: %s, schedule %q", x.Bound, x.Violation, x.Schedule)
	}
}

// TestFails: an error is told, and not again.
func TestFails(t *testing.T) {
	explore.Run(explore.Config{}, func(w *explore.World) {
		w.Go("a", func(task *sched.Task) {
			c := cache{failing: true}
			f := New()
			if kit.RunFlush(f, kit.On(task), &c) == nil {
				t.Error("the Sync has failed, and nobody is told")
			}
			c.failing = false
			if err := kit.RunFlush(f, kit.On(task), &c); err != nil {
				t.Errorf("told again: %v", err)
			}
		})
	})
}

// TestPredict: one connection alone has what was measured of it.
func TestPredict(t *testing.T) {
	x := Predict(kit.SyncProfile{Think: 3e6, Write: 1e6, Sync: 4e6}, 1)
	if math.Abs(x.PerSecond-125) > 1e-6 || math.Abs(x.Latency-5e6) > 1 {
		t.Errorf("%+v, want 125 flushes a second and 5000000 ns", x)
	}
}
