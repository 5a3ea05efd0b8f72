package fs

import (
	"errors"
	"fmt"
	"strings"

	"btrlab/internal/compress"
	"btrlab/internal/errno"
	"btrlab/internal/format"
	"btrlab/internal/meta/transaction"
	"btrlab/internal/sched"
)

// Units of metadata reservation of the namespace operations: items that they insert or change, as
// the kernel counts them in btrfs_create_new_inode(), btrfs_unlink() and btrfs_rename().
const (
	// inode item, inode ref, dir item, dir index, parent's inode item
	unitsCreate   = 5
	unitsSymlink  = 1 // more: its extent
	unitsProperty = 1 // more: its property
	unitsUnlink   = 6 // dir item, dir index, inode ref, both inode items, orphan item
	unitsLink     = 5 // dir item, dir index, inode ref, both inode items
	// of the old name: dir item, dir index, inode ref, inode item, parent's inode item; of the new
	// name: dir item, dir index, inode ref
	unitsRename  = 8
	unitsNewDir  = 1 // more in another directory: its inode item
	unitsReplace = 5 // more over a file: dir item, dir index, inode ref, inode item, orphan item
	unitsEvict   = 2
)

// maxLinks bounds the hard links of an inode, as BTRFS_LINK_MAX.
const maxLinks = 65535

// pathMax is the size in bytes of a path with the zero byte at its end, as PATH_MAX.
const pathMax = 4096

// checkName says whether name may be the name of something new.
func checkName(name string) error {
	switch {
	case name == "" || strings.ContainsAny(name, "/\x00"):
		return errno.EINVAL
	case name == "." || name == "..":
		return errno.EEXIST
	case len(name) > format.MaxNameLen:
		return errno.ENAMETOOLONG
	}
	return nil
}

// Lookup finds what the directory calls name; "." and ".." are the directory and its parent. Models
// btrfs_lookup().
func (d *Node) Lookup(t *sched.Task, name string) (*Node, error) {
	switch {
	case !d.IsDir():
		return nil, errno.ENOTDIR
	case len(name) > format.MaxNameLen:
		return nil, errno.ENAMETOOLONG
	case name == ".":
		return d.fs.get(t, d), nil
	case name == "..":
		return d.fs.parent(t, d)
	}
	d.ip.RLock(t)
	it, err := d.fs.store.Lookup(t, d.vol.root, d.ip.Ino, name)
	d.ip.RUnlock(t)
	if err != nil {
		return nil, err
	}
	return d.fs.igetEntry(t, d, it)
}

// parent is the directory that has dir. Models btrfs_get_parent().
func (f *FS) parent(t *sched.Task, dir *Node) (*Node, error) {
	if dir.isTop() {
		return f.above(t, dir)
	}
	names, err := f.store.Names(t, dir.vol.root, dir.ip.Ino)
	if err != nil {
		return nil, err
	}
	if len(names) == 0 {
		return nil, errno.ENOENT // removed
	}
	return f.iget(t, dir.vol, names[0].Dir)
}

// DirEntry is one name in a directory.
type DirEntry struct {
	Name  string
	Ino   format.Ino
	Type  uint8  // format.FtRegFile, ...
	Index uint64 // DIR_INDEX: the order in which ReadDir goes
	// Subvol is the tree id when the entry is a subvolume, whose top directory is inode Ino of that
	// tree; else zero.
	Subvol uint64
}

// ReadDir calls f for the entries of the directory whose index is from or more, in the order of the
// index and without "." and "..", until f returns false. Index+1 of the last entry is where the
// next call goes on, also after entries came and went. The directory is locked for reading
// meanwhile: f must not use the file system. Models btrfs_real_readdir().
func (d *Node) ReadDir(t *sched.Task, from uint64, f func(e DirEntry) bool) error {
	if !d.IsDir() {
		return errno.ENOTDIR
	}
	d.ip.RLock(t)
	defer d.ip.RUnlock(t)
	return d.fs.store.ReadDir(t, d.vol.root, d.ip.Ino, from, func(index uint64, it format.DirItem) bool {
		e := DirEntry{Name: it.Name, Ino: format.Ino(it.Location.Objectid), Type: it.Type, Index: index}
		if it.Location.Type == format.ROOT_ITEM_KEY {
			e.Subvol, e.Ino = it.Location.Objectid, format.FIRST_FREE_OBJECTID
		}
		return f(e)
	})
}

