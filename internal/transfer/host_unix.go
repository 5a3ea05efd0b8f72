//go:build unix

package transfer

import (
	iofs "io/fs"
	"syscall"
)

// linked names the file of st; ok if it has more than one name.
func linked(st iofs.FileInfo) (id hostIno, ok bool) {
	sys, ok := st.Sys().(*syscall.Stat_t)
	if !ok || sys.Nlink < 2 {
		return hostIno{}, false
	}
	return hostIno{uint64(sys.Dev), uint64(sys.Ino)}, true
}

// hostID names the file of st.
func hostID(st iofs.FileInfo) (id hostIno, ok bool) {
	sys, ok := st.Sys().(*syscall.Stat_t)
	if !ok {
		return id, false
	}
	return hostIno{uint64(sys.Dev), uint64(sys.Ino)}, true
}

// owner is the owner of st.
func owner(st iofs.FileInfo) (uid, gid uint32, ok bool) {
	sys, ok := st.Sys().(*syscall.Stat_t)
	if !ok {
		return 0, 0, false
	}
	return sys.Uid, sys.Gid, true
}
