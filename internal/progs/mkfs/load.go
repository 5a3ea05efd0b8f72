package mkfs

import (
	"cmp"
	"fmt"
	"iter"
	"slices"
	"strings"

	"btrlab/internal/compress"
	"btrlab/internal/errno"
	"btrlab/internal/format"
	"btrlab/internal/progs/image"
)

// The subvolumes, loaded whole. Numbers are given breadth first, so that a directory's inodes
// follow one another and all items come in the order of their keys: a directory's names, and the
// numbers of their inodes, are known when its own items are made. Workers read, checksum and
// compress (feed.go); one task takes what they have read in the order of the inodes, finds places
// and packs the leaves, so the result is the same whoever was faster.

// extentMax is the longest extent of file data, in bytes: BTRFS_MAX_EXTENT_SIZE.
const extentMax = 128 << 20

// symlinkMax is the longest target of a symbolic link, in bytes: it lies in one leaf.
func (m *maker) symlinkMax() int {
	return min(format.SectorSize-1, format.MaxItemSize(m.o.NodeSize)-format.FileExtentInline)
}

// subvol is a subvolume that is made.
type subvol struct {
	dir    *Entry // nil: an empty one
	uuid   format.UUID
	parent uint64   // the subvolume that has its name; 0 of the top level
	dirs   []*Entry // in the order of their numbers, dir first
}

// inodes are all inodes in the order of their numbers. See Children.
func (s *subvol) inodes() iter.Seq[*Entry] {
	return func(yield func(e *Entry) bool) {
		if !yield(s.dir) {
			return
		}
		for _, d := range s.dirs {
			for own, e := range d.Children() {
				if own && !yield(e) {
					return
				}
			}
		}
	}
}

// plan numbers the subvolumes and the inodes below root.
func (m *maker) plan(root *Entry) error {
	m.defaultSubvol = format.FS_TREE_OBJECTID
	m.subvols[format.FS_TREE_OBJECTID] = &subvol{dir: root, uuid: m.o.SubvolUUID}
	m.order = []uint64{format.FS_TREE_OBJECTID}
	if root == nil {
		return nil
	}
	if !root.IsDir() {
		return &SourceError{root, errno.ENOTDIR}
	}
	root.parent = nil
	for i := 0; i < len(m.order); i++ {
		id := m.order[i]
		s := m.subvols[id]
		if s.dir.Default {
			m.defaultSubvol = id
		}
		s.dir.ino, s.dir.names = format.FIRST_FREE_OBJECTID, nil
		s.dirs = []*Entry{s.dir}
		next := uint64(format.FIRST_FREE_OBJECTID) + 1
		first := map[*Entry]*Entry{} // Link -> the entry that has the number
		for j := 0; j < len(s.dirs); j++ {
			d := s.dirs[j]
			slices.SortFunc(d.Entries, func(a, b *Entry) int { return cmp.Compare(a.Name, b.Name) })
			d.firstChild = next
			index, last := uint64(1), ""
			for _, e := range d.Children() {
				index++
				err := m.cannotBe(e)
				if err == nil && e.Name == last {
					err = errno.EEXIST
				}
				if err != nil {
					return &SourceError{e.kept(), err}
				}
				if last = e.Name; e.packedNow {
					next++
					continue
				}
				if e.Link != nil { // whichever of the names comes first
					at := e.Source
					if e.LinkTo(e.Link); e.Source == nil {
						e.Source = at
					}
				}
				e.parent, e.index, e.names = d, index, nil
				if e.Subvol {
					child := m.nextSubvol
					m.nextSubvol++
					m.subvols[child] = &subvol{dir: e, uuid: m.uuid(child), parent: id}
					m.order = append(m.order, child)
					e.subvol = child
					continue
				}
				if !e.IsDir() {
					key := cmp.Or(e.Link, e)
					if f := first[key]; f != nil {
						if f.names == nil {
							f.names = []*Entry{f}
						}
						f.names = append(f.names, e)
						e.ino = f.ino
						continue
					}
					first[key] = e
				}
				e.ino = next
				if next++; e.IsDir() {
					s.dirs = append(s.dirs, e)
				}
			}
		}
	}
	return nil
}

