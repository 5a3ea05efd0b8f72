package writeback_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"btrlab/internal/data/inode"
	"btrlab/internal/format"
	"btrlab/internal/meta/spaceinfo"
	"btrlab/internal/sched"
)

const nocow = format.InodeNoDataCow | format.InodeNoDataSum

func must(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}

// A small file lives in the tree until it grows.
func TestInlineGrowsOut(t *testing.T) {
	w := newWorld(t, 256<<20)
	ip := w.create(0)
	small := pattern(1000, 1)
	must(t, w.write(w.t, ip, small, 0))
	w.sync()
	_, fe, ok, err := w.items.LookupFileExtent(w.t, ip.Root, ip.Ino, 0)
	if err != nil || !ok || fe.Type != format.FileExtentTypeInline || len(fe.Inline) != 1000 {
		t.Fatalf("extent of a 1000 byte file: %+v ok=%v err=%v", fe, ok, err)
	}
	if it := ip.Item(w.t); it.Nbytes != 1000 || it.Size != 1000 {
		t.Fatalf("nbytes=%d size=%d", it.Nbytes, it.Size)
	}
	w.expect(ip, small)
	// The first block is written again with the growth, as expanding a file zeroes its last block.
	more := append(append([]byte(nil), small...), pattern(9000, 2)...)
	must(t, w.write(w.t, ip, more[1000:], 1000))
	w.sync()
	w.expect(ip, more)
	if _, fe, _, _ = w.items.LookupFileExtent(w.t, ip.Root, ip.Ino, 0); fe.Type != format.FileExtentTypeReg {
		t.Fatalf("extent of a grown file: %+v", fe)
	}
	if it := ip.Item(w.t); it.Nbytes != 12288 || it.Size != 10000 {
		t.Fatalf("nbytes=%d size=%d", it.Nbytes, it.Size)
	}
	w.close()
}

// Random writes into a COW file, with writeback and commits in between, read back from cache and disk.
func TestRandomCow(t *testing.T) { testRandom(t, 0) }

// The same in a NOCOW file: after the first writeback everything goes in place.
func TestRandomNocow(t *testing.T) { testRandom(t, nocow) }

