package spaceinfo

import (
	"errors"
	"os"
	"testing"

	"btrlab/internal/errno"
	"btrlab/internal/sched"
)

func TestMain(m *testing.M) {
	sched.SetChecked(true)
	os.Exit(m.Run())
}

// world is a file system seen from the reservations: dirty data whose promises writeback returns,
// pinned bytes that a commit releases, and a device with room for chunks.
type world struct {
	s         *Space
	dirty     uint64 // bytes of metadata promised for delalloc
	inodes    uint64 // bytes of metadata promised for inode items, which a commit writes
	pinned    uint64 // bytes of data pinned
	device    uint64 // free bytes
	chunk     uint64 // size of a new chunk
	commits   int
	flushes   int
	preempted int
}

func (w *world) FlushDelalloc(t *sched.Task, bytes uint64, wait bool) {
	w.flushes++
	n := min(bytes, w.dirty)
	w.dirty -= n
	w.s.Metadata().Release(t, n)
}

func (w *world) CommitTransaction(t *sched.Task) error {
	w.commits++
	n := w.pinned
	w.pinned = 0
	w.s.Data().Unpinned(t, n)
	w.s.Metadata().Release(t, w.inodes)
	w.inodes = 0
	return nil
}

func (w *world) AllocChunk(t *sched.Task, typ uint64) (bool, error) {
	if w.device < w.chunk {
		return false, nil
	}
	w.device -= w.chunk
	w.s.Of(typ).AddTotal(t, w.chunk, 0, 0)
	return true, nil
}

func (w *world) DirtyDelalloc() uint64   { return w.dirty }
func (w *world) Preempt(*sched.Task)     { w.preempted++ }
func (w *world) FreeDeviceBytes() uint64 { return w.device }

func newWorld(t *sched.Task, device, chunk uint64) *world {
	w := &world{s: New(16384, 1), device: device, chunk: chunk}
	w.s.SetFlushers(w)
	return w
}

const MiB = 1 << 20

// Writeback begins when the last eighth of the promises is begun, unless what it does not give back
// takes most of the room, and in the real runtime only.
func TestTight(t *testing.T) {
	task := sched.NewTask("test")
	w := newWorld(task, 0, 0)
	w.s.Metadata().AddTotal(task, 80*MiB, 0, 0)
	promise := func(n uint64, mode FlushMode, want int) {
		t.Helper()
		if err := w.s.Metadata().Reserve(task, n, mode); err != nil {
			t.Fatal(err)
		}
		if w.preempted != want {
			t.Errorf("writeback was begun %d times, want %d", w.preempted, want)
		}
	}
	promise(70*MiB, FlushAll, 0)
	promise(1, NoFlush, 0)
	promise(1, FlushAll, 1)
	if !w.s.Metadata().Tight(task) {
		t.Error("not tight with 70 of 80 MiB promised, and a byte")
	}
	w.s.Metadata().Release(task, 1*MiB)
	if w.s.Metadata().Tight(task) {
		t.Error("tight with 69 of 80 MiB promised")
	}
	full := newWorld(task, 0, 0)
	full.s.Metadata().AddTotal(task, 80*MiB, 73*MiB, 0)
	if err := full.s.Metadata().Reserve(task, 7*MiB, FlushAll); err != nil || full.preempted != 0 {
		t.Errorf("error %v, writeback was begun %d times for chunks that are full", err, full.preempted)
	}
}

