package direct_test

import (
	"bytes"
	"errors"
	"fmt"
	"testing"

	"btrlab/internal/blockdev"
	"btrlab/internal/data/inode"
	"btrlab/internal/data/ordered"
	"btrlab/internal/errno"
	"btrlab/internal/format"
	"btrlab/internal/fs"
	"btrlab/internal/iopath"
	"btrlab/internal/kiocb"
	"btrlab/internal/meta/spaceinfo"
	"btrlab/internal/progs/mkfs"
	"btrlab/internal/sched"
	"btrlab/internal/testing/fstest"
)

// nowaitFile makes a NOCOW file of n bytes in one extent, with the trees in memory and no page.
func nowaitFile(x *fstest.Fixture, n int) *fs.File {
	f := x.Create("/f")
	x.Must(f.SetFlags(x.T, f.Flags()|format.InodeNoDataCow))
	if n > 0 {
		x.WriteAt(f, bytes.Repeat([]byte{0xee}, n), 0)
	}
	x.Must(f.Fsync(x.T))
	x.Must(x.FS.Sync(x.T))
	x.FS.DropCaches(x.T)
	return f
}

// nowaitDirect writes p at off past the cache with NOWAIT, and counts.
func nowaitDirect(t *sched.Task, f *fs.File, p []byte, off int) (int, error) {
	return f.WriteIter(t, kiocb.Request{Pos: uint64(off), Flags: kiocb.Direct | kiocb.Nowait}, iopath.Source{Buf: p})
}

// TestNowaitDirectCosts: what an overwrite costs in each era, and what each patch of seed 000 takes
// away: a second question is three tree searches, and each of three patches one of the things that
// a question needs.
func TestNowaitDirectCosts(t *testing.T) {
	type costs = [sched.Counters]int64
	for _, c := range []struct {
		spec string
		want costs // in the order of the counters
	}{
		{"nowait-4.13", costs{6, 6, 2, 7, 0, 1, 1, 1, 2, 2}},
		{"nowait-5.8", costs{6, 6, 2, 5, 0, 1, 1, 1, 2, 2}},
		{"nowait-5.8+D0_ASYNC_EXT", costs{6, 6, 2, 5, 0, 1, 1, 1, 2, 2}},
		{"nowait-5.8+D1_TRYLOCK", costs{6, 6, 2, 4, 0, 0, 1, 1, 2, 2}},
		{"nowait-5.8+D1_TRYLOCK+D2_SINGLE_CHECK", costs{3, 3, 1, 3, 0, 0, 1, 1, 1, 1}},
		{"nowait-5.8+D3_PATH_REUSE", costs{6, 4, 2, 5, 0, 1, 1, 1, 0, 2}},
		{"nowait-5.8+D4_PATH_FREE", costs{6, 4, 2, 5, 0, 1, 1, 1, 2, 0}},
		{"nowait-5.8+D5_EARLY_RELEASE", costs{6, 6, 0, 5, 0, 1, 1, 1, 2, 2}},
		{"nowait-5.8+D6_GFP_NOWAIT", costs{6, 6, 2, 4, 0, 1, 0, 1, 2, 2}},
		{"nowait-5.8+D7_NOFLUSH", costs{6, 6, 2, 4, 0, 1, 1, 0, 2, 2}},
		{"nowait-5.19", costs{3, 1, 0, 1}},
		{"nowait-6.1", costs{3, 1, 0, 0}},
		{"nowait-strict", costs{}},
	} {
		x := fstest.New(t, fstest.Policy(c.spec))
		f := nowaitFile(x, 64<<10)
		p := bytes.Repeat([]byte{0x11}, 4096)
		var counts sched.Counts
		w := sched.NewTask("writer")
		for i := range 3 { // the first one warms what is kept
			counts = sched.Counts{}
			w.Counts = &counts
			if n, err := nowaitDirect(w, f, p, 4096*i); n != len(p) || err != nil {
				t.Errorf("%s: wrote %d, %v", c.spec, n, err)
			}
			x.Must(x.FS.Sync(x.T)) // the ordered extent has finished
		}
		if counts.N != c.want {
			t.Errorf("%s: have %v want %v", c.spec, counts.N, c.want)
		}
		// A step that may block sleeps if a task of the file system happens to have the lock; one
		// that may not never does.
		if c.want[sched.CountMayBlock] == 0 && len(w.NowaitSleeps()) != 0 {
			t.Errorf("%s: slept: %v", c.spec, w.NowaitSleeps())
		}
		x.Must(f.Close(x.T))
	}
}

