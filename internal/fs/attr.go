package fs

import (
	"errors"
	"time"

	"btrlab/internal/compress"
	"btrlab/internal/errno"
	"btrlab/internal/format"
	"btrlab/internal/iopath/setsize"
	"btrlab/internal/sched"
)

// Attr is the attributes of an inode, as struct stat has them.
type Attr struct {
	Ino format.Ino
	// the tree with the inode: inode numbers are unique in one subvolume
	Subvol   uint64
	Mode     uint32 // S_IFMT and permissions
	Nlink    uint32
	UID, GID uint32
	Rdev     uint64 // of a device file: the kernel's number, major<<20 | minor
	Size     uint64 // bytes
	// bytes allocated, as written; delayed allocation is not in it
	Nbytes                     uint64
	Blocks                     uint64 // units of 512 bytes, with delayed allocation: st_blocks
	Flags                      uint64 // format.InodeNoDataCow, ...
	Generation                 uint64
	Atime, Mtime, Ctime, Otime time.Time
}

// IsDir reports whether the object is a directory.
func (a *Attr) IsDir() bool { return a.Mode&format.S_IFMT == format.S_IFDIR }

// IsRegular reports whether the object is a regular file.
func (a *Attr) IsRegular() bool { return a.Mode&format.S_IFMT == format.S_IFREG }

// IsSymlink reports whether the object is a symbolic link.
func (a *Attr) IsSymlink() bool { return a.Mode&format.S_IFMT == format.S_IFLNK }

// Attr gives the attributes. Models btrfs_getattr().
func (n *Node) Attr(t *sched.Task) Attr {
	it := n.ip.Item(t)
	a := Attr{Ino: n.ip.Ino, Subvol: n.vol.root.ID, Mode: it.Mode, Nlink: it.Nlink, UID: it.UID, GID: it.GID, Rdev: it.Rdev,
		Size: it.Size, Nbytes: it.Nbytes, Flags: it.Flags, Generation: it.Generation,
		Atime: it.Atime.Time(), Mtime: it.Mtime.Time(), Ctime: it.Ctime.Time(), Otime: it.Otime.Time()}
	a.Blocks = (format.AlignUp(it.Nbytes, format.SectorSize) + format.AlignUp(n.ip.DelallocBytes(), format.SectorSize)) >> 9
	if n.IsRegular() {
		a.Size = n.ip.Size(t)
	}
	return a
}

// SetMask says which attributes SetAttr changes.
type SetMask uint32

// The attributes that can be set.
const (
	SetMode SetMask = 1 << iota
	SetUID
	SetGID
	SetSize
	SetAtime
	SetMtime
	SetAtimeNow // to the time of the call
	SetMtimeNow
	// SetNoSUID takes the setuid bit away, and the setgid bit of a file that its group may execute:
	// what a write, a truncate or a chown does on behalf of a process without CAP_FSETID. Nothing
	// happens to a directory.
	SetNoSUID
)

// SetAttr says how to change attributes. Models struct iattr.
type SetAttr struct {
	Set          SetMask // only these
	Mode         uint32  // permissions; the type stays
	UID, GID     uint32
	Size         uint64
	Atime, Mtime time.Time
}

// touches reports whether both times become now and no other time is named: utime(NULL), which an
// append-only file allows. Models ATTR_TOUCH.
func (c *SetAttr) touches() bool {
	const now = SetAtimeNow | SetMtimeNow
	return c.Set&now == now
}

// explicit reports whether a mode, an owner or a time is named: not by utime(NULL), and not the
// loss of setuid. Models ATTR_MODE, ATTR_UID, ATTR_GID and ATTR_TIMES_SET.
func (c *SetAttr) explicit() bool {
	named := SetMode | SetUID | SetGID
	if !c.touches() && c.Set&SetSize == 0 { // a truncate sets mtime by itself
		named |= SetAtime | SetMtime | SetAtimeNow | SetMtimeNow
	}
	return c.Set&named != 0
}

