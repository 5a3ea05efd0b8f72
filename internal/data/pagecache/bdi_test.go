package pagecache

import (
	"testing"
	"time"

	"btrlab/internal/kiocb"
	"btrlab/internal/sched"
	"btrlab/internal/sched/cost"
	"btrlab/internal/sched/vtime"
)

// simulate runs f as the first task of a simulated machine on which code costs nothing: time passes
// by Sleep and Charge.
func simulate(tt *testing.T, f func(t *sched.Task)) {
	tt.Helper()
	if _, err := vtime.Run(vtime.Machine{Costs: &cost.Table{}, Checked: true}, f); err != nil {
		tt.Fatal(err)
	}
}

// The flusher's chunk is half a second of the device, an eighth of a small limit, and never less
// than 4 MiB.
func TestChunkPages(tt *testing.T) {
	for _, c := range []struct{ bandwidth, hardPages, want int64 }{
		{100_000, 400_000, 50_176}, // the kernel's rounding: half a second is 50,000
		{100_000, 8192, 2048},
		{100, 400_000, 1024},
		{0, 16, 1024},
	} {
		b := &BDI{}
		b.init(0, c.hardPages<<PageShift)
		b.bandwidth.Store(c.bandwidth)
		if n := b.ChunkPages(); int64(n) != c.want {
			tt.Errorf("bandwidth %d, limit %d: %d pages, want %d", c.bandwidth, c.hardPages, n, c.want)
		}
	}
}

// A writer that is faster than the device is slowed to the device's rate, by pauses and not by
// hitting the limit.
func TestThrottleToDeviceRate(tt *testing.T) {
	const deviceRate = 20000 // pages per second
	const tick = 50 * time.Microsecond
	const end = int64(20 * time.Second)
	b := &BDI{}
	b.init(20<<20, 40<<20)
	b.SetWake(func(t *sched.Task) {})
	m := &Mapping{}
	m.onDirty.Store(true)
	device := func(t *sched.Task) {
		for t.Now() < end {
			t.Sleep(tick)
			if b.Dirty.Load() > 0 {
				b.Dirty.Add(-1)
				b.Writeback.Add(1)
				b.written(t, 1)
			}
		}
	}
	var half, pauses int64 // pages dirtied in the second half of the run
	simulate(tt, func(t *sched.Task) {
		t.Go("device", device)
		hard := b.hard.Load()
		for t.Now() < end {
			for range 8 {
				b.dirtied(t, m)
				if t.Now() > end/2 {
					half++
				}
				t.Charge(time.Microsecond)
			}
			before := t.Now()
			b.BalanceDirty(t)
			if n := t.Waits.Of(ThrottleClass.ID).Count; n > pauses {
				if d := time.Duration((t.Now() - before) / (n - pauses)); d > time.Duration(maxPause*jiffy)+tick {
					tt.Fatalf("pause of %v", d)
				}
				pauses = n
			}
			if n := b.Dirty.Load(); n > hard+maxPollPages {
				tt.Fatalf("%d dirty pages, limit %d", n, hard)
			}
		}
		if n := b.Dirty.Load(); n < (20<<20)>>PageShift {
			tt.Fatalf("only %d dirty pages: throttled below the background limit", n)
		}
	})
	if rate := float64(half) / 10; rate < 0.7*deviceRate || rate > 1.3*deviceRate || pauses == 0 {
		tt.Fatalf("writer runs at %.0f pages/s, device at %d; %d pauses", rate, deviceRate, pauses)
	}
}

// Eight writers that are faster than the device share it, and the dirty pages stay between the
// limits, below the hard one: a writer that has waited there pauses once more, or all of them stand
// at the limit for good and go on for a few pages at a time, with pauses that the rate says nothing
// of.
func TestThrottleOfEight(tt *testing.T) {
	const deviceRate = 20000 // pages per second
	const tick = 50 * time.Microsecond
	const end = int64(30 * time.Second)
	b := &BDI{}
	b.init(14<<20, 28<<20)
	b.SetWake(func(t *sched.Task) {})
	m := &Mapping{}
	m.onDirty.Store(true)
	var half, ticks, full int64
	simulate(tt, func(t *sched.Task) {
		for i := range 8 {
			t.Go("writer", func(t *sched.Task) {
				t.Charge(time.Duration(i) * time.Millisecond)
				for t.Now() < end {
					b.dirtied(t, m)
					if t.Now() > end/2 {
						half++
					}
					t.Charge(20 * time.Microsecond)
					b.BalanceDirty(t)
				}
			})
		}
		for t.Now() < end {
			t.Sleep(tick)
			if b.Dirty.Load() > 0 {
				b.Dirty.Add(-1)
				b.Writeback.Add(1)
				b.written(t, 1)
			}
			if t.Now() > end/2 {
				if ticks++; b.Dirty.Load() >= b.hard.Load()-8 {
					full++
				}
			}
		}
	})
	if rate := float64(half) / 15; rate < 0.9*deviceRate || rate > 1.1*deviceRate {
		tt.Errorf("the writers run at %.0f pages/s, the device at %d", rate, deviceRate)
	}
	if share := float64(full) / float64(ticks); share > 0.5 {
		tt.Errorf("%.0f %% of the time at the hard limit", 100*share)
	}
}

