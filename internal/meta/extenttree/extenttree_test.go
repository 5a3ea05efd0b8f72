package extenttree_test

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"

	"btrlab/internal/blockdev"
	"btrlab/internal/format"
	"btrlab/internal/meta/ctree"
	"btrlab/internal/meta/spaceinfo"
	"btrlab/internal/meta/transaction"
	"btrlab/internal/meta/volumes"
	"btrlab/internal/progs/mkfs"
	"btrlab/internal/sched"
)

func TestMain(m *testing.M) {
	sched.SetChecked(true)
	os.Exit(m.Run())
}

// TestExtents runs the files in testdata. Each is a story of allocations, references and commits on
// an image of its own, with the transaction of the room above as committer. Addresses are relative
// to their block group: data+64k is 64 KiB after the start of the first data group, data2 is the
// second one.
//
//	new [size=N] [next-fit]    a new image; the allocator runs first-fit unless next-fit is given
//	txn                        one handle; its lines are
//	    A = alloc N REF        an extent with its first reference; REF is root/inode/offset, and
//	                           root/inode-inode/offset is one for each inode
//	    A = reserve N          space only
//	    record A REF           its first reference
//	    unreserve A
//	    inc A REF [N]          N more references
//	    drop A REF [N]
//	    cross A REF            does anything but REF refer to A?
//	    chunk data|metadata    a new block group
//	    inodes N-N             inode items in the fs tree, which make tree blocks; rm-inodes deletes them
//	    run                    the queue as it is, once
//	commit [alloc=N]           prints the data groups; with alloc, space is allocated while the superblock
//	                           is written
//	groups, free, pinned       the groups; what the allocator would hand out; what waits for the commit
//	bitmaps G                  the free space of group G becomes bitmaps, as Linux does when it is fragmented
//	reopen                     the image anew
//
// After every commit the fixture holds the extent items of all groups against their used bytes, the
// free space tree and the allocator.
func TestExtents(t *testing.T) {
	datadriven.Walk(t, "testdata", func(t *testing.T, path string) {
		w := &world{tb: t, t: sched.NewTask("test")}
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			w.tb, w.out = t, strings.Builder{}
			w.directive(d)
			return w.out.String()
		})
	})
}

// world is one image with its manager.
type world struct {
	tb       testing.TB
	t        *sched.Task
	out      strings.Builder
	dev      *device
	m        *transaction.Manager
	firstFit bool
	extents  map[string]extent
	reserved int // extents without a reference: the trees do not know them
}

type extent = format.Range[format.Logical]

// device calls atSuper before it writes the primary superblock.
type device struct {
	blockdev.Device
	atSuper func()
}

func (d *device) Submit(t *sched.Task, b *blockdev.Bio) {
	if b.Op == blockdev.OpWrite && b.Off == format.SuperOffset && d.atSuper != nil {
		d.atSuper()
	}
	d.Device.Submit(t, b)
}

type flushers struct{ m *transaction.Manager }

func (f flushers) FlushDelalloc(t *sched.Task, bytes uint64, wait bool) {}
func (f flushers) CommitTransaction(t *sched.Task) error                { return f.m.Commit(t) }
func (f flushers) AllocChunk(t *sched.Task, typ uint64) (bool, error) {
	return f.m.Extents.AllocChunk(t, typ)
}
func (f flushers) DirtyDelalloc() uint64   { return 0 }
func (flushers) Preempt(*sched.Task)       {}
func (f flushers) FreeDeviceBytes() uint64 { return f.m.Volumes.FreeDeviceBytes() }

func (w *world) ok(err error) {
	if err != nil {
		w.tb.Helper()
		w.tb.Fatal(err)
	}
}

func (w *world) printf(f string, args ...any) { fmt.Fprintf(&w.out, f, args...) }

