package fs

import (
	"errors"
	"strings"

	"btrlab/internal/compress"
	"btrlab/internal/errno"
	"btrlab/internal/format"
	"btrlab/internal/meta/transaction"
	"btrlab/internal/sched"
)

// Properties are extended attributes whose names begin with btrfs. and whose values the file system
// obeys. There is one, of files and directories: how their data is compressed. A directory hands it
// on to what is made in it, a subvolume's top directory also to a subvolume that is made anywhere
// in it. The inode flags COMPRESS and NOCOMPRESS, which chattr shows as c and m, follow its value,
// and it follows them.
//
// Model: fs/btrfs/props.c.

// Compression is the name of the property that says how data is compressed. Its values are those of
// compress.Property.
const Compression = "btrfs.compression"

// isProperty reports whether an extended attribute is a property, or none that there could be.
func isProperty(name string) bool { return strings.HasPrefix(name, "btrfs.") }

// mayCompress reports whether data of an inode with the flags can be compressed. Models
// btrfs_inode_can_compress().
func mayCompress(flags uint64) bool {
	return flags&(format.InodeNoDataCow|format.InodeNoDataSum) == 0
}

// hasProperties reports whether properties of an inode of the type mean something: those of another
// are ignored. Models prop_compression_ignore().
func hasProperties(mode uint32) bool {
	typ := mode & format.S_IFMT
	return typ == format.S_IFREG || typ == format.S_IFDIR
}

// setProperty makes the property have the value, an empty one takes it away; with must it has to be
// there (ENOENT). EINVAL for a name or a value that there is not, and for an inode that cannot be
// compressed. Models btrfs_xattr_handler_set_prop().
func (n *Node) setProperty(t *sched.Task, name, value string, must bool) error {
	if err := n.writable(); err != nil {
		return err
	}
	if n.pinned() {
		return errno.EPERM
	}
	n.lock(t)
	defer n.ip.Unlock(t)
	_, known := compress.Property(value)
	switch {
	case name != Compression, !known, value != "" && !mayCompress(n.ip.Flags()):
		return errno.EINVAL
	case !hasProperties(n.typ):
		return nil
	}
	return n.fs.env.ChangeXattr(t, n.ip, name, func(h *transaction.Handle) error {
		err := n.storeCompression(t, h, value)
		if errors.Is(err, errno.ENOENT) && !must {
			err = nil // ctime is new all the same
		}
		if err != nil {
			return err
		}
		n.applyCompression(value)
		return nil
	})
}

// storeCompression puts the value into the tree, or takes it away when it is empty: ENOENT when
// there is none. The inode is locked.
func (n *Node) storeCompression(t *sched.Task, h *transaction.Handle, value string) error {
	if value == "" {
		return n.fs.store.Removexattr(t, h.Trans(), n.vol.root, n.ip.Ino, Compression)
	}
	return n.fs.store.Setxattr(t, h.Trans(), n.vol.root, n.ip.Ino, Compression, []byte(value))
}

// applyCompression makes the inode in memory, and the features of the image, follow the value: the
// caller's transaction has both. Models prop_compression_apply().
func (n *Node) applyCompression(value string) {
	kind, _ := compress.Property(value)
	n.fs.trans.AddIncompat(compress.Method{Kind: kind}.Incompat())
	n.ip.SetCompressProp(kind)
	n.ip.SetFlags(n.ip.Flags()&^compress.FlagsOfProperty | compress.PropertyFlags(value))
}

// loadProperties makes an inode that comes into memory obey its property; bare says that it has no
// attribute. Difference from btrfs_load_inode_props(): an inode without the flag COMPRESS, which
// comes with the property, is not asked.
func (n *Node) loadProperties(t *sched.Task, bare bool) error {
	if bare || n.ip.Flags()&format.InodeCompress == 0 || !hasProperties(n.typ) {
		return nil
	}
	value, err := n.fs.store.Getxattr(t, n.vol.root, n.ip.Ino, Compression)
	switch {
	case errors.Is(err, errno.ENOENT):
		return nil
	case err != nil:
		return err
	}
	if kind, ok := compress.Property(string(value)); ok {
		n.ip.SetCompressProp(kind)
	}
	return nil
}

// inherited is the value of the property that what is made in dir gets, empty for none: the kind,
// without what dir's value has after it. Models inherit_props().
func inherited(dir *Node, mode uint32, flags uint64) string {
	kind := dir.ip.CompressProp()
	if kind == format.CompressNone || !hasProperties(mode) || !mayCompress(flags) {
		return ""
	}
	return compress.Name(kind)
}
