// Package mkfs makes an empty btrfs on one device by writing its blocks directly.
//
// The whole file system is one transaction of generation 1: a leaf for every tree, placed at the
// start of its block group. Writes go out as a commit does: wipe what was there, flush, blocks,
// flush, superblock copies, the primary last, flush. A device that dies in between holds no file
// system, or the new one.
//
// Model: mkfs.btrfs (btrfs-progs mkfs/main.c) for chunk sizes and what is in each tree.
// Differences: one transaction instead of six, so no temporary chunks and no left-over free space
// records of them; SYSTEM, METADATA and DATA chunks lie one after the other from 1 MiB on, logical
// equal to physical of the first stripe where profiles allow.
package mkfs

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
	"time"

	"btrlab/internal/blockdev"
	"btrlab/internal/format"
	"btrlab/internal/sched"
)

// MinSize is the smallest device that Make takes, in bytes. mkfs.btrfs asks for the same with
// single metadata, and for 109 MiB with DUP, where this package makes smaller metadata chunks
// instead.
const MinSize = 45 << 20

// Sizes of the first chunks, in bytes, as mkfs.btrfs makes them.
const (
	dupThreshold   = 109 << 20 // smallest device on which mkfs.btrfs makes DUP metadata
	dataChunk      = 8 << 20
	systemSingle   = 4 << 20
	systemDup      = 8 << 20
	metadataSingle = 8 << 20
	metadataDupMin = 32 << 20
	metadataMax    = 256 << 20
	metadataMaxBig = 1 << 30 // from bigDevice on
	bigDevice      = 50 << 30
	wipeBytes      = 2 << 20 // at both ends of the device
	generation     = 1
	incompat       = format.IncompatMixedBackref | format.IncompatBigMetadata | format.IncompatExtendedIref | format.IncompatSkinnyMetadata | format.IncompatNoHoles
	compatRO       = format.CompatROFreeSpaceTree | format.CompatROFreeSpaceTreeValid
)

// Options say what to make; the zero value is mkfs.btrfs's default with random UUIDs.
type Options struct {
	Label           string // at most 255 bytes, no newline
	MetadataProfile string // "dup" (default) or "single"; SYSTEM chunks follow it
	Size            int64  // bytes to use; 0 is the whole device
	Force           bool   // overwrite a file system that is there
	// BlockGroupTree puts the block groups into a tree of their own, as mkfs.btrfs does since 6.19;
	// Linux reads and writes it since 6.1.
	BlockGroupTree bool

	// Identifiers; a zero one is made up, out of FSID if that is given. With FSID and Now given the
	// image is the same every time.
	FSID          format.UUID
	DevUUID       format.UUID
	ChunkTreeUUID format.UUID
	SubvolUUID    format.UUID // of the top-level subvolume

	Now time.Time // of the root directory and the trees; zero is the time of the call
}

// feature is a name of mkfs.btrfs -O.
type feature struct {
	name string
	set  func(o *Options, on bool) bool // false: this way is not to be had
}

// always is a feature that every image has.
func always(_ *Options, on bool) bool { return on }

var features = []feature{
	{"block-group-tree", func(o *Options, on bool) bool { o.BlockGroupTree = on; return true }},
	{"bgt", func(o *Options, on bool) bool { o.BlockGroupTree = on; return true }},
	{"extref", always}, {"skinny-metadata", always}, {"no-holes", always}, {"free-space-tree", always}, {"fst", always},
}

// Features are the names that SetFeatures takes.
func Features() (names []string) {
	for _, f := range features {
		names = append(names, f.name)
	}
	return names
}

// SetFeatures turns features on by their names, and off with a ^ before the name, as mkfs.btrfs -O.
func (o *Options) SetFeatures(names []string) error {
	for _, name := range names {
		short, off := strings.CutPrefix(name, "^")
		i := slices.IndexFunc(features, func(f feature) bool { return f.name == short })
		switch {
		case i < 0:
			return fmt.Errorf("feature %q, want one of: %s", short, strings.Join(Features(), ", "))
		case !features[i].set(o, !off):
			return fmt.Errorf("feature %q: images without %s are not made here", name, short)
		}
	}
	return nil
}

