package extenttree

import (
	"fmt"
	"slices"

	"btrlab/internal/errno"
	"btrlab/internal/format"
	"btrlab/internal/meta/ctree"
	"btrlab/internal/meta/volumes"
	"btrlab/internal/sched"
)

// A block group is emptied and removed: it becomes read-only, so that nothing more is allocated
// from it, what is in it is moved elsewhere (package relocation), and it goes.

// SetProfile makes all allocations of the type come from groups of a profile, and new chunks have
// it, until FreeProfiles. Models get_restripe_target().
//
// Preconditions: no other task uses the file system.
func (e *ExtentTree) SetProfile(typ, profile uint64) {
	*e.target(typ) = target{set: true, profile: profile & format.BlockGroupProfileMask}
}

// FreeProfiles ends what SetProfile began.
func (e *ExtentTree) FreeProfiles() { e.targets = [8]target{} }

// target is a profile that allocations of a type have to have.
type target struct {
	set     bool
	profile uint64
}

// target is the target of a type, a new chunk's or an allocation's. Block groups of both data and
// metadata have that of metadata.
func (e *ExtentTree) target(typ uint64) *target {
	if typ&format.BlockGroupMetadata != 0 {
		typ = format.BlockGroupMetadata
	}
	return &e.targets[typ&format.BlockGroupTypeMask]
}

// takes reports whether an allocation of the type may come from g.
func (e *ExtentTree) takes(g *BlockGroup, typ uint64) bool {
	if g.Flags&typ == 0 || g.readonly.Load() {
		return false
	}
	want := e.target(g.Flags)
	return !want.set || g.Flags&format.BlockGroupProfileMask == want.profile
}

// MakeRoom adds chunks until the groups of the type other than the one at but (0: none) have that
// many free bytes. ENOSPC when the devices have no room for them. Models the forced allocation of
// btrfs_inc_block_group_ro().
func (e *ExtentTree) MakeRoom(t *sched.Task, typ, bytes uint64, but format.Logical) error {
	for {
		free, some := uint64(0), false
		for _, g := range e.list(t) {
			if g.Start != but && e.takes(g, typ) {
				free, some = free+g.freeBytes.Load(), true
			}
		}
		if some && free >= bytes {
			return nil
		}
		switch added, err := e.AllocChunk(t, typ); {
		case err != nil:
			return err
		case !added:
			return fmt.Errorf("no room for %d bytes of %s of profile %s on %d devices, beside the %d that are free: %w", bytes-min(bytes, free),
				e.space.Of(typ).Kind(), format.ProfileOf(e.profile(e.list(t), typ)).Name, e.vols.Writable(), free, errno.ENOSPC)
		}
	}
}

// SetReadonly says whether the group at logical takes allocations; what is free in it is accounted
// as read-only while it does not. Models btrfs_inc_block_group_ro() and btrfs_dec_block_group_ro().
//
// Preconditions: no other task uses the file system.
func (e *ExtentTree) SetReadonly(t *sched.Task, logical format.Logical, yes bool) {
	g := e.group(logical)
	if g.readonly.Swap(yes) == yes {
		return
	}
	if yes {
		e.space.Of(g.Flags).AddTotal(t, 0, 0, g.freeBytes.Load())
	} else {
		e.space.Of(g.Flags).RemoveTotal(t, 0, g.freeBytes.Load())
	}
}

// RemoveGroup takes the group at logical, in which everything is free and which is read-only, out
// of the trees and the chunk map, and gives its place back to the devices. Models
// btrfs_remove_block_group() and btrfs_remove_chunk().
//
// Preconditions: the transaction is new, nothing is queued or pinned, and no other task uses the
// file system.
func (e *ExtentTree) RemoveGroup(t *sched.Task, tr *ctree.Trans, logical format.Logical) error {
	e.enter(t)
	defer e.leave()
	g := e.group(logical)
	if free := g.freeBytes.Load() + g.superBytes; g.Start != logical || free != g.Length || !g.readonly.Load() {
		panic(fmt.Sprintf("extenttree: remove of block group %d, of which %d of %d bytes are free", logical, free, g.Length))
	}
	chunk, _ := e.vols.Lookup(uint64(logical))
	return e.recut(t, tr, g, chunk, nil, nil)
}

// recut puts groups for the ranges kept, of which free is free, in the place of the group old with
// its chunk: in memory and in the trees.
func (e *ExtentTree) recut(t *sched.Task, tr *ctree.Trans, old *BlockGroup, chunk volumes.ChunkInfo, kept, free []span) error {
	e.vols.Split(t, chunk.Logical, kept)
	groups := e.replace(t, old, kept, free)
	for i, n := range chunk.DeviceBytes(len(e.deviceUsed)) {
		if e.deviceUsed[i] -= n; n == 0 {
			continue
		}
		if err := e.updateDevItem(t, tr, i); err != nil { // also when nothing is kept
			return err
		}
	}
	if err := e.removeChunkItems(t, tr, chunk); err != nil {
		return err
	}
	if err := e.fstForget(t, tr, old.span()); err != nil {
		return err
	}
	for _, g := range groups {
		if err := e.createGroup(t, tr, g, within(free, g.span())); err != nil {
			return fmt.Errorf("block group %d: %w", g.Start, err)
		}
	}
	return nil
}

// removeChunkItems deletes the items of a chunk: its own, its group's, and its extents' on the
// devices.
func (e *ExtentTree) removeChunkItems(t *sched.Task, tr *ctree.Trans, c volumes.ChunkInfo) error {
	key := format.Key{Objectid: format.FIRST_CHUNK_TREE_OBJECTID, Type: format.CHUNK_ITEM_KEY, Offset: c.Logical}
	if _, err := e.remove(t, tr, e.chunk, key); err != nil {
		return err
	}
	key = format.Key{Objectid: c.Logical, Type: format.BLOCK_GROUP_ITEM_KEY, Offset: c.Chunk.Length}
	if _, err := e.remove(t, tr, e.groupsIn, key); err != nil {
		return err
	}
	for _, s := range c.Chunk.Stripes {
		if _, err := e.remove(t, tr, e.dev, format.Key{Objectid: s.Devid, Type: format.DEV_EXTENT_KEY, Offset: s.Offset}); err != nil {
			return err
		}
	}
	return nil
}

// Groups lists the block groups, ascending.
func (e *ExtentTree) Groups(t *sched.Task) []*BlockGroup { return slices.Clone(e.list(t)) }

// GroupAt is the block group that has the address; there must be one.
func (e *ExtentTree) GroupAt(bytenr format.Logical) *BlockGroup { return e.group(bytenr) }

// Used is the bytes of the group's extents as its item says them.
//
// Preconditions: no other task uses the file system.
func (g *BlockGroup) Used() uint64 { return g.used }

// Free is the bytes of the group that may be allocated.
func (g *BlockGroup) Free() uint64 { return g.freeBytes.Load() }
