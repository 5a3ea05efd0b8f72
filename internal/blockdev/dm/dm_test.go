package dm

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"btrlab/internal/blockdev"
	"btrlab/internal/errno"
	"btrlab/internal/lock"
	"btrlab/internal/lock/lockdep"
	"btrlab/internal/sched"
	"btrlab/internal/sched/cost"
	"btrlab/internal/sched/vtime"
)

func TestMain(m *testing.M) {
	sched.SetChecked(true)
	os.Exit(m.Run())
}

var plugClass = lockdep.NewTestClass("plug_test", "")

// load runs n requests against a model's queue in its own time, outstanding of them at any moment,
// and returns requests a second and the sorted latencies.
func load(t *testing.T, spec string, op blockdev.Op, outstanding, n int, size int64, place func(i int) int64) (iops float64, lat []time.Duration) {
	t.Helper()
	p, err := Parse(spec)
	if err != nil {
		t.Fatal(err)
	}
	q := newQueue(p, 64<<30)
	ends := make([]int64, outstanding) // the time at which each slot may send its next request
	var last int64
	for i := range n {
		k := 0
		for j, e := range ends {
			if e < ends[k] {
				k = j
			}
		}
		now := ends[k]
		ends[k] = q.end(now, op, place(i), size)
		lat = append(lat, time.Duration(ends[k]-now))
		last = max(last, ends[k])
	}
	slices.Sort(lat)
	return float64(n) / (float64(last) / 1e9), lat
}

func random(spec string) func(int) int64 {
	rng := rand.New(rand.NewPCG(11, 12))
	return func(int) int64 { return rng.Int64N(16<<30/4096) * 4096 }
}

func pct(lat []time.Duration, p float64) time.Duration { return lat[int(float64(len(lat)-1)*p/100)] }

// The models have the properties they are named for. All of this is in the queue's own time, so the
// figures are the same in every run.
func TestModelsAreWhatTheySay(t *testing.T) {
	in := func(what string, have, lo, hi float64) {
		t.Helper()
		t.Logf("%s: %.1f", what, have)
		if have < lo || have > hi {
			t.Errorf("%s: have %.1f want %.1f to %.1f", what, have, lo, hi)
		}
	}
	us := func(d time.Duration) float64 { return float64(d) / 1e3 }

	// Seed 002's volume: a small write has a base of a few hundred microseconds and a tail of tens
	// of milliseconds; many overlap; the volume does some 75k of them a second, 95k if no garbage
	// were collected.
	one, lat := load(t, "ssd-raid5", blockdev.OpWrite, 1, 100000, 4096, random("ssd-raid5"))
	in("ssd-raid5 1 writer iops", one, 1000, 3500)
	in("ssd-raid5 1 writer p1 us", us(pct(lat, 1)), 150, 330)
	in("ssd-raid5 1 writer p50 us", us(pct(lat, 50)), 250, 450)
	in("ssd-raid5 1 writer max us", us(pct(lat, 100)), 20000, 95000)
	eight, _ := load(t, "ssd-raid5", blockdev.OpWrite, 8, 100000, 4096, random("ssd-raid5"))
	in("ssd-raid5 8 writers against 1", eight/one, 3.5, 8.1)
	_, lat = load(t, "ssd-raid5", blockdev.OpWrite, 32, 200000, 4096, random("ssd-raid5"))
	in("ssd-raid5 32 writers p50 us", us(pct(lat, 50)), 300, 900)
	in("ssd-raid5 32 writers p99.9 us", us(pct(lat, 99.9)), 10000, 95000)
	many, lat := load(t, "ssd-raid5", blockdev.OpWrite, 1024, 400000, 4096, random("ssd-raid5"))
	in("ssd-raid5 1024 writers iops", many, 65000, 90000)
	in("ssd-raid5 1024 writers p99 us", us(pct(lat, 99)), 20000, 200000)
	calm, _ := load(t, "ssd-raid5:gc-bytes=0,jitter=0", blockdev.OpWrite, 1024, 200000, 4096, random("ssd-raid5"))
	in("ssd-raid5 without garbage collection, iops", calm, 85000, 99000)
	row := int64(5 * 64 << 10)
	rows, _ := load(t, "ssd-raid5:gc-bytes=0,jitter=0", blockdev.OpWrite, 64, 5000, row, func(i int) int64 { return int64(i) * row })
	parts, _ := load(t, "ssd-raid5:gc-bytes=0,jitter=0", blockdev.OpWrite, 64, 5000, row, func(i int) int64 { return int64(i)*row + row/2 })
	in("ssd-raid5 full rows against the same not aligned", rows/parts, 1.2, 4)

	rd, lat := load(t, "nvme", blockdev.OpRead, 64, 200000, 4096, random("nvme"))
	in("nvme 64 readers iops", rd, 350000, 600000)
	in("nvme read p50 us", us(pct(lat, 50)), 75, 200)
	_, lat = load(t, "nvme", blockdev.OpWrite, 1, 20000, 4096, random("nvme"))
	in("nvme write p99 us", us(pct(lat, 99)), 19, 25)

	hr, lat := load(t, "hdd", blockdev.OpRead, 1, 5000, 4096, random("hdd"))
	in("hdd random read iops", hr, 60, 180)
	in("hdd random read p99 us", us(pct(lat, 99)), 9000, 25000)
	hs, _ := load(t, "hdd", blockdev.OpRead, 1, 2000, 1<<20, func(i int) int64 { return int64(i) << 20 })
	in("hdd sequential read MB/s", hs*1.048576, 140, 185)
	hw, lat := load(t, "hdd", blockdev.OpWrite, 1, 20000, 4096, random("hdd"))
	in("hdd random write p10 us, cached", us(pct(lat, 10)), 90, 110)
	in("hdd random write iops once the cache is full", hw, 60, 400)
}

