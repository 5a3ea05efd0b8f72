//go:build !unix

package calibrate

import "time"

// cpuTime is not known here: the clock's time is taken.
func cpuTime() time.Duration { return 0 }