// TestNowaitDirect: where a NOWAIT direct write would sleep it is EAGAIN, and leaves nothing.
func TestNowaitDirect(t *testing.T) {
	const size = 64 << 10
	for _, c := range []struct {
		name string
		make func(t *sched.Task, x *fstest.Fixture, f *fs.File) (end func())
		off  int
		n    int
		// old is the answer under nowait-5.8, new under nowait-5.19, 6.1 and nowait-strict; 0 is
		// that the write is done.
		old, new kiocb.Again
		waits    bool // the old one would wait for this test
	}{
		{name: "nothing"},
		{name: "i_rwsem", old: kiocb.AgainInode, new: kiocb.AgainInode, make: func(t *sched.Task, x *fstest.Fixture, f *fs.File) func() {
			f.Inode().Lock(t)
			return func() { f.Inode().Unlock(t) }
		}},
		{name: "a reader's i_rwsem", make: func(t *sched.Task, x *fstest.Fixture, f *fs.File) func() {
			f.Inode().RLock(t)
			return func() { f.Inode().RUnlock(t) }
		}},
		{name: "range", old: kiocb.AgainNocow, new: kiocb.AgainExtent, make: func(t *sched.Task, x *fstest.Fixture, f *fs.File) func() {
			tree := &f.Inode().IOTree
			tree.Lock(t, 0, 8192)
			return func() { tree.Unlock(t, 0, 8192) }
		}},
		{name: "ordered extent", old: kiocb.AgainNocow, new: kiocb.AgainOrdered, make: func(t *sched.Task, x *fstest.Fixture, f *fs.File) func() {
			return orderedIn(t, f.Inode())
		}},
		{name: "clean page", old: kiocb.AgainInMemory, new: kiocb.AgainInMemory, make: func(t *sched.Task, x *fstest.Fixture, f *fs.File) func() {
			if _, err := f.ReadAt(x.T, make([]byte, 4096), 4096); err != nil {
				x.Fatal(err)
			}
			return func() { x.FS.DropCaches(x.T) }
		}},
		{name: "metadata space", waits: true, new: kiocb.AgainMetadata, make: func(t *sched.Task, x *fstest.Fixture, f *fs.File) func() {
			m, taken := f.Inode().FS.Space.Metadata(), uint64(0)
			for n := uint64(1) << 40; n >= format.SectorSize; n /= 2 {
				for m.Reserve(t, n, spaceinfo.NoFlush) == nil {
					taken += n
				}
			}
			return func() { m.Release(t, taken) }
		}},
		{name: "no block", n: 100, off: 4096, old: 0, new: 0},
		{name: "hole beyond EOF", off: size, old: kiocb.AgainCOW, new: kiocb.AgainCOW},
		{name: "across EOF", off: size - 4096, n: 8192, old: kiocb.AgainCOW, new: kiocb.AgainExtents},
	} {
		for _, spec := range []string{"nowait-5.8", "nowait-5.19", "nowait-6.1", "nowait-strict"} {
			want := c.new
			if spec == "nowait-5.8" {
				want = c.old
				if c.waits {
					continue
				}
			}
			if c.name == "no block" && spec != "nowait-5.8" && spec != "nowait-5.19" {
				want = kiocb.AgainBuffered
			}
			t.Run(spec+"/"+c.name, func(t *testing.T) {
				x := fstest.New(t, fstest.Policy(spec))
				f := nowaitFile(x, size)
				file := bytes.Repeat([]byte{0xee}, size)
				off, n := c.off, c.n
				if off == 0 {
					off = 4096
				}
				if n == 0 {
					n = 4096
				}
				p := bytes.Repeat([]byte{0x11}, n)
				other, w := sched.NewTask("other"), sched.NewTask("writer")
				var counts sched.Counts
				w.Counts = &counts
				end := func() {}
				if c.make != nil {
					end = c.make(other, x, f)
				}
				ip := f.Inode()
				data, outstanding := ip.FS.Space.Data().Usage(x.T).MayUse, ip.Outstanding()
				have, err := nowaitDirect(w, f, p, off)
				if want == 0 {
					if have != n || err != nil {
						t.Errorf("wrote %d of %d, %v", have, n, err)
					}
					copy(file[off:], p)
				} else if have != 0 || err != error(want) || !errors.Is(err, errno.EAGAIN) || counts.Again[want] != 1 || counts.Punts() != 1 {
					t.Errorf("wrote %d, have %v want %v; counted %v", have, err, want, counts.Again)
				} else if now := ip.FS.Space.Data().Usage(x.T).MayUse; now != data || ip.Outstanding() != outstanding {
					t.Errorf("data may_use %d, %d before; %d extents outstanding, %d before", now, data, ip.Outstanding(), outstanding)
				}
				if spec == "nowait-strict" && (len(w.NowaitSleeps()) != 0 || counts.N[sched.CountMayBlock] != 0) {
					t.Errorf("slept: %v; %d blocking points", w.NowaitSleeps(), counts.N[sched.CountMayBlock])
				}
				end()
				if n := ip.Root.SnapshotLock.Writers(); n != 0 {
					t.Errorf("a snapshot would wait for ever: %d writers keep it out", n)
				}
				x.Must(x.FS.Sync(x.T))
				ip.CheckQuiescent(x.T)
				if !bytes.Equal(x.ReadFile("/f"), file) {
					t.Error("the file has other bytes")
				}
				x.Must(f.Close(x.T))
			})
		}
	}
}