// cannotBe says why a file system cannot have the entry; nil if it can.
func (m *maker) cannotBe(e *Entry) error {
	switch {
	case len(e.Name) == 0 || len(e.Name) > format.MaxNameLen:
		return errno.ENAMETOOLONG
	case strings.ContainsAny(e.Name, "/\x00") || e.Name == "." || e.Name == "..":
		return errno.EINVAL
	case e.Mode&format.S_IFMT == format.S_IFLNK && (len(e.Target) == 0 || len(e.Target) > m.symlinkMax()):
		return errno.ENAMETOOLONG
	case format.FtOf(e.Mode) == format.FtUnknown:
		return errno.EINVAL
	case (len(e.Entries) > 0 || e.Subvol) && !e.IsDir():
		return errno.ENOTDIR
	case e.IsDir() && (e.Link != nil || e.Several):
		return errno.EPERM // of link(2)
	}
	return nil
}

// loader makes the trees of the subvolumes and of the checksums.
type loader struct {
	*maker
	id    uint64 // the subvolume
	tree  *tree
	e     *Entry // the file whose data comes
	own   Entry  // e, of a packed one
	sums  bool   // it has checksums
	open  dataItem
	file  struct{ end, size uint64 } // where its last item ends, and its last sector
	csums csumRun
}

// csumRun are checksums of neighbours on the disk, which become one item.
type csumRun struct {
	start uint64
	sums  []byte
}

// load makes the trees of the subvolumes and of the checksums.
func (m *maker) load() error {
	l := &loader{maker: m}
	for _, id := range m.order {
		s := m.subvols[id]
		if m.roots[id] == nil {
			m.roots[id] = m.newTree(id)
		}
		l.id, l.tree = id, m.roots[id]
		if s.dir == nil {
			if err := m.addAll(l.tree, m.emptySubvol()); err != nil {
				return err
			}
			continue
		}
		if err := l.subvol(s); err != nil {
			return err
		}
	}
	if err := l.putCsums(); err != nil {
		return err
	}
	return m.roots[format.CSUM_TREE_OBJECTID].finish()
}

// subvol makes the tree of a subvolume.
func (l *loader) subvol(s *subvol) error {
	f := l.feed(s.inodes())
	defer f.stop()
	for p := range f.order {
		<-p.done
		if err := l.take(p); err != nil {
			return err
		}
		f.free <- p
	}
	if err := l.endFile(); err != nil {
		return err
	}
	if err := l.endHoles(); err != nil {
		return err
	}
	return l.tree.finish()
}

// take makes the items of a piece: of an inode that begins, or of more data of the last.
func (l *loader) take(p *piece) error {
	if p.err != nil {
		return &SourceError{p.e, p.err}
	}
	if l.o.Stop != nil {
		if err := l.o.Stop(); err != nil {
			return err
		}
	}
	if p.head {
		if err := l.endFile(); err != nil {
			return err
		}
		if err := l.endHoles(); err != nil {
			return err
		}
		if l.o.Next != nil {
			if err := l.o.Next(p.e); err != nil {
				return err
			}
		}
		if l.e = p.e; l.e.packedNow { // it goes with p
			l.own = *l.e
			l.e = &l.own
		}
		if err := l.inode(p); err != nil {
			return err
		}
	}
	switch {
	case len(p.disk) == 0:
		return nil
	case p.kind != format.CompressNone:
		return l.compressed(p)
	}
	return l.data(p)
}

func (l *loader) key(typ uint8, offset uint64) format.Key {
	return format.Key{Objectid: l.e.ino, Type: typ, Offset: offset}
}

func (l *loader) add(typ uint8, offset uint64, size int, e interface{ Encode(b []byte) }) error {
	b, err := l.tree.Add(l.key(typ, offset), size)
	if err == nil {
		e.Encode(b)
	}
	return err
}

