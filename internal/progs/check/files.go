package check

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"slices"
	"sort"

	"btrlab/internal/compress"
	"btrlab/internal/format"
)

// fileRules are about the files of a subvolume.
var fileRules = []Rule{
	{"inode.missing", "items of a file have an inode item", "what is left of it cannot be reached"},
	{"inode.nlink", "nlink is the number of names (11)", "it goes too early, or its space is never freed"},
	{"inode.orphan", "an inode without a name has an orphan item", "it has no name, and its space is never freed"},
	{"inode.nbytes", "nbytes is the sum of the file's extents, and of an orphan at least that (10)", "du is wrong"},
	{"inode.flags", "a symbolic link is neither immutable nor append-only", "Linux refuses the link"},
	{"inode.cache", "no tree has the inode cache of before Linux 5.11, which nobody uses or frees", "its space is never freed"},
	{"inode.kind", "directories have entries and no data, other inodes no entries", "Linux refuses it, or a part of it is out of reach"},
	{"file.extent", "file extents are in order, do not overlap, and stay inside their extents (10)", "a part of it may read as the wrong bytes"},
	{"file.inline", "an inline extent is a small file's only one (10)", "a part of it may be out of reach"},
	{"file.hole", "without NO_HOLES, holes are explicit (10)", "the missing range reads as zeros"},
	{"dir.size", "a directory's size is twice the sum of its names' lengths (11)", "nothing but a wrong size in ls; rmdir may refuse it"},
	{"dir.name", "a directory has a name once", "one of the two cannot be reached"},
	{"dir.item", "a name has its DIR_ITEM (11)", "opening it by name fails, while ls may show it"},
	{"dir.index", "a name has its DIR_INDEX, with the index of the reference, from 2 on (11)", "ls does not show it, while opening it by name may work"},
	{"dir.ref", "a directory entry has its inode reference (11)", "it is listed, and may be gone or not be deleted"},
	{"dir.type", "an entry's type is its inode's", "ls and find take it for another kind of file"},
	{"dir.cycle", "every directory is reached from the root directory", "it cannot be reached from the root"},
}

var le = binary.LittleEndian

// Files are the inodes and the names of one subvolume.
type Files struct {
	Root    uint64
	Inodes  []Inode         // ascending
	Lacking []uint64        // inodes without an inode item
	Orphans map[uint64]bool // inodes with an orphan item
	Refs    []Name          // INODE_REF, INODE_EXTREF, and ROOT_REF of the root tree
	Items   []Name          // DIR_ITEM
	Indexes []Name          // DIR_INDEX
	arena   []byte          // the names
}

// Inode is what names ask of an inode.
type Inode struct {
	Ino   uint64
	Mode  uint32
	Nlink uint32
}

// Name is one of the three records of a directory entry.
type Name struct {
	Dir, Target uint64
	Index       uint64
	at          uint64 // in the arena
	len         uint8
	FT          uint8
	Subvol      bool // the target is a tree, not an inode
}

// fileCheck judges one subvolume. Items come in key order, so an inode's are together: cur gathers
// them, and names, which tie inodes to each other, are compared at the end.
type fileCheck struct {
	Files
	c   *checker
	cur inodeState
	// whole findings hold only if the whole tree could be read.
	whole  []Finding
	beyond int  // inodes with data beyond i_size
	nuls   int  // symbolic links with a NUL after their target
	cache  bool // it has a cache of free inode numbers
	before int  // findings when its walk began
}

type inodeState struct {
	ino      uint64
	have     bool
	item     format.InodeItem
	names    uint32
	dirBytes uint64 // of names in DIR_ITEM and DIR_INDEX
	entries  bool
	extents  bool
	nbytes   uint64
	end      uint64 // of the last file extent
	inline   int    // bytes of the inline extent, -1 none
	nul      bool   // its last byte is NUL
	dataEnd  uint64 // of the last extent that is written
	lastData uint64 // its start
	gap      Span   // the first hole without an item, empty for none
}

