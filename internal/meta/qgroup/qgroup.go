package qgroup

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"

	"btrlab/internal/errno"
	"btrlab/internal/format"
	"btrlab/internal/lock"
	"btrlab/internal/lock/lockdep"
	"btrlab/internal/meta/ctree"
	"btrlab/internal/meta/extenttree"
	"btrlab/internal/sched"
)

var (
	classMu    = lockdep.NewClass("qgroup_lock")
	classFlush = lockdep.NewClass("qgroup_flush")
)

// ErrOff says that quotas are off. Linux answers ENOTCONN.
var ErrOff = errors.New("quotas are off")

// nameState is the name of counts, limits and reservations in reports of data races.
const nameState = sched.Label("qgroups")

// Kind is the purpose of a reservation. Models enum btrfs_qgroup_rsv_type.
type Kind uint8

// The kinds.
const (
	Data         Kind = iota // data bytes that will get an extent
	MetaPrealloc             // tree blocks, before the task is in a transaction
	MetaPertrans             // tree blocks of the running transaction, until its commit
	kinds
)

var kindNames = [kinds]string{"data", "meta_prealloc", "meta_pertrans"}

func (k Kind) String() string { return kindNames[k] }

// group is one qgroup. Its fields are protected by Quota.mu. Models struct btrfs_qgroup.
type group struct {
	id         uint64
	rfer, excl uint64
	cmpr       [2]uint64 // rfer_cmpr and excl_cmpr as loaded: simple quotas leave them alone
	limit      format.QgroupLimit
	rsv        [kinds]uint64
	parents    []*group
	up         []*group // itself and all above it, once each

	// Of a subvolume's group: what the commit gives back, to it and to all above it.
	commitData, pertrans uint64

	dirty      bool // the counts are not in the tree
	limitDirty bool
	upDirty    bool // the relations to parents are not in the tree
	flushing   bool // a task flushes the subvolume
	gone       bool // the subvolume is dropped: the commit removes the group
}

func (g *group) reserved() uint64 { return g.rsv[Data] + g.rsv[MetaPrealloc] + g.rsv[MetaPertrans] }

// fits reports whether n bytes more keep the limits. Models qgroup_check_limits().
func (g *group) fits(n uint64) bool {
	n += g.reserved()
	l := &g.limit
	return (l.Flags&format.QgroupLimitMaxRfer == 0 || g.rfer+n <= l.MaxRfer) && (l.Flags&format.QgroupLimitMaxExcl == 0 || g.excl+n <= l.MaxExcl)
}

// Flusher is the door upward: what can turn a subvolume's reservations into counts.
type Flusher interface {
	// FlushRoot writes back the dirty data of subvolume root, waits for its ordered extents, and
	// commits.
	FlushRoot(t *sched.Task, root uint64)
}

// Quota is the qgroups of one file system. A nil *Quota has quotas off.
type Quota struct {
	forest  *ctree.Forest
	extents *extenttree.ExtentTree // nil when the file system is open for reading
	flusher Flusher

	on    atomic.Bool
	flags atomic.Uint64 // of status, for those that do not commit

	mu     lock.Mutex // leaf; protects groups, what they have, and idle
	state  sched.Shared
	groups map[uint64]*group
	idle   lock.Cond // a task waits until another's flush ends

	// The fields below belong to the committer, and to the task that holds the lock of Manager's
	// for changes of the configuration, with a handle open.
	tree    *ctree.Root
	status  format.QgroupStatus
	recount bool // the next commit counts from the start
}

// New makes the qgroups of a file system without any.
func New(f *ctree.Forest, e *extenttree.ExtentTree) *Quota {
	q := &Quota{forest: f, extents: e, groups: make(map[uint64]*group)}
	q.mu.Init(classMu)
	q.idle.Init(&q.mu, classFlush)
	return q
}

// SetFlusher opens the door. Without it a reservation over a limit fails at once.
func (q *Quota) SetFlusher(f Flusher) { q.flusher = f }

// On reports whether quotas are on. It costs one load.
func (q *Quota) On() bool { return q != nil && q.on.Load() }

