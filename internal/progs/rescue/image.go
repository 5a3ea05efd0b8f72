package rescue

import (
	"errors"
	"fmt"
	"slices"

	"btrlab/internal/blockdev"
	"btrlab/internal/format"
	"btrlab/internal/progs/image"
	"btrlab/internal/sched"
)

// Options of reading a damaged image.
type Options struct {
	// Generation, if not 0, is the newest transaction whose trees are read: an older state of the
	// file system, as far as its blocks have not been written over.
	Generation uint64
	// Scan looks for tree blocks on the whole of every device, even when nothing is missing.
	Scan bool
	// Progress, if any, is called now and then with the bytes that a scan has read, of how many.
	Progress func(done, total uint64)
	// Stop, if any, is asked now and then; its error ends the call.
	Stop func() error
}

// Image is a damaged file system, which is read as far as it goes.
//
// The normal case: a superblock gives the chunk map and the root tree, that the other trees. What
// cannot be read is looked for among all tree blocks of the devices (scan.go), and a part of a tree
// of which nothing is left is taken from older blocks of the same tree (tree.go). Nothing is
// written.
//
// Not safe for concurrent use.
type Image struct {
	*image.Image // SB is the best superblock, or what a scan has guessed of it

	o Options
	// supers says that some superblock is whole.
	supers bool
	found  []found // what a scan has found, by address, newest first
	ran    bool    // a scan has been made
	// chunksWhole says that the chunk tree of the superblock can be read whole.
	chunksWhole bool
	notes       []string // what was missing and what stands in for it
	cache       cache

	roots *tree // the root tree
	csums *tree // nil: none
}

// Open reads as much of the file system on devs as is needed to find its trees. The error is for
// devices that have nothing of a btrfs, and for features that this program does not know
// (*format.UnsupportedError).
func Open(t *sched.Task, devs []blockdev.Device, o Options) (*Image, error) {
	im := &Image{Image: &image.Image{Task: t}, o: o, cache: cache{nodes: map[cacheKey]format.Node{}}}
	for _, d := range devs {
		im.Devs = append(im.Devs, &image.Device{Device: d})
	}
	if err := im.readSupers(); err != nil {
		return nil, err
	}
	if !im.supers {
		if err := im.guess(); err != nil {
			return nil, err
		}
		im.note("no superblock is whole: node size %d and checksum %v are those of the tree blocks", im.SB.NodeSize, im.SB.CsumType)
	}
	if o.Scan {
		if err := im.scan(); err != nil {
			return nil, err
		}
	}
	if err := im.readChunks(); err != nil {
		return nil, err
	}
	if err := im.readRoots(); err != nil {
		return nil, err
	}
	return im, nil
}

// Notes says in one line each what was missing, and what stands in for it.
func (im *Image) Notes() []string { return im.notes }

// Note adds a line to the notes.
func (im *Image) Note(line string) { im.note("%s", line) }

func (im *Image) note(text string, args ...any) {
	im.notes = append(im.notes, fmt.Sprintf(text, args...))
}

func (im *Image) stop() error {
	if im.o.Stop == nil {
		return nil
	}
	return im.o.Stop()
}

// readSupers takes the newest whole superblock.
func (im *Image) readSupers() error {
	for _, d := range im.Devs {
		var unsupported *format.UnsupportedError
		for _, s := range image.Supers(im.Task, d.Device) {
			if errors.As(s.Err, &unsupported) {
				return blockdev.Errorf(d, "%w", s.Err)
			}
			if s.Err != nil {
				if s.Copy == 0 {
					im.note("%s: the primary superblock is not whole: %v", d.Name(), s.Err)
				}
				continue
			}
			if !d.Known {
				d.Known, d.ID, d.UUID = true, s.Super.DevItem.Devid, s.Super.DevItem.UUID
			}
			if im.supers && s.Super.FSID != im.SB.FSID {
				return blockdev.Errorf(d, "device of another file system, have fsid %v want %v", s.Super.FSID, im.SB.FSID)
			}
			if !im.supers || s.Generation > im.SB.Generation {
				im.SB, im.supers = s.Super, true
			}
		}
	}
	return nil
}

