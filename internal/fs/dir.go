package fs

import (
	"btrlab/internal/errno"
	"btrlab/internal/format"
	"btrlab/internal/meta/transaction"
	"btrlab/internal/sched"
)

// Units of metadata reservation of the namespace operations: items that they insert or change, as the
// kernel counts them in btrfs_create_new_inode(), btrfs_unlink() and btrfs_rename().
const (
	unitsCreate = 6 // inode item, inode ref, dir item, dir index, parent's inode item, symlink's extent
	unitsUnlink = 6 // dir item, dir index, inode ref, both inode items, orphan item
	unitsLink   = 5 // dir item, dir index, inode ref, both inode items
	unitsRename = 11
	unitsEvict  = 2
)

// maxLinks bounds the hard links of an inode, as BTRFS_LINK_MAX.
const maxLinks = 65535

// create makes a new inode with a name in dir. Models btrfs_create_new_inode() and btrfs_create_common().
//
// Preconditions:
//   - dir is locked for writing and is a directory.
func (f *FS) create(t *sched.Task, dir *node, name string, mode uint32, target string) (*node, error) {
	if err := f.writable(); err != nil {
		return nil, err
	}
	if err := checkName(name); err != nil {
		return nil, err
	}
	if dir.nlink(t) == 0 {
		return nil, errno.ENOENT
	}
	if _, err := f.store.Lookup(t, dir.vol.root, dir.Ino, name); err != errno.ENOENT {
		if err == nil {
			err = errno.EEXIST
		}
		return nil, err
	}
	index, err := f.takeDirIndex(t, dir)
	if err != nil {
		return nil, err
	}
	h, err := f.trans.Start(t, unitsCreate)
	if err != nil {
		return nil, err
	}
	now := f.now()
	item := format.InodeItem{
		Generation: h.Transid(), Transid: h.Transid(), Nlink: 1, UID: f.opt.UID, GID: f.opt.GID,
		Mode: mode, Atime: now, Ctime: now, Mtime: now, Otime: now,
	}
	item.Flags = inheritFlags(dir.Flags(), mode)
	if mode&format.S_IFMT == format.S_IFLNK {
		item.Size = uint64(len(target))
		item.Nbytes = uint64(len(target))
	}
	ino := dir.vol.nextIno.Add(1) - 1
	if ino > format.LAST_FREE_OBJECTID {
		return nil, f.end(t, h, errno.ENOSPC)
	}
	tr := h.Trans()
	err = f.store.InsertInode(t, tr, dir.vol.root, ino, &item)
	if err == nil && target != "" {
		err = f.store.InsertFileExtent(t, tr, dir.vol.root, ino, 0, &format.FileExtent{
			Generation: h.Transid(), RAMBytes: uint64(len(target)), Type: format.FileExtentTypeInline, Inline: []byte(target),
		})
	}
	if err == nil {
		err = f.store.AddLink(t, tr, dir.vol.root, dir.Ino, ino, name, format.FtOf(mode), index)
	}
	if err != nil {
		return nil, f.abort(t, h, err)
	}
	f.dirSizeChanged(t, dir, h, int64(2*len(name)), now)
	n := f.insertNew(t, dir.vol, ino, &item)
	n.LastTransid.Store(h.Transid())
	if err := f.end(t, h, nil); err != nil {
		f.put(t, n)
		return nil, err
	}
	return n, nil
}

// inheritFlags gives a new inode the flags of its directory. Models btrfs_inherit_iflags(): NODATACOW on a
// regular file brings NODATASUM with it.
func inheritFlags(dir uint64, mode uint32) uint64 {
	var flags uint64
	if dir&format.InodeNoDataCow != 0 {
		flags |= format.InodeNoDataCow
		if mode&format.S_IFMT == format.S_IFREG {
			flags |= format.InodeNoDataSum
		}
	}
	if dir&format.InodeNoCompress != 0 {
		flags |= format.InodeNoCompress
	} else if dir&format.InodeCompress != 0 {
		flags |= format.InodeCompress
	}
	return flags
}

// takeDirIndex gives the next index of a directory, which it reads from the tree the first time.
// Models btrfs_set_inode_index(). dir is locked for writing.
func (f *FS) takeDirIndex(t *sched.Task, dir *node) (uint64, error) {
	if dir.nextIndex == 0 {
		next, err := f.store.NextDirIndex(t, dir.vol.root, dir.Ino)
		if err != nil {
			return 0, err
		}
		dir.nextIndex = next
	}
	dir.nextIndex++
	return dir.nextIndex - 1, nil
}

// dirSizeChanged accounts a name that came or went. A directory's size is twice the sum of its names' lengths.
func (f *FS) dirSizeChanged(t *sched.Task, dir *node, h *transaction.Handle, by int64, now format.Timespec) {
	dir.Change(t, func(i *format.InodeItem) {
		i.Size = uint64(int64(i.Size) + by)
		i.Mtime, i.Ctime = now, now
		i.Sequence++
	})
	dir.LastTransid.Store(h.Transid())
}
