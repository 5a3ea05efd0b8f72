package relocation

import (
	"fmt"

	"btrlab/internal/errno"
	"btrlab/internal/format"
	"btrlab/internal/meta/ctree"
	"btrlab/internal/meta/extenttree"
	"btrlab/internal/meta/spaceinfo"
	"btrlab/internal/meta/transaction"
	"btrlab/internal/sched"
)

// copyLen is how many bytes of data are read at once.
const copyLen = 1 << 20

// copyData finds a place for each data extent and copies it there. Nothing points at the copies
// yet. Models relocate_data_extent() and btrfs_reloc_clone_csums().
func (p *plan) copyData(t *sched.Task) error {
	e, space := p.m.Trans.Extents, p.m.Trans.Space.Data()
	size := p.m.Sums.CsumType().Size()
	for _, x := range p.data {
		if err := space.Reserve(t, x.Length, spaceinfo.FlushAll); err != nil {
			return fmt.Errorf("place for the extent at %d, %d bytes: %w", x.Bytenr, x.Length, err)
		}
		to, n, err := e.ReserveExtent(t, x.Length, x.Length, 0)
		if err != nil {
			space.Release(t, x.Length)
			return fmt.Errorf("place for the extent at %d, %d bytes in one piece: %w", x.Bytenr, x.Length, err)
		}
		if x.to = to; n != x.Length {
			panic(fmt.Sprintf("relocation: %d bytes for an extent of %d", n, x.Length))
		}
		sectors := x.Length / format.SectorSize
		x.sums, x.have = make([]byte, int(sectors)*size), make([]bool, sectors)
		if err := p.m.Sums.LookupCsums(t, uint64(x.Bytenr), x.Length, x.sums, x.have); err != nil {
			return err
		}
		buf := make([]byte, min(copyLen, x.Length))
		for off := uint64(0); off < x.Length; off += uint64(len(buf)) {
			buf = buf[:min(uint64(len(buf)), x.Length-off)]
			if err := p.readData(t, x, off, buf); err != nil {
				return err
			}
			if err := p.m.Trans.Volumes.Write(t, buf, uint64(to)+off); err != nil {
				return err
			}
		}
	}
	return nil
}

// readData reads data at an offset in an extent from the first copy whose checksums are right, or
// sector by sector if there is none.
func (p *plan) readData(t *sched.Task, x *extent, off uint64, buf []byte) error {
	err := p.readMirrors(t, x, off, buf)
	if err == nil || len(buf) == format.SectorSize {
		return err
	}
	for at := 0; at < len(buf); at += format.SectorSize {
		if err := p.readMirrors(t, x, off+uint64(at), buf[at:][:format.SectorSize]); err != nil {
			return err
		}
	}
	return nil
}

// readMirrors reads data from the first copy that is right in all its sectors.
func (p *plan) readMirrors(t *sched.Task, x *extent, off uint64, buf []byte) (err error) {
	v, at := p.m.Trans.Volumes, uint64(x.Bytenr)+off
	for mirror := range v.Mirrors(at) {
		if err = v.Read(t, buf, at, mirror); err != nil {
			continue
		}
		bad := p.badSector(x, off, buf)
		if bad < 0 {
			return nil
		}
		err = fmt.Errorf("data at %d, bad csum in every copy: %w", at+uint64(bad), errno.EIO)
	}
	return err
}

// badSector is where buf, the data at an offset in an extent, has a sector with another checksum
// than the tree has; -1 when it has none.
func (p *plan) badSector(x *extent, off uint64, buf []byte) int {
	c := p.m.Sums.CsumType()
	for at := 0; at < len(buf); at += format.SectorSize {
		i := (int(off) + at) / format.SectorSize
		if x.have[i] && !c.Match(x.sums[i*c.Size():][:c.Size()], buf[at:][:format.SectorSize]) {
			return at
		}
	}
	return -1
}

// giveBack frees the places that copyData has found.
func (p *plan) giveBack(t *sched.Task) {
	for _, x := range p.data {
		if x.to != 0 {
			p.m.Trans.Extents.FreeReservedExtent(t, x.to, x.Length)
			x.to = 0
		}
	}
}

