package format

import "fmt"

// Item sizes in bytes.
const (
	DevItemSize        = 98
	ChunkHeaderSize    = 48
	StripeSize         = 32
	DevExtentSize      = 48
	BlockGroupItemSize = 24
	ExtentItemSize     = 24
	TreeBlockInfoSize  = KeySize + 1
	InodeItemSize      = 160
	RootItemSize       = 439
	InodeRefSize       = 10
	InodeExtrefSize    = 18
	DirItemSize        = 30
	FileExtentInline   = 21 // before the data of an inline extent
	FileExtentSize     = 53
	FreeSpaceInfoSize  = 8
	ExtentDataRefSize  = 28
	RootRefSize        = 18 // before the name
)

// DevItem describes a device: DEV_ITEM in the chunk tree, and in the superblock.
type DevItem struct {
	Devid       uint64
	TotalBytes  uint64
	BytesUsed   uint64
	IOAlign     uint32
	IOWidth     uint32
	SectorSize  uint32
	Type        uint64
	Generation  uint64
	StartOffset uint64
	DevGroup    uint32
	SeekSpeed   uint8
	Bandwidth   uint8
	UUID        UUID
	FSID        UUID
}

// Decode reads DevItemSize bytes.
func (d *DevItem) Decode(b []byte) {
	_ = b[DevItemSize-1]
	d.Devid = le.Uint64(b)
	d.TotalBytes = le.Uint64(b[8:])
	d.BytesUsed = le.Uint64(b[16:])
	d.IOAlign = le.Uint32(b[24:])
	d.IOWidth = le.Uint32(b[28:])
	d.SectorSize = le.Uint32(b[32:])
	d.Type = le.Uint64(b[36:])
	d.Generation = le.Uint64(b[44:])
	d.StartOffset = le.Uint64(b[52:])
	d.DevGroup = le.Uint32(b[60:])
	d.SeekSpeed = b[64]
	d.Bandwidth = b[65]
	copy(d.UUID[:], b[66:])
	copy(d.FSID[:], b[82:])
}

// Encode writes DevItemSize bytes.
func (d *DevItem) Encode(b []byte) {
	_ = b[DevItemSize-1]
	le.PutUint64(b, d.Devid)
	le.PutUint64(b[8:], d.TotalBytes)
	le.PutUint64(b[16:], d.BytesUsed)
	le.PutUint32(b[24:], d.IOAlign)
	le.PutUint32(b[28:], d.IOWidth)
	le.PutUint32(b[32:], d.SectorSize)
	le.PutUint64(b[36:], d.Type)
	le.PutUint64(b[44:], d.Generation)
	le.PutUint64(b[52:], d.StartOffset)
	le.PutUint32(b[60:], d.DevGroup)
	b[64] = d.SeekSpeed
	b[65] = d.Bandwidth
	copy(b[66:82], d.UUID[:])
	copy(b[82:98], d.FSID[:])
}

// Stripe is one copy or part of a chunk on a device.
type Stripe struct {
	Devid   uint64
	Offset  uint64 // physical
	DevUUID UUID
}

// Chunk maps a logical range, starting at its key's offset, to stripes.
type Chunk struct {
	Length     uint64
	Owner      uint64 // EXTENT_TREE_OBJECTID
	StripeLen  uint64
	Type       uint64
	IOAlign    uint32
	IOWidth    uint32
	SectorSize uint32
	SubStripes uint16
	Stripes    []Stripe
}

// ChunkSize is the size of a chunk item with n stripes.
func ChunkSize(n int) int { return ChunkHeaderSize + n*StripeSize }

// Size is the item's size in bytes.
func (c *Chunk) Size() int { return ChunkSize(len(c.Stripes)) }

// ChunkStripes is the number of stripes that the chunk item in b says it has.
func ChunkStripes(b []byte) int { return ChunkView(b).NumStripes() }