// Create makes an empty regular file, or finds the file that has the name unless flags has O_EXCL.
// The name is looked up and the file made under one lock of the directory. Models
// open_last_lookups() with btrfs_create().
func (d *Node) Create(t *sched.Task, name string, flags OpenFlags, mode uint32, own Owner) (*Node, error) {
	if !d.IsDir() {
		return nil, errno.ENOTDIR
	}
	d.lockParent(t)
	it, err := d.fs.store.Lookup(t, d.vol.root, d.ip.Ino, name)
	if errors.Is(err, errno.ENOENT) {
		n, err := d.fs.create(t, d, name, &creation{mode: format.S_IFREG | mode&0o7777, own: own})
		d.ip.Unlock(t)
		return n, err
	}
	d.ip.Unlock(t)
	switch {
	case err != nil:
		return nil, err
	case flags&O_EXCL != 0:
		return nil, errno.EEXIST
	}
	return d.fs.igetEntry(t, d, it)
}

// Mkdir makes an empty directory.
func (d *Node) Mkdir(t *sched.Task, name string, mode uint32, own Owner) (*Node, error) {
	return d.make(t, name, &creation{mode: format.S_IFDIR | mode&0o7777, own: own})
}

// Mknod makes a device file, a named pipe, a socket or an empty regular file, as the type in mode
// (S_IFMT) says; rdev is the kernel's device number, major<<20 | minor, of a device file.
func (d *Node) Mknod(t *sched.Task, name string, mode uint32, rdev uint64, own Owner) (*Node, error) {
	c := creation{mode: mode & (format.S_IFMT | 0o7777), own: own}
	switch mode & format.S_IFMT {
	case format.S_IFCHR, format.S_IFBLK:
		c.rdev = rdev
	case format.S_IFIFO, format.S_IFSOCK, format.S_IFREG:
	default:
		return nil, errno.EINVAL
	}
	return d.make(t, name, &c)
}

// Symlink makes a symbolic link to target, which lies inline in one item: what is longer than a
// leaf or than a path is ENAMETOOLONG. Models btrfs_symlink() and getname().
func (d *Node) Symlink(t *sched.Task, name, target string, own Owner) (*Node, error) {
	longest := min(pathMax-1, d.fs.trans.Forest.MaxItemSize()-format.FileExtentInline)
	switch {
	case target == "":
		return nil, errno.ENOENT
	case len(target) > longest:
		return nil, errno.ENAMETOOLONG
	}
	return d.make(t, name, &creation{mode: format.S_IFLNK | 0o777, target: target, own: own})
}

// make is create under the directory's lock.
func (d *Node) make(t *sched.Task, name string, c *creation) (*Node, error) {
	if !d.IsDir() {
		return nil, errno.ENOTDIR
	}
	d.lockParent(t)
	defer d.ip.Unlock(t)
	return d.fs.create(t, d, name, c)
}

// creation says what create makes. Models struct btrfs_new_inode_args.
type creation struct {
	mode   uint32 // S_IFMT and permissions
	own    Owner
	rdev   uint64
	target string // of a symbolic link

	// What prepare finds out.
	flags             uint64 // of the inode
	prop              string // its property, or ""
	access, byDefault []byte // its ACLs, or nil
}