// carryOut does what is planned, in a transaction that nobody else has a handle of.
func (p *plan) carryOut(t *sched.Task, h *transaction.Handle) error {
	for _, x := range p.data {
		if err := p.insertSums(t, h.Trans(), x); err != nil {
			return err
		}
	}
	if err := p.copyBlocks(t, h.Trans()); err != nil {
		return err
	}
	for _, x := range p.data {
		to := x.Extent
		to.Bytenr = x.to
		p.m.Trans.Extents.MovedExtent(t, &to)
	}
	for _, b := range p.order {
		p.repoint(t, b)
		if err := p.moveRoots(t, h.Trans(), b); err != nil {
			return err
		}
	}
	return p.rewrite(t, h.Trans())
}

// insertSums enters the checksums of a copy.
func (p *plan) insertSums(t *sched.Task, tr *ctree.Trans, x *extent) error {
	size := p.m.Sums.CsumType().Size()
	for i := 0; i < len(x.have); {
		j := i
		for j < len(x.have) && x.have[j] == x.have[i] {
			j++
		}
		if x.have[i] {
			if err := p.m.Sums.InsertCsums(t, tr, uint64(x.to)+uint64(i)*format.SectorSize, x.sums[i*size:j*size]); err != nil {
				return err
			}
		}
		i = j
	}
	return nil
}

// copyBlocks copies the blocks of subvolumes. Nothing points at the copies yet.
func (p *plan) copyBlocks(t *sched.Task, tr *ctree.Trans) error {
	for _, b := range p.order {
		to, err := p.forest().MoveBlock(t, tr, b.buf, b.byParent())
		if err != nil {
			return err
		}
		b.to = to
		x := b.copied()
		// Every new block has a reference by its owner.
		first := format.InlineRef{Type: format.TREE_BLOCK_REF_KEY, Offset: b.Owner, Count: 1}
		p.m.Trans.Extents.DropRef(t, &x, &first)
		if b.byParent() {
			p.m.Trans.Extents.SetFullBackref(t, &x)
		}
	}
	return nil
}

// copied is the copy of a block as an extent.
func (b *block) copied() extenttree.Extent {
	return extenttree.Extent{Bytenr: format.Logical(b.to.Bytenr), Length: b.Length, Level: b.Level, Owner: b.Owner}
}

// repoint makes what points at something that has moved, in the copy of a block, point at its copy,
// and gives all that the block refers to a reference by its copy instead. Models
// replace_file_extents() and the end of do_relocation().
func (p *plan) repoint(t *sched.Task, b *block) {
	b.to.Lock(t)
	defer b.to.Unlock(t)
	n := b.to.Node
	for i := range n.Nritems() {
		if b.Level > 0 {
			x := extenttree.Extent{Bytenr: format.Logical(n.Blockptr(i)), Length: b.Length, Level: b.Level - 1}
			now := x
			if c := p.blocks[n.Blockptr(i)]; c != nil {
				x.Owner, now = c.Owner, c.copied()
				n.SetBlockptr(i, c.to.Bytenr)
				n.SetPtrGeneration(i, b.to.Generation())
			}
			p.exchange(t, b, &x, &now, format.DataRef{Root: b.Owner})
			continue
		}
		k := n.Key(i)
		if k.Type != format.EXTENT_DATA_KEY {
			continue
		}
		fe := format.FileExtentView(n.Item(i))
		if fe.Type() == format.FileExtentTypeInline || fe.DiskBytenr() == 0 {
			continue
		}
		x := extenttree.Extent{Bytenr: format.Logical(fe.DiskBytenr()), Length: fe.DiskNumBytes(), Data: true}
		now := x
		if d := p.moved[fe.DiskBytenr()]; d != nil {
			now.Bytenr = d.to
			fe.SetDiskBytenr(uint64(d.to))
		}
		p.exchange(t, b, &x, &now, format.DataRef{Root: b.Owner, Ino: format.Ino(k.Objectid), Offset: format.FileOff(k.Offset - fe.Offset())})
	}
}

// exchange drops the reference that block b has to x, and gives now, x or the copy of it, the one
// that b's copy has; ref is what each of the two is if it is by tree.
func (p *plan) exchange(t *sched.Task, b *block, x, now *extenttree.Extent, ref format.DataRef) {
	if x.Bytenr == now.Bytenr && !b.Full && !b.byParent() {
		return
	}
	e := p.m.Trans.Extents
	r := refBy(x, b.byParent(), b.to.Bytenr, ref)
	e.AddRef(t, now, &r)
	r = refBy(x, b.Full, uint64(b.Bytenr), ref)
	e.DropRef(t, x, &r)
}

