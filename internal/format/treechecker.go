package format

import (
	"fmt"
	"math/bits"
	"strings"

	"btrlab/internal/errno"
)

// The tree checker: rules that a tree block or superblock can be judged by alone, without reading
// anything else. It runs on every metadata block that is read, and on every one before it is written, so
// that neither a bad disk nor a bug of ours spreads. What passes can be decoded: no Decode, Item,
// InlineRefs, DirItems, InodeRefs or InodeExtrefs of a checked block panics or fails.
//
// Models fs/btrfs/tree-checker.c and disk-io.c:btrfs_validate_super().

// CheckContext is what the reader or writer of a tree block knows about it from elsewhere.
type CheckContext struct {
	// Root is the tree the block was reached from, for the error text; the header's owner decides the rules.
	Root       uint64
	SectorSize uint32 // bytes; a power of two
	NodeSize   uint32 // bytes
	Generation uint64 // newest acceptable, of the block and of what it points at; 0 checks none
	Level      int    // the level the block must have
}

// CorruptError is a broken rule of the tree checker. It is EUCLEAN to errors.Is, as the kernel answers.
type CorruptError struct {
	Block string // "leaf", "node", "superblock"
	text  string
}

// Error gives "corrupt leaf: root=5 block=30457856 slot=3, bad item offset, have 16283 want 16251".
func (e *CorruptError) Error() string { return "corrupt " + e.Block + ": " + e.text }

// Detail is the text after "corrupt leaf: ": the place, the rule, and what was found.
func (e *CorruptError) Detail() string { return e.text }

// Is makes the error an EUCLEAN.
func (e *CorruptError) Is(target error) bool { return target == error(errno.EUCLEAN) }

// UnsupportedError is a file system that is well formed but uses what this program cannot.
// It is EOPNOTSUPP to errors.Is.
type UnsupportedError struct{ Feature string }

// Error gives "unsupported feature: zoned (incompat 0x1000)".
func (e *UnsupportedError) Error() string { return "unsupported feature: " + e.Feature }

// Is makes the error an EOPNOTSUPP.
func (e *UnsupportedError) Is(target error) bool { return target == error(errno.EOPNOTSUPP) }

// checker is one block under test. It stays on the stack: nothing keeps a pointer to it.
type checker struct {
	n    Node
	c    CheckContext
	slot int
	key  Key
	prev Key // of slot-1; zero in slot 0
	mask uint64
}

func blockErr(what string, n Node, c CheckContext, slot int, format string, args ...any) error {
	var at strings.Builder
	var block uint64
	if len(n) >= HeaderSize {
		block = n.Bytenr()
	}
	fmt.Fprintf(&at, "root=%d block=%d", int64(c.Root), block)
	if slot >= 0 {
		fmt.Fprintf(&at, " slot=%d", slot)
	}
	at.WriteString(", ")
	fmt.Fprintf(&at, format, args...)
	return &CorruptError{Block: what, text: at.String()}
}

func (k *checker) err(format string, args ...any) error {
	return blockErr("leaf", k.n, k.c, k.slot, format, args...)
}

// fileErr is err for items of a file, which readers look for by inode number.
func (k *checker) fileErr(format string, args ...any) error {
	return blockErr("leaf", k.n, k.c, k.slot, "ino=%d file_offset=%d, %s", k.key.Objectid, k.key.Offset,
		fmt.Sprintf(format, args...))
}

// headerErr checks what leaves and inner nodes have in common.
func headerErr(what string, n Node, c CheckContext) error {
	if len(n) < HeaderSize || len(n) != int(c.NodeSize) {
		return blockErr(what, n, c, -1, "bad block size, have %d want %d", len(n), c.NodeSize)
	}
	if bits.OnesCount32(c.SectorSize) != 1 {
		return blockErr(what, n, c, -1, "bad sectorsize to check by, have %d want a power of two", c.SectorSize)
	}
	if n.Level() != c.Level {
		return blockErr(what, n, c, -1, "bad level, have %d want %d", n.Level(), c.Level)
	}
	if f := n.Flags(); f&HeaderFlagWritten == 0 {
		return blockErr(what, n, c, -1, "bad header flags, have 0x%x want WRITTEN (0x1)", f)
	} else if f>>BackrefRevShift != MixedBackrefRev {
		return blockErr(what, n, c, -1, "bad backref revision, have %d want %d", f>>BackrefRevShift, MixedBackrefRev)
	}
	if b := n.Bytenr(); b&uint64(c.SectorSize-1) != 0 {
		return blockErr(what, n, c, -1, "unaligned bytenr, have %d want a multiple of %d", b, c.SectorSize)
	}
	if g := n.Generation(); c.Generation != 0 && g > c.Generation {
		return blockErr(what, n, c, -1, "bad generation, have %d want at most %d", g, c.Generation)
	}
	return nil
}

// CheckNode reports the first rule that the inner node breaks, or nil.
//
// Models fs/btrfs/tree-checker.c:btrfs_check_node().
func CheckNode(n Node, c CheckContext) error {
	if err := headerErr("node", n, c); err != nil {
		return err
	}
	if l := n.Level(); l < 1 || l >= MaxLevel {
		return blockErr("node", n, c, -1, "bad level, have %d want 1..%d", l, MaxLevel-1)
	}
	nr := n.Nritems()
	if max := PtrsPerNode(len(n)); nr < 1 || nr > max {
		return blockErr("node", n, c, -1, "bad nritems, have %d want 1..%d", nr, max)
	}
	mask := uint64(c.SectorSize - 1)
	var prev Key
	for i := range nr {
		key := n.Key(i)
		if i > 0 && !prev.Less(key) {
			return blockErr("node", n, c, i, "bad key order, have %v after %v", key, prev)
		}
		prev = key
		if b := n.Blockptr(i); b == 0 || b&mask != 0 {
			return blockErr("node", n, c, i, "bad block pointer, have %d want a nonzero multiple of %d", b, c.SectorSize)
		}
		if g := n.PtrGeneration(i); g > n.Generation() {
			return blockErr("node", n, c, i, "bad pointer generation, have %d want at most %d", g, n.Generation())
		}
	}
	return nil
}

