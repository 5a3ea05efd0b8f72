package scenario

import (
	"testing"

	"btrlab/internal/policy"
	"btrlab/internal/sched/explore"
)

// Two neighbouring steps of a batch change places: every such order runs to an end, and the
// explorer says which of them one writer and writeback can tell from the right one. It is the
// ground on which a lab about the order of a write would stand.
func TestWriteOrders(t *testing.T) {
	right := policy.ForWrite(policy.Facts{}, policy.MustParse("locked")).Steps
	wrong := map[[2]policy.WriteStep]explore.Kind{
		// waits for space with pages locked
		{policy.PreparePages, policy.Reserve}:    explore.KindOrder,
		{policy.LockExtent, policy.PreparePages}: explore.KindOrder, // museum number 25
		// nothing is copied yet, so the reservation goes back
		{policy.SetDelalloc, policy.CopyFromUser}: explore.KindPanic,
		// a page can be written back, or dropped as beyond EOF, before i_size says what it has
		{policy.DropPages, policy.ISizeWrite}: explore.KindOracle,
	}
	for i := range right[1:] {
		p := policy.MustParse("locked")
		p.WriteSteps = right
		p.WriteSteps[i], p.WriteSteps[i+1] = right[i+1], right[i]
		if err := policy.CheckWriteOrder(p.WriteSteps[:]); err != nil {
			t.Error(err)
		}
		have := explore.Kind("")
		for _, name := range []string{"append-writeback", "short-copy", "mmap-source"} {
			s, err := Lookup(name)
			must(t, err)
			r, err := Run(s, p, Options{Config: func(c *explore.Config) { c.Schedules = 300 }})
			must(t, err)
			if have == "" {
				have = r.Kind
			}
		}
		if want := wrong[[2]policy.WriteStep{right[i+1], right[i]}]; have != want {
			t.Errorf("%v before %v: have %q want %q", right[i+1], right[i], have, want)
		}
	}
}
