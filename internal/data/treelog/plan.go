package treelog

import (
	"errors"
	"fmt"
	"slices"

	"btrlab/internal/errno"
	"btrlab/internal/format"
	"btrlab/internal/meta/ctree"
	"btrlab/internal/meta/fstree"
)

// Names in a log. A log is a part of a transaction, and a replay adds that part to the last commit:
// the part must be whole by itself. An inode whose names are logged
//
//   - has all of its names in the log, with the directories that are new, and their names, up to
//     one that the last commit has;
//   - has none of those that it has lost: the log says of their indices that the directory has
//     nothing there (DIR_LOG_INDEX), and the inode that has such a name now is logged as well;
//   - takes no name from an inode that lives on: one that had the name, or another with its hash,
//     is logged, too, or is out of the log when it has no name left.
//
// A directory that is synced has every name in the log that the transaction gave it (DIR_INDEX),
// with the inodes of those names, and says that there are no others: the range from the first new
// index on is whole, and so is the index of each name that it has lost. A new directory that comes
// with it is logged in the same way. The next log of it in the transaction has what has changed
// since.
//
// ErrCommit is the answer where that does not end: a directory that the last commit has under
// another name would move what is below it, or make a circle with what is not logged; a directory
// that is gone may have had names of inodes that live on; the name of a subvolume; and where names
// were removed that are not remembered.
//
// Nothing changes while it is found out which inodes these are, nor while their names are logged:
// log_pin keeps changes of names out.
//
// Models btrfs_log_inode() with LOG_INODE_EXISTS, log_new_dir_dentries(),
// btrfs_log_all_new_ancestors(), log_conflicting_inodes() and last_unlink_trans; the form is that
// since 5.17, without keys of DIR_ITEM. Differences: the kernel logs no name that an inode has lost
// in a directory that is not synced, so after a crash a file may have both of its names; it commits
// where a synced directory has lost a name by a rename.

// named lists the names that a log has. Only the task that has the subvolume's names for itself
// looks at it.
type named struct {
	known map[format.Ino]bool   // inodes with an item in the log whose names were logged
	dirs  map[format.Ino]wholly // directories of which the log has every new name
	taken map[nameKey]int       // of removed.byName: how many the log knows
	cuts  map[format.Ino]int    // of removed.byIno: the same
}

func newNamed() named {
	return named{map[format.Ino]bool{}, map[format.Ino]wholly{}, map[nameKey]int{}, map[format.Ino]int{}}
}

// wholly is how far a log has a directory.
type wholly struct {
	from uint64 // all indices from here on are in a range of the log; 0 is none
	next uint64 // the first index that may be missing
	lost int    // of removed.byDir: how many the log knows
}

// plan lists the inodes and names to be logged with an inode.
type plan struct {
	todo  []todo
	seen  map[todo]bool
	inos  []format.Ino        // whose names are logged
	dead  []format.Ino        // that have no name any more
	gone  map[format.Ino]bool // directories that a replay will delete
	must  []format.Ino        // that must be among them
	cuts  []cut
	dirs  []fullDir
	taken map[nameKey]int
}

// todo is an inode to be looked at: its names, or as a directory.
type todo struct {
	ino format.Ino
	dir bool
}

// cut is an index at which a directory has no name any more.
type cut struct {
	dir    format.Ino
	index  uint64
	always bool // also if the log does not have the directory
}

// fullDir is a directory and its new entries.
type fullDir struct {
	ino     format.Ino
	state   wholly
	entries []item
}

func (p *plan) add(ino format.Ino, dir bool) {
	if x := (todo{ino, dir}); !p.seen[x] {
		p.seen[x] = true
		p.todo = append(p.todo, x)
	}
}

// plan finds out what must be logged with the inode, before anything is. ErrCommit: that does not
// end.
func (c *copier) plan() (*plan, error) {
	if err := c.log.removed.begin(c.t, c.tr.ID); err != nil {
		return nil, err
	}
	p := &plan{seen: map[todo]bool{}, gone: map[format.Ino]bool{}, taken: map[nameKey]int{}}
	p.add(c.ip.Ino, false)
	if c.dir {
		p.add(c.ip.Ino, true)
	}
	for len(p.todo) > 0 {
		x := p.todo[0]
		p.todo = p.todo[1:]
		look := c.planNames
		if x.dir {
			look = c.planDir
		}
		if err := look(p, x.ino); err != nil {
			return nil, err
		}
	}
	for _, ino := range p.must {
		if !p.gone[ino] {
			return nil, ErrCommit
		}
	}
	return p, nil
}

