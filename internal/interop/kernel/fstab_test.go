package kernel

import (
	"debug/elf"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"btrlab/internal/interop"
	"btrlab/internal/judge/kernels"
	"btrlab/internal/judge/kernels/jobs"
	"btrlab/internal/testing/need"
)

// TestKernelFstab: a machine boots with a line of fstab of type fuse.btrlab, and mount -a mounts
// the image with it: a file of the host is read, one is made, and the machine's own btrfs reads
// that after the umount. Both checkers find nothing.
func TestKernelFstab(t *testing.T) {
	list := booted(t)
	need.All(t, "busybox")
	path, err := exec.LookPath("busybox")
	interop.Must(t, err)
	if !static(t, path) {
		need.Without(t, "static busybox (package busybox-static)")
	}
	busybox, err := os.ReadFile(path)
	interop.Must(t, err)
	for _, k := range list {
		t.Run(k.Version, func(t *testing.T) {
			img := filepath.Join(t.TempDir(), "disk.img")
			interop.Btrlab(t, "mkfs", "-q", "--size", "256M", img)
			interop.BtrlabIn(t, "from the host\n", "put", "-", img+":/"+jobs.FstabKept)
			line := "# device mount-point type options dump pass\n/dev/vda " + jobs.FstabDir + " fuse.btrlab rw,policy=range-lock,fsname=boot 0 0\n"
			r := asked(t, &kernels.Machine{Kernel: k, Disks: []string{img}, Files: map[string][]byte{jobs.BusyboxFile: busybox, jobs.FstabFile: []byte(line)}}, "fstab")
			if mounts := string(r.Files[jobs.FstabMounts]); !strings.Contains(mounts, "boot "+jobs.FstabDir+" fuse.btrlab rw,relatime,") {
				t.Errorf("the machine's mounts:\n%s", mounts)
			}
			if have := string(r.Files[jobs.FstabKept]); have != "from the host\n" {
				t.Errorf("read through the mount: %q", have)
			}
			if have := string(r.Files[jobs.FstabMade]); have == "" || have != interop.Btrlab(t, "cat", img+":/"+jobs.FstabMade) {
				t.Errorf("made through the mount: %q", have)
			}
			interop.Judged(t, img)
		})
	}
}

// static reports whether a program needs no shared libraries.
func static(t *testing.T, path string) bool {
	t.Helper()
	f, err := elf.Open(path)
	interop.Must(t, err)
	defer f.Close()
	for _, p := range f.Progs {
		if p.Type == elf.PT_INTERP {
			return false
		}
	}
	return true
}