// ExistsError says that the device holds something already and Force was not given.
type ExistsError struct {
	Device string
	Found  string // "btrfs", "ext4", ...
}

func (e *ExistsError) Error() string {
	return fmt.Sprintf("%s holds %s already; want --force to overwrite it", e.Device, e.Found)
}

// chunk is a chunk to be, with its place.
type chunk struct {
	logical uint64
	c       format.Chunk
	used    uint64 // bytes, from the start on
}

type maker struct {
	o      Options
	dev    blockdev.Device
	size   uint64
	now    format.Timespec
	system *chunk
	meta   *chunk
	data   *chunk
	chunks []*chunk // ascending
	blocks []block
}

type block struct {
	in *chunk
	n  format.Node
}

// Make makes the file system.
func Make(t *sched.Task, dev blockdev.Device, o Options) error {
	m := &maker{o: o, dev: dev}
	if err := m.options(); err != nil {
		return err
	}
	if !o.Force {
		found, err := Probe(t, dev)
		if err != nil {
			return err
		}
		if found != "" {
			return &ExistsError{dev.Name(), found}
		}
	}
	if err := m.layout(); err != nil {
		return err
	}
	sb := m.trees()
	return m.write(t, sb)
}

func (m *maker) options() error {
	o := &m.o
	size := m.dev.Size()
	if o.Size != 0 {
		if o.Size < 0 || o.Size > size {
			return blockdev.Errorf(m.dev, "bad size, have %d, the device has %d bytes", o.Size, size)
		}
		size = o.Size
	}
	if size < MinSize {
		return blockdev.Errorf(m.dev, "too small for btrfs, have %d bytes want at least %d", size, MinSize)
	}
	m.size = format.AlignDown(uint64(size), format.SectorSize)
	switch o.MetadataProfile {
	case "":
		o.MetadataProfile = "dup"
	case "dup", "single":
	default:
		return fmt.Errorf("bad metadata profile, have %q want dup or single", o.MetadataProfile)
	}
	if len(o.Label) > 255 || strings.ContainsAny(o.Label, "\n\x00") {
		return fmt.Errorf("bad label %q, want at most 255 bytes without newline", o.Label)
	}
	given := !o.FSID.IsZero()
	for i, u := range []*format.UUID{&o.FSID, &o.DevUUID, &o.ChunkTreeUUID, &o.SubvolUUID} {
		version := byte(0x40) // random
		switch {
		case !u.IsZero():
			continue
		case given:
			version = 0x80 // of the maker's own kind
			sum := sha256.Sum256(append(o.FSID[:], byte(i)))
			copy(u[:], sum[:])
		default:
			rand.Read(u[:]) // does not fail
		}
		u[6], u[8] = u[6]&0x0f|version, u[8]&0x3f|0x80
	}
	if o.Now.IsZero() {
		o.Now = time.Now()
	}
	m.now = format.TimespecOf(o.Now)
	return nil
}