// CheckLeaf reports the first rule that the leaf breaks, or nil.
//
// Models fs/btrfs/tree-checker.c:btrfs_check_leaf().
func CheckLeaf(n Node, c CheckContext) error {
	if err := headerErr("leaf", n, c); err != nil {
		return err
	}
	if n.Level() != 0 {
		return blockErr("leaf", n, c, -1, "bad level, have %d want 0", n.Level())
	}
	nr := n.Nritems()
	if nr == 0 {
		switch n.Owner() {
		case ROOT_TREE_OBJECTID, EXTENT_TREE_OBJECTID, CHUNK_TREE_OBJECTID, DEV_TREE_OBJECTID, FS_TREE_OBJECTID,
			DATA_RELOC_TREE_OBJECTID:
			return blockErr("leaf", n, c, -1, "bad nritems, have 0 in tree %d, which is never empty", int64(n.Owner()))
		case 0:
			return blockErr("leaf", n, c, -1, "bad owner, have 0")
		}
		return nil
	}
	size := LeafDataSize(len(n))
	if max := size / ItemHeaderSize; nr < 0 || nr > max {
		return blockErr("leaf", n, c, -1, "bad nritems, have %d want at most %d", nr, max)
	}
	k := checker{n: n, c: c, mask: uint64(c.SectorSize - 1)}
	end := size
	headEnd := nr * ItemHeaderSize
	for i := range nr {
		k.slot, k.key = i, n.Key(i)
		if i > 0 && !k.prev.Less(k.key) {
			return k.err("bad key order, have %v after %v", k.key, k.prev)
		}
		off, sz := n.ItemOffset(i), n.ItemSize(i)
		if off+sz != end {
			if sz > size || off > size {
				return k.err("bad item range, have offset %d size %d in a leaf of %d", off, sz, size)
			}
			return k.err("bad item offset, have %d want %d", off, end-sz)
		}
		if off < headEnd {
			return k.err("item overlaps item headers, have offset %d want at least %d", off, headEnd)
		}
		end = off
		if err := k.item(n[HeaderSize+off : HeaderSize+off+sz : HeaderSize+off+sz]); err != nil {
			return err
		}
		k.prev = k.key
	}
	return nil
}

// item checks one item by its key type; types that nobody here decodes pass.
func (k *checker) item(b []byte) error {
	switch k.key.Type {
	case INODE_ITEM_KEY:
		return k.inodeItem(b)
	case INODE_REF_KEY:
		return k.inodeRef(b, InodeRefSize, func(b []byte) int { return InodeRefView(b).NameLen() })
	case INODE_EXTREF_KEY:
		return k.inodeRef(b, InodeExtrefSize, func(b []byte) int { return InodeExtrefView(b).NameLen() })
	case XATTR_ITEM_KEY, DIR_ITEM_KEY, DIR_INDEX_KEY:
		return k.dirItem(b)
	case EXTENT_DATA_KEY:
		return k.fileExtent(b)
	case EXTENT_CSUM_KEY:
		return k.csum(b)
	case ROOT_ITEM_KEY:
		return k.rootItem(b)
	case ROOT_REF_KEY, ROOT_BACKREF_KEY:
		return k.rootRef(b)
	case EXTENT_ITEM_KEY, METADATA_ITEM_KEY:
		return k.extentItem(b)
	case TREE_BLOCK_REF_KEY, SHARED_BLOCK_REF_KEY, SHARED_DATA_REF_KEY:
		want := 0
		if k.key.Type == SHARED_DATA_REF_KEY {
			want = 4
		}
		if len(b) != want {
			return k.err("bad extent ref size, have %d want %d", len(b), want)
		}
		if k.key.Objectid&k.mask != 0 {
			return k.err("unaligned extent address, have %d", k.key.Objectid)
		}
		if k.key.Type != TREE_BLOCK_REF_KEY && k.key.Offset&k.mask != 0 {
			return k.err("unaligned parent of a shared ref, have %d", k.key.Offset)
		}
		if want == 4 && SharedDataRefCount(b) == 0 {
			return k.err("bad shared data ref count, have 0")
		}
	case EXTENT_DATA_REF_KEY:
		if len(b) == 0 || len(b)%ExtentDataRefSize != 0 {
			return k.err("bad extent data ref size, have %d want a multiple of %d", len(b), ExtentDataRefSize)
		}
		if k.key.Objectid&k.mask != 0 {
			return k.err("unaligned extent address, have %d", k.key.Objectid)
		}
		for p := 0; p < len(b); p += ExtentDataRefSize {
			var d ExtentDataRef
			d.Decode(b[p:])
			if err := k.dataRef(&d); err != nil {
				return err
			}
		}
	case BLOCK_GROUP_ITEM_KEY:
		return k.blockGroup(b)
	case FREE_SPACE_INFO_KEY, FREE_SPACE_EXTENT_KEY, FREE_SPACE_BITMAP_KEY:
		return k.freeSpace(b)
	case DEV_EXTENT_KEY:
		return k.devExtent(b)
	case DEV_ITEM_KEY:
		return k.devItem(b)
	case CHUNK_ITEM_KEY:
		return k.chunk(b)
	case UUID_KEY_SUBVOL, UUID_KEY_RECEIVED_SUBVOL:
		if len(b) == 0 || len(b)%8 != 0 {
			return k.err("bad uuid item size, have %d want a multiple of 8", len(b))
		}
	case ORPHAN_ITEM_KEY:
		if len(b) != 0 {
			return k.err("bad orphan item size, have %d want 0", len(b))
		}
	}
	return nil
}

// IsFSTree reports whether id is a subvolume, the top-level one included.
func IsFSTree(id uint64) bool {
	return id == FS_TREE_OBJECTID || id >= FIRST_FREE_OBJECTID && int64(id) > 0 && id>>48 == 0
}

// sameInode: in a subvolume tree an inode's other items follow its INODE_ITEM, so the item before one of
// them, when it is in this leaf, is of the same inode. Log trees are not like that.
func (k *checker) sameInode() error {
	if k.slot > 0 && k.prev.Objectid != k.key.Objectid && IsFSTree(k.n.Owner()) {
		return k.err("item without inode item before it, have %v after %v", k.key, k.prev)
	}
	return nil
}

