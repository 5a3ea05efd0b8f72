//go:build !linux || portable

package blockdev

import (
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"

	"btrlab/internal/errno"
	"btrlab/internal/sched"
)

// host is this system's part of a File: nothing.
type host struct{}

// clone is Clone from the file of the image: none here.
func (d *File) clone(*os.File, int64, int64, int64) error { return ErrNoClone }

// open opens a regular file and locks it. Devices and O_DIRECT need Linux.
func open(path string, mode int, flags Flags) (*File, error) {
	if flags&Direct != 0 {
		return nil, &os.PathError{Op: "open", Path: path, Err: fmt.Errorf("%w: direct I/O needs Linux", errno.EOPNOTSUPP)}
	}
	f, err := os.OpenFile(path, mode, createMode)
	if err != nil {
		return nil, err
	}
	d := &File{f: f, name: path, flags: flags, spawns: flags&Ring != 0}
	st, err := f.Stat()
	if err == nil && !st.Mode().IsRegular() {
		err = errors.New("not a regular file; devices need Linux")
	}
	if err == nil {
		err = lockFile(f, flags&ReadOnly == 0)
	}
	if err != nil {
		f.Close()
		return nil, &os.PathError{Op: "open", Path: path, Err: err}
	}
	d.size = st.Size()
	return d, nil
}

// mounted is always empty: other systems do not mount these images.
func (d *File) mounted() string { return "" }

// sync makes what was written durable.
func (d *File) sync() error { return answer(d.f.Sync()) }

// NoRing says that no File has a ring.
func NoRing() error { return errors.New("a ring of the device needs Linux") }

// queue leaves every bio to do: there is no ring.
func (d *File) queue(*sched.Task, *Bio) bool { return false }

func (d *File) stop() {}

// direct is not reached: open refuses Direct.
func (d *File) direct(*sched.Task, *Bio) error { return errno.EOPNOTSUPP }

// transfer moves vecs from or to offset off.
func (d *File) transfer(op Op, vecs [][]byte, off int64) error {
	for _, v := range vecs {
		var err error
		if op == OpRead {
			_, err = d.f.ReadAt(v, off)
		} else {
			_, err = d.f.WriteAt(v, off)
		}
		if err == io.EOF { // the file was cut short under us
			return errno.EIO
		}
		if err != nil {
			return answer(err)
		}
		off += int64(len(v))
	}
	return nil
}

// answer gives the host's error the number that errors.Is finds; its text stays.
func answer(err error) error {
	var no syscall.Errno
	if !errors.As(err, &no) {
		return err
	}
	ours := errno.EIO
	switch {
	case isFull(no):
		ours = errno.ENOSPC
	case errors.Is(no, os.ErrPermission):
		ours = errno.EPERM
	}
	return fmt.Errorf("%w (%v)", ours, err)
}
