package format

// Views: the fields of an item where it lies, for the tree checker, which may not decode before it
// has checked, for the codecs, and for changes in place. A view does not allocate, and each offset
// stands here once. Items of a fixed size need none: decoding one is as cheap.
//
// Preconditions: the item is as long as the field needs.

// FileExtentView is an EXTENT_DATA item.
type FileExtentView []byte

func (v FileExtentView) Generation() uint64    { return le.Uint64(v) }
func (v FileExtentView) RAMBytes() uint64      { return le.Uint64(v[8:]) }
func (v FileExtentView) Compression() uint8    { return v[16] }
func (v FileExtentView) Encryption() uint8     { return v[17] }
func (v FileExtentView) OtherEncoding() uint16 { return le.Uint16(v[18:]) }
func (v FileExtentView) Type() uint8           { return v[20] }

// Inline is the data of an inline extent. The other extents have four fields in its place.
func (v FileExtentView) Inline() []byte       { return v[FileExtentInline:] }
func (v FileExtentView) DiskBytenr() uint64   { return le.Uint64(v[21:]) }
func (v FileExtentView) DiskNumBytes() uint64 { return le.Uint64(v[29:]) }
func (v FileExtentView) Offset() uint64       { return le.Uint64(v[37:]) }
func (v FileExtentView) NumBytes() uint64     { return le.Uint64(v[45:]) }

func (v FileExtentView) SetGeneration(x uint64)    { le.PutUint64(v, x) }
func (v FileExtentView) SetRAMBytes(x uint64)      { le.PutUint64(v[8:], x) }
func (v FileExtentView) SetCompression(x uint8)    { v[16] = x }
func (v FileExtentView) SetEncryption(x uint8)     { v[17] = x }
func (v FileExtentView) SetOtherEncoding(x uint16) { le.PutUint16(v[18:], x) }
func (v FileExtentView) SetType(x uint8)           { v[20] = x }
func (v FileExtentView) SetDiskBytenr(x uint64)    { le.PutUint64(v[21:], x) }
func (v FileExtentView) SetDiskNumBytes(x uint64)  { le.PutUint64(v[29:], x) }
func (v FileExtentView) SetOffset(x uint64)        { le.PutUint64(v[37:], x) }
func (v FileExtentView) SetNumBytes(x uint64)      { le.PutUint64(v[45:], x) }

// DirItemView is one entry of a DIR_ITEM, DIR_INDEX or XATTR_ITEM, from its start on.
type DirItemView []byte

func (v DirItemView) Location() Key   { return DecodeKey(v) }
func (v DirItemView) Transid() uint64 { return le.Uint64(v[17:]) }
func (v DirItemView) DataLen() int    { return int(le.Uint16(v[25:])) }
func (v DirItemView) NameLen() int    { return int(le.Uint16(v[27:])) }
func (v DirItemView) Type() uint8     { return v[29] }

// Size is the entry's size in bytes, with name and data.
func (v DirItemView) Size() int    { return DirItemSize + v.NameLen() + v.DataLen() }
func (v DirItemView) Name() []byte { return v[DirItemSize : DirItemSize+v.NameLen()] }
func (v DirItemView) Data() []byte { return v[DirItemSize+v.NameLen() : v.Size()] }

// InodeRefView is one name of an INODE_REF, from its start on.
type InodeRefView []byte

func (v InodeRefView) Index() uint64 { return le.Uint64(v) }
func (v InodeRefView) NameLen() int  { return int(le.Uint16(v[8:])) }
func (v InodeRefView) Size() int     { return InodeRefSize + v.NameLen() }
func (v InodeRefView) Name() []byte  { return v[InodeRefSize:v.Size()] }

// InodeExtrefView is one name of an INODE_EXTREF, from its start on.
type InodeExtrefView []byte

func (v InodeExtrefView) Parent() uint64 { return le.Uint64(v) }
func (v InodeExtrefView) Index() uint64  { return le.Uint64(v[8:]) }
func (v InodeExtrefView) NameLen() int   { return int(le.Uint16(v[16:])) }
func (v InodeExtrefView) Size() int      { return InodeExtrefSize + v.NameLen() }
func (v InodeExtrefView) Name() []byte   { return v[InodeExtrefSize:v.Size()] }

// RootRefView is a ROOT_REF or ROOT_BACKREF.
type RootRefView []byte

func (v RootRefView) NameLen() int { return int(le.Uint16(v[16:])) }
func (v RootRefView) Name() []byte { return v[RootRefSize : RootRefSize+v.NameLen()] }

// ChunkView is a CHUNK_ITEM.
type ChunkView []byte

func (v ChunkView) Length() uint64     { return le.Uint64(v) }
func (v ChunkView) StripeLen() uint64  { return le.Uint64(v[16:]) }
func (v ChunkView) Type() uint64       { return le.Uint64(v[24:]) }
func (v ChunkView) SectorSize() uint32 { return le.Uint32(v[40:]) }
func (v ChunkView) NumStripes() int    { return int(le.Uint16(v[44:])) }
func (v ChunkView) SubStripes() int    { return int(le.Uint16(v[46:])) }

// StripeOffset is the physical start of stripe i.
func (v ChunkView) StripeOffset(i int) uint64 { return le.Uint64(v[ChunkHeaderSize+i*StripeSize+8:]) }
