package transfer

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"btrlab/internal/progs/image"

	"btrlab/internal/errno"
	"btrlab/internal/format"
	"btrlab/internal/fs"
	"btrlab/internal/sched"
	ss "btrlab/internal/sendstream"
)

// How a stream is made of two trees, the parent's, which may be empty, and the subvolume's:
//
//	Send     compare        the inodes that have changed, by number
//	         place          names that are new: a directory's after its parent's (send_names.go)
//	         drop           names that are gone, then the directories that are
//	         contents       of each inode: attributes that are gone, data (send_data.go), owner,
//	                        mode, attributes, times
//
// The receiver's tree is the parent's at first. A name that another inode has yet is freed before
// it is given: by unlink, or by a rename to a name of its own at the top (o257-7-0). Directories
// are placed from the top down, so none is ever moved below itself.
//
// Model: fs/btrfs/send.c, for what the commands say. Difference: that goes through the trees once
// and puts off what must wait; here all names are in their places before contents follow, so a path
// after that is the final one.

// Send says what is sent, and how.
type Send struct {
	Parent  *fs.Frozen   // the stream is the difference from it; nil: everything
	Clones  []*fs.Frozen // more subvolumes that the receiver has, to clone from
	Version uint32       // of the stream, 1 or 2
	NoData  bool         // only which ranges have changed
}

// Send writes the subvolume z to out as a stream that btrfs receive and Receive take. Begin is
// called with each path whose contents are sent.
func (s *Send) Send(t *sched.Task, x *fs.FS, w Watcher, z *fs.Frozen, out io.Writer) error {
	c := &sender{Send: *s, t: t, x: x, count: count{w: w}, out: ss.NewWriter(out, s.Version), z: z}
	c.names = nameTree{orphans: map[format.Ino]string{}, gone: map[ref]bool{}, ready: map[format.Ino]bool{}, bare: map[format.Ino]bool{}}
	c.paths = map[format.Ino]string{}
	// of the subvolume itself the receiver has nothing yet
	c.Clones = slices.DeleteFunc(slices.Clone(c.Clones), func(o *fs.Frozen) bool { return o.Item.UUID == z.Item.UUID })
	if err := c.compare(); err != nil {
		return err
	}
	if err := c.begin(); err != nil {
		return err
	}
	c.count.known = uint64(len(c.changes))
	for _, step := range []func(*change) error{c.place, c.drop} {
		if err := c.each(step); err != nil {
			return err
		}
	}
	if err := c.dropDirs(); err != nil {
		return err
	}
	if err := c.each(c.contents); err != nil {
		return err
	}
	if c.names.passed && c.find(top) == nil {
		// its times, which the names that were there for a while have changed
		if err := c.contents(&change{ino: top, old: 1, now: 1}); err != nil {
			return err
		}
	}
	c.out.Begin(ss.C_END)
	return c.out.End()
}

// each does a step for every change.
func (c *sender) each(step func(*change) error) error {
	for i := range c.changes {
		if err := c.count.w.Stop(); err != nil {
			return err
		}
		if err := step(&c.changes[i]); err != nil {
			return fmt.Errorf("inode %d: %w", c.changes[i].ino, err)
		}
	}
	return nil
}

// sender is a send under way.
type sender struct {
	Send
	t     *sched.Task
	x     *fs.FS
	count count
	out   *ss.Writer
	z     *fs.Frozen

	changes []change
	names   nameTree
	paths   map[format.Ino]string // of directories of z
	buf     []byte
	sources sources
}

// change is an inode with items that the trees do not have in common.
type change struct {
	ino          format.Ino
	old, now     uint64 // generations in the parent and in the subvolume; 0: it is not there
	refs, xattrs bool   // names, extended attributes have changed
	data         bool   // file extents have
	placed       bool   // all names that it has are there
}

// find is the change of an inode; nil when there is none.
func (c *sender) find(ino format.Ino) *change {
	i, ok := slices.BinarySearchFunc(c.changes, ino, func(ch change, ino format.Ino) int { return cmp.Compare(ch.ino, ino) })
	if !ok {
		return nil
	}
	return &c.changes[i]
}

