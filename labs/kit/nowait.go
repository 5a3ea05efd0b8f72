package kit

import (
	"btrlab/internal/errno"
	"btrlab/internal/iopath"
	"btrlab/internal/sched"
)

// What Reserve answers when space is short; ask with errors.Is.
const (
	// ENOSPC: there is no metadata space, unless a flush helps.
	ENOSPC = errno.ENOSPC
	// EDQUOT: the quota is used up, unless a flush helps.
	EDQUOT = errno.EDQUOT
)

// Flush is what a reservation may do when space is short.
type Flush bool

// The two kinds of reservation.
const (
	NoFlush  Flush = false // it fails at once
	FlushAll Flush = true  // it writes back, waits and commits until there is space
)

// NowaitExtent is one extent of a direct write whose caller said NOWAIT.
//
// Model: what btrfs_dio_iomap_begin() does for a write with IOMAP_NOWAIT.
type NowaitExtent struct {
	steps                     iopath.NowaitSteps
	locked, reserved, started bool
}

func (x *NowaitExtent) mine(t *Task, call string) {
	t.need("NowaitExtent", call, "Extent was")
	if x.started && call != "UnlockRange" {
		panic("kit.NowaitExtent." + call + " after Start: the reservation and the extent are the device's")
	}
}

// TryRange locks the range of the write. false says that another task has it, that something is
// being written there, or that a page of it is in memory; nothing is locked then.
func (x *NowaitExtent) TryRange(t *Task) bool {
	x.mine(t, "TryRange")
	x.twice("TryRange")
	x.locked = x.steps.TryRange(t.t)
	return x.locked
}

// LockRange locks the range of the write, and waits until it has it.
func (x *NowaitExtent) LockRange(t *Task) {
	x.mine(t, "LockRange")
	x.twice("LockRange")
	x.steps.LockRange(t.t)
	x.locked = true
}

func (x *NowaitExtent) twice(call string) {
	if x.locked {
		panic("kit.NowaitExtent." + call + " with the range locked: it would wait for itself")
	}
}

// UnlockRange lets the range go.
func (x *NowaitExtent) UnlockRange(t *Task) {
	x.mine(t, "UnlockRange")
	if !x.locked {
		panic("kit.NowaitExtent.UnlockRange of a range that is not locked")
	}
	x.locked = false
	x.steps.UnlockRange(t.t)
}

// Reserve promises the metadata that the end of the write needs, and keeps snapshots out. ENOSPC
// and EDQUOT say that there is none, and EAGAIN that a snapshot is being made; nothing is reserved
// then.
func (x *NowaitExtent) Reserve(t *Task, flush Flush) error {
	x.mine(t, "Reserve")
	if x.reserved {
		panic("kit.NowaitExtent.Reserve a second time")
	}
	err := x.steps.Reserve(t.t, bool(flush))
	x.reserved = err == nil
	return err
}

// Release gives back what Reserve has promised.
func (x *NowaitExtent) Release(t *Task) {
	x.mine(t, "Release")
	if !x.reserved {
		panic("kit.NowaitExtent.Release of nothing: Reserve has not succeeded, or it was released before")
	}
	x.reserved = false
	x.steps.Release(t.t)
}

// Place asks the trees whether the blocks may be overwritten in place. EAGAIN says no; any other
// error is that of reading a tree. The answer holds while the range is locked and snapshots are
// kept out.
//
// Preconditions:
//   - the range is locked.
func (x *NowaitExtent) Place(t *Task) error {
	x.mine(t, "Place")
	if !x.locked {
		panic("kit.NowaitExtent.Place without the range: the answer may be wrong before you have it")
	}
	return x.steps.Place(t.t)
}

// Start gives the extent to the device, with what was reserved. The place is the one that Place
// found last.
func (x *NowaitExtent) Start(t *Task) {
	x.mine(t, "Start")
	switch {
	case !x.locked:
		panic("kit.NowaitExtent.Start without the range: another task may have it")
	case !x.reserved:
		panic("kit.NowaitExtent.Start without a reservation: the end of the write has no metadata")
	}
	x.started = true
	x.steps.Start(t.t)
}

// NowaitPath is what becomes of an extent of a NOWAIT direct write. nil says that it was started;
// EAGAIN that a worker does the whole write again, which may sleep; any other error is the
// caller's.
type NowaitPath func(t *Task, x *NowaitExtent) error

// Run calls p, and sees to it that what it returns fits what it did.
func (p NowaitPath) Run(t *sched.Task, s iopath.NowaitSteps) error {
	x := &NowaitExtent{steps: s}
	err := p(On(t), x)
	switch {
	case err == nil && !x.started:
		panic("Extent has returned nil, and nothing was started: the caller is told of bytes that nobody writes")
	case err != nil && x.started:
		panic("Extent has returned an error after Start: the device writes the extent, and a worker would write it again")
	}
	return err
}
