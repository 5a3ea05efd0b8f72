package image

import "time"

// Attrs is what an inode has beside its names and its data.
type Attrs struct {
	Mode         uint32 // permissions, and the type where it is not known otherwise
	UID, GID     uint32
	Rdev         uint64 // of a device, as format.InodeItem has it
	Flags        uint64 // format.Inode...
	Atime, Mtime time.Time
	Xattrs       []Xattr
}

// Xattr is an extended attribute.
type Xattr struct {
	Name  string
	Value []byte
}
