package buffered_test

import (
	"bytes"
	"errors"
	"io"
	"testing"

	"btrlab/internal/data/inode"
	"btrlab/internal/data/ordered"
	"btrlab/internal/errno"
	"btrlab/internal/format"
	"btrlab/internal/fs"
	"btrlab/internal/iopath"
	"btrlab/internal/kiocb"
	"btrlab/internal/meta/spaceinfo"
	"btrlab/internal/sched"
	"btrlab/internal/testing/fstest"
)

// busy is one thing that a NOWAIT write of 4 KiB at 4096 meets.
type busy struct {
	name string
	// make makes it busy, and end ends that; nil makes nothing busy.
	make func(t *sched.Task, x *fstest.Fixture, ip *inode.Inode) (end func())
	// linux and strict are the answers under nowait-6.1 and nowait-strict; 0 is that the write is
	// done.
	linux, strict kiocb.Again
	waits         bool // Linux would wait for this test: the scenarios nowait-... have it
	plain         bool // the file is a COW file
	size          int  // of the file; 0: 16384
	pos, n        int  // of the write
}

var busies = []busy{
	{name: "nothing"},
	{name: "a COW file", plain: true, linux: kiocb.AgainMustCOW},
	{name: "i_rwsem", linux: kiocb.AgainInode, strict: kiocb.AgainInode,
		make: func(t *sched.Task, x *fstest.Fixture, ip *inode.Inode) func() {
			ip.Lock(t)
			return func() { ip.Unlock(t) }
		}},
	{name: "i_rwsem of a reader", linux: kiocb.AgainInode, strict: kiocb.AgainInode,
		make: func(t *sched.Task, x *fstest.Fixture, ip *inode.Inode) func() {
			ip.RLock(t)
			return func() { ip.RUnlock(t) }
		}},
	{name: "page", waits: true, strict: kiocb.AgainPage,
		make: func(t *sched.Task, x *fstest.Fixture, ip *inode.Inode) func() {
			p := ip.Pages.Grab(t, 1)
			return func() { p.UnlockPut(t) }
		}},
	{name: "second page", waits: true, strict: kiocb.AgainPage, n: 8192,
		make: func(t *sched.Task, x *fstest.Fixture, ip *inode.Inode) func() {
			p := ip.Pages.Grab(t, 2)
			return func() { p.UnlockPut(t) }
		}},
	{name: "writeback", waits: true, strict: kiocb.AgainStable,
		make: func(t *sched.Task, x *fstest.Fixture, ip *inode.Inode) func() {
			p := ip.Pages.Grab(t, 1)
			copy(p.Edit(t), bytes.Repeat([]byte{old}, 4096))
			p.SetUptodate()
			ip.Pages.StartWriteback(t, p)
			t.Discharge(p)
			p.Unlock(t)
			return func() { ip.Pages.EndWriteback(t, p); p.Put(t) }
		}},
	{name: "a page to be read", strict: kiocb.AgainRead, n: 100},
	{name: "a part of a page beyond EOF", pos: 16384, n: 100},
	{name: "growth after a whole block", pos: 32768},
	{name: "growth after a part of a block", strict: kiocb.AgainExpand, size: 16000, pos: 32768},
	{name: "growth over a busy range", waits: true, strict: kiocb.AgainGrow, pos: 32768,
		make: func(t *sched.Task, x *fstest.Fixture, ip *inode.Inode) func() {
			ip.IOTree.Lock(t, 20480, 24576)
			return func() { ip.IOTree.Unlock(t, 20480, 24576) }
		}},
	{name: "range", linux: kiocb.AgainExtent, strict: kiocb.AgainExtent,
		make: func(t *sched.Task, x *fstest.Fixture, ip *inode.Inode) func() {
			ip.IOTree.Lock(t, 0, 8192)
			return func() { ip.IOTree.Unlock(t, 0, 8192) }
		}},
	{name: "ordered extent", waits: true, strict: kiocb.AgainOrdered,
		make: func(t *sched.Task, x *fstest.Fixture, ip *inode.Inode) func() {
			ip.IOTree.Lock(t, 4096, 8192)
			oe := ip.AddOrdered(t, ordered.Nocow, 4096, 4096, 1<<20)
			ip.IOTree.Unlock(t, 4096, 8192)
			t.Discharge(oe)
			return func() {
				oe.Done(t, 4096, nil)
				ip.Ordered.Remove(t, oe)
				ip.ReturnOrdered(t, oe, ip.LendOrdered(t, oe))
				oe.Put(t)
			}
		}},
	{name: "data space", linux: kiocb.AgainData, strict: kiocb.AgainData,
		make: func(t *sched.Task, x *fstest.Fixture, ip *inode.Inode) func() { return takeAll(t, ip.FS.Space.Data()) }},
	{name: "metadata space", linux: kiocb.AgainMetadata, strict: kiocb.AgainMetadata,
		make: func(t *sched.Task, x *fstest.Fixture, ip *inode.Inode) func() {
			return takeAll(t, ip.FS.Space.Metadata())
		}},
	{name: "dirty pages", linux: kiocb.AgainThrottle, strict: kiocb.AgainThrottle,
		make: func(t *sched.Task, x *fstest.Fixture, ip *inode.Inode) func() {
			f := x.Create("/dirty")
			x.WriteAt(f, make([]byte, 1<<20), 0)
			x.FS.SetDirtyLimits(0, 16<<12)
			return func() {
				x.Must(f.Close(x.T))
				x.FS.SetDirtyLimits(fs.DefaultDirtyBackground, fs.DefaultDirtyLimit)
			}
		}},
}