// A flush waits for what the cache holds.
func TestFlushWaitsForTheCache(t *testing.T) {
	p, _ := Parse("hdd")
	q := newQueue(p, 1<<30)
	var w int64
	for i := range int64(20) {
		w = max(w, q.end(0, blockdev.OpWrite, i*30<<20, 4096))
	}
	f := q.end(w, blockdev.OpFlush, 0, 0)
	if time.Duration(w) > time.Millisecond || time.Duration(f) < 50*time.Millisecond {
		t.Fatalf("writes end at %v, the flush at %v", time.Duration(w), time.Duration(f))
	}
}

func TestParse(t *testing.T) {
	p, err := Parse("ssd-raid5:depth=32,read=1ms,gc-bytes=0,seed=9,slower=2")
	if err != nil || p.Depth != 32 || p.Read != 2*time.Millisecond || p.GCBytes != 0 || p.Seed != 9 || p.Write != 324*time.Microsecond {
		t.Fatalf("%+v %v", p, err)
	}
	for spec, want := range map[string]string{
		"floppy":                     "not known, there are nvme, ssd-raid5, hdd, disk, delay",
		"nvme:depth":                 "not key=value",
		"nvme:colour=red":            `key "colour" is not known`,
		"nvme:depth=x":               `depth="x"`,
		"nvme:depth=0":               "want at least 1",
		"ssd-raid5:disks=2":          "want at least 3",
		"ssd-raid5:gc-min=100ms":     "garbage collection",
		"nvme:read=-1ms":             "negative",
		"nvme:channels=100,disks=-1": "want at least 1",
	} {
		if _, err := Parse(spec); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", spec, err, want)
		}
	}
	for _, p := range Models() {
		if err := p.check(); err != nil {
			t.Error(err)
		}
	}
}

// watch counts the bios inside a device that completes inline, which is those a model lets through.
type watch struct {
	blockdev.Device
	ended atomic.Int64
}

func (w *watch) Submit(t *sched.Task, b *blockdev.Bio) {
	w.Device.Submit(t, b)
	w.ended.Add(1)
}

