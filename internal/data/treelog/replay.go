package treelog

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"slices"

	"btrlab/internal/policy"

	"btrlab/internal/errno"
	"btrlab/internal/format"
	"btrlab/internal/meta/ctree"
	"btrlab/internal/meta/fstree"
	"btrlab/internal/sched"
)

// Extents is the part of the extent tree that replay needs beside fstree.ExtentRefs;
// *extenttree.ExtentTree is one.
type Extents interface {
	// PinLogBlock keeps a block of a log from being allocated until the next commit is durable.
	PinLogBlock(t *sched.Task, bytenr format.Logical) error
	// AddLoggedExtent adds a reference to a data extent, which is new or known.
	AddLoggedExtent(t *sched.Task, tr *ctree.Trans, ref format.DataRef, bytenr format.Logical, numBytes uint64) error
	// ExcludeLogged keeps the place of a data extent that a log names for AddLoggedExtent, until
	// FreeLogged.
	ExcludeLogged(t *sched.Task, bytenr format.Logical, numBytes uint64)
	FreeLogged(t *sched.Task)
}

// Config has the parts that Replay works with.
type Config struct {
	Store   *fstree.Store
	Extents Extents
	// Subvol opens the tree of a subvolume. ENOENT: it is gone, and its log with it.
	Subvol func(t *sched.Task, id uint64) (*ctree.Root, error)
	// Policy is the set of the policy in force.
	Policy policy.Set
}

// pass is one of the walks over all logs.
type pass int

const (
	passInodes pass = iota
	passNames
	passRest
	passes
)

// Replay replays the logs that the tree at bytenr leads to. Its blocks are of generation gen, the
// one after that of the superblock. The caller commits tr after it, or after an error aborts it.
//
// Preconditions: no other task is at work, and nothing has changed since the trees were opened.
func Replay(t *sched.Task, tr *ctree.Trans, c Config, bytenr uint64, level int, gen uint64) error {
	r := &replayer{Config: c, t: t, tr: tr, steps: stepsOf(&c.Policy)}
	top, err := r.open(bytenr, level, gen)
	if err != nil {
		return err
	}
	logs, err := r.logs(top)
	if err != nil {
		return err
	}
	for p := range passes {
		for _, l := range logs {
			if l.root != nil {
				if err := r.walk(l, p); err != nil {
					return fmt.Errorf("replay log of tree %d: %w", l.subvol, err)
				}
			}
		}
	}
	for _, l := range logs {
		if l.root != nil {
			if err := r.fixLinks(l); err != nil {
				return fmt.Errorf("count links in tree %d: %w", l.subvol, err)
			}
		}
	}
	c.Extents.FreeLogged(t)
	for _, b := range r.blocks { // after the commit other blocks may lie there
		c.Store.Forest.DropBuffer(t, b)
	}
	return nil
}

type replayer struct {
	Config
	steps  steps
	t      *sched.Task
	tr     *ctree.Trans
	blocks []uint64 // of all logs
}

// log is one log tree and the subvolume that it belongs to.
type log struct {
	subvol uint64
	root   *ctree.Root // of the subvolume; nil when it is gone
	tree   *ctree.Root
	csums  *fstree.Csums
	fix    map[format.Ino]struct{} // the inodes whose links must be counted
	// the inode at hand, if the log says that it has no name: nothing of it is replayed
	dead format.Ino
}

// open pins the blocks of a log tree and opens it.
func (r *replayer) open(bytenr uint64, level int, gen uint64) (*ctree.Root, error) {
	if err := r.pin(bytenr, level, gen); err != nil {
		return nil, fmt.Errorf("read log tree: %w", err)
	}
	return r.Store.Forest.OpenRoot(r.t, format.TREE_LOG_OBJECTID, bytenr, level, gen, 0)
}

// pin pins the block and all below it.
func (r *replayer) pin(bytenr uint64, level int, gen uint64) error {
	b, err := r.Store.Forest.ReadBlock(r.t, bytenr, ctree.Check{Level: level, Generation: gen, Owner: format.TREE_LOG_OBJECTID})
	if err != nil {
		return err
	}
	defer b.Put()
	if err := r.steps.pinBlock(r, bytenr); err != nil {
		return err
	}
	r.blocks = append(r.blocks, bytenr)
	if level == 0 {
		r.exclude(b.Node)
		return nil
	}
	for i := range b.Node.Nritems() {
		if err := r.pin(b.Node.Blockptr(i), level-1, b.Node.PtrGeneration(i)); err != nil {
			return err
		}
	}
	return nil
}

// exclude keeps the data extents that a leaf of a log names from being allocated.
func (r *replayer) exclude(leaf format.Node) {
	for i := range leaf.Nritems() {
		if leaf.Key(i).Type != format.EXTENT_DATA_KEY {
			continue
		}
		if fe := format.FileExtentView(leaf.Item(i)); fe.Type() != format.FileExtentTypeInline && fe.DiskBytenr() != 0 {
			r.Extents.ExcludeLogged(r.t, format.Logical(fe.DiskBytenr()), fe.DiskNumBytes())
		}
	}
}