// A pause ends one jiffy after its time, as the kernel's timers do since Linux 4.8: it is never
// shorter than its jiffies, wherever in a jiffy it begins, and less than one of them longer.
func TestPauseIsNeverEarly(tt *testing.T) {
	b := &BDI{}
	b.init(20<<20, 40<<20)
	simulate(tt, func(t *sched.Task) {
		for _, c := range []struct{ begin, want time.Duration }{
			{0, 6 * time.Millisecond}, // at the edge of a jiffy
			{300 * time.Microsecond, 5700 * time.Microsecond},
			{999 * time.Microsecond, 5001 * time.Microsecond},
		} {
			t.Charge(time.Duration(jiffy-t.Now()%jiffy) + c.begin)
			since := t.Now()
			if b.sleep(t, 5*jiffy); time.Duration(t.Now()-since) != c.want {
				tt.Errorf("5 ms from %v of a jiffy on: %v, want %v", c.begin, time.Duration(t.Now()-since), c.want)
			}
		}
	})
}

// A task over the hard limit sleeps for the longest pause, again and again, until there are fewer
// dirty pages; it does not go on when the first of them is written. Then it owes for its pages as
// before, and pauses for them.
func TestPausesAtTheHardLimit(tt *testing.T) {
	const free = int64(100 * time.Millisecond) // from when on there is room
	b := &BDI{}
	b.init(20<<20, 40<<20)
	hard := b.hard.Load()
	m := &Mapping{}
	m.onDirty.Store(true)
	kicked := 0
	b.SetWake(func(*sched.Task) { kicked++ })
	simulate(tt, func(t *sched.Task) {
		b.Dirty.Store(hard + 100)
		b.rate.Store(1000)
		b.stampNanos.Store(t.Now()) // the rate stays what it is
		longest := b.maxPause(hard + 100)
		t.Go("device", func(t *sched.Task) {
			t.Sleep(time.Duration(free))
			b.Dirty.Add(-hard / 8) // as many as are aimed at: the rate is the task's
		})
		for range defaultPollPages {
			b.dirtied(t, m)
		}
		b.Dirty.Store(hard + 100)
		since := t.Now()
		b.BalanceDirty(t)
		slept, n := t.Now()-since, t.Waits.Of(ThrottleClass.ID).Count
		// Pauses of whole jiffies, each a jiffy late, until one ends after free; then one more, for
		// 32 pages at 1000 a second.
		want := int64(0)
		for ; want < free; n-- {
			want += (longest + 1) * jiffy
		}
		last := slept - want
		if n != 1 || last < 30*jiffy || last > 34*jiffy || kicked == 0 || b.Waiting() {
			tt.Errorf("%v in %d pauses besides those of %d ms at the limit, which are %v; flusher kicked %d times, waiting %v; want one more, of 32 ms",
				time.Duration(slept), n, longest, time.Duration(want), kicked, b.Waiting())
		}
	})
}

// A pause is worth sleeping from half of the one that is aimed at, which is 10 ms for one writer
// and 10 ms more with each doubling of them, as far as the longest one allows; so is the number of
// pages between two looks at the limits. The figures are the kernel's at HZ=1000.
func TestMinPause(tt *testing.T) {
	for _, c := range []struct {
		bandwidth, rate, longest int64
		jiffies                  int64
		pages                    int
	}{
		{20_000, 20_000, 200, 6, 195}, // one writer: 10 ms
		{94_000, 11_800, 200, 20, 449},
		{94_000, 11_800, 10, 4, 69}, // few pages may be dirty: 6 ms
		{94_000, 1000, 200, 40, 76},
		{94_000, 100, 200, 200, 19}, // too slow for 32 pages in the longest pause
	} {
		b := &BDI{}
		b.init(0, 1<<30)
		b.bandwidth.Store(c.bandwidth)
		if j, n := b.minPause(c.longest, c.rate, c.rate); j != c.jiffies || n != c.pages {
			tt.Errorf("%+v: %d jiffies, %d pages", c, j, n)
		}
	}
}

