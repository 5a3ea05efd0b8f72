// Package format is the on-disk format of btrfs: every structure with its byte offsets, keys, name
// hashes and checksums. It is pure: bytes in, values out, no I/O.
//
// All integers on disk are little endian. A structure has Decode(b), which reads its fields from
// the start of b, and Encode(b), which writes them; both panic when b is too short, so callers that
// read foreign images run the tree checker (CheckLeaf, CheckNode, CheckSuper) first.
//
// Models the layout in include/uapi/linux/btrfs_tree.h; offsets as in labs/reference 10.
package format

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"hash/crc32"
	"math"
	"strings"
	"time"
)

var le = binary.LittleEndian

// Sizes.
const (
	SuperSize      = 4096
	SuperOffset    = 64 << 10
	SuperMirrorMax = 3
	SectorSize     = 4096
	NodeSize       = 16384 // what mkfs makes; images may have another
	HeaderSize     = 101
	ItemHeaderSize = 25 // key, offset, size
	KeyPtrSize     = 33 // key, blockptr, generation
	KeySize        = 17
	CsumSize       = 4 // of crc32c; CsumType.Size has the others
	MaxLevel       = 8
	StripeLen      = 64 << 10
	BlockReserved  = 1 << 20 // nothing is allocated below it
	MaxNameLen     = 255
	MaxFileSize    = math.MaxInt64
	// MaxInlineData bounds inline extents that mkfs.btrfs and Linux write by default (max_inline).
	MaxInlineData = 2048
)

// Superblock magic, and the flags this package knows.
const (
	Magic = 0x4D5F53665248425F // "_BHRfS_M"

	HeaderFlagWritten = 1 << 0
	HeaderFlagReloc   = 1 << 1
	SuperFlagSeeding  = 1 << 32
	// made by btrfs-image -r: the metadata is there, file data is not
	SuperFlagMetadump          = 1 << 33
	SuperFlagMetadumpV2        = 1 << 34
	MixedBackrefRev            = 1
	BackrefRevShift            = 56
	CompatROFreeSpaceTree      = 1 << 0
	CompatROFreeSpaceTreeValid = 1 << 1
	CompatROVerity             = 1 << 2
	CompatROBlockGroupTree     = 1 << 3

	IncompatMixedBackref   = 1 << 0
	IncompatDefaultSubvol  = 1 << 1
	IncompatMixedGroups    = 1 << 2
	IncompatCompressLZO    = 1 << 3
	IncompatCompressZSTD   = 1 << 4
	IncompatBigMetadata    = 1 << 5
	IncompatExtendedIref   = 1 << 6
	IncompatRAID56         = 1 << 7
	IncompatSkinnyMetadata = 1 << 8
	IncompatNoHoles        = 1 << 9
	IncompatMetadataUUID   = 1 << 10
	IncompatRAID1C34       = 1 << 11
	IncompatZoned          = 1 << 12
	IncompatSimpleQuota    = 1 << 16
)

// Well-known object ids.
const (
	ROOT_TREE_OBJECTID        = 1
	EXTENT_TREE_OBJECTID      = 2
	CHUNK_TREE_OBJECTID       = 3
	DEV_TREE_OBJECTID         = 4
	FS_TREE_OBJECTID          = 5
	ROOT_TREE_DIR_OBJECTID    = 6
	CSUM_TREE_OBJECTID        = 7
	QUOTA_TREE_OBJECTID       = 8
	UUID_TREE_OBJECTID        = 9
	FREE_SPACE_TREE_OBJECTID  = 10
	BLOCK_GROUP_TREE_OBJECTID = 11
	DEV_STATS_OBJECTID        = 0
	ORPHAN_OBJECTID           = ^uint64(0) - 4  // -5
	TREE_LOG_OBJECTID         = ^uint64(0) - 5  // -6
	DATA_RELOC_TREE_OBJECTID  = ^uint64(0) - 8  // -9
	EXTENT_CSUM_OBJECTID      = ^uint64(0) - 9  // -10
	FREE_SPACE_OBJECTID       = ^uint64(0) - 10 // -11
	FREE_INO_OBJECTID         = ^uint64(0) - 11 // -12
	FIRST_FREE_OBJECTID       = 256
	LAST_FREE_OBJECTID        = ^uint64(0) - 255
	FIRST_CHUNK_TREE_OBJECTID = 256
	DEV_ITEMS_OBJECTID        = 1
)