// Through every model: the bytes arrive, every bio ends once, and no more than Depth are inside.
func TestModelMovesBytes(t *testing.T) {
	for _, p := range Models() {
		t.Run(p.Name, func(t *testing.T) {
			k := sched.NewTask("test")
			p = p.Slower(0.05)
			p.Depth = 8
			const blocks = 400
			mem := blockdev.NewMemory(blocks * 4096)
			w := &watch{Device: mem}
			m := New(k, w, p)
			var ended, inside, most atomic.Int64
			bios := make([]blockdev.Bio, blocks)
			var tasks []*sched.Task
			for i := range 4 {
				tasks = append(tasks, k.Go(fmt.Sprint("writer", i), func(k *sched.Task) {
					for j := i; j < blocks; j += 4 {
						b := &bios[j]
						*b = blockdev.Bio{Op: blockdev.OpWrite, Off: int64(j) * 4096, Vecs: [][]byte{bytes.Repeat([]byte{byte(j)}, 4096)},
							EndIO: func(*sched.Task, *blockdev.Bio) { ended.Add(1); inside.Add(-1) }}
						n := inside.Add(1)
						for o := most.Load(); n > o && !most.CompareAndSwap(o, n); o = most.Load() {
						}
						m.Submit(k, b)
					}
				}))
			}
			for _, c := range tasks {
				k.Join(c)
			}
			if err := blockdev.Flush(k, m); err != nil {
				t.Fatal(err)
			}
			if ended.Load() != blocks || w.ended.Load() != blocks+1 {
				t.Fatalf("%d ends of %d after a flush, %d below", ended.Load(), blocks, w.ended.Load())
			}
			// A submitter counts before it waits for room, and a batch of bios makes room before it
			// ends: up to 4 and up to Depth more than Depth are seen.
			if n := most.Load(); n > 2*int64(p.Depth)+4 {
				t.Errorf("%d bios inside, depth %d", n, p.Depth)
			}
			buf := make([]byte, 4096)
			for j := range blocks {
				if err := blockdev.Read(k, m, buf, int64(j)*4096); err != nil || buf[0] != byte(j) || buf[4095] != byte(j) {
					t.Fatalf("block %d: %d %v", j, buf[0], err)
				}
			}
			if err := blockdev.Write(k, m, buf, blocks*4096); !errors.Is(err, errno.EIO) {
				t.Errorf("write beyond the end: %v", err)
			}
			m.Close()
			k.Join(m.timer)
		})
	}
}

// An end that submits again on the timer task gets through a full device.
func TestSubmitFromEndOnFullDevice(t *testing.T) {
	k := sched.NewTask("test")
	p, _ := Parse("delay:read=20us,write=20us,depth=2")
	m := New(k, blockdev.NewMemory(1<<20), p)
	defer m.Close()
	var left atomic.Int64
	left.Store(60)
	again := func(t *sched.Task, b *blockdev.Bio) {
		if left.Add(-1) > 0 {
			m.Submit(t, b)
		}
	}
	for range 4 {
		m.Submit(k, &blockdev.Bio{Op: blockdev.OpRead, Vecs: [][]byte{make([]byte, 512)}, EndIO: again})
	}
	for left.Load() > 0 {
		k.Sleep(50 * time.Microsecond)
	}
}

func TestFlakey(t *testing.T) {
	w, r, f := blockdev.OpWrite, blockdev.OpRead, blockdev.OpFlush
	for _, tc := range []struct {
		name   string
		faults []Fault
		want   string // of: 4 writes at 0, 4096, 8192, 12288, 2 reads at 0 and 4096, 2 flushes
	}{
		{"none", nil, "........"},
		{"second write", []Fault{{Op: w, Nth: 2}}, ".x......"},
		{"from the second write on", []Fault{{Op: w, Nth: 2, On: true}}, ".xxx...."},
		{"all flushes", []Fault{{Op: f}}, "......xx"},
		{"a range, by its edge", []Fault{{Op: w, Start: 8191, End: 8193}}, ".xx....."},
		{"read range and second flush", []Fault{{Op: r, Start: 4096, End: 8192}, {Op: f, Nth: 2}}, ".....x.x"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			k := sched.NewTask("test")
			mem := blockdev.NewMemory(1 << 20)
			d := NewFlakey(mem, tc.faults...)
			got := ""
			do := func(err error) {
				switch {
				case err == nil:
					got += "."
				case errors.Is(err, errno.EIO):
					got += "x"
				default:
					t.Error(err)
				}
			}
			for i := range int64(4) {
				do(blockdev.Write(k, d, bytes.Repeat([]byte{1}, 4096), i*4096))
			}
			for i := range int64(2) {
				do(blockdev.Read(k, d, make([]byte, 4096), i*4096))
			}
			do(blockdev.Flush(k, d))
			do(blockdev.Flush(k, d))
			if got != tc.want || d.Failed() != int64(strings.Count(tc.want, "x")) || d.Count(w) != 4 {
				t.Errorf("have %s want %s, %d failed", got, tc.want, d.Failed())
			}
			b := make([]byte, 1)
			for i := range int64(4) {
				blockdev.Read(k, mem, b, i*4096)
				if (b[0] == 0) != (tc.want[i] == 'x') {
					t.Errorf("write %d: the device below has %d", i, b[0])
				}
			}
		})
	}
}