// lock takes mu for a change of what it protects, and tells the race detector of an explorer.
func (q *Quota) lock(t *sched.Task) {
	q.mu.Lock(t)
	q.state.Write(t, nameState)
}

// Tree is the quota tree; nil while there is none.
func (q *Quota) Tree() *ctree.Root { return q.tree }

// find gives the group of a subvolume, and nil when nothing counts it. Models find_qgroup_rb().
func (q *Quota) find(t *sched.Task, root uint64) *group {
	q.mu.AssertHeld(t)
	return q.groups[root]
}

// reserve promises n bytes to the subvolume's group and all above it, or none of them: EDQUOT.
// Without enforce no limit is looked at. Models qgroup_reserve().
func (q *Quota) reserve(t *sched.Task, root, n uint64, k Kind, enforce bool) error {
	q.lock(t)
	defer q.mu.Unlock(t)
	g := q.find(t, root)
	if g == nil {
		return nil
	}
	if enforce {
		for _, a := range g.up {
			if !a.fits(n) {
				return errno.EDQUOT
			}
		}
	}
	for _, a := range g.up {
		a.rsv[k] += n
	}
	return nil
}

// reserveFlush is reserve that flushes once when a limit is in the way and noflush is not set.
// Models qgroup_reserve_data() and btrfs_qgroup_reserve_meta_prealloc().
//
// Preconditions: unless noflush is set, no page and no extent range is locked; with a handle open
// there is no flush.
func (q *Quota) reserveFlush(t *sched.Task, root, n uint64, k Kind, enforce, noflush bool) error {
	noflush = noflush || q.flusher == nil || t.Journal != nil
	if !noflush {
		lockdep.MightWait(t, classFlush)
	}
	err := q.reserve(t, root, n, k, enforce)
	if err == nil || noflush {
		return err
	}
	q.flush(t, root)
	return q.reserve(t, root, n, k, enforce)
}

// flushOf is the wait for another task's flush of a subvolume, in reports.
type flushOf struct{ g *group }

func (e flushOf) Event() (name, verb string) {
	return "the flush of qgroup " + format.QgroupName(e.g.id), "finish"
}

// flush turns what is promised to a subvolume into what it has. While another task does so this one
// waits for it, and then flushes itself: what it or others have dirtied since then may be what is
// in the way. Models try_flush_qgroup(). Difference: there the task that waited does not flush, and
// EDQUOT may come though there is room.
func (q *Quota) flush(t *sched.Task, root uint64) {
	q.lock(t)
	g := q.find(t, root)
	if g == nil {
		q.mu.Unlock(t)
		return
	}
	for g.flushing {
		q.idle.WaitFor(t, flushOf{g})
	}
	q.state.Write(t, nameState)
	g.flushing = true
	t.Owe(flushOf{g})
	q.mu.Unlock(t)

	q.flusher.FlushRoot(t, root)

	q.lock(t)
	g.flushing = false
	t.Discharge(flushOf{g})
	q.idle.Broadcast(t)
	q.mu.Unlock(t)
}

// ReserveData promises n bytes of data to subvolume root. The caller has the space already and
// gives it back on EDQUOT. Models the end of btrfs_qgroup_reserve_data(); the bytes are those that
// its io tree did not have yet.
//
// Preconditions: as spaceinfo.Info.Reserve with FlushData, unless noflush is set.
func (q *Quota) ReserveData(t *sched.Task, root, n uint64, noflush bool) error {
	if n == 0 || !q.On() {
		return nil
	}
	return q.reserveFlush(t, root, n, Data, true, noflush)
}

// ForceData is ReserveData over any limit.
func (q *Quota) ForceData(t *sched.Task, root, n uint64) {
	if n > 0 && q.On() {
		_ = q.reserve(t, root, n, Data, false) // only a limit can be in the way
	}
}

// ReserveMeta promises n bytes of tree blocks to subvolume root and returns how many the caller has
// now: none when quotas are off. The space comes after it. Without enforce the promise is made over
// any limit: the change makes room. Models btrfs_qgroup_reserve_meta_prealloc().
//
// Preconditions: as spaceinfo.Info.Reserve with FlushAll, unless noflush is set.
func (q *Quota) ReserveMeta(t *sched.Task, root, n uint64, enforce, noflush bool) (uint64, error) {
	if n == 0 || !q.On() {
		return 0, nil
	}
	if err := q.reserveFlush(t, root, n, MetaPrealloc, enforce, noflush); err != nil {
		return 0, err
	}
	return n, nil
}

