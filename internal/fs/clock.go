package fs

import (
	"sync/atomic"
	"time"
)

// wallClock is time.Now at half of its price: it reads the monotonic clock only, and the other one once a second, so that it follows a
// clock that was set. A write asks it for its time stamps. Linux takes the time of the last tick there (current_time()).
type wallClock struct{ read atomic.Pointer[time.Time] }

// wallClockMax is the longest time from one reading of the other clock to the next.
const wallClockMax = time.Second

func (c *wallClock) now() time.Time {
	last := c.read.Load()
	if last != nil {
		if d := time.Since(*last); d < wallClockMax {
			return last.Add(d)
		}
	}
	now := time.Now()
	c.read.Store(&now)
	return now
}
