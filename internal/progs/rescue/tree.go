package rescue

import (
	"cmp"
	"errors"
	"slices"
	"sort"

	"btrlab/internal/blockdev"
	"btrlab/internal/format"
	"btrlab/internal/progs/image"
)

// errEnd ends a walk over items early, and is no error.
var errEnd = errors.New("end")

// tree is the leaves of a tree in the order of their keys: some 100 bytes of memory for each leaf.
type tree struct {
	im     *Image
	id     uint64
	leaves []leaf
	holes  []image.Span // key ranges of which no leaf is known
	older  int          // leaves that stand in for newer ones

	generation uint64 // of the root that it begins at; 0: of none
}

// leaf is a leaf that has been read once, and the keys that are taken from it: lo to hi.
type leaf struct {
	lo, hi             format.Key
	bytenr, generation uint64
	off                int64 // on the device dev, if that is not negative
	dev                int
	older              bool // a scan has found it, or an older image.Ref
	stale              bool // it stands in for a newer one, which is lost
	suspect            bool // its checksum is wrong
}

// whole reports whether nothing of the tree is missing.
func (tr *tree) whole() bool { return len(tr.holes) == 0 && tr.older == 0 }

// load finds the leaves of a tree. Roots are where it may begin; trusted says that the first of
// them is the one of the last transaction. Limit, if not 0, is the newest generation.
//
// A trusted root that can be read gives the leaves that it leads to. Else the newest root does that
// can be read, of the roots and those that a scan finds; leaves that are newer than it, which only
// the scan finds, go before those. What is still missing is taken from older leaves of the tree,
// the newest first; a snapshot has those of the subvolumes that it was made of, too.
func (im *Image) load(id uint64, roots []image.Ref, limit uint64, trusted bool) (*tree, error) {
	tr := &tree{im: im, id: id}
	usable := func(r image.Ref) bool { return r.Bytenr != 0 && (limit == 0 || r.Generation <= limit) && im.read(r) }
	if trusted && len(roots) > 0 && usable(roots[0]) {
		tr.generation = roots[0].Generation
		if err := tr.walk(roots[0]); err != nil {
			return nil, err
		}
		if len(tr.holes) > 0 {
			if err := im.scan(); err != nil {
				return nil, err
			}
			lost := len(tr.holes)
			tr.fill(tr.holes, limitOf(limit, roots[0].Generation), 0, true)
			im.note("tree %d: %d parts cannot be read; %d older leaves stand in for them", int64(id), lost, tr.older)
		}
		tr.sort()
		return tr, nil
	}
	if err := im.scan(); err != nil {
		return nil, err
	}
	// An item that may be old still says whether the tree is one leaf.
	single := len(roots) > 0 && !trusted && roots[0].Level == 0
	var newest uint64
	if len(roots) > 0 {
		newest = roots[0].Generation
	}
	for _, r := range im.rootsOf(id, limit) {
		if r.Level > 0 || single {
			roots = append(roots, r)
		}
	}
	roots = slices.Clone(roots)
	slices.SortStableFunc(roots, func(a, b image.Ref) int { return cmp.Compare(b.Generation, a.Generation) })
	base := &tree{im: im, id: id, holes: []image.Span{image.Whole}}
	after := uint64(0) // the generation that base has whole
	for _, r := range roots {
		if usable(r) {
			base.holes = nil
			if err := base.walk(r); err != nil {
				return nil, err
			}
			after = r.Generation
			tr.generation = after
			break
		}
	}
	tr.fill([]image.Span{image.Whole}, limit, after, false)
	holes := tr.holes
	tr.holes = nil
	for _, l := range base.leaves {
		l.older = trusted
		holes = tr.take(l, holes)
	}
	tr.fill(holes, limit, 0, after != 0)
	tr.sort()
	switch {
	case len(tr.leaves) == 0:
	case after == 0:
		im.note("tree %d: the root is lost; made of the %d leaves that a scan has found", int64(id), len(tr.leaves))
	case trusted:
		im.note("tree %d: the root is lost; taken from its root of generation %d and the newer leaves that a scan has found", int64(id), after)
	case after != newest:
		im.note("tree %d: taken from the newest root that a scan has found, of generation %d", int64(id), after)
	}
	return tr, nil
}