// orderedIn puts an ordered extent into [4096, 8192).
func orderedIn(t *sched.Task, ip *inode.Inode) (end func()) {
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
}

// TestNowaitDirectEras: what the kernels before 5.8 and before 5.17 did wrong. Number 6 of
// labs/reference 9.2: preallocated space beyond EOF. Number 7: only the first extent was looked at,
// and a hole after it was copied to new space. Number 16: a request of two extents.
func TestNowaitDirectEras(t *testing.T) {
	write := func(spec, what string, layout func(x *fstest.Fixture, f *fs.File), off, n int) (int, sched.Counts, error) {
		x := fstest.New(t, fstest.Policy(spec))
		f := nowaitFile(x, 0)
		layout(x, f)
		x.Must(x.FS.Sync(x.T))
		x.FS.DropCaches(x.T)
		var counts sched.Counts
		w := sched.NewTask("writer")
		w.Counts = &counts
		p := bytes.Repeat([]byte{0x11}, n)
		have, err := nowaitDirect(w, f, p, off)
		got := make([]byte, have)
		if have > 0 {
			if _, rerr := f.ReadAt(x.T, got, int64(off)); rerr != nil {
				t.Fatal(rerr)
			}
		}
		if !bytes.Equal(got, p[:have]) {
			t.Errorf("%s: %s: other bytes are in the file", spec, what)
		}
		x.Must(f.Close(x.T))
		return have, counts, err
	}
	prealloc := func(x *fstest.Fixture, f *fs.File) {
		x.Must(f.Fallocate(x.T, fs.FALLOC_FL_KEEP_SIZE, 0, 64<<10))
	}
	holeAfter := func(x *fstest.Fixture, f *fs.File) {
		x.WriteAt(f, make([]byte, 4096), 0)
		x.Must(f.Truncate(x.T, 64<<10))
	}
	twoExtents := func(x *fstest.Fixture, f *fs.File) {
		x.WriteAt(f, make([]byte, 4096), 4096)
		x.Must(x.FS.Sync(x.T))
		x.WriteAt(f, make([]byte, 4096), 0)
		x.Must(x.FS.Sync(x.T))
		x.WriteAt(f, make([]byte, 4096), 64<<10)
	}
	for _, c := range []struct {
		what, spec string
		layout     func(x *fstest.Fixture, f *fs.File)
		off, n     int
		want       int
		err        error
	}{
		{"preallocated beyond EOF", "nowait-4.13", prealloc, 0, 4096, 0, kiocb.AgainEOF},
		{"preallocated beyond EOF", "nowait-4.13+NOWAIT_PAST_EOF", prealloc, 0, 4096, 4096, nil},
		{"preallocated beyond EOF", "nowait-strict", prealloc, 0, 4096, 4096, nil},
		{"a hole after the first extent", "nowait-4.13", holeAfter, 0, 8192, 8192, nil},
		{"a hole after the first extent", "nowait-4.13+NOWAIT_CHECK_WHOLE", holeAfter, 0, 8192, 0, kiocb.AgainCOW},
		{"a hole after the first extent", "nowait-5.19", holeAfter, 0, 8192, 0, kiocb.AgainExtents},
		// The check asks about one extent, and wants it to have all: Linux 5.10 was asked.
		{"two extents", "linux-5.10", twoExtents, 0, 8192, 0, kiocb.AgainCOW},
		{"two extents", "nowait-5.8!NOWAIT_CHECK_WHOLE!NOWAIT_ONE_EXTENT", twoExtents, 0, 8192, 8192, nil},
		{"two extents", "nowait-5.19!NOWAIT_ONE_EXTENT", twoExtents, 0, 8192, 8192, nil},
		{"two extents", "nowait-5.19", twoExtents, 0, 8192, 0, kiocb.AgainExtents},
		{"two extents", "nowait-strict", twoExtents, 0, 8192, 0, kiocb.AgainExtents},
	} {
		n, counts, err := write(c.spec, c.what, c.layout, c.off, c.n)
		if n != c.want || err != c.err {
			t.Errorf("%s: %s: have %d, %v want %d, %v (%v)", c.spec, c.what, n, err, c.want, c.err, counts.N)
		}
	}
}

