package transaction_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"btrlab/internal/format"
	"btrlab/internal/meta/ctree"
	"btrlab/internal/meta/spaceinfo"
	"btrlab/internal/meta/transaction"
	"btrlab/internal/sched"
)

// refsOf reads the references of a data extent, inline and keyed, and the count in its item.
func refsOf(tb testing.TB, t *sched.Task, m *transaction.Manager, bytenr format.Logical, length uint64) (refs map[format.DataRef]uint32, total uint64, keyed int) {
	tb.Helper()
	refs = map[format.DataRef]uint32{}
	var p ctree.Path
	defer p.Release(t)
	ext := m.Root(format.EXTENT_TREE_OBJECTID)
	more, err := m.Forest.SearchForward(t, ext, format.Key{Objectid: uint64(bytenr), Type: format.EXTENT_ITEM_KEY}, &p)
	last := ^uint64(0)
	add := func(d format.ExtentDataRef) {
		refs[d.DataRef] += d.Count
	}
	for ; more && err == nil && p.Key().Objectid == uint64(bytenr); more, err = m.Forest.NextItem(t, ext, &p) {
		switch k := p.Key(); k.Type {
		case format.EXTENT_ITEM_KEY:
			if k.Offset != length {
				tb.Fatalf("extent %v, want length %d", k, length)
			}
			var it format.ExtentItem
			it.Decode(p.Item())
			total = it.Refs
			inline, err := format.InlineRefs(p.Item(), format.ExtentItemSize)
			if err != nil {
				tb.Fatal(err)
			}
			for _, r := range inline {
				if h := r.Data.Hash(); h > last {
					tb.Errorf("inline references ascend: %#x after %#x", h, last)
				} else {
					last = h
				}
				add(r.Data)
			}
		case format.EXTENT_DATA_REF_KEY:
			var d format.ExtentDataRef
			d.Decode(p.Item())
			if d.Hash() > k.Offset {
				tb.Errorf("reference %+v at %v, hash is %#x", d, k, d.Hash())
			}
			keyed++
			add(d)
		}
	}
	if err != nil {
		tb.Fatal(err)
	}
	return refs, total, keyed
}

// One extent is shared by more files than fit its item: references get items of their own, counts
// stay right in any order of coming and going, and the last one takes the extent along.
func TestManyReferences(t *testing.T) {
	task := sched.NewTask("test")
	m := open(t, task, newImage(t, task, 128<<20))
	const length = 64 << 10
	if err := m.Space.Data().Reserve(task, length, spaceinfo.FlushData); err != nil {
		t.Fatal(err)
	}
	start, _, err := m.Extents.ReserveExtent(task, length, length, 0)
	if err != nil {
		t.Fatal(err)
	}
	rng := rand.New(rand.NewPCG(3, 4))
	model := map[format.DataRef]uint32{}
	var list []format.DataRef
	sawKeyed := 0
	step := func(f func(h *transaction.Handle)) {
		t.Helper()
		h, err := m.Start(task, 1)
		if err != nil {
			t.Fatal(err)
		}
		f(h)
		if err := h.End(task); err != nil {
			t.Fatal(err)
		}
		if err := m.Commit(task); err != nil {
			t.Fatal(err)
		}
		have, total, keyed := refsOf(t, task, m, start, length)
		sawKeyed = max(sawKeyed, keyed)
		var sum uint64
		for _, n := range model {
			sum += uint64(n)
		}
		if fmt.Sprint(have) != fmt.Sprint(model) || total != sum {
			t.Fatalf("references %v, count %d, want %v, %d", have, total, model, sum)
		}
	}
	add := func(h *transaction.Handle, d format.DataRef, first bool) {
		if first {
			err = m.Extents.AllocReservedFileExtent(task, h.Trans(), d, start, length)
		} else {
			err = m.Extents.IncExtentRef(task, h.Trans(), d, start, length)
		}
		if err != nil {
			t.Fatal(err)
		}
		model[d]++
		list = append(list, d)
	}
	drop := func(h *transaction.Handle) {
		i := rng.IntN(len(list))
		d := list[i]
		list[i] = list[len(list)-1]
		list = list[:len(list)-1]
		if err := m.Extents.FreeExtent(task, h.Trans(), d, start, length); err != nil {
			t.Fatal(err)
		}
		if model[d]--; model[d] == 0 {
			delete(model, d)
		}
	}
	ref := func() format.DataRef {
		return format.DataRef{Root: format.FS_TREE_OBJECTID, Ino: format.Ino(300 + rng.Uint64N(60)), Offset: format.FileOff(rng.Uint64N(2) << 16)}
	}
	step(func(h *transaction.Handle) { add(h, ref(), true); add(h, ref(), false) })
	for range 40 {
		step(func(h *transaction.Handle) {
			for range 10 {
				if rng.IntN(3) == 0 && len(list) > 1 {
					drop(h)
				} else {
					add(h, ref(), false)
				}
			}
		})
	}
	if sawKeyed == 0 {
		t.Error("no reference ever got an item of its own")
	}
	used := m.Space.Data().Usage(task).Used
	step(func(h *transaction.Handle) {
		for len(list) > 0 {
			drop(h)
		}
	})
	if u := m.Space.Data().Usage(task).Used; u != used-length {
		t.Errorf("data used %d after the last reference, want %d", u, used-length)
	}
	if err := freeSpaceTreeExact(task, m); err != nil {
		t.Error(err)
	}
	checkAccounts(t, task, m)
}

