package pagecache

import (
	"math/bits"
	"sync/atomic"
	"time"

	"btrlab/internal/kiocb"
	"btrlab/internal/lock"
	"btrlab/internal/lock/lockdep"
	"btrlab/internal/sched"
)

// ThrottleClass is the wait of a writer that dirties faster than the device writes.
var ThrottleClass = lockdep.NewClass("balance_dirty")

var classBDI = lockdep.NewClass("bdi")

// Throttling constants, as in mm/page-writeback.c.
const (
	// a task looks at the limits every so many pages, far from them
	defaultPollPages = 32
	maxPollPages     = 4096                    //
	jiffy            = int64(time.Millisecond) // the clock of pauses: HZ is 1000
	hz               = 1000
	hzPow2           = 1024        // roundup_pow_of_two(HZ)
	bandwidthNanos   = 200 * jiffy // how often the rates are estimated
	bandwidthPeriod  = 4096        // jiffies over which the bandwidth is smoothed
	// the pause, in jiffies, that a throttled task should get if it is the only one
	targetPause = hz / 100
	// the longest single pause in jiffies; see BDI.maxPause
	maxPause = hz / 5
	initRate = 100 << 20 >> PageShift // pages per second before anything is known
)

// BDI is the dirty accounting of one file system: how many pages wait for writeback, how fast the
// device takes them, and how fast a writer may go. All counts are pages.
//
// Models struct bdi_writeback with global_dirty_limits, balance_dirty_pages() and
// wb_update_bandwidth() of Linux 3.3 to 5.15. Differences: one device, so the global and the
// device's limits are one, and the device's own lines of control are left out; the first estimate
// of the bandwidth is what was measured and not a step towards it, and while nobody is throttled
// the rate of a task rises to a quarter of it. In the simulated runtime a task over the hard limit
// sleeps as the kernel's do, the longest pause at a time; in the others it waits for writeback to
// get below the limit.
type BDI struct {
	// Dirty and Writeback count pages; a page under writeback that is dirtied again counts twice.
	Dirty     atomic.Int64
	_         [56]byte
	Writeback atomic.Int64
	_         [56]byte

	background atomic.Int64
	hard       atomic.Int64

	dirtiedPages atomic.Int64 // ever
	writtenPages atomic.Int64 // ever
	_            [48]byte

	throttled lock.WaitQueue // tasks over the hard limit
	waiters   atomic.Int32
	above     atomic.Bool // over the free run: tasks pause
	// over the hard limit: tasks look every few pages. Models wb->dirty_exceeded
	exceeded atomic.Bool
	wake     func(t *sched.Task)

	// rate is the pages per second that one throttled task may dirty, bandwidth what the device
	// writes on average. Model wb->dirty_ratelimit and wb->avg_write_bandwidth.
	rate       atomic.Int64
	bandwidth  atomic.Int64
	stampNanos atomic.Int64 // of the last estimate; changes under mu

	mu           lock.Mutex // leaf; protects the fields below
	list         []*Mapping // mappings that have, or had not long ago, dirty pages
	stampDirty   int64      // dirtiedPages at the stamp
	stampWritten int64
	// pages per second, smoothed once; 0 is not known. Models wb->write_bandwidth
	writing int64
	// the last rate at which all tasks together would have kept pace. Models
	// wb->balanced_dirty_ratelimit
	balanced int64
}

func (b *BDI) init(background, hard int64) {
	b.mu.Init(classBDI)
	b.throttled.Init(ThrottleClass)
	b.rate.Store(initRate)
	b.bandwidth.Store(initRate)
	b.SetLimits(background, hard)
}

// SetLimits sets the dirty limits in bytes; hard is made at least 16 pages and background lower
// than hard.
func (b *BDI) SetLimits(background, hard int64) {
	h := max(hard>>PageShift, 16)
	bg := background >> PageShift
	if bg >= h {
		bg = h / 2
	}
	b.background.Store(max(bg, 0))
	b.hard.Store(h)
}

// Limits are the limits in bytes.
func (b *BDI) Limits() (background, hard int64) {
	return b.background.Load() << PageShift, b.hard.Load() << PageShift
}

// SetWake names what starts background writeback. It must not sleep.
func (b *BDI) SetWake(wake func(t *sched.Task)) { b.wake = wake }

// Waiting reports whether some task waits for dirty pages to get below the hard limit: background
// writeback must not give up then.
func (b *BDI) Waiting() bool { return b.waiters.Load() > 0 }

// OverBackground reports whether background writeback has something to do.
func (b *BDI) OverBackground() bool { return b.Dirty.Load() > b.background.Load() }

