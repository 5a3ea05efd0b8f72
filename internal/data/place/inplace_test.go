package place_test

import (
	"os"
	"testing"

	"btrlab/internal/data/pagecache"
	"btrlab/internal/sched"
	"btrlab/internal/testing/datatest"
)

func TestMain(m *testing.M) {
	sched.SetChecked(true)
	os.Exit(m.Run())
}

const pageSize = pagecache.PageSize

// NOCOW data does not move: the extent items of a file stay as they are when it is overwritten.
func TestNocowStays(t *testing.T) {
	w := datatest.New(t, 256<<20)
	ip := w.Create(datatest.Nocow)
	datatest.Must(t, w.Write(w.T, ip, datatest.Pattern(1<<20, 1), 0))
	w.Sync()
	_, before, _, _ := w.Items.LookupFileExtent(w.T, ip.Root, ip.Ino, 0)
	gen := w.Manager.Generation(w.T)
	datatest.Must(t, w.Write(w.T, ip, datatest.Pattern(300000, 2), 4096*5))
	w.Sync()
	_, after, _, _ := w.Items.LookupFileExtent(w.T, ip.Root, ip.Ino, 0)
	if before.DiskBytenr != after.DiskBytenr || after.NumBytes != before.NumBytes || after.Generation > gen {
		t.Fatalf("extent moved from %+v to %+v", before, after)
	}
	w.Close()
}

// Preallocated space is converted piece by piece, in a COW inode and in a NOCOW one.
func TestPrealloc(t *testing.T) {
	for _, flags := range []uint64{0, datatest.Nocow} {
		w := datatest.New(t, 256<<20)
		ip := w.Create(flags)
		w.Prealloc(ip, 1<<20)
		model := make([]byte, 1<<20)
		w.Expect(ip, model)
		for _, page := range []int{3, 4, 100, 7, 0, 255, 5, 6} {
			d := datatest.Pattern(pageSize, uint64(page))
			datatest.Must(t, w.Write(w.T, ip, d, uint64(page)*pageSize))
			copy(model[page*pageSize:], d)
			if page == 100 {
				w.Sync()
			}
		}
		w.Sync()
		w.Expect(ip, model)
		if it := ip.Item(w.T); it.Nbytes != 1<<20 {
			t.Fatalf("nbytes=%d", it.Nbytes)
		}
		if flags == datatest.Nocow {
			// A second write of converted bytes is an overwrite in place.
			datatest.Must(t, w.Write(w.T, ip, datatest.Pattern(pageSize, 99), 3*pageSize))
			copy(model[3*pageSize:], datatest.Pattern(pageSize, 99))
			w.Sync()
			w.Expect(ip, model)
		}
		w.Close()
	}
}
