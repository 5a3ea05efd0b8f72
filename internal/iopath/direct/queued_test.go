package direct_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"btrlab/internal/blockdev"
	"btrlab/internal/blockdev/dm"
	"btrlab/internal/errno"
	"btrlab/internal/format"
	"btrlab/internal/fs"
	"btrlab/internal/iopath"
	"btrlab/internal/kiocb"
	"btrlab/internal/lock/extentio"
	"btrlab/internal/policy"
	"btrlab/internal/progs/mkfs"
	"btrlab/internal/sched"
	"btrlab/internal/sched/vtime"
	"btrlab/internal/testing/fstest"
)

// holding is a device that keeps the transfers of one kind, while it is told to, until the test
// lets them go on. What it ends then ends on the task of the test.
type holding struct {
	blockdev.Device
	mu   sync.Mutex
	op   blockdev.Op
	on   bool
	skip int // so many are not kept
	kept []*blockdev.Bio
	rot  bool // of what is kept and read, a byte is wrong
	rots int  // of so many of the next reads that are not kept
}

// spoil changes a byte of what b reads.
func spoil(b *blockdev.Bio) {
	end := b.EndIO
	b.EndIO = func(t *sched.Task, b *blockdev.Bio) {
		b.Vecs[0][0] ^= 0xff
		b.EndIO = end
		end(t, b)
	}
}

func (d *holding) hold(op blockdev.Op) {
	d.mu.Lock()
	d.op, d.on = op, true
	d.mu.Unlock()
}

func (d *holding) Submit(t *sched.Task, b *blockdev.Bio) {
	d.mu.Lock()
	keep := d.on && b.Op == d.op
	if keep && d.skip > 0 {
		keep = false
		d.skip--
	}
	if keep {
		d.kept = append(d.kept, b)
	} else if b.Op == blockdev.OpRead && d.rots > 0 {
		d.rots--
		spoil(b)
	}
	d.mu.Unlock()
	if !keep {
		d.Device.Submit(t, b)
	}
}

func (d *holding) count() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.kept)
}

// letGo ends what is kept, and keeps nothing more. With err it ends all with that.
func (d *holding) letGo(t *sched.Task, err error) {
	d.mu.Lock()
	kept := d.kept
	d.kept, d.on = nil, false
	d.mu.Unlock()
	for _, b := range kept {
		if err != nil {
			b.Err = err
			b.EndIO(t, b)
			continue
		}
		if d.rot {
			spoil(b)
		}
		d.Device.Submit(t, b)
	}
}

// queue asks for a write or a read of p that must be queued.
func queue(t *testing.T, x *fstest.Fixture, f *fs.File, op blockdev.Op, p []byte, off int64) *fstest.Result {
	t.Helper()
	r := new(fstest.Result)
	rq := kiocb.Request{Pos: uint64(off), Flags: kiocb.Direct, Done: r}
	var n int
	var err error
	if op == blockdev.OpRead {
		n, err = f.ReadIter(x.T, rq, p)
	} else {
		n, err = f.WriteIter(x.T, rq, iopath.Source{Buf: p})
	}
	if n != 0 || err != errno.EIOCBQUEUED || r.Calls.Load() != 0 {
		t.Fatalf("%v of %d bytes at %d: %d, %v, Done called %d times; want a queued request", op, len(p), off, n, err, r.Calls.Load())
	}
	return r
}

func withHolding(dev **holding) fstest.Option {
	return fstest.Wrap(func(d blockdev.Device) blockdev.Device {
		*dev = &holding{Device: d}
		return *dev
	})
}