// takeAll promises all the space there is.
func takeAll(t *sched.Task, i *spaceinfo.Info) (end func()) {
	taken := uint64(0)
	for n := uint64(1) << 40; n >= format.SectorSize; n /= 2 {
		for i.Reserve(t, n, spaceinfo.NoFlush) == nil {
			taken += n
		}
	}
	return func() { i.Release(t, taken) }
}

const old, fresh = 0xee, 0x11

// TestNowaitWrite: each step of a NOWAIT write that would sleep is EAGAIN, with its place and
// reason, and leaves nothing: no lock, no reservation, no byte. Where Linux sleeps at a step, the
// policy that closes the gap does not.
func TestNowaitWrite(t *testing.T) {
	for _, name := range []string{"nowait-6.1", "nowait-strict", "modern"} {
		for _, b := range busies {
			strict := name == "nowait-strict"
			want := b.linux
			if strict {
				want = b.strict
			}
			if b.waits && !strict {
				continue
			}
			t.Run(name+"/"+b.name, func(t *testing.T) {
				x := fstest.New(t, fstest.Policy(name))
				f := x.Create("/f")
				if !b.plain {
					x.Must(f.SetFlags(x.T, f.Flags()|format.InodeNoDataCow))
				}
				size, pos, n := b.size, b.pos, b.n
				if size == 0 {
					size = 16384
				}
				if pos == 0 {
					pos = 4096
				}
				if n == 0 {
					n = 4096
				}
				file := bytes.Repeat([]byte{old}, size)
				x.WriteAt(f, file, 0)
				x.Must(x.FS.Sync(x.T))
				x.FS.DropCaches(x.T)
				other, writer := sched.NewTask("other"), sched.NewTask("writer")
				writer.Dirty.Pages = 1000
				ip := f.Inode()
				end := func() {}
				if b.make != nil {
					end = b.make(other, x, ip)
				}
				data, outstanding := ip.FS.Space.Data().Usage(x.T).MayUse, ip.Outstanding()
				src := bytes.Repeat([]byte{fresh}, n)
				have, err := f.WriteIter(writer, kiocb.Request{Pos: uint64(pos), Flags: kiocb.Nowait}, iopath.Source{Buf: src})
				if want == 0 {
					if have != n || err != nil {
						t.Errorf("wrote %d of %d, %v", have, n, err)
					}
					file = append(file, make([]byte, max(0, pos+n-len(file)))...)
					copy(file[pos:], src)
				} else {
					if have != 0 || err != want || !errors.Is(err, errno.EAGAIN) {
						t.Errorf("wrote %d, have %v want %v", have, err, want)
					}
					// In the space of "dirty pages" writeback gives promises back meanwhile.
					if now := ip.FS.Space.Data().Usage(x.T).MayUse; now > data || now != data && b.name != "dirty pages" || ip.Outstanding() != outstanding {
						t.Errorf("data may_use %d, %d before; %d extents outstanding, %d before", now, data, ip.Outstanding(), outstanding)
					}
				}
				if strict && len(writer.NowaitSleeps()) != 0 {
					t.Errorf("the write slept: %v", writer.NowaitSleeps())
				}
				if writer.Nowait() || writer.Step() != "" {
					t.Errorf("nowait %v, step %q after the request", writer.Nowait(), writer.Step())
				}
				end()
				idle(t, x, ip)
				if !bytes.Equal(x.ReadFile("/f"), file) {
					t.Error("the file has other bytes")
				}
				x.Must(f.Close(x.T))
			})
		}
	}
}

