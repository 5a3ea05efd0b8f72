// Package capstone is wrong: it makes an operation of its own.
package capstone

import "btrlab/labs/kit"

// Policy rests on the page locks: a batch holds those of all its pages while it copies, so two
// writes of one batch each do not mix. They share i_rwsem, which keeps out whatever cuts the file,
// makes a hole, or needs more than one batch inside it. A write that begins at the end of the file
// changes nothing that is there, and shares i_rwsem as well; the range from there on keeps such
// writes apart.
type Policy struct{}

// New makes the policy of a file.
func New() *Policy { return &Policy{} }

// Write shares i_rwsem where it may, and is alone otherwise. What it can wait for without the lock,
// it waits for without it.
func (p *Policy) Write(t *kit.Task, w *kit.WriteOp) {
	r := w.Range(t)
	switch size := w.Size(t); {
	case w.Appends(t) || r.Start == size:
		w.Share(t)
		w.LockRange(t, w.Range(t).Start, kit.EndOfFiles)
		if w.Appends(t) || r.Start == w.Size(t) { // nobody moves it now
			copyAll(t, w)
			w.UnlockRange(t)
			w.Unlock(t)
			w.Balance(t)
			return
		}
		w.UnlockRange(t)
		w.Unlock(t)
	case oneBatch(r) && r.End <= size:
		w.Prewait(t)
		w.Share(t)
		if r.End <= w.Size(t) { // nobody cuts it now
			copyAll(t, w)
			w.Unlock(t)
			w.Balance(t)
			return
		}
		w.Unlock(t)
	}
	w.Alone(t)
	copyAll(t, w)
	w.Unlock(t)
	w.Balance(t)
}

// copyAll writes all batches, under the locks that are held.
func copyAll(t *kit.Task, w *kit.WriteOp) {
	for more := w.Begin(t); more; {
		more = w.Batch(t, kit.BatchMax)
	}
}

// oneBatch reports whether the pages of r are never more than a batch.
func oneBatch(r kit.Range) bool {
	first, last := r.Start/kit.PageBytes, (r.End-1)/kit.PageBytes
	return last-first < kit.BatchMin
}

// Read needs no lock: a reader sees each page as it is.
func (p *Policy) Read(t *kit.Task, r *kit.ReadOp) { kit.PolicyRunner{Policy: p}.Read(nil, nil) }

// Truncate is alone. Direct reads and writes in flight hold nothing and are counted, so it waits
// for them before their blocks are free. Those that begin after SetSize see the new size: to wait
// before it would let a read in between.
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
	x.Alone(t)
	x.Change(t)
	x.Unlock(t)
}

// Fsync needs no lock: it promises what was written before it began, and that stays dirty, under
// writeback or in the trees.
func (p *Policy) Fsync(t *kit.Task, x *kit.FsyncOp) {
	x.Flush(t)
	x.Commit(t)
}
