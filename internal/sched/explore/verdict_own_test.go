package explore

import "testing"

// A panic in a policy of somebody's own shows the lines of that policy, and one of the engine shows
// its stack.
func TestOwnFrames(t *testing.T) {
	engine := Frame{"btrlab/internal/iopath/buffered.Write", "write.go", 115}
	v := Violation{Kind: KindPanic, Lead: "task 0 writer", What: "Unlock without i_rwsem", At: Stack{
		{"btrlab/labs/kit.(*op).Unlock", "policy.go", 112}, {"btrlab/labs/_grade/own-32/own0.(*Policy).Write", "policy.go", 28},
		{"btrlab/labs/03-unlocked-writes.done.func1", "unlock.go", 7}, engine}}
	want := "task 0 writer: Unlock without i_rwsem\n(*Policy).Write policy.go:28\ndone.func1 unlock.go:7"
	if have := v.String(); have != want {
		t.Errorf("have %q want %q", have, want)
	}
	v.At = Stack{engine}
	if want := "task 0 writer: Unlock without i_rwsem\nbtrlab/internal/iopath/buffered.Write write.go:115"; v.String() != want {
		t.Errorf("have %q want %q", v.String(), want)
	}
}
