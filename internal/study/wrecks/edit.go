package wrecks

import (
	"errors"
	"fmt"
	"slices"

	"btrlab/internal/blockdev"
	"btrlab/internal/format"
	"btrlab/internal/sched"
)

// editor reads and changes the trees of an image, whose chunks have one copy each. It makes
// checksums of tree blocks right again, so that what is wrong is what the damage means.
type editor struct {
	t     *sched.Task
	dev   blockdev.Device
	sb    format.Super
	maps  []mapping
	roots map[uint64]uint64 // a tree's root block
}

// mapping is a chunk: a logical range and where it lies.
type mapping struct{ logical, length, at uint64 }

// openTrees reads the chunk map and the roots.
func openTrees(t *sched.Task, dev blockdev.Device) (*editor, error) {
	e := &editor{t: t, dev: dev, roots: map[uint64]uint64{}}
	b := make([]byte, format.SuperSize)
	if err := blockdev.Read(t, dev, b, format.SuperOffset); err != nil {
		return nil, err
	}
	e.sb.Decode(b)
	for a := e.sb.SysChunkArray; len(a) > 0; {
		var ch format.Chunk
		ch.Decode(a[format.KeySize:])
		e.chunk(format.DecodeKey(a), &ch)
		a = a[format.KeySize+ch.Size():]
	}
	e.roots[format.ROOT_TREE_OBJECTID], e.roots[format.CHUNK_TREE_OBJECTID] = e.sb.Root, e.sb.ChunkRoot
	if err := e.each(format.CHUNK_TREE_OBJECTID, func(k format.Key, b []byte) {
		if k.Type == format.CHUNK_ITEM_KEY {
			var ch format.Chunk
			ch.Decode(b)
			e.chunk(k, &ch)
		}
	}); err != nil {
		return nil, err
	}
	err := e.each(format.ROOT_TREE_OBJECTID, func(k format.Key, b []byte) {
		if k.Type == format.ROOT_ITEM_KEY {
			var r format.RootItem
			r.Decode(b)
			e.roots[k.Objectid] = r.Bytenr
		}
	})
	return e, err
}

func (e *editor) chunk(k format.Key, ch *format.Chunk) {
	e.maps = append(e.maps, mapping{k.Offset, ch.Length, ch.Stripes[0].Offset})
}

// at is where the byte at logical lies on the device.
func (e *editor) at(logical uint64) (int64, error) {
	for _, m := range e.maps {
		if logical >= m.logical && logical-m.logical < m.length {
			return int64(m.at + logical - m.logical), nil
		}
	}
	return 0, fmt.Errorf("logical %d is in no chunk", logical)
}

// load reads n bytes at logical.
func (e *editor) load(logical uint64, n int) ([]byte, error) {
	off, err := e.at(logical)
	if err != nil {
		return nil, err
	}
	b := make([]byte, n)
	return b, blockdev.Read(e.t, e.dev, b, off)
}

// store writes p at logical.
func (e *editor) store(logical uint64, p []byte) error {
	off, err := e.at(logical)
	if err != nil {
		return err
	}
	return blockdev.Write(e.t, e.dev, p, off)
}

func (e *editor) node(bytenr uint64) (format.Node, error) {
	b, err := e.load(bytenr, int(e.sb.NodeSize))
	return format.Node(b), err
}

func (e *editor) put(n format.Node) error {
	n.UpdateCsum(e.sb.CsumType)
	return e.store(n.Bytenr(), n)
}

// each calls f for each item of a tree, in the order of keys.
func (e *editor) each(tree uint64, f func(k format.Key, b []byte)) error {
	bytenr, ok := e.roots[tree]
	if !ok {
		return fmt.Errorf("no tree %d", int64(tree))
	}
	return e.walk(bytenr, f)
}

func (e *editor) walk(bytenr uint64, f func(k format.Key, b []byte)) error {
	n, err := e.node(bytenr)
	if err != nil {
		return err
	}
	for i := range n.Nritems() {
		if n.Level() == 0 {
			f(n.Key(i), n.Item(i))
		} else if err := e.walk(n.Blockptr(i), f); err != nil {
			return err
		}
	}
	return nil
}

