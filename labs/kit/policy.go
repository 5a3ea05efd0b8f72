package kit

import (
	"btrlab/internal/iopath"
	"btrlab/internal/sched"
)

// Policy is a locking policy for one file: each method carries out one operation on it, by the
// steps of what it is handed. The grader makes one for every file; what a Policy keeps in fields is
// shared by the tasks that use the file.
//
// Every operation is handed the locks of the file, which its methods Share, Alone, Unlock,
// LockRange, UnlockRange, Count, Uncount, Drain and Size use:
//
//	Share, Alone, Unlock        i_rwsem: any number of readers, or one writer
//	LockRange, UnlockRange      one range of bytes, rounded to blocks; ranges of two tasks do not overlap. After i_rwsem, never before it
//	Count, Uncount, Drain       i_dio_count: operations in flight that hold no lock. Drain waits until it is zero
//	Size                        i_size now. It stays only under a lock that keeps all others from changing it
//
// TryShare, TryAlone and TryLockRange take the same locks where that needs no wait, and report
// whether they have; false has taken nothing.
//
// A use that no policy can have, or one that leaves something undone, is a panic in words.
// Everything else is allowed, and judged by what it does.
type Policy interface {
	Write(t *Task, w *WriteOp)
	Read(t *Task, r *ReadOp)
	Truncate(t *Task, x *TruncateOp)
	Fallocate(t *Task, x *FallocateOp)
	Fsync(t *Task, x *FsyncOp)
}

// The pages of a batch. The copy loop locks all pages of a batch together; the file system may take
// fewer than it is asked for while much is dirty, but never fewer than BatchMin unless it is asked
// to, and one page at a time after a copy that came short.
const (
	BatchOne = 1
	BatchMin = 8
	BatchMax = 512
)

// PageBytes is the size of a page, and of a block.
const PageBytes = 4096

// EndOfFiles is an end beyond every file, for ranges.
const EndOfFiles = 1 << 63

// op is what the operations have in common: the locks of the file, and what the operation holds of
// them.
type op struct {
	side    iopath.FileSteps
	task    *sched.Task // whose operation it is
	name    string      // of the type, for panics
	over    bool        // the method of the policy has returned
	shared  bool
	alone   bool
	ranged  bool
	counted bool
}

// use panics unless the operation is t's and is not over.
func (o *op) use(t *Task, call string) {
	t.need(o.name, call, "the method was")
	switch {
	case o.over:
		o.wrong(call, "after the operation: its method has returned")
	case t.t != o.task:
		o.wrong(call, "by another task: the operation is not its own")
	}
}

func (o *op) wrong(call, why string) { panic("kit." + o.name + "." + call + " " + why) }

// Share takes i_rwsem for reading: together with others that share it.
func (o *op) Share(t *Task) {
	o.free(t, "Share")
	o.side.Share(t.t)
	o.shared = true
}

// Alone takes i_rwsem for writing: alone.
func (o *op) Alone(t *Task) {
	o.free(t, "Alone")
	o.side.Alone(t.t)
	o.alone = true
}

// TryShare is Share where that need not wait. False has taken nothing: another task has i_rwsem for
// writing, or waits for it so. By the time that the policy goes on this may be otherwise.
func (o *op) TryShare(t *Task) bool {
	o.free(t, "TryShare")
	o.shared = o.side.TryShare(t.t)
	return o.shared
}

// TryAlone is Alone where that need not wait. False has taken nothing.
func (o *op) TryAlone(t *Task) bool {
	o.free(t, "TryAlone")
	o.alone = o.side.TryAlone(t.t)
	return o.alone
}

func (o *op) free(t *Task, call string) {
	if o.use(t, call); o.shared || o.alone {
		o.wrong(call, "by an operation that has i_rwsem: it would wait for itself")
	}
}