// generation: nothing on disk is from later than the running transaction.
func (k *checker) generation(what string, g uint64) error {
	if k.c.Generation != 0 && g > k.c.Generation+1 {
		return k.err("bad %s, have %d want at most %d", what, g, k.c.Generation+1)
	}
	return nil
}

const inodeFlagsKnown = InodeNoDataSum | InodeNoDataCow | InodeReadonly | InodeNoCompress | InodePrealloc | InodeSync |
	InodeImmutable | InodeAppend | InodeNoDump | InodeNoAtime | InodeDirSync | InodeCompress | 1<<31 | 1<<32

func (k *checker) inodeItem(b []byte) error {
	id := k.key.Objectid
	if (id < FIRST_FREE_OBJECTID || id > LAST_FREE_OBJECTID) && id != ROOT_TREE_DIR_OBJECTID && id != FREE_INO_OBJECTID {
		return k.err("bad inode number, have %d want %d..%d", id, FIRST_FREE_OBJECTID, uint64(LAST_FREE_OBJECTID))
	}
	if k.key.Offset != 0 {
		return k.err("bad inode key offset, have %d want 0", k.key.Offset)
	}
	if len(b) != InodeItemSize {
		return k.err("bad inode item size, have %d want %d", len(b), InodeItemSize)
	}
	var it InodeItem
	it.Decode(b)
	if err := k.generation("inode generation", it.Generation); err != nil {
		return err
	}
	if err := k.generation("inode transid", it.Transid); err != nil {
		return err
	}
	if it.Mode&^(S_IFMT|0o7777) != 0 || FtOf(it.Mode) == FtUnknown {
		return k.err("bad inode mode, have 0%o", it.Mode)
	}
	if it.Mode&S_IFMT == S_IFDIR && it.Nlink > 1 {
		return k.err("bad directory nlink, have %d want at most 1", it.Nlink)
	}
	if f := it.Flags &^ uint64(inodeFlagsKnown); f != 0 {
		return k.err("unknown inode flags, have 0x%x", f)
	}
	return nil
}

// inodeRef checks INODE_REF and INODE_EXTREF: a head of head bytes, then the name.
func (k *checker) inodeRef(b []byte, head int, nameLen func([]byte) int) error {
	if err := k.sameInode(); err != nil {
		return err
	}
	if len(b) == 0 {
		return k.err("bad inode ref size, have 0 want at least %d", head+1)
	}
	for p := 0; p < len(b); {
		if p+head > len(b) {
			return k.err("bad inode ref size, have %d bytes left want %d", len(b)-p, head)
		}
		n := nameLen(b[p:])
		if n == 0 || n > MaxNameLen || p+head+n > len(b) {
			return k.err("bad inode ref name length, have %d want 1..%d", n, min(MaxNameLen, len(b)-p-head))
		}
		p += head + n
	}
	return nil
}

func (k *checker) dirItem(b []byte) error {
	if err := k.sameInode(); err != nil {
		return err
	}
	if len(b) == 0 {
		return k.err("bad dir item size, have 0 want at least %d", DirItemSize)
	}
	xattr := k.key.Type == XATTR_ITEM_KEY
	for p := 0; p < len(b); {
		if p+DirItemSize > len(b) {
			return k.err("bad dir item size, have %d bytes left want %d", len(b)-p, DirItemSize)
		}
		e := DirItemView(b[p:])
		loc, dn, nn := e.Location(), e.DataLen(), e.NameLen()
		switch loc.Type {
		case ROOT_ITEM_KEY:
			if !IsFSTree(loc.Objectid) {
				return k.err("bad dir item location, have %v", loc)
			}
		case INODE_ITEM_KEY:
			if loc.Offset != 0 || loc.Objectid < FIRST_FREE_OBJECTID || loc.Objectid > LAST_FREE_OBJECTID {
				return k.err("bad dir item location, have %v", loc)
			}
		case 0:
			if !xattr || loc != (Key{}) {
				return k.err("bad dir item location, have %v", loc)
			}
		default:
			return k.err("bad dir item location type, have %d want %d or %d", loc.Type, INODE_ITEM_KEY, ROOT_ITEM_KEY)
		}
		// The top bit marks an encrypted name.
		ft := e.Type() &^ 0x80
		if ft > FtXattr {
			return k.err("bad dir item type, have %d want at most %d", ft, FtXattr)
		}
		if xattr != (ft == FtXattr) {
			return k.err("bad dir item type, have %d under key type %d", ft, k.key.Type)
		}
		if nn == 0 || nn > MaxNameLen {
			return k.err("bad dir item name length, have %d want 1..%d", nn, MaxNameLen)
		}
		if dn != 0 && !xattr {
			return k.err("bad dir item data length, have %d want 0", dn)
		}
		if e.Size() > len(e) {
			return k.err("bad dir item lengths, have name %d data %d in %d bytes", nn, dn, len(e)-DirItemSize)
		}
		if k.key.Type != DIR_INDEX_KEY {
			if h := uint64(rawCRC32C(^uint32(1), e.Name())); h != k.key.Offset {
				return k.err("bad name hash, have 0x%x want 0x%x", k.key.Offset, h)
			}
		} else if DirItemSize+nn != len(b) {
			return k.err("bad dir index size, have %d want %d", len(b), DirItemSize+nn)
		}
		p += e.Size()
	}
	return nil
}

