package extenttree_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"btrlab/internal/blockdev"
	"btrlab/internal/errno"
	"btrlab/internal/format"
	"btrlab/internal/lock/lockdep"
	"btrlab/internal/meta/ctree"
	"btrlab/internal/meta/spaceinfo"
	"btrlab/internal/meta/transaction"
	"btrlab/internal/meta/volumes"
	"btrlab/internal/progs/mkfs"
	"btrlab/internal/sched"
	"btrlab/internal/sched/explore"
)

// newWorld is an image of size bytes, open.
func newWorld(tb testing.TB, size int64) *world {
	w := &world{tb: tb, t: sched.NewTask("test"), firstFit: true, extents: map[string]extent{}}
	w.dev = &device{Device: blockdev.NewMemory(size)}
	w.ok(mkfs.Make(w.t, w.dev, mkfs.Options{Now: time.Unix(1e9, 0)}))
	w.open()
	return w
}

// alloc is a data extent of inode 300 at file offset off.
func (w *world) alloc(h *transaction.Handle, n, off uint64) extent {
	s := w.reserve(n)
	w.ok(w.m.Extents.AllocReservedFileExtent(w.t, h.Trans(), refAt(off), s.Start, s.Len()))
	return s
}

func refAt(off uint64) format.DataRef {
	return format.DataRef{Root: format.FS_TREE_OBJECTID, Ino: 300, Offset: format.FileOff(off)}
}

func (w *world) txn(f func(h *transaction.Handle)) {
	w.tb.Helper()
	h, err := w.m.Start(w.t, 20)
	w.ok(err)
	f(h)
	w.ok(h.End(w.t))
	w.ok(w.m.Commit(w.t))
}

// A tree block that finds no place gives back what was to pay for it: to the handle's bucket, to
// the global reserve, or to the account. Nothing is left promised, so the operation can be tried
// again after a commit.
func TestNoRoomForATreeBlock(t *testing.T) {
	w := newWorld(t, 64<<20)
	x, meta := w.m.Extents, w.m.Space.Metadata()
	for added := true; added; {
		var err error
		added, err = x.AllocChunk(w.t, format.BlockGroupData)
		w.ok(err)
	}
	root := w.m.Root(format.FS_TREE_OBJECTID)
	meta.AddTotal(w.t, 1<<30, 0, 0) // promises beyond what there is
	tr := &ctree.Trans{ID: w.m.Generation(w.t) + 1}
	for n := 0; ; n++ {
		if _, err := x.AllocTreeBlock(w.t, tr, root, 0); err != nil {
			if !errors.Is(err, errno.ENOSPC) || n < 100 {
				t.Fatalf("block %d: %v", n, err)
			}
			break
		}
	}
	if n := w.m.Space.Global.Reserved(w.t); n >= format.NodeSize {
		t.Fatalf("the global reserve still has %d bytes", n)
	}
	promise := func(n uint64) uint64 {
		w.ok(meta.Reserve(w.t, n, spaceinfo.NoFlush))
		return n
	}
	var bucket spaceinfo.BlockRsv
	w.m.Space.InitRsv(&bucket, promise(3*format.NodeSize))
	for _, c := range []struct {
		name string
		tr   *ctree.Trans
	}{
		{"the handle's bucket", &ctree.Trans{ID: tr.ID, Priv: &bucket}},
		{"the global reserve", tr},
		{"the account", tr},
	} {
		switch c.name {
		case "the global reserve":
			w.m.Space.Global.Add(w.t, promise(2*format.NodeSize))
		case "the account":
			w.m.Space.Global.ReleaseAll(w.t)
		}
		before := fmt.Sprintf("%+v, bucket %d, global %d", meta.Usage(w.t), bucket.Reserved(w.t), w.m.Space.Global.Reserved(w.t))
		_, err := x.AllocTreeBlock(w.t, c.tr, root, 0)
		if !errors.Is(err, errno.ENOSPC) {
			t.Errorf("paid by %s: %v, want ENOSPC", c.name, err)
		}
		if after := fmt.Sprintf("%+v, bucket %d, global %d", meta.Usage(w.t), bucket.Reserved(w.t), w.m.Space.Global.Reserved(w.t)); after != before {
			t.Errorf("paid by %s: before %s\nafter %s", c.name, before, after)
		}
	}
}

