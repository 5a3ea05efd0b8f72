package direct_test

import (
	"bytes"
	"errors"
	"fmt"
	"testing"

	"btrlab/internal/blockdev"
	"btrlab/internal/blockdev/dm"
	"btrlab/internal/errno"
	"btrlab/internal/format"
	"btrlab/internal/fs"
	"btrlab/internal/iopath"
	"btrlab/internal/kiocb"
	"btrlab/internal/lock/lockdep"
	"btrlab/internal/policy"
	"btrlab/internal/sched"
	"btrlab/internal/testing/fstest"
)

// cache is a device whose writes are lost with the power unless a flush covered them.
type cache struct {
	blockdev.Device
	durable *blockdev.Memory
}

func withCache(dev **cache) fstest.Option {
	return fstest.Wrap(func(d blockdev.Device) blockdev.Device {
		*dev = &cache{Device: d}
		return *dev
	})
}

func (d *cache) Submit(t *sched.Task, b *blockdev.Bio) {
	d.Device.Submit(t, b)
	if b.Op == blockdev.OpFlush {
		d.durable = d.Device.(*blockdev.Memory).Snapshot()
	}
}

// TestDurableWrites: what a write with O_DSYNC or O_SYNC wrote is in the image that a power cut
// after it leaves, its size as well, direct or not, waited for or queued, and whether the sync
// comes under i_rwsem or after it. Where fsync writes a log, so does the write. Nothing stays
// locked.
func TestDurableWrites(t *testing.T) {
	fstest.OneTask(t)
	policies := append(policy.FsyncNames(), "modern!DIO_SYNC_HELD", "modern!DIO_CSUM_BUFFERED", "modern!FSYNC_LOG", "modern!FSYNC_LOG!DIO_SYNC_HELD")
	for _, p := range append(policies, policy.Names()...) {
		logs := policy.MustParse(p).Has(policy.FsyncLog)
		for i, c := range fstest.DirectFiles {
			for _, flags := range []fs.OpenFlags{0, fs.O_DIRECT, fs.O_DIRECT | fs.O_APPEND} {
				var dev *cache
				x := fstest.New(t, fstest.Policy(p), withCache(&dev), fstest.Size(128<<20))
				flags |= []fs.OpenFlags{fs.O_DSYNC, fs.O_SYNC}[i%2]
				f := fstest.Must(x.FS.OpenFile(x.T, "/f", fs.O_RDWR|fs.O_CREAT|flags, 0o644))
				x.Must(f.SetFlags(x.T, c.Flags))
				if c.Prealloc {
					x.Must(f.Fallocate(x.T, fs.FALLOC_FL_KEEP_SIZE, 0, 65536))
				}
				var want []byte
				for i, n := range []int{8192, 4096, 4096} {
					q := bytes.Repeat([]byte{byte(i + 1)}, n)
					off := i * 4096
					if flags&fs.O_APPEND != 0 {
						off = len(want)
					}
					dev.durable = nil
					if n, err := f.WriteAt(x.T, q, int64(off)); n != len(q) || err != nil {
						t.Fatalf("%s, %s: write: %d, %v", p, c.Name, n, err)
					}
					lockdep.AssertNone(x.T)
					want = append(want[:off], q...)
					if dev.durable == nil {
						t.Fatalf("%s, %s, flags %#x, write %d: no flush", p, c.Name, flags, i)
					}
					if (fstest.SuperOn(t, x.T, dev.durable).LogRoot != 0) != logs {
						t.Errorf("%s, %s, flags %#x, write %d: a log is written: have %v want %v", p, c.Name, flags, i, !logs, logs)
					}
					y := fstest.Must(fs.Open(x.T, []blockdev.Device{dev.durable.Snapshot()}, fs.Options{ReadOnly: !logs}))
					g := fstest.Must(y.OpenFile(x.T, "/f", fs.O_RDONLY, 0))
					if got := fstest.ReadFull(t, x.T, g.ReadAt, make([]byte, 65536), 0); !bytes.Equal(got, want) {
						t.Errorf("%s, %s, flags %#x, write %d: after a power cut the file differs from byte %d on, or has %d bytes, want %d", p, c.Name, flags, i, fstest.Differs(got, want), len(got), len(want))
					}
					x.Must(g.Close(x.T))
					x.Must(y.Close(x.T))
				}
				x.Must(f.Close(x.T))
				x.Close()
			}
		}
	}
}

