package mkfs_test

import (
	"testing"

	"btrlab/internal/blockdev"
	"btrlab/internal/progs/mkfs"
	"btrlab/internal/sched"
	"btrlab/internal/testing/fstest"
)

// Each feature that can be chosen is in the superblock of what is made, under the number that Linux
// has for it, and no other comes or goes with it.
func TestFeatureFlags(t *testing.T) {
	// mixed_backref, big_metadata, extended_iref, skinny_metadata and no_holes
	const usual = 1<<0 | 1<<5 | 1<<6 | 1<<8 | 1<<9
	for _, k := range []struct {
		feature          string
		more, less       uint64 // incompat flags
		compatRO, compat uint64
	}{
		{"", 0, 0, 3, 0},                   // free_space_tree and its valid flag
		{"mixed-bg", 1 << 2, 1 << 5, 3, 0}, // with nodes of a sector
		{"^skinny-metadata", 0, 1 << 8, 3, 0},
		{"^no-holes", 0, 1 << 9, 3, 0},
		{"block-group-tree", 0, 0, 3 | 1<<3, 0},
	} {
		task, dev := sched.NewTask("test"), blockdev.NewMemory(256<<20)
		var o mkfs.Options
		if k.feature != "" {
			if err := o.SetFeatures([]string{k.feature}); err != nil {
				t.Fatal(err)
			}
		}
		if err := mkfs.Make(task, dev, o); err != nil {
			t.Fatalf("%s: %v", k.feature, err)
		}
		sb := fstest.SuperOn(t, task, dev)
		want := (usual | k.more) &^ k.less
		if sb.IncompatFlags != want || sb.CompatROFlags != k.compatRO || sb.CompatFlags != k.compat {
			t.Errorf("%q: incompat %#x want %#x, compat_ro %#x want %#x, compat %#x", k.feature, sb.IncompatFlags, want, sb.CompatROFlags, k.compatRO, sb.CompatFlags)
		}
		if msg := fstest.Findings(task, dev); msg != "" {
			t.Errorf("%q: %s", k.feature, msg)
		}
	}
}
