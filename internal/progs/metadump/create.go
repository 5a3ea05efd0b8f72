package metadump

import (
	"errors"
	"fmt"
	"io"

	"btrlab/internal/blockdev"
	"btrlab/internal/format"
	"btrlab/internal/progs/image"
)

// CreateOptions are those of Create.
type CreateOptions struct {
	Level int // of zlib, 1 to 9; 0 is without
	Names Names
	Seed  [32]byte // what new names are made of
	// Walk takes the blocks that the trees reach only, and not those that the extent tree lists as
	// well.
	Walk bool
	// Note, if set, is called with each block that is left out and each leaf that loses its items.
	Note func(text string)
	// Progress and Stop, if set, are called now and then: with the bytes that are read, and to ask
	// whether to end with an error.
	Progress func(done, total uint64)
	Stop     func() error
}

// Created is what a dump has.
type Created struct {
	Blocks  int   // tree blocks
	Bytes   int64 // of the dump
	Left    int   // blocks that are not whole on any device, and are left out
	Headers int   // blocks with items outside of them, of which it has the header
	Kept    int   // names of four bytes or less, which CollidingNames leaves
	Unalike int   // names whose new ones have another hash in spite of CollidingNames
}

// creator is one run of Create.
type creator struct {
	*image.Image
	o     CreateOptions
	w     writer
	names *namer
	sum   Created
	seen  map[uint64]bool // blocks that are in the dump, or left out
	gone  map[uint64]bool // blocks that walk has passed

	start   uint64 // of pending
	pending []byte
	data    bool // pending is of a free space cache
}

// Create writes a dump of an image to w: the superblock of its first device, all tree blocks with
// those of the log, and the caches of free space. A block that no device has whole is left out,
// where btrfs-image gives up.
//
// Model: create_metadump() of btrfs-progs' image/image-create.c. Differences: every block is read
// and judged on its own, so what is left of a damaged file system gets into the dump; the blocks
// are those that the extent tree lists and those that the trees reach, and not the ones or the
// others; checksums are those of the file system, and not always crc32c.
func Create(im *image.Image, w io.Writer, o CreateOptions) (Created, error) {
	c := &creator{Image: im, o: o, w: writer{w: w, level: o.Level}, names: newNamer(o.Names, o.Seed), seen: map[uint64]bool{}, gone: map[uint64]bool{}}
	super := make([]byte, format.SuperSize)
	if err := blockdev.Read(im.Task, im.Devs[0], super, format.SuperOffset); err != nil {
		return c.sum, blockdev.Errorf(im.Devs[0], "read of the superblock: %w", err)
	}
	if err := c.w.add(format.SuperOffset, super); err != nil {
		return c.sum, err
	}
	if err := c.trees(); err != nil {
		return c.sum, err
	}
	if err := c.caches(); err != nil {
		return c.sum, err
	}
	if err := c.flush(); err != nil {
		return c.sum, err
	}
	err := c.w.flush()
	c.sum.Bytes = int64(c.w.pos)
	if c.names != nil {
		c.sum.Kept, c.sum.Unalike = c.names.kept, c.names.unalike
	}
	return c.sum, err
}

// trees takes the tree blocks.
func (c *creator) trees() error {
	if !c.o.Walk {
		if err := c.listed(); err != nil {
			return err
		}
	}
	for _, r := range []image.Ref{c.ChunkTree(), c.RootTree()} {
		if err := c.walk(r, true, format.Key{}); err != nil {
			return err
		}
	}
	if c.SB.LogRoot == 0 {
		return nil
	}
	return c.walk(c.LogTree(), true, format.Key{})
}

// read reads a block of a tree, whose accessors can be used.
func (c *creator) read(r image.Ref) (format.Node, error) {
	n, err := c.Node(r)
	if err == nil && !plausible(n) {
		err = fmt.Errorf("root=%d block=%d, items outside of the block", int64(r.Tree), r.Bytenr)
	}
	return n, err
}

// plausible reports whether what the header of a block counts lies in it.
func plausible(n format.Node) bool {
	if n.Level() > 0 {
		return n.Nritems() <= format.PtrsPerNode(len(n))
	}
	return itemsInside(n)
}

// listed takes the blocks that the extent tree lists, in the order of their addresses, as far as
// it can be read.
func (c *creator) listed() error {
	var at image.Ref
	list, err := c.Roots()
	for i := range list {
		if list[i].Key.Objectid == format.EXTENT_TREE_OBJECTID {
			at = list[i].Ref()
		}
	}
	if at.Bytenr == 0 {
		c.note(fmt.Sprintf("no extent tree is found: only blocks that the trees reach are in the dump: %v", err))
		return nil
	}
	var first error // of the blocks that are taken
	err = image.Items(at, c.read, func(k format.Key, b []byte) {
		if first != nil || k.Type != format.EXTENT_ITEM_KEY && k.Type != format.METADATA_ITEM_KEY || len(b) < format.ExtentItemSize {
			return
		}
		var e format.ExtentItem
		if e.Decode(b); e.Flags&format.ExtentFlagTreeBlock != 0 {
			first = c.block(k.Objectid)
		}
	})
	if err != nil && first == nil {
		c.note(fmt.Sprintf("extent tree: %v: blocks that only it lists are not in the dump", err))
	}
	return first
}

