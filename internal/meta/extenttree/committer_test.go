package extenttree

import (
	"strings"
	"testing"

	"btrlab/internal/sched"
)

// Two tasks that run references at once would share the committer's paths. The second one must not
// get far.
func TestOneCommitter(t *testing.T) {
	var e ExtentTree
	first, second := sched.NewTask("first"), sched.NewTask("second")
	e.enter(first)
	e.leave()
	e.enter(first)
	for _, run := range []func() error{
		func() error { return e.RunDelayedRefs(second, nil, true) },
		func() error { return e.WriteDirtyGroups(second, nil) },
	} {
		func() {
			defer func() {
				if s, _ := recover().(string); !strings.Contains(s, "second runs references while first does") {
					t.Errorf("have panic %q", s)
				}
			}()
			_ = run()
		}()
	}
}
