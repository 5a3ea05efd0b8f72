package fs_test

import (
	"bytes"
	"math/rand/v2"
	"testing"

	"btrlab/internal/blockdev"
	"btrlab/internal/blockdev/dm"
	"btrlab/internal/fs"
	"btrlab/internal/fs/fstest"
	"btrlab/internal/sched"
)

var unalignedDesigns = []string{"modern+UNALIGNED_EXCLUSIVE", "modern+UNALIGNED_CHECK_FIRST", "modern+UNALIGNED_RETRY", "locked+UNALIGNED_CHECK_FIRST", "modern"}

// TestUnalignedModel writes sectors and blocks at random places of a NOCOW file, in written and preallocated blocks, in holes and beyond
// EOF, past the cache and through it, and compares each read with a slice of bytes.
func TestUnalignedModel(t *testing.T) {
	const most = 64 * 4096
	for _, p := range unalignedDesigns {
		t.Run(p, func(t *testing.T) {
			x := fstest.New(t, fstest.Policy(p))
			f := x.Create("/f")
			x.Must(f.SetFlags(x.T, nocow))
			x.Must(f.Fallocate(x.T, 0, 0, most/2))
			model := make([]byte, most/2)
			r := rand.New(rand.NewPCG(4, 2))
			for i := range 400 {
				off, n := r.IntN(most/512-16)*512, (1+r.IntN(16))*512
				q := make([]byte, n)
				switch r.IntN(8) {
				case 0:
					x.Must(f.Fallocate(x.T, fs.FALLOC_FL_PUNCH_HOLE|fs.FALLOC_FL_KEEP_SIZE, int64(off), int64(n)))
					if off < len(model) {
						clear(model[off:min(off+n, len(model))])
					}
				case 1:
					x.Must(f.Fsync(x.T))
				case 2, 3:
					want := model[min(off, len(model)):min(off+n, len(model))]
					if got := readFull(t, x.T, f.ReadAt, q, int64(off)); !bytes.Equal(got, want) {
						t.Fatalf("operation %d: a read of %d bytes at %d differs from byte %d on", i, n, off, differs(got, want))
					}
				default:
					for j := range q {
						q[j] = byte(r.Uint32() | 1)
					}
					if m, err := f.WriteDirect(x.T, q, int64(off)); m != n || err != nil {
						t.Fatalf("operation %d: write of %d bytes at %d: %d, %v", i, n, off, m, err)
					}
					if off+n > len(model) {
						model = append(model, make([]byte, off+n-len(model))...)
					}
					copy(model[off:], q)
				}
			}
			for range 2 {
				if got := readFull(t, x.T, f.ReadAt, make([]byte, most+4096), 0); !bytes.Equal(got, model) {
					t.Errorf("at the end: differs from byte %d on, %d bytes, want %d", differs(got, model), len(got), len(model))
				}
				x.Must(f.Close(x.T))
				x.Reopen()
				f = must(x.FS.OpenFile(x.T, "/f", fs.O_RDWR, 0))
			}
			x.Must(f.Close(x.T))
		})
	}
}

// TestUnalignedGoesToTheDevice: two sectors of a written block are one write of the device, of that size; the page cache writes a block. The
// first sector of a preallocated block comes with zeros.
func TestUnalignedGoesToTheDevice(t *testing.T) {
	for _, p := range unalignedDesigns {
		var dev *dm.Flakey
		x := fstest.New(t, fstest.Policy(p), fstest.Wrap(func(d blockdev.Device) blockdev.Device {
			dev = dm.NewFlakey(d)
			return dev
		}))
		f := x.Create("/f")
		x.Must(f.SetFlags(x.T, nocow))
		x.Must(f.Fallocate(x.T, 0, 0, 16384))
		must(f.WriteDirect(x.T, make([]byte, 4096), 0))
		x.Must(f.Fsync(x.T))
		for _, c := range []struct {
			off  int64
			want int64
		}{{1024, 1}, {4096 + 1024, 3}, {4096, 1}, {8192, 2}} {
			want := c.want
			if p == "modern" {
				want = 1
			}
			n := dev.Count(blockdev.OpWrite)
			must(f.WriteDirect(x.T, make([]byte, 1024), c.off))
			if n = dev.Count(blockdev.OpWrite) - n; int64(n) != want {
				t.Errorf("%s: a write of two sectors at %d is %d writes of the device, want %d", p, c.off, n, want)
			}
		}
		x.Must(f.Truncate(x.T, 1024)) // in a block that is written
		must(f.WriteDirect(x.T, make([]byte, 512), 1024))
		if size := f.Size(x.T); size != 1536 {
			t.Errorf("%s: size %d after a write of the sector at EOF, want 1536", p, size)
		}
		x.Must(f.Close(x.T))
	}
}

// TestUnalignedConcurrent: tasks write sectors of their own in the same blocks, none of which was written before; no task's bytes are
// covered by the zeros of another.
func TestUnalignedConcurrent(t *testing.T) {
	const tasks, blocks = 8, 32
	for _, p := range unalignedDesigns {
		x := fstest.New(t, fstest.Policy(p))
		f := x.Create("/f")
		x.Must(f.SetFlags(x.T, nocow))
		x.Must(f.Fallocate(x.T, 0, 0, blocks*4096))
		parallel(x.T, tasks, func(tk *sched.Task, i int) {
			for b := range blocks {
				must(f.WriteDirect(tk, bytes.Repeat([]byte{byte(i + 1)}, 512), int64(b*4096+i*512)))
			}
		})
		got := readFull(t, x.T, f.ReadAt, make([]byte, blocks*4096), 0)
		for at := range got {
			if got[at] != byte(at/512%tasks+1) {
				t.Errorf("%s: byte %d is %d, want %d", p, at, got[at], at/512%tasks+1)
				break
			}
		}
		x.Must(f.Close(x.T))
	}
}
