// Package hostio asks the kernel of the machine for reads and writes of a file that is open:
// through io_uring, through libaio, and by single system calls with RWF flags. It knows
// descriptors, bytes and offsets, and nothing of images.
//
// Package blockdev submits the bios of an image through a Ring, and measure/linuxfile runs jobs
// through all of it, so that the running kernel stands in the tables beside the engine.
//
// Only Linux has these calls; elsewhere the constructors fail with ErrNotLinux.
package hostio

import (
	"errors"
	"unsafe"
)

// ErrNotLinux is the answer of every constructor on another system.
var ErrNotLinux = errors.New("io_uring, libaio and RWF_NOWAIT need Linux")

// ErrFull means that the queue has no room until a completion is taken from it.
var ErrFull = errors.New("the queue of requests is full")

// Op is the operation of a request.
type Op uint8

// The operations.
const (
	Read Op = iota
	Write
	Sync // fdatasync
)

// Queue is a queue of requests on open files: the kernel works on many of them at a time. Requests
// are submitted by one task at a time; one task at a time takes completions. The two may be
// different tasks.
type Queue interface {
	// Prep puts a request into the queue; the kernel sees it at the next Enter. p must stay as it
	// is, and is kept alive, until the completion with the same tag is taken. tag is below the
	// queue's depth, and no two requests in the queue share it. flags are the RWF flags of
	// preadv2(2). The error is ErrFull or nil.
	Prep(op Op, fd int, p []byte, off int64, flags uint32, tag uint32) error
	// Enter gives the kernel all requests that are prepared, and waits until wait completions can
	// be taken.
	Enter(wait int) error
	// Next takes a completion: its tag, and the bytes moved or the negative errno. ok is false when
	// there is none now.
	Next() (tag uint32, res int32, ok bool)
	// Close gives everything back. No request may be in flight.
	Close() error
}

// Align is the alignment of memory, offsets and lengths that O_DIRECT accepts on every file system
// and device.
const Align = 4096

// Aligned is n bytes of memory that O_DIRECT accepts.
func Aligned(n int) []byte {
	if n == 0 {
		return nil
	}
	p := make([]byte, n+Align)
	skip := -int(uintptr(unsafe.Pointer(unsafe.SliceData(p)))) & (Align - 1)
	return p[skip : skip+n : skip+n]
}

// Resident is Aligned with every page in memory already. Memory that Go has fresh from the system
// has no pages before they are touched, and a write that must not wait (RWF_NOWAIT) cannot fault
// them in: Linux answers EAGAIN, which says nothing of the file.
func Resident(n int) []byte {
	p := Aligned(n)
	for i := 0; i < n; i += Align {
		p[i] = 0
	}
	return p
}