// planNames looks at the names of ino.
func (c *copier) planNames(p *plan, ino format.Ino) error {
	it, names, err := c.lookAt(ino)
	switch {
	case err != nil:
		return err
	case len(names) > 0:
	case ino == c.ip.Ino:
		return ErrCommit
	default:
		return c.planDead(p, ino)
	}
	fresh := it.Generation == c.tr.ID
	if it.Mode&format.S_IFMT == format.S_IFDIR && !fresh && len(c.steps.lost(c, ino)) > 0 {
		return ErrCommit
	}
	for _, n := range names {
		if ino == format.FIRST_FREE_OBJECTID {
			break // "..", the name of a top directory
		}
		if err := c.steps.planName(c, p, ino, keyOf(n.Dir, n.Name)); err != nil {
			return err
		}
		if err := c.steps.planName(c, p, ino, nameKey{dir: n.Dir, index: n.Index}); err != nil {
			return err
		}
		dir, err := c.src.ReadInode(c.t, c.root, n.Dir)
		if err != nil {
			return err
		}
		if dir.Generation == c.tr.ID {
			p.add(n.Dir, false)
		}
	}
	p.inos = append(p.inos, ino)
	return c.planCuts(p, ino, !fresh)
}

// lookAt is the item of an inode and its names. There are none when it is gone.
func (c *copier) lookAt(ino format.Ino) (it format.InodeItem, names []fstree.NameRef, err error) {
	if it, err = c.src.ReadInode(c.t, c.root, ino); errors.Is(err, errno.ENOENT) {
		return it, nil, nil
	}
	if err == nil {
		names, err = c.src.Names(c.t, c.root, ino)
	}
	return it, names, err
}

// planName looks at the inodes that had an index of ino before, or a name with the hash of one of
// its names.
func (c *copier) planName(p *plan, ino format.Ino, k nameKey) error {
	rm := &c.log.removed
	l := rm.byName[k]
	for _, i := range l[c.log.named.taken[k]:] {
		switch n := &rm.names[i]; {
		case n.kind == ftSubvol:
			return ErrCommit
		case n.ino != ino:
			p.add(n.ino, false)
		}
	}
	p.taken[k] = len(l)
	return nil
}

// planCuts looks at the names that ino has lost. always: the last commit may have them.
func (c *copier) planCuts(p *plan, ino format.Ino, always bool) error {
	rm := &c.log.removed
	lost := c.steps.lost(c, ino)
	for _, i := range lost[min(c.log.named.cuts[ino], len(lost)):] {
		n := &rm.names[i]
		now, err := c.src.Lookup(c.t, c.root, n.dir, n.name)
		switch {
		case errors.Is(err, errno.ENOENT):
		case err != nil:
			return err
		case now.Location.Type != format.INODE_ITEM_KEY:
			return ErrCommit
		default:
			p.add(format.Ino(now.Location.Objectid), false)
		}
		x := cut{n.dir, n.index, always}
		if always {
			dir, names, err := c.lookAt(n.dir)
			switch {
			case err != nil:
				return err
			case len(names) == 0:
				p.must = append(p.must, n.dir)
				continue
			}
			x.always = dir.Generation != c.tr.ID
		}
		p.cuts = append(p.cuts, x)
	}
	return nil
}

// planDead looks at an inode that has no name: the log must not have any. A replay deletes a
// directory with its names, so the inodes that had one of them are logged.
func (c *copier) planDead(p *plan, ino format.Ino) error {
	rm := &c.log.removed
	p.dead = append(p.dead, ino)
	// The inode that has taken one of its names need not have it in the next log: this one says
	// that the dead inode has lost it.
	fresh := slices.ContainsFunc(rm.byIno[ino], func(i int) bool { return rm.names[i].fresh })
	if err := c.planCuts(p, ino, !fresh); err != nil {
		return err
	}
	if l := rm.byIno[ino]; len(l) == 0 || rm.names[l[0]].kind != format.FtDir {
		return nil
	} else if len(l) > 1 {
		return ErrCommit // under another name the last commit may have it
	}
	p.gone[ino] = true
	return c.planLost(p, ino, 0)
}

