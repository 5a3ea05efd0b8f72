package measure

import (
	"runtime"

	"github.com/spf13/cobra"

	"btrlab/internal/blockdev"
	"btrlab/internal/cli/app"
	"btrlab/internal/hostio"
)

// deviceIO are the flags that say how the image of a measurement is read and written.
type deviceIO struct {
	how    string
	direct bool
}

func (d *deviceIO) flags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&d.how, "device-io", "sync", "how the image is read and written: sync (a system call that waits for each transfer) or uring "+
		"(many are under way in an io_uring, or where there is none, each by a task of its own)")
	f.BoolVar(&d.direct, "device-direct", false, "open the image with O_DIRECT, past the page cache of the machine")
	app.CompleteFixed(cmd, "device-io", []string{"sync", "uring"})
}

func (d *deviceIO) check(cmd *cobra.Command, image string) error {
	return app.Check(cmd,
		app.OneOf(d.how, []string{"sync", "uring"}, "device-io %q, want sync or uring"),
		app.Not(image == "" && (d.direct || d.how != "sync"), "--device-io and --device-direct need an image file or a block device, not an image in memory"))
}

// open gives the flags for blockdev.Open, with a note where the machine has no ring.
func (d *deviceIO) open(note func(string)) (f blockdev.Flags) {
	if d.how == "uring" {
		f |= blockdev.Ring
		if err := blockdev.NoRing(); err != nil {
			note("--device-io uring: each transfer has a task of its own: " + err.Error())
		}
	}
	if d.direct {
		f |= blockdev.Direct
		if d.how == "sync" {
			hostio.Processors(waiting, runtime.NumCPU())
		}
	}
	return f
}

// waiting is how many of the Go runtime's processors there are for each CPU when each transfer is a
// system call that waits for the device. With one, 32 jobs of 4 KiB did half as many requests; with
// 4 to 16 what fio does.
const waiting = 8
