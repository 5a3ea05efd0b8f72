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
	defaultPollPages = 32                     // a task looks at the limits every so many pages, far from them
	maxPollPages     = 4096                   //
	bandwidthNanos   = 50 * int64(1e6)        // how often the rates are estimated; the kernel: 200 ms
	targetPause      = 10 * time.Millisecond  // the pause a throttled task should get
	maxPause         = 200 * time.Millisecond // the longest single pause; see BDI.maxPause
	initRate         = 100 << 20 >> PageShift // pages per second before anything is known
)

// BDI is the dirty accounting of one file system: how many pages wait for writeback, how fast the device
// takes them, and how fast a writer may go. All counts are pages.
//
// Models struct bdi_writeback with global_dirty_limits, balance_dirty_pages() and wb_update_bandwidth().
// Differences: one device, so the global and the device's limits are one; rates are estimated every 50 ms; a task over the
// hard limit waits for writeback to get below it, where the kernel polls every 200 ms.
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
	exceeded  atomic.Bool // over the hard limit: tasks look every few pages. Models wb->dirty_exceeded
	wake      func(t *sched.Task)

	// rate is the pages per second that one throttled task may dirty, bandwidth what the device writes.
	rate       atomic.Int64
	bandwidth  atomic.Int64
	stampNanos atomic.Int64 // of the last estimate; changes under mu

	mu           lock.Mutex // leaf; protects the fields below
	list         []*Mapping // mappings that have, or had not long ago, dirty pages
	stampDirty   int64      // dirtiedPages at the stamp
	stampWritten int64
}

func (b *BDI) init(background, hard int64) {
	b.mu.Init(classBDI)
	b.throttled.Init(ThrottleClass)
	b.rate.Store(initRate)
	b.bandwidth.Store(initRate)
	b.SetLimits(background, hard)
}

// SetLimits sets the dirty limits in bytes; hard is made at least 16 pages and background lower than hard.
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

// Waiting reports whether some task waits for dirty pages to get below the hard limit: background writeback must not give up then.
func (b *BDI) Waiting() bool { return b.waiters.Load() > 0 }

// OverBackground reports whether background writeback has something to do.
func (b *BDI) OverBackground() bool { return b.Dirty.Load() > b.background.Load() }

func (b *BDI) dirtied(t *sched.Task, m *Mapping) {
	n := b.Dirty.Add(1)
	if b.waiters.Load() > 0 && n > b.background.Load() && b.wake != nil {
		// The flusher may have gone to sleep below the background limit while some task still waited for writeback to end.
		// This page and those of other tasks that have not come to balance yet can keep that task above the hard limit, and
		// it may hold what they need to get there: its range, or the inode.
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
		// The mark goes first: a page dirtied after the count was read finds it gone and puts the mapping
		// back on the list once we let go of mu.
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

// undirtied says that a page is not dirty any more. If it is not going to be written, this may be all that gets the
// count below the limit.
func (b *BDI) undirtied(t *sched.Task) {
	if b.waiters.Load() > 0 && b.Writeback.Load()+b.Dirty.Load() < b.hard.Load() {
		b.throttled.Wake(t)
	}
}

// BatchPages is how many pages a writer should dirty before it looks at the limits again, at least 8 and at most
// most: the nr_dirtied_pause term of a buffered write's batch (labs/reference 1.1 a).
func (b *BDI) BatchPages(t *sched.Task, most int) int {
	pause := t.Dirty.Pause
	if pause == 0 {
		pause = defaultPollPages
	}
	return max(min(most, pause-t.Dirty.Pages), 8)
}

// BalanceDirty slows the task down when too much is dirty; call it after each batch, with no page and no range
// locked. Models balance_dirty_pages_ratelimited().
func (b *BDI) BalanceDirty(t *sched.Task) {
	if b.due(t) {
		_ = b.balance(t, false) // an error is for those that do not sleep
	}
}

// TryBalanceDirty is BalanceDirty that says EAGAIN where it would sleep. Models balance_dirty_pages_ratelimited_flags() with BDP_ASYNC.
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
	return t.Dirty.Pages >= pause
}

// balance is the slow path. Models balance_dirty_pages().
func (b *BDI) balance(t *sched.Task, nowait bool) error {
	d := &t.Dirty
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
		b.estimate(t, now, ratio)
		rate := b.rate.Load() * ratio >> ratioShift
		if rate <= 0 {
			if nowait {
				return kiocb.AgainThrottle
			}
			b.waitBelowHard(t)
			d.Pages, d.PausedWhen = 0, t.Now()
			return nil
		}
		period := int64(d.Pages) * int64(time.Second) / rate
		if d.PausedWhen == 0 {
			d.PausedWhen = now
		}
		pause := d.PausedWhen + period - now
		next := int(min(max(rate*int64(targetPause)/int64(time.Second), 8), maxPollPages))
		if pause < int64(targetPause)/2 {
			// Too short to sleep: what is owed counts with the next pages. So does what the task has waited elsewhere, a stable
			// page say, up to a second of it.
			d.PausedWhen += period
			if pause < -int64(time.Second) {
				d.PausedWhen = now
			}
			d.Pages, d.Pause = 0, next
			return nil
		}
		if nowait {
			return kiocb.AgainThrottle
		}
		pause = min(pause, b.maxPause(all))
		t.Sleep(time.Duration(pause))
		t.Waited(ThrottleClass.ID, ThrottleClass.Name, now)
		d.Pages, d.Pause = 0, next
		d.PausedWhen = t.Now()
		if b.Dirty.Load()+b.Writeback.Load() < hard {
			return nil
		}
	}
}

