package movethewaits

import (
	"errors"
	"strings"
	"testing"

	"btrlab/internal/iopath"
	"btrlab/internal/sched"
	"btrlab/labs/kit"
)

// fakeFile is a file that nobody else uses, and notes what is done.
type fakeFile struct {
	iopath.WriteSteps // what is not here is not called

	outside bool  // the write ends beyond EOF
	ordered int   // how often an ordered extent is found
	space   error // of Reserve
	calls   []string
}

func (f *fakeFile) note(call string)                             { f.calls = append(f.calls, call) }
func (f *fakeFile) Range(*sched.Task) (start, end uint64)        { return 4096, 12288 }
func (f *fakeFile) Alone(*sched.Task)                            { f.note("lock") }
func (f *fakeFile) Unlock(*sched.Task)                           { f.note("unlock") }
func (f *fakeFile) Place(*sched.Task) uint64                     { return 4096 }
func (f *fakeFile) Begin(*sched.Task) error                      { return nil }
func (f *fakeFile) WaitWriteback(_ *sched.Task, from, to uint64) { f.note("writeback") }
func (f *fakeFile) WaitOrdered(_ *sched.Task, from, to uint64)   { f.note("ordered") }
func (f *fakeFile) Drain(*sched.Task)                            { f.note("drain") }
func (f *fakeFile) Reserve(*sched.Task) error                    { f.note("reserve"); return f.space }
func (f *fakeFile) LockPages(*sched.Task) error                  { f.note("pages"); return nil }
func (f *fakeFile) UnlockPages(*sched.Task)                      { f.note("drop") }
func (f *fakeFile) LockExtent(*sched.Task)                       { f.note("range") }
func (f *fakeFile) UnlockExtent(*sched.Task)                     { f.note("range_drop") }
func (f *fakeFile) Copy(*sched.Task)                             { f.note("copy") }
func (f *fakeFile) Balance(*sched.Task)                          { f.note("throttle") }

func (f *fakeFile) Size(*sched.Task) uint64 {
	if f.outside {
		return 8192
	}
	return 12288
}

func (f *fakeFile) Ordered(*sched.Task) bool {
	f.ordered--
	return f.ordered >= 0
}

// before reports whether the last call of the one comes before the last call of the other.
func (f *fakeFile) before(call, other string) bool {
	l := " " + strings.Join(f.calls, " ") + " "
	at := strings.LastIndex(l, " "+call+" ")
	return at >= 0 && at < strings.LastIndex(l, " "+other+" ")
}

// TestAlone: one write by itself: what must be done, and what comes before it. More is in btrlab
// lab grade 6.
func TestAlone(t *testing.T) {
	for _, tt := range []struct {
		name string
		file fakeFile
		err  error
	}{
		{"a file at rest", fakeFile{}, nil},
		{"a write beyond EOF", fakeFile{outside: true}, nil},
		{"an ordered extent, and one more", fakeFile{ordered: 2}, nil},
		{"no space", fakeFile{space: kit.ENOSPC}, kit.ENOSPC},
	} {
		f := tt.file
		if err := kit.RunWaits(Write, &sched.Task{}, &f); !errors.Is(err, tt.err) {
			t.Errorf("%s: have %v want %v", tt.name, err, tt.err)
		}
		if tt.err == nil && (!f.before("reserve", "copy") || !f.before("pages", "copy") || !f.before("range", "copy") || !f.before("writeback", "copy")) {
			t.Errorf("%s: %v", tt.name, f.calls)
		}
	}
}
