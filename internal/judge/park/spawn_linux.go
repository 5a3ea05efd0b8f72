//go:build !portable

package park

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// trap is a system call as a task makes it.
type trap struct {
	number uintptr
	args   [6]uintptr
}

// landed is what a trap returned, in memory that the task shares with the agent.
type landed struct {
	r1    uintptr
	errno uintptr
	ended uintptr
}

// gate is the system call that a task makes before each of its traps, and after the last one: the
// host parks tasks there that have not begun or that have ended an operation.
const gate = unix.SYS_GETPPID

// spawn starts a process of one thread, bound to a processor, which makes the traps. It is a copy
// of this one that does nothing but system calls: it takes no memory and starts no thread, so that
// it never waits for another task of ours, and no processor sends it an interrupt for a map of
// memory. It touches the memory that its calls are about first: a request that must not wait is
// EAGAIN where a page of its buffer is not there, or is shared with the agent since the copy.
//
//go:norace
//go:noinline
//go:nosplit
func spawn(mask *unix.CPUSet, traps []trap, out []landed, memory [][]byte) (pid uintptr, errno unix.Errno) {
	pid, _, errno = unix.RawSyscall6(unix.SYS_CLONE, uintptr(unix.SIGCHLD), 0, 0, 0, 0, 0)
	if errno != 0 || pid != 0 {
		return pid, errno
	}
	unix.RawSyscall(unix.SYS_SCHED_SETAFFINITY, 0, unsafe.Sizeof(*mask), uintptr(unsafe.Pointer(mask)))
	for _, b := range memory {
		for i := 0; i < len(b); i += 4096 {
			p := (*byte)(unsafe.Add(unsafe.Pointer(unsafe.SliceData(b)), i))
			*p = *p + 1
			*p = *p - 1
		}
	}
	for i := range traps {
		unix.RawSyscall(gate, 0, 0, 0)
		a := &traps[i]
		r1, _, e := unix.RawSyscall6(a.number, a.args[0], a.args[1], a.args[2], a.args[3], a.args[4], a.args[5])
		out[i].r1, out[i].errno, out[i].ended = r1, uintptr(e), 1
	}
	unix.RawSyscall(gate, 0, 0, 0)
	for {
		unix.RawSyscall(unix.SYS_EXIT_GROUP, 0, 0, 0)
	}
}

// visit starts a process that goes to the processors of mask, scheduled as attr says, and ends. It
// is a process of its own, as those of spawn: a thread of the agent would have the agent's memory
// on that processor, and when it stands still, nobody could change a map of that memory.
//
//go:norace
//go:noinline
//go:nosplit
func visit(mask *unix.CPUSet, attr *unix.SchedAttr) (pid uintptr, errno unix.Errno) {
	pid, _, errno = unix.RawSyscall6(unix.SYS_CLONE, uintptr(unix.SIGCHLD), 0, 0, 0, 0, 0)
	if errno != 0 || pid != 0 {
		return pid, errno
	}
	unix.RawSyscall(unix.SYS_SCHED_SETATTR, 0, uintptr(unsafe.Pointer(attr)), 0)
	unix.RawSyscall(unix.SYS_SCHED_SETAFFINITY, 0, unsafe.Sizeof(*mask), uintptr(unsafe.Pointer(mask)))
	for {
		unix.RawSyscall(unix.SYS_EXIT_GROUP, 0, 0, 0)
	}
}
