package unlocked

import (
	"os"
	"slices"
	"sync"
	"testing"

	"btrlab/internal/iopath"
	"btrlab/internal/sched"
	"btrlab/labs/kit"
	"btrlab/labs/kit/starter"
)

func TestMain(m *testing.M) {
	os.Exit(starter.Main(m, "unlock.go", "d3bbf738cc66768aa3af0ab142bd283f7612ff0af407bb37b45a6b5a9be71d54"))
}

// fakeWrite is a write by itself. It notes the calls.
type fakeWrite struct {
	iopath.WriteSteps // what is not here is not called

	pos, n, isize uint64
	calls         []string
}

func (f *fakeWrite) note(call string)              { f.calls = append(f.calls, call) }
func (f *fakeWrite) Share(*sched.Task)             { f.note("lock") }
func (f *fakeWrite) Alone(*sched.Task)             { f.note("lock") }
func (f *fakeWrite) Unlock(*sched.Task)            { f.note("unlock") }
func (f *fakeWrite) Count(*sched.Task)             { f.note("begin") }
func (f *fakeWrite) Uncount(*sched.Task)           { f.note("end") }
func (f *fakeWrite) Size(*sched.Task) (end uint64) { return f.isize }
func (f *fakeWrite) Len() (bytes uint64)           { return f.n }
func (f *fakeWrite) Place(*sched.Task) uint64      { f.note("place"); return f.pos }
func (f *fakeWrite) Begin(*sched.Task) error       { f.note("copy"); return nil }

func (f *fakeWrite) Batch(*sched.Task, int) (more bool, err error) { return false, nil }

// TestAlone: a write by itself, inside EOF and not: whether the lock is held at its copy. More is
// in btrlab lab grade 3.
func TestAlone(t *testing.T) {
	for _, tt := range []struct {
		name   string
		write  fakeWrite
		inside bool
	}{
		{"inside EOF", fakeWrite{pos: 4096, n: 4096, isize: 16384}, true},
		{"beyond EOF", fakeWrite{pos: 16384, n: 4096, isize: 16384}, false},
		{"across EOF", fakeWrite{pos: 12288, n: 8192, isize: 16384}, false},
	} {
		f := tt.write
		if have := CanUnlock(f.pos, f.n, f.isize); have != tt.inside {
			t.Errorf("%s: CanUnlock(%d, %d, %d) is %v", tt.name, f.pos, f.n, f.isize, have)
		}
		if err := kit.RunLocked(Write, &sched.Task{}, &f); err != nil {
			t.Error(err)
		}
		locked, counted, ok := false, false, false
		for _, c := range f.calls {
			switch c {
			case "lock", "unlock":
				locked = c == "lock"
			case "begin", "end":
				counted = c == "begin"
			case "copy":
				ok = locked != tt.inside && counted == tt.inside
			}
		}
		if first := slices.Index(f.calls, "lock"); !ok || first < 0 || !slices.Contains(f.calls[first:], "place") {
			t.Errorf("%s: %v", tt.name, f.calls)
		}
	}
}

// TestTogether: writes of different files have nothing in common: each takes the locks that it
// takes alone. go test -race says so, too.
func TestTogether(t *testing.T) {
	calls := func(isize uint64) []string {
		f := fakeWrite{pos: 4096, n: 4096, isize: isize}
		if err := kit.RunLocked(Write, &sched.Task{}, &f); err != nil {
			t.Error(err)
		}
		return f.calls
	}
	var all sync.WaitGroup
	for i := range uint64(4) {
		alone := calls(4096 << i)
		all.Go(func() {
			for range 100 {
				if have := calls(4096 << i); !slices.Equal(have, alone) {
					t.Errorf("beside others %v, alone %v", have, alone)
					return
				}
			}
		})
	}
	all.Wait()
}