// inode makes all items of an inode but its extents on disk.
func (l *loader) inode(p *piece) error {
	e := l.e
	l.propIncompat |= compress.Method{Kind: p.prop}.Incompat()
	it := format.InodeItem{Generation: generation, Transid: generation, Size: uint64(p.size), Nbytes: p.nbytes, Nlink: 1, UID: e.UID, GID: e.GID,
		Mode: e.Mode, Rdev: e.Rdev, Flags: p.flags, Atime: format.TimespecOf(e.Atime), Mtime: format.TimespecOf(e.Mtime), Ctime: l.now, Otime: l.now}
	if l.sums = it.Flags&format.InodeNoDataSum == 0; it.Flags&format.InodeNoDataCow != 0 && e.isRegular() {
		it.Flags |= format.InodeNoDataSum
		l.sums = false
	}
	if len(e.names) > 0 {
		it.Nlink = uint32(len(e.names))
	}
	root := e.ino == format.FIRST_FREE_OBJECTID
	if root {
		it.Nbytes = l.nodeSize()
	}
	if e.IsDir() {
		it.Size = 0
		for _, c := range e.Children() {
			it.Size += 2 * uint64(len(c.Name))
		}
	}
	if err := l.add(format.INODE_ITEM_KEY, 0, format.InodeItemSize, &it); err != nil {
		return err
	}
	if root {
		up := format.InodeRef{Name: ".."}
		if err := l.add(format.INODE_REF_KEY, e.ino, up.Size(), up); err != nil {
			return err
		}
	} else if err := l.refs(); err != nil {
		return err
	}
	if err := l.xattrs(p.xattrs); err != nil {
		return err
	}
	switch {
	case e.IsDir():
		return l.names()
	case e.Mode&format.S_IFMT == format.S_IFLNK:
		return l.inline([]byte(e.Target), uint64(len(e.Target)), format.CompressNone)
	case p.inline != nil:
		// its item covers the file
		return l.inline(p.inline, uint64(p.size), p.kind)
	}
	if e.isRegular() && l.o.Holes {
		l.file.end, l.file.size = 0, format.AlignUp(uint64(p.size), format.SectorSize)
	}
	return nil
}

// hole makes an item for what the file has no data for up to end.
func (l *loader) hole(end uint64) error {
	start := l.file.end
	if l.file.end = max(start, end); start >= end || !l.o.Holes {
		return nil
	}
	fx := format.FileExtent{Generation: generation, RAMBytes: end - start, NumBytes: end - start, Type: format.FileExtentTypeReg}
	return l.add(format.EXTENT_DATA_KEY, start, format.FileExtentSize, &fx)
}

// endHoles makes the item of the hole at the end of the file.
func (l *loader) endHoles() error {
	err := l.hole(l.file.size)
	l.file.end, l.file.size = 0, 0
	return err
}

func (l *loader) inline(data []byte, size uint64, kind uint8) error {
	x := format.FileExtent{Generation: generation, RAMBytes: size, Compression: kind, Type: format.FileExtentTypeInline, Inline: data}
	return l.add(format.EXTENT_DATA_KEY, 0, x.Size(), &x)
}

// list is several entries of one item.
type list[T interface {
	Size() int
	Encode(b []byte)
}] []T

func (a list[T]) size() (n int) {
	for _, x := range a {
		n += x.Size()
	}
	return n
}

func (a list[T]) Encode(b []byte) {
	for _, x := range a {
		x.Encode(b)
		b = b[x.Size():]
	}
}

// refs makes the names of an inode: those in one directory have one item, as far as it has room.
func (l *loader) refs() error {
	if l.e.names == nil {
		r := format.InodeRef{Index: l.e.index, Name: l.e.Name}
		return l.add(format.INODE_REF_KEY, l.e.parent.ino, r.Size(), r)
	}
	most := format.MaxItemSize(l.o.NodeSize)
	byParent := map[uint64]list[format.InodeRef]{}
	more := map[uint64]list[format.InodeExtref]{}
	for _, n := range l.e.names {
		parent := n.parent.ino
		r := format.InodeRef{Index: n.index, Name: n.Name}
		if byParent[parent].size()+r.Size() <= most {
			byParent[parent] = append(byParent[parent], r)
			continue
		}
		h := format.ExtrefHash(format.Ino(parent), n.Name)
		more[h] = append(more[h], format.InodeExtref{Parent: parent, Index: n.index, Name: n.Name})
		if more[h].size() > most {
			return &SourceError{n, errno.EMLINK}
		}
	}
	for _, k := range sorted(byParent) {
		if err := l.add(format.INODE_REF_KEY, k, byParent[k].size(), byParent[k]); err != nil {
			return err
		}
	}
	for _, k := range sorted(more) {
		if err := l.add(format.INODE_EXTREF_KEY, k, more[k].size(), more[k]); err != nil {
			return err
		}
	}
	return nil
}

