package transfer

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	iofs "io/fs"
	"os"
	gopath "path"
	"path/filepath"
	"time"

	"btrlab/internal/errno"
	"btrlab/internal/format"
	"btrlab/internal/fs"
	"btrlab/internal/sched"
)

// In copies files of the host into an image.
type In struct {
	// Nocow makes new files NOCOW.
	Nocow bool
	// Keep says what is kept of the host's inodes; NewIn keeps all.
	Keep Keep
	// Image, if set, is the file that is written: it is left out.
	Image os.FileInfo
	// Exclude is what is not copied of trees, by paths below their sources.
	Exclude Exclude
	// Date, if set, is the date of an image that is the same each time: no file is younger, and
	// each was last read when it was changed.
	Date time.Time
	// Owner, if set, is that of everything, instead of the host's.
	Owner *fs.Owner

	t     *sched.Task
	x     *fs.FS
	count count
	links map[hostIno]string // files with several names on the host -> where the first one went
	buf   []byte
	top   string // the source that Tree and Fill copy
}

var errIsImage = errors.New("is the image that is written")

// hostIno names a file of the host, whatever its path.
type hostIno struct{ dev, ino uint64 }

// NewIn copies into x. Files that its calls have in common by hard links have one inode in the
// image.
func NewIn(t *sched.Task, x *fs.FS, w Watcher) *In {
	return &In{Keep: All, t: t, x: x, count: count{w: w}, links: map[hostIno]string{}, buf: make([]byte, chunk)}
}

// Fakeroot makes the files of the host what fakeroot says of them; nil is what they are.
func (c *In) Fakeroot(f *Fakeroot) { c.count.fake = f }

func (c *In) faked(from string, st iofs.FileInfo) iofs.FileInfo { return c.count.faked(from, st) }

// Tree copies what src names, with everything below a directory, to the path to. A symbolic link at
// src is followed; those below are copied. What cannot be copied below src is left out; the error
// is of src itself, or of an image that takes nothing more.
func (c *In) Tree(src, to string) error {
	st, err := os.Stat(src)
	if err != nil {
		return err
	}
	c.top = src
	return bare(c.entry(src, to, c.faked(src, st)))
}

// Reader makes the file to from what r gives.
func (c *In) Reader(r io.Reader, to string) error {
	_, statErr := c.x.Lstat(c.t, to)
	f, err := c.create(to, 0o644, &inodeAttrs{})
	if err != nil {
		return err
	}
	return c.finish(f, to, errors.Is(statErr, errno.ENOENT), write(c.t, c.count.w, f, r, 0, c.buf))
}

// entry copies one object of any kind.
func (c *In) entry(src, to string, st iofs.FileInfo) error {
	if err := c.count.next(to); err != nil {
		return err
	}
	mode := st.Mode()
	switch {
	case mode.IsDir():
		return c.dir(src, to, st)
	}
	if out, err := c.count.omits(src, st, c.Keep, c.Image); out || err != nil {
		return err
	}
	id, several := linked(st)
	if first, ok := c.links[id]; ok && several {
		return c.link(first, to)
	}
	err := c.make(src, to, st)
	if err == nil && several {
		c.links[id] = to
	}
	return err
}

// make makes what is no directory.
func (c *In) make(src, to string, st iofs.FileInfo) error {
	switch mode := st.Mode(); {
	case mode.IsRegular():
		return c.file(src, to, st)
	case mode&os.ModeSymlink != 0:
		target, err := os.Readlink(src)
		if err != nil {
			return err
		}
		if err := c.unlinkOld(to); err != nil {
			return err
		}
		if err := c.x.Symlink(c.t, target, to); err != nil {
			return err
		}
		return c.attrs(src, to, st)
	default:
		return c.special(src, to, st)
	}
}

// Fill copies what is in the directory src to the directory to, with the attributes of src itself.
func (c *In) Fill(src, to string) error {
	st, err := os.Stat(src)
	if err != nil {
		return err
	}
	if err := c.count.next(to); err != nil {
		return err
	}
	c.top = src
	if err := c.inside(src, to); err != nil {
		return err
	}
	return c.attrs(src, to, c.faked(src, st))
}

func (c *In) dir(src, to string, st iofs.FileInfo) error {
	err := c.x.Mkdir(c.t, to, 0o755)
	if err != nil && !errors.Is(err, errno.EEXIST) {
		return err
	}
	made := err == nil
	if !made {
		if at, err := c.x.Stat(c.t, to); err != nil || !at.IsDir() {
			return cmp.Or(err, error(errno.ENOTDIR))
		}
	}
	if err := c.inside(src, to); err != nil || !made {
		return err
	}
	return c.attrs(src, to, st)
}