func (w *world) directive(d *datadriven.TestData) {
	switch d.Cmd {
	case "new":
		size := "128M"
		d.MaybeScanArgs(w.tb, "size", &size)
		w.dev = &device{Device: blockdev.NewMemory(int64(w.bytes(size)))}
		w.ok(mkfs.Make(w.t, w.dev, mkfs.Options{Now: time.Unix(1e9, 0)}))
		w.firstFit = !d.HasArg("next-fit")
		w.extents, w.reserved = map[string]extent{}, 0
		w.open()
		w.groups()
	case "reopen":
		w.open()
		w.state()
	case "txn":
		h, err := w.m.Start(w.t, 20)
		w.ok(err)
		for _, line := range strings.Split(d.Input, "\n") {
			w.op(h, strings.Fields(line))
		}
		w.ok(h.End(w.t))
	case "commit":
		w.commit(d)
	case "groups":
		w.groups()
	case "free":
		for _, c := range w.dataGroups() {
			start := format.Logical(c.Logical)
			w.printf("%s:%s\n", w.addr(start), spans(start, w.m.Extents.Free(w.t, start)))
		}
	case "pinned":
		for _, s := range w.m.Extents.Pinned() {
			if c, _ := w.m.Volumes.Lookup(uint64(s.Start)); c.Chunk.Type&format.BlockGroupData != 0 {
				w.printf("%s %s\n", w.addr(s.Start), size(s.Len()))
			}
		}
	case "bitmaps":
		w.toBitmaps(d.CmdArgs[0].Key)
	default:
		d.Fatalf(w.tb, "unknown directive %q", d.Cmd)
	}
}

func (w *world) open() {
	b := make([]byte, format.SuperSize)
	w.ok(blockdev.Read(w.t, w.dev, b, format.SuperOffset))
	w.ok(format.CheckSuper(b, w.dev.Size()))
	sb := new(format.Super)
	sb.Decode(b)
	v, err := volumes.Open([]volumes.Member{{Dev: w.dev, Super: sb}}, false)
	w.ok(err)
	w.m, err = transaction.Open(w.t, transaction.Config{Volumes: v, Super: sb})
	w.ok(err)
	w.m.Space.SetFlushers(flushers{w.m})
	w.m.Extents.SetFirstFit(w.firstFit)
}

// op carries out one line of a transaction.
func (w *world) op(h *transaction.Handle, f []string) {
	name := ""
	if len(f) > 1 && f[1] == "=" {
		name, f = f[0], f[2:]
	}
	switch x := w.m.Extents; f[0] {
	case "alloc", "reserve":
		s := w.reserve(w.bytes(f[1]))
		w.extents[name] = s
		w.printf("%s = %s %s\n", name, w.addr(s.Start), size(s.Len()))
		if f[0] == "reserve" {
			w.reserved++
			break
		}
		for i, r := range w.refs(f[2]) {
			if i == 0 {
				w.ok(x.AllocReservedFileExtent(w.t, h.Trans(), r, s.Start, s.Len()))
			} else {
				w.ok(x.IncExtentRef(w.t, h.Trans(), r, s.Start, s.Len()))
			}
		}
	case "record":
		s := w.extents[f[1]]
		w.ok(x.AllocReservedFileExtent(w.t, h.Trans(), w.refs(f[2])[0], s.Start, s.Len()))
		w.reserved--
	case "unreserve":
		s := w.extents[f[1]]
		x.FreeReservedExtent(w.t, s.Start, s.Len())
		w.reserved--
	case "inc", "drop":
		s, n := w.extents[f[1]], uint64(1)
		if len(f) > 3 {
			n = w.bytes(f[3])
		}
		change := x.IncExtentRef
		if f[0] == "drop" {
			change = x.FreeExtent
		}
		for _, r := range w.refs(f[2]) {
			for range n {
				w.ok(change(w.t, h.Trans(), r, s.Start, s.Len()))
			}
		}
	case "cross":
		other, err := x.CrossRefExist(w.t, w.refs(f[2])[0], w.extents[f[1]].Start, new(ctree.Path))
		w.ok(err)
		w.printf("%s: another reference: %v\n", f[1], other)
	case "chunk":
		typ := map[string]uint64{"data": format.BlockGroupData, "metadata": format.BlockGroupMetadata}[f[1]]
		added, err := x.AllocChunk(w.t, typ)
		w.ok(err)
		w.printf("added: %v\n", added)
	case "inodes", "rm-inodes":
		lo, hi := w.interval(f[1])
		for ino := lo; ino <= hi; ino++ {
			w.inode(h, ino, f[0] == "inodes")
		}
	case "run":
		w.ok(x.RunDelayedRefs(w.t, h.Trans(), false))
	default:
		w.tb.Fatalf("unknown operation %q", f)
	}
}