// The crash images of a small log, each as the first byte of three blocks: what a flush covered is
// always there, and a torn block has both halves.
func TestCrashImages(t *testing.T) {
	k := sched.NewTask("test")
	mem := blockdev.NewMemory(1 << 20)
	put := func(d blockdev.Device, blk int64, v byte) {
		p := bytes.Repeat([]byte{v}, 1024)
		if err := blockdev.Write(k, d, p, blk*1024); err != nil {
			t.Fatal(err)
		}
		clear(p) // the buffer is the writer's again
	}
	put(mem, 2, 9)
	l := NewLogWrites(mem, mem.Snapshot())
	put(l, 0, 1)
	put(l, 1, 2)
	blockdev.Flush(k, l)
	l.Mark(k, "first")
	put(l, 0, 3)
	blockdev.Flush(k, l)
	blockdev.Flush(k, l)
	l.Mark(k, "second")
	put(l, 2, 4)
	var got []string
	show := func(_ *sched.Task, m Image) error {
		s := ""
		for blk := range int64(3) {
			p := make([]byte, 1024)
			if err := blockdev.Read(k, m.Dev, p, blk*1024); err != nil {
				return err
			}
			s += fmt.Sprintf(" %d%d", p[0], p[1023])
		}
		got = append(got, fmt.Sprintf("%s:%s %q %d", m.Name, s, m.Mark, m.Pending))
		put(m.Dev, 0, 77) // the image is ours: the next must not see this
		return nil
	}
	if err := l.Images(k, ImageOptions{}, show); err != nil {
		t.Fatal(err)
	}
	want := []string{
		`flush 1, dropped: 00 00 99 "" 2`,
		`flush 1, all: 11 22 99 "" 2`,
		`flush 1, torn: 11 20 99 "" 2`,
		`flush 2, dropped: 11 22 99 "first" 1`,
		`flush 2, all: 33 22 99 "first" 1`,
		`flush 2, torn: 31 22 99 "first" 1`,
		`flush 3, flushed: 33 22 99 "first" 0`,
		`end, dropped: 33 22 99 "second" 1`,
		`end, all: 33 22 44 "second" 1`,
		`end, torn: 33 22 49 "second" 1`,
	}
	if !slices.Equal(got, want) {
		t.Errorf("have\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if w, f := l.Counts(k); w != 4 || f != 3 {
		t.Errorf("%d writes and %d flushes, want 4 and 3", w, f)
	}
	bad := errors.New("bad image")
	err := l.Images(k, ImageOptions{}, func(_ *sched.Task, m Image) error {
		if m.Name == "flush 2, torn" {
			return bad
		}
		return nil
	})
	if !errors.Is(err, bad) || !strings.Contains(err.Error(), `crash at flush 2, torn (after "first", 1 writes pending)`) {
		t.Errorf("%v", err)
	}
}

// hold keeps writes, or flushes, until it is told to let them end: a device that completes out of
// order.
type hold struct {
	blockdev.Device
	flushes bool
	kept    []*blockdev.Bio
}

func (h *hold) Submit(t *sched.Task, b *blockdev.Bio) {
	if b.Op == blockdev.OpWrite && !h.flushes || b.Op == blockdev.OpFlush && h.flushes {
		h.kept = append(h.kept, b)
		return
	}
	h.Device.Submit(t, b)
}

// A flush covers the writes that ended before it began, not those in flight at that moment.
func TestFlushDoesNotCoverWritesInFlight(t *testing.T) {
	k := sched.NewTask("test")
	h := &hold{Device: blockdev.NewMemory(1 << 20)}
	l := NewLogWrites(h, nil)
	for i := range 2 {
		l.Submit(k, &blockdev.Bio{Op: blockdev.OpWrite, Off: int64(i) * 512, Vecs: [][]byte{{byte(i + 1)}}, EndIO: func(*sched.Task, *blockdev.Bio) {}})
	}
	end := func(i int) { h.kept[i].EndIO(k, h.kept[i]) }
	end(1)
	blockdev.Flush(k, l)
	end(0)
	blockdev.Flush(k, l)
	want := []string{"flush 1, dropped: 0 0", "flush 1, all: 0 2", "flush 2, dropped: 0 2", "flush 2, all: 1 2", "end, flushed: 1 2"}
	if got := images(k, l); !slices.Equal(got, want) {
		t.Errorf("have %q want %q", got, want)
	}
}

// Nor does it cover those that come and end while it is under way.
func TestFlushDoesNotCoverWritesAfterItsStart(t *testing.T) {
	k := sched.NewTask("test")
	h := &hold{Device: blockdev.NewMemory(1 << 20), flushes: true}
	l := NewLogWrites(h, nil)
	put := func(blk int64) {
		if err := blockdev.Write(k, l, []byte{1}, blk*512); err != nil {
			t.Fatal(err)
		}
	}
	put(0)
	l.Submit(k, &blockdev.Bio{Op: blockdev.OpFlush, EndIO: func(*sched.Task, *blockdev.Bio) {}})
	put(1)
	h.kept[0].EndIO(k, h.kept[0])
	if got, want := images(k, l), []string{"flush 1, dropped: 0 0", "flush 1, all: 1 1", "end, dropped: 1 0", "end, all: 1 1"}; !slices.Equal(got, want) {
		t.Errorf("have %q want %q", got, want)
	}
}

// images shows the first byte of two sectors after each crash.
func images(k *sched.Task, l *LogWrites) (got []string) {
	l.Images(k, ImageOptions{}, func(_ *sched.Task, m Image) error {
		p := make([]byte, 1024)
		blockdev.Read(k, m.Dev, p, 0)
		got = append(got, fmt.Sprintf("%s: %d %d", m.Name, p[0], p[512]))
		return nil
	})
	return got
}

// A flush that fails promises nothing.
func TestFailedFlush(t *testing.T) {
	k := sched.NewTask("test")
	l := NewLogWrites(NewFlakey(blockdev.NewMemory(1<<20), Fault{Op: blockdev.OpFlush, Nth: 1}), nil)
	blockdev.Write(k, l, []byte{1}, 0)
	if err := blockdev.Flush(k, l); !errors.Is(err, errno.EIO) {
		t.Fatal(err)
	}
	blockdev.Write(k, l, []byte{1}, 512)
	if got, want := images(k, l), []string{"end, dropped: 0 0", "end, all: 1 1"}; !slices.Equal(got, want) {
		t.Errorf("have %q want %q", got, want)
	}
}

// A failed write is not in the log, and random subsets are the same for the same seed.
func TestSubsetsAreReproducible(t *testing.T) {
	k := sched.NewTask("test")
	fl := NewFlakey(blockdev.NewMemory(1<<20), Fault{Op: blockdev.OpWrite, Nth: 3})
	l := NewLogWrites(fl, nil)
	for i := range int64(20) {
		blockdev.Write(k, l, bytes.Repeat([]byte{1}, 1024), i*1024)
	}
	run := func(seed uint64) (sums []int) {
		l.Images(k, ImageOptions{Subsets: 5, Seed: seed}, func(_ *sched.Task, m Image) error {
			p := make([]byte, 20*1024)
			blockdev.Read(k, m.Dev, p, 0)
			if p[2*1024] != 0 {
				t.Error("a failed write is in an image")
			}
			sums = append(sums, bytes.Count(p, []byte{1}))
			return nil
		})
		return sums
	}
	a, b, c := run(1), run(1), run(2)
	if len(a) != 8 || !slices.Equal(a, b) || slices.Equal(a, c) {
		t.Errorf("%v %v %v", a, b, c)
	}
}

func BenchmarkModelOverhead(b *testing.B) {
	sched.SetChecked(false)
	defer sched.SetChecked(true)
	k := sched.NewTask("bench")
	p, _ := Parse("ssd-raid5")
	m := New(k, blockdev.NewMemory(64<<20), p)
	defer m.Close()
	rng := rand.New(rand.NewPCG(1, 2))
	var inside atomic.Int64
	buf := make([]byte, 4096)
	vec := [][]byte{buf}
	bios := make([]blockdev.Bio, 2048)
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		x := &bios[i%len(bios)]
		*x = blockdev.Bio{Op: blockdev.OpWrite, Off: rng.Int64N(16384) * 4096, Vecs: vec, EndIO: func(*sched.Task, *blockdev.Bio) { inside.Add(-1) }}
		inside.Add(1)
		m.Submit(k, x)
	}
	for inside.Load() > 0 {
		k.Sleep(time.Millisecond)
	}
}

