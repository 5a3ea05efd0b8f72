package format

import (
	"fmt"
	"math/bits"

	"btrlab/internal/errno"
)

// The tree checker: rules that a tree block or superblock can be judged by alone, without reading
// anything else. It runs on every metadata block that is read, and on every one before it is
// written, so that neither a bad disk nor a bug of ours spreads. What passes can be decoded: no
// Decode, Item, InlineRefs, DirItems, InodeRefs or InodeExtrefs of a checked block panics or fails.
//
// Models fs/btrfs/tree-checker.c and disk-io.c:btrfs_validate_super().

// CheckContext is the knowledge that the reader or writer of a tree block has from elsewhere.
type CheckContext struct {
	// Root is the tree the block was reached from, for the error text; the header's owner decides
	// the rules.
	Root       uint64
	SectorSize uint32 // bytes; a power of two
	NodeSize   uint32 // bytes
	Generation uint64 // newest acceptable, of the block and of what it points at; 0 checks none
	Level      int    // the level the block must have
	Csum       CsumType
}

// CorruptError is a broken rule of the tree checker, and where. It is EUCLEAN to errors.Is, as the
// kernel answers.
type CorruptError struct {
	Block  string // "leaf", "node", "superblock"
	Root   uint64 // CheckContext.Root; 0 of a superblock
	Bytenr uint64 // as the block says; of a superblock its place on the device
	Slot   int    // of the item, -1 for what is about the whole block
	// OfFile: the item is the file extent of Ino at FileOffset.
	OfFile          bool
	Ino, FileOffset uint64
	Breach
}

// Breach is a broken rule: which one, as "bad item offset", what is there, and what should be. The
// last two may be empty.
type Breach struct{ What, Have, Want string }

func (b Breach) String() string {
	s := b.What
	if b.Have != "" {
		s += ", have " + b.Have
	}
	if b.Want != "" {
		s += " want " + b.Want
	}
	return s
}

// Error gives "corrupt leaf: root=5 block=30457856 slot=3, bad item offset, have 16283 want 16251".
func (e *CorruptError) Error() string {
	s := "corrupt " + e.Block + ": "
	if e.Block == "superblock" {
		return s + fmt.Sprintf("bytenr=%d, ", e.Bytenr) + e.Breach.String()
	}
	s += fmt.Sprintf("root=%d block=%d", int64(e.Root), e.Bytenr)
	if e.Slot >= 0 {
		s += fmt.Sprintf(" slot=%d", e.Slot)
	}
	return s + ", " + e.Reason()
}

// Reason is the broken rule, with the file extent that it is about: "ino=257 file_offset=4096, bad
// encryption, have 1 want 0".
func (e *CorruptError) Reason() string {
	if e.OfFile {
		return fmt.Sprintf("ino=%d file_offset=%d, %v", e.Ino, e.FileOffset, e.Breach)
	}
	return e.Breach.String()
}

// Is makes the error an EUCLEAN.
func (e *CorruptError) Is(target error) bool { return target == error(errno.EUCLEAN) }

// UnsupportedError says that a file system is well formed but uses a feature that this program does
// not have. It is EOPNOTSUPP to errors.Is.
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

func blockErr(block string, n Node, c CheckContext, slot int, what, have, want string) error {
	e := &CorruptError{Block: block, Root: c.Root, Slot: slot, Breach: Breach{what, have, want}}
	if len(n) >= HeaderSize {
		e.Bytenr = n.Bytenr()
	}
	return e
}

func (k *checker) err(what, have, want string) error {
	return blockErr("leaf", k.n, k.c, k.slot, what, have, want)
}

func (k *checker) broken(b Breach) error { return k.err(b.What, b.Have, b.Want) }

// fileErr is err for file extents, which readers look for by inode number.
func (k *checker) fileErr(what, have, want string) error {
	return &CorruptError{Block: "leaf", Root: k.c.Root, Bytenr: k.n.Bytenr(), Slot: k.slot,
		OfFile: true, Ino: k.key.Objectid, FileOffset: k.key.Offset, Breach: Breach{what, have, want}}
}

func dec[T ~int | ~int64 | ~uint8 | ~uint16 | ~uint32 | ~uint64](v T) string {
	return fmt.Sprintf("%d", v)
}

func hexa[T ~uint32 | ~uint64](v T) string { return fmt.Sprintf("0x%x", v) }

