package rescue

import (
	"bytes"
	"errors"
	"fmt"
	"slices"

	"btrlab/internal/blockdev"
	"btrlab/internal/blockdev/dm"
	"btrlab/internal/format"
	"btrlab/internal/progs/image"
	"btrlab/internal/sched"
)

// ChunkRepair is a chunk tree that was made anew, and is not written yet.
type ChunkRepair struct {
	// Chunks is the number of chunks in it, Made of how many of them the item was lost.
	Chunks, Made int
	Notes        []string
	devs         []blockdev.Device
	writes       []placed
}

// placed is what is to be written at a place of a device.
type placed struct {
	dev int
	off int64
	p   []byte
	// super says that it is a superblock.
	super bool
}

// ChunkRecover makes the chunk tree anew: of the items that are left in its blocks and in the
// superblock, and of the device extents and block groups, whose blocks a scan finds. A chunk
// without a block group is an old one and left out. The new blocks lie in the system chunk; the
// root stays where it was. The devices are not written before Commit. Nil, if the tree has all
// chunks.
//
// The result is tried on a copy in memory: there the chunk tree and the root tree must be read from
// the superblock alone.
//
// Model: btrfs-progs: rescue chunk-recover. Differences: it does not ask, the order of the stripes
// of a striped chunk is never guessed, and there is an undo.
func ChunkRecover(t *sched.Task, devs []blockdev.Device, o Options) (*ChunkRepair, error) {
	o.Scan, o.Generation = true, 0
	im, err := Open(t, devs, o)
	if err != nil {
		return nil, err
	}
	if !im.supers {
		return nil, blockdev.Errorf(devs[0], "no superblock is whole")
	}
	listed, err := im.chunkItems()
	if err != nil {
		return nil, err
	}
	if err := im.chunksOfDevices(); err != nil {
		return nil, err
	}
	groups, err := im.blockGroups()
	if err != nil {
		return nil, err
	}
	r := &ChunkRepair{devs: devs}
	var items []image.Item
	for _, d := range im.Devs {
		it, err := im.devItem(d)
		if err != nil {
			return nil, err
		}
		b := make([]byte, format.DevItemSize)
		it.Encode(b)
		items = append(items, image.Item{Key: format.Key{Objectid: format.DEV_ITEMS_OBJECTID, Type: format.DEV_ITEM_KEY, Offset: d.ID}, Data: b})
	}
	var array []byte
	var system []*image.Chunk
	for i := range im.Chunks {
		ch := &im.Chunks[i]
		flags, ok := groups[span64{ch.Start, ch.Length}]
		if !ok {
			im.note("chunk %d has no block group: left out", ch.Start)
			continue
		}
		if ch.Type == 0 {
			p := format.ProfileOf(flags)
			if p == nil || p.Striped() || len(ch.Stripes) > 1 && p.DevsMax*p.DevStripes != len(ch.Stripes) {
				return nil, fmt.Errorf("chunk %d: %d device extents do not make a chunk of flags 0x%x", ch.Start, len(ch.Stripes), flags)
			}
			ch.Type = flags
		}
		c, err := im.encodeChunk(ch)
		if err != nil {
			return nil, err
		}
		k := format.Key{Objectid: format.FIRST_CHUNK_TREE_OBJECTID, Type: format.CHUNK_ITEM_KEY, Offset: ch.Start}
		items = append(items, image.Item{Key: k, Data: c})
		r.Chunks++
		if !listed[ch.Start] {
			r.Made++
		}
		if ch.Type&format.BlockGroupSystem != 0 {
			system = append(system, ch)
			kb := make([]byte, format.KeySize)
			k.Encode(kb)
			array = append(append(array, kb...), c...)
		}
		delete(groups, span64{ch.Start, ch.Length})
	}
	for g := range groups {
		return nil, fmt.Errorf("block group %d: nothing says where its chunk lies", g.start)
	}
	if len(array) == 0 || len(array) > format.SysChunkArrayMax {
		return nil, fmt.Errorf("%d bytes of system chunks, have room for %d", len(array), format.SysChunkArrayMax)
	}
	if r.Notes = im.notes; r.Made == 0 && im.chunksWhole {
		return nil, nil
	}
	if err := r.build(im, items, system, array); err != nil {
		return nil, err
	}
	return r, r.try(t)
}

