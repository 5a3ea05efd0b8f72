package finish_test

import (
	"errors"
	"os"
	"sync/atomic"
	"testing"

	"btrlab/internal/blockdev"
	"btrlab/internal/data/finish"
	"btrlab/internal/data/inode"
	"btrlab/internal/data/ordered"
	"btrlab/internal/errno"
	"btrlab/internal/format"
	"btrlab/internal/meta/ctree"
	"btrlab/internal/meta/spaceinfo"
	"btrlab/internal/meta/transaction"
	"btrlab/internal/sched"
	"btrlab/internal/testing/datatest"
)

func TestMain(m *testing.M) {
	sched.SetChecked(true)
	os.Exit(m.Run())
}

// direct writes whole blocks at off without a page, piece by piece, as direct I/O does, and reports
// the types of the pieces and what the wait for them says. Each bio ends with fail.
func direct(w *datatest.World, ip *inode.Inode, data []byte, off uint64, fail error) (types []ordered.Type, err error) {
	t, space := w.T, ip.FS.Space
	n := uint64(len(data))
	datatest.Must(w.TB, space.Data().Reserve(t, n, spaceinfo.FlushData))
	datatest.Must(w.TB, ip.ReserveExtents(t, n, spaceinfo.FlushAll))
	ip.LockAndFlushOrdered(t, off, off+n)
	var made []*ordered.Extent
	for at := off; at < off+n; {
		x, err := w.Reader.Place.Next(t, ip, at, off+n)
		datatest.Must(w.TB, err)
		ip.AddOrdered(t, x.Type, x.Start, x.Len, x.DiskBytenr)
		// with a reference: it may be finished before the wait
		made = append(made, ip.Ordered.First(t, x.Start, x.Start+x.Len))
		if x.Type != ordered.Regular {
			space.Data().Release(t, x.Len)
		}
		types = append(types, x.Type)
		at += x.Len
	}
	ip.ReleaseExtents(t, n, 0)
	if ip.Size(t) < off+n {
		ip.SetSize(t, off+n)
	}
	ip.IOTree.Unlock(t, off, off+n)
	for _, oe := range made {
		piece := data[oe.Start-off:][:oe.Len]
		if oe.Type != ordered.Nocow && ip.Sums() {
			oe.SetSums(t, ip.FS.Csum.AppendSectors(oe.SumsBuffer(), piece))
		}
		datatest.Must(w.TB, blockdev.Do(t, w.Manager.Volumes, &blockdev.Bio{Op: blockdev.OpWrite, Off: int64(oe.DiskBytenr), Vecs: [][]byte{piece}}))
		if oe.Done(t, oe.Len, fail) {
			w.Finisher.Complete(t, oe)
		}
	}
	for _, oe := range made {
		oe.Wait(t)
		if err == nil {
			err = oe.Err()
		}
		oe.Put(t)
	}
	return types, err
}

// hooked is the items of a file system that calls before with each change of a file's items, and
// fails it if that says so.
type hooked struct {
	finish.Items
	before func(t *sched.Task, op string) error
}

func (h hooked) SetFileExtent(t *sched.Task, tr *ctree.Trans, r *ctree.Root, ino format.Ino, start, end uint64, fe *format.FileExtent) (uint64, error) {
	if err := h.before(t, "extent"); err != nil {
		return 0, err
	}
	return h.Items.SetFileExtent(t, tr, r, ino, start, end, fe)
}

func (h hooked) InsertCsums(t *sched.Task, tr *ctree.Trans, bytenr uint64, sums []byte) error {
	if err := h.before(t, "csums"); err != nil {
		return err
	}
	return h.Items.InsertCsums(t, tr, bytenr, sums)
}

// hook puts another finisher into w, whose items call before; undo puts the old one back.
func hook(w *datatest.World, before func(t *sched.Task, op string) error) (undo func()) {
	old := w.Finisher
	w.Finisher = finish.New(w.T, finish.Config{FS: w.FS, Items: hooked{w.Items, before}, Extents: w.Manager.Extents,
		Join: func(t *sched.Task, bytes uint64) (*transaction.Handle, error) {
			h, err := w.Manager.JoinReserved(t, bytes)
			if err != nil {
				return nil, err
			}
			return h, nil
		}})
	return func() {
		w.Finisher.Close(w.T)
		w.Finisher = old
	}
}

// Completion knows no pages: ordered extents of a write that has none get their items and
// checksums, new ones, overwritten ones and preallocated ones. The accounts come to rest and the
// checker is content.
func TestWithoutPages(t *testing.T) {
	w := datatest.New(t, 256<<20)
	for _, c := range []struct {
		flags    uint64
		prealloc bool
		want     [2]ordered.Type // of the first write and of one over it
	}{
		{0, false, [2]ordered.Type{ordered.Regular, ordered.Regular}},
		{datatest.Nocow, false, [2]ordered.Type{ordered.Regular, ordered.Nocow}},
		{0, true, [2]ordered.Type{ordered.Prealloc, ordered.Regular}},
	} {
		ip := w.Create(c.flags)
		if c.prealloc {
			w.Prealloc(ip, 64<<10)
		}
		for i, want := range c.want {
			data := datatest.Pattern(64<<10, uint64(i))
			got, err := direct(w, ip, data, 0, nil)
			datatest.Must(t, err)
			if len(got) != 1 || got[0] != want {
				t.Fatalf("flags %#x, prealloc %v, write %d: have %v want %v", c.flags, c.prealloc, i, got, want)
			}
			w.Expect(ip, data)
		}
		if it := ip.Item(w.T); it.Nbytes != 64<<10 || it.Size != 64<<10 {
			t.Fatalf("nbytes %d, size %d", it.Nbytes, it.Size)
		}
	}
	w.Close()
}