// Unlock lets i_rwsem go.
func (o *op) Unlock(t *Task) {
	if o.use(t, "Unlock"); !o.shared && !o.alone {
		o.wrong("Unlock", "without i_rwsem")
	}
	o.side.Unlock(t.t)
	o.shared, o.alone = false, false
}

// LockRange locks [start, end), rounded to blocks. An operation holds one range.
func (o *op) LockRange(t *Task, start, end uint64) {
	o.noRange(t, "LockRange", start, end)
	o.side.LockRange(t.t, start, end)
	o.ranged = true
}

// TryLockRange is LockRange where that need not wait. False has taken nothing: another task has a
// byte of the range, or the range lock is one of one's own (NewRangeLock), which has no try.
func (o *op) TryLockRange(t *Task, start, end uint64) bool {
	o.noRange(t, "TryLockRange", start, end)
	o.ranged = o.side.TryLockRange(t.t, start, end)
	return o.ranged
}

func (o *op) noRange(t *Task, call string, start, end uint64) {
	switch o.use(t, call); {
	case o.ranged:
		o.wrong(call, "by an operation that has a range: two tasks could wait for each other")
	case start >= end || end > EndOfFiles:
		o.wrong(call, "of no bytes, or beyond EndOfFiles")
	}
}

// UnlockRange lets the range go.
func (o *op) UnlockRange(t *Task) {
	if o.use(t, "UnlockRange"); !o.ranged {
		o.wrong("UnlockRange", "without a range")
	}
	o.side.UnlockRange(t.t)
	o.ranged = false
}

// Count counts the operation among those that Drain waits for.
func (o *op) Count(t *Task) {
	if o.use(t, "Count"); o.counted {
		o.wrong("Count", "a second time")
	}
	o.side.Count(t.t)
	o.counted = true
}

// Uncount ends Count.
func (o *op) Uncount(t *Task) {
	if o.use(t, "Uncount"); !o.counted {
		o.wrong("Uncount", "without Count")
	}
	o.side.Uncount(t.t)
	o.counted = false
}

// Drain waits until no operation is counted: buffered writes that called Count, and direct writes.
// New ones may come in meanwhile unless a lock keeps them out.
func (o *op) Drain(t *Task) {
	if o.use(t, "Drain"); o.counted {
		o.wrong("Drain", "by an operation that is counted: it would wait for itself")
	}
	o.side.Drain(t.t)
}

// Size is i_size now.
func (o *op) Size(t *Task) uint64 {
	o.use(t, "Size")
	return o.side.Size(t.t)
}

// end panics, in words for the student, if the method has returned too early.
func (o *op) end(method, undone string) {
	o.over = true
	switch {
	case undone != "":
		panic(method + " has returned " + undone)
	case o.shared || o.alone:
		panic(method + " has returned with i_rwsem held: all others of the file wait for ever")
	case o.ranged:
		panic(method + " has returned with its range held: whoever wants a byte of it waits for ever")
	case o.counted:
		panic(method + " has returned and is still counted: Drain waits for ever")
	}
}

// WriteOp is one buffered write. It has the locks of the file, as all operations have; see Policy.
type WriteOp struct {
	op
	side  iopath.WriteSteps
	begun bool
	more  bool  // bytes are left
	err   error // the write's
}

// Range is the bytes that are written. Those of an append begin where the file ends now, until
// Begin has fixed them.
func (w *WriteOp) Range(t *Task) Range {
	w.use(t, "Range")
	start, end := w.side.Range(t.t)
	return Range{start, end}
}

// Appends reports whether the write begins at the end of the file, wherever that is at Begin.
func (w *WriteOp) Appends(t *Task) bool {
	w.use(t, "Appends")
	return w.side.Appends()
}

// Prewait waits until nothing of the range is under writeback and no ordered extent is in it. It
// promises nothing: more may come.
func (w *WriteOp) Prewait(t *Task) {
	w.use(t, "Prewait")
	w.side.Prewait(t.t)
}

