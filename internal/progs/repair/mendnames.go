package repair

import (
	"errors"
	"fmt"
	"slices"

	"btrlab/internal/format"
	"btrlab/internal/progs/check"
	"btrlab/internal/progs/image"
)

// Names, put right. The three records of a directory entry (reference in the inode, DIR_ITEM,
// DIR_INDEX) vote: two of them, or a reference alone, are a name; a single DIR_ITEM or DIR_INDEX is
// one if the inode counts more links than it has references. What has no name left goes to
// lost+found.

// mender changes the names of one subvolume.
type mender struct {
	c *changes
	f *check.Files
	// taken has the entry that keeps a name, used the one that has an index in a directory, each by
	// its number, and last the greatest index of a directory.
	taken map[string]int
	used  map[[2]uint64]int
	last  map[uint64]uint64
	// cycles has the directories that lie below themselves.
	cycles map[uint64]bool
}

// records are the records of one entry.
type records struct {
	check.Name
	text             string
	refs, items, idx []check.Name
}

// mendNames puts the entries of the directories of a subvolume right.
func (m *mender) mendNames() {
	if !m.found("dir.item", "dir.index", "dir.ref", "dir.name", "dir.type", "dir.cycle") && !m.twoNames() {
		return
	}
	refs := map[uint64]int{}
	for _, r := range m.f.Refs {
		if !r.Subvol {
			refs[r.Target]++
		}
	}
	all := m.entries()
	kept := make([]bool, len(all))
	why := make([]string, len(all))
	m.taken, m.used, m.last = map[string]int{}, map[[2]uint64]int{}, map[uint64]uint64{}
	m.cycles = map[uint64]bool{}
	for _, g := range m.c.Findings {
		if g.Rule == "dir.cycle" && g.Place.Num(check.AtTree) == m.f.Root {
			m.cycles[g.Place.Num(check.AtIno)] = true
		}
	}
	dirs := map[uint64]bool{} // directories that have their name
	for i, e := range all {
		if kept[i] = m.agree(e) && (e.Subvol || !m.cycles[e.Target]); !kept[i] {
			kept[i], why[i] = m.keeps(e, refs)
		}
		if kept[i] && !e.Subvol && m.dir(e.Target) {
			if dirs[e.Target] {
				kept[i], why[i] = false, "a directory has one name"
			}
			dirs[e.Target] = true
		}
		for _, x := range append(slices.Clone(e.idx), e.refs...) {
			m.last[e.Dir] = max(m.last[e.Dir], x.Index, 1)
		}
		if !kept[i] {
			continue
		}
		for _, x := range e.idx {
			m.used[[2]uint64{e.Dir, x.Index}] = i + 1
		}
		if at := e.at(); m.taken[at] == 0 || m.agree(e) && !m.agree(all[m.taken[at]-1]) {
			m.taken[at] = i + 1 // who keeps the name
		}
	}
	for i, e := range all {
		switch {
		case kept[i] && m.taken[e.at()] != i+1:
			m.rename(e, i+1)
		case kept[i] && !m.agree(e):
			m.complete(e, i+1)
		case !kept[i] && why[i] != "":
			m.drop(e, why[i])
		}
	}
}

func (e records) at() string { return fmt.Sprintf("%d/%s", e.Dir, e.text) }

// index is the index of an entry: that of a record, if no other entry has it. id is the entry's
// number.
func (m *mender) index(e records, id int) uint64 {
	for _, l := range [][]check.Name{e.idx, e.refs} {
		for _, x := range l {
			at := [2]uint64{e.Dir, x.Index}
			if x.Index >= 2 && (m.used[at] == 0 || m.used[at] == id) {
				m.used[at] = id
				return x.Index
			}
		}
	}
	m.last[e.Dir]++
	return m.last[e.Dir]
}

// entries groups the records by directory, name and target.
func (m *mender) entries() (list []records) {
	f := m.f
	lists := [][]check.Name{f.Refs, f.Items, f.Indexes}
	for {
		var n check.Name
		some := false
		for _, l := range lists {
			if len(l) > 0 && (!some || f.Compare(l[0], n) < 0) {
				n, some = l[0], true
			}
		}
		if !some {
			return list
		}
		e := records{Name: n, text: string(f.Text(n))}
		for j, to := range []*[]check.Name{&e.refs, &e.items, &e.idx} {
			i := 0
			for i < len(lists[j]) && f.Compare(lists[j][i], n) == 0 {
				i++
			}
			*to, lists[j] = lists[j][:i], lists[j][i:]
		}
		list = append(list, e)
	}
}