// Key types.
const (
	INODE_ITEM_KEY           = 1
	INODE_REF_KEY            = 12
	INODE_EXTREF_KEY         = 13
	XATTR_ITEM_KEY           = 24
	ORPHAN_ITEM_KEY          = 48
	DIR_LOG_ITEM_KEY         = 60
	DIR_LOG_INDEX_KEY        = 72
	DIR_ITEM_KEY             = 84
	DIR_INDEX_KEY            = 96
	EXTENT_DATA_KEY          = 108
	EXTENT_CSUM_KEY          = 128
	ROOT_ITEM_KEY            = 132
	ROOT_BACKREF_KEY         = 144
	ROOT_REF_KEY             = 156
	EXTENT_ITEM_KEY          = 168
	METADATA_ITEM_KEY        = 169
	EXTENT_OWNER_REF_KEY     = 172
	TREE_BLOCK_REF_KEY       = 176
	EXTENT_DATA_REF_KEY      = 178
	SHARED_BLOCK_REF_KEY     = 182
	SHARED_DATA_REF_KEY      = 184
	BLOCK_GROUP_ITEM_KEY     = 192
	FREE_SPACE_INFO_KEY      = 198
	FREE_SPACE_EXTENT_KEY    = 199
	FREE_SPACE_BITMAP_KEY    = 200
	DEV_EXTENT_KEY           = 204
	DEV_ITEM_KEY             = 216
	CHUNK_ITEM_KEY           = 228
	QGROUP_STATUS_KEY        = 240
	QGROUP_INFO_KEY          = 242
	QGROUP_LIMIT_KEY         = 244
	QGROUP_RELATION_KEY      = 246
	TEMPORARY_ITEM_KEY       = 248
	PERSISTENT_ITEM_KEY      = 249
	UUID_KEY_SUBVOL          = 251
	UUID_KEY_RECEIVED_SUBVOL = 252
	STRING_ITEM_KEY          = 253
)

// Block group and chunk types.
const (
	BlockGroupData     = 1 << 0
	BlockGroupSystem   = 1 << 1
	BlockGroupMetadata = 1 << 2
	BlockGroupRAID0    = 1 << 3
	BlockGroupRAID1    = 1 << 4
	BlockGroupDup      = 1 << 5
	BlockGroupRAID10   = 1 << 6
	BlockGroupRAID5    = 1 << 7
	BlockGroupRAID6    = 1 << 8
	BlockGroupRAID1C3  = 1 << 9
	BlockGroupRAID1C4  = 1 << 10

	BlockGroupTypeMask    = BlockGroupData | BlockGroupSystem | BlockGroupMetadata
	BlockGroupProfileMask = BlockGroupRAID0 | BlockGroupRAID1 | BlockGroupDup | BlockGroupRAID10 |
		BlockGroupRAID5 | BlockGroupRAID6 | BlockGroupRAID1C3 | BlockGroupRAID1C4
)

// Key is the three-part key that orders every tree.
type Key struct {
	Objectid uint64
	Type     uint8
	Offset   uint64
}

// MaxKey is after every other key.
var MaxKey = Key{math.MaxUint64, math.MaxUint8, math.MaxUint64}

// Compare is negative, zero or positive as k is before, equal to or after o.
func (k Key) Compare(o Key) int {
	if k.Objectid != o.Objectid {
		return cmp.Compare(k.Objectid, o.Objectid)
	}
	if k.Type != o.Type {
		return cmp.Compare(k.Type, o.Type)
	}
	return cmp.Compare(k.Offset, o.Offset)
}

// Less reports whether k is before o.
func (k Key) Less(o Key) bool { return k.Compare(o) < 0 }

// Next is the smallest key after k.
func (k Key) Next() Key {
	if k.Offset++; k.Offset == 0 {
		if k.Type++; k.Type == 0 {
			k.Objectid++
		}
	}
	return k
}

// Prev is the largest key before k; of the smallest it is k itself.
func (k Key) Prev() Key {
	if k == (Key{}) {
		return k
	}
	if k.Offset--; k.Offset == math.MaxUint64 {
		if k.Type--; k.Type == math.MaxUint8 {
			k.Objectid--
		}
	}
	return k
}

// String gives "(257 108 4096)"; objectids from -255 on are shown negative, as the kernel does not
// but readers like.
func (k Key) String() string {
	if k.Objectid >= LAST_FREE_OBJECTID {
		return fmt.Sprintf("(%d %d %d)", int64(k.Objectid), k.Type, k.Offset)
	}
	return fmt.Sprintf("(%d %d %d)", k.Objectid, k.Type, k.Offset)
}

