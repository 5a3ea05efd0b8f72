package fs

import (
	"encoding/binary"
	"errors"

	"btrlab/internal/errno"
	"btrlab/internal/format"
	"btrlab/internal/sched"
)

// POSIX access control lists. An inode has them in two attributes, in the form that setfacl(1) and
// Linux store: a list of who may do what, and of a directory a second one that what is made in it
// begins with. The permissions of the mode are a view of the access list: of its owner, of its mask
// or, without one, its group, and of all others. So chmod changes the list, and a change of the
// list changes the mode. A list that says no more than a mode is not stored.
//
// Model: fs/posix_acl.c and fs/btrfs/acl.c. Who may do what is not asked here: the kernel does that
// for a mounted image.

// The attributes that hold access control lists.
const (
	ACLAccess  = "system.posix_acl_access"
	ACLDefault = "system.posix_acl_default"
)

// aclEntry says what one user or group may do: struct posix_acl_xattr_entry.
type aclEntry struct {
	tag, perm uint16
	id        uint32 // of aclUser and aclGroup, else aclNoID
}

// The tags, in the order in which a list has them.
const (
	aclUserObj  = 0x01
	aclUser     = 0x02
	aclGroupObj = 0x04
	aclGroup    = 0x08
	aclMask     = 0x10
	aclOther    = 0x20

	aclNoID       = ^uint32(0)
	aclVersion    = 2
	aclHeaderSize = 4
	aclEntrySize  = 8
)

// decodeACL reads a list. EOPNOTSUPP for another version, EINVAL for a list that says nothing of
// the owner, the group or others, has an entry out of order or of no known tag, or names users and
// has no mask. Models posix_acl_from_xattr() and posix_acl_valid().
func decodeACL(b []byte) ([]aclEntry, error) {
	switch {
	case len(b) < aclHeaderSize:
		return nil, errno.EINVAL
	case binary.LittleEndian.Uint32(b) != aclVersion:
		return nil, errno.EOPNOTSUPP
	case (len(b)-aclHeaderSize)%aclEntrySize != 0:
		return nil, errno.EINVAL
	}
	var list []aclEntry
	var seen, last uint16
	for b = b[aclHeaderSize:]; len(b) > 0; b = b[aclEntrySize:] {
		e := aclEntry{binary.LittleEndian.Uint16(b), binary.LittleEndian.Uint16(b[2:]), binary.LittleEndian.Uint32(b[4:])}
		many := e.tag == aclUser || e.tag == aclGroup
		switch e.tag {
		case aclUserObj, aclUser, aclGroupObj, aclGroup, aclMask, aclOther:
		default:
			return nil, errno.EINVAL
		}
		if e.perm&^7 != 0 || e.tag < last || e.tag == last && !many {
			return nil, errno.EINVAL
		}
		if !many {
			e.id = aclNoID
		}
		list = append(list, e)
		seen, last = seen|e.tag, e.tag
	}
	const must = aclUserObj | aclGroupObj | aclOther
	if seen&must != must || seen&(aclUser|aclGroup) != 0 && seen&aclMask == 0 {
		return nil, errno.EINVAL
	}
	return list, nil
}

func encodeACL(list []aclEntry) []byte {
	b := binary.LittleEndian.AppendUint32(nil, aclVersion)
	for _, e := range list {
		b = binary.LittleEndian.AppendUint16(b, e.tag)
		b = binary.LittleEndian.AppendUint16(b, e.perm)
		b = binary.LittleEndian.AppendUint32(b, e.id)
	}
	return b
}

// aclMode is the permissions that a mode shows of the list; more says that the list has entries
// that no mode has. Models posix_acl_equiv_mode().
func aclMode(list []aclEntry) (mode uint32, more bool) {
	mask := false
	for _, e := range list {
		switch e.tag {
		case aclUserObj:
			mode |= uint32(e.perm) << 6
		case aclOther:
			mode |= uint32(e.perm)
		case aclMask:
			mode, mask, more = mode&^0o070|uint32(e.perm)<<3, true, true
		case aclGroupObj:
			if !mask {
				mode |= uint32(e.perm) << 3
			}
		default:
			more = true
		}
	}
	return mode, more
}

// groupClass is the entry that the group's permissions of a mode stand for.
func groupClass(list []aclEntry) *aclEntry {
	var group *aclEntry
	for i := range list {
		switch list[i].tag {
		case aclMask:
			return &list[i]
		case aclGroupObj:
			group = &list[i]
		}
	}
	return group
}

// chmod makes the list say what mode says. Models __posix_acl_chmod_masq().
func chmodList(list []aclEntry, mode uint32) {
	for i := range list {
		switch list[i].tag {
		case aclUserObj:
			list[i].perm = uint16(mode>>6) & 7
		case aclOther:
			list[i].perm = uint16(mode) & 7
		}
	}
	groupClass(list).perm = uint16(mode>>3) & 7
}