// A tree block that is freed in the transaction that made it gives its bytes back to what has paid
// for them. A block of the chunk tree is paid by the account of system chunks: put into the
// handle's bucket its bytes would be a promise of metadata that nobody made, and the system account
// would keep one that nobody ends.
func TestTreeBlockGivenBack(t *testing.T) {
	w := newWorld(t, 64<<20)
	x, meta, system := w.m.Extents, w.m.Space.Metadata(), w.m.Space.System()
	var bucket spaceinfo.BlockRsv
	w.ok(meta.Reserve(w.t, 3*format.NodeSize, spaceinfo.NoFlush))
	w.m.Space.InitRsv(&bucket, 3*format.NodeSize)
	id := w.m.Generation(w.t) + 1
	state := func() string {
		return fmt.Sprintf("metadata %+v, system %+v, bucket %d", meta.Usage(w.t), system.Usage(w.t), bucket.Reserved(w.t))
	}
	for _, c := range []struct {
		name string
		root uint64
		tr   *ctree.Trans
	}{
		{"a subvolume's, paid by the handle", format.FS_TREE_OBJECTID, &ctree.Trans{ID: id, Priv: &bucket}},
		{"the chunk tree's, of a handle", format.CHUNK_TREE_OBJECTID, &ctree.Trans{ID: id, Priv: &bucket}},
		{"the chunk tree's, of the committer", format.CHUNK_TREE_OBJECTID, &ctree.Trans{ID: id}},
	} {
		before, root := state(), ctree.BareRoot(c.root)
		bytenr, err := x.AllocTreeBlock(w.t, c.tr, root, 0)
		w.ok(err)
		x.RefTreeBlock(w.t, root, bytenr, 0, format.Key{})
		if during := state(); during == before {
			t.Errorf("%s: nobody pays for the block: %s", c.name, during)
		}
		b := &ctree.Buffer{Bytenr: bytenr, Node: make(format.Node, format.NodeSize)}
		b.Node.SetGeneration(id)
		w.ok(x.FreeTreeBlock(w.t, c.tr, root, b, true))
		if after := state(); after != before {
			t.Errorf("%s: before %s\nafter %s", c.name, before, after)
		}
	}
}

// An extent longer than any chunk of a small device takes pieces of the chunks that its promise has
// made, and not chunk after chunk until the device has none: metadata would find no room.
func TestExtentLongerThanAChunk(t *testing.T) {
	w := newWorld(t, 256<<20)
	const n = 60 << 20
	w.ok(w.m.Space.Data().Reserve(w.t, n, spaceinfo.FlushData))
	before := w.m.Volumes.FreeDeviceBytes()
	var got []format.Range[format.Logical]
	for left := uint64(n); left > 0; {
		start, length, err := w.m.Extents.ReserveExtent(w.t, left, format.SectorSize, 0)
		w.ok(err)
		got = append(got, format.RangeOf(start, length))
		left -= length
	}
	if after := w.m.Volumes.FreeDeviceBytes(); after != before || len(got) > 4 {
		t.Errorf("%d pieces and %d bytes of the device in no chunk, want at most 4 and %d: %v", len(got), after, before, got)
	}
	for _, s := range got {
		w.m.Extents.FreeReservedExtent(w.t, s.Start, s.Len())
	}
}

// edit changes an item of a tree in a transaction of its own.
func (w *world) edit(tree uint64, k format.Key, insLen int, f func(h *transaction.Handle, p *ctree.Path)) {
	w.tb.Helper()
	w.txn(func(h *transaction.Handle) {
		var p ctree.Path
		defer p.Release(w.t)
		found, err := w.m.Forest.SearchSlot(w.t, h.Trans(), w.m.Root(tree), k, &p, insLen, true)
		w.ok(err)
		if !found {
			w.tb.Fatalf("no item %v", k)
		}
		f(h, &p)
	})
}

