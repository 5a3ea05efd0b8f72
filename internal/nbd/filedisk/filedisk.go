// Package filedisk makes a file of an image a disk that package nbd serves: each request is an
// operation of the engine, under its policy.
package filedisk

import (
	"errors"
	"io"

	"btrlab/internal/fs"
	"btrlab/internal/nbd"
	"btrlab/internal/sched"
)

// Disk is a file of an image as a disk. Its size stays what it was when it was made.
type Disk struct {
	f    *fs.File
	size int64
}

// New makes the file a disk; the caller closes it.
func New(t *sched.Task, f *fs.File) *Disk { return &Disk{f, f.Size(t)} }

// Size is in bytes.
func (d *Disk) Size() int64 { return d.size }

// ReadAt fills p from off on.
func (d *Disk) ReadAt(t *sched.Task, p []byte, off int64) error {
	n, err := d.f.ReadAt(t, p, off)
	if n == len(p) {
		return nil
	}
	return err
}

// WriteAt writes p at off, through the page cache.
func (d *Disk) WriteAt(t *sched.Task, p []byte, off int64) error {
	_, err := d.f.WriteAt(t, p, off)
	return err
}

// Flush is an fsync.
func (d *Disk) Flush(t *sched.Task) error { return d.f.Fsync(t) }

// Trim punches a hole.
func (d *Disk) Trim(t *sched.Task, off, n int64) error { return d.Zero(t, off, n, true) }

// Zero makes the bytes zeros, with a hole or with space that is reserved.
func (d *Disk) Zero(t *sched.Task, off, n int64, hole bool) error {
	mode := uint32(fs.FALLOC_FL_ZERO_RANGE)
	if hole {
		mode = fs.FALLOC_FL_PUNCH_HOLE
	}
	return d.f.Fallocate(t, mode|fs.FALLOC_FL_KEEP_SIZE, off, n)
}

// Extents shows space that is reserved and not written as a hole, as SeekData does.
func (d *Disk) Extents(t *sched.Task, off, n int64, f func(n int64, s nbd.State) bool) error {
	for end := off + n; off < end; {
		start, stop, err := d.f.SeekData(t, off)
		switch {
		case errors.Is(err, io.EOF):
			start, stop = end, end
		case err != nil:
			return err
		}
		start, stop = min(start, end), min(stop, end)
		if start > off && !f(start-off, nbd.Hole|nbd.Zeros) || stop > start && !f(stop-start, 0) {
			break
		}
		off = stop
	}
	return nil
}
