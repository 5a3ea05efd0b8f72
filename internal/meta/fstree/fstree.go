// Package fstree reads and changes the items of files in a subvolume tree, inodes, names, file
// extents, extended attributes, and the checksum items of their data. It knows items, not files:
// page cache, i_size and reservations live above it.
//
// Every function is one or a few tree searches. A function that changes something takes the running
// transaction; when it fails with another error than the documented errnos, items may be half
// changed and the caller aborts the transaction.
//
// Lock order:
//
//	tree_fs, tree_csum       of one tree at a time
//	  chunk_mutex            ExtentRefs is called with nodes of a subvolume tree locked, as in the kernel
//	    delayed_refs
//	      path_list          a free list
//
// Invariants:
//   - EXTENT_DATA items of a file ascend and do not overlap.
//   - Each item that points at a data extent is one reference of it, with the offset
//     (file offset - extent offset); trimming or splitting an item never changes that offset.
//
// Models fs/btrfs/file-item.c, file.c (extent items), dir-item.c, inode-item.c, orphan.c, xattr.c.
package fstree

import (
	"fmt"

	"btrlab/internal/errno"
	"btrlab/internal/format"
	"btrlab/internal/lock"
	"btrlab/internal/lock/lockdep"
	"btrlab/internal/meta/ctree"
	"btrlab/internal/sched"
)

// ExtentRefs is the part of the extent tree that file extents need; *extenttree.ExtentTree is one.
type ExtentRefs interface {
	// AllocReservedFileExtent adds the first reference of a new data extent.
	AllocReservedFileExtent(t *sched.Task, tr *ctree.Trans, ref format.DataRef, bytenr format.Logical, numBytes uint64) error
	// IncExtentRef adds a reference.
	IncExtentRef(t *sched.Task, tr *ctree.Trans, ref format.DataRef, bytenr format.Logical, numBytes uint64) error
	// FreeExtent drops a reference, and with the last one the extent.
	FreeExtent(t *sched.Task, tr *ctree.Trans, ref format.DataRef, bytenr format.Logical, numBytes uint64) error
	// CrossRefExist reports whether anything but own refers to the extent. It uses the empty path
	// p, whose Nowait counts.
	CrossRefExist(t *sched.Task, own format.DataRef, bytenr format.Logical, p *ctree.Path) (bool, error)
	// MayWrite reports whether the block group of the extent takes writes.
	MayWrite(t *sched.Task, bytenr format.Logical) bool
}

var pathClass = lockdep.NewClass("path_list")

// Store works on the trees of one file system.
type Store struct {
	Forest     *ctree.Forest
	ExtentTree ExtentRefs
	SectorSize uint64
	*Csums     // of the checksum tree
	// Extref says that names without room in an INODE_REF item go to INODE_EXTREF (the
	// extended_iref feature).
	Extref bool
	// Holes says that a file has items for its holes, up to its size (no no-holes feature).
	Holes bool

	paths *pathList
}

// New returns a store with extended references on.
func New(f *ctree.Forest, refs ExtentRefs, csumRoot *ctree.Root, sectorSize uint64) *Store {
	s := &Store{Forest: f, ExtentTree: refs, SectorSize: sectorSize, Extref: true, paths: new(pathList)}
	s.paths.mu.Init(pathClass)
	s.Csums = s.CsumsIn(csumRoot)
	return s
}

// pathList is a free list of paths.
type pathList struct {
	mu   lock.Mutex // class path_list; protects list
	list []*ctree.Path
}

// get takes a path. It never waits for the list: a NOWAIT request comes here as well.
func (l *pathList) get(t *sched.Task) *ctree.Path {
	t.Count(sched.CountPaths)
	if l.mu.TryLock(t) {
		if n := len(l.list); n > 0 {
			p := l.list[n-1]
			l.list = l.list[:n-1]
			l.mu.Unlock(t)
			return p
		}
		l.mu.Unlock(t)
	}
	return new(ctree.Path)
}

// pathsMax bounds the free list: as many paths as tasks are at work, with room to spare.
const pathsMax = 64

// put releases p and gives it back.
func (l *pathList) put(t *sched.Task, p *ctree.Path) {
	p.Release(t)
	p.Nowait, p.ForExtension = false, false
	if l.mu.TryLock(t) {
		if len(l.list) < pathsMax {
			l.list = append(l.list, p)
		}
		l.mu.Unlock(t)
	}
}

// corrupt is the error for the item at p.
func corrupt(r *ctree.Root, p *ctree.Path, what string, a ...any) error {
	leaf := p.Leaf()
	return fmt.Errorf("corrupt leaf: root=%d block=%d slot=%d, %s", r.ID, leaf.Bytenr(), p.Slot(), fmt.Sprintf(what, a...))
}

func inodeKey(ino format.Ino) format.Key {
	return format.Key{Objectid: uint64(ino), Type: format.INODE_ITEM_KEY}
}

// ReadInode reads the inode item. ENOENT when there is none.
func (s *Store) ReadInode(t *sched.Task, r *ctree.Root, ino format.Ino) (item format.InodeItem, err error) {
	item, _, err = s.LoadInode(t, r, ino)
	return item, err
}

