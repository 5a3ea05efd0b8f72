package check_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"btrlab/internal/blockdev"
	"btrlab/internal/format"
	"btrlab/internal/progs/check"
	"btrlab/internal/sched"
	"btrlab/internal/testing/damaged"
	"btrlab/internal/testing/need"
)

// linuxScript makes one of everything that Linux puts on an image, in $1 mounted at $2. What is
// copied of the image on the way is a state that a crash would leave.
const linuxScript = `
set -eu
img=$1; m=$2; shift 2
truncate -s 1G $img; mkfs.btrfs -q "$@" $img >/dev/null
mount -o loop $img $m
trap 'umount $m 2>/dev/null || true' EXIT
mkdir $m/many
for i in $(seq 1 1500); do echo "file $i" > $m/many/file-with-a-name-$i; done
for i in $(seq 1 300); do ln $m/many/file-with-a-name-1 "$m/many/a-link-with-a-name-so-long-that-the-item-overflows-$i"; done
ln -s /nowhere/at/all $m/symlink; mkfifo $m/fifo; mknod $m/device c 1 3
fallocate -l 8M $m/prealloc; dd if=/dev/urandom of=$m/prealloc bs=4k count=100 seek=300 conv=notrunc status=none
fallocate -n -l 2M $m/many/file-with-a-name-2
touch $m/nocow; chattr +C $m/nocow; dd if=/dev/urandom of=$m/nocow bs=1M count=5 status=none
truncate -s 100M $m/sparse; dd if=/dev/urandom of=$m/sparse bs=4k count=3 seek=1000 conv=notrunc status=none
dd if=/dev/urandom of=$m/frag bs=1M count=8 status=none; sync -f $m
for i in $(seq 1 100); do dd if=/dev/urandom of=$m/frag bs=4k count=1 seek=$((i*13)) conv=notrunc status=none; done
sync -f $m
cp --reflink=always $m/frag $m/clone
btrfs -q subvolume create $m/sub; cp -r $m/many $m/sub/
btrfs -q subvolume snapshot $m $m/snap; sync -f $m
for i in $(seq 1 50); do dd if=/dev/urandom of=$m/frag bs=4k count=1 seek=$((i*17)) conv=notrunc status=none; done
rm -f $m/snap/many/*5* $m/many/*7*; sync -f $m
btrfs -q subvolume snapshot -r $m/snap $m/snap2; rm -f $m/snap/many/*3*; fallocate -p -o 1M -l 2M $m/clone
btrfs -q subvolume snapshot $m/sub $m/sub/nested; sync -f $m
touch $m/orphan; exec 3<$m/orphan; rm $m/orphan; sync -f $m
cp --sparse=always $img $img.orphan; exec 3<&-
for i in 1 2 3; do dd if=/dev/zero of=$m/logged$i bs=8k count=4 conv=fsync status=none; done
cp --sparse=always $img $img.log
btrfs -q subvolume delete $m/snap; sync -f $m
cp --sparse=always $img $img.deleting
umount $m
mount -o loop,compress=zstd $img $m; cp -r $m/many $m/compressed; sync -f $m
btrfs -q balance start --full-balance $m >/dev/null; umount $m
`

// TestLinuxImages: what Linux wrote is clean, by btrfs check and by this package, in every state it
// passes through.
func TestLinuxImages(t *testing.T) {
	need.Long(t)
	need.All(t, need.Root, "btrfs", "mkfs.btrfs", "mount", "chattr", "fallocate")
	tk := sched.NewTask("test")
	kinds := []string{"", "-m single -O ^no-holes", "-n 4096 -O ^skinny-metadata", "-R ^free-space-tree"}
	if !need.Forced() {
		kinds = kinds[:1] // each takes seconds
	}
	for _, opts := range kinds {
		t.Run(strings.ReplaceAll("opts"+opts, " ", ""), func(t *testing.T) {
			dir := t.TempDir()
			img, mnt := filepath.Join(dir, "image"), filepath.Join(dir, "mnt")
			if err := os.Mkdir(mnt, 0o755); err != nil {
				t.Fatal(err)
			}
			args := append([]string{"-c", linuxScript, "script", img, mnt}, strings.Fields(opts)...)
			if out, err := exec.Command("bash", args...).CombinedOutput(); err != nil {
				exec.Command("umount", mnt).Run()
				t.Fatalf("%v\n%s", err, out)
			}
			for _, state := range []string{"", ".orphan", ".log", ".deleting"} {
				dev, err := blockdev.Open(img+state, blockdev.ReadOnly)
				if err != nil {
					t.Fatal(err)
				}
				r, err := check.Check(tk, dev, check.Options{})
				dev.Close()
				if err != nil || !r.Clean {
					t.Errorf("%q: %v\n%s", state, err, damaged.Text(r))
				}
				if state == ".log" != strings.Contains(fmt.Sprint(r.Notes), "log tree") {
					t.Errorf("%q: notes %q", state, r.Notes)
				}
				if out, err := exec.Command("btrfs", "check", "--check-data-csum", img+state).CombinedOutput(); err != nil {
					t.Errorf("%q: btrfs check: %v\n%s", state, err, out)
				}
			}
		})
	}
}

