package extenttree

import (
	"errors"
	"fmt"
	"sort"
	"sync/atomic"

	"github.com/tidwall/btree"

	"btrlab/internal/errno"
	"btrlab/internal/format"
	"btrlab/internal/lock"
	"btrlab/internal/lock/lockdep"
	"btrlab/internal/meta/volumes"
	"btrlab/internal/sched"
)

var (
	classGroup      = lockdep.NewClass("block_group")
	classChunkMutex = lockdep.NewClass("chunk_mutex")
	classRefs       = lockdep.NewClass("delayed_refs")
)

// span is a range of the logical address space: an extent, or free space.
type span = format.Range[format.Logical]

func spanOf(start format.Logical, length uint64) span { return format.RangeOf(start, length) }

// BlockGroup is the allocator's view of one chunk. Models struct btrfs_block_group.
type BlockGroup struct {
	Start  format.Logical
	Length uint64
	Flags  uint64 // type and profile

	// superBytes never allocatable: superblock copies lie there.
	superBytes uint64
	// freeBytes is the sum of the free spans; read without the lock as a hint.
	freeBytes atomic.Uint64
	// readonly keeps allocations out: SetReadonly.
	readonly atomic.Bool

	mu   lock.Mutex // leaf; protects the fields below
	free *btree.BTreeG[span]
	// cursor is where the next search starts: allocations go upward and wrap.
	cursor format.Logical
	// maxSpan bounds the largest free span from above.
	maxSpan uint64

	// The fields below belong to the committer.
	used    uint64 // as BLOCK_GROUP_ITEM says
	pending bool   // the items of a new chunk are not in the trees yet
	dirty   bool   // the item's used is stale
}

func newGroup(start format.Logical, length, flags uint64) *BlockGroup {
	g := &BlockGroup{Start: start, Length: length, Flags: flags, cursor: start, maxSpan: length}
	g.mu.Init(classGroup)
	g.free = btree.NewBTreeGOptions(func(a, b span) bool { return a.Start < b.Start },
		btree.Options{NoLocks: true, Degree: 32})
	return g
}

func (g *BlockGroup) span() span { return spanOf(g.Start, g.Length) }

func (g *BlockGroup) end() format.Logical { return g.span().End }

// addFreeLocked gives s back and merges it with its neighbours.
func (g *BlockGroup) addFreeLocked(t *sched.Task, s span) {
	g.mu.AssertHeld(t)
	var prev, next span
	g.free.Descend(s, func(p span) bool { prev = p; return false })
	g.free.Ascend(s, func(n span) bool { next = n; return false })
	if !prev.Empty() && prev.End > s.Start || !next.Empty() && next.Start < s.End {
		panic(fmt.Sprintf("extenttree: free [%d,%d) is free already in group %d: have [%d,%d) and [%d,%d)",
			s.Start, s.End, g.Start, prev.Start, prev.End, next.Start, next.End))
	}
	g.freeBytes.Add(s.Len())
	if !prev.Empty() && prev.End == s.Start {
		s.Start = prev.Start
	}
	if !next.Empty() && next.Start == s.End {
		g.free.Delete(next)
		s.End = next.End
	}
	g.free.Set(s)
	g.maxSpan = max(g.maxSpan, s.Len())
}

// removeFreeLocked takes part out of the free span whole.
func (g *BlockGroup) removeFreeLocked(t *sched.Task, whole, part span) {
	g.mu.AssertHeld(t)
	if part.Start > whole.Start {
		g.free.Set(span{Start: whole.Start, End: part.Start})
	} else {
		g.free.Delete(whole)
	}
	if part.End < whole.End {
		g.free.Set(span{Start: part.End, End: whole.End})
	}
	g.freeBytes.Add(-part.Len())
}

