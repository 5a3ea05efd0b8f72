package format

import (
	"fmt"
	"math/bits"
	"strings"
)

// The superblock.

// Superblock flags besides those of tree blocks, and features that nothing here supports.
const (
	superFlagsKnown = HeaderFlagWritten | HeaderFlagReloc | SuperFlagMetadump | SuperFlagMetadumpV2
	compatROKnown   = CompatROFreeSpaceTree | CompatROFreeSpaceTreeValid | CompatROVerity | CompatROBlockGroupTree
	incompatKnown   = IncompatMixedBackref | IncompatDefaultSubvol | IncompatCompressLZO | IncompatCompressZSTD |
		IncompatBigMetadata | IncompatExtendedIref | IncompatSkinnyMetadata | IncompatNoHoles |
		IncompatMetadataUUID | IncompatMixedGroups | IncompatRAID56 | IncompatRAID1C34 |
		IncompatSimpleQuota
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
	{IncompatZoned, "zoned"}, {1 << 13, "extent-tree-v2"}, {1 << 14, "raid-stripe-tree"}, {IncompatSimpleQuota, "squota"},
	{1 << 17, "remap-tree"},
}

var compatRONames = []featureBit{
	{CompatROFreeSpaceTree, "free-space-tree"}, {CompatROFreeSpaceTreeValid, "free-space-tree-valid"},
	{CompatROVerity, "verity"}, {CompatROBlockGroupTree, "block-group-tree"},
}

