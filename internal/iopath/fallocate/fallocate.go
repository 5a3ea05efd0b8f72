// Package fallocate reserves, punches and zeroes ranges of a file.
//
// The normal case of an allocation: i_rwsem; zeros up to the range when it begins beyond EOF;
// writeback and ordered extents of the range waited for; then for each gap, in the order of the
// plan (policy.AllocSteps), reserve space with nothing locked, extent lock, allocate, insert a
// PREALLOC item, unlock. A punch: zero the edges, drop the pages, extent lock, drop the items.
//
// Model: fs/btrfs/file.c:btrfs_fallocate(), btrfs_punch_hole() and btrfs_zero_range();
// labs/reference 2.6 and 2.7. Differences: data space is reserved for the gaps before the extent
// lock and each gap is looked up again under it (the kernel of 2018 reserves the whole range first,
// that of 5.19 under the lock).
//
// Lock order: as package setsize.
package fallocate

import (
	"btrlab/internal/data/inode"
	"btrlab/internal/data/pagecache"
	"btrlab/internal/data/zero"
	"btrlab/internal/errno"
	"btrlab/internal/format"
	"btrlab/internal/iopath"
	"btrlab/internal/meta/fstree"
	"btrlab/internal/meta/qgroup"
	"btrlab/internal/meta/spaceinfo"
	"btrlab/internal/policy"
	"btrlab/internal/sched"
)

const block = format.SectorSize

// The modes, as in linux/falloc.h.
const (
	KeepSize  = 0x01
	PunchHole = 0x02
	ZeroRange = 0x10
)

const (
	// maxPrealloc bounds one preallocated extent, as in __btrfs_prealloc_file_range().
	maxPrealloc = 256 << 20
	// unitsPrealloc and unitsPunch are reservations in inserted items.
	unitsPrealloc = 3
	unitsPunch    = 3
	// itemsPerTransaction bounds the file extents that one transaction of a punch drops.
	itemsPerTransaction = 4096
)

// Fallocate does what mode says to [off, off+n) by the policy in force. Errors: EINVAL, EFBIG,
// EOPNOTSUPP, ENOSPC, EIO.
func Fallocate(t *sched.Task, env *iopath.Env, ip *inode.Inode, mode uint32, off, n uint64) error {
	switch mode {
	case 0, KeepSize, PunchHole | KeepSize, ZeroRange, ZeroRange | KeepSize:
	default:
		return errno.EOPNOTSUPP
	}
	if n == 0 {
		return errno.EINVAL
	}
	if off > format.MaxFileSize || n > format.MaxFileSize-off {
		return errno.EFBIG
	}
	if lab := iopath.LabOf(ip); lab != nil {
		return byLab(t, env, ip, mode, off, off+n, lab)
	}
	ip.Lock(t)
	plan := planOf(t, env, ip, off, off+n)
	var held iopath.Held
	held.Alone(t, ip, &plan.Guard)
	defer held.Unlock(t, ip, plan.Lock)
	if plan.DrainDirect {
		ip.DIOWait(t)
	}
	if nothing, err := punchesNothing(t, env, ip, mode, off, off+n); nothing || err != nil {
		return err
	}
	if err := env.RemovePrivs(t, ip, false); err != nil {
		return err
	}
	return change(t, env, ip, mode, off, n, plan)
}

func planOf(t *sched.Task, env *iopath.Env, ip *inode.Inode, off, end uint64) policy.AllocPlan {
	return policy.ForAlloc(policy.Facts{Start: off, End: end, ISize: ip.Size(t)}, env.Policy())
}