func (b *BDI) dirtied(t *sched.Task, m *Mapping) {
	n := b.Dirty.Add(1)
	if b.waiters.Load() > 0 && n > b.background.Load() && b.wake != nil {
		// The flusher may have gone to sleep below the background limit while some task still
		// waited for writeback to end. This page and those of other tasks that have not come to
		// balance yet can keep that task above the hard limit, and it may hold what they need to
		// get there: its range, or the inode.
		b.wake(t)
	}
	b.dirtiedPages.Add(1)
	t.Dirty.Pages++
	if m.onDirty.Load() {
		return
	}
	b.mu.Lock(t)
	if !m.onDirty.Load() {
		m.onDirty.Store(true)
		b.list = append(b.list, m)
	}
	b.mu.Unlock(t)
}

// DirtyMappings appends the mappings that have dirty pages to out.
func (b *BDI) DirtyMappings(t *sched.Task, out []*Mapping) []*Mapping {
	return b.mappings(t, out, false)
}

// BusyMappings appends the mappings that have pages dirty or under writeback to out.
func (b *BDI) BusyMappings(t *sched.Task, out []*Mapping) []*Mapping { return b.mappings(t, out, true) }

func (b *BDI) mappings(t *sched.Task, out []*Mapping, busy bool) []*Mapping {
	b.mu.Lock(t)
	keep := b.list[:0]
	for _, m := range b.list {
		// The mark goes first: a page dirtied after the count was read finds it gone and puts the
		// mapping back on the list once we let go of mu.
		m.onDirty.Store(false)
		dirty := m.dirty.Load() != 0
		if !dirty && m.writeback.Load() == 0 {
			continue
		}
		m.onDirty.Store(true)
		keep = append(keep, m)
		if dirty || busy {
			out = append(out, m)
		}
	}
	clear(b.list[len(keep):])
	b.list = keep
	b.mu.Unlock(t)
	return out
}

func (b *BDI) written(t *sched.Task, n int64) {
	left := b.Writeback.Add(-n)
	b.writtenPages.Add(n)
	if b.waiters.Load() > 0 && left+b.Dirty.Load() < b.hard.Load() {
		b.throttled.Wake(t)
	}
}

// undirtied says that a page is not dirty any more. If it is not going to be written, this may be
// all that gets the count below the limit.
func (b *BDI) undirtied(t *sched.Task) {
	if b.waiters.Load() > 0 && b.Writeback.Load()+b.Dirty.Load() < b.hard.Load() {
		b.throttled.Wake(t)
	}
}

// BatchPages is how many pages a writer should dirty before it looks at the limits again, at least
// 8 and at most most: the nr_dirtied_pause term of a buffered write's batch (labs/reference 1.1 a).
func (b *BDI) BatchPages(t *sched.Task, most int) int {
	pause := t.Dirty.Pause
	if pause == 0 {
		pause = defaultPollPages
	}
	return max(min(most, pause-t.Dirty.Pages), 8)
}

// BalanceDirty slows the task down when too much is dirty; call it after each batch, with no page
// and no range locked. Models balance_dirty_pages_ratelimited().
func (b *BDI) BalanceDirty(t *sched.Task) {
	if b.due(t) {
		_ = b.balance(t, false) // an error is for those that do not sleep
	}
}

// TryBalanceDirty is BalanceDirty that says EAGAIN where it would sleep. Models
// balance_dirty_pages_ratelimited_flags() with BDP_ASYNC.
func (b *BDI) TryBalanceDirty(t *sched.Task) error {
	if !b.due(t) {
		return nil
	}
	return b.balance(t, true)
}

// due reports whether the task has dirtied so much that it must look at the limits.
func (b *BDI) due(t *sched.Task) bool {
	pause := t.Dirty.Pause
	if pause == 0 {
		pause = defaultPollPages
	}
	if b.exceeded.Load() {
		pause = min(pause, 8)
	}
	if sim := t.Simulator(); sim != nil {
		pause = min(pause, perCPUPages(b.hard.Load(), sim.CPUs()))
	}
	return t.Dirty.Pages >= pause
}

// perCPUPages is how many pages may be dirtied on one of cpus processors until its task looks at
// the limits, whatever it was told: all processors together get no further than a thirty-second
// part beyond the hard limit. Models ratelimit_pages and bdp_ratelimits. Differences: counted by
// task, where the kernel counts by processor; only a simulated machine says how many it has.
func perCPUPages(hard int64, cpus int) int { return int(max(hard/int64(32*cpus), 16)) }