// Load reads the whole extent tree at open, and refuses one from which it would allocate what is in
// use. The tree checker has passed each block: what is wrong shows between blocks, or between
// trees.
func TestLoadRefuses(t *testing.T) {
	const ext = format.EXTENT_TREE_OBJECTID
	group := func(w *world) format.Key {
		c := w.dataGroups()[0]
		return format.Key{Objectid: c.Logical, Type: format.BLOCK_GROUP_ITEM_KEY, Offset: c.Chunk.Length}
	}
	item := func(w *world, f func(g *format.BlockGroupItem)) {
		w.edit(ext, group(w), 0, func(h *transaction.Handle, p *ctree.Path) {
			var g format.BlockGroupItem
			g.Decode(p.Item())
			f(&g)
			g.Encode(p.Item())
		})
	}
	for _, c := range []struct {
		want   string
		damage func(w *world)
	}{
		{"", func(w *world) {}},
		{"overlaps one that ends at", func(w *world) {
			// The last item of a leaf reaches into the first extent of the next one.
			var last format.Key
			var p ctree.Path
			more, err := w.m.Forest.SearchForward(w.t, w.m.Root(ext), format.Key{Objectid: w.dataGroups()[0].Logical}, &p)
			for leaf := uint64(0); more && err == nil; more, err = w.m.Forest.NextItem(w.t, w.m.Root(ext), &p) {
				if b := p.Nodes[0].Bytenr; leaf != 0 && b != leaf && last.Type == format.EXTENT_ITEM_KEY {
					break
				} else if leaf = b; true {
					last = p.Key()
				}
			}
			w.ok(err)
			if !more {
				w.tb.Fatal("the extents lie in one leaf")
			}
			p.Release(w.t)
			w.edit(ext, last, -1, func(h *transaction.Handle, p *ctree.Path) {
				last.Offset += format.SectorSize
				w.m.Forest.SetItemKeySafe(w.t, p, last)
			})
			item(w, func(g *format.BlockGroupItem) { g.Used += format.SectorSize })
		}},
		{"bad used", func(w *world) { item(w, func(g *format.BlockGroupItem) { g.Used += format.SectorSize }) }},
		{"bad flags", func(w *world) { item(w, func(g *format.BlockGroupItem) { g.Flags |= format.BlockGroupDup }) }},
		{"has no BLOCK_GROUP_ITEM", func(w *world) {
			w.edit(ext, group(w), -1, func(h *transaction.Handle, p *ctree.Path) {
				w.ok(w.m.Forest.DelItems(w.t, h.Trans(), w.m.Root(ext), p, p.Slot(), 1))
			})
		}},
		{"lies in no chunk", func(w *world) {
			it := format.BlockGroupItem{ChunkObjectid: format.FIRST_CHUNK_TREE_OBJECTID, Flags: format.BlockGroupData}
			var b [format.BlockGroupItemSize]byte
			it.Encode(b[:])
			w.txn(func(h *transaction.Handle) {
				k := format.Key{Objectid: 1 << 40, Type: format.BLOCK_GROUP_ITEM_KEY, Offset: 1 << 20}
				w.ok(w.m.Forest.InsertItem(w.t, h.Trans(), w.m.Root(ext), k, b[:]))
			})
		}},
		{"block group", func(w *world) {
			w.edit(ext, group(w), -1, func(h *transaction.Handle, p *ctree.Path) {
				k := group(w)
				k.Offset -= 1 << 20
				w.m.Forest.SetItemKeySafe(w.t, p, k)
			})
		}},
		{"extent ends at", func(w *world) {
			c := w.dataGroups()[0]
			b := make([]byte, format.ExtentItemSize+format.InlineRefSize(format.EXTENT_DATA_REF_KEY))
			it := format.ExtentItem{Refs: 1, Generation: 1, Flags: format.ExtentFlagData}
			it.Encode(b)
			r := format.InlineRef{Type: format.EXTENT_DATA_REF_KEY, Data: format.ExtentDataRef{DataRef: refAt(0), Count: 1}}
			r.Encode(b[format.ExtentItemSize:])
			w.txn(func(h *transaction.Handle) {
				k := format.Key{Objectid: c.End() - format.SectorSize, Type: format.EXTENT_ITEM_KEY, Offset: 2 * format.SectorSize}
				w.ok(w.m.Forest.InsertItem(w.t, h.Trans(), w.m.Root(ext), k, b))
			})
		}},
	} {
		w := newWorld(t, 128<<20)
		w.txn(func(h *transaction.Handle) {
			for i := range uint64(600) { // three leaves
				w.alloc(h, format.SectorSize, i<<20)
			}
		})
		c.damage(w)
		b := make([]byte, format.SuperSize)
		w.ok(blockdev.Read(w.t, w.dev, b, format.SuperOffset))
		sb := new(format.Super)
		sb.Decode(b)
		v, err := volumes.Open([]volumes.Member{{Dev: w.dev, Super: sb}}, false)
		w.ok(err)
		_, err = transaction.Open(w.t, transaction.Config{Volumes: v, Super: sb})
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("have %v, want %q", err, c.want)
		}
	}
}

