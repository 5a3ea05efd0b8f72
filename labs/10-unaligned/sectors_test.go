package unaligned

import (
	"slices"
	"strings"
	"testing"

	"btrlab/internal/sched"
	"btrlab/labs/kit"
)

// fakeSide is a write whose block is as it is told, and notes what is done.
type fakeSide struct {
	inside bool
	block  kit.Blocks
	calls  []string
}

func (f *fakeSide) note(call string)             { f.calls = append(f.calls, call) }
func (f *fakeSide) Share(*sched.Task)            { f.note("share") }
func (f *fakeSide) Alone(*sched.Task)            { f.note("alone") }
func (f *fakeSide) Unlock(*sched.Task)           { f.note("unlock") }
func (f *fakeSide) Inside() bool                 { return f.inside }
func (f *fakeSide) Look(*sched.Task) kit.Blocks  { return f.block }
func (f *fakeSide) Drain(*sched.Task)            { f.note("drain") }
func (f *fakeSide) Submit(*sched.Task) (ok bool) { f.note("submit"); return f.block != kit.Elsewhere }
func (f *fakeSide) Wait(*sched.Task)             { f.note("wait") }
func (f *fakeSide) Cache()                       { f.note("cache") }

// TestAlone: writes by themselves: where the bytes go, and what a block that is not written asks
// for. More is in btrlab lab grade 10.
func TestAlone(t *testing.T) {
	for _, tt := range []struct {
		name   string
		inside bool
		block  kit.Blocks
		want   string // the last calls
		has    string // a call before them
	}{
		{"written", true, kit.Written, "submit wait unlock", ""},
		{"not written", true, kit.Unwritten, "drain submit wait unlock", "alone"},
		{"a hole", true, kit.Elsewhere, "unlock cache", "alone"},
		{"beyond EOF", false, kit.Written, "unlock cache", ""},
	} {
		f := &fakeSide{inside: tt.inside, block: tt.block}
		kit.RunSectors(Write, &sched.Task{}, f)
		if got := strings.Join(f.calls, " "); !strings.HasSuffix(got, tt.want) || tt.has != "" && !slices.Contains(f.calls, tt.has) {
			t.Errorf("%s: %s; want %s at the end, and %q before", tt.name, got, tt.want, tt.has)
		}
	}
}
