package sched

import (
	"testing"
	"testing/synctest"
	"time"
)

// The time is that of the last tick, and a tick comes.
func TestCoarseClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, start := new(CoarseClock), time.Now()
		for _, s := range []struct{ sleep, want time.Duration }{
			{0, 0},
			{coarseTick - 1, 0},
			{2, coarseTick + 1},
			{time.Hour, time.Hour + coarseTick + 1},
			{1, time.Hour + coarseTick + 1},
		} {
			time.Sleep(s.sleep)
			if have := c.Now().Sub(start); have != s.want {
				t.Errorf("at %v: have %v, want %v", time.Since(start), have, s.want)
			}
		}
	})
}
