//go:build !portable

package blockdev

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// Same reports whether two names lead to bytes of the same file or device: by another name, through
// a loop device, a partition of a device, or what is mapped to one. It is false where one is not
// there, or sysfs does not tell.
func Same(a, b string) bool {
	under := map[identity]bool{}
	each(a, 0, func(id identity) { under[id] = true })
	same := false
	each(b, 0, func(id identity) { same = same || under[id] })
	return same
}

// identity is a file, or a block device: then dev is 0.
type identity struct{ dev, number uint64 }

// stacked bounds how many devices lie on each other.
const stacked = 16

// each calls f for what name is, and for all that it lies on.
func each(name string, depth int, f func(identity)) {
	var st unix.Stat_t
	if depth == stacked || unix.Stat(name, &st) != nil {
		return
	}
	if st.Mode&unix.S_IFMT != unix.S_IFBLK {
		f(identity{uint64(st.Dev), st.Ino})
		return
	}
	f(identity{0, uint64(st.Rdev)})
	dir, err := filepath.EvalSymlinks(fmt.Sprintf("/sys/dev/block/%d:%d", unix.Major(uint64(st.Rdev)), unix.Minor(uint64(st.Rdev))))
	if err != nil {
		return
	}
	if _, err := os.Stat(filepath.Join(dir, "partition")); err == nil {
		dir = filepath.Dir(dir)
		eachNumbered(dir, depth, f)
	}
	if file, err := os.ReadFile(filepath.Join(dir, "loop", "backing_file")); err == nil {
		each(strings.TrimSuffix(string(file), "\n"), depth+1, f)
	}
	below, _ := filepath.Glob(filepath.Join(dir, "slaves", "*"))
	for _, d := range below {
		eachNumbered(d, depth, f)
	}
}

// eachNumbered is each of the device that a folder of sysfs is about.
func eachNumbered(dir string, depth int, f func(identity)) {
	if name, err := filepath.EvalSymlinks(dir); err == nil {
		each(filepath.Join("/dev", filepath.Base(name)), depth+1, f)
	}
}
