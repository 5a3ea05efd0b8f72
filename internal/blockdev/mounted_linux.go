//go:build !portable

package blockdev

import (
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// mountedAt is where the block device st, or a loop device on the file st, is mounted; "" when it is
// not, or when /proc does not tell. It compares device numbers of the mount sources, since a btrfs
// mount shows an anonymous device number of its own.
func mountedAt(st *unix.Stat_t) string {
	devs := map[uint64]bool{}
	if st.Mode&unix.S_IFMT == unix.S_IFBLK {
		devs[st.Rdev] = true
	} else {
		for _, dev := range loopsOn(st) {
			devs[dev] = true
		}
	}
	if len(devs) == 0 {
		return ""
	}
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

// loopsOn lists the device numbers of the loop devices whose backing file is st.
func loopsOn(st *unix.Stat_t) []uint64 {
	files, _ := filepath.Glob("/sys/block/loop*/loop/backing_file")
	var devs []uint64
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
			devs = append(devs, l.Rdev)
		}
	}
	return devs
}

// unescapeMount undoes mountinfo's octal escapes.
func unescapeMount(s string) string {
	return strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`).Replace(s)
}
