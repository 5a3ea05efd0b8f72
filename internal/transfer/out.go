package transfer

import (
	"bytes"
	"errors"
	"fmt"
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

// Out copies files of an image to the host.
type Out struct {
	// Snapshots copies snapshots as well, not only the subvolumes that are none. Model: btrfs restore -s.
	Snapshots bool

	t     *sched.Task
	x     *fs.FS
	count count
	links map[inode]string // inodes with several names -> where the first one went
	dirs  map[inode]string // directories that have been begun -> their path in the image
}

// inode names a file of the image.
type inode struct {
	subvol uint64
	ino    format.Ino
}

// NewOut copies from x.
func NewOut(t *sched.Task, x *fs.FS, w Watcher) *Out {
	return &Out{t: t, x: x, count: count{w: w}, links: map[inode]string{}, dirs: map[inode]string{}}
}

// unreadable is an error of one object that is left out: of the image, or a link that the host refuses.
type unreadable struct{ err error }

func (e *unreadable) Error() string { return e.err.Error() }
func (e *unreadable) Unwrap() error { return e.err }

// leave reports an object of the image that cannot be read; any other error comes back.
func (c *Out) leave(path string, err error) error {
	var u *unreadable
	if errors.As(err, &u) {
		c.count.w.LeaveOut(LeftOut{Name: path, Err: u.err})
		return nil
	}
	return err
}

// Tree copies what path names, with everything below a directory, to dest. A symbolic link at path is followed; those below
// are copied. What cannot be read below path is left out, and so is a link that the host refuses; the error is of path itself, or of the host.
func (c *Out) Tree(path, dest string) error {
	at, err := c.x.Stat(c.t, path)
	if err == nil {
		err = c.entry(path, dest, at)
	}
	var u *unreadable
	if errors.As(err, &u) {
		return u.err
	}
	return err
}

func (c *Out) entry(path, dest string, at fs.Attr) error {
	if err := c.count.next(dest); err != nil {
		return err
	}
	switch {
	case at.IsDir():
		return c.dir(path, dest, at)
	case at.IsSymlink():
		target, err := c.x.Readlink(c.t, path)
		if err != nil {
			return &unreadable{err}
		}
		return linkAt(dest, func() error { return os.Symlink(target, dest) })
	case at.IsRegular():
		id := inode{at.Subvol, at.Ino}
		if first, ok := c.links[id]; ok {
			return linkAt(dest, func() error { return os.Link(first, dest) })
		}
		err := c.file(path, dest, at)
		if err == nil && at.Nlink > 1 {
			c.links[id] = dest
		}
		return err
	default:
		c.count.w.LeaveOut(LeftOut{Name: path, Mode: at.Mode})
		return nil
	}
}

// linkAt makes a link at dest. The host may refuse one and take the rest: FAT has no links, a directory may be where this one belongs, and some
// have fewer names for a file or shorter targets than btrfs. A host without room takes nothing more, and its error ends the transfer.
func linkAt(dest string, link func() error) error {
	err := removeOld(dest)
	if err == nil {
		err = link()
	}
	if err == nil || errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) || errors.Is(err, syscall.EIO) {
		return err
	}
	return &unreadable{err}
}

func removeOld(dest string) error {
	if err := os.Remove(dest); err != nil && !errors.Is(err, iofs.ErrNotExist) {
		return err
	}
	return nil
}

// dir copies a directory. A second name of one is damage, and may lead to a directory above: then the tree has no end.
func (c *Out) dir(path, dest string, at fs.Attr) error {
	id := inode{at.Subvol, at.Ino}
	if first, ok := c.dirs[id]; ok {
		return &unreadable{fmt.Errorf("bad directory %s, have inode %d of %s want one of its own", path, at.Ino, first)}
	}
	c.dirs[id] = path
	if err := os.Mkdir(dest, 0o700|iofs.FileMode(at.Mode&0o777)); err != nil && !errors.Is(err, iofs.ErrExist) {
		return err
	}
	list, err := c.x.ReadDir(c.t, path)
	if err != nil { // the names before the damage are there
		if err := c.leave(path, &unreadable{err}); err != nil {
			return err
		}
	}
	c.count.known += uint64(len(list))
	for _, e := range list {
		full := gopath.Join(path, e.Name)
		if err := c.leave(full, c.name(path, dest, full, e)); err != nil {
			return err
		}
	}
	return c.attrs(dest, at)
}