func (c *checker) newFileCheck(root uint64) *fileCheck {
	f := &fileCheck{c: c, Files: Files{Root: root, Orphans: map[uint64]bool{}}, before: len(c.Findings)}
	for _, r := range c.RootRefs {
		if r.Parent == root && !r.Back {
			f.Refs = append(f.Refs, Name{Dir: r.Dirid, Target: r.Child, Index: r.Sequence, at: f.keep([]byte(r.Name)), len: uint8(len(r.Name)), Subvol: true})
		}
	}
	return f
}

func (f *Files) keep(b []byte) uint64 {
	f.arena = append(f.arena, b...)
	return uint64(len(f.arena) - len(b))
}

// Text is the text of a name.
func (f *Files) Text(n Name) []byte { return f.arena[n.at : n.at+uint64(n.len)] }

// findWhole keeps a finding for the end.
func (f *fileCheck) findWhole(rule string, place Place, have, want Value) {
	if len(f.whole) < findingsMax {
		f.whole = append(f.whole, Finding{Rule: rule, Place: place, Have: have, Want: want})
	}
}

func (f *fileCheck) where(ino uint64) Place { return PlaceOf(f.Root, ino) }

// leaf takes the items of a leaf.
func (f *fileCheck) leaf(n format.Node, _ bool) {
	for i := range n.Nritems() {
		k := n.Key(i)
		if k.Objectid > format.LAST_FREE_OBJECTID {
			switch {
			case k.Objectid == format.ORPHAN_OBJECTID && k.Type == format.ORPHAN_ITEM_KEY:
				f.Orphans[k.Offset] = true
			case k.Objectid == format.FREE_INO_OBJECTID && !f.cache:
				// Linux 5.11 has dropped mount -o inode_cache, and nobody frees the space.
				f.cache = true
				f.c.find("inode.cache", on(AtTree, f.Root), Words("a cache of free inode numbers"), Words("none"))
			}
			continue
		}
		if k.Objectid != f.cur.ino {
			f.endInode()
			f.cur = inodeState{ino: k.Objectid, inline: -1}
		}
		f.item(k, n.Item(i))
	}
}

func (f *fileCheck) item(k format.Key, b []byte) {
	s := &f.cur
	switch k.Type {
	case format.INODE_ITEM_KEY:
		s.have = true
		s.item.Decode(b)
	case format.INODE_REF_KEY:
		for p := 0; p < len(b); {
			n := int(le.Uint16(b[p+8:]))
			f.ref(k.Offset, le.Uint64(b[p:]), b[p+format.InodeRefSize:p+format.InodeRefSize+n])
			p += format.InodeRefSize + n
		}
	case format.INODE_EXTREF_KEY:
		for p := 0; p < len(b); {
			n := int(le.Uint16(b[p+16:]))
			f.ref(le.Uint64(b[p:]), le.Uint64(b[p+8:]), b[p+format.InodeExtrefSize:p+format.InodeExtrefSize+n])
			p += format.InodeExtrefSize + n
		}
	case format.DIR_ITEM_KEY, format.DIR_INDEX_KEY:
		s.entries = true
		for p := 0; p < len(b); {
			loc := format.DecodeKey(b[p:])
			nn := int(le.Uint16(b[p+27:]))
			text := b[p+format.DirItemSize : p+format.DirItemSize+nn]
			s.dirBytes += uint64(nn)
			e := Name{Dir: k.Objectid, Target: loc.Objectid, at: f.keep(text), len: uint8(nn), FT: b[p+29] &^ 0x80, Subvol: loc.Type == format.ROOT_ITEM_KEY}
			if k.Type == format.DIR_ITEM_KEY {
				f.Items = append(f.Items, e)
			} else {
				e.Index = k.Offset
				f.Indexes = append(f.Indexes, e)
			}
			p += format.DirItemSize + nn
		}
	case format.EXTENT_DATA_KEY:
		f.extent(k, b)
	}
}