// An array's own work takes processor time: one thread handles every write before it ends, and the
// ends of the four requests at its members keep other processors busy, while nobody waits for them.
// Reads cost neither.
func TestArrayWork(tt *testing.T) {
	const n = 200
	p := Params{Name: "array", Disks: 6, Channels: 8, Depth: 64, ChunkBytes: 64 << 10, Parity: true, Handle: 10 * time.Microsecond, Interrupt: 3 * time.Microsecond}
	run := func(op blockdev.Op) vtime.Stats {
		st, err := vtime.Run(vtime.Machine{CPUs: 12, Costs: &cost.Table{}}, func(t *sched.Task) {
			m := New(t, blockdev.NewMemory(16<<20), p)
			buf := make([]byte, 4096)
			for i := range int64(n) {
				if err := blockdev.Do(t, m, &blockdev.Bio{Op: op, Off: i * 4096, Vecs: [][]byte{buf}}); err != nil {
					tt.Error(err)
				}
			}
			t.Sleep(time.Millisecond) // the last interrupts
			if err := m.Close(); err != nil {
				tt.Error(err)
			}
		})
		if err != nil {
			tt.Fatal(err)
		}
		return st
	}
	if st := run(blockdev.OpWrite); st.CPUBusy != int64(n*(p.Handle+4*p.Interrupt)) || st.Now < int64(n*p.Handle) || st.Now > int64(n*p.Handle+2*time.Millisecond) {
		tt.Errorf("%d writes: busy for %v in %v, want %v in %v", n, time.Duration(st.CPUBusy), time.Duration(st.Now), n*(p.Handle+4*p.Interrupt), n*p.Handle)
	}
	if st := run(blockdev.OpRead); st.CPUBusy != 0 {
		tt.Errorf("%d reads: busy for %v", n, time.Duration(st.CPUBusy))
	}
}

