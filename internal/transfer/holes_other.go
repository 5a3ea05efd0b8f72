//go:build !linux

package transfer

import "os"

// nextData does not see holes here: they are copied as zeros.
func nextData(_ *os.File, off, size int64) (start, end int64, err error) { return off, size, nil }