// createList takes away from the list what mode does not have, and from mode what the list does not
// have. Models posix_acl_create_masq().
func createList(list []aclEntry, mode uint32) uint32 {
	for i := range list {
		switch e := &list[i]; e.tag {
		case aclUserObj:
			e.perm &= uint16(mode >> 6)
			mode &= uint32(e.perm)<<6 | ^uint32(0o700)
		case aclOther:
			e.perm &= uint16(mode)
			mode &= uint32(e.perm) | ^uint32(0o007)
		}
	}
	e := groupClass(list)
	e.perm &= uint16(mode >> 3)
	return mode & (uint32(e.perm)<<3 | ^uint32(0o070))
}

// readACL reads a list of the inode; nil when there is none.
func (n *Node) readACL(t *sched.Task, name string) ([]aclEntry, []byte, error) {
	b, err := n.fs.store.Getxattr(t, n.vol.root, n.ip.Ino, name)
	if errors.Is(err, errno.ENOENT) {
		return nil, nil, nil
	}
	if err != nil {
		return nil, nil, err
	}
	list, err := decodeACL(b)
	return list, b, err
}

// inheritACL gives what is made in dir the directory's default list as access list, or nothing, and
// a directory the same default list. It takes the permissions away from the mode that the list or,
// without one, the umask does not have. Models posix_acl_create().
func (c *creation) inheritACL(t *sched.Task, dir *Node) (access, byDefault []byte, err error) {
	if c.mode&format.S_IFMT == format.S_IFLNK {
		return nil, nil, nil
	}
	list, b, err := dir.readACL(t, ACLDefault)
	if err != nil {
		return nil, nil, err
	}
	if list == nil {
		c.mode &^= c.own.Umask & 0o777
		return nil, nil, nil
	}
	c.mode = createList(list, c.mode)
	if _, more := aclMode(list); more {
		access = encodeACL(list)
	}
	if c.mode&format.S_IFMT == format.S_IFDIR {
		byDefault = b
	}
	return access, byDefault, nil
}

// chmodACL is the access list as a chmod to mode makes it; nil without one. Models
// posix_acl_chmod().
func (n *Node) chmodACL(t *sched.Task, mode uint32) ([]byte, error) {
	if n.IsSymlink() {
		return nil, nil
	}
	list, _, err := n.readACL(t, ACLAccess)
	if err != nil || list == nil {
		return nil, err
	}
	chmodList(list, mode)
	return encodeACL(list), nil
}

// SetACL sets an access control list: name is ACLAccess or ACLDefault, value as setxattr(2) has it.
// An access list sets the permissions of the mode, and with dropSGID takes the setgid bit away, as
// for an owner who is not in the group; one that says no more than the mode is not stored. EINVAL
// for a list that is none, EACCES for the default list of what is no directory, EOPNOTSUPP for a
// symbolic link. Models set_posix_acl(), posix_acl_update_mode() and btrfs_set_acl().
func (n *Node) SetACL(t *sched.Task, name string, value []byte, dropSGID bool) error {
	list, err := decodeACL(value)
	switch {
	case n.IsSymlink():
		return errno.EOPNOTSUPP
	case err != nil:
		return err
	case name == ACLDefault && !n.IsDir():
		return errno.EACCES
	case name == ACLDefault:
		return n.Setxattr(t, name, value)
	}
	if err := n.writable(); err != nil {
		return err
	}
	if n.pinned() {
		return errno.EPERM
	}
	n.lock(t)
	defer n.ip.Unlock(t)
	mode, more := aclMode(list)
	h, err := n.fs.trans.StartIn(t, n.vol.root, 1+unitsProperty)
	if err != nil {
		return err
	}
	if more {
		err = n.fs.store.Setxattr(t, h.Trans(), n.vol.root, n.ip.Ino, name, value)
	} else if err = n.fs.store.Removexattr(t, h.Trans(), n.vol.root, n.ip.Ino, name); errors.Is(err, errno.ENOENT) {
		err = nil
	}
	switch {
	case errors.Is(err, errno.ENOSPC): // nothing has changed
		return n.fs.end(t, h, err)
	case err != nil:
		return n.fs.abort(t, h, err)
	}
	now := n.fs.now()
	n.ip.Change(t, func(it *format.InodeItem) {
		it.Mode = it.Mode&^0o777 | mode
		if dropSGID {
			it.Mode &^= format.S_ISGID
		}
		it.Ctime = now
	})
	n.ip.LastTransid.Store(h.Transid())
	n.ip.ItemsChanged(h.Transid())
	return n.fs.end(t, h, nil)
}
