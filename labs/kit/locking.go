package kit

import (
	"btrlab/internal/iopath"
	"btrlab/internal/sched"
)

// LockedWrite is a buffered write between its locks.
//
// Model: the steps of btrfs_file_write_iter() with the patch of seed 002, and i_rwsem shared as
// ext4_dio_write_checks() takes it. Difference: a use that no order can have is a panic.
type LockedWrite struct {
	side    iopath.WriteSteps
	locked  bool // i_rwsem is held
	placed  bool
	counted bool
	copied  bool
	err     error // the write's
}

func (w *LockedWrite) use(t *Task, call string) {
	t.need("LockedWrite", call, "Write was")
}

func (w *LockedWrite) take(t *Task, call string) {
	if w.use(t, call); w.locked {
		panic("kit.LockedWrite." + call + " by a write that has i_rwsem: it would wait for itself")
	}
}

// Share takes i_rwsem shared: others may have it shared as well.
func (w *LockedWrite) Share(t *Task) {
	w.take(t, "Share")
	w.side.Share(t.t)
	w.locked = true
}

// Lock takes i_rwsem exclusive.
func (w *LockedWrite) Lock(t *Task) {
	w.take(t, "Lock")
	w.side.Alone(t.t)
	w.locked = true
}

// Unlock lets i_rwsem go, however it is held.
func (w *LockedWrite) Unlock(t *Task) {
	if w.use(t, "Unlock"); !w.locked {
		panic("kit.LockedWrite.Unlock by a write that has not got i_rwsem")
	}
	w.side.Unlock(t.t)
	w.locked = false
}

// Place says at which byte the write begins: for an append at the end of the file as it is now.
// Copy writes at the place that was said last, and zeroes what lies between the end of the file as
// it was then and the write.
func (w *LockedWrite) Place(t *Task) uint64 {
	w.use(t, "Place")
	w.placed = true
	return w.side.Place(t.t)
}

// Len is the number of bytes of the write.
func (w *LockedWrite) Len() uint64 { return w.side.Len() }

// Size is i_size, the end of the file in bytes. It may be asked without i_rwsem.
func (w *LockedWrite) Size(t *Task) uint64 {
	w.use(t, "Size")
	return w.side.Size(t.t)
}

// Begin counts the write among those in flight, i_dio_count. A truncate takes i_rwsem, and then
// waits until nobody is counted.
func (w *LockedWrite) Begin(t *Task) {
	if w.use(t, "Begin"); w.counted {
		panic("kit.LockedWrite.Begin twice: a truncate would wait for ever")
	}
	w.side.Count(t.t)
	w.counted = true
}

// End ends Begin.
func (w *LockedWrite) End(t *Task) {
	if w.use(t, "End"); !w.counted {
		panic("kit.LockedWrite.End without Begin")
	}
	w.counted = false
	w.side.Uncount(t.t)
}

// Copy writes all bytes, in batches, and i_size where the write ends beyond it.
func (w *LockedWrite) Copy(t *Task) {
	switch w.use(t, "Copy"); {
	case !w.placed:
		panic("kit.LockedWrite.Copy before Place: nobody has said where")
	case w.copied:
		panic("kit.LockedWrite.Copy twice: the bytes are written already")
	}
	w.copied = true
	w.err = w.side.Begin(t.t)
	for more := w.err == nil; more; {
		more, w.err = w.side.Batch(t.t, BatchMax)
	}
}

// RunLocked calls write and sees to it that nothing is left undone. The error is the write's.
func RunLocked(write func(t *Task, w *LockedWrite), t *sched.Task, side iopath.WriteSteps) error {
	w := &LockedWrite{side: side}
	write(On(t), w)
	switch {
	case w.locked:
		panic("Write has returned with i_rwsem held: all others of the file wait for ever")
	case w.counted:
		panic("Write has returned, and is still counted among those in flight: a truncate waits for ever")
	case !w.copied:
		panic("Write has returned, and the bytes went nowhere: no Copy")
	}
	return w.err
}
