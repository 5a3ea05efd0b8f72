package fstree

import (
	"encoding/binary"
	"errors"
	"fmt"

	"btrlab/internal/errno"
	"btrlab/internal/format"
	"btrlab/internal/meta/ctree"
	"btrlab/internal/sched"
)

// A name of a file is three items. DIR_ITEM, keyed by the name's hash, answers lookups; DIR_INDEX,
// keyed by a number that only grows, gives readdir its order; INODE_REF, keyed by the inode, leads
// back from the file to the name and has the index. Names whose hashes are equal are packed into
// one DIR_ITEM, names of one file in one directory into one INODE_REF; when that is full (a leaf
// bounds an item) the name goes into INODE_EXTREF, keyed by a hash of directory and name.

var le = binary.LittleEndian

// firstDirIndex is the index of a directory's first entry: 0 and 1 stand for "." and "..".
const firstDirIndex = 2

func dirItemKey(dir format.Ino, name string) format.Key {
	return format.Key{Objectid: uint64(dir), Type: format.DIR_ITEM_KEY, Offset: format.NameHash(name)}
}

// findDirItem finds name among the entries packed into b: [start, end), ok false when it is not
// there. It is the DirItems of package format without its allocations.
func findDirItem(b []byte, name string) (start, end int, ok bool, err error) {
	for p := 0; p < len(b); p = end {
		if p+format.DirItemSize > len(b) {
			return 0, 0, false, fmt.Errorf("bad dir item, %d bytes left at %d", len(b)-p, p)
		}
		v := format.DirItemView(b[p:])
		end = p + v.Size()
		if end > len(b) {
			return 0, 0, false, fmt.Errorf("bad dir item lengths, have name %d data %d at %d of %d", v.NameLen(), v.DataLen(), p, len(b))
		}
		if string(v.Name()) == name {
			return p, end, true, nil
		}
	}
	return 0, 0, false, nil
}

// findRef finds name in an INODE_REF item.
func findRef(b []byte, name string) (start, end int, ok bool, err error) {
	for p := 0; p < len(b); p = end {
		if p+format.InodeRefSize > len(b) {
			return 0, 0, false, fmt.Errorf("bad inode ref, %d bytes left at %d", len(b)-p, p)
		}
		v := format.InodeRefView(b[p:])
		end = p + v.Size()
		if end > len(b) {
			return 0, 0, false, fmt.Errorf("bad inode ref name length, have end %d want at most %d", end, len(b))
		}
		if string(v.Name()) == name {
			return p, end, true, nil
		}
	}
	return 0, 0, false, nil
}

// findExtref finds name of directory dir in an INODE_EXTREF item.
func findExtref(b []byte, dir format.Ino, name string) (start, end int, ok bool, err error) {
	for p := 0; p < len(b); p = end {
		if p+format.InodeExtrefSize > len(b) {
			return 0, 0, false, fmt.Errorf("bad inode extref, %d bytes left at %d", len(b)-p, p)
		}
		v := format.InodeExtrefView(b[p:])
		end = p + v.Size()
		if end > len(b) {
			return 0, 0, false, fmt.Errorf("bad inode extref name length, have end %d want at most %d", end, len(b))
		}
		if v.Parent() == uint64(dir) && string(v.Name()) == name {
			return p, end, true, nil
		}
	}
	return 0, 0, false, nil
}

// find is findDirItem, findRef or findExtref with what to look for.
type find struct {
	typ  uint8
	dir  format.Ino
	name string
}

func (f find) in(b []byte) (start, end int, ok bool, err error) {
	switch f.typ {
	case format.INODE_REF_KEY:
		return findRef(b, f.name)
	case format.INODE_EXTREF_KEY:
		return findExtref(b, format.Ino(uint64(f.dir)), f.name)
	}
	return findDirItem(b, f.name)
}

