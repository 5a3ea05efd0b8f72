package repair

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"btrlab/internal/blockdev"
	"btrlab/internal/progs/check"
	"btrlab/internal/sched"
	"btrlab/internal/testing/damaged"
	"btrlab/internal/testing/need"
)

// TestRepairLinux: in an image of Linux with snapshots, clones and qgroups the trees of extents and
// free space are destroyed. After a repair btrfs check finds nothing, and Linux mounts the image,
// writes and deletes, and leaves it clean.
func TestRepairLinux(t *testing.T) {
	need.Long(t)
	need.All(t, need.Root, "bash", "mkfs.btrfs", "btrfs")
	tmp := t.TempDir()
	img, mnt := filepath.Join(tmp, "image"), filepath.Join(tmp, "mnt")
	if err := os.Mkdir(mnt, 0o755); err != nil {
		t.Fatal(err)
	}
	run := func(t *testing.T, script string, args ...string) {
		t.Helper()
		if out, err := exec.Command("bash", append([]string{"-c", script, "script"}, args...)...).CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
	}
	run(t, damaged.QuotaScript, img, mnt)
	kinds := [][]uint64{{damaged.ExtentTree}, {damaged.ExtentTree, damaged.FreeTree, damaged.CsumTree}}
	if !need.Forced() {
		kinds = kinds[:1]
	}
	for _, trees := range kinds {
		t.Run(fmt.Sprint(trees), func(t *testing.T) {
			hurt := filepath.Join(t.TempDir(), "hurt")
			run(t, "cp --sparse=always $1 $2", img, hurt)
			dev, err := blockdev.Open(hurt, 0)
			if err != nil {
				t.Fatal(err)
			}
			tk := sched.NewTask("test")
			_, c, err := check.Examine(tk, dev, check.Options{})
			if err != nil {
				t.Fatal(err)
			}
			for _, id := range trees {
				r := c.Roots[id].Item
				places, _ := c.ChunkAt(r.Bytenr).Places(r.Bytenr)
				for _, p := range places {
					if err := blockdev.Write(tk, dev, make([]byte, c.Super.NodeSize), int64(p.Off)); err != nil {
						t.Fatal(err)
					}
				}
			}
			r, err := Propose(tk, dev, check.Options{})
			if err != nil {
				t.Fatal(err)
			}
			if !r.After.Clean {
				t.Fatalf("%q %q\n%s", r.Done, r.Left, damaged.Text(r.After))
			}
			if err := r.Commit(tk, func(int, int64, []byte) error { return nil }, func() error { return nil }); err != nil {
				t.Fatal(err)
			}
			if err := dev.Close(); err != nil {
				t.Fatal(err)
			}
			run(t, "btrfs check --check-data-csum $1", hurt)
			run(t, `set -eu
mount -o loop $1 $2; trap 'umount $2' EXIT
rm $2/sub/file-2*; dd if=/dev/urandom of=$2/snap/new bs=1M count=8 status=none
btrfs -q subvolume delete $2/snap; btrfs -q subvolume snapshot $2/sub $2/again; sync -f $2
[ $3 = 1 ] || btrfs subvolume sync $2 # half a minute
btrfs quota rescan -w $2 >/dev/null`, hurt, mnt, fmt.Sprint(len(trees)))
			run(t, "btrfs check --check-data-csum $1", hurt)
		})
	}
}
