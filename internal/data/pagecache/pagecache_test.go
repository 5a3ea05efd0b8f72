package pagecache

import (
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"sync/atomic"
	"testing"

	"btrlab/internal/lock/lockdep"
	"btrlab/internal/sched"
)

func TestMain(m *testing.M) {
	sched.SetChecked(true)
	os.Exit(m.Run())
}

type recorder struct{ invalidated []uint64 }

func (r *recorder) Invalidate(t *sched.Task, from, to uint64) {
	r.invalidated = append(r.invalidated, from, to)
}

func (r *recorder) Release(*sched.Task, uint64, uint64) {}

func (r *recorder) String() string { return "recorder" }

func newMapping(limit int64, owner Owner) (*Cache, *Mapping) {
	c := NewCache(limit, 1<<20, 2<<20)
	m := new(Mapping)
	m.Init(c, owner)
	return c, m
}

func dirty(t *sched.Task, m *Mapping, index uint64) {
	p := m.Grab(t, index)
	p.SetUptodate()
	m.SetDirty(t, p)
	p.UnlockPut(t)
}

// Pages are found at every distance: in the first chunk, in the first top, in far tops made in any
// order.
func TestFindAnywhere(tt *testing.T) {
	t := sched.NewTask("test")
	c, m := newMapping(0, nil)
	indexes := []uint64{0, 63, 64, 5000, 1 << 40, 32767, 32768, 1 << 20, 1<<20 - 1, 1 << 50}
	for _, i := range indexes {
		p := m.Grab(t, i)
		if p.Index() != i || p.Uptodate() || p.Mapping() != m {
			tt.Fatalf("page %d: index %d uptodate %v", i, p.Index(), p.Uptodate())
		}
		p.Data()[0] = byte(i) + 1
		p.SetUptodate()
		p.UnlockPut(t)
	}
	for _, i := range indexes {
		p := m.Get(t, i)
		if p == nil || p.Index() != i || p.Data()[0] != byte(i)+1 {
			tt.Fatalf("page %d not found again: %v", i, p)
		}
		p.Put(t)
		if p := m.Get(t, i+7); p != nil {
			tt.Fatalf("found page %d, which nobody made", i+7)
		}
	}
	if m.Pages() != int64(len(indexes)) || c.Bytes() != int64(len(indexes))*PageSize {
		tt.Fatalf("%d pages, %d bytes", m.Pages(), c.Bytes())
	}
	m.Truncate(t, 0, MaxFileEnd)
	m.CheckEmpty()
	if c.Bytes() != 0 {
		tt.Fatalf("%d bytes after truncate", c.Bytes())
	}
	lockdep.AssertNone(t)
}

// The dirty tags say what the pages say, against a plain map as the model.
func TestDirtyTags(tt *testing.T) {
	t := sched.NewTask("test")
	c, m := newMapping(0, nil)
	model := map[uint64]bool{}
	rng := rand.New(rand.NewPCG(1, 1))
	const span = 100000
	for range 3000 {
		i := rng.Uint64N(span)
		if rng.IntN(3) == 0 {
			if p := m.Lock(t, i); p != nil {
				m.ClearDirty(t, p)
				p.UnlockPut(t)
			}
			delete(model, i)
			continue
		}
		dirty(t, m, i)
		model[i] = true
	}
	seen := 0
	for i, ok := m.NextDirty(t, 0, span); ok; i, ok = m.NextDirty(t, i+1, span) {
		if !model[i] {
			tt.Fatalf("page %d is tagged and should be clean", i)
		}
		seen++
	}
	if seen != len(model) || m.DirtyPages(t) != int64(seen) || c.BDI.Dirty.Load() != int64(seen) {
		tt.Fatalf("%d tagged, mapping says %d, bdi %d, want %d", seen, m.DirtyPages(t), c.BDI.Dirty.Load(), len(model))
	}
	if l := c.BDI.DirtyMappings(t, nil); len(l) != 1 || l[0] != m {
		tt.Fatalf("dirty mappings %v", l)
	}
	m.Truncate(t, 0, MaxFileEnd)
	if l := c.BDI.DirtyMappings(t, nil); len(l) != 0 || c.BDI.Dirty.Load() != 0 {
		tt.Fatalf("after truncate %d dirty mappings, %d dirty pages", len(l), c.BDI.Dirty.Load())
	}
	dirty(t, m, 5)
	if l := c.BDI.DirtyMappings(t, nil); len(l) != 1 {
		tt.Fatalf("a mapping that is dirty again is not on the list")
	}
}

