// Package share lets overwrites go on beside each other: a try of labs/guide/own-policy.md.
package share

import "btrlab/labs/kit"

// Policy is the locking policy of one file, shared by the tasks that use it: each field is a
// kit.Mutex, a kit.Cond, a kit.Var or a struct of these.
type Policy struct{}

// New makes the policy of a file.
func New() *Policy { return &Policy{} }

// Write shares i_rwsem inside the file when it fits in a batch, and is throttled without a lock.
func (p *Policy) Write(t *kit.Task, w *kit.WriteOp) {
	r := w.Range(t)
	if r.Start/kit.PageBytes+kit.BatchMin > (r.End-1)/kit.PageBytes {
		w.Share(t)
		if w.Size(t) >= r.End { // no truncate comes between now
			batches(t, w)
			w.Unlock(t)
			w.Balance(t)
			return
		}
		w.Unlock(t)
	}
	w.Alone(t)
	batches(t, w)
	w.Unlock(t)
	w.Balance(t)
}

// batches copies all batches, under the locks that are held.
func batches(t *kit.Task, w *kit.WriteOp) {
	for more := w.Begin(t); more; {
		more = w.Batch(t, kit.BatchMax)
	}
}

// Read needs no lock: a reader sees each page as it is.
func (p *Policy) Read(t *kit.Task, r *kit.ReadOp) {
	r.Copy(t)
}

// Truncate is alone, and waits for what is in flight before its blocks are free.
func (p *Policy) Truncate(t *kit.Task, x *kit.TruncateOp) {
	x.Alone(t)
	cuts := x.SetSize(t)
	if cuts {
		x.Drain(t)
		x.DropExtents(t)
	}
	x.Unlock(t)
}

// Fallocate is alone.
func (p *Policy) Fallocate(t *kit.Task, x *kit.FallocateOp) {
	x.Alone(t)
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