// punchesNothing reports whether mode is a punch and one hole has all of [off, end) already: then
// the file stays as it is, with its times. The range of a punch is written back, and its ordered
// extents are finished, afterwards.
//
// Models the first find_first_non_hole() of btrfs_punch_hole(), which asks for one extent map only.
// A map of a hole ends with the file, as btrfs_cont_expand() leaves it. Beyond that it begins with
// the block of off and has as many bytes as the range, in whole blocks: of a range that begins
// inside a block the last bytes may lie beyond it, and then the times change, though nothing else
// does.
func punchesNothing(t *sched.Task, env *iopath.Env, ip *inode.Inode, mode uint32, off, end uint64) (bool, error) {
	if mode&PunchHole == 0 {
		return false, nil
	}
	start, stop := format.AlignDown(off, block), format.AlignUp(end, block)
	if err := env.Writeback.WaitOrderedRange(t, ip, start, stop); err != nil {
		return false, err
	}
	last := start + format.AlignUp(end-off, block)
	if size := format.AlignUp(ip.Size(t), block); start < size {
		last = size
	}
	next, fe, found, err := env.Store.LookupFileExtent(t, ip.Root, ip.Ino, start)
	switch {
	case err != nil:
		return false, err
	case found && (fe.Type == format.FileExtentTypeInline || !fe.IsHole()):
		return false, nil
	case found:
		next += fe.NumBytes
	}
	return end <= min(next, last), nil
}

// change is Fallocate without its locks, after punchesNothing has said no.
func change(t *sched.Task, env *iopath.Env, ip *inode.Inode, mode uint32, off, n uint64, plan policy.AllocPlan) error {
	if small := format.AlignDown(off, block) == format.AlignDown(off+n, block); !plan.Wrong(policy.WrongLogPunchUnmarked) || !small || mode&PunchHole == 0 {
		ip.Touch(t, env.Now())
	}
	switch {
	case mode&PunchHole != 0:
		return punch(t, env, ip, off, off+n, plan)
	case mode&ZeroRange != 0:
		if err := env.Writeback.WaitOrderedRange(t, ip, format.AlignDown(off, block), format.AlignUp(off+n, block)); err != nil {
			return err
		}
		if err := punch(t, env, ip, off, off+n, plan); err != nil {
			return err
		}
	}
	return alloc(t, env, ip, off, off+n, mode&KeepSize != 0, plan)
}

// alloc models btrfs_fallocate() from the inode lock on.
func alloc(t *sched.Task, env *iopath.Env, ip *inode.Inode, off, end uint64, keepSize bool, plan policy.AllocPlan) error {
	start, stop := format.AlignDown(off, block), format.AlignUp(end, block)
	switch size := ip.Size(t); {
	case start > size:
		if err := zero.Expand(t, env.Read, ip, size, start); err != nil {
			return err
		}
	case end > size:
		if err := zero.Block(t, env.Read, ip, size, zero.After); err != nil {
			return err
		}
	}
	if err := env.Writeback.WaitOrderedRange(t, ip, start, stop); err != nil {
		return err
	}
	total, err := gapBytes(t, env, ip, start, stop)
	if err != nil {
		return err
	}
	if err = fillGaps(t, env, ip, start, stop, total, plan.Steps); err != nil || keepSize || end <= ip.Size(t) {
		return err
	}
	h, err := env.Trans.StartIn(t, ip.Root, 1)
	if err != nil {
		return err
	}
	ip.SetSize(t, end)
	ip.SetDiskSize(t, end)
	ip.MarkDirty(t)
	return h.End(t)
}

// fillGaps preallocates the gaps of [start, stop), which were total bytes when the caller looked.
// Data space for all of them is promised with the first.
func fillGaps(t *sched.Task, env *iopath.Env, ip *inode.Inode, start, stop, total uint64, order policy.AllocOrder) error {
	a := allocation{env: env, ip: ip, want: total}
	defer a.end(t)
	for pos := start; pos < stop; pos = a.lo + a.got {
		lo, hi, ok, err := nextGap(t, env, ip, pos, stop)
		if err != nil || !ok {
			return err
		}
		a.lo, a.hi, a.got = lo, min(hi, lo+maxPrealloc), 0
		for _, s := range order {
			if err := a.step(t, s); err != nil {
				return err
			}
		}
		a.letGo(t)
	}
	return nil
}