// Truncate keeps the page before its range as it is, drops those in it, and tells the owner of
// each.
func TestTruncateEdge(tt *testing.T) {
	t := sched.NewTask("test")
	r := &recorder{}
	_, m := newMapping(0, r)
	for i := range uint64(4) {
		p := m.Grab(t, i)
		for j := range p.Data() {
			p.Data()[j] = 0xff
		}
		p.SetUptodate()
		m.SetDirty(t, p)
		p.UnlockPut(t)
	}
	reader := m.Get(t, 2)
	m.Truncate(t, 2*PageSize, MaxFileEnd)
	if got := fmt.Sprint(r.invalidated); got != "[8192 12288 12288 16384]" {
		tt.Fatalf("invalidated %s", got)
	}
	p := m.Get(t, 1)
	if d := p.Data(); d[4095] != 0xff || !p.Dirty() {
		tt.Fatalf("the page before: %x, dirty %v", d[4095], p.Dirty())
	}
	p.Put(t)
	// A reader keeps the bytes of a page that is gone, and the page is not used again meanwhile.
	q := m.Grab(t, 2)
	if q == reader || reader.Mapping() != nil || reader.Data()[0] != 0xff {
		tt.Fatal("a referenced page was used again")
	}
	q.UnlockPut(t)
	reader.Put(t)
}

// Nobody changes a page while the device reads it; the waiter runs when writeback ends.
func TestStablePage(tt *testing.T) {
	t := sched.NewTask("test")
	c, m := newMapping(0, nil)
	dirty(t, m, 7)
	p := m.Lock(t, 7)
	m.ClearDirty(t, p)
	m.StartWriteback(t, p)
	p.UnlockPut(t)
	var changed atomic.Bool
	w := t.Go("writer", func(t *sched.Task) {
		p := m.Lock(t, 7)
		p.WaitWriteback(t)
		changed.Store(true)
		p.UnlockPut(t)
	})
	if c.BDI.Writeback.Load() != 1 || changed.Load() {
		tt.Fatalf("writeback %d, changed %v", c.BDI.Writeback.Load(), changed.Load())
	}
	m.EndWriteback(t, p)
	t.Join(w)
	if !changed.Load() || m.WritebackPages(t) != 0 {
		tt.Fatal("the writer did not run")
	}
}

// With a limit the cache drops clean pages that were not used lately, never dirty or referenced
// ones.
func TestEviction(tt *testing.T) {
	t := sched.NewTask("test")
	c, m := newMapping(100*PageSize, nil)
	for i := range uint64(10) {
		dirty(t, m, i)
	}
	kept := m.Grab(t, 10)
	kept.SetUptodate()
	kept.Unlock(t)
	for i := range uint64(2000) {
		p := m.Grab(t, 100+i)
		p.SetUptodate()
		p.UnlockPut(t)
	}
	if n := c.Bytes() / PageSize; n > 140 {
		tt.Fatalf("%d pages with a limit of 100", n)
	}
	for i := range uint64(11) {
		p := m.Get(t, i)
		if p == nil {
			tt.Fatalf("page %d was evicted", i)
		}
		p.Put(t)
	}
	kept.Put(t)
}

// When nothing can be evicted the cache grows; once the pages are clean it comes back to its limit.
func TestEvictionAllDirty(tt *testing.T) {
	t := sched.NewTask("test")
	c, m := newMapping(100*PageSize, nil)
	for i := range uint64(200) {
		dirty(t, m, i)
	}
	for i := range uint64(200) {
		p := m.Lock(t, i)
		m.ClearDirty(t, p)
		p.UnlockPut(t)
	}
	for i := range uint64(500) {
		p := m.Grab(t, 1000+i)
		p.SetUptodate()
		p.UnlockPut(t)
	}
	if n := c.Bytes() / PageSize; n > 140 {
		tt.Fatalf("%d pages with a limit of 100", n)
	}
}

