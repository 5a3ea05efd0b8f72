package calibrate

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"strings"
	"sync/atomic"
	"time"

	"btrlab/internal/blockdev"
	"btrlab/internal/data/pagecache"
	"btrlab/internal/format"
	"btrlab/internal/lock"
	"btrlab/internal/lock/extentio"
	"btrlab/internal/measure/fio"
	"btrlab/internal/sched"
	"btrlab/internal/sched/cost"
)

// A probe times one cost in a loop of its own, in nanoseconds per unit.
type probe struct {
	cost sched.Cost
	how  string
	// cpus is how many processors the loop needs.
	cpus int
	run  func(b *bench) float64
}

var probes = []probe{
	{cost.Issue, "fio engine, a file that does nothing", 1, (*bench).issue},
	{cost.Page, "found and put, 16 in a row of a large file", 1, (*bench).page},
	{cost.Copy, "64 KiB into such pages", 1, (*bench).copy},
	{cost.Media, "64 KiB from such pages into an image in memory", 1, (*bench).media},
	{cost.Cold, "what 4 KiB into a page at random take longer", 1, (*bench).cold},
	{cost.PageAlloc, "made and truncated away again", 1, (*bench).pageAlloc},
	{cost.Lock, "a mutex that nobody else wants", 1, (*bench).lock},
	{cost.RangeTree, "lock, then mark and unlock 4 KiB", 1, (*bench).rangeTree},
	{cost.Checksum, "crc32c of such pages", 1, (*bench).checksum},
	{cost.Field, "a file extent item of ten, encoded in such pages", 1, (*bench).field},
	{cost.Wakeup, "tasks are woken that wait for this processor", 1, (*bench).wakeup},
	{cost.Switch, "two tasks wake each other, one processor", 1, (*bench).switches},
	{cost.Line, "two tasks write one word in turn", 2, (*bench).line},
	{cost.Kick, "a task wakes another, and its idle processor", 2, (*bench).kick},
	{cost.IdleExit, "until the other runs, less its switch", 2, (*bench).idleExit},
	{cost.Ring, "a request of the ring's model, a file that does nothing", 1, (*bench).ring},
	{cost.RingReap, "a completion taken from the ring's model", 1, (*bench).ringReap},
	{cost.Punt, "what it costs more to give it to the worker", 1, (*bench).punt},
	{cost.AIO, "a request of aio's model, a file that does nothing", 1, (*bench).aio},
	{cost.Events, "an event taken from aio's model", 1, (*bench).events},
}

// bench is what the probes work on.
type bench struct {
	t    *sched.Task
	loop time.Duration
	rng  *rand.Rand
	src  []byte
	m    *pagecache.Mapping
	fast *pagecache.Mapping // of few pages, for those that come and go
	mem  *blockdev.Memory
	tree extentio.Tree
	mu   lock.Mutex
	n    uint64              // pages of m
	ns   [cost.Count]float64 // of this round, so far
	late float64             // of the last kick
}

func newBench(t *sched.Task, size int64, loop time.Duration) *bench {
	b := &bench{t: t, loop: loop, rng: rand.New(rand.NewPCG(3, 4)), src: make([]byte, row*pagecache.PageSize), n: uint64(size / pagecache.PageSize)}
	c := pagecache.NewCache(0, 8*size, 16*size)
	b.m, b.fast = new(pagecache.Mapping), new(pagecache.Mapping)
	b.m.Init(c, nil)
	b.fast.Init(c, nil)
	b.mem = blockdev.NewMemory(size)
	for i := range b.n {
		p := b.m.Grab(t, i)
		copy(p.Edit(t), b.src[:pagecache.PageSize])
		p.SetUptodate()
		b.write([][]byte{p.Data()}, int64(i)*pagecache.PageSize)
		p.UnlockPut(t)
	}
	b.tree.Init(noHooks{})
	b.tree.Set(t, 0, b.n*pagecache.PageSize, extentio.Delalloc)
	return b
}

// noHooks is a file without accounting.
type noHooks struct{}

func (noHooks) SetDelalloc(*sched.Task, uint64, uint64, extentio.Bits, extentio.Bits)   {}
func (noHooks) ClearDelalloc(*sched.Task, uint64, uint64, extentio.Bits, extentio.Bits) {}
func (noHooks) SplitDelalloc(*sched.Task, uint64, uint64, uint64, extentio.Bits)        {}
func (noHooks) MergeDelalloc(*sched.Task, uint64, uint64, uint64, extentio.Bits)        {}

