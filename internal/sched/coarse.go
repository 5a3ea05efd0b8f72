package sched

import (
	"sync/atomic"
	"time"
)

// CoarseClock is time.Now as of the last tick, for what costs a load. The zero value is ready, and it ticks only while somebody asks. It is
// the host's clock, for the real runtime. Models kernel/time/timekeeping.c:ktime_get_coarse_real_ts64().
type CoarseClock struct{ read atomic.Pointer[time.Time] }

// coarseTick is the time for which one reading of the clock is good, as with CONFIG_HZ=250. On a busy machine the timer may be late.
const coarseTick = 4 * time.Millisecond

// Now is the time of the last tick. Any number of tasks may call it at once.
func (c *CoarseClock) Now() time.Time {
	if last := c.read.Load(); last != nil {
		return *last
	}
	now := time.Now()
	if c.read.CompareAndSwap(nil, &now) {
		time.AfterFunc(coarseTick, func() { c.read.Store(nil) })
	}
	return now
}
