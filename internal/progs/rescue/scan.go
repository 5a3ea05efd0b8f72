package rescue

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"slices"
	"sort"

	"btrlab/internal/blockdev"
	"btrlab/internal/format"
	"btrlab/internal/progs/image"
)

var le = binary.LittleEndian

// found is a tree block that a scan has found, with a right checksum: some 100 bytes of memory for
// each block of 16 KiB.
type found struct {
	bytenr, generation, owner uint64
	first, last               format.Key
	off                       int64 // on the device
	dev                       int
	level                     uint8
}

// scanStep is how much a scan reads at once, in bytes. It is larger than a tree block.
const scanStep = 4 << 20

// scan looks for tree blocks of the file system on every device, once.
func (im *Image) scan() error {
	if im.ran {
		return nil
	}
	im.ran = true
	size := int(im.SB.NodeSize)
	id := im.SB.TreeFSID()
	err := im.sweep(func(dev int, p []byte, off int64) int {
		if len(p) < size || format.Node(p).FSID() != id {
			return format.SectorSize
		}
		n := format.Node(p[:size])
		if !sane(n) || format.SuperMagic(p) == format.Magic || !im.SB.CsumType.BlockMatch(n) {
			return format.SectorSize // a superblock has the header of a tree block of 4096 bytes
		}
		im.found = append(im.found, foundOf(n, dev, off))
		return size
	})
	im.index()
	if newest := im.newestRoot(); im.supers && newest > im.SB.Generation {
		im.note("a root tree of transaction %d is newer than every superblock, the newest of which is of %d: either that transaction did not end, or its superblocks are lost",
			newest, im.SB.Generation)
	}
	return err
}

// newestRoot is the generation of the newest block of the root tree that a scan has found.
func (im *Image) newestRoot() (generation uint64) {
	for i := range im.found {
		if f := &im.found[i]; f.owner == format.ROOT_TREE_OBJECTID {
			generation = max(generation, f.generation)
		}
	}
	return generation
}

func foundOf(n format.Node, dev int, off int64) found {
	f := found{bytenr: n.Bytenr(), generation: n.Generation(), owner: n.Owner(), off: off, dev: dev, level: uint8(n.Level())}
	if nr := n.Nritems(); nr > 0 {
		f.first, f.last = n.Key(0), n.Key(nr-1)
	}
	return f
}

// index sorts what was found, and drops second copies.
func (im *Image) index() {
	slices.SortStableFunc(im.found, func(a, b found) int {
		return cmp.Or(cmp.Compare(a.bytenr, b.bytenr), cmp.Compare(b.generation, a.generation))
	})
	im.found = slices.CompactFunc(im.found, func(a, b found) bool {
		return a.bytenr == b.bytenr && a.generation == b.generation && a.owner == b.owner && a.level == b.level && a.first == b.first && a.last == b.last
	})
}

// at is the block at bytenr of the generation, if a scan has found it.
func (im *Image) at(bytenr, generation uint64) *found {
	i := sort.Search(len(im.found), func(i int) bool {
		f := &im.found[i]
		return f.bytenr > bytenr || f.bytenr == bytenr && f.generation <= generation
	})
	if i < len(im.found) && im.found[i].bytenr == bytenr && im.found[i].generation == generation {
		return &im.found[i]
	}
	return nil
}

// sweep calls see with the bytes from each sector of each device on, as many as there are up to the
// end of what was read, and at least 64 KiB but at the end of a device. See returns how far to go,
// 0 to end. A place that cannot be read has zeros; holes, and what lies in a chunk of data once
// chunks are known, are left out.
func (im *Image) sweep(see func(dev int, p []byte, off int64) int) error {
	const tail = 64 << 10 // the largest tree block
	var done, total uint64
	for _, d := range im.Devs {
		total += uint64(d.Size())
	}
	buf := make([]byte, scanStep+tail)
	for i, d := range im.Devs {
		for at := int64(0); at < d.Size(); at += scanStep {
			if err := im.stop(); err != nil {
				return err
			}
			// No block begins in a hole.
			if next := blockdev.NextData(d.Device, at); next >= at+scanStep {
				next -= next % scanStep
				done += uint64(min(next, d.Size()) - at)
				at = next - scanStep
				continue
			}
			done += uint64(min(scanStep, d.Size()-at))
			if im.data(d, uint64(at), scanStep+tail) {
				continue
			}
			p := buf[:min(scanStep+tail, d.Size()-at)]
			if blockdev.Read(im.Task, d, p, at) != nil {
				im.readPieces(d, p, at)
			}
			for in := 0; in < min(len(p), scanStep); {
				step := see(i, p[in:], at+int64(in))
				if step == 0 {
					return nil
				}
				in += step
			}
			if im.o.Progress != nil {
				im.o.Progress(done, total)
			}
		}
	}
	return nil
}

