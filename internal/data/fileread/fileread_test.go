package fileread_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"testing"
	"time"

	"btrlab/internal/blockdev"
	"btrlab/internal/blockdev/dm"
	"btrlab/internal/data/inode"
	"btrlab/internal/data/pagecache"
	"btrlab/internal/errno"
	"btrlab/internal/format"
	"btrlab/internal/meta/spaceinfo"
	"btrlab/internal/progs/mkfs"
	"btrlab/internal/sched"
	"btrlab/internal/sched/explore"
	"btrlab/internal/testing/datatest"
)

func TestMain(m *testing.M) {
	sched.SetChecked(true)
	os.Exit(m.Run())
}

const pageSize = pagecache.PageSize

// Data that does not match its checksum is never handed out.
func TestBadChecksum(t *testing.T) {
	w, f := datatest.Flaky(t, 256<<20)
	ip := w.Create(0)
	data := datatest.Pattern(64<<10, 1)
	datatest.Must(t, w.Write(w.T, ip, data, 0))
	w.Sync()
	at := w.Physical(ip.Ino, 8192)
	good := make([]byte, pageSize)
	datatest.Must(t, blockdev.Read(w.T, f, good, at))
	bad := append([]byte(nil), good...)
	bad[100] ^= 1
	datatest.Must(t, blockdev.Write(w.T, f, bad, at))
	w.FS.Cache.DropClean(w.T)
	if _, err := w.Reader.ReadPage(w.T, ip, 2, 1, nil); !errors.Is(err, errno.EIO) {
		t.Fatalf("have %v want EIO", err)
	}
	if got := w.Read(w.T, ip, 0, 8192); string(got) != string(data[:8192]) {
		t.Fatal("the pages before do not read")
	}
	datatest.Must(t, blockdev.Write(w.T, f, good, at))
	w.FS.Cache.DropClean(w.T)
	w.Expect(ip, data)

	// A page whose checksum is missing is not known to be good, also when its neighbours are.
	_, fe, _, err := w.Items.LookupFileExtent(w.T, ip.Root, ip.Ino, 0)
	datatest.Must(t, err)
	h, err := w.Manager.Start(w.T, 2)
	datatest.Must(t, err)
	datatest.Must(t, w.Items.DelCsums(w.T, h.Trans(), fe.DiskBytenr+12288, pageSize))
	datatest.Must(t, h.End(w.T))
	w.FS.Cache.DropClean(w.T)
	if _, err := w.Reader.ReadPage(w.T, ip, 3, 1, nil); !errors.Is(err, errno.EIO) {
		t.Errorf("no checksum: have %v want EIO", err)
	}
	w.FS.Cache.DropClean(w.T)
	if _, err := w.Reader.ReadPage(w.T, ip, 0, 16, nil); err != nil {
		t.Errorf("the page before: %v", err)
	}
	if p := ip.Pages.Get(w.T, 3); p != nil {
		if p.Uptodate() {
			t.Error("readahead takes a page without a checksum for good")
		}
		p.Put(w.T)
	}
	w.FS.Cache.DropClean(w.T)
	datatest.Must(t, w.Write(w.T, ip, data, 0))
	w.Close()
}

// The device fails: the reader is told, whether the file has checksums or not, and the next read
// works.
func TestReadError(t *testing.T) {
	for _, flags := range []uint64{0, datatest.Nocow} {
		w, f := datatest.Flaky(t, 256<<20)
		ip := w.Create(flags)
		data := datatest.Pattern(64<<10, 1)
		datatest.Must(t, w.Write(w.T, ip, data, 0))
		w.Sync()
		for _, want := range []int{1, 16} { // alone, and with readahead
			w.FS.Cache.DropClean(w.T)
			at := w.Physical(ip.Ino, 8192)
			f.Set(dm.Fault{Op: blockdev.OpRead, Start: at, End: at + pageSize})
			if _, err := w.Reader.ReadPage(w.T, ip, 2, want, nil); !errors.Is(err, errno.EIO) {
				t.Errorf("flags %#x, %d pages: have %v want EIO", flags, want, err)
			}
			f.Set()
			w.Expect(ip, data)
		}
		w.Close()
	}
}

