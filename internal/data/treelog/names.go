package treelog

import (
	"errors"
	"fmt"

	"btrlab/internal/errno"
	"btrlab/internal/format"
)

// Names. A log has a name of an inode twice if both the inode and its directory were logged: as the
// inode's INODE_REF and as the directory's DIR_INDEX. The INODE_REF is replayed last and wins: it
// takes the name from whoever has it, and takes from its inode the names of the same directory that
// the log does not have.

// dropEntries removes the entries of directory dir that the log says are gone: those in the ranges
// of indices that it covers, and does not have. Models replay_dir_deletes().
func (r *replayer) dropEntries(l *log, dir format.Ino) error {
	if ok, err := r.exists(l, dir); err != nil || !ok {
		return err
	}
	key := format.Key{Objectid: uint64(dir), Type: format.DIR_LOG_INDEX_KEY}
	return r.each(l.tree, key, func(k format.Key, item []byte) (bool, error) {
		if k.Objectid != key.Objectid || k.Type != key.Type {
			return false, nil
		}
		last, err := format.DirLogEnd(item)
		if err != nil {
			return false, err
		}
		return true, r.dropRange(l, dir, k.Offset, last, func(index uint64, name string) (bool, error) {
			it, err := r.item(l.tree, format.Key{Objectid: uint64(dir), Type: format.DIR_INDEX_KEY, Offset: index})
			if err != nil || it == nil {
				return false, err
			}
			list, err := format.DirItems(it)
			return err == nil && len(list) == 1 && list[0].Name == name, err
		})
	})
}

// dropRange unlinks the entries of dir with indices from first to last, but for those that keep
// wants.
func (r *replayer) dropRange(l *log, dir format.Ino, first, last uint64, keep func(index uint64, name string) (bool, error)) error {
	var gone []format.DirItem
	var failed error
	err := r.Store.ReadDir(r.t, l.root, dir, first, func(index uint64, d format.DirItem) bool {
		if index > last {
			return false
		}
		if keep != nil {
			stays, err := keep(index, d.Name)
			if failed = err; stays || err != nil {
				return err == nil
			}
		}
		gone = append(gone, d)
		return true
	})
	if err = errors.Join(err, failed); err != nil {
		return err
	}
	for _, d := range gone {
		if err := r.unlink(l, dir, d); err != nil {
			return err
		}
	}
	return nil
}

// unlink takes an entry out of dir. Its inode stays, without a name perhaps: fixLinks looks.
func (r *replayer) unlink(l *log, dir format.Ino, d format.DirItem) error {
	if d.Location.Type != format.INODE_ITEM_KEY {
		return fmt.Errorf("bad log, name %q of directory %d is a subvolume's: %w", d.Name, dir, errno.EUCLEAN)
	}
	ino := format.Ino(d.Location.Objectid)
	l.fix[ino] = struct{}{}
	if _, err := r.Store.DelLink(r.t, r.tr, l.root, dir, ino, d.Name); err != nil {
		return err
	}
	return r.steps.shrink(r, l, dir, d.Name)
}

// shrink takes the bytes of a name from the size of its directory.
func (r *replayer) shrink(l *log, dir format.Ino, name string) error {
	return r.change(l, dir, func(it *format.InodeItem) { it.Size -= min(it.Size, 2*uint64(len(name))) })
}

// link makes name in dir lead to ino.
func (r *replayer) link(l *log, dir, ino format.Ino, name string, index uint64) error {
	it, err := r.Store.ReadInode(r.t, l.root, ino)
	if err != nil {
		return fmt.Errorf("inode %d: %w", ino, err)
	}
	l.fix[ino] = struct{}{}
	if err := r.Store.AddLink(r.t, r.tr, l.root, dir, ino, name, format.FtOf(it.Mode), index); err != nil {
		return err
	}
	return r.change(l, dir, func(it *format.InodeItem) { it.Size += 2 * uint64(len(name)) })
}

// lookup finds name in dir; ok is false when it is not there.
func (r *replayer) lookup(l *log, dir format.Ino, name string) (d format.DirItem, ok bool, err error) {
	d, err = r.Store.Lookup(r.t, l.root, dir, name)
	if errors.Is(err, errno.ENOENT) {
		return d, false, nil
	}
	return d, err == nil, err
}

// at finds the entry of dir with an index.
func (r *replayer) at(l *log, dir format.Ino, index uint64) (d format.DirItem, ok bool, err error) {
	it, err := r.item(l.root, format.Key{Objectid: uint64(dir), Type: format.DIR_INDEX_KEY, Offset: index})
	if err != nil || it == nil {
		return d, false, err
	}
	list, err := format.DirItems(it)
	if err != nil || len(list) != 1 {
		return d, false, errors.Join(err, fmt.Errorf("bad entry %d of directory %d", index, dir))
	}
	return list[0], true, nil
}

// entry replays a directory entry. Nothing is done for one whose inode the log names itself, or
// whose inode is not there. Models replay_one_dir_item().
func (r *replayer) entry(l *log, dir format.Ino, index uint64, item []byte) error {
	list, err := format.DirItems(item)
	if err != nil {
		return err
	}
	for _, d := range list {
		if err := r.oneEntry(l, dir, index, d); err != nil {
			return err
		}
	}
	return nil
}

