package writeback_test

import (
	"errors"
	"math"
	"sync/atomic"
	"testing"
	"time"

	"btrlab/internal/blockdev"
	"btrlab/internal/data/finish"
	"btrlab/internal/data/pagecache"
	"btrlab/internal/data/place"
	"btrlab/internal/data/writeback"
	"btrlab/internal/errno"
	"btrlab/internal/format"
	"btrlab/internal/lock/lockdep"
	"btrlab/internal/meta/transaction"
	"btrlab/internal/progs/mkfs"
	"btrlab/internal/sched"
	"btrlab/internal/sched/explore"
	"btrlab/internal/testing/datatest"
)

// stingy is an allocator that has no space when it is told so.
type stingy struct {
	place.Extents
	none atomic.Int32 // this many times from now on
}

func (s *stingy) ReserveExtent(t *sched.Task, n, least uint64, hint format.Logical) (format.Logical, uint64, error) {
	if s.none.Add(-1) >= 0 {
		return 0, 0, errno.ENOSPC
	}
	return s.Extents.ReserveExtent(t, n, least, hint)
}

// newStingy is a World whose data space can be made to run out.
func newStingy(t *testing.T) (*datatest.World, *stingy) {
	w := datatest.New(t, 256<<20)
	s := &stingy{Extents: w.Manager.Extents}
	w.Engine.Close(w.T)
	w.Engine = writeback.New(w.T, writeback.Config{FS: w.FS, Place: place.New(w.Items, s), Finish: w.Finisher, Store: w.Manager.Volumes})
	return w, s
}

// The flusher finds no place for pages that a writer was promised one for. It drops them and those
// alone, gives their space back and goes on; the next fsync says so, because nobody else was told.
func TestNoPlace(t *testing.T) {
	w, space := newStingy(t)
	ip := w.Create(datatest.Nocow)
	const piece = 16 << 10
	old := datatest.Pattern(piece, 1)
	datatest.Must(t, w.Write(w.T, ip, old, 0))
	datatest.Must(t, w.Write(w.T, ip, old, 2*piece))
	w.Sync()
	var since atomic.Uint64
	since.Store(ip.Pages.ErrorSeq())

	want := datatest.Pattern(3*piece, 2)
	datatest.Must(t, w.Write(w.T, ip, want, 0)) // in place, into a hole, in place
	space.none.Store(1)
	w.Engine.FlushDelalloc(w.T, math.MaxUint64, true)
	if err := ip.Pages.CheckError(w.T, &since); !errors.Is(err, errno.ENOSPC) {
		t.Errorf("fsync: have %v want ENOSPC", err)
	}
	w.Quiescent()
	w.FS.Cache.DropClean(w.T)
	clear(want[piece : 2*piece])
	w.Expect(ip, want)
	w.Close()
}

// A sync whose first file has no space writes the others' data all the same: the commit that
// follows has it.
func TestNoPlaceForOne(t *testing.T) {
	w, space := newStingy(t)
	a, b := w.Create(0), w.Create(0)
	data := datatest.Pattern(64<<10, 1)
	datatest.Must(t, w.Write(w.T, a, data, 0))
	datatest.Must(t, w.Write(w.T, b, data, 0))
	space.none.Store(1)
	if err := w.Engine.SyncAll(w.T); !errors.Is(err, errno.ENOSPC) {
		t.Errorf("sync: have %v want ENOSPC", err)
	}
	if n, o := b.DelallocBytes(), b.Ordered.Len(); n != 0 || o != 0 {
		t.Errorf("the other file has %d bytes of delalloc and %d ordered extents, want none", n, o)
	}
	w.Sync()
	w.Quiescent()
	w.Expect(b, data)
	w.Close()
}

// A run of more than one bio: each page has its checksum and its place.
func TestLongRun(t *testing.T) {
	for _, flags := range []uint64{0, datatest.Nocow} {
		w := datatest.New(t, 256<<20)
		ip := w.Create(flags)
		data := datatest.Pattern(3<<20+100, 1)
		datatest.Must(t, w.Write(w.T, ip, data, 0))
		w.Sync()
		w.FS.Cache.DropClean(w.T)
		w.Expect(ip, data)
		w.Close()
	}
}