func testRandom(t *testing.T, flags uint64) {
	for seed := range uint64(3) {
		w := newWorld(t, 256<<20)
		ip := w.create(flags)
		rng := rand.New(rand.NewPCG(seed, 7))
		model := []byte{}
		for op := range 200 {
			off, n := rng.IntN(1<<20), 1+rng.IntN(40000)
			if rng.IntN(3) == 0 {
				off, n = off&^(pageSize-1), pageSize
			}
			if len(model) == 0 {
				off, n = 0, 1<<20
			}
			data := pattern(n, uint64(op)<<8|seed)
			must(t, w.write(w.t, ip, data, uint64(off)))
			if off+n > len(model) {
				model = append(model, make([]byte, off+n-len(model))...)
			}
			copy(model[off:], data)
			switch rng.IntN(12) {
			case 0:
				w.sync()
				w.quiescent()
			case 1:
				must(t, w.e.WritePages(w.t, ip, 0, 1<<30, false))
			case 2:
				w.fs.Cache.DropClean(w.t)
			case 3:
				must(t, w.e.WaitOrderedRange(w.t, ip, uint64(off), uint64(off+n)))
			}
		}
		w.expect(ip, model)
		w.sync()
		w.expect(ip, model)
		w.close()
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
}

// NOCOW data does not move: the extent items of a file stay as they are when it is overwritten.
func TestNocowStays(t *testing.T) {
	w := newWorld(t, 256<<20)
	ip := w.create(nocow)
	must(t, w.write(w.t, ip, pattern(1<<20, 1), 0))
	w.sync()
	_, before, _, _ := w.items.LookupFileExtent(w.t, ip.Root, ip.Ino, 0)
	gen := w.m.Generation(w.t)
	must(t, w.write(w.t, ip, pattern(300000, 2), 4096*5))
	w.sync()
	_, after, _, _ := w.items.LookupFileExtent(w.t, ip.Root, ip.Ino, 0)
	if before.DiskBytenr != after.DiskBytenr || after.NumBytes != before.NumBytes || after.Generation > gen {
		t.Fatalf("extent moved from %+v to %+v", before, after)
	}
	w.close()
}

// Preallocated space is converted piece by piece, in a COW inode and in a NOCOW one.
func TestPrealloc(t *testing.T) {
	for _, flags := range []uint64{0, nocow} {
		w := newWorld(t, 256<<20)
		ip := w.create(flags)
		prealloc(w, ip, 1<<20)
		model := make([]byte, 1<<20)
		w.expect(ip, model)
		for _, page := range []int{3, 4, 100, 7, 0, 255, 5, 6} {
			d := pattern(pageSize, uint64(page))
			must(t, w.write(w.t, ip, d, uint64(page)*pageSize))
			copy(model[page*pageSize:], d)
			if page == 100 {
				w.sync()
			}
		}
		w.sync()
		w.expect(ip, model)
		if it := ip.Item(w.t); it.Nbytes != 1<<20 {
			t.Fatalf("nbytes=%d", it.Nbytes)
		}
		if flags == nocow {
			// A second write of converted bytes is an overwrite in place.
			must(t, w.write(w.t, ip, pattern(pageSize, 99), 3*pageSize))
			copy(model[3*pageSize:], pattern(pageSize, 99))
			w.sync()
			w.expect(ip, model)
		}
		w.close()
	}
}

// prealloc is fallocate of [0, n) in an empty file.
func prealloc(w *world, ip *inode.Inode, n uint64) {
	w.tb.Helper()
	t := w.t
	rsv := w.m.Space.CalcInsert(3)
	must(w.tb, w.m.Space.Data().Reserve(t, n, spaceinfo.FlushData))
	must(w.tb, w.m.Space.Metadata().Reserve(t, rsv, spaceinfo.FlushAll))
	ip.Lock(t)
	ip.IOTree.Lock(t, 0, n)
	start, got, err := w.m.Extents.ReserveExtent(t, n, n, 0)
	if err != nil || got != n {
		w.tb.Fatal(got, err)
	}
	h, err := w.m.JoinReserved(t, rsv)
	must(w.tb, err)
	fe := format.FileExtent{Generation: h.Transid(), RAMBytes: n, Type: format.FileExtentTypePrealloc, DiskBytenr: uint64(start), DiskNumBytes: n, NumBytes: n}
	must(w.tb, w.items.InsertFileExtent(t, h.Trans(), ip.Root, ip.Ino, 0, &fe))
	ref := format.DataRef{Root: ip.Root.ID, Ino: format.Ino(ip.Ino)}
	must(w.tb, w.m.Extents.AllocReservedFileExtent(t, h.Trans(), ref, start, n))
	ip.Extents.Drop(t, 0, n)
	ip.AddFlags(format.InodePrealloc)
	ip.AddBytes(t, int64(n))
	ip.SetSize(t, n)
	ip.SetDiskSize(t, n)
	ip.MarkDirty(t)
	must(w.tb, h.End(t))
	ip.IOTree.Unlock(t, 0, n)
	ip.Unlock(t)
}

// Many files, many writers and the flusher: nothing is lost and nothing stays reserved.
func TestWriters(t *testing.T) {
	w := newWorld(t, 512<<20)
	w.fs.Cache.BDI.SetLimits(1<<20, 2<<20)
	var tasks []*sched.Task
	models := make([][]byte, 4)
	var files []*inode.Inode
	for i := range 4 {
		flags := uint64(0)
		if i&1 == 1 {
			flags = nocow
		}
		files = append(files, w.create(flags))
		models[i] = make([]byte, 2<<20)
	}
	for i, ip := range files {
		tasks = append(tasks, w.t.Go(fmt.Sprintf("writer/%d", i), func(t *sched.Task) {
			rng := rand.New(rand.NewPCG(uint64(i), 3))
			for op := range 1200 {
				off := rng.IntN(510) * pageSize
				d := pattern(pageSize+rng.IntN(2)*100, uint64(op))
				if err := w.write(t, ip, d, uint64(off)); err != nil {
					panic(err)
				}
				copy(models[i][off:], d)
			}
		}))
	}
	for _, c := range tasks {
		w.t.Join(c)
	}
	for i, ip := range files {
		w.expect(ip, models[i][:ip.Size(w.t)])
	}
	w.close()
}

// Appending within a page while it is written back: what lies beyond the i_size that writeback saw before it had the page
// must not be taken for bytes beyond the end of the file.
func TestAppendDuringWriteback(t *testing.T) {
	w := newWorld(t, 256<<20)
	ip := w.create(0)
	const step, total = 100, 400000
	data := pattern(total, 5)
	stop := make(chan struct{})
	c := w.t.Go("flush", func(t *sched.Task) {
		for {
			select {
			case <-stop:
				return
			default:
				if err := w.e.WritePages(t, ip, 0, 1<<40, true); err != nil {
					panic(err)
				}
			}
		}
	})
	for off := 0; off < total; off += step {
		must(t, w.write(w.t, ip, data[off:off+step], uint64(off)))
	}
	close(stop)
	w.t.Join(c)
	w.expect(ip, data)
	w.close()
}

// A file larger than the page cache: pages are evicted as soon as they are clean, also before their ordered extent is finished, and
// come back with what was written.
func TestSmallCache(t *testing.T) {
	for _, flags := range []uint64{0, nocow} {
		w := newWorld(t, 256<<20)
		w.fs.Cache.SetLimit(1 << 20)
		w.fs.Cache.BDI.SetLimits(128<<10, 256<<10)
		ip := w.create(flags)
		const size = 4 << 20
		model := pattern(size, 1)
		must(t, w.write(w.t, ip, model, 0))
		var tasks []*sched.Task
		for i := range 3 {
			tasks = append(tasks, w.t.Go("writer", func(t *sched.Task) {
				rng := rand.New(rand.NewPCG(uint64(i), 8))
				for n := range 300 {
					off := (rng.IntN(size/pageSize/3-1)*3 + i) * pageSize
					if rng.IntN(3) == 0 {
						got := w.read(t, ip, uint64(off), pageSize)
						if string(got) != string(model[off:off+pageSize]) {
							panic(fmt.Sprintf("page at %d is not what was written", off))
						}
						continue
					}
					in := rng.IntN(pageSize)
					d := pattern(1+rng.IntN(pageSize-in), uint64(n))
					if err := w.write(t, ip, d, uint64(off+in)); err != nil {
						panic(err)
					}
					copy(model[off+in:], d)
				}
			}))
		}
		for _, c := range tasks {
			w.t.Join(c)
		}
		if n := w.fs.Cache.Bytes(); n > 3<<20 {
			t.Fatalf("%d bytes in a cache of 1 MiB", n)
		}
		w.sync()
		w.expect(ip, model)
		w.close()
	}
}