// Decode reads the chunk and its stripes.
func (c *Chunk) Decode(b []byte) {
	v := ChunkView(b)
	c.Length = v.Length()
	c.Owner = le.Uint64(b[8:])
	c.StripeLen = v.StripeLen()
	c.Type = v.Type()
	c.IOAlign = le.Uint32(b[32:])
	c.IOWidth = le.Uint32(b[36:])
	c.SectorSize = v.SectorSize()
	c.SubStripes = le.Uint16(b[46:])
	c.Stripes = make([]Stripe, v.NumStripes())
	for i := range c.Stripes {
		s := b[ChunkHeaderSize+i*StripeSize:]
		c.Stripes[i].Devid = le.Uint64(s)
		c.Stripes[i].Offset = v.StripeOffset(i)
		copy(c.Stripes[i].DevUUID[:], s[16:32])
	}
}

// Encode writes Size bytes.
func (c *Chunk) Encode(b []byte) {
	le.PutUint64(b, c.Length)
	le.PutUint64(b[8:], c.Owner)
	le.PutUint64(b[16:], c.StripeLen)
	le.PutUint64(b[24:], c.Type)
	le.PutUint32(b[32:], c.IOAlign)
	le.PutUint32(b[36:], c.IOWidth)
	le.PutUint32(b[40:], c.SectorSize)
	le.PutUint16(b[44:], uint16(len(c.Stripes)))
	le.PutUint16(b[46:], c.SubStripes)
	for i, st := range c.Stripes {
		s := b[ChunkHeaderSize+i*StripeSize:]
		le.PutUint64(s, st.Devid)
		le.PutUint64(s[8:], st.Offset)
		copy(s[16:32], st.DevUUID[:])
	}
}

// DevExtent is the device's view of a stripe; its key is (devid, DEV_EXTENT, physical).
type DevExtent struct {
	ChunkTree     uint64
	ChunkObjectid uint64
	ChunkOffset   uint64 // logical
	Length        uint64
	ChunkTreeUUID UUID
}

// Decode reads DevExtentSize bytes.
func (d *DevExtent) Decode(b []byte) {
	d.ChunkTree = le.Uint64(b)
	d.ChunkObjectid = le.Uint64(b[8:])
	d.ChunkOffset = le.Uint64(b[16:])
	d.Length = le.Uint64(b[24:])
	copy(d.ChunkTreeUUID[:], b[32:48])
}

// Encode writes DevExtentSize bytes.
func (d *DevExtent) Encode(b []byte) {
	le.PutUint64(b, d.ChunkTree)
	le.PutUint64(b[8:], d.ChunkObjectid)
	le.PutUint64(b[16:], d.ChunkOffset)
	le.PutUint64(b[24:], d.Length)
	copy(b[32:48], d.ChunkTreeUUID[:])
}

// BlockGroupItem is the accounting of one block group.
type BlockGroupItem struct {
	Used          uint64 // bytes
	ChunkObjectid uint64
	Flags         uint64
}

// Decode reads BlockGroupItemSize bytes.
func (g *BlockGroupItem) Decode(b []byte) {
	g.Used, g.ChunkObjectid, g.Flags = le.Uint64(b), le.Uint64(b[8:]), le.Uint64(b[16:])
}

// Encode writes BlockGroupItemSize bytes.
func (g *BlockGroupItem) Encode(b []byte) {
	le.PutUint64(b, g.Used)
	le.PutUint64(b[8:], g.ChunkObjectid)
	le.PutUint64(b[16:], g.Flags)
}

// Extent item flags.
const (
	ExtentFlagData       = 1 << 0
	ExtentFlagTreeBlock  = 1 << 1
	BlockFlagFullBackref = 1 << 8
)

// ExtentItem heads an EXTENT_ITEM or METADATA_ITEM; inline references follow.
type ExtentItem struct {
	Refs       uint64
	Generation uint64
	Flags      uint64
}

