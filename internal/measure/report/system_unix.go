//go:build unix

package report

import (
	"runtime"

	"golang.org/x/sys/unix"
)

// system is what uname says: "Linux 6.18.5 x86_64".
func system() string {
	var u unix.Utsname
	if unix.Uname(&u) != nil {
		return runtime.GOOS + " " + runtime.GOARCH
	}
	return unix.ByteSliceToString(u.Sysname[:]) + " " + unix.ByteSliceToString(u.Release[:]) + " " + unix.ByteSliceToString(u.Machine[:])
}
