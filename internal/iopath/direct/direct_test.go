package direct_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"sync/atomic"
	"testing"

	"btrlab/internal/blockdev"
	"btrlab/internal/blockdev/dm"
	"btrlab/internal/errno"
	"btrlab/internal/format"
	"btrlab/internal/fs"
	"btrlab/internal/policy"
	"btrlab/internal/sched"
	"btrlab/internal/testing/fstest"
)

// TestDirectModel mixes direct and buffered reads and writes with truncates, punches, allocations
// and fsyncs of one file, in random order, and compares each read with a slice of bytes. The image
// is clean at the end, its data checksums too.
func TestDirectModel(t *testing.T) {
	ops := 1200
	switch {
	case sched.UnderRace:
		ops = 40 // one task beside the file system's own; TestDirectConcurrent has many
	case testing.Short():
		ops = 300
	}
	const most = 96 // blocks
	for _, p := range []string{"locked", "range-lock", "modern", "modern!DIO_CSUM_BUFFERED", "modern!DIO_LOCKED"} {
		for _, c := range fstest.DirectFiles {
			t.Run(p+"/"+c.Name, func(t *testing.T) {
				x := fstest.New(t, fstest.Policy(p))
				f := x.Create("/f")
				x.Must(f.SetFlags(x.T, c.Flags))
				if c.Prealloc {
					x.Must(f.Fallocate(x.T, fs.FALLOC_FL_KEEP_SIZE, 0, most*4096))
				}
				var model []byte
				r := rand.New(rand.NewPCG(1, uint64(len(p)+len(c.Name))))
				buf := make([]byte, most*4096)
				grow := func(to int) {
					if to > len(model) {
						model = append(model, make([]byte, to-len(model))...)
					}
				}
				for i := range ops {
					b, n := r.IntN(most), 1+r.IntN(12)
					n = min(n, most-b)
					off, l := b*4096, n*4096
					if r.IntN(8) == 0 { // not whole sectors
						off, l = off+512*r.IntN(8), max(l-512*(1+r.IntN(15)), 512)
					}
					q := buf[:l]
					what := ""
					switch k := r.IntN(16); {
					case k < 5 || k < 8:
						what = "write"
						write := f.WriteAt
						if k < 5 {
							what, write = "direct write", f.WriteDirect
						}
						for j := range q {
							q[j] = byte(r.Uint32())
						}
						if got, err := write(x.T, q, int64(off)); got != l || err != nil {
							t.Fatalf("%s of %d bytes at %d: %d, %v", what, l, off, got, err)
						}
						grow(off + l)
						copy(model[off:], q)
					case k < 9:
						what = "truncate"
						off = min(off, len(model)+8*4096)
						x.Must(f.Truncate(x.T, int64(off)))
						grow(off)
						model = model[:off]
					case k < 10:
						what = "punch"
						x.Must(f.Fallocate(x.T, fs.FALLOC_FL_PUNCH_HOLE|fs.FALLOC_FL_KEEP_SIZE, int64(off), int64(l)))
						if off < len(model) {
							clear(model[off:min(off+l, len(model))])
						}
					case k < 11:
						what = "fsync"
						x.Must(f.Fsync(x.T))
					default:
						what = "read"
						read := f.ReadAt
						if k < 14 {
							what, read = "direct read", f.ReadDirect
						}
						want := model[min(off, len(model)):min(off+l, len(model))]
						if got := fstest.ReadFull(t, x.T, read, q, int64(off)); !bytes.Equal(got, want) {
							t.Fatalf("operation %d, %s of %d bytes at %d: differs from byte %d on, have %d bytes want %d", i, what, l, off, fstest.Differs(got, want), len(got), len(want))
						}
					}
					if size := f.Size(x.T); size != int64(len(model)) {
						t.Fatalf("operation %d, %s: size %d, want %d", i, what, size, len(model))
					}
				}
				for _, again := range []bool{false, true} {
					if got := fstest.ReadFull(t, x.T, f.ReadDirect, make([]byte, (most+4)*4096), 0); !bytes.Equal(got, model) {
						t.Errorf("at the end (opened again: %v): differs from byte %d on", again, fstest.Differs(got, model))
					}
					x.Must(f.Close(x.T))
					x.Reopen()
					f = fstest.Must(x.FS.OpenFile(x.T, "/f", fs.O_RDWR, 0))
				}
				x.Must(f.Close(x.T))
			})
		}
	}
}

