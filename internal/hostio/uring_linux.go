//go:build !portable

package hostio

import (
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"
)

// The ABI of io_uring, from linux/io_uring.h.
const (
	offSQRing = 0
	offSQEs   = 0x10000000

	featSingleMmap = 1 << 0

	enterGetEvents = 1 << 0

	registerEventFD = 4

	cqEventFDDisabled = 1 << 0

	opNop       = 0
	opReadv     = 1
	opWritev    = 2
	opFsync     = 3
	opRead      = 22
	opWrite     = 23
	fsyncNoMeta = 1 << 0 // IORING_FSYNC_DATASYNC
)

type sqOffsets struct {
	head, tail, ringMask, ringEntries, flags, dropped, array, resv1 uint32
	userAddr                                                        uint64
}

type cqOffsets struct {
	head, tail, ringMask, ringEntries, overflow, cqes, flags, resv1 uint32
	userAddr                                                        uint64
}

type uringParams struct {
	sqEntries, cqEntries, flags, sqThreadCPU, sqThreadIdle, features, wqFd uint32
	resv                                                                   [3]uint32
	sq                                                                     sqOffsets
	cq                                                                     cqOffsets
}

type sqe struct {
	opcode, flags uint8
	ioprio        uint16
	fd            int32
	off           uint64
	addr          uint64
	len           uint32
	opFlags       uint32 // rw_flags, fsync_flags
	userData      uint64
	bufIndex      uint16
	personality   uint16
	spliceFd      int32
	addr3, pad    uint64
}

type cqe struct {
	userData uint64
	res      int32
	flags    uint32
}

// rings are the two queues of an io_uring, as the kernel shares them.
type rings struct {
	fd       int
	ring     []byte // the queues, mapped
	sqeBytes []byte
	cqes     []cqe

	sqHead, sqTail *uint32
	cqHead, cqTail *uint32
	cqFlags        *uint32 // nil before 5.8
	sqMask, cqMask uint32
	sqEntries      uint32
	tail           uint32 // of the submission queue, with what the kernel has not been told

	// told is the tail that Enter told the kernel last. Next loads it, so that the race detector
	// sees a completion after its request.
	told atomic.Uint32
}

// Ring is a Queue on an io_uring.
//
// One Enter is one system call for all requests prepared since the last; taking completions needs
// none. There is no thread of the kernel that polls (IORING_SETUP_SQPOLL), as in fio without
// sqthread_poll=1.
type Ring struct {
	rings
	sqes   []sqe
	events *os.File // counts completions; nil until Events
	depth  uint32
	slots  []slot // by tag
}

// slot keeps what a request in flight points to.
type slot struct {
	buf []byte
	iov []unix.Iovec
}

// NewRing makes a ring for depth requests at a time; depth is 1 to 32768.
func NewRing(depth int) (*Ring, error) {
	if depth < 1 || depth > 32768 {
		return nil, fmt.Errorf("bad depth of a ring, have %d want 1 to 32768", depth)
	}
	r := &Ring{depth: uint32(depth), slots: make([]slot, depth)}
	if err := r.setup(depth, 0, unsafe.Sizeof(sqe{})); err != nil {
		return nil, err
	}
	r.sqes = unsafe.Slice((*sqe)(unsafe.Pointer(unsafe.SliceData(r.sqeBytes))), r.sqEntries)
	return r, nil
}

