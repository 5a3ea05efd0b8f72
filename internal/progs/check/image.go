package check

import (
	"cmp"
	"fmt"
	"slices"
	"sort"

	"btrlab/internal/blockdev"
	"btrlab/internal/format"
	"btrlab/internal/sched"
)

// What a check knows of an image, which a repair goes by: where things are (Image), and what was
// met on the way (Seen). The judge itself, checker, is nobody's business but its own.

// Image is where the bytes of an image are: its devices, its chunks and its trees. What it reads it
// judges by the tree checker, without a finding.
type Image struct {
	Task    *sched.Task
	Devs    []*Device // the first is the one whose superblock counts
	Super   format.Super
	Chunks  []Chunk // ascending
	Roots   map[uint64]Root
	RootIDs []uint64 // ascending
}

// Seen is an image as a check has seen it.
type Seen struct {
	Image
	Findings []Finding
	Broken   map[string]bool // the rules that are, also those of findings that are not kept
	Spared   map[Place]bool  // findings about data that has a good copy

	// Of the walks over the trees.
	Visited  map[uint64]uint32 // block -> number of the last walk that met it
	Blocks   []Block           // every tree block, once
	Pointers []Pointer
	Data     []DataPointer
	Refused  []Refused // blocks that the tree checker refuses, or with keys beyond their place
	Misfits  []Refused // blocks that are not those their parents mean
	Cut      bool      // some walk could not visit all of its tree

	Groups                   []Group  // ascending
	Extents                  []Extent // ascending
	ExtentsWhole, CsumsWhole bool     // those trees were visited whole
	RootRefs                 []RootRef
	Quota                    *Quota                // nil without a quota tree
	UUIDs                    map[format.Key][]byte // the items of the UUID tree
	Faulty                   []*Files              // subvolumes with findings

	BadCopies []Bad    // of tree blocks and of data
	BadRows   []BadRow // whose parity is wrong
	MoreBad   bool     // there are more than are kept
}

// Examine is Check, with what it has seen.
func Examine(t *sched.Task, dev blockdev.Device, o Options) (Result, *Seen, error) {
	r, c, err := judged(t, dev, o)
	return r, &c.Seen, err
}

// Span is a range of addresses, half-open.
type Span struct{ Start, End uint64 }

// Merged sorts the spans and joins those that touch or overlap.
func Merged(l []Span) []Span {
	slices.SortFunc(l, func(a, b Span) int { return cmp.Compare(a.Start, b.Start) })
	var m []Span
	for _, s := range l {
		if n := len(m); n > 0 && s.Start <= m[n-1].End {
			m[n-1].End = max(m[n-1].End, s.End)
		} else {
			m = append(m, s)
		}
	}
	return m
}

// ChunkAt is the chunk that has the logical address, nil if none has.
func (m *Image) ChunkAt(logical uint64) *Chunk {
	i := sort.Search(len(m.Chunks), func(i int) bool { return m.Chunks[i].Start > logical }) - 1
	if i < 0 || logical-m.Chunks[i].Start >= m.Chunks[i].Length {
		return nil
	}
	return &m.Chunks[i]
}

// DeviceOf is the device with the number and the uuid; nil if none has them.
func (m *Image) DeviceOf(s format.Stripe) *Device {
	for _, d := range m.Devs {
		if d.ID() == s.Devid && d.Super.DevItem.UUID == s.DevUUID {
			return d
		}
	}
	return nil
}

// RootOf is where a tree begins.
func (m *Image) RootOf(tree uint64) (format.RootItem, error) {
	switch tree {
	case format.CHUNK_TREE_OBJECTID:
		return format.RootItem{Bytenr: m.Super.ChunkRoot, Generation: m.Super.ChunkRootGeneration, Level: m.Super.ChunkRootLevel}, nil
	case format.ROOT_TREE_OBJECTID:
		return format.RootItem{Bytenr: m.Super.Root, Generation: m.Super.Generation, Level: m.Super.RootLevel}, nil
	}
	r, ok := m.Roots[tree]
	if !ok {
		return format.RootItem{}, fmt.Errorf("no tree %d", int64(tree))
	}
	return r.Item, nil
}

// GroupTree is the tree that has the block groups.
func (m *Image) GroupTree() uint64 {
	if m.Super.CompatROFlags&format.CompatROBlockGroupTree != 0 {
		return format.BLOCK_GROUP_TREE_OBJECTID
	}
	return format.EXTENT_TREE_OBJECTID
}

