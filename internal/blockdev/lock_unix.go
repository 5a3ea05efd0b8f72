//go:build unix && (!linux || portable)

package blockdev

import (
	"fmt"
	"os"
	"syscall"
)

// lockFile keeps other processes away until f is closed: all, or those that write.
func lockFile(f *os.File, exclusive bool) error {
	how := syscall.LOCK_SH | syscall.LOCK_NB
	if exclusive {
		how = syscall.LOCK_EX | syscall.LOCK_NB
	}
	for {
		switch err := syscall.Flock(int(f.Fd()), how); err {
		case nil:
			return nil
		case syscall.EINTR:
		case syscall.EWOULDBLOCK:
			return fmt.Errorf("%w: locked by another process", ErrInUse)
		default:
			return fmt.Errorf("flock: %w", err)
		}
	}
}

func isFull(no syscall.Errno) bool { return no == syscall.ENOSPC }