// hop is a block on the way from a root to an item, and the slot there.
type hop struct {
	n    format.Node
	slot int
}

// find is the way to an item.
func (e *editor) find(tree uint64, k format.Key) (way []hop, err error) {
	for bytenr := e.roots[tree]; ; {
		n, err := e.node(bytenr)
		if err != nil {
			return nil, err
		}
		slot, found := n.Search(k)
		if n.Level() == 0 {
			if !found {
				return nil, fmt.Errorf("tree %d has no item %v", int64(tree), k)
			}
			return append(way, hop{n, slot}), nil
		}
		if !found {
			slot = max(slot-1, 0)
		}
		way = append(way, hop{n, slot})
		bytenr = n.Blockptr(slot)
	}
}

// change changes an item in place.
func (e *editor) change(tree uint64, k format.Key, f func(b []byte)) error {
	way, err := e.find(tree, k)
	if err != nil {
		return err
	}
	leaf := way[len(way)-1]
	f(leaf.n.Item(leaf.slot))
	return e.put(leaf.n)
}

// item is an item of a leaf.
type item struct {
	k format.Key
	b []byte
}

func itemsOf(n format.Node) (list []item) {
	for i := range n.Nritems() {
		list = append(list, item{n.Key(i), slices.Clone(n.Item(i))})
	}
	return list
}

// fill gives a leaf these items, which have room in it.
func fill(n format.Node, list []item) {
	clear(n[format.HeaderSize:])
	n.SetNritems(len(list))
	end := format.LeafDataSize(len(n))
	for i, it := range list {
		end -= len(it.b)
		n.SetKey(i, it.k)
		n.SetItemOffset(i, end)
		n.SetItemSize(i, len(it.b))
		copy(n[format.HeaderSize+end:], it.b)
	}
}

// splitSums cuts the checksums, which mkfs keeps in one item, at the ends of extents that cut says
// yes to, as a file system has them that was written to now and then.
func (e *editor) splitSums(cut func() bool) error {
	n, err := e.node(e.roots[csumTree])
	if err != nil {
		return err
	}
	var starts []uint64
	if err := e.each(format.EXTENT_TREE_OBJECTID, func(k format.Key, _ []byte) {
		if k.Type == format.EXTENT_ITEM_KEY && cut() {
			starts = append(starts, k.Objectid+k.Offset)
		}
	}); err != nil {
		return err
	}
	size := e.sb.CsumType.Size()
	var list []item
	for _, it := range itemsOf(n) {
		for _, at := range starts {
			if k := it.k; k.Offset < at && at < k.Offset+uint64(len(it.b)/size)*blockBytes {
				head := int((at-k.Offset)/blockBytes) * size
				list = append(list, item{k, it.b[:head]})
				it.b, it.k.Offset = it.b[head:], at
			}
		}
		list = append(list, it)
	}
	fill(n, list)
	return e.put(n)
}

// remove takes an item out of its leaf. The keys above follow when it was the first.
func (e *editor) remove(tree uint64, k format.Key) error {
	way, err := e.find(tree, k)
	if err != nil {
		return err
	}
	leaf := way[len(way)-1]
	n := leaf.n
	if n.Nritems() == 1 && len(way) > 1 {
		return errors.New("the only item of its leaf")
	}
	rest := itemsOf(n)
	rest = slices.Delete(rest, leaf.slot, leaf.slot+1)
	fill(n, rest)
	if err := e.put(n); err != nil {
		return err
	}
	for i := len(way) - 2; i >= 0 && way[i+1].slot == 0; i-- {
		way[i].n.SetKey(way[i].slot, rest[0].k)
		if err := e.put(way[i].n); err != nil {
			return err
		}
	}
	return nil
}

// inode is a file or directory of the top-level subvolume.
type inode struct {
	mode, nlink uint32
	size        uint64
	names       []string // paths, in the order of the items
	refs        []nameRef
}