// headerErr checks what leaves and inner nodes have in common.
func headerErr(what string, n Node, c CheckContext) error {
	if len(n) < HeaderSize || len(n) != int(c.NodeSize) {
		return blockErr(what, n, c, -1, "bad block size", dec(len(n)), dec(c.NodeSize))
	}
	if bits.OnesCount32(c.SectorSize) != 1 {
		return blockErr(what, n, c, -1, "bad sectorsize to check by", dec(c.SectorSize), "a power of two")
	}
	if n.Level() != c.Level {
		return blockErr(what, n, c, -1, "bad level", dec(n.Level()), dec(c.Level))
	}
	if f := n.Flags(); f&HeaderFlagWritten == 0 {
		return blockErr(what, n, c, -1, "bad header flags", hexa(f), "WRITTEN (0x1)")
	} else if f>>BackrefRevShift != MixedBackrefRev {
		return blockErr(what, n, c, -1, "bad backref revision", dec(f>>BackrefRevShift), dec(MixedBackrefRev))
	}
	if b := n.Bytenr(); b&uint64(c.SectorSize-1) != 0 {
		return blockErr(what, n, c, -1, "unaligned bytenr", dec(b), fmt.Sprintf("a multiple of %d", c.SectorSize))
	}
	if g := n.Generation(); c.Generation != 0 && g > c.Generation {
		return blockErr(what, n, c, -1, "bad generation", dec(g), fmt.Sprintf("at most %d", c.Generation))
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
		return blockErr("leaf", n, c, -1, "bad level", dec(n.Level()), "0")
	}
	nr := n.Nritems()
	if nr == 0 {
		switch n.Owner() {
		case ROOT_TREE_OBJECTID, EXTENT_TREE_OBJECTID, CHUNK_TREE_OBJECTID, DEV_TREE_OBJECTID, FS_TREE_OBJECTID,
			DATA_RELOC_TREE_OBJECTID:
			return blockErr("leaf", n, c, -1, "bad nritems", fmt.Sprintf("0 in tree %d, which is never empty", int64(n.Owner())), "")
		case 0:
			return blockErr("leaf", n, c, -1, "bad owner", "0", "")
		}
		return nil
	}
	size := LeafDataSize(len(n))
	if max := size / ItemHeaderSize; nr < 0 || nr > max {
		return blockErr("leaf", n, c, -1, "bad nritems", dec(nr), fmt.Sprintf("at most %d", max))
	}
	k := checker{n: n, c: c, mask: uint64(c.SectorSize - 1)}
	end := size
	headEnd := nr * ItemHeaderSize
	for i := range nr {
		k.slot, k.key = i, n.Key(i)
		if i > 0 && !k.prev.Less(k.key) {
			return k.err("bad key order", fmt.Sprintf("%v after %v", k.key, k.prev), "")
		}
		off, sz := n.ItemOffset(i), n.ItemSize(i)
		if off+sz != end {
			if sz > size || off > size {
				return k.err("bad item range", fmt.Sprintf("offset %d size %d in a leaf of %d", off, sz, size), "")
			}
			return k.err("bad item offset", dec(off), dec(end-sz))
		}
		if off < headEnd {
			return k.err("item overlaps item headers", fmt.Sprintf("offset %d", off), fmt.Sprintf("at least %d", headEnd))
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
			return k.err("bad extent ref size", dec(len(b)), dec(want))
		}
		if k.key.Objectid&k.mask != 0 {
			return k.err("unaligned extent address", dec(k.key.Objectid), "")
		}
		if k.key.Type != TREE_BLOCK_REF_KEY && k.key.Offset&k.mask != 0 {
			return k.err("unaligned parent of a shared ref", dec(k.key.Offset), "")
		}
		if want == 4 && SharedDataRefCount(b) == 0 {
			return k.err("bad shared data ref count", "0", "")
		}
	case EXTENT_DATA_REF_KEY:
		if len(b) == 0 || len(b)%ExtentDataRefSize != 0 {
			return k.err("bad extent data ref size", dec(len(b)), fmt.Sprintf("a multiple of %d", ExtentDataRefSize))
		}
		if k.key.Objectid&k.mask != 0 {
			return k.err("unaligned extent address", dec(k.key.Objectid), "")
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
			return k.err("bad uuid item size", dec(len(b)), "a multiple of 8")
		}
	case ORPHAN_ITEM_KEY:
		if len(b) != 0 {
			return k.err("bad orphan item size", dec(len(b)), "0")
		}
	}
	return nil
}

// IsFSTree reports whether id is a subvolume, the top-level one included.
func IsFSTree(id uint64) bool {
	return id == FS_TREE_OBJECTID || id >= FIRST_FREE_OBJECTID && int64(id) > 0 && id>>48 == 0
}

// generation: nothing on disk is from later than the running transaction.
func (k *checker) generation(what string, g uint64) error {
	if k.c.Generation != 0 && g > k.c.Generation+1 {
		return k.err("bad "+what, dec(g), fmt.Sprintf("at most %d", k.c.Generation+1))
	}
	return nil
}
