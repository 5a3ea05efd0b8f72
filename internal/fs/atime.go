package fs

import (
	"btrlab/internal/format"
	"btrlab/internal/sched"
)

// Atime says which reads change access times: the mount options of that name.
type Atime uint8

// The values. Relatime is Linux's default: a read changes the access time if that is not after
// mtime and ctime, or a day old. The engine's own reads are Noatime.
const (
	Noatime Atime = iota
	Relatime
	Strictatime
)

// NeedsAtime reports whether a read of n changes its access time now. It is cheap when it does not.
//
// Models atime_needs_update().
func (n *Node) NeedsAtime(t *sched.Task, a Atime) bool {
	if a == Noatime || n.ip.Flags()&format.InodeNoAtime != 0 || n.writable() != nil {
		return false
	}
	return n.ip.NeedsAtime(t, n.fs.now(), a == Strictatime)
}

// SetAccessed sets the access time to now; the next commit writes it. Without room for it, in the
// file system or by a quota, the time stays as it was: the read succeeds nevertheless.
//
// Models touch_atime() and btrfs_update_time(). Difference: the transaction is started, not joined
// first.
func (n *Node) SetAccessed(t *sched.Task) {
	h, err := n.fs.trans.StartIn(t, n.vol.root, 1)
	if err != nil {
		return
	}
	now := n.fs.now()
	n.ip.Change(t, func(it *format.InodeItem) { it.Atime = now })
	n.ip.LastTransid.Store(h.Transid())
	_ = h.End(t) // the next change says what is wrong
}
