package check

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
	"btrlab/internal/sched"
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
				r, err := Check(tk, dev, Options{})
				dev.Close()
				if err != nil || !r.Clean {
					t.Errorf("%q: %v\n%s", state, err, r.text())
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
	if r, err := Check(sched.NewTask("test"), dev, Options{}); err != nil || !r.Clean {
		t.Errorf("%v\n%s", err, r.text())
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
	base := newImage(t)
	blocks := base.trees()
	path := filepath.Join(t.TempDir(), "image")
	d, err := blockdev.Create(path, base.dev.Size())
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	rng := rand.New(rand.NewPCG(seed, 9))
	count := map[[2]bool]int{}
	for range rounds {
		m := base.clone(t)
		pick := rng.Uint64()
		m.damage(blocks, []uint64{pick})
		r, err := Check(m.tk, m.dev, Options{})
		ours := err != nil || !r.Clean
		for off := int64(0); off < 100<<20; off += 1 << 20 { // beyond lies nothing
			if err := blockdev.Write(m.tk, d, m.read(uint64(off), 1<<20), off); err != nil {
				t.Fatal(err)
			}
		}
		out, err := exec.Command("btrfs", "check", "--check-data-csum", "--force", path).CombinedOutput()
		theirs := err != nil || strings.Contains(string(out), "ERROR")
		count[[2]bool{ours, theirs}]++
		if theirs && !ours {
			bytenr := blocks[pick%uint64(len(blocks))]
			t.Errorf("seed %d: block %d of tree %d, byte %d: only btrfs check finds\n%s", seed, bytenr, int64(base.block(bytenr).Owner()),
				interesting(base.block(bytenr), pick>>8), out)
		}
	}
	t.Logf("found by both %d, here only %d, by neither %d", count[[2]bool{true, true}], count[[2]bool{true, false}], count[[2]bool{false, false}])
}

// quotaScript makes an image with qgroups of two levels in $1, mounted at $2: subvolumes, snapshots
// that share and differ, a clone.
const quotaScript = `
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

// TestLinuxQuota: the counts that Linux makes are those that we make, and when one is changed,
// btrfs check and this package say so.
func TestLinuxQuota(t *testing.T) {
	need.All(t, need.Root, "btrfs", "mkfs.btrfs", "mount")
	m, img, _ := linuxImage(t, quotaScript)
	btrfsCheck := func() string {
		out, err := exec.Command("btrfs", "check", img).CombinedOutput()
		if err != nil {
			return string(out)
		}
		return ""
	}
	for _, group := range []uint64{0, 256, 257, 1<<qgroupLevelShift | 100} {
		n := m.clone(t)
		want := "[]"
		if group != 0 {
			// excl, by a block of 16 KiB
			n.edit(format.QUOTA_TREE_OBJECTID, key(0, format.QGROUP_INFO_KEY, group), func(b []byte) { b[24+1] ^= 0x40 })
			want = "[quota.count]"
		}
		r := n.check()
		if r.rules() != want || strings.Contains(r.text(), "not judged") {
			t.Errorf("qgroup %#x changed: have %s want %s\n%s", group, r.rules(), want, r.text())
		}
		if err := os.WriteFile(img, n.read(0, int(n.dev.Size())), 0o644); err != nil {
			t.Fatal(err)
		}
		if out := btrfsCheck(); (out == "") != (group == 0) {
			t.Errorf("qgroup %#x changed: btrfs check says %q", group, out)
		}
	}
}

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
	run(t, quotaScript, img, mnt)
	kinds := [][]uint64{{extentTree}, {extentTree, freeTree, csumTree}}
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
			_, c, err := judged(tk, dev, Options{})
			if err != nil {
				t.Fatal(err)
			}
			for _, id := range trees {
				r := c.roots[id].item
				places, _ := c.chunkAt(r.Bytenr).places(r.Bytenr)
				for _, p := range places {
					if err := blockdev.Write(tk, dev, make([]byte, c.sb.NodeSize), int64(p.off)); err != nil {
						t.Fatal(err)
					}
				}
			}
			r, err := Propose(tk, dev, Options{})
			if err != nil {
				t.Fatal(err)
			}
			if !r.After.Clean {
				t.Fatalf("%q %q\n%s", r.Done, r.Left, r.After.text())
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