// toBitmaps rewrites the data group's free space as bitmaps, as Linux does when a group is
// fragmented.
func toBitmaps(tb testing.TB, t *sched.Task, m *transaction.Manager) (group, length uint64) {
	tb.Helper()
	for _, c := range m.Volumes.Chunks() {
		if c.Chunk.Type&format.BlockGroupData != 0 {
			group, length = c.Logical, c.Chunk.Length
		}
	}
	h, err := m.Start(t, 100)
	if err != nil {
		tb.Fatal(err)
	}
	fst := m.Root(format.FREE_SPACE_TREE_OBJECTID)
	bits := make([]byte, length/format.SectorSize/8)
	var info format.FreeSpaceInfo
	var p ctree.Path
	var del []format.Key
	more, err := m.Forest.SearchForward(t, fst, format.Key{Objectid: group}, &p)
	for ; more && err == nil && p.Key().Objectid < group+length; more, err = m.Forest.NextItem(t, fst, &p) {
		switch k := p.Key(); k.Type {
		case format.FREE_SPACE_INFO_KEY:
			info.Decode(p.Item())
		case format.FREE_SPACE_EXTENT_KEY:
			del = append(del, k)
			for o := k.Objectid; o < k.Objectid+k.Offset; o += format.SectorSize {
				n := (o - group) / format.SectorSize
				bits[n/8] |= 1 << (n % 8)
			}
		}
	}
	p.Release(t)
	for _, k := range del {
		if _, err := m.Forest.SearchSlot(t, h.Trans(), fst, k, &p, -1, true); err != nil {
			tb.Fatal(err)
		}
		if err := m.Forest.DelItems(t, h.Trans(), fst, &p, p.Slot(), 1); err != nil {
			tb.Fatal(err)
		}
		p.Release(t)
	}
	for o := uint64(0); o < length; o += format.FreeSpaceBitmapRange {
		n := min(length-o, format.FreeSpaceBitmapRange)
		b := bits[o/format.SectorSize/8:][:n/format.SectorSize/8]
		k := format.Key{Objectid: group + o, Type: format.FREE_SPACE_BITMAP_KEY, Offset: n}
		if err := m.Forest.InsertItem(t, h.Trans(), fst, k, b); err != nil {
			tb.Fatal(err)
		}
	}
	k := format.Key{Objectid: group, Type: format.FREE_SPACE_INFO_KEY, Offset: length}
	if found, err := m.Forest.SearchSlot(t, h.Trans(), fst, k, &p, 0, true); err != nil || !found {
		tb.Fatal(found, err)
	}
	info.Flags |= format.FreeSpaceUsingBitmaps
	info.Encode(p.Item())
	p.Release(t)
	if err := h.End(t); err != nil {
		tb.Fatal(err)
	}
	if err := m.Commit(t); err != nil {
		tb.Fatal(err)
	}
	return group, length
}

// Extents come and go in a group that Linux left with bitmaps: bits and run count stay exact.
func TestBitmaps(t *testing.T) {
	task := sched.NewTask("test")
	m := open(t, task, newImage(t, task, 128<<20))
	makeInodes(t, task, m, 1)
	group, length := toBitmaps(t, task, m)
	rng := rand.New(rand.NewPCG(5, 6))
	model := extents{}
	var keys []format.Key
	for n := range 400 {
		if len(keys) > 30 || len(keys) > 0 && rng.IntN(2) == 0 {
			i := rng.IntN(len(keys))
			if err := remove(task, m, model, keys[i]); err != nil {
				t.Fatal(err)
			}
			keys = append(keys[:i], keys[i+1:]...)
		} else {
			k := format.Key{Objectid: 1000, Type: format.EXTENT_DATA_KEY, Offset: uint64(n) << 20}
			if err := insert(task, m, model, k, (1+rng.Uint64N(40))*format.SectorSize); err != nil {
				t.Fatal(err)
			}
			keys = append(keys, k)
		}
		if n%10 != 9 {
			continue
		}
		if err := m.Commit(task); err != nil {
			t.Fatal(err)
		}
		want := make([]bool, length/format.SectorSize)
		for i := range want {
			want[i] = true
		}
		for _, fe := range model {
			for o := range fe.DiskNumBytes / format.SectorSize {
				if i := (fe.DiskBytenr-group)/format.SectorSize + o; i < uint64(len(want)) {
					want[i] = false
				}
			}
		}
		checkBitmaps(t, task, m, group, length, want)
	}
}

func checkBitmaps(tb testing.TB, t *sched.Task, m *transaction.Manager, group, length uint64, want []bool) {
	tb.Helper()
	var p ctree.Path
	defer p.Release(t)
	var info format.FreeSpaceInfo
	fst := m.Root(format.FREE_SPACE_TREE_OBJECTID)
	more, err := m.Forest.SearchForward(t, fst, format.Key{Objectid: group}, &p)
	for ; more && err == nil && p.Key().Objectid < group+length; more, err = m.Forest.NextItem(t, fst, &p) {
		k := p.Key()
		switch k.Type {
		case format.FREE_SPACE_INFO_KEY:
			info.Decode(p.Item())
		case format.FREE_SPACE_BITMAP_KEY:
			for o := uint64(0); o < k.Offset; o += format.SectorSize {
				n := o / format.SectorSize
				if have, w := p.Item()[n/8]>>(n%8)&1 == 1, want[(k.Objectid+o-group)/format.SectorSize]; have != w {
					tb.Fatalf("sector %d free: have %v, want %v", k.Objectid+o, have, w)
				}
			}
		default:
			tb.Fatalf("item %v in a group of bitmaps", k)
		}
	}
	if err != nil {
		tb.Fatal(err)
	}
	runs := uint32(0)
	for i, free := range want {
		if free && (i == 0 || !want[i-1]) {
			runs++
		}
	}
	if info.ExtentCount != runs {
		tb.Fatalf("extent_count %d, want %d", info.ExtentCount, runs)
	}
}
