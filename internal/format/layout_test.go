package format

import (
	"bytes"
	"encoding/binary"
	"reflect"
	"strings"
	"testing"
)

// The items of a fixed size as the kernel's uapi/linux/btrfs_tree.h lays them out, each field after
// the one before, without gaps. Encode and Decode must both agree with that: where they agree only
// with each other, an image reads well here and nowhere else.

type inodeWire struct {
	Generation, Transid, Size, Nbytes, BlockGroup uint64
	Nlink, UID, GID, Mode                         uint32
	Rdev, Flags, Sequence                         uint64
	Reserved                                      [4]uint64
	Atime, Ctime, Mtime, Otime                    Timespec
}

type rootV1Wire struct {
	Inode                                                                    [InodeItemSize]byte
	Generation, RootDirid, Bytenr, ByteLimit, BytesUsed, LastSnapshot, Flags uint64
	Refs                                                                     uint32
	DropProgress                                                             Key
	DropLevel, Level                                                         uint8
}

type rootWire struct {
	V1                                     rootV1Wire
	GenerationV2                           uint64
	UUID, ParentUUID, ReceivedUUID         UUID
	Ctransid, Otransid, Stransid, Rtransid uint64
	Ctime, Otime, Stime, Rtime             Timespec
	Reserved                               [8]uint64
}

type devWire struct {
	Devid, TotalBytes, BytesUsed  uint64
	IOAlign, IOWidth, SectorSize  uint32
	Type, Generation, StartOffset uint64
	DevGroup                      uint32
	SeekSpeed, Bandwidth          uint8
	UUID, FSID                    UUID
}

type backupWire struct {
	TreeRoot, TreeRootGen, ChunkRoot, ChunkRootGen, ExtentRoot, ExtentRootGen, FSRoot, FSRootGen, DevRoot, DevRootGen,
	CsumRoot, CsumRootGen, TotalBytes, BytesUsed, NumDevices uint64
	Reserved                                                                                 [4]uint64
	TreeRootLevel, ChunkRootLevel, ExtentRootLevel, FSRootLevel, DevRootLevel, CsumRootLevel uint8
	Reserved2                                                                                [10]uint8
}

type superWire struct {
	Reserved0                                                             [CsumField]byte
	FSID                                                                  UUID
	Bytenr, Flags, Magic, Generation, Root, ChunkRoot, LogRoot, Reserved1 uint64
	TotalBytes, BytesUsed, RootDirObjectid, NumDevices                    uint64
	SectorSize, NodeSize, LeafSize, StripeSize, ArraySize                 uint32
	ChunkRootGeneration, CompatFlags, CompatROFlags, IncompatFlags        uint64
	CsumType                                                              CsumType
	RootLevel, ChunkRootLevel, LogRootLevel                               uint8
	Dev                                                                   devWire
	LabelBytes                                                            [256]byte
	CacheGeneration, UUIDTreeGeneration                                   uint64
	MetadataUUID                                                          UUID
	Reserved2                                                             [224]byte
	Array                                                                 [SysChunkArrayMax]byte
	Slots                                                                 [4]backupWire
	Reserved3                                                             [565]byte
}

// backupCoder gives a RootBackup the methods of a coder.
type backupCoder struct{ RootBackup }

func (b *backupCoder) Decode(p []byte) { b.decode(p) }
func (b *backupCoder) Encode(p []byte) { b.encode(p) }

// clearReserved zeroes what nobody reads, in a structure and those inside it.
func clearReserved(v reflect.Value) {
	for i := range v.NumField() {
		switch f := v.Field(i); {
		case strings.HasPrefix(v.Type().Field(i).Name, "Reserved"):
			f.SetZero()
		case f.Kind() == reflect.Struct:
			clearReserved(f)
		case f.Kind() == reflect.Array && f.Type().Elem().Kind() == reflect.Struct:
			for j := range f.Len() {
				clearReserved(f.Index(j))
			}
		}
	}
}

// sameFields compares the fields that item and wire have both; an item's structure is compared with
// the one of the same name in wire.
func sameFields(t *testing.T, item, wire reflect.Value) {
	t.Helper()
	for i := range wire.NumField() {
		name := wire.Type().Field(i).Name
		have := item.FieldByName(name)
		if !have.IsValid() {
			if w := wire.Field(i); w.Kind() == reflect.Struct && name == "V1" {
				sameFields(t, item, w)
			}
			continue
		}
		if h, w := have.Interface(), wire.Field(i).Interface(); have.Type() == wire.Field(i).Type() && !reflect.DeepEqual(h, w) {
			t.Errorf("%v.%s: have %v want %v", item.Type(), name, h, w)
		}
	}
}