// A task looks at the limits after as many pages as its processor may dirty, although it was told
// to look later: with 12 of them and 40 MiB after 26, and never more often than after 16. A pause
// is then the shortest that is worth sleeping, because the task owes little more.
func TestLookByCPU(tt *testing.T) {
	for _, c := range []struct {
		cpus int
		hard int64
		want int
	}{{12, 40 << 20, 26}, {1, 40 << 20, 320}, {12, 1 << 20, 16}} {
		b := &BDI{}
		b.init(c.hard/2, c.hard)
		m := &Mapping{}
		m.onDirty.Store(true)
		n := 0
		_, err := vtime.Run(vtime.Machine{CPUs: c.cpus, Costs: &cost.Table{}}, func(t *sched.Task) {
			t.Dirty.Pause = 1000
			for n = 1; n < 1000; n++ {
				b.dirtied(t, m)
				b.BalanceDirty(t)
				if t.Dirty.Pages == 0 {
					return
				}
			}
		})
		if err != nil {
			tt.Fatal(err)
		}
		if n != c.want {
			tt.Errorf("%d CPUs, %d MiB may be dirty: a look after %d pages, want %d", c.cpus, c.hard>>20, n, c.want)
		}
	}
}

// The rate of a task follows the bandwidth that was smoothed twice, as the kernel's write_bw =
// wb->avg_write_bandwidth: with one that has just doubled, the rate at which all keep pace is still
// that of before.
func TestRateByAverage(tt *testing.T) {
	b := &BDI{}
	b.init(1000<<PageShift, 2000<<PageShift)
	b.rate.Store(1000)
	b.bandwidth.Store(8000)
	b.writing = 16000
	b.updateRate(8000, 1750, 1500, 2000)
	if b.balanced != 1001 {
		tt.Errorf("balanced at %d pages a second, want 1001: eight tasks of 1000 dirty as much as the device writes on average", b.balanced)
	}
}

// Below the limits nobody sleeps, and looks become rare.
func TestNoThrottleBelow(tt *testing.T) {
	simulate(tt, func(t *sched.Task) {
		b := &BDI{}
		b.init(64<<20, 128<<20)
		woken := 0
		b.SetWake(func(t *sched.Task) { woken++ })
		m := &Mapping{}
		m.onDirty.Store(true)
		for range (64 << 20) >> PageShift {
			b.dirtied(t, m)
			b.BalanceDirty(t)
		}
		if woken != 0 {
			tt.Fatalf("background writeback woken %d times below its limit", woken)
		}
		if t.Dirty.Pause < 64 {
			tt.Fatalf("a look every %d pages", t.Dirty.Pause)
		}
		if n := b.BatchPages(t, 512); n < 8 || n > 512 {
			tt.Fatalf("batch of %d pages", n)
		}
		for range 1000 {
			b.dirtied(t, m)
			b.BalanceDirty(t)
		}
		if woken == 0 {
			tt.Fatal("background writeback not woken above its limit")
		}
		if len(t.Waits)+len(t.NowaitSleeps()) != 0 {
			tt.Fatalf("slept: %v", t.Waits)
		}
	})
}

// Over the hard limit a task that may not sleep gets EAGAIN.
func TestThrottleNowait(tt *testing.T) {
	simulate(tt, func(t *sched.Task) {
		b := &BDI{}
		b.init(1<<20, 2<<20)
		m := &Mapping{}
		m.onDirty.Store(true)
		for range 600 {
			b.dirtied(t, m)
		}
		t.BeginNowait()
		if err := b.TryBalanceDirty(t); err != error(kiocb.AgainThrottle) {
			tt.Fatalf("have %v want EAGAIN", err)
		}
		t.EndNowait()
		if len(t.Waits)+len(t.NowaitSleeps()) != 0 {
			tt.Fatalf("slept: %v", t.Waits)
		}
	})
}

func TestPosRatio(tt *testing.T) {
	const free, hard = 1000, 2000
	last := int64(2<<ratioShift + 1)
	for d := int64(free); d <= hard; d += 10 {
		r := posRatio(d, free, hard)
		if r > last || r < 0 {
			tt.Fatalf("ratio %d at %d after %d", r, d, last)
		}
		last = r
	}
	if r := posRatio(1500, free, hard); r != 1<<ratioShift {
		tt.Fatalf("ratio at the setpoint %d", r)
	}
	if posRatio(hard, free, hard) != 0 || posRatio(free, free, hard) != 2<<ratioShift {
		tt.Fatal("ends of the ratio")
	}
}

// A pause is an eighth of the time in which the device writes what is dirty, in milliseconds,
// rounded as the kernel does at HZ=1000.
func TestMaxPause(tt *testing.T) {
	for _, c := range []struct {
		bandwidth, all int64
		want           time.Duration
	}{
		{187_599, 8182, 6 * time.Millisecond}, // 44 ms of writing
		{95_000, 8192, 12 * time.Millisecond},
		{1000, 8192, 200 * time.Millisecond},
		{0, 100, 101 * time.Millisecond},
		{95_000, 400_000, 200 * time.Millisecond},
	} {
		b := &BDI{}
		b.init(0, 1<<30)
		b.bandwidth.Store(c.bandwidth)
		if d := time.Duration(b.maxPause(c.all) * jiffy); d != c.want {
			tt.Errorf("%d pages at %d a second: %v, want %v", c.all, c.bandwidth, d, c.want)
		}
	}
}
