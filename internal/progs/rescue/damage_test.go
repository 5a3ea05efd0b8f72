package rescue_test

import (
	"testing"

	"btrlab/internal/blockdev"
	"btrlab/internal/format"
	"btrlab/internal/progs/rescue"
	"btrlab/internal/sched"
)

// Damage of one kind each, to an image that was sound.

type victim struct {
	t      *testing.T
	tk     *sched.Task
	dev    blockdev.Device
	im     *rescue.Image
	blocks []rescue.Block
}

func newVictim(t *testing.T, tk *sched.Task, dev blockdev.Device) *victim {
	t.Helper()
	v := &victim{t: t, tk: tk, dev: dev}
	var err error
	if v.blocks, v.im, err = rescue.Blocks(tk, dev); err != nil {
		t.Fatal(err)
	}
	return v
}

func (v *victim) write(p []byte, off int64) {
	v.t.Helper()
	if err := blockdev.Write(v.tk, v.dev, p, off); err != nil {
		v.t.Fatal(err)
	}
}

func (v *victim) read(n int, off int64) []byte {
	v.t.Helper()
	p := make([]byte, n)
	if err := blockdev.Read(v.tk, v.dev, p, off); err != nil {
		v.t.Fatal(err)
	}
	return p
}

// wipe zeroes each copy of the blocks, and says how many that were.
func (v *victim) wipe(which func(b rescue.Block) bool) (n int) {
	v.t.Helper()
	for _, b := range v.blocks {
		if which(b) {
			v.write(make([]byte, v.im.Super().NodeSize), b.Off)
			n++
		}
	}
	if n == 0 {
		v.t.Error("nothing was wiped")
	}
	return n
}

func (v *victim) supers(n int) {
	for i := range n {
		if off := int64(format.SuperMirror(i)); off+format.SuperSize <= v.dev.Size() {
			v.write(make([]byte, format.SuperSize), off)
		}
	}
}

// root wipes the root block of a tree.
func (v *victim) root(id uint64) {
	v.t.Helper()
	bytenr, generation := v.im.Root(id)
	v.wipe(func(b rescue.Block) bool { return b.Bytenr == bytenr && b.Generation == generation })
}

// rot changes a byte of each copy of a block, whose checksum is then wrong.
func (v *victim) rot(bytenr, generation uint64, at int64) {
	for _, b := range v.blocks {
		if b.Bytenr == bytenr && b.Generation == generation {
			p := v.read(1, b.Off+at)
			p[0] ^= 0x10
			v.write(p, b.Off+at)
		}
	}
}

func inodeKey(ino uint64) format.Key { return format.Key{Objectid: ino, Type: format.INODE_ITEM_KEY} }

// kinds are the kinds of damage; hurts says that some files cannot be had whole any more.
var kinds = []struct {
	name  string
	hurts bool
	do    func(v *victim)
}{
	{"nothing", false, func(*victim) {}},
	{"the primary superblock", false, func(v *victim) { v.supers(1) }},
	{"every superblock", false, func(v *victim) { v.supers(3) }},
	{"the root of the extent tree", false, func(v *victim) { v.root(format.EXTENT_TREE_OBJECTID) }},
	{"every block of the extent tree", false, func(v *victim) {
		v.wipe(func(b rescue.Block) bool { return b.Owner == format.EXTENT_TREE_OBJECTID })
	}},
	{"the root of the checksum tree", false, func(v *victim) { v.root(format.CSUM_TREE_OBJECTID) }},
	{"every block of the checksum tree", false, func(v *victim) {
		v.wipe(func(b rescue.Block) bool { return b.Owner == format.CSUM_TREE_OBJECTID })
	}},
	{"the root of the chunk tree", false, func(v *victim) { v.root(format.CHUNK_TREE_OBJECTID) }},
	{"every block of the chunk tree", false, func(v *victim) {
		v.wipe(func(b rescue.Block) bool { return b.Owner == format.CHUNK_TREE_OBJECTID })
	}},
	{"the root of the device tree", false, func(v *victim) { v.root(format.DEV_TREE_OBJECTID) }},
	{"the root of the root tree", false, func(v *victim) { v.root(format.ROOT_TREE_OBJECTID) }},
	{"every block of the root tree", false, func(v *victim) {
		v.wipe(func(b rescue.Block) bool { return b.Owner == format.ROOT_TREE_OBJECTID })
	}},
	{"all above the leaves of the tree of files", false, func(v *victim) {
		v.wipe(func(b rescue.Block) bool { return b.Owner == format.FS_TREE_OBJECTID && b.Level > 0 })
	}},
	{"the leaf with the root directory", false, func(v *victim) {
		bytenr, generation := v.im.Leaf(format.FS_TREE_OBJECTID, inodeKey(format.FIRST_FREE_OBJECTID))
		v.wipe(func(b rescue.Block) bool { return b.Bytenr == bytenr && b.Generation == generation })
	}},
	{"a leaf in the middle, and all its older states", true, func(v *victim) {
		ino := uint64(format.FIRST_FREE_OBJECTID + 100)
		v.wipe(func(b rescue.Block) bool {
			return b.Owner == format.FS_TREE_OBJECTID && b.Level == 0 && !inodeKey(ino).Less(b.First) && !b.Last.Less(inodeKey(ino))
		})
	}},
	{"one bit of a leaf", true, func(v *victim) {
		bytenr, generation := v.im.Leaf(format.FS_TREE_OBJECTID, inodeKey(format.FIRST_FREE_OBJECTID+100))
		v.rot(bytenr, generation, int64(v.im.Super().NodeSize)-8)
	}},
	{"one copy of every tree block", false, func(v *victim) {
		seen := map[[2]uint64]bool{}
		v.wipe(func(b rescue.Block) bool {
			id := [2]uint64{b.Bytenr, b.Generation}
			first := !seen[id]
			seen[id] = true
			return first
		})
	}},
	{"4 KiB of data", true, func(v *victim) {
		off, _ := v.im.DataAt()
		for at := int64(off); ; at += format.SectorSize {
			if p := v.read(format.SectorSize, at); p[0] != 0 || p[100] != 0 {
				p[200] ^= 1
				v.write(p, at)
				return
			}
		}
	}},
	{"superblocks, chunks, roots and checksums", false, func(v *victim) {
		v.supers(3)
		v.wipe(func(b rescue.Block) bool {
			switch b.Owner {
			case format.CHUNK_TREE_OBJECTID, format.ROOT_TREE_OBJECTID, format.CSUM_TREE_OBJECTID, format.EXTENT_TREE_OBJECTID:
				return true
			}
			return false
		})
	}},
}
