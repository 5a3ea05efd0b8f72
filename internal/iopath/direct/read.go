package direct

import (
	"btrlab/internal/data/extentmap"
	"btrlab/internal/data/inode"
	"btrlab/internal/errno"
	"btrlab/internal/format"
	"btrlab/internal/iopath"
	"btrlab/internal/iopath/policy"
	"btrlab/internal/kiocb"
	"btrlab/internal/sched"
	"btrlab/internal/sched/cost"
)

// Read reads into p from rq.Pos on, as far as the file goes, and returns how many bytes it read. ENOTBLK says that the rest
// must be read through the page cache.
//
// Models fs/btrfs/direct-io.c:btrfs_direct_read(); until 5.10 it took no i_rwsem.
func Read(t *sched.Task, env *iopath.Env, ip *inode.Inode, rq kiocb.Request, p []byte) (int, error) {
	if rq.Flags&^kiocb.Direct != 0 {
		return 0, errno.EOPNOTSUPP
	}
	t.Spend(cost.Syscall, 1)
	pl := policy.For(policy.DirectRead, policy.Facts{Start: rq.Pos, End: rq.Pos + uint64(len(p))}, env.Policy())
	if pl.Lock == policy.LockShared {
		ip.RLock(t)
		defer ip.RUnlock(t)
	}
	size := ip.Size(t)
	if rq.Pos >= size {
		return 0, nil
	}
	if misaligned(rq.Pos, len(p)) {
		return 0, errno.ENOTBLK
	}
	p = p[:min(uint64(len(p)), format.AlignUp(size-rq.Pos, format.SectorSize))]
	if err := flushCached(t, env, ip, rq.Pos, rq.Pos+uint64(len(p))); err != nil {
		return 0, err
	}
	ip.DIO.Inc(t)
	defer ip.DIO.Dec(t)
	done := 0
	for done < len(p) {
		n, err := readExtent(t, env, ip, pl, rq.Pos+uint64(done), p[done:])
		if err != nil {
			return min(done, int(size-rq.Pos)), err
		}
		done += n
	}
	return min(done, int(size-rq.Pos)), nil
}

// readExtent reads the part of p that is in the extent at pos. The range stays locked until the device has read it: by its extent
// lock, or since 6.12 by the bit of direct I/O alone.
func readExtent(t *sched.Task, env *iopath.Env, ip *inode.Inode, pl policy.Plan, pos uint64, p []byte) (int, error) {
	start, end := pos, pos+uint64(len(p))
	lockRange(t, ip, pl, start, end)
	m, err := env.Read.Place.At(t, ip, pos)
	if pl.DIOLocked {
		ip.IOTree.Unlock(t, start, end)
		defer ip.IOTree.UnlockDIO(t, start, end)
	} else {
		defer ip.IOTree.Unlock(t, start, end)
	}
	if err != nil {
		return 0, err
	}
	n := int(min(m.End, end) - pos)
	switch {
	case m.Kind == extentmap.Inline || m.Compression != format.CompressNone:
		return 0, errno.ENOTBLK
	case m.Kind != extentmap.Regular:
		clear(p[:n])
		return n, nil
	}
	n = min(n, maxBio)
	return n, env.Read.ReadSectors(t, ip, pos, m.Bytenr(pos), sectors(p[:n], ip.Sums()))
}

// sectors divides p for a read: by sectors if each has a checksum.
func sectors(p []byte, sums bool) [][]byte {
	if !sums {
		return [][]byte{p}
	}
	list := make([][]byte, 0, len(p)/format.SectorSize)
	for ; len(p) > 0; p = p[format.SectorSize:] {
		list = append(list, p[:format.SectorSize])
	}
	return list
}