// LoadInode is ReadInode of an inode that comes into memory: bare says that it has no extended
// attribute. The items after the inode's tell, unless the leaf ends before; then bare is false.
// Models btrfs_read_locked_inode() with acls_after_inode_item().
func (s *Store) LoadInode(t *sched.Task, r *ctree.Root, ino format.Ino) (item format.InodeItem, bare bool, err error) {
	p := s.paths.get(t)
	defer s.paths.put(t, p)
	found, err := s.Forest.SearchSlot(t, nil, r, inodeKey(ino), p, 0, false)
	if err != nil {
		return item, false, err
	}
	if !found {
		return item, false, errno.ENOENT
	}
	b := p.Item()
	if len(b) < format.InodeItemSize {
		return item, false, corrupt(r, p, "bad inode item size, have %d want %d", len(b), format.InodeItemSize)
	}
	item.Decode(b)
	return item, bareAfter(p.Leaf(), p.Slot(), ino), nil
}

// bareAfter looks for an attribute among the items after the inode's own, of which it reads some.
func bareAfter(leaf format.Node, slot int, ino format.Ino) bool {
	const most = 8
	for i := slot + 1; i < min(leaf.Nritems(), slot+1+most); i++ {
		if k := leaf.Key(i); k.Objectid != uint64(ino) || k.Type >= format.XATTR_ITEM_KEY {
			return k.Objectid != uint64(ino) || k.Type > format.XATTR_ITEM_KEY
		}
	}
	return false
}

// InsertInode adds an inode item. EEXIST when the inode is there.
func (s *Store) InsertInode(t *sched.Task, tr *ctree.Trans, r *ctree.Root, ino format.Ino, item *format.InodeItem) error {
	p := s.paths.get(t)
	defer s.paths.put(t, p)
	if err := s.Forest.InsertEmptyItem(t, tr, r, p, inodeKey(ino), format.InodeItemSize); err != nil {
		return err
	}
	item.Encode(p.Item())
	s.Forest.DirtyLeaf(t, tr, p)
	return nil
}

// UpdateInode replaces the inode item. ENOENT when there is none.
//
// Models fs/btrfs/inode.c:btrfs_update_inode_item().
func (s *Store) UpdateInode(t *sched.Task, tr *ctree.Trans, r *ctree.Root, ino format.Ino, item *format.InodeItem) error {
	p := s.paths.get(t)
	defer s.paths.put(t, p)
	found, err := s.Forest.SearchSlot(t, tr, r, inodeKey(ino), p, 0, true)
	if err != nil {
		return err
	}
	if !found {
		return errno.ENOENT
	}
	item.Encode(p.Item())
	s.Forest.DirtyLeaf(t, tr, p)
	return nil
}

// DeleteInode removes the inode item and what else is left under the inode's number: extended
// attributes and names. File extents must be gone (TruncateItems).
//
// Models the last step of fs/btrfs/inode.c:btrfs_evict_inode().
func (s *Store) DeleteInode(t *sched.Task, tr *ctree.Trans, r *ctree.Root, ino format.Ino) error {
	p := s.paths.get(t)
	defer s.paths.put(t, p)
	key := format.Key{Objectid: uint64(ino)}
	for {
		if _, err := s.Forest.SearchSlot(t, tr, r, key, p, -1, true); err != nil {
			return err
		}
		leaf, slot := p.Leaf(), p.Slot()
		nr := 0
		for slot+nr < leaf.Nritems() && leaf.Key(slot+nr).Objectid == uint64(ino) {
			if k := leaf.Key(slot + nr); k.Type == format.EXTENT_DATA_KEY {
				return fmt.Errorf("delete of inode %d in tree %d: it still has the file extent at %d", ino, r.ID, k.Offset)
			}
			nr++
		}
		if nr > 0 {
			if err := s.Forest.DelItems(t, tr, r, p, slot, nr); err != nil {
				return err
			}
			p.Release(t)
			continue
		}
		atEnd := slot >= leaf.Nritems()
		p.Release(t)
		if !atEnd {
			return nil
		}
		// The leaf ended before the key: the items, if any, start the next leaf.
		next, ok, err := nextKey(t, s.Forest, r, key, p)
		if err != nil || !ok || next.Objectid != uint64(ino) {
			return err
		}
		key = next // a search for less would end in the leaf before
	}
}

// nextKey is the first key in r that is not before key. It searches for reading and releases p.
func nextKey(t *sched.Task, f *ctree.Forest, r *ctree.Root, key format.Key, p *ctree.Path) (next format.Key, ok bool, err error) {
	if ok, err = f.SearchForward(t, r, key, p); ok {
		next = p.Key()
		p.Release(t)
	}
	return next, ok, err
}

// NextObjectid is the inode number after the highest in use.
//
// Models fs/btrfs/disk-io.c:btrfs_init_root_free_objectid().
func (s *Store) NextObjectid(t *sched.Task, r *ctree.Root) (uint64, error) {
	last, ok, err := s.lastKey(t, r, format.Key{Objectid: format.LAST_FREE_OBJECTID, Type: 255, Offset: ^uint64(0)})
	if err != nil {
		return 0, err
	}
	if !ok || last.Objectid < format.FIRST_FREE_OBJECTID {
		return format.FIRST_FREE_OBJECTID + 1, nil
	}
	if last.Objectid >= format.LAST_FREE_OBJECTID {
		return 0, errno.ENOSPC
	}
	return last.Objectid + 1, nil
}

// lastKey is the last key in r that is not after key.
func (s *Store) lastKey(t *sched.Task, r *ctree.Root, key format.Key) (last format.Key, ok bool, err error) {
	p := s.paths.get(t)
	defer s.paths.put(t, p)
	if ok, err = s.Forest.SearchBackward(t, r, key, p); ok {
		last = p.Key()
	}
	return last, ok, err
}