// TestConverted: what btrfs-convert makes of ext4 is clean, by btrfs check and by this package.
func TestConverted(t *testing.T) {
	need.All(t, "bash", "mkfs.ext4", "btrfs-convert", "btrfs")
	img := filepath.Join(t.TempDir(), "image")
	if out, err := exec.Command("bash", "-c", "truncate -s 200M $1 && mkfs.ext4 -q -b 4096 $1 && btrfs-convert $1", "script", img).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if out, err := exec.Command("btrfs", "check", "--check-data-csum", img).CombinedOutput(); err != nil {
		t.Fatalf("btrfs check: %v\n%s", err, out)
	}
	dev, err := blockdev.Open(img, blockdev.ReadOnly)
	if err != nil {
		t.Fatal(err)
	}
	defer dev.Close()
	if r, err := check.Check(sched.NewTask("test"), dev, check.Options{}); err != nil || !r.Clean {
		t.Errorf("%v\n%s", err, damaged.Text(r))
	}
}

// TestFindsWhatBtrfsCheckFinds damages a byte of a tree block, under a good checksum: what btrfs
// check finds is found here.
func TestFindsWhatBtrfsCheckFinds(t *testing.T) {
	need.Long(t)
	need.All(t, need.Root, "btrfs")
	const seed = 8
	rounds := 20
	if need.Forced() {
		rounds = 120
	}
	base := damaged.NewImage(t)
	blocks := base.Trees()
	path := filepath.Join(t.TempDir(), "image")
	d, err := blockdev.Create(path, base.Dev.Size())
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	rng := rand.New(rand.NewPCG(seed, 9))
	count := map[[2]bool]int{}
	for range rounds {
		m := base.Clone(t)
		pick := rng.Uint64()
		m.Damage(blocks, []uint64{pick})
		r, err := check.Check(m.Task, m.Dev, check.Options{})
		ours := err != nil || !r.Clean
		for off := int64(0); off < 100<<20; off += 1 << 20 { // beyond lies nothing
			if err := blockdev.Write(m.Task, d, m.Read(uint64(off), 1<<20), off); err != nil {
				t.Fatal(err)
			}
		}
		out, err := exec.Command("btrfs", "check", "--check-data-csum", "--force", path).CombinedOutput()
		theirs := err != nil || strings.Contains(string(out), "ERROR")
		count[[2]bool{ours, theirs}]++
		if theirs && !ours {
			bytenr := blocks[pick%uint64(len(blocks))]
			t.Errorf("seed %d: block %d of tree %d, byte %d: only btrfs check finds\n%s", seed, bytenr, int64(base.Block(bytenr).Owner()),
				damaged.Interesting(base.Block(bytenr), pick>>8), out)
		}
	}
	t.Logf("found by both %d, here only %d, by neither %d", count[[2]bool{true, true}], count[[2]bool{true, false}], count[[2]bool{false, false}])
}

// TestLinuxQuota: the counts that Linux makes are those that we make, and when one is changed,
// btrfs check and this package say so.
func TestLinuxQuota(t *testing.T) {
	need.All(t, need.Root, "btrfs", "mkfs.btrfs", "mount")
	m, img, _ := damaged.LinuxImage(t, damaged.QuotaScript)
	btrfsCheck := func() string {
		out, err := exec.Command("btrfs", "check", img).CombinedOutput()
		if err != nil {
			return string(out)
		}
		return ""
	}
	for _, group := range []uint64{0, 256, 257, 1<<damaged.QgroupLevelShift | 100} {
		n := m.Clone(t)
		want := "[]"
		if group != 0 {
			// excl, by a block of 16 KiB
			n.Edit(format.QUOTA_TREE_OBJECTID, damaged.Key(0, format.QGROUP_INFO_KEY, group), func(b []byte) { b[24+1] ^= 0x40 })
			want = "[quota.count]"
		}
		r := n.Check()
		if damaged.Rules(r) != want || strings.Contains(damaged.Text(r), "not judged") {
			t.Errorf("qgroup %#x changed: have %s want %s\n%s", group, damaged.Rules(r), want, damaged.Text(r))
		}
		if err := os.WriteFile(img, n.Read(0, int(n.Dev.Size())), 0o644); err != nil {
			t.Fatal(err)
		}
		if out := btrfsCheck(); (out == "") != (group == 0) {
			t.Errorf("qgroup %#x changed: btrfs check says %q", group, out)
		}
	}
}
