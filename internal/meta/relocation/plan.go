package relocation

import (
	"fmt"

	"btrlab/internal/compress"
	"btrlab/internal/errno"
	"btrlab/internal/format"
	"btrlab/internal/meta/ctree"
	"btrlab/internal/meta/extenttree"
	"btrlab/internal/sched"
)

// plan is what a batch moves.
type plan struct {
	m      *Mover
	first  format.Logical // the first extent of the group
	bytes  uint64         // of the extents of the group
	data   []*extent
	moved  map[uint64]*extent // data, by the old address
	blocks map[uint64]*block  // of subvolumes, with all that are above them; by the old address
	order  []*block           // the same, as they were found
	plain  []plainBlock       // of the other trees
	files  []plainFile        // file extents in other trees
	trees  map[uint64]*ctree.Root
}

// extent is data that moves.
type extent struct {
	extenttree.Extent
	to   format.Logical
	sums []byte // of its sectors, those that have one
	have []bool
}

// block is a block of subvolumes that moves. Models struct btrfs_backref_node.
type block struct {
	extenttree.Extent
	buf   *ctree.Buffer
	to    *ctree.Buffer
	roots []uint64 // the subvolumes whose root node it is
	above []*block // that point at it
	// shared says that several subvolumes have it: it, or a block above it, has several references.
	shared bool
}

// byParent reports whether the copy of the block has FULL_BACKREF and says that it was relocated:
// though it is newer than the newest snapshot it may be shared. So has it in the trees that Linux
// relocates, and tools know it by that.
func (b *block) byParent() bool { return b.Full || b.shared && len(b.roots) == 0 }

// plainBlock is a block of a tree that shares nothing.
type plainBlock struct {
	root   uint64
	level  int
	key    format.Key // its first
	bytenr uint64
}

// plainFile is a file extent of such a tree: of the old cache of free space in the tree of roots.
type plainFile struct {
	root uint64
	data *extent
	ref  format.ExtentDataRef
}

func newPlan(m *Mover) *plan {
	return &plan{m: m, moved: make(map[uint64]*extent), blocks: make(map[uint64]*block), trees: make(map[uint64]*ctree.Root)}
}

func (p *plan) close() {
	for _, b := range p.order {
		b.buf.Put()
	}
}

func (p *plan) forest() *ctree.Forest { return p.m.Trans.Forest }