type span64 struct{ start, length uint64 }

// chunkItems are the chunks of which an item is where the superblock's chunk root leads, in leaves
// with right checksums.
func (im *Image) chunkItems() (map[uint64]bool, error) {
	listed := map[uint64]bool{}
	s := &im.SB
	tr := &tree{im: im, id: format.CHUNK_TREE_OBJECTID}
	top := refOf(tr.id, s.ChunkRoot, s.ChunkRootGeneration, s.ChunkRootLevel)
	if !im.read(top) {
		return listed, nil
	}
	if err := tr.walk(top); err != nil {
		return nil, err
	}
	tr.sort()
	if slices.ContainsFunc(tr.leaves, func(l leaf) bool { return l.suspect }) {
		return listed, nil
	}
	im.chunksWhole = tr.whole()
	return listed, tr.each(format.Key{}, func(k format.Key, _ []byte, _ *leaf) error {
		listed[k.Offset] = listed[k.Offset] || k.Type == format.CHUNK_ITEM_KEY
		return nil
	})
}

// blockGroups are the flags of the block groups.
func (im *Image) blockGroups() (map[span64]uint64, error) {
	id := uint64(format.EXTENT_TREE_OBJECTID)
	if im.SB.CompatROFlags&format.CompatROBlockGroupTree != 0 {
		id = format.BLOCK_GROUP_TREE_OBJECTID
	}
	tr, err := im.tree(id)
	if err != nil {
		return nil, err
	}
	if !tr.whole() {
		return nil, errors.New("the tree with the block groups cannot be read whole: which chunks there are is not known; rescue copy gets the files")
	}
	groups := map[span64]uint64{}
	return groups, tr.each(format.Key{}, func(k format.Key, b []byte, _ *leaf) error {
		if k.Type == format.BLOCK_GROUP_ITEM_KEY && len(b) >= 24 {
			var g format.BlockGroupItem
			g.Decode(b)
			groups[span64{k.Objectid, k.Offset}] = g.Flags
		}
		return nil
	})
}

// devItem is the device item of a device, as its newest superblock has it.
func (im *Image) devItem(d *image.Device) (it format.DevItem, err error) {
	var newest uint64
	for _, s := range image.Supers(im.Task, d.Device) {
		if s.Err == nil && s.Generation >= newest {
			newest, it = s.Generation, s.Super.DevItem
		}
	}
	if it.Devid == 0 {
		return it, blockdev.Errorf(d, "no superblock is whole")
	}
	return it, nil
}

// encodeChunk is the chunk item of a chunk.
func (im *Image) encodeChunk(ch *image.Chunk) ([]byte, error) {
	c := format.Chunk{Length: ch.Length, Owner: format.EXTENT_TREE_OBJECTID, StripeLen: format.StripeLen, Type: ch.Type, IOAlign: format.StripeLen, IOWidth: format.StripeLen,
		SectorSize: im.SB.SectorSize, SubStripes: 1}
	if ch.Type&format.BlockGroupRAID10 != 0 {
		c.SubStripes = 2
	}
	for _, s := range ch.Stripes {
		if s.Dev == nil {
			return nil, fmt.Errorf("chunk %d: a device is missing", ch.Start)
		}
		c.Stripes = append(c.Stripes, format.Stripe{Devid: s.Dev.ID, Offset: s.Off, DevUUID: s.Dev.UUID})
	}
	b := make([]byte, c.Size())
	c.Encode(b)
	return b, nil
}