// Begin takes the end of the file as it is now, fixes the position of an append, and writes zeros
// between the end of the file and the write if there is a gap. It comes once, before the first
// Batch. False ends the write. A write with a gap needs i_rwsem for writing.
func (w *WriteOp) Begin(t *Task) bool {
	if w.use(t, "Begin"); w.begun {
		w.wrong("Begin", "a second time")
	}
	if !w.alone && !w.side.Appends() {
		if start, _ := w.side.Range(t.t); start > w.side.Size(t.t) {
			w.wrong("Begin", "without i_rwsem for writing, of a write that leaves a gap after the end of the file: the zeros need it")
		}
	}
	w.begun = true
	w.side.Place(t.t)
	w.err = w.side.Begin(t.t)
	w.more = w.err == nil
	return w.more
}

// Batch copies the next bytes, in at most so many pages: it reserves space, locks the pages and
// waits until the device reads none of them, locks the extent range, copies, moves i_size when the
// batch ends beyond it, and unlocks. It reports whether there are bytes left.
func (w *WriteOp) Batch(t *Task, pages int) bool {
	switch w.use(t, "Batch"); {
	case !w.begun:
		w.wrong("Batch", "before Begin")
	case !w.more:
		w.wrong("Batch", "after the last batch")
	case pages < 1:
		w.wrong("Batch", "of no pages")
	}
	w.more, w.err = w.side.Batch(t.t, pages)
	return w.more
}

// Balance waits while too much is dirty; the flusher writes meanwhile. A policy that never calls it
// fills the memory.
func (w *WriteOp) Balance(t *Task) {
	w.use(t, "Balance")
	w.side.Balance(t.t)
}

// ReadOp is one buffered read. It has the locks of the file; see Policy.
type ReadOp struct {
	op
	side   iopath.ReadSteps
	copied bool
}

// Range is the bytes that are asked for; the file may end before.
func (r *ReadOp) Range(t *Task) Range {
	r.use(t, "Range")
	start, end := r.side.Range(t.t)
	return Range{start, end}
}

// Copy copies the bytes, page by page, as far as the file goes.
func (r *ReadOp) Copy(t *Task) {
	if r.use(t, "Copy"); r.copied {
		r.wrong("Copy", "a second time")
	}
	r.copied = true
	r.side.Copy(t.t)
}

// TruncateOp is one change of the file's size. It has the locks of the file; see Policy.
type TruncateOp struct {
	op
	side      iopath.TruncateSteps
	set, cuts bool
}

// NewSize is the size that the file shall have.
func (x *TruncateOp) NewSize(t *Task) uint64 {
	x.use(t, "NewSize")
	return x.side.NewSize()
}

// SetSize makes the new size visible. Of a file that becomes shorter the pages beyond it leave
// memory, and SetSize says that DropExtents is to come; one that becomes longer gets zeros. It
// needs i_rwsem for writing.
func (x *TruncateOp) SetSize(t *Task) bool {
	switch x.use(t, "SetSize"); {
	case !x.alone:
		x.wrong("SetSize", "without i_rwsem for writing: direct I/O and fsync rely on it")
	case x.set:
		x.wrong("SetSize", "a second time")
	}
	x.set = true
	x.cuts = x.side.SetSize(t.t)
	return x.cuts
}

// DropExtents waits until nothing is being written beyond i_size, and drops what the file has there
// on disk. It looks at i_size itself.
func (x *TruncateOp) DropExtents(t *Task) {
	if x.use(t, "DropExtents"); !x.cuts {
		x.wrong("DropExtents", "where SetSize has not asked for it")
	}
	x.cuts = false
	x.side.DropExtents(t.t)
}

// FallocateOp is one allocation of a range in advance, one hole that is punched, or one range that
// is zeroed. It has the locks of the file; see Policy.
type FallocateOp struct {
	op
	side    iopath.FallocateSteps
	changed bool
}

// Range is the bytes of the operation. One that begins beyond the end of the file changes the bytes
// from the end of the file on.
func (x *FallocateOp) Range(t *Task) Range {
	x.use(t, "Range")
	start, end := x.side.Range(t.t)
	return Range{start, end}
}

