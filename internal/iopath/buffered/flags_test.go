package buffered_test

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"

	"btrlab/internal/errno"
	"btrlab/internal/format"
	"btrlab/internal/fs"
	"btrlab/internal/iopath"
	"btrlab/internal/kiocb"
	"btrlab/internal/meta/spaceinfo"
	"btrlab/internal/sched"
	"btrlab/internal/testing/fstest"
)

// A flag that reads and writes through the page cache do not have is refused, and the file stays as
// it is: to carry the request out without it would sleep, lose durability or write to another
// place.
func TestFlagsAreRefused(t *testing.T) {
	x := fstest.New(t)
	f, err := x.FS.OpenFile(x.T, "/f", fs.O_RDWR|fs.O_CREAT, 0o644)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close(x.T)
	if n, err := f.WriteIter(x.T, kiocb.Request{Pos: 1}, iopath.Source{Buf: []byte("bcd")}); n != 3 || err != nil {
		t.Fatal(n, err)
	}
	for _, c := range []struct {
		flags kiocb.Flags
		want  error
	}{
		{kiocb.Nowait, errno.EOPNOTSUPP},
		{kiocb.Nowait | kiocb.DSync, errno.EOPNOTSUPP},
		{1 << 31, errno.EOPNOTSUPP},
	} {
		rq := kiocb.Request{Pos: 0, Flags: c.flags}
		if n, err := f.WriteIter(x.T, rq, iopath.Source{Buf: []byte("xxxxx")}); n != 0 || !errors.Is(err, c.want) {
			t.Errorf("write with flags %#x: have %d, %v want %v", c.flags, n, err, c.want)
		}
		if c.flags == kiocb.Nowait {
			continue // every policy has reads with NOWAIT
		}
		if n, err := f.ReadIter(x.T, rq, make([]byte, 2)); n != 0 || !errors.Is(err, c.want) {
			t.Errorf("read with flags %#x: have %d, %v want %v", c.flags, n, err, c.want)
		}
	}
	for _, flag := range []kiocb.Flags{kiocb.Append, kiocb.DSync} {
		if _, err := f.ReadIter(x.T, kiocb.Request{Flags: flag}, make([]byte, 2)); !errors.Is(err, errno.EOPNOTSUPP) {
			t.Errorf("read with flags %#x: have %v want %v", flag, err, errno.EOPNOTSUPP)
		}
	}
	got := make([]byte, 4)
	if n, err := f.ReadIter(x.T, kiocb.Request{}, got); n != 4 || err != nil || string(got) != "\x00bcd" {
		t.Errorf("have %d %q %v want \"\\x00bcd\"", n, got, err)
	}
}

// A caller can be told where a write has begun: an append, which looks for the end of the file
// under its lock, and any other; also in a lab.
func TestWrote(t *testing.T) {
	for name, lab := range map[string]func(t *sched.Task, w iopath.WriteSteps) error{"plan": nil, "batches": batches, "steps": batchSteps} {
		x := fstest.New(t)
		f, err := x.FS.OpenFile(x.T, "/f", fs.O_RDWR|fs.O_CREAT, 0o644)
		if err != nil {
			t.Fatal(err)
		}
		writes := 0
		if lab != nil {
			write := func(t *sched.Task, w iopath.WriteSteps) error { writes++; return lab(t, w) }
			if name == "batches" {
				x.FS.SetLab(x.T, iopath.Lab{Write: write})
			} else {
				x.FS.SetLab(x.T, iopath.Lab{File: func() iopath.FilePolicy { return writesBy{write: write} }})
			}
		}
		for _, c := range []struct {
			rq   kiocb.Request
			n    int
			want uint64
		}{
			{kiocb.Request{Pos: 100}, 4000, 100},
			{kiocb.Request{Pos: 7, Flags: kiocb.Append}, 9000, 4100},
			{kiocb.Request{Flags: kiocb.Append}, 1, 13100},
			// nothing is written, and nothing is told
			{kiocb.Request{Pos: 5, Flags: kiocb.Append}, 0, 77},
		} {
			at := uint64(77)
			c.rq.Wrote = &at
			if n, err := f.WriteIter(x.T, c.rq, iopath.Source{Buf: bytes.Repeat([]byte{1}, c.n)}); n != c.n || err != nil || at != c.want {
				t.Errorf("%s: write of %d bytes: have %d, %v at %d want %d", name, c.n, n, err, at, c.want)
			}
		}
		x.FS.SetLab(x.T, iopath.Lab{})
		if want := append(make([]byte, 100), bytes.Repeat([]byte{1}, 13001)...); !bytes.Equal(x.ReadFile("/f"), want) {
			t.Errorf("%s: the file has other bytes", name)
		}
		if lab != nil && writes != 3 {
			t.Errorf("%s: %d writes by the policy, want 3", name, writes)
		}
		x.Must(f.Close(x.T))
		x.Close()
	}
}

// writesBy is a policy of which nothing but writes is called.
type writesBy struct {
	iopath.FilePolicy
	write func(t *sched.Task, w iopath.WriteSteps) error
}

func (p writesBy) Write(t *sched.Task, w iopath.WriteSteps) error { return p.write(t, w) }

// batches is policy locked.
func batches(t *sched.Task, w iopath.WriteSteps) error {
	w.Alone(t)
	defer w.Unlock(t)
	w.Place(t)
	err := w.Begin(t)
	for more := err == nil; more; {
		more, err = w.Batch(t, 1)
	}
	return err
}