// A write that failed leaves the file as it was, gives its space back.
func TestFailedWithoutPages(t *testing.T) {
	w := datatest.New(t, 256<<20)
	ip := w.Create(0)
	old := datatest.Pattern(64<<10, 1)
	_, err := direct(w, ip, old, 0, nil)
	datatest.Must(t, err)
	w.Sync()
	used := w.Manager.Space.Data().Usage(w.T).Used
	if _, err := direct(w, ip, datatest.Pattern(32<<10, 2), 4096, errno.EIO); !errors.Is(err, errno.EIO) {
		t.Errorf("have %v want EIO", err)
	}
	w.Expect(ip, old)
	w.Sync()
	w.Quiescent()
	if u := w.Manager.Space.Data().Usage(w.T).Used; u != used {
		t.Errorf("data used %d, was %d", u, used)
	}
	w.Close()
}

// Items that cannot be inserted leave the trees half changed: the transaction is given up, and the
// last commit stays what it was. Whoever waits for the data is told, and so is the next fsync.
func TestItemsFail(t *testing.T) {
	for _, at := range []string{"extent", "csums"} {
		w := datatest.New(t, 256<<20)
		ip := w.Create(0)
		_, err := direct(w, ip, datatest.Pattern(64<<10, 1), 0, nil)
		datatest.Must(t, err)
		w.Sync()
		var seen atomic.Uint64
		seen.Store(ip.Pages.ErrorSeq())
		undo := hook(w, func(t *sched.Task, op string) error {
			if op == at {
				return errno.EUCLEAN
			}
			return nil
		})
		if _, err := direct(w, ip, datatest.Pattern(32<<10, 2), 4096, nil); !errors.Is(err, errno.EUCLEAN) {
			t.Errorf("%s fail: the wait says %v, want EUCLEAN", at, err)
		}
		if err := ip.Pages.CheckError(w.T, &seen); !errors.Is(err, errno.EUCLEAN) {
			t.Errorf("%s fail: fsync says %v, want EUCLEAN", at, err)
		}
		if err := w.Manager.Commit(w.T); err == nil {
			t.Errorf("%s fail: half of the items are committed", at)
		}
		undo()
		w.CloseTasks()
		datatest.CheckImage(t, w.T, w.Dev)
	}
}

// What others see while the items of a file change does not outlive the change: a look at the trees
// in the middle of it finds the range empty, and must not be remembered; a truncate that makes a
// small file longer is not undone; and until it is over there is an ordered extent to wait for.
func TestMapsFollowItems(t *testing.T) {
	w := datatest.New(t, 256<<20)
	ip := w.Create(0)
	small := w.Create(0)
	looks := 0
	undo := hook(w, func(t *sched.Task, op string) error {
		if op != "extent" {
			return nil
		}
		looks++
		f := ip
		if looks == 2 {
			f = small
			f.SetSize(t, 3000)
			f.SetDiskSize(t, 3000)
		} else if oe := f.Ordered.First(t, 0, 64<<10); oe != nil {
			oe.Put(t)
		} else {
			w.TB.Error("items are inserted, and there is no ordered extent to wait for")
		}
		m, err := w.Reader.Place.At(t, f, 0)
		if err == nil && m.DiskBytenr != 0 {
			w.TB.Errorf("in the middle of the change the file has %+v, want a hole", m)
		}
		return err
	})
	data := datatest.Pattern(64<<10, 1)
	_, err := direct(w, ip, data, 0, nil)
	datatest.Must(t, err)

	tiny := datatest.Pattern(1000, 2)
	rsv := w.Manager.Space.CalcInsert(3)
	datatest.Must(t, w.Manager.Space.Metadata().Reserve(w.T, rsv, spaceinfo.FlushAll))
	small.SetSize(w.T, 1000)
	small.IOTree.Lock(w.T, 0, format.SectorSize)
	datatest.Must(t, w.Finisher.Inline(w.T, small, tiny, 1000, format.CompressNone, rsv))
	small.IOTree.Unlock(w.T, 0, format.SectorSize)
	if n := small.DiskSize(w.T); n != 3000 {
		t.Errorf("size on disk %d, want 3000", n)
	}
	undo()
	if looks != 2 {
		t.Errorf("%d looks, want 2", looks)
	}
	w.Expect(ip, data)
	w.Expect(small, append(tiny, make([]byte, 2000)...))
	w.Close()
}
