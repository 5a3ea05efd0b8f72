package fs

import (
	"btrlab/internal/meta/ctree"
	"btrlab/internal/policy"
	"btrlab/internal/sched"
)

// steps are those of the file system in the place of which the museum puts a wrong one.
type steps struct {
	// numberInodes finds the number of the next inode of a subvolume whose log was replayed.
	numberInodes func(f *FS, t *sched.Task, v *subvol) error
	// forceDataCOW counts by the snapshots that are being made of a subvolume, whose data is not
	// written in place meanwhile.
	forceDataCOW func(r *ctree.Root, t *sched.Task, by int32)
}

// museum makes the steps those of p, wrong orders included; policy.Toggle.Does describes them.
func (f *FS) museum(p *policy.Policy) {
	f.steps = steps{numberInodes: (*FS).numberInodes, forceDataCOW: (*ctree.Root).ForceDataCOW}
	if p.Wrong(policy.WrongLogOldNumbers) {
		f.steps.numberInodes = func(*FS, *sched.Task, *subvol) error { return nil }
	}
	if p.Wrong(policy.WrongSnapshotInPlace) {
		f.steps.forceDataCOW = func(*ctree.Root, *sched.Task, int32) {}
	}
	f.read.SetAheadUnlocked(p.Wrong(policy.WrongReadAheadUnlocked))
	f.vols.SetStripesUnlocked(p.Wrong(policy.WrongStripeUnlocked))
}