// Decode reads ExtentItemSize bytes.
func (e *ExtentItem) Decode(b []byte) {
	e.Refs, e.Generation, e.Flags = le.Uint64(b), le.Uint64(b[8:]), le.Uint64(b[16:])
}

// Encode writes ExtentItemSize bytes.
func (e *ExtentItem) Encode(b []byte) {
	le.PutUint64(b, e.Refs)
	le.PutUint64(b[8:], e.Generation)
	le.PutUint64(b[16:], e.Flags)
}

// TreeBlockInfo follows the ExtentItem of a tree block in an EXTENT_ITEM; a METADATA_ITEM has the
// level in its key and no more. First is the key that the block began with when it was made.
type TreeBlockInfo struct {
	First Key
	Level uint8
}

// Decode reads TreeBlockInfoSize bytes.
func (i *TreeBlockInfo) Decode(b []byte) { i.First, i.Level = DecodeKey(b), b[KeySize] }

// Encode writes TreeBlockInfoSize bytes.
func (i *TreeBlockInfo) Encode(b []byte) {
	i.First.Encode(b)
	b[KeySize] = i.Level
}

// RefsStart is where the inline references begin in an extent item with a key of the type.
func (e *ExtentItem) RefsStart(typ uint8) int {
	if typ == EXTENT_ITEM_KEY && e.Flags&ExtentFlagTreeBlock != 0 {
		return ExtentItemSize + TreeBlockInfoSize
	}
	return ExtentItemSize
}

// ExtentDataRef is a reference by file: Count EXTENT_DATA items make the reference.
type ExtentDataRef struct {
	DataRef
	Count uint32
}

// Decode reads ExtentDataRefSize bytes (after the type byte when inline).
func (r *ExtentDataRef) Decode(b []byte) {
	r.DataRef = DataRef{Root: le.Uint64(b), Ino: Ino(le.Uint64(b[8:])), Offset: FileOff(le.Uint64(b[16:]))}
	r.Count = le.Uint32(b[24:])
}

// Encode writes ExtentDataRefSize bytes.
func (r *ExtentDataRef) Encode(b []byte) {
	le.PutUint64(b, r.Root)
	le.PutUint64(b[8:], uint64(r.Ino))
	le.PutUint64(b[16:], uint64(r.Offset))
	le.PutUint32(b[24:], r.Count)
}

// SharedDataRefCount is the count in a SHARED_DATA_REF item, which has nothing else.
func SharedDataRefCount(b []byte) uint32 { return le.Uint32(b) }

// InlineRef is one inline back reference of an extent item. Which fields count depends on Type:
// TREE_BLOCK_REF: Offset is the root. SHARED_BLOCK_REF: Offset is the parent's bytenr.
// EXTENT_DATA_REF: Data. SHARED_DATA_REF: Offset is the parent's bytenr, Count the count.
// EXTENT_OWNER_REF, the first if it is there, refers to nothing: Offset is the root that allocated
// the data extent while simple quotas were on, Count is 0.
type InlineRef struct {
	Type   uint8
	Offset uint64
	Count  uint32
	Data   ExtentDataRef
	Pos    int // where the reference starts, from the start of the item
	Size   int // bytes, type byte included
}

// InlineRefSize is the size of an inline reference of the type, type byte included; 0 for an
// unknown type.
func InlineRefSize(typ uint8) int {
	switch typ {
	case TREE_BLOCK_REF_KEY, SHARED_BLOCK_REF_KEY, EXTENT_OWNER_REF_KEY:
		return 9
	case EXTENT_DATA_REF_KEY:
		return 1 + ExtentDataRefSize
	case SHARED_DATA_REF_KEY:
		return 13
	}
	return 0
}