// TestQueues: the requests of a submitter end on the task of its queue, each once, and queues end
// theirs at the same time.
func TestQueues(tt *testing.T) {
	const tasks, n, each = 4, 300, 10 * time.Microsecond
	run := func(queues int) (took int64, enders int) {
		_, err := vtime.Run(vtime.Machine{CPUs: 12, Costs: &cost.Table{}}, func(t *sched.Task) {
			m := New(t, blockdev.NewMemory(16<<20), Params{Name: "queues", Disks: 1, Channels: 4096, Depth: 4096, Write: time.Millisecond, Queues: queues})
			var ends [tasks][n]int // of each request
			by := map[*sched.Task]bool{}
			left := tasks * n
			buf := make([]byte, 512)
			begin := t.Now()
			var all []*sched.Task
			for i := range tasks {
				all = append(all, t.Go("submitter", func(t *sched.Task) {
					var mine *sched.Task
					for j := range n {
						m.Submit(t, &blockdev.Bio{Op: blockdev.OpWrite, Off: int64(j) * 512, Vecs: [][]byte{buf}, EndIO: func(t *sched.Task, _ *blockdev.Bio) {
							if mine == nil {
								mine = t
							}
							if mine != t {
								tt.Errorf("request %d of task %d ends on another task than the first", j, i)
							}
							by[t] = true
							t.Charge(each)
							ends[i][j]++
							if left--; left == 0 {
								took = t.Now() - begin
							}
						}})
					}
				}))
			}
			for _, x := range all {
				t.Join(x)
			}
			t.Sleep(100 * time.Millisecond)
			for i := range ends {
				for j, k := range ends[i] {
					if k != 1 {
						tt.Errorf("%d queues: request %d of task %d has ended %d times", queues, j, i, k)
						return
					}
				}
			}
			enders = len(by)
			if err := m.Close(); err != nil {
				tt.Error(err)
			}
		})
		if err != nil {
			tt.Fatal(err)
		}
		return took, enders
	}
	alone, one := run(0)
	four, enders := run(tasks)
	if work := int64(n * each); one != 1 || enders != tasks || alone < tasks*work || four < work || four > 2*work {
		tt.Errorf("%d tasks end all in %v, %d in %v; want 1 and %v, %d and %v", one, time.Duration(alone), enders, time.Duration(four), tasks*n*each, tasks, n*each)
	}
}

