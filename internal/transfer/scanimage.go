package transfer

import (
	"errors"
	"fmt"
	"io"
	gopath "path"

	"btrlab/internal/progs/image"

	"btrlab/internal/errno"
	"btrlab/internal/format"
	"btrlab/internal/fs"
	"btrlab/internal/progs/mkfs"
	"btrlab/internal/sched"
)

// An image as the source of a new file system, which has other sizes, features, profiles or
// compression:
//
//	From  -> directory -> add   names, attributes, targets; subvolumes stay such
//	Build -> imaged             contents and extended attributes, by many workers

// imageTree is a directory of an image that is listed.
type imageTree struct {
	s       *Scan
	t       *sched.Task
	x       *fs.FS
	subvols map[uint64]fs.Subvol
	uuids   map[format.UUID]bool  // of the subvolumes that are there
	base    uint64                // the subvolume that a mount opens
	first   map[inode]*mkfs.Entry // of inodes with several names
	dirs    map[inode]string      // directories that have been begun -> their path
}

// imageInode is an inode of an image.
type imageInode struct {
	x    *fs.FS
	path string
	at   fs.Attr
	keep Keep
}

// From lists the directory path of an image, from whose files Build reads: the image stays open
// until then. A subvolume below path is one in the new file system, read-only if it was, and the
// one that a mount opens stays that. A snapshot of a subvolume that is there is left out unless
// Snapshots is set: it would take the room of a copy. What is damaged is left out.
func (s *Scan) From(t *sched.Task, x *fs.FS, path string) (*mkfs.Entry, error) {
	at, err := x.Stat(t, path)
	if err != nil {
		return nil, err
	}
	if !at.IsDir() {
		return nil, fmt.Errorf("%s is no directory", path)
	}
	c := &imageTree{s: s, t: t, x: x, subvols: map[uint64]fs.Subvol{}, uuids: map[format.UUID]bool{}, first: map[inode]*mkfs.Entry{}, dirs: map[inode]string{}}
	list, err := x.Subvolumes(t)
	if err != nil {
		return nil, err
	}
	for _, v := range list {
		c.subvols[v.ID], c.uuids[v.UUID] = v, true
	}
	top, err := x.TopUUID(t)
	if err != nil {
		return nil, err
	}
	c.uuids[top] = true
	if c.base, err = x.DefaultSubvolume(t); err != nil {
		return nil, err
	}
	root := c.entry("", path, at)
	return root, c.directory(root, path, "", at)
}

// directory lists what is in a directory: rel is its path below the source.
func (c *imageTree) directory(d *mkfs.Entry, path, rel string, at fs.Attr) error {
	if err := c.s.count.w.Stop(); err != nil {
		return err
	}
	if err := begunOnce(c.dirs, path, at); err != nil {
		return err
	}
	list, err := c.x.ReadDir(c.t, path)
	if err != nil { // the names before the damage are there
		c.s.count.w.LeaveOut(LeftOut{Name: path, Err: err})
	}
	for _, e := range list {
		below := gopath.Join(rel, e.Name)
		if c.s.Exclude.Has(below) {
			continue
		}
		full := gopath.Join(path, e.Name)
		err := soundName(path, e.Name)
		if err == nil {
			err = c.add(d, at, full, below, e)
		}
		if err := c.s.count.leave(full, err); err != nil {
			return err
		}
	}
	return nil
}