// appendPacked adds an entry of size bytes to the item at key, which holds several, or makes the
// item. p then is write locked at the item, and the entry's bytes are returned. EEXIST when f finds
// the entry there, EOVERFLOW when the item would not fit a leaf.
//
// Models fs/btrfs/dir-item.c:insert_with_overflow().
func (s *Store) appendPacked(t *sched.Task, tr *ctree.Trans, r *ctree.Root, p *ctree.Path, key format.Key, size int, f find) ([]byte, error) {
	err := s.Forest.InsertEmptyItem(t, tr, r, p, key, size)
	if err == nil {
		return p.Item(), nil
	}
	p.Release(t)
	if !errors.Is(err, errno.EEXIST) {
		return nil, err
	}
	// The names collide, or the file has another name in the directory. The size is known only now,
	// and a leaf splits before it is changed: look first, then search with that much room.
	found, err := s.Forest.SearchSlot(t, nil, r, key, p, 0, false)
	if err != nil {
		return nil, err
	}
	if !found {
		return nil, fmt.Errorf("root=%d key=%v: item went away while its directory was locked", r.ID, key)
	}
	have := len(p.Item())
	if err := packedRoom(r, p, size, f); err != nil {
		p.Release(t)
		return nil, err
	}
	p.Release(t)
	p.ForExtension = true
	if found, err = s.Forest.SearchSlot(t, tr, r, key, p, size, true); err != nil {
		return nil, err
	}
	if !found || len(p.Item()) != have {
		return nil, fmt.Errorf("root=%d key=%v: item changed while its directory was locked", r.ID, key)
	}
	s.Forest.ExtendItem(t, p, size)
	return p.Item()[have:], nil
}

// removePacked takes the entry that f finds out of the item at key, and the item when it was the
// last. Before that it shows the entry to look. ENOENT when it is not there.
func (s *Store) removePacked(t *sched.Task, tr *ctree.Trans, r *ctree.Root, key format.Key, f find, look func(entry []byte) error) error {
	p := s.paths.get(t)
	defer s.paths.put(t, p)
	found, err := s.Forest.SearchSlot(t, tr, r, key, p, -1, true)
	if err != nil {
		return err
	}
	if !found {
		return errno.ENOENT
	}
	b := p.Item()
	start, end, ok, err := f.in(b)
	if err != nil {
		return corrupt(r, p, "%v", err)
	}
	if !ok {
		return errno.ENOENT
	}
	if look != nil {
		if err := look(b[start:end]); err != nil {
			return err
		}
	}
	if start == 0 && end == len(b) {
		return s.Forest.DelItems(t, tr, r, p, p.Slot(), 1)
	}
	copy(b[start:], b[end:])
	s.Forest.TruncateItem(t, p, len(b)-(end-start), true)
	s.Forest.DirtyLeaf(t, tr, p)
	return nil
}

// Lookup finds a name in a directory. ENOENT when it is not there.
func (s *Store) Lookup(t *sched.Task, r *ctree.Root, dir format.Ino, name string) (d format.DirItem, err error) {
	p := s.paths.get(t)
	defer s.paths.put(t, p)
	found, err := s.Forest.SearchSlot(t, nil, r, dirItemKey(dir, name), p, 0, false)
	if err != nil {
		return d, err
	}
	if !found {
		return d, errno.ENOENT
	}
	b := p.Item()
	start, _, ok, err := findDirItem(b, name)
	if err != nil {
		return d, corrupt(r, p, "%v", err)
	}
	if !ok {
		return d, errno.ENOENT
	}
	v := format.DirItemView(b[start:])
	return format.DirItem{Location: v.Location(), Transid: v.Transid(), Type: v.Type(), Name: name}, nil
}

// SetLocation makes the name in dir lead elsewhere. ENOENT when dir has no such name.
func (s *Store) SetLocation(t *sched.Task, tr *ctree.Trans, r *ctree.Root, dir format.Ino, name string, to format.Key) error {
	p := s.paths.get(t)
	defer s.paths.put(t, p)
	found, err := s.Forest.SearchSlot(t, tr, r, dirItemKey(dir, name), p, 0, true)
	if err != nil {
		return err
	}
	if !found {
		return errno.ENOENT
	}
	b := p.Item()
	start, _, ok, err := findDirItem(b, name)
	if err != nil {
		return corrupt(r, p, "%v", err)
	}
	if !ok {
		return errno.ENOENT
	}
	to.Encode(b[start:])
	s.Forest.DirtyLeaf(t, tr, p)
	return nil
}

