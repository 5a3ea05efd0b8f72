package transfer

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	iofs "io/fs"
	"os"
	gopath "path"
	"path/filepath"
	"sync/atomic"

	"btrlab/internal/blockdev"
	"btrlab/internal/errno"
	"btrlab/internal/format"
	"btrlab/internal/fs"
	"btrlab/internal/sched"
)

// Out copies files of an image to the host.
type Out struct {
	// Snapshots copies snapshots as well, not only the subvolumes that are none. Model: btrfs
	// restore -s.
	Snapshots bool
	// Keep says what is kept of the image's inodes; NewOut keeps all, and owners if this process is
	// root.
	Keep Keep

	t     *sched.Task
	x     *fs.FS
	count count
	top   *hostDir         // the directory of the host at which the transfer begins
	links map[inode]string // inodes with several names -> where the first one went, from top
	dirs  map[inode]string // directories that have been begun -> their path in the image

	noClone *atomic.Bool // the host shares no blocks with the image

	jobs  []job
	ended []ended
	bufs  [][]byte // of the tasks that copy, whole sectors
}

// inode names a file of the image.
type inode struct {
	subvol uint64
	ino    format.Ino
}

// NewOut copies from x.
func NewOut(t *sched.Task, x *fs.FS, w Watcher) *Out {
	keep := All
	keep.Owners = holdsOwners()
	return &Out{Keep: keep, t: t, x: x, count: count{w: w}, links: map[inode]string{}, dirs: map[inode]string{},
		noClone: new(atomic.Bool), bufs: [][]byte{make([]byte, chunk)}}
}

// leave reports an object of the image that cannot be read; any other error comes back.
func (c *Out) leave(path string, err error) error {
	var u *unreadable
	if errors.As(err, &u) {
		c.count.w.LeaveOut(LeftOut{Name: path, Err: u.err})
		return nil
	}
	return err
}

// Tree copies what path names, with everything below a directory, to dest. A symbolic link at path
// is followed; those below are copied. What cannot be read below path is left out, and so is a link
// that the host refuses; the error is of path itself, or of the host. A link at dest is followed,
// as the caller has named it; those below are not.
func (c *Out) Tree(path, dest string) error {
	at, err := c.x.Stat(c.t, path)
	if err != nil {
		return err
	}
	if err := c.count.next(dest); err != nil {
		return err
	}
	switch {
	case at.IsDir():
		err = c.typedDir(path, dest, at)
	case at.IsRegular():
		err = c.fill(path, at, func() (*begun, error) { return beginAt(dest) }, object{name: dest})
	default:
		dir, name := filepath.Split(dest)
		return c.Into(path, cmp.Or(dir, "."), name)
	}
	return bare(err)
}

// Into is Tree to name in the directory dir: a link that is there under that name is not followed.
func (c *Out) Into(path, dir, name string) error {
	at, err := c.x.Stat(c.t, path)
	if err != nil {
		return err
	}
	if c.top, err = openDir(os.OpenRoot(dir)); err != nil {
		return err
	}
	defer c.top.Close()
	p := place{dir: c.top, name: name, path: filepath.Join(dir, name), rel: name}
	if at.IsDir() {
		return bare(c.last(c.entry(path, p, at)))
	}
	if err := c.count.next(p.path); err != nil {
		return err
	}
	_, err = c.make(path, p, at)
	return bare(err)
}

// bare is err without the mark of what is left out.
func bare(err error) error {
	var u *unreadable
	if errors.As(err, &u) {
		return u.err
	}
	return err
}

// typedDir copies a directory to dest, which the caller has named.
func (c *Out) typedDir(path, dest string, at fs.Attr) (err error) {
	if err := os.Mkdir(dest, 0o700|iofs.FileMode(at.Mode&0o777)); err != nil && !errors.Is(err, iofs.ErrExist) {
		return err
	}
	if c.top, err = openDir(os.OpenRoot(dest)); err != nil {
		return err
	}
	err = c.dir(path, c.top, place{path: dest}, at)
	return c.last(err)
}