// TestDurableQueued: Done of a durable write is told when the file is synced, whose sync takes
// i_rwsem on a worker: a truncate that has it, and waits for i_dio_count, is let through first. An
// error of the sync is the write's.
func TestDurableQueued(t *testing.T) {
	for _, p := range []string{"locked", "modern"} {
		for _, fails := range []bool{false, true} {
			var dev *holding
			var flakey *dm.Flakey
			x := fstest.New(t, fstest.Policy(p), fstest.NoCheck(), fstest.Wrap(func(d blockdev.Device) blockdev.Device {
				flakey = dm.NewFlakey(d)
				dev = &holding{Device: flakey}
				return dev
			}))
			f := x.Create("/f")
			x.Must(f.SetFlags(x.T, fstest.Nocow))
			fstest.Must(f.WriteDirect(x.T, make([]byte, 65536), 0))
			x.Must(f.Fsync(x.T))
			dev.hold(blockdev.OpWrite)
			r := new(fstest.Result)
			flushes := flakey.Count(blockdev.OpFlush)
			r.Look = func() {
				if flakey.Count(blockdev.OpFlush) == flushes && !fails {
					t.Errorf("%s: Done is told before the file is synced", p)
				}
			}
			n, err := f.WriteIter(x.T, kiocb.Request{Pos: 4096, Flags: kiocb.Direct | kiocb.DSync, Done: r}, iopath.Source{Buf: make([]byte, 4096)})
			if n != 0 || err != errno.EIOCBQUEUED {
				t.Fatalf("%s: %d, %v", p, n, err)
			}
			f.Inode().Lock(x.T) // as a truncate, which waits for the count
			if fails {
				flakey.Set(dm.Fault{Op: blockdev.OpFlush, Nth: flushes + 1, On: true})
			}
			dev.letGo(x.T, nil)
			f.Inode().DIO.WaitZero(x.T)
			f.Inode().Unlock(x.T)
			if !fails {
				r.Want(t, p, 4096, nil)
			} else {
				r.Want(t, p, 0, errno.EIO)
			}
			flakey.Set()
			_ = f.Close(x.T)
		}
	}
}

// TestDurableParts: a durable write that an error ends on its way says how much is written, and a
// ring or libaio says no more than that. So this much is on the device after a power cut: what went
// in place before the data space ended, or before the source did, direct or through the page cache.
// If the sync of it fails, nothing is written; nor is it if the sync of a whole write fails.
func TestDurableParts(t *testing.T) {
	fstest.OneTask(t)
	full := func(x *fstest.Fixture, f *fs.File) {
		fill := x.Create("/fill")
		for n := int64(16 << 20); n >= 4096; {
			if err := fill.Fallocate(x.T, 0, int64(fill.Size(x.T)), n); err != nil {
				n /= 2
			}
		}
		x.Must(fill.Close(x.T))
		x.Must(x.FS.Sync(x.T))
	}
	for _, c := range []struct {
		name   string
		flags  kiocb.Flags
		n      int // bytes of the write; the first 8192 have a place
		faults func() iopath.Faulter
		short  func(x *fstest.Fixture, f *fs.File)
		want   int
		err    error
	}{
		{"no space", kiocb.Direct, 16384, nil, full, 8192, errno.ENOSPC},
		{"no source", kiocb.Direct, 16384, func() iopath.Faulter { return &partly{good: 4096} }, nil, 4096, errno.EFAULT},
		{"no source for the page cache", 0, 16384, func() iopath.Faulter { return &partly{good: 4096} }, nil, 4096, errno.EFAULT},
		{"whole", kiocb.Direct, 8192, nil, full, 8192, nil},
		{"whole, by the page cache", 0, 8192, nil, full, 8192, nil},
		{"whole, after an error in the background", kiocb.Direct, 8192, nil, func(x *fstest.Fixture, f *fs.File) { f.Inode().SetError(x.T, errno.EIO) }, 0, errno.EIO},
	} {
		for _, p := range []string{"modern", "locked", "modern!FSYNC_LOG", "modern!DIO_SYNC_HELD"} {
			for _, fails := range []bool{false, true} {
				what := fmt.Sprintf("%s, %s, the sync fails: %v", c.name, p, fails)
				var dev *cache
				var flakey *dm.Flakey
				x := fstest.New(t, fstest.Policy(p), fstest.NoCheck(), fstest.Size(64<<20), fstest.Wrap(func(d blockdev.Device) blockdev.Device {
					dev = &cache{Device: d}
					flakey = dm.NewFlakey(dev)
					return flakey
				}))
				f := x.Create("/f")
				x.Must(f.SetFlags(x.T, fstest.Nocow))
				x.Must(f.Fallocate(x.T, 0, 0, 8192))
				x.Must(x.FS.Sync(x.T))
				if c.short != nil {
					c.short(x, f)
				}
				dev.durable = nil
				if fails {
					flakey.Set(dm.Fault{Op: blockdev.OpFlush})
				}
				src := iopath.Source{Buf: bytes.Repeat([]byte{7}, c.n)}
				if c.faults != nil {
					src.Faults = c.faults()
				}
				n, err := f.WriteIter(x.T, kiocb.Request{Flags: c.flags | kiocb.DSync}, src)
				switch {
				case fails && (n != 0 || err == nil):
					t.Errorf("%s: have %d, %v want 0 and an error", what, n, err)
				case !fails && (n != c.want || !errors.Is(err, c.err)):
					t.Errorf("%s: have %d, %v want %d, %v", what, n, err, c.want, c.err)
				case n > 0 && dev.durable == nil:
					t.Errorf("%s: %d bytes, and no flush", what, n)
				case n > 0:
					y := fstest.Must(fs.Open(x.T, []blockdev.Device{dev.durable.Snapshot()}, fs.Options{}))
					g := fstest.Must(y.OpenFile(x.T, "/f", fs.O_RDONLY, 0))
					if got := fstest.ReadFull(t, x.T, g.ReadAt, make([]byte, 65536), 0); len(got) < n || !bytes.Equal(got[:n], src.Buf[:n]) {
						t.Errorf("%s: after a power cut the file has %d bytes and differs from byte %d on", what, len(got), fstest.Differs(got, src.Buf[:n]))
					}
					x.Must(g.Close(x.T))
					x.Must(y.Close(x.T))
				}
				flakey.Set()
				_ = f.Close(x.T)
			}
		}
	}
}