func (k *checker) fileExtent(b []byte) error {
	if k.key.Offset&k.mask != 0 {
		return k.fileErr("unaligned file offset, have %d want a multiple of %d", k.key.Offset, k.c.SectorSize)
	}
	if err := k.sameInode(); err != nil {
		return err
	}
	if len(b) < FileExtentInline {
		return k.fileErr("bad file extent size, have %d want at least %d", len(b), FileExtentInline)
	}
	e := FileExtentView(b)
	typ := e.Type()
	if typ > FileExtentTypePrealloc {
		return k.fileErr("bad file extent type, have %d want at most %d", typ, FileExtentTypePrealloc)
	}
	if e.Compression() > CompressZstd {
		return k.fileErr("bad compression, have %d want at most %d", e.Compression(), CompressZstd)
	}
	if e.Encryption() != 0 {
		return k.fileErr("bad encryption, have %d want 0", e.Encryption())
	}
	if g := e.Generation(); g == 0 {
		return k.fileErr("bad file extent generation, have 0")
	} else if err := k.generation("file extent generation", g); err != nil {
		return err
	}
	ram := e.RAMBytes()
	if typ == FileExtentTypeInline {
		if k.key.Offset != 0 {
			return k.fileErr("bad offset of an inline extent, have %d want 0", k.key.Offset)
		}
		if e.Compression() == CompressNone && uint64(len(b)-FileExtentInline) != ram {
			return k.fileErr("bad ram_bytes of an inline extent, have %d want %d", ram, len(b)-FileExtentInline)
		}
		return nil
	}
	if len(b) != FileExtentSize {
		return k.fileErr("bad file extent size, have %d want %d", len(b), FileExtentSize)
	}
	disk, diskNum, off, num := e.DiskBytenr(), e.DiskNumBytes(), e.Offset(), e.NumBytes()
	if (ram|disk|diskNum|off|num)&k.mask != 0 {
		return k.fileErr("unaligned file extent, have ram_bytes %d disk_bytenr %d disk_num_bytes %d offset %d num_bytes %d",
			ram, disk, diskNum, off, num)
	}
	if num == 0 {
		return k.fileErr("bad num_bytes, have 0")
	}
	if k.key.Offset+num < k.key.Offset {
		return k.fileErr("file extent end overflows, have num_bytes %d", num)
	}
	if disk+diskNum < disk || disk != 0 && diskNum == 0 {
		return k.fileErr("bad disk_num_bytes, have %d at disk_bytenr %d", diskNum, disk)
	}
	if off+num < off || disk != 0 && off+num > ram {
		return k.fileErr("bad ram_bytes, have %d want at least %d", ram, off+num)
	}
	if k.slot > 0 && k.prev.Type == EXTENT_DATA_KEY && k.prev.Objectid == k.key.Objectid {
		p := FileExtentView(k.n.Item(k.slot - 1))
		end := k.prev.Offset
		if p.Type() == FileExtentTypeInline {
			end += AlignUp(p.RAMBytes(), k.mask+1)
		} else {
			end += p.NumBytes()
		}
		if end > k.key.Offset {
			return k.fileErr("file extent overlaps the one before, which ends at %d", end)
		}
	}
	return nil
}

func (k *checker) csum(b []byte) error {
	if k.key.Objectid != EXTENT_CSUM_OBJECTID {
		return k.err("bad csum objectid, have %d want %d", int64(k.key.Objectid), int64(-10))
	}
	if k.key.Offset&k.mask != 0 {
		return k.err("unaligned csum offset, have %d", k.key.Offset)
	}
	if len(b) == 0 || len(b)%CsumSize != 0 {
		return k.err("bad csum item size, have %d want a multiple of %d", len(b), CsumSize)
	}
	if uint64(len(b)/CsumSize)*(k.mask+1) > -k.key.Offset-1 && k.key.Offset != 0 {
		return k.err("csum range overflows, have %d bytes of csums at %d", len(b), k.key.Offset)
	}
	if k.slot > 0 && k.prev.Type == EXTENT_CSUM_KEY && k.prev.Objectid == k.key.Objectid {
		end := k.prev.Offset + uint64(k.n.ItemSize(k.slot-1)/CsumSize)*(k.mask+1)
		if end > k.key.Offset {
			return k.err("csum range overlaps the one before, have %d want at least %d", k.key.Offset, end)
		}
	}
	return nil
}

const rootFlagsKnown = 1<<0 | 1<<48 // read-only, dead

func (k *checker) rootItem(b []byte) error {
	id := k.key.Objectid
	if id == 0 {
		return k.err("bad root id, have 0")
	}
	if len(b) != RootItemSize && len(b) != rootItemV1Size {
		return k.err("bad root item size, have %d want %d or %d", len(b), RootItemSize, rootItemV1Size)
	}
	var it RootItem
	it.Decode(b)
	if err := k.generation("root generation", it.Generation); err != nil {
		return err
	}
	// The first version of the item has no generation_v2: it is 0 then.
	if err := k.generation("root generation_v2", it.GenerationV2); err != nil {
		return err
	}
	if err := k.generation("root last_snapshot", it.LastSnapshot); err != nil {
		return err
	}
	if it.Bytenr&k.mask != 0 {
		return k.err("unaligned root bytenr, have %d", it.Bytenr)
	}
	if it.Level >= MaxLevel {
		return k.err("bad root level, have %d want at most %d", it.Level, MaxLevel-1)
	}
	if it.DropLevel >= MaxLevel {
		return k.err("bad root drop level, have %d want at most %d", it.DropLevel, MaxLevel-1)
	}
	if f := it.Flags &^ uint64(rootFlagsKnown); f != 0 {
		return k.err("unknown root flags, have 0x%x", f)
	}
	return nil
}

func (k *checker) rootRef(b []byte) error {
	if len(b) < RootRefSize {
		return k.err("bad root ref size, have %d want at least %d", len(b), RootRefSize)
	}
	if n := RootRefView(b).NameLen(); n == 0 || n > MaxNameLen || RootRefSize+n != len(b) {
		return k.err("bad root ref name length, have %d want %d", n, len(b)-RootRefSize)
	}
	return nil
}

func (k *checker) dataRef(d *ExtentDataRef) error {
	if !IsFSTree(d.Root) && d.Root != ROOT_TREE_OBJECTID && d.Root != DATA_RELOC_TREE_OBJECTID {
		return k.err("bad data ref root, have %d", int64(d.Root))
	}
	if ino := uint64(d.Ino); (ino < FIRST_FREE_OBJECTID || ino > LAST_FREE_OBJECTID) && ino != FREE_INO_OBJECTID {
		return k.err("bad data ref objectid, have %d", int64(ino))
	}
	// The offset may wrap below zero: a file extent may start inside its extent, as clones do.
	if uint64(d.Offset)&k.mask != 0 {
		return k.err("unaligned data ref offset, have %d", d.Offset)
	}
	if d.Count == 0 {
		return k.err("bad data ref count, have 0")
	}
	return nil
}