func (f *fileCheck) ref(dir, index uint64, text []byte) {
	s := &f.cur
	s.names++
	if s.ino == format.FIRST_FREE_OBJECTID && dir == s.ino && string(text) == ".." {
		if index != 0 { // its name for itself, which has no entry
			f.c.find("dir.ref", f.where(s.ino).named(".."), words("index %d", index), num(0))
		}
		return
	}
	f.Refs = append(f.Refs, Name{Dir: dir, Target: s.ino, Index: index, at: f.keep(text), len: uint8(len(text))})
}

// extent judges one EXTENT_DATA.
func (f *fileCheck) extent(k format.Key, b []byte) {
	c, s := f.c, &f.cur
	var fe format.FileExtent
	fe.Decode(b)
	where := func() Place { return f.where(k.Objectid).with(AtFileOffset, k.Offset) }
	if s.extents && k.Offset < s.end {
		c.find("file.extent", where(), words("start %d", k.Offset), words("at least %d, the end of the one before", s.end))
	}
	if k.Offset > s.end && s.gap == (Span{}) {
		s.gap = Span{s.end, k.Offset}
	}
	s.extents = true
	if fe.Type == format.FileExtentTypeInline {
		s.inline, s.nul = int(fe.RAMBytes), bytes.HasSuffix(fe.Inline, []byte{0})
		if fe.RAMBytes == 0 || fe.RAMBytes > uint64(c.Super.SectorSize) {
			c.find("file.inline", where(), words("%d bytes inline", fe.RAMBytes), words("1..%d", c.Super.SectorSize))
		}
		s.nbytes += fe.RAMBytes
		s.end = format.AlignUp(fe.RAMBytes, uint64(c.Super.SectorSize))
		s.lastData, s.dataEnd = 0, s.end
		return
	}
	s.end = max(s.end, k.Offset+fe.NumBytes)
	if fe.DiskBytenr == 0 {
		return
	}
	s.nbytes += fe.NumBytes
	if c.lost(fe.DiskBytenr) {
		c.add(Finding{Rule: "file.extent", Flaw: NoChunk, Place: where(), Have: words("data at %d, in no chunk", fe.DiskBytenr), Want: Words("an address in a chunk")})
		return
	}
	inside := fe.RAMBytes
	if fe.Compression == format.CompressNone {
		inside = min(inside, fe.DiskNumBytes)
	}
	if fe.Offset+fe.NumBytes > inside {
		c.find("file.extent", where(), words("offset %d num_bytes %d", fe.Offset, fe.NumBytes), words("inside the extent's %d bytes", inside))
	}
	if fe.Compression != format.CompressNone {
		f.compressed(&fe, where)
	}
	if fe.Type != format.FileExtentTypeReg {
		return
	}
	s.lastData, s.dataEnd = k.Offset, s.end
	if s.have && s.item.Flags&format.InodeNoDataSum == 0 && c.CsumsWhole && !c.sliced {
		c.covered(&fe, where)
	}
}

// covered judges whether the data of a file extent has checksums.
func (c *checker) covered(fe *format.FileExtent, where func() Place) {
	r := Span{fe.DiskBytenr + fe.Offset, fe.DiskBytenr + fe.Offset + fe.NumBytes}
	if fe.Compression != format.CompressNone {
		r = Span{fe.DiskBytenr, fe.DiskBytenr + fe.DiskNumBytes}
	}
	if at, bad := uncovered(r.Start, r.End, c.csums); bad {
		c.find("csum.missing", where(), words("no checksum of logical %d", at), words("all of %d..%d", r.Start, r.End))
	}
}