// Tasks find, make, lock, dirty, write back and truncate the same pages at once.
func TestParallel(tt *testing.T) {
	t := sched.NewTask("test")
	c, m := newMapping(150*PageSize, nil)
	var tasks []*sched.Task
	for w := range 4 {
		tasks = append(tasks, t.Go("worker", func(t *sched.Task) {
			rng := rand.New(rand.NewPCG(uint64(w), 9))
			for range 5000 {
				i := rng.Uint64N(300)
				switch rng.IntN(8) {
				case 0:
					m.Truncate(t, i*PageSize, (i+3)*PageSize)
				case 1:
					if p := m.Lock(t, i); p != nil {
						p.WaitWriteback(t)
						if m.ClearDirty(t, p) {
							m.StartWriteback(t, p)
							p.UnlockPut(t)
							m.EndWriteback(t, p)
						} else {
							p.UnlockPut(t)
						}
					}
				case 2, 3:
					if p := m.Get(t, i); p != nil {
						if p.Index() != i {
							panic(fmt.Sprintf("found page %d, want %d", p.Index(), i))
						}
						p.Put(t)
					}
				default:
					p := m.Grab(t, i)
					p.WaitWriteback(t)
					p.SetUptodate()
					m.SetDirty(t, p)
					p.UnlockPut(t)
				}
			}
		}))
	}
	for _, w := range tasks {
		t.Join(w)
	}
	m.Truncate(t, 0, MaxFileEnd)
	m.CheckEmpty()
	if c.Bytes() != 0 || c.BDI.Dirty.Load() != 0 || c.BDI.Writeback.Load() != 0 {
		tt.Fatalf("at the end %d bytes, %d dirty, %d writeback", c.Bytes(), c.BDI.Dirty.Load(), c.BDI.Writeback.Load())
	}
}

// An error is reported once to each open file, and not to one opened later.
func TestErrors(tt *testing.T) {
	t := sched.NewTask("test")
	_, m := newMapping(0, nil)
	var a, b atomic.Uint64
	a.Store(m.ErrorSeq())
	b.Store(m.ErrorSeq())
	want := fmt.Errorf("broken")
	m.SetError(t, want)
	var late atomic.Uint64
	late.Store(m.ErrorSeq())
	for i, f := range []*atomic.Uint64{&a, &b} {
		if err := m.CheckError(t, f); err != want {
			tt.Fatalf("file %d: %v", i, err)
		}
		if err := m.CheckError(t, f); err != nil {
			tt.Fatalf("file %d reports twice: %v", i, err)
		}
	}
	if err := m.CheckError(t, &late); err != nil {
		tt.Fatalf("late file: %v", err)
	}
	// A second error is one more to each, also to the late file.
	again := fmt.Errorf("broken again")
	m.SetError(t, again)
	for i, f := range []*atomic.Uint64{&a, &b, &late} {
		if err := m.CheckError(t, f); err != again {
			tt.Fatalf("file %d, second error: have %v want %v", i, err, again)
		}
	}
}

// A sync of the file system reports what no fsync has reported. An fsync that has nothing to report
// leaves it the error.
func TestErrorsUntold(tt *testing.T) {
	t := sched.NewTask("test")
	c, m := newMapping(0, nil)
	want := fmt.Errorf("broken")
	m.SetError(t, want)
	var late, early atomic.Uint64
	late.Store(m.ErrorSeq())
	if err := m.CheckError(t, &late); err != nil {
		tt.Fatalf("late file: %v", err)
	}
	if err := c.TakeError(t); err != want {
		tt.Fatalf("sync after an fsync with nothing to report: have %v want %v", err, want)
	}
	if err := c.TakeError(t); err != nil {
		tt.Fatalf("second sync: %v", err)
	}
	m.SetError(t, want)
	if err := m.CheckError(t, &early); err != want {
		tt.Fatalf("fsync: have %v want %v", err, want)
	}
	if err := c.TakeError(t); err != nil {
		tt.Fatalf("sync after an fsync that reported: %v", err)
	}
}

// What is dirty, under writeback or in use stays in memory; the rest goes, and does not come back
// as if it had been read.
func TestDropClean(tt *testing.T) {
	t := sched.NewTask("test")
	c, m := newMapping(0, nil)
	dirty(t, m, 0)
	dirty(t, m, 1)
	w := m.Lock(t, 1)
	m.StartWriteback(t, w)
	m.ClearDirty(t, w)
	w.UnlockPut(t)
	for i := uint64(2); i < 40; i++ {
		p := m.Grab(t, i)
		p.SetUptodate()
		p.UnlockPut(t)
	}
	used := m.Get(t, 2)
	if n := c.DropClean(t); n != 37 {
		tt.Errorf("%d pages dropped, want 37", n)
	}
	for i, want := range []string{"D", "W", "c", "-"} {
		if have := m.Describe(uint64(i)); have != want {
			tt.Errorf("page %d: have %q want %q", i, have, want)
		}
	}
	for i := uint64(100); i < 140; i++ {
		p := m.Grab(t, i)
		if p.Uptodate() || p.Dirty() || p.Writeback() {
			tt.Fatalf("page %d is new: uptodate %v, dirty %v, writeback %v", i, p.Uptodate(), p.Dirty(), p.Writeback())
		}
		p.UnlockPut(t)
	}
	used.Put(t)
	m.EndWriteback(t, w)
	if n := c.DropClean(t); n != 42 {
		tt.Errorf("%d pages dropped at the end, want 42", n)
	}
	if have := m.Describe(0); have != "D" || m.Pages() != 1 {
		tt.Errorf("page 0: have %q want D; %d pages", have, m.Pages())
	}
}

