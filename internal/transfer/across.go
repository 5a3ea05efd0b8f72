package transfer

import (
	"errors"
	"fmt"
	gopath "path"

	"btrlab/internal/errno"
	"btrlab/internal/fs"
	"btrlab/internal/sched"
)

// across copies from an image into one: files and directories by the rules of Out, to where In
// would put them.
type across struct {
	*In
	out *Out           // of the source; its links lead to where the first name went
	own map[inode]bool // directories that this copy has made where it reads
}

// From copies what path names in x, which may be the file system that c copies into, with
// everything below a directory, to the path to. A symbolic link at path is followed; those below
// are copied. Subvolumes become directories; snapshots are left out unless snapshots is set. What
// cannot be copied below path is left out; the error is of path itself, or of an image that takes
// nothing more.
func (c *In) From(x *fs.FS, path, to string, snapshots bool) error {
	at, err := x.Stat(c.t, path)
	if err != nil {
		return err
	}
	out := NewOut(c.t, x, c.count.w)
	out.Keep, out.Snapshots = c.Keep, snapshots
	a := &across{In: c, out: out, own: map[inode]bool{}}
	return bare(a.entry(path, to, at))
}

// entry copies one object of any kind.
func (a *across) entry(path, to string, at fs.Attr) error {
	if err := a.count.next(to); err != nil {
		return err
	}
	h := inodeAttrs{Attrs: attrsAt(at), owned: true}
	id := inode{at.Subvol, at.Ino}
	if first, ok := a.out.links[id]; ok && !at.IsDir() {
		return a.link(first, to)
	}
	if a.Keep.Xattrs {
		list, err := a.out.xattrs(at)
		if err != nil {
			return &unreadable{err}
		}
		h.Xattrs = list
	}
	if !a.Keep.Flags {
		h.Flags = 0
	}
	if at.IsDir() {
		return a.dir(path, to, at, &h)
	}
	if err := a.notItself(path, to, id); err != nil {
		return err
	}
	if err := a.make(path, to, at, &h); err != nil {
		return err
	}
	if at.Nlink > 1 {
		a.out.links[id] = to
	}
	return a.apply(path, to, &h)
}

// notItself is an error if to is another name of the inode at path, which would lose its contents.
func (a *across) notItself(path, to string, id inode) error {
	if a.x != a.out.x {
		return nil
	}
	if old, err := a.x.Stat(a.t, to); err == nil && (inode{old.Subvol, old.Ino}) == id {
		return &unreadable{fmt.Errorf("%s and %s are one file", path, to)}
	}
	return nil
}

// make makes what is no directory, with its contents.
func (a *across) make(path, to string, at fs.Attr, h *inodeAttrs) error {
	switch {
	case at.IsRegular():
		return a.file(path, to, at, h)
	case at.IsSymlink():
		target, err := a.out.x.Readlink(a.t, path)
		if err != nil {
			return &unreadable{err}
		}
		if err := a.unlinkOld(to); err != nil {
			return err
		}
		return a.x.Symlink(a.t, target, to)
	case !a.Keep.Special:
		return &unreadable{errors.New("is special")}
	}
	if err := a.unlinkOld(to); err != nil {
		return err
	}
	return a.x.Mknod(a.t, to, at.Mode, at.Rdev)
}

// dir copies a directory, into one that is there already if need be.
func (a *across) dir(path, to string, at fs.Attr, h *inodeAttrs) error {
	id := inode{at.Subvol, at.Ino}
	if a.own[id] {
		return &unreadable{fmt.Errorf("a directory is not copied into itself: %w", errno.EINVAL)}
	}
	if first, ok := a.out.dirs[id]; ok {
		return &unreadable{fmt.Errorf("bad directory %s, have inode %d of %s want one of its own", path, at.Ino, first)}
	}
	a.out.dirs[id] = path
	err := a.x.Mkdir(a.t, to, 0o755)
	made := err == nil
	if err != nil && !errors.Is(err, errno.EEXIST) {
		return err
	}
	there, err := a.x.Stat(a.t, to)
	switch {
	case err != nil:
		return err
	case !there.IsDir():
		return errno.ENOTDIR
	}
	if a.x == a.out.x {
		a.own[inode{there.Subvol, there.Ino}] = made
	}
	list, err := a.out.x.ReadDir(a.t, path)
	if err != nil { // the names before the damage are there
		a.count.w.LeaveOut(LeftOut{Name: path, Err: err})
	}
	a.count.known += uint64(len(list))
	for _, e := range list {
		full := gopath.Join(path, e.Name)
		if err := a.count.leave(full, a.name(path, full, gopath.Join(to, e.Name), e)); err != nil {
			return err
		}
	}
	if !made {
		return nil
	}
	return a.apply(path, to, h)
}

// name copies what the entry e of the directory path leads to.
func (a *across) name(path, full, to string, e fs.DirEntry) error {
	skip, err := a.out.skips(path, full, e)
	if err != nil || skip {
		return err
	}
	at, err := a.out.x.Lstat(a.t, full)
	switch {
	case e.Subvol != 0 && errors.Is(err, errno.ENOENT): // of the original, in a snapshot
		return a.x.Mkdir(a.t, to, 0o755)
	case err != nil:
		return &unreadable{err}
	}
	return a.entry(full, to, at)
}

// file copies the data of a regular file; holes stay holes.
func (a *across) file(path, to string, at fs.Attr, h *inodeAttrs) error {
	src, err := a.out.x.OpenFile(a.t, path, fs.O_RDONLY, 0)
	if err != nil {
		return &unreadable{err}
	}
	defer src.Close(a.t)
	_, statErr := a.x.Lstat(a.t, to)
	f, err := a.create(to, 0o600, h)
	if err != nil {
		return err
	}
	w := &fileWriter{Watcher: a.count.w, t: a.t, f: f}
	err = read(a.t, w, src, w, a.out.bufs[0])
	switch {
	case err != nil && w.err == nil:
		err = &unreadable{err} // of the source
	case err == nil && f.Size(a.t) < w.off:
		err = f.Truncate(a.t, w.off)
	}
	return a.finish(f, to, errors.Is(statErr, errno.ENOENT), err)
}

// fileWriter writes a file of an image from its start on, for read.
type fileWriter struct {
	Watcher
	t   *sched.Task
	f   *fs.File
	off int64
	err error // of a write, or of Stop
}

func (w *fileWriter) Stop() error {
	w.err = w.Watcher.Stop()
	return w.err
}

func (w *fileWriter) Write(p []byte) (n int, err error) {
	n, w.err = w.f.WriteAt(w.t, p, w.off)
	w.off += int64(n)
	return n, w.err
}

func (w *fileWriter) skip(n int64) { w.off += n }
