package fs

import (
	"errors"
	"fmt"

	"btrlab/internal/errno"
	"btrlab/internal/format"
	"btrlab/internal/meta/ctree"
	"btrlab/internal/meta/fstree"
	"btrlab/internal/sched"
)

// Frozen is a read-only subvolume as the items of its tree, which nobody changes while it is there:
// send compares two of them.
type Frozen struct {
	Item format.RootItem
	Name string // in its directory

	fs  *FS
	vol *subvol
}

// Frozen opens the subvolume whose top directory is n. Errors: EINVAL when n is none, EPERM when it
// takes writes. Models the checks of btrfs_ioctl_send().
func (n *Node) Frozen(t *sched.Task) (*Frozen, error) {
	if !n.isTop() {
		return nil, fmt.Errorf("is no subvolume: %w", errno.EINVAL)
	}
	f := n.fs
	it, err := f.trans.RootItem(t, n.vol.root.ID)
	if err != nil {
		return nil, err
	}
	if it.Flags&format.RootSubvolReadonly == 0 {
		return nil, fmt.Errorf("subvolume is not read-only: %w", errno.EPERM)
	}
	z := &Frozen{Item: it, fs: f, vol: n.vol}
	_, ref, err := f.subvolParent(t, n.vol.root.ID)
	if err != nil && !errors.Is(err, errno.ENOENT) {
		return nil, err
	}
	z.Name = ref.Name
	return z, nil
}

// Compare calls fn for the items that old, nil for nothing, and z do not have in common; see
// ctree.Forest.Compare.
func (z *Frozen) Compare(t *sched.Task, old *Frozen, fn func(key format.Key, old, item []byte) error) error {
	var r *ctree.Root
	if old != nil {
		r = old.vol.root
	}
	return z.fs.trans.Forest.Compare(t, r, z.vol.root, fn)
}

// Inode reads an inode item. ENOENT when there is none.
func (z *Frozen) Inode(t *sched.Task, ino format.Ino) (format.InodeItem, error) {
	return z.fs.store.ReadInode(t, z.vol.root, ino)
}

// Names lists the names of an inode.
func (z *Frozen) Names(t *sched.Task, ino format.Ino) ([]fstree.NameRef, error) {
	return z.fs.store.Names(t, z.vol.root, ino)
}

// Lookup is the inode that directory dir calls name. ENOENT when there is none; the name of another
// subvolume is none.
func (z *Frozen) Lookup(t *sched.Task, dir format.Ino, name string) (format.Ino, error) {
	it, err := z.fs.store.Lookup(t, z.vol.root, dir, name)
	if err == nil && it.Location.Type != format.INODE_ITEM_KEY {
		err = errno.ENOENT
	}
	return format.Ino(it.Location.Objectid), err
}

// Listxattr lists the names of an inode's extended attributes.
func (z *Frozen) Listxattr(t *sched.Task, ino format.Ino) ([]string, error) {
	return z.fs.store.Listxattr(t, z.vol.root, ino)
}

// Getxattr reads an extended attribute. ENOENT when the inode has none of the name.
func (z *Frozen) Getxattr(t *sched.Task, ino format.Ino, name string) ([]byte, error) {
	return z.fs.store.Getxattr(t, z.vol.root, ino, name)
}

// Node is an inode, with a reference for the caller.
func (z *Frozen) Node(t *sched.Task, ino format.Ino) (*Node, error) { return z.fs.iget(t, z.vol, ino) }

// Extent is the piece of a file that begins at off and ends at end, which is MaxUint64 after the
// last item: a part of a file extent, whose item begins at start, or a hole.
type Extent struct {
	format.FileExtent
	Start, End uint64
	Hole       bool // reads as zeros: nothing, or preallocated
}

// Extent finds the piece at off.
func (z *Frozen) Extent(t *sched.Task, ino format.Ino, off uint64) (e Extent, err error) {
	start, fe, ok, err := z.fs.store.LookupFileExtent(t, z.vol.root, ino, off)
	switch {
	case err != nil:
		return e, err
	case !ok: // nothing up to the next item
		return Extent{Start: off, End: start, Hole: true}, nil
	}
	e = Extent{FileExtent: fe, Start: start, End: start + fe.NumBytes}
	switch fe.Type {
	case format.FileExtentTypeInline:
		e.End = format.AlignUp(start+fe.RAMBytes, format.SectorSize)
	case format.FileExtentTypePrealloc:
		e.Hole = true
	default:
		e.Hole = fe.DiskBytenr == 0
	}
	if e.End <= off {
		return e, fmt.Errorf("corrupt file extent: root=%d ino=%d, bad end, have %d want more than %d: %w", z.vol.root.ID, ino, e.End, off, errno.EUCLEAN)
	}
	return e, nil
}

// DataRefs counts the items that refer to the data extent of n bytes at bytenr, in all trees; those
// of a leaf that several trees share count once. 0 when there is no such extent.
func (f *FS) DataRefs(t *sched.Task, bytenr, n uint64) (uint64, error) {
	var p ctree.Path
	defer p.Release(t)
	key := format.Key{Objectid: bytenr, Type: format.EXTENT_ITEM_KEY, Offset: n}
	found, err := f.trans.Forest.SearchSlot(t, nil, f.trans.Root(format.EXTENT_TREE_OBJECTID), key, &p, 0, false)
	if err != nil || !found || len(p.Item()) < format.ExtentItemSize {
		return 0, err
	}
	var it format.ExtentItem
	it.Decode(p.Item())
	return it.Refs, nil
}