func TestReserve(t *testing.T) {
	task := sched.NewTask("test")
	cases := []struct {
		name  string
		setup func(w *world)
		info  func(s *Space) *Info
		bytes uint64
		mode  FlushMode
		err   error
		check func(w *world) bool
	}{
		{"no flush does not flush", func(w *world) {}, (*Space).Data, MiB, NoFlush, errno.ENOSPC,
			func(w *world) bool { return w.device == 64*MiB && w.commits == 0 }},
		{"data takes a chunk first", func(w *world) {}, (*Space).Data, MiB, FlushData, nil,
			func(w *world) bool { return w.device == 56*MiB && w.commits == 0 }},
		{"data commits to get pinned bytes back", func(w *world) {
			w.device = 0
			w.s.Data().AddTotal(task, 8*MiB, 8*MiB, 0)
			w.s.Data().Freed(task, 4*MiB)
			w.pinned = 4 * MiB
		}, (*Space).Data, 2 * MiB, FlushData, nil, func(w *world) bool { return w.commits == 1 && w.pinned == 0 }},
		{"data never overcommits", func(w *world) {
			w.chunk = 1 << 40
			w.s.Data().AddTotal(task, MiB, MiB, 0)
		}, (*Space).Data, 4096, FlushData, errno.ENOSPC, func(w *world) bool { return w.commits > 0 }},
		{"metadata overcommits an eighth of the device", func(w *world) {}, (*Space).Metadata, 8 * MiB, FlushAll, nil,
			func(w *world) bool { return w.device == 64*MiB && w.flushes == 0 }},
		{"metadata writes delalloc back before it takes a chunk", func(w *world) {
			w.s.Metadata().AddTotal(task, 8*MiB, 0, 0)
			w.s.Metadata().Reserve(task, 16*MiB, FlushAll)
			w.dirty = 16 * MiB
		}, (*Space).Metadata, 4 * MiB, FlushAll, nil, func(w *world) bool { return w.device == 64*MiB && w.flushes == 1 }},
		// Many new files in one transaction used to turn the whole device into empty metadata
		// chunks.
		{"metadata commits before it takes a chunk", func(w *world) {
			w.s.Metadata().AddTotal(task, 8*MiB, 0, 0)
			w.s.Metadata().Reserve(task, 16*MiB, FlushAll)
			w.inodes = 16 * MiB
		}, (*Space).Metadata, 4 * MiB, FlushAll, nil, func(w *world) bool { return w.device == 64*MiB && w.commits == 1 }},
		{"metadata that is nearly full takes a chunk before it commits", func(w *world) {
			w.device, w.chunk = 8*MiB, 8*MiB
			w.s.Metadata().AddTotal(task, 8*MiB, 7*MiB, 0)
		}, (*Space).Metadata, 4 * MiB, FlushAll, nil, func(w *world) bool { return w.device == 0 && w.commits == 0 }},
		{"an open transaction allows a chunk, no more", func(w *world) {
			w.chunk = 1 << 40
			w.s.Metadata().AddTotal(task, 8*MiB, 8*MiB, 0)
			w.s.Metadata().Reserve(task, 32*MiB, FlushLimit)
		}, (*Space).Metadata, 4 * MiB, FlushLimit, errno.ENOSPC, func(w *world) bool { return w.commits == 0 && w.flushes == 0 }},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(task, 64*MiB, 8*MiB)
			c.setup(w)
			i := c.info(w.s)
			before := i.Usage(task).MayUse
			flushed := w.dirty + w.inodes
			err := i.Reserve(task, c.bytes, c.mode)
			if !errors.Is(err, c.err) {
				t.Errorf("have %v, want %v", err, c.err)
			}
			want := before - (flushed - w.dirty - w.inodes)
			if c.err == nil {
				want += c.bytes
			}
			if u := i.Usage(task); u.MayUse != want {
				t.Errorf("may_use %d, want %d", u.MayUse, want)
			}
			if !c.check(w) {
				t.Errorf("world is %+v", w)
			}
		})
	}
}

// A small reservation may not overtake a big one that waits, or the big one would wait for ever;
// with the big one served, both are.
func TestTicketsInOrder(t *testing.T) {
	task := sched.NewTask("test")
	w := newWorld(task, 0, MiB)
	d := w.s.Data()
	d.AddTotal(task, 8*MiB, 0, 0)
	if err := d.Reserve(task, 7*MiB, FlushData); err != nil {
		t.Fatal(err)
	}
	d.mu.Lock(task)
	big := &ticket{bytes: 4 * MiB}
	d.tickets = append(d.tickets, big)
	d.mu.Unlock(task)
	if err := d.Reserve(task, 4096, NoFlush); !errors.Is(err, errno.ENOSPC) {
		t.Errorf("a reservation overtook a ticket: %v", err)
	}
	d.Release(task, 2*MiB)
	if big.granted {
		t.Error("4 MiB granted with 3 MiB free")
	}
	d.Release(task, 1*MiB)
	if !big.granted {
		t.Error("4 MiB not granted with 4 MiB free")
	}
	if u := d.Usage(task); u.MayUse != 8*MiB {
		t.Errorf("may_use %d, want %d", u.MayUse, 8*MiB)
	}
}