// agree reports whether check finds nothing in an entry by itself.
func (m *mender) agree(e records) bool {
	r, i, x := e.refs, e.items, e.idx
	if len(i) != 1 || len(x) != 1 || x[0].Index < 2 || i[0].FT != x[0].FT || !m.f.TypeOK(e.Name, i[0].FT) {
		return false
	}
	if len(r) == 0 {
		return e.Subvol
	}
	return len(r) == 1 && r[0].Index == x[0].Index && (e.Subvol || m.dir(e.Dir))
}

// dir reports whether an inode is a directory.
func (m *mender) dir(ino uint64) bool {
	i := m.f.Inode(ino)
	return i != nil && i.Mode&format.S_IFMT == format.S_IFDIR
}

// keeps decides whether the records are those of a name; why is empty for what is left alone.
func (m *mender) keeps(e records, refs map[uint64]int) (bool, string) {
	f := m.f
	target := f.Inode(e.Target)
	switch d := f.Inode(e.Dir); {
	case d != nil && d.Nlink == 0 && f.Orphans[e.Dir]:
		return false, "" // being deleted
	case !m.dir(e.Dir):
		return false, "its directory is not there"
	}
	if e.Subvol {
		return len(e.refs) > 0, "no subvolume is linked there"
	}
	switch {
	case target == nil:
		return false, "its inode is not there"
	case m.cycles[e.Target]:
		return false, "it makes a directory lie below itself"
	case target.Nlink == 0 && f.Orphans[e.Target]:
		return false, "its inode is being deleted"
	case len(e.refs) > 0, len(e.items) > 0 && len(e.idx) > 0:
		return true, ""
	case refs[e.Target] < int(target.Nlink):
		return true, ""
	}
	return false, "one record alone, and the inode has no such link"
}

func (m *mender) say(e records, what string, err error) {
	m.try(fmt.Sprintf("entry %q of directory %d of subvolume %d: %s", e.text, e.Dir, m.f.Root, what), err)
}

// complete makes the three records of an entry say the same.
func (m *mender) complete(e records, id int) {
	index := m.index(e, id)
	if e.Subvol {
		index = e.refs[0].Index // the root tree's word counts
	}
	var err error
	for _, x := range e.idx {
		if x.Index != index {
			err = errors.Join(err, m.delIndex(e, x.Index))
		}
	}
	err = errors.Join(err, m.entry(e, index))
	if !e.Subvol {
		err = errors.Join(err, m.setRef(e.Target, e.Dir, e.text, index))
	}
	m.say(e, fmt.Sprintf("reference, DIR_ITEM and DIR_INDEX %d made to agree", index), err)
}

// kind is the type of the target, for an entry.
func (m *mender) kind(e records) uint8 {
	if e.Subvol {
		return format.FtDir
	}
	return format.FtOf(m.f.Inode(e.Target).Mode)
}

func (e records) location() format.Key {
	if e.Subvol {
		return format.Key{Objectid: e.Target, Type: format.ROOT_ITEM_KEY, Offset: ^uint64(0)}
	}
	return format.Key{Objectid: e.Target, Type: format.INODE_ITEM_KEY}
}

// entry writes the DIR_ITEM and the DIR_INDEX of an entry.
func (m *mender) entry(e records, index uint64) error {
	d := format.DirItem{Location: e.location(), Transid: m.c.Super.Generation, Type: m.kind(e), Name: e.text}
	b := encoded(d.Size(), &d)
	if err := m.delItem(e); err != nil {
		return err
	}
	err := m.c.changeItem(m.f.Root, format.Key{Objectid: e.Dir, Type: format.DIR_ITEM_KEY, Offset: format.NameHash(e.text)}, func(old []byte, _ bool) ([]byte, bool, error) {
		return append(old, b...), true, nil
	})
	if err != nil {
		return err
	}
	return m.c.changeItem(m.f.Root, format.Key{Objectid: e.Dir, Type: format.DIR_INDEX_KEY, Offset: index}, func([]byte, bool) ([]byte, bool, error) {
		return b, true, nil
	})
}

