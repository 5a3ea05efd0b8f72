package kit

import (
	"btrlab/internal/iopath"
	"btrlab/internal/sched"
)

// Blocks is what SectorWrite.Look answers.
type Blocks = iopath.Blocks

// The kinds of blocks.
const (
	// a hole, shared with a snapshot, or of several extents: only Cache writes it
	Elsewhere = iopath.BlocksElsewhere
	// allocated and not written: Submit puts zeros around the sectors
	Unwritten = iopath.BlocksUnwritten
	// Submit writes the sectors and nothing else
	Written = iopath.BlocksWritten
)

// SectorWrite is a direct write of sectors of one block of a file.
//
// Model: the steps of ext4_dio_write_iter() and iomap_dio_rw(). Difference: a use that no order can
// have is a panic.
type SectorWrite struct {
	side          iopath.SectorSteps
	shared, alone bool // how i_rwsem is held
	sent, ended   bool
	cached        bool
}

func (w *SectorWrite) use(t *Task, call string, held bool) {
	t.need("SectorWrite", call, "Write was")
	switch {
	case held && !w.shared && !w.alone:
		panic("kit.SectorWrite." + call + " without i_rwsem: what it finds may be otherwise when it returns")
	case !held && (w.shared || w.alone):
		panic("kit.SectorWrite." + call + " by a write that has i_rwsem: it would wait for itself")
	case w.cached:
		panic("kit.SectorWrite." + call + " after Cache")
	}
}

// Share takes i_rwsem shared with other direct writes inside EOF.
func (w *SectorWrite) Share(t *Task) {
	w.use(t, "Share", false)
	w.side.Share(t.t)
	w.shared = true
}

// Alone takes i_rwsem exclusive.
func (w *SectorWrite) Alone(t *Task) {
	w.use(t, "Alone", false)
	w.side.Alone(t.t)
	w.alone = true
}

// Unlock lets i_rwsem go.
func (w *SectorWrite) Unlock(t *Task) {
	w.use(t, "Unlock", true)
	w.side.Unlock(t.t)
	w.shared, w.alone = false, false
}

// Inside reports whether the write ends inside EOF. One that does not may not be submitted.
func (w *SectorWrite) Inside(t *Task) bool {
	w.use(t, "Inside", true)
	return w.side.Inside()
}

// Look says what the block of the write is.
func (w *SectorWrite) Look(t *Task) Blocks {
	w.use(t, "Look", true)
	return w.side.Look(t.t)
}

// Drain waits until no direct write of the file is in flight. It needs i_rwsem exclusive, which
// keeps new ones out.
func (w *SectorWrite) Drain(t *Task) {
	w.use(t, "Drain", true)
	if w.shared {
		panic("kit.SectorWrite.Drain with i_rwsem shared: new writes come in while it waits")
	}
	if w.sent && !w.ended {
		panic("kit.SectorWrite.Drain between Submit and Wait: the write is in flight itself")
	}
	w.side.Drain(t.t)
}

// Submit gives the sectors to the device, and zeros for the rest of a block that is not written. It
// does not wait. False says that the block cannot be written in place, and nothing was done.
func (w *SectorWrite) Submit(t *Task) bool {
	w.use(t, "Submit", true)
	switch {
	case w.sent:
		panic("kit.SectorWrite.Submit twice")
	case !w.side.Inside():
		panic("kit.SectorWrite.Submit of a write that ends beyond EOF: i_size would stay as it is")
	}
	w.sent = w.side.Submit(t.t)
	return w.sent
}

// Wait waits for the end of what was submitted, and marks its block written.
func (w *SectorWrite) Wait(t *Task) {
	if w.use(t, "Wait", w.shared || w.alone); !w.sent || w.ended {
		panic("kit.SectorWrite.Wait, and nothing is in flight")
	}
	w.side.Wait(t.t)
	w.ended = true
}

// Cache sends the write through the page cache, after Write has returned. It needs no lock.
func (w *SectorWrite) Cache(t *Task) {
	if w.use(t, "Cache", false); w.sent {
		panic("kit.SectorWrite.Cache after Submit: the sectors are written twice")
	}
	w.cached = true
	w.side.Cache()
}

// RunSectors calls write and sees to it that nothing is left undone.
func RunSectors(write func(t *Task, w *SectorWrite), t *sched.Task, side iopath.SectorSteps) {
	w := &SectorWrite{side: side}
	write(On(t), w)
	switch {
	case w.shared || w.alone:
		panic("Write has returned with i_rwsem held: all others of the file wait for ever")
	case w.sent && !w.ended:
		panic("Write has returned before the end of its write: the block is not marked written")
	case !w.sent && !w.cached:
		panic("Write has returned, and the bytes went nowhere: neither Submit nor Cache")
	}
}