// allocLocked finds length free bytes, aligned, upward from the address at and then from the start.
func (g *BlockGroup) allocLocked(t *sched.Task, at format.Logical, length, align uint64) (start format.Logical, ok bool) {
	g.mu.AssertHeld(t)
	if length > g.maxSpan {
		return 0, false
	}
	var found span
	var widest uint64
	try := func(s span) bool {
		widest = max(widest, s.Len())
		a := format.AlignUp(s.Start, align)
		if a+format.Logical(length) <= s.End {
			found, start, ok = s, a, true
			return false
		}
		return true
	}
	// The span that holds at may begin before it.
	from := span{Start: g.Start}
	g.free.Descend(span{Start: at}, func(s span) bool { from = s; return false })
	g.free.Ascend(from, try)
	if !ok && from.Start > g.Start {
		g.free.Ascend(span{Start: g.Start}, func(s span) bool { return s.Start < from.Start && try(s) })
	}
	if !ok {
		g.maxSpan = widest
		return 0, false
	}
	part := spanOf(start, length)
	g.removeFreeLocked(t, found, part)
	g.cursor = part.End
	return start, true
}

// groupList is the sorted list of block groups; it is replaced, never changed.
type groupList []*BlockGroup

func (l groupList) find(bytenr format.Logical) *BlockGroup {
	i := sort.Search(len(l), func(i int) bool { return l[i].end() > bytenr })
	if i < len(l) && l[i].Start <= bytenr {
		return l[i]
	}
	return nil
}

// list is the block groups as they are now: a scheduling point of class block_group, as publishing
// one is.
func (e *ExtentTree) list(t *sched.Task) groupList {
	e.groupsPoint(t, sched.PointLoad, sched.Reads)
	return *e.groups.Load()
}

// groupsPoint is the scheduling point of an access to the list of groups, which no lock protects.
func (e *ExtentTree) groupsPoint(t *sched.Task, kind sched.PointKind, use sched.Use) {
	if rt := t.Runtime(); rt != nil {
		t.Next = sched.Op{Kind: kind, Class: classGroup.ID, Use: use, Obj: &e.groupsObj, ID: &e.groups}
		rt.Enter(t)
	}
}

// group finds the block group of a logical address; there must be one. The caller has the address
// from a task that found the group.
func (e *ExtentTree) group(bytenr format.Logical) *BlockGroup {
	g := e.groups.Load().find(bytenr)
	if g == nil {
		panic(fmt.Sprintf("extenttree: no block group for %d", bytenr))
	}
	return g
}

// insertGroup publishes g: from here on any task may allocate from it. Preconditions: chunkMu is
// held.
func (e *ExtentTree) insertGroup(t *sched.Task, g *BlockGroup) {
	e.chunkMu.AssertHeld(t)
	e.groupsPoint(t, sched.PointAtomic, sched.Writes)
	old := *e.groups.Load()
	list := make(groupList, 0, len(old)+1)
	list = append(append(list, old...), g)
	sort.Slice(list, func(i, j int) bool { return list[i].Start < list[j].Start })
	e.groups.Store(&list)
}

// excludeSupers takes the superblock copies out of a group in which everything else is free or
// used: they are never allocated, though the free space tree counts them as free, as the kernel's
// does.
func (e *ExtentTree) excludeSupers(c volumes.ChunkInfo, free []span) (left []span, bytes uint64) {
	for _, x := range e.vols.SuperLogical(c) {
		var out []span
		for _, s := range free {
			super := s.Intersect(x)
			if super.Empty() {
				out = append(out, s)
				continue
			}
			bytes += super.Len()
			if s.Start < super.Start {
				out = append(out, span{Start: s.Start, End: super.Start})
			}
			if super.End < s.End {
				out = append(out, span{Start: super.End, End: s.End})
			}
		}
		free = out
	}
	return free, bytes
}

// findFree allocates between minLen and length bytes of the type, adding a chunk when the present
// ones have no room. The promise in may_use stays the caller's to convert. Models
// find_free_extent().
func (e *ExtentTree) findFree(t *sched.Task, typ, length, minLen, align uint64, hint format.Logical) (start format.Logical, got uint64, err error) {
	for {
		if start, ok := e.findInGroups(t, typ, length, align, hint); ok {
			return start, length, nil
		}
		if most := max(minLen, e.chunkSize(typ)); length > most {
			length = most // no new chunk has room for more, and one after the other would be added
			continue
		}
		added, err := e.AllocChunk(t, typ)
		if err != nil {
			return 0, 0, err
		}
		if added {
			continue
		}
		if length <= minLen {
			return 0, 0, errno.ENOSPC
		}
		length = max(minLen, format.AlignDown(length/2, align))
	}
}