// maxPause is the longest pause, in nanoseconds, while all pages are dirty or under writeback: about an eighth of the time in which the
// device writes that many. A pause must not outlast the dirty pages, or the device idles while the writer, who may hold the inode's
// lock, sleeps. Models wb_max_pause().
func (b *BDI) maxPause(all int64) int64 {
	ms := all/(1+b.bandwidth.Load()/128) + 1
	return min(ms*int64(time.Millisecond), int64(maxPause))
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
// the limit: the root of it, so that many tasks together cannot overshoot far. Models dirty_poll_interval().
func pollPages(room int64) int {
	if room <= 0 {
		return 1
	}
	return min(max(1<<((bits.Len64(uint64(room))-1)/2), 8), maxPollPages)
}

const ratioShift = 10

// posRatio is 1 at the middle of [freerun, hard], up to 2 below it and down to 0 at hard, flat in the middle
// and steep at the ends; scaled by 1 << ratioShift. Models pos_ratio_polynom().
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

// ChunkPages is how many pages the flusher writes of one file before it turns to the next and looks at the limits again: what the
// device takes in half a second, at most an eighth of the hard limit, and from there on to the next multiple of minChunkPages. Models
// writeback_chunk_size().
func (b *BDI) ChunkPages() int {
	n := min(b.bandwidth.Load()/2, b.hard.Load()/8)
	return int((n + minChunkPages) / minChunkPages * minChunkPages)
}

// Measure lets the flusher keep the bandwidth up to date while nobody is throttled, so that the first pause is not a guess.
// Models wb_update_bandwidth() as writeback calls it.
func (b *BDI) Measure(t *sched.Task) { b.estimate(t, t.Now(), 0) }

// estimate measures what the device writes and what tasks dirty, and sets the rate of a task so that both become equal. A ratio of 0
// says that no task is being throttled. Models wb_update_bandwidth() and wb_update_dirty_ratelimit().
func (b *BDI) estimate(t *sched.Task, now, ratio int64) {
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
		bw := (written - b.stampWritten) * int64(time.Second) / elapsed
		seen := max((dirtied-b.stampDirty)*int64(time.Second)/elapsed, 1)
		bw = max((b.bandwidth.Load()+bw)/2, 1)
		b.bandwidth.Store(bw)
		rate := b.rate.Load()
		switch {
		case ratio > 0:
			// With all tasks at this rate the device was given seen; it can take bw.
			task := rate * ratio >> ratioShift
			b.rate.Store(max((rate+min(task*bw/seen, bw))/2, 16))
		case !b.above.Load():
			b.rate.Store(max(rate, bw))
		}
	}
	b.stampDirty, b.stampWritten = dirtied, written
	b.stampNanos.Store(now)
}
