package fs

import (
	"errors"
	"fmt"
	"io"
	"math"

	"btrlab/internal/blockdev"
	"btrlab/internal/data/extentmap"
	"btrlab/internal/errno"
	"btrlab/internal/format"
	"btrlab/internal/lock/extentio"
	"btrlab/internal/sched"
)

// SeekData finds the first run of data [start, end) at or after off, so that a copy can leave the
// holes out: they read as zeros. io.EOF means that only a hole is left. Space that is preallocated
// and not written counts as a hole. EIO when the inode is longer than its extents and the image
// keeps an item for each hole (no NO_HOLES): the size is damaged.
//
// Models find_desired_extent().
func (f *File) SeekData(t *sched.Task, off int64) (start, end int64, err error) {
	if off < 0 {
		return 0, 0, f.opError("seek", off, 0, errno.EINVAL)
	}
	ip := f.n.ip
	for at := uint64(off); ; {
		size := ip.Size(t)
		if at >= size {
			return 0, 0, io.EOF
		}
		m, err := f.mapAt(t, at, format.AlignUp(size, format.SectorSize))
		if err != nil {
			return 0, 0, f.opError("seek", int64(at), 0, err)
		}
		if m.Kind == extentmap.Regular || m.Kind == extentmap.Inline {
			return int64(at), int64(min(m.End, size)), nil
		}
		at = m.End
	}
}

// SeekHole finds the first hole at or after off, as SeekData knows holes; the end of the file is
// one. io.EOF when off is not inside the file. Models find_desired_extent() for SEEK_HOLE.
func (f *File) SeekHole(t *sched.Task, off int64) (int64, error) {
	if off >= f.Size(t) {
		return 0, io.EOF
	}
	for {
		start, end, err := f.SeekData(t, off)
		switch {
		case errors.Is(err, io.EOF), err == nil && start > off:
			return min(off, f.Size(t)), nil
		case err != nil:
			return 0, err
		}
		off = end
	}
}

// Lies finds where the bytes from off on, a multiple of the sector size, lie on a device, n of them
// in one piece. It says no for what lies on none as it is read: a hole, inline or compressed data,
// what is not written back, and data of which there is another copy or parity. What it says holds
// as long as nobody writes to the file.
func (f *File) Lies(t *sched.Task, off int64) (dev blockdev.Device, at, n int64, ok bool) {
	m, err := f.mapAt(t, uint64(off), math.MaxUint64)
	if err != nil || m.Kind != extentmap.Regular || m.DiskBytenr == 0 || m.Compression != 0 {
		return nil, 0, 0, false
	}
	d, at, k, ok := f.fs.vols.Single(m.Bytenr(uint64(off)))
	if !ok {
		return nil, 0, 0, false
	}
	return d.Device, at, int64(min(k, m.End-uint64(off))), true
}

// mapAt is the extent at off, a multiple of the sector size or not, in a file that ends at end. A
// hole or a preallocated extent ends where delayed allocation begins, which comes back as Regular.
func (f *File) mapAt(t *sched.Task, off, end uint64) (extentmap.Map, error) {
	ip := f.n.ip
	start := off &^ (format.SectorSize - 1)
	for {
		// While the range is locked writeback takes no delayed allocation of it: what is not in the
		// tree has a bit.
		if busy := ip.LockUnlessOrdered(t, start, end); busy != nil {
			busy.WaitPut(t)
			continue
		}
		m, err := f.fs.read.Place.At(t, ip, off)
		if err == nil && (m.Kind == extentmap.Hole || m.Kind == extentmap.Prealloc) {
			switch from, to, ok := ip.IOTree.FirstSet(t, start, extentio.Delalloc); {
			case !ok || from >= min(m.End, end):
			case from > off: // a hole until there
				m.End = from
			default:
				m.Kind, m.End = extentmap.Regular, min(m.End, to)
			}
		}
		ip.IOTree.Unlock(t, start, end)
		if err == nil && m.Kind == extentmap.Hole && m.End == math.MaxUint64 && !f.fs.noHoles(t) {
			err = fmt.Errorf("corrupt inode: root=%d ino=%d, bad size, have %d want at most %d: %w", ip.Root.ID, ip.Ino, ip.Size(t), off, errno.EIO)
		}
		return m, err
	}
}

// noHoles reports whether a range without a file extent item is a hole, and no damage.
func (f *FS) noHoles(t *sched.Task) bool {
	return f.trans.Super(t).IncompatFlags&format.IncompatNoHoles != 0
}