func (w *world) reserve(n uint64) extent {
	w.ok(w.m.Space.Data().Reserve(w.t, n, spaceinfo.NoFlush))
	start, got, err := w.m.Extents.ReserveExtent(w.t, n, n, 0)
	w.ok(err)
	return format.RangeOf(start, got)
}

func (w *world) inode(h *transaction.Handle, ino uint64, insert bool) {
	fs, k := w.m.Root(format.FS_TREE_OBJECTID), format.Key{Objectid: ino, Type: format.INODE_ITEM_KEY}
	if insert {
		it := format.InodeItem{Generation: h.Transid(), Nlink: 1, Mode: format.S_IFREG | 0o644}
		var b [format.InodeItemSize]byte
		it.Encode(b[:])
		w.ok(w.m.Forest.InsertItem(w.t, h.Trans(), fs, k, b[:]))
		return
	}
	var p ctree.Path
	defer p.Release(w.t)
	found, err := w.m.Forest.SearchSlot(w.t, h.Trans(), fs, k, &p, -1, true)
	w.ok(err)
	if !found {
		w.tb.Fatalf("no inode %d", ino)
	}
	w.ok(w.m.Forest.DelItems(w.t, h.Trans(), fs, &p, p.Slot(), 1))
}

func (w *world) commit(d *datadriven.TestData) {
	alloc := ""
	d.MaybeScanArgs(w.tb, "alloc", &alloc)
	if alloc != "" {
		w.dev.atSuper = func() {
			s := w.reserve(w.bytes(alloc))
			w.printf("before the superblock: %s %s\n", w.addr(s.Start), size(s.Len()))
			w.m.Extents.FreeReservedExtent(w.t, s.Start, s.Len())
		}
	}
	w.ok(w.m.Commit(w.t))
	w.dev.atSuper = nil
	w.state()
	w.verify()
}

// dataGroups are the chunks of data, ascending.
func (w *world) dataGroups() (list []volumes.ChunkInfo) {
	for _, c := range w.m.Volumes.Chunks() {
		if c.Chunk.Type&format.BlockGroupData != 0 {
			list = append(list, c)
		}
	}
	return list
}

// name is a group's: data, data2, metadata, ...
func (w *world) name(logical uint64) (name string, start uint64) {
	n := map[uint64]int{}
	for _, c := range w.m.Volumes.Chunks() {
		typ := c.Chunk.Type & format.BlockGroupTypeMask
		n[typ]++
		if c.Logical <= logical && logical < c.End() {
			name := map[uint64]string{format.BlockGroupData: "data", format.BlockGroupMetadata: "metadata", format.BlockGroupSystem: "system"}[typ]
			if n[typ] > 1 {
				name += strconv.Itoa(n[typ])
			}
			return name, c.Logical
		}
	}
	w.tb.Fatalf("%d lies in no group", logical)
	return "", 0
}

func (w *world) addr(a format.Logical) string {
	name, start := w.name(uint64(a))
	if uint64(a) == start {
		return name
	}
	return name + "+" + size(uint64(a)-start)
}