func (c *Out) entry(path string, p place, at fs.Attr) error {
	if err := c.count.next(p.path); err != nil {
		return err
	}
	if at.IsDir() {
		sub, err := p.mkdir(0o700 | iofs.FileMode(at.Mode&0o777))
		if err != nil {
			return err
		}
		return c.dir(path, sub, p, at)
	}
	if at.IsRegular() && at.Nlink < 2 {
		return c.later(path, p, at)
	}
	id := inode{at.Subvol, at.Ino}
	if first, ok := c.links[id]; ok {
		return linkAt(p, func(q place) error { return c.top.link(first, q.rel) })
	}
	made, err := c.make(path, p, at)
	if made && at.Nlink > 1 {
		c.links[id] = p.rel
	}
	return err
}

// make makes what is no directory, and says whether it is there.
func (c *Out) make(path string, p place, at fs.Attr) (made bool, err error) {
	switch {
	case at.IsSymlink():
		target, err := c.x.Readlink(c.t, path)
		if err != nil {
			return false, &unreadable{err}
		}
		if err := linkAt(p, func(q place) error { return q.dir.Symlink(target, q.name) }); err != nil {
			return false, err
		}
		return true, c.finishAt(path, p, at)
	case at.IsRegular():
		err := c.fill(path, at, p.begin, object{dir: p.dir, name: p.name})
		return err == nil, err
	case !c.Keep.Special:
		c.count.w.LeaveOut(LeftOut{Name: path, Mode: at.Mode})
		return false, nil
	}
	if err := linkAt(p, func(q place) error { return q.mknod(at.Mode, at.Rdev) }); err != nil {
		return false, err
	}
	return true, c.finishAt(path, p, at)
}

// linkAt makes a link at p by link, in the place of what is there. The host may refuse one and take
// the rest: FAT has no links, a directory may be where this one belongs, and some have fewer names
// for a file or shorter targets than btrfs. A host without room takes nothing more, and its error
// ends the transfer.
func linkAt(p place, link func(place) error) error {
	err := p.named(link(p))
	if errors.Is(err, iofs.ErrExist) {
		q := p.beside()
		if err = p.named(link(q)); err == nil {
			err = p.takes(q)
		}
	}
	if err == nil || exhausted(err) {
		return err
	}
	return &unreadable{err}
}

// begunOnce notes in dirs that the directory at path begins. A second name of one is damage, and
// may lead to a directory above: then the tree has no end.
func begunOnce(dirs map[inode]string, path string, at fs.Attr) error {
	id := inode{at.Subvol, at.Ino}
	if first, ok := dirs[id]; ok {
		return &unreadable{fmt.Errorf("bad directory %s, have inode %d of %s want one of its own", path, at.Ino, first)}
	}
	dirs[id] = path
	return nil
}

// soundName is an error for a name in the directory path that no sound image has: one that leads
// elsewhere.
func soundName(path, name string) error {
	if name == "." || name == ".." || filepath.Base(name) != name {
		return &unreadable{fmt.Errorf("directory %s has the name %q, want one without /", path, name)}
	}
	return nil
}

// dir copies a directory to to, which is at p, and closes that.
func (c *Out) dir(path string, to *hostDir, p place, at fs.Attr) error {
	if err := begunOnce(c.dirs, path, at); err != nil {
		to.Close()
		return err
	}
	list, err := c.x.ReadDir(c.t, path)
	if err != nil { // the names before the damage are there
		c.count.w.LeaveOut(LeftOut{Name: path, Err: err})
	}
	c.count.known += uint64(len(list))
	for _, e := range list {
		full := gopath.Join(path, e.Name)
		if err := c.leave(full, c.name(path, at, full, p.in(to, e.Name), e)); err != nil {
			to.Close()
			return err
		}
	}
	return c.end(path, to, func() error {
		st, err := to.self.Stat()
		if err == nil {
			err = c.finish(path, at, &object{f: to.self, dir: to, name: "."}, st)
		}
		return p.named(err)
	})
}

// skips reports whether the entry e of directory path is a snapshot that is not wanted; its error
// is of a name that no sound image has.
func (c *Out) skips(path, full string, e fs.DirEntry) (bool, error) {
	if err := soundName(path, e.Name); err != nil {
		return false, err
	}
	if e.Subvol != 0 && !c.Snapshots {
		if snap, err := c.x.IsSnapshot(c.t, e.Subvol); err == nil && snap {
			c.count.w.LeaveOut(LeftOut{Name: full, Snapshot: true})
			return true, nil
		}
	}
	return false, nil
}