// readDirBatch is how many entries ReadDir copies under one tree search.
const readDirBatch = 128

type dirEntry struct {
	index uint64
	d     format.DirItem
}

// ReadDir calls f for the entries of dir in DIR_INDEX order, from index fromIndex on, until f says
// false. No tree lock is held while f runs, so f may use the tree.
func (s *Store) ReadDir(t *sched.Task, r *ctree.Root, dir format.Ino, fromIndex uint64, f func(index uint64, d format.DirItem) bool) error {
	var batch []dirEntry
	for {
		var err error
		if batch, err = s.readDirBatch(t, r, uint64(dir), fromIndex, batch[:0]); err != nil {
			return err
		}
		for i := range batch {
			if !f(batch[i].index, batch[i].d) {
				return nil
			}
		}
		if len(batch) < readDirBatch {
			return nil
		}
		fromIndex = batch[len(batch)-1].index + 1
	}
}

func (s *Store) readDirBatch(t *sched.Task, r *ctree.Root, dir, fromIndex uint64, batch []dirEntry) ([]dirEntry, error) {
	p := s.paths.get(t)
	defer s.paths.put(t, p)
	key := format.Key{Objectid: dir, Type: format.DIR_INDEX_KEY, Offset: fromIndex}
	more, err := s.Forest.SearchForward(t, r, key, p)
	for ; more && err == nil && len(batch) < readDirBatch; more, err = s.Forest.NextItem(t, r, p) {
		k := p.Key()
		if k.Objectid != dir || k.Type != format.DIR_INDEX_KEY {
			break
		}
		items, err := format.DirItems(p.Item())
		if err != nil {
			return nil, corrupt(r, p, "%v", err)
		}
		for _, d := range items {
			batch = append(batch, dirEntry{k.Offset, d})
		}
	}
	return batch, err
}

// NextDirIndex is the DIR_INDEX after the highest in use in dir.
//
// Models fs/btrfs/inode.c:btrfs_set_inode_index_count().
func (s *Store) NextDirIndex(t *sched.Task, r *ctree.Root, dir format.Ino) (uint64, error) {
	last, ok, err := s.lastKey(t, r, format.Key{Objectid: uint64(dir), Type: format.DIR_INDEX_KEY, Offset: ^uint64(0)})
	if err != nil {
		return 0, err
	}
	if !ok || last.Objectid != uint64(dir) || last.Type != format.DIR_INDEX_KEY {
		return firstDirIndex, nil
	}
	return last.Offset + 1, nil
}

// AddLink makes name in dir lead to ino: DIR_ITEM, INODE_REF (or INODE_EXTREF) and DIR_INDEX at
// index, which comes from NextDirIndex. The inodes' sizes and link counts are the caller's.
//
// EEXIST when the name is there; EOVERFLOW when too many names have its hash; EMLINK when the
// file's references are full; ENAMETOOLONG. These leave the tree as it was.
//
// Models fs/btrfs/inode.c:btrfs_add_link().
//
// Preconditions:
//   - dir is locked for writing, so no other task changes its names.
func (s *Store) AddLink(t *sched.Task, tr *ctree.Trans, r *ctree.Root, dir, ino format.Ino, name string, ft uint8, index uint64) error {
	if len(name) > format.MaxNameLen {
		return errno.ENAMETOOLONG
	}
	d := format.DirItem{Location: inodeKey(ino), Transid: tr.ID, Type: ft, Name: name}
	if err := s.insertDirItem(t, tr, r, dir, &d); err != nil {
		return err
	}
	if err := s.insertRef(t, tr, r, dir, ino, name, index); err != nil {
		if undo := s.removePacked(t, tr, r, dirItemKey(dir, name), find{typ: format.DIR_ITEM_KEY, name: name}, nil); undo != nil {
			return undo
		}
		return err
	}
	return s.insertDirIndex(t, tr, r, dir, &d, index)
}

// RoomForName says whether dir can get a name: EEXIST when it has it, EOVERFLOW when too many of
// its names have the hash. Models btrfs_check_dir_item_collision().
//
// Preconditions: as AddLink.
func (s *Store) RoomForName(t *sched.Task, r *ctree.Root, dir format.Ino, name string) error {
	d := format.DirItem{Name: name}
	return s.roomIn(t, r, dirItemKey(dir, name), d.Size(), find{typ: format.DIR_ITEM_KEY, name: name})
}

