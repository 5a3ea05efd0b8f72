package fs

import (
	"btrlab/internal/errno"
	"btrlab/internal/format"
	"btrlab/internal/sched"
)

// attr collects the attributes of an inode in memory.
func (n *node) attr(t *sched.Task) Attr {
	it := n.Item(t)
	a := Attr{Ino: n.Ino, Mode: it.Mode, Nlink: it.Nlink, UID: it.UID, GID: it.GID, Rdev: it.Rdev, Size: it.Size, Nbytes: it.Nbytes,
		Flags: it.Flags, Generation: it.Generation,
		Atime: it.Atime.Time(), Mtime: it.Mtime.Time(), Ctime: it.Ctime.Time(), Otime: it.Otime.Time()}
	if n.isRegular() {
		a.Size = n.Size(t)
	}
	return a
}

// chattrFlags are the flags that chattr(1) may change, and what of them this program keeps.
const chattrFlags = format.InodeNoDataCow | format.InodeNoDataSum | format.InodeNoCompress | format.InodeSync | format.InodeImmutable |
	format.InodeAppend | format.InodeNoDump | format.InodeNoAtime | format.InodeDirSync

// setFlags models btrfs_fileattr_set(): NODATACOW on a regular file brings NODATASUM, and neither changes once the file has data.
func (f *FS) setFlags(t *sched.Task, n *node, flags uint64) error {
	if err := f.writable(); err != nil {
		return err
	}
	if n.isDir() {
		n.lockParent(t)
	} else {
		n.Lock(t)
	}
	defer n.Unlock(t)
	old := n.Flags()
	flags = flags&chattrFlags | old&^chattrFlags
	if n.isRegular() {
		if flags&format.InodeNoDataCow != 0 {
			flags |= format.InodeNoDataSum
		} else {
			flags &^= format.InodeNoDataSum
		}
		if (flags^old)&(format.InodeNoDataCow|format.InodeNoDataSum) != 0 && n.Size(t) != 0 {
			return errno.EINVAL
		}
	}
	h, err := f.trans.Start(t, 1)
	if err != nil {
		return err
	}
	n.SetFlags(flags)
	now := f.now()
	n.Change(t, func(i *format.InodeItem) { i.Ctime = now })
	n.LastTransid.Store(h.Transid())
	return f.end(t, h, nil)
}
