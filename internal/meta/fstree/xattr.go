package fstree

import (
	"fmt"

	"btrlab/internal/errno"
	"btrlab/internal/format"
	"btrlab/internal/meta/ctree"
	"btrlab/internal/sched"
)

func xattrKey(ino format.Ino, name string) format.Key {
	return format.Key{Objectid: uint64(ino), Type: format.XATTR_ITEM_KEY, Offset: format.NameHash(name)}
}

// Getxattr reads an extended attribute. ENOENT when the inode has no such attribute.
func (s *Store) Getxattr(t *sched.Task, r *ctree.Root, ino format.Ino, name string) ([]byte, error) {
	p := s.paths.get(t)
	defer s.paths.put(t, p)
	found, err := s.Forest.SearchSlot(t, nil, r, xattrKey(ino, name), p, 0, false)
	if err != nil {
		return nil, err
	}
	if !found {
		return nil, errno.ENOENT
	}
	start, end, ok, err := findDirItem(p.Item(), name)
	if err != nil {
		return nil, corrupt(r, p, "%v", err)
	}
	if !ok {
		return nil, errno.ENOENT
	}
	return append([]byte{}, p.Item()[start+format.DirItemSize+len(name):end]...), nil
}

// Listxattr lists the names of an inode's extended attributes, in tree order.
func (s *Store) Listxattr(t *sched.Task, r *ctree.Root, ino format.Ino) ([]string, error) {
	var names []string
	err := s.each(t, r, format.Key{Objectid: uint64(ino), Type: format.XATTR_ITEM_KEY}, func(p *ctree.Path, k format.Key) (bool, error) {
		if k.Objectid != uint64(ino) || k.Type != format.XATTR_ITEM_KEY {
			return false, nil
		}
		items, err := format.DirItems(p.Item())
		if err != nil {
			return false, corrupt(r, p, "%v", err)
		}
		for i := range items {
			names = append(names, items[i].Name)
		}
		return true, nil
	})
	return names, err
}

// Setxattr makes the attribute have the value; ENOSPC when that does not fit an item, or a leaf
// finds no room, which leaves the attribute as it was. Whoever looks meanwhile, and a log that gets
// the items of the inode, sees the old value or the new one.
//
// Models fs/btrfs/xattr.c:btrfs_setxattr() since "Btrfs: make xattr replace operations atomic",
// before which an attribute was taken away first.
func (s *Store) Setxattr(t *sched.Task, tr *ctree.Trans, r *ctree.Root, ino format.Ino, name string, value []byte) error {
	d := format.DirItem{Transid: tr.ID, Type: format.FtXattr, Name: name, Data: value}
	key := xattrKey(ino, name)
	old, err := s.xattrSize(t, r, key, &d)
	if err != nil {
		return err
	}
	p := s.paths.get(t)
	defer s.paths.put(t, p)
	if old == 0 {
		b, err := s.appendPacked(t, tr, r, p, key, d.Size(), find{typ: format.XATTR_ITEM_KEY, name: name})
		if err != nil {
			return err
		}
		d.Encode(b)
		s.Forest.DirtyLeaf(t, tr, p)
		return nil
	}
	more := d.Size() - old
	p.ForExtension = more > 0
	found, err := s.Forest.SearchSlot(t, tr, r, key, p, max(more, 0), true)
	if err != nil {
		return err
	}
	if !found {
		return fmt.Errorf("root=%d key=%v: item went away while its inode was locked", r.ID, key)
	}
	start, end, ok, err := findDirItem(p.Item(), name)
	if err != nil {
		return corrupt(r, p, "%v", err)
	}
	if !ok || end-start != old {
		return fmt.Errorf("root=%d key=%v: item changed while its inode was locked", r.ID, key)
	}
	size := len(p.Item())
	if more > 0 {
		s.Forest.ExtendItem(t, p, more)
	}
	b := p.Item()
	copy(b[end+more:], b[end:size])
	d.Encode(b[start : end+more])
	if more < 0 {
		s.Forest.TruncateItem(t, p, size+more, true)
	}
	s.Forest.DirtyLeaf(t, tr, p)
	return nil
}

// xattrSize is the size of the entry whose place d takes, 0 when there is none. ENOSPC when d has
// no room in the item, beside other attributes whose names have the same hash.
func (s *Store) xattrSize(t *sched.Task, r *ctree.Root, key format.Key, d *format.DirItem) (old int, err error) {
	p := s.paths.get(t)
	defer s.paths.put(t, p)
	found, err := s.Forest.SearchSlot(t, nil, r, key, p, 0, false)
	if err != nil {
		return 0, err
	}
	size := d.Size()
	if found {
		start, end, _, err := findDirItem(p.Item(), d.Name)
		if err != nil {
			return 0, corrupt(r, p, "%v", err)
		}
		old = end - start
		size += len(p.Item()) - old
	}
	if size > format.MaxItemSize(s.Forest.NodeSize()) {
		return 0, errno.ENOSPC
	}
	return old, nil
}

// Removexattr takes an attribute away. ENOENT when the inode has none of the name.
func (s *Store) Removexattr(t *sched.Task, tr *ctree.Trans, r *ctree.Root, ino format.Ino, name string) error {
	return s.removePacked(t, tr, r, xattrKey(ino, name), find{typ: format.XATTR_ITEM_KEY, name: name}, nil)
}