// layout places the three chunks from 1 MiB on.
func (m *maker) layout() error {
	sys, meta := uint64(systemSingle), uint64(metadataSingle)
	profile := uint64(0)
	if m.o.MetadataProfile == "dup" {
		profile = format.BlockGroupDup
		sys, meta = systemDup, metadataDupMin
		if m.size < dupThreshold {
			sys, meta = systemSingle, metadataSingle
		} else if tenth := m.size / 10 / 2; tenth > meta {
			limit := uint64(metadataMax)
			if m.size > bigDevice {
				limit = metadataMaxBig
			}
			meta = min(format.AlignDown(tenth, format.StripeLen), limit)
		}
	}
	logical, physical := uint64(format.BlockReserved), uint64(format.BlockReserved)
	place := func(typ, length uint64) *chunk {
		c := &chunk{logical: logical, c: format.Chunk{Length: length, Owner: format.EXTENT_TREE_OBJECTID, StripeLen: format.StripeLen,
			Type: typ, IOAlign: format.StripeLen, IOWidth: format.StripeLen, SectorSize: format.SectorSize, SubStripes: 1}}
		n := 1
		if typ&format.BlockGroupDup != 0 {
			n = 2
		}
		for range n {
			c.c.Stripes = append(c.c.Stripes, format.Stripe{Devid: 1, Offset: physical, DevUUID: m.o.DevUUID})
			physical += length
		}
		logical += length
		m.chunks = append(m.chunks, c)
		return c
	}
	m.system = place(format.BlockGroupSystem|profile, sys)
	m.meta = place(format.BlockGroupMetadata|profile, meta)
	m.data = place(format.BlockGroupData, dataChunk)
	if physical > m.size {
		panic(fmt.Sprintf("mkfs: chunks end at %d on a device of %d", physical, m.size))
	}
	return nil
}

// leaf takes the next block of c for a tree's only leaf. The few blocks at the start of SYSTEM and
// METADATA are far from every superblock copy, the first of which is at 64 MiB.
func (m *maker) leaf(c *chunk, owner uint64) *leaf {
	l := &leaf{n: make(format.Node, format.NodeSize), end: format.LeafDataSize(format.NodeSize)}
	l.n.InitHeader(m.o.FSID, m.o.ChunkTreeUUID, c.logical+c.used, generation, owner, 0)
	l.n.SetWritten(true)
	c.used += format.NodeSize
	m.blocks = append(m.blocks, block{c, l.n})
	return l
}

// leaf is a leaf under construction: items come in key order.
type leaf struct {
	n   format.Node
	end int
}

func (l *leaf) add(k format.Key, size int) []byte {
	nr := l.n.Nritems()
	l.end -= size
	l.n.SetNritems(nr + 1)
	l.n.SetKey(nr, k)
	l.n.SetItemOffset(nr, l.end)
	l.n.SetItemSize(nr, size)
	return l.n.Item(nr)
}

func (l *leaf) bytenr() uint64 { return l.n.Bytenr() }

func (m *maker) bytesUsed() uint64 {
	n := uint64(0)
	for _, c := range m.chunks {
		n += c.used
	}
	return n
}

func (m *maker) devItem() format.DevItem {
	d := format.DevItem{Devid: 1, TotalBytes: m.size, IOAlign: format.SectorSize, IOWidth: format.SectorSize,
		SectorSize: format.SectorSize, UUID: m.o.DevUUID, FSID: m.o.FSID}
	for _, c := range m.chunks {
		d.BytesUsed += c.c.Length * uint64(len(c.c.Stripes))
	}
	return d
}