// balance is the slow path. Models balance_dirty_pages().
func (b *BDI) balance(t *sched.Task, nowait bool) error {
	d := &t.Dirty
	pages := int64(d.Pages) // stays what the task owes for after a pause at the hard limit
	for {
		now := t.Now()
		hard, background := b.hard.Load(), b.background.Load()
		dirty := b.Dirty.Load()
		all := dirty + b.Writeback.Load()
		if dirty > background && b.wake != nil {
			b.wake(t)
		}
		freerun := (hard + background) / 2
		if all <= freerun {
			b.exceeded.Store(false)
			b.above.Store(false)
			d.Pages, d.PausedWhen = 0, now
			d.Pause = pollPages(hard - all)
			return nil
		}
		b.exceeded.Store(all > hard)
		b.above.Store(true)
		if !nowait {
			lockdep.MightWait(t, ThrottleClass)
		}
		ratio := posRatio(all, freerun, hard)
		b.estimate(t, now, all, freerun, hard)
		limit := b.rate.Load()
		rate := limit * ratio >> ratioShift
		longest := b.maxPause(all)
		shortest, next := b.minPause(longest, rate, limit)
		now -= now % jiffy
		if rate <= 0 {
			switch {
			case nowait:
				return kiocb.AgainThrottle
			case t.Simulator() == nil:
				b.waitBelowHard(t)
			default:
				b.waiters.Add(1) // the flusher must not give up
				b.sleep(t, longest*jiffy)
				b.waiters.Add(-1)
				d.Pages, d.Pause, d.PausedWhen = 0, next, now+longest*jiffy
			}
			continue
		}
		period := pages * hz / rate * jiffy
		if d.PausedWhen == 0 {
			d.PausedWhen = now
		}
		pause := d.PausedWhen + period - now
		if pause < shortest*jiffy {
			// Too short to sleep: what is owed counts with the next pages. So does what the task
			// has waited elsewhere, a stable page say, up to a second of it.
			switch {
			case pause < -hz*jiffy:
				d.Pages, d.PausedWhen = 0, now
			case period > 0:
				d.Pages, d.PausedWhen = 0, d.PausedWhen+period
			case d.Pause <= d.Pages:
				d.Pause += d.Pages
			}
			return nil
		}
		if nowait {
			return kiocb.AgainThrottle
		}
		if over := pause - longest*jiffy; over > 0 {
			now += min(over, longest*jiffy)
			pause = longest * jiffy
		}
		b.sleep(t, pause)
		d.Pages, d.Pause, d.PausedWhen = 0, next, now+pause
		return nil
	}
}

// sleep ends with the jiffy in which pause, of whole jiffies, has passed. Models schedule_timeout()
// on the timer wheel of Linux 4.8 and later: kernel/time/timer.c:calc_index() puts a timer one
// jiffy after its time, so that it is never early. The host's timers are late by themselves, and
// writers may sleep with the inode locked: a jiffy more costs the real runtime a fifth of what it
// writes.
func (b *BDI) sleep(t *sched.Task, pause int64) {
	since := t.Now()
	end := pause - since%jiffy
	if t.Simulator() != nil {
		end += jiffy
	}
	t.Sleep(time.Duration(max(end, 0)))
	t.Waited(ThrottleClass.ID, ThrottleClass.Name, since)
}

// maxPause is the longest pause, in jiffies, while all pages are dirty or under writeback: about an
// eighth of the time in which the device writes that many. A pause must not outlast the dirty
// pages, or the device idles while the writer, who may hold the inode's lock, sleeps. Models
// wb_max_pause().
func (b *BDI) maxPause(all int64) int64 {
	return min(all/(1+b.bandwidth.Load()/(hzPow2/8))+1, maxPause)
}

// minPause is the shortest pause, in jiffies, that is worth sleeping, and after how many pages the
// task looks at the limits next. Many tasks at once pause less often, and longer: 10 ms more for
// every doubling of them. rate is the task's, limit what it is at the setpoint. Models
// wb_min_pause().
func (b *BDI) minPause(longest, rate, limit int64) (jiffies int64, next int) {
	t := int64(targetPause)
	if hi, lo := bits.Len64(uint64(b.bandwidth.Load())), bits.Len64(uint64(limit)); hi > lo {
		t += int64(hi-lo) * 10 * hz / 1024
	}
	t = min(t, 1+longest/2)
	pages := limit * t / hzPow2
	if pages < defaultPollPages {
		t = longest
		if pages = limit * t / hzPow2; pages > defaultPollPages {
			pages, t = defaultPollPages, hz*defaultPollPages/limit
		}
	}
	if hz*pages/(rate+1) > longest {
		t = longest
		pages = rate * t / hzPow2
	}
	next = int(max(pages, 1))
	if pages >= defaultPollPages {
		return 1 + t/2, next
	}
	return t, next
}

// Event is for reports of who waits for the flusher.
func (b *BDI) Event() (name, verb string) { return "fewer dirty pages", "write back" }

func (b *BDI) waitBelowHard(t *sched.Task) {
	b.waiters.Add(1)
	if b.wake != nil {
		b.wake(t) // once more, now that Waiting says so
	}
	b.throttled.WaitFor(t, b, func() bool { return b.Dirty.Load()+b.Writeback.Load() < b.hard.Load() })
	b.waiters.Add(-1)
}

