package wrecks

import (
	"errors"
	"slices"
	"strings"

	"btrlab/internal/format"
)

// Classes are the five classes of damage.
var Classes = []*Class{
	{Name: "name", Asks: "a name", links: 1, hit: hitName, worse: loseNames,
		Worse: "the other two records of the name are gone as well"},
	{Name: "count", Asks: "a number in an inode", links: 2, hit: hitCount, worse: loseLastName,
		Worse: "the last of the file's INODE_REF items is gone as well, with both records of that name in its directory"},
	{Name: "sum", Asks: "checksums", links: 1, hit: hitSum, worse: loseSums,
		Worse: "the item with these checksums is gone as well"},
	{Name: "space", Asks: "the record of what is allocated", links: 1, hit: hitSpace, worse: loseExtent,
		Worse: "the file's first EXTENT_DATA item is gone as well"},
	{Name: "inode", Asks: "an inode", links: 1, hit: hitInode, worse: loseNames,
		Worse: "all three records of the file's name are gone as well"},
}

// Of is the class with that name, or nil.
func Of(name string) *Class {
	i := slices.IndexFunc(Classes, func(c *Class) bool { return c.Name == name })
	if i < 0 {
		return nil
	}
	return Classes[i]
}

// victim is a file in an image that is being damaged.
type victim struct {
	*editor
	d   *dice
	ino uint64
}

const (
	fsTree   = format.FS_TREE_OBJECTID
	csumTree = format.CSUM_TREE_OBJECTID
)

func (v *victim) inodeKey() format.Key {
	return format.Key{Objectid: v.ino, Type: format.INODE_ITEM_KEY}
}

// records are the keys of the three records of a name.
func (v *victim) records(r nameRef) []format.Key {
	return []format.Key{
		{Objectid: r.dir, Type: format.DIR_INDEX_KEY, Offset: r.index},
		{Objectid: r.dir, Type: format.DIR_ITEM_KEY, Offset: format.NameHash(r.name)},
		{Objectid: v.ino, Type: format.INODE_REF_KEY, Offset: r.dir},
	}
}

// has reports whether an item is there.
func (v *victim) has(tree uint64, k format.Key) bool {
	_, found, err := v.Path(tree, k)
	return found && err == nil
}

// hitName takes one record of the file's name.
func hitName(v *victim) (uint64, format.Key, error) {
	refs, err := v.refs()
	if err != nil {
		return 0, format.Key{}, err
	}
	list := v.records(refs[0])
	k := list[v.d.under(len(list))]
	return fsTree, k, v.remove(fsTree, k)
}

// loseNames takes what is left of the file's name.
func loseNames(v *victim) error {
	refs, err := v.refs()
	if err != nil {
		return err
	}
	if len(refs) == 0 {
		if refs, err = v.entries(); err != nil {
			return err
		}
	}
	if len(refs) == 0 {
		return errors.New("the file has no name")
	}
	for _, k := range v.records(refs[0]) {
		if v.has(fsTree, k) {
			if err := v.remove(fsTree, k); err != nil {
				return err
			}
		}
	}
	return nil
}

// refs are the names that the file has in itself.
func (v *victim) refs() ([]nameRef, error) {
	files, err := v.files()
	if f := files[v.ino]; f != nil {
		return f.refs, err
	}
	return nil, err
}

// entries are the names that directories have for the file.
func (v *victim) entries() (names []nameRef, err error) {
	err = v.All(fsTree, func(k format.Key, b []byte) {
		if k.Type != format.DIR_INDEX_KEY {
			return
		}
		list, _ := format.DirItems(b)
		for _, d := range list {
			if d.Location == v.inodeKey() {
				names = append(names, nameRef{k.Objectid, k.Offset, d.Name})
			}
		}
	})
	return names, err
}

// hitCount makes the link count or the byte count wrong.
func hitCount(v *victim) (uint64, format.Key, error) {
	kind, by := v.d.under(3), 1+v.d.under(3)
	return fsTree, v.inodeKey(), v.Change(fsTree, v.inodeKey(), func(b []byte) error {
		var i format.InodeItem
		i.Decode(b)
		switch kind {
		case 0:
			i.Nlink += uint32(by)
		case 1:
			i.Nlink--
		default:
			i.Nbytes += uint64(by) * blockBytes
		}
		i.Encode(b)
		return nil
	})
}

