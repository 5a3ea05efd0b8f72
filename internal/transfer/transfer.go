// Package transfer copies trees of files between the host and an image: contents with their holes,
// hard links, symbolic links, directories, devices, pipes and sockets, with owners, modes, times,
// extended attributes and the flags of chattr(1).
//
// The normal case of a tree into an image:
//
//	In.Tree -> entry -> dir       Mkdir, each entry of it, then attrs
//	                 -> file      Create, the runs of data (nextData), then attrs
//	                 -> link      a file of the host that has gone in under another name
//
// Out is the same the other way round, into subvolumes as well. Both go on after what concerns one
// object: a file of the host that cannot be read, a name that the image refuses, a file of a
// damaged image, whose rest may be all that can be saved, a link, a device, an owner or an
// attribute that the host refuses. It is reported, and removed where a part of it was made. A
// destination that takes nothing more ends the transfer (exhausted); Out ends at the host's other
// errors as well. What was copied before stays.
//
// Receive and Send are the same for subvolumes and the streams of btrfs send (receive.go, send.go).
//
// Setuid, setgid and capabilities are not copied when the owner is not (keep.go). Out follows no
// symbolic link in the directory that it fills (place.go).
package transfer

import (
	"errors"
	"io"
	iofs "io/fs"
	"os"
	gopath "path"
	"path/filepath"
	"syscall"

	"btrlab/internal/errno"
	"btrlab/internal/format"
	"btrlab/internal/fs"
	"btrlab/internal/sched"
)

const chunk = 1 << 20 // bytes per read or write

// Watcher is told of the progress of a transfer.
type Watcher interface {
	// Begin is called before each object, with its name at the destination, how many objects have
	// begun, and how many are known to be there so far.
	Begin(name string, begun, known uint64)
	// LeaveOut is told of each object that is not copied.
	LeaveOut(x LeftOut)
	// Stop is asked before each object and each chunk of data; its error, such as that of an
	// interrupt, ends the transfer.
	Stop() error
}

// LeftOut is an object that is not copied: one that cannot be read, or that the host refuses, a
// snapshot, or what Keep leaves out. With Err it may be a part of it that is not: an owner, an
// attribute.
type LeftOut struct {
	Name     string // at the source
	Err      error  // why it cannot be read or made, or nil
	Snapshot bool
	Mode     uint32 // S_IFMT and permissions of the others
}