var superFlagNames = []featureBit{
	{SuperFlagSeeding, "seeding"}, {SuperFlagMetadump, "metadump"}, {SuperFlagMetadumpV2, "metadump-v2"}, {1 << 35, "changing-fsid"},
	{1 << 36, "changing-fsid-v2"}, {1 << 38, "changing-bg-tree"}, {1 << 39, "changing-data-csum"}, {1 << 40, "changing-meta-csum"},
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

func superErr(bytenr uint64, b Breach) error {
	return &CorruptError{Block: "superblock", Bytenr: bytenr, Slot: -1, Breach: b}
}

// badSuper makes the error of a superblock that breaks a rule.
type badSuper = func(what, have, want string) error

// CheckSuper reports the first rule that the primary superblock in b (SuperSize bytes) breaks, or
// nil. devSize is the device's size in bytes. A file system that is sound but needs a feature that
// this program does not have is an *UnsupportedError; every other error is a *CorruptError.
//
// Models fs/btrfs/disk-io.c:btrfs_validate_super() and btrfs_check_features().
func CheckSuper(b []byte, devSize int64) error { return CheckSuperAt(b, devSize, SuperOffset) }

// CheckSuperAt is CheckSuper for a superblock read from the device offset bytenr: a copy knows its
// own place.
func CheckSuperAt(b []byte, devSize int64, bytenr uint64) error {
	if len(b) < SuperSize {
		return superErr(bytenr, Breach{"bad size", dec(len(b)), dec(SuperSize)})
	}
	b = b[:SuperSize]
	bad := func(what, have, want string) error { return superErr(bytenr, Breach{what, have, want}) }
	if m := SuperMagic(b); m != Magic {
		return bad("bad magic", hexa(m), fmt.Sprintf("0x%x: not a btrfs", uint64(Magic)))
	}
	v := superView(b)
	csum := v.csumType()
	if !csum.Known() {
		return bad("bad csum type", dec(csum), "")
	}
	if !csum.BlockMatch(b) {
		have, want := csum.BlockText(b)
		return bad("bad csum", have, want)
	}
	var s Super
	s.Decode(b)
	if s.Bytenr != bytenr {
		return bad("bad bytenr", dec(s.Bytenr), dec(bytenr))
	}
	// Features first: what follows need not hold for a format we do not know.
	if err := superFeatures(&s, bad); err != nil {
		return err
	}
	if err := superSizes(v, &s, bad); err != nil {
		return err
	}
	if err := superTrees(&s, bad); err != nil {
		return err
	}
	if err := superSpace(&s, uint64(devSize), bad); err != nil {
		return err
	}
	return sysArrayErr(b, &s, bad)
}

// superFeatures refuses features that are unknown, and those that need others.
func superFeatures(s *Super, bad badSuper) error {
	if f := s.IncompatFlags &^ incompatKnown; f != 0 {
		return unsupported("incompat", incompatNames, f)
	}
	if f := s.CompatROFlags &^ compatROKnown; f != 0 {
		return unsupported("compat_ro", compatRONames, f)
	}
	if s.CompatROFlags&CompatROBlockGroupTree != 0 && (s.CompatROFlags&CompatROFreeSpaceTreeValid == 0 || s.IncompatFlags&IncompatNoHoles == 0) {
		return bad("bad features", "block-group-tree without free-space-tree-valid or no-holes", "")
	}
	if f := s.Flags &^ superFlagsKnown; f != 0 {
		return unsupported("super flags", superFlagNames, f)
	}
	if s.IncompatFlags&IncompatMixedBackref == 0 {
		return &UnsupportedError{"no mixed-backref: a file system of before 2009"}
	}
	return nil
}

// superSizes checks the sizes of blocks.
func superSizes(v superView, s *Super, bad badSuper) error {
	if ss := s.SectorSize; bits.OnesCount32(ss) != 1 || ss < 4096 || ss > 65536 {
		return bad("bad sectorsize", dec(ss), "a power of two in 4096..65536")
	} else if ss != SectorSize {
		return &UnsupportedError{fmt.Sprintf("sectorsize %d", ss)}
	}
	if ns := s.NodeSize; bits.OnesCount32(ns) != 1 || ns < s.SectorSize || ns > 65536 {
		return bad("bad nodesize", dec(ns), fmt.Sprintf("a power of two in %d..65536", s.SectorSize))
	}
	if s.IncompatFlags&IncompatMixedGroups != 0 && s.NodeSize != s.SectorSize {
		return bad("bad nodesize with mixed block groups", dec(s.NodeSize), fmt.Sprintf("the sectorsize %d", s.SectorSize))
	}
	if leaf := v.leafSize(); leaf != s.NodeSize {
		return bad("bad leafsize", dec(leaf), dec(s.NodeSize))
	}
	if bits.OnesCount32(s.StripeSize) != 1 {
		return bad("bad stripesize", dec(s.StripeSize), "a power of two")
	}
	return nil
}

// superTrees checks where the trees begin, and their generations.
func superTrees(s *Super, bad badSuper) error {
	for _, r := range [...]struct {
		name   string
		bytenr uint64
		level  uint8
		must   bool
	}{{"root", s.Root, s.RootLevel, true}, {"chunk_root", s.ChunkRoot, s.ChunkRootLevel, true}, {"log_root", s.LogRoot, s.LogRootLevel, false}} {
		if r.level >= MaxLevel {
			return bad("bad "+r.name+"_level", dec(r.level), fmt.Sprintf("at most %d", MaxLevel-1))
		}
		if r.bytenr%SectorSize != 0 || r.must && r.bytenr == 0 {
			return bad("bad "+r.name, dec(r.bytenr), fmt.Sprintf("a multiple of %d", SectorSize))
		}
	}
	if s.Generation == 0 {
		return bad("bad generation", "0", "")
	}
	if s.ChunkRootGeneration > s.Generation {
		return bad("bad chunk_root_generation", dec(s.ChunkRootGeneration), fmt.Sprintf("at most %d", s.Generation))
	}
	if s.CacheGeneration > s.Generation && s.CacheGeneration != ^uint64(0) {
		return bad("bad cache_generation", dec(s.CacheGeneration), fmt.Sprintf("at most %d", s.Generation))
	}
	return nil
}

// superSpace checks the devices and what of their bytes is in use, and the place of the default
// subvolume's name.
func superSpace(s *Super, devSize uint64, bad badSuper) error {
	if id := s.TreeFSID(); s.DevItem.FSID != id {
		return bad("bad dev_item fsid", s.DevItem.FSID.String(), id.String())
	}
	if s.NumDevices == 0 {
		return bad("bad num_devices", "0", "")
	}
	if s.DevItem.SectorSize != s.SectorSize {
		return bad("bad dev_item sector_size", dec(s.DevItem.SectorSize), dec(s.SectorSize))
	}
	if s.RootDirObjectid != ROOT_TREE_DIR_OBJECTID {
		return bad("bad root_dir_objectid", dec(s.RootDirObjectid), dec(ROOT_TREE_DIR_OBJECTID))
	}
	if min := 6 * uint64(s.NodeSize); s.BytesUsed < min || s.BytesUsed > s.TotalBytes {
		return bad("bad bytes_used", dec(s.BytesUsed), fmt.Sprintf("%d..%d", min, s.TotalBytes))
	}
	if s.TotalBytes%SectorSize != 0 {
		return bad("unaligned total_bytes", dec(s.TotalBytes), fmt.Sprintf("a multiple of %d", SectorSize))
	}
	if s.DevItem.TotalBytes > devSize {
		return bad("device is too small", fmt.Sprintf("%d bytes", devSize), dec(s.DevItem.TotalBytes))
	}
	if s.DevItem.BytesUsed > s.DevItem.TotalBytes {
		return bad("bad dev_item bytes_used", dec(s.DevItem.BytesUsed), fmt.Sprintf("at most %d", s.DevItem.TotalBytes))
	}
	return nil
}

// sysArrayErr checks the system chunks in the superblock.
func sysArrayErr(b []byte, s *Super, bad badSuper) error {
	n := superView(b).sysChunkArraySize()
	if min := KeySize + ChunkSize(1); n < min || n > SysChunkArrayMax {
		return bad("bad sys_chunk_array_size", dec(n), fmt.Sprintf("%d..%d", min, SysChunkArrayMax))
	}
	a := s.SysChunkArray
	found := false
	for p := 0; p < len(a); {
		if p+KeySize+ChunkSize(1) > len(a) {
			return bad("sys_chunk_array is cut short", fmt.Sprintf("%d bytes left at %d", len(a)-p, p), "")
		}
		key, c := DecodeKey(a[p:]), a[p+KeySize:]
		if key.Objectid != FIRST_CHUNK_TREE_OBJECTID || key.Type != CHUNK_ITEM_KEY {
			return bad("bad key in sys_chunk_array", fmt.Sprintf("%v at %d", key, p), "")
		}
		size := ChunkSize(ChunkStripes(c))
		if size > len(c) {
			return bad("sys_chunk_array is cut short", fmt.Sprintf("%d bytes left at %d", len(c), p), dec(size))
		}
		if e := chunkErr(c, key.Offset, SectorSize-1); e != (Breach{}) {
			return bad(fmt.Sprintf("sys_chunk_array logical=%d, %s", key.Offset, e.What), e.Have, e.Want)
		}
		var ch Chunk
		ch.Decode(c)
		if ch.Type&BlockGroupSystem == 0 {
			return bad(fmt.Sprintf("sys_chunk_array logical=%d, bad type", key.Offset), hexa(ch.Type), "SYSTEM (0x2)")
		}
		found = found || s.ChunkRoot >= key.Offset && s.ChunkRoot-key.Offset < ch.Length
		p += KeySize + size
	}
	if !found {
		return bad("chunk_root is in no system chunk", dec(s.ChunkRoot), "")
	}
	return nil
}
