// Package buffered writes and reads files through the page cache.
//
// The normal life of a write of one batch, with the step's function here and the place in
// labs/reference 1.1:
//
//	Write -> lockFile                 i_rwsem, or the byte range, as the plan says
//	      -> checkWrite               2-4: limits, time stamps, growth of the file up to the write
//	      -> [dropInode]              1.2: i_dio_count up, i_rwsem let go (seed 002)
//	      -> per batch, in the order of the plan (policy.WriteSteps), which is mostly this:
//	           faultIn                b: the source, before any lock
//	           reserve                c, d: data and metadata space; may sleep for a flush or a commit
//	           preparePages           e: lock pages in ascending order, fill partial ones, wait for writeback
//	           lockExtent             f: extent lock inside EOF; an ordered extent in the way: let all go, wait, again
//	           copyFromUser           g: may be short
//	           dirtyPages             h: pages uptodate and dirty
//	           iSizeWrite             h: i_size
//	           setDelalloc            h, i: DELALLOC; the extent lock is let go
//	           dropPages              i
//	           balanceDirty           j: dirty throttling
//	      -> [relockInode], unlockFile
//
// Every step is a function of its own on the state of the write, so that a schedule can stop
// between any two, and so that another order is another plan.
//
// A lab orders the locks of a write or the waits inside a batch in another way (iopath.Lab): that
// is lab.go, and Write asks for it in one place.
//
// With NOWAIT (kiocb.Nowait) each step that would sleep answers with a kiocb.Again, which names the
// step and the reason: lockFile, checkWrite, reserve, balanceDirty (which comes before preparePages
// then), preparePages, lockExtent. Where Linux sleeps all the same, so does this, unless a toggle
// of the policy closes the gap; the task's record (sched.Task.NowaitSleeps) says at which step. A
// write that has copied some batches returns their bytes with the answer.
//
// Lock order:
//
//	i_rwsem                           Write
//	  range_lock                      Write, policies with WRITE_RANGE_LOCK (alone inside EOF)
//	    space_ticket                  reserve
//	    balance_dirty                 balanceDirty
//	    page                          preparePages, ascending
//	      stable_page                 preparePages
//	      extent                      lockExtent
//	        io_tree, inode_mu         iSizeWrite, setDelalloc
//
// Model: fs/btrfs/file.c:__btrfs_buffered_write() of 4.17 to 4.19, and the loop of 6.13 on, later
// copy_one_range(). Differences: the bits of the range are replaced and its lock let go in one step
// (setDelalloc), under the page locks, after i_size and the pages' dirty marks; no throttling on
// dirty metadata.
package buffered
