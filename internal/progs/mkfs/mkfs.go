// Package mkfs makes a btrfs, on one device or several, by writing its blocks directly: an empty
// one, or one with a tree of files.
//
// The whole file system is one transaction of generation 1. Nothing is changed after it has been
// written, so no engine is needed: every tree is packed from the bottom, in key order, into full
// leaves (pack.go).
//
//	Build -> plan     numbers subvolumes and inodes                                  load.go
//	      -> wipe     what was there
//	      -> load     the subvolumes' trees and the checksums, with file data        load.go
//	         <- feed  workers read, checksum and compress                            feed.go
//	      -> describe chunks, blocks and trees, these trees themselves as well       trees.go
//	      -> write    flush, superblock copies, the primary last, flush
//
// A device that dies in between holds no file system, or the new one.
//
// Model: mkfs.btrfs (btrfs-progs mkfs/main.c, mkfs/rootdir.c) for chunk sizes and what is in each
// tree. Differences: one transaction instead of six, so no temporary chunks and no left-over free
// space records of them; SYSTEM, METADATA and DATA chunks lie one after the other from 1 MiB on,
// logical equal to physical of the first stripe where profiles allow.
package mkfs

import (
	"cmp"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"btrlab/internal/blockdev"
	"btrlab/internal/compress"
	"btrlab/internal/format"
	"btrlab/internal/sched"
)

// MinSize is the smallest device that Make takes, in bytes. mkfs.btrfs asks for the same with
// single metadata, and for 109 MiB with DUP, where this package makes smaller metadata chunks
// instead.
const MinSize = 45 << 20

const (
	wipeBytes  = 2 << 20 // at both ends of the device
	generation = 1
	incompat   = format.IncompatMixedBackref | format.IncompatExtendedIref
	compatRO   = format.CompatROFreeSpaceTree | format.CompatROFreeSpaceTreeValid
)

// Options say what to make; the zero value is mkfs.btrfs's default with random UUIDs.
type Options struct {
	Label string // at most 255 bytes, no newline
	// MetadataProfile and DataProfile are names of format.Profiles. SYSTEM chunks follow
	// MetadataProfile. The defaults are dup, or raid1 on several devices, and single.
	MetadataProfile, DataProfile string

	Devices []blockdev.Device // the others of a file system on several
	Size    int64             // bytes to use of each device; 0 is the whole device
	Force   bool              // overwrite a file system that is there
	Csum    format.CsumType   // of tree blocks, superblocks and data
	// NodeSize is the bytes of a tree block, a power of two from 4096 to 65536; 0 is 16384.
	NodeSize int
	// BlockGroupTree puts the block groups into a tree of their own, as mkfs.btrfs does since 6.19;
	// Linux reads and writes it since 6.1.
	BlockGroupTree bool
	// Mixed makes block groups that hold data and metadata, for small devices: the size of a tree
	// block is that of a sector, and both have one profile.
	Mixed bool
	// LongExtents gives tree blocks EXTENT_ITEMs, as before skinny metadata.
	LongExtents bool
	// Holes gives the holes of files items, as before no-holes.
	Holes bool

	// Quota and SimpleQuota say that quotas are wanted. Make and Build leave them to the caller,
	// who turns them on in the file system that is made.
	Quota, SimpleQuota bool

	// Identifiers; a zero one is made up, out of FSID if that is given. With FSID and Now given the
	// image is the same every time.
	FSID          format.UUID
	DevUUID       format.UUID
	ChunkTreeUUID format.UUID
	SubvolUUID    format.UUID // of the top-level subvolume

	Now time.Time // of the root directory and the trees; zero is the time of the call

	// Of a tree that is given to Build:

	Open     func() Opener   // opens its contents; nil when it has none. Called for each worker
	Compress compress.Method // of the data of files
	// Shrink makes the file system as small as the tree, with some room in the metadata. It is for
	// one device, with metadata that is dup or single and data that is single. Tree blocks are kept
	// in memory meanwhile, about 500 bytes for each file.
	Shrink bool
	// Next, if set, is called before each inode; its error ends Build.
	Next func(e *Entry) error
	// Stop, if set, is asked before each 128 KiB of data; its error ends Build.
	Stop func() error
	// LeaveOut, if set, is told of an extended attribute that no leaf has room for.
	LeaveOut func(e *Entry, err error)
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
	{"mixed-bg", func(o *Options, on bool) bool { o.Mixed = on; return true }},
	{"skinny-metadata", func(o *Options, on bool) bool { o.LongExtents = !on; return true }},
	{"no-holes", func(o *Options, on bool) bool { o.Holes = !on; return true }},
	{"quota", func(o *Options, on bool) bool { o.Quota = on; return true }},
	{"squota", func(o *Options, on bool) bool { o.SimpleQuota = on; return true }},
	{"extref", always}, {"free-space-tree", always}, {"fst", always},
}