// TestNowaitDirectMemory: a request that needs memory when there is none waits for it before D6,
// and is EAGAIN since.
func TestNowaitDirectMemory(t *testing.T) {
	for spec, want := range map[string]error{"nowait-5.8": nil, "nowait-5.8+D6_GFP_NOWAIT": kiocb.AgainContext} {
		x := fstest.New(t, fstest.Policy(spec))
		f := nowaitFile(x, 8192)
		reclaimed := 0
		x.FS.SetReclaim(func(t *sched.Task) { reclaimed++; t.Sleep(0) })
		w := sched.NewTask("writer")
		_, err := nowaitDirect(w, f, make([]byte, 4096), 0)
		if err != want || reclaimed != len(w.NowaitSleeps()) || (reclaimed == 1) != (want == nil) {
			t.Errorf("%s: have %v want %v, reclaimed %d times, slept %v", spec, err, want, reclaimed, w.NowaitSleeps())
		}
		if s := fmt.Sprint(w.NowaitSleeps()); want == nil && s != "[{allocate 0 1}]" {
			t.Errorf("%s: slept %s", spec, s)
		}
		x.Must(f.Close(x.T))
	}
}

// TestNowaitDirectRead: the same for a read: what is in one extent, and clean, is read.
func TestNowaitDirectRead(t *testing.T) {
	x := fstest.New(t, fstest.Policy("nowait-strict"))
	f := nowaitFile(x, 64<<10)
	ip, other, r := f.Inode(), sched.NewTask("other"), sched.NewTask("reader")
	read := func(what string, off, size, want int, wantErr error) {
		t.Helper()
		p := make([]byte, size)
		n, err := f.ReadIter(r, kiocb.Request{Pos: uint64(off), Flags: kiocb.Direct | kiocb.Nowait}, p)
		if n != want || err != wantErr || !bytes.Equal(p[:n], bytes.Repeat([]byte{0xee}, n)) {
			t.Errorf("%s: have %d, %v want %d, %v", what, n, err, want, wantErr)
		}
	}
	read("one extent", 4096, 8192, 8192, nil)
	ip.Lock(other)
	read("i_rwsem", 4096, 4096, 0, kiocb.AgainInode)
	ip.Unlock(other)
	ip.IOTree.Lock(other, 0, 8192)
	read("range", 4096, 4096, 0, kiocb.AgainExtent)
	ip.IOTree.Unlock(other, 0, 8192)
	end := orderedIn(other, ip)
	read("ordered extent", 4096, 4096, 0, kiocb.AgainOrdered)
	end()
	read("not a block", 4096, 100, 0, kiocb.AgainCached) // through the cache, where it is not
	x.WriteAt(f, bytes.Repeat([]byte{0xee}, 4096), 4096)
	read("dirty page", 4096, 4096, 0, kiocb.AgainFlush)
	x.Must(x.FS.Sync(x.T))
	read("clean page", 4096, 4096, 4096, nil)
	x.Must(f.Truncate(x.T, 128<<10))
	read("a hole after the extent", 60<<10, 8192, 0, kiocb.AgainExtents)
	if len(r.NowaitSleeps()) != 0 {
		t.Errorf("slept: %v", r.NowaitSleeps())
	}
	x.Must(f.Close(x.T))
}