// TestQueuedWrite: a write that is queued holds no lock of the file but its count. Its end comes
// once, with what the write would have returned; a truncate waits for it; the pages that a reader
// brought in meanwhile are gone when Done is told.
func TestQueuedWrite(t *testing.T) {
	for _, p := range []string{"locked", "range-lock", "modern", "modern!DIO_LOCKED"} {
		for _, c := range fstest.DirectFiles {
			if p == "modern" && c.Flags&format.InodeNoDataSum == 0 {
				continue // through the page cache
			}
			t.Run(p+"/"+c.Name, func(t *testing.T) {
				var dev *holding
				x := fstest.New(t, fstest.Policy(p+"!DIO_CSUM_BUFFERED"), withHolding(&dev))
				f := x.Create("/f")
				ip := f.Inode()
				x.Must(f.SetFlags(x.T, c.Flags))
				old := bytes.Repeat([]byte{1}, 65536)
				fstest.Must(f.WriteDirect(x.T, old, 0))
				if c.Prealloc {
					x.Must(f.Fallocate(x.T, 0, 65536, 65536))
				}
				x.Must(x.FS.Sync(x.T))
				dev.hold(blockdev.OpWrite)
				q := bytes.Repeat([]byte{2}, 8192)
				a := queue(t, x, f, blockdev.OpWrite, q, 4096)
				a.Look = func() {
					if _, cached := ip.Pages.NextPage(1, 3); cached {
						t.Error("a page of the range is in the cache")
					}
				}
				b := queue(t, x, f, blockdev.OpWrite, q, 32768)
				if n := ip.DIO.Load(); n != 2 || !ip.TryLock(x.T) {
					t.Fatalf("i_dio_count is %d, want 2, and i_rwsem free", n)
				}
				ip.Unlock(x.T)
				page := ip.Pages.Grab(x.T, 1) // as a reader's
				page.SetUptodate()
				page.UnlockPut(x.T)
				cut := x.T.Go("truncate", func(tk *sched.Task) { x.Must(f.Truncate(tk, 4096)) })
				fstest.Until(func() bool { // the truncate has i_rwsem
					free := ip.TryLock(x.T)
					if free {
						ip.Unlock(x.T)
					}
					return !free
				})
				dev.letGo(x.T, nil)
				x.T.Join(cut)
				a.Want(t, "first write", len(q), nil)
				b.Want(t, "second write", len(q), nil)
				if got := fstest.ReadFull(t, x.T, f.ReadDirect, make([]byte, 65536), 0); !bytes.Equal(got, old[:4096]) {
					t.Errorf("after the truncate: %d bytes, or others than before", len(got))
				}
				x.Must(f.Close(x.T))
			})
		}
	}
}

// TestQueuedWriteBeyondEOF: until 5.10 a write beyond EOF is not asynchronous; since then it is,
// and i_size is there before its end.
func TestQueuedWriteBeyondEOF(t *testing.T) {
	var dev *holding
	x := fstest.New(t, fstest.Policy("modern"), withHolding(&dev))
	f := x.Create("/f")
	x.Must(f.SetFlags(x.T, fstest.Nocow))
	dev.hold(blockdev.OpWrite)
	q := bytes.Repeat([]byte{2}, 8192)
	r := queue(t, x, f, blockdev.OpWrite, q, 0)
	if s := f.Size(x.T); s != 8192 {
		t.Errorf("size %d before the end of the write, want 8192", s)
	}
	dev.letGo(x.T, nil)
	r.Want(t, "write", len(q), nil)
	x.Must(x.FS.Sync(x.T)) // the policy changes while nothing is in flight
	x.FS.SetPolicy(x.T, policy.MustParse("locked"))
	r = new(fstest.Result)
	if n, err := f.WriteIter(x.T, kiocb.Request{Pos: 8192, Flags: kiocb.Direct, Done: r}, iopath.Source{Buf: q}); n != len(q) || err != nil || r.Calls.Load() != 0 {
		t.Errorf("write beyond EOF before 5.11: %d, %v, Done called %d times; want it done at once", n, err, r.Calls.Load())
	}
	x.Must(f.Close(x.T))
}

// TestQueuedAtOnce: what the device ends before it is asked for more is no queued request: the call
// says how it ended, and Done hears nothing.
func TestQueuedAtOnce(t *testing.T) {
	x := fstest.New(t, fstest.Policy("modern"))
	f := x.Create("/f")
	x.Must(f.SetFlags(x.T, fstest.Nocow))
	p, r := make([]byte, 8192), new(fstest.Result)
	rq := kiocb.Request{Flags: kiocb.Direct, Done: r}
	if n, err := f.WriteIter(x.T, rq, iopath.Source{Buf: p}); n != len(p) || err != nil {
		t.Errorf("write: %d, %v", n, err)
	}
	if n, err := f.ReadIter(x.T, rq, p); n != len(p) || err != nil {
		t.Errorf("read: %d, %v", n, err)
	}
	if c := r.Calls.Load(); c != 0 {
		t.Errorf("Done called %d times", c)
	}
	x.Must(f.Close(x.T))
}

