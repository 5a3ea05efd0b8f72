package fstree

import (
	"errors"

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

// Setxattr makes the attribute have the value; ENOSPC when that does not fit an item, which leaves the attribute as it was.
func (s *Store) Setxattr(t *sched.Task, tr *ctree.Trans, r *ctree.Root, ino format.Ino, name string, value []byte) error {
	d := format.DirItem{Transid: tr.ID, Type: format.FtXattr, Name: name, Data: value}
	if fits, err := s.xattrFits(t, r, ino, &d); err != nil {
		return err
	} else if !fits {
		return errno.ENOSPC
	}
	if err := s.Removexattr(t, tr, r, ino, name); err != nil && !errors.Is(err, errno.ENOENT) {
		return err
	}
	p := s.paths.get(t)
	defer s.paths.put(t, p)
	b, err := s.appendPacked(t, tr, r, p, xattrKey(ino, name), d.Size(), find{typ: format.XATTR_ITEM_KEY, name: name})
	if err != nil {
		return err
	}
	d.Encode(b)
	s.Forest.DirtyLeaf(t, tr, p)
	return nil
}

// xattrFits reports whether d has room in its item, beside other attributes whose names have the same hash, once it has taken
// the place of the attribute of its name.
func (s *Store) xattrFits(t *sched.Task, r *ctree.Root, ino format.Ino, d *format.DirItem) (bool, error) {
	size := d.Size()
	p := s.paths.get(t)
	defer s.paths.put(t, p)
	found, err := s.Forest.SearchSlot(t, nil, r, xattrKey(ino, d.Name), p, 0, false)
	if err != nil {
		return false, err
	}
	if found {
		start, end, _, err := findDirItem(p.Item(), d.Name)
		if err != nil {
			return false, corrupt(r, p, "%v", err)
		}
		size += len(p.Item()) - (end - start)
	}
	return size <= format.MaxItemSize(s.Forest.NodeSize()), nil
}

// Removexattr takes an attribute away. ENOENT when the inode has none of the name.
func (s *Store) Removexattr(t *sched.Task, tr *ctree.Trans, r *ctree.Root, ino format.Ino, name string) error {
	return s.removePacked(t, tr, r, xattrKey(ino, name), find{typ: format.XATTR_ITEM_KEY, name: name}, nil)
}