// lost reports whether nothing in the image knows the logical address: no chunk, no block group and
// no device extent, so that no lost chunk item is in the way of data that is there.
func (c *checker) lost(at uint64) bool {
	if c.ChunkAt(at) != nil || c.GroupAt(at) != nil {
		return false
	}
	for _, d := range c.Devs {
		if slices.ContainsFunc(d.Extents, func(x DevExtent) bool { return at >= x.Logical && at-x.Logical < x.Length*max(1, c.Super.NumDevices) }) {
			return false
		}
	}
	return true
}

// compressed judges a compressed extent on disk.
func (f *fileCheck) compressed(fe *format.FileExtent, where func() Place) {
	kind := compress.Name(fe.Compression)
	if fe.RAMBytes > compress.MaxLen || fe.DiskNumBytes > compress.MaxLen {
		f.c.find("file.extent", where(), words("%s: %d bytes for %d", kind, fe.DiskNumBytes, fe.RAMBytes), words("at most %d", compress.MaxLen))
	}
	if fe.Type == format.FileExtentTypePrealloc {
		f.c.find("file.extent", where(), words("%s in a preallocated extent", kind), Words("no compression"))
	}
	if f.cur.have && f.cur.item.Flags&format.InodeNoDataSum != 0 {
		f.c.add(Finding{Rule: "file.extent", Flaw: NoChecksums, Place: where(), Have: words("%s in a file without checksums", kind), Want: Words("no compression")})
	}
}

// endInode judges the inode whose items have all been seen.
func (f *fileCheck) endInode() {
	c, s := f.c, &f.cur
	if s.ino == 0 {
		return
	}
	c.stats.Inodes++
	where := f.where(s.ino)
	if !s.have {
		f.findWhole("inode.missing", where, Words("no inode item"), Words("one"))
		f.Lacking = append(f.Lacking, s.ino)
		return
	}
	i := &s.item
	kind := i.Mode & format.S_IFMT
	f.Inodes = append(f.Inodes, Inode{s.ino, i.Mode, i.Nlink})
	if s.names != i.Nlink {
		f.findWhole("inode.nlink", where, num(uint64(i.Nlink)), num(uint64(s.names)))
	}
	if kind == format.S_IFDIR {
		c.stats.Dirs++
		if s.extents {
			f.findWhole("inode.kind", where, Words("a directory with file extents"), nil)
		}
		if s.dirBytes != i.Size && i.Nlink > 0 { // Linux deletes the entries of an orphan after it
			f.findWhole("dir.size", where, num(i.Size), num(s.dirBytes))
		}
		return
	}
	c.stats.Files++
	if s.entries {
		f.findWhole("inode.kind", where, words("mode 0%o with directory entries", i.Mode), nil)
	}
	if s.extents && kind != format.S_IFREG && kind != format.S_IFLNK {
		f.findWhole("inode.kind", where, words("mode 0%o with file extents", i.Mode), nil)
	}
	// The kernel deletes the items of an orphan from the end, in as many transactions as it takes,
	// and leaves its inode item until the last.
	if s.nbytes != i.Nbytes && !(i.Nlink == 0 && s.nbytes < i.Nbytes) {
		f.findWhole("inode.nbytes", where, num(i.Nbytes), num(s.nbytes))
	}
	if odd := i.Flags & (format.InodeImmutable | format.InodeAppend); kind == format.S_IFLNK && odd != 0 {
		f.findWhole("inode.flags", where, words("a symbolic link with flags 0x%x", odd), hex(0))
	}
	switch {
	case kind != format.S_IFLNK || i.Nlink == 0 || s.inline >= 0 && uint64(s.inline) == i.Size:
	case s.nul && uint64(s.inline) == i.Size+1:
		f.nuls++
	default:
		f.findWhole("file.inline", where, words("a symbolic link of size %d with %d bytes inline", i.Size, max(s.inline, 0)), Words("the same"))
	}
	if c.Super.IncompatFlags&format.IncompatNoHoles == 0 && i.Nlink > 0 && kind == format.S_IFREG {
		if s.gap == (Span{}) && s.end < i.Size {
			s.gap = Span{s.end, i.Size}
		}
		if s.gap != (Span{}) && s.gap.Start < i.Size {
			f.findWhole("file.hole", where, words("no file extent for %d..%d", s.gap.Start, s.gap.End), Words("one that says hole"))
		}
	}
	if s.dataEnd > 0 && s.lastData >= max(1, format.AlignUp(i.Size, uint64(c.Super.SectorSize))) {
		f.beyond++
	}
}