func (k *checker) extentItem(b []byte) error {
	if k.key.Objectid&k.mask != 0 {
		return k.err("unaligned extent address, have %d", k.key.Objectid)
	}
	if len(b) < ExtentItemSize {
		return k.err("bad extent item size, have %d want at least %d", len(b), ExtentItemSize)
	}
	var it ExtentItem
	it.Decode(b)
	refs, flags := it.Refs, it.Flags
	if refs == 0 {
		return k.err("bad extent refs, have 0")
	}
	if err := k.generation("extent generation", it.Generation); err != nil {
		return err
	}
	length := k.key.Offset
	p := ExtentItemSize
	tree := false
	switch flags & (ExtentFlagData | ExtentFlagTreeBlock) {
	case ExtentFlagTreeBlock:
		tree = true
		if k.key.Type == METADATA_ITEM_KEY {
			if length >= MaxLevel {
				return k.err("bad tree block level, have %d want at most %d", length, MaxLevel-1)
			}
			length = uint64(k.c.NodeSize)
			break
		}
		if length != uint64(k.c.NodeSize) {
			return k.err("bad tree block length, have %d want %d", length, k.c.NodeSize)
		}
		p += treeBlockInfoSize
		if len(b) < p {
			return k.err("bad extent item size, have %d want at least %d", len(b), p)
		}
		if l := b[p-1]; l >= MaxLevel {
			return k.err("bad tree block level, have %d want at most %d", l, MaxLevel-1)
		}
	case ExtentFlagData:
		if k.key.Type != EXTENT_ITEM_KEY {
			return k.err("bad key type of a data extent, have %d want %d", k.key.Type, EXTENT_ITEM_KEY)
		}
		if length == 0 || length&k.mask != 0 {
			return k.err("bad extent length, have %d want a nonzero multiple of %d", length, k.c.SectorSize)
		}
		if flags&BlockFlagFullBackref != 0 {
			return k.err("bad extent flags, have 0x%x: a data extent with FULL_BACKREF", flags)
		}
	default:
		return k.err("bad extent flags, have 0x%x want DATA (0x1) or TREE_BLOCK (0x2)", flags)
	}
	if k.key.Objectid+length < k.key.Objectid {
		return k.err("extent end overflows, have length %d", length)
	}
	var total uint64
	lastType, lastSeq := uint8(0), uint64(0)
	for p < len(b) {
		typ := b[p]
		n := InlineRefSize(typ)
		if n == 0 {
			return k.err("bad inline ref type, have %d at %d of %d bytes", typ, p, len(b))
		}
		if p+n > len(b) {
			return k.err("inline ref exceeds item, have %d bytes left want %d", len(b)-p, n)
		}
		var r InlineRef
		r.Decode(b[p:])
		seq := r.Offset
		switch typ {
		case TREE_BLOCK_REF_KEY, SHARED_BLOCK_REF_KEY:
			if !tree {
				return k.err("bad inline ref type, have %d on a data extent", typ)
			}
			if typ == SHARED_BLOCK_REF_KEY && seq&k.mask != 0 {
				return k.err("unaligned parent of a shared ref, have %d", seq)
			}
		case SHARED_DATA_REF_KEY:
			if tree {
				return k.err("bad inline ref type, have %d on a tree block", typ)
			}
			if seq&k.mask != 0 {
				return k.err("unaligned parent of a shared ref, have %d", seq)
			}
			if r.Count == 0 {
				return k.err("bad shared data ref count, have 0")
			}
		case EXTENT_DATA_REF_KEY:
			if tree {
				return k.err("bad inline ref type, have %d on a tree block", typ)
			}
			if err := k.dataRef(&r.Data); err != nil {
				return err
			}
			seq = r.Data.Hash()
		}
		total += uint64(r.Count)
		if typ < lastType || typ == lastType && seq > lastSeq {
			return k.err("inline refs out of order, have type %d seq 0x%x after type %d seq 0x%x", typ, seq, lastType, lastSeq)
		}
		lastType, lastSeq = typ, seq
		p += n
	}
	if total > refs {
		return k.err("bad extent refs, have %d want at least %d", refs, total)
	}
	if k.slot > 0 && (k.prev.Type == EXTENT_ITEM_KEY || k.prev.Type == METADATA_ITEM_KEY) {
		end := k.prev.Objectid + k.prev.Offset
		if k.prev.Type == METADATA_ITEM_KEY {
			end = k.prev.Objectid + uint64(k.c.NodeSize)
		}
		if end > k.key.Objectid {
			return k.err("extent overlaps the one before, have %d want at least %d", k.key.Objectid, end)
		}
	}
	return nil
}

// treeBlockInfoSize is a key and a level, between an EXTENT_ITEM of a tree block and its references.
const treeBlockInfoSize = KeySize + 1

func groupTypeErr(flags uint64) string {
	if p := flags & BlockGroupProfileMask; p&(p-1) != 0 {
		return fmt.Sprintf("bad profile, have 0x%x want one bit at most", p)
	}
	switch flags & BlockGroupTypeMask {
	case BlockGroupData, BlockGroupSystem, BlockGroupMetadata, BlockGroupData | BlockGroupMetadata:
	default:
		return fmt.Sprintf("bad block group type, have 0x%x", flags&BlockGroupTypeMask)
	}
	if f := flags &^ uint64(BlockGroupTypeMask|BlockGroupProfileMask); f != 0 {
		return fmt.Sprintf("unknown block group flags, have 0x%x", f)
	}
	return ""
}

