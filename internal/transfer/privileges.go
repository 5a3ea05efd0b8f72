package transfer

import "btrlab/internal/format"

// Setuid, setgid and capabilities make a program run with what its owner may do. They go with the
// owner: a copy that belongs to somebody else has none of them, as after chown(2), or a user's
// program would run for the owner of the copy, who is root. Every way into an image and out of it
// asks here.

// privileges are the bits of a mode that go with the owner.
const privileges = format.S_ISUID | format.S_ISGID

// capability is the extended attribute that does.
const capability = "security.capability"

// modeOf is the mode of a copy; trusted says that it has the owner that mode is of.
func modeOf(mode uint32, trusted bool) uint32 {
	if !trusted {
		mode &^= privileges
	}
	return mode
}

// copies reports whether a copy takes the extended attribute.
func copies(name string, trusted bool) bool { return trusted || name != capability }

// ModeOfNew is the mode of a file that is made of another one, as cp makes it: without what belongs
// to the owner of that, and without the sticky bit.
func ModeOfNew(mode uint32) uint32 { return mode & 0o777 }