// per is the time of one operation, in nanoseconds: f, which does n, is called again until d has
// passed. With one processor it is the processor's time.
func per(d time.Duration, n int, f func()) float64 {
	alone := runtime.GOMAXPROCS(0) == 1
	start, cpu := time.Now(), cpuTime()
	for done := n; ; done += n {
		f()
		if used := time.Since(start); used >= d {
			if spent := cpuTime() - cpu; alone && spent > 0 {
				used = spent
			}
			return float64(used) / float64(done)
		}
	}
}

const batch = 64

// row is the pages that are moved at once where a cost is that of a stream.
const row = 16

// each is the time per page, less less, of a loop that does f with random rows of n pages of the
// large file. As a write does, it finds all of them, moves all, and puts all: an atomic between two
// pages would wait for the copy before it.
func (b *bench) each(n int, less float64, f func(p []*pagecache.Page)) float64 {
	pages := make([]*pagecache.Page, n)
	loop := func() {
		for range batch / n {
			at := b.rng.Uint64N(b.n/uint64(n)) * uint64(n)
			for i := range pages {
				pages[i] = b.m.Get(b.t, at+uint64(i))
			}
			f(pages)
			for _, p := range pages {
				p.Put(b.t)
			}
		}
	}
	for range warm * b.n / batch {
		loop()
	}
	return per(b.loop, batch, loop) - less
}

// warm is how often random work is done with as much as a file has before its time counts. The
// first passes are up to a half slower than those that follow, and a job makes many. A pass in
// order does not help.
const warm = 3

func (b *bench) page() float64 { return b.each(row, 0, func([]*pagecache.Page) {}) }

func (b *bench) copyInto(pages []*pagecache.Page) {
	for i, p := range pages {
		copy(p.Data(), b.src[i*pagecache.PageSize:])
	}
}

func (b *bench) copy() float64 {
	return b.each(row, b.ns[cost.Page], b.copyInto) / pagecache.PageSize
}

func (b *bench) cold() float64 {
	return b.each(1, b.ns[cost.Page]+b.ns[cost.Copy]*pagecache.PageSize, b.copyInto)
}

func (b *bench) checksum() float64 {
	var sum uint32
	ns := b.each(row, b.ns[cost.Page], func(pages []*pagecache.Page) {
		for _, p := range pages {
			sum += format.CRC32C(p.Data())
		}
	})
	b.src[0] = byte(sum) // so that it is computed
	return ns / pagecache.PageSize
}

func (b *bench) field() float64 {
	const fields = 10
	fe := format.FileExtent{Type: format.FileExtentTypeReg, NumBytes: pagecache.PageSize}
	return b.each(row, b.ns[cost.Page], func(pages []*pagecache.Page) {
		for _, p := range pages {
			fe.Generation++
			fe.Encode(p.Data()[:format.FileExtentSize])
		}
	}) / fields
}

func (b *bench) media() float64 {
	vecs := make([][]byte, row)
	return b.each(row, b.ns[cost.Page], func(pages []*pagecache.Page) {
		for i, p := range pages {
			vecs[i] = p.Data()
		}
		b.write(vecs, int64(pages[0].Offset()))
	}) / pagecache.PageSize
}

func (b *bench) write(vecs [][]byte, off int64) {
	b.mem.Submit(b.t, &blockdev.Bio{Op: blockdev.OpWrite, Off: off, Vecs: vecs, EndIO: func(*sched.Task, *blockdev.Bio) {}})
}

func (b *bench) pageAlloc() float64 {
	return per(b.loop, batch, func() {
		for i := range uint64(batch) {
			b.fast.Grab(b.t, i).UnlockPut(b.t)
		}
		b.fast.Truncate(b.t, 0, batch*pagecache.PageSize)
	})
}

func (b *bench) lock() float64 {
	return per(b.loop, batch, func() {
		for range batch {
			b.mu.Lock(b.t)
			b.mu.Unlock(b.t)
		}
	})
}

func (b *bench) rangeTree() float64 {
	return per(b.loop, 2*batch, func() {
		for range batch {
			at := b.rng.Uint64N(b.n) * pagecache.PageSize
			b.tree.Lock(b.t, at, at+pagecache.PageSize)
			b.tree.UnlockAndSet(b.t, at, at+pagecache.PageSize, extentio.Delalloc, extentio.Delalloc)
		}
	})
}

// nothing is a file that does nothing.
type nothing struct{}