// TestDirectLeavesNoPages: a direct write removes the pages of its range and brings none in, unless
// it goes through the cache, which then is written back and emptied as well. Its bytes are on the
// device when it returns.
func TestDirectLeavesNoPages(t *testing.T) {
	for _, c := range fstest.DirectFiles {
		for _, n := range []int{8192, 8192 - 512} {
			x := fstest.New(t, fstest.Policy("modern"))
			f := x.Create("/f")
			x.Must(f.SetFlags(x.T, c.Flags))
			old := bytes.Repeat([]byte{1}, 16384)
			fstest.Must(f.WriteAt(x.T, old, 0))
			fstest.Must(f.WriteDirect(x.T, bytes.Repeat([]byte{2}, n), 4096))
			if _, cached := f.Inode().Pages.NextPage(1, 3); cached {
				t.Errorf("%s, %d bytes: a page of the range is in the cache", c.Name, n)
			}
			copy(old[4096:], bytes.Repeat([]byte{2}, n))
			got := make([]byte, 16384)
			if got = fstest.ReadFull(t, x.T, f.ReadDirect, got, 0); !bytes.Equal(got, old) {
				t.Errorf("%s, %d bytes: differs from byte %d on", c.Name, n, fstest.Differs(got, old))
			}
			x.Must(f.Close(x.T))
		}
	}
}

// lastWrite is a device that remembers where it was written last.
type lastWrite struct {
	blockdev.Device
	off int64
}

func (d *lastWrite) Submit(t *sched.Task, b *blockdev.Bio) {
	if b.Op == blockdev.OpWrite {
		d.off = b.Off
	}
	d.Device.Submit(t, b)
}

// TestDirectGoesInPlace: an overwrite of a NOCOW file stays where it is; one of a COW file gets new
// space.
func TestDirectGoesInPlace(t *testing.T) {
	for _, c := range []struct {
		flags uint64
		same  bool
	}{{format.InodeNoDataCow | format.InodeNoDataSum, true}, {format.InodeNoDataSum, false}, {0, false}} {
		var dev *lastWrite
		x := fstest.New(t, fstest.Policy("locked"), fstest.Wrap(func(d blockdev.Device) blockdev.Device {
			dev = &lastWrite{Device: d}
			return dev
		}))
		f := x.Create("/f")
		x.Must(f.SetFlags(x.T, c.flags))
		p := make([]byte, 65536)
		fstest.Must(f.WriteDirect(x.T, p, 0))
		first := dev.off
		x.Must(x.FS.Sync(x.T))
		fstest.Must(f.WriteDirect(x.T, p[:4096], 8192))
		if same := dev.off == first+8192; same != c.same {
			t.Errorf("flags %#x: written at %d, the file begins at %d, want in place: %v", c.flags, dev.off, first, c.same)
		}
		x.Must(f.Close(x.T))
	}
}

// TestDirectOverDirtyPages: what is dirty under a direct write is written back before it: the
// device gets both, and no page is left.
func TestDirectOverDirtyPages(t *testing.T) {
	var dev *dm.Flakey
	x := fstest.New(t, fstest.Policy("modern"), fstest.Faults(&dev))
	f := x.Create("/f")
	x.Must(f.SetFlags(x.T, format.InodeNoDataCow))
	fstest.Must(f.WriteAt(x.T, make([]byte, 8192), 0))
	x.Must(x.FS.Sync(x.T))
	fstest.Must(f.WriteAt(x.T, bytes.Repeat([]byte{1}, 8192), 0))
	n := dev.Count(blockdev.OpWrite)
	p := bytes.Repeat([]byte{2}, 4096)
	fstest.Must(f.WriteDirect(x.T, p, 0))
	if n = dev.Count(blockdev.OpWrite) - n; n != 2 {
		t.Errorf("%d writes to the device, want the old bytes and the new ones", n)
	}
	if got := fstest.ReadFull(t, x.T, f.ReadDirect, make([]byte, 4096), 0); !bytes.Equal(got, p) {
		t.Errorf("differs from byte %d on", fstest.Differs(got, p))
	}
	x.Must(f.Close(x.T))
}