// TestDirectWaitsForAll: a request ends with its last bio, also when the first one ended before the
// second began.
func TestDirectWaitsForAll(t *testing.T) {
	for _, op := range []blockdev.Op{blockdev.OpRead, blockdev.OpWrite} {
		var dev *holding
		x := fstest.New(t, fstest.Policy("modern"), withHolding(&dev))
		f := x.Create("/f")
		x.Must(f.SetFlags(x.T, fstest.Nocow))
		p := make([]byte, 2<<20)
		fstest.Must(f.WriteDirect(x.T, p, 0))
		x.Must(x.FS.Sync(x.T))
		fstest.ReadFull(t, x.T, f.ReadDirect, p, 0)
		dev.skip = 1
		dev.hold(op)
		var err error
		task := x.T.Go("waits", func(tk *sched.Task) {
			if op == blockdev.OpRead {
				_, err = f.ReadDirect(tk, p, 0)
			} else {
				_, err = f.WriteDirect(tk, p, 0)
			}
		})
		fstest.Until(func() bool { return dev.count() >= 1 })
		dev.letGo(x.T, errno.EIO)
		x.T.Join(task)
		if !errors.Is(err, errno.EIO) {
			t.Errorf("%v whose second bio fails: have %v want EIO", op, err)
		}
		_ = f.Fsync(x.T) // has the error of the write
		x.Must(f.Close(x.T))
	}
}

// TestQueuedRead: a read that is queued keeps its range, and no other lock, until the device is
// done; so a write of the range waits, and one beside it does not. Data is checked although the
// bio's end may not look checksums up.
func TestQueuedRead(t *testing.T) {
	for _, p := range []string{"locked", "modern", "modern!DIO_LOCKED"} {
		for _, c := range fstest.DirectFiles {
			t.Run(p+"/"+c.Name, func(t *testing.T) {
				var dev *holding
				x := fstest.New(t, fstest.Policy(p+"!DIO_CSUM_BUFFERED"), withHolding(&dev))
				f := x.Create("/f")
				ip := f.Inode()
				x.Must(f.SetFlags(x.T, c.Flags))
				if c.Prealloc {
					x.Must(f.Fallocate(x.T, 0, 0, 65536))
				}
				old := make([]byte, 40960)
				fstest.Random(rand.New(rand.NewPCG(1, 2)), old)
				fstest.Must(f.WriteDirect(x.T, old, 0))
				x.Must(x.FS.Sync(x.T))
				// the trees are in memory
				fstest.ReadFull(t, x.T, f.ReadDirect, make([]byte, 40960), 0)
				dev.hold(blockdev.OpRead)
				got := make([]byte, 8192)
				r := queue(t, x, f, blockdev.OpRead, got, 4096)
				if !ip.TryLock(x.T) {
					t.Fatal("i_rwsem is held")
				}
				ip.Unlock(x.T)
				fstest.Must(f.WriteDirect(x.T, old[:4096], 12288))
				var written atomic.Bool
				w := x.T.Go("writer", func(tk *sched.Task) {
					fstest.Must(f.WriteDirect(tk, make([]byte, 4096), 4096))
					written.Store(true)
				})
				bit := extentio.Locked
				if p == "modern" {
					bit = extentio.DIOLocked
				}
				if !ip.IOTree.All(x.T, 4096, 12288, bit) || written.Load() {
					t.Error("the range is not locked before the device has read it")
				}
				dev.letGo(x.T, nil)
				r.Want(t, "read", 8192, nil)
				if !bytes.Equal(got, old[4096:12288]) {
					t.Errorf("differs from byte %d on", fstest.Differs(got, old[4096:]))
				}
				x.T.Join(w)
				dev.hold(blockdev.OpRead)
				r = queue(t, x, f, blockdev.OpRead, make([]byte, 65536), 32768)
				dev.letGo(x.T, nil)
				want := 8192
				if c.Prealloc {
					want = 32768
				}
				r.Want(t, "read to the end of the file", want, nil)
				x.Must(f.Close(x.T))
			})
		}
	}
}