func (e *ExtentTree) findInGroups(t *sched.Task, typ, length, align uint64, hint format.Logical) (format.Logical, bool) {
	list := e.list(t)
	last := &e.lastGroup[typ&format.BlockGroupTypeMask]
	first := format.Logical(last.Load())
	if hint != 0 {
		first = hint
	}
	if e.firstFit {
		first = 0
	}
	from := sort.Search(len(list), func(i int) bool { return list[i].end() > first })
	for n := range list {
		g := list[(from+n)%len(list)]
		if !e.takes(g, typ) || g.freeBytes.Load() < length {
			continue
		}
		g.mu.Lock(t)
		at := g.cursor
		if e.firstFit {
			at = g.Start
		}
		start, ok := g.allocLocked(t, at, length, align)
		g.mu.Unlock(t)
		if ok {
			last.Store(uint64(start))
			return start, true
		}
	}
	return 0, false
}

// profile is the profile of a new chunk of the type: the one that is set, or the best that a group
// of the type has. Models get_alloc_profile().
func (e *ExtentTree) profile(list groupList, typ uint64) uint64 {
	if want := e.target(typ); want.set {
		return want.profile
	}
	var have uint64
	for _, g := range list {
		if g.Flags&typ != 0 {
			have |= g.Flags
		}
	}
	return format.BestProfile(have, e.vols.Writable())
}

// AllocChunk adds a chunk of the type (format.BlockGroupData, ...) with the profile that the type
// has already; false when the device has no room. Its items enter the trees in the next run of
// delayed references. Models btrfs_chunk_alloc().
func (e *ExtentTree) AllocChunk(t *sched.Task, typ uint64) (bool, error) {
	if typ != format.BlockGroupSystem {
		typ = e.space.Of(typ).Type // of both, where block groups are mixed
	}
	seen := len(e.list(t))
	e.chunkMu.Lock(t)
	defer e.chunkMu.Unlock(t)
	list := e.list(t)
	if len(list) != seen {
		return true, nil // another task was faster
	}
	flags := typ | e.profile(list, typ)
	c, err := e.vols.AllocChunk(t, flags, e.chunkSize(typ))
	if errors.Is(err, errno.ENOSPC) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	g := newGroup(format.Logical(c.Logical), c.Chunk.Length, flags)
	g.pending = true
	spans, supers := e.excludeSupers(c, []span{g.span()})
	g.superBytes = supers
	g.mu.Lock(t)
	for _, s := range spans {
		g.addFreeLocked(t, s)
	}
	g.mu.Unlock(t)
	// Pending first: the committer must find it there once anything can be allocated from it.
	e.refsMu.Lock(t)
	e.pendingGroups = append(e.pendingGroups, g)
	e.newGroups.Add(1)
	e.refsMu.Unlock(t)
	e.insertGroup(t, g)
	e.space.Of(flags).AddTotal(t, g.Length, 0, supers)
	return true, nil
}

// chunkSize is the size of a new chunk of the type, if the devices have that much in one piece.
// Models init_alloc_chunk_ctl_policy_regular(): a tenth of the file system at most.
func (e *ExtentTree) chunkSize(typ uint64) uint64 {
	var size uint64
	switch typ {
	case format.BlockGroupMetadata:
		size = 256 << 20
		if e.devSize > 50<<30 {
			size = 1 << 30
		}
	case format.BlockGroupSystem:
		size = 32 << 20
	default:
		size = min(10<<30, e.vols.MaxChunk(e.profile(*e.groups.Load(), typ)))
	}
	return format.AlignUp(min(size, max(e.devSize/10, 1<<20)), format.StripeLen)
}
