package fs_test

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"testing"

	"btrlab/internal/format"
	"btrlab/internal/fs"
	"btrlab/internal/sched"
	"btrlab/internal/testing/fstest"
	"btrlab/internal/testing/need"
)

// Writers overwrite random blocks of one NOCOW file while writeback runs; every block says where it
// belongs. After the caches are dropped, each block on the device is one that was written there.
func TestBlocksStayInPlace(t *testing.T) {
	need.LongRaced(t)
	const blocks, writers = 4096, 8
	sched.SetChecked(false) // at full speed
	defer sched.SetChecked(true)
	x := fstest.New(t, fstest.Policy("locked"), fstest.FSOptions(func(o *fs.Options) {
		o.DirtyBackground, o.DirtyLimit = 1<<20, 2<<20
	}))
	f := x.Create("/f")
	x.Must(f.SetFlags(x.T, format.InodeNoDataCow))
	x.Must(f.Fallocate(x.T, 0, 0, blocks*format.SectorSize))
	stamp := func(p []byte, block int, seq uint64) {
		for i := 0; i < len(p); i += 16 {
			binary.LittleEndian.PutUint64(p[i:], uint64(block))
			binary.LittleEndian.PutUint64(p[i+8:], seq)
		}
	}
	p := make([]byte, format.SectorSize)
	for b := range blocks {
		stamp(p, b, 0)
		x.WriteAt(f, p, int64(b)*format.SectorSize)
	}
	x.Must(x.FS.Sync(x.T))
	rounds, writes := 3, 10000
	if testing.Short() {
		rounds, writes = 1, 3000
	}
	for round := range rounds {
		var tasks []*sched.Task
		errs := make([]error, writers)
		for w := range writers {
			tasks = append(tasks, x.T.Go(fmt.Sprint("writer", w), func(t *sched.Task) {
				rng := rand.New(rand.NewPCG(uint64(round), uint64(w)))
				p := make([]byte, format.SectorSize)
				for i := range writes {
					b := rng.IntN(blocks)
					stamp(p, b, uint64(w)<<32|uint64(i))
					if _, errs[w] = f.WriteAt(t, p, int64(b)*format.SectorSize); errs[w] != nil {
						return
					}
				}
			}))
		}
		for w, c := range tasks {
			x.T.Join(c)
			x.Must(errs[w])
		}
		check := func(when string) {
			for b := range blocks {
				if _, err := f.ReadAt(x.T, p, int64(b)*format.SectorSize); err != nil {
					t.Fatal(err)
				}
				for i := 0; i < len(p); i += 16 {
					if at := binary.LittleEndian.Uint64(p[i:]); at != uint64(b) {
						t.Fatalf("round %d, %s: block %d holds at %d what was written to block %d (%#x)", round, when, b, i, at, binary.LittleEndian.Uint64(p[i+8:]))
					}
				}
			}
		}
		check("in the cache")
		x.Must(x.FS.Sync(x.T))
		x.FS.DropCaches(x.T)
		check("on the device")
	}
	x.Must(f.Close(x.T))
}