// groups prints every chunk with its allocator's view.
func (w *world) groups() {
	for _, c := range w.m.Volumes.Chunks() {
		name, _ := w.name(c.Logical)
		w.printf("%s %s, stripes %d", name, size(c.Chunk.Length), len(c.Chunk.Stripes))
		for _, s := range w.m.Volumes.SuperLogical(c) {
			w.printf(", superblock copy at %s", w.addr(s.Start))
		}
		w.printf("\n")
	}
}

// each calls f with the items of the tree from the start of a group on, up to its end.
func (w *world) each(tree uint64, c volumes.ChunkInfo, f func(k format.Key, b []byte)) {
	var p ctree.Path
	defer p.Release(w.t)
	r := w.m.Root(tree)
	more, err := w.m.Forest.SearchForward(w.t, r, format.Key{Objectid: c.Logical}, &p)
	for ; more && err == nil && p.Key().Objectid < c.End(); more, err = w.m.Forest.NextItem(w.t, r, &p) {
		f(p.Key(), p.Item())
	}
	w.ok(err)
}

// state prints the data groups as the trees have them.
func (w *world) state() {
	for _, c := range w.dataGroups() {
		name, _ := w.name(c.Logical)
		var group string
		w.each(format.EXTENT_TREE_OBJECTID, c, func(k format.Key, b []byte) {
			switch k.Type {
			case format.EXTENT_ITEM_KEY:
				w.extentItem(k, b)
			case format.EXTENT_DATA_REF_KEY:
				var d format.ExtentDataRef
				d.Decode(b)
				w.printf("  keyed %s", refText(d, d.Ino))
				if n := k.Offset - d.Hash(); n != 0 {
					w.printf(", at hash+%d", n)
				}
				w.printf("\n")
			case format.BLOCK_GROUP_ITEM_KEY:
				var g format.BlockGroupItem
				g.Decode(b)
				group = fmt.Sprintf("%s used %s", name, size(g.Used))
			}
		})
		if group == "" {
			w.printf("%s has no item yet\n", name)
			continue
		}
		info, free := w.freeSpace(c)
		w.printf("%s, free in %d", group, info.ExtentCount)
		if info.Flags&format.FreeSpaceUsingBitmaps != 0 {
			w.printf(" (bitmaps)")
		}
		w.printf(":%s\n", spans(format.Logical(c.Logical), free))
	}
}

func (w *world) extentItem(k format.Key, b []byte) {
	var it format.ExtentItem
	it.Decode(b)
	refs, err := format.InlineRefs(b, format.ExtentItemSize)
	w.ok(err)
	w.printf("%s %s refs %d\n", w.addr(format.Logical(k.Objectid)), size(k.Offset), it.Refs)
	var list []format.ExtentDataRef
	last := ^uint64(0)
	for _, r := range refs {
		if r.Data.Hash() > last {
			w.printf("  inline references ascend\n")
		}
		last = r.Data.Hash()
		list = append(list, r.Data)
	}
	if len(list) > 0 {
		w.printf("  inline%s\n", refTexts(list))
	}
}

// refTexts prints references by inode, with one text for a run of inodes that refer in the same
// way.
func refTexts(list []format.ExtentDataRef) (s string) {
	slices.SortFunc(list, func(a, b format.ExtentDataRef) int {
		return slices.Compare([]uint64{a.Root, uint64(a.Offset), uint64(a.Ino)}, []uint64{b.Root, uint64(b.Offset), uint64(b.Ino)})
	})
	for i := 0; i < len(list); {
		first, next := list[i], list[i]
		for ; i < len(list) && list[i] == next; i++ {
			next.Ino++
		}
		s += " " + refText(first, next.Ino-1)
	}
	return s
}

// refText prints a reference, or the same one of all inodes up to last.
func refText(d format.ExtentDataRef, last format.Ino) string {
	inodes := strconv.FormatUint(uint64(d.Ino), 10)
	if last != d.Ino {
		inodes += "-" + strconv.FormatUint(uint64(last), 10)
	}
	s := fmt.Sprintf("%d/%s/%s", d.Root, inodes, size(uint64(d.Offset)))
	if d.Count != 1 {
		s += fmt.Sprintf("*%d", d.Count)
	}
	return s
}

