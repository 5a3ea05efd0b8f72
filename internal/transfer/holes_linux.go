package transfer

import (
	"errors"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// nextData is the first run of data of f at or after off; io.EOF when only a hole is left. A file
// system that does not tell its holes has one run, up to size.
func nextData(f *os.File, off, size int64) (start, end int64, err error) {
	return nextDataOf(int(f.Fd()), off, size)
}

// nextDataOf is nextData of a descriptor.
func nextDataOf(fd int, off, size int64) (start, end int64, err error) {
	start, err = unix.Seek(fd, off, unix.SEEK_DATA)
	if errors.Is(err, unix.ENXIO) {
		return 0, 0, io.EOF
	}
	if err != nil {
		return off, size, nil
	}
	end, err = unix.Seek(fd, start, unix.SEEK_HOLE)
	return start, min(end, size), err
}