// made reports whether the inode is new; gone whether the one of the parent is no more.
func (c *change) made() bool { return c.now != 0 && c.old != c.now }
func (c *change) gone() bool { return c.old != 0 && c.old != c.now }

// identity is the uuid under which a receiver knows a subvolume.
func identity(z *fs.Frozen) format.UUID {
	if !z.Item.ReceivedUUID.IsZero() {
		return z.Item.ReceivedUUID
	}
	return z.Item.UUID
}

// compare finds the changes. An inode without a name, which was open when the snapshot was made, is
// none.
func (c *sender) compare() error {
	err := c.z.Compare(c.t, c.Parent, func(key format.Key, old, item []byte) error {
		if key.Objectid < format.FIRST_FREE_OBJECTID || key.Objectid > format.LAST_FREE_OBJECTID {
			return nil
		}
		n := len(c.changes)
		if n == 0 || c.changes[n-1].ino != format.Ino(key.Objectid) {
			c.changes = append(c.changes, change{ino: format.Ino(key.Objectid)})
			n++
		}
		switch ch := &c.changes[n-1]; key.Type {
		case format.INODE_REF_KEY, format.INODE_EXTREF_KEY:
			ch.refs = true
		case format.XATTR_ITEM_KEY:
			ch.xattrs = true
		case format.EXTENT_DATA_KEY:
			ch.data = true
		}
		return c.count.w.Stop()
	})
	for i := range c.changes {
		ch := &c.changes[i]
		if err == nil && c.Parent != nil {
			ch.old, err = c.generation(c.Parent, ch.ino)
		}
		if err == nil {
			ch.now, err = c.generation(c.z, ch.ino)
		}
		if ch.ino == top && c.Parent != nil {
			ch.old = ch.now // of whatever subvolume, the top is the top
		}
	}
	return err
}

// generation is that of an inode with names; 0 when there is none.
func (c *sender) generation(z *fs.Frozen, ino format.Ino) (uint64, error) {
	it, err := z.Inode(c.t, ino)
	if errors.Is(err, errno.ENOENT) || err == nil && it.Nlink == 0 {
		return 0, nil
	}
	return it.Generation, err
}

// begin writes the header and the first command.
func (c *sender) begin() error {
	if err := c.out.Header(); err != nil {
		return err
	}
	name := c.z.Name
	if name == "" {
		name = "top" // the top-level subvolume has no name
	}
	cmd := ss.C_SUBVOL
	if c.Parent != nil {
		cmd = ss.C_SNAPSHOT
	}
	c.out.Begin(cmd).Text(ss.A_PATH, name).UUID(ss.A_UUID, identity(c.z)).Uint(ss.A_CTRANSID, c.z.Item.Ctransid)
	if c.Parent != nil {
		c.out.UUID(ss.A_CLONE_UUID, identity(c.Parent)).Uint(ss.A_CLONE_CTRANSID, c.Parent.Item.Ctransid)
	}
	return c.out.End()
}