// TestReadsHeld: a direct read that needs no i_rwsem takes it while a truncate holds reads, and
// goes without it before and after. This task has i_rwsem, which a read would wait for.
func TestReadsHeld(t *testing.T) {
	x := fstest.New(t, fstest.Policy("unlocked-drain"))
	f := nowaitFile(x, 64<<10)
	ip, reader := f.Inode(), sched.NewTask("reader")
	read := func(what string, flags kiocb.Flags, want int, wantErr error) {
		t.Helper()
		n, err := f.ReadIter(reader, kiocb.Request{Pos: 4096, Flags: kiocb.Direct | flags}, make([]byte, 8192))
		if n != want || err != wantErr {
			t.Errorf("%s: have %d, %v want %d, %v", what, n, err, want, wantErr)
		}
	}
	ip.Lock(x.T)
	read("before", 0, 8192, nil)
	ip.HoldReads(x.T, true)
	read("held, NOWAIT", kiocb.Nowait, 0, kiocb.AgainInode)
	ip.HoldReads(x.T, false)
	read("after", kiocb.Nowait, 8192, nil)
	ip.Unlock(x.T)
	x.Must(f.Truncate(x.T, 32<<10))
	ip.Lock(x.T)
	read("after a truncate", kiocb.Nowait, 8192, nil)
	ip.Unlock(x.T)
	x.Must(f.Close(x.T))
}