func (k *checker) blockGroup(b []byte) error {
	if k.key.Offset == 0 || (k.key.Offset|k.key.Objectid)&k.mask != 0 {
		return k.err("bad block group range, have start %d length %d", k.key.Objectid, k.key.Offset)
	}
	if len(b) != BlockGroupItemSize {
		return k.err("bad block group item size, have %d want %d", len(b), BlockGroupItemSize)
	}
	var g BlockGroupItem
	g.Decode(b)
	if g.ChunkObjectid != FIRST_CHUNK_TREE_OBJECTID {
		return k.err("bad block group chunk_objectid, have %d want %d", g.ChunkObjectid, FIRST_CHUNK_TREE_OBJECTID)
	}
	if g.Used > k.key.Offset {
		return k.err("bad block group used, have %d want at most %d", g.Used, k.key.Offset)
	}
	if s := groupTypeErr(g.Flags); s != "" {
		return k.err("%s", s)
	}
	return nil
}

func (k *checker) freeSpace(b []byte) error {
	if (k.key.Objectid|k.key.Offset)&k.mask != 0 || k.key.Offset == 0 || k.key.Objectid+k.key.Offset < k.key.Objectid {
		return k.err("bad free space range, have start %d length %d", k.key.Objectid, k.key.Offset)
	}
	want := 0
	switch k.key.Type {
	case FREE_SPACE_INFO_KEY:
		want = FreeSpaceInfoSize
	case FREE_SPACE_BITMAP_KEY:
		if k.key.Offset/(k.mask+1) > 8*uint64(len(k.n)) {
			return k.err("bad free space bitmap length, have %d", k.key.Offset)
		}
		want = int((k.key.Offset/(k.mask+1) + 7) / 8)
	}
	if len(b) != want {
		return k.err("bad free space item size, have %d want %d", len(b), want)
	}
	if k.key.Type == FREE_SPACE_INFO_KEY {
		var info FreeSpaceInfo
		info.Decode(b)
		if info.Flags&^uint32(FreeSpaceUsingBitmaps) != 0 {
			return k.err("unknown free space flags, have 0x%x", info.Flags)
		}
		return nil
	}
	// Extents and bitmaps of one group never overlap.
	if k.slot > 0 && (k.prev.Type == FREE_SPACE_EXTENT_KEY || k.prev.Type == FREE_SPACE_BITMAP_KEY) {
		if end := k.prev.Objectid + k.prev.Offset; end > k.key.Objectid {
			return k.err("free space overlaps the one before, have %d want at least %d", k.key.Objectid, end)
		}
	}
	return nil
}

func (k *checker) devExtent(b []byte) error {
	if len(b) != DevExtentSize {
		return k.err("bad dev extent size, have %d want %d", len(b), DevExtentSize)
	}
	var d DevExtent
	d.Decode(b)
	if d.ChunkTree != CHUNK_TREE_OBJECTID || d.ChunkObjectid != FIRST_CHUNK_TREE_OBJECTID {
		return k.err("bad dev extent chunk, have tree %d objectid %d want %d and %d", d.ChunkTree, d.ChunkObjectid,
			CHUNK_TREE_OBJECTID, FIRST_CHUNK_TREE_OBJECTID)
	}
	if (k.key.Offset|d.ChunkOffset|d.Length)&k.mask != 0 || d.Length == 0 || k.key.Offset+d.Length < d.Length {
		return k.err("bad dev extent range, have physical %d logical %d length %d", k.key.Offset, d.ChunkOffset, d.Length)
	}
	if k.slot > 0 && k.prev.Type == DEV_EXTENT_KEY && k.prev.Objectid == k.key.Objectid {
		d.Decode(k.n.Item(k.slot - 1))
		if end := k.prev.Offset + d.Length; end > k.key.Offset {
			return k.err("dev extent overlaps the one before, have %d want at least %d", k.key.Offset, end)
		}
	}
	return nil
}

func (k *checker) devItem(b []byte) error {
	if k.key.Objectid != DEV_ITEMS_OBJECTID {
		return k.err("bad dev item objectid, have %d want %d", k.key.Objectid, DEV_ITEMS_OBJECTID)
	}
	if len(b) != DevItemSize {
		return k.err("bad dev item size, have %d want %d", len(b), DevItemSize)
	}
	var d DevItem
	d.Decode(b)
	if d.Devid != k.key.Offset {
		return k.err("bad devid, have %d want %d", d.Devid, k.key.Offset)
	}
	if d.BytesUsed > d.TotalBytes {
		return k.err("bad device bytes_used, have %d want at most %d", d.BytesUsed, d.TotalBytes)
	}
	return nil
}

func (k *checker) chunk(b []byte) error {
	if k.key.Objectid != FIRST_CHUNK_TREE_OBJECTID {
		return k.err("bad chunk objectid, have %d want %d", k.key.Objectid, FIRST_CHUNK_TREE_OBJECTID)
	}
	if len(b) < ChunkSize(1) {
		return k.err("bad chunk item size, have %d want at least %d", len(b), ChunkSize(1))
	}
	if n := ChunkStripes(b); ChunkSize(n) != len(b) {
		return k.err("bad chunk num_stripes, have %d in an item of %d bytes", n, len(b))
	}
	if s := chunkErr(b, k.key.Offset, k.mask); s != "" {
		return k.err("%s", s)
	}
	return nil
}

// chunkErr says what is wrong with a chunk, which is long enough for its stripes, at logical; "" is nothing.
//
// Models fs/btrfs/tree-checker.c:btrfs_check_chunk_valid().
func chunkErr(c ChunkView, logical, mask uint64) string {
	length, typ, n := c.Length(), c.Type(), c.NumStripes()
	if n == 0 {
		return "bad chunk num_stripes, have 0"
	}
	if logical&mask != 0 {
		return fmt.Sprintf("unaligned chunk logical, have %d", logical)
	}
	if ss := c.SectorSize(); uint64(ss) != mask+1 {
		return fmt.Sprintf("bad chunk sectorsize, have %d want %d", ss, mask+1)
	}
	if length == 0 || length&mask != 0 || logical+length < logical {
		return fmt.Sprintf("bad chunk length, have %d", length)
	}
	if l := c.StripeLen(); l != StripeLen {
		return fmt.Sprintf("bad chunk stripe_len, have %d want %d", l, StripeLen)
	}
	if s := groupTypeErr(typ); s != "" {
		return s
	}
	want := 0
	switch typ & BlockGroupProfileMask {
	case 0:
		want = 1
	case BlockGroupDup, BlockGroupRAID1:
		want = 2
	case BlockGroupRAID1C3:
		want = 3
	case BlockGroupRAID1C4:
		want = 4
	}
	if want != 0 && n != want {
		return fmt.Sprintf("bad chunk num_stripes, have %d want %d", n, want)
	}
	for i := range n {
		if off := c.StripeOffset(i); off&mask != 0 || want != 0 && off+length < off {
			return fmt.Sprintf("bad chunk stripe offset, have %d", off)
		}
	}
	return ""
}

