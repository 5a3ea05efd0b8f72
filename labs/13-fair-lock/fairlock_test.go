package fairlock

import (
	"os"
	"testing"

	"btrlab/internal/sched"
	"btrlab/internal/sched/explore"
	"btrlab/labs/kit"
	"btrlab/labs/kit/starter"
)

func TestMain(m *testing.M) {
	os.Exit(starter.Main(m, "fairlock.go", "e8bd418b8d0be74d115887a54d665194eb27907b8eb9b7eaffbb70e74f5222fa"))
}

// TestPassed explores a task that wants a range once and another one that takes it four times: at
// most two of these come after the first has begun to wait. More is in btrlab lab grade 13.
func TestPassed(t *testing.T) {
	x := explore.Run(explore.Config{}, func(w *explore.World) {
		l := New()
		var asked explore.Atomic[int]
		waits, passed := false, 0
		w.Go("once", func(t *sched.Task) {
			l.Lock(kit.Watched(t, func() { asked.Update(t, func(n int) int { return n + 1 }); waits = true }), 0, 8)
			waits = false
			l.Unlock(kit.On(t), 0, 8)
		})
		w.Go("again", func(t *sched.Task) {
			for range 4 {
				asked.Update(t, func(n int) int { return n + 1 })
				late := waits
				l.Lock(kit.On(t), 0, 8)
				if late && waits {
					passed++
				}
				l.Unlock(kit.On(t), 0, 8)
			}
		})
		w.Check(func() error {
			if passed > 2 {
				t.Errorf("a task waits, and %d later requests were granted", passed)
			}
			return nil
		})
	})
	if x.Verdict != explore.Exhausted {
		t.Errorf("%s: %s, schedule %q", x.Bound, x.Violation, x.Schedule)
	}
}
