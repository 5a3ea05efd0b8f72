//go:build !portable

package jobs

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"

	"golang.org/x/sys/unix"

	"btrlab/internal/judge/kernels"
)

func init() { jobs["fstab"] = fstab }

// What the job fstab finds and leaves.
const (
	FstabFile     = "fstab"   // of the guest's root folder: becomes /etc/fstab
	BusyboxFile   = "busybox" // a static one: its mount reads fstab and calls the helper
	FstabDir      = "/data"   // where the first disk is to be mounted
	FstabMounts   = "mounts"  // comes back: /proc/mounts after mount -a
	FstabKept     = "kept"    // of the disk, comes back as it was read through the mount
	FstabMade     = "made"    // is made through the mount, comes back as btrfs reads it
	fstabMadeText = "made at the boot\n"
)

// fstab is what a distribution's boot does with a line of fstab: mount -a, which calls this program
// as /sbin/mount.fuse.btrlab. A file is read and one is made; after umount the kernel's own btrfs
// reads it.
func fstab(_ io.Writer, _ []string) error {
	for _, dir := range []string{"/etc", "/sbin", FstabDir} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
	}
	if err := os.Rename("/"+FstabFile, "/etc/fstab"); err != nil {
		return err
	}
	if err := os.Chmod("/"+BusyboxFile, 0o755); err != nil {
		return err
	}
	if err := os.Symlink("/init", "/sbin/mount.fuse.btrlab"); err != nil {
		return err
	}
	if err := busybox("mount", "-a"); err != nil {
		return err
	}
	for from, to := range map[string]string{"/proc/mounts": FstabMounts, filepath.Join(FstabDir, FstabKept): FstabKept} {
		if err := copyOut(from, to); err != nil {
			return err
		}
	}
	if err := os.WriteFile(filepath.Join(FstabDir, FstabMade), []byte(fstabMadeText), 0o644); err != nil {
		return err
	}
	if err := busybox("umount", FstabDir); err != nil {
		return err
	}
	// The server has committed when it lets go of the disk.
	d, err := os.Open("/dev/vda")
	if err != nil {
		return err
	}
	defer d.Close()
	if err := unix.Flock(int(d.Fd()), unix.LOCK_EX); err != nil {
		return err
	}
	if err := unix.Mount("/dev/vda", FstabDir, "btrfs", 0, ""); err != nil {
		return fmt.Errorf("mount by the kernel: %w", err)
	}
	if err := copyOut(filepath.Join(FstabDir, FstabMade), FstabMade); err != nil {
		return err
	}
	return unix.Unmount(FstabDir, 0)
}

func copyOut(from, to string) error {
	b, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(kernels.Out, to), b, 0o644)
}

// busybox runs a command of busybox.
func busybox(args ...string) error {
	c := exec.Command("/"+BusyboxFile, args...)
	c.Env = append(os.Environ(), "PATH=/sbin")
	out, err := c.CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s: %w: %s", args[0], err, bytes.TrimSpace(out))
	}
	return nil
}
