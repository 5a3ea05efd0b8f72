package capstone

import (
	"os"
	"slices"
	"strings"
	"testing"

	"btrlab/internal/iopath"
	"btrlab/internal/sched"
	"btrlab/labs/kit"
	"btrlab/labs/kit/starter"
)

func TestMain(m *testing.M) {
	os.Exit(starter.Main(m, "policy.go", "8349b719d061069e37cd3b25ad5d51f437ddda897c42811e2e3617b1eca3632a"))
}

// file is a file of 64 KiB that notes what is done to it. A write of it has two batches.
type file struct {
	iopath.WriteSteps // what is not here is not called

	calls   []string
	start   uint64 // of the operation
	batches int
}

func (f *file) note(call string)                      { f.calls = append(f.calls, call) }
func (f *file) Share(*sched.Task)                     { f.note("share") }
func (f *file) Alone(*sched.Task)                     { f.note("alone") }
func (f *file) Unlock(*sched.Task)                    { f.note("unlock") }
func (f *file) LockRange(*sched.Task, uint64, uint64) { f.note("lock-range") }
func (f *file) UnlockRange(*sched.Task)               { f.note("unlock-range") }
func (f *file) Count(*sched.Task)                     { f.note("count") }
func (f *file) Uncount(*sched.Task)                   { f.note("uncount") }
func (f *file) Drain(*sched.Task)                     { f.note("drain") }
func (f *file) Size(*sched.Task) uint64               { return 64 << 10 }
func (f *file) Range(*sched.Task) (start, end uint64) { return f.start, f.start + 40<<10 }
func (f *file) Appends() bool                         { return false }
func (f *file) Prewait(*sched.Task)                   { f.note("prewait") }
func (f *file) Place(*sched.Task) uint64              { return f.start }
func (f *file) Begin(*sched.Task) error               { f.note("begin"); return nil }
func (f *file) Balance(*sched.Task)                   { f.note("balance") }
func (f *file) Copy(*sched.Task)                      { f.note("copy") }
func (f *file) NewSize() uint64                       { return f.start }
func (f *file) SetSize(*sched.Task) bool              { f.note("set-size"); return f.start < 64<<10 }
func (f *file) DropExtents(*sched.Task)               { f.note("drop-extents") }
func (f *file) Punches() bool                         { return true }
func (f *file) Change(*sched.Task)                    { f.note("change") }
func (f *file) Start(*sched.Task)                     { f.note("start") }
func (f *file) Flush(*sched.Task)                     { f.note("flush") }
func (f *file) Commit(*sched.Task)                    { f.note("commit") }
func (f *file) Batch(*sched.Task, int) (more bool, err error) {
	f.note("batch")
	f.batches++
	return f.batches < 2, nil
}

// TestAlone: each operation by itself, inside the file and beyond its end: its steps are all taken.
// Whether the locks are right, the explorer says: btrlab lab grade 12.
func TestAlone(t *testing.T) {
	for _, start := range []uint64{0, 32 << 10, 128 << 10} {
		for _, tt := range []struct {
			name, want string
			run        func(p kit.PolicyRunner, t *sched.Task, f *file)
		}{
			{"write", "begin batch batch", func(p kit.PolicyRunner, t *sched.Task, f *file) { _ = p.Write(t, f) }},
			{"read", "copy", func(p kit.PolicyRunner, t *sched.Task, f *file) { p.Read(t, f) }},
			{"truncate", "set-size", func(p kit.PolicyRunner, t *sched.Task, f *file) { p.Truncate(t, f) }},
			{"fallocate", "change", func(p kit.PolicyRunner, t *sched.Task, f *file) { p.Fallocate(t, f) }},
			{"fsync", "flush commit", func(p kit.PolicyRunner, t *sched.Task, f *file) { p.Fsync(t, f) }},
		} {
			f := &file{start: start}
			func() {
				defer func() {
					if p := recover(); p != nil {
						t.Errorf("%s at %d: %v", tt.name, start, p)
					}
				}()
				tt.run(kit.PolicyRunner{Policy: New()}, &sched.Task{}, f)
			}()
			steps := strings.Fields(tt.want)
			did := slices.DeleteFunc(f.calls, func(c string) bool { return !slices.Contains(steps, c) })
			if got := strings.Join(did, " "); got != tt.want {
				t.Errorf("%s at %d: have steps %q want %q", tt.name, start, got, tt.want)
			}
		}
	}
}