// prepare finds out what an inode made in dir takes after it, and what that is in units. Models
// inode_init_owner(), posix_acl_create() and btrfs_inherit_iflags().
func (c *creation) prepare(t *sched.Task, dir *Node) (units int, err error) {
	if c.own.Inherit {
		if c.access, c.byDefault, err = c.inheritACL(t, dir); err != nil {
			return 0, err
		}
		it := dir.ip.Item(t)
		if it.Mode&format.S_ISGID != 0 {
			c.own.GID = it.GID
			if c.mode&format.S_IFMT == format.S_IFDIR {
				c.mode |= format.S_ISGID
			}
		}
	}
	c.flags = inheritFlags(dir.ip.Flags(), c.mode)
	c.prop = inherited(dir, c.mode, c.flags)
	units = unitsCreate
	if c.target != "" {
		units += unitsSymlink
	}
	if c.prop != "" {
		units += unitsProperty
	}
	if c.access != nil {
		units += unitsProperty
	}
	if c.byDefault != nil {
		units += unitsProperty
	}
	return units, nil
}

// create makes a new inode with a name in dir. Models btrfs_create_new_inode() and
// btrfs_create_common().
//
// Preconditions:
//   - dir is locked for writing and is a directory.
func (f *FS) create(t *sched.Task, dir *Node, name string, c *creation) (*Node, error) {
	if err := f.mayCreate(t, dir, name); err != nil {
		return nil, err
	}
	index, err := f.takeDirIndex(t, dir)
	if err != nil {
		return nil, err
	}
	units, err := c.prepare(t, dir)
	if err != nil {
		return nil, err
	}
	h, err := f.trans.StartIn(t, dir.vol.root, units)
	if err != nil {
		return nil, err
	}
	n, err := f.createIn(t, h, dir, name, index, c)
	if errors.Is(err, errNoNumber) {
		return nil, f.end(t, h, errno.ENOSPC)
	}
	if err != nil {
		return nil, f.abort(t, h, err)
	}
	if err := f.end(t, h, nil); err != nil {
		f.put(t, n)
		return nil, err
	}
	return n, nil
}

// errNoNumber says that a subvolume has no inode number left; nothing has changed.
var errNoNumber = errors.New("no inode number is left")

// createIn is create in the transaction of h, at index of dir. Without a name it makes an orphan.
// The caller puts the node. An error aborts the transaction, but for errNoNumber.
func (f *FS) createIn(t *sched.Task, h *transaction.Handle, dir *Node, name string, index uint64, c *creation) (*Node, error) {
	now := f.now()
	item := format.InodeItem{
		Generation: h.Transid(), Transid: h.Transid(), Nlink: 1, UID: c.own.UID, GID: c.own.GID,
		Mode: c.mode, Rdev: c.rdev, Atime: now, Ctime: now, Mtime: now, Otime: now,
	}
	item.Flags = c.flags | compress.PropertyFlags(c.prop)
	item.Size = uint64(len(c.target))
	item.Nbytes = uint64(len(c.target))
	if name == "" {
		item.Nlink = 0
	}
	ino := format.Ino(dir.vol.nextIno.Add(1) - 1)
	if ino > format.Ino(format.LAST_FREE_OBJECTID) {
		return nil, errNoNumber
	}
	tr, r := h.Trans(), dir.vol.root
	f.logs.Pin(t, r)
	err := f.store.InsertInode(t, tr, r, ino, &item)
	for _, x := range []struct {
		name  string
		value []byte
	}{{Compression, []byte(c.prop)}, {ACLAccess, c.access}, {ACLDefault, c.byDefault}} {
		if err == nil && len(x.value) > 0 {
			err = f.store.Setxattr(t, tr, r, ino, x.name, x.value)
		}
	}
	if err == nil && c.target != "" {
		err = f.store.InsertFileExtent(t, tr, r, ino, 0, &format.FileExtent{
			Generation: h.Transid(), RAMBytes: uint64(len(c.target)), Type: format.FileExtentTypeInline, Inline: []byte(c.target),
		})
	}
	if err == nil && name == "" {
		err = f.store.InsertOrphan(t, tr, r, ino)
	} else if err == nil {
		err = f.store.AddLink(t, tr, r, dir.ip.Ino, ino, name, format.FtOf(c.mode), index)
	}
	f.logs.Unpin(t, r)
	if err != nil {
		return nil, err
	}
	if name != "" {
		dir.ip.NameAdded(h.Transid(), index)
		f.dirSizeChanged(t, dir, h, int64(2*len(name)), now)
	}
	n := f.insertNew(t, dir.vol, ino, &item)
	n.ip.LastTransid.Store(h.Transid())
	if c.prop != "" {
		n.ip.SetCompressProp(dir.ip.CompressProp())
	}
	n.ip.ItemsChanged(h.Transid())
	return n, nil
}

