// Package kiocb is one request to read or write a file: where, and how, and who is told of its end.
// It is the word that the ways in (a system call, a ring, a mount) and the rooms that carry
// requests out have in common.
//
// Model: struct kiocb and the RWF_ flags of preadv2(2). Difference: the memory that is read into or
// written from is an argument beside it, as the iov_iter is in Linux.
package kiocb

import "btrlab/internal/sched"

// Request is where to read or write, and how.
type Request struct {
	Pos   uint64 // in bytes
	Flags Flags
	// Done, if set, is told the end of a direct request that was queued: the call has returned
	// EIOCBQUEUED then. Other requests end before the call returns, and Done hears nothing of them.
	Done Completion
	// File is the open file of the request; a durable (DSync) write calls its SyncWrite.
	File File
	// Wrote, if set, is given the position of the first byte that a write has written: an append
	// finds it under its lock. A write without a byte leaves it alone. Models ki_pos, which is the
	// position after the last byte.
	Wrote *uint64
}

// File is an open file, as the end of a request sees it. Models kiocb.ki_filp.
type File interface {
	// SyncWrite makes durable what a write has written, and reports data errors as fsync does.
	// Models generic_write_sync().
	SyncWrite(t *sched.Task) error
	// HoldsInode leaves word with the open file that i_rwsem is held for it: a wrong order of the
	// museum (policy.MarkFile), because other tasks have the file open as well.
	HoldsInode(yes bool)
}

// Durable ends a write of n bytes that err stopped, or nothing: a durable one (DSync) is synced,
// also after an error, because a ring, and libaio, report a short write as n without its error. If
// the sync fails the answer is that no byte is written. Models the end of btrfs_do_write_iter().
func (r *Request) Durable(t *sched.Task, n int, err error) (int, error) {
	if n == 0 || r.Flags&DSync == 0 {
		return n, err
	}
	if serr := r.File.SyncWrite(t); serr != nil {
		return 0, serr
	}
	return n, err
}

// Completion is told the end of queued requests. Models kiocb.ki_complete.
type Completion interface {
	// Complete is called once for each request that returned EIOCBQUEUED, with what the call would
	// have returned without Done. t is the task that ended the last bio, or a worker: Complete does
	// not sleep. It may come before the call has returned. From here on the memory of the request
	// is the caller's again.
	Complete(t *sched.Task, n int, err error)
}

// Flags are how a request is to be carried out.
type Flags uint32

// The flags. Their values are ours.
const (
	Nowait  Flags = 1 << iota // IOCB_NOWAIT: EAGAIN where the request would sleep
	Direct                    // IOCB_DIRECT: not through the page cache
	DSync                     // IOCB_DSYNC: durable before it returns
	Append                    // IOCB_APPEND: at the end of the file, whatever Pos says
	NoTimes                   // FMODE_NOCMTIME: the caller sets mtime and ctime
)
