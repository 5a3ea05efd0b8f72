package qgroup

import (
	"errors"
	"fmt"
	"slices"

	"btrlab/internal/format"
	"btrlab/internal/meta/ctree"
	"btrlab/internal/meta/extenttree"
	"btrlab/internal/sched"
)

// errTrees says that the trees do not agree with each other: what a qgroup has cannot be known.
var errTrees = errors.New("corrupt extent tree: back references lead nowhere")

// view is the trees of one moment: of the last commit, or of the commit that is being made. Nobody
// changes them meanwhile.
type view struct {
	f       *ctree.Forest
	tree    *ctree.Root // of roots
	extent  *ctree.Root
	subvols map[uint64]*subvol  // those that were looked up; nil for one that is not there
	memo    map[uint64][]uint64 // roots of tree blocks
	path    ctree.Path
}

// subvol is the tree of a subvolume. A deleted one reaches what it still has references to until
// all of it is dropped, as in Linux: the deletion changes the counts, not the loss of the name.
type subvol struct {
	*ctree.Root
	// of a tree that is being dropped: what comes before it is gone, blocks and items
	dropped format.Key
}

// newView opens the trees that the tree of roots at the address leads to. Close it.
func newView(t *sched.Task, f *ctree.Forest, bytenr uint64, level int, generation uint64) (*view, error) {
	v := &view{f: f, subvols: make(map[uint64]*subvol), memo: make(map[uint64][]uint64)}
	var err error
	if v.tree, err = f.OpenRoot(t, format.ROOT_TREE_OBJECTID, bytenr, level, generation, 0); err != nil {
		return nil, err
	}
	extent, err := v.open(t, format.EXTENT_TREE_OBJECTID)
	if err == nil && extent == nil {
		err = errTrees
	}
	if err != nil {
		v.close()
		return nil, err
	}
	v.extent = extent.Root
	return v, nil
}

func (v *view) close() {
	for _, r := range v.subvols {
		if r != nil {
			r.Close()
		}
	}
	if v.extent != nil {
		v.extent.Close()
	}
	v.tree.Close()
}

// open opens the tree with the id; nil when it is not there.
func (v *view) open(t *sched.Task, id uint64) (*subvol, error) {
	defer v.path.Release(t)
	more, err := v.f.SearchBackward(t, v.tree, format.Key{Objectid: id, Type: format.ROOT_ITEM_KEY, Offset: ^uint64(0)}, &v.path)
	if err != nil || !more || v.path.Key().Objectid != id || v.path.Key().Type != format.ROOT_ITEM_KEY {
		return nil, err
	}
	var it format.RootItem
	it.Decode(v.path.Item())
	v.path.Release(t)
	r, err := v.f.OpenRoot(t, id, it.Bytenr, int(it.Level), it.Generation, it.LastSnapshot)
	if err != nil {
		return nil, err
	}
	s := &subvol{Root: r}
	if it.Refs == 0 {
		s.dropped = it.DropProgress
	}
	return s, nil
}

// subvol is open for a subvolume, once. nil is for what no qgroup counts.
func (v *view) subvol(t *sched.Task, id uint64) (*subvol, error) {
	if !format.IsFSTree(id) {
		return nil, nil
	}
	r, ok := v.subvols[id]
	if ok {
		return r, nil
	}
	r, err := v.open(t, id)
	if err == nil {
		v.subvols[id] = r
	}
	return r, err
}

// backRefs is an extent's item: its back references, inline and with items of their own.
type backRefs struct {
	extenttree.Extent
	found bool
}

// read reads the references of the extent at bytenr.
func (v *view) read(t *sched.Task, bytenr uint64) (b backRefs, err error) {
	b.Extent, b.found, err = extenttree.ReadExtent(t, v.f, v.extent, bytenr, &v.path)
	return b, err
}

// with adds id to an ascending list, unless it is there.
func with(list []uint64, id uint64) []uint64 {
	if i, ok := slices.BinarySearch(list, id); !ok {
		return slices.Insert(list, i, id)
	}
	return list
}

// roots lists the subvolumes that reach the extent at bytenr, ascending. Models
// btrfs_find_all_roots().
//
// Difference: a reference by a subvolume to what is newer than the subvolume's newest snapshot is
// that subvolume's alone, as all blocks on the way to it are as new at least: nothing is walked
// then (btrfs_block_can_be_shared()).
func (v *view) roots(t *sched.Task, bytenr uint64) ([]uint64, error) {
	if list, ok := v.memo[bytenr]; ok {
		return list, nil
	}
	b, err := v.read(t, bytenr)
	if err != nil {
		return nil, err
	}
	list, err := v.rootsOf(t, bytenr, &b)
	if err == nil && !b.Data {
		v.memo[bytenr] = list
	}
	return list, err
}