// Tmpfile makes a regular file without a name in the subvolume of the directory d. Link gives it
// one, unless flags has O_EXCL; without one it is deleted with its last reference, or by the next
// open after a crash. Models btrfs_tmpfile() and vfs_tmpfile().
func (d *Node) Tmpfile(t *sched.Task, flags OpenFlags, mode uint32, own Owner) (*Node, error) {
	f := d.fs
	if !d.IsDir() {
		return nil, errno.ENOTDIR
	}
	d.lockParent(t)
	defer d.ip.Unlock(t)
	if d.nlink(t) == 0 {
		return nil, errno.ENOENT
	}
	if err := d.writable(); err != nil {
		return nil, err
	}
	c := creation{mode: format.S_IFREG | mode&0o7777, own: own}
	units, err := c.prepare(t, d)
	if err != nil {
		return nil, err
	}
	h, err := f.trans.StartIn(t, d.vol.root, units)
	if err != nil {
		return nil, err
	}
	n, err := f.createIn(t, h, d, "", 0, &c)
	if errors.Is(err, errNoNumber) {
		return nil, f.end(t, h, errno.ENOSPC)
	}
	if err != nil {
		return nil, f.abort(t, h, err)
	}
	n.linkable.Store(flags&O_EXCL == 0)
	if err := f.end(t, h, nil); err != nil {
		f.put(t, n)
		return nil, err
	}
	return n, nil
}

// mayCreate says why dir may not get something new with the name. dir is locked for writing. Models
// filename_create(), whose EEXIST comes before the EROFS of a read-only mount, with may_create().
func (f *FS) mayCreate(t *sched.Task, dir *Node, name string) error {
	dir.ip.AssertLocked(t)
	if err := checkName(name); err != nil {
		return err
	}
	if dir.nlink(t) == 0 {
		return errno.ENOENT
	}
	if err := f.absent(t, dir, name); err != nil {
		return err
	}
	if err := f.writable(); err != nil {
		return err
	}
	return dir.mayChange()
}

// absent is EEXIST when dir has the name, EOVERFLOW when it has too many of the same hash: known
// before a transaction begins, which would have to be aborted. dir is locked.
func (f *FS) absent(t *sched.Task, dir *Node, name string) error {
	dir.ip.AssertLocked(t)
	return f.store.RoomForName(t, dir.vol.root, dir.ip.Ino, name)
}

// inheritFlags gives a new inode the flags of its directory. Models btrfs_inherit_iflags():
// NODATACOW on a regular file brings NODATASUM with it.
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

// DirEnd is an index above those of all names that the directory has. A reader that stops there
// comes to an end also when names are added meanwhile. Models btrfs_get_dir_last_index().
func (d *Node) DirEnd(t *sched.Task) (uint64, error) {
	if !d.IsDir() {
		return 0, errno.ENOTDIR
	}
	d.lockParent(t)
	defer d.ip.Unlock(t)
	index, err := d.fs.takeDirIndex(t, d)
	if err == nil {
		d.nextIndex--
	}
	return index, err
}

// takeDirIndex gives the next index of a directory, which it reads from the tree the first time.
// Models btrfs_set_inode_index(). dir is locked for writing.
func (f *FS) takeDirIndex(t *sched.Task, dir *Node) (uint64, error) {
	dir.ip.AssertLocked(t)
	if dir.nextIndex == 0 {
		next, err := f.store.NextDirIndex(t, dir.vol.root, dir.ip.Ino)
		if err != nil {
			return 0, err
		}
		dir.nextIndex = next
	}
	dir.nextIndex++
	return dir.nextIndex - 1, nil
}

