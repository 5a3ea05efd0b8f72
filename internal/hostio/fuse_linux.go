//go:build !portable

package hostio

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"
)

// The ABI of FUSE over io_uring, from linux/fuse.h and linux/io_uring.h.
const (
	setupSQE128 = 1 << 10

	opURingCmd = 46

	fuseCmdRegister       = 1
	fuseCmdCommitAndFetch = 2

	fuseHeaderLen = 128 // of in_out, and of op_in
	fuseInLen     = 40  // struct fuse_in_header
	fuseOutLen    = 16  // struct fuse_out_header
)

// fuseHeaders is struct fuse_uring_req_header.
type fuseHeaders struct {
	inOut, opIn [fuseHeaderLen]byte
	flags       uint64
	commitID    uint64
	payload     uint32 // bytes of the payload, of the request and then of the answer
	_           uint32
	_           uint64
}

// fuseSQE is an entry of 128 bytes with struct fuse_uring_cmd_req.
type fuseSQE struct {
	opcode, flags uint8
	ioprio        uint16
	fd            int32
	cmd, _        uint32
	addr          uint64
	len           uint32
	opFlags       uint32
	userData      uint64
	_             [8]byte
	cmdFlags      uint64 // at 48
	commitID      uint64
	qid           uint16
	_             [6]byte
	_             [56]byte
}

// FuseEntry takes requests of a FUSE mount, one at a time, through an io_uring of its own: a system
// call gives the kernel the answer to a request and waits for the next. It is one task's at a time.
//
// The kernel has a queue for each possible CPU, gives a request to an entry of the queue of the CPU
// that it was made on, and makes all requests wait until each queue has an entry.
//
// Models fs/fuse/dev_uring.c: struct fuse_ring_ent.
type FuseEntry struct {
	rings
	sqe     *fuseSQE
	memory  []byte // mapped: the kernel writes to it at any time
	headers *fuseHeaders
	payload []byte
	iov     [2]unix.Iovec
	submit  uint32
}

// NewFuseEntry makes an entry for requests and answers of up to payload bytes: the larger of
// max_write and max_pages pages, at least 8192. It needs no mount yet.
func NewFuseEntry(payload int) (*FuseEntry, error) {
	e := &FuseEntry{}
	if err := e.setup(1, setupSQE128, unsafe.Sizeof(fuseSQE{})); err != nil {
		return nil, err
	}
	page := os.Getpagesize()
	var err error
	if e.memory, err = unix.Mmap(-1, 0, page+payload, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON); err != nil {
		e.close()
		return nil, fmt.Errorf("map the memory of a FUSE entry: %w", err)
	}
	e.sqe = (*fuseSQE)(unsafe.Pointer(unsafe.SliceData(e.sqeBytes)))
	e.headers = (*fuseHeaders)(unsafe.Pointer(unsafe.SliceData(e.memory)))
	e.payload = e.memory[page:]
	e.iov = [2]unix.Iovec{
		{Base: unsafe.SliceData(e.memory), Len: uint64(unsafe.Sizeof(fuseHeaders{}))},
		{Base: unsafe.SliceData(e.payload), Len: uint64(len(e.payload))},
	}
	return e, nil
}

// Register makes the entry one of the queue qid of the mount of fd, which is an open /dev/fuse. The
// next Fetch tells the kernel.
func (e *FuseEntry) Register(fd, qid int) {
	*e.sqe = fuseSQE{opcode: opURingCmd, fd: int32(fd), cmd: fuseCmdRegister, qid: uint16(qid),
		addr: uint64(uintptr(unsafe.Pointer(&e.iov))), len: uint32(len(e.iov))}
	e.tail++
	e.submit = e.Publish()
}