// planLost looks at the inodes that have lost a name in dir, but for the first done names.
func (c *copier) planLost(p *plan, dir format.Ino, done int) error {
	rm := &c.log.removed
	for _, i := range rm.byDir[dir][done:] {
		if rm.names[i].kind == ftSubvol {
			return ErrCommit
		}
		p.add(rm.names[i].ino, false)
	}
	return nil
}

// planDir looks at the names that came to the directory and went, since the log had it wholly. A
// new one has none but new ones.
func (c *copier) planDir(p *plan, dir format.Ino) error {
	state, again := c.log.named.dirs[dir]
	if !again {
		it, err := c.src.ReadInode(c.t, c.root, dir)
		if err != nil {
			return err
		}
		if it.Generation == c.tr.ID {
			state.from = firstIndex
		}
	}
	if dir == c.ip.Ino && state.from == 0 {
		if from, ok := c.ip.NamesAdded(c.tr.ID); ok {
			state.from = from
		}
	}
	d := fullDir{ino: dir, state: state}
	if err := c.planLost(p, dir, state.lost); err != nil {
		return err
	}
	l := c.log.removed.byDir[dir]
	for _, i := range l[state.lost:] {
		p.cuts = append(p.cuts, cut{dir, c.log.removed.names[i].index, true})
	}
	d.state.lost = len(l)
	if state.from != 0 {
		var err error
		key := format.Key{Objectid: uint64(dir), Type: format.DIR_INDEX_KEY, Offset: max(state.from, state.next)}
		if d.entries, err = c.itemsOf(key, format.DIR_INDEX_KEY); err != nil {
			return err
		}
	}
	for _, e := range d.entries {
		list, err := format.DirItems(e.data)
		if err != nil || len(list) != 1 {
			return errors.Join(err, fmt.Errorf("bad entry %d of directory %d", e.key.Offset, dir))
		}
		if list[0].Location.Type != format.INODE_ITEM_KEY {
			return ErrCommit
		}
		ino := format.Ino(list[0].Location.Objectid)
		p.add(ino, false)
		if list[0].Type == format.FtDir {
			p.add(ino, true)
		}
		d.state.next = e.key.Offset + 1
	}
	p.dirs = append(p.dirs, d)
	return nil
}

// firstIndex is the first index of a directory.
const firstIndex = 2

// logNames logs what the plan says, but for the inode that is synced.
func (c *copier) logNames(p *plan) error {
	n := &c.log.named
	for _, ino := range p.dead {
		if err := c.dropItems(ino, format.INODE_ITEM_KEY, format.EXTENT_DATA_KEY); err != nil {
			return err
		}
		delete(n.known, ino)
		delete(n.dirs, ino)
		n.cuts[ino] = len(c.log.removed.byIno[ino])
	}
	whole := map[format.Ino]wholly{}
	for _, d := range p.dirs {
		whole[d.ino] = d.state
	}
	for _, x := range p.cuts {
		if err := c.cut(x, whole); err != nil {
			return err
		}
	}
	for _, ino := range p.inos {
		if ino != c.ip.Ino {
			if err := c.exists(ino); err != nil {
				return fmt.Errorf("log inode %d: %w", ino, err)
			}
		}
		n.cuts[ino] = len(c.log.removed.byIno[ino])
	}
	for k, i := range p.taken {
		n.taken[k] = i
	}
	return nil
}

// logDirs logs the entries of directories whose items the log has.
func (c *copier) logDirs(p *plan) error {
	f := c.dst.Forest
	for _, d := range p.dirs {
		for _, e := range d.entries {
			if err := f.InsertItem(c.t, &c.tr, c.log.root, e.key, e.data); err != nil {
				return err
			}
		}
		if d.state.from != 0 && c.log.named.dirs[d.ino].from == 0 {
			if err := c.noOthers(d.ino, d.state.from, ^uint64(0)); err != nil {
				return err
			}
		}
		c.log.named.dirs[d.ino] = d.state
	}
	return nil
}