// TestPlug: what a task with a plug submits to an array begins when the task sleeps, for whatever
// reason, or ends the plug, and not before: the owner of a lock may wait for it. The stripe cache
// that is full takes requests again once a quarter of it is free. Without the model, and without a
// plug, a request begins at once.
func TestPlug(tt *testing.T) {
	const ms = time.Millisecond
	p := Params{Name: "plug", Disks: 1, Channels: 1, Depth: 8, Write: ms, Plug: true}
	run := func(p Params, plugged bool, f func(t *sched.Task, submit func(n int), ended func() int)) {
		tt.Helper()
		_, err := vtime.Run(vtime.Machine{CPUs: 4, Costs: &cost.Table{}}, func(t *sched.Task) {
			m := New(t, blockdev.NewMemory(1<<20), p)
			ends := 0
			submit := func(n int) {
				for range n {
					m.Submit(t, &blockdev.Bio{Op: blockdev.OpWrite, Vecs: [][]byte{make([]byte, 512)}, EndIO: func(*sched.Task, *blockdev.Bio) { ends++ }})
				}
			}
			if plugged {
				t.StartPlug()
			}
			f(t, submit, func() int { return ends })
			t.FinishPlug()
			t.Sleep(100 * ms)
			if err := m.Close(); err != nil {
				tt.Error(err)
			}
		})
		if err != nil {
			tt.Error(err)
		}
	}
	work := func(want int, sleep func(t *sched.Task)) func(t *sched.Task, submit func(n int), ended func() int) {
		return func(t *sched.Task, submit func(n int), ended func() int) {
			tt.Helper()
			submit(4)
			t.Charge(5 * ms)
			if have := ended(); have != want {
				tt.Errorf("after 5ms of work %d requests have ended, want %d", have, want)
			}
			sleep(t)
			if have := ended(); have != 4 {
				tt.Errorf("after 5ms without a CPU %d requests have ended, want 4", have)
			}
		}
	}
	sleeps := func(t *sched.Task) { t.Sleep(5 * ms) }
	parks := func(t *sched.Task) { t.Simulator().ParkFor(t, 0, 5*ms) }
	locks := func(t *sched.Task) {
		var mu lock.Mutex
		mu.Init(plugClass)
		other := t.Go("owner", func(t *sched.Task) {
			mu.Lock(t)
			t.Sleep(10 * ms)
			mu.Unlock(t)
		})
		t.Charge(5 * ms)
		mu.Lock(t)
		mu.Unlock(t)
		t.Join(other)
	}
	ends := func(t *sched.Task) {
		t.FinishPlug()
		t.Charge(5 * ms)
	}
	for _, how := range []func(t *sched.Task){sleeps, parks, locks, ends} {
		run(p, true, work(0, how))
	}
	run(p, false, work(4, sleeps))
	other := p
	other.Plug = false
	run(other, true, work(4, sleeps))

	full := func(want time.Duration) func(t *sched.Task, submit func(n int), ended func() int) {
		return func(t *sched.Task, submit func(n int), ended func() int) {
			begin := t.Now()
			submit(9)
			if have := time.Duration(t.Now() - begin); have != want {
				tt.Errorf("the ninth request has a place after %v, want %v", have, want)
			}
		}
	}
	run(p, true, full(3*ms))
	run(other, true, full(ms))
}