// setup makes an io_uring for depth requests of size bytes each, with the flags of
// IORING_SETUP_*.
//
// Models io_uring_setup(2) and io_uring_queue_mmap(3).
func (r *rings) setup(depth int, flags uint32, size uintptr) error {
	p := uringParams{flags: flags}
	fd, _, e := unix.Syscall(unix.SYS_IO_URING_SETUP, uintptr(depth), uintptr(unsafe.Pointer(&p)), 0)
	if e != 0 {
		return fmt.Errorf("io_uring_setup: %w", e)
	}
	r.fd = int(fd)
	if p.features&featSingleMmap == 0 {
		unix.Close(r.fd)
		return fmt.Errorf("io_uring_setup: a kernel before 5.4")
	}
	mapped := max(p.sq.array+4*p.sqEntries, p.cq.cqes+uint32(unsafe.Sizeof(cqe{}))*p.cqEntries)
	var err error
	if r.ring, err = unix.Mmap(r.fd, offSQRing, int(mapped), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED|unix.MAP_POPULATE); err == nil {
		r.sqeBytes, err = unix.Mmap(r.fd, offSQEs, int(p.sqEntries)*int(size), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED|unix.MAP_POPULATE)
	}
	if err != nil {
		r.close()
		return fmt.Errorf("map an io_uring: %w", err)
	}
	word := func(off uint32) *uint32 { return (*uint32)(unsafe.Pointer(&r.ring[off])) }
	r.sqHead, r.sqTail, r.sqMask, r.sqEntries = word(p.sq.head), word(p.sq.tail), *word(p.sq.ringMask), p.sqEntries
	r.cqHead, r.cqTail, r.cqMask = word(p.cq.head), word(p.cq.tail), *word(p.cq.ringMask)
	if p.cq.flags != 0 {
		r.cqFlags = word(p.cq.flags)
	}
	r.cqes = unsafe.Slice((*cqe)(unsafe.Pointer(&r.ring[p.cq.cqes])), p.cqEntries)
	for i := range p.sqEntries { // entry i of the queue is always sqe i
		*word(p.sq.array + 4*i) = i
	}
	return nil
}

// close unmaps the queues and closes the ring.
func (r *rings) close() error {
	for _, m := range [][]byte{r.ring, r.sqeBytes} {
		if m != nil {
			unix.Munmap(m)
		}
	}
	return unix.Close(r.fd)
}

// Prep puts a request into the queue.
func (r *Ring) Prep(op Op, fd int, p []byte, off int64, flags uint32, tag uint32) error {
	s, err := r.entry()
	if err != nil {
		return err
	}
	*s = sqe{fd: int32(fd), userData: uint64(tag)}
	r.slots[tag].buf = p
	switch op {
	case Sync:
		s.opcode, s.opFlags = opFsync, fsyncNoMeta
	case Read:
		s.opcode = opRead
	default:
		s.opcode = opWrite
	}
	if op != Sync {
		s.off, s.len, s.opFlags = uint64(off), uint32(len(p)), flags
		s.addr = uint64(uintptr(unsafe.Pointer(unsafe.SliceData(p))))
	}
	r.tail++
	return nil
}

// PrepVec is Prep for bytes in several places; vecs has at most 1024 of them.
func (r *Ring) PrepVec(op Op, fd int, vecs [][]byte, off int64, tag uint32) error {
	s, err := r.entry()
	if err != nil {
		return err
	}
	k := &r.slots[tag]
	k.iov = k.iov[:0]
	for _, v := range vecs {
		if len(v) > 0 {
			k.iov = append(k.iov, unix.Iovec{Base: unsafe.SliceData(v), Len: uint64(len(v))})
		}
	}
	*s = sqe{opcode: opReadv, fd: int32(fd), userData: uint64(tag), off: uint64(off), len: uint32(len(k.iov))}
	if op == Write {
		s.opcode = opWritev
	}
	s.addr = uint64(uintptr(unsafe.Pointer(unsafe.SliceData(k.iov))))
	r.tail++
	return nil
}

// PrepNop puts a request into the queue that completes as soon as the kernel sees it. Its tag is no
// request's: the depth or above.
func (r *Ring) PrepNop(tag uint32) error {
	s, err := r.entry()
	if err != nil {
		return err
	}
	*s = sqe{opcode: opNop, fd: -1, userData: uint64(tag)}
	r.tail++
	return nil
}

func (r *Ring) entry() (*sqe, error) {
	if r.tail-atomic.LoadUint32(r.sqHead) >= uint32(len(r.sqes)) {
		return nil, ErrFull
	}
	return &r.sqes[r.tail&r.sqMask], nil
}

// Enter gives the kernel what is prepared, and waits until wait completions can be taken.
func (r *Ring) Enter(wait int) error {
	return r.Push(r.Publish(), wait)
}

// Publish shows the kernel what is prepared, and gives the number of requests for Push. It belongs
// to the submission side, as Prep does.
func (r *rings) Publish() (submit uint32) {
	atomic.StoreUint32(r.sqTail, r.tail)
	submit = r.tail - r.told.Load()
	r.told.Store(r.tail)
	return submit
}

