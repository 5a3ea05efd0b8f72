package place_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"btrlab/internal/data/inode"
	"btrlab/internal/data/ordered"
	"btrlab/internal/data/pagecache"
	"btrlab/internal/data/place"
	"btrlab/internal/errno"
	"btrlab/internal/format"
	"btrlab/internal/kiocb"
	"btrlab/internal/lock/extentio"
	"btrlab/internal/meta/ctree"
	"btrlab/internal/meta/fstree"
	"btrlab/internal/meta/spaceinfo"
	"btrlab/internal/sched"
	"btrlab/internal/sched/explore"
)

// item is one file extent of a made-up file: in place if it may be overwritten.
type item struct {
	start, end uint64
	typ        uint8
	in         bool
}

// trees are the items of a file, with holes between, and a file system that hands out space in
// pieces.
type trees struct {
	items []item
	piece uint64 // the longest piece of free space
	next  uint64
	left  uint64
	fail  uint64 // file offset at which a look at the tree fails
	// during, if set, is called when a look at the tree has its answer and has not given it yet.
	during func()
	asked  int // calls of CanNocow
}

func (x *trees) at(off uint64) (it item, next uint64, ok bool) {
	next = 1 << 40
	for _, it := range x.items {
		if it.start <= off && off < it.end {
			return it, it.end, true
		}
		if it.start > off {
			return item{}, it.start, false
		}
	}
	return item{}, next, false
}

func (x *trees) LookupFileExtent(t *sched.Task, r *ctree.Root, ino format.Ino, off uint64) (uint64, format.FileExtent, bool, error) {
	it, next, ok := x.at(off)
	if x.during != nil {
		x.during()
	}
	if !ok {
		return next, format.FileExtent{}, false, nil
	}
	return it.start, format.FileExtent{Type: it.typ, NumBytes: it.end - it.start, DiskBytenr: 1<<30 + it.start, DiskNumBytes: it.end - it.start, Generation: 7}, true, nil
}

func (x *trees) CanNocow(t *sched.Task, r *ctree.Root, ino format.Ino, off, length uint64, nodatacow, nowait bool) (uint64, fstree.NocowExtent, error) {
	x.asked++
	if x.fail != 0 && off >= x.fail {
		return 0, fstree.NocowExtent{}, errno.EIO
	}
	it, _, ok := x.at(off)
	if x.during != nil {
		x.during()
	}
	if !ok || !it.in {
		return 0, fstree.NocowExtent{}, nil
	}
	e := fstree.NocowExtent{Start: it.start, NumBytes: it.end - it.start, Type: it.typ, DiskBytenr: 1<<30 + it.start, DiskNumBytes: it.end - it.start, WriteBytenr: 1<<30 + off, Generation: 7}
	return min(length, it.end-off), e, nil
}

func (x *trees) TryLookupFileExtent(t *sched.Task, r *ctree.Root, ino format.Ino, off uint64) (uint64, format.FileExtent, bool, error) {
	return x.LookupFileExtent(t, r, ino, off)
}

func (x *trees) CheckNocow(t *sched.Task, r *ctree.Root, ino format.Ino, off, length uint64, c fstree.NocowCheck) (uint64, fstree.NocowExtent, error) {
	return x.CanNocow(t, r, ino, off, length, c.Nodatacow, c.Nowait)
}

func (x *trees) ReserveExtent(t *sched.Task, n, least uint64, hint format.Logical) (format.Logical, uint64, error) {
	n = min(n, x.piece, x.left)
	if n < least {
		return 0, 0, errno.ENOSPC
	}
	at := x.next
	x.next += n
	x.left -= n
	return format.Logical(at), n, nil
}

const kb = 1024