// SetAttr changes attributes; ctime becomes now. The size is set first, by the policy in force, and
// the rest in one transaction of its own. EISDIR and EINVAL for the size of what is no regular
// file. Models btrfs_setattr().
func (n *Node) SetAttr(t *sched.Task, c SetAttr) error {
	if err := n.writable(); err != nil {
		return err
	}
	switch {
	case c.explicit() && n.pinned(), c.touches() && n.sealed(), c.Set&SetSize != 0 && (n.sealed() || n.appendOnly()):
		return errno.EPERM // models may_setattr() and vfs_truncate()
	}
	if c.Set&SetSize != 0 {
		if err := n.truncate(t, c.Size); err != nil || c.Set == SetSize {
			return err
		}
	}
	now := n.fs.now()
	n.lock(t)
	defer n.ip.Unlock(t)
	if c.Set&(SetUID|SetGID) != 0 && !n.IsDir() { // models chown_common()
		if err := n.fs.env.RemovePrivs(t, n.ip, false); err != nil {
			return err
		}
	}
	var acl []byte
	units := 1
	if c.Set&SetMode != 0 {
		var err error
		if acl, err = n.chmodACL(t, c.Mode); err != nil {
			return err
		}
	}
	if acl != nil {
		units += unitsProperty
	}
	h, err := n.fs.trans.StartIn(t, n.vol.root, units)
	if err != nil {
		return err
	}
	if acl != nil {
		if err := n.fs.store.Setxattr(t, h.Trans(), n.vol.root, n.ip.Ino, ACLAccess, acl); err != nil {
			return n.fs.abort(t, h, err)
		}
		n.ip.ItemsChanged(h.Transid())
	}
	n.ip.Change(t, func(it *format.InodeItem) {
		if c.Set&SetMode != 0 {
			it.Mode = it.Mode&format.S_IFMT | c.Mode&0o7777
		}
		if c.Set&SetNoSUID != 0 {
			it.Mode = withoutSUID(it.Mode)
		}
		if c.Set&SetUID != 0 {
			it.UID = c.UID
		}
		if c.Set&SetGID != 0 {
			it.GID = c.GID
		}
		if c.Set&SetAtime != 0 {
			it.Atime = format.TimespecOf(c.Atime)
		}
		if c.Set&SetMtime != 0 {
			it.Mtime = format.TimespecOf(c.Mtime)
		}
		if c.Set&SetAtimeNow != 0 {
			it.Atime = now
		}
		if c.Set&SetMtimeNow != 0 {
			it.Mtime = now
		}
		it.Ctime = now
	})
	n.ip.LastTransid.Store(h.Transid())
	return n.fs.end(t, h, nil)
}

// DropSUID is SetAttr with SetNoSUID if that changes the mode, which it reports. Models
// file_remove_privs() for a writer without CAP_FSETID.
func (n *Node) DropSUID(t *sched.Task) (changed bool, err error) {
	it := n.ip.Item(t)
	if withoutSUID(it.Mode) == it.Mode {
		return false, nil
	}
	return true, n.SetAttr(t, SetAttr{Set: SetNoSUID})
}

// withoutSUID is mode without the bits that make a program run for another user. Models
// setattr_should_drop_suidgid(): setgid without group execution is no such bit, and stays.
func withoutSUID(mode uint32) uint32 {
	if mode&format.S_IFMT == format.S_IFDIR {
		return mode
	}
	mode &^= format.S_ISUID
	if mode&format.S_IXGRP != 0 {
		mode &^= format.S_ISGID
	}
	return mode
}

// truncate sets the size of a regular file.
func (n *Node) truncate(t *sched.Task, size uint64) error {
	switch {
	case n.IsDir():
		return errno.EISDIR
	case !n.IsRegular():
		return errno.EINVAL
	}
	return setsize.Truncate(t, &n.fs.env, n.ip, size)
}

// ChattrFlags are the flags that chattr(1) may change and that this program keeps.
const ChattrFlags = format.InodeNoDataCow | format.InodeNoDataSum | format.InodeNoCompress | format.InodeCompress | format.InodeSync |
	format.InodeImmutable | format.InodeAppend | format.InodeNoDump | format.InodeNoAtime | format.InodeDirSync