// freeSpace reads a group's part of the free space tree, and merges bitmaps into runs.
func (w *world) freeSpace(c volumes.ChunkInfo) (info format.FreeSpaceInfo, free []extent) {
	w.each(format.FREE_SPACE_TREE_OBJECTID, c, func(k format.Key, b []byte) {
		start := format.Logical(k.Objectid)
		switch k.Type {
		case format.FREE_SPACE_INFO_KEY:
			info.Decode(b)
		case format.FREE_SPACE_EXTENT_KEY:
			free = append(free, format.RangeOf(start, k.Offset))
		case format.FREE_SPACE_BITMAP_KEY:
			for i := range k.Offset / format.SectorSize {
				if b[i/8]>>(i%8)&1 == 0 {
					continue
				}
				s := format.RangeOf(start+format.Logical(i*format.SectorSize), format.SectorSize)
				if n := len(free); n > 0 && free[n-1].End == s.Start {
					free[n-1].End = s.End
				} else {
					free = append(free, s)
				}
			}
		}
	})
	return info, free
}

// verify compares what must agree after a commit in every group.
func (w *world) verify() {
	w.tb.Helper()
	for _, c := range w.m.Volumes.Chunks() {
		name, _ := w.name(c.Logical)
		pos, used := format.Logical(c.Logical), uint64(0)
		var free []extent
		var g format.BlockGroupItem
		gap := func(end format.Logical) {
			if pos < end {
				free = append(free, format.Between(pos, end))
			}
		}
		w.each(format.EXTENT_TREE_OBJECTID, c, func(k format.Key, b []byte) {
			length := k.Offset
			switch k.Type {
			case format.METADATA_ITEM_KEY:
				length = format.NodeSize
			case format.BLOCK_GROUP_ITEM_KEY:
				g.Decode(b)
				return
			case format.EXTENT_DATA_REF_KEY:
				return
			}
			gap(format.Logical(k.Objectid))
			pos = format.Logical(k.Objectid + length)
			used += length
		})
		gap(format.Logical(c.End()))
		if g.Used != used {
			w.tb.Errorf("%s: used %d, extents have %d", name, g.Used, used)
		}
		info, have := w.freeSpace(c)
		if !slices.Equal(have, free) || int(info.ExtentCount) != len(free) {
			w.tb.Errorf("%s: free space tree has %d runs%s, extents leave%s", name, info.ExtentCount,
				spans(format.Logical(c.Logical), have), spans(format.Logical(c.Logical), free))
		}
		for _, s := range w.m.Volumes.SuperLogical(c) {
			free = subtract(free, s)
		}
		if alloc := w.m.Extents.Free(w.t, format.Logical(c.Logical)); w.reserved == 0 && !slices.Equal(alloc, free) {
			w.tb.Errorf("%s: the allocator has%s, extents leave%s", name,
				spans(format.Logical(c.Logical), alloc), spans(format.Logical(c.Logical), free))
		}
	}
}

func subtract(list []extent, x extent) (out []extent) {
	for _, s := range list {
		if s.Intersect(x).Empty() {
			out = append(out, s)
			continue
		}
		for _, part := range []extent{format.Between(s.Start, x.Start), format.Between(x.End, s.End)} {
			if !part.Empty() {
				out = append(out, part)
			}
		}
	}
	return out
}