// TestQueuedErrors: an error of the device is told to Done, and a write's to fsync as well. A wrong
// checksum is an error.
func TestQueuedErrors(t *testing.T) {
	for _, c := range fstest.DirectFiles {
		t.Run(c.Name, func(t *testing.T) {
			var dev *holding
			x := fstest.New(t, fstest.Policy("modern!DIO_CSUM_BUFFERED"), withHolding(&dev))
			f := x.Create("/f")
			x.Must(f.SetFlags(x.T, c.Flags))
			if c.Prealloc {
				x.Must(f.Fallocate(x.T, 0, 0, 65536))
			}
			fstest.Must(f.WriteDirect(x.T, bytes.Repeat([]byte{1}, 65536), 0))
			x.Must(x.FS.Sync(x.T))
			dev.hold(blockdev.OpWrite)
			w := queue(t, x, f, blockdev.OpWrite, make([]byte, 8192), 4096)
			dev.letGo(x.T, errno.EIO)
			w.Want(t, "write", 0, errno.EIO)
			if err := f.Fsync(x.T); !errors.Is(err, errno.EIO) {
				t.Errorf("the first fsync after it: have %v want EIO", err)
			}
			x.Must(f.Fsync(x.T))
			dev.hold(blockdev.OpRead)
			p := make([]byte, 8192)
			r := queue(t, x, f, blockdev.OpRead, p, 32768)
			if !f.Inode().Sums() {
				dev.letGo(x.T, errno.EIO)
				r.Want(t, "read", 0, errno.EIO)
			} else { // it is read again
				dev.rot = true
				dev.letGo(x.T, nil)
				r.Want(t, "read", len(p), nil)
				if !bytes.Equal(p, bytes.Repeat([]byte{1}, len(p))) {
					t.Error("a read whose checksum does not fit is handed out")
				}
				dev.rots = 1
				if n, err := f.ReadDirect(x.T, p, 32768); n != len(p) || err != nil || dev.rots != 0 || !bytes.Equal(p, bytes.Repeat([]byte{1}, len(p))) {
					t.Errorf("a read that is waited for, whose checksum does not fit: %d, %v, first byte %d", n, err, p[0])
				}
			}
			x.Must(f.Close(x.T))
		})
	}
}

