package rescue

import (
	"errors"
	"fmt"
	"slices"
	"sort"

	"btrlab/internal/blockdev"
	"btrlab/internal/format"
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
	t     *sched.Task
	devs  []*member
	o     Options
	super format.Super // the best one, or what a scan has guessed of it
	// supers says that some superblock is whole.
	supers bool
	chunks []chunk // ascending
	found  []found // what a scan has found, by address, newest first
	ran    bool    // a scan has been made
	// chunksWhole says that the chunk tree of the superblock can be read whole.
	chunksWhole bool
	notes       []string // what was missing and what stands in for it
	cache       cache

	roots *tree // the root tree
	csums *tree // nil: none
}

// member is a device.
type member struct {
	blockdev.Device
	id    uint64
	uuid  format.UUID
	known bool // id and uuid are, by a superblock
}

// chunk is a logical range and where it lies.
type chunk struct {
	start, length uint64
	typ           uint64
	profile       *format.Profile
	stripes       []stripe
}

type stripe struct {
	dev *member // nil: missing
	off uint64
}

// Open reads as much of the file system on devs as is needed to find its trees. The error is for
// devices that have nothing of a btrfs, and for features that this program does not know
// (*format.UnsupportedError).
func Open(t *sched.Task, devs []blockdev.Device, o Options) (*Image, error) {
	im := &Image{t: t, o: o, cache: cache{nodes: map[cacheKey]format.Node{}}}
	for _, d := range devs {
		im.devs = append(im.devs, &member{Device: d})
	}
	if err := im.readSupers(); err != nil {
		return nil, err
	}
	if !im.supers {
		if err := im.guess(); err != nil {
			return nil, err
		}
		im.note("no superblock is whole: node size %d and checksum %v are those of the tree blocks", im.super.NodeSize, im.super.CsumType)
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

// SuperCopy is one superblock of a device.
type SuperCopy struct {
	Device     string
	Copy       int
	Bytenr     uint64
	Generation uint64
	Err        error // why it is not whole, or nil
	Super      format.Super
	raw        []byte
	dev        blockdev.Device
}

// Supers reads every superblock that has room on the devices.
func Supers(t *sched.Task, devs []blockdev.Device) (list []SuperCopy) {
	for _, d := range devs {
		for i := range format.SuperMirrorMax {
			off := format.SuperMirror(i)
			if int64(off)+format.SuperSize > d.Size() {
				break
			}
			s := SuperCopy{Device: d.Name(), Copy: i, Bytenr: off, dev: d, raw: make([]byte, format.SuperSize)}
			if s.Err = blockdev.Read(t, d, s.raw, int64(off)); s.Err == nil {
				if s.Err = format.CheckSuperAt(s.raw, d.Size(), off); s.Err == nil {
					s.Super.Decode(s.raw)
					s.Generation = s.Super.Generation
				}
			}
			list = append(list, s)
		}
	}
	return list
}

// readSupers takes the newest whole superblock.
func (im *Image) readSupers() error {
	for _, d := range im.devs {
		var unsupported *format.UnsupportedError
		for _, s := range Supers(im.t, []blockdev.Device{d.Device}) {
			if errors.As(s.Err, &unsupported) {
				return blockdev.Errorf(d, "%w", s.Err)
			}
			if s.Err != nil {
				if s.Copy == 0 {
					im.note("%s: the primary superblock is not whole: %v", d.Name(), s.Err)
				}
				continue
			}
			if !d.known {
				d.known, d.id, d.uuid = true, s.Super.DevItem.Devid, s.Super.DevItem.UUID
			}
			if im.supers && s.Super.FSID != im.super.FSID {
				return blockdev.Errorf(d, "device of another file system, have fsid %v want %v", s.Super.FSID, im.super.FSID)
			}
			if !im.supers || s.Generation > im.super.Generation {
				im.super, im.supers = s.Super, true
			}
		}
	}
	return nil
}

// rootItemMin is the size of a root item of the first version, in bytes.
const rootItemMin = 239

// addChunk takes a chunk into the map, unless it overlaps one that is there.
func (im *Image) addChunk(logical uint64, ch *format.Chunk) {
	p := format.ProfileOf(ch.Type)
	if p == nil || ch.Length == 0 || logical+ch.Length < logical || len(ch.Stripes) == 0 || p.Striped() && p.DataStripes(len(ch.Stripes)) < 1 {
		return
	}
	n := chunk{start: logical, length: ch.Length, typ: ch.Type, profile: p}
	if !p.Striped() && p.DevsMax*p.DevStripes != len(ch.Stripes) && ch.Type&format.BlockGroupProfileMask != 0 {
		return
	}
	for _, s := range ch.Stripes {
		n.stripes = append(n.stripes, stripe{im.device(s.Devid, s.DevUUID), s.Offset})
	}
	im.insertChunk(n)
}

func (im *Image) insertChunk(n chunk) {
	i := sort.Search(len(im.chunks), func(i int) bool { return im.chunks[i].start >= n.start })
	if i < len(im.chunks) && n.start+n.length > im.chunks[i].start || i > 0 && im.chunks[i-1].start+im.chunks[i-1].length > n.start {
		return
	}
	im.chunks = slices.Insert(im.chunks, i, n)
}

// device is the device with the number; nil if it is not here. One whose superblocks are all gone
// stands for the only number that no other has.
func (im *Image) device(id uint64, uuid format.UUID) *member {
	var unknown []*member
	for _, d := range im.devs {
		if d.known && d.id == id && (d.uuid == uuid || uuid.IsZero()) {
			return d
		}
		if !d.known {
			unknown = append(unknown, d)
		}
	}
	if len(unknown) == 1 && (len(im.devs) == 1 || im.super.NumDevices == uint64(len(im.devs))) {
		return unknown[0]
	}
	return nil
}

func (im *Image) chunkAt(logical uint64) *chunk {
	i := sort.Search(len(im.chunks), func(i int) bool { return im.chunks[i].start > logical }) - 1
	if i < 0 || logical-im.chunks[i].start >= im.chunks[i].length {
		return nil
	}
	return &im.chunks[i]
}

// places lists where the byte at logical lies, each copy once, and how many bytes from it on lie
// there, too.
func (ch *chunk) places(logical uint64) (list []stripe, run uint64) {
	p := ch.profile.Locate(len(ch.stripes), ch.length, logical-ch.start)
	for _, s := range ch.stripes[p.First : p.First+p.Copies] {
		if s.dev != nil {
			list = append(list, stripe{s.dev, s.off + p.Off})
		}
	}
	return list, p.Len
}

// rebuild makes p, the bytes at logical in one unit of a row with parity, from the other units.
// Skip is one of these that is not used, by its place in the row: data units, P, Q; -1 is none.
// False: too many are bad.
func (im *Image) rebuild(ch *chunk, p []byte, logical uint64, skip int) bool {
	n, parity := len(ch.stripes), ch.profile.Parity
	at := ch.profile.Locate(n, ch.length, logical-ch.start)
	row := make([][]byte, n)
	bad := 0
	for i := range row {
		s := ch.stripes[format.RowStripe(n, at.Row, i)]
		q := make([]byte, len(p))
		if i == at.Data || i == skip || s.dev == nil || blockdev.Read(im.t, s.dev, q, int64(s.off+at.Off)) != nil {
			bad++
			continue
		}
		row[i] = q
	}
	if bad > parity {
		return false
	}
	copy(p, format.RecoverUnit(row, parity, at.Data))
	return true
}

// rebuilds is how many ways there are to rebuild a unit: from all others, and in RAID6 also without
// each of them, which may be bad.
func (ch *chunk) rebuilds() int {
	switch ch.profile.Parity {
	case 0:
		return 0
	case 1:
		return 1
	}
	return 1 + len(ch.stripes)
}

// readChunks makes the chunk map: from the system chunk array, the chunk tree, and when that is
// gone the device tree, which has the same ranges from the other end.
func (im *Image) readChunks() error {
	for a := im.super.SysChunkArray; len(a) > format.KeySize+format.ChunkHeaderSize; {
		key := format.DecodeKey(a)
		size := format.ChunkSize(format.ChunkStripes(a[format.KeySize:]))
		if a = a[format.KeySize:]; len(a) < size {
			break
		}
		var ch format.Chunk
		ch.Decode(a[:size])
		im.addChunk(key.Offset, &ch)
		a = a[size:]
	}
	s := &im.super
	roots := []root{{s.ChunkRoot, s.ChunkRootGeneration, s.ChunkRootLevel}}
	for _, b := range s.Backups {
		roots = append(roots, root{b.ChunkRoot, b.ChunkRootGen, b.ChunkRootLevel})
	}
	// Chunks are older than what lies in them: the last ones serve every generation.
	tr, err := im.load(format.CHUNK_TREE_OBJECTID, roots, 0, im.supers && im.o.Generation <= s.Generation)
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
			if m := im.device(d.Devid, d.UUID); m != nil && !m.known {
				m.id, m.uuid, m.known = d.Devid, d.UUID, true
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
		if im.chunkAt(start) != nil {
			continue
		}
		list := chunks[start]
		n := chunk{start: start, length: list[0].length, profile: &format.Profiles()[0]}
		// In a striped chunk the next one begins further on than a stripe is long.
		striped := len(list) > 1 && i+1 < len(starts) && starts[i+1] > start+n.length && starts[i+1]-start <= n.length*uint64(len(list))
		for _, x := range list {
			striped = striped || x.length != n.length
			n.stripes = append(n.stripes, stripe{im.device(x.dev, format.UUID{}), x.off})
		}
		if striped {
			unclear++
			continue
		}
		n.profile = mirrorOf(len(n.stripes))
		im.insertChunk(n)
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

// block reads the tree block at bytenr of the generation and the level: from a copy whose checksum
// is right, then from where a scan has found it. With suspect a block with a wrong checksum and a
// right header will do. It returns nil if there is none.
func (im *Image) block(bytenr, generation uint64, level int, suspect bool) format.Node {
	key := cacheKey{bytenr, generation, false}
	if n, ok := im.cache.nodes[key]; ok && n.Level() == level {
		return n
	}
	size := uint64(im.super.NodeSize)
	doubtful := im.cache.nodes[cacheKey{bytenr, generation, true}]
	if doubtful != nil && doubtful.Level() != level {
		doubtful = nil
	}
	if suspect && doubtful != nil {
		return doubtful
	}
	if ch := im.chunkAt(bytenr); ch != nil && bytenr+size <= ch.start+ch.length {
		places, run := ch.places(bytenr)
		for _, p := range places {
			if run < size {
				break
			}
			n := format.Node(make([]byte, size))
			if blockdev.Read(im.t, p.dev, n, int64(p.off)) != nil || !im.header(n, bytenr, generation, level) {
				continue
			}
			if im.super.CsumType.BlockMatch(n) {
				im.cache.put(key, n)
				return n
			}
			doubtful = n
		}
		for i := range ch.rebuilds() {
			n := format.Node(make([]byte, size))
			if run >= size && im.rebuild(ch, n, bytenr, i-1) && im.super.CsumType.BlockMatch(n) && im.header(n, bytenr, generation, level) {
				im.cache.put(key, n)
				return n
			}
		}
	}
	if f := im.at(bytenr, generation); f != nil && int(f.level) == level {
		n := format.Node(make([]byte, size))
		if blockdev.Read(im.t, im.devs[f.dev], n, f.off) == nil && im.super.CsumType.BlockMatch(n) && im.header(n, bytenr, generation, level) {
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
func (im *Image) header(n format.Node, bytenr, generation uint64, level int) bool {
	if n.Bytenr() != bytenr || n.Generation() != generation || n.Level() != level || n.FSID() != im.super.TreeFSID() {
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

// root is where a tree begins.
type root struct {
	bytenr, generation uint64
	level              uint8
}

// limit is the newest generation that is read; 0 is any. What is newer than the superblock belongs
// to a transaction that did not end.
func (im *Image) limit() uint64 {
	if im.o.Generation != 0 {
		return im.o.Generation
	}
	return im.super.Generation
}

// readRoots loads the root tree and the checksum tree.
func (im *Image) readRoots() error {
	s := &im.super
	roots := []root{{s.Root, s.Generation, s.RootLevel}}
	for _, b := range s.Backups {
		r := root{b.TreeRoot, b.TreeRootGen, b.TreeRootLevel}
		if im.o.Generation != 0 && r.generation == im.o.Generation {
			roots[0] = r // it is this one that is wanted
		}
		roots = append(roots, r)
	}
	trusted := im.supers && (im.o.Generation == 0 || roots[0].generation == im.o.Generation)
	var err error
	if im.roots, err = im.load(format.ROOT_TREE_OBJECTID, roots, im.limit(), trusted); err != nil {
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
	var roots []root
	r, trusted := im.item(id)
	if trusted = trusted && r.Bytenr != 0; trusted {
		roots = append(roots, root{r.Bytenr, r.Generation, r.Level})
	}
	for _, b := range im.super.Backups {
		switch id {
		case format.CSUM_TREE_OBJECTID:
			roots = append(roots, root{b.CsumRoot, b.CsumRootGen, b.CsumRootLevel})
		case format.FS_TREE_OBJECTID:
			roots = append(roots, root{b.FSRoot, b.FSRootGen, b.FSRootLevel})
		}
	}
	return im.load(id, roots, im.limit(), trusted && im.roots.whole())
}