func TestLayout(t *testing.T) {
	for _, c := range []struct {
		size int
		item coder
		wire any
	}{
		{InodeItemSize, new(InodeItem), new(inodeWire)},
		{RootItemSize, new(RootItem), new(rootWire)},
		{DevItemSize, new(DevItem), new(devWire)},
		{DevExtentSize, new(DevExtent), new(struct {
			ChunkTree, ChunkObjectid, ChunkOffset, Length uint64
			ChunkTreeUUID                                 UUID
		})},
		{BlockGroupItemSize, new(BlockGroupItem), new(struct{ Used, ChunkObjectid, Flags uint64 })},
		{ExtentItemSize, new(ExtentItem), new(struct{ Refs, Generation, Flags uint64 })},
		{ExtentDataRefSize, new(ExtentDataRef), new(struct {
			Root   uint64
			Ino    Ino
			Offset FileOff
			Count  uint32
		})},
		{FreeSpaceInfoSize, new(FreeSpaceInfo), new(struct{ ExtentCount, Flags uint32 })},
		{QgroupStatusSize, new(QgroupStatus), new(struct{ Version, Generation, Flags, Rescan, EnableGen uint64 })},
		{QgroupInfoSize, new(QgroupInfo), new(struct{ Generation, Rfer, RferCmpr, Excl, ExclCmpr uint64 })},
		{QgroupLimitSize, new(QgroupLimit), new(struct{ Flags, MaxRfer, MaxExcl, RsvRfer, RsvExcl uint64 })},
		{rootBackupSize, new(backupCoder), new(backupWire)},
	} {
		if n := binary.Size(c.wire); n != c.size {
			t.Errorf("%T: %d bytes, want %d", c.item, c.size, n)
			continue
		}
		b := pattern(c.size)
		if _, err := binary.Decode(b, binary.LittleEndian, c.wire); err != nil {
			t.Fatal(err)
		}
		c.item.Decode(b)
		sameFields(t, reflect.ValueOf(c.item).Elem(), reflect.ValueOf(c.wire).Elem())
		// the relic of an inode in it keeps its reserved bytes to itself
		if r, ok := c.item.(*RootItem); ok {
			r.Inode.Encode(b)
			if _, err := binary.Decode(b, binary.LittleEndian, c.wire); err != nil {
				t.Fatal(err)
			}
		}
		clearReserved(reflect.ValueOf(c.wire).Elem())
		want, err := binary.Append(nil, binary.LittleEndian, c.wire)
		if err != nil {
			t.Fatal(err)
		}
		have := make([]byte, c.size)
		c.item.Encode(have)
		if !bytes.Equal(have, want) {
			t.Errorf("%T: have % x\nwant % x", c.item, have, want)
		}
	}

	// A root item of before the second version ends after the level.
	var old, now RootItem
	b := pattern(RootItemSize)
	old.Decode(b[:RootItemV1Size])
	now.Decode(b)
	now.GenerationV2, now.UUID, now.ParentUUID, now.ReceivedUUID = 0, UUID{}, UUID{}, UUID{}
	now.Ctransid, now.Otransid, now.Stransid, now.Rtransid = 0, 0, 0, 0
	now.Ctime, now.Otime, now.Stime, now.Rtime = Timespec{}, Timespec{}, Timespec{}, Timespec{}
	if old != now || old.Level != b[RootItemV1Size-1] {
		t.Errorf("a root item of the first version: have %+v want %+v", old, now)
	}
}

// pattern is n bytes of which no eight in a row come twice.
func pattern(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(i%251 + 1)
	}
	return b
}

func TestSuperLayout(t *testing.T) {
	var wire superWire
	if n := binary.Size(&wire); n != SuperSize {
		t.Fatalf("%d bytes, want %d", n, SuperSize)
	}
	if _, err := binary.Decode(pattern(SuperSize), binary.LittleEndian, &wire); err != nil {
		t.Fatal(err)
	}
	clearReserved(reflect.ValueOf(&wire).Elem())
	// What the superblock says about itself.
	wire.Magic, wire.LeafSize, wire.CsumType, wire.ArraySize = Magic, wire.NodeSize, CsumCRC32C, 129
	clear(wire.Array[129:])
	copy(wire.LabelBytes[:], strings.Repeat("l", 255)+"\x00")
	want, err := binary.Append(nil, binary.LittleEndian, &wire)
	if err != nil {
		t.Fatal(err)
	}
	le.PutUint32(want, CRC32C(want[CsumField:]))
	var s Super
	s.Decode(want)
	sameFields(t, reflect.ValueOf(s), reflect.ValueOf(wire))
	sameFields(t, reflect.ValueOf(s.DevItem), reflect.ValueOf(wire.Dev))
	for i := range s.Backups {
		sameFields(t, reflect.ValueOf(s.Backups[i]), reflect.ValueOf(wire.Slots[i]))
	}
	if s.Label != strings.Repeat("l", 255) || !bytes.Equal(s.SysChunkArray, wire.Array[:129]) {
		t.Errorf("label %q, array % x", s.Label, s.SysChunkArray)
	}
	have := make([]byte, SuperSize)
	s.Encode(have)
	for i := range have {
		if have[i] != want[i] {
			t.Fatalf("byte 0x%x: have 0x%x want 0x%x", i, have[i], want[i])
		}
	}
}
