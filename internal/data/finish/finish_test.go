package finish_test

import (
	"os"
	"testing"

	"btrlab/internal/blockdev"
	"btrlab/internal/data/datatest"
	"btrlab/internal/data/inode"
	"btrlab/internal/data/ordered"
	"btrlab/internal/errno"
	"btrlab/internal/format"
	"btrlab/internal/meta/spaceinfo"
	"btrlab/internal/sched"
)

func TestMain(m *testing.M) {
	sched.SetChecked(true)
	os.Exit(m.Run())
}

// direct writes whole blocks at off without a page, piece by piece, as direct I/O does, and reports
// the types of the pieces. Each bio ends with fail.
func direct(w *datatest.World, ip *inode.Inode, data []byte, off uint64, fail error) (types []ordered.Type) {
	t, space := w.T, ip.FS.Space
	n := uint64(len(data))
	datatest.Must(w.TB, space.Data().Reserve(t, n, spaceinfo.FlushData))
	datatest.Must(w.TB, ip.ReserveExtents(t, n, false, spaceinfo.FlushAll))
	ip.LockAndFlushOrdered(t, off, off+n)
	var made []*ordered.Extent
	for at := off; at < off+n; {
		x, err := w.Reader.Place.Next(t, ip, at, off+n)
		datatest.Must(w.TB, err)
		made = append(made, ip.AddOrdered(t, x.Type, x.Start, x.Len, x.DiskBytenr))
		if x.Type != ordered.Regular {
			space.Data().Release(t, x.Len)
		}
		types = append(types, x.Type)
		at += x.Len
	}
	ip.ReleaseExtents(n, false, 0)
	if ip.Size(t) < off+n {
		ip.SetSize(t, off+n)
	}
	ip.IOTree.Unlock(t, off, off+n)
	for _, oe := range made {
		piece := data[oe.Start-off:][:oe.Len]
		if oe.Type != ordered.Nocow && ip.Sums() {
			sums := oe.SumsBuffer()
			for b := piece; len(b) > 0; b = b[format.SectorSize:] {
				sums = append(sums, format.CRC32C(b[:format.SectorSize]))
			}
			oe.SetSums(t, sums)
		}
		datatest.Must(w.TB, blockdev.Do(t, w.Manager.Volumes, &blockdev.Bio{Op: blockdev.OpWrite, Off: int64(oe.DiskBytenr), Vecs: [][]byte{piece}}))
		if oe.Done(oe.Len, fail) {
			w.Finisher.Complete(t, oe)
		}
	}
	if err := ip.Ordered.WaitRange(t, off, off+n); fail == nil {
		datatest.Must(w.TB, err)
	}
	return types
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
			if got := direct(w, ip, data, 0, nil); len(got) != 1 || got[0] != want {
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
	direct(w, ip, old, 0, nil)
	w.Sync()
	used := w.Manager.Space.Data().Usage(w.T).Used
	direct(w, ip, datatest.Pattern(32<<10, 2), 4096, errno.EIO)
	w.Expect(ip, old)
	w.Sync()
	w.Quiescent()
	if u := w.Manager.Space.Data().Usage(w.T).Used; u != used {
		t.Errorf("data used %d, was %d", u, used)
	}
	w.Close()
}