// Next gives the range its places in order: in place where the file may be overwritten,
// preallocated space, and new space for everything between at once, in pieces as free space has
// them. What has no place is named with its range, and what comes after it has one again.
func TestNext(t *testing.T) {
	file := []item{
		{0, 8 * kb, format.FileExtentTypeReg, true},
		{16 * kb, 24 * kb, format.FileExtentTypeReg, false}, // shared, say
		{24 * kb, 32 * kb, format.FileExtentTypePrealloc, true},
	}
	const all = "nocow 0K+8K at 1024M, regular 8K+12K at 2048M, regular 20K+4K at 2048M+12K, prealloc 24K+8K at 1024M+24K, regular 32K+4K at 2048M+16K"
	for _, c := range []struct {
		name       string
		flags      uint64
		x          trees
		start, end uint64
		want       string
	}{
		{"nocow", format.InodeNoDataCow, trees{items: file, piece: 12 * kb, left: 1 << 20}, 0, 36 * kb, all},
		{"cow", 0, trees{items: file, piece: 12 * kb, left: 1 << 20}, 0, 20 * kb, "regular 0K+12K at 2048M, regular 12K+8K at 2048M+12K"},
		{"inside", format.InodeNoDataCow, trees{items: file, piece: 12 * kb, left: 1 << 20}, 4 * kb, 12 * kb, "nocow 4K+4K at 1024M+4K, regular 8K+4K at 2048M"},
		{"no space", format.InodeNoDataCow, trees{items: file, piece: 12 * kb, left: 12 * kb}, 0, 32 * kb,
			"nocow 0K+8K at 1024M, regular 8K+12K at 2048M, 20K+4K ENOSPC, prealloc 24K+8K at 1024M+24K"},
		{"bad tree", format.InodeNoDataCow, trees{items: file, piece: 12 * kb, left: 1 << 20, fail: 16 * kb}, 0, 32 * kb, "nocow 0K+8K at 1024M, 8K+24K EIO"},
	} {
		task := sched.NewTask("test")
		x := c.x
		x.next = 2048 << 20
		f := place.New(&x, &x)
		ip := inode.NewFS(spaceinfo.New(16384, 1), pagecache.NewCache(0, 1<<20, 2<<20)).New(ctree.BareRoot(5), 257, &format.InodeItem{Mode: format.S_IFREG, Flags: c.flags})
		ip.IOTree.Lock(task, c.start, c.end)
		var got []string
		for at := c.start; at < c.end; {
			e, err := f.Next(task, ip, at, c.end)
			if e.Start != at || e.Len == 0 {
				t.Fatalf("%s: piece %+v at %d", c.name, e, at)
			}
			switch where := uint64(e.DiskBytenr); {
			case errors.Is(err, errno.ENOSPC):
				got = append(got, fmt.Sprintf("%dK+%dK ENOSPC", e.Start/kb, e.Len/kb))
			case errors.Is(err, errno.EIO):
				got = append(got, fmt.Sprintf("%dK+%dK EIO", e.Start/kb, e.Len/kb))
			case where%(1<<20) != 0:
				got = append(got, fmt.Sprintf("%v %dK+%dK at %dM+%dK", e.Type, e.Start/kb, e.Len/kb, where>>20, where%(1<<20)/kb))
			default:
				got = append(got, fmt.Sprintf("%v %dK+%dK at %dM", e.Type, e.Start/kb, e.Len/kb, where>>20))
			}
			at += e.Len
		}
		ip.IOTree.Unlock(task, c.start, c.end)
		if have := strings.Join(got, ", "); have != c.want {
			t.Errorf("%s: have %s want %s", c.name, have, c.want)
		}
	}
}

const nocow = format.InodeNoDataCow | format.InodeNoDataSum

// newInode gives an inode of a file system with so many bytes of data space.
func newInode(t *sched.Task, data, flags uint64) *inode.Inode {
	s := spaceinfo.New(16384, 1)
	s.Data().AddTotal(t, data, 0, 0)
	return inode.NewFS(s, pagecache.NewCache(0, 1<<20, 2<<20)).New(ctree.BareRoot(5), 257, &format.InodeItem{Mode: format.S_IFREG, Flags: flags})
}