// trees fills the leaves of all trees and returns the superblock.
func (m *maker) trees() *format.Super {
	chunkTree := m.leaf(m.system, format.CHUNK_TREE_OBJECTID)
	// Bytenr order is the order of the extent tree's items below.
	root := m.leaf(m.meta, format.ROOT_TREE_OBJECTID)
	byID := map[uint64]*leaf{}
	// Ascending as unsigned: the order of their ROOT_ITEMs.
	ids := []uint64{format.EXTENT_TREE_OBJECTID, format.DEV_TREE_OBJECTID, format.FS_TREE_OBJECTID, format.CSUM_TREE_OBJECTID,
		format.UUID_TREE_OBJECTID, format.FREE_SPACE_TREE_OBJECTID}
	features := uint64(compatRO)
	groupsIn := uint64(format.EXTENT_TREE_OBJECTID)
	if m.o.BlockGroupTree {
		groupsIn = format.BLOCK_GROUP_TREE_OBJECTID
		ids = append(ids, groupsIn)
		features |= format.CompatROBlockGroupTree
	}
	ids = append(ids, format.DATA_RELOC_TREE_OBJECTID)
	for _, id := range ids {
		byID[id] = m.leaf(m.meta, id)
	}
	m.fillChunkTree(chunkTree)
	m.fillRootTree(root, ids, byID)
	m.fillExtentTree(byID[format.EXTENT_TREE_OBJECTID], byID[groupsIn])
	m.fillDevTree(byID[format.DEV_TREE_OBJECTID])
	m.fillSubvol(byID[format.FS_TREE_OBJECTID])
	m.fillSubvol(byID[format.DATA_RELOC_TREE_OBJECTID])
	m.fillUUIDTree(byID[format.UUID_TREE_OBJECTID])
	m.fillFreeSpaceTree(byID[format.FREE_SPACE_TREE_OBJECTID])

	sb := &format.Super{FSID: m.o.FSID, Flags: format.HeaderFlagWritten, Generation: generation, Root: root.bytenr(),
		ChunkRoot: chunkTree.bytenr(), TotalBytes: m.size, BytesUsed: m.bytesUsed(), RootDirObjectid: format.ROOT_TREE_DIR_OBJECTID,
		NumDevices: 1, SectorSize: format.SectorSize, NodeSize: format.NodeSize, StripeSize: format.SectorSize,
		ChunkRootGeneration: generation, CompatROFlags: features, IncompatFlags: incompat, DevItem: m.devItem(), Label: m.o.Label,
		UUIDTreeGeneration: generation}
	array := make([]byte, format.KeySize+m.system.c.Size())
	format.Key{Objectid: format.FIRST_CHUNK_TREE_OBJECTID, Type: format.CHUNK_ITEM_KEY, Offset: m.system.logical}.Encode(array)
	m.system.c.Encode(array[format.KeySize:])
	sb.SysChunkArray = array
	sb.Backups[0] = format.RootBackup{TreeRoot: sb.Root, TreeRootGen: generation, ChunkRoot: sb.ChunkRoot, ChunkRootGen: generation,
		ExtentRoot: byID[format.EXTENT_TREE_OBJECTID].bytenr(), ExtentRootGen: generation,
		FSRoot: byID[format.FS_TREE_OBJECTID].bytenr(), FSRootGen: generation,
		DevRoot: byID[format.DEV_TREE_OBJECTID].bytenr(), DevRootGen: generation,
		CsumRoot: byID[format.CSUM_TREE_OBJECTID].bytenr(), CsumRootGen: generation,
		TotalBytes: sb.TotalBytes, BytesUsed: sb.BytesUsed, NumDevices: 1}
	return sb
}

func (m *maker) fillChunkTree(l *leaf) {
	d := m.devItem()
	d.Encode(l.add(format.Key{Objectid: format.DEV_ITEMS_OBJECTID, Type: format.DEV_ITEM_KEY, Offset: 1}, format.DevItemSize))
	for _, c := range m.chunks {
		c.c.Encode(l.add(format.Key{Objectid: format.FIRST_CHUNK_TREE_OBJECTID, Type: format.CHUNK_ITEM_KEY, Offset: c.logical}, c.c.Size()))
	}
}