// Superblock flags besides those of tree blocks, and features that nothing here supports.
const (
	superFlagsKnown = HeaderFlagWritten | HeaderFlagReloc
	compatROKnown   = CompatROFreeSpaceTree | CompatROFreeSpaceTreeValid | CompatROVerity
	incompatKnown   = IncompatMixedBackref | IncompatDefaultSubvol | IncompatCompressLZO | IncompatCompressZSTD |
		IncompatBigMetadata | IncompatExtendedIref | IncompatSkinnyMetadata | IncompatNoHoles
)

type featureBit struct {
	bit  uint64
	name string
}

var incompatNames = []featureBit{
	{IncompatMixedBackref, "mixed-backref"}, {IncompatDefaultSubvol, "default-subvol"}, {IncompatMixedGroups, "mixed-bg"},
	{IncompatCompressLZO, "compress-lzo"}, {IncompatCompressZSTD, "compress-zstd"}, {IncompatBigMetadata, "big-metadata"},
	{IncompatExtendedIref, "extref"}, {IncompatRAID56, "raid56"}, {IncompatSkinnyMetadata, "skinny-metadata"},
	{IncompatNoHoles, "no-holes"}, {IncompatMetadataUUID, "metadata-uuid"}, {IncompatRAID1C34, "raid1c34"},
	{IncompatZoned, "zoned"}, {1 << 13, "extent-tree-v2"}, {1 << 14, "raid-stripe-tree"}, {1 << 16, "squota"},
	{1 << 17, "remap-tree"},
}

var compatRONames = []featureBit{
	{CompatROFreeSpaceTree, "free-space-tree"}, {CompatROFreeSpaceTreeValid, "free-space-tree-valid"},
	{CompatROVerity, "verity"}, {CompatROBlockGroupTree, "block-group-tree"},
}

var superFlagNames = []featureBit{
	{SuperFlagSeeding, "seeding"}, {1 << 33, "metadump"}, {1 << 34, "metadump-v2"}, {1 << 35, "changing-fsid"},
	{1 << 36, "changing-fsid-v2"}, {1 << 38, "changing-bg-tree"}, {1 << 39, "changing-data-csum"}, {1 << 40, "changing-meta-csum"},
}

var csumTypeNames = [...]string{"crc32c", "xxhash64", "sha256", "blake2b"}

// CsumTypeName is the name of a checksum type.
func CsumTypeName(typ uint16) string {
	if int(typ) < len(csumTypeNames) {
		return csumTypeNames[typ]
	}
	return fmt.Sprintf("unknown (%d)", typ)
}

func featureNames(names []featureBit, v uint64) []string {
	var s []string
	for _, f := range names {
		if v&f.bit != 0 {
			s = append(s, f.name)
			v &^= f.bit
		}
	}
	for ; v != 0; v &= v - 1 {
		s = append(s, fmt.Sprintf("unknown bit %d", bits.TrailingZeros64(v)))
	}
	return s
}

// IncompatNames are the names of the incompat bits in v; a bit without a name shows its number.
func IncompatNames(v uint64) []string { return featureNames(incompatNames, v) }

// CompatRONames are the names of the compat_ro bits in v.
func CompatRONames(v uint64) []string { return featureNames(compatRONames, v) }

func unsupported(kind string, names []featureBit, v uint64) error {
	return &UnsupportedError{fmt.Sprintf("%s (%s 0x%x)", strings.Join(featureNames(names, v), ", "), kind, v)}
}

func superErr(format string, args ...any) error {
	return &CorruptError{Block: "superblock", text: fmt.Sprintf(format, args...)}
}

// CheckSuper reports the first rule that the primary superblock in b (SuperSize bytes) breaks, or nil.
// devSize is the device's size in bytes. A file system that is sound but needs what this program does
// not have is an *UnsupportedError; all else is a *CorruptError.
//
// Models fs/btrfs/disk-io.c:btrfs_validate_super() and btrfs_check_features().
func CheckSuper(b []byte, devSize int64) error { return CheckSuperAt(b, devSize, SuperOffset) }

