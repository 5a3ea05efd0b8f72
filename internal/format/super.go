package format

import (
	"bytes"
	"iter"
	"strings"
)

// Super is the superblock. Csum is not kept: Encode computes it.
type Super struct {
	FSID                UUID
	Bytenr              uint64
	Flags               uint64
	Generation          uint64
	Root                uint64
	ChunkRoot           uint64
	LogRoot             uint64
	TotalBytes          uint64
	BytesUsed           uint64
	RootDirObjectid     uint64
	NumDevices          uint64
	SectorSize          uint32
	NodeSize            uint32
	StripeSize          uint32
	ChunkRootGeneration uint64
	CompatFlags         uint64
	CompatROFlags       uint64
	IncompatFlags       uint64
	CsumType            CsumType
	RootLevel           uint8
	ChunkRootLevel      uint8
	LogRootLevel        uint8
	DevItem             DevItem
	Label               string // at most 255 bytes
	CacheGeneration     uint64
	UUIDTreeGeneration  uint64
	MetadataUUID        UUID
	SysChunkArray       []byte // keys and chunks; at most SysChunkArrayMax
	Backups             [4]RootBackup
}

// Metadump reports whether btrfs-image restored the file system from a dump, which has no file
// data.
func (s *Super) Metadump() bool { return s.Flags&(SuperFlagMetadump|SuperFlagMetadumpV2) != 0 }

// TreeFSID is the identifier in tree blocks and device items. btrfstune -m changes the file
// system's identifier in the superblock only, and keeps the old one as metadata_uuid.
func (s *Super) TreeFSID() UUID {
	if s.IncompatFlags&IncompatMetadataUUID != 0 {
		return s.MetadataUUID
	}
	return s.FSID
}

// SysChunkArrayMax is the room for the system chunk array, in bytes.
const SysChunkArrayMax = 2048

// SysChunkArrayOffset is where the system chunk array begins in a superblock, in bytes.
const SysChunkArrayOffset = 0x32b

// SuperMirror is the device offset of superblock copy i (0 is the primary).
func SuperMirror(i int) uint64 {
	if i == 0 {
		return SuperOffset
	}
	return 16 << 10 << (12 * uint(i))
}

// SysChunks yields the chunks of the system chunk array: the key of each and its item, which is nil
// of one that is cut short, the last.
func (s *Super) SysChunks() iter.Seq2[Key, []byte] {
	return func(yield func(Key, []byte) bool) {
		for a := s.SysChunkArray; len(a) >= KeySize+ChunkSize(1); {
			k := DecodeKey(a)
			a = a[KeySize:]
			n := ChunkSize(ChunkStripes(a))
			if n > len(a) {
				yield(k, nil)
				return
			}
			if !yield(k, a[:n]) {
				return
			}
			a = a[n:]
		}
	}
}

// RootBackup is one of the four rotating copies of the root pointers: 168 bytes.
type RootBackup struct {
	TreeRoot, TreeRootGen     uint64
	ChunkRoot, ChunkRootGen   uint64
	ExtentRoot, ExtentRootGen uint64
	FSRoot, FSRootGen         uint64
	DevRoot, DevRootGen       uint64
	CsumRoot, CsumRootGen     uint64
	TotalBytes, BytesUsed     uint64
	NumDevices                uint64
	TreeRootLevel, ChunkRootLevel, ExtentRootLevel,
	FSRootLevel, DevRootLevel, CsumRootLevel uint8
}

const rootBackupSize = 168

func (r *RootBackup) words() []*uint64 {
	return []*uint64{&r.TreeRoot, &r.TreeRootGen, &r.ChunkRoot, &r.ChunkRootGen, &r.ExtentRoot, &r.ExtentRootGen,
		&r.FSRoot, &r.FSRootGen, &r.DevRoot, &r.DevRootGen, &r.CsumRoot, &r.CsumRootGen,
		&r.TotalBytes, &r.BytesUsed, &r.NumDevices}
}

func (r *RootBackup) levels() []*uint8 {
	return []*uint8{&r.TreeRootLevel, &r.ChunkRootLevel, &r.ExtentRootLevel,
		&r.FSRootLevel, &r.DevRootLevel, &r.CsumRootLevel}
}

