//go:build !portable

package blockdev

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// mounted says where the block device st, or a loop device on the file st, is mounted, as "mounted
// at /mnt"; "" when it is not, or when neither /proc nor /sys tells. It compares device numbers of
// the mount sources, since a btrfs mount shows an anonymous device number of its own.
func mounted(st *unix.Stat_t) string {
	devs := map[uint64]bool{}
	if st.Mode&unix.S_IFMT == unix.S_IFBLK {
		devs[st.Rdev] = true
	} else {
		devs = loopsOn(st)
	}
	if len(devs) == 0 {
		return ""
	}
	if at := mountedAt(devs); at != "" {
		return "mounted at " + at
	}
	// A mount of another namespace is not in our mountinfo; sysfs has the devices of every btrfs
	// that is mounted.
	files, _ := filepath.Glob("/sys/fs/btrfs/*/devices/*/dev")
	for _, f := range files {
		data, err := os.ReadFile(f)
		if err != nil {
			continue
		}
		var major, minor uint32
		if n, _ := fmt.Sscanf(string(data), "%d:%d", &major, &minor); n == 2 && devs[unix.Mkdev(major, minor)] {
			return "mounted in another mount namespace"
		}
	}
	return ""
}

// mountedAt is where one of the devices is mounted in this namespace, or "".
func mountedAt(devs map[uint64]bool) string {
	data, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return ""
	}
	for line := range strings.Lines(string(data)) {
		// 36 35 98:0 /root /mount/point options optional... - type source superoptions
		left, right, ok := strings.Cut(line, " - ")
		if !ok {
			continue
		}
		l, r := strings.Fields(left), strings.Fields(right)
		if len(l) < 5 || len(r) < 2 || !strings.HasPrefix(r[1], "/") {
			continue
		}
		var src unix.Stat_t
		if unix.Stat(unescapeMount(r[1]), &src) == nil && src.Mode&unix.S_IFMT == unix.S_IFBLK && devs[src.Rdev] {
			return unescapeMount(l[4])
		}
	}
	return ""
}

// loopsOn is the device numbers of the loop devices whose backing file is st.
func loopsOn(st *unix.Stat_t) map[uint64]bool {
	files, _ := filepath.Glob("/sys/block/loop*/loop/backing_file")
	devs := map[uint64]bool{}
	for _, f := range files {
		data, err := os.ReadFile(f)
		if err != nil {
			continue
		}
		var b, l unix.Stat_t
		if unix.Stat(strings.TrimSuffix(string(data), "\n"), &b) != nil || b.Dev != st.Dev || b.Ino != st.Ino {
			continue
		}
		name := filepath.Base(filepath.Dir(filepath.Dir(f)))
		if unix.Stat("/dev/"+name, &l) == nil {
			devs[l.Rdev] = true
		}
	}
	return devs
}

// unescapeMount undoes mountinfo's octal escapes.
func unescapeMount(s string) string {
	return strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`).Replace(s)
}