// Writeback of a range takes every page that the range touches, and no other.
func TestWritePagesRange(t *testing.T) {
	const pages = 5
	for _, c := range []struct {
		start, end uint64
		want       string // the pages afterwards: dirty or clean
	}{
		{0, 1, "cDDDD"}, {pageSize, 2 * pageSize, "DcDDD"}, {pageSize - 1, pageSize + 1, "ccDDD"},
		{pageSize + 10, 3*pageSize + 1, "DcccD"}, {4*pageSize + 10, 4*pageSize + 20, "DDDDc"}, {0, pagecache.MaxFileEnd, "ccccc"},
	} {
		w := datatest.New(t, 256<<20)
		ip := w.Create(0)
		datatest.Must(t, w.Write(w.T, ip, datatest.Pattern(pages*pageSize, 1), 0))
		datatest.Must(t, w.Engine.WaitOrderedRange(w.T, ip, c.start, c.end))
		have := ""
		for i := range uint64(pages) {
			have += ip.Pages.Describe(i)
		}
		if have != c.want {
			t.Errorf("[%d, %d): have %s want %s", c.start, c.end, have, c.want)
		}
		w.Close()
	}
}

// TestErrorBeforeEnd: another task has the page in hand and loses its data: no place for it, or no
// transaction for an inline file. An fsync that waits for the page hears of it, whenever it begins:
// the error is there before writeback ends.
func TestErrorBeforeEnd(t *testing.T) {
	mem := blockdev.NewMemory(128 << 20)
	datatest.Must(t, mkfs.Make(sched.NewTask("mkfs"), mem, mkfs.Options{Now: time.Unix(1e9, 0)}))
	for _, c := range []struct {
		name string
		size int
	}{{"no place", pageSize}, {"inline", 100}} {
		cfg := explore.Config{Preemptions: 1, MaxSteps: 20_000, Schedules: 400, NoCache: true, Switch: lockdep.IDs("page_state", "extent", "stable_page", "mapping")}
		r := explore.Run(cfg, func(x *explore.World) {
			dev := mem.Snapshot()
			w := datatest.Mount(panicTB{t}, x.Task(), dev, dev)
			space := &stingy{Extents: w.Manager.Extents}
			space.none.Store(1)
			done := finish.New(x.Task(), finish.Config{FS: w.FS, Items: w.Items, Extents: w.Manager.Extents, Workers: 1,
				Join: func(*sched.Task, uint64) (*transaction.Handle, error) { return nil, errno.EROFS }})
			e := writeback.New(x.Task(), writeback.Config{FS: w.FS, Place: place.New(w.Items, space), Finish: done, Store: w.Manager.Volumes})
			ip := w.Create(0)
			var since atomic.Uint64
			datatest.Must(panicTB{t}, w.Write(x.Task(), ip, make([]byte, c.size), 0))
			x.Go("writeback", func(t *sched.Task) {
				x.Call(t)
				_ = e.WritePages(t, ip, 0, pagecache.MaxFileEnd, false)
			})
			var err error
			x.Go("fsync", func(t *sched.Task) {
				x.Call(t)
				if err = e.FlushPages(t, ip, 0, pagecache.MaxFileEnd); err == nil {
					err = ip.Pages.CheckError(t, &since)
				}
			})
			x.Check(func() error {
				if err == nil {
					return errors.New("the data is lost, and fsync reports success")
				}
				return nil
			})
		})
		if r.Verdict == explore.Violated || r.Schedules < 10 {
			t.Errorf("%s: %v after %d schedules: %s; schedule %q", c.name, r.Verdict, r.Schedules, r.Violation, r.Schedule)
		}
		t.Logf("%s: %d schedules", c.name, r.Schedules)
	}
}

// A round of the flusher writes about as many pages of a file as it is told, goes on where the last
// one stopped, and begins again after the end of the file. If it did not count what it writes, one
// large file would keep all others waiting.
func TestFlushSome(t *testing.T) {
	const pages, n = 40, 16
	w := datatest.New(t, 256<<20)
	ip := w.Create(0)
	dirty := func() {
		datatest.Must(t, w.Write(w.T, ip, datatest.Pattern(pages*pageSize, 1), 0))
	}
	dirty()
	for left := pages; left > 0; left -= n {
		want := min(n, left)
		if have := w.Engine.FlushSome(w.T, ip, n); have != want {
			t.Errorf("with %d pages dirty: %d are written, want %d", left, have, want)
		}
		if have := int(ip.Pages.DirtyPages(w.T)); have != left-want {
			t.Errorf("with %d pages dirty: %d are left, want %d", left, have, left-want)
		}
	}
	w.Sync()
	dirty()
	if have := w.Engine.FlushSome(w.T, ip, pages); have != pages {
		t.Errorf("from the end of the file on: %d pages are written, want %d", have, pages)
	}
	w.Sync()
	w.Close()
}