// Inode is the inode of the number; nil if there is none.
func (f *Files) Inode(ino uint64) *Inode {
	i := sort.Search(len(f.Inodes), func(i int) bool { return f.Inodes[i].Ino >= ino })
	if i == len(f.Inodes) || f.Inodes[i].Ino != ino {
		return nil
	}
	return &f.Inodes[i]
}

// finish judges what ties inodes together. whole: every leaf of the tree was seen.
func (f *fileCheck) finish(whole bool) {
	c := f.c
	f.endInode()
	f.cur = inodeState{}
	if f.beyond > 0 {
		// Legal after a crash: ordered extents finish out of order, and i_size waits for the first.
		c.note("%s has %d files with data beyond i_size", treeName(f.Root), f.beyond)
	}
	if f.nuls > 0 {
		c.note("%s has %d symbolic links with a NUL after their target, as mkfs.btrfs --rootdir makes them", treeName(f.Root), f.nuls)
	}
	if !whole {
		return
	}
	for _, w := range f.whole {
		c.add(w)
	}
	if i := f.Inode(format.FIRST_FREE_OBJECTID); i == nil || i.Mode&format.S_IFMT != format.S_IFDIR {
		c.find("inode.missing", f.where(format.FIRST_FREE_OBJECTID), Words("no root directory"), Words("one"))
	}
	orphans := 0
	for _, i := range f.Inodes {
		if i.Nlink != 0 {
			continue
		}
		if !f.Orphans[i.Ino] {
			c.find("inode.orphan", f.where(i.Ino), Words("nlink 0 without orphan item"), Words("one"))
		} else {
			orphans++
		}
	}
	if orphans > 0 {
		c.note("%s has %d orphan inodes, which a mount will delete", treeName(f.Root), orphans)
	}
	f.compareNames()
	f.checkCycles()
	if len(c.Findings) > f.before {
		c.Faulty = append(c.Faulty, &f.Files)
	}
}

// Compare orders names by directory, text and target.
func (f *Files) Compare(x, y Name) int {
	if r := cmp.Compare(x.Dir, y.Dir); r != 0 {
		return r
	}
	if r := bytes.Compare(f.Text(x), f.Text(y)); r != 0 {
		return r
	}
	if x.Subvol != y.Subvol {
		return cmp.Compare(b2i(x.Subvol), b2i(y.Subvol))
	}
	return cmp.Compare(x.Target, y.Target)
}

func b2i(b bool) int {
	if b {
		return 1
	}
	return 0
}