// CheckSuperAt is CheckSuper for a superblock read from the device offset bytenr: a copy knows its own place.
func CheckSuperAt(b []byte, devSize int64, bytenr uint64) error {
	if len(b) < SuperSize {
		return superErr("bytenr=%d, bad size, have %d want %d", bytenr, len(b), SuperSize)
	}
	b = b[:SuperSize]
	bad := func(format string, args ...any) error {
		return superErr("bytenr=%d, %s", bytenr, fmt.Sprintf(format, args...))
	}
	if m := SuperMagic(b); m != Magic {
		return bad("bad magic, have 0x%x want 0x%x: not a btrfs", m, uint64(Magic))
	}
	v := superView(b)
	if csumType := v.csumType(); csumType != 0 {
		if int(csumType) < len(csumTypeNames) {
			return &UnsupportedError{"checksum type " + CsumTypeName(csumType)}
		}
		return bad("bad csum type, have %d", csumType)
	}
	if have, want := v.csum(), v.computeCsum(); have != want {
		return bad("bad csum, have 0x%08x want 0x%08x", have, want)
	}
	var s Super
	s.Decode(b)
	if s.Bytenr != bytenr {
		return bad("bad bytenr, have %d want %d", s.Bytenr, bytenr)
	}
	// Features first: what follows need not hold for a format we do not know.
	if f := s.IncompatFlags &^ incompatKnown; f != 0 {
		return unsupported("incompat", incompatNames, f)
	}
	if f := s.CompatROFlags &^ compatROKnown; f != 0 {
		return unsupported("compat_ro", compatRONames, f)
	}
	if f := s.Flags &^ superFlagsKnown; f != 0 {
		return unsupported("super flags", superFlagNames, f)
	}
	if s.IncompatFlags&IncompatMixedBackref == 0 {
		return &UnsupportedError{"no mixed-backref: a file system of before 2009"}
	}
	if ss := s.SectorSize; bits.OnesCount32(ss) != 1 || ss < 4096 || ss > 65536 {
		return bad("bad sectorsize, have %d want a power of two in 4096..65536", ss)
	} else if ss != SectorSize {
		return &UnsupportedError{fmt.Sprintf("sectorsize %d", ss)}
	}
	if ns := s.NodeSize; bits.OnesCount32(ns) != 1 || ns < s.SectorSize || ns > 65536 {
		return bad("bad nodesize, have %d want a power of two in %d..65536", ns, s.SectorSize)
	}
	if leaf := v.leafSize(); leaf != s.NodeSize {
		return bad("bad leafsize, have %d want %d", leaf, s.NodeSize)
	}
	if bits.OnesCount32(s.StripeSize) != 1 {
		return bad("bad stripesize, have %d want a power of two", s.StripeSize)
	}
	for _, r := range [...]struct {
		name   string
		bytenr uint64
		level  uint8
		must   bool
	}{{"root", s.Root, s.RootLevel, true}, {"chunk_root", s.ChunkRoot, s.ChunkRootLevel, true}, {"log_root", s.LogRoot, s.LogRootLevel, false}} {
		if r.level >= MaxLevel {
			return bad("bad %s_level, have %d want at most %d", r.name, r.level, MaxLevel-1)
		}
		if r.bytenr%SectorSize != 0 || r.must && r.bytenr == 0 {
			return bad("bad %s, have %d want a multiple of %d", r.name, r.bytenr, SectorSize)
		}
	}
	if s.Generation == 0 {
		return bad("bad generation, have 0")
	}
	if s.ChunkRootGeneration > s.Generation {
		return bad("bad chunk_root_generation, have %d want at most %d", s.ChunkRootGeneration, s.Generation)
	}
	if s.CacheGeneration > s.Generation && s.CacheGeneration != ^uint64(0) {
		return bad("bad cache_generation, have %d want at most %d", s.CacheGeneration, s.Generation)
	}
	if s.DevItem.FSID != s.FSID {
		return bad("bad dev_item fsid, have %v want %v", s.DevItem.FSID, s.FSID)
	}
	if s.NumDevices == 0 {
		return bad("bad num_devices, have 0")
	}
	if s.NumDevices != 1 {
		return &UnsupportedError{fmt.Sprintf("%d devices", s.NumDevices)}
	}
	if s.DevItem.SectorSize != s.SectorSize {
		return bad("bad dev_item sector_size, have %d want %d", s.DevItem.SectorSize, s.SectorSize)
	}
	if s.RootDirObjectid != ROOT_TREE_DIR_OBJECTID {
		return bad("bad root_dir_objectid, have %d want %d", s.RootDirObjectid, ROOT_TREE_DIR_OBJECTID)
	}
	if min := 6 * uint64(s.NodeSize); s.BytesUsed < min || s.BytesUsed > s.TotalBytes {
		return bad("bad bytes_used, have %d want %d..%d", s.BytesUsed, min, s.TotalBytes)
	}
	if s.TotalBytes%SectorSize != 0 {
		return bad("unaligned total_bytes, have %d want a multiple of %d", s.TotalBytes, SectorSize)
	}
	if s.DevItem.TotalBytes > uint64(devSize) {
		return bad("device is too small, have %d bytes want %d", devSize, s.DevItem.TotalBytes)
	}
	if s.DevItem.BytesUsed > s.DevItem.TotalBytes {
		return bad("bad dev_item bytes_used, have %d want at most %d", s.DevItem.BytesUsed, s.DevItem.TotalBytes)
	}
	return sysArrayErr(b, &s, bad)
}

// sysArrayErr checks the system chunks in the superblock.
func sysArrayErr(b []byte, s *Super, bad func(string, ...any) error) error {
	n := superView(b).sysChunkArraySize()
	if min := KeySize + ChunkSize(1); n < min || n > SysChunkArrayMax {
		return bad("bad sys_chunk_array_size, have %d want %d..%d", n, min, SysChunkArrayMax)
	}
	a := s.SysChunkArray
	found := false
	for p := 0; p < len(a); {
		if p+KeySize+ChunkSize(1) > len(a) {
			return bad("sys_chunk_array is cut short, have %d bytes left at %d", len(a)-p, p)
		}
		key, c := DecodeKey(a[p:]), a[p+KeySize:]
		if key.Objectid != FIRST_CHUNK_TREE_OBJECTID || key.Type != CHUNK_ITEM_KEY {
			return bad("bad key in sys_chunk_array, have %v at %d", key, p)
		}
		size := ChunkSize(ChunkStripes(c))
		if size > len(c) {
			return bad("sys_chunk_array is cut short, have %d bytes left at %d want %d", len(c), p, size)
		}
		if e := chunkErr(c, key.Offset, SectorSize-1); e != "" {
			return bad("sys_chunk_array logical=%d, %s", key.Offset, e)
		}
		var ch Chunk
		ch.Decode(c)
		if ch.Type&BlockGroupSystem == 0 {
			return bad("sys_chunk_array logical=%d, bad type, have 0x%x want SYSTEM (0x2)", key.Offset, ch.Type)
		}
		if prof := ch.Type & BlockGroupProfileMask; prof != 0 && prof != BlockGroupDup {
			return &UnsupportedError{fmt.Sprintf("system chunk with profile 0x%x", prof)}
		}
		found = found || s.ChunkRoot >= key.Offset && s.ChunkRoot-key.Offset < ch.Length
		p += KeySize + size
	}
	if !found {
		return bad("chunk_root is in no system chunk, have %d", s.ChunkRoot)
	}
	return nil
}
