//go:build !portable

package kernels

import (
	"archive/tar"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// IsGuest reports whether the program is process 1 of a machine that Boot started. The kernel puts
// those of its own arguments that it does not know, as nokaslr, before ours.
func IsGuest(args []string) bool {
	return os.Getpid() == 1 && len(args) > 1 && args[len(args)-1] == guestWord
}

// Out is the folder of the guest whose files the host gets.
const Out = "/out"

// Init is process 1 of the guest: it runs the job and turns the machine off. It does not return.
func Init() {
	err := guest()
	if err != nil {
		say("btrlab: " + err.Error())
	}
	unix.Sync()
	_ = unix.Reboot(unix.LINUX_REBOOT_CMD_POWER_OFF)
	for { // a machine that cannot be turned off; the host's time ends it
		time.Sleep(time.Hour)
	}
}

// say writes a line to the console, if there is one.
func say(line string) {
	if f, err := os.OpenFile("/dev/console", os.O_WRONLY, 0); err == nil {
		fmt.Fprintln(f, line)
		f.Close()
	}
}

func guest() error {
	for _, m := range [][2]string{{"devtmpfs", "/dev"}, {"proc", "/proc"}, {"sysfs", "/sys"}, {"tmpfs", "/tmp"}} {
		if err := unix.Mount(m[0], m[1], m[0], 0, ""); err != nil {
			return fmt.Errorf("mount %s: %w", m[1], err)
		}
	}
	// A kernel without it has no tracepoints.
	_ = unix.Mount("tracefs", "/sys/kernel/tracing", "tracefs", 0, "")
	b, err := os.ReadFile("/" + orderPath)
	if err != nil {
		return err
	}
	var o order
	if err := json.Unmarshal(b, &o); err != nil {
		return fmt.Errorf("%s: %w", orderPath, err)
	}
	for _, path := range o.Modules {
		if err := insmod(path); err != nil {
			return err
		}
	}
	result, err := os.OpenFile(disk(o.Disks), os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	say(jobBegins)
	exit, err := job(o.Args)
	if err != nil {
		return err
	}
	return errors.Join(writeResult(result, exit), result.Sync(), result.Close())
}

// disk is the path of the n-th disk.
func disk(n int) string { return "/dev/vd" + string(rune('a'+n)) }

// insmod loads a module. Those of checksums refuse a processor that they are not for.
func insmod(path string) error {
	b, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	err = unix.InitModule(b, "")
	if err != nil && !errors.Is(err, unix.EEXIST) && !errors.Is(err, unix.ENODEV) {
		return fmt.Errorf("load %s: %w", path, err)
	}
	return nil
}

// job runs the program once more, as a child, with its output in files.
func job(args []string) (exit int, err error) {
	var files [2]*os.File
	for i, name := range []string{outputName, errorsName} {
		if files[i], err = os.Create(filepath.Join(Out, name)); err != nil {
			return 0, err
		}
		defer files[i].Close()
	}
	cmd := exec.Command("/init", args...)
	cmd.Dir, cmd.Env, cmd.Stdout, cmd.Stderr = "/", []string{"TMPDIR=/tmp", "HOME=/"}, files[0], files[1]
	err = cmd.Run()
	if ended := (*exec.ExitError)(nil); errors.As(err, &ended) {
		return max(1, ended.ExitCode()), nil
	}
	return 0, err
}

// dieWithUs ends a machine whose host program was killed.
func dieWithUs(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }

// writeResult writes the files of Out, the kernel's messages and the exit code.
func writeResult(w io.Writer, exit int) error {
	out := tar.NewWriter(w)
	put := func(name string, b []byte) error {
		if err := out.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: int64(len(b))}); err != nil {
			return err
		}
		_, err := out.Write(b)
		return err
	}
	err := filepath.WalkDir(Out, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		b, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		name, err := filepath.Rel(Out, path)
		if err != nil {
			return err
		}
		return put(name, b)
	})
	if err != nil {
		return err
	}
	log := make([]byte, 1<<20)
	n, err := unix.Klogctl(unix.SYSLOG_ACTION_READ_ALL, log)
	if err != nil {
		return fmt.Errorf("read the kernel's messages: %w", err)
	}
	return errors.Join(put(logName, log[:n]), put(exitName, []byte(strconv.Itoa(exit))), out.Close())
}