// InlineRefs reads the inline references of an extent item: b is the whole item, start is
// ExtentItem.RefsStart.
func InlineRefs(b []byte, start int) ([]InlineRef, error) {
	var refs []InlineRef
	for p := start; p < len(b); {
		n := InlineRefSize(b[p])
		if n == 0 || p+n > len(b) {
			return nil, fmt.Errorf("bad inline ref type, have %d at %d of %d bytes", b[p], p, len(b))
		}
		r := InlineRef{Pos: p}
		r.Decode(b[p:])
		refs = append(refs, r)
		p += n
	}
	return refs, nil
}

// Decode reads the reference, InlineRefSize bytes of a known type, and leaves Pos.
func (r *InlineRef) Decode(b []byte) {
	*r = InlineRef{Type: b[0], Pos: r.Pos, Size: InlineRefSize(b[0])}
	switch r.Type {
	case EXTENT_DATA_REF_KEY:
		r.Data.Decode(b[1:])
		r.Count = r.Data.Count
	case SHARED_DATA_REF_KEY:
		r.Offset, r.Count = le.Uint64(b[1:]), le.Uint32(b[9:])
	case EXTENT_OWNER_REF_KEY:
		r.Offset, r.Count = le.Uint64(b[1:]), 0
	default:
		r.Offset, r.Count = le.Uint64(b[1:]), 1
	}
}

// Encode writes the reference, InlineRefSize bytes.
func (r *InlineRef) Encode(b []byte) {
	b[0] = r.Type
	switch r.Type {
	case EXTENT_DATA_REF_KEY:
		r.Data.Encode(b[1:])
	case SHARED_DATA_REF_KEY:
		le.PutUint64(b[1:], r.Offset)
		le.PutUint32(b[9:], r.Count)
	default:
		le.PutUint64(b[1:], r.Offset)
	}
}

// Inode flags.
const (
	InodeNoDataSum  = 1 << 0
	InodeNoDataCow  = 1 << 1
	InodeReadonly   = 1 << 2
	InodeNoCompress = 1 << 3
	InodePrealloc   = 1 << 4
	InodeSync       = 1 << 5
	InodeImmutable  = 1 << 6
	InodeAppend     = 1 << 7
	InodeNoDump     = 1 << 8
	InodeNoAtime    = 1 << 9
	InodeDirSync    = 1 << 10
	InodeCompress   = 1 << 11

	// InodeRootItemInit, in the inode of a root item, says that the item's Flags count:
	// BTRFS_INODE_ROOT_ITEM_INIT. Without it Linux takes them for zero
	// (btrfs_check_and_init_root_item()).
	InodeRootItemInit = 1 << 31
)

// InodeItem is the inode on disk.
type InodeItem struct {
	Generation uint64
	Transid    uint64
	Size       uint64 // bytes; for a directory twice the sum of its name lengths
	Nbytes     uint64 // bytes allocated
	BlockGroup uint64
	Nlink      uint32
	UID        uint32
	GID        uint32
	Mode       uint32 // S_IFMT and permissions
	Rdev       uint64
	Flags      uint64
	Sequence   uint64
	Atime      Timespec
	Ctime      Timespec
	Mtime      Timespec
	Otime      Timespec
}

// Decode reads InodeItemSize bytes.
func (i *InodeItem) Decode(b []byte) {
	_ = b[InodeItemSize-1]
	i.Generation = le.Uint64(b)
	i.Transid = le.Uint64(b[8:])
	i.Size = le.Uint64(b[16:])
	i.Nbytes = le.Uint64(b[24:])
	i.BlockGroup = le.Uint64(b[32:])
	i.Nlink = le.Uint32(b[40:])
	i.UID = le.Uint32(b[44:])
	i.GID = le.Uint32(b[48:])
	i.Mode = le.Uint32(b[52:])
	i.Rdev = le.Uint64(b[56:])
	i.Flags = le.Uint64(b[64:])
	i.Sequence = le.Uint64(b[72:])
	i.Atime = decodeTimespec(b[112:])
	i.Ctime = decodeTimespec(b[124:])
	i.Mtime = decodeTimespec(b[136:])
	i.Otime = decodeTimespec(b[148:])
}