// delItem takes an entry out of its DIR_ITEM, where names of one hash are together.
func (m *mender) delItem(e records) error {
	return m.c.changeItem(m.f.Root, format.Key{Objectid: e.Dir, Type: format.DIR_ITEM_KEY, Offset: format.NameHash(e.text)}, func(old []byte, _ bool) (b []byte, keep bool, err error) {
		list, err := format.DirItems(old)
		for _, d := range list {
			if d.Name != e.text || d.Location.Objectid != e.Target || d.Location.Type != e.location().Type {
				b = append(b, encoded(d.Size(), &d)...)
			}
		}
		return b, len(b) > 0, err
	})
}

// delIndex takes the DIR_INDEX of an entry away.
func (m *mender) delIndex(e records, index uint64) error {
	return m.c.changeItem(m.f.Root, format.Key{Objectid: e.Dir, Type: format.DIR_INDEX_KEY, Offset: index}, func(old []byte, found bool) ([]byte, bool, error) {
		list, err := format.DirItems(old)
		if err == nil && found && len(list) == 1 && list[0].Name == e.text && list[0].Location.Objectid == e.Target {
			return nil, false, nil
		}
		return old, found, err
	})
}

// delRefs takes all references of the name out of the inode.
func (m *mender) delRefs(ino, dir uint64, text string) error {
	err := m.c.changeItem(m.f.Root, format.Key{Objectid: ino, Type: format.INODE_REF_KEY, Offset: dir}, func(old []byte, _ bool) (b []byte, keep bool, err error) {
		refs, err := format.InodeRefs(old)
		for _, r := range refs {
			if r.Name != text {
				b = append(b, encoded(r.Size(), r)...)
			}
		}
		return b, len(b) > 0, err
	})
	if err != nil || m.c.Super.IncompatFlags&format.IncompatExtendedIref == 0 {
		return err
	}
	return m.c.changeItem(m.f.Root, format.Key{Objectid: ino, Type: format.INODE_EXTREF_KEY, Offset: format.ExtrefHash(format.Ino(dir), text)}, func(old []byte, _ bool) (b []byte, keep bool, err error) {
		refs, err := format.InodeExtrefs(old)
		for _, r := range refs {
			if r.Name != text || r.Parent != dir {
				b = append(b, encoded(r.Size(), r)...)
			}
		}
		return b, len(b) > 0, err
	})
}

// setRef makes the reference of a name, the only one.
func (m *mender) setRef(ino, dir uint64, text string, index uint64) error {
	if err := m.delRefs(ino, dir, text); err != nil {
		return err
	}
	r := format.InodeRef{Index: index, Name: text}
	if n, ok := m.refSize(ino, dir); ok && n+r.Size() > format.MaxItemSize(int(m.c.Super.NodeSize)) {
		x := format.InodeExtref{Parent: dir, Index: index, Name: text}
		return m.c.changeItem(m.f.Root, format.Key{Objectid: ino, Type: format.INODE_EXTREF_KEY, Offset: format.ExtrefHash(format.Ino(dir), text)}, func(old []byte, _ bool) ([]byte, bool, error) {
			return append(old, encoded(x.Size(), x)...), true, nil
		})
	}
	return m.c.changeItem(m.f.Root, format.Key{Objectid: ino, Type: format.INODE_REF_KEY, Offset: dir}, func(old []byte, _ bool) ([]byte, bool, error) {
		return append(old, encoded(r.Size(), r)...), true, nil
	})
}

// refSize is the size of the references of an inode in a directory, where the rest may go to
// extended ones.
func (m *mender) refSize(ino, dir uint64) (size int, extref bool) {
	m.c.Search(m.f.Root, format.Key{Objectid: ino, Type: format.INODE_REF_KEY, Offset: dir}, func(k format.Key, b []byte) bool {
		if k.Type == format.INODE_REF_KEY && k.Offset == dir {
			size = len(b)
		}
		return false
	})
	return size, m.c.Super.IncompatFlags&format.IncompatExtendedIref != 0
}

// drop takes the records of an entry away.
func (m *mender) drop(e records, why string) {
	err := m.unlink(e)
	if !e.Subvol && m.f.Inode(e.Target) != nil {
		err = errors.Join(err, m.delRefs(e.Target, e.Dir, e.text))
	}
	m.say(e, "dropped: "+why, err)
}