func (r *replayer) oneEntry(l *log, dir format.Ino, index uint64, d format.DirItem) error {
	ino := format.Ino(d.Location.Objectid)
	if d.Location.Type != format.INODE_ITEM_KEY {
		return nil // a subvolume: the commit that made it has the name
	}
	exists, err := r.exists(l, ino)
	if err != nil {
		return err
	}
	same := func(o format.DirItem) bool { return o.Location == d.Location && o.Type == d.Type && o.Name == d.Name }
	byName, there, err := r.lookup(l, dir, d.Name)
	if err != nil {
		return err
	}
	byIndex, taken, err := r.at(l, dir, index)
	if err != nil {
		return err
	}
	if there && same(byName) && taken && same(byIndex) {
		return nil
	}
	if !exists {
		return nil
	}
	if there {
		if err := r.unlink(l, dir, byName); err != nil {
			return err
		}
		byIndex, taken, err = r.at(l, dir, index)
		if err != nil {
			return err
		}
	}
	if taken {
		if err := r.unlink(l, dir, byIndex); err != nil {
			return err
		}
	}
	if named, err := r.logged(l, ino, dir, d.Name); err != nil || named {
		return err
	}
	return r.link(l, dir, ino, d.Name, index)
}

// logged reports whether the log has the name among those of inode ino. Models backref_in_log().
func (r *replayer) logged(l *log, ino, dir format.Ino, name string) (bool, error) {
	names, err := r.Store.Names(r.t, l.tree, ino)
	for _, n := range names {
		if n.Dir == dir && n.Name == name {
			return true, nil
		}
	}
	return false, err
}

// refs replays the names of ino that one item has. Models add_inode_ref().
func (r *replayer) refs(l *log, ino format.Ino, k format.Key, item []byte) error {
	names, err := r.names(k, item)
	if err != nil {
		return err
	}
	if ok, err := r.exists(l, ino); err != nil || !ok {
		return errors.Join(err, fmt.Errorf("bad log, names of inode %d which has no item: %w", ino, errno.EUCLEAN))
	}
	if ino == format.FIRST_FREE_OBJECTID {
		return nil // "..", the name of a top directory
	}
	for _, n := range names {
		if ok, err := r.exists(l, n.dir); err != nil {
			return err
		} else if !ok {
			continue // its directory was neither committed nor logged
		}
		if err := r.oneRef(l, ino, n); err != nil {
			return err
		}
	}
	// What the subvolume's item of the same key has beyond the logged one goes.
	old, err := r.item(l.root, k)
	if err != nil || old == nil {
		return err
	}
	have, err := r.names(k, old)
	if err != nil {
		return err
	}
	for _, n := range have {
		if !contains(names, n) {
			if err := r.unlink(l, n.dir, entryOf(ino, n.name)); err != nil {
				return err
			}
		}
	}
	return nil
}

// oneRef makes one name of ino valid.
func (r *replayer) oneRef(l *log, ino format.Ino, n name) error {
	d, ok, err := r.at(l, n.dir, n.index)
	if err != nil {
		return err
	}
	if ok && format.Ino(d.Location.Objectid) == ino && d.Name == n.name {
		return nil
	}
	if err := r.steps.makeRoom(r, l, n); err != nil {
		return err
	}
	return r.link(l, n.dir, ino, n.name, n.index)
}

// makeRoom takes the entry with the name n out of its directory, and the one with its index.
func (r *replayer) makeRoom(l *log, n name) error {
	d, ok, err := r.lookup(l, n.dir, n.name)
	if err != nil {
		return err
	}
	if ok {
		if err := r.unlink(l, n.dir, d); err != nil {
			return err
		}
	}
	if d, ok, err = r.at(l, n.dir, n.index); err != nil {
		return err
	}
	if ok {
		return r.unlink(l, n.dir, d)
	}
	return nil
}

// name is one name of an inode.
type name struct {
	dir   format.Ino
	index uint64
	name  string
}

func contains(list []name, n name) bool {
	for _, x := range list {
		if x.dir == n.dir && x.name == n.name {
			return true
		}
	}
	return false
}

func entryOf(ino format.Ino, name string) format.DirItem {
	return format.DirItem{Location: format.Key{Objectid: uint64(ino), Type: format.INODE_ITEM_KEY}, Name: name}
}

// names are those in an INODE_REF or INODE_EXTREF item.
func (r *replayer) names(k format.Key, item []byte) (list []name, err error) {
	if k.Type == format.INODE_REF_KEY {
		refs, err := format.InodeRefs(item)
		for _, f := range refs {
			list = append(list, name{format.Ino(k.Offset), f.Index, f.Name})
		}
		return list, err
	}
	refs, err := format.InodeExtrefs(item)
	for _, f := range refs {
		list = append(list, name{format.Ino(f.Parent), f.Index, f.Name})
	}
	return list, err
}
