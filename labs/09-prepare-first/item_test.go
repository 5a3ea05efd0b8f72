package preparefirst

import (
	"strings"
	"testing"

	"btrlab/internal/sched"
	"btrlab/labs/kit"
)

// fakeLog is a log that is as it is told, and notes what is done.
type fakeLog struct {
	again bool
	calls []string
}

func (f *fakeLog) note(call string)               { f.calls = append(f.calls, call) }
func (f *fakeLog) Again() bool                    { return f.again }
func (f *fakeLog) Prepare(*sched.Task)            { f.note("prepare") }
func (f *fakeLog) Sums(*sched.Task) error         { f.note("sums"); return nil }
func (f *fakeLog) Drop(*sched.Task) (bool, error) { f.note("drop"); return true, nil }
func (f *fakeLog) Insert(*sched.Task) error       { f.note("insert"); return nil }
func (f *fakeLog) Fill(*sched.Task)               { f.note("write") }
func (f *fakeLog) Copy(*sched.Task)               { f.note("write") }
func (f *fakeLog) Release(*sched.Task)            { f.note("release") }
func (f *fakeLog) at(call string) (last int) {
	return strings.LastIndex(strings.Join(f.calls, " "), call)
}
func (f *fakeLog) has(call string) (there bool)   { return f.at(call) >= 0 }
func (f *fakeLog) before(call, other string) bool { return f.has(call) && f.at(call) < f.at(other) }

// TestAlone: one extent by itself: what must be done, and what comes before it. More is in btrlab
// lab grade 9.
func TestAlone(t *testing.T) {
	for _, tt := range []struct {
		name string
		log  fakeLog
	}{
		{"a file that is new in the log", fakeLog{}},
		{"one that it has", fakeLog{again: true}},
	} {
		f := tt.log
		if err := kit.LogPath(Put).Run(&sched.Task{}, &f); err != nil {
			t.Errorf("%s: %v", tt.name, err)
		}
		if !f.has("sums") || !f.before("write", "release") || f.again && !f.before("drop", "write") {
			t.Errorf("%s: %v", tt.name, f.calls)
		}
	}
}
