//go:build !portable

package hostio

import (
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"
)

// The ABI of the kernel's asynchronous I/O, from linux/aio_abi.h, on little-endian machines.
const (
	iocbPread  = 0
	iocbPwrite = 1
	iocbFdsync = 3
)

type iocb struct {
	data    uint64
	_       uint32 // aio_key
	rwFlags uint32
	opcode  uint16
	_       int16 // aio_reqprio
	fd      uint32
	buf     uint64
	nbytes  uint64
	offset  int64
	_       uint64 // aio_reserved2
	_       uint32 // aio_flags
	_       uint32 // aio_resfd
}

type ioEvent struct {
	data, obj uint64
	res, res2 int64
}

// AIO is a Queue on the kernel's asynchronous I/O, as libaio uses it. The kernel does a buffered
// request inside io_submit: it has ended when Enter returns.
type AIO struct {
	ctx    uintptr
	iocbs  []iocb   // by tag
	bufs   [][]byte // by tag
	queued []*iocb
	got    []ioEvent // taken from the kernel
	next   int       // the first of got that Next has not given out
}

// NewAIO makes a queue for depth requests at a time.
func NewAIO(depth int) (*AIO, error) {
	a := &AIO{iocbs: make([]iocb, depth), bufs: make([][]byte, depth), queued: make([]*iocb, 0, depth), got: make([]ioEvent, 0, depth)}
	if _, _, e := unix.Syscall(unix.SYS_IO_SETUP, uintptr(depth), uintptr(unsafe.Pointer(&a.ctx)), 0); e != 0 {
		return nil, fmt.Errorf("io_setup: %w", e)
	}
	return a, nil
}

// Prep puts a request into the queue.
func (a *AIO) Prep(op Op, fd int, p []byte, off int64, flags uint32, tag uint32) error {
	if len(a.queued) == cap(a.queued) {
		return ErrFull
	}
	c := &a.iocbs[tag]
	*c = iocb{data: uint64(tag), fd: uint32(fd), rwFlags: flags, buf: uint64(uintptr(unsafe.Pointer(unsafe.SliceData(p)))),
		nbytes: uint64(len(p)), offset: off}
	switch op {
	case Read:
		c.opcode = iocbPread
	case Write:
		c.opcode = iocbPwrite
	default:
		*c = iocb{data: uint64(tag), fd: uint32(fd), opcode: iocbFdsync}
	}
	a.bufs[tag] = p
	a.queued = append(a.queued, c)
	return nil
}

// Enter gives the kernel what is prepared, and waits until wait completions can be taken. A request
// that the kernel does not even take is a completion with its error, as io_submit(2) has it for the
// first of a list.
func (a *AIO) Enter(wait int) error {
	for q := a.queued; len(q) > 0; {
		n, _, e := unix.Syscall(unix.SYS_IO_SUBMIT, a.ctx, uintptr(len(q)), uintptr(unsafe.Pointer(unsafe.SliceData(q))))
		switch {
		case e == unix.EINTR:
		case e != 0:
			a.got = append(a.got, ioEvent{data: q[0].data, res: -int64(e)})
			q = q[1:]
		default:
			q = q[n:]
		}
	}
	a.queued = a.queued[:0]
	for have := len(a.got) - a.next; have < wait; have = len(a.got) - a.next {
		if err := a.take(wait - have); err != nil {
			return err
		}
	}
	return nil
}

// take takes completions from the kernel, and waits for at least least of them.
func (a *AIO) take(least int) error {
	// no more than depth requests are in flight, so they have room
	room := a.got[len(a.got):cap(a.got)]
	n, _, e := unix.Syscall6(unix.SYS_IO_GETEVENTS, a.ctx, uintptr(least), uintptr(len(room)), uintptr(unsafe.Pointer(unsafe.SliceData(room))), 0, 0)
	if e == unix.EINTR {
		return nil
	}
	if e != 0 {
		return fmt.Errorf("io_getevents: %w", e)
	}
	a.got = a.got[:len(a.got)+int(n)]
	return nil
}

// Next takes a completion.
func (a *AIO) Next() (tag uint32, res int32, ok bool) {
	if a.next == len(a.got) {
		return 0, 0, false
	}
	e := &a.got[a.next]
	if a.next++; a.next == len(a.got) {
		a.next, a.got = 0, a.got[:0]
	}
	a.bufs[e.data] = nil
	return uint32(e.data), int32(e.res), true
}

// Close gives the queue back; the kernel waits for what is in flight.
func (a *AIO) Close() error {
	if _, _, e := unix.Syscall(unix.SYS_IO_DESTROY, a.ctx, 0, 0); e != 0 {
		return fmt.Errorf("io_destroy: %w", e)
	}
	return nil
}