// build makes the blocks of the tree and the superblocks.
func (r *ChunkRepair) build(im *Image, items []image.Item, system []*image.Chunk, array []byte) error {
	slices.SortFunc(items, func(a, b image.Item) int { return a.Key.Compare(b.Key) })
	s := &im.SB
	top := im.block(refOf(format.ROOT_TREE_OBJECTID, s.Root, s.Generation, s.RootLevel), false)
	if top == nil {
		return errors.New("the root of the root tree cannot be read: rescue older-root, or rescue copy")
	}
	size := uint64(s.NodeSize)
	var free []uint64
	for _, ch := range system {
		for at := format.AlignUp(ch.Start, size); at+size <= ch.End(); at += size {
			if mirrors, _ := im.Copies(at); mirrors > 0 && at != s.ChunkRoot && !ch.OverSuper(at, size) {
				free = append(free, at)
			}
		}
	}
	level, err := r.pack(im, items, top.ChunkTreeUUID(), free)
	if err != nil {
		return err
	}
	for i, d := range im.Devs {
		for _, c := range image.Supers(im.Task, d.Device) {
			if c.Err != nil {
				continue
			}
			n, p := c.Super, bytes.Clone(c.Raw)
			n.ChunkRootLevel, n.SysChunkArray = level, array
			n.Encode(p)
			r.writes = append(r.writes, placed{i, int64(c.Bytenr), p, true})
		}
	}
	return nil
}

// pack makes the blocks of the tree, and returns the level of the root, which stays where it is.
// The others go to free places.
func (r *ChunkRepair) pack(im *Image, items []image.Item, chunkTree format.UUID, free []uint64) (uint8, error) {
	s := &im.SB
	levels := image.Levels(int(s.NodeSize), image.Sizes(items))
	o := image.PackOptions{Owner: format.CHUNK_TREE_OBJECTID, FSID: s.TreeFSID(), ChunkTreeUUID: chunkTree,
		Generation: s.ChunkRootGeneration, NodeSize: int(s.NodeSize), Csum: s.CsumType,
		Place: func(level int) (at uint64, err error) {
			if level == int(levels[len(levels)-1]) {
				return s.ChunkRoot, nil
			}
			if len(free) == 0 {
				return 0, errors.New("the system chunk has no room")
			}
			at, free = free[0], free[1:]
			return at, nil
		},
		Write: func(n format.Node) error {
			ch := im.Chunks.At(n.Bytenr())
			if ch == nil || ch.Type&format.BlockGroupSystem == 0 {
				return fmt.Errorf("block %d is in no system chunk", n.Bytenr())
			}
			places, _ := ch.Places(n.Bytenr())
			for _, p := range places {
				r.writes = append(r.writes, placed{slices.Index(im.Devs, p.Dev), int64(p.Off), bytes.Clone(n), false})
			}
			return nil
		}}
	_, level, err := image.Pack(o, items)
	return level, err
}

// written is a copy of the devices, in memory, with the writes.
func (r *ChunkRepair) written(t *sched.Task) (covers []blockdev.Device, err error) {
	for _, d := range r.devs {
		covers = append(covers, dm.NewOverlay(d, nil))
	}
	for _, w := range r.writes {
		if err := blockdev.Write(t, covers[w.dev], w.p, w.off); err != nil {
			return nil, err
		}
	}
	return covers, nil
}

// try opens a copy with the writes.
func (r *ChunkRepair) try(t *sched.Task) error {
	covers, err := r.written(t)
	if err != nil {
		return err
	}
	im, err := Open(t, covers, Options{})
	switch {
	case err != nil:
		return err
	case im.ran || len(im.Chunks) != r.Chunks:
		return fmt.Errorf("the new chunk tree does not lead to all trees: %q", im.notes)
	}
	return nil
}

// Commit writes the tree, superblocks last. Undo is called before with what each place has now, and
// must keep that durably before it returns from done.
func (r *ChunkRepair) Commit(t *sched.Task, undo func(dev int, off int64, old []byte) error, done func() error) error {
	covers, err := r.written(t)
	if err != nil {
		return err
	}
	var blocks, supers []blockdev.Range
	for _, w := range r.writes {
		c := blockdev.Range{Dev: w.dev, Off: w.off, Len: len(w.p)}
		if w.super {
			supers = append(supers, c)
		} else {
			blocks = append(blocks, c)
		}
	}
	return blockdev.Replace(t, covers, r.devs, [][]blockdev.Range{blocks, supers}, undo, done)
}
