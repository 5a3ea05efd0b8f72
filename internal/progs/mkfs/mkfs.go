// Package mkfs makes a btrfs on one device by writing its blocks directly: an empty one, or one
// with a tree of files.
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
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
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
	incompat   = format.IncompatMixedBackref | format.IncompatBigMetadata | format.IncompatExtendedIref | format.IncompatSkinnyMetadata | format.IncompatNoHoles
	compatRO   = format.CompatROFreeSpaceTree | format.CompatROFreeSpaceTreeValid
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

	// Of a tree that is given to Build:

	Open     func() Opener   // opens its contents; nil when it has none. Called for each worker
	Compress compress.Method // of the data of files
	// Shrink makes the file system as small as the tree, with some room in the metadata. Tree
	// blocks are kept in memory meanwhile, about 500 bytes for each file.
	Shrink bool
	// Next, if set, is called before each inode; its error ends Build.
	Next func(e *Entry) error
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

type maker struct {
	o    Options
	t    *sched.Task
	dev  blockdev.Device
	size uint64
	now  format.Timespec

	uuidsGiven                bool     // by Options.FSID
	profile                   uint64   // of metadata and system chunks
	chunks                    []*chunk // ascending by logical address
	system, meta, data        *chunk   // where space is taken
	nextLogical, nextPhysical uint64

	subvols       map[uint64]*subvol
	order         []uint64 // of subvolumes: parents first
	nextSubvol    uint64
	defaultSubvol uint64

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
// bytes, which is less than Options.Size with Shrink. The entries get their numbers, their order
// and their parents.
//
// Errors: *ExistsError; *NoSpaceError; *SourceError of an entry that the caller can take out of the
// tree and call again, with Force. What the device held is gone when the tree is read.
func Build(t *sched.Task, dev blockdev.Device, o Options, root *Entry) (size int64, err error) {
	m := &maker{o: o, t: t, dev: dev, subvols: map[uint64]*subvol{}, roots: map[uint64]*tree{},
		nextSubvol: format.FIRST_FREE_OBJECTID}
	if err := m.options(); err != nil {
		return 0, err
	}
	if !o.Force {
		found, err := Probe(t, dev)
		if err != nil {
			return 0, err
		}
		if found != "" {
			return 0, &ExistsError{dev.Name(), found}
		}
	}
	if err := m.plan(root); err != nil {
		return 0, err
	}
	if err := m.wipe(); err != nil {
		return 0, err
	}
	m.layout()
	sb, err := m.trees()
	if err != nil {
		return 0, err
	}
	return int64(m.size), m.write(sb)
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
	m.uuidsGiven = !o.FSID.IsZero()
	for i, u := range []*format.UUID{&o.FSID, &o.DevUUID, &o.ChunkTreeUUID, &o.SubvolUUID} {
		if u.IsZero() {
			*u = m.uuid(uint64(i))
		}
	}
	if o.Now.IsZero() {
		o.Now = time.Now()
	}
	m.now = format.TimespecOf(o.Now)
	return nil
}

// uuid makes up identifier i: out of Options.FSID if that was given.
func (m *maker) uuid(i uint64) (u format.UUID) {
	version := byte(0x40) // random
	if m.uuidsGiven {
		version = 0x80 // of the maker's own kind
		b := append(m.o.FSID[:], byte(i))
		for i >>= 8; i > 0; i >>= 8 {
			b = append(b, byte(i))
		}
		sum := sha256.Sum256(b)
		copy(u[:], sum[:])
	} else {
		rand.Read(u[:]) // does not fail
	}
	u[6], u[8] = u[6]&0x0f|version, u[8]&0x3f|0x80
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
	if err := blockdev.Flush(m.t, m.dev); err != nil {
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
		if err := m.put(p, off); err != nil {
			return err
		}
	}
	if err := blockdev.Flush(m.t, m.dev); err != nil {
		return blockdev.Errorf(m.dev, "flush: %w", err)
	}
	return nil
}

// wipe zeroes both ends of the device, where other file systems keep their signatures, and every
// place of a superblock copy, those beyond the new file system too. What is zero already is not
// written, so a sparse file stays sparse.
func (m *maker) wipe() error {
	const step = 256 << 10
	zero, buf := make([]byte, step), make([]byte, step)
	clean := func(from, to uint64) error {
		for off := from; off < to; off += step {
			p := buf[:min(step, to-off)]
			if err := blockdev.Read(m.t, m.dev, p, int64(off)); err != nil {
				return blockdev.Errorf(m.dev, "read of %d bytes at %d: %w", len(p), off, err)
			}
			if !isZero(p) {
				if err := m.put(zero[:len(p)], off); err != nil {
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
	if err := blockdev.Flush(m.t, m.dev); err != nil {
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