// read fills the plan with the first extents of the group, and with what points at them. Models
// the loop of relocate_block_group().
func (p *plan) read(t *sched.Task, group format.Range[format.Logical]) error {
	var list []extenttree.Extent
	var data uint64
	err := p.m.Trans.Extents.ExtentsIn(t, group, func(x extenttree.Extent) bool {
		if len(list) > 0 && x.Data && data+x.Length > batchData {
			return false
		}
		list = append(list, x)
		if x.Data {
			data += x.Length
		}
		return len(list) < batchItems
	})
	if err != nil {
		return err
	}
	defer p.share()
	for i := range list {
		x := &list[i]
		if i > 0 && len(p.blocks) >= batchBlocks {
			break
		}
		if i == 0 {
			p.first = x.Bytenr
		}
		p.bytes += x.Length
		if x.Data {
			err = p.addData(t, x)
		} else {
			err = p.addBlock(t, uint64(x.Bytenr))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// share says of each block whether it is shared.
func (p *plan) share() {
	seen := make(map[*block]bool)
	var ask func(b *block) bool
	ask = func(b *block) bool {
		if !seen[b] {
			seen[b] = true
			b.shared = len(b.Refs) > 1 || len(b.above) > 0 && ask(b.above[0])
		}
		return b.shared
	}
	for _, b := range p.order {
		ask(b)
	}
}

// addData takes data, with the leaves that have file extents in it.
func (p *plan) addData(t *sched.Task, x *extenttree.Extent) error {
	d := &extent{Extent: *x}
	p.data = append(p.data, d)
	p.moved[uint64(x.Bytenr)] = d
	for i := range x.Refs {
		r := &x.Refs[i]
		var err error
		switch {
		case r.Type == format.SHARED_DATA_REF_KEY:
			err = p.addBlock(t, r.Offset)
		case format.IsFSTree(r.Data.Root):
			err = p.addLeaves(t, d, &r.Data)
		default:
			p.files = append(p.files, plainFile{r.Data.Root, d, r.Data})
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// addLeaves takes the leaves of a subvolume with the file extents that d counts: those that the
// subvolume refers to by itself, and not by a parent. Models find_next_extent() and
// add_all_parents().
func (p *plan) addLeaves(t *sched.Task, x *extent, d *format.ExtentDataRef) error {
	r, err := p.m.Subvol(t, d.Root)
	if err != nil {
		return err
	}
	list, err := p.fileExtents(t, r, x, d)
	if err != nil {
		return err
	}
	var have uint32
	for _, f := range list {
		if err := p.addBlock(t, f.leaf); err != nil {
			return err
		}
		if b := p.blocks[f.leaf]; b != nil && b.Owner == d.Root && !b.Full {
			have++
		}
	}
	if have != d.Count {
		return fmt.Errorf("extent at %d: inode %d of tree %d has %d file extents at offset %d, want %d: %w",
			x.Bytenr, d.Ino, d.Root, have, int64(d.Offset), d.Count, errno.EUCLEAN)
	}
	return nil
}

// fileExtent is where a file extent lies.
type fileExtent struct {
	key  format.Key
	leaf uint64
}

// fileExtents finds the file extents in x at the offset that d names, as a search of r comes to
// them: in the part of the file that x can reach, its own bytes, or when it is compressed as many
// as it has then.
func (p *plan) fileExtents(t *sched.Task, r *ctree.Root, x *extent, d *format.ExtentDataRef) (list []fileExtent, err error) {
	key := format.Key{Objectid: uint64(d.Ino), Type: format.EXTENT_DATA_KEY}
	if int64(d.Offset) > 0 { // it is before 0 when the front of the extent is not in the file
		key.Offset = uint64(d.Offset)
	}
	end := uint64(d.Offset) + max(x.Length, compress.MaxLen)
	var path ctree.Path
	defer path.Release(t)
	more, err := p.forest().SearchForward(t, r, key, &path)
	for ; more && err == nil; more, err = p.forest().NextItem(t, r, &path) {
		k := path.Key()
		if k.Objectid != key.Objectid || k.Type != key.Type || int64(k.Offset) >= int64(end) {
			break
		}
		fe := format.FileExtentView(path.Item())
		if fe.Type() == format.FileExtentTypeInline || fe.DiskBytenr() != uint64(x.Bytenr) || k.Offset-fe.Offset() != uint64(d.Offset) {
			continue
		}
		list = append(list, fileExtent{k, path.Nodes[0].Bytenr})
	}
	return list, err
}

// addBlock takes a tree block, and of a subvolume's all that are above it. Models
// btrfs_backref_add_tree_node().
func (p *plan) addBlock(t *sched.Task, bytenr uint64) error {
	if p.blocks[bytenr] != nil {
		return nil
	}
	x, err := p.m.Trans.Extents.Extent(t, format.Logical(bytenr))
	if err != nil {
		return err
	}
	buf, err := p.forest().ReadBlock(t, bytenr, ctree.Check{Level: x.Level})
	if err != nil {
		return err
	}
	var key format.Key
	if buf.Node.Nritems() > 0 {
		key = buf.Node.Key(0)
	}
	if len(x.Refs) == 1 && x.Refs[0].Type == format.TREE_BLOCK_REF_KEY && !format.IsFSTree(x.Refs[0].Offset) {
		p.plain = append(p.plain, plainBlock{x.Refs[0].Offset, x.Level, key, bytenr})
		buf.Put()
		return nil
	}
	b := &block{Extent: x, buf: buf}
	b.Owner = buf.Owner()
	p.blocks[bytenr] = b
	p.order = append(p.order, b)
	for i := range x.Refs {
		r := &x.Refs[i]
		switch {
		case r.Type == format.SHARED_BLOCK_REF_KEY && r.Offset != bytenr:
			if err = p.addBlock(t, r.Offset); err == nil {
				err = p.over(b, r.Offset)
			}
		case r.Type == format.TREE_BLOCK_REF_KEY && format.IsFSTree(r.Offset):
			err = p.addParent(t, b, r.Offset, key)
		default:
			err = fmt.Errorf("tree block %d has a reference of type %d by %d: %w", bytenr, r.Type, int64(r.Offset), errno.EUCLEAN)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// addParent takes the block above b, which begins with key, in subvolume id; there is none above
// its root node.
func (p *plan) addParent(t *sched.Task, b *block, id uint64, key format.Key) error {
	r, err := p.m.Subvol(t, id)
	if err != nil {
		return err
	}
	root, level, _ := r.Pointer()
	if root == uint64(b.Bytenr) {
		b.roots = append(b.roots, id)
		return nil
	}
	up := uint64(0)
	if level > b.Level {
		path := ctree.Path{LowestLevel: b.Level + 1}
		if _, err := p.forest().SearchSlot(t, nil, r, key, &path, 0, false); err != nil {
			return err
		}
		n, slot := path.Nodes[b.Level+1], path.Slots[b.Level+1]
		if slot < n.Node.Nritems() && n.Node.Blockptr(slot) == uint64(b.Bytenr) {
			up = n.Bytenr
		}
		path.Release(t)
	}
	if up == 0 {
		return fmt.Errorf("tree block %d of level %d is not in tree %d, which has a reference to it: %w", b.Bytenr, b.Level, id, errno.EUCLEAN)
	}
	if err := p.addBlock(t, up); err != nil {
		return err
	}
	return p.over(b, up)
}

// over notes that the block at parent points at b.
func (p *plan) over(b *block, parent uint64) error {
	up := p.blocks[parent]
	if up == nil {
		return fmt.Errorf("tree block %d lies under %d, which belongs to no subvolume: %w", b.Bytenr, parent, errno.EUCLEAN)
	}
	b.above = append(b.above, up)
	return nil
}