// Push lets the kernel take submit published requests, and waits until wait completions can be
// taken. Many tasks may push at a time: one may take what another has published.
func (r *rings) Push(submit uint32, wait int) error {
	for {
		n, err := r.enter(submit, uint32(wait))
		// EAGAIN: no memory for a request now
		if errors.Is(err, unix.EINTR) || errors.Is(err, unix.EAGAIN) {
			n = 0
		} else if err != nil {
			return fmt.Errorf("io_uring_enter: %w", err)
		}
		if submit -= n; submit == 0 && (err == nil || wait == 0) {
			return nil
		}
		// What is left was interrupted, or another task's push took it.
		if n == 0 && err == nil && atomic.LoadUint32(r.sqHead) == atomic.LoadUint32(r.sqTail) {
			return nil
		}
	}
}

// Events makes Wait a wait in the runtime's poller, beside network connections, and not in a system
// call. A goroutine that sleeps in a system call keeps its processor until the runtime's monitor
// takes it away, and gets one back only when one is idle; a ring whose completions are taken by a
// task of their own is better off with an eventfd.
//
// Models io_uring_register_eventfd(3).
func (r *Ring) Events() error {
	fd, err := unix.Eventfd(0, unix.EFD_NONBLOCK|unix.EFD_CLOEXEC)
	if err != nil {
		return fmt.Errorf("eventfd: %w", err)
	}
	word := int32(fd)
	if _, _, e := unix.Syscall6(unix.SYS_IO_URING_REGISTER, uintptr(r.fd), registerEventFD, uintptr(unsafe.Pointer(&word)), 1, 0, 0); e != 0 {
		unix.Close(fd)
		return fmt.Errorf("io_uring_register: %w", e)
	}
	r.events = os.NewFile(uintptr(fd), "eventfd of a ring")
	return nil
}

// Wait waits until a completion can be taken, or may be; it submits nothing. It is for a task that
// takes completions while another submits.
func (r *Ring) Wait() error {
	if r.events != nil {
		var count [8]byte
		_, err := r.events.Read(count[:])
		return err
	}
	for {
		_, err := r.enter(0, 1)
		if !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

func (r *rings) enter(submit, wait uint32) (uint32, error) {
	flags := uintptr(0)
	if wait > 0 {
		flags = enterGetEvents
	}
	n, _, e := unix.Syscall6(unix.SYS_IO_URING_ENTER, uintptr(r.fd), uintptr(submit), uintptr(wait), flags, 0, 0)
	if e != 0 {
		return 0, e
	}
	return uint32(n), nil
}

// Ready reports whether there is a completion to take.
func (r *rings) Ready() bool {
	return atomic.LoadUint32(r.cqHead) != atomic.LoadUint32(r.cqTail)
}

// Notify says whether completions that come from now on end a Wait, after Events. One that came
// while they did not never will: after Notify(true) look again with Ready. Before 5.8 all end it.
//
// Models IORING_CQ_EVENTFD_DISABLED. The kernel shows a completion, then has a full barrier
// (wq_has_sleeper), then reads the flag; so of it and Notify one sees the other.
func (r *Ring) Notify(on bool) {
	if r.cqFlags == nil {
		return
	}
	flags := uint32(cqEventFDDisabled)
	if on {
		flags = 0
	}
	atomic.StoreUint32(r.cqFlags, flags)
}

// Wake ends a Wait, after Events, without a completion.
func (r *Ring) Wake() error {
	_, err := r.events.Write([]byte{0: 1, 7: 0})
	return err
}

// Next takes a completion.
func (r *Ring) Next() (tag uint32, res int32, ok bool) {
	if tag, res, ok = r.next(); ok && tag < r.depth {
		k := &r.slots[tag]
		k.buf = nil
		clear(k.iov)
	}
	return tag, res, ok
}

// next takes a completion.
func (r *rings) next() (tag uint32, res int32, ok bool) {
	head := *r.cqHead
	if head == atomic.LoadUint32(r.cqTail) {
		return 0, 0, false
	}
	r.told.Load()
	c := &r.cqes[head&r.cqMask]
	tag, res = uint32(c.userData), c.res
	atomic.StoreUint32(r.cqHead, head+1)
	return tag, res, true
}

// Close unmaps the queues and closes the ring.
func (r *Ring) Close() error {
	if r.events != nil {
		r.events.Close()
	}
	return r.close()
}
