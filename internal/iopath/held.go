package iopath

import (
	"btrlab/internal/data/inode"
	"btrlab/internal/data/pagecache"
	"btrlab/internal/format"
	"btrlab/internal/policy"
	"btrlab/internal/sched"
)

// Held is the byte range that an operation has locked, in whole blocks.
type Held struct{ lo, hi uint64 }

// Lock takes the locks of a write of [start, end) by its plan g, which depends on i_size. A lock
// that is not the exclusive one holds only while the write ends inside EOF: stillInside is asked
// under it. A write that finds the file shorter starts again with i_rwsem for itself, and
// planLocked makes its plan anew, in g, and returns its end.
func (h *Held) Lock(t *sched.Task, ip *inode.Inode, g *policy.Guard, start, end uint64,
	stillInside func(t *sched.Task) bool, planLocked func(t *sched.Task) (end uint64)) {
	switch g.Lock {
	case policy.LockShared:
		ip.RLock(t)
		if stillInside(t) {
			return
		}
		ip.RUnlock(t)
	case policy.LockRange:
		h.lockRange(t, ip, start, end)
		if stillInside(t) {
			return
		}
		h.unlockRange(t, ip)
	}
	ip.Lock(t)
	end = planLocked(t)
	if g.Lock.Range() {
		h.lockRange(t, ip, g.RangeFrom, end)
	}
}

// Alone locks the rest of the file for an operation that has i_rwsem for itself, if its plan wants
// the range.
func (h *Held) Alone(t *sched.Task, ip *inode.Inode, g *policy.Guard) {
	if g.Lock.Range() {
		h.lockRange(t, ip, g.RangeFrom, pagecache.MaxFileEnd)
	}
}

// Unlock lets the locks l go.
func (h *Held) Unlock(t *sched.Task, ip *inode.Inode, l policy.Lock) {
	if l.Range() {
		h.unlockRange(t, ip)
	}
	switch {
	case l.Inode():
		ip.Unlock(t)
	case l == policy.LockShared:
		ip.RUnlock(t)
	}
}

func (h *Held) lockRange(t *sched.Task, ip *inode.Inode, from, to uint64) {
	h.lo, h.hi = format.AlignDown(from, format.SectorSize), format.AlignUp(to, format.SectorSize)
	ip.Range.Lock(t, h.lo, h.hi)
}

func (h *Held) unlockRange(t *sched.Task, ip *inode.Inode) { ip.Range.Unlock(t, h.lo, h.hi) }
