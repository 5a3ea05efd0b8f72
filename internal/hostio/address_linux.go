package hostio

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// AddressSpace is the bytes of addresses that this process has, and may have: RLIMIT_AS, which
// ulimit -v sets. Ok is false if there is no limit.
func AddressSpace() (used, limit int64, ok bool) {
	var r unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_AS, &r); err != nil || r.Cur > 1<<62 {
		return 0, 0, false
	}
	b, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		return 0, 0, false
	}
	var pages int64
	if n, _ := fmt.Sscan(string(b), &pages); n != 1 {
		return 0, 0, false
	}
	return pages * int64(os.Getpagesize()), int64(r.Cur), true
}
