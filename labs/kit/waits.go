package kit

import (
	"btrlab/internal/iopath"
	"btrlab/internal/sched"
)

// WaitedWrite is a write through the page cache, all of it in one batch.
//
// Model: the steps of __btrfs_buffered_write(), with each wait a step of its own. Difference: a use
// that no order can have is a panic.
type WaitedWrite struct {
	side                  iopath.WriteSteps
	start, end            uint64 // the bytes of the write
	locked, pages, ranged bool
	reserved, copied      bool
	paid                  bool
}

// use panics when the task is none, or when has is false: what the call needs.
func (w *WaitedWrite) use(t *Task, call string, has bool, without string) {
	t.need("WaitedWrite", call, "Write was")
	if !has {
		panic("kit.WaitedWrite." + call + " " + without)
	}
}

// Range is the blocks of the write: the bytes [start, end), whole pages.
func (w *WaitedWrite) Range() (start, end uint64) {
	return w.start &^ (PageBytes - 1), (w.end + PageBytes - 1) &^ (PageBytes - 1)
}

// Inside reports whether the write ends inside EOF. Without i_rwsem that may be otherwise when it
// returns.
func (w *WaitedWrite) Inside(t *Task) bool {
	w.use(t, "Inside", true, "")
	return w.end <= w.side.Size(t.t)
}

// Lock takes i_rwsem exclusive and does what comes before the first byte: time stamps, and zeros up
// to the write if EOF is before it. An error is the write's, and has let i_rwsem go.
func (w *WaitedWrite) Lock(t *Task) error {
	w.use(t, "Lock", !w.locked, "by a write that has i_rwsem: it would wait for itself")
	w.side.Alone(t.t)
	w.side.Place(t.t)
	err := w.side.Begin(t.t)
	if w.locked = err == nil; !w.locked {
		w.side.Unlock(t.t)
	}
	return err
}

// Unlock lets i_rwsem go.
func (w *WaitedWrite) Unlock(t *Task) {
	w.use(t, "Unlock", w.locked, "without i_rwsem")
	w.side.Unlock(t.t)
	w.locked = false
}

// WaitWriteback waits until the device has read the pages that touch the bytes [start, end). Nobody
// can begin with a page again that is locked.
func (w *WaitedWrite) WaitWriteback(t *Task, start, end uint64) {
	w.use(t, "WaitWriteback", true, "")
	w.side.WaitWriteback(t.t, start, end)
}

// WaitOrdered waits until the ordered extents that touch the bytes [start, end) are in the trees.
func (w *WaitedWrite) WaitOrdered(t *Task, start, end uint64) {
	w.use(t, "WaitOrdered", true, "")
	w.side.WaitOrdered(t.t, start, end)
}

// Drain waits until no direct write is in flight. New ones need i_rwsem to begin.
func (w *WaitedWrite) Drain(t *Task) {
	w.use(t, "Drain", true, "")
	w.side.Drain(t.t)
}

// Reserve promises the space for the write. It may wait for writeback and for a commit. An error
// has promised nothing.
func (w *WaitedWrite) Reserve(t *Task) error {
	w.use(t, "Reserve", !w.reserved, "twice")
	err := w.side.Reserve(t.t)
	w.reserved = err == nil
	return err
}

// LockPages locks the pages of the write in ascending order, and reads those that are overwritten
// in part. An error has locked none.
func (w *WaitedWrite) LockPages(t *Task) error {
	w.use(t, "LockPages", !w.pages, "of pages that the write has locked: it would wait for itself")
	err := w.side.LockPages(t.t)
	w.pages = err == nil
	return err
}

// UnlockPages lets the pages go.
func (w *WaitedWrite) UnlockPages(t *Task) {
	w.use(t, "UnlockPages", w.pages, "of pages that are not locked")
	w.side.UnlockPages(t.t)
	w.pages = false
}

// LockRange locks the extent range of the write.
func (w *WaitedWrite) LockRange(t *Task) {
	w.use(t, "LockRange", !w.ranged, "of a range that the write has locked: it would wait for itself")
	w.side.LockExtent(t.t)
	w.ranged = true
}

// Ordered reports whether an ordered extent is in the range. Without the range locked that may be
// otherwise when it returns.
func (w *WaitedWrite) Ordered(t *Task) bool {
	w.use(t, "Ordered", true, "")
	return w.side.Ordered(t.t)
}

// UnlockRange lets the extent range go.
func (w *WaitedWrite) UnlockRange(t *Task) {
	w.use(t, "UnlockRange", w.ranged, "of a range that is not locked")
	w.side.UnlockExtent(t.t)
	w.ranged = false
}

// Copy copies the bytes to the pages, marks them dirty, lets i_size follow, and gives the range
// what was reserved. It lets the range go.
func (w *WaitedWrite) Copy(t *Task) {
	w.use(t, "Copy", !w.copied, "twice")
	w.use(t, "Copy", w.reserved, "before Reserve: nothing is promised to the pages that it makes dirty")
	w.use(t, "Copy", w.pages, "without the pages locked")
	w.use(t, "Copy", w.ranged, "without the range locked")
	w.side.Copy(t.t)
	w.copied, w.ranged = true, false
}

// Throttle makes the task wait when too much is dirty: the price of its pages. Each write pays it
// once.
func (w *WaitedWrite) Throttle(t *Task) {
	w.use(t, "Throttle", true, "")
	w.side.Balance(t.t)
	w.paid = true
}

// WaitPath carries out a write. After an error, which is the write's, what it has reserved goes
// back.
type WaitPath func(t *Task, w *WaitedWrite) error

// RunWaits calls write and sees to it that nothing is left undone.
func RunWaits(write WaitPath, t *sched.Task, side iopath.WriteSteps) error {
	w := &WaitedWrite{side: side}
	w.start, w.end = side.Range(t)
	err := write(On(t), w)
	switch {
	case w.locked:
		panic("Write has returned with i_rwsem held: all others of the file wait for ever")
	case w.pages:
		panic("Write has returned with pages locked: whoever wants one waits for ever")
	case w.ranged:
		panic("Write has returned with the range locked: whoever wants it waits for ever")
	case err != nil && w.copied:
		panic("Write has returned an error after Copy: the caller would write again")
	case err != nil:
		return err
	case !w.copied:
		panic("Write has returned nil, and the bytes are nowhere: no Copy")
	case !w.paid:
		panic("Write has returned and has not paid for its dirty pages: no Throttle")
	}
	return nil
}