// batchSteps is the same in one batch, step by step.
func batchSteps(t *sched.Task, w iopath.WriteSteps) error {
	w.Alone(t)
	defer w.Unlock(t)
	w.Place(t)
	start, end := w.Range(t)
	if err := errors.Join(w.Begin(t), w.Reserve(t), w.LockPages(t)); err != nil {
		return err
	}
	w.WaitWriteback(t, start, end)
	w.LockExtent(t)
	w.Copy(t)
	w.UnlockPages(t)
	return nil
}

// TestLabWriteGivesBack: a lab that gives a write up leaves nothing promised and
// nothing locked: another write goes on, and the file system comes to rest.
func TestLabWriteGivesBack(t *testing.T) {
	x := fstest.New(t, fstest.NoCheck()) // no check: a page that stays locked stops it
	f := x.Create("/f")
	for _, steps := range []string{"", "begin", "begin reserve", "begin reserve pages", "begin reserve pages extent", "pages extent", "extent"} {
		x.FS.SetLab(x.T, iopath.Lab{Write: func(t *sched.Task, w iopath.WriteSteps) error {
			w.Alone(t)
			defer w.Unlock(t)
			w.Place(t)
			var err error
			for _, step := range strings.Fields(steps) {
				switch step {
				case "begin":
					err = w.Begin(t)
				case "reserve":
					err = w.Reserve(t)
				case "pages":
					err = w.LockPages(t)
				case "extent":
					w.LockExtent(t)
				}
				if err != nil {
					return err
				}
			}
			return errno.EIO
		}})
		if n, err := f.WriteAt(x.T, make([]byte, 5000), 0); n != 0 || !errors.Is(err, errno.EIO) {
			t.Errorf("%q: have %d, %v want %v", steps, n, err, errno.EIO)
		}
		x.FS.SetLab(x.T, iopath.Lab{})
		idle(t, x, f.Inode())
		x.WriteAt(f, make([]byte, 8192), 0)
	}
	x.Must(f.Close(x.T))
	x.Must(x.FS.Sync(x.T))
	x.Check(x.Dev)
}

// TestLabReserveAgain: a lab that is told ENOSPC by Reserve has nothing promised, so
// it may wait until there is room and ask again. Data space or a snapshot's wait that stayed with
// the first time would be forgotten by the second, and never come back.
func TestLabReserveAgain(t *testing.T) {
	const n = 64 << 10
	x := fstest.New(t, fstest.Size(64<<20))
	fill := x.Create("/fill") // the device has no room for a chunk more
	for size := int64(16 << 20); size >= 4096; {
		if fill.Fallocate(x.T, 0, int64(fill.Size(x.T)), size) != nil {
			size /= 2
		}
	}
	x.Must(fill.Close(x.T))
	x.Must(x.FS.Unlink(x.T, "/fill"))
	x.Must(x.FS.Sync(x.T))
	f := x.Create("/f")
	x.Must(f.SetFlags(x.T, format.InodeNoDataCow|format.InodeNoDataSum))
	x.WriteAt(f, make([]byte, n/2), 0) // the first half can be overwritten in place
	x.Must(x.FS.Sync(x.T))
	ip := f.Inode()
	for name, short := range map[string]*spaceinfo.Info{"data": ip.FS.Space.Data(), "metadata": ip.FS.Space.Metadata()} {
		x.FS.SetLab(x.T, iopath.Lab{Write: func(t *sched.Task, w iopath.WriteSteps) error {
			w.Alone(t)
			defer w.Unlock(t)
			w.Place(t)
			start, end := w.Range(t)
			x.Must(w.Begin(t))
			promised := func() string {
				return fmt.Sprintf("data %+v, %d writers keep snapshots out", ip.FS.Space.Data().Usage(t), ip.Root.SnapshotLock.Writers())
			}
			taken := uint64(0)
			for size := uint64(1) << 40; size >= format.SectorSize; size /= 2 {
				for short.Reserve(sched.NewTask("other"), size, spaceinfo.NoFlush) == nil {
					taken += size
				}
			}
			before := promised()
			err := w.Reserve(t)
			after := promised()
			short.Release(t, taken)
			if !errors.Is(err, errno.ENOSPC) || after != before {
				return fmt.Errorf("with no space: %v\nbefore %s\nafter %s", err, before, after)
			}
			if err := errors.Join(w.Reserve(t), w.LockPages(t)); err != nil {
				return err
			}
			w.WaitWriteback(t, start, end)
			w.LockExtent(t)
			w.Copy(t)
			w.UnlockPages(t)
			return nil
		}})
		p := bytes.Repeat([]byte{name[0]}, n)
		if have, err := f.WriteAt(x.T, p, 0); have != n || err != nil {
			t.Errorf("%s: have %d, %v want %d", name, have, err, n)
		}
		x.FS.SetLab(x.T, iopath.Lab{})
		x.Must(x.FS.Sync(x.T))
		idle(t, x, ip)
		if !bytes.Equal(x.ReadFile("/f"), p) {
			t.Errorf("%s: the file has other bytes", name)
		}
		x.Must(f.Truncate(x.T, n/2))
		x.Must(x.FS.Sync(x.T))
	}
	x.Must(f.Close(x.T))
}