// Encode writes InodeItemSize bytes.
func (i *InodeItem) Encode(b []byte) {
	clear(b[:InodeItemSize])
	le.PutUint64(b, i.Generation)
	le.PutUint64(b[8:], i.Transid)
	le.PutUint64(b[16:], i.Size)
	le.PutUint64(b[24:], i.Nbytes)
	le.PutUint64(b[32:], i.BlockGroup)
	le.PutUint32(b[40:], i.Nlink)
	le.PutUint32(b[44:], i.UID)
	le.PutUint32(b[48:], i.GID)
	le.PutUint32(b[52:], i.Mode)
	le.PutUint64(b[56:], i.Rdev)
	le.PutUint64(b[64:], i.Flags)
	le.PutUint64(b[72:], i.Sequence)
	i.Atime.encode(b[112:])
	i.Ctime.encode(b[124:])
	i.Mtime.encode(b[136:])
	i.Otime.encode(b[148:])
}

// RootSubvolReadonly, in RootItem.Flags, is a subvolume that takes no writes.
// BTRFS_ROOT_SUBVOL_RDONLY.
const RootSubvolReadonly = 1 << 0

// RootItem describes a tree: its root block, and for a subvolume its directory inode and history.
type RootItem struct {
	Inode        InodeItem
	Generation   uint64
	RootDirid    uint64
	Bytenr       uint64
	ByteLimit    uint64
	BytesUsed    uint64
	LastSnapshot uint64
	Flags        uint64
	Refs         uint32
	DropProgress Key
	DropLevel    uint8
	Level        uint8
	GenerationV2 uint64
	UUID         UUID
	ParentUUID   UUID
	ReceivedUUID UUID
	Ctransid     uint64
	Otransid     uint64
	Stransid     uint64
	Rtransid     uint64
	Ctime        Timespec
	Otime        Timespec
	Stime        Timespec
	Rtime        Timespec
}

// RootItemV1Size is the size of a root item before the v2 fields were added.
const RootItemV1Size = 239

// Decode reads a root item of RootItemSize bytes or of the shorter first version.
func (r *RootItem) Decode(b []byte) {
	r.Inode.Decode(b)
	r.Generation = le.Uint64(b[160:])
	r.RootDirid = le.Uint64(b[168:])
	r.Bytenr = le.Uint64(b[176:])
	r.ByteLimit = le.Uint64(b[184:])
	r.BytesUsed = le.Uint64(b[192:])
	r.LastSnapshot = le.Uint64(b[200:])
	r.Flags = le.Uint64(b[208:])
	r.Refs = le.Uint32(b[216:])
	r.DropProgress = DecodeKey(b[220:])
	r.DropLevel = b[237]
	r.Level = b[238]
	if len(b) < RootItemSize {
		return
	}
	r.GenerationV2 = le.Uint64(b[239:])
	copy(r.UUID[:], b[247:])
	copy(r.ParentUUID[:], b[263:])
	copy(r.ReceivedUUID[:], b[279:])
	r.Ctransid = le.Uint64(b[295:])
	r.Otransid = le.Uint64(b[303:])
	r.Stransid = le.Uint64(b[311:])
	r.Rtransid = le.Uint64(b[319:])
	r.Ctime = decodeTimespec(b[327:])
	r.Otime = decodeTimespec(b[339:])
	r.Stime = decodeTimespec(b[351:])
	r.Rtime = decodeTimespec(b[363:])
}