// An extent is dropped while a look at it is on its way: the answer is of before, so it is not
// remembered.
func TestOvertaken(t *testing.T) {
	for _, typ := range []uint8{format.FileExtentTypeReg, format.FileExtentTypePrealloc} {
		task := sched.NewTask("test")
		ip := newInode(task, 1<<20, nocow)
		x := &trees{items: []item{{0, 8 * kb, typ, true}}}
		f := place.New(x, x)
		once := func() {
			ip.Extents.Drop(task, 0, 8*kb)
			x.during = nil
		}
		x.during = once
		if m, err := f.At(task, ip, 0); err != nil || m.End != 8*kb {
			t.Fatal(m, err)
		}
		if m, ok := ip.Extents.Lookup(task, 0); ok {
			t.Errorf("At of a type %d extent remembers what was dropped: %+v", typ, m)
		}
	}
}

// What may be overwritten is asked of the trees each time, and one question covers one extent.
// Where the file is known to have nothing, they are not asked.
func TestGuess(t *testing.T) {
	task := sched.NewTask("test")
	ip := newInode(task, 1<<20, nocow)
	x := &trees{items: []item{
		{0, 8 * kb, format.FileExtentTypeReg, true},
		{8 * kb, 16 * kb, format.FileExtentTypePrealloc, true},
		{16 * kb, 24 * kb, format.FileExtentTypeReg, false},
	}}
	f := place.New(x, x)
	if _, err := f.At(task, ip, 28*kb); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		for _, c := range []struct {
			start, end uint64
			len        uint64 // 0 is no
			typ        ordered.Type
			asked      int
		}{
			{0, 4 * kb, 4 * kb, ordered.Nocow, 1}, {0, 12 * kb, 8 * kb, ordered.Nocow, 1}, {4 * kb, 8 * kb, 4 * kb, ordered.Nocow, 1},
			{8 * kb, 12 * kb, 4 * kb, ordered.Prealloc, 1}, {16 * kb, 20 * kb, 0, 0, 1}, {28 * kb, 32 * kb, 0, 0, 0},
		} {
			x.asked = 0
			have, ok, err := f.Guess(task, ip, c.start, c.end)
			if err != nil || ok != (c.len > 0) || have.Len != c.len || ok && have.Type != c.typ || x.asked != c.asked {
				t.Errorf("[%d, %d): have %+v %v %v, asked %d times, want %d bytes of type %v, asked %d times", c.start, c.end, have, ok, err, x.asked, c.len, c.typ, c.asked)
			}
		}
	}
}

// Preallocated space of a COW file that is dirty already will be converted by that writeback; then
// the next write of it is a copy, and needs space. So such a range does not count as one to
// overwrite, wherever the dirty block lies.
func TestCanNocowDirty(t *testing.T) {
	for dirty := uint64(0); dirty < 16*kb; dirty += 4 * kb {
		task := sched.NewTask("test")
		ip := newInode(task, 1<<20, format.InodePrealloc)
		x := &trees{items: []item{{0, 16 * kb, format.FileExtentTypePrealloc, true}}}
		f := place.New(x, x)
		if n, err := f.CanNocow(task, ip, 0, 16*kb, false); n != 16*kb || err != nil {
			t.Fatalf("clean: up to %d, %v", n, err)
		}
		ip.IOTree.Change(task, dirty, dirty+4*kb, 0, extentio.Delalloc)
		if n, err := f.CanNocow(task, ip, 0, 16*kb, false); n != 0 || err != nil {
			t.Errorf("block %d is dirty: up to %d, %v; want 0", dirty, n, err)
		}
		if n, err := f.CanNocow(task, ip, dirty, dirty+4*kb, true); n != dirty || err != nil {
			t.Errorf("block %d alone: up to %d, %v; want %d", dirty, n, err, dirty)
		}
	}
}

