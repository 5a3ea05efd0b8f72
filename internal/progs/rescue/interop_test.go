package rescue_test

import (
	"context"
	"crypto/sha256"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"btrlab/internal/blockdev"
	"btrlab/internal/progs/rescue"
	"btrlab/internal/sched"
	"btrlab/internal/testing/need"
	"btrlab/internal/transfer"
)

// sampleScript makes an image in $1, mounted at $2, with one of everything, in several commits, and
// copies its files to $3.
const sampleScript = `
set -eu
img=$1; m=$2; copy=$3
truncate -s 400M $img; mkfs.btrfs -q $img >/dev/null 2>&1
mount -o loop $img $m
trap 'cd /; umount $m' EXIT
cd $m
mkdir -p a/b/c d
for i in $(seq 1 120); do echo "small file $i with a text" > a/f$i; head -c $((i*1500)) /dev/urandom > a/b/big$i; done
for i in $(seq 1 60); do mkdir d/dir$i; for j in 1 2 3 4 5; do echo "text $i $j" > d/dir$i/file$j; done; done
sync -f .
head -c 3000000 /dev/urandom > a/b/c/large; ln a/b/c/large a/hard; ln -s b/c/large a/sym; mkfifo a/fifo; mknod a/null c 1 3
truncate -s 5M a/sparse; head -c 8192 /dev/urandom | dd of=a/sparse bs=4096 seek=500 conv=notrunc status=none
fallocate -l 1M a/pre; setfattr -n user.k -v value a/f1; chown 1000:1000 a/f2; chmod 4755 a/f3
touch -d '2001-02-03 04:05:06.789' a/f5
btrfs -q subvolume create sv; for i in $(seq 1 30); do head -c 20000 /dev/urandom > sv/s$i; done
mkdir z; chattr +c z; seq 1 60000 > z/seq; btrfs property set z compression zstd; seq 1 60000 > z/seqzstd
sync -f .
for i in $(seq 1 60); do rm a/b/big$i; done; sync -f .
for i in 200 201 202; do head -c 50000 /dev/urandom > a/b/big$i; sync -f .; done
cp -a . $copy/
`

// whatIs describes each file below dir: its kind, owner, mode and contents.
func whatIs(t *testing.T, dir string) map[string]string {
	t.Helper()
	files := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		rel, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		what := d.Type().String()
		switch {
		case d.Type() == 0:
			p, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			what = fmt.Sprintf("%x", sha256.Sum256(p))
		case d.Type()&fs.ModeSymlink != 0:
			if what, err = os.Readlink(path); err != nil {
				return err
			}
		}
		files[rel] = what
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// TestAgainstRestore: of an image of Linux with one thing destroyed, every file that btrfs restore
// gets is in our copy, with the same bytes, and what the copy calls whole is right.
func TestAgainstRestore(t *testing.T) {
	need.Long(t)
	need.All(t, need.Root, "bash", "mkfs.btrfs", "btrfs", "setfattr")
	tmp := t.TempDir()
	img, mnt, want := filepath.Join(tmp, "image"), filepath.Join(tmp, "mnt"), filepath.Join(tmp, "want")
	for _, d := range []string{mnt, want} {
		if err := os.Mkdir(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if out, err := exec.Command("bash", "-c", sampleScript, "script", img, mnt, want).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	orig := whatIs(t, want)
	for i, k := range kinds {
		if i%4 != 2 && !need.Forced() {
			continue
		}
		t.Run(k.name, func(t *testing.T) {
			tk := sched.NewTask("test")
			hurt := filepath.Join(t.TempDir(), "hurt")
			if out, err := exec.Command("cp", "--sparse=always", img, hurt).CombinedOutput(); err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			dev, err := blockdev.Open(hurt, 0)
			if err != nil {
				t.Fatal(err)
			}
			defer dev.Close()
			k.do(newVictim(t, tk, dev))
			if err := blockdev.Flush(tk, dev); err != nil {
				t.Fatal(err)
			}

			theirs := filepath.Join(t.TempDir(), "theirs")
			if err := os.Mkdir(theirs, 0o755); err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			// What it gets counts, not its exit code.
			_ = exec.CommandContext(ctx, "btrfs", "restore", "-m", "-x", "-S", "-i", hurt, theirs).Run()

			ours := filepath.Join(t.TempDir(), "ours")
			notWhole := map[string]string{}
			im, err := rescue.Open(tk, []blockdev.Device{dev}, rescue.Options{})
			if err != nil {
				t.Fatal(err)
			}
			to, err := transfer.NewLanding(ours)
			if err != nil {
				t.Fatal(err)
			}
			to.Refused = func(path string, err error) {
				if !strings.Contains(err.Error(), "btrfs.compression") {
					t.Errorf("%s: %v", path, err)
				}
			}
			sum, err := im.Copy(to, rescue.CopyOptions{Report: func(r rescue.Report) { notWhole[r.Path] = r.Why }})
			if err := to.Close(); err != nil {
				t.Error(err)
			}
			if err != nil {
				t.Fatal(err)
			}

			get, have := whatIs(t, theirs), whatIs(t, ours)
			right := func(m map[string]string) (n int) {
				for name, what := range orig {
					if m[name] == what {
						n++
					}
				}
				return n
			}
			t.Logf("%d files: btrfs restore has %d, the copy %d; %+v; %v", len(orig), right(get), right(have), sum, im.Notes())
			for name, what := range orig {
				switch {
				case get[name] == what && have[name] != what:
					t.Errorf("%s: only btrfs restore has it: %s", name, notWhole[name])
				case have[name] == "" && notWhole[name] == "":
					t.Logf("%s is not there, without a word", name)
				case have[name] != "" && have[name] != what && notWhole[name] == "":
					t.Errorf("%s is another file than it was, without a word", name)
				}
			}
		})
	}
}