// name copies what the entry e of directory path, which is dir, leads to, to to; full is its path.
func (c *Out) name(path string, dir fs.Attr, full string, to place, e fs.DirEntry) error {
	skip, err := c.skips(path, full, e)
	if err != nil || skip {
		return err
	}
	at, err := c.x.LstatIn(c.t, dir.Subvol, dir.Ino, e.Name, full)
	if e.Subvol != 0 && errors.Is(err, errno.ENOENT) {
		// A subvolume of the original, in a snapshot: an empty directory in Linux, too.
		sub, err := to.mkdir(0o755)
		if err == nil {
			err = sub.Close()
		}
		return err
	}
	if err != nil {
		return &unreadable{err}
	}
	return c.entry(full, to, at)
}

// fill copies a regular file to the one that begin makes. A file that cannot be read or written
// whole is dropped, nobody must take it for the file, and what was there under its name stays.
func (c *Out) fill(path string, at fs.Attr, begin func() (*begun, error), o object) error {
	f, err := c.x.OpenInode(c.t, at.Subvol, at.Ino, path)
	if err != nil {
		return &unreadable{err}
	}
	defer f.Close(c.t)
	b, err := begin()
	if err != nil {
		return err
	}
	o.f = b.f
	if c.Keep.Flags && at.Flags&format.InodeNoDataCow != 0 {
		_ = o.setFlags(flagsOfHost(format.InodeNoDataCow)) // an empty file takes it; see finish
	}
	w, stop := &sparseWriter{f: b.f, share: func(p []byte, off int64) int { return c.share(f, b.f, len(p), off) }}, &stopper{Watcher: c.count.w}
	err = read(c.t, stop, f, w, c.bufs[0])
	if size := f.Size(c.t); err == nil && w.end != size { // a hole to the end, or a block over it
		w.err = b.f.Truncate(size)
		err = w.err
	}
	if err != nil {
		b.f.Close()
		if stop.err != nil && !b.replaces {
			return err // what was read stays, for nobody else to see
		}
		switch derr := b.drop(); {
		case derr != nil:
			return errors.Join(derr, err)
		case w.err != nil:
			return fmt.Errorf("%s: %w", path, err)
		case stop.err != nil:
			return err
		}
		return &unreadable{err}
	}
	st, err := b.f.Stat()
	if err == nil {
		err = b.whole()
	}
	if err == nil {
		err = c.finish(path, at, &o, st)
	}
	if cerr := b.f.Close(); err == nil {
		err = cerr
	}
	return err
}

// shareLeast is the bytes from which on it is quicker to share blocks than to write them.
const shareLeast = 64 << 10

// share makes the n bytes of out at off, a multiple of hostBlock, share the blocks of the image
// that f has there, and says of how many. They have just been read, and their checksums are right.
func (c *Out) share(f *fs.File, out *os.File, n int, off int64) (done int) {
	for done+shareLeast <= n && !c.noClone.Load() {
		dev, from, k, ok := f.Lies(c.t, off+int64(done))
		if !ok {
			return done
		}
		k = min(k, int64(format.AlignUp(uint64(n-done), hostBlock)))
		if err := blockdev.Clone(out, off+int64(done), dev, from, k); err != nil {
			if errors.Is(err, blockdev.ErrNoClone) {
				c.noClone.Store(true)
			}
			return done
		}
		done += int(k)
	}
	return done
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
	end int64 // of what has been written
	err error // of the host
	// share brings the front of p, a multiple of hostBlock that may be longer than p, without
	// writing it; nil for none.
	share func(p []byte, off int64) (n int)
}

const hostBlock = 4096 // a smaller run of zeros is not left out

func (s *sparseWriter) skip(n int64) { s.off += n }

func (s *sparseWriter) Write(p []byte) (int, error) {
	for done := 0; done < len(p); {
		start := done
		for done < len(p) && !isZeroBlock(p[done:]) {
			done += min(hostBlock, len(p)-done)
		}
		if done > start && s.share != nil {
			start += s.share(p[start:done], s.off+int64(start))
			s.end = s.off + int64(start)
		}
		if done > start {
			if _, err := s.f.WriteAt(p[start:done], s.off+int64(start)); err != nil {
				s.err = err
				return start, err
			}
			s.end = s.off + int64(done)
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