// What the trees say about a range does not hold while an ordered extent of the range is
// unfinished: its completion may replace the extent that they show. A question that may wait gets
// the answer of after, one that may not gets EAGAIN.
func TestCanNocowOrdered(t *testing.T) {
	r := explore.Run(explore.Config{MaxSteps: 1000}, func(w *explore.World) {
		ip := newInode(w.Task(), 1<<20, nocow)
		x := &trees{items: []item{{0, 8 * kb, format.FileExtentTypeReg, true}}}
		f := place.New(x, x)
		oe := ip.Ordered.Add(w.Task(), ip, ordered.Regular, 4*kb, 4*kb, 1<<30)
		var n, m uint64
		var err, merr error
		w.Go("ask", func(t *sched.Task) {
			w.Call(t)
			if !oe.Finished() {
				m, merr = f.CanNocow(t, ip, 0, 8*kb, true)
			} else {
				merr = kiocb.AgainNocow
			}
			n, err = f.CanNocow(t, ip, 0, 8*kb, false)
		})
		w.Go("complete", func(t *sched.Task) {
			w.Call(t)
			ip.IOTree.Lock(t, 4*kb, 8*kb)
			x.items = []item{{0, 4 * kb, format.FileExtentTypeReg, true}, {4 * kb, 8 * kb, format.FileExtentTypeReg, false}}
			ip.IOTree.Unlock(t, 4*kb, 8*kb)
			ip.Ordered.Remove(t, oe)
			oe.Put(t)
		})
		w.Check(func() error {
			switch {
			case merr == nil && m != 4*kb || merr != nil && merr != error(kiocb.AgainNocow):
				return fmt.Errorf("without a wait: up to %d, %v", m, merr)
			case err != nil || n != 4*kb:
				return fmt.Errorf("after the ordered extent: up to %d, %v; want 4096", n, err)
			}
			return nil
		})
	})
	if r.Verdict != explore.Exhausted {
		t.Errorf("%v after %d schedules: %s; schedule %q", r.Verdict, r.Schedules, r.Violation, r.Schedule)
	}
}

// Blocks that were dirtied without data space, because they were to be overwritten, and have to be
// copied after all, get theirs before they get a place; others have it. Without space they have no
// place.
func TestBackData(t *testing.T) {
	for _, c := range []struct {
		data, want uint64 // data space, and what of it is promised in the end
		err        error
	}{
		{1 << 20, 8 * kb, nil},
		{4 * kb, 4 * kb, errno.ENOSPC},
	} {
		task := sched.NewTask("test")
		ip := newInode(task, c.data, nocow)
		x := &trees{piece: 1 << 20, left: 1 << 20, next: 1 << 30}
		f := place.New(x, x)
		if err := ip.FS.Space.Data().Reserve(task, 4*kb, spaceinfo.NoFlush); err != nil {
			t.Fatal(err)
		}
		ip.IOTree.Change(task, 0, 4*kb, 0, extentio.Delalloc)
		ip.IOTree.Change(task, 4*kb, 8*kb, 0, extentio.Delalloc|extentio.NoReserve)
		ip.IOTree.Lock(task, 0, 8*kb)
		e, err := f.Next(task, ip, 0, 8*kb)
		if !errors.Is(err, c.err) || err == nil && e.Len != 8*kb {
			t.Errorf("%d bytes of data space: %+v, %v; want %v", c.data, e, err, c.err)
		}
		left := ip.IOTree.Count(task, 0, 8*kb, extentio.NoReserve)
		if have := ip.FS.Space.Data().Usage(task).MayUse; have != c.want || left != 8*kb-c.want {
			t.Errorf("%d bytes of data space: %d promised, %d bytes without; want %d, %d", c.data, have, left, c.want, 8*kb-c.want)
		}
		ip.IOTree.Unlock(task, 0, 8*kb)
	}
}