// pinBlock keeps a block of a log from being allocated.
func (r *replayer) pinBlock(bytenr uint64) error {
	return r.Extents.PinLogBlock(r.t, format.Logical(bytenr))
}

// logs opens the trees that top, the tree of the log trees, names.
func (r *replayer) logs(top *ctree.Root) (list []*log, err error) {
	err = r.each(top, format.Key{}, func(k format.Key, item []byte) (bool, error) {
		if k.Objectid != format.TREE_LOG_OBJECTID || k.Type != format.ROOT_ITEM_KEY {
			return true, nil
		}
		var it format.RootItem
		it.Decode(item)
		tree, err := r.open(it.Bytenr, int(it.Level), it.Generation)
		if err != nil {
			return false, err
		}
		l := &log{subvol: k.Offset, tree: tree, csums: r.Store.CsumsIn(tree), fix: map[format.Ino]struct{}{}}
		list = append(list, l)
		return true, nil
	})
	if err != nil {
		return nil, err
	}
	// All logs are pinned: from here on trees may change, as they do when a subvolume is opened
	// that has orphans.
	for _, l := range list {
		if l.root, err = r.Subvol(r.t, l.subvol); err != nil && !errors.Is(err, errno.ENOENT) {
			return nil, err
		}
	}
	return list, nil
}

// each calls f for the items of tree from key on, until f says false. The item is a copy, and no
// tree is locked.
func (r *replayer) each(tree *ctree.Root, key format.Key, f func(k format.Key, item []byte) (bool, error)) error {
	var p ctree.Path
	defer p.Release(r.t)
	for {
		more, err := r.Store.Forest.SearchForward(r.t, tree, key, &p)
		if err != nil || !more {
			return err
		}
		leaf, slot := slices.Clone(p.Leaf()), p.Slot()
		p.Release(r.t)
		for ; slot < leaf.Nritems(); slot++ {
			key = leaf.Key(slot)
			if more, err := f(key, leaf.Item(slot)); err != nil || !more {
				return err
			}
		}
		if key.Offset++; key.Offset == 0 {
			if key.Type++; key.Type == 0 {
				if key.Objectid++; key.Objectid == 0 {
					return nil
				}
			}
		}
	}
}

// walk makes one pass over the log l. Models replay_one_buffer().
func (r *replayer) walk(l *log, p pass) error {
	l.dead = 0
	return r.each(l.tree, format.Key{}, func(k format.Key, item []byte) (bool, error) {
		ino := format.Ino(k.Objectid)
		if k.Type == format.INODE_ITEM_KEY {
			var it format.InodeItem
			it.Decode(item)
			l.dead = 0
			if it.Nlink == 0 {
				l.dead = ino
			} else if p == passInodes {
				return true, r.inode(l, ino, it)
			}
		}
		if l.dead == ino && l.dead != 0 {
			return true, nil
		}
		var err error
		switch {
		case p == passNames && k.Type == format.DIR_INDEX_KEY:
			err = r.entry(l, ino, k.Offset, item)
		case p != passRest:
		case k.Type == format.XATTR_ITEM_KEY:
			err = r.put(l.root, k, item)
		case k.Type == format.INODE_REF_KEY || k.Type == format.INODE_EXTREF_KEY:
			err = r.refs(l, ino, k, item)
		case k.Type == format.EXTENT_DATA_KEY:
			err = r.extent(l, ino, k.Offset, item)
		}
		return true, err
	})
}

// inode replays an inode item, and what of the inode is not in the log: attributes, a directory's
// names, file extents beyond the size.
func (r *replayer) inode(l *log, ino format.Ino, it format.InodeItem) error {
	if err := r.steps.dropXattrs(r, l, ino); err != nil {
		return err
	}
	dir := it.Mode&format.S_IFMT == format.S_IFDIR
	if dir {
		if err := r.dropEntries(l, ino); err != nil {
			return err
		}
	}
	size, err := r.putInode(l, ino, it)
	if err != nil {
		return err
	}
	if it.Mode&format.S_IFMT == format.S_IFREG {
		// Now, and not with the extents: preallocated ones beyond the size may be among those in
		// the log.
		if err := r.dropExtents(l, ino, format.AlignUp(size, r.Store.SectorSize), format.AlignDown(^uint64(0), r.Store.SectorSize), 0); err != nil {
			return err
		}
	}
	l.fix[ino] = struct{}{}
	return nil
}