// allocation is the state of fillGaps between its steps.
type allocation struct {
	env *iopath.Env
	ip  *inode.Inode

	want uint64         // data bytes to promise before the first gap
	left uint64         // ... promised, and not in an extent yet
	hint format.Logical // where on disk the next extent had best be

	// The gap at hand.
	lo, hi    uint64
	meta      uint64 // metadata bytes promised
	quota     uint64 // data bytes reserved in the qgroup, and not in an extent yet
	quotaMeta uint64 // bytes of tree blocks reserved there
	locked    bool   // its extent range
	got       uint64 // bytes from lo on that are preallocated
}

func (a *allocation) step(t *sched.Task, s policy.AllocStep) error {
	if t.Tracing() {
		t.Trace(sched.TraceEvent{Name: "plan_step", What: "fallocate " + s.String()})
	}
	switch s {
	case policy.ReserveData:
		return a.reserveData(t)
	case policy.ReserveMeta:
		return a.reserveMeta(t)
	case policy.LockGap:
		a.lockGap(t)
	case policy.Preallocate:
		return a.preallocate(t)
	}
	return nil
}

// reserveData promises data space for what is left of the gap, and then the gap's bytes of the
// subvolume's quota. There is more of the gap than the caller saw if the file extent of an unlocked
// writer went meanwhile.
func (a *allocation) reserveData(t *sched.Task) error {
	need := max(a.want, a.hi-a.lo)
	a.want = 0
	if need > a.left {
		if err := a.env.Trans.Space.Data().Reserve(t, need-a.left, spaceinfo.FlushData); err != nil {
			return err
		}
		a.left = need
	}
	if q := a.env.Trans.Quota; q.On() {
		if err := q.ReserveData(t, a.ip.Root.ID, a.hi-a.lo, false); err != nil {
			return err
		}
		a.quota = a.hi - a.lo
	}
	return nil
}

func (a *allocation) reserveMeta(t *sched.Task) error {
	bytes := a.env.Trans.Space.CalcInsert(unitsPrealloc)
	var err error
	a.quotaMeta, err = a.env.Trans.Quota.ReserveMeta(t, a.ip.Root.ID, unitsPrealloc*a.env.Trans.Space.NodeSize(), true, false)
	if err != nil {
		return err
	}
	if err := a.env.Trans.Space.Metadata().Reserve(t, bytes, spaceinfo.FlushAll); err != nil {
		return err
	}
	a.meta = bytes
	return nil
}

func (a *allocation) lockGap(t *sched.Task) {
	a.ip.LockAndFlushOrdered(t, a.lo, a.hi)
	a.locked = true
}

// letGo ends the work on a gap.
func (a *allocation) letGo(t *sched.Task) {
	if a.meta > 0 {
		a.env.Trans.Space.Metadata().Release(t, a.meta)
		a.meta = 0
	}
	a.env.Trans.Quota.Free(t, a.ip.Root.ID, a.quota, qgroup.Data)
	a.env.Trans.Quota.Free(t, a.ip.Root.ID, a.quotaMeta, qgroup.MetaPrealloc)
	a.quota, a.quotaMeta = 0, 0
	if a.locked {
		a.ip.IOTree.Unlock(t, a.lo, a.hi)
		a.locked = false
	}
}

// end gives back what has not been used.
func (a *allocation) end(t *sched.Task) {
	a.letGo(t)
	a.env.Trans.Space.Data().Release(t, a.left)
	a.left = 0
}