// rootItemMin is the size of a root item of the first version, in bytes.
const rootItemMin = 239

// addChunk takes a chunk into the map, unless it is impossible or overlaps one that is there.
func (im *Image) addChunk(logical uint64, it *format.Chunk) {
	c := image.NewChunk(logical, it, func(s format.Stripe) *image.Device { return im.device(s.Devid, s.DevUUID) })
	p := c.Profile
	if p == nil || c.Length == 0 || c.End() < logical || len(c.Stripes) == 0 || p.Striped() && p.DataStripes(len(c.Stripes)) < 1 ||
		!p.Striped() && p.DevsMax*p.DevStripes != len(c.Stripes) && c.Type&format.BlockGroupProfileMask != 0 {
		return
	}
	im.Chunks.Insert(c)
}

// device is the device with the number; nil if it is not here. One whose superblocks are all gone
// stands for the only number that no other has.
func (im *Image) device(id uint64, uuid format.UUID) *image.Device {
	var unknown []*image.Device
	for _, d := range im.Devs {
		if d.Known && d.ID == id && (d.UUID == uuid || uuid.IsZero()) {
			return d
		}
		if !d.Known {
			unknown = append(unknown, d)
		}
	}
	if len(unknown) == 1 && (len(im.Devs) == 1 || im.SB.NumDevices == uint64(len(im.Devs))) {
		return unknown[0]
	}
	return nil
}

// readChunks makes the chunk map: from the system chunk array, the chunk tree, and when that is
// gone the device tree, which has the same ranges from the other end.
func (im *Image) readChunks() error {
	for k, b := range im.SB.SysChunks() {
		if b != nil {
			var it format.Chunk
			it.Decode(b)
			im.addChunk(k.Offset, &it)
		}
	}
	s := &im.SB
	const id = format.CHUNK_TREE_OBJECTID
	roots := []image.Ref{refOf(id, s.ChunkRoot, s.ChunkRootGeneration, s.ChunkRootLevel)}
	for _, b := range s.Backups {
		roots = append(roots, refOf(id, b.ChunkRoot, b.ChunkRootGen, b.ChunkRootLevel))
	}
	// Chunks are older than what lies in them: the last ones serve every generation.
	tr, err := im.load(id, roots, 0, im.supers && im.o.Generation <= s.Generation)
	if err != nil {
		return err
	}
	err = tr.each(format.Key{}, func(k format.Key, b []byte, _ *leaf) error {
		switch {
		case k.Type == format.CHUNK_ITEM_KEY && len(b) >= format.ChunkSize(1) && len(b) >= format.ChunkSize(format.ChunkStripes(b)):
			var ch format.Chunk
			ch.Decode(b)
			im.addChunk(k.Offset, &ch)
		case k.Type == format.DEV_ITEM_KEY && len(b) >= format.DevItemSize:
			var d format.DevItem
			d.Decode(b)
			if m := im.device(d.Devid, d.UUID); m != nil && !m.Known {
				m.ID, m.UUID, m.Known = d.Devid, d.UUID, true
			}
		}
		return nil
	})
	if err != nil || tr.whole() {
		return err
	}
	return im.chunksOfDevices()
}