func (r *RootBackup) decode(b []byte) {
	for i, w := range r.words() {
		*w = le.Uint64(b[i*8:])
	}
	for i, l := range r.levels() {
		*l = b[152+i] // 15 words, 4 unused
	}
}

func (r *RootBackup) encode(b []byte) {
	for i, w := range r.words() {
		le.PutUint64(b[i*8:], *w)
	}
	for i, l := range r.levels() {
		b[152+i] = *l
	}
}

// superView is the bytes of a superblock, SuperSize of them: the fields that are read before it is
// decoded, and those that Super does not keep.
type superView []byte

func (v superView) magic() uint64          { return le.Uint64(v[0x40:]) }
func (v superView) leafSize() uint32       { return le.Uint32(v[0x98:]) }
func (v superView) sysChunkArraySize() int { return int(le.Uint32(v[0xa0:])) }
func (v superView) csumType() CsumType     { return CsumType(le.Uint16(v[0xc4:])) }

// updateCsum computes and stores the checksum.
func (v superView) updateCsum() {
	sum := v.csumType().Sum(v[CsumField:SuperSize])
	copy(v, sum[:])
}

// SuperCsumOK reports whether the checksum of the superblock in b (SuperSize bytes) is right.
func SuperCsumOK(b []byte) bool { return superView(b).csumType().BlockMatch(b[:SuperSize]) }

// SuperMagic is the magic number field of the bytes.
func SuperMagic(b []byte) uint64 { return superView(b).magic() }

// DecodeSuper is the superblock in b, which has SuperSize bytes.
func DecodeSuper(b []byte) (s Super) {
	s.Decode(b)
	return s
}

// Decode reads the superblock from b, SuperSize bytes; it checks nothing.
func (s *Super) Decode(b []byte) {
	_ = b[SuperSize-1]
	copy(s.FSID[:], b[0x20:])
	s.Bytenr = le.Uint64(b[0x30:])
	s.Flags = le.Uint64(b[0x38:])
	s.Generation = le.Uint64(b[0x48:])
	s.Root = le.Uint64(b[0x50:])
	s.ChunkRoot = le.Uint64(b[0x58:])
	s.LogRoot = le.Uint64(b[0x60:])
	s.TotalBytes = le.Uint64(b[0x70:])
	s.BytesUsed = le.Uint64(b[0x78:])
	s.RootDirObjectid = le.Uint64(b[0x80:])
	s.NumDevices = le.Uint64(b[0x88:])
	s.SectorSize = le.Uint32(b[0x90:])
	s.NodeSize = le.Uint32(b[0x94:])
	s.StripeSize = le.Uint32(b[0x9c:])
	n := min(superView(b).sysChunkArraySize(), SysChunkArrayMax)
	s.ChunkRootGeneration = le.Uint64(b[0xa4:])
	s.CompatFlags = le.Uint64(b[0xac:])
	s.CompatROFlags = le.Uint64(b[0xb4:])
	s.IncompatFlags = le.Uint64(b[0xbc:])
	s.CsumType = superView(b).csumType()
	s.RootLevel = b[0xc6]
	s.ChunkRootLevel = b[0xc7]
	s.LogRootLevel = b[0xc8]
	s.DevItem.Decode(b[0xc9:])
	label := b[0x12b : 0x12b+256]
	if i := bytes.IndexByte(label, 0); i >= 0 {
		label = label[:i]
	}
	s.Label = string(label)
	s.CacheGeneration = le.Uint64(b[0x22b:])
	s.UUIDTreeGeneration = le.Uint64(b[0x233:])
	copy(s.MetadataUUID[:], b[0x23b:])
	s.SysChunkArray = append([]byte(nil), b[SysChunkArrayOffset:SysChunkArrayOffset+n]...)
	for i := range s.Backups {
		s.Backups[i].decode(b[0xb2b+i*rootBackupSize:])
	}
}

