package interop

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"btrlab/internal/testing/need"
)

// imageKind is a kind of image: the options that make one, of mkfs.btrfs and of btrlab mkfs.
type imageKind struct{ linux, ours string }

// imageKinds are the kinds of images that are written besides the default.
var imageKinds = []imageKind{
	{"--csum xxhash", "--csum xxhash64"}, {"--csum sha256", "--csum sha256"}, {"--csum blake2", "--csum blake2b"},
	{"-O ^skinny-metadata", "-O ^skinny-metadata"}, {"-O ^no-holes", "-O ^no-holes"},
	{"-n 4k -O ^no-holes,^skinny-metadata", "-n 4k -O ^no-holes,^skinny-metadata"}, {"-n 64k --csum sha256", "-n 64k --csum sha256"},
}

// made makes an image of one of both makers.
func (v imageKind) made(t *testing.T, img, size string, ours bool) {
	t.Helper()
	if ours {
		btrlab(t, append([]string{"mkfs", "-q", "--size", size, img}, strings.Fields(v.ours)...)...)
		return
	}
	sh(t, "truncate", "-s", size, img)
	sh(t, "mkfs.btrfs", append(append([]string{"-q"}, strings.Fields(v.linux)...), img)...)
}

// kindOf is an imageKind by seed; every fourth is the default.
func kindOf(seed uint64) imageKind {
	if seed%4 == 0 {
		return imageKind{}
	}
	return imageKinds[(seed-1-seed/4)%uint64(len(imageKinds))]
}

// sharingTurn shares the data of a file, takes a snapshot and deletes one.
func sharingTurn(t *testing.T, img, want string, turn int) {
	t.Helper()
	at, from := fmt.Sprintf("/btrlab-%d", turn), fmt.Sprintf("/btrlab-%d/f5", turn)
	btrlab(t, "reflink", img+":"+from, at+"/shared")
	b, err := os.ReadFile(filepath.Join(want, from))
	must(t, err)
	must(t, os.WriteFile(filepath.Join(want, at, "shared"), b, 0o644))
	btrlab(t, "snapshot", img+":/", "/snapshot")
	btrlabIn(t, "overwritten", "write", "--offset", "8192", img+":"+at+"/shared")
	h, err := os.OpenFile(filepath.Join(want, at, "shared"), os.O_RDWR, 0)
	must(t, err)
	_, err = h.WriteAt([]byte("overwritten"), 8192)
	must(t, err)
	must(t, h.Close())
	judged(t, img)
	btrlab(t, "subvolume", "delete", img+":/snapshot")
	judged(t, img)
}

// TestVariants: an image of every kind, of either maker, takes turns of Linux and btrlab.
func TestVariants(t *testing.T) {
	need.Long(t)
	linux(t)
	for _, v := range imageKinds {
		for _, ours := range []bool{true, false} {
			name := "mkfs.btrfs " + v.linux
			if ours {
				name = "btrlab mkfs " + v.ours
			}
			t.Run(name, func(t *testing.T) {
				img := image(t, "variant.img")
				v.made(t, img, "512M", ours)
				judged(t, img)
				want := t.TempDir()
				for turn := range 2 {
					linuxTurn(t, img, want, turn)
					btrlabTurn(t, img, want, turn)
				}
				sharingTurn(t, img, want, 1)
				mounted(t, img, "", func(dir string) {
					noTimes(t, dir, want)
					sameTree(t, dir, want)
					scrubbed(t, dir)
					must(t, os.RemoveAll(filepath.Join(dir, "btrlab-0")))
					must(t, os.RemoveAll(filepath.Join(want, "btrlab-0")))
				})
				judged(t, img)
			})
		}
	}
}

// TestSkinnyLater: btrfstune turns skinny metadata on in an image whose tree blocks have the longer
// items; they keep them until they are copied.
func TestSkinnyLater(t *testing.T) {
	linux(t, "btrfstune")
	img, want := image(t, "skinny.img"), t.TempDir()
	imageKind{linux: "-O ^skinny-metadata"}.made(t, img, "512M", false)
	btrlab(t, "quota", "enable", img)
	linuxTurn(t, img, want, 0)
	btrlabTurn(t, img, want, 0)
	btrlab(t, "snapshot", img+":/", "/before")
	sh(t, "btrfstune", "-x", img)
	btrlab(t, "subvolume", "delete", img+":/before")
	judged(t, img)
	btrlabTurn(t, img, want, 1)
	sharingTurn(t, img, want, 1)
	mounted(t, img, "", func(dir string) {
		noTimes(t, dir, want)
		sameTree(t, dir, want)
	})
}

// TestVariantsRootdir: a tree that is made with an image of any kind is the same to Linux.
func TestVariantsRootdir(t *testing.T) {
	need.Long(t)
	linux(t)
	want := filepath.Join(t.TempDir(), "want")
	tree(t, filepath.Join(want, "tree"), 3, pick(2000, 200))
	for _, v := range imageKinds {
		for _, more := range []string{"", "--shrink --compress zstd"} {
			t.Run(v.ours+" "+more, func(t *testing.T) {
				img := image(t, "rootdir.img")
				btrlab(t, append(append([]string{"mkfs", "-q", "--rootdir", want, img}, strings.Fields(v.ours)...), strings.Fields(more)...)...)
				judged(t, img)
				mounted(t, img, "", func(dir string) {
					sameTree(t, dir, want)
					scrubbed(t, dir)
				})
			})
		}
	}
}
