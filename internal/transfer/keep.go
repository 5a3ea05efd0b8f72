package transfer

import (
	"fmt"
	iofs "io/fs"
	"os"
	"time"

	"btrlab/internal/progs/image"

	"btrlab/internal/compress"
	"btrlab/internal/format"
	"btrlab/internal/fs"
	"btrlab/internal/sched"
)

// Keep says what a copy keeps beside contents, names, modes and times.
type Keep struct {
	Owners  bool // without them setuid, setgid and capabilities go as well
	Xattrs  bool // with access control lists and capabilities
	Flags   bool // of chattr(1)
	Special bool // devices, pipes and sockets
}

// All keeps everything.
var All = Keep{Owners: true, Xattrs: true, Flags: true, Special: true}

// inodeAttrs is what is kept of an inode.
type inodeAttrs struct {
	image.Attrs
	owned bool // UID and GID are known
}

// attrsAt is what an image says of an inode, but for its extended attributes.
func attrsAt(at fs.Attr) image.Attrs {
	return image.Attrs{Mode: at.Mode, UID: at.UID, GID: at.GID, Rdev: at.Rdev, Flags: at.Flags, Atime: at.Atime, Mtime: at.Mtime}
}

// statAttrs is what st says of an inode.
func statAttrs(st iofs.FileInfo) inodeAttrs {
	h := inodeAttrs{Attrs: image.Attrs{Mode: imageMode(st.Mode()) & 0o7777, Mtime: st.ModTime(), Atime: st.ModTime()}}
	h.UID, h.GID, h.owned = owner(st)
	h.fromSys(st)
	if f, ok := st.(*faked); ok {
		h.UID, h.GID, h.Rdev, h.owned = f.i.uid, f.i.gid, f.i.rdev, true
	}
	return h
}

// dated are the times of a copy. With a date it is the same whoever reads the source: what was
// changed later is as old as that, and was last read when it was changed.
func dated(date, atime, mtime time.Time) (a, m time.Time) {
	if date.IsZero() {
		return atime, mtime
	}
	if mtime.After(date) {
		mtime = date
	}
	return mtime, mtime
}

// imageFlags and flagsOfHost translate them; what the other side does not know is left out.
func imageFlags(host uint32) (flags uint64) {
	for _, f := range format.HostFlags {
		if host&f.Attr != 0 {
			flags |= f.Inode
		}
	}
	return flags
}

func flagsOfHost(image uint64) (flags uint32) {
	image = fs.Shown(image)
	for _, f := range format.HostFlags {
		if image&f.Inode != 0 {
			flags |= f.Attr
		}
	}
	return flags
}

// attrs copies owner, mode, times, extended attributes and flags of src.
func (c *In) attrs(src, to string, st iofs.FileInfo) error {
	h := statAttrs(st)
	if err := readAttrs(&h, src, st, c.Keep); err != nil {
		return err
	}
	return c.apply(src, to, &h)
}

// owned is the owner that a copy of h gets, and whether setuid, setgid and capabilities go with it:
// all, if set, is that of everything; without keep it is at.
func owned(keep Keep, all *fs.Owner, at fs.Owner, h *inodeAttrs) (own fs.Owner, trusted bool) {
	switch {
	case all != nil:
		return *all, true
	case keep.Owners && h.owned:
		return fs.Owner{UID: h.UID, GID: h.GID}, true
	}
	return at, h.owned && h.UID == at.UID && h.GID == at.GID
}

// apply gives to what h says. An owner that is not kept takes privileges along.
func (c *In) apply(src, to string, h *inodeAttrs) error {
	n, err := c.x.NodeAt(c.t, to)
	if err != nil {
		return err
	}
	defer n.Forget(c.t, 1)
	at := n.Attr(c.t)
	own, trusted := owned(c.Keep, c.Owner, fs.Owner{UID: at.UID, GID: at.GID}, h)
	if own.UID != at.UID || own.GID != at.GID {
		if err := n.SetAttr(c.t, fs.SetAttr{Set: fs.SetUID | fs.SetGID, UID: own.UID, GID: own.GID}); err != nil {
			return err
		}
	}
	for _, x := range h.Xattrs {
		if !copies(x.Name, trusted) || x.Name == fs.Compression && c.Nocow {
			continue
		}
		if err := n.Setxattr(c.t, x.Name, x.Value); err != nil {
			c.count.w.LeaveOut(LeftOut{Name: src, Err: fmt.Errorf("extended attribute %s: %w", x.Name, err)})
		}
	}
	set := fs.SetAttr{Set: fs.SetAtime | fs.SetMtime}
	set.Atime, set.Mtime = dated(c.Date, h.Atime, h.Mtime)
	if !n.IsSymlink() {
		set.Set |= fs.SetMode
		set.Mode = modeOf(h.Mode, trusted)
	}
	if err := n.SetAttr(c.t, set); err != nil {
		return err
	}
	flags := h.Flags & fs.ChattrFlags
	if c.Nocow && n.IsRegular() {
		flags &^= compress.FlagsOfProperty
	}
	if flags != 0 {
		return setFlags(c.t, n, flags)
	}
	return nil
}

