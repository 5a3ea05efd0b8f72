//go:build !portable

package blockdev

import (
	"errors"

	"golang.org/x/sys/unix"
)

// NextData makes File Sparse: SEEK_DATA of an image file. A block device has data everywhere.
func (d *File) NextData(off int64) int64 {
	if d.block {
		return off
	}
	at, err := unix.Seek(int(d.f.Fd()), off, unix.SEEK_DATA)
	switch {
	case errors.Is(err, unix.ENXIO):
		return d.size
	case err != nil:
		return off
	}
	return at
}