func limitOf(limit, generation uint64) uint64 {
	if limit == 0 {
		return generation
	}
	return min(limit, generation)
}

// read reports whether the block of a root can be read.
func (im *Image) read(r image.Ref) bool {
	return r.Level < format.MaxLevel && im.block(r, true) != nil
}

// walk adds the leaves below r. A part that cannot be read is a hole.
func (tr *tree) walk(r image.Ref) error {
	return image.Walk(r, image.Whole, tr.visit)
}

func (tr *tree) visit(r image.Ref, keys image.Span) (format.Node, error) {
	im := tr.im
	if im.Chunks.At(r.Bytenr) == nil {
		if err := im.scan(); err != nil {
			return nil, err
		}
	}
	n := im.block(r, false)
	suspect := n == nil
	if suspect {
		n = im.block(r, true)
	}
	if n == nil || !tr.owns(n.Owner()) {
		tr.holes = append(tr.holes, keys)
		return nil, nil
	}
	if r.Level > 0 {
		return n, im.stop()
	}
	l := leaf{lo: keys.Lo, hi: keys.Hi, bytenr: r.Bytenr, generation: r.Generation, dev: -1, suspect: suspect}
	if im.Chunks.At(r.Bytenr) == nil {
		if f := im.at(r.Bytenr, r.Generation); f != nil {
			l.dev, l.off = f.dev, f.off
		}
	}
	tr.leaves = append(tr.leaves, l)
	return n, nil
}

// owns reports whether a block of the owner may be reached by pointers of the tree.
func (tr *tree) owns(owner uint64) bool {
	return owner == tr.id || format.IsFSTree(owner) && format.IsFSTree(tr.id)
}

// fill covers holes with leaves that a scan has found: newer ones than after, up to limit if that
// is not 0, the newest first. Stale says that they stand in for newer ones. What stays uncovered is
// tr.holes.
func (tr *tree) fill(holes []image.Span, limit, after uint64, stale bool) {
	owners := tr.sources()
	var list []*found
	for i := range tr.im.found {
		f := &tr.im.found[i]
		if f.level == 0 && f.last != (format.Key{}) && f.generation > after && (limit == 0 || f.generation <= limit) && owners[f.owner] > 0 {
			list = append(list, f)
		}
	}
	slices.SortStableFunc(list, func(a, b *found) int {
		return cmp.Or(cmp.Compare(owners[a.owner], owners[b.owner]), cmp.Compare(b.generation, a.generation))
	})
	for _, f := range list {
		if len(holes) == 0 {
			break
		}
		l := leaf{lo: f.first, hi: f.last, bytenr: f.bytenr, generation: f.generation, dev: f.dev, off: f.off, older: true, stale: stale}
		holes = tr.take(l, holes)
	}
	tr.holes = holes
}

// sources ranks the trees whose leaves may stand in for those of this one: 1 for itself, then the
// subvolumes that it was made of.
func (tr *tree) sources() map[uint64]int {
	owners := map[uint64]int{tr.id: 1}
	if !format.IsFSTree(tr.id) || tr.im.roots == nil {
		return owners
	}
	ids := map[format.UUID]uint64{}
	parents := map[uint64]format.UUID{}
	_ = tr.im.eachRoot(func(id uint64, r *format.RootItem) error {
		ids[r.UUID], parents[id] = id, r.ParentUUID
		return nil
	})
	for id, rank := tr.id, 2; ; rank++ {
		up := parents[id]
		next, ok := ids[up]
		if !ok || up.IsZero() || owners[next] > 0 {
			return owners
		}
		owners[next] = rank
		id = next
	}
}

