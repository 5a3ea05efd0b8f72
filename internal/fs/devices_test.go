package fs_test

import (
	"strings"
	"testing"

	"btrlab/internal/blockdev"
	"btrlab/internal/fs"
	"btrlab/internal/testing/fstest"
)

// A list without a device, or with one twice, is refused.
func TestOpenDevices(t *testing.T) {
	x := fstest.New(t)
	for _, c := range []struct {
		devs []blockdev.Device
		want string
	}{{nil, "have no device"}, {[]blockdev.Device{x.Dev, x.Dev}, "is device 1 of the file system, as memory is"}} {
		if _, err := fs.Open(x.T, c.devs, fs.Options{ReadOnly: true}); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%d devices: have %v want %q", len(c.devs), err, c.want)
		}
	}
}