// unlink takes DIR_ITEM and DIR_INDEX away.
func (m *mender) unlink(e records) (err error) {
	if len(e.items) > 0 {
		err = m.delItem(e)
	}
	for _, x := range e.idx {
		err = errors.Join(err, m.delIndex(e, x.Index))
	}
	return err
}

// rename gives the second of two entries of one name another, so that both are reached.
func (m *mender) rename(e records, id int) {
	if e.Subvol {
		m.say(e, "not renamed", errors.New("a subvolume has its name in the root tree as well"))
		return
	}
	tail := fmt.Sprintf(".%d", e.Target)
	to := e
	to.text = e.text[:min(len(e.text), format.MaxNameLen-len(tail))] + tail
	if m.taken[to.at()] != 0 {
		m.say(e, "not renamed", errors.New("two entries of one name, and no other name is free"))
		return
	}
	m.taken[to.at()] = id
	index := m.index(e, id)
	err := errors.Join(m.unlink(e), m.delRefs(e.Target, e.Dir, e.text))
	err = errors.Join(err, m.entry(to, index), m.setRef(e.Target, e.Dir, to.text, index))
	m.say(e, fmt.Sprintf("the second of the name, of inode %d, renamed to %q", e.Target, to.text), err)
}

// lost links the inodes that have no name into lost+found, which is made if it is not there.
func (m *mender) lost() {
	f, c := m.f, m.c
	names := map[uint64]bool{}
	for _, r := range f.Refs {
		if !r.Subvol {
			names[r.Target] = true
		}
	}
	var dir uint64
	for _, i := range f.Inodes {
		if i.Ino == format.FIRST_FREE_OBJECTID || names[i.Ino] || i.Nlink == 0 {
			continue
		}
		what := fmt.Sprintf("inode %d of subvolume %d has no name", i.Ino, f.Root)
		if dir == 0 {
			var err error
			if dir, err = m.lostFound(); err != nil {
				m.try(what, err)
				return
			}
		}
		e := records{Name: check.Name{Dir: dir, Target: i.Ino}, text: fmt.Sprint(i.Ino)}
		index := m.freeIndex(dir)
		err := errors.Join(m.entry(e, index), m.setRef(i.Ino, dir, e.text, index))
		m.try(fmt.Sprintf("%s: linked as lost+found/%s", what, e.text), errors.Join(err, c.changeInode(f.Root, i.Ino, func(i *format.InodeItem) { i.Nlink = 1 })))
	}
}

// kinds takes away what an inode of its kind does not have: file extents of a directory, entries of
// another inode. What only such an entry named goes to lost+found then. The root directory gets its
// name for itself.
func (m *mender) kinds() {
	f, c := m.f, m.c
	const top = format.FIRST_FREE_OBJECTID
	for _, g := range c.Findings {
		root, ino := g.Place.Num(check.AtTree), g.Place.Num(check.AtIno)
		if root != f.Root {
			continue
		}
		switch {
		case ino == top && (g.Rule == "inode.nlink" || g.Rule == "dir.ref") && g.Want == check.Number(0):
			m.try(fmt.Sprintf("name of the root directory of subvolume %d for itself", root), m.setRef(top, top, "..", 0))
		case g.Rule == "inode.kind":
			i := f.Inode(ino)
			if i == nil {
				continue
			}
			kinds := []uint8{format.DIR_ITEM_KEY, format.DIR_INDEX_KEY}
			if i.Mode&format.S_IFMT != format.S_IFREG {
				kinds = []uint8{format.EXTENT_DATA_KEY}
			}
			var keys []format.Key
			c.Search(root, format.Key{Objectid: ino}, func(k format.Key, _ []byte) bool {
				if slices.Contains(kinds, k.Type) {
					keys = append(keys, k)
				}
				return true
			})
			if i.Mode&format.S_IFMT != format.S_IFREG && i.Mode&format.S_IFMT != format.S_IFDIR {
				m.try(fmt.Sprintf("inode %d of subvolume %d", ino, root), errors.New("its mode or its data is wrong, and nothing says which"))
				continue
			}
			var err error
			for _, k := range keys {
				err = errors.Join(err, c.deleteItem(root, k))
			}
			m.try(fmt.Sprintf("inode %d of subvolume %d: %d items dropped that an inode of mode 0%o does not have", ino, root, len(keys), i.Mode), err)
		}
	}
}