// chunksOfDevices adds the chunks whose items are gone, from the device extents of the device tree,
// which lie in chunks themselves: a scan finds their blocks. A chunk of neighbouring stripes on
// several devices has no order there, and is left out.
func (im *Image) chunksOfDevices() error {
	if err := im.scan(); err != nil {
		return err
	}
	tr, err := im.load(format.DEV_TREE_OBJECTID, nil, 0, false)
	if err != nil {
		return err
	}
	type extent struct{ dev, off, length uint64 }
	chunks := map[uint64][]extent{}
	err = tr.each(format.Key{}, func(k format.Key, b []byte, _ *leaf) error {
		if k.Type == format.DEV_EXTENT_KEY && len(b) >= format.DevExtentSize {
			var d format.DevExtent
			d.Decode(b)
			chunks[d.ChunkOffset] = append(chunks[d.ChunkOffset], extent{k.Objectid, k.Offset, d.Length})
		}
		return nil
	})
	if err != nil {
		return err
	}
	made, unclear := 0, 0
	starts := make([]uint64, 0, len(chunks))
	for start := range chunks {
		starts = append(starts, start)
	}
	slices.Sort(starts)
	for i, start := range starts {
		if im.Chunks.At(start) != nil {
			continue
		}
		list := chunks[start]
		n := image.Chunk{Start: start, Length: list[0].length}
		// In a striped chunk the next one begins further on than a stripe is long.
		striped := len(list) > 1 && i+1 < len(starts) && starts[i+1] > n.End() && starts[i+1]-start <= n.Length*uint64(len(list))
		for _, x := range list {
			striped = striped || x.length != n.Length
			n.Stripes = append(n.Stripes, image.Stripe{Dev: im.device(x.dev, format.UUID{}), Devid: x.dev, Off: x.off})
		}
		if striped {
			unclear++
			continue
		}
		n.Profile = mirrorOf(len(n.Stripes))
		im.Chunks.Insert(n)
		made++
	}
	if made > 0 {
		im.note("chunk items are gone: %d chunks are made of the device extents of tree 4", made)
	}
	if unclear > 0 {
		im.note("%d striped chunks are lost: their device extents have no order", unclear)
	}
	return nil
}

// mirrorOf is a profile whose n stripes all have the whole chunk.
func mirrorOf(n int) *format.Profile {
	p := format.Profiles()[0]
	p.DevsMax, p.Copies = n, n
	return &p
}

// cache keeps the tree blocks that were read last.
type cache struct {
	nodes map[cacheKey]format.Node
	order []cacheKey
	next  int
}

// cacheKey says which block it is, and whether its checksum is wrong.
type cacheKey struct {
	bytenr, generation uint64
	suspect            bool
}

const cacheNodes = 256

func (c *cache) put(k cacheKey, n format.Node) {
	if _, ok := c.nodes[k]; ok {
		return
	}
	if len(c.order) < cacheNodes {
		c.order = append(c.order, k)
	} else {
		delete(c.nodes, c.order[c.next])
		c.order[c.next] = k
		c.next = (c.next + 1) % cacheNodes
	}
	c.nodes[k] = n
}

// block reads the tree block that r leads to: from a copy whose checksum
// is right, then from where a scan has found it. With suspect a block with a wrong checksum and a
// right header will do. It returns nil if there is none.
func (im *Image) block(r image.Ref, suspect bool) format.Node {
	key := cacheKey{r.Bytenr, r.Generation, false}
	if n, ok := im.cache.nodes[key]; ok && n.Level() == r.Level {
		return n
	}
	doubtful := im.cache.nodes[cacheKey{r.Bytenr, r.Generation, true}]
	if doubtful != nil && doubtful.Level() != r.Level {
		doubtful = nil
	}
	if suspect && doubtful != nil {
		return doubtful
	}
	mirrors, rebuilds := im.Copies(r.Bytenr)
	for i := range mirrors + rebuilds {
		n, err := im.Block(r.Bytenr, i)
		if err != nil || !im.header(n, r) {
			continue
		}
		if im.SB.CsumType.BlockMatch(n) {
			im.cache.put(key, n)
			return n
		}
		if i < mirrors {
			doubtful = n
		}
	}
	if f := im.at(r.Bytenr, r.Generation); f != nil && int(f.level) == r.Level {
		n := make(format.Node, im.SB.NodeSize)
		if blockdev.Read(im.Task, im.Devs[f.dev], n, f.off) == nil && im.SB.CsumType.BlockMatch(n) && im.header(n, r) {
			im.cache.put(key, n)
			return n
		}
	}
	if suspect && doubtful != nil {
		key.suspect = true
		im.cache.put(key, doubtful)
		return doubtful
	}
	return nil
}