func (nothing) ReadAt(_ *sched.Task, p []byte, _ int64) (int, error)   { return len(p), nil }
func (nothing) WriteAt(_ *sched.Task, p []byte, _ int64) (int, error)  { return len(p), nil }
func (nothing) Truncate(*sched.Task, int64) error                      { return nil }
func (nothing) Fallocate(*sched.Task, uint32, int64, int64) error      { return nil }
func (nothing) Fsync(*sched.Task) error                                { return nil }
func (nothing) Size(*sched.Task) int64                                 { return 1 << 30 }
func (nothing) open(*sched.Task, *fio.Job, string) (fio.Target, error) { return nothing{}, nil }

func (b *bench) issue() float64 {
	jf, err := fio.Parse("issue", strings.NewReader(fmt.Sprintf("[w]\nioengine=psync\nrw=randwrite\nbs=4k\nsize=1g\nnorandommap\nthread\ntime_based\nruntime=%dms\n",
		max(b.loop.Milliseconds(), 1))))
	if err != nil {
		panic(err) // the job is ours
	}
	res, err := fio.Run(b.t, jf, fio.Options{Open: nothing{}.open})
	if err != nil || len(res.Jobs) == 0 || res.Jobs[0].Write.IOs == 0 {
		return 0
	}
	return float64(res.Jobs[0].Write.RunNs) / float64(res.Jobs[0].Write.IOs)
}

// switches is half of a round in which two tasks wake each other: one wakes and parks, the other
// goes on.
func (b *bench) switches() float64 {
	const rounds = 200
	class := sched.ClassID(0)
	return per(b.loop, 2*rounds, func() {
		main := b.t
		other := b.t.Go("switch", func(t *sched.Task) {
			for range rounds {
				t.Park(class)
				main.Unpark()
			}
		})
		for range rounds {
			other.Unpark()
			b.t.Park(class)
		}
		b.t.Join(other)
	}) - b.ns[cost.Wakeup]
}

// line is half of a round in which two tasks answer each other. The other runs when the time
// begins, and until it has ended: how long a processor takes to begin with it is not the word's.
func (b *bench) line() float64 {
	const rounds = 500
	var x atomic.Int64 // odd is the other's turn
	other := b.t.Go("line", func(*sched.Task) {
		for v := x.Load(); v >= 0; v = x.Load() {
			if v&1 == 1 {
				x.Store(v + 1)
			}
		}
	})
	turn := func() {
		v := x.Load() + 1
		x.Store(v)
		for x.Load() == v {
		}
	}
	turn()
	ns := per(b.loop, 2*rounds, func() {
		for range rounds {
			turn()
		}
	})
	x.Store(-1)
	b.t.Join(other)
	return ns
}

// wakeup wakes tasks that cannot run before the waker sleeps: there is one processor.
func (b *bench) wakeup() float64 {
	var tasks [batch]*sched.Task
	var left atomic.Int32
	main := b.t
	last := func() {
		if left.Add(-1) == 0 {
			main.Unpark()
		}
	}
	left.Store(batch)
	for i := range tasks {
		tasks[i] = b.t.Go("sleeper", func(t *sched.Task) {
			last()
			for range wakeups {
				t.Park(0)
				last()
			}
		})
	}
	b.t.Park(0)
	woken := int64(0)
	for range wakeups {
		left.Store(batch)
		start := b.t.Now()
		for _, o := range tasks {
			o.Unpark()
		}
		woken += b.t.Now() - start
		b.t.Park(0)
	}
	for _, o := range tasks {
		b.t.Join(o)
	}
	return float64(woken) / wakeups / batch
}

const wakeups = 20

// kick wakes a task that sleeps, and whose processor does; the waker goes on. It also notes when
// the other runs.
func (b *bench) kick() float64 {
	var at, ran atomic.Int64
	var end atomic.Bool
	other := b.t.Go("sleeper", func(t *sched.Task) {
		for {
			t.Park(0)
			ran.Store(t.Now())
			if end.Load() {
				return
			}
		}
	})
	waker, latency, n := 0.0, 0.0, 0
	for start := time.Now(); n == 0 || time.Since(start) < b.loop; n++ {
		b.t.Sleep(100 * time.Microsecond)
		ran.Store(0)
		at.Store(b.t.Now())
		other.Unpark()
		waker += float64(b.t.Now() - at.Load())
		for ran.Load() == 0 {
		}
		latency += float64(ran.Load() - at.Load())
	}
	end.Store(true)
	other.Unpark()
	b.t.Join(other)
	b.late = latency / float64(n)
	return waker/float64(n) - b.ns[cost.Wakeup]
}

// idleExit is what the latency of kick leaves.
func (b *bench) idleExit() float64 {
	return b.late - b.ns[cost.Wakeup] - b.ns[cost.Kick] - b.ns[cost.Switch]
}
