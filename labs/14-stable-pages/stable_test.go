package stable

import (
	"math"
	"os"
	"slices"
	"testing"

	"btrlab/internal/iopath"
	"btrlab/internal/sched"
	"btrlab/labs/kit"
	"btrlab/labs/kit/starter"
)

func TestMain(m *testing.M) {
	os.Exit(starter.Main(m, "stable.go", "a03fd021ec65ac0259684a932bacf28cad368d5d93f72baee56607de0119147f"))
}

// fake is a write and a run by themselves. It notes what is done.
type fake struct {
	iopath.WriteSteps // what is not here is not called

	calls []string
}

func (f *fake) note(call string)                          { f.calls = append(f.calls, call) }
func (f *fake) Range(*sched.Task) (start, end uint64)     { return 0, 4096 }
func (f *fake) Size(*sched.Task) uint64                   { return 8192 }
func (f *fake) Alone(*sched.Task)                         { f.note("alone") }
func (f *fake) Unlock(*sched.Task)                        { f.note("unlock") }
func (f *fake) Place(*sched.Task) uint64                  { return 0 }
func (f *fake) Begin(*sched.Task) error                   { return nil }
func (f *fake) WaitWriteback(*sched.Task, uint64, uint64) { f.note("wait") }
func (f *fake) WaitOrdered(*sched.Task, uint64, uint64)   { f.note("ordered") }
func (f *fake) Drain(*sched.Task)                         { f.note("drain") }
func (f *fake) Reserve(*sched.Task) error                 { f.note("reserve"); return nil }
func (f *fake) LockPages(*sched.Task) error               { f.note("pages"); return nil }
func (f *fake) UnlockPages(*sched.Task)                   { f.note("unpage") }
func (f *fake) LockExtent(*sched.Task)                    { f.note("range") }
func (f *fake) UnlockExtent(*sched.Task)                  { f.note("unrange") }
func (f *fake) Ordered(*sched.Task) bool                  { return false }
func (f *fake) Copy(*sched.Task)                          { f.note("copy") }
func (f *fake) Balance(*sched.Task)                       { f.note("throttle") }
func (f *fake) Sum(*sched.Task)                           { f.note("sum") }
func (f *fake) Submit(*sched.Task)                        { f.note("submit") }
func (f *fake) before(calls []string, call, other string) bool {
	at := slices.Index(calls, call)
	return at >= 0 && at < slices.Index(calls, other)
}

// TestAlone: either a write waits for the device with its pages locked, or the device is given a
// copy that was made with the pages locked. More is in btrlab lab grade 14.
func TestAlone(t *testing.T) {
	var w, r fake
	if err := kit.RunWaits(Write, &sched.Task{}, &w); err != nil {
		t.Error(err)
	}
	kit.DevicePath(Device).Run(&sched.Task{}, &r)
	locked := w.calls[max(slices.Index(w.calls, "pages"), 0):]
	if !w.before(locked, "wait", "copy") && !r.before(r.calls, "copy", "unlock") {
		t.Errorf("a write does %q, the device %q: what keeps the bytes as they were summed?", w.calls, r.calls)
	}
}

// TestPredict: a device that takes no time makes nobody wait.
func TestPredict(t *testing.T) {
	x := Predict(kit.HotPage{Every: 1e6, Think: 99_000, Write: 1_000})
	if math.Abs(x.Stable-1e4) > 1 || math.Abs(x.Copied-1e4) > 1 {
		t.Errorf("%+v, want 10000 rewrites a second for both", x)
	}
}