// toBitmaps rewrites the free space extents of a group as bitmaps, and commits.
func (w *world) toBitmaps(group string) {
	for _, c := range w.dataGroups() {
		if name, _ := w.name(c.Logical); name != group {
			continue
		}
		h, err := w.m.Start(w.t, 20)
		w.ok(err)
		info, free := w.freeSpace(c)
		fst := w.m.Root(format.FREE_SPACE_TREE_OBJECTID)
		bits := make([]byte, c.Chunk.Length/format.SectorSize/8)
		for _, s := range free {
			w.change(h, format.Key{Objectid: uint64(s.Start), Type: format.FREE_SPACE_EXTENT_KEY, Offset: s.Len()}, -1, func(p *ctree.Path) {
				w.ok(w.m.Forest.DelItems(w.t, h.Trans(), fst, p, p.Slot(), 1))
			})
			for o := uint64(s.Start) - c.Logical; o < uint64(s.End)-c.Logical; o += format.SectorSize {
				bits[o/format.SectorSize/8] |= 1 << (o / format.SectorSize % 8)
			}
		}
		for o := uint64(0); o < c.Chunk.Length; o += format.FreeSpaceBitmapRange {
			n := min(c.Chunk.Length-o, format.FreeSpaceBitmapRange)
			k := format.Key{Objectid: c.Logical + o, Type: format.FREE_SPACE_BITMAP_KEY, Offset: n}
			w.ok(w.m.Forest.InsertItem(w.t, h.Trans(), fst, k, bits[o/format.SectorSize/8:][:n/format.SectorSize/8]))
		}
		info.Flags |= format.FreeSpaceUsingBitmaps
		w.change(h, format.Key{Objectid: c.Logical, Type: format.FREE_SPACE_INFO_KEY, Offset: c.Chunk.Length}, 0, func(p *ctree.Path) {
			info.Encode(p.Item())
			w.m.Forest.DirtyLeaf(w.t, h.Trans(), p)
		})
		w.ok(h.End(w.t))
		w.ok(w.m.Commit(w.t))
		w.verify()
	}
}

// change finds an item of the free space tree for f to change.
func (w *world) change(h *transaction.Handle, k format.Key, insLen int, f func(p *ctree.Path)) {
	var p ctree.Path
	defer p.Release(w.t)
	found, err := w.m.Forest.SearchSlot(w.t, h.Trans(), w.m.Root(format.FREE_SPACE_TREE_OBJECTID), k, &p, insLen, true)
	w.ok(err)
	if !found {
		w.tb.Fatalf("no item %v", k)
	}
	f(&p)
}

// refs reads root/inode/offset or root/inode-inode/offset.
func (w *world) refs(s string) (list []format.DataRef) {
	f := strings.Split(s, "/")
	lo, hi := w.interval(f[1])
	for ino := lo; ino <= hi; ino++ {
		list = append(list, format.DataRef{Root: w.bytes(f[0]), Ino: format.Ino(ino), Offset: format.FileOff(w.bytes(f[2]))})
	}
	return list
}

func (w *world) interval(s string) (lo, hi uint64) {
	a, b, ok := strings.Cut(s, "-")
	if !ok {
		b = a
	}
	return w.bytes(a), w.bytes(b)
}

// bytes reads 4096, 64k, 8M.
func (w *world) bytes(s string) uint64 {
	unit := uint64(1)
	if n, ok := strings.CutSuffix(s, "k"); ok {
		s, unit = n, 1<<10
	} else if n, ok := strings.CutSuffix(s, "M"); ok {
		s, unit = n, 1<<20
	}
	n, err := strconv.ParseUint(s, 10, 64)
	w.ok(err)
	return n * unit
}

func size(n uint64) string {
	switch {
	case n != 0 && n%(1<<20) == 0:
		return fmt.Sprintf("%dM", n>>20)
	case n != 0 && n%(1<<10) == 0:
		return fmt.Sprintf("%dk", n>>10)
	}
	return strconv.FormatUint(n, 10)
}

// spans prints ranges relative to base.
func spans(base format.Logical, list []extent) (s string) {
	for _, x := range list {
		s += fmt.Sprintf(" [%s,%s)", size(uint64(x.Start-base)), size(uint64(x.End-base)))
	}
	if s == "" {
		s = " nothing"
	}
	return s
}
