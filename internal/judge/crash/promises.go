package crash

// Promised is one promise that crash states are held against.
type Promised struct {
	Rule   string // of the Loss that says it is broken
	Text   string
	Source string // who promises it
	Judge  string // the functions that hold a state against it
}

// Sources of promises.
const (
	posix = "fsync(2)"
	btrfs = "btrfs"
)

// Promises are all, in the order in which a state is held against them. Between two promises each
// of these is as in one version since the last.
var Promises = []Promised{
	{"check", "the image breaks no rule of check, before it is opened and after", btrfs + ": a commit is whole or not there", "checked"},
	{"open", "it can be opened for writing, which replays the log, and closed", btrfs + ": mount", "live"},
	{"again", "all of this holds when the power goes a second time, at the first superblock after that or after it", btrfs + ": a replay can be repeated", "cutReplay cutCommit relive"},
	{"read", "every name and every byte can be read", btrfs + ": data is on the device before what leads to it", "observe"},
	{"use", "after a replay a new file gets a number that is free", btrfs + ": mount", "usable"},
	{"name", "after fsync of a file the names that it has lead to it, and after fsync of a directory its entries are there and no others", btrfs + "; " + posix + " asks for an fsync of the directory", "compareNames"},
	{"names", "an inode has as many names as in one version: after a rename the old one or the new", btrfs + ": a rename is atomic", "compareNames"},
	{"inode", "a name leads to an inode that an operation made, of its type", btrfs, "compareNode"},
	{"link", "a symbolic link has its target", btrfs, "compareNode"},
	{"attribute", "after fsync the extended attributes are those of the file", posix + ": all metadata", "compareNode"},
	{"size", "after fsync and fdatasync the size is that of the file", posix + ": what is needed to read the data", "compareNode"},
	{"data", "after fsync and fdatasync the bytes are those of the file; no block has bytes that nobody wrote there", posix, "compareData"},
	{"mode", "after fsync the permissions are those of the file", posix + ": all metadata", "compareAttrs"},
	{"owner", "after fsync user and group are those of the file", posix + ": all metadata", "compareAttrs"},
	{"flags", "after fsync the flags of chattr(1) are those of the file", btrfs + ": they are in the inode item", "compareAttrs"},
	{"time", "after fsync atime, mtime, ctime and otime are those of the file", posix + ": all metadata", "compareAttrs"},
}
