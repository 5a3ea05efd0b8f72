// Package direct reads and writes files past the page cache: between the caller's memory and the
// device.
//
// The normal life of a write, with the step's function here:
//
//	Write -> lockFile                 i_rwsem shared inside EOF, exclusive beyond; until 5.10 exclusive and let go for the I/O
//	      -> checkWrite               limits, time stamps, growth of the file up to the write
//	      -> flushCached              pages of the range are written back and removed
//	      -> beginIO                  i_dio_count up
//	      -> per extent:
//	           reserve                data space for the rest of the request, metadata for one extent
//	           lockExtent             the range of the rest, with no ordered extent and no page in it
//	           place                  in place if that is allowed, else new space
//	           order                  an ordered extent; i_size, if the write goes beyond it; range unlocked
//	           submit                 bios from the caller's memory, or from a copy of it with checksums
//	      -> endIO                    all bios have ended; pages that came meanwhile go; i_dio_count down
//	      -> unlockFile
//
// A write whose caller wants to be told of its end (kiocb.Request.Done) does not wait in endIO:
// unlockFile comes next, and the end of the last bio does the rest, or a worker where that may
// sleep. It holds no lock of the file meanwhile. What keeps others away is its ordered extents and
// its part of i_dio_count.
//
// What cannot go past the cache is ENOTBLK, with the bytes that were written before: the caller
// writes the rest through it. These are requests that are not sectors, inline and compressed
// extents, files with checksums since 6.15, and ranges whose pages do not go away.
//
// Two writers inside EOF exclude each other per extent only: each locks the rest of its request,
// but for the time of one extent. Requests over several extents may mix at the extents' borders.
//
// The source of a write may not be there. A pass ends at its first missing page, with the rest of
// the ordered extent given up; the source is faulted in, and the next pass goes on. Until 5.15 it
// was faulted in with the ordered extent in hand.
//
// A durable write (DSync) syncs the file: in the end of its last pass with i_rwsem held, until 6.10
// after that, and queued on a worker.
//
// A write of sectors that are not whole blocks goes through the page cache, or by the designs of
// ext4 and XFS: unaligned.go.
//
// A read locks the range of its rest extent by extent, too, and keeps the lock of each until the
// device has read it: without that a truncate or an overwrite elsewhere would free the blocks under
// it. The end of a bio lets it go. Until 5.10 a read took no i_rwsem, but while a truncate that
// drains first holds it (Plan.HoldReads).
//
// Lock order:
//
//	i_rwsem                           Write, Read
//	  range_lock                      Write, policies with WRITE_RANGE_LOCK
//	    space_ticket                  reserve
//	    dio_locked                    lockExtent, with DIO_LOCKED
//	      ordered_extent              lockExtent, between two attempts
//	        extent                    lockExtent
//	          tree_fs, tree_extent    place
//
// Model: fs/btrfs/direct-io.c and fs/iomap/direct-io.c of 6.16, and the order of 4.19;
// labs/reference 3.1 to 3.3 and 3.7. Differences: metadata is reserved before the range is locked;
// a read waits for ordered extents of buffered writes, where 6.16 goes through the page cache; the
// fallback to the page cache begins after i_rwsem is let go in every era.
package direct