// noOthers says that the directory has no names with indices from first to last but those in the
// log. Models insert_dir_log_key().
func (c *copier) noOthers(dir format.Ino, first, last uint64) error {
	key := format.Key{Objectid: uint64(dir), Type: format.DIR_LOG_INDEX_KEY, Offset: first}
	insert := func() error {
		return c.dst.Forest.InsertItem(c.t, &c.tr, c.log.root, key, format.DirLogItem(last))
	}
	err := insert()
	switch {
	case !errors.Is(err, errno.EEXIST):
		return err
	case first == last: // a range begins here
		return nil
	}
	if _, err := c.dropItem(key); err != nil {
		return err
	}
	return insert()
}

// cut takes an entry out of the log and says that the directory does not have it.
func (c *copier) cut(x cut, whole map[format.Ino]wholly) error {
	state, logged := c.log.named.dirs[x.dir]
	if logged {
		key := format.Key{Objectid: uint64(x.dir), Type: format.DIR_INDEX_KEY, Offset: x.index}
		if _, err := c.dropItem(key); err != nil {
			return err
		}
	} else if state, logged = whole[x.dir]; !logged && !x.always {
		return nil
	}
	if state.from != 0 && x.index >= state.from {
		return nil
	}
	if err := c.stub(x.dir); err != nil {
		return err
	}
	return c.noOthers(x.dir, x.index, x.index)
}

// stub makes the log have an item of a directory, so that the log can say what the directory does
// not have.
func (c *copier) stub(dir format.Ino) error {
	if c.log.named.known[dir] {
		return nil
	}
	made, err := c.insertStub(dir)
	if err == nil && made {
		err = c.copyItems(dir, format.XATTR_ITEM_KEY, format.XATTR_ITEM_KEY)
	}
	c.log.named.known[dir] = true
	return err
}

// exists logs just enough of an inode that its names are valid: generation 0 says so. What the log
// has of the inode stays, but for names and attributes. A symbolic link is logged with its target.
// Models btrfs_log_inode() with LOG_INODE_EXISTS.
func (c *copier) exists(ino format.Ino) error {
	made, err := c.insertStub(ino)
	if err != nil {
		return err
	}
	c.log.named.known[ino] = true
	last := uint8(format.XATTR_ITEM_KEY)
	if !made {
		err = c.dropItems(ino, format.INODE_REF_KEY, last)
	} else if it, rerr := c.src.ReadInode(c.t, c.root, ino); rerr != nil {
		err = rerr
	} else if it.Mode&format.S_IFMT == format.S_IFLNK {
		last = format.EXTENT_DATA_KEY
	}
	if err != nil {
		return err
	}
	return c.copyItems(ino, format.INODE_REF_KEY, last)
}

// insertStub inserts an inode item unless the log has one.
func (c *copier) insertStub(ino format.Ino) (made bool, err error) {
	it, err := c.src.ReadInode(c.t, c.root, ino)
	if err != nil {
		return false, err
	}
	// what chmod, chown and utimes have done since the last commit
	if now, ok := c.inMem(c.t, c.root.ID, ino); ok {
		now.Generation, now.Size, now.Nbytes, now.Nlink = it.Generation, it.Size, it.Nbytes, it.Nlink
		it = now
	}
	if it.Transid = c.tr.ID; it.Mode&format.S_IFMT != format.S_IFLNK {
		it.Generation, it.Size, it.Nbytes = 0, 0, 0
	}
	err = c.dst.InsertInode(c.t, &c.tr, c.log.root, ino, &it)
	if errors.Is(err, errno.EEXIST) {
		return false, nil
	}
	return err == nil, err
}

// dropItem deletes an item of the log, if there is one.
func (c *copier) dropItem(key format.Key) (found bool, err error) {
	var p ctree.Path
	defer p.Release(c.t)
	f := c.dst.Forest
	found, err = f.SearchSlot(c.t, &c.tr, c.log.root, key, &p, -1, true)
	if err != nil || !found {
		return false, err
	}
	return true, f.DelItems(c.t, &c.tr, c.log.root, &p, p.Slot(), 1)
}