func (m *maker) fillRootTree(l *leaf, ids []uint64, byID map[uint64]*leaf) {
	const name = "default"
	for _, id := range ids {
		isDir := id == format.FS_TREE_OBJECTID || id == format.DATA_RELOC_TREE_OBJECTID
		if id == format.CSUM_TREE_OBJECTID { // the first after ROOT_TREE_DIR_OBJECTID
			// The directory of the root tree has one entry, "default": the subvolume a plain mount
			// shows.
			dir := m.dirInode()
			dir.Encode(l.add(format.Key{Objectid: format.ROOT_TREE_DIR_OBJECTID, Type: format.INODE_ITEM_KEY}, format.InodeItemSize))
			ref := format.InodeRef{Name: ".."}
			ref.Encode(l.add(format.Key{Objectid: format.ROOT_TREE_DIR_OBJECTID, Type: format.INODE_REF_KEY, Offset: format.ROOT_TREE_DIR_OBJECTID}, ref.Size()))
			entry := format.DirItem{Location: format.Key{Objectid: format.FS_TREE_OBJECTID, Type: format.ROOT_ITEM_KEY, Offset: ^uint64(0)},
				Type: format.FtDir, Name: name}
			entry.Encode(l.add(format.Key{Objectid: format.ROOT_TREE_DIR_OBJECTID, Type: format.DIR_ITEM_KEY, Offset: format.NameHash(name)}, entry.Size()))
		}
		if id == format.FS_TREE_OBJECTID {
			ref := format.InodeRef{Name: name}
			ref.Encode(l.add(format.Key{Objectid: id, Type: format.INODE_REF_KEY, Offset: format.ROOT_TREE_DIR_OBJECTID}, ref.Size()))
		}
		// The inode in a root item is a relic; mkfs.btrfs fills it with these.
		ri := format.RootItem{Inode: format.InodeItem{Generation: 1, Size: 3, Nlink: 1, Nbytes: format.NodeSize, Mode: format.S_IFDIR | 0o755},
			Generation: generation, Bytenr: byID[id].bytenr(), BytesUsed: format.NodeSize, Refs: 1, GenerationV2: generation}
		if isDir {
			ri.RootDirid = format.FIRST_FREE_OBJECTID
		}
		if id == format.FS_TREE_OBJECTID {
			ri.UUID, ri.Ctime, ri.Otime = m.o.SubvolUUID, m.now, m.now
		}
		ri.Encode(l.add(format.Key{Objectid: id, Type: format.ROOT_ITEM_KEY}, format.RootItemSize))
	}
}

func (m *maker) dirInode() format.InodeItem {
	return format.InodeItem{Generation: generation, Transid: generation, Nbytes: format.NodeSize, Nlink: 1, Mode: format.S_IFDIR | 0o755,
		Atime: m.now, Ctime: m.now, Mtime: m.now, Otime: m.now}
}

// fillExtentTree records every tree block, which all exist by now, and in groups the block groups.
func (m *maker) fillExtentTree(l, groups *leaf) {
	for _, c := range m.chunks {
		header := func() {
			g := format.BlockGroupItem{Used: c.used, ChunkObjectid: format.FIRST_CHUNK_TREE_OBJECTID, Flags: c.c.Type}
			g.Encode(groups.add(format.Key{Objectid: c.logical, Type: format.BLOCK_GROUP_ITEM_KEY, Offset: c.c.Length}, format.BlockGroupItemSize))
		}
		first := true
		for _, b := range m.blocks {
			if b.in != c {
				continue
			}
			p := l.add(format.Key{Objectid: b.n.Bytenr(), Type: format.METADATA_ITEM_KEY}, format.ExtentItemSize+format.InlineRefSize(format.TREE_BLOCK_REF_KEY))
			e := format.ExtentItem{Refs: 1, Generation: generation, Flags: format.ExtentFlagTreeBlock}
			e.Encode(p)
			r := format.InlineRef{Type: format.TREE_BLOCK_REF_KEY, Offset: b.n.Owner()}
			r.Encode(p[format.ExtentItemSize:])
			// METADATA_ITEM sorts before the BLOCK_GROUP_ITEM of the same address.
			if first {
				header()
				first = false
			}
		}
		if first {
			header()
		}
	}
}

func (m *maker) fillDevTree(l *leaf) {
	for _, c := range m.chunks {
		for _, s := range c.c.Stripes { // physical order is the order of chunks and stripes
			d := format.DevExtent{ChunkTree: format.CHUNK_TREE_OBJECTID, ChunkObjectid: format.FIRST_CHUNK_TREE_OBJECTID,
				ChunkOffset: c.logical, Length: c.c.Length, ChunkTreeUUID: m.o.ChunkTreeUUID}
			d.Encode(l.add(format.Key{Objectid: 1, Type: format.DEV_EXTENT_KEY, Offset: s.Offset}, format.DevExtentSize))
		}
	}
}