// nameRef is a name of an inode: its directory, and its place there.
type nameRef struct {
	dir, index uint64
	name       string
}

// files are the inodes that have an item or a name.
func (e *editor) files() map[uint64]*inode {
	all := map[uint64]*inode{}
	of := func(ino uint64) *inode {
		if all[ino] == nil {
			all[ino] = &inode{}
		}
		return all[ino]
	}
	e.each(format.FS_TREE_OBJECTID, func(k format.Key, b []byte) {
		switch k.Type {
		case format.INODE_ITEM_KEY:
			var i format.InodeItem
			i.Decode(b)
			f := of(k.Objectid)
			f.mode, f.nlink, f.size = i.Mode, i.Nlink, i.Size
		case format.INODE_REF_KEY:
			refs, _ := format.InodeRefs(b)
			for _, r := range refs {
				f := of(k.Objectid)
				f.refs = append(f.refs, nameRef{k.Offset, r.Index, r.Name})
			}
		}
	})
	for _, f := range all {
		for _, r := range f.refs {
			f.names = append(f.names, pathOf(all, r, 0))
		}
	}
	return all
}

// pathOf is the path of a name. A loop ends at the depth of a path that nobody has.
func pathOf(all map[uint64]*inode, r nameRef, depth int) string {
	up := all[r.dir]
	if r.dir == format.FIRST_FREE_OBJECTID || up == nil || len(up.refs) == 0 || depth > 16 {
		return "/" + r.name
	}
	return pathOf(all, up.refs[0], depth+1) + "/" + r.name
}

// extents calls f for each part of a file that has a place on the disk.
func (e *editor) extents(ino uint64, f func(off uint64, x *format.FileExtent)) error {
	return e.each(format.FS_TREE_OBJECTID, func(k format.Key, b []byte) {
		if k.Objectid == ino && k.Type == format.EXTENT_DATA_KEY {
			var x format.FileExtent
			if x.Decode(b); x.Type == format.FileExtentTypeReg && x.DiskBytenr != 0 {
				f(k.Offset, &x)
			}
		}
	})
}

// read is what is in a file, whatever the checksums say.
func (e *editor) read(ino uint64) (data []byte, err error) {
	data = make([]byte, e.files()[ino].size)
	return data, errors.Join(err, e.extents(ino, func(off uint64, x *format.FileExtent) {
		b, bad := e.load(x.DiskBytenr+x.Offset, int(x.NumBytes))
		if err = errors.Join(err, bad); off < uint64(len(data)) {
			copy(data[off:], b)
		}
	}))
}

// sums are the checksums of the data, by sector.
func (e *editor) sums() (map[uint64][]byte, error) {
	sums, size := map[uint64][]byte{}, e.sb.CsumType.Size()
	return sums, e.each(format.CSUM_TREE_OBJECTID, func(k format.Key, b []byte) {
		for i := 0; k.Type == format.EXTENT_CSUM_KEY && (i+1)*size <= len(b); i++ {
			sums[k.Offset+uint64(i)*blockBytes] = slices.Clone(b[i*size:][:size])
		}
	})
}

// same counts the bytes of a file that a reader gets, and that are those of want, each for itself:
// a block without a right checksum is an error to a reader, of one with a right one it gets all.
func (e *editor) same(ino uint64, want []byte) (n uint64, err error) {
	sums, err := e.sums()
	if err != nil {
		return 0, err
	}
	size := min(e.files()[ino].size, uint64(len(want)))
	return n, errors.Join(err, e.extents(ino, func(off uint64, x *format.FileExtent) {
		for at := uint64(0); at < x.NumBytes && off+at < size; at += blockBytes {
			logical := x.DiskBytenr + x.Offset + at
			b, bad := e.load(logical, blockBytes)
			if bad != nil {
				err = errors.Join(err, bad)
				continue
			}
			part := want[off+at : min(off+at+blockBytes, size)]
			if have, ok := sums[logical]; ok && e.sb.CsumType.Match(have, b) {
				for i := range part {
					if b[i] == part[i] {
						n++
					}
				}
			}
		}
	}))
}