// refBy is one reference to x: by the parent, or by tree.
func refBy(x *extenttree.Extent, byParent bool, parent uint64, ref format.DataRef) format.InlineRef {
	r := format.InlineRef{Offset: parent, Count: 1}
	switch {
	case x.Data && byParent:
		r.Type = format.SHARED_DATA_REF_KEY
	case x.Data:
		r.Type, r.Data = format.EXTENT_DATA_REF_KEY, format.ExtentDataRef{DataRef: ref, Count: 1}
	case byParent:
		r.Type = format.SHARED_BLOCK_REF_KEY
	default:
		r.Type, r.Offset = format.TREE_BLOCK_REF_KEY, ref.Root
	}
	return r
}

// moveRoots makes the copy of a root node the root node.
func (p *plan) moveRoots(t *sched.Task, tr *ctree.Trans, b *block) error {
	for _, id := range b.roots {
		r, err := p.m.Subvol(t, id)
		if err != nil {
			return err
		}
		p.forest().MovedRoot(t, tr, r, b.to)
		x, ref := b.copied(), format.InlineRef{Type: format.TREE_BLOCK_REF_KEY, Offset: id, Count: 1}
		p.m.Trans.Extents.AddRef(t, &x, &ref)
		p.m.Trans.Extents.DropRef(t, &b.Extent, &ref)
	}
	return nil
}

// rewrite moves what belongs to trees that share nothing: a search that is for a change copies it.
func (p *plan) rewrite(t *sched.Task, tr *ctree.Trans) error {
	for _, f := range p.files {
		if err := p.rewriteFile(t, tr, f); err != nil {
			return err
		}
	}
	for _, b := range p.plain {
		r, err := p.tree(t, b.root)
		if err != nil {
			return err
		}
		if _, level, _ := r.Pointer(); level < b.level {
			continue // the tree has become lower meanwhile
		}
		path := ctree.Path{LowestLevel: b.level}
		if _, err := p.forest().SearchSlot(t, tr, r, b.key, &path, 0, true); err != nil {
			return err
		}
		path.Release(t)
	}
	return nil
}

// tree finds a tree that is no subvolume.
func (p *plan) tree(t *sched.Task, id uint64) (*ctree.Root, error) {
	if p.trees[id] == nil {
		r, err := p.m.Trans.Tree(t, id)
		if err != nil {
			return nil, err
		}
		p.trees[id] = r
	}
	return p.trees[id], nil
}

// rewriteFile moves the file extents of a reference by a tree that shares nothing.
func (p *plan) rewriteFile(t *sched.Task, tr *ctree.Trans, f plainFile) error {
	r, err := p.tree(t, f.root)
	if err != nil {
		return err
	}
	list, err := p.fileExtents(t, r, f.data, &f.ref)
	if err != nil {
		return err
	}
	for _, x := range list {
		key := x.key
		var path ctree.Path
		if found, err := p.forest().SearchSlot(t, tr, r, key, &path, 0, true); err != nil || !found {
			return fmt.Errorf("file extent %v of tree %d: %w", key, int64(f.root), errno.EUCLEAN)
		}
		format.FileExtentView(path.Item()).SetDiskBytenr(uint64(f.data.to))
		p.forest().DirtyLeaf(t, tr, &path)
		path.Release(t)
	}
	now := f.data.Extent
	now.Bytenr = f.data.to
	ref := format.InlineRef{Type: format.EXTENT_DATA_REF_KEY, Data: f.ref, Count: f.ref.Count}
	p.m.Trans.Extents.AddRef(t, &now, &ref)
	p.m.Trans.Extents.DropRef(t, &f.data.Extent, &ref)
	return nil
}

// forget lets go what was moved: blocks that are free now, and what inodes in memory know of the
// places of their data.
func (p *plan) forget(t *sched.Task) {
	for _, b := range p.order {
		p.forest().DropBuffer(t, uint64(b.Bytenr))
		b.to.Put()
	}
	if p.m.Forget != nil && len(p.data) > 0 {
		p.m.Forget(t)
	}
}