// fillSubvol makes an empty root directory.
func (m *maker) fillSubvol(l *leaf) {
	dir := m.dirInode()
	dir.Encode(l.add(format.Key{Objectid: format.FIRST_FREE_OBJECTID, Type: format.INODE_ITEM_KEY}, format.InodeItemSize))
	ref := format.InodeRef{Name: ".."}
	ref.Encode(l.add(format.Key{Objectid: format.FIRST_FREE_OBJECTID, Type: format.INODE_REF_KEY, Offset: format.FIRST_FREE_OBJECTID}, ref.Size()))
}

func (m *maker) fillUUIDTree(l *leaf) {
	u := m.o.SubvolUUID
	k := format.Key{Objectid: binary.LittleEndian.Uint64(u[:8]), Type: format.UUID_KEY_SUBVOL, Offset: binary.LittleEndian.Uint64(u[8:])}
	binary.LittleEndian.PutUint64(l.add(k, 8), format.FS_TREE_OBJECTID)
}

// fillFreeSpaceTree lists what no extent covers. A stripe under a superblock copy counts as free,
// as in the kernel: it is kept from allocation in memory only
// (block-group.c:exclude_super_stripes()).
func (m *maker) fillFreeSpaceTree(l *leaf) {
	for _, c := range m.chunks {
		info := format.FreeSpaceInfo{ExtentCount: 1}
		info.Encode(l.add(format.Key{Objectid: c.logical, Type: format.FREE_SPACE_INFO_KEY, Offset: c.c.Length}, format.FreeSpaceInfoSize))
		l.add(format.Key{Objectid: c.logical + c.used, Type: format.FREE_SPACE_EXTENT_KEY, Offset: c.c.Length - c.used}, 0)
	}
}

// write puts everything on the device.
func (m *maker) write(t *sched.Task, sb *format.Super) error {
	ctx := format.CheckContext{SectorSize: format.SectorSize, NodeSize: format.NodeSize, Generation: generation}
	for _, b := range m.blocks {
		b.n.UpdateCsum()
		ctx.Root = b.n.Owner()
		if err := format.CheckLeaf(b.n, ctx); err != nil {
			panic("mkfs: made a bad block: " + err.Error())
		}
	}
	if err := m.wipe(t); err != nil {
		return err
	}
	for _, b := range m.blocks {
		for _, s := range b.in.c.Stripes {
			if err := m.put(t, b.n, s.Offset+b.n.Bytenr()-b.in.logical); err != nil {
				return err
			}
		}
	}
	if err := blockdev.Flush(t, m.dev); err != nil {
		return blockdev.Errorf(m.dev, "flush: %w", err)
	}
	p := make([]byte, format.SuperSize)
	for i := format.SuperMirrorMax - 1; i >= 0; i-- {
		off := format.SuperMirror(i)
		if off+format.SuperSize > m.size {
			continue
		}
		sb.Bytenr = off
		sb.Encode(p)
		if err := format.CheckSuperAt(p, int64(m.size), off); err != nil {
			panic("mkfs: made a bad superblock: " + err.Error())
		}
		if err := m.put(t, p, off); err != nil {
			return err
		}
	}
	if err := blockdev.Flush(t, m.dev); err != nil {
		return blockdev.Errorf(m.dev, "flush: %w", err)
	}
	return nil
}

func (m *maker) put(t *sched.Task, p []byte, off uint64) error {
	if err := blockdev.Write(t, m.dev, p, int64(off)); err != nil {
		return blockdev.Errorf(m.dev, "write of %d bytes at %d: %w", len(p), off, err)
	}
	return nil
}

