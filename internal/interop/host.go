package interop

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"btrlab/internal/cli"
	"btrlab/internal/testing/need"
)

// LoopFiles are images that a test has attached to a loop device. Tests of a package run one after
// the other.
var LoopFiles = map[string]bool{}

// Main runs the tests of a package and what is to be done after them, and fails it when an image is
// left attached to a loop device.
func Main(m *testing.M, after ...func()) {
	code := m.Run()
	for _, f := range after {
		f()
	}
	if left := attached(); len(left) > 0 {
		fmt.Fprintf(os.Stderr, "interop: loop devices left: %v\n", left)
		code = 1
	}
	os.Exit(code)
}

// attached lists loop devices that hold an image of ours, and detaches them.
func attached() []string {
	var left []string
	for img := range LoopFiles {
		out, _ := exec.Command("losetup", "-n", "-O", "NAME", "-j", img).Output()
		for _, dev := range strings.Fields(string(out)) {
			left = append(left, dev)
			exec.Command("losetup", "-d", dev).Run()
		}
	}
	return left
}

// Linux skips the test, loudly, where Linux cannot be the judge.
func Linux(t *testing.T, tools ...string) {
	t.Helper()
	need.All(t, append([]string{need.Root, need.Loop, "mkfs.btrfs", "btrfs", "mount", "umount", "losetup"}, tools...)...)
}

// Pick returns its first value under make interop, and its second under make test.
func Pick[T any](all, look T) T {
	if need.Forced() {
		return all
	}
	return look
}

// Sh runs a host command and gives its output.
func Sh(t *testing.T, name string, args ...string) string {
	t.Helper()
	out, err := exec.Command(name, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, Tail(out))
	}
	return string(out)
}

// Tail is the end of what a command printed, for a message.
func Tail(out []byte) []byte {
	if len(out) > 4000 {
		return append([]byte("...\n"), out[len(out)-4000:]...)
	}
	return out
}

// Btrlab runs a verb and wants it to succeed.
func Btrlab(t *testing.T, args ...string) string {
	t.Helper()
	return BtrlabIn(t, "", args...)
}

// BtrlabIn is Btrlab with an input.
func BtrlabIn(t *testing.T, stdin string, args ...string) string {
	t.Helper()
	var out, errw bytes.Buffer
	if code := cli.Main(args, strings.NewReader(stdin), &out, &errw); code != 0 {
		t.Fatalf("btrlab %s: exit code %d\n%s%s", strings.Join(args, " "), code, Tail(out.Bytes()), Tail(errw.Bytes()))
	}
	return out.String()
}

// Judged asks both checkers.
func Judged(t *testing.T, img string) {
	t.Helper()
	Btrlab(t, "check", img)
	out := Sh(t, "btrfs", "check", "--check-data-csum", "--readonly", img)
	if !strings.Contains(out, "no error found") {
		t.Fatalf("btrfs check %s:\n%s", img, Tail([]byte(out)))
	}
}

// Mounted mounts an image and runs f on it.
func Mounted(t *testing.T, img, options string, f func(dir string)) {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "mnt")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if options != "" {
		options = "," + options
	}
	LoopFiles[img] = true
	Sh(t, "mount", "-t", "btrfs", "-o", "loop"+options, img, dir)
	up := true
	umount := func() {
		if !up {
			return
		}
		up = false
		// Linux 6.18 can crash in an umount that has data to write back: the last of it ends when
		// the file system is closed already (btrfs_add_delayed_iput warns, then busy inodes are a
		// BUG). So it is written before.
		_ = exec.Command("sync", "-f", dir).Run()
		for try := 0; ; try++ {
			out, err := exec.Command("umount", dir).CombinedOutput()
			if err == nil {
				break
			}
			if try == 20 {
				exec.Command("umount", "-l", dir).Run()
				t.Errorf("umount %s: %v %s", dir, err, out)
				break
			}
			time.Sleep(100 * time.Millisecond)
		}
	}
	defer umount()
	f(dir)
	umount()
	// The loop device goes with the last close, which the kernel may do a moment after umount.
	for try := 0; try < 50; try++ {
		out, _ := exec.Command("losetup", "-n", "-O", "NAME", "-j", img).Output()
		if len(bytes.TrimSpace(out)) == 0 {
			return
		}
		time.Sleep(20 * time.Millisecond)
	}
	t.Errorf("%s is still attached to a loop device", img)
}

// Scrubbed scrubs a mounted file system and wants no error.
func Scrubbed(t *testing.T, dir string) {
	t.Helper()
	out := Sh(t, "btrfs", "scrub", "start", "-B", "-R", dir)
	for _, line := range strings.Split(out, "\n") {
		name, val, ok := strings.Cut(strings.TrimSpace(line), ":")
		if ok && strings.HasSuffix(name, "_errors") && strings.TrimSpace(val) != "0" {
			t.Fatalf("scrub: %s\n%s", line, out)
		}
	}
}

// Must ends the test at an error.
func Must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// Try runs a verb that may fail.
func Try(args ...string) (code int, stderr string) {
	var out, errw bytes.Buffer
	code = cli.Main(args, strings.NewReader(""), &out, &errw)
	return code, errw.String()
}