func sorted[V any](m map[uint64]V) []uint64 {
	keys := make([]uint64, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

// hashed is a name with its hash.
type hashed struct {
	hash uint64
	it   *format.DirItem
}

// byHash makes the items of names of a type: those of one hash share one.
func (l *loader) byHash(typ uint8, names []hashed, tooMany func(it *format.DirItem) error) error {
	slices.SortStableFunc(names, func(a, b hashed) int { return cmp.Compare(a.hash, b.hash) })
	for len(names) > 0 {
		n := 1
		for n < len(names) && names[n].hash == names[0].hash {
			n++
		}
		if n == 1 && names[0].it.Size() <= format.MaxItemSize(l.o.NodeSize) {
			if err := l.add(typ, names[0].hash, names[0].it.Size(), names[0].it); err != nil {
				return err
			}
			names = names[1:]
			continue
		}
		var all list[*format.DirItem]
		for _, h := range names[:n] {
			if all.size()+h.it.Size() > format.MaxItemSize(l.o.NodeSize) {
				if err := tooMany(h.it); err != nil {
					return err
				}
				continue
			}
			all = append(all, h.it)
		}
		if len(all) > 0 {
			if err := l.add(typ, names[0].hash, all.size(), all); err != nil {
				return err
			}
		}
		names = names[n:]
	}
	return nil
}

// xattrs makes the extended attributes. One that has no room in a leaf is left out.
func (l *loader) xattrs(xattrs []image.Xattr) error {
	if len(xattrs) == 0 {
		return nil
	}
	slices.SortFunc(xattrs, func(a, b image.Xattr) int { return cmp.Compare(a.Name, b.Name) })
	names := make([]hashed, 0, len(xattrs))
	leave := func(name string, err error) {
		if l.o.LeaveOut != nil {
			l.o.LeaveOut(l.e, fmt.Errorf("extended attribute %s: %w", name, err))
		}
	}
	for _, x := range xattrs {
		if len(x.Name) == 0 || len(x.Name) > format.MaxNameLen {
			leave(x.Name, errno.ERANGE)
			continue
		}
		names = append(names, hashed{format.NameHash(x.Name),
			&format.DirItem{Transid: generation, Type: format.FtXattr, Name: x.Name, Data: x.Value}})
	}
	return l.byHash(format.XATTR_ITEM_KEY, names, func(it *format.DirItem) error {
		leave(it.Name, errno.ENOSPC)
		return nil
	})
}

// names makes the names in a directory, by hash and by index.
func (l *loader) names() error {
	names := make([]hashed, 0, l.e.Names())
	items := make([]format.DirItem, l.e.Names())
	i := 0
	for _, c := range l.e.Children() {
		at := format.Key{Objectid: c.ino, Type: format.INODE_ITEM_KEY}
		if c.Subvol {
			at = format.Key{Objectid: c.subvol, Type: format.ROOT_ITEM_KEY, Offset: ^uint64(0)}
		}
		items[i] = format.DirItem{Location: at, Transid: generation, Type: format.FtOf(c.Mode), Name: c.Name}
		names = append(names, hashed{format.NameHash(c.Name), &items[i]})
		i++
	}
	err := l.byHash(format.DIR_ITEM_KEY, names, func(it *format.DirItem) error {
		for _, c := range l.e.Children() {
			if c.Name == it.Name {
				return &SourceError{c.kept(), errno.EOVERFLOW}
			}
		}
		panic("mkfs: an item of no entry")
	})
	if err != nil {
		return err
	}
	for i := range items {
		if err := l.add(format.DIR_INDEX_KEY, uint64(i)+2, items[i].Size(), &items[i]); err != nil {
			return err
		}
	}
	return nil
}

// data gives whole sectors their place, if it can in the extent before, which lies in one chunk.
func (l *loader) data(p *piece) error {
	for off, disk, sums := p.off, p.disk, p.sums; len(disk) > 0; {
		s, err := l.takeData(uint64(len(disk)), format.SectorSize)
		if err != nil {
			return err
		}
		n := s.Len()
		x := &l.open
		if x.length > 0 && x.bytenr+x.length == s.Start && s.Start != l.maker.data.logical && x.off+x.length == off && x.length+n <= extentMax {
			x.length += n
		} else {
			if err := l.endFile(); err != nil {
				return err
			}
			*x = dataItem{bytenr: s.Start, length: n, root: l.id, ino: l.e.ino, off: off}
		}
		if err := l.writeData(disk[:n], s.Start); err != nil {
			return err
		}
		if l.sums {
			k := n / format.SectorSize * uint64(l.o.Csum.Size())
			if err := l.addCsums(s.Start, sums[:k]); err != nil {
				return err
			}
			sums = sums[k:]
		}
		off, disk = off+n, disk[n:]
	}
	return nil
}

// endFile makes the items of the extent that is open.
func (l *loader) endFile() error {
	x := l.open
	if x.length == 0 {
		return nil
	}
	l.open = dataItem{}
	return l.extent(x, x.length, format.CompressNone)
}

// extent makes the items of an extent that holds size bytes of the file.
func (l *loader) extent(x dataItem, size uint64, kind uint8) error {
	l.extents = append(l.extents, x)
	if err := l.hole(x.off); err != nil {
		return err
	}
	l.file.end = x.off + size
	fx := format.FileExtent{Generation: generation, RAMBytes: size, Compression: kind, Type: format.FileExtentTypeReg,
		DiskBytenr: x.bytenr, DiskNumBytes: x.length, NumBytes: size}
	return l.add(format.EXTENT_DATA_KEY, x.off, format.FileExtentSize, &fx)
}

// compressed gives an extent that is compressed its place.
func (l *loader) compressed(p *piece) error {
	if err := l.endFile(); err != nil {
		return err
	}
	n := uint64(len(p.disk))
	s, err := l.takeData(n, n)
	if err != nil {
		return err
	}
	if err := l.writeData(p.disk, s.Start); err != nil {
		return err
	}
	if err := l.addCsums(s.Start, p.sums); err != nil {
		return err
	}
	return l.extent(dataItem{bytenr: s.Start, length: n, root: l.id, ino: l.e.ino, off: p.off}, p.ram, p.kind)
}

// csumsMax is the size of a full item of checksums; see fstree.
func (l *loader) csumsMax() int {
	size := l.o.Csum.Size()
	return ((format.LeafDataSize(l.o.NodeSize)-2*format.ItemHeaderSize)/size - 1) * size
}

// addCsums adds the checksums of the sectors from start on, which lie after all before.
func (l *loader) addCsums(start uint64, sums []byte) error {
	r := &l.csums
	if r.start+l.sectors(r.sums) != start {
		if err := l.putCsums(); err != nil {
			return err
		}
		r.start = start
	}
	for len(sums) > 0 {
		n := min(len(sums), l.csumsMax()-len(r.sums))
		r.sums, sums = append(r.sums, sums[:n]...), sums[n:]
		if len(r.sums) == l.csumsMax() {
			if err := l.putCsums(); err != nil {
				return err
			}
		}
	}
	return nil
}

// sectors is the bytes of data that sums are of.
func (l *loader) sectors(sums []byte) uint64 {
	return uint64(len(sums) / l.o.Csum.Size() * format.SectorSize)
}

// putCsums makes an item of the checksums that wait.
func (l *loader) putCsums() error {
	r := &l.csums
	if len(r.sums) == 0 {
		return nil
	}
	b, err := l.roots[format.CSUM_TREE_OBJECTID].Add(format.Key{Objectid: format.EXTENT_CSUM_OBJECTID, Type: format.EXTENT_CSUM_KEY, Offset: r.start}, len(r.sums))
	if err != nil {
		return err
	}
	copy(b, r.sums)
	r.start += l.sectors(r.sums)
	r.sums = r.sums[:0]
	return nil
}