// Encode writes the superblock to b, SuperSize bytes, with its checksum.
func (s *Super) Encode(b []byte) {
	clear(b[:SuperSize])
	copy(b[0x20:], s.FSID[:])
	le.PutUint64(b[0x30:], s.Bytenr)
	le.PutUint64(b[0x38:], s.Flags)
	le.PutUint64(b[0x40:], Magic)
	le.PutUint64(b[0x48:], s.Generation)
	le.PutUint64(b[0x50:], s.Root)
	le.PutUint64(b[0x58:], s.ChunkRoot)
	le.PutUint64(b[0x60:], s.LogRoot)
	le.PutUint64(b[0x70:], s.TotalBytes)
	le.PutUint64(b[0x78:], s.BytesUsed)
	le.PutUint64(b[0x80:], s.RootDirObjectid)
	le.PutUint64(b[0x88:], s.NumDevices)
	le.PutUint32(b[0x90:], s.SectorSize)
	le.PutUint32(b[0x94:], s.NodeSize)
	le.PutUint32(b[0x98:], s.NodeSize) // leafsize
	le.PutUint32(b[0x9c:], s.StripeSize)
	le.PutUint32(b[0xa0:], uint32(len(s.SysChunkArray)))
	le.PutUint64(b[0xa4:], s.ChunkRootGeneration)
	le.PutUint64(b[0xac:], s.CompatFlags)
	le.PutUint64(b[0xb4:], s.CompatROFlags)
	le.PutUint64(b[0xbc:], s.IncompatFlags)
	le.PutUint16(b[0xc4:], uint16(s.CsumType))
	b[0xc6] = s.RootLevel
	b[0xc7] = s.ChunkRootLevel
	b[0xc8] = s.LogRootLevel
	s.DevItem.Encode(b[0xc9:])
	copy(b[0x12b:0x12b+255], s.Label)
	le.PutUint64(b[0x22b:], s.CacheGeneration)
	le.PutUint64(b[0x233:], s.UUIDTreeGeneration)
	copy(b[0x23b:], s.MetadataUUID[:])
	copy(b[SysChunkArrayOffset:SysChunkArrayOffset+SysChunkArrayMax], s.SysChunkArray)
	for i := range s.Backups {
		s.Backups[i].encode(b[0xb2b+i*rootBackupSize:])
	}
	superView(b).updateCsum()
}

// LabelOK reports whether a file system can have the label: at most 255 bytes, no newline, no NUL.
func LabelOK(label string) bool { return len(label) <= 255 && !strings.ContainsAny(label, "\n\x00") }

// SetFSID gives the file system of an encoded superblock another identifier, and mends its
// checksum. Tree blocks and device items keep the one that they have, which becomes metadata_uuid;
// with that identifier again the superblock is as before. All other bytes stay. Models btrfstune
// -m.
func SetFSID(b []byte, id UUID) {
	var s Super
	s.Decode(b)
	of, features := s.TreeFSID(), s.IncompatFlags|IncompatMetadataUUID
	if id == of {
		of, features = UUID{}, features&^IncompatMetadataUUID
	}
	copy(b[0x20:], id[:])
	copy(b[0x23b:], of[:])
	le.PutUint64(b[0xbc:], features)
	superView(b).updateCsum()
}

// SetBytenr changes the bytenr of an encoded superblock and its checksum: a copy knows where it
// lies.
func SetBytenr(b []byte, bytenr uint64) {
	le.PutUint64(b[0x30:], bytenr)
	superView(b).updateCsum()
}

// ClearLog makes an encoded superblock point at no log, and mends its checksum. All other bytes
// stay, also those that this program does not know.
func ClearLog(b []byte) {
	le.PutUint64(b[0x60:], 0)
	b[0xc8] = 0
	superView(b).updateCsum()
}

// ChangeSuper changes an encoded superblock by its fields, and mends its checksum. All other bytes
// stay, also those that this program does not know.
func ChangeSuper(b []byte, change func(s *Super)) {
	s := DecodeSuper(b)
	was, now := make([]byte, SuperSize), make([]byte, SuperSize)
	s.Encode(was)
	change(&s)
	s.Encode(now)
	for i := CsumField; i < SuperSize; i++ {
		if was[i] != now[i] {
			b[i] = now[i]
		}
	}
	superView(b).updateCsum()
}
