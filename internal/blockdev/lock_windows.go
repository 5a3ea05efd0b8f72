package blockdev

import (
	"fmt"
	"os"
	"syscall"

	"golang.org/x/sys/windows"
)

// lockFile keeps other processes away until f is closed: all, or those that write. Windows refuses
// reads and writes of locked bytes, so the byte that is locked lies beyond every image.
func lockFile(f *os.File, exclusive bool) error {
	how := uint32(windows.LOCKFILE_FAIL_IMMEDIATELY)
	if exclusive {
		how |= windows.LOCKFILE_EXCLUSIVE_LOCK
	}
	at := windows.Overlapped{OffsetHigh: 1 << 30}
	err := windows.LockFileEx(windows.Handle(f.Fd()), how, 0, 1, 0, &at)
	if err == windows.ERROR_LOCK_VIOLATION {
		return fmt.Errorf("%w: locked by another process", ErrInUse)
	}
	if err != nil {
		return fmt.Errorf("LockFileEx: %w", err)
	}
	return nil
}

func isFull(no syscall.Errno) bool {
	return no == windows.ERROR_DISK_FULL || no == windows.ERROR_HANDLE_DISK_FULL
}
