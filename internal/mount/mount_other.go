//go:build !linux

package mount

import (
	"errors"
	"runtime"

	"btrlab/internal/fs"
	"btrlab/internal/sched"
)

// Supported says whether this system can mount.
const Supported = false

// Mount is a mounted image; there is none on this system.
type Mount struct{}

// Check says why the directory cannot be a mount point.
func Check(Options) error { return errors.New("cannot mount on " + runtime.GOOS) }

// Remount changes the flags of a mount.
func Remount(o Options) error { return Check(o) }

// Apart reports whether this process was started to make a call for a server: never.
func Apart() (code int, yes bool) { return 0, false }

// New mounts x.
func New(_ *fs.FS, o Options) (*Mount, error) { return nil, Check(o) }

// Done is closed when the mount has ended.
func (*Mount) Done() <-chan struct{} { return nil }

// Unmount ends the mount.
func (*Mount) Unmount(bool) error { return nil }

// Release gives back what the kernel had references to.
func (*Mount) Release(*sched.Task) error { return nil }

// Frozen runs f while no request is under way.
func (*Mount) Frozen(f func() error) error { return f() }

// Changed tells the kernel of a change.
func (*Mount) Changed(*sched.Task, string) {}

// Forget tells the kernel of a subvolume that is about to go.
func (*Mount) Forget(*sched.Task, string) {}