// A ticket that waits is served by whatever gives space back: nobody looks at the account again for
// it.
func TestTicketsAreServed(t *testing.T) {
	task := sched.NewTask("test")
	for _, c := range []struct {
		name   string
		give   func(d *Info)
		served bool
		mayUse uint64
	}{
		{"a promise is released", func(d *Info) { d.Release(task, MiB) }, true, 2 * MiB},
		{"less than it takes", func(d *Info) { d.Release(task, MiB/2) }, false, MiB + MiB/2},
		{"an allocation is undone", func(d *Info) { d.Unallocated(task, MiB, false) }, true, 3 * MiB},
		{"an allocation becomes a promise again", func(d *Info) { d.Unallocated(task, MiB, true) }, false, 3 * MiB},
		{"a commit unpins", func(d *Info) { d.Unpinned(task, MiB) }, true, 3 * MiB},
		{"an extent is freed, not yet unpinned", func(d *Info) { d.Freed(task, MiB) }, false, 2 * MiB},
		{"a new group", func(d *Info) { d.AddTotal(task, MiB, 0, 0) }, true, 3 * MiB},
		{"a new group that is all superblock", func(d *Info) { d.AddTotal(task, MiB, 0, MiB) }, false, 2 * MiB},
	} {
		d := newWorld(task, 0, MiB).s.Data()
		d.AddTotal(task, 8*MiB, 4*MiB, 0)
		if err := d.Reserve(task, 3*MiB, NoFlush); err != nil {
			t.Fatal(err)
		}
		d.Allocated(task, MiB)
		d.Freed(task, MiB)
		if err := d.Reserve(task, MiB, NoFlush); err == nil {
			d.Release(task, MiB)
		}
		fill := 8*MiB - d.Usage(task).sum()
		d.AddTotal(task, 0, fill, 0)
		tk := &ticket{bytes: MiB}
		d.tickets = append(d.tickets, tk)
		c.give(d)
		if u := d.Usage(task); tk.granted != c.served || (len(d.tickets) == 0) != c.served || u.MayUse != c.mayUse {
			t.Errorf("%s: served %v, %d tickets wait, %+v, want %v and may_use %d", c.name, tk.granted, len(d.tickets), u, c.served, c.mayUse)
		}
	}
}

// Small tickets wait after a large one, though they would fit; then all that fit are served, in
// order.
func TestTicketsWaitInLine(t *testing.T) {
	task := sched.NewTask("test")
	d := newWorld(task, 0, MiB).s.Data()
	d.AddTotal(task, 8*MiB, 8*MiB, 0)
	var line []*ticket
	for _, n := range []uint64{4 * MiB, MiB, 2 * MiB, MiB} {
		line = append(line, &ticket{bytes: n})
	}
	d.tickets = append(d.tickets, line...)
	free := func(n uint64) {
		d.Freed(task, n)
		d.Unpinned(task, n)
	}
	for i, c := range []struct {
		free    uint64
		granted int
	}{{3 * MiB, 0}, {MiB, 1}, {MiB, 2}, {MiB, 2}, {2 * MiB, 4}} {
		free(c.free)
		n := 0
		for j, tk := range line {
			if tk.granted {
				if n++; n != j+1 {
					t.Errorf("step %d: ticket %d is served before one that came earlier", i, j)
				}
			}
		}
		if n != c.granted || len(d.tickets) != len(line)-n {
			t.Errorf("step %d: %d served, %d wait, want %d served", i, n, len(d.tickets), c.granted)
		}
	}
	if u := d.Usage(task); u.MayUse != 8*MiB || u.Used != 0 {
		t.Errorf("at the end %+v", u)
	}
}

// A reservation that failed has left the line: space that comes later is promised to nobody.
func TestTicketOfAFailure(t *testing.T) {
	task := sched.NewTask("test")
	w := newWorld(task, 0, MiB)
	for _, i := range []*Info{w.s.Data(), w.s.Metadata()} {
		mode := FlushData
		if i == w.s.Metadata() {
			mode = FlushAll
		}
		i.AddTotal(task, 8*MiB, 8*MiB, 0)
		if err := i.Reserve(task, MiB, mode); !errors.Is(err, errno.ENOSPC) {
			t.Fatalf("%s: %v", i.Kind(), err)
		}
		i.Freed(task, 4*MiB)
		i.Unpinned(task, 4*MiB)
		if u := i.Usage(task); u.MayUse != 0 || len(i.tickets) != 0 {
			t.Errorf("%s: %d tickets wait, %+v", i.Kind(), len(i.tickets), u)
		}
		if err := i.Reserve(task, 4*MiB, NoFlush); err != nil {
			t.Errorf("%s: what was freed cannot be had: %v", i.Kind(), err)
		}
	}
}