// setFlags adds flags to those of n. What n has from its directory gives way to what they say: c, m
// and C exclude each other, and the old one is cleared before.
func setFlags(t *sched.Task, n *fs.Node, flags uint64) error {
	const exclusive = compress.FlagsOfProperty | format.InodeNoDataCow
	have := n.Flags()
	if want := flags & exclusive; want != 0 && have&exclusive&^want != 0 {
		have &^= exclusive &^ format.InodeNoDataCow
		if err := n.SetFlags(t, have); err != nil {
			return err
		}
	}
	return n.SetFlags(t, have|flags)
}

// special makes a device, a pipe or a socket.
func (c *In) special(src, to string, st iofs.FileInfo) error {
	if err := c.unlinkOld(to); err != nil {
		return err
	}
	if err := c.x.Mknod(c.t, to, imageMode(st.Mode()), statAttrs(st).Rdev); err != nil {
		return err
	}
	return c.attrs(src, to, st)
}

// object is what has been made on the host for an inode of the image: an open file or directory, or
// a name in a directory.
type object struct {
	f    *os.File // nil for a symbolic link and what is special
	dir  *hostDir // where it lies, nil for a path that the caller has named
	name string   // in dir, or the path
}

func (o *object) chown(uid, gid int) error {
	if o.f != nil {
		return o.f.Chown(uid, gid)
	}
	return o.dir.Lchown(o.name, uid, gid)
}

func (o *object) chmod(mode iofs.FileMode) error {
	if o.f != nil {
		return o.f.Chmod(mode)
	}
	return o.dir.Chmod(o.name, mode)
}

func (o *object) setTimes(atime, mtime time.Time) error {
	if o.dir == nil {
		return os.Chtimes(o.name, atime, mtime)
	}
	return o.dir.setTimes(o.name, atime, mtime)
}

// finish gives o the attributes of path, whose owner it has if st says so. What the host refuses is
// left out and named; an owner that it refuses takes setuid, setgid and capabilities along.
func (c *Out) finish(path string, at fs.Attr, o *object, st os.FileInfo) error {
	h := inodeAttrs{Attrs: attrsAt(at)}
	return c.Keep.finish(&h, func() ([]image.Xattr, error) { return c.xattrs(at) }, o, st, func(what string, err error) {
		c.count.w.LeaveOut(LeftOut{Name: path, Err: fmt.Errorf("%s: %w", what, err)})
	})
}

// finish gives o what k keeps of h, whose mode has the type as well; refused is told what the host
// does not take.
func (k Keep) finish(h *inodeAttrs, xattrs func() ([]image.Xattr, error), o *object, st os.FileInfo, refused func(what string, err error)) error {
	symlink := h.Mode&format.S_IFMT == format.S_IFLNK
	uid, gid, known := owner(st)
	trusted := known && uid == h.UID && gid == h.GID
	if k.Owners && !trusted {
		err := o.chown(int(h.UID), int(h.GID))
		if trusted = err == nil; !trusted {
			refused(fmt.Sprintf("owner %d:%d", h.UID, h.GID), err)
		}
	}
	if !symlink {
		// After the last write, which takes setuid away.
		if err := o.chmod(hostMode(modeOf(h.Mode, trusted))); err != nil {
			return err
		}
	}
	var property []byte
	if k.Xattrs {
		list, err := xattrs()
		if err != nil {
			return &unreadable{err}
		}
		for _, x := range list {
			switch {
			case x.Name == fs.Compression:
				property = x.Value
				continue
			case !copies(x.Name, trusted):
				continue
			}
			if err := o.setxattr(x.Name, x.Value); err != nil {
				refused("extended attribute "+x.Name, err)
			}
		}
	}
	if err := o.setTimes(h.Atime, h.Mtime); err != nil {
		return err
	}
	// Flags of chattr change the property in Linux, and an immutable file takes none.
	fixed := h.Flags&pinned != 0
	setProperty := func() {
		if property != nil {
			_ = o.setxattr(fs.Compression, property) // storage, which few hosts know: see below
		}
	}
	if fixed {
		setProperty()
	} else {
		defer setProperty()
	}
	if !k.Flags || symlink {
		return nil
	}
	// Where the data lies and whether it is compressed is the host's business.
	const storage = format.InodeNoDataCow | format.InodeNoDataSum | format.InodeNoCompress | format.InodeCompress
	flags := h.Flags & fs.ChattrFlags
	if host := flagsOfHost(flags); host != 0 {
		err := o.setFlags(host)
		if err != nil && flags&^storage != 0 {
			err = o.setFlags(flagsOfHost(flags &^ storage))
			if err != nil {
				refused("flags of chattr", err)
			}
		}
	}
	return nil
}

// xattrs reads the extended attributes of an inode of the image.
func (c *Out) xattrs(at fs.Attr) ([]image.Xattr, error) { return imageXattrs(c.t, c.x, at) }

func imageXattrs(t *sched.Task, x *fs.FS, at fs.Attr) (list []image.Xattr, err error) {
	n, err := x.Node(t, at.Subvol, at.Ino)
	if err != nil {
		return nil, err
	}
	defer n.Forget(t, 1)
	names, err := n.Listxattr(t)
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		value, err := n.Getxattr(t, name)
		if err != nil {
			return nil, err
		}
		list = append(list, image.Xattr{Name: name, Value: value})
	}
	return list, nil
}

// finishAt is finish of a name that is neither a regular file nor a directory.
func (c *Out) finishAt(path string, p place, at fs.Attr) error {
	st, err := p.dir.Lstat(p.name)
	if err != nil {
		return p.named(err)
	}
	return p.named(c.finish(path, at, &object{dir: p.dir, name: p.name}, st))
}