// partly is a source of which only the bytes before good are there; FaultIn brings in so many more.
// With lock set it is memory that is a mapping of the page of the file under it: the fault brings
// that page into memory.
type partly struct {
	good, step int
	faults     int
	in         func(t *sched.Task, from, to int)
}

func (s *partly) FaultIn(t *sched.Task, from, to int) int {
	s.faults++
	if s.in != nil {
		s.in(t, from, to)
	}
	s.good = max(s.good, min(from+s.step, to))
	return max(s.good-from, 0)
}

func (s *partly) Present(from, to int) int { return min(max(s.good-from, 0), to-from) }

// TestDirectFaults: a direct write whose source is not there is written in parts, and the parts
// that were given up leave nothing: neither space nor an item. A source that never comes is EFAULT;
// one that is a mapping of the range itself, which each fault brings back into memory, goes through
// the page cache in the end.
func TestDirectFaults(t *testing.T) {
	for _, p := range []string{"locked!PUNCH_RECHECK_OE", "modern!DIO_CSUM_BUFFERED", "modern"} {
		for _, c := range fstest.DirectFiles {
			t.Run(p+"/"+c.Name, func(t *testing.T) {
				x := fstest.New(t, fstest.Policy(p))
				f := x.Create("/f")
				x.Must(f.SetFlags(x.T, c.Flags))
				if c.Prealloc {
					x.Must(f.Fallocate(x.T, fs.FALLOC_FL_KEEP_SIZE, 0, 1<<20))
				}
				want := bytes.Repeat([]byte{9}, 65536)
				fstest.Must(f.WriteDirect(x.T, want, 0))
				rq := kiocb.Request{Flags: kiocb.Direct}
				mapped := func(tk *sched.Task, from, to int) { fstest.Must(f.ReadAt(tk, make([]byte, 1), int64(from))) }
				if p == "locked!PUNCH_RECHECK_OE" {
					mapped = nil // it would wait for itself, as in Linux before 5.16
				}
				for i, s := range []*partly{{good: 0, step: 1 << 20}, {good: 5000, step: 1 << 20}, {good: 20000, step: 8192}, {good: 4096, step: 4096}, {good: 65536, step: 1},
					{good: 12288, step: 65536, in: mapped}, {good: 0, step: 65536, in: mapped}} {
					q := bytes.Repeat([]byte{byte(i + 1)}, 65536)
					n, err := f.WriteIter(x.T, rq, iopath.Source{Buf: q, Faults: s})
					if n != len(q) || err != nil {
						t.Fatalf("source %d: %d, %v after %d faults", i, n, err, s.faults)
					}
					if got := fstest.ReadFull(t, x.T, f.ReadDirect, make([]byte, 65536), 0); !bytes.Equal(got, q) {
						t.Fatalf("source %d: differs from byte %d on", i, fstest.Differs(got, q))
					}
					rq.Pos = 0
				}
				n, err := f.WriteIter(x.T, kiocb.Request{Flags: kiocb.Direct}, iopath.Source{Buf: bytes.Repeat([]byte{77}, 65536), Faults: &partly{good: 8192}})
				if !errors.Is(err, errno.EFAULT) || n > 8192 {
					t.Errorf("a source that does not come: %d, %v; want at most 8192, EFAULT", n, err)
				}
				if got := fstest.ReadFull(t, x.T, f.ReadDirect, make([]byte, 65536), 0); n > 0 && got[n-1] != 77 || got[8192] == 77 {
					t.Errorf("a source that does not come: byte %d is %d, byte 8192 is %d", n-1, got[max(n-1, 0)], got[8192])
				}
				x.Must(f.Truncate(x.T, 0))
				if c.Flags&format.InodeNoDataCow == 0 {
					// Each part is an extent of its own, and all of them are the file's.
					s := &partly{step: 8192}
					fstest.Must(f.WriteIter(x.T, kiocb.Request{Flags: kiocb.Direct}, iopath.Source{Buf: make([]byte, 1<<20), Faults: s}))
				}
				x.Must(f.Close(x.T))
			})
		}
	}
}