// RoomForRef says whether the references of ino have room for a name in dir: EMLINK when they are
// full.
//
// Preconditions: ino does not have the name; those of AddLink.
func (s *Store) RoomForRef(t *sched.Task, r *ctree.Root, dir, ino format.Ino, name string) error {
	ref := format.InodeRef{Name: name}
	key := format.Key{Objectid: uint64(ino), Type: format.INODE_REF_KEY, Offset: uint64(dir)}
	err := s.roomIn(t, r, key, ref.Size(), find{typ: format.INODE_REF_KEY, name: name})
	if errors.Is(err, errno.EOVERFLOW) && s.Extref {
		ext := format.InodeExtref{Parent: uint64(dir), Name: name}
		key = format.Key{Objectid: uint64(ino), Type: format.INODE_EXTREF_KEY, Offset: format.ExtrefHash(dir, name)}
		err = s.roomIn(t, r, key, ext.Size(), find{typ: format.INODE_EXTREF_KEY, dir: dir, name: name})
	}
	if errors.Is(err, errno.EOVERFLOW) {
		return errno.EMLINK
	}
	return err
}

// roomIn says whether appendPacked would find room: the same errors.
func (s *Store) roomIn(t *sched.Task, r *ctree.Root, key format.Key, size int, f find) error {
	p := s.paths.get(t)
	defer s.paths.put(t, p)
	found, err := s.Forest.SearchSlot(t, nil, r, key, p, 0, false)
	if err != nil || !found {
		return err
	}
	return packedRoom(r, p, size, f)
}

// packedRoom is EEXIST when f finds its entry in the item at p, and EOVERFLOW when one of size
// bytes would not fit into it.
func packedRoom(r *ctree.Root, p *ctree.Path, size int, f find) error {
	b := p.Item()
	switch _, _, exists, err := f.in(b); {
	case err != nil:
		return corrupt(r, p, "%v", err)
	case exists:
		return errno.EEXIST
	case len(b)+size > format.MaxItemSize(len(p.Leaf())):
		return errno.EOVERFLOW
	}
	return nil
}

// AddSubvol gives a directory a name for the subvolume with tree id. The way back is in the root
// tree.
//
// Models fs/btrfs/dir-item.c:btrfs_insert_dir_item() with the key of a root.
func (s *Store) AddSubvol(t *sched.Task, tr *ctree.Trans, r *ctree.Root, dir format.Ino, id uint64, name string, index uint64) error {
	d := format.DirItem{Location: rootKey(id), Transid: tr.ID, Type: format.FtDir, Name: name}
	if err := s.insertDirItem(t, tr, r, dir, &d); err != nil {
		return err
	}
	return s.insertDirIndex(t, tr, r, dir, &d, index)
}

// DelSubvol takes the name of the subvolume with tree id out of a directory. ENOENT when it is not
// there.
//
// Models the directory's part of fs/btrfs/inode.c:btrfs_unlink_subvol().
func (s *Store) DelSubvol(t *sched.Task, tr *ctree.Trans, r *ctree.Root, dir format.Ino, id uint64, name string, index uint64) error {
	err := s.removePacked(t, tr, r, dirItemKey(dir, name), find{typ: format.DIR_ITEM_KEY, name: name}, func(b []byte) error {
		if k := format.DecodeKey(b); k.Objectid != id || k.Type != format.ROOT_ITEM_KEY {
			return errno.ENOENT
		}
		return nil
	})
	if err != nil {
		return err
	}
	key := format.Key{Objectid: uint64(dir), Type: format.DIR_INDEX_KEY, Offset: index}
	if err := s.removePacked(t, tr, r, key, find{typ: format.DIR_INDEX_KEY, name: name}, nil); err != nil {
		return fmt.Errorf("corrupt tree: root=%d, name %q of directory %d has no entry at index %d: %w", r.ID, name, dir, index, err)
	}
	return nil
}

// rootKey is the place of a subvolume by its entry in a directory.
func rootKey(id uint64) format.Key {
	return format.Key{Objectid: id, Type: format.ROOT_ITEM_KEY, Offset: ^uint64(0)}
}

