package fs_test

import (
	"strings"
	"testing"

	"btrlab/internal/blockdev"
	"btrlab/internal/fs"
	"btrlab/internal/testing/fstest"
)

// A list of none or several devices is refused before anything is read.
func TestOpenDevices(t *testing.T) {
	x := fstest.New(t)
	for _, devs := range [][]blockdev.Device{nil, {x.Dev, x.Dev}} {
		if _, err := fs.Open(x.T, devs, fs.Options{ReadOnly: true}); err == nil || !strings.Contains(err.Error(), "want one") {
			t.Errorf("%d devices: %v, want them refused", len(devs), err)
		}
	}
}