// TestDirectErrors: an error of the device is the write's, and fsync's once more; no space is kept.
func TestDirectErrors(t *testing.T) {
	for _, c := range fstest.DirectFiles {
		t.Run(c.Name, func(t *testing.T) {
			var dev *dm.Flakey
			x := fstest.New(t, fstest.Policy("modern!DIO_CSUM_BUFFERED"), fstest.Faults(&dev))
			f := x.Create("/f")
			x.Must(f.SetFlags(x.T, c.Flags))
			if c.Prealloc {
				x.Must(f.Fallocate(x.T, 0, 0, 65536))
			}
			fstest.Must(f.WriteDirect(x.T, bytes.Repeat([]byte{1}, 65536), 0))
			x.Must(x.FS.Sync(x.T))
			dev.Set(dm.Fault{Op: blockdev.OpWrite, Nth: dev.Count(blockdev.OpWrite) + 1})
			if n, err := f.WriteDirect(x.T, make([]byte, 8192), 4096); n != 0 || !errors.Is(err, errno.EIO) {
				t.Errorf("write on a device that fails: have %d, %v want 0, EIO", n, err)
			}
			dev.Set()
			fstest.Must(f.ReadDirect(x.T, make([]byte, 8192), 4096)) // nothing is ordered any more
			if err := f.Fsync(x.T); !errors.Is(err, errno.EIO) {
				t.Errorf("the first fsync after it: have %v want EIO", err)
			}
			x.Must(f.Fsync(x.T))
			fstest.Must(f.ReadDirect(x.T, make([]byte, 8192), 32768)) // the trees are in memory
			dev.Set(dm.Fault{Op: blockdev.OpRead, Nth: dev.Count(blockdev.OpRead) + 1, On: true})
			if n, err := f.ReadDirect(x.T, make([]byte, 8192), 32768); n != 0 || !errors.Is(err, errno.EIO) {
				t.Errorf("read on a device that fails: have %d, %v want 0, EIO", n, err)
			}
			dev.Set()
			x.Must(f.Close(x.T))
		})
	}
}

// TestDirectFull: without data space a direct write is ENOSPC, but in place it still works.
func TestDirectFull(t *testing.T) {
	x := fstest.New(t, fstest.Policy("modern!DIO_CSUM_BUFFERED"), fstest.Size(128<<20))
	nocow := x.Create("/nocow")
	x.Must(nocow.SetFlags(x.T, format.InodeNoDataCow))
	p := make([]byte, 1<<20)
	fstest.Must(nocow.WriteDirect(x.T, p, 0))
	cow := x.Create("/cow")
	var err error
	for off := int64(0); err == nil; off += int64(len(p)) {
		_, err = cow.WriteDirect(x.T, p, off)
	}
	if !errors.Is(err, errno.ENOSPC) {
		t.Fatalf("have %v want ENOSPC", err)
	}
	if n, err := cow.WriteDirect(x.T, p, 0); n != 0 || !errors.Is(err, errno.ENOSPC) {
		t.Errorf("overwrite of a COW file: have %d, %v want 0, ENOSPC", n, err)
	}
	x.Must(nocow.Truncate(x.T, 4<<20))
	if n, err := nocow.WriteDirect(x.T, p, 2<<20); n != 0 || !errors.Is(err, errno.ENOSPC) {
		t.Errorf("write into a hole of a NOCOW file: have %d, %v want 0, ENOSPC", n, err)
	}
	if n, err := nocow.WriteDirect(x.T, p, 0); n != len(p) || err != nil {
		t.Errorf("overwrite in place: have %d, %v want %d", n, err, len(p))
	}
	x.Must(nocow.Close(x.T))
	x.Must(cow.Close(x.T))
}

