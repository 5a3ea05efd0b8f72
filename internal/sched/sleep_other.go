//go:build !linux

package sched

import "time"

// sleepReal sleeps for d, and as much longer as the host's timers are late.
func sleepReal(d time.Duration) { time.Sleep(d) }
