// Package blockdev is the device under a file system: something with a size that takes bios.
//
// Read and Write are for callers that want one transfer done; the write path submits bios and
// learns of their end by EndIO. A device may complete a bio on the submitting task before Submit
// returns, or on any task later.
package blockdev

import (
	"fmt"
	"sync/atomic"

	"btrlab/internal/errno"
	"btrlab/internal/lock"
	"btrlab/internal/lock/lockdep"
	"btrlab/internal/sched"
)

// Op is the operation of a bio.
type Op uint8

// The operations.
const (
	OpRead Op = iota
	OpWrite
	OpFlush // all completed writes become durable
)

var opNames = [...]string{"read", "write", "flush"}

func (o Op) String() string { return opNames[o] }

// Bio is one request: the bytes of Vecs, one after the other, from device offset Off on.
type Bio struct {
	Op   Op
	Off  int64    // bytes; ignored by OpFlush
	Vecs [][]byte // owned by the device until EndIO
	// EndIO is called exactly once, when Err is final. It must not sleep.
	EndIO func(t *sched.Task, b *Bio)
	// Err is nil or has an errno in its chain.
	Err error
	// Private is the submitter's.
	Private any
	// DMA says that in virtual time no CPU moves the bytes: the bio comes from a model of a device.
	DMA bool
}

// Len is the number of bytes the bio moves.
func (b *Bio) Len() int {
	n := 0
	for _, v := range b.Vecs {
		n += len(v)
	}
	return n
}

// Submitter starts bios: a Device, or a layer that maps addresses to devices.
type Submitter interface {
	// Submit starts a bio. It may sleep (a full queue); the bio's end may come before it returns.
	Submit(t *sched.Task, b *Bio)
}

// Device is a random-access store of Size bytes. All methods may be called by any number of tasks.
type Device interface {
	// Name is the device's name in error messages: a path, "memory", ...
	Name() string
	// Size is in bytes and does not change.
	Size() int64
	Submitter
	// Close waits for nothing: all bios have ended. It does not flush.
	Close() error
}

// Forgetter is a Device that can do without bytes that nobody will read before they are written
// again. It is for simulations that would not have the memory to keep them, and stands for no
// discard.
type Forgetter interface {
	Forget(off, n int64)
}

// Layer is a device that lies over another one.
type Layer interface {
	Device
	Under() Device
}

// Shifted is a Layer whose bytes lie further on in the device under it.
type Shifted interface {
	Layer
	Offset() int64
}

// Base is the device at the bottom of d, under the models that lie over it, and where d begins in
// it.
func Base(d Device) (base Device, off int64) {
	for {
		if s, ok := d.(Shifted); ok {
			off += s.Offset()
		}
		over, ok := d.(Layer)
		if !ok {
			return d, off
		}
		d = over.Under()
	}
}

// WaitClass is the wait for a synchronous transfer.
var WaitClass = lockdep.NewClass("device")

// Do submits b to s and waits for its end. Models submit_bio_wait().
func Do(t *sched.Task, s Submitter, b *Bio) error {
	var done atomic.Bool
	var q lock.WaitQueue
	q.Init(WaitClass)
	b.EndIO = func(t *sched.Task, b *Bio) {
		done.Store(true)
		q.Wake(t)
	}
	s.Submit(t, b)
	if !done.Load() {
		q.Wait(t, done.Load)
	}
	return b.Err
}

// Read fills p from offset off.
func Read(t *sched.Task, d Device, p []byte, off int64) error {
	return Do(t, d, &Bio{Op: OpRead, Off: off, Vecs: [][]byte{p}})
}

// Write writes p at offset off. It is durable after the next Flush.
func Write(t *sched.Task, d Device, p []byte, off int64) error {
	return Do(t, d, &Bio{Op: OpWrite, Off: off, Vecs: [][]byte{p}})
}

// Flush makes every completed write durable.
func Flush(t *sched.Task, d Device) error {
	return Do(t, d, &Bio{Op: OpFlush})
}

// CheckRange is the error for a bio outside the device, or nil.
func CheckRange(d Device, b *Bio) error {
	if b.Op == OpFlush {
		return nil
	}
	if n := int64(b.Len()); b.Off < 0 || n > d.Size()-b.Off {
		return Errorf(d, "%v of %d bytes at %d, device has %d: %w", b.Op, n, b.Off, d.Size(), errno.EIO)
	}
	return nil
}

// NameError is an error about a device, which its text begins with.
type NameError struct {
	Name string
	Err  error
}

// Errorf is a NameError about d.
func Errorf(d Device, format string, args ...any) error {
	return &NameError{d.Name(), fmt.Errorf(format, args...)}
}

// Error gives "disk.img: no superblock".
func (e *NameError) Error() string { return e.Name + ": " + e.Err.Error() }

// Unwrap gives the rest to errors.Is and errors.As.
func (e *NameError) Unwrap() error { return e.Err }