// The global reserve takes no more than the chunks have, and gives back what it no longer needs.
func TestBlockRsv(t *testing.T) {
	task := sched.NewTask("test")
	w := newWorld(task, 64*MiB, MiB)
	m, g := w.s.Metadata(), &w.s.Global
	m.AddTotal(task, 8*MiB, 5*MiB, 0)
	want := func(what string, n uint64) {
		t.Helper()
		if u := m.Usage(task); g.Reserved(task) != n || u.MayUse != n {
			t.Errorf("%s: it holds %d, want %d, of %+v", what, g.Reserved(task), n, u)
		}
	}
	g.Resize(task, MiB)
	want("1 MiB", MiB)
	g.Resize(task, MiB+4096)
	want("a block more", MiB+4096)
	g.Resize(task, MiB+4096)
	want("no more", MiB+4096)
	g.Resize(task, 16*MiB)
	want("more than there is", 3*MiB)
	g.Resize(task, 2*MiB)
	want("less again", 2*MiB)
	if g.Use(task, 2*MiB+1) || !g.Use(task, MiB) {
		t.Error("it gives more than it has, or not what it has")
	}
	m.Allocated(task, MiB)
	want("half of it used", MiB)
	g.Resize(task, 2*MiB)
	want("filled up", 2*MiB)
	// Metadata is promised beyond its chunks: nothing is left for the reserve.
	if err := m.Reserve(task, 4*MiB, FlushAll); err != nil {
		t.Fatal(err)
	}
	g.Resize(task, 8*MiB)
	m.Release(task, 4*MiB)
	want("after an overcommit", 2*MiB)
	if g.Use(task, 2*MiB+1) || !g.Use(task, 2*MiB) || g.Use(task, 1) {
		t.Error("it does not give all that it has, or more")
	}
	g.Add(task, 2*MiB)
	g.ReleaseAll(task)
	g.ReleaseAll(task)
	want("released", 0)
}

// Metadata is promised beyond its chunks as far as the device has room for all copies: an eighth of
// that for a task that can flush, half for one that cannot.
func TestOvercommit(t *testing.T) {
	task := sched.NewTask("test")
	for _, c := range []struct {
		copies int
		mode   FlushMode
		most   uint64 // beyond the chunks
	}{{1, FlushAll, 8 * MiB}, {1, NoFlush, 32 * MiB}, {2, FlushAll, 4 * MiB}, {2, NoFlush, 16 * MiB}} {
		w := newWorld(task, 64*MiB, 1<<40)
		w.s = New(16384, c.copies)
		w.s.SetFlushers(w)
		m := w.s.Metadata()
		m.AddTotal(task, MiB, MiB/2, 0)
		if err := m.Reserve(task, MiB/2+c.most+1, c.mode); !errors.Is(err, errno.ENOSPC) {
			t.Errorf("%d copies, %v: %v for a byte more than fits", c.copies, c.mode, err)
		}
		if err := m.Reserve(task, MiB/2+c.most, c.mode); err != nil {
			t.Errorf("%d copies, %v: %v for what fits", c.copies, c.mode, err)
		}
	}
}

// Chunks are nearly full with four fifths of them in use, and 2 MiB to spare; promises do not
// count.
func TestNearlyFull(t *testing.T) {
	task := sched.NewTask("test")
	for _, c := range []struct {
		used, mayUse uint64
		full         bool
	}{{78*MiB - 1, 0, false}, {78 * MiB, 0, true}, {78*MiB - 1, 10 * MiB, false}, {100 * MiB, 0, true}, {0, 90 * MiB, false}} {
		m := newWorld(task, 0, MiB).s.Metadata()
		m.AddTotal(task, 100*MiB, c.used, 0)
		if c.mayUse > 0 {
			if err := m.Reserve(task, c.mayUse, NoFlush); err != nil {
				t.Fatal(err)
			}
		}
		if have := m.nearlyFull(task); have != c.full {
			t.Errorf("%d used and %d promised of 100 MiB: nearly full %v, want %v", c.used, c.mayUse, have, c.full)
		}
	}
}

// Several tasks want more than there is: some get it, the others ENOSPC, nobody sleeps for ever and
// the sum is right.
func TestTicketsRace(t *testing.T) {
	task := sched.NewTask("test")
	w := newWorld(task, 0, MiB)
	d := w.s.Data()
	d.AddTotal(task, 8*MiB, 0, 0)
	var tasks []*sched.Task
	var got [8]uint64
	for i := range got {
		tasks = append(tasks, task.Go("reserver", func(t *sched.Task) {
			for range 100 {
				if d.Reserve(t, 128<<10, FlushData) == nil {
					got[i] += 128 << 10
				}
			}
		}))
	}
	var sum uint64
	for i, c := range tasks {
		task.Join(c)
		sum += got[i]
	}
	if sum != 8*MiB || d.Usage(task).MayUse != sum {
		t.Errorf("granted %d, may_use %d, want %d", sum, d.Usage(task).MayUse, 8*MiB)
	}
}
