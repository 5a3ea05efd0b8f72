package writeback_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"btrlab/internal/data/inode"
	"btrlab/internal/format"
	"btrlab/internal/sched"
	"btrlab/internal/testing/datatest"
)

// A small file lives in the tree until it grows.
func TestInlineGrowsOut(t *testing.T) {
	w := datatest.New(t, 256<<20)
	ip := w.Create(0)
	small := datatest.Pattern(1000, 1)
	datatest.Must(t, w.Write(w.T, ip, small, 0))
	w.Sync()
	_, fe, ok, err := w.Items.LookupFileExtent(w.T, ip.Root, ip.Ino, 0)
	if err != nil || !ok || fe.Type != format.FileExtentTypeInline || len(fe.Inline) != 1000 {
		t.Fatalf("extent of a 1000 byte file: %+v ok=%v err=%v", fe, ok, err)
	}
	if it := ip.Item(w.T); it.Nbytes != 1000 || it.Size != 1000 {
		t.Fatalf("nbytes=%d size=%d", it.Nbytes, it.Size)
	}
	w.Expect(ip, small)
	// The first block is written again with the growth, as expanding a file zeroes its last block.
	more := append(append([]byte(nil), small...), datatest.Pattern(9000, 2)...)
	datatest.Must(t, w.Write(w.T, ip, more[1000:], 1000))
	w.Sync()
	w.Expect(ip, more)
	if _, fe, _, _ = w.Items.LookupFileExtent(w.T, ip.Root, ip.Ino, 0); fe.Type != format.FileExtentTypeReg {
		t.Fatalf("extent of a grown file: %+v", fe)
	}
	if it := ip.Item(w.T); it.Nbytes != 12288 || it.Size != 10000 {
		t.Fatalf("nbytes=%d size=%d", it.Nbytes, it.Size)
	}
	w.Close()
}

// Random writes into a COW file, with writeback and commits in between, read back from cache and
// disk.
func TestRandomCow(t *testing.T) { testRandom(t, 0) }

// The same in a NOCOW file: after the first writeback everything goes in place.
func TestRandomNocow(t *testing.T) { testRandom(t, datatest.Nocow) }

func testRandom(t *testing.T, flags uint64) {
	for seed := range uint64(3) {
		w := datatest.New(t, 256<<20)
		ip := w.Create(flags)
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
			data := datatest.Pattern(n, uint64(op)<<8|seed)
			datatest.Must(t, w.Write(w.T, ip, data, uint64(off)))
			if off+n > len(model) {
				model = append(model, make([]byte, off+n-len(model))...)
			}
			copy(model[off:], data)
			switch rng.IntN(12) {
			case 0:
				w.Sync()
				w.Quiescent()
			case 1:
				datatest.Must(t, w.Engine.WritePages(w.T, ip, 0, 1<<30, false))
			case 2:
				w.FS.Cache.DropClean(w.T)
			case 3:
				datatest.Must(t, w.Engine.WaitOrderedRange(w.T, ip, uint64(off), uint64(off+n)))
			}
		}
		w.Expect(ip, model)
		w.Sync()
		w.Expect(ip, model)
		w.Close()
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
}

// Many files, many writers and the flusher: nothing is lost and nothing stays reserved.
func TestWriters(t *testing.T) {
	w := datatest.New(t, 512<<20)
	w.FS.Cache.BDI.SetLimits(1<<20, 2<<20)
	var tasks []*sched.Task
	models := make([][]byte, 4)
	var files []*inode.Inode
	for i := range 4 {
		flags := uint64(0)
		if i&1 == 1 {
			flags = datatest.Nocow
		}
		files = append(files, w.Create(flags))
		models[i] = make([]byte, 2<<20)
	}
	for i, ip := range files {
		tasks = append(tasks, w.T.Go(fmt.Sprintf("writer/%d", i), func(t *sched.Task) {
			rng := rand.New(rand.NewPCG(uint64(i), 3))
			for op := range 1200 {
				off := rng.IntN(510) * pageSize
				d := datatest.Pattern(pageSize+rng.IntN(2)*100, uint64(op))
				if err := w.Write(t, ip, d, uint64(off)); err != nil {
					panic(err)
				}
				copy(models[i][off:], d)
			}
		}))
	}
	for _, c := range tasks {
		w.T.Join(c)
	}
	for i, ip := range files {
		w.Expect(ip, models[i][:ip.Size(w.T)])
	}
	w.Close()
}

// Appending within a page while it is written back: what lies beyond the i_size that writeback saw
// before it had the page must not be taken for bytes beyond the end of the file.
func TestAppendDuringWriteback(t *testing.T) {
	w := datatest.New(t, 256<<20)
	ip := w.Create(0)
	const step, total = 100, 400000
	data := datatest.Pattern(total, 5)
	stop := make(chan struct{})
	c := w.T.Go("flush", func(t *sched.Task) {
		for {
			select {
			case <-stop:
				return
			default:
				if err := w.Engine.WritePages(t, ip, 0, 1<<40, true); err != nil {
					panic(err)
				}
			}
		}
	})
	for off := 0; off < total; off += step {
		datatest.Must(t, w.Write(w.T, ip, data[off:off+step], uint64(off)))
	}
	close(stop)
	w.T.Join(c)
	w.Expect(ip, data)
	w.Close()
}

// A file larger than the page cache: pages are evicted as soon as they are clean, also before their
// ordered extent is finished, and come back with what was written.
func TestSmallCache(t *testing.T) {
	for _, flags := range []uint64{0, datatest.Nocow} {
		w := datatest.New(t, 256<<20)
		w.FS.Cache.SetLimit(1 << 20)
		w.FS.Cache.BDI.SetLimits(128<<10, 256<<10)
		ip := w.Create(flags)
		const size = 4 << 20
		model := datatest.Pattern(size, 1)
		datatest.Must(t, w.Write(w.T, ip, model, 0))
		var tasks []*sched.Task
		for i := range 3 {
			tasks = append(tasks, w.T.Go("writer", func(t *sched.Task) {
				rng := rand.New(rand.NewPCG(uint64(i), 8))
				for n := range 300 {
					off := (rng.IntN(size/pageSize/3-1)*3 + i) * pageSize
					if rng.IntN(3) == 0 {
						got := w.Read(t, ip, uint64(off), pageSize)
						if string(got) != string(model[off:off+pageSize]) {
							panic(fmt.Sprintf("page at %d is not what was written", off))
						}
						continue
					}
					in := rng.IntN(pageSize)
					d := datatest.Pattern(1+rng.IntN(pageSize-in), uint64(n))
					if err := w.Write(t, ip, d, uint64(off+in)); err != nil {
						panic(err)
					}
					copy(model[off+in:], d)
				}
			}))
		}
		for _, c := range tasks {
			w.T.Join(c)
		}
		if n := w.FS.Cache.Bytes(); n > 3<<20 {
			t.Fatalf("%d bytes in a cache of 1 MiB", n)
		}
		w.Sync()
		w.Expect(ip, model)
		w.Close()
	}
}