// DecodeKey reads a key from the first KeySize bytes of b.
func DecodeKey(b []byte) Key {
	_ = b[KeySize-1]
	return Key{le.Uint64(b), b[8], le.Uint64(b[9:])}
}

// Encode writes k to the first KeySize bytes of b.
func (k Key) Encode(b []byte) {
	_ = b[KeySize-1]
	le.PutUint64(b, k.Objectid)
	b[8] = k.Type
	le.PutUint64(b[9:], k.Offset)
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// CRC32C is the checksum of data and tree blocks: the standard CRC-32C.
func CRC32C(p []byte) uint32 { return crc32.Checksum(p, castagnoli) }

// rawCRC32C is the register without the inversions at both ends, from a seed, as the kernel's
// crc32c(). It is for names and references: a table byte by byte, because hash/crc32 would move its
// argument to the heap.
func rawCRC32C[T string | []byte](crc uint32, p T) uint32 {
	for i := range len(p) {
		crc = castagnoli[byte(crc)^p[i]] ^ crc>>8
	}
	return crc
}

// rawCRC32C64 is rawCRC32C of the eight bytes of v.
func rawCRC32C64(crc uint32, v uint64) uint32 {
	for range 8 {
		crc = castagnoli[byte(crc)^byte(v)] ^ crc>>8
		v >>= 8
	}
	return crc
}

// NameHash is the DIR_ITEM and XATTR_ITEM key offset of a name.
func NameHash(name string) uint64 { return uint64(rawCRC32C(^uint32(1), name)) }

// ExtrefHash is the INODE_EXTREF key offset of a name in the directory parent.
func ExtrefHash(parent Ino, name string) uint64 { return uint64(rawCRC32C(uint32(parent), name)) }

// UUID is a 16-byte identifier in the order its text form shows.
type UUID [16]byte

func (u UUID) String() string {
	return fmt.Sprintf("%x-%x-%x-%x-%x", u[0:4], u[4:6], u[6:8], u[8:10], u[10:16])
}

// ParseUUID reads what String writes; ok is false for anything else.
func ParseUUID(s string) (u UUID, ok bool) {
	b, err := hex.DecodeString(strings.ReplaceAll(s, "-", ""))
	if err != nil || len(b) != len(u) {
		return UUID{}, false
	}
	copy(u[:], b)
	return u, strings.EqualFold(u.String(), s)
}

// MadeUUID is an identifier that is made of a text: the same text gives the same one. Its version
// is 8, of the maker's own kind.
func MadeUUID(text string) (u UUID) {
	sum := sha256.Sum256([]byte(text))
	copy(u[:], sum[:])
	u[6], u[8] = u[6]&0x0f|0x80, u[8]&0x3f|0x80
	return u
}

// Key is where the UUID tree has u: typ is UUID_KEY_SUBVOL or UUID_KEY_RECEIVED_SUBVOL. Models
// btrfs_uuid_to_key().
func (u UUID) Key(typ uint8) Key { return Key{le.Uint64(u[:]), typ, le.Uint64(u[8:])} }

// IsZero reports whether the identifier was never set.
func (u UUID) IsZero() bool { return u == UUID{} }

// Timespec is a time on disk: 12 bytes.
type Timespec struct {
	Sec  int64
	Nsec uint32
}

// TimespecOf converts a time.
func TimespecOf(t time.Time) Timespec { return Timespec{t.Unix(), uint32(t.Nanosecond())} }

// Time converts back.
func (t Timespec) Time() time.Time { return time.Unix(t.Sec, int64(t.Nsec)) }

// Before reports whether t is earlier than u.
func (t Timespec) Before(u Timespec) bool {
	return t.Sec < u.Sec || t.Sec == u.Sec && t.Nsec < u.Nsec
}

func decodeTimespec(b []byte) Timespec { return Timespec{int64(le.Uint64(b)), le.Uint32(b[8:])} }

func (t Timespec) encode(b []byte) {
	le.PutUint64(b, uint64(t.Sec))
	le.PutUint32(b[8:], t.Nsec)
}

// AlignDown and AlignUp round x to a multiple of the power of two a.
func AlignDown[A ~uint64](x A, a uint64) A { return x &^ A(a-1) }

// AlignUp rounds up; it wraps for x within a of 2^64.
func AlignUp[A ~uint64](x A, a uint64) A { return (x + A(a-1)) &^ A(a-1) }