// unfinished writes data into page index of ip as direct I/O does, up to the end of its bio. What
// finish then does is the rest.
func unfinished(w *datatest.World, ip *inode.Inode, index uint64, data []byte) (finish func()) {
	t, off := w.T, index*pageSize
	datatest.Must(w.TB, ip.FS.Space.Data().Reserve(t, pageSize, spaceinfo.FlushData))
	datatest.Must(w.TB, ip.ReserveExtents(t, pageSize, spaceinfo.FlushAll))
	ip.LockAndFlushOrdered(t, off, off+pageSize)
	x, err := w.Reader.Place.Next(t, ip, off, off+pageSize)
	datatest.Must(w.TB, err)
	oe := ip.AddOrdered(t, x.Type, x.Start, x.Len, x.DiskBytenr)
	ip.ReleaseExtents(t, pageSize, 0)
	ip.IOTree.Unlock(t, off, off+pageSize)
	oe.SetSums(t, format.CsumCRC32C.Append(oe.SumsBuffer(), data))
	datatest.Must(w.TB, blockdev.Do(t, w.Manager.Volumes, &blockdev.Bio{Op: blockdev.OpWrite, Off: int64(oe.DiskBytenr), Vecs: [][]byte{data}}))
	return func() {
		if oe.Done(t, oe.Len, nil) {
			w.Finisher.Complete(t, oe)
		}
		datatest.Must(w.TB, ip.Ordered.WaitRange(t, off, off+pageSize))
	}
}

// A page is not in memory, and the trees do not know yet what an unfinished ordered extent has put
// there: nobody reads the page from the trees until they do. That holds beyond EOF as well, where a
// truncate waits for the ordered extent.
func TestFillWaits(t *testing.T) {
	w := datatest.New(t, 256<<20)
	ip := w.Create(0)
	data := datatest.Pattern(4*pageSize, 1)
	datatest.Must(t, w.Write(w.T, ip, data, 0))
	w.Sync()
	w.FS.Cache.DropClean(w.T)

	fresh := datatest.Pattern(pageSize, 2)
	finish := unfinished(w, ip, 1, fresh)
	copy(data[pageSize:], fresh)
	p, err := w.Reader.ReadPage(w.T, ip, 0, 4, nil)
	datatest.Must(t, err)
	p.Put(w.T)
	if p := ip.Pages.Get(w.T, 1); p != nil {
		if p.Uptodate() {
			t.Error("readahead has read a page beside its ordered extent")
		}
		p.Put(w.T)
	}
	fill := func(when string, want bool) {
		p := ip.Pages.Grab(w.T, 1)
		busy, err := w.Reader.FillPage(w.T, ip, p)
		datatest.Must(t, err)
		if (busy != nil) != want || p.Uptodate() == want {
			t.Errorf("%s: busy %v, uptodate %v", when, busy, p.Uptodate())
		}
		if busy != nil {
			busy.Put(w.T)
		}
		p.UnlockPut(w.T)
	}
	fill("inside EOF", true)
	ip.SetSize(w.T, 100)
	fill("beyond EOF", true)
	ip.SetSize(w.T, 4*pageSize)
	finish()
	fill("finished", false)
	w.FS.Cache.DropClean(w.T)
	w.Expect(ip, data)
	w.Close()
}

// A file ends inside a page, and the disk has more in that block. A reader of the page gets zeros
// there, also who looks at the page.
func TestTailReadsZero(t *testing.T) {
	w := datatest.New(t, 256<<20)
	ip := w.Create(0)
	datatest.Must(t, w.Write(w.T, ip, bytes.Repeat([]byte{0xff}, 2*pageSize), 0))
	w.Sync()
	w.FS.Cache.DropClean(w.T)
	ip.SetSize(w.T, pageSize+100)
	for i, want := range []int{pageSize, 100} {
		p, err := w.Reader.ReadPage(w.T, ip, uint64(i), 2, nil)
		datatest.Must(t, err)
		if have := bytes.Count(p.Data(), []byte{0xff}); have != want {
			t.Errorf("page %d has %d bytes of the file, want %d", i, have, want)
		}
		p.Put(w.T)
	}
	ip.SetSize(w.T, 2*pageSize)
	w.FS.Cache.DropClean(w.T)
	w.Close()
}

// Pages are used again: what was of another file is in them. A hole, preallocated blocks and the
// rest of the block of an inline extent have no bytes on disk, so a page of them must be zeroed
// before it is filled, or its file shows those of the other.
func TestUsedPagesAreZeroed(t *testing.T) {
	for _, c := range []struct {
		name string
		make func(w *datatest.World) (ip *inode.Inode, want []byte)
	}{
		{"inline", func(w *datatest.World) (*inode.Inode, []byte) {
			ip, data := w.Create(0), []byte("a few bytes")
			datatest.Must(t, w.Write(w.T, ip, data, 0))
			return ip, data
		}},
		{"hole", func(w *datatest.World) (*inode.Inode, []byte) {
			ip := w.Create(0)
			datatest.Must(t, w.Write(w.T, ip, datatest.Pattern(pageSize, 3), pageSize))
			return ip, nil
		}},
		{"prealloc", func(w *datatest.World) (*inode.Inode, []byte) {
			ip := w.Create(datatest.Nocow)
			w.Prealloc(ip, 4*pageSize)
			return ip, nil
		}},
	} {
		w := datatest.New(t, 256<<20)
		ip, want := c.make(w)
		w.Sync()
		w.FS.Cache.DropClean(w.T)
		other := w.Create(0)
		datatest.Must(t, w.Write(w.T, other, bytes.Repeat([]byte{0xff}, 64*pageSize), 0))
		w.Sync()
		w.FS.Cache.DropClean(w.T)
		p, err := w.Reader.ReadPage(w.T, ip, 0, 1, nil)
		datatest.Must(t, err)
		if !bytes.Equal(p.Data(), append(want, make([]byte, pageSize-len(want))...)) {
			t.Errorf("%s: the page has bytes of another file: %d of 0xff", c.name, bytes.Count(p.Data(), []byte{0xff}))
		}
		p.Put(w.T)
		w.Close()
	}
}