// putInode writes the inode item and returns the size that it has then. What an inode takes up
// follows its extents and names, so nbytes and a directory's size stay. An item of generation 0 was
// logged to make a name valid: of an inode that is there only its size counts, if there is one.
// Models overwrite_item().
func (r *replayer) putInode(l *log, ino format.Ino, it format.InodeItem) (size uint64, err error) {
	old, err := r.Store.ReadInode(r.t, l.root, ino)
	kind := it.Mode & format.S_IFMT
	switch {
	case errors.Is(err, errno.ENOENT):
		it.Nbytes = 0
		if kind == format.S_IFDIR {
			it.Size = 0
		}
		if it.Generation == 0 {
			it.Generation = r.tr.ID
		}
		return it.Size, r.Store.InsertInode(r.t, r.tr, l.root, ino, &it)
	case err != nil:
		return 0, err
	case it.Generation == 0:
		if kind == format.S_IFREG && old.Mode&format.S_IFMT == kind && it.Size != 0 {
			old.Size = it.Size
		}
		it = old
	default:
		it.Nbytes = old.Nbytes
		if kind == format.S_IFDIR {
			it.Size = old.Size
		}
	}
	return it.Size, r.Store.UpdateInode(r.t, r.tr, l.root, ino, &it)
}

// change lets f change the item of an inode.
func (r *replayer) change(l *log, ino format.Ino, f func(it *format.InodeItem)) error {
	it, err := r.Store.ReadInode(r.t, l.root, ino)
	if err != nil {
		return fmt.Errorf("inode %d: %w", ino, err)
	}
	f(&it)
	return r.Store.UpdateInode(r.t, r.tr, l.root, ino, &it)
}

// exists reports whether there is an inode.
func (r *replayer) exists(l *log, ino format.Ino) (bool, error) {
	_, err := r.Store.ReadInode(r.t, l.root, ino)
	if errors.Is(err, errno.ENOENT) {
		return false, nil
	}
	return err == nil, err
}

// put makes the item at key in tree have the given bytes. Models overwrite_item().
func (r *replayer) put(tree *ctree.Root, key format.Key, item []byte) error {
	old, err := r.item(tree, key)
	if err != nil || old != nil && bytes.Equal(old, item) {
		return err
	}
	f := r.Store.Forest
	if old != nil {
		var p ctree.Path
		defer p.Release(r.t)
		found, err := f.SearchSlot(r.t, r.tr, tree, key, &p, -1, true)
		if err != nil || !found {
			return errors.Join(err, fmt.Errorf("item %v went away", key))
		}
		if err := f.DelItems(r.t, r.tr, tree, &p, p.Slot(), 1); err != nil {
			return err
		}
		p.Release(r.t)
	}
	return f.InsertItem(r.t, r.tr, tree, key, item)
}

// item is a copy of the item at key, nil when there is none.
func (r *replayer) item(tree *ctree.Root, key format.Key) ([]byte, error) {
	var p ctree.Path
	defer p.Release(r.t)
	found, err := r.Store.Forest.SearchSlot(r.t, nil, tree, key, &p, 0, false)
	if err != nil || !found {
		return nil, err
	}
	return append([]byte{}, p.Item()...), nil
}

// dropXattrs removes the attributes of ino that are not in the log. Models replay_xattr_deletes().
func (r *replayer) dropXattrs(l *log, ino format.Ino) error {
	names, err := r.Store.Listxattr(r.t, l.root, ino)
	if err != nil || len(names) == 0 {
		return err
	}
	logged, err := r.Store.Listxattr(r.t, l.tree, ino)
	if err != nil {
		return err
	}
	for _, name := range names {
		if !slices.Contains(logged, name) {
			if err := r.Store.Removexattr(r.t, r.tr, l.root, ino, name); err != nil {
				return err
			}
		}
	}
	return nil
}

// fixLinks counts the names of every inode that replay touched. One without a name becomes an
// orphan, a directory after its own names have gone. Models fixup_inode_link_counts().
func (r *replayer) fixLinks(l *log) error {
	for len(l.fix) > 0 { // emptying a directory adds to it
		list := slices.Sorted(maps.Keys(l.fix))
		clear(l.fix)
		for _, ino := range list {
			if err := r.fixLink(l, ino); err != nil {
				return err
			}
		}
	}
	return nil
}

func (r *replayer) fixLink(l *log, ino format.Ino) error {
	names, err := r.Store.Names(r.t, l.root, ino)
	if err != nil {
		return err
	}
	var kind uint32
	if err := r.change(l, ino, func(it *format.InodeItem) {
		kind = it.Mode & format.S_IFMT
		it.Nlink = uint32(len(names))
	}); err != nil || len(names) > 0 {
		return err
	}
	if kind == format.S_IFDIR {
		if err := r.dropRange(l, ino, 0, ^uint64(0), nil); err != nil {
			return err
		}
	}
	if err := r.Store.InsertOrphan(r.t, r.tr, l.root, ino); err != nil && !errors.Is(err, errno.EEXIST) {
		return err
	}
	return nil
}