// TestQueuedModel is TestDirectModel for requests that overlap: tasks keep eight requests each in
// flight, in blocks of their own, on a device with a latency, beside buffered readers, a truncate
// beyond them all and an fsync. Each read finds what was written last.
func TestQueuedModel(t *testing.T) {
	rounds := 60
	if testing.Short() || sched.UnderRace {
		rounds = 15
	}
	const tasks, depth = 3, 8
	for _, p := range []string{"locked", "range-lock", "modern", "modern!DIO_CSUM_BUFFERED"} {
		for _, c := range fstest.DirectFiles {
			t.Run(p+"/"+c.Name, func(t *testing.T) {
				var model *dm.Model
				x := fstest.New(t, fstest.Policy(p), fstest.Wrap(func(d blockdev.Device) blockdev.Device {
					model = dm.New(sched.NewTask("dm"), d, dm.Params{Name: "test", Disks: 1, Channels: 16, Depth: 64, Read: 20 * time.Microsecond, Write: 20 * time.Microsecond})
					return model
				}))
				defer model.Close()
				f := x.Create("/f")
				x.Must(f.SetFlags(x.T, c.Flags))
				if c.Prealloc {
					x.Must(f.Fallocate(x.T, 0, 0, tasks*depth*8192))
				}
				x.Must(f.Truncate(x.T, tasks*depth*8192+4096))
				fstest.Parallel(x.T, tasks+2, func(tk *sched.Task, i int) {
					r := rand.New(rand.NewPCG(uint64(i), 3))
					switch i {
					case tasks:
						for range rounds {
							fstest.Must(0, ignoreEOF(f.ReadAt(tk, make([]byte, 32768), int64(r.IntN(tasks*depth*2))*4096)))
						}
						return
					case tasks + 1:
						for n := range rounds {
							x.Must(f.Truncate(tk, tasks*depth*8192+4096+int64(n%2)*4096))
							x.Must(f.Fsync(tk))
						}
						return
					}
					var marks [depth]uint64
					for n := range rounds {
						var res [depth]fstest.Result
						var bufs [depth][]byte
						reads := r.Uint32()
						for j := range depth {
							bufs[j] = make([]byte, 8192)
							off := int64(i*depth+j) * 8192
							rq := kiocb.Request{Pos: uint64(off), Flags: kiocb.Direct, Done: &res[j]}
							var got int
							var err error
							if reads>>j&1 == 1 {
								got, err = f.ReadIter(tk, rq, bufs[j])
							} else {
								marks[j] = uint64(i+1)<<32 | uint64(n+1)
								fstest.Stamp(bufs[j], marks[j])
								got, err = f.WriteIter(tk, rq, iopath.Source{Buf: bufs[j]})
							}
							if err != errno.EIOCBQUEUED {
								res[j].Complete(tk, got, err)
							}
						}
						for j := range depth {
							res[j].Wait()
							want := make([]byte, 8192)
							if marks[j] != 0 {
								fstest.Stamp(want, marks[j])
							}
							if res[j].N != 8192 || res[j].Err != nil || !bytes.Equal(bufs[j], want) {
								t.Errorf("task %d, round %d, request %d: %d, %v, or other bytes than written", i, n, j, res[j].N, res[j].Err)
								return
							}
						}
					}
				})
				x.Must(f.Close(x.T))
				x.Close()
			})
		}
	}
}

func ignoreEOF(n int, err error) error {
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err
}

// TestQueuedInVirtualTime: requests in flight at once take the device's time together.
func TestQueuedInVirtualTime(t *testing.T) {
	const depth, service = 16, time.Millisecond
	for _, p := range []string{"locked", "modern"} {
		var took, alone int64
		fstest.Must(vtime.Run(vtime.Machine{CPUs: 2, Checked: true}, func(tk *sched.Task) {
			model := dm.New(tk, blockdev.NewMemory(256<<20), dm.Params{Name: "test", Disks: 1, Channels: 64, Depth: 64, Read: service, Write: service})
			fstest.Must(0, mkfs.Make(tk, model, mkfs.Options{}))
			x := fstest.Must(fs.Open(tk, []blockdev.Device{model}, fs.Options{Policy: policy.MustParse(p)}))
			f := fstest.Must(x.Create(tk, "/f", 0o644))
			fstest.Must(0, f.SetFlags(tk, fstest.Nocow))
			fstest.Must(f.WriteDirect(tk, make([]byte, 1<<20), 0))
			fstest.Must(0, f.Fsync(tk))
			p := make([]byte, 4096)
			now := tk.Now()
			fstest.Must(f.WriteDirect(tk, p, 0))
			alone = tk.Now() - now
			now = tk.Now()
			res := new(fstest.Result)
			for i := range depth {
				if n, err := f.WriteIter(tk, kiocb.Request{Pos: uint64(i) * 4096, Flags: kiocb.Direct, Done: res}, iopath.Source{Buf: p}); err != errno.EIOCBQUEUED {
					panic(fmt.Sprint(n, err))
				}
			}
			f.Inode().DIO.WaitZero(tk)
			took = tk.Now() - now
			if res.Calls.Load() != depth {
				t.Errorf("%s: Done called %d times, want %d", p, res.Calls.Load(), depth)
			}
			fstest.Must(0, f.Close(tk))
			fstest.Must(0, x.Close(tk))
			fstest.Must(0, model.Close())
		}))
		if took > 2*alone {
			t.Errorf("%s: %d writes at once take %d ns, one takes %d: they wait for each other", p, depth, took, alone)
		}
	}
}