// nextGap is the first part of [pos, stop) without space on disk.
func nextGap(t *sched.Task, env *iopath.Env, ip *inode.Inode, pos, stop uint64) (lo, hi uint64, ok bool, err error) {
	for pos < stop {
		start, fe, found, err := env.Store.LookupFileExtent(t, ip.Root, ip.Ino, pos)
		if err != nil {
			return 0, 0, false, err
		}
		if !found { // a hole up to start
			return pos, min(start, stop), true, nil
		}
		end := start + fe.NumBytes
		if fe.Type == format.FileExtentTypeInline {
			end = start + format.AlignUp(max(fe.RAMBytes, 1), block)
		} else if fe.IsHole() {
			return pos, min(end, stop), true, nil
		}
		pos = end
	}
	return 0, 0, false, nil
}

// isHole reports whether [start, stop) has no file extents. Models find_first_non_hole().
func isHole(t *sched.Task, env *iopath.Env, ip *inode.Inode, start, stop uint64) (bool, error) {
	for start < stop {
		lo, hi, ok, err := nextGap(t, env, ip, start, stop)
		if err != nil || !ok || lo > start {
			return false, err
		}
		start = hi
	}
	return true, nil
}

// gapBytes adds up the gaps of [start, stop).
func gapBytes(t *sched.Task, env *iopath.Env, ip *inode.Inode, start, stop uint64) (sum uint64, err error) {
	for {
		lo, hi, ok, err := nextGap(t, env, ip, start, stop)
		if err != nil || !ok {
			return sum, err
		}
		sum += hi - lo
		start = hi
	}
}

// preallocate makes a PREALLOC extent at the start of the gap, as long as one piece of free space
// allows. Nothing is got when the gap has been filled meanwhile. Models one round of
// __btrfs_prealloc_file_range().
func (a *allocation) preallocate(t *sched.Task) error {
	env, ip := a.env, a.ip
	lo, hi, ok, err := nextGap(t, env, ip, a.lo, a.hi)
	if err != nil || !ok || lo != a.lo {
		// Without an error an unlocked writer was here between our look and the lock. Go on after
		// what it wrote.
		return err
	}
	bytenr, got, err := env.Trans.Extents.ReserveExtent(t, hi-lo, block, a.hint)
	if err != nil {
		return err
	}
	// ReserveExtent has consumed this part of the promised data space, also if what follows fails.
	a.left -= got
	h, err := env.Trans.StartReserved(t, a.meta)
	a.meta = 0
	if err != nil {
		env.Trans.Extents.FreeReservedExtent(t, bytenr, got)
		return err
	}
	env.Trans.Quota.Convert(t, ip.Root.ID, a.quotaMeta)
	env.Trans.Quota.CommitData(t, ip.Root.ID, min(got, a.quota))
	a.quota, a.quotaMeta = a.quota-min(got, a.quota), 0
	fe := format.FileExtent{Generation: h.Transid(), RAMBytes: got, Type: format.FileExtentTypePrealloc,
		DiskBytenr: uint64(bytenr), DiskNumBytes: got, NumBytes: got}
	if env.Store.Holes {
		_, err = env.Store.DropExtents(t, h.Trans(), ip.Root, ip.Ino, lo, lo+got, fstree.DropOptions{})
	}
	if err == nil {
		err = env.Store.InsertFileExtent(t, h.Trans(), ip.Root, ip.Ino, lo, &fe)
	}
	if err == nil {
		ref := format.DataRef{Root: ip.Root.ID, Ino: ip.Ino, Offset: format.FileOff(lo)}
		err = env.Trans.Extents.AllocReservedFileExtent(t, h.Trans(), ref, bytenr, got)
	}
	if err != nil {
		h.Abort(t, err)
		_ = h.End(t)
		return err
	}
	ip.ExtentsChanged(t, h.Transid(), lo, lo+got)
	ip.Cover(t, lo, lo+got)
	ip.AddBytes(t, int64(got))
	ip.AddFlags(format.InodePrealloc)
	ip.MarkDirty(t)
	a.hint, a.got = bytenr+format.Logical(got), got
	return h.End(t)
}

