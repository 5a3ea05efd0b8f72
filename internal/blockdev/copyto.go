package blockdev

import (
	"bytes"
	"io"

	"btrlab/internal/sched"
)

// CopyTo writes the bytes of a device that are not zero to w, which has zeroes everywhere.
func CopyTo(t *sched.Task, d Device, w io.WriterAt) error {
	buf, zero := make([]byte, 64<<10), make([]byte, 64<<10)
	for off := int64(0); off < d.Size(); off += int64(len(buf)) {
		part := buf[:min(int64(len(buf)), d.Size()-off)]
		if err := Read(t, d, part, off); err != nil {
			return err
		}
		if bytes.Equal(part, zero[:len(part)]) {
			continue
		}
		if _, err := w.WriteAt(part, off); err != nil {
			return err
		}
	}
	return nil
}
