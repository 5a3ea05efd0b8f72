package mount

import (
	"errors"
	"fmt"
	"os"
	"os/exec"

	"golang.org/x/sys/unix"

	"btrlab/internal/errno"
)

// A server must not wait for its own mount: killed at that moment it cannot end, because its thread
// waits for an answer that it would have to give, and everybody who touches the mount waits with
// it. So a call that may wait runs in this program once more, apart: without the server's file of
// /dev/fuse, which ends the mount when the server is killed.

// The environment of a process apart: what to do, and where.
const (
	apartEnv    = "BTRLAB_MOUNT_APART"
	apartDirEnv = "BTRLAB_MOUNT_APART_DIR"
)

// apartCalls are what a process apart can do with a mount.
var apartCalls = map[string]func(dir string) error{
	"unmount": func(dir string) error { return unix.Unmount(dir, 0) },
	"detach":  func(dir string) error { return unix.Unmount(dir, unix.MNT_FORCE|unix.MNT_DETACH) },
	"sync": func(dir string) error {
		d, err := os.Open(dir)
		if err != nil {
			return err
		}
		defer d.Close()
		return unix.Syncfs(int(d.Fd()))
	},
}

// Apart does what the environment says if this process was started for it; then code is its exit
// code, the errno of the call.
func Apart() (code int, yes bool) {
	call := apartCalls[os.Getenv(apartEnv)]
	if call == nil {
		return 0, false
	}
	err := call(os.Getenv(apartDirEnv))
	var no unix.Errno
	switch {
	case err == nil:
		return 0, true
	case errors.As(err, &no):
		return int(no), true
	}
	return int(unix.EIO), true
}

// apart makes the call in a process apart, and waits for it.
func apart(call, dir string) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	c := exec.Command(self)
	c.Env = append(os.Environ(), apartEnv+"="+call, apartDirEnv+"="+dir)
	err = c.Run()
	var exit *exec.ExitError
	if errors.As(err, &exit) && exit.ExitCode() > 0 {
		err = errno.Errno(exit.ExitCode())
	}
	if err != nil {
		return fmt.Errorf("%s: %w", call, err)
	}
	return nil
}