// rootsOf is roots for an extent whose references were read.
func (v *view) rootsOf(t *sched.Task, bytenr uint64, b *backRefs) (list []uint64, err error) {
	for i := range b.Refs {
		r := &b.Refs[i]
		switch r.Type {
		case format.SHARED_BLOCK_REF_KEY, format.SHARED_DATA_REF_KEY:
			list, err = v.withRootsOf(t, list, r.Offset)
		case format.TREE_BLOCK_REF_KEY:
			list, err = v.withTreeRef(t, list, r.Offset, bytenr, b)
		case format.EXTENT_DATA_REF_KEY:
			list, err = v.withDataRef(t, list, bytenr, b, &r.Data)
		}
		if err != nil {
			return nil, err
		}
	}
	return list, nil
}

// withRootsOf adds the roots of a tree block.
func (v *view) withRootsOf(t *sched.Task, list []uint64, block uint64) ([]uint64, error) {
	more, err := v.roots(t, block)
	for _, id := range more {
		list = with(list, id)
	}
	return list, err
}

// withTreeRef adds the roots of a tree block by a reference of tree id: those of the block above it
// in that tree. Models resolve_indirect_ref() of a tree block.
func (v *view) withTreeRef(t *sched.Task, list []uint64, id, bytenr uint64, b *backRefs) ([]uint64, error) {
	r, err := v.subvol(t, id)
	if r == nil || err != nil {
		return list, err
	}
	root, level, _ := r.Pointer()
	if b.Generation > r.LastSnapshot() || root == bytenr {
		return with(list, id), nil
	}
	if level <= b.Level {
		return nil, fmt.Errorf("%w: block %d of level %d in tree %d, which has levels up to %d", errTrees, bytenr, b.Level, id, level)
	}
	c, err := v.f.ReadBlock(t, bytenr, ctree.Check{Level: b.Level, Owner: id})
	if err != nil {
		return nil, err
	}
	empty, key := c.Node.Nritems() == 0, format.Key{}
	if !empty {
		key = c.Node.Key(0)
	}
	c.Put()
	p := ctree.Path{LowestLevel: b.Level + 1}
	defer p.Release(t)
	if _, err := v.f.SearchSlot(t, nil, r.Root, key, &p, 0, false); err != nil {
		return nil, err
	}
	up := p.Nodes[b.Level+1]
	slot := p.Slots[b.Level+1]
	if empty || slot >= up.Node.Nritems() || up.Node.Blockptr(slot) != bytenr {
		return nil, fmt.Errorf("%w: block %d of level %d is not in tree %d at %v", errTrees, bytenr, b.Level, id, key)
	}
	at, generation := up.Bytenr, up.Generation()
	p.Release(t)
	if generation > r.LastSnapshot() {
		return with(list, id), nil
	}
	return v.withRootsOf(t, list, at)
}

// withDataRef adds the roots of a data extent by the file extents of one inode: those of the leaves
// that have them. Models resolve_indirect_ref() of a data extent with add_all_parents().
func (v *view) withDataRef(t *sched.Task, list []uint64, bytenr uint64, b *backRefs, d *format.ExtentDataRef) ([]uint64, error) {
	r, err := v.subvol(t, d.Root)
	if r == nil || err != nil {
		return list, err
	}
	if b.Generation > r.LastSnapshot() {
		return with(list, d.Root), nil
	}
	leaves, err := v.leaves(t, r, bytenr, d)
	for _, leaf := range leaves {
		if err != nil {
			break
		}
		if leaf.generation > r.LastSnapshot() {
			list = with(list, d.Root)
		} else {
			list, err = v.withRootsOf(t, list, leaf.bytenr)
		}
	}
	return list, err
}

type leafAt struct{ bytenr, generation uint64 }

// leaves finds the leaves of r with the file extents that d counts.
func (v *view) leaves(t *sched.Task, r *subvol, bytenr uint64, d *format.ExtentDataRef) (list []leafAt, err error) {
	key := format.Key{Objectid: uint64(d.Ino), Type: format.EXTENT_DATA_KEY}
	if int64(d.Offset) > 0 { // it is before 0 when the front of the extent has been overwritten
		key.Offset = uint64(d.Offset)
	}
	from := key
	if from.Less(r.dropped) {
		from = r.dropped // the leaves before it are free, and may be another tree's
	}
	p := &v.path
	defer p.Release(t)
	var n uint32
	more, err := v.f.SearchForward(t, r.Root, from, p)
	for ; more && err == nil && n < d.Count; more, err = v.f.NextItem(t, r.Root, p) {
		k := p.Key()
		if k.Objectid != key.Objectid || k.Type != key.Type {
			break
		}
		fe := format.FileExtentView(p.Item())
		if fe.Type() == format.FileExtentTypeInline || fe.DiskBytenr() != bytenr || k.Offset-fe.Offset() != uint64(d.Offset) {
			continue
		}
		n++
		leaf := leafAt{p.Nodes[0].Bytenr, p.Nodes[0].Generation()}
		if len(list) == 0 || list[len(list)-1] != leaf {
			list = append(list, leaf)
		}
	}
	if err == nil && n < d.Count {
		err = fmt.Errorf("%w: extent %d, inode %d of tree %d has %d file extents at offset %d, want %d", errTrees, bytenr, d.Ino, d.Root, n, int64(d.Offset), d.Count)
	}
	return list, err
}