// Encode writes RootItemSize bytes.
func (r *RootItem) Encode(b []byte) {
	clear(b[:RootItemSize])
	r.Inode.Encode(b)
	le.PutUint64(b[160:], r.Generation)
	le.PutUint64(b[168:], r.RootDirid)
	le.PutUint64(b[176:], r.Bytenr)
	le.PutUint64(b[184:], r.ByteLimit)
	le.PutUint64(b[192:], r.BytesUsed)
	le.PutUint64(b[200:], r.LastSnapshot)
	le.PutUint64(b[208:], r.Flags)
	le.PutUint32(b[216:], r.Refs)
	r.DropProgress.Encode(b[220:])
	b[237] = r.DropLevel
	b[238] = r.Level
	le.PutUint64(b[239:], r.GenerationV2)
	copy(b[247:], r.UUID[:])
	copy(b[263:], r.ParentUUID[:])
	copy(b[279:], r.ReceivedUUID[:])
	le.PutUint64(b[295:], r.Ctransid)
	le.PutUint64(b[303:], r.Otransid)
	le.PutUint64(b[311:], r.Stransid)
	le.PutUint64(b[319:], r.Rtransid)
	r.Ctime.encode(b[327:])
	r.Otime.encode(b[339:])
	r.Stime.encode(b[351:])
	r.Rtime.encode(b[363:])
}

// InodeRef is one name of an inode in a directory: key (ino, INODE_REF, dir); several may share an
// item.
type InodeRef struct {
	Index uint64
	Name  string
}

// InodeRefs reads all names in an INODE_REF item.
func InodeRefs(b []byte) ([]InodeRef, error) {
	var refs []InodeRef
	for p := 0; p < len(b); {
		if p+InodeRefSize > len(b) {
			return nil, fmt.Errorf("bad inode ref, %d bytes left at %d", len(b)-p, p)
		}
		v := InodeRefView(b[p:])
		if v.Size() > len(v) {
			return nil, fmt.Errorf("bad inode ref name length, have %d at %d of %d", v.NameLen(), p, len(b))
		}
		refs = append(refs, InodeRef{v.Index(), string(v.Name())})
		p += v.Size()
	}
	return refs, nil
}

// Size is the encoded size in bytes.
func (r InodeRef) Size() int { return InodeRefSize + len(r.Name) }

// Encode writes Size bytes.
func (r InodeRef) Encode(b []byte) {
	le.PutUint64(b, r.Index)
	le.PutUint16(b[8:], uint16(len(r.Name)))
	copy(b[InodeRefSize:], r.Name)
}

// InodeExtref is a name whose INODE_REF item had no room: key (ino, INODE_EXTREF, ExtrefHash).
type InodeExtref struct {
	Parent uint64
	Index  uint64
	Name   string
}

// InodeExtrefs reads all names in an INODE_EXTREF item.
func InodeExtrefs(b []byte) ([]InodeExtref, error) {
	var refs []InodeExtref
	for p := 0; p < len(b); {
		if p+InodeExtrefSize > len(b) {
			return nil, fmt.Errorf("bad inode extref, %d bytes left at %d", len(b)-p, p)
		}
		v := InodeExtrefView(b[p:])
		if v.Size() > len(v) {
			return nil, fmt.Errorf("bad inode extref name length, have %d at %d of %d", v.NameLen(), p, len(b))
		}
		refs = append(refs, InodeExtref{v.Parent(), v.Index(), string(v.Name())})
		p += v.Size()
	}
	return refs, nil
}

// Size is the encoded size in bytes.
func (r InodeExtref) Size() int { return InodeExtrefSize + len(r.Name) }

// Encode writes Size bytes.
func (r InodeExtref) Encode(b []byte) {
	le.PutUint64(b, r.Parent)
	le.PutUint64(b[8:], r.Index)
	le.PutUint16(b[16:], uint16(len(r.Name)))
	copy(b[InodeExtrefSize:], r.Name)
}

// File types in directory entries.
const (
	FtUnknown = 0
	FtRegFile = 1
	FtDir     = 2
	FtChrdev  = 3
	FtBlkdev  = 4
	FtFifo    = 5
	FtSock    = 6
	FtSymlink = 7
	FtXattr   = 8
)

