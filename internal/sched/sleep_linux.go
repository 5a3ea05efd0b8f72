package sched

import (
	"syscall"
	"time"
)

// sleepReal sleeps for d. time.Sleep is up to a millisecond late in an idle process, because the
// poller counts in milliseconds; nanosleep, for short times, is about 70 us late.
func sleepReal(d time.Duration) {
	if d > 2*time.Millisecond {
		time.Sleep(d)
		return
	}
	ts := syscall.NsecToTimespec(int64(d))
	for d > 0 && syscall.Nanosleep(&ts, &ts) == syscall.EINTR {
	}
}