// compareNames merges references, DIR_ITEMs and DIR_INDEXes: each name must be in all three.
func (f *fileCheck) compareNames() {
	c := f.c
	refs, items, indexes := f.Refs, f.Items, f.Indexes
	for _, l := range [][]Name{refs, items, indexes} {
		slices.SortFunc(l, f.Compare)
	}
	var last Name // whose entries were compared before
	for first := true; len(refs)+len(items)+len(indexes) > 0; first = false {
		var n Name
		some := false
		for _, l := range [][]Name{refs, items, indexes} {
			if len(l) > 0 && (!some || f.Compare(l[0], n) < 0) {
				n, some = l[0], true
			}
		}
		take := func(l *[]Name) []Name {
			i := 0
			for i < len(*l) && f.Compare((*l)[i], n) == 0 {
				i++
			}
			t := (*l)[:i]
			*l = (*l)[i:]
			return t
		}
		r, i, x := take(&refs), take(&items), take(&indexes)
		kind := AtIno
		if n.Subvol {
			kind = AtSubvolume
		}
		if len(i)+len(x) > 0 { // a reference alone is told below
			if !first && last.Dir == n.Dir && bytes.Equal(f.Text(last), f.Text(n)) {
				c.find("dir.name", on(AtTree, f.Root).with(AtDir, n.Dir).named(string(f.Text(n))), words("entries of %d and of %d", last.Target, n.Target), Words("one"))
			}
			last = n
		}
		if len(r) == 1 && len(i) == 1 && len(x) == 1 && r[0].Index == x[0].Index && x[0].Index >= 2 && i[0].FT == x[0].FT && f.TypeOK(n, i[0].FT) {
			continue
		}
		where := on(AtTree, f.Root).with(AtDir, n.Dir).named(string(f.Text(n))).with(kind, n.Target)
		if len(r) == 0 {
			if n.Subvol && len(i) == 1 && len(x) == 1 {
				// a snapshot has entries for the subvolumes of its source, which are not in it
				continue
			}
			if d := f.Inode(n.Dir); d != nil && d.Nlink == 0 && f.Orphans[n.Dir] {
				continue // an entry of a directory that is being deleted
			}
			have := Words("an entry without inode reference")
			if !n.Subvol && f.Inode(n.Target) == nil {
				have = "an entry of an inode that is not there"
			}
			c.find("dir.ref", where, have, Words("one"))
		} else if len(r) > 1 {
			c.find("dir.ref", where, words("%d inode references", len(r)), num(1))
		}
		if len(i) != 1 {
			c.find("dir.item", where, words("%d DIR_ITEM entries", len(i)), num(1))
		}
		if len(x) != 1 {
			c.find("dir.index", where, words("%d DIR_INDEX entries", len(x)), num(1))
		} else if len(r) == 1 && r[0].Index != x[0].Index {
			c.find("dir.index", where, words("index %d", x[0].Index), words("the reference's %d", r[0].Index))
		} else if x[0].Index < 2 {
			c.find("dir.index", where, words("index %d", x[0].Index), Words("at least 2"))
		}
		for _, e := range [][]Name{i, x} {
			if len(e) == 1 && !f.TypeOK(n, e[0].FT) {
				c.find("dir.type", where, words("type %d", e[0].FT), Words("the inode's"))
				break
			}
		}
	}
}

// TypeOK reports whether the type that an entry has is that of its target.
func (f *Files) TypeOK(n Name, ft uint8) bool {
	if n.Subvol {
		return ft == format.FtDir
	}
	i := f.Inode(n.Target)
	return i == nil || format.FtOf(i.Mode) == ft
}

// checkCycles follows each directory to the root directory.
func (f *fileCheck) checkCycles() {
	parent := map[uint64]uint64{}
	for _, r := range f.Refs {
		if i := f.Inode(r.Target); !r.Subvol && i != nil && i.Mode&format.S_IFMT == format.S_IFDIR {
			parent[r.Target] = r.Dir
		}
	}
	const root = format.FIRST_FREE_OBJECTID
	good := map[uint64]bool{root: true}
	for _, i := range f.Inodes {
		if i.Mode&format.S_IFMT != format.S_IFDIR || i.Nlink == 0 {
			continue
		}
		var path []uint64
		on := map[uint64]bool{}
		d := i.Ino
		for !good[d] {
			p, ok := parent[d]
			if on[d] {
				f.c.find("dir.cycle", f.where(i.Ino), Words("a directory below itself"), Words("a path from the root directory"))
			}
			if on[d] || !ok {
				break
			}
			on[d] = true
			path = append(path, d)
			d = p
		}
		for _, d := range path { // a bad chain is reported once
			good[d] = true
		}
	}
}
