package transfer

import (
	"bytes"
	"errors"
	"fmt"
	iofs "io/fs"
	"os"
	gopath "path"
	"path/filepath"

	"btrlab/internal/fs"
	"btrlab/internal/sched"
)

// Out copies files of an image to the host.
type Out struct {
	t     *sched.Task
	x     *fs.FS
	count count
	links map[uint64]string // inodes with several names -> where the first one went
}

// NewOut copies from x.
func NewOut(t *sched.Task, x *fs.FS, w Watcher) *Out {
	return &Out{t: t, x: x, count: count{w: w}, links: map[uint64]string{}}
}

// Tree copies what path names, with everything below a directory, to dest. A symbolic link at path is followed; those below
// are copied.
func (c *Out) Tree(path, dest string) error {
	at, err := c.x.Stat(c.t, path)
	if err != nil {
		return err
	}
	return c.entry(path, dest, at)
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
			return err
		}
		if err := removeOld(dest); err != nil {
			return err
		}
		return os.Symlink(target, dest)
	case at.IsRegular():
		if at.Nlink > 1 {
			if first, ok := c.links[uint64(at.Ino)]; ok {
				if err := removeOld(dest); err != nil {
					return err
				}
				return os.Link(first, dest)
			}
			c.links[uint64(at.Ino)] = dest
		}
		return c.file(path, dest, at)
	default:
		c.count.w.LeaveOut(LeftOut{Name: path, Mode: at.Mode})
		return nil
	}
}

func removeOld(dest string) error {
	if err := os.Remove(dest); err != nil && !errors.Is(err, iofs.ErrNotExist) {
		return err
	}
	return nil
}

func (c *Out) dir(path, dest string, at fs.Attr) error {
	if err := os.Mkdir(dest, 0o700|iofs.FileMode(at.Mode&0o777)); err != nil && !errors.Is(err, iofs.ErrExist) {
		return err
	}
	list, err := c.x.ReadDir(c.t, path)
	if err != nil {
		return err
	}
	c.count.known += uint64(len(list))
	for _, e := range list {
		full := gopath.Join(path, e.Name)
		if e.Subvol != 0 {
			c.count.w.LeaveOut(LeftOut{Name: full, Subvol: e.Subvol})
			continue
		}
		// A name that would leave dest cannot come from a sound image; do not follow it from any other.
		if e.Name == "." || e.Name == ".." || filepath.Base(e.Name) != e.Name {
			return fmt.Errorf("directory %s has the name %q, want one without /", path, e.Name)
		}
		at, err := c.x.Lstat(c.t, full)
		if err != nil {
			return err
		}
		if err := c.entry(full, filepath.Join(dest, e.Name), at); err != nil {
			return err
		}
	}
	return c.attrs(dest, at)
}

func (c *Out) attrs(dest string, at fs.Attr) error {
	if err := os.Chmod(dest, hostMode(at.Mode)); err != nil {
		return err
	}
	return os.Chtimes(dest, at.Atime, at.Mtime)
}

func (c *Out) file(path, dest string, at fs.Attr) error {
	f, err := c.x.OpenFile(c.t, path, fs.O_RDONLY|fs.O_NOFOLLOW, 0)
	if err != nil {
		return err
	}
	defer f.Close(c.t)
	out, err := os.OpenFile(dest, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	err = Read(c.t, c.count.w, f, &sparseWriter{f: out})
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

// sparseWriter leaves blocks of zeros as holes. The caller sets the size at the end.
type sparseWriter struct {
	f   *os.File
	off int64
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