// Mode bits.
const (
	S_IFMT   = 0o170000
	S_IFSOCK = 0o140000
	S_IFLNK  = 0o120000
	S_IFREG  = 0o100000
	S_IFBLK  = 0o060000
	S_IFDIR  = 0o040000
	S_IFCHR  = 0o020000
	S_IFIFO  = 0o010000

	S_ISUID = 0o4000
	S_ISGID = 0o2000
	S_IXGRP = 0o0010
)

// DirLogEnd is the last index of the range that a DIR_LOG_INDEX item of a log tree covers; the
// first is the offset of its key.
func DirLogEnd(b []byte) (uint64, error) {
	if len(b) != 8 {
		return 0, fmt.Errorf("bad dir log item size, have %d want 8", len(b))
	}
	return le.Uint64(b), nil
}

// DirLogItem is a DIR_LOG_INDEX item whose range ends with index last.
func DirLogItem(last uint64) []byte { return le.AppendUint64(nil, last) }

// FtOf is the directory-entry type of a mode.
func FtOf(mode uint32) uint8 {
	switch mode & S_IFMT {
	case S_IFREG:
		return FtRegFile
	case S_IFDIR:
		return FtDir
	case S_IFCHR:
		return FtChrdev
	case S_IFBLK:
		return FtBlkdev
	case S_IFIFO:
		return FtFifo
	case S_IFSOCK:
		return FtSock
	case S_IFLNK:
		return FtSymlink
	}
	return FtUnknown
}

// DirItem is a directory entry (DIR_ITEM, DIR_INDEX) or an extended attribute (XATTR_ITEM, with
// Data).
type DirItem struct {
	Location Key // the inode's (ino, INODE_ITEM, 0), or a subvolume's (root, ROOT_ITEM, -1)
	Transid  uint64
	Type     uint8
	Name     string
	Data     []byte // extended attributes only
}

// DirItems reads all entries of an item: names whose hashes collide share one.
func DirItems(b []byte) ([]DirItem, error) {
	var items []DirItem
	for p := 0; p < len(b); {
		if p+DirItemSize > len(b) {
			return nil, fmt.Errorf("bad dir item, %d bytes left at %d", len(b)-p, p)
		}
		v := DirItemView(b[p:])
		if v.Size() > len(v) {
			return nil, fmt.Errorf("bad dir item lengths, have name %d data %d at %d of %d", v.NameLen(), v.DataLen(), p, len(b))
		}
		d := DirItem{Location: v.Location(), Transid: v.Transid(), Type: v.Type(), Name: string(v.Name())}
		if v.DataLen() > 0 {
			d.Data = append([]byte(nil), v.Data()...)
		}
		items = append(items, d)
		p += v.Size()
	}
	return items, nil
}

// Size is the encoded size in bytes.
func (d *DirItem) Size() int { return DirItemSize + len(d.Name) + len(d.Data) }

// Encode writes Size bytes.
func (d *DirItem) Encode(b []byte) {
	d.Location.Encode(b)
	le.PutUint64(b[17:], d.Transid)
	le.PutUint16(b[25:], uint16(len(d.Data)))
	le.PutUint16(b[27:], uint16(len(d.Name)))
	b[29] = d.Type
	copy(b[DirItemSize:], d.Name)
	copy(b[DirItemSize+len(d.Name):], d.Data)
}

// File extent types and compression.
const (
	FileExtentTypeInline   = 0
	FileExtentTypeReg      = 1
	FileExtentTypePrealloc = 2

	CompressNone = 0
	CompressZlib = 1
	CompressLZO  = 2
	CompressZstd = 3
)