// walk takes the blocks of a tree, and with roots those of the trees that its items name. What is
// before the key dropped is left out: of a subvolume that is being deleted those blocks are freed.
func (c *creator) walk(r image.Ref, roots bool, dropped format.Key) error {
	if r.Level >= format.MaxLevel {
		c.leave(r.Bytenr, fmt.Errorf("root=%d has level %d", int64(r.Tree), r.Level))
		return nil
	}
	return image.Walk(r, image.Whole, func(r image.Ref, keys image.Span) (format.Node, error) {
		if c.gone[r.Bytenr] || keys.Hi.Less(dropped) {
			return nil, nil
		}
		c.gone[r.Bytenr] = true
		if err := c.block(r.Bytenr); err != nil {
			return nil, err
		}
		if r.Level == 0 && !roots {
			return nil, nil
		}
		n, err := c.read(r)
		if err != nil {
			return nil, nil // block has said so, or it has another level than the block above says
		}
		for i := 0; roots && n.Level() == 0 && i < n.Nritems(); i++ {
			// one of the first version ends before the fields that this program does not need here
			if b := n.Item(i); n.Key(i).Type == format.ROOT_ITEM_KEY && (len(b) == format.RootItemSize || len(b) == format.RootItemV1Size) {
				root := image.Root{Key: n.Key(i)}
				root.Item.Decode(b)
				if err := c.walk(root.Ref(), false, root.Item.DropProgress); err != nil {
					return nil, err
				}
			}
		}
		return n, nil
	})
}

// block takes a tree block, from its first copy that is whole.
func (c *creator) block(bytenr uint64) error {
	if c.seen[bytenr] {
		return nil
	}
	c.seen[bytenr] = true
	if c.o.Stop != nil {
		if err := c.o.Stop(); err != nil {
			return err
		}
	}
	n, err := c.whole(bytenr)
	if err != nil {
		c.leave(bytenr, err)
		return nil
	}
	c.sum.Blocks++
	if !strip(n, c.SB.CsumType, c.names) {
		c.sum.Headers++
		c.note(fmt.Sprintf("block %d: items lie outside of it: only its header is in the dump", bytenr))
	}
	return c.add(bytenr, n, false)
}

// whole reads the first copy of a block with a right checksum.
func (c *creator) whole(bytenr uint64) (format.Node, error) {
	ch := c.Chunks.At(bytenr)
	if ch == nil || !ch.Sound() {
		return nil, errors.New("is in no chunk")
	}
	mirrors, rebuilds := c.Copies(bytenr)
	err := errors.New("is not in one chunk")
	for i := range mirrors + rebuilds {
		n, rerr := c.Block(bytenr, i)
		switch {
		case rerr != nil:
			err = rerr
		case !c.SB.CsumType.BlockMatch(n):
			have, want := c.SB.CsumType.BlockText(n)
			err = fmt.Errorf("bad csum, have %s want %s", have, want)
		case n.Bytenr() != bytenr:
			err = fmt.Errorf("bad bytenr, have %d", n.Bytenr())
		default:
			return n, nil
		}
	}
	return nil, err
}

func (c *creator) leave(bytenr uint64, err error) {
	c.sum.Left++
	c.note(fmt.Sprintf("block %d is left out: %v", bytenr, err))
}

func (c *creator) note(text string) {
	if c.o.Note != nil {
		c.o.Note(text)
	}
}

// add puts bytes at a logical address into the dump, in one item with those before them if they are
// neighbours.
func (c *creator) add(bytenr uint64, p []byte, data bool) error {
	if c.data != data || len(c.pending)+len(p) > itemMax || c.start+uint64(len(c.pending)) != bytenr {
		if err := c.flush(); err != nil {
			return err
		}
		c.start, c.data = bytenr, data
	}
	c.pending = append(c.pending, p...)
	if c.o.Progress != nil {
		c.o.Progress(uint64(c.sum.Blocks)*uint64(c.SB.NodeSize), 0)
	}
	return nil
}

func (c *creator) flush() error {
	if len(c.pending) == 0 {
		return nil
	}
	err := c.w.add(c.start, c.pending)
	c.pending = c.pending[:0]
	return err
}

// caches takes the caches of free space of the first version: files of the root tree.
func (c *creator) caches() error {
	var list []format.Range[uint64]
	err := image.Items(c.RootTree(), c.read, func(k format.Key, b []byte) {
		v := format.FileExtentView(b)
		if k.Type == format.EXTENT_DATA_KEY && len(b) >= format.FileExtentSize && v.Type() == format.FileExtentTypeReg && v.DiskBytenr() != 0 {
			list = append(list, format.RangeOf(v.DiskBytenr(), v.DiskNumBytes()))
		}
	})
	if err != nil {
		c.note(fmt.Sprintf("root tree: %v: caches of free space may be left out", err))
	}
	for _, r := range list {
		if r.Len() > plainMax {
			c.leave(r.Start, fmt.Errorf("cache of free space of %d bytes, want at most %d", r.Len(), plainMax))
			continue
		}
		p := make([]byte, r.Len())
		if err := c.Read(r.Start, p); err != nil {
			c.leave(r.Start, fmt.Errorf("cache of free space: %w", err))
			continue
		}
		if err := c.add(r.Start, p, true); err != nil {
			return err
		}
	}
	return nil
}