// extents puts file extents right that contradict themselves.
func (m *mender) extents() {
	for _, g := range m.c.Findings {
		root, ino := g.Place.Num(check.AtTree), g.Place.Num(check.AtIno)
		off, ok := g.Place.Get(check.AtFileOffset)
		switch {
		case root != m.f.Root:
		case g.Rule == "file.extent" && ok && g.Flaw == check.NoChunk && slices.ContainsFunc(m.c.Findings, ofMap):
			// with the map of chunks right the data may be there
		case g.Rule == "file.extent" && ok && g.Flaw == check.NoChunk:
			err := m.c.changeItem(root, format.Key{Objectid: ino, Type: format.EXTENT_DATA_KEY, Offset: off}, func(b []byte, found bool) ([]byte, bool, error) {
				if !found || len(b) != format.FileExtentSize {
					return b, found, errors.New("it is not there")
				}
				v := format.FileExtentView(b)
				hole := format.FileExtent{Generation: v.Generation(), RAMBytes: v.NumBytes(), NumBytes: v.NumBytes(), Type: format.FileExtentTypeReg}
				return encoded(format.FileExtentSize, &hole), true, nil
			})
			m.try(fmt.Sprintf("file extent at %d of inode %d of subvolume %d: %s: its data is lost, and it is a hole now", off, ino, root, g.Have), err)
		case g.Rule == "file.extent" && ok && g.Flaw != check.NoChecksums:
			err := m.c.changeItem(root, format.Key{Objectid: ino, Type: format.EXTENT_DATA_KEY, Offset: off}, func(b []byte, found bool) ([]byte, bool, error) {
				if !found || len(b) != format.FileExtentSize {
					return b, found, errors.New("what it should be is not known")
				}
				v := format.FileExtentView(b)
				inside := v.RAMBytes()
				if v.Compression() == format.CompressNone {
					inside = min(inside, v.DiskNumBytes())
				}
				switch {
				case v.Type() == format.FileExtentTypePrealloc && v.Compression() != format.CompressNone:
					v.SetCompression(format.CompressNone)
				case v.Offset()+v.NumBytes() > inside && v.Offset() < inside:
					v.SetNumBytes(inside - v.Offset())
				default:
					return b, found, errors.New("what it should be is not known")
				}
				return b, true, nil
			})
			m.try(fmt.Sprintf("file extent at %d of inode %d of subvolume %d: %s, put right", off, ino, root, g.Have), err)
		case g.Rule == "file.inline" && !ok:
			var size uint64
			m.c.Search(root, format.Key{Objectid: ino, Type: format.EXTENT_DATA_KEY}, func(k format.Key, b []byte) bool {
				var fe format.FileExtent
				if fe.Decode(b); k.Type == format.EXTENT_DATA_KEY && fe.Type == format.FileExtentTypeInline {
					size = fe.RAMBytes
				}
				return false
			})
			what := fmt.Sprintf("size of the symbolic link %d of subvolume %d", ino, root)
			if size == 0 {
				m.try(what, errors.New("its target is lost"))
				continue
			}
			m.try(fmt.Sprintf("%s: %d, the length of its target", what, size), m.c.changeInode(root, ino, func(i *format.InodeItem) { i.Size = size }))
		}
	}
}

// ofMap reports whether a finding is about where logical addresses lie.
func ofMap(f check.Finding) bool {
	return inRoom(f.Rule, "chunk") || inRoom(f.Rule, "dev") || inRoom(f.Rule, "group") || f.Rule == "super.sys_array"
}

// strangers drops file extents that point at tree blocks: the block would go over the data, or the
// data over the block.
func (m *mender) strangers() {
	blocks := map[uint64]bool{}
	for _, b := range m.c.Blocks {
		blocks[b.Bytenr] = true
	}
	for _, p := range m.c.Data {
		if !blocks[p.Bytenr] || p.Owner != m.f.Root {
			continue
		}
		var keys []format.Key
		m.c.Search(p.Owner, format.Key{Objectid: p.Ino, Type: format.EXTENT_DATA_KEY}, func(k format.Key, b []byte) bool {
			var fe format.FileExtent
			if fe.Decode(b); k.Type == format.EXTENT_DATA_KEY && fe.Type != format.FileExtentTypeInline && fe.DiskBytenr == p.Bytenr {
				keys = append(keys, k)
			}
			return true
		})
		for _, k := range keys {
			m.try(fmt.Sprintf("file extent at %d of inode %d of subvolume %d: dropped, at %d is a tree block", k.Offset, p.Ino, p.Owner, p.Bytenr), m.c.deleteItem(p.Owner, k))
		}
	}
}

