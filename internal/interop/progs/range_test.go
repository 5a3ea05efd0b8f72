package progs

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"btrlab/internal/interop"
)

// TestInRange: a file system made in a partition lies where sfdisk and parted have put it, by the
// table as partx reads it: btrfs check finds nothing on a loop device of those bytes, Linux mounts
// and writes them, and no other byte of the disk is changed, by mkfs or by a verb that writes.
func TestInRange(t *testing.T) {
	interop.Linux(t, "sfdisk", "parted", "partx", "cmp")
	tree := filepath.Join(t.TempDir(), "tree")
	interop.Must(t, os.Mkdir(tree, 0o755))
	interop.Must(t, os.WriteFile(filepath.Join(tree, "motd"), []byte("hello"), 0o644))
	fill := interop.NewFiller(29).Bytes(1 << 20)
	for _, c := range []struct {
		name   string
		make   []string
		number int
	}{
		{"gpt", []string{"mklabel", "gpt", "mkpart", "a", "1MiB", "90MiB", "mkpart", "b", "90MiB", "170MiB", "mkpart", "c", "170MiB", "250MiB"}, 2},
		{"mbr", []string{"mklabel", "msdos", "mkpart", "primary", "1MiB", "90MiB", "mkpart", "primary", "90MiB", "170MiB"}, 1},
		{"logical", []string{"mklabel", "msdos", "mkpart", "extended", "1MiB", "250MiB", "mkpart", "logical", "2MiB", "90MiB", "mkpart", "logical", "92MiB", "170MiB"}, 6},
		{"sfdisk", nil, 3},
	} {
		t.Run(c.name, func(t *testing.T) {
			img := interop.Image(t, c.name+".img")
			interop.Must(t, os.WriteFile(img, bytes.Repeat(fill, 256), 0o644))
			if c.make != nil {
				interop.Sh(t, "parted", append([]string{"-s", img}, c.make...)...)
			} else {
				interop.Sh(t, "sh", "-c", `printf 'label: gpt\nsize=80M\nsize=60M\nsize=63M\n' | sfdisk -q `+img)
			}
			before := img + ".before"
			interop.Sh(t, "cp", img, before)
			var start, sectors int64
			line := interop.Sh(t, "partx", "-s", "-g", "-o", "START,SECTORS", "-n", fmt.Sprint(c.number), img)
			if n, err := fmt.Sscan(line, &start, &sectors); n != 2 {
				t.Fatalf("partx: %q: %v", line, err)
			}
			from, size := start*512, sectors*512
			same := func() {
				t.Helper()
				interop.Sh(t, "cmp", "-n", fmt.Sprint(from), before, img)
				interop.Sh(t, "cmp", "-i", fmt.Sprint(from+size), before, img)
			}
			judged := func() {
				t.Helper()
				interop.LoopFiles[img] = true
				loop := strings.TrimSpace(interop.Sh(t, "losetup", "-f", "--show", "-o", fmt.Sprint(from), "--sizelimit", fmt.Sprint(size), img))
				defer interop.Sh(t, "losetup", "-d", loop)
				interop.Judged(t, loop)
			}
			partition, offset := fmt.Sprintf("--partition=%d", c.number), fmt.Sprintf("--offset=%d", from)
			interop.Btrlab(t, "mkfs", "-q", partition, "--rootdir", tree, "--compress", "zstd", img)
			same()
			judged()
			interop.Btrlab(t, "mkfs", "-q", "-f", offset, "--rootdir", tree, img)
			interop.Btrlab(t, "put", offset, filepath.Join(tree, "motd"), img+":/again")
			interop.Btrlab(t, "resize", partition, img, "max")
			same()
			judged()
			interop.Mounted(t, img, fmt.Sprintf("offset=%d,sizelimit=%d", from, size), func(dir string) {
				for _, name := range []string{"motd", "again"} {
					if have, err := os.ReadFile(filepath.Join(dir, name)); err != nil || string(have) != "hello" {
						t.Errorf("%s: have %q, %v", name, have, err)
					}
				}
				interop.Must(t, os.WriteFile(filepath.Join(dir, "linux"), []byte("was here"), 0o644))
			})
			if have := interop.Btrlab(t, "cat", partition, img+":/linux"); have != "was here" {
				t.Errorf("have %q", have)
			}
			same()
			judged()
		})
	}
}

// TestMountsOfSh: cp of sh takes a tree that Linux has filled from one partition of a disk to the
// other; Linux finds the same there, with owners, devices, attributes by name and hard links.
func TestMountsOfSh(t *testing.T) {
	interop.Linux(t, "sfdisk", "rsync")
	img := interop.Image(t, "two.img")
	interop.Sh(t, "truncate", "-s", "400M", img)
	interop.Sh(t, "sh", "-c", `printf 'label: gpt\nstart=1M, size=180M\nstart=190M, size=180M\n' | sfdisk -q `+img)
	for _, n := range []string{"1", "2"} {
		interop.Btrlab(t, "mkfs", "-q", "--partition", n, img)
	}
	first, second := "offset=1048576,sizelimit=188743680", "offset=199229440,sizelimit=188743680"
	want := filepath.Join(t.TempDir(), "want")
	interop.Must(t, os.Mkdir(want, 0o755))
	interop.Mounted(t, img, first, func(dir string) {
		tree := filepath.Join(dir, "tree")
		interop.Tree(t, tree, 31, 100)
		interop.Sh(t, "sh", "-ec", `cd "$1"; mknod null c 1 3; mkfifo p; echo x > own; chown 12345:54321 own; chmod 4711 own
setfattr -n user.a -v b own 2>/dev/null || true; ln own own2; truncate -s 3M own3; mkdir in; chown 5:6 in`, "sh", tree)
		interop.Sh(t, "cp", "-a", tree, want)
	})
	interop.BtrlabIn(t, "mount "+img+" --partition 2 /two\ncp -r /tree /two\n", "sh", "--partition", "1", img)
	interop.Mounted(t, img, second, func(dir string) {
		interop.SameTree(t, filepath.Join(dir, "tree"), filepath.Join(want, "tree"))
		diff := interop.Sh(t, "rsync", "-n", "-aHAXS", "--itemize-changes", "--delete", filepath.Join(dir, "tree")+"/", filepath.Join(want, "tree")+"/")
		if diff != "" {
			t.Errorf("rsync finds other:\n%s", diff)
		}
	})
	for _, from := range []string{"1048576", "199229440"} {
		interop.LoopFiles[img] = true
		loop := strings.TrimSpace(interop.Sh(t, "losetup", "-f", "--show", "-o", from, "--sizelimit", "188743680", img))
		interop.Judged(t, loop)
		interop.Sh(t, "losetup", "-d", loop)
	}
}
