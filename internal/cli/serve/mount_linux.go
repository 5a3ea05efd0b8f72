package serve

import (
	"errors"
	"fmt"
	"io"
	"log/syslog"
	"os"
	"os/exec"
	"syscall"

	"golang.org/x/sys/unix"

	"btrlab/internal/cli/app"
)

// A daemon is this program again, with the same arguments, in a session of its own. It has its
// parent's standard error until the image is mounted, and says so through a pipe: the parent ends
// with what came of it.

// daemonEnv in the environment says that the program is the daemon. Its file 3 is the pipe.
const daemonEnv = "BTRLAB_MOUNT_DAEMON"

func isDaemon() bool { return os.Getenv(daemonEnv) != "" }

// startDaemon starts the daemon and waits until it has mounted.
func (a verbs) startDaemon() error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	ready, readyW, err := os.Pipe()
	if err != nil {
		return err
	}
	defer ready.Close()
	said, saidW, err := os.Pipe()
	if err != nil {
		readyW.Close()
		return err
	}
	defer said.Close()
	c := exec.Command(self, os.Args[1:]...)
	if args := HelperArgs(os.Args); len(args) > 0 {
		c.Args = append([]string{self}, args...)
	}
	c.Env = append(os.Environ(), daemonEnv+"=1")
	c.Stderr, c.ExtraFiles = saidW, []*os.File{readyW}
	c.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	err = c.Start()
	readyW.Close()
	saidW.Close()
	if err != nil {
		return err
	}
	_, err = io.Copy(a.Err, said)
	if n, _ := ready.Read(make([]byte, 1)); n == 1 {
		return err
	}
	if werr := c.Wait(); err == nil && werr == nil {
		return errors.New("the daemon ended before it had mounted")
	}
	return app.ErrFound // it has said why
}

// mountedDaemon tells the parent that the image is mounted, and lets go of its files.
func mountedDaemon() error {
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer null.Close()
	ready := os.NewFile(3, "ready")
	defer ready.Close()
	if _, err := ready.Write([]byte{1}); err != nil {
		return fmt.Errorf("the program that started the daemon is gone: %w", err)
	}
	for fd := range 3 {
		if err := unix.Dup3(int(null.Fd()), fd, 0); err != nil {
			return err
		}
	}
	return os.Chdir("/")
}

// mountNote prints a line, or for a daemon writes it to the system's log.
func (a verbs) mountNote(line string) {
	if isDaemon() {
		if w, err := syslog.New(syslog.LOG_DAEMON|syslog.LOG_WARNING, "btrlab"); err == nil {
			_ = w.Warning(line) // there is nobody else to tell
			w.Close()
		}
	}
	fmt.Fprintf(a.Err, "btrlab: %s\n", app.Shown(a.Err, line))
}
