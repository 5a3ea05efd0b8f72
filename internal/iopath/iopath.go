// Package iopath has what the rooms of its floor are given. All of them take (t, env, ip, request
// ...): the task, the file system, the inode, and what is asked for.
package iopath

import (
	"sync/atomic"

	"btrlab/internal/blockdev"
	"btrlab/internal/data/fileread"
	"btrlab/internal/data/finish"
	"btrlab/internal/data/treelog"
	"btrlab/internal/data/writeback"
	"btrlab/internal/errno"
	"btrlab/internal/format"
	"btrlab/internal/meta/fstree"
	"btrlab/internal/meta/transaction"
	"btrlab/internal/policy"
	"btrlab/internal/sched"
)

// Env is the file system that the inodes are part of. Package fs makes one.
type Env struct {
	Read      *fileread.Reader
	Writeback *writeback.Engine
	Finish    *finish.Finisher
	// Device is the logical address space that file data is in.
	Device blockdev.Submitter
	Store  *fstree.Store
	Trans  *transaction.Manager
	Logs   *treelog.Logs
	// Now is the time for an inode's time stamps.
	Now func() format.Timespec

	// NoPayload says that no file data is kept: direct transfers move none.
	NoPayload bool

	// Reclaim, if set, says that memory is short: an allocation calls it, and it may sleep. A study
	// sets it.
	Reclaim func(t *sched.Task)

	// Lab has a lab's functions.
	Lab Lab

	// Requests keeps what package direct needs for a request.
	Requests Pool

	policy atomic.Pointer[policy.Policy]
}

// ThroughCache is the error of a direct write that goes through the page cache.
const ThroughCache = errno.ENOTBLK

// Policy is the locking policy in force. A request asks for it once.
func (e *Env) Policy() *policy.Policy { return e.policy.Load() }

// SetPolicy changes the policy. The caller has no request in flight.
func (e *Env) SetPolicy(p *policy.Policy) { e.policy.Store(p) }

// DirectSync marks sched.Task.Journal while a direct write syncs its file: the task holds
// i_rwsem, shared or not, and fsync takes what the task holds for its own. It is the task's, not
// the file's, which other tasks have open as well. Models BTRFS_TRANS_DIO_WRITE_STUB.
type DirectSync struct{}

// Source is the memory that a write copies from. Models an iov_iter of user memory.
type Source struct {
	// Buf is the bytes to write.
	Buf []byte
	// Faults, if any, says which bytes are there: a study's way to make copies short.
	Faults Faulter
}

// Faulter models user memory that may not be mapped.
type Faulter interface {
	// FaultIn makes the bytes [from, to) of the buffer present, as far as it can; it may sleep and
	// reports how many of them may be touched next. Zero is EFAULT. Models fault_in_readable().
	FaultIn(t *sched.Task, from, to int) int
	// Present is how many bytes of [from, to) can be copied now, with page faults disabled.
	Present(from, to int) int
}

// After is the source from byte n on.
func (s Source) After(n int) Source {
	s.Buf = s.Buf[n:]
	if s.Faults != nil && n > 0 {
		s.Faults = after{s.Faults, n}
	}
	return s
}

// after is a Faulter whose buffer begins n bytes into that of another.
type after struct {
	Faulter
	n int
}

func (a after) FaultIn(t *sched.Task, from, to int) int {
	return a.Faulter.FaultIn(t, from+a.n, to+a.n)
}
func (a after) Present(from, to int) int { return a.Faulter.Present(from+a.n, to+a.n) }