// loseLastName takes all records of the name that comes last.
func loseLastName(v *victim) error {
	refs, err := v.refs()
	if err != nil {
		return err
	}
	for _, k := range v.records(refs[len(refs)-1]) {
		if err := v.remove(fsTree, k); err != nil {
			return err
		}
	}
	return nil
}

// blocks are the addresses of the blocks of the file, in its order.
func (v *victim) blocks() (list []uint64, err error) {
	return list, v.extents(v.ino, func(_ uint64, x *format.FileExtent) {
		for at := uint64(0); at < x.NumBytes; at += blockBytes {
			list = append(list, x.DiskBytenr+x.Offset+at)
		}
	})
}

// sumItem is the item with the checksum of a block, and where in the item that is.
func (v *victim) sumItem(logical uint64) (item format.Key, at int, err error) {
	size := v.SB.CsumType.Size()
	err = v.All(csumTree, func(k format.Key, b []byte) {
		if n := uint64(len(b)/size) * blockBytes; k.Type == format.EXTENT_CSUM_KEY && k.Offset <= logical && logical < k.Offset+n {
			item, at = k, int((logical-k.Offset)/blockBytes)*size
		}
	})
	if err == nil && item.Type == 0 {
		err = errors.New("no checksum")
	}
	return item, at, err
}

// overwritten is how many bytes of a block hitSum changes.
const overwritten = 16

// hitSum changes the data of some blocks of the file, or the checksums of as many.
func hitSum(v *victim) (uint64, format.Key, error) {
	list, err := v.blocks()
	if err != nil {
		return 0, format.Key{}, err
	}
	inData, n := v.d.under(2) == 0, 1+v.d.under(len(list)-1)
	first := v.d.under(len(list) - n + 1)
	var item format.Key
	for _, logical := range list[first : first+n] {
		k, at, err := v.sumItem(logical)
		if err != nil {
			return 0, k, err
		}
		item = k
		if inData {
			b, err := v.load(logical, blockBytes)
			if err != nil {
				return 0, k, err
			}
			copy(b[8:], strings.Repeat("#", overwritten))
			err = v.Write(logical, b)
			if err != nil {
				return 0, k, err
			}
		} else if err := v.Change(csumTree, k, func(b []byte) error { b[at] ^= 0xff; return nil }); err != nil {
			return 0, k, err
		}
	}
	return csumTree, item, nil
}

// loseSums takes the checksums of the file's first block, and all others of that item.
func loseSums(v *victim) error {
	list, err := v.blocks()
	if err != nil {
		return err
	}
	k, _, err := v.sumItem(list[0])
	if err != nil {
		return err
	}
	return v.remove(csumTree, k)
}

// firstExtent is the file's first item with a place on the disk.
func (v *victim) firstExtent() (k format.Key, x *format.FileExtent, err error) {
	err = v.extents(v.ino, func(off uint64, e *format.FileExtent) {
		if x == nil {
			k, x = format.Key{Objectid: v.ino, Type: format.EXTENT_DATA_KEY, Offset: off}, e
		}
	})
	if err == nil && x == nil {
		err = errors.New("the file has no extent")
	}
	return k, x, err
}

// hitSpace takes the extent item of the file's data, or makes its count of references wrong.
func hitSpace(v *victim) (uint64, format.Key, error) {
	_, x, err := v.firstExtent()
	if err != nil {
		return 0, format.Key{}, err
	}
	k := format.Key{Objectid: x.DiskBytenr, Type: format.EXTENT_ITEM_KEY, Offset: x.DiskNumBytes}
	by := uint64(v.d.under(4))
	if by == 0 {
		return format.EXTENT_TREE_OBJECTID, k, v.remove(format.EXTENT_TREE_OBJECTID, k)
	}
	return format.EXTENT_TREE_OBJECTID, k, v.Change(format.EXTENT_TREE_OBJECTID, k, func(b []byte) error {
		var e format.ExtentItem
		e.Decode(b)
		e.Refs += by
		e.Encode(b)
		return nil
	})
}

// loseExtent takes the item that says where the file's data is.
func loseExtent(v *victim) error {
	k, _, err := v.firstExtent()
	if err != nil {
		return err
	}
	return v.remove(fsTree, k)
}

// hitInode takes the inode item.
func hitInode(v *victim) (uint64, format.Key, error) {
	return fsTree, v.inodeKey(), v.remove(fsTree, v.inodeKey())
}