// FileExtent is an EXTENT_DATA item: part of a file, inline, on disk, preallocated, or a hole
// (DiskBytenr 0).
type FileExtent struct {
	Generation    uint64
	RAMBytes      uint64 // uncompressed size of the whole extent
	Compression   uint8
	Encryption    uint8
	OtherEncoding uint16
	Type          uint8
	Inline        []byte // the data of an inline extent, compressed as Compression says
	DiskBytenr    uint64 // logical address of the whole extent; 0 is a hole
	DiskNumBytes  uint64
	Offset        uint64 // where this item starts inside the (uncompressed) extent
	NumBytes      uint64 // length in the file
}

// Size is the encoded size in bytes.
func (f *FileExtent) Size() int {
	if f.Type == FileExtentTypeInline {
		return FileExtentInline + len(f.Inline)
	}
	return FileExtentSize
}

// Decode reads the item, all of b. Inline is a window into b.
func (f *FileExtent) Decode(b []byte) {
	v := FileExtentView(b)
	*f = FileExtent{Generation: v.Generation(), RAMBytes: v.RAMBytes(), Compression: v.Compression(),
		Encryption: v.Encryption(), OtherEncoding: v.OtherEncoding(), Type: v.Type()}
	if f.Type == FileExtentTypeInline {
		f.Inline = v.Inline()
		return
	}
	f.DiskBytenr = v.DiskBytenr()
	f.DiskNumBytes = v.DiskNumBytes()
	f.Offset = v.Offset()
	f.NumBytes = v.NumBytes()
}

// Encode writes Size bytes.
func (f *FileExtent) Encode(b []byte) {
	v := FileExtentView(b)
	v.SetGeneration(f.Generation)
	v.SetRAMBytes(f.RAMBytes)
	v.SetCompression(f.Compression)
	v.SetEncryption(f.Encryption)
	v.SetOtherEncoding(f.OtherEncoding)
	v.SetType(f.Type)
	if f.Type == FileExtentTypeInline {
		copy(v.Inline(), f.Inline)
		return
	}
	v.SetDiskBytenr(f.DiskBytenr)
	v.SetDiskNumBytes(f.DiskNumBytes)
	v.SetOffset(f.Offset)
	v.SetNumBytes(f.NumBytes)
}

// IsHole reports whether the item says that nothing is stored.
func (f *FileExtent) IsHole() bool { return f.Type != FileExtentTypeInline && f.DiskBytenr == 0 }

// FreeSpaceInfo heads a block group in the free space tree.
type FreeSpaceInfo struct {
	ExtentCount uint32
	Flags       uint32
}

// FreeSpaceUsingBitmaps says that the group's free space is in bitmaps, not extents.
const FreeSpaceUsingBitmaps = 1

// FreeSpaceBitmapSize is the size of a bitmap item in bytes; it covers FreeSpaceBitmapRange.
const (
	FreeSpaceBitmapSize  = 256
	FreeSpaceBitmapRange = FreeSpaceBitmapSize * 8 * SectorSize
)

// Decode reads FreeSpaceInfoSize bytes.
func (f *FreeSpaceInfo) Decode(b []byte) { f.ExtentCount, f.Flags = le.Uint32(b), le.Uint32(b[4:]) }

// Encode writes FreeSpaceInfoSize bytes.
func (f *FreeSpaceInfo) Encode(b []byte) {
	le.PutUint32(b, f.ExtentCount)
	le.PutUint32(b[4:], f.Flags)
}

// RootRef is a ROOT_REF or ROOT_BACKREF: where a subvolume is linked.
type RootRef struct {
	Dirid    uint64
	Sequence uint64
	Name     string
}

// Decode reads the item, all of b.
func (r *RootRef) Decode(b []byte) {
	r.Dirid, r.Sequence = le.Uint64(b), le.Uint64(b[8:])
	r.Name = string(RootRefView(b).Name())
}

// Encode writes RootRefSize bytes and the name.
func (r *RootRef) Encode(b []byte) {
	le.PutUint64(b, r.Dirid)
	le.PutUint64(b[8:], r.Sequence)
	le.PutUint16(b[16:], uint16(len(r.Name)))
	copy(b[RootRefSize:], r.Name)
}