// wipe zeroes both ends of the device, where other file systems keep their signatures, and every
// place of a superblock copy, those beyond the new file system too. What is zero already is not
// written, so a sparse file stays sparse.
func (m *maker) wipe(t *sched.Task) error {
	const step = 256 << 10
	zero, buf := make([]byte, step), make([]byte, step)
	clean := func(from, to uint64) error {
		for off := from; off < to; off += step {
			p := buf[:min(step, to-off)]
			if err := blockdev.Read(t, m.dev, p, int64(off)); err != nil {
				return blockdev.Errorf(m.dev, "read of %d bytes at %d: %w", len(p), off, err)
			}
			if !isZero(p) {
				if err := m.put(t, zero[:len(p)], off); err != nil {
					return err
				}
			}
		}
		return nil
	}
	dev := format.AlignDown(uint64(m.dev.Size()), format.SectorSize)
	// Only the primary counts at a mount; with it gone first, nothing old is left to mistake for
	// whole.
	if err := clean(format.SuperOffset, format.SuperOffset+format.SuperSize); err != nil {
		return err
	}
	if err := blockdev.Flush(t, m.dev); err != nil {
		return blockdev.Errorf(m.dev, "flush: %w", err)
	}
	for i := 1; i < format.SuperMirrorMax; i++ {
		if off := format.SuperMirror(i); off+format.SuperSize <= dev {
			if err := clean(off, off+format.SuperSize); err != nil {
				return err
			}
		}
	}
	if err := clean(0, wipeBytes); err != nil {
		return err
	}
	return clean(dev-wipeBytes, dev)
}

func isZero(p []byte) bool {
	for len(p) >= 8 {
		if binary.LittleEndian.Uint64(p) != 0 {
			return false
		}
		p = p[8:]
	}
	for _, c := range p {
		if c != 0 {
			return false
		}
	}
	return true
}

// signatures of what a device may hold, besides btrfs.
var signatures = []struct {
	name  string
	off   int64
	magic string
}{
	{"xfs", 0, "XFSB"},
	{"LUKS", 0, "LUKS\xba\xbe"},
	{"squashfs", 0, "hsqs"},
	{"ntfs", 3, "NTFS    "},
	{"exfat", 3, "EXFAT   "},
	{"a FAT file system", 54, "FAT1"},
	{"a FAT file system", 82, "FAT32"},
	{"a partition table", 510, "\x55\xaa"},
	{"a GPT partition table", 512, "EFI PART"},
	{"LVM", 536, "LVM2 001"},
	{"erofs", 1024, "\xe2\xe1\xf5\xe0"},
	{"f2fs", 1024, "\x10\x20\xf5\xf2"},
	{"ext2, ext3 or ext4", 1080, "\x53\xef"},
	{"a Linux RAID member", 4096, "\xfc\x4e\x2b\xa9"},
	{"swap", 4086, "SWAPSPACE2"},
	{"bcachefs or bcache", 4120, "\xc6\x85\x73\xf6\x4e\x1a\x45\xca"},
	{"iso9660", 32769, "CD001"},
	{"reiserfs", 65588, "ReIsEr"},
	{"zfs", 135168, "\x0c\xb1\xba\x00"},
}

// Probe names the file system or other known content on the device; "" is none that is known.
func Probe(t *sched.Task, dev blockdev.Device) (string, error) {
	p := make([]byte, min(144<<10, dev.Size()))
	if err := blockdev.Read(t, dev, p, 0); err != nil {
		return "", blockdev.Errorf(dev, "read of %d bytes at 0: %w", len(p), err)
	}
	if len(p) >= format.SuperOffset+format.SuperSize && format.SuperMagic(p[format.SuperOffset:]) == format.Magic {
		return "a btrfs", nil
	}
	for _, s := range signatures {
		if int64(len(p)) >= s.off+int64(len(s.magic)) && string(p[s.off:s.off+int64(len(s.magic))]) == s.magic {
			return s.name, nil
		}
	}
	return "", nil
}