// TestNowaitReadOfChecksums: the checksums of a direct read are looked up before the device reads,
// and where a NOWAIT read would have to read them from the tree it waits, as in Linux, and says so.
func TestNowaitReadOfChecksums(t *testing.T) {
	x := fstest.New(t, fstest.Policy("modern"))
	f := x.Create("/f")
	// more checksums than a tree block has: the root alone is in memory after a mount
	const size = 20 << 20
	x.WriteAt(f, bytes.Repeat([]byte{0xee}, size), 0)
	x.Must(f.Close(x.T))
	x.Reopen()
	f = x.Open("/f")
	_, _, err := f.SeekData(x.T, 0) // the file's own tree block
	x.Must(err)
	r, counts := sched.NewTask("reader"), sched.Counts{}
	r.Counts = &counts
	for range 2 {
		p := make([]byte, 8192)
		n, err := f.ReadIter(r, kiocb.Request{Pos: size - 8192, Flags: kiocb.Direct | kiocb.Nowait}, p)
		if n != len(p) || err != nil || !bytes.Equal(p, bytes.Repeat([]byte{0xee}, len(p))) {
			t.Errorf("have %d, %v want %d and the bytes", n, err, len(p))
		}
		if counts.N[sched.CountMayBlock] != 1 {
			t.Errorf("%d steps that may block, want 1: the checksums that are not in memory", counts.N[sched.CountMayBlock])
		}
	}
	x.Must(f.Close(x.T))
}

// TestDirectNoPayload: a file system that keeps no file data moves none past the cache either: what
// was written cannot be read back, and the reader's memory is as it was.
func TestDirectNoPayload(t *testing.T) {
	for _, none := range []bool{false, true} {
		task, dev := sched.NewTask("test"), blockdev.NewMemory(64<<20)
		if err := mkfs.Make(task, dev, mkfs.Options{}); err != nil {
			t.Fatal(err)
		}
		x, err := fs.Open(task, []blockdev.Device{dev}, fs.Options{NoPayload: none})
		if err != nil {
			t.Fatal(err)
		}
		f, err := x.Create(task, "/f", 0o644)
		if err != nil {
			t.Fatal(err)
		}
		p, q := bytes.Repeat([]byte{0xaa}, 12<<10), bytes.Repeat([]byte{0x55}, 12<<10)
		err = f.SetFlags(task, format.InodeNoDataCow|format.InodeNoDataSum)
		if n, werr := f.WriteDirect(task, p, 0); n != len(p) || err != nil || werr != nil {
			t.Fatalf("wrote %d, %v, %v", n, err, werr)
		}
		if n, err := f.ReadDirect(task, q, 0); n != len(q) || err != nil {
			t.Fatalf("read %d, %v", n, err)
		}
		want := byte(0xaa)
		if none {
			want = 0x55
		}
		if !bytes.Equal(q, bytes.Repeat([]byte{want}, len(q))) {
			t.Errorf("NoPayload %v: read %#x, want %#x everywhere", none, q[0], want)
		}
		if err := errors.Join(f.Close(task), x.Close(task)); err != nil {
			t.Fatal(err)
		}
	}
}

// TestNowaitCsumCopy: a direct write into preallocated space of a file with checksums goes in place
// under 6.1, through the page cache under 6.18, and by a copy under 7.3; with NOWAIT the last two
// are EAGAIN, and before the space is touched. A file without checksums has no need of the copy.
func TestNowaitCsumCopy(t *testing.T) {
	for _, c := range []struct {
		spec  string
		nocow bool
		want  error
	}{
		{"linux-6.1", false, nil},
		{"linux-6.18", false, kiocb.AgainBuffered},
		{"linux-7.3", false, kiocb.AgainCopy},
		{"linux-7.3!NOWAIT_CSUM_COPY", false, nil},
		{"linux-7.3", true, nil},
	} {
		x := fstest.New(t, fstest.Policy(c.spec))
		f := x.Create("/f")
		if c.nocow {
			x.Must(f.SetFlags(x.T, f.Flags()|format.InodeNoDataCow))
		}
		x.Must(f.Fallocate(x.T, 0, 0, 64<<10))
		x.Must(x.FS.Sync(x.T))
		w := sched.NewTask("writer")
		n, err := nowaitDirect(w, f, bytes.Repeat([]byte{7}, 4096), 4096)
		if err != c.want || (n == 4096) != (c.want == nil) {
			t.Errorf("%s, nocow %t: have %d, %v want %v", c.spec, c.nocow, n, err, c.want)
		}
		x.Must(f.Close(x.T))
	}
}
