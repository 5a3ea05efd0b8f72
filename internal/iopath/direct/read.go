package direct

import (
	"errors"

	"btrlab/internal/data/extentmap"
	"btrlab/internal/data/fileread"
	"btrlab/internal/data/inode"
	"btrlab/internal/errno"
	"btrlab/internal/format"
	"btrlab/internal/iopath"
	"btrlab/internal/kiocb"
	"btrlab/internal/lock/extentio"
	"btrlab/internal/policy"
	"btrlab/internal/sched"
	"btrlab/internal/sched/cost"
)

// Read reads into p from rq.Pos on, as far as the file goes, and returns how many bytes it read.
// ENOTBLK says that the rest must be read through the page cache, EIOCBQUEUED that rq.Done will be
// told the rest.
//
// Models fs/btrfs/direct-io.c:btrfs_direct_read(); until 5.10 it took no i_rwsem.
func Read(t *sched.Task, env *iopath.Env, ip *inode.Inode, rq kiocb.Request, p []byte) (int, error) {
	if rq.Flags&^(kiocb.Direct|kiocb.Nowait) != 0 {
		return 0, errno.EOPNOTSUPP
	}
	t.Spend(cost.Syscall, 1)
	nowait := rq.Flags&kiocb.Nowait != 0
	var pl policy.DirectPlan
	pl.ForRead(&policy.Facts{Start: rq.Pos, End: rq.Pos + uint64(len(p)), Nowait: nowait}, env.Policy())
	if pl.Lock == policy.LockShared {
		if !nowait {
			ip.RLock(t)
		} else if !ip.TryRLock(t) {
			return 0, kiocb.AgainInode
		}
		defer ip.RUnlock(t)
	}
	if misaligned(rq.Pos, len(p)) {
		return 0, errno.ENOTBLK
	}
	start, end := rq.Pos, rq.Pos+uint64(len(p))
	if nowait && ip.Pages.Pages() > 0 && dirty(t, ip, start, end) {
		return 0, kiocb.AgainFlush
	}
	if !nowait {
		if err := flushCached(t, env, ip, start, end); err != nil {
			return 0, err
		}
	}
	r := read{ip: ip, pl: pl, nowait: nowait, env: env, io: newRequest(t, env, ip, false, rq)}
	// The count first: without i_rwsem a truncate may come, which waits for those that have seen
	// the old i_size before it drops what they read. One that has waited for them and has not set
	// i_size holds those that come now.
	if pl.HoldReads && ip.ReadsHeld(t) {
		if nowait {
			return r.io.submitted(t, start, start, 0, kiocb.AgainInode)
		}
		ip.DIO.Dec(t)
		ip.RLock(t)
		defer ip.RUnlock(t)
		ip.DIO.Inc(t)
	}
	size := ip.Size(t)
	if start >= size {
		return r.io.submitted(t, start, start, 0, nil)
	}
	p = p[:min(end-start, format.AlignUp(size-start, format.SectorSize))]
	end = start + uint64(len(p))
	done := 0
	var err error
	for err == nil && done < len(p) {
		var n int
		n, err = r.extent(t, start+uint64(done), p[done:])
		done += n
	}
	if nowait && err == nil { // a sync read waits for the device all the same
		t.EndNowait()
		defer t.BeginNowait()
	}
	return r.io.submitted(t, start, end, min(done, int(size-start)), err)
}

// read is the state of one direct read.
type read struct {
	env *iopath.Env
	ip  *inode.Inode
	pl  policy.DirectPlan
	io  *request

	nowait bool
}

// extent starts the read of the part of p that is in the extent at pos. The range of that part
// stays locked until the device has read it: by its extent lock, or since 6.12 by the bit of direct
// I/O alone. That bit does not keep the checksums: when a queued read has let i_rwsem go, a
// completion and a commit take those of a replaced extent away. So they are looked up first.
func (r *read) extent(t *sched.Task, pos uint64, p []byte) (int, error) {
	start, end := pos, pos+uint64(len(p))
	tree, lb := &r.ip.IOTree, extentio.Locked
	m, err := r.lock(t, start, end)
	if err != nil && r.nowait {
		return 0, err // it is not locked
	}
	n, b := 0, r.io.bio()
	if err == nil && m.Kind == extentmap.Regular && m.Compression == format.CompressNone {
		n = int(min(m.End, end, pos+maxBio) - pos)
		err = r.sums(t, m.Bytenr(pos), n, &b.sums)
	}
	if r.pl.Has(policy.DIOLocked) {
		tree.Unlock(t, start, end)
		lb = extentio.DIOLocked
	}
	switch {
	case err != nil:
		n = 0
	case m.Kind == extentmap.Inline || m.Compression != format.CompressNone:
		// Since 5.19: the page cache would wait, or make the read short. Models the end of
		// btrfs_dio_iomap_begin().
		if err = errno.ENOTBLK; r.nowait {
			err = kiocb.AgainBuffered
		}
	case m.Kind != extentmap.Regular:
		n = int(min(m.End, end) - pos)
		clear(p[:n])
	default:
		if start += uint64(n); start < end { // of the rest nothing is read yet
			tree.Change(t, start, end, lb, 0)
		}
		r.io.submitRead(t, b, lb, pos, int64(m.Bytenr(pos)), p[:n])
		return n, nil
	}
	tree.Change(t, start, end, lb, 0)
	return n, err
}

// sums looks up the checksums of the n bytes at bytenr. With NOWAIT it tries first, so that a wait
// is seen; Linux waits without a try.
func (r *read) sums(t *sched.Task, bytenr uint64, n int, into *fileread.Sums) error {
	rd, sectors := r.env.Read, n/format.SectorSize
	err := rd.LookupSums(t, r.ip, bytenr, sectors, r.nowait, into)
	if r.nowait && errors.Is(err, errno.EAGAIN) {
		mayBlock(t, "lookup_csums")
		err = rd.LookupSums(t, r.ip, bytenr, sectors, false, into)
	}
	return err
}