// dirSizeChanged accounts a name that came or went. A directory's size is twice the sum of its
// names' lengths.
func (f *FS) dirSizeChanged(t *sched.Task, dir *Node, h *transaction.Handle, by int64, now format.Timespec) {
	dir.ip.Change(t, func(i *format.InodeItem) {
		i.Size = uint64(int64(i.Size) + by)
		i.Mtime, i.Ctime = now, now
		i.Sequence++
	})
	dir.ip.LastTransid.Store(h.Transid())
}

func errElsewhere() error {
	return fmt.Errorf("the new name is in another subvolume: %w", errno.EXDEV)
}

// Link gives n, which is no directory, one more name. EXDEV when it is in another subvolume. Models
// vfs_link() with btrfs_link(), and the order of their errors.
func (d *Node) Link(t *sched.Task, name string, n *Node) error {
	f := d.fs
	if !d.IsDir() {
		return errno.ENOTDIR
	}
	d.lockParent(t)
	defer d.ip.Unlock(t)
	if err := f.mayCreate(t, d, name); err != nil {
		return err
	}
	if n.IsDir() || n.pinned() {
		return errno.EPERM
	}
	n.lockChild(t, subChild)
	defer n.ip.Unlock(t)
	links := n.nlink(t)
	switch {
	case links == 0 && !n.linkable.Load(): // models vfs_link() of an inode without I_LINKABLE
		return errno.ENOENT
	case n.vol != d.vol:
		return errElsewhere()
	case links >= maxLinks:
		return errno.EMLINK
	}
	index, err := f.takeDirIndex(t, d)
	if err != nil {
		return err
	}
	units := unitsLink
	if links == 0 {
		units++ // the orphan item that goes
	}
	h, err := f.trans.StartIn(t, d.vol.root, units)
	if err != nil {
		return err
	}
	f.logs.Pin(t, d.vol.root)
	err = f.store.AddLink(t, h.Trans(), d.vol.root, d.ip.Ino, n.ip.Ino, name, format.FtOf(n.typ), index)
	if err == nil && links == 0 { // of Tmpfile
		f.logs.CommitNext(h.Transid()) // an orphan that the trees may have has no log
		n.linkable.Store(false)
		if err := f.store.DelOrphan(t, h.Trans(), n.vol.root, n.ip.Ino); err != nil {
			f.logs.Unpin(t, d.vol.root)
			return f.abort(t, h, err)
		}
	}
	f.logs.Unpin(t, d.vol.root)
	if err != nil {
		// Nothing has changed yet when the name's item has no room for one more.
		if errors.Is(err, errno.EOVERFLOW) || errors.Is(err, errno.EMLINK) {
			return f.end(t, h, err)
		}
		return f.abort(t, h, err)
	}
	d.ip.NameAdded(h.Transid(), index)
	now := f.now()
	f.dirSizeChanged(t, d, h, int64(2*len(name)), now)
	n.ip.Change(t, func(i *format.InodeItem) { i.Nlink++; i.Ctime = now })
	n.ip.LastTransid.Store(h.Transid())
	n.ip.ItemsChanged(h.Transid())
	return f.end(t, h, nil)
}

// Readlink gives the target of a symbolic link: of the one inline extent of the inode as many bytes
// as i_size says. mkfs.btrfs --rootdir of btrfs-progs 6.2 stores a NUL after them. Models
// page_get_link().
func (n *Node) Readlink(t *sched.Task) (string, error) {
	if !n.IsSymlink() {
		return "", errno.EINVAL
	}
	start, fe, ok, err := n.fs.store.LookupFileExtent(t, n.vol.root, n.ip.Ino, 0)
	switch {
	case err != nil:
		return "", err
	case !ok || start != 0 || fe.Type != format.FileExtentTypeInline:
		return "", fmt.Errorf("corrupt symbolic link: root=%d ino=%d has no inline extent: %w", n.vol.root.ID, n.ip.Ino, errno.EUCLEAN)
	case fe.Compression != format.CompressNone:
		return "", errno.EOPNOTSUPP
	}
	return string(fe.Inline[:min(uint64(len(fe.Inline)), n.ip.Size(t))]), nil
}