// stubborn is a source of which nothing is there before the fifth fault, although each fault says
// that something came.
type stubborn struct {
	faults int
	look   func(t *sched.Task, fault int)
}

func (s *stubborn) FaultIn(t *sched.Task, from, to int) int {
	s.faults++
	s.look(t, s.faults)
	return to - from
}

func (s *stubborn) Present(from, to int) int {
	if s.faults < 5 {
		return 0
	}
	return to - from
}

// TestDirectFaultWithoutProgress: a direct write whose source is no more there after a fault than
// before goes through the page cache at once, which has the file to itself. The first fault comes
// with i_rwsem shared, the second does not.
func TestDirectFaultWithoutProgress(t *testing.T) {
	x := fstest.New(t, fstest.Policy("modern"))
	f := x.Create("/f")
	x.Must(f.SetFlags(x.T, fstest.Nocow))
	fstest.Must(f.WriteDirect(x.T, make([]byte, 8192), 0))
	s := &stubborn{look: func(t2 *sched.Task, fault int) {
		free := f.Inode().TryRLock(t2)
		if free {
			f.Inode().RUnlock(t2)
		}
		if free != (fault == 1) {
			t.Errorf("fault %d: i_rwsem may be shared: %v", fault, free)
		}
	}}
	q := bytes.Repeat([]byte{5}, 8192)
	if n, err := f.WriteIter(x.T, kiocb.Request{Flags: kiocb.Direct}, iopath.Source{Buf: q, Faults: s}); n != len(q) || err != nil {
		t.Fatalf("%d, %v after %d faults", n, err, s.faults)
	}
	if got := fstest.ReadFull(t, x.T, f.ReadAt, make([]byte, 8192), 0); !bytes.Equal(got, q) {
		t.Errorf("differs from byte %d on", fstest.Differs(got, q))
	}
	x.Must(f.Close(x.T))
}

// TestDirectAppendFault: the place of an append is taken once; another append that comes while the
// source is faulted in waits for i_rwsem (labs/reference 9.2, number 13).
func TestDirectAppendFault(t *testing.T) {
	x := fstest.New(t, fstest.Policy("modern"))
	f := fstest.Must(x.FS.OpenFile(x.T, "/f", fs.O_RDWR|fs.O_CREAT|fs.O_APPEND|fs.O_DIRECT, 0o644))
	x.Must(f.SetFlags(x.T, fstest.Nocow))
	var other *sched.Task
	s := &partly{good: 4096, step: 65536, in: func(t *sched.Task, from, to int) {
		other = t.Go("other", func(t *sched.Task) { fstest.Must(f.WriteAt(t, bytes.Repeat([]byte{2}, 4096), 0)) })
		if f.Inode().TryLock(t) {
			panic("i_rwsem is free while the source is faulted in")
		}
	}}
	fstest.Must(f.WriteIter(x.T, kiocb.Request{}, iopath.Source{Buf: bytes.Repeat([]byte{1}, 12288), Faults: s}))
	x.T.Join(other)
	want := append(bytes.Repeat([]byte{1}, 12288), bytes.Repeat([]byte{2}, 4096)...)
	if got := fstest.ReadFull(t, x.T, f.ReadAt, make([]byte, 65536), 0); !bytes.Equal(got, want) {
		t.Errorf("differs from byte %d on, %d bytes", fstest.Differs(got, want), len(got))
	}
	x.Must(f.Close(x.T))
}