// Search calls f with the items of an inode of a tree from key on, until it returns false. What
// cannot be read is left out: the walk has found it.
func (m *Image) Search(root uint64, key format.Key, f func(k format.Key, b []byte) bool) {
	if r, err := m.RootOf(root); err == nil {
		m.searchBlock(r.Bytenr, r.Generation, int(r.Level), key, f)
	}
}

func (m *Image) searchBlock(bytenr, generation uint64, level int, key format.Key, f func(k format.Key, b []byte) bool) bool {
	n := m.Peek(bytenr, generation, level)
	if n == nil {
		return true
	}
	for i := range n.Nritems() {
		k := n.Key(i)
		if k.Objectid > key.Objectid {
			return false
		}
		switch {
		case level == 0:
			if !k.Less(key) && !f(k, n.Item(i)) {
				return false
			}
		case i+1 < n.Nritems() && !key.Less(n.Key(i+1)): // all of it is before key
		case !m.searchBlock(n.Blockptr(i), n.PtrGeneration(i), level-1, key, f):
			return false
		}
	}
	return true
}

// Peek reads a block from its first good copy, without a finding; nil if there is none, or the tree
// checker does not pass it.
func (m *Image) Peek(bytenr, generation uint64, level int) format.Node {
	size := uint64(m.Super.NodeSize)
	ch := m.ChunkAt(bytenr)
	if ch == nil || level < 0 || level >= format.MaxLevel || bytenr+size > ch.Start+ch.Length {
		return nil
	}
	places, run := ch.Places(bytenr)
	for _, place := range places {
		n := format.Node(make([]byte, size))
		if run < size || place.Dev == nil || blockdev.Read(m.Task, place.Dev, n, int64(place.Off)) != nil || !m.Super.CsumType.BlockMatch(n) {
			continue
		}
		ctx := format.CheckContext{Root: n.Owner(), SectorSize: m.Super.SectorSize, NodeSize: m.Super.NodeSize, Generation: m.Super.Generation, Level: level,
			Csum: m.Super.CsumType}
		check := format.CheckNode
		if level == 0 {
			check = format.CheckLeaf
		}
		if n.Bytenr() == bytenr && n.Generation() == generation && n.Level() == level && check(n, ctx) == nil {
			return n
		}
	}
	return nil
}

// Each calls f with all items of a tree that can be read.
func (m *Image) Each(tree uint64, f func(k format.Key, b []byte)) {
	r, err := m.RootOf(tree)
	if err != nil {
		return
	}
	var walk func(bytenr, generation uint64, level int)
	walk = func(bytenr, generation uint64, level int) {
		n := m.Peek(bytenr, generation, level)
		if n == nil {
			return
		}
		for i := range n.Nritems() {
			if level > 0 {
				walk(n.Blockptr(i), n.PtrGeneration(i), level-1)
			} else {
				f(n.Key(i), n.Item(i))
			}
		}
	}
	walk(r.Bytenr, r.Generation, int(r.Level))
}

// scratch is a checker of the same image that has seen nothing yet.
func (m *Image) scratch() *checker {
	return &checker{Seen: Seen{Image: *m, Visited: map[uint64]uint32{}, Broken: map[string]bool{}}, noData: true, scratch: make([]byte, m.Super.NodeSize)}
}

// Walker walks trees as a check does, and notes what they use. Its findings go nowhere.
type Walker struct{ c *checker }

// Walker is a walker that has met nothing yet.
func (m *Image) Walker() *Walker { return &Walker{m.scratch()} }

// Tree visits a tree of which nothing before the key drop is left, and reports whether it could
// visit all of it. Leaf is called for each leaf, in key order, with whether no tree before has met
// it; met, if not nil, for each block.
func (w *Walker) Tree(id uint64, r format.RootItem, drop format.Key, leaf func(n format.Node, fresh bool), met func(n format.Node)) bool {
	walk := w.c.newWalk(id, leaf)
	walk.drop, walk.met = drop, met
	walk.from(r.Bytenr, r.Generation, r.Level)
	return !walk.cut
}

// Uses lists what the walks have met: blocks once, and every pointer to a block or to data.
func (w *Walker) Uses() ([]Block, []Pointer, []DataPointer) {
	return w.c.Blocks, w.c.Pointers, w.c.Data
}

// FilesOf reads a subvolume; nil if it cannot be read whole.
func (s *Seen) FilesOf(id uint64) *Files {
	r, ok := s.Roots[id]
	if !ok {
		return nil
	}
	c := s.scratch()
	c.RootRefs = s.RootRefs
	f := c.newFileCheck(id)
	if !c.walkTree(id, r.Item.Bytenr, r.Item.Generation, r.Item.Level, f.leaf) {
		return nil
	}
	f.endInode()
	return &f.Files
}
