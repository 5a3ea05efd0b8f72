package transfer

import (
	"errors"
	"fmt"
	"io"
	iofs "io/fs"

	"btrlab/internal/progs/image"

	"golang.org/x/sys/unix"

	"btrlab/internal/format"
	"btrlab/internal/progs/mkfs"
)

// hostOpener opens what Scan has listed: relative to the directory, which is open for its files,
// and by calls of the kernel, because os.Open has a look at each file for its poller.
type hostOpener struct {
	keep Keep
	dir  *mkfs.Entry
	fd   int // of dir
}

func (o *hostOpener) Close() {
	if o.dir != nil {
		unix.Close(o.fd)
		o.dir = nil
	}
}

// at makes the directory of e the open one, and returns the path from there.
func (o *hostOpener) at(e *mkfs.Entry) (fd int, name string, err error) {
	if from, ok := fromHost(e); ok {
		return unix.AT_FDCWD, from.path, nil
	}
	d := e.Parent()
	if o.dir != d {
		o.Close()
		path := hostPath(d)
		o.fd, err = unix.Open(path, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		if err != nil {
			return 0, "", &iofs.PathError{Op: "open", Path: path, Err: err}
		}
		o.dir = d
	}
	return o.fd, e.Name, nil
}

func (o *hostOpener) Open(e *mkfs.Entry) (mkfs.Object, error) {
	if p, err := openElsewhere(e); p != nil || err != nil {
		return p, err
	}
	dir, name, err := o.at(e)
	if err != nil {
		return nil, err
	}
	h := &hostObject{e: e, keep: o.keep, fd: -1}
	switch e.Mode & format.S_IFMT {
	case format.S_IFREG, format.S_IFDIR:
	default:
		// Nothing is opened: a device or a pipe may do something then.
		h.path = name
		if dir != unix.AT_FDCWD {
			h.path = fmt.Sprintf("/proc/self/fd/%d/%s", dir, name)
		}
		return h, nil
	}
	flags := unix.O_RDONLY | unix.O_NONBLOCK | unix.O_CLOEXEC
	from, named := fromHost(e)
	if from.bare {
		h.keep = Keep{}
	}
	if !named || !from.follow {
		flags |= unix.O_NOFOLLOW
	}
	h.fd, err = unix.Openat(dir, name, flags, 0)
	if err != nil {
		return nil, &iofs.PathError{Op: "open", Path: hostPath(e), Err: err}
	}
	return h, nil
}

// hostObject is an open file or directory, or the path of another inode.
type hostObject struct {
	e    *mkfs.Entry
	keep Keep
	fd   int
	path string
}

func (h *hostObject) err(op string, err error) error {
	if err == nil {
		return nil
	}
	return &iofs.PathError{Op: op, Path: hostPath(h.e), Err: err}
}

func (h *hostObject) Attrs() ([]image.Xattr, uint64, error) {
	var list []image.Xattr
	var flags uint64
	var err error
	if h.keep.Xattrs {
		if h.fd < 0 {
			list, err = readXattrs(h.path)
		} else {
			list, err = xattrsOf(h.fd)
		}
		if err != nil {
			return nil, 0, h.err("read extended attributes", err)
		}
	}
	if h.keep.Flags && h.fd >= 0 {
		if flags, err = flagsOf(h.fd); err != nil {
			return nil, 0, h.err("read flags", err)
		}
	}
	attrs, flags := kept(h.e, list, flags)
	return attrs, flags, nil
}

func (h *hostObject) Size() (int64, error) {
	var st unix.Stat_t
	err := unix.Fstat(h.fd, &st)
	if err == nil && st.Mode&unix.S_IFMT != unix.S_IFREG {
		return 0, h.err("read", errors.New("is no file any more"))
	}
	return st.Size, h.err("stat", err)
}

func (h *hostObject) NextData(off, size int64) (start, end int64, err error) {
	return nextDataOf(h.fd, off, size)
}

// ReadAt fills p, or up to the end of the file.
func (h *hostObject) ReadAt(p []byte, off int64) (n int, err error) {
	for n < len(p) {
		k, err := unix.Pread(h.fd, p[n:], off+int64(n))
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return n, h.err("read", err)
		}
		if k == 0 {
			return n, io.EOF
		}
		n += k
		if n < len(p) && off+int64(n) == h.e.Size {
			return n, io.EOF // as long as it was listed: no further question
		}
	}
	return n, nil
}

func (h *hostObject) Close() error {
	if h.fd < 0 {
		return nil
	}
	return unix.Close(h.fd)
}
