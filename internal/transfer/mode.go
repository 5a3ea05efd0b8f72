package transfer

import (
	iofs "io/fs"

	"btrlab/internal/format"
)

// modeBits pairs the bits of a mode that Go has moved.
var modeBits = []struct {
	host  iofs.FileMode
	image uint32
}{
	{iofs.ModeSetuid, 0o4000}, {iofs.ModeSetgid, 0o2000}, {iofs.ModeSticky, 0o1000},
}

// kinds pairs the types of files. A character device has two bits on the host.
var kinds = []struct {
	host  iofs.FileMode
	image uint32
}{
	{iofs.ModeDir, format.S_IFDIR}, {iofs.ModeSymlink, format.S_IFLNK}, {iofs.ModeNamedPipe, format.S_IFIFO},
	{iofs.ModeSocket, format.S_IFSOCK}, {iofs.ModeCharDevice, format.S_IFCHR}, {iofs.ModeDevice, format.S_IFBLK},
}

// imageMode is m as an inode item has it.
func imageMode(m iofs.FileMode) uint32 {
	mode := uint32(m.Perm())
	for _, b := range modeBits {
		if m&b.host != 0 {
			mode |= b.image
		}
	}
	for _, k := range kinds {
		if m&k.host != 0 {
			return mode | k.image
		}
	}
	return mode | format.S_IFREG
}

// hostMode is the permissions of an inode's mode.
func hostMode(mode uint32) iofs.FileMode {
	m := iofs.FileMode(mode & 0o777)
	for _, b := range modeBits {
		if mode&b.image != 0 {
			m |= b.host
		}
	}
	return m
}