// exhausted reports whether an error says that a destination takes nothing more, rather than that
// it does not take this one object: an image, or the host, which may have numbers of its own.
func exhausted(err error) bool {
	for _, e := range []error{errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EROFS, syscall.ENOSPC, syscall.EDQUOT, syscall.EIO, syscall.EROFS} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// unreadable is an error of one object that is left out.
type unreadable struct{ err error }

func (e *unreadable) Error() string { return e.err.Error() }
func (e *unreadable) Unwrap() error { return e.err }

// count says how many objects have begun and are known.
type count struct {
	w            Watcher
	begun, known uint64
	fake         *Fakeroot // what fakeroot says of the host's files, or nil
}

// next begins an object.
func (c *count) next(name string) error {
	if err := c.w.Stop(); err != nil {
		return err
	}
	c.begun++
	c.known = max(c.known, c.begun)
	c.w.Begin(name, c.begun, c.known)
	return nil
}

// each calls do for the entries of the directory dir of the host, rel below its source, that x does
// not exclude. What do cannot copy is left out.
func (c *count) each(list []iofs.DirEntry, dir, rel string, x Exclude, do func(from, below string, st iofs.FileInfo) error) error {
	for _, e := range list {
		from, below := filepath.Join(dir, e.Name()), gopath.Join(rel, e.Name())
		if x.Has(below) {
			continue
		}
		st, err := e.Info()
		if err == nil {
			err = do(from, below, c.faked(from, st))
		}
		if err := c.leave(from, err); err != nil {
			return err
		}
	}
	return nil
}

// faked is the file from of the host as fakeroot has it.
func (c *count) faked(from string, st iofs.FileInfo) iofs.FileInfo {
	return c.fake.of(st, func(err error) { c.w.LeaveOut(LeftOut{Name: from, Err: err}) })
}

// omits reports whether src is special and left out; the image that is written is an error.
func (c *count) omits(src string, st iofs.FileInfo, keep Keep, image os.FileInfo) (bool, error) {
	switch mode := st.Mode(); {
	case mode.IsRegular() && image != nil && os.SameFile(realInfo(st), image):
		return false, &unreadable{errIsImage}
	case !keep.Special && mode.Type()&^(os.ModeDir|os.ModeSymlink) != 0:
		c.w.LeaveOut(LeftOut{Name: src, Mode: imageMode(mode)})
		return true, nil
	}
	return false, nil
}

// leave reports an object of the host that cannot be read, or that the image refuses; any other
// error comes back, and what says that the image takes nothing more.
func (c *count) leave(name string, err error) error {
	var u *unreadable
	var host *iofs.PathError
	var refused errno.Errno
	switch {
	case errors.As(err, &u):
		err = u.err
	case errors.As(err, &host):
	case exhausted(err) || !errors.As(err, &refused):
		return err
	}
	c.w.LeaveOut(LeftOut{Name: name, Err: err})
	return nil
}

// Write copies all of r to f, from offset off on.
func Write(t *sched.Task, w Watcher, f *fs.File, r io.Reader, off int64) error {
	return write(t, w, f, r, off, make([]byte, chunk))
}

func write(t *sched.Task, w Watcher, f *fs.File, r io.Reader, off int64, buf []byte) error {
	for {
		if err := w.Stop(); err != nil {
			return err
		}
		n, err := io.ReadFull(r, buf)
		if n > 0 {
			k, werr := f.WriteAt(t, buf[:n], off)
			if werr != nil {
				return werr
			}
			off += int64(k)
		}
		if errors.Is(err, io.EOF) || err == io.ErrUnexpectedEOF {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// skipper is a writer that can leave a run of zeros out.
type skipper interface{ skip(n int64) }

// zeros are the bytes of a hole, many blocks of them.
var zeros [chunk / 4]byte

// Read copies all of f to out. The file's holes are not read: out gets zeros for them.
func Read(t *sched.Task, w Watcher, f *fs.File, out io.Writer) error {
	return read(t, w, f, out, make([]byte, min(chunk, format.AlignUp(max(uint64(f.Size(t)), 1), format.SectorSize))))
}

// read is Read through buf, which is whole sectors. Nothing is read twice, so it does not go
// through the page cache.
func read(t *sched.Task, w Watcher, f *fs.File, out io.Writer, buf []byte) error {
	for off := int64(0); ; {
		start, end, err := f.SeekData(t, off)
		if errors.Is(err, io.EOF) {
			return hole(w, out, f.Size(t)-off)
		}
		if err != nil {
			return err
		}
		if err := hole(w, out, start-off); err != nil {
			return err
		}
		for off = start; off < end; {
			if err := w.Stop(); err != nil {
				return err
			}
			want := format.AlignUp(uint64(min(int64(len(buf)), end-off)), format.SectorSize)
			n, err := f.ReadDirect(t, buf[:want], off)
			if n = min(n, int(end-off)); n > 0 {
				if _, werr := out.Write(buf[:n]); werr != nil {
					return werr
				}
				off += int64(n)
			}
			if errors.Is(err, io.EOF) || err == nil && n == 0 {
				return nil
			}
			if err != nil {
				return err
			}
		}
	}
}

// hole gives out n bytes of zeros.
func hole(w Watcher, out io.Writer, n int64) error {
	if s, ok := out.(skipper); ok {
		s.skip(n)
		return nil
	}
	for n > 0 {
		if err := w.Stop(); err != nil {
			return err
		}
		m, err := out.Write(zeros[:min(n, int64(len(zeros)))])
		if err != nil {
			return err
		}
		n -= int64(m)
	}
	return nil
}