// header reports whether n may be the block that is wanted, and is safe to decode: its items lie in
// it.
func (im *Image) header(n format.Node, r image.Ref) bool {
	if n.Bytenr() != r.Bytenr || n.Generation() != r.Generation || n.Level() != r.Level || n.FSID() != im.SB.TreeFSID() {
		return false
	}
	return sane(n)
}

// sane reports whether the items of a block, or its pointers, lie in it.
func sane(n format.Node) bool {
	nr := n.Nritems()
	if n.Level() > 0 {
		return n.Level() < format.MaxLevel && nr >= 1 && nr <= format.PtrsPerNode(len(n))
	}
	if nr < 0 || nr > format.LeafDataSize(len(n))/format.ItemHeaderSize {
		return false
	}
	for i := range nr {
		off, size := n.ItemOffset(i), n.ItemSize(i)
		if off < nr*format.ItemHeaderSize || size < 0 || off+size > format.LeafDataSize(len(n)) {
			return false
		}
	}
	return true
}

// refOf is a root of a tree, as superblocks and root items have it.
func refOf(tree, bytenr, generation uint64, level uint8) image.Ref {
	return image.Ref{Tree: tree, Bytenr: bytenr, Generation: generation, Level: int(level)}
}

// limit is the newest generation that is read; 0 is any. What is newer than the superblock belongs
// to a transaction that did not end.
func (im *Image) limit() uint64 {
	if im.o.Generation != 0 {
		return im.o.Generation
	}
	return im.SB.Generation
}

// readRoots loads the root tree and the checksum tree.
func (im *Image) readRoots() error {
	s := &im.SB
	const id = format.ROOT_TREE_OBJECTID
	roots := []image.Ref{refOf(id, s.Root, s.Generation, s.RootLevel)}
	for _, b := range s.Backups {
		r := refOf(id, b.TreeRoot, b.TreeRootGen, b.TreeRootLevel)
		if im.o.Generation != 0 && r.Generation == im.o.Generation {
			roots[0] = r // it is this one that is wanted
		}
		roots = append(roots, r)
	}
	trusted := im.supers && (im.o.Generation == 0 || roots[0].Generation == im.o.Generation)
	var err error
	if im.roots, err = im.load(id, roots, im.limit(), trusted); err != nil {
		return err
	}
	if g := im.roots.generation; im.o.Generation != 0 && g != im.o.Generation {
		im.note("no root tree of transaction %d is left; the newest before it is of %d", im.o.Generation, g)
	}
	im.csums, err = im.tree(format.CSUM_TREE_OBJECTID)
	return err
}

// item is the root item of a tree; false if there is none.
func (im *Image) item(id uint64) (r format.RootItem, ok bool) {
	_ = im.roots.each(format.Key{Objectid: id, Type: format.ROOT_ITEM_KEY}, func(k format.Key, b []byte, _ *leaf) error {
		if k.Objectid != id || k.Type != format.ROOT_ITEM_KEY {
			return errEnd
		}
		if len(b) >= rootItemMin {
			r.Decode(b)
			ok = true
		}
		return nil
	})
	return r, ok
}

// tree loads the tree with the number: from its root item, or where that is gone, or may be an
// older one, from the newest of its roots.
func (im *Image) tree(id uint64) (*tree, error) {
	var roots []image.Ref
	r, trusted := im.item(id)
	if trusted = trusted && r.Bytenr != 0; trusted {
		roots = append(roots, refOf(id, r.Bytenr, r.Generation, r.Level))
	}
	for _, b := range im.SB.Backups {
		switch id {
		case format.CSUM_TREE_OBJECTID:
			roots = append(roots, refOf(id, b.CsumRoot, b.CsumRootGen, b.CsumRootLevel))
		case format.FS_TREE_OBJECTID:
			roots = append(roots, refOf(id, b.FSRoot, b.FSRootGen, b.FSRootLevel))
		}
	}
	return im.load(id, roots, im.limit(), trusted && im.roots.whole())
}