// contents sends everything of an inode but its names.
func (c *sender) contents(ch *change) error {
	if ch.now == 0 {
		return nil
	}
	path, err := c.pathIn(c.z, ch.ino)
	if err != nil {
		return err
	}
	if err := c.count.next("/" + path); err != nil {
		return err
	}
	it, err := c.z.Inode(c.t, ch.ino)
	if err != nil {
		return err
	}
	old := it
	if !ch.made() {
		if old, err = c.Parent.Inode(c.t, ch.ino); err != nil {
			return err
		}
	}
	x, err := c.xattrs(ch)
	if err != nil {
		return err
	}
	if err := c.removeXattrs(path, x); err != nil {
		return err
	}
	// A property says how data is stored that is written from now on.
	if err := c.setXattrs(path, x, func(name string) bool { return strings.HasPrefix(name, "btrfs.") }); err != nil {
		return err
	}
	var written, owned bool // each takes setuid and capabilities away at the receiver
	kind := it.Mode & format.S_IFMT
	if kind == format.S_IFREG && (ch.made() || ch.data || it.Size != old.Size) {
		if written, err = c.data(ch, path, &it, &old); err != nil {
			return err
		}
	}
	if ch.made() || it.UID != old.UID || it.GID != old.GID {
		owned = true
		c.out.Begin(ss.C_CHOWN).Text(ss.A_PATH, path).Uint(ss.A_UID, uint64(it.UID)).Uint(ss.A_GID, uint64(it.GID))
		if err := c.out.End(); err != nil {
			return err
		}
	}
	if kind != format.S_IFLNK && (owned || written && it.Mode&privileges != 0 || it.Mode != old.Mode) {
		c.out.Begin(ss.C_CHMOD).Text(ss.A_PATH, path).Uint(ss.A_MODE, uint64(it.Mode&0o7777))
		if err := c.out.End(); err != nil {
			return err
		}
	}
	if (written || owned) && !ch.made() {
		if err := c.restore(&x, ch, capability); err != nil {
			return err
		}
	}
	if c.names.bare[ch.ino] {
		if err := c.restore(&x, ch, defaultACL); err != nil {
			return err
		}
	}
	if err := c.setXattrs(path, x, func(name string) bool { return !strings.HasPrefix(name, "btrfs.") }); err != nil {
		return err
	}
	c.out.Begin(ss.C_UTIMES).Text(ss.A_PATH, path).Time(ss.A_ATIME, it.Atime).Time(ss.A_MTIME, it.Mtime).Time(ss.A_CTIME, it.Ctime)
	if c.Version > 1 {
		c.out.Time(ss.A_OTIME, it.Otime)
	}
	return c.out.End()
}

// xattrChanges is what has become of an inode's extended attributes.
type xattrChanges struct {
	gone []string
	set  []image.Xattr
}

// xattrs compares the extended attributes of an inode.
func (c *sender) xattrs(ch *change) (x xattrChanges, err error) {
	if !ch.xattrs && !ch.made() {
		return x, nil
	}
	now, err := c.z.Listxattr(c.t, ch.ino)
	if err != nil {
		return x, err
	}
	var old []string
	if !ch.made() {
		if old, err = c.Parent.Listxattr(c.t, ch.ino); err != nil {
			return x, err
		}
	}
	for _, name := range old {
		if !slices.Contains(now, name) && !(name == defaultACL && c.names.bare[ch.ino]) {
			x.gone = append(x.gone, name)
		}
	}
	for _, name := range now {
		value, err := c.z.Getxattr(c.t, ch.ino, name)
		if err != nil {
			return x, err
		}
		if slices.Contains(old, name) {
			before, err := c.Parent.Getxattr(c.t, ch.ino, name)
			if err != nil {
				return x, err
			}
			if string(before) == string(value) {
				continue
			}
		}
		x.set = append(x.set, image.Xattr{Name: name, Value: value})
	}
	return x, nil
}

// restore adds an attribute that the receiver has lost and the subvolume has to what is set.
func (c *sender) restore(x *xattrChanges, ch *change, name string) error {
	value, err := c.z.Getxattr(c.t, ch.ino, name)
	if errors.Is(err, errno.ENOENT) {
		return nil
	}
	if err == nil && !slices.ContainsFunc(x.set, func(x image.Xattr) bool { return x.Name == name }) {
		x.set = append(x.set, image.Xattr{Name: name, Value: value})
	}
	return err
}

func (c *sender) removeXattrs(path string, x xattrChanges) error {
	for _, name := range x.gone {
		c.out.Begin(ss.C_REMOVE_XATTR).Text(ss.A_PATH, path).Text(ss.A_XATTR_NAME, name)
		if err := c.out.End(); err != nil {
			return err
		}
	}
	return nil
}

func (c *sender) setXattrs(path string, x xattrChanges, which func(name string) bool) error {
	for _, a := range x.set {
		if !which(a.Name) {
			continue
		}
		value := a.Value
		if len(value) == 0 && strings.HasPrefix(a.Name, "system.posix_acl_") {
			value = emptyACL // no list at all is invalid to a receiver
		}
		c.out.Begin(ss.C_SET_XATTR).Text(ss.A_PATH, path).Text(ss.A_XATTR_NAME, a.Name).Bytes(ss.A_XATTR_DATA, value)
		if err := c.out.End(); err != nil {
			return err
		}
	}
	return nil
}