// data reports whether a range of a device lies in a stripe of a chunk that has data only.
func (im *Image) data(d *image.Device, off, length uint64) bool {
	for i := range im.Chunks {
		ch := &im.Chunks[i]
		if ch.Type&format.BlockGroupTypeMask != format.BlockGroupData {
			continue
		}
		for _, s := range ch.Stripes {
			if s.Dev == d && s.Off <= off && off+length <= s.Off+ch.StripeBytes() {
				return true
			}
		}
	}
	return false
}

// readPieces reads what can be read of p, and zeros for the rest.
func (im *Image) readPieces(d *image.Device, p []byte, at int64) {
	for in := 0; in < len(p); in += format.SectorSize {
		q := p[in:min(in+format.SectorSize, len(p))]
		if blockdev.Read(im.Task, d, q, at+int64(in)) != nil {
			clear(q)
		}
	}
}

// guess finds node size, checksum and identifier without a superblock: those of most tree blocks of
// the first devices' metadata.
func (im *Image) guess() error {
	type shape struct {
		fsid format.UUID
		size uint32
		csum format.CsumType
	}
	votes := map[shape]int{}
	var best shape
	const flags = format.HeaderFlagWritten | format.MixedBackrefRev<<format.BackrefRevShift
	err := im.sweep(func(_ int, p []byte, _ int64) int {
		if votes[best] >= 16 { // enough of a kind
			return 0
		}
		if len(p) < format.SectorSize || format.SuperMagic(p) == format.Magic || le.Uint64(p[56:])&^format.HeaderFlagReloc != flags || p[100] >= format.MaxLevel {
			return format.SectorSize
		}
		for size := uint32(format.SectorSize); size <= 64<<10 && int(size) <= len(p); size *= 2 {
			for csum := format.CsumType(0); csum.Known(); csum++ {
				if n := format.Node(p[:size]); csum.BlockMatch(n) && sane(n) {
					s := shape{n.FSID(), size, csum}
					if votes[s]++; votes[s] > votes[best] {
						best = s
					}
					return int(size)
				}
			}
		}
		return format.SectorSize
	})
	if err != nil {
		return err
	}
	if votes[best] == 0 {
		return fmt.Errorf("%s: no superblock and no tree block of a btrfs", im.Devs[0].Name())
	}
	im.SB = format.Super{FSID: best.fsid, NodeSize: best.size, SectorSize: format.SectorSize, CsumType: best.csum, NumDevices: uint64(len(im.Devs))}
	return nil
}

// TreeFound is a tree as a scan sees it.
type TreeFound struct {
	ID          uint64
	Blocks      int
	Newest      uint64 // generation
	Root        uint64 // address of the newest block of the highest level
	Level       int
	InRootTree  bool
	Subvolume   bool
	Generations []uint64 // of the blocks that have been its root, newest first, at most 8
}

// Trees scans the devices and lists the trees, by number.
func (im *Image) Trees() ([]TreeFound, error) {
	if err := im.scan(); err != nil {
		return nil, err
	}
	byID := map[uint64]*TreeFound{}
	for _, f := range im.found {
		if im.o.Generation != 0 && f.generation > im.o.Generation {
			continue
		}
		t := byID[f.owner]
		if t == nil {
			t = &TreeFound{ID: f.owner, Subvolume: format.IsFSTree(f.owner)}
			byID[f.owner] = t
		}
		t.Blocks++
		t.Newest = max(t.Newest, f.generation)
	}
	var list []TreeFound
	for id, t := range byID {
		for i, r := range im.rootsOf(id, im.o.Generation) {
			if i == 0 {
				t.Root, t.Level = r.Bytenr, r.Level
			}
			if len(t.Generations) < 8 && !slices.Contains(t.Generations, r.Generation) {
				t.Generations = append(t.Generations, r.Generation)
			}
		}
		switch id {
		case format.ROOT_TREE_OBJECTID, format.CHUNK_TREE_OBJECTID:
			t.InRootTree = true
		default:
			_, t.InRootTree = im.item(id)
		}
		list = append(list, *t)
	}
	slices.SortFunc(list, func(a, b TreeFound) int { return cmp.Compare(a.ID, b.ID) })
	return list, nil
}

// rootsOf lists the blocks of a tree's highest level, newest first: each has been its root. Limit,
// if not 0, is the newest generation.
func (im *Image) rootsOf(id, limit uint64) (list []image.Ref) {
	top := uint8(0)
	for i := range im.found {
		if f := &im.found[i]; f.owner == id && (limit == 0 || f.generation <= limit) {
			if f.level > top {
				top, list = f.level, nil
			}
			if f.level == top {
				list = append(list, refOf(id, f.bytenr, f.generation, f.level))
			}
		}
	}
	slices.SortStableFunc(list, func(a, b image.Ref) int { return cmp.Compare(b.Generation, a.Generation) })
	return list
}
