package sched

import (
	"sync/atomic"
	"time"
)

// CoarseClock is time.Now as of the last tick. The zero value is ready. It is the host's clock, for
// the real runtime, and costs one reading of the monotonic clock, where time.Now reads two. A timer
// that ticked would cost a load only, but it wakes a thread every 4 ms while all processors write,
// and the system lets that one run in the place of a writer. Models
// kernel/time/timekeeping.c:ktime_get_coarse_real_ts64().
type CoarseClock struct{ read atomic.Pointer[time.Time] }

// coarseTick is the time for which one reading of the clock is good, as with CONFIG_HZ=250.
const coarseTick = 4 * time.Millisecond

// Now is the time of the last tick. Any number of tasks may call it at once.
func (c *CoarseClock) Now() time.Time {
	if last := c.read.Load(); last != nil && time.Since(*last) < coarseTick {
		return *last
	}
	now := time.Now()
	c.read.Store(&now)
	return now
}