func (s *Store) insertDirIndex(t *sched.Task, tr *ctree.Trans, r *ctree.Root, dir format.Ino, d *format.DirItem, index uint64) error {
	p := s.paths.get(t)
	defer s.paths.put(t, p)
	key := format.Key{Objectid: uint64(dir), Type: format.DIR_INDEX_KEY, Offset: index}
	if err := s.Forest.InsertEmptyItem(t, tr, r, p, key, d.Size()); err != nil {
		return fmt.Errorf("root=%d key=%v: %w", r.ID, key, err)
	}
	d.Encode(p.Item())
	s.Forest.DirtyLeaf(t, tr, p)
	return nil
}

func (s *Store) insertDirItem(t *sched.Task, tr *ctree.Trans, r *ctree.Root, dir format.Ino, d *format.DirItem) error {
	p := s.paths.get(t)
	defer s.paths.put(t, p)
	b, err := s.appendPacked(t, tr, r, p, dirItemKey(dir, d.Name), d.Size(), find{typ: format.DIR_ITEM_KEY, name: d.Name})
	if err != nil {
		return err
	}
	d.Encode(b)
	s.Forest.DirtyLeaf(t, tr, p)
	return nil
}

// insertRef adds the way back from ino to name.
//
// Models fs/btrfs/inode-item.c:btrfs_insert_inode_ref().
func (s *Store) insertRef(t *sched.Task, tr *ctree.Trans, r *ctree.Root, dir, ino format.Ino, name string, index uint64) error {
	p := s.paths.get(t)
	defer s.paths.put(t, p)
	ref := format.InodeRef{Index: index, Name: name}
	key := format.Key{Objectid: uint64(ino), Type: format.INODE_REF_KEY, Offset: uint64(dir)}
	b, err := s.appendPacked(t, tr, r, p, key, ref.Size(), find{typ: format.INODE_REF_KEY, name: name})
	if err == nil {
		ref.Encode(b)
		s.Forest.DirtyLeaf(t, tr, p)
		return nil
	}
	if !errors.Is(err, errno.EOVERFLOW) {
		return err
	}
	if !s.Extref {
		return errno.EMLINK
	}
	ext := format.InodeExtref{Parent: uint64(dir), Index: index, Name: name}
	key = format.Key{Objectid: uint64(ino), Type: format.INODE_EXTREF_KEY, Offset: format.ExtrefHash(dir, name)}
	b, err = s.appendPacked(t, tr, r, p, key, ext.Size(), find{typ: format.INODE_EXTREF_KEY, dir: dir, name: name})
	if errors.Is(err, errno.EOVERFLOW) {
		return errno.EMLINK
	}
	if err != nil {
		return err
	}
	ext.Encode(b)
	s.Forest.DirtyLeaf(t, tr, p)
	return nil
}

// DelLink removes name from dir, with its way back from ino, and returns its index. ENOENT when the
// name is not there or leads elsewhere; the tree then is as it was.
//
// Models fs/btrfs/inode.c:__btrfs_unlink_inode().
//
// Preconditions:
//   - dir is locked for writing.
func (s *Store) DelLink(t *sched.Task, tr *ctree.Trans, r *ctree.Root, dir, ino format.Ino, name string) (index uint64, err error) {
	err = s.removePacked(t, tr, r, dirItemKey(dir, name), find{typ: format.DIR_ITEM_KEY, name: name}, func(b []byte) error {
		if format.DecodeKey(b) != inodeKey(ino) {
			return errno.ENOENT
		}
		return nil
	})
	if err != nil {
		return 0, err
	}
	key := format.Key{Objectid: uint64(ino), Type: format.INODE_REF_KEY, Offset: uint64(dir)}
	err = s.removePacked(t, tr, r, key, find{typ: format.INODE_REF_KEY, name: name}, func(b []byte) error {
		index = format.InodeRefView(b).Index()
		return nil
	})
	if errors.Is(err, errno.ENOENT) {
		key = format.Key{Objectid: uint64(ino), Type: format.INODE_EXTREF_KEY, Offset: format.ExtrefHash(dir, name)}
		err = s.removePacked(t, tr, r, key, find{typ: format.INODE_EXTREF_KEY, dir: dir, name: name}, func(b []byte) error {
			index = format.InodeExtrefView(b).Index()
			return nil
		})
	}
	if err != nil {
		return 0, fmt.Errorf("corrupt tree: root=%d, name %q of directory %d has no inode ref in inode %d: %w", r.ID, name, dir, ino, err)
	}
	key = format.Key{Objectid: uint64(dir), Type: format.DIR_INDEX_KEY, Offset: index}
	if err := s.removePacked(t, tr, r, key, find{typ: format.DIR_INDEX_KEY, name: name}, nil); err != nil {
		return 0, fmt.Errorf("corrupt tree: root=%d, name %q of directory %d has no entry at index %d: %w", r.ID, name, dir, index, err)
	}
	return index, nil
}