// Flags are the inode flags, format.InodeNoDataCow and so on, as Shown.
func (n *Node) Flags() uint64 { return Shown(n.ip.Flags()) }

// ChattrFlag is the flag of a letter of chattr(1), 0 of one that is not kept.
func ChattrFlag(letter string) uint64 {
	switch letter {
	case "a":
		return format.InodeAppend
	case "A":
		return format.InodeNoAtime
	case "c":
		return format.InodeCompress
	case "C":
		return format.InodeNoDataCow
	case "d":
		return format.InodeNoDump
	case "D":
		return format.InodeDirSync
	case "i":
		return format.InodeImmutable
	case "m":
		return format.InodeNoCompress
	case "S":
		return format.InodeSync
	}
	return 0
}

// SetFlags replaces the inode flags that chattr(1) may change; a directory passes
// format.InodeNoDataCow and those of compression on to what is created in it, a file takes
// NODATACOW only while it is empty (EINVAL). COMPRESS, NOCOMPRESS and NODATACOW exclude each other,
// and one cannot take the place of another that excludes it by one call (EINVAL). COMPRESS brings
// the property btrfs.compression with the kind of SetCompress, or zlib; whatever else changes
// COMPRESS or NOCOMPRESS takes the property away.
//
// Models check_fsflags() and btrfs_fileattr_set(): NODATACOW on a regular file brings NODATASUM
// with it, and neither changes once the file has data. Difference: a property stays when COMPRESS
// and NOCOMPRESS do; Linux sets it to the kind of its mount option, or zlib, or takes it away, also
// when another flag changes.
func (n *Node) SetFlags(t *sched.Task, flags uint64) error {
	if err := n.writable(); err != nil {
		return err
	}
	n.lock(t)
	defer n.ip.Unlock(t)
	old := Shown(n.ip.Flags())
	flags = flags&ChattrFlags | old&^ChattrFlags
	if !compatible(old, flags) {
		return errno.EINVAL
	}
	if n.IsRegular() {
		if flags&format.InodeNoDataCow != 0 {
			flags |= format.InodeNoDataSum
		} else {
			flags &^= format.InodeNoDataSum
		}
		if (flags^old)&(format.InodeNoDataCow|format.InodeNoDataSum) != 0 && n.ip.Size(t) != 0 {
			return errno.EINVAL
		}
	}
	compressing := (flags^old)&compress.FlagsOfProperty != 0
	units := 1
	if compressing {
		units += unitsProperty
	}
	h, err := n.fs.trans.StartIn(t, n.vol.root, units)
	if err != nil {
		return err
	}
	if compressing {
		value := ""
		if flags&format.InodeCompress != 0 && hasProperties(n.typ) {
			value = n.fs.engine.CompressName()
		}
		switch err := n.storeCompression(t, h, value); {
		case errors.Is(err, errno.ENOSPC): // nothing has changed
			return n.fs.end(t, h, err)
		case err != nil && !errors.Is(err, errno.ENOENT):
			return n.fs.abort(t, h, err)
		}
		n.applyCompression(value)
		n.ip.ItemsChanged(h.Transid())
	}
	n.ip.SetFlags(flags)
	now := n.fs.now()
	n.ip.Change(t, func(i *format.InodeItem) { i.Ctime = now })
	n.ip.LastTransid.Store(h.Transid())
	return n.fs.end(t, h, nil)
}

// Shown is flags without COMPRESS where NOCOMPRESS hides it: an inode with both was to be
// compressed, and was found not to be worth it. Models btrfs_inode_flags_to_fsflags().
func Shown(flags uint64) uint64 {
	if flags&format.InodeNoCompress != 0 {
		flags &^= format.InodeCompress
	}
	return flags
}

// compatible reports whether an inode with the old flags may have these. Models check_fsflags().
func compatible(old, flags uint64) bool {
	const both = format.InodeCompress | format.InodeNoCompress
	nocow := func(flags uint64) bool { return flags&format.InodeNoDataCow != 0 }
	switch {
	case flags&both == both, nocow(flags) && flags&format.InodeCompress != 0:
		return false
	case nocow(old) && flags&both != 0, nocow(flags) && old&both != 0:
		return false
	}
	return true
}