// inside copies the entries of a directory.
func (c *In) inside(src, to string) error {
	list, err := os.ReadDir(src)
	if err != nil {
		return err
	}
	c.count.known += uint64(len(list))
	rel, _ := filepath.Rel(c.top, src)
	return c.count.each(list, src, filepath.ToSlash(rel), c.Exclude, func(from, below string, st iofs.FileInfo) error {
		return c.entry(from, gopath.Join(to, st.Name()), st)
	})
}

func (c *In) unlinkOld(to string) error {
	err := c.x.Unlink(c.t, to)
	if errors.Is(err, errno.ENOENT) {
		return nil
	}
	return err
}

// link gives the file first the name to as well.
func (c *In) link(first, to string) error {
	if first == to {
		return nil // no other name may be left of it
	}
	if err := c.unlinkOld(to); err != nil {
		return err
	}
	err := c.x.Link(c.t, first, to)
	if !errors.Is(err, errno.EPERM) {
		return err
	}
	// chattr +i and +a allow no further name, and the file has them already.
	n, nerr := c.x.NodeAt(c.t, first)
	if nerr != nil {
		return err
	}
	defer n.Forget(c.t, 1)
	flags := n.Flags()
	if flags&pinned == 0 {
		return err
	}
	if err := n.SetFlags(c.t, flags&^pinned); err != nil {
		return err
	}
	err = c.x.Link(c.t, first, to)
	return cmp.Or(err, n.SetFlags(c.t, flags))
}

// pinned are the flags under which an inode gets no further name.
const pinned = format.InodeImmutable | format.InodeAppend

// create makes a file whose data will lie as h says.
func (c *In) create(to string, mode uint32, h *inodeAttrs) (*fs.File, error) {
	f, err := c.x.Create(c.t, to, mode)
	if err != nil {
		return nil, err
	}
	if err := c.storage(f.Node(), h); err != nil {
		f.Close(c.t)
		return nil, err
	}
	return f, nil
}

// storage gives a file without data the attributes that its data depends on; the others come after
// the data.
func (c *In) storage(n *fs.Node, h *inodeAttrs) error {
	flags := h.Flags & (format.InodeNoDataCow | format.InodeNoCompress)
	if c.Nocow {
		flags = format.InodeNoDataCow
	}
	if flags != 0 {
		if err := setFlags(c.t, n, flags); err != nil {
			return err
		}
	}
	for _, x := range h.Xattrs {
		if x.Name == fs.Compression && !c.Nocow {
			_ = n.Setxattr(c.t, x.Name, x.Value) // apply says what is wrong with it
		}
	}
	return nil
}

func (c *In) file(src, to string, st iofs.FileInfo) error {
	in, err := openFile(src)
	if err != nil {
		return err
	}
	defer in.Close()
	h := statAttrs(st)
	if err := h.ofFile(in, c.Keep); err != nil {
		return err
	}
	_, statErr := c.x.Lstat(c.t, to)
	f, err := c.create(to, imageMode(st.Mode())&0o777, &h)
	if err != nil {
		return err
	}
	err = c.finish(f, to, errors.Is(statErr, errno.ENOENT), c.copyFile(f, in, st.Size()))
	if err != nil {
		return err
	}
	return c.apply(src, to, &h)
}

// finish closes f; after an error a file that is new is removed.
func (c *In) finish(f *fs.File, to string, isNew bool, err error) error {
	if cerr := f.Close(c.t); err == nil {
		err = cerr
	}
	if err != nil && isNew {
		if uerr := c.x.Unlink(c.t, to); uerr != nil {
			return fmt.Errorf("%w; and the part that was put stays: %w", err, uerr)
		}
	}
	return err
}

// copyFile copies the runs of data of in; holes stay holes.
func (c *In) copyFile(f *fs.File, in *os.File, size int64) error {
	if size <= chunk {
		return write(c.t, c.count.w, f, in, 0, c.buf)
	}
	for off := int64(0); off < size; {
		start, end, err := nextData(in, off, size)
		if errors.Is(err, io.EOF) {
			break // a hole to the end
		}
		if err != nil {
			return err
		}
		if err := write(c.t, c.count.w, f, io.NewSectionReader(in, start, end-start), start, c.buf); err != nil {
			return err
		}
		off = end
	}
	if f.Size(c.t) < size {
		return f.Truncate(c.t, size)
	}
	return nil
}
