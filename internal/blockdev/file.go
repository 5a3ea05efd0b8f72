package blockdev

import (
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"time"

	"btrlab/internal/errno"
	"btrlab/internal/sched"
)

// Flags say how Open opens.
type Flags uint8

// The flags.
const (
	// ReadOnly refuses writes with EROFS and takes a shared lock only.
	ReadOnly Flags = 1 << iota
	// Direct goes around the host's page cache (O_DIRECT; Linux only). Offsets and lengths must be
	// multiples of the device's logical block; memory that is not aligned is bounced.
	Direct
	// Ring submits through io_uring: Submit returns with the transfer under way. A task that waits
	// for it ends it, or a task of the device's; a Submit may end bios of others. What a ring
	// cannot take is done in Submit. Where there is no io_uring, or the machine forbids it, each
	// transfer has a task of its own. The real runtime only; elsewhere it changes nothing.
	Ring
	// Managed says that whoever called this process may hold the lock of a block device, as udev
	// wants it of managers of devices: it is not taken. O_EXCL claims the device.
	Managed
)

// ErrInUse is in the error of Open when another process has the device open or mounted.
var ErrInUse = errors.New("device is in use")

const createMode = 0o644

// File is a device on an image file or, on Linux, a block device. It completes every bio in Submit,
// with positioned reads and writes and a sync; with Ring, later.
type File struct {
	f     *os.File
	name  string
	size  int64
	flags Flags
	block bool
	// spawns: Ring is wanted and there is no io_uring.
	spawns bool

	taken  atomic.Pointer[error] // why nothing is written any more
	looked atomic.Int64          // when Taken looked last, by the task's clock

	host // what this operating system adds
}

// Open opens an image file or, on Linux, a block device. It locks it, exclusively unless ReadOnly,
// so that two processes never write one image; opening for writing refuses what Linux has mounted.
func Open(path string, flags Flags) (Device, error) {
	// Without this look, the open of a pipe would wait for a writer.
	if st, err := os.Stat(path); err == nil && st.Mode()&os.ModeNamedPipe != 0 {
		return nil, &os.PathError{Op: "open", Path: path, Err: errors.New("a named pipe, want an image file or a block device")}
	}
	mode := os.O_RDWR
	if flags&ReadOnly != 0 {
		mode = os.O_RDONLY
	}
	return open(path, mode, flags)
}

// Create makes a sparse image file of size bytes that reads as zeros. A regular file that is there
// already loses its contents, but only after it is known to be nobody's.
func Create(path string, size int64) (Device, error) {
	if size <= 0 {
		return nil, &os.PathError{Op: "create", Path: path, Err: fmt.Errorf("size %d, want more than 0", size)}
	}
	if st, err := os.Stat(path); err == nil && !st.Mode().IsRegular() {
		return nil, &os.PathError{Op: "create", Path: path, Err: errors.New("not a regular file")}
	}
	_, statErr := os.Lstat(path)
	f, err := open(path, os.O_RDWR|os.O_CREATE, 0)
	if err != nil {
		return nil, err
	}
	if err = f.f.Truncate(0); err == nil {
		err = f.f.Truncate(size)
	}
	if err == nil {
		f.size = size
		return f, nil
	}
	f.Close()
	if os.IsNotExist(statErr) {
		os.Remove(path)
	}
	return nil, &os.PathError{Op: "create", Path: path, Err: err}
}

// Name is the path.
func (d *File) Name() string { return d.name }

// Size is in bytes.
func (d *File) Size() int64 { return d.size }

// ErrNoClone is the error of Clone when what d has cannot be shared with a file.
var ErrNoClone = errors.New("no shared blocks here")

// Clone makes the n bytes of to at offset at share the blocks of d at off, without copying:
// FICLONERANGE. All three are multiples of the block size of the file system that holds both; to
// grows as it needs. The error is ErrNoClone unless d is an image file, or a part of one, on a file
// system that shares blocks, and to is on the same; others are of this to and these bytes: one of
// two files of a btrfs is NOCOW, or has no checksums.
func Clone(to *os.File, at int64, d Device, off, n int64) error {
	for {
		if f, ok := d.(*File); ok && !f.block {
			return f.clone(to, at, off, n)
		}
		s, ok := d.(Shifted)
		if !ok {
			return ErrNoClone
		}
		d, off = s.Under(), off+s.Offset()
	}
}

// IsBlock reports whether the device is a block device rather than a file.
func (d *File) IsBlock() bool { return d.block }

// lookEvery bounds how often writes look whether the image was mounted meanwhile.
const lookEvery = 100 * time.Millisecond

// Taken is ErrInUse once Linux has mounted the image that is open for writing here: a lock keeps no
// loop device away from a file. From then on no write is done.
func (d *File) Taken(t *sched.Task) error {
	if err := d.taken.Load(); err != nil {
		return *err
	}
	if d.flags&ReadOnly != 0 || d.block { // a block device is claimed by O_EXCL
		return nil
	}
	d.looked.Store(t.Now())
	if where := d.mounted(); where != "" {
		err := fmt.Errorf("%w: %s while it was open for writing", ErrInUse, where)
		d.taken.CompareAndSwap(nil, &err)
		return err
	}
	return nil
}

// mayWrite is Taken, asked now and then only.
func (d *File) mayWrite(t *sched.Task) error {
	if d.taken.Load() == nil && t.Now()-d.looked.Load() < int64(lookEvery) {
		return nil
	}
	return d.Taken(t)
}

// Close lets the lock go with the descriptor. It does not flush.
func (d *File) Close() error {
	d.stop()
	return d.f.Close()
}

// Submit does b and ends it, or with Ring, lets it end later.
func (d *File) Submit(t *sched.Task, b *Bio) {
	t.Enter(sched.PointDevice, WaitClass.ID, d)
	if b.Err = d.refuse(t, b); b.Err == nil {
		if d.queue(t, b) {
			return
		}
		if d.spawns && t.Runtime() == nil {
			t.Go("device transfer", func(t *sched.Task) { d.finish(t, b) })
			return
		}
		d.finish(t, b)
		return
	}
	b.EndIO(t, b)
}

// finish does b, waits for it and ends it.
func (d *File) finish(t *sched.Task, b *Bio) {
	b.Err = d.wrap(b.Op.String(), b, d.do(t, b))
	b.EndIO(t, b)
}

// refuse says why b is not done.
func (d *File) refuse(t *sched.Task, b *Bio) error {
	if err := CheckRange(d, b); err != nil {
		return err
	}
	if b.Op == OpWrite {
		if d.flags&ReadOnly != 0 {
			return d.wrap("write", b, errno.EROFS)
		}
		return d.wrap("write", b, d.mayWrite(t))
	}
	return nil
}

// do does b and waits for it.
func (d *File) do(t *sched.Task, b *Bio) error {
	switch {
	case b.Op == OpFlush && d.flags&ReadOnly != 0:
		return nil
	case b.Op == OpFlush:
		return d.sync()
	case d.flags&Direct != 0:
		return d.direct(t, b)
	}
	return d.transfer(b.Op, b.Vecs, b.Off)
}

func (d *File) wrap(op string, b *Bio, err error) error {
	if err == nil {
		return nil
	}
	return &errno.OpError{Op: op, Path: d.name, Off: uint64(b.Off), Len: uint64(b.Len()), Err: err}
}