// Free takes n bytes of a promise back. Models btrfs_qgroup_free_refroot().
func (q *Quota) Free(t *sched.Task, root, n uint64, k Kind) {
	if n == 0 || q == nil {
		return
	}
	q.lock(t)
	if g := q.find(t, root); g != nil {
		q.take(g, n, k)
	}
	q.mu.Unlock(t)
}

func (q *Quota) take(g *group, n uint64, k Kind) {
	for _, a := range g.up {
		if a.rsv[k] < n {
			panic(fmt.Sprintf("qgroup: %s has reserved %d bytes of %v, cannot take %d away", format.QgroupName(a.id), a.rsv[k], k, n))
		}
		a.rsv[k] -= n
	}
}

// Convert makes n bytes of MetaPrealloc the running transaction's: its commit gives them back. A
// handle is open, or the caller has the commit's promise that one will be. Models
// btrfs_qgroup_convert_reserved_meta().
func (q *Quota) Convert(t *sched.Task, root, n uint64) {
	if n == 0 || q == nil {
		return
	}
	q.lock(t)
	if g := q.find(t, root); g != nil {
		q.take(g, n, MetaPrealloc)
		for _, a := range g.up {
			a.rsv[MetaPertrans] += n
		}
		g.pertrans += n
	}
	q.mu.Unlock(t)
}

// CommitData makes n bytes of Data the running transaction's, in which their extent gets its first
// reference: the commit counts the extent and gives them back in one step. A handle is open. Models
// the qgroup_reserved of a delayed reference's head.
func (q *Quota) CommitData(t *sched.Task, root, n uint64) {
	if n == 0 || q == nil {
		return
	}
	q.lock(t)
	if g := q.find(t, root); g != nil {
		g.commitData += n
	}
	q.mu.Unlock(t)
}

// Info is a qgroup as it is shown. Counts and limits are in bytes.
type Info struct {
	ID               uint64
	Rfer, Excl       uint64
	LimitFlags       uint64 // format.QgroupLimitMaxRfer, ...
	MaxRfer, MaxExcl uint64
	Reserved         uint64
	Parents          []uint64
}

// Groups lists the qgroups by id. The counts are those of the last commit.
func (q *Quota) Groups(t *sched.Task) []Info {
	if !q.On() {
		return nil
	}
	q.mu.Lock(t)
	q.state.Read(t, nameState)
	list := make([]Info, 0, len(q.groups))
	for _, g := range q.groups {
		x := Info{ID: g.id, Rfer: g.rfer, Excl: g.excl, LimitFlags: g.limit.Flags, MaxRfer: g.limit.MaxRfer, MaxExcl: g.limit.MaxExcl, Reserved: g.reserved()}
		for _, p := range g.parents {
			x.Parents = append(x.Parents, p.id)
		}
		list = append(list, x)
	}
	q.mu.Unlock(t)
	slices.SortFunc(list, func(a, b Info) int { return cmp.Compare(a.ID, b.ID) })
	return list
}

// StatusFlags are format.QgroupStatusOn and so on, as of the last commit; zero without a quota
// tree.
func (q *Quota) StatusFlags() uint64 { return q.flags.Load() }

// CheckQuiescent panics when something is reserved: the file system is at rest.
func (q *Quota) CheckQuiescent(t *sched.Task) {
	if q == nil {
		return
	}
	q.mu.Lock(t)
	defer q.mu.Unlock(t)
	for id, g := range q.groups {
		if g.rsv != [kinds]uint64{} || g.commitData != 0 || g.pertrans != 0 {
			panic(fmt.Sprintf("qgroup: at rest %s has reserved data=%d meta_prealloc=%d meta_pertrans=%d, for the commit data=%d meta=%d",
				format.QgroupName(id), g.rsv[Data], g.rsv[MetaPrealloc], g.rsv[MetaPertrans], g.commitData, g.pertrans))
		}
	}
}
