package treelog

import (
	"sync/atomic"

	"btrlab/internal/data/inode"
	"btrlab/internal/format"
	"btrlab/internal/lock"
	"btrlab/internal/lock/lockdep"
	"btrlab/internal/meta/ctree"
	"btrlab/internal/sched"
)

// A name that the transaction has removed is still there after a crash. A log that moves an inode,
// or gives its name to another, must say so, or the inode has both names after a replay, or none.
// So the names that a transaction removes are remembered: plan.go looks at them.
//
// Model: labs/reference 6.7. Difference: the kernel keeps last_unlink_trans for each inode, which
// says that names were removed and not which, and commits for more inodes.

var (
	classNames = lockdep.NewClass("log_names")
	classPin   = lockdep.NewClass("log_pin")
)

// removed is the names that one transaction has removed in one subvolume.
type removed struct {
	// unknown is the transaction in which names were removed that the lists do not have.
	unknown atomic.Uint64

	// leaf; protects the fields below, which a task that has the subvolume's names for itself reads
	// without it
	mu     lock.Mutex
	in     uint64 // the transaction
	names  []lost // in the order in which they were removed
	byIno  map[format.Ino][]int
	byDir  map[format.Ino][]int
	byName map[nameKey][]int
}

// lost is a name that an inode has lost.
type lost struct {
	dir, ino format.Ino
	index    uint64
	name     string
	kind     uint8 // format.FtDir, ..., or ftSubvol
	fresh    bool  // the inode is of this transaction: the last commit has no name of it
}

// ftSubvol is the kind of a subvolume's name, whose ino is the id of its tree.
const ftSubvol = 0xff

// nameKey is an index of a directory, or the names in it that have one hash. Such names share an
// item, which a leaf bounds: a replay that keeps a removed one beside a new one may have no room
// for both, and the image could not be opened. So a name is taken from all of them, and the log
// says where they went.
//
// Difference: Linux 6.18 looks for the same name only, and cannot mount the image then.
type nameKey struct {
	dir   format.Ino
	index uint64 // 0 is none
	hash  uint64
}

func keyOf(dir format.Ino, name string) nameKey {
	return nameKey{dir: dir, hash: format.NameHash(name)}
}

// removedMax bounds the names of a transaction and subvolume; when there are more, none is told
// from another.
const removedMax = 16384

// Pin keeps names of subvolume r from being logged until Unpin, so that a log has all of a change
// of names or nothing. A handle is open. Models btrfs_pin_log_trans(). Difference: it keeps logs of
// names out, not syncs.
func (l *Logs) Pin(t *sched.Task, r *ctree.Root) {
	if o := l.orders.Load(); !o.off() {
		o.steps.pin(t, &of(r).pin)
	}
}

// Unpin ends Pin.
func (l *Logs) Unpin(t *sched.Task, r *ctree.Root) {
	if o := l.orders.Load(); !o.off() {
		o.steps.unpin(t, &of(r).pin)
	}
}

// Removed says that transaction transid has taken name, which had the index, in dir from ip. Models
// btrfs_record_unlink_dir().
//
// Preconditions: i_rwsem of both is held, and the subvolume is pinned.
func (l *Logs) Removed(t *sched.Task, transid uint64, dir format.Ino, ip *inode.Inode, name string, index uint64) {
	l.orders.Load().steps.nameLost(ip, transid)
	it := ip.Item(t)
	of(ip.Root).removed.add(t, transid, lost{dir, ip.Ino, index, name, format.FtOf(it.Mode), it.Generation == transid}, l.orders.Load().off())
}

// RemovedSubvol is Removed for the name of subvolume id in dir, of r.
func (l *Logs) RemovedSubvol(t *sched.Task, r *ctree.Root, transid uint64, dir format.Ino, id uint64, name string, index uint64) {
	of(r).removed.add(t, transid, lost{dir, format.Ino(id), index, name, ftSubvol, false}, l.orders.Load().off())
}

func (m *removed) add(t *sched.Task, transid uint64, n lost, off bool) {
	if off {
		m.unknown.Store(transid)
		return
	}
	m.mu.Lock(t)
	defer m.mu.Unlock(t)
	if m.in != transid || m.byIno == nil {
		m.in, m.names = transid, m.names[:0]
		m.byIno, m.byDir, m.byName = make(map[format.Ino][]int), make(map[format.Ino][]int), make(map[nameKey][]int)
	}
	if len(m.names) >= removedMax {
		m.unknown.Store(transid)
		return
	}
	i := len(m.names)
	m.names = append(m.names, n)
	if n.kind != ftSubvol {
		m.byIno[n.ino] = append(m.byIno[n.ino], i)
	}
	m.byDir[n.dir] = append(m.byDir[n.dir], i)
	for _, k := range []nameKey{keyOf(n.dir, n.name), {dir: n.dir, index: n.index}} {
		m.byName[k] = append(m.byName[k], i)
	}
}

// begin makes the lists those of transid. ErrCommit: they do not have all. No task has the
// subvolume pinned.
func (m *removed) begin(t *sched.Task, transid uint64) error {
	if m.unknown.Load() == transid {
		return ErrCommit
	}
	m.mu.Lock(t)
	defer m.mu.Unlock(t)
	if m.in != transid {
		m.in, m.names, m.byIno, m.byDir, m.byName = transid, m.names[:0], nil, nil, nil
	}
	return nil
}
