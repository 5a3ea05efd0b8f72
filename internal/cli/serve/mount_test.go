package serve

import (
	"slices"
	"strings"
	"testing"
)

// TestHelperArgs: mount(8) calls the program by another name, with flags of its own.
func TestHelperArgs(t *testing.T) {
	for _, c := range []struct{ args, want string }{
		{"/usr/bin/btrlab mkfs -n disk.img", "mkfs -n disk.img"},
		{"btrlab", ""},
		{"/sbin/mount.fuse.btrlab disk.img /mnt -o rw,policy=locked", "mount --daemon disk.img /mnt -o rw,policy=locked"},
		{"mount.fuse.btrlab disk.img /mnt -sn -v -N /ns -t fuse.btrlab -o ro", "mount --daemon disk.img /mnt -o ro"},
	} {
		if have := HelperArgs(strings.Fields(c.args)); !slices.Equal(have, strings.Fields(c.want)) {
			t.Errorf("%s: have %q want %q", c.args, have, c.want)
		}
	}
}