// NameRef is one name of an inode.
type NameRef struct {
	Dir   format.Ino
	Index uint64
	Name  string
}

// Names lists the names of an inode.
func (s *Store) Names(t *sched.Task, r *ctree.Root, ino format.Ino) ([]NameRef, error) {
	var names []NameRef
	err := s.each(t, r, format.Key{Objectid: uint64(ino), Type: format.INODE_REF_KEY}, func(p *ctree.Path, k format.Key) (bool, error) {
		if k.Objectid != uint64(ino) || k.Type > format.INODE_EXTREF_KEY {
			return false, nil
		}
		if k.Type == format.INODE_REF_KEY {
			refs, err := format.InodeRefs(p.Item())
			if err != nil {
				return false, corrupt(r, p, "%v", err)
			}
			for _, f := range refs {
				names = append(names, NameRef{format.Ino(k.Offset), f.Index, f.Name})
			}
			return true, nil
		}
		refs, err := format.InodeExtrefs(p.Item())
		if err != nil {
			return false, corrupt(r, p, "%v", err)
		}
		for _, f := range refs {
			names = append(names, NameRef{format.Ino(f.Parent), f.Index, f.Name})
		}
		return true, nil
	})
	return names, err
}

// each calls f for the items of r from key on, the leaf read locked, until f says false.
func (s *Store) each(t *sched.Task, r *ctree.Root, key format.Key, f func(p *ctree.Path, k format.Key) (bool, error)) error {
	p := s.paths.get(t)
	defer s.paths.put(t, p)
	more, err := s.Forest.SearchForward(t, r, key, p)
	for more && err == nil {
		if more, err = f(p, p.Key()); more && err == nil {
			more, err = s.Forest.NextItem(t, r, p)
		}
	}
	return err
}

func orphanKey(ino format.Ino) format.Key {
	return format.Key{Objectid: format.ORPHAN_OBJECTID, Type: format.ORPHAN_ITEM_KEY, Offset: uint64(ino)}
}

// InsertOrphan says that the next mount must finish what is under way with ino: a delete or
// truncate.
func (s *Store) InsertOrphan(t *sched.Task, tr *ctree.Trans, r *ctree.Root, ino format.Ino) error {
	return s.Forest.InsertItem(t, tr, r, orphanKey(ino), nil)
}

// DelOrphan takes that back. ENOENT when there is no such item.
func (s *Store) DelOrphan(t *sched.Task, tr *ctree.Trans, r *ctree.Root, ino format.Ino) error {
	p := s.paths.get(t)
	defer s.paths.put(t, p)
	found, err := s.Forest.SearchSlot(t, tr, r, orphanKey(ino), p, -1, true)
	if err != nil {
		return err
	}
	if !found {
		return errno.ENOENT
	}
	return s.Forest.DelItems(t, tr, r, p, p.Slot(), 1)
}

// Orphans lists the inodes with an orphan item, ascending.
func (s *Store) Orphans(t *sched.Task, r *ctree.Root) ([]format.Ino, error) {
	var list []format.Ino
	err := s.each(t, r, orphanKey(0), func(p *ctree.Path, k format.Key) (bool, error) {
		if k.Objectid != format.ORPHAN_OBJECTID || k.Type != format.ORPHAN_ITEM_KEY {
			return false, nil
		}
		list = append(list, format.Ino(k.Offset))
		return true, nil
	})
	return list, err
}