// name copies what the entry e of directory path leads to; full is its path.
func (c *Out) name(path, dest, full string, e fs.DirEntry) error {
	// A name that would leave dest cannot come from a sound image; do not follow it from any other.
	if e.Name == "." || e.Name == ".." || filepath.Base(e.Name) != e.Name {
		return &unreadable{fmt.Errorf("directory %s has the name %q, want one without /", path, e.Name)}
	}
	to := filepath.Join(dest, e.Name)
	if e.Subvol != 0 && !c.Snapshots {
		if snap, err := c.x.IsSnapshot(c.t, e.Subvol); err == nil && snap {
			c.count.w.LeaveOut(LeftOut{Name: full, Snapshot: true})
			return nil
		}
	}
	at, err := c.x.Lstat(c.t, full)
	if e.Subvol != 0 && errors.Is(err, errno.ENOENT) {
		// A subvolume of the original, in a snapshot: an empty directory in Linux, too.
		if err := os.Mkdir(to, 0o755); err != nil && !errors.Is(err, iofs.ErrExist) {
			return err
		}
		return nil
	}
	if err != nil {
		return &unreadable{err}
	}
	return c.entry(full, to, at)
}

func (c *Out) attrs(dest string, at fs.Attr) error {
	if err := os.Chmod(dest, hostMode(at.Mode)); err != nil {
		return err
	}
	return os.Chtimes(dest, at.Atime, at.Mtime)
}

// file copies a regular file. What is read of a file that cannot be read whole is removed: nobody must take it for the file.
func (c *Out) file(path, dest string, at fs.Attr) error {
	f, err := c.x.OpenFile(c.t, path, fs.O_RDONLY|fs.O_NOFOLLOW, 0)
	if err != nil {
		return &unreadable{err}
	}
	defer f.Close(c.t)
	out, err := os.OpenFile(dest, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	w, stop := &sparseWriter{f: out}, &stopper{Watcher: c.count.w}
	err = Read(c.t, stop, f, w)
	if err != nil && w.err == nil && stop.err == nil {
		out.Close()
		if rerr := removeOld(dest); rerr != nil {
			return errors.Join(rerr, err)
		}
		return &unreadable{err}
	}
	if err == nil {
		err = out.Truncate(f.Size(c.t))
	}
	if cerr := out.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		return err
	}
	return c.attrs(dest, at)
}

// stopper keeps the error that ended a transfer.
type stopper struct {
	Watcher
	err error
}

func (s *stopper) Stop() error {
	s.err = s.Watcher.Stop()
	return s.err
}

// sparseWriter leaves blocks of zeros as holes. The caller sets the size at the end.
type sparseWriter struct {
	f   *os.File
	off int64
	err error // of the host
}

const hostBlock = 4096 // a smaller run of zeros is not left out

func (s *sparseWriter) skip(n int64) { s.off += n }

func (s *sparseWriter) Write(p []byte) (int, error) {
	for done := 0; done < len(p); {
		start := done
		for done < len(p) && !isZeroBlock(p[done:]) {
			done += min(hostBlock, len(p)-done)
		}
		if done > start {
			if _, err := s.f.WriteAt(p[start:done], s.off+int64(start)); err != nil {
				s.err = err
				return start, err
			}
		}
		for done < len(p) && isZeroBlock(p[done:]) {
			done += min(hostBlock, len(p)-done)
		}
	}
	s.off += int64(len(p))
	return len(p), nil
}

func isZeroBlock(p []byte) bool {
	n := min(len(p), hostBlock)
	return bytes.Equal(p[:n], zeros[:n])
}
