package kit_test

import (
	"strings"
	"testing"

	"btrlab/internal/iopath"
	"btrlab/internal/sched"
	"btrlab/labs/kit"
)

// lockSide is a write whose steps do nothing.
type lockSide struct {
	iopath.WriteSteps // what is not here is not called
}

func (lockSide) Share(*sched.Task)                    {}
func (lockSide) Alone(*sched.Task)                    {}
func (lockSide) Unlock(*sched.Task)                   {}
func (lockSide) Count(*sched.Task)                    {}
func (lockSide) Uncount(*sched.Task)                  {}
func (lockSide) Size(*sched.Task) uint64              { return 0 }
func (lockSide) Len() uint64                          { return 1 }
func (lockSide) Place(*sched.Task) uint64             { return 0 }
func (lockSide) Begin(*sched.Task) error              { return nil }
func (lockSide) Batch(*sched.Task, int) (bool, error) { return false, nil }

// TestLockedWrite: what no order can have is said in words, at once and without another task.
func TestLockedWrite(t *testing.T) {
	for _, tt := range []struct {
		calls string
		want  string
	}{
		{"lock place copy unlock", ""},
		{"share place begin unlock copy end", ""},
		{"lock lock", "Lock by a write that has i_rwsem"},
		{"share lock", "Lock by a write that has i_rwsem"},
		{"lock share", "Share by a write that has i_rwsem"},
		{"unlock", "Unlock by a write that has not got i_rwsem"},
		{"lock unlock unlock", "Unlock by a write that has not got i_rwsem"},
		{"lock copy", "Copy before Place"},
		{"place copy copy", "Copy twice"},
		{"end", "End without Begin"},
		{"begin begin", "Begin twice"},
		{"lock place copy", "returned with i_rwsem held"},
		{"share place copy", "returned with i_rwsem held"},
		{"begin place copy", "is still counted"},
		{"lock place unlock", "the bytes went nowhere"},
		{"none", "without a task"},
	} {
		got := func() (said string) {
			defer func() {
				if p := recover(); p != nil {
					said = p.(string)
				}
			}()
			_ = kit.RunLocked(func(t *kit.Task, w *kit.LockedWrite) {
				for _, c := range strings.Fields(tt.calls) {
					switch c {
					case "share":
						w.Share(t)
					case "lock":
						w.Lock(t)
					case "unlock":
						w.Unlock(t)
					case "place":
						w.Place(t)
					case "begin":
						w.Begin(t)
					case "end":
						w.End(t)
					case "copy":
						w.Copy(t)
					case "none":
						w.Place(nil)
					}
				}
			}, &sched.Task{}, lockSide{})
			return ""
		}()
		if !strings.Contains(got, tt.want) || tt.want == "" && got != "" {
			t.Errorf("%s: have %q want %q", tt.calls, got, tt.want)
		}
	}
}
