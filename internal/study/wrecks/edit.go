package wrecks

import (
	"errors"
	"slices"

	"btrlab/internal/blockdev"
	"btrlab/internal/format"
	"btrlab/internal/progs/image"
	"btrlab/internal/sched"
)

// editor reads and changes the trees of an image. Checksums of tree blocks are right again after a
// change, so that what is wrong is what the damage means.
type editor struct{ *image.Editor }

// openTrees reads the chunk map and the roots.
func openTrees(t *sched.Task, dev blockdev.Device) (*editor, error) {
	im, err := image.Open(t, dev)
	if err != nil {
		return nil, err
	}
	e, err := image.NewEditor(im)
	return &editor{e}, err
}

// load reads n bytes at logical.
func (e *editor) load(logical uint64, n int) ([]byte, error) {
	b := make([]byte, n)
	return b, e.Read(logical, b)
}

// splitSums cuts the checksums, which mkfs keeps in one item, at the ends of extents that cut says
// yes to, as a file system has them that was written to now and then.
func (e *editor) splitSums(cut func() bool) error {
	var starts []uint64
	err := e.All(format.EXTENT_TREE_OBJECTID, func(k format.Key, _ []byte) {
		if k.Type == format.EXTENT_ITEM_KEY && cut() {
			starts = append(starts, k.Objectid+k.Offset)
		}
	})
	if err != nil {
		return err
	}
	size := e.SB.CsumType.Size()
	var list []image.Item
	if err := e.All(csumTree, func(k format.Key, b []byte) { list = append(list, image.Item{Key: k, Data: slices.Clone(b)}) }); err != nil {
		return err
	}
	for _, it := range list {
		for _, at := range starts {
			k, b := it.Key, it.Data
			if k.Offset >= at || at >= k.Offset+uint64(len(b)/size)*blockBytes {
				continue
			}
			head := int((at-k.Offset)/blockBytes) * size
			if err := e.Replace(csumTree, k, b[:head]); err != nil {
				return err
			}
			it.Key.Offset, it.Data = at, b[head:]
			if err := e.Insert(csumTree, it.Key, it.Data); err != nil {
				return err
			}
		}
	}
	return nil
}

// remove takes an item out of its leaf, which has another: that the extent tree has a block which
// is in no tree would be a second damage.
func (e *editor) remove(tree uint64, k format.Key) error {
	path, _, err := e.Path(tree, k)
	if err != nil {
		return err
	}
	if len(path) > 1 && path[len(path)-1].N.Nritems() == 1 {
		return errors.New("the only item of its leaf")
	}
	return e.Delete(tree, k)
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
func (e *editor) files() (map[uint64]*inode, error) {
	all := map[uint64]*inode{}
	of := func(ino uint64) *inode {
		if all[ino] == nil {
			all[ino] = &inode{}
		}
		return all[ino]
	}
	err := e.All(fsTree, func(k format.Key, b []byte) {
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
	return all, err
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
	return e.All(format.FS_TREE_OBJECTID, func(k format.Key, b []byte) {
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
	files, err := e.files()
	if err != nil {
		return nil, err
	}
	data = make([]byte, files[ino].size)
	return data, errors.Join(err, e.extents(ino, func(off uint64, x *format.FileExtent) {
		b, bad := e.load(x.DiskBytenr+x.Offset, int(x.NumBytes))
		if err = errors.Join(err, bad); off < uint64(len(data)) {
			copy(data[off:], b)
		}
	}))
}

// sums are the checksums of the data, by sector.
func (e *editor) sums() (map[uint64][]byte, error) {
	sums, size := map[uint64][]byte{}, e.SB.CsumType.Size()
	return sums, e.All(format.CSUM_TREE_OBJECTID, func(k format.Key, b []byte) {
		for i := 0; k.Type == format.EXTENT_CSUM_KEY && (i+1)*size <= len(b); i++ {
			sums[k.Offset+uint64(i)*blockBytes] = slices.Clone(b[i*size:][:size])
		}
	})
}

// same counts the bytes of a file that a reader gets, and that are those of want, each for itself:
// a block without a right checksum is an error to a reader, of one with a right one it gets all.
func (e *editor) same(ino uint64, want []byte) (n uint64, err error) {
	files, err := e.files()
	if err != nil {
		return 0, err
	}
	sums, err := e.sums()
	if err != nil {
		return 0, err
	}
	size := min(files[ino].size, uint64(len(want)))
	return n, errors.Join(err, e.extents(ino, func(off uint64, x *format.FileExtent) {
		for at := uint64(0); at < x.NumBytes && off+at < size; at += blockBytes {
			logical := x.DiskBytenr + x.Offset + at
			b, bad := e.load(logical, blockBytes)
			if bad != nil {
				err = errors.Join(err, bad)
				continue
			}
			part := want[off+at : min(off+at+blockBytes, size)]
			if have, ok := sums[logical]; ok && e.SB.CsumType.Match(have, b) {
				for i := range part {
					if b[i] == part[i] {
						n++
					}
				}
			}
		}
	}))
}