// Two tasks find no room at the same time: promised are twice 3 MiB, free three pieces of 2 MiB.
// One adds a chunk, and both are served from it, one of them perhaps while the chunk is only half
// known; its commit records the new group. The second task runs to its end at each lock of the
// first one.
func TestNewChunk(tt *testing.T) {
	w := newWorld(tt, 256<<20)
	w.txn(func(h *transaction.Handle) {
		for i, n := range []uint64{2 << 20, 512 << 10, 2 << 20, 512 << 10, 2 << 20, 1 << 20} {
			w.alloc(h, n, uint64(i)<<30)
		}
	})
	w.txn(func(h *transaction.Handle) {
		start := format.Logical(w.dataGroups()[0].Logical)
		for i, at := range []format.Logical{0, 2560 << 10, 5 << 20} {
			w.ok(w.m.Extents.FreeExtent(w.t, h.Trans(), refAt(uint64(2*i)<<30), start+at, 2<<20))
		}
	})
	base := w.dev.Device.(*blockdev.Memory)
	writer := func(t *sched.Task, w *world, off uint64) error {
		const n = 3 << 20
		if err := w.m.Space.Data().Reserve(t, n, spaceinfo.NoFlush); err != nil {
			return err
		}
		start, got, err := w.m.Extents.ReserveExtent(t, n, n, 0)
		if err != nil {
			return err
		}
		h, err := w.m.Join(t)
		if err != nil {
			return err
		}
		if err := w.m.Extents.AllocReservedFileExtent(t, h.Trans(), refAt(off), start, got); err != nil {
			return err
		}
		if err := h.End(t); err != nil {
			return err
		}
		return w.m.Commit(t)
	}
	for step := 0; ; step++ {
		cut := &switchOnce{after: step, to: 2, classes: []string{"chunk_mutex", "delayed_refs"}}
		r := explore.Once(explore.OnceConfig{Strategy: cut}, func(task *sched.Task) {
			w := &world{tb: tt, t: task, firstFit: true, dev: &device{Device: base.Snapshot()}}
			w.open()
			chunks := len(w.m.Volumes.Chunks())
			left := 2
			for i := range uint64(2) {
				task.Go(fmt.Sprint("writer", i), func(t *sched.Task) {
					if err := writer(t, w, (10+i)<<30); err != nil {
						tt.Errorf("switched at step %d, %s: %v", step, t.Name, err)
					}
					if left--; left == 0 && len(w.m.Volumes.Chunks()) != chunks+1 {
						tt.Errorf("switched at step %d: %d new chunks, want 1", step, len(w.m.Volumes.Chunks())-chunks)
					}
				})
			}
		})
		if r.Verdict != explore.OK || tt.Failed() {
			tt.Fatalf("switched at step %d, schedule %q: %v: %s", step, r.Schedule, r.Verdict, r.Violation)
		}
		if !cut.done {
			if step < 10 {
				tt.Errorf("a writer has %d steps at which another can go on, want more", step)
			}
			break
		}
	}
	// The same by a search that switches once: the list of groups is no lock and has scheduling
	// points of its own, else the second task has looked for space, and found none, before anything
	// is decided.
	some := lockdep.IDs("chunk_mutex", "delayed_refs", "block_group")
	r := explore.Run(explore.Config{Preemptions: 1, Switch: some, NoShrink: true}, func(x *explore.World) {
		w := &world{tb: tt, t: x.Task(), firstFit: true, dev: &device{Device: base.Snapshot()}}
		w.open()
		var failed error
		for i := range uint64(2) {
			x.Go(fmt.Sprint("writer", i), func(t *sched.Task) {
				if err := writer(t, w, (10+i)<<30); err != nil {
					failed = err
				}
			})
		}
		x.Check(func() error { return failed })
	})
	if r.Verdict == explore.Violated || r.Schedules < 20 {
		tt.Errorf("%s, schedule %q: %s", r.Bound, r.Schedule, r.Violation)
	}
	tt.Logf("%s", r.Bound)
}

// switchOnce lets task to go on instead of another one, once: after so many locks of the classes
// that the other takes.
type switchOnce struct {
	after, to int
	classes   []string
	done      bool
}

func (s *switchOnce) Pick(d explore.Decision) int {
	i := slices.Index(d.Enabled, d.Default)
	if s.done || d.Default == s.to || i < 0 || !slices.Contains(d.Enabled, s.to) {
		return d.Default
	}
	for _, c := range lockdep.Classes() {
		if c.ID == d.Next[i].Class && slices.Contains(s.classes, c.Name) {
			if s.after--; s.after < 0 {
				s.done = true
				return s.to
			}
		}
	}
	return d.Default
}