// Fetch gives the kernel the answer, or the entry, and waits for a request: its fuse_in_header, the
// struct of its operation, and the rest. They are the entry's and hold until the next Fetch. It is
// ENOTCONN when the mount has ended.
func (e *FuseEntry) Fetch() (header, op, payload []byte, err error) {
	for {
		if err := e.Push(e.submit, 1); err != nil {
			return nil, nil, nil, err
		}
		e.submit = 0
		_, res, ok := e.next()
		if !ok {
			continue // a signal
		}
		if res < 0 {
			return nil, nil, nil, unix.Errno(-res)
		}
		h := e.headers
		all := *(*uint32)(unsafe.Pointer(&h.inOut)) // len of fuse_in_header
		n := int(all) - fuseInLen - int(h.payload)
		if n < 0 || n > fuseHeaderLen || int(h.payload) > len(e.payload) {
			return nil, nil, nil, fmt.Errorf("bad request of FUSE over io_uring, have %d bytes of which %d are the payload", all, h.payload)
		}
		return h.inOut[:fuseInLen], h.opIn[:n], e.payload[:h.payload], nil
	}
}

// Answer is where the answer to a request goes, in place of the request: its fuse_out_header, and
// the rest.
func (e *FuseEntry) Answer() (header, payload []byte) { return e.headers.inOut[:fuseOutLen], e.payload }

// Commit makes n bytes of Answer's payload the answer; the next Fetch gives it to the kernel.
func (e *FuseEntry) Commit(n int) {
	e.headers.payload = uint32(n)
	e.sqe.cmd, e.sqe.commitID = fuseCmdCommitAndFetch, e.headers.commitID
	e.tail++
	e.submit = e.Publish()
}

// Close frees the entry.
func (e *FuseEntry) Close() error {
	err := e.close() // the kernel lets go of the memory
	runtime.KeepAlive(e)
	return errors.Join(err, unix.Munmap(e.memory))
}

// OnCPU makes the goroutine a thread of the CPU until it ends: a request of the CPU's queue is
// taken and answered where it was made, and no other CPU, which may sleep, is woken for it. With a
// CPU that this process may not use (taskset), or that is off, it is a thread of those it may use.
func OnCPU(cpu int) {
	runtime.LockOSThread()
	var set unix.CPUSet
	if err := unix.SchedGetaffinity(0, &set); err != nil || !set.IsSet(cpu) {
		return
	}
	set.Zero()
	set.Set(cpu)
	_ = unix.SchedSetaffinity(0, &set)
}

// FuseRings is the number of queues of a FUSE mount over io_uring: of the possible CPUs.
func FuseRings() (int, error) {
	const path = "/sys/devices/system/cpu/possible"
	text, err := os.ReadFile(path)
	if err != nil {
		return 0, err
	}
	line := strings.TrimSpace(string(text))
	last, err := strconv.Atoi(line[strings.LastIndexAny(line, "-,")+1:])
	if err != nil {
		return 0, fmt.Errorf("%s: have %q, want a list of CPUs", path, line)
	}
	return last + 1, nil
}

// FuseFD is a duplicate of this process's file of /dev/fuse whose mount has the device number
// minor. Linux before 6.18 does not say which it is: then the process may have one such file only.
//
// Models fs/fuse/dev.c:fuse_dev_show_fdinfo().
func FuseFD(minor uint32) (int, error) {
	list, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return -1, err
	}
	var all, said []int
	const key = "fuse_connection:\t"
	for _, f := range list {
		if name, _ := os.Readlink("/proc/self/fd/" + f.Name()); name != "/dev/fuse" {
			continue
		}
		fd, err := strconv.Atoi(f.Name())
		if err != nil {
			return -1, err
		}
		all = append(all, fd)
		info, _ := os.ReadFile("/proc/self/fdinfo/" + f.Name()) // as good as an old one
		if bytes.Contains(info, fmt.Appendf(nil, "%s%d\n", key, minor)) {
			return unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 3)
		}
		if bytes.Contains(info, []byte(key)) {
			said = append(said, fd)
		}
	}
	if len(all) == 1 && len(said) == 0 {
		return unix.FcntlInt(uintptr(all[0]), unix.F_DUPFD_CLOEXEC, 3)
	}
	return -1, fmt.Errorf("no file of /dev/fuse of the mount %d among %d: %w", minor, len(all), os.ErrNotExist)
}
