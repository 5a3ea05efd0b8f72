//go:build !portable

package blockdev

import (
	"errors"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"btrlab/internal/sched"
	"btrlab/internal/testing/need"
)

// onLoop is for tests that take loop devices, which not everyone who is root wants them to.
func onLoop(t *testing.T, tools ...string) {
	t.Helper()
	if !need.Forced() {
		t.Skip("SKIPPED: uses loop devices; set BTRLAB_INTEROP=1 to run it")
	}
	need.All(t, append([]string{need.Root, need.Loop, "losetup"}, tools...)...)
}

// Linux as the judge: a loop device opens as a block device with its size, nobody gets a device
// twice, and neither a mounted device nor the file under a mounted loop device can be opened for
// writing.
func TestBlockDeviceAndMounted(t *testing.T) {
	onLoop(t, "mount", "umount", "mkfs.btrfs")
	run := func(name string, args ...string) string {
		t.Helper()
		out, err := exec.Command(name, args...).CombinedOutput()
		if err != nil {
			t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
		}
		return strings.TrimSpace(string(out))
	}
	const size = 200 << 20
	path := filepath.Join(t.TempDir(), "img")
	d, err := Create(path, size)
	if err != nil {
		t.Fatal(err)
	}
	d.Close()
	run("mkfs.btrfs", "-q", path)
	loop := run("losetup", "-f", "--show", path)
	defer exec.Command("losetup", "-d", loop).Run()

	twice := run("losetup", "-f", "--show", path)
	defer exec.Command("losetup", "-d", twice).Run()
	other := filepath.Join(t.TempDir(), "other")
	d, err = Create(other, size)
	if err != nil {
		t.Fatal(err)
	}
	d.Close()
	if !Same(loop, path) || !Same(path, loop) || !Same(loop, twice) || Same(loop, other) || Same(other, loop) {
		t.Errorf("%s and %s are loop devices of %s, and not of %s", loop, twice, path, other)
	}
	run("losetup", "-d", twice)

	k := sched.NewTask("test")
	for _, flags := range []Flags{0, Direct} {
		d, err := Open(loop, flags)
		if err != nil {
			t.Fatal(err)
		}
		if d.Size() != size || !d.(*File).IsBlock() {
			t.Errorf("%s: %d bytes, block %v, want %d, true", loop, d.Size(), d.(*File).IsBlock(), size)
		}
		if _, err := Open(loop, 0); !errors.Is(err, ErrInUse) {
			t.Errorf("second open: %v, want ErrInUse", err)
		}
		p := make([]byte, 8192)
		if err := Read(k, d, p[1:4097], 64<<10); err != nil || string(p[65:73]) != "_BHRfS_M" {
			t.Errorf("superblock magic %q, %v", p[65:73], err)
		}
		if err := Flush(k, d); err != nil {
			t.Error(err)
		}
		d.Close()
	}

	dir := t.TempDir()
	run("mount", loop, dir)
	defer exec.Command("umount", dir).Run()
	if _, err := Open(loop, 0); !errors.Is(err, ErrInUse) {
		t.Errorf("open of a mounted device: %v, want ErrInUse", err)
	}
	if _, err := Open(path, 0); !errors.Is(err, ErrInUse) || !strings.Contains(err.Error(), dir) {
		t.Errorf("open of the file under a mounted loop device: %v, want ErrInUse and %s", err, dir)
	}
	if _, err := Create(path, size); !errors.Is(err, ErrInUse) {
		t.Errorf("create over the file under a mounted loop device: %v, want ErrInUse", err)
	}
	r, err := Open(loop, ReadOnly)
	if err != nil {
		t.Errorf("read-only open of a mounted device: %v", err)
	} else {
		r.Close()
	}
}

func TestUnescapeMount(t *testing.T) {
	if got := unescapeMount(`/mnt/a\040b\134c`); got != `/mnt/a b\c` {
		t.Fatalf("have %q", got)
	}
}
