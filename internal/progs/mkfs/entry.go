package mkfs

import (
	"io"
	"time"

	"btrlab/internal/format"
	"btrlab/internal/progs/image"
)

// Entry is a name of the tree that a new file system gets, with its inode.
type Entry struct {
	Name     string // 1 to 255 bytes; that of the root does not count
	Mode     uint32 // S_IFMT and permissions
	UID, GID uint32
	Rdev     uint64 // of a device, as format.InodeItem has it
	Atime    time.Time
	Mtime    time.Time // creation and change of the inode are Options.Now
	Size     int64     // of a file, as far as known: contents are those that Open gives
	Target   string    // of a symbolic link
	Entries  []*Entry  // of a directory, beside those that Pack has made small

	// Link, if set, is another entry for the same inode, whose attributes count. In another
	// subvolume it is an inode of its own.
	Link *Entry

	// Several says that other entries may have it as their Link: LinkTo sets it.
	Several bool

	// Subvol makes a directory a subvolume, ReadOnly one that takes no writes, and Default the one
	// that a mount opens. The root is a subvolume.
	Subvol, ReadOnly, Default bool

	// Source is for the Opener.
	Source any
	// Flags are inode flags of a file or a directory besides those that the source gives.
	Flags uint64

	parent *Entry // of a root of a subvolume as well
	ino    uint64
	subvol uint64   // the subvolume that it is, with Subvol
	index  uint64   // DIR_INDEX in parent
	names  []*Entry // of an inode with several, this one first

	packed     *packed // files of a directory beside Entries
	firstChild uint64  // the number of its first entry with an inode of its own
	packedNow  bool    // the next packed one overwrites it
}

// Add puts c into the directory e.
func (e *Entry) Add(c *Entry) {
	c.parent = e
	e.Entries = append(e.Entries, c)
}

// LinkTo makes e another name of first, whose attributes it has; it keeps its name and its
// directory.
func (e *Entry) LinkTo(first *Entry) {
	name, parent := e.Name, e.parent
	first.Several = true
	*e = *first
	e.Name, e.parent, e.Link = name, parent, first
	e.ino, e.subvol, e.index, e.names = 0, 0, 0, nil
}

// Parent is the directory of an entry that Add has put there; nil for the root.
func (e *Entry) Parent() *Entry { return e.parent }

// IsDir reports whether it is a directory.
func (e *Entry) IsDir() bool     { return e.Mode&format.S_IFMT == format.S_IFDIR }
func (e *Entry) isRegular() bool { return e.Mode&format.S_IFMT == format.S_IFREG }

// Path is the path in the file system, for messages.
func (e *Entry) Path() string {
	if e.parent == nil {
		return "/"
	}
	if e.parent.parent == nil {
		return "/" + e.Name
	}
	return e.parent.Path() + "/" + e.Name
}

// Opener opens the inodes of entries. Each has one user.
type Opener interface {
	// Open opens e. Neighbours are opened one after the other.
	Open(e *Entry) (Object, error)
	Close()
}

// Object is an inode of the source.
type Object interface {
	// Attrs are its extended attributes, in any order, and its flags, format.Inode....
	Attrs() (xattrs []image.Xattr, flags uint64, err error)
	// Size is the size of a file, now.
	Size() (int64, error)
	// NextData is the first run of data at or after off and before size; io.EOF when there is none.
	NextData(off, size int64) (start, end int64, err error)
	io.ReaderAt
	io.Closer
}

// SourceError is an entry that cannot be read, or that a file system cannot hold.
type SourceError struct {
	Entry *Entry
	Err   error
}

func (e *SourceError) Error() string { return e.Entry.Path() + ": " + e.Err.Error() }

func (e *SourceError) Unwrap() error { return e.Err }