// freeIndex is an index that no entry of the directory has.
func (m *mender) freeIndex(dir uint64) uint64 {
	last := uint64(1)
	m.c.Search(m.f.Root, format.Key{Objectid: dir, Type: format.DIR_INDEX_KEY}, func(k format.Key, _ []byte) bool {
		if k.Type == format.DIR_INDEX_KEY {
			last = max(last, k.Offset)
		}
		return true
	})
	return last + 1
}

// lostFound is the inode number of /lost+found.
func (m *mender) lostFound() (uint64, error) {
	f, c := m.f, m.c
	const top = format.FIRST_FREE_OBJECTID
	if !m.dir(top) {
		return 0, errors.New("the subvolume has no root directory")
	}
	text, tries := "lost+found", 0
	for i := 0; i < len(f.Items); i++ {
		e := f.Items[i]
		if e.Dir != top || string(f.Text(e)) != text {
			continue
		}
		if !e.Subvol && m.dir(e.Target) {
			return e.Target, nil
		}
		tries++
		text, i = fmt.Sprintf("lost+found.%d", tries), -1
	}
	ino := uint64(top)
	for _, i := range f.Inodes {
		ino = max(ino, i.Ino)
	}
	if ino++; ino > format.LAST_FREE_OBJECTID {
		return 0, errors.New("no inode number is free")
	}
	i := format.InodeItem{Generation: c.Super.Generation, Transid: c.Super.Generation, Nlink: 1, Mode: format.S_IFDIR | 0o700}
	err := c.insertItem(f.Root, format.Key{Objectid: ino, Type: format.INODE_ITEM_KEY}, encoded(format.InodeItemSize, &i))
	if err != nil {
		return 0, err
	}
	f.Inodes = append(f.Inodes, check.Inode{Ino: ino, Mode: i.Mode, Nlink: i.Nlink})
	e := records{Name: check.Name{Dir: top, Target: ino}, text: text}
	index := m.freeIndex(top)
	if err := errors.Join(m.entry(e, index), m.setRef(ino, top, text, index)); err != nil {
		return 0, err
	}
	m.try(fmt.Sprintf("directory %s made in subvolume %d", text, f.Root), nil)
	return ino, nil
}

// found reports whether the check has broken rules of these in the subvolume.
func (m *mender) found(rules ...string) bool {
	return slices.ContainsFunc(m.c.Findings, func(g check.Finding) bool {
		return g.Place.Num(check.AtTree) == m.f.Root && slices.Contains(rules, g.Rule)
	})
}

func (m *mender) try(what string, err error) { m.c.try(what, err) }

// orphans gives inodes without a name and without links the orphan item by which a mount deletes
// them.
func (m *mender) orphans() {
	for _, i := range m.f.Inodes {
		if i.Nlink == 0 && i.Ino >= format.FIRST_FREE_OBJECTID && !m.f.Orphans[i.Ino] && !m.named(i.Ino) {
			m.try(fmt.Sprintf("orphan item of inode %d of subvolume %d, which a mount will delete", i.Ino, m.f.Root),
				m.c.insertItem(m.f.Root, format.Key{Objectid: format.ORPHAN_OBJECTID, Type: format.ORPHAN_ITEM_KEY, Offset: i.Ino}, nil))
		}
	}
}

// twoNames reports whether a directory has several references.
func (m *mender) twoNames() bool {
	n := map[uint64]int{}
	for _, r := range m.f.Refs {
		if n[r.Target]++; !r.Subvol && n[r.Target] > 1 && m.dir(r.Target) {
			return true
		}
	}
	return false
}

// named reports whether an inode has a reference.
func (m *mender) named(ino uint64) bool {
	return slices.ContainsFunc(m.f.Refs, func(r check.Name) bool { return !r.Subvol && r.Target == ino })
}

