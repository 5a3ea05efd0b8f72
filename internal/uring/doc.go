// Package uring is a ring of requests and completions, and the workers that carry out what cannot
// be done at once. It knows no file system: it reads and writes through File.
//
// The life of a write, with the place of each decision:
//
//	GetSQE        the task fills an entry of the submission queue            nil: the queue is full
//	Submit        uring_lock: entry by entry
//	  issue       gate: does the file take Nowait requests of this kind?      no: punt
//	    attempt     File.WriteIter with Nowait, by the submitting task
//	      all       completed: the completion stands in the queue before Submit returns
//	      EAGAIN    the caller asked for Nowait itself: completed with EAGAIN
//	                otherwise: punt
//	      short     what is done counts; the rest: punt
//	      queued    a direct request is on its way: Complete ends it
//	  punt        io_wq: works of one inode that write wait for each other
//	work          a worker: File.WriteIter without Nowait, until all is done or an error ends it
//	complete      one completion with the count of all parts: of a request that its Submit ends, with the others when Submit
//	              returns, else at once; uring_completion; tasks in Wait are woken when they have enough
//	Reap          the task takes completions
//
// Every request that Submit took has one completion, whatever becomes of it: one that finds the
// queue full waits in a list until Reap has made room, and Close ends those that no worker has
// begun with ECANCELED.
//
// Lock order:
//
//	uring_lock          Submit, Cancel, Close; a File's locks are taken under it
//	  uring_completion  complete, Reap, Wait
//	  io_wq             punt, work, Cancel
//
// Invariants:
//   - inFlight is the requests without a completion, but for those that their Submit has in its
//     hands; it is 0 after Close
//   - at most one work of a bucket of inodes is in the run queue or with a worker
//   - a request is in one place: a list of free ones, the task that issues it, io_wq, a worker, the
//     device, or the overflow list
//
// Model: io_uring/io_uring.c, rw.c, io-wq.c and cancel.c; labs/reference 4.2. Differences: a
// completion is a call and not shared memory, and carries the error beside its number; no links,
// fixed files, polling or registered buffers; a buffered read that would wait for a page goes to a
// worker; the end of a direct request is reported where it happens and not by task work; a worker
// is made or woken when a work can run and none is idle, where io-wq counts how many of its workers
// sleep; idle workers stay.
package uring
