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