// TestDirectInline: a file whose bytes are in the tree is read and overwritten through the page
// cache.
func TestDirectInline(t *testing.T) {
	x := fstest.New(t, fstest.Policy("modern"))
	f := x.Create("/f")
	fstest.Must(f.WriteAt(x.T, []byte("inline"), 0))
	x.Must(x.FS.Sync(x.T))
	f.DropCache(x.T, 0, 4096)
	if got := fstest.ReadFull(t, x.T, f.ReadDirect, make([]byte, 4096), 0); string(got) != "inline" {
		t.Errorf("have %q want %q", got, "inline")
	}
	p := bytes.Repeat([]byte{7}, 8192)
	fstest.Must(f.WriteDirect(x.T, p, 0))
	if got := fstest.ReadFull(t, x.T, f.ReadDirect, make([]byte, 16384), 0); !bytes.Equal(got, p) {
		t.Errorf("after an overwrite: differs from byte %d on", fstest.Differs(got, p))
	}
	x.Must(f.Close(x.T))
}

// TestDirectConcurrent lets direct and buffered writers and readers, a truncating, a punching and a
// syncing task loose on one file under every policy. No block that is read is mixed from two writes
// of a block, by whichever way it was written. Under unlocked nothing is truncated: a writer that
// finds EOF before its range may give a block a second ordered extent (scenario truncate-rewrite).
func TestDirectConcurrent(t *testing.T) {
	const blocks = 64
	rounds := 150
	switch {
	case sched.UnderRace:
		rounds = 20
	case testing.Short():
		rounds = 40
	}
	for _, name := range append(policy.Names(), "modern!DIO_CSUM_BUFFERED") {
		for _, c := range fstest.DirectFiles {
			t.Run(name+"/"+c.Name, func(t *testing.T) {
				x := fstest.New(t, fstest.Policy(name))
				f := x.Create("/f")
				x.Must(f.SetFlags(x.T, c.Flags))
				if c.Prealloc {
					x.Must(f.Fallocate(x.T, 0, 0, blocks*4096))
				}
				var bad atomic.Pointer[string]
				fstest.Parallel(x.T, 7, func(t *sched.Task, i int) {
					r := rand.New(rand.NewPCG(uint64(i), 7))
					p := make([]byte, 8*4096)
					for n := range rounds {
						b := r.IntN(blocks)
						l := min(1+r.IntN(8), blocks-b) * 4096
						off := int64(b) * 4096
						var err error
						switch i {
						case 0, 1, 2:
							for k := 0; k < l; k += 4096 {
								fstest.Stamp(p[k:k+4096], uint64(i+1)<<32|uint64(n))
							}
							if i < 2 {
								_, err = f.WriteDirect(t, p[:l], off)
							} else {
								_, err = f.WriteAt(t, p[:l], off)
							}
						case 3:
							if to := int64(r.IntN(blocks)) * 4096; name != "unlocked" {
								err = f.Truncate(t, to)
							}
						case 4:
							if err = f.Fallocate(t, fs.FALLOC_FL_PUNCH_HOLE|fs.FALLOC_FL_KEEP_SIZE, off, int64(l)); err == nil && n%8 == 0 {
								err = f.Fsync(t)
							}
						default:
							read := f.ReadDirect
							if i == 6 {
								read = f.ReadAt
							}
							var got int
							if got, err = read(t, p[:l], off); errors.Is(err, io.EOF) {
								err = nil
							}
							for k := 0; i == 5 && k+4096 <= got; k += 4096 {
								if !bytes.Equal(p[k:k+8], p[k+4088:k+4096]) {
									s := fmt.Sprintf("block %d is mixed: %x and %x", b+k/4096, p[k:k+8], p[k+4088:k+4096])
									bad.CompareAndSwap(nil, &s)
								}
							}
						}
						if err != nil {
							s := fmt.Sprintf("task %d, round %d: %v", i, n, err)
							bad.CompareAndSwap(nil, &s)
							return
						}
					}
				})
				if s := bad.Load(); s != nil {
					t.Error(*s)
				}
				x.Must(f.Fsync(x.T))
				x.Must(f.Close(x.T))
			})
		}
	}
}