// A file whose pages are all under writeback is busy, however often somebody asks for the dirty
// ones.
func TestBusyMappings(tt *testing.T) {
	t := sched.NewTask("test")
	c, m := newMapping(0, nil)
	dirty(t, m, 3)
	p := m.Lock(t, 3)
	m.StartWriteback(t, p)
	m.ClearDirty(t, p)
	p.UnlockPut(t)
	for range 2 {
		if l := c.BDI.DirtyMappings(t, nil); len(l) != 0 {
			tt.Fatalf("dirty mappings %v", l)
		}
		if l := c.BDI.BusyMappings(t, nil); len(l) != 1 || l[0] != m {
			tt.Fatalf("busy mappings %v", l)
		}
	}
	m.EndWriteback(t, p)
	if l := c.BDI.BusyMappings(t, nil); len(l) != 0 {
		tt.Fatalf("busy mappings at rest %v", l)
	}
}

// Dirty pages come and go all over a file of gigabytes, and from wherever a search begins it finds
// the next one.
func TestTagsFound(tt *testing.T) {
	t := sched.NewTask("test")
	_, m := newMapping(0, nil)
	rng := rand.New(rand.NewPCG(1, 2))
	var dirtied []uint64 // ascending
	for range 3000 {
		i := rng.Uint64N(1 << 20)
		if rng.Uint64N(3) == 0 {
			i = i &^ 8191 // neighbours, at the ends of chunks and groups
		}
		at, have := slices.BinarySearch(dirtied, i)
		p := m.Grab(t, i)
		if have && rng.Uint64N(4) != 0 {
			m.ClearDirty(t, p)
			dirtied = slices.Delete(dirtied, at, at+1)
		} else if !have {
			p.SetUptodate()
			m.SetDirty(t, p)
			dirtied = slices.Insert(dirtied, at, i)
		}
		p.UnlockPut(t)
		for range 4 {
			from := i + rng.Uint64N(3) - 1
			if rng.Uint64N(2) == 0 {
				from = rng.Uint64N(1 << 20)
			}
			to := from + rng.Uint64N(1<<16)
			at, _ := slices.BinarySearch(dirtied, from)
			want := at < len(dirtied) && dirtied[at] < to
			got, ok := m.NextDirty(t, from, to)
			if ok != want || ok && got != dirtied[at] {
				tt.Fatalf("dirty from page %d to %d: %d %v, want the first of %v", from, to, got, ok, dirtied[at:min(at+1, len(dirtied))])
			}
		}
	}
}

// An fsync looks for the dirty pages of a large file that is all in memory.
func BenchmarkNextDirty(b *testing.B) {
	sched.SetChecked(false)
	defer sched.SetChecked(true)
	t := sched.NewTask("bench")
	_, m := newMapping(0, nil)
	const n = 1 << 18
	for i := range uint64(n) {
		p := m.Grab(t, i)
		p.SetUptodate()
		p.UnlockPut(t)
	}
	dirty(t, m, n/2)
	b.ReportAllocs()
	for b.Loop() {
		for from := uint64(0); ; from++ {
			i, ok := m.NextDirty(t, from, n)
			if !ok {
				break
			}
			from = i
		}
	}
}

func BenchmarkGrab(b *testing.B) {
	sched.SetChecked(false)
	defer sched.SetChecked(true)
	t := sched.NewTask("bench")
	_, m := newMapping(0, nil)
	const n = 65536
	for i := range uint64(n) {
		p := m.Grab(t, i)
		p.SetUptodate()
		p.UnlockPut(t)
	}
	rng := rand.New(rand.NewPCG(1, 1))
	b.ReportAllocs()
	for b.Loop() {
		p := m.Grab(t, rng.Uint64N(n))
		p.WaitWriteback(t)
		p.UnlockPut(t)
	}
}