// eachRoot calls f with each root item.
func (im *Image) eachRoot(f func(id uint64, r *format.RootItem) error) error {
	return im.roots.each(format.Key{}, func(k format.Key, b []byte, _ *leaf) error {
		if k.Type != format.ROOT_ITEM_KEY || len(b) < rootItemMin {
			return nil
		}
		var r format.RootItem
		r.Decode(b)
		return f(k.Objectid, &r)
	})
}

// take adds the parts of l that lie in holes, and returns what is left of these.
func (tr *tree) take(l leaf, holes []image.Span) (left []image.Span) {
	for _, h := range holes {
		lo, hi := l.lo, l.hi
		if lo.Less(h.Lo) {
			lo = h.Lo
		}
		if h.Hi.Less(hi) {
			hi = h.Hi
		}
		if hi.Less(lo) {
			left = append(left, h)
			continue
		}
		part := l
		part.lo, part.hi = lo, hi
		tr.leaves = append(tr.leaves, part)
		if l.older {
			tr.older++
		}
		if h.Lo.Less(lo) {
			left = append(left, image.Span{Lo: h.Lo, Hi: lo.Prev()})
		}
		if hi.Less(h.Hi) {
			left = append(left, image.Span{Lo: hi.Next(), Hi: h.Hi})
		}
	}
	return left
}

func (tr *tree) sort() {
	slices.SortFunc(tr.leaves, func(a, b leaf) int { return a.lo.Compare(b.lo) })
}

// node reads a leaf again; nil if that fails now.
func (tr *tree) node(l *leaf) format.Node {
	im := tr.im
	if l.dev < 0 {
		return im.block(image.Ref{Tree: tr.id, Bytenr: l.bytenr, Generation: l.generation}, l.suspect)
	}
	key := cacheKey{l.bytenr, l.generation, false}
	if n, ok := im.cache.nodes[key]; ok {
		return n
	}
	n := format.Node(make([]byte, im.SB.NodeSize))
	if blockdev.Read(im.Task, im.Devs[l.dev], n, l.off) != nil || !im.SB.CsumType.BlockMatch(n) || !im.header(n, image.Ref{Bytenr: l.bytenr, Generation: l.generation}) {
		return nil
	}
	im.cache.put(key, n)
	return n
}

// each calls f with the items from the key on, in order, until it returns an error, which errEnd
// ends without one. The bytes are f's until it returns.
func (tr *tree) each(from format.Key, f func(k format.Key, b []byte, l *leaf) error) error {
	i := sort.Search(len(tr.leaves), func(i int) bool { return !tr.leaves[i].hi.Less(from) })
	for ; i < len(tr.leaves); i++ {
		l := &tr.leaves[i]
		n := tr.node(l)
		if n == nil {
			continue
		}
		for s := range n.Nritems() {
			k := n.Key(s)
			if k.Less(from) || k.Less(l.lo) || l.hi.Less(k) {
				continue
			}
			if err := f(k, n.Item(s), l); err != nil {
				if errors.Is(err, errEnd) {
					return nil
				}
				return err
			}
		}
	}
	return nil
}

// floor is the key of the last item that is not after k; false if there is none.
func (tr *tree) floor(k format.Key) (at format.Key, ok bool) {
	i := sort.Search(len(tr.leaves), func(i int) bool { return k.Less(tr.leaves[i].lo) }) - 1
	for ; i >= 0; i-- {
		l := &tr.leaves[i]
		n := tr.node(l)
		if n == nil {
			continue
		}
		for s := n.Nritems() - 1; s >= 0; s-- {
			if x := n.Key(s); !k.Less(x) && !x.Less(l.lo) && !l.hi.Less(x) {
				return x, true
			}
		}
	}
	return at, false
}

// misses reports whether a hole has keys from lo to hi.
func (tr *tree) misses(lo, hi format.Key) bool {
	return slices.ContainsFunc(tr.holes, func(h image.Span) bool { return !hi.Less(h.Lo) && !h.Hi.Less(lo) })
}
