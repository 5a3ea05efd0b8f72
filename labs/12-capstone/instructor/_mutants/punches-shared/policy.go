// Package capstone is wrong: a hole is punched beside writers.
package capstone

import "btrlab/labs/kit"

// Policy keeps writers apart by their ranges. One that makes the file longer has all bytes from the
// end of the file on, so there is one of them at a time; those inside the file go on beside it.
// Truncates and holes take i_rwsem alone.
type Policy struct{}

// New makes the policy of a file.
func New() *Policy { return &Policy{} }

// Write locks the tail of the file if it moves the end. One that leaves a gap is alone, for the
// zeros in it.
func (p *Policy) Write(t *kit.Task, w *kit.WriteOp) {
	w.Share(t)
	if w.Range(t).Start > w.Size(t) {
		w.Unlock(t)
		w.Alone(t)
	}
	r := w.Range(t)
	if w.Appends(t) || r.End > w.Size(t) {
		w.LockRange(t, min(r.Start, w.Size(t)), kit.EndOfFiles)
	} else {
		w.LockRange(t, r.Start, r.End)
	}
	for more := w.Begin(t); more; {
		more = w.Batch(t, kit.BatchMax)
	}
	w.UnlockRange(t)
	w.Unlock(t)
	w.Balance(t)
}

// Read needs no lock.
func (p *Policy) Read(t *kit.Task, r *kit.ReadOp) { r.Copy(t) }

// Truncate is alone, and waits for direct I/O before it drops extents.
func (p *Policy) Truncate(t *kit.Task, x *kit.TruncateOp) {
	x.Alone(t)
	if x.SetSize(t) {
		x.Drain(t)
		x.DropExtents(t)
	}
	x.Unlock(t)
}

// Fallocate is alone.
func (p *Policy) Fallocate(t *kit.Task, x *kit.FallocateOp) {
	x.Share(t)
	x.Change(t)
	x.Unlock(t)
}

// Fsync starts writeback before it has the lock, as btrfs does.
func (p *Policy) Fsync(t *kit.Task, x *kit.FsyncOp) {
	x.Start(t)
	x.Alone(t)
	x.Flush(t)
	x.Unlock(t)
	x.Commit(t)
}
