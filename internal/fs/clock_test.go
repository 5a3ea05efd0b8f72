package fs

import (
	"testing"
	"time"
)

// The time of an inode comes from the monotonic clock, and a clock that was set is seen after a second.
func TestWallClock(t *testing.T) {
	c := new(wallClock)
	before := time.Now()
	if now := c.now(); now.Before(before) || time.Now().Before(now) {
		t.Errorf("the first reading is %v, asked after %v", now, before)
	}
	// An hour ahead by both clocks: not read again, however slow this machine is.
	ahead := time.Now().Add(time.Hour)
	c.read.Store(&ahead)
	before = time.Now()
	if now := c.now(); now.Before(before) || time.Now().Before(now) || c.read.Load() != &ahead {
		t.Errorf("have %v, asked after %v; read again: %v", now, before, c.read.Load() != &ahead)
	}
	old := time.Now().Add(-2 * wallClockMax)
	c.read.Store(&old)
	before = time.Now()
	if now := c.now(); now.Before(before) || time.Now().Before(now) || c.read.Load() == &old {
		t.Errorf("have %v, asked after %v; read again: %v", now, before, c.read.Load() != &old)
	}
}