// holes gives the holes of files the items that say so, where the image needs them.
func (m *mender) holes() {
	for _, g := range m.c.Findings {
		root := g.Place.Num(check.AtTree)
		ino, ok := g.Place.Get(check.AtIno)
		if g.Rule != "file.hole" || root != m.f.Root || !ok {
			continue
		}
		var size, at uint64
		var gaps []check.Span
		m.c.Search(root, format.Key{Objectid: ino}, func(k format.Key, b []byte) bool {
			switch k.Type {
			case format.INODE_ITEM_KEY:
				var i format.InodeItem
				i.Decode(b)
				size = format.AlignUp(i.Size, uint64(m.c.Super.SectorSize))
			case format.EXTENT_DATA_KEY:
				var fe format.FileExtent
				fe.Decode(b)
				if k.Offset > at {
					gaps = append(gaps, check.Span{Start: at, End: min(k.Offset, size)})
				}
				end := k.Offset + fe.NumBytes
				if fe.Type == format.FileExtentTypeInline {
					end = format.AlignUp(fe.RAMBytes, uint64(m.c.Super.SectorSize))
				}
				at = max(at, end)
			}
			return true
		})
		if at < size {
			gaps = append(gaps, check.Span{Start: at, End: size})
		}
		var err error
		for _, h := range gaps {
			if h.Start < h.End {
				fe := format.FileExtent{Generation: m.c.Super.Generation, RAMBytes: h.End - h.Start, NumBytes: h.End - h.Start, Type: format.FileExtentTypeReg}
				err = errors.Join(err, m.c.insertItem(root, format.Key{Objectid: ino, Type: format.EXTENT_DATA_KEY, Offset: h.Start}, encoded(fe.Size(), &fe)))
			}
		}
		m.try(fmt.Sprintf("holes of inode %d of subvolume %d, which read as zeros", ino, root), err)
	}
}

// changeInode changes an inode item of one subvolume.
func (c *changes) changeInode(root, ino uint64, change func(i *format.InodeItem)) error {
	return c.changeItem(root, format.Key{Objectid: ino, Type: format.INODE_ITEM_KEY}, func(old []byte, found bool) ([]byte, bool, error) {
		if !found {
			return nil, false, fmt.Errorf("no inode %d", ino)
		}
		var i format.InodeItem
		i.Decode(old)
		change(&i)
		i.Encode(old)
		return old, true, nil
	})
}

// mendInodes makes the inode items that are missing, from the other items of the inodes, and takes
// the items away of what nothing says what it was.
func (m *mender) mendInodes() {
	if !m.found("inode.missing") {
		return
	}
	f, c := m.f, m.c
	if f.Inode(format.FIRST_FREE_OBJECTID) == nil {
		f.Lacking = append(f.Lacking, format.FIRST_FREE_OBJECTID)
	}
	slices.Sort(f.Lacking)
	for _, ino := range slices.Compact(f.Lacking) {
		var items []image.Item
		c.Search(f.Root, format.Key{Objectid: ino}, func(k format.Key, b []byte) bool {
			items = append(items, newItem(k, slices.Clone(b)))
			return true
		})
		what := fmt.Sprintf("inode item of %d of subvolume %d", ino, f.Root)
		if i, ok := c.guessInode(f.Root, ino, items, nil); ok {
			err := c.insertItem(f.Root, format.Key{Objectid: ino, Type: format.INODE_ITEM_KEY}, encoded(format.InodeItemSize, &i))
			dots := format.InodeRef{Name: ".."}
			if ino == format.FIRST_FREE_OBJECTID && !slices.ContainsFunc(items, func(it image.Item) bool { return it.Key.Type == format.INODE_REF_KEY }) {
				err = errors.Join(err, c.insertItem(f.Root, format.Key{Objectid: ino, Type: format.INODE_REF_KEY, Offset: ino}, encoded(dots.Size(), dots)))
			}
			m.try(fmt.Sprintf("%s made from its other items: mode 0%o size %d, owner root", what, i.Mode, i.Size), err)
			continue
		}
		var err error
		for _, it := range items {
			err = errors.Join(err, c.deleteItem(f.Root, it.Key))
		}
		m.try(fmt.Sprintf("%s: nothing says what it was, its %d items dropped", what, len(items)), err)
	}
}