// Readahead goes on after a page that is in memory already: what comes after it is read as well.
func TestReadaheadAfterAPage(t *testing.T) {
	const pages = 16
	w := datatest.New(t, 256<<20)
	ip := w.Create(0)
	data := datatest.Pattern(pages*pageSize, 4)
	datatest.Must(t, w.Write(w.T, ip, data, 0))
	w.Sync()
	w.FS.Cache.DropClean(w.T)
	for _, c := range []struct{ first, want uint64 }{{5, 1}, {0, pages}} {
		p, err := w.Reader.ReadPage(w.T, ip, c.first, int(c.want), nil)
		datatest.Must(t, err)
		p.Put(w.T)
	}
	for i := range uint64(pages) {
		p := ip.Pages.Get(w.T, i)
		if p == nil || !p.Uptodate() {
			t.Errorf("page %d is not in memory", i)
			continue
		}
		if !bytes.Equal(p.Data(), data[i*pageSize:(i+1)*pageSize]) {
			t.Errorf("page %d has other bytes", i)
		}
		p.Put(w.T)
	}
	w.Close()
}

// panicTB makes a failure the panic of the task that noticed it, which ends the run with its
// schedule.
type panicTB struct{ testing.TB }

func (p panicTB) Helper()                   {}
func (p panicTB) Fatal(a ...any)            { panic(fmt.Sprint(a...)) }
func (p panicTB) Fatalf(f string, a ...any) { panic(fmt.Sprintf(f, a...)) }

// A truncate comes while a reader reads ahead. The bytes that it cuts off are on disk until it
// drops their extents. No page of them may come into memory after it has dropped the pages, or they
// are back as soon as the file grows.
func TestReadaheadAndTruncate(t *testing.T) {
	const pages = 4
	mem := blockdev.NewMemory(128 << 20)
	datatest.Must(t, mkfs.Make(sched.NewTask("mkfs"), mem, mkfs.Options{Now: time.Unix(1e9, 0)}))
	cfg := explore.Config{Preemptions: 2, MaxSteps: 20_000, Schedules: 4000, Switch: []sched.ClassID{inode.Class.ID, pagecache.PageClass.ID}}
	r := explore.Run(cfg, func(x *explore.World) {
		dev := mem.Snapshot()
		w := datatest.Mount(panicTB{t}, x.Task(), dev, dev)
		w.T = x.Task()
		ip := w.Create(datatest.Nocow)
		datatest.Must(panicTB{t}, w.Write(x.Task(), ip, bytes.Repeat([]byte{0xff}, pages*pageSize), 0))
		w.Sync()
		w.FS.Cache.DropClean(x.Task())
		x.Go("reader", func(t *sched.Task) {
			p, err := w.Reader.ReadPage(t, ip, 0, pages, nil)
			if err != nil {
				panic(err)
			}
			p.Put(t)
		})
		x.Go("truncate", func(t *sched.Task) {
			ip.Lock(t)
			ip.SetSize(t, pageSize)
			ip.Pages.Truncate(t, pageSize, pagecache.MaxFileEnd)
			ip.Unlock(t)
		})
		x.Finally(func(t *sched.Task) error {
			for i := uint64(1); i < pages; i++ {
				p := ip.Pages.Get(t, i)
				if p == nil {
					continue
				}
				if p.Uptodate() && !bytes.Equal(p.Data(), make([]byte, pageSize)) {
					return fmt.Errorf("page %d is beyond EOF, in memory, and has the bytes of before", i)
				}
				p.Put(t)
			}
			return nil
		})
	})
	if r.Verdict == explore.Violated || r.Schedules < 10 {
		t.Errorf("%v after %d schedules: %s; schedule %q", r.Verdict, r.Schedules, r.Violation, r.Schedule)
	}
	t.Logf("%d schedules", r.Schedules)
}