// Punches reports whether the bytes of the range are dropped; else they stay, and holes among them
// get space.
func (x *FallocateOp) Punches(t *Task) bool {
	x.use(t, "Punches")
	return x.side.Punches()
}

// Change does it. An allocation may move i_size.
func (x *FallocateOp) Change(t *Task) {
	if x.use(t, "Change"); x.changed {
		x.wrong("Change", "a second time")
	}
	x.changed = true
	x.side.Change(t.t)
}

// FsyncOp is one fsync. It has the locks of the file; see Policy.
type FsyncOp struct {
	op
	side             iopath.FsyncSteps
	flushed, durable bool
}

// Start begins to write back what is dirty, so that Flush has less to do. It promises nothing.
func (x *FsyncOp) Start(t *Task) {
	x.use(t, "Start")
	x.side.Start(t.t)
}

// Flush writes back what is dirty and waits until the trees have it.
func (x *FsyncOp) Flush(t *Task) {
	x.use(t, "Flush")
	x.flushed = true
	x.side.Flush(t.t)
}

// Commit makes durable what the trees have. It may wait for a commit of the whole file system.
func (x *FsyncOp) Commit(t *Task) {
	if x.use(t, "Commit"); !x.flushed {
		x.wrong("Commit", "before Flush: the trees do not have the data yet")
	}
	x.durable = true
	x.side.Commit(t.t)
}

// PolicyRunner is the iopath.FilePolicy that carries out operations by a Policy, and sees to it
// that none is left undone. It is the grader's.
type PolicyRunner struct {
	Policy Policy
	// Watch, if set, puts something between an operation and its locks.
	Watch func(iopath.FileSteps) iopath.FileSteps
}

func (p PolicyRunner) begin(t *sched.Task, name string, side iopath.FileSteps) op {
	if p.Watch != nil {
		side = p.Watch(side)
	}
	return op{side: side, task: t, name: name}
}

// undone is what is wrong if bad.
func undone(bad bool, what string) string {
	if bad {
		return what
	}
	return ""
}

// Write carries out a write.
func (p PolicyRunner) Write(t *sched.Task, side iopath.WriteSteps) error {
	w := &WriteOp{op: p.begin(t, "WriteOp", side), side: side}
	p.Policy.Write(On(t), w)
	w.end("Write", undone(!w.begun || w.more, "before its last batch: bytes are left"))
	return w.err
}

// Read carries out a read.
func (p PolicyRunner) Read(t *sched.Task, side iopath.ReadSteps) {
	r := &ReadOp{op: p.begin(t, "ReadOp", side), side: side}
	p.Policy.Read(On(t), r)
	r.end("Read", undone(!r.copied, "without Copy"))
}

// Truncate carries out a truncate.
func (p PolicyRunner) Truncate(t *sched.Task, side iopath.TruncateSteps) {
	x := &TruncateOp{op: p.begin(t, "TruncateOp", side), side: side}
	p.Policy.Truncate(On(t), x)
	x.end("Truncate", undone(!x.set, "without SetSize")+undone(x.cuts, "without DropExtents, which SetSize has asked for"))
}

// Fallocate carries out an allocation, a punch or a zeroing.
func (p PolicyRunner) Fallocate(t *sched.Task, side iopath.FallocateSteps) {
	x := &FallocateOp{op: p.begin(t, "FallocateOp", side), side: side}
	p.Policy.Fallocate(On(t), x)
	x.end("Fallocate", undone(!x.changed, "without Change"))
}

// Fsync carries out an fsync.
func (p PolicyRunner) Fsync(t *sched.Task, side iopath.FsyncSteps) {
	x := &FsyncOp{op: p.begin(t, "FsyncOp", side), side: side}
	p.Policy.Fsync(On(t), x)
	x.end("Fsync", undone(!x.durable, "without Commit"))
}