// incompat is the incompat features of the file system, but for those that its devices bring.
func (o *Options) incompat() uint64 {
	flags := incompat | o.Compress.Incompat()
	if o.NodeSize > format.SectorSize {
		flags |= format.IncompatBigMetadata
	}
	if o.Mixed {
		flags |= format.IncompatMixedGroups
	}
	if !o.LongExtents {
		flags |= format.IncompatSkinnyMetadata
	}
	if !o.Holes {
		flags |= format.IncompatNoHoles
	}
	return flags
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

// CheckNodeSize says why tree blocks cannot have n bytes; nil if they can.
func CheckNodeSize(n int64) error {
	if n < format.SectorSize || n > nodeSizeMax || n&(n-1) != 0 {
		return fmt.Errorf("node size %d, want a power of two from %d to %d", n, format.SectorSize, nodeSizeMax)
	}
	return nil
}

// nodeSizeMax is BTRFS_MAX_METADATA_BLOCKSIZE.
const nodeSizeMax = 64 << 10

// nodeSize is the bytes of a tree block.
func (m *maker) nodeSize() uint64 { return uint64(m.o.NodeSize) }

// ExistsError says that the device holds something already and Force was not given.
type ExistsError struct {
	Device string
	Found  string // "btrfs", "ext4", ...
}

func (e *ExistsError) Error() string {
	return fmt.Sprintf("%s holds %s already; want --force to overwrite it", e.Device, e.Found)
}

type maker struct {
	o    Options
	t    *sched.Task
	devs []*target
	now  format.Timespec

	uuidsGiven         bool     // by Options.FSID
	chunks             []*chunk // ascending by logical address
	system, meta, data *chunk   // where space is taken
	nextLogical        uint64

	subvols       map[uint64]*subvol
	order         []uint64 // of subvolumes: parents first
	nextSubvol    uint64
	defaultSubvol uint64
	propIncompat  uint64 // features that the properties of inodes need

	roots             map[uint64]*tree
	blocks            []treeBlock
	extents           []dataItem // ascending
	dataOut, blockOut writer
	waiting           []writer // in chunks that float
}

// Make makes an empty file system.
func Make(t *sched.Task, dev blockdev.Device, o Options) error {
	_, err := Build(t, dev, o, nil)
	return err
}

// Build makes a file system with the tree root, nil for an empty one, and returns its size in
// bytes on dev, which is less than Options.Size with Shrink. The entries get their numbers, their
// order and their parents.
//
// Errors: *ExistsError; *NoSpaceError; *SourceError of an entry that the caller can take out of the
// tree and call again, with Force. What the device held is gone when the tree is read.
func Build(t *sched.Task, dev blockdev.Device, o Options, root *Entry) (size int64, err error) {
	m := &maker{o: o, t: t, subvols: map[uint64]*subvol{}, roots: map[uint64]*tree{},
		nextSubvol: format.FIRST_FREE_OBJECTID}
	for i, d := range append([]blockdev.Device{dev}, o.Devices...) {
		m.devs = append(m.devs, &target{Device: d, t: t, id: uint64(i + 1)})
	}
	if err := m.options(); err != nil {
		return 0, err
	}
	for _, d := range m.devs {
		if err := d.probe(o.Force); err != nil {
			return 0, err
		}
	}
	if err := m.plan(root); err != nil {
		return 0, err
	}
	for _, d := range m.devs {
		if err := d.wipe(); err != nil {
			return 0, err
		}
	}
	if err := m.layout(); err != nil {
		return 0, err
	}
	sb, err := m.trees()
	if err != nil {
		return 0, err
	}
	return int64(m.devs[0].size), m.write(sb)
}

func (m *maker) options() error {
	o, total := &m.o, uint64(0)
	for _, d := range m.devs {
		size := d.Size()
		if o.Size != 0 {
			if o.Size < 0 || o.Size > size {
				return blockdev.Errorf(d, "bad size, have %d, the device has %d bytes", o.Size, size)
			}
			size = o.Size
		}
		if size < MinSize {
			return blockdev.Errorf(d, "too small for btrfs, have %d bytes want at least %d", size, MinSize)
		}
		d.size = format.AlignDown(uint64(size), format.SectorSize)
		if total += d.size; total < d.size {
			return blockdev.Errorf(d, "too large with the devices before it: a file system has less than 16 EiB")
		}
	}
	if err := m.profiles(); err != nil {
		return err
	}
	switch {
	case o.NodeSize == 0 && o.Mixed:
		o.NodeSize = format.SectorSize
	case o.NodeSize == 0:
		o.NodeSize = format.NodeSize
	case o.Mixed && o.NodeSize != format.SectorSize:
		return fmt.Errorf("bad node size of mixed block groups, have %d want %d", o.NodeSize, format.SectorSize)
	}
	if err := CheckNodeSize(int64(o.NodeSize)); err != nil {
		return err
	}
	if o.BlockGroupTree && o.Holes {
		return errors.New("bad features, have block-group-tree without no-holes")
	}
	if !format.LabelOK(o.Label) {
		return fmt.Errorf("bad label %q, want at most 255 bytes without newline", o.Label)
	}
	m.uuidsGiven = !o.FSID.IsZero()
	for i, u := range []*format.UUID{&o.FSID, &o.DevUUID, &o.ChunkTreeUUID, &o.SubvolUUID} {
		if u.IsZero() {
			*u = m.uuid(uint64(i))
		}
	}
	for i, d := range m.devs {
		if d.uuid = o.DevUUID; i > 0 {
			d.uuid = m.uuid(deviceUUIDs + uint64(i))
		}
	}
	if o.Now.IsZero() {
		o.Now = time.Now()
	}
	m.now = format.TimespecOf(o.Now)
	return nil
}

// deviceUUIDs is the number of the first made-up identifier of another device: after all others.
const deviceUUIDs = 1 << 56

// profiles fills the profiles in and checks them.
func (m *maker) profiles() error {
	o := &m.o
	if o.Mixed && o.MetadataProfile == "" {
		o.MetadataProfile = cmp.Or(o.DataProfile, "single")
	}
	if o.MetadataProfile == "" {
		o.MetadataProfile = "dup"
		if len(m.devs) > 1 {
			o.MetadataProfile = "raid1"
		}
	}
	if o.DataProfile == "" {
		o.DataProfile = "single"
	}
	for _, p := range []struct{ what, name string }{{"metadata", o.MetadataProfile}, {"data", o.DataProfile}} {
		if err := CheckProfile(p.name, len(m.devs)); err != nil {
			return fmt.Errorf("bad %s profile, %w", p.what, err)
		}
	}
	switch {
	case o.Mixed && o.DataProfile != o.MetadataProfile:
		return fmt.Errorf("bad profiles of mixed block groups, have %s for data and %s for metadata want one", o.DataProfile, o.MetadataProfile)
	case o.Mixed && o.Shrink:
		return errors.New("bad options, have mixed block groups to shrink, want either")
	}
	if o.Shrink && (len(m.devs) > 1 || o.DataProfile != "single" || o.MetadataProfile != "dup" && o.MetadataProfile != "single") {
		return fmt.Errorf("bad profiles to shrink, have %s and %s on %d devices want single, and dup or single, on one", o.DataProfile, o.MetadataProfile, len(m.devs))
	}
	return nil
}

// uuid makes up identifier i: out of Options.FSID if that was given.
func (m *maker) uuid(i uint64) (u format.UUID) {
	if m.uuidsGiven {
		b := append(m.o.FSID[:], byte(i))
		for i >>= 8; i > 0; i >>= 8 {
			b = append(b, byte(i))
		}
		return format.MadeUUID(string(b))
	}
	rand.Read(u[:]) // does not fail
	u[6], u[8] = u[6]&0x0f|0x40, u[8]&0x3f|0x80
	return u
}

// write ends the file system: what is gathered, and then the superblock copies.
func (m *maker) write(sb *format.Super) error {
	for _, w := range []*writer{&m.dataOut, &m.blockOut} {
		if err := m.flush(w); err != nil {
			return err
		}
	}
	for i := range m.waiting {
		if err := m.putAll(&m.waiting[i]); err != nil {
			return err
		}
	}
	if err := m.sync(); err != nil {
		return err
	}
	for i := format.SuperMirrorMax - 1; i >= 0; i-- {
		for _, d := range m.devs {
			sb.DevItem = m.devItem(d)
			if err := d.putSuper(sb, format.SuperMirror(i)); err != nil {
				return err
			}
		}
	}
	return m.sync()
}
