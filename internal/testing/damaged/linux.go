package damaged

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"btrlab/internal/blockdev"
	"btrlab/internal/sched"
)

// LinuxImage runs a script that makes an image in its first argument, mounted at the second, and
// reads it.
func LinuxImage(t *testing.T, script string) (m *Image, img, mnt string) {
	t.Helper()
	tmp := t.TempDir()
	img, mnt = filepath.Join(tmp, "image"), filepath.Join(tmp, "mnt")
	if err := os.Mkdir(mnt, 0o755); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("bash", "-c", script, "script", img, mnt).CombinedOutput(); err != nil {
		exec.Command("umount", mnt).Run()
		t.Fatalf("%v\n%s", err, out)
	}
	return fromFile(t, img), img, mnt
}

// fromFile reads an image into memory.
func fromFile(t *testing.T, path string) *Image {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	m := &Image{T: t, Task: sched.NewTask("test"), Dev: blockdev.NewMemory(int64(len(b)))}
	for off := 0; off < len(b); off += 1 << 20 {
		if p := b[off:min(off+1<<20, len(b))]; !bytes.Equal(p, make([]byte, len(p))) {
			m.Write(uint64(off), p)
		}
	}
	m.Load()
	return m
}

// ToFile writes an image, with holes where it has zeros.
func ToFile(t *testing.T, m *Image, path string) {
	t.Helper()
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := f.Truncate(m.Dev.Size()); err != nil {
		t.Fatal(err)
	}
	zeros := make([]byte, 1<<20)
	for off := int64(0); off < m.Dev.Size(); off += 1 << 20 {
		if p := m.Read(uint64(off), int(min(1<<20, m.Dev.Size()-off))); !bytes.Equal(p, zeros[:len(p)]) {
			if _, err := f.WriteAt(p, off); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// QuotaScript makes an image with qgroups of two levels in $1, mounted at $2: subvolumes, snapshots
// that share and differ, a clone.
const QuotaScript = `
set -eu
img=$1; m=$2
truncate -s 160M $img; mkfs.btrfs -q $img >/dev/null
mount -o loop $img $m
trap 'umount $m 2>/dev/null || true' EXIT
btrfs quota enable $m; btrfs qgroup create 1/100 $m
btrfs -q subvolume create $m/sub
for i in $(seq 1 200); do echo "file $i of a subvolume, with a text that is long enough" > $m/sub/file-$i; done
dd if=/dev/urandom of=$m/sub/big bs=1M count=4 status=none; sync -f $m
cp --reflink=always $m/sub/big $m/clone
btrfs -q subvolume snapshot $m/sub $m/snap
dd if=/dev/urandom of=$m/snap/big bs=64k count=5 seek=7 conv=notrunc status=none
rm $m/snap/file-1*; sync -f $m
btrfs qgroup assign --no-rescan 0/257 1/100 $m; btrfs qgroup assign --no-rescan 0/256 1/100 $m
btrfs quota rescan -w $m >/dev/null; sync -f $m
umount $m
`