// pollPages is how many pages a task may dirty before it looks again, when room pages are left to
// the limit: the root of it, so that many tasks together cannot overshoot far. Models
// dirty_poll_interval().
func pollPages(room int64) int {
	if room <= 0 {
		return 1
	}
	return min(max(1<<((bits.Len64(uint64(room))-1)/2), 8), maxPollPages)
}

const ratioShift = 10

// posRatio is 1 at the middle of [freerun, hard], up to 2 below it and down to 0 at hard, flat in
// the middle and steep at the ends; scaled by 1 << ratioShift. Models pos_ratio_polynom().
func posRatio(dirty, freerun, hard int64) int64 {
	if dirty >= hard {
		return 0
	}
	setpoint := (freerun + hard) / 2
	x := (setpoint - dirty) << ratioShift / max(hard-setpoint, 1)
	r := x * x >> ratioShift * x >> ratioShift
	return min(max(r+1<<ratioShift, 0), 2<<ratioShift)
}

// minChunkPages models MIN_WRITEBACK_PAGES.
const minChunkPages = 1024

// ChunkPages is how many pages the flusher writes of one file before it turns to the next and looks
// at the limits again: what the device takes in half a second, at most an eighth of the hard limit,
// and from there on to the next multiple of minChunkPages. Models writeback_chunk_size().
func (b *BDI) ChunkPages() int {
	n := min(b.bandwidth.Load()/2, b.hard.Load()/8)
	return int((n + minChunkPages) / minChunkPages * minChunkPages)
}

// Measure lets the flusher keep the bandwidth up to date while nobody is throttled, so that the
// first pause is not a guess. Models wb_update_bandwidth() as writeback calls it.
func (b *BDI) Measure(t *sched.Task) { b.estimate(t, t.Now(), 0, 0, 0) }

// estimate measures what the device writes and what tasks dirty, and brings the rate of a task
// nearer to where both are equal. A hard limit of 0 says that no task is being throttled. Models
// wb_update_bandwidth().
func (b *BDI) estimate(t *sched.Task, now, all, freerun, hard int64) {
	if now-b.stampNanos.Load() < bandwidthNanos {
		return
	}
	b.mu.Lock(t)
	defer b.mu.Unlock(t)
	elapsed := now - b.stampNanos.Load()
	if elapsed < bandwidthNanos {
		return
	}
	written, dirtied := b.writtenPages.Load(), b.dirtiedPages.Load()
	if elapsed < int64(time.Second) {
		if hard > 0 {
			b.updateRate((dirtied-b.stampDirty)*int64(time.Second)/elapsed, all, freerun, hard)
		}
		b.updateBandwidth(written-b.stampWritten, elapsed/jiffy)
		if hard == 0 && !b.above.Load() {
			b.rate.Store(max(b.rate.Load(), b.bandwidth.Load()/4))
		}
	}
	b.stampDirty, b.stampWritten = dirtied, written
	b.stampNanos.Store(now)
}

// updateBandwidth smooths twice what the device has written in jiffies. Models
// wb_update_write_bandwidth().
func (b *BDI) updateBandwidth(pages, jiffies int64) {
	old, avg := b.writing, b.bandwidth.Load()
	if old == 0 {
		b.writing = pages * hz / jiffies
		b.bandwidth.Store(max(b.writing, 1))
		return
	}
	bw := (pages*hz + old*(bandwidthPeriod-jiffies)) / bandwidthPeriod
	if avg > old && old >= bw {
		avg -= (avg - old) >> 3
	}
	if avg < old && old <= bw {
		avg += (old - avg) >> 3
	}
	b.writing = bw
	b.bandwidth.Store(max(avg, 1))
}

// updateRate moves the rate of a task by a part of the way to the one at which the device, given
// seen pages a second now, would be given as much as it takes: only if both the last rate and this
// one lie that way, and the slower the nearer. Models wb_update_dirty_ratelimit().
func (b *BDI) updateRate(seen, all, freerun, hard int64) {
	limit := b.rate.Load()
	task := limit*posRatio(all, freerun, hard)>>ratioShift + 1
	bw := b.bandwidth.Load()
	balanced := min(task*bw/max(seen, 1), bw)
	step := int64(0)
	if all < (freerun+hard)/2 {
		step = max(min(b.balanced, balanced, task)-limit, 0)
	} else {
		step = max(limit-max(b.balanced, balanced, task), 0)
	}
	if shift := limit / (2*step + 1); shift < 64 {
		step = (step>>shift + 7) / 8
		if limit < balanced {
			limit += step
		} else {
			limit -= step
		}
	}
	b.rate.Store(max(limit, 1))
	b.balanced = balanced
}