// zeroEdge zeroes the part of the block of pos that lies on one side of it. A hole stays one.
func zeroEdge(t *sched.Task, env *iopath.Env, ip *inode.Inode, pos uint64, side zero.Side) error {
	start := format.AlignDown(pos, block)
	if start == pos {
		return nil
	}
	if hole, err := isHole(t, env, ip, start, start+block); hole || err != nil {
		return err
	}
	return zero.Block(t, env.Read, ip, pos, side)
}

// punch models btrfs_punch_hole().
//
// Preconditions: the range was written back, and has no ordered extents.
func punch(t *sched.Task, env *iopath.Env, ip *inode.Inode, off, end uint64, plan policy.AllocPlan) error {
	size := format.AlignUp(ip.Size(t), block)
	if off < size {
		if format.AlignDown(off, block) == format.AlignDown(end, block) {
			return zero.Range(t, env.Read, ip, off, end)
		}
		if err := zeroEdge(t, env, ip, off, zero.After); err != nil {
			return err
		}
		if end < size {
			if err := zeroEdge(t, env, ip, end, zero.Before); err != nil {
				return err
			}
		}
	}
	lo, hi := format.AlignUp(off, block), format.AlignDown(end, block)
	if end >= size && off < size {
		hi = format.AlignUp(end, block) // the rest of the last block is beyond EOF
	}
	for lo < hi {
		next, err := punchSome(t, env, ip, lo, hi, plan)
		if err != nil {
			return err
		}
		lo = next
	}
	return nil
}

// punchSome empties the front of [lo, hi) in one transaction and says where to go on.
func punchSome(t *sched.Task, env *iopath.Env, ip *inode.Inode, lo, hi uint64, plan policy.AllocPlan) (next uint64, err error) {
	space := env.Trans.Space
	meta := space.CalcInsert(unitsPunch)
	if err := space.Metadata().Reserve(t, meta, spaceinfo.FlushAll); err != nil {
		return lo, err
	}
	if err := punchLockRange(t, env, ip, lo, hi, plan); err != nil {
		space.Metadata().Release(t, meta)
		return lo, err
	}
	defer ip.IOTree.Unlock(t, lo, hi)
	h, err := env.Trans.JoinReserved(t, meta)
	if err != nil {
		return lo, err
	}
	r, err := env.Store.DropExtents(t, h.Trans(), ip.Root, ip.Ino, lo, hi, fstree.DropOptions{MaxItems: itemsPerTransaction})
	if err == nil {
		err = ip.Emptied(t, h.Trans(), env.Store, lo, r.NextStart)
	}
	if err != nil {
		h.Abort(t, err)
		_ = h.End(t)
		return lo, err
	}
	ip.ExtentsChanged(t, h.Transid(), lo, hi)
	ip.AddBytes(t, -int64(r.BytesFound))
	ip.MarkDirty(t)
	return r.NextStart, h.End(t)
}

// punchLockRange drops the pages of the range and locks it, with no page and, when the plan says
// so, no ordered extent in it: an unlocked writer may dirty it again at any time before the lock.
// Models btrfs_punch_hole_lock_range() with the checks that 55961c8abfdc took out.
func punchLockRange(t *sched.Task, env *iopath.Env, ip *inode.Inode, lo, hi uint64, plan policy.AllocPlan) error {
	for {
		ip.Pages.Truncate(t, lo, hi)
		ip.IOTree.Lock(t, lo, hi)
		_, page := ip.Pages.NextPage(lo>>pagecache.PageShift, hi>>pagecache.PageShift)
		busy := page
		if plan.Has(policy.PunchRecheckOE) && !busy {
			if oe := ip.Ordered.First(t, lo, hi); oe != nil {
				busy = true
				oe.Put(t)
			}
		}
		if !busy {
			return nil
		}
		ip.IOTree.Unlock(t, lo, hi)
		if plan.Has(policy.PunchRecheckOE) {
			if err := env.Writeback.WaitOrderedRange(t, ip, lo, hi); err != nil {
				return err
			}
		}
	}
}
