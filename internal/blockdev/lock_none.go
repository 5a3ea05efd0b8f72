//go:build !unix && !windows

package blockdev

import (
	"os"
	"syscall"
)

// lockFile does nothing: under js there is one process.
func lockFile(*os.File, bool) error { return nil }

func isFull(no syscall.Errno) bool { return no == syscall.ENOSPC }