// TestNowaitShort: a NOWAIT write that has done a batch when it would sleep returns the bytes it
// has done, with the reason.
func TestNowaitShort(t *testing.T) {
	x := fstest.New(t, fstest.Policy("nowait-strict+COPY_BY_FOLIO"))
	f := x.Create("/f")
	x.WriteAt(f, bytes.Repeat([]byte{old}, 16384), 0)
	x.Must(x.FS.Sync(x.T))
	other := sched.NewTask("other")
	p := f.Inode().Pages.Grab(other, 2)
	n, err := f.WriteIter(x.T, kiocb.Request{Pos: 100, Flags: kiocb.Nowait}, iopath.Source{Buf: bytes.Repeat([]byte{fresh}, 16000)})
	p.UnlockPut(other)
	if n != 8192-100 || err != error(kiocb.AgainPage) {
		t.Errorf("have %d, %v want %d, %v", n, err, 8192-100, kiocb.AgainPage)
	}
	idle(t, x, f.Inode())
	want := bytes.Repeat([]byte{old}, 16384)
	copy(want[100:8192], bytes.Repeat([]byte{fresh}, 8192))
	if !bytes.Equal(x.ReadFile("/f"), want) {
		t.Error("the file has other bytes")
	}
	x.Must(f.Close(x.T))
}

// TestNowaitPolicies: a policy without the patch of seed 001 has no buffered NOWAIT writes, one
// with byte ranges cannot try them.
func TestNowaitPolicies(t *testing.T) {
	for spec, want := range map[string]error{
		"locked": errno.EOPNOTSUPP, "range-lock": errno.EOPNOTSUPP, "range-lock+NOWAIT_BUFFERED+NOWAIT_COW": kiocb.AgainRangeLock,
		"unlocked+NOWAIT_BUFFERED+NOWAIT_COW": nil, "prewait+NOWAIT_BUFFERED+NOWAIT_COW": nil,
	} {
		x := fstest.New(t, fstest.Policy(spec))
		f := x.Create("/f")
		x.WriteAt(f, make([]byte, 8192), 0)
		if n, err := f.WriteIter(x.T, kiocb.Request{Flags: kiocb.Nowait}, iopath.Source{Buf: make([]byte, 4096)}); !errors.Is(err, want) || n != 0 && want != nil {
			t.Errorf("%s: have %d, %v want %v", spec, n, err, want)
		}
		if len(x.T.NowaitSleeps()) != 0 {
			t.Errorf("%s: slept: %v", spec, x.T.NowaitSleeps())
		}
		x.Must(f.Close(x.T))
	}
}

// TestNowaitFault: what of the source is there is copied, and a fault is EAGAIN.
func TestNowaitFault(t *testing.T) {
	x := fstest.New(t, fstest.Policy("nowait-strict"))
	f := x.Create("/f")
	for _, c := range []struct {
		good, n int
		err     error
	}{{0, 0, kiocb.AgainFault}, {5000, 5000, kiocb.AgainFault}, {8192, 8192, nil}} {
		n, err := f.WriteIter(x.T, kiocb.Request{Flags: kiocb.Nowait}, iopath.Source{Buf: make([]byte, 8192), Faults: torn{c.good}})
		if n > c.good || (n == 0) != (c.n == 0) || !errors.Is(err, c.err) {
			t.Errorf("source of %d bytes: have %d, %v want %v", c.good, n, err, c.err)
		}
	}
	x.Must(f.Close(x.T))
}

// TestNowaitRead: what is in memory is read, and the first page that is not is EAGAIN, without a
// read of it.
func TestNowaitRead(t *testing.T) {
	x := fstest.New(t)
	f := x.Create("/f")
	x.WriteAt(f, bytes.Repeat([]byte{old}, 16000), 0)
	x.Must(x.FS.Sync(x.T))
	read := func(pos, size int) (int, error) {
		p := make([]byte, size)
		n, err := f.ReadIter(x.T, kiocb.Request{Pos: uint64(pos), Flags: kiocb.Nowait}, p)
		if !bytes.Equal(p[:n], bytes.Repeat([]byte{old}, n)) {
			t.Errorf("read at %d: other bytes", pos)
		}
		return n, err
	}
	if n, err := read(100, 20000); n != 15900 || err != io.EOF {
		t.Errorf("cached: have %d, %v", n, err)
	}
	x.FS.DropCaches(x.T)
	for range 2 { // the first one did not begin to read
		if n, err := read(0, 16000); n != 0 || err != error(kiocb.AgainCached) {
			t.Errorf("not cached: have %d, %v", n, err)
		}
	}
	if _, err := f.ReadAt(x.T, make([]byte, 4096), 0); err != nil {
		t.Fatal(err)
	}
	f.DropCache(x.T, 4096, 1<<20)
	if n, err := read(10, 16000); n != 4086 || err != error(kiocb.AgainCached) {
		t.Errorf("one page cached: have %d, %v", n, err)
	}
	if n, err := read(16000, 10); n != 0 || err != io.EOF {
		t.Errorf("at EOF: have %d, %v", n, err)
	}
	if len(x.T.NowaitSleeps()) != 0 {
		t.Errorf("slept: %v", x.T.NowaitSleeps())
	}
	x.Must(f.Close(x.T))
}