// add lists a name in d, with all below.
func (c *imageTree) add(d *mkfs.Entry, dir fs.Attr, path, rel string, n fs.DirEntry) error {
	if v, ok := c.subvols[n.Subvol]; ok && c.copyOf(&v) && !c.s.Snapshots {
		c.s.count.w.LeaveOut(LeftOut{Name: path, Snapshot: true})
		return nil
	}
	at, err := c.x.LstatIn(c.t, dir.Subvol, dir.Ino, n.Name, path)
	if n.Subvol != 0 && errors.Is(err, errno.ENOENT) {
		// A subvolume of the original, in a snapshot: an empty directory.
		d.Add(&mkfs.Entry{Name: n.Name, Mode: format.S_IFDIR | 0o755, Atime: dir.Mtime, Mtime: dir.Mtime, Source: &source{}})
		return nil
	}
	if err != nil {
		return &unreadable{err}
	}
	if kind := at.Mode & format.S_IFMT; !c.s.Keep.Special && kind != format.S_IFREG && kind != format.S_IFDIR && kind != format.S_IFLNK {
		c.s.count.w.LeaveOut(LeftOut{Name: path, Mode: at.Mode})
		return nil
	}
	e := c.entry(n.Name, path, at)
	if at.IsSymlink() {
		if e.Target, err = c.x.Readlink(c.t, path); err != nil {
			return &unreadable{err}
		}
	}
	switch id := (inode{at.Subvol, at.Ino}); {
	case at.IsDir():
		if n.Subvol != 0 {
			e.Subvol, e.ReadOnly, e.Default = true, c.subvols[n.Subvol].ReadOnly, n.Subvol == c.base
		}
		if err := c.directory(e, path, rel, at); err != nil {
			return err
		}
	case at.Nlink > 1:
		if e.Several, e.Link = true, c.first[id]; e.Link == nil {
			c.first[id] = e
		}
	}
	c.s.count.known++
	d.Add(e)
	return nil
}

// copyOf reports whether a subvolume is a snapshot of one that is there, and not the one that a
// mount opens. What a system was rolled back to is neither.
func (c *imageTree) copyOf(v *fs.Subvol) bool {
	return v.Snapshot() && v.ID != c.base && c.uuids[v.ParentUUID]
}

// entry is what at says of an inode.
func (c *imageTree) entry(name, path string, at fs.Attr) *mkfs.Entry {
	h := inodeAttrs{attrsAt(at), true}
	own, trusted := owned(c.s.Keep, c.s.Owner, fs.Owner{}, &h)
	e := &mkfs.Entry{Name: name, Mode: modeOf(at.Mode, trusted), UID: own.UID, GID: own.GID, Rdev: at.Rdev}
	e.Atime, e.Mtime = dated(c.s.Date, at.Atime, at.Mtime)
	if at.IsRegular() {
		e.Size = int64(at.Size)
	}
	e.Source = &source{from: &imageInode{x: c.x, path: path, at: at, keep: c.s.Keep}, trusted: trusted}
	return e
}

// imaged is an inode of an image, for the worker that has opened it. Others read pieces of it at
// the same time.
type imaged struct {
	*imageInode
	e *mkfs.Entry
	t *sched.Task // of the worker
	f *fs.File    // of a regular file
}

// open opens an inode for a worker.
func (s *imageInode) open(e *mkfs.Entry) (mkfs.Object, error) {
	o := &imaged{imageInode: s, e: e, t: sched.NewTask("mkfs")}
	if !s.at.IsRegular() {
		return o, nil
	}
	var err error
	o.f, err = s.x.OpenInode(o.t, s.at.Subvol, s.at.Ino, s.path)
	return o, err
}

// Attrs are the extended attributes and flags that Keep lets through.
func (o *imaged) Attrs() ([]image.Xattr, uint64, error) {
	var list []image.Xattr
	var flags uint64
	if o.keep.Xattrs {
		var err error
		if list, err = imageXattrs(o.t, o.x, o.at); err != nil {
			return nil, 0, err
		}
	}
	if o.keep.Flags {
		flags = o.at.Flags & fs.ChattrFlags
	}
	attrs, flags := kept(o.e, list, flags)
	return attrs, flags, nil
}

// Size is the size of a file, in bytes.
func (o *imaged) Size() (int64, error) { return o.f.Size(o.t), nil }

// NextData is the first run of data at or after off and before size.
func (o *imaged) NextData(off, size int64) (start, end int64, err error) {
	start, end, err = o.f.SeekData(o.t, off)
	if err == nil && start >= size {
		err = io.EOF
	}
	return start, min(end, size), err
}

// ReadAt reads what the file has at off, as a task of its own: several workers may be at it. What
// is read is read once, so the cache need not keep it.
func (o *imaged) ReadAt(p []byte, off int64) (int, error) {
	t := sched.NewTask("mkfs")
	n, err := o.f.ReadAt(t, p, off)
	o.f.DropCache(t, off, int64(n))
	if err == nil && n < len(p) {
		err = io.EOF
	}
	return n, err
}

// Close lets the file go, with what its reading has cached besides: what was read ahead.
func (o *imaged) Close() error {
	if o.f == nil {
		return nil
	}
	o.f.DropCache(o.t, 0, o.f.Size(o.t))
	return o.f.Close(o.t)
}
