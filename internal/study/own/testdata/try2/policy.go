// Package share lets overwrites go on beside each other: a try of labs/guide/own-policy.md.
package share

import "btrlab/labs/kit"

// Policy is the locking policy of one file, shared by the tasks that use it: each field is a
// kit.Mutex, a kit.Cond, a kit.Var or a struct of these.
type Policy struct{}

// New makes the policy of a file.
func New() *Policy { return &Policy{} }

// Write shares i_rwsem inside the file.
func (p *Policy) Write(t *kit.Task, w *kit.WriteOp) {
	inside := w.Range(t).End <= w.Size(t)
	if inside {
		w.Share(t)
	} else {
		w.Alone(t)
	}
	for more := w.Begin(t); more; {
		w.Balance(t)
		more = w.Batch(t, kit.BatchMax)
	}
	w.Unlock(t)
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
