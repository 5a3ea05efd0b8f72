package treelog

import (
	"sync/atomic"

	"btrlab/internal/format"
	"btrlab/internal/lock"
	"btrlab/internal/lock/lockdep"
	"btrlab/internal/meta/ctree"
	"btrlab/internal/sched"
)

// A name that the transaction has removed is still there after a crash, and a log that gives it to another inode would take it from the one that has it:
// that inode may live on under a name that the log does not know. So an inode is not logged when
//
//   - it has lost a name, or a directory that only the log would bring has;
//   - one of its new names, or the name's index, was another's before.
//
// Difference: the kernel keeps last_unlink_trans for each inode, and logs the inodes that are in the way where it can
// (btrfs_check_ref_name_override()).

var classNames = lockdep.NewClass("log_names")

// removed is the names that one transaction has removed in one subvolume.
type removed struct {
	// unknown is the transaction in which names were removed that the maps do not have.
	unknown atomic.Uint64

	mu    lock.Mutex // leaf; protects the fields below
	in    uint64     // the transaction
	lost  map[format.Ino]struct{}
	names map[nameKey]struct{}
}

// nameKey is a name in a directory, or an index.
type nameKey struct {
	dir   format.Ino
	index uint64
	name  string
}

// removedMax bounds the names of a transaction and subvolume; when there are more, none is told from another.
const removedMax = 16384

// Removing says that transaction transid is about to take name in dir, of subvolume r, from ino. i_rwsem of both is held.
// Models btrfs_record_unlink_dir().
func (l *Logs) Removing(t *sched.Task, r *ctree.Root, transid uint64, dir, ino format.Ino, name string) {
	of(r).removed.add(t, transid, ino, nameKey{dir: dir, name: name}, l.off.Load())
}

// Removed says that the name had the index.
func (l *Logs) Removed(t *sched.Task, r *ctree.Root, transid uint64, dir, ino format.Ino, index uint64) {
	of(r).removed.add(t, transid, ino, nameKey{dir: dir, index: index}, l.off.Load())
}

func (m *removed) add(t *sched.Task, transid uint64, ino format.Ino, k nameKey, off bool) {
	if off {
		m.unknown.Store(transid)
		return
	}
	m.mu.Lock(t)
	defer m.mu.Unlock(t)
	if m.in != transid || m.names == nil {
		m.in, m.lost, m.names = transid, make(map[format.Ino]struct{}), make(map[nameKey]struct{})
	}
	if len(m.names) >= removedMax {
		m.unknown.Store(transid)
		return
	}
	m.lost[ino] = struct{}{}
	m.names[k] = struct{}{}
}

// hasLost reports whether ino may have lost a name in transid.
func (m *removed) hasLost(t *sched.Task, transid uint64, ino format.Ino) bool {
	if m.unknown.Load() == transid {
		return true
	}
	m.mu.Lock(t)
	defer m.mu.Unlock(t)
	_, ok := m.lost[ino]
	return ok && m.in == transid
}

// had reports whether the name or the index may have been another's before transid removed it.
func (m *removed) had(t *sched.Task, transid uint64, dir format.Ino, name string, index uint64) bool {
	if m.unknown.Load() == transid {
		return true
	}
	m.mu.Lock(t)
	defer m.mu.Unlock(t)
	if m.in != transid {
		return false
	}
	_, byName := m.names[nameKey{dir: dir, name: name}]
	_, byIndex := m.names[nameKey{dir: dir, index: index}]
	return byName || byIndex
}
