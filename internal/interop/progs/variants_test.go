package progs

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"btrlab/internal/interop"
	"btrlab/internal/testing/need"
)

// sharingTurn shares the data of a file, takes a snapshot and deletes one.
func sharingTurn(t *testing.T, img, want string, turn int) {
	t.Helper()
	at, from := fmt.Sprintf("/btrlab-%d", turn), fmt.Sprintf("/btrlab-%d/f5", turn)
	interop.Btrlab(t, "reflink", img+":"+from, at+"/shared")
	b, err := os.ReadFile(filepath.Join(want, from))
	interop.Must(t, err)
	interop.Must(t, os.WriteFile(filepath.Join(want, at, "shared"), b, 0o644))
	interop.Btrlab(t, "snapshot", img+":/", "/snapshot")
	interop.BtrlabIn(t, "overwritten", "write", "--offset", "8192", img+":"+at+"/shared")
	h, err := os.OpenFile(filepath.Join(want, at, "shared"), os.O_RDWR, 0)
	interop.Must(t, err)
	_, err = h.WriteAt([]byte("overwritten"), 8192)
	interop.Must(t, err)
	interop.Must(t, h.Close())
	interop.Judged(t, img)
	interop.Btrlab(t, "subvolume", "delete", img+":/snapshot")
	interop.Judged(t, img)
}

// TestVariants: an image of every kind, of either maker, takes turns of Linux and btrlab.
func TestVariants(t *testing.T) {
	need.Long(t)
	interop.Linux(t)
	for _, v := range interop.ImageKinds {
		for _, ours := range []bool{true, false} {
			name := "mkfs.btrfs " + v.Linux
			if ours {
				name = "btrlab mkfs " + v.Ours
			}
			t.Run(name, func(t *testing.T) {
				img := interop.Image(t, "variant.img")
				v.Made(t, img, "512M", ours)
				interop.Judged(t, img)
				want := t.TempDir()
				for turn := range 2 {
					interop.LinuxTurn(t, img, want, turn)
					interop.BtrlabTurn(t, img, want, turn)
				}
				sharingTurn(t, img, want, 1)
				interop.Mounted(t, img, "", func(dir string) {
					interop.NoTimes(t, dir, want)
					interop.SameTree(t, dir, want)
					interop.Scrubbed(t, dir)
					interop.Must(t, os.RemoveAll(filepath.Join(dir, "btrlab-0")))
					interop.Must(t, os.RemoveAll(filepath.Join(want, "btrlab-0")))
				})
				interop.Judged(t, img)
			})
		}
	}
}

// TestSkinnyLater: btrfstune turns skinny metadata on in an image whose tree blocks have the longer
// items; they keep them until they are copied.
func TestSkinnyLater(t *testing.T) {
	interop.Linux(t, "btrfstune")
	img, want := interop.Image(t, "skinny.img"), t.TempDir()
	interop.ImageKind{Linux: "-O ^skinny-metadata"}.Made(t, img, "512M", false)
	interop.Btrlab(t, "quota", "enable", img)
	interop.LinuxTurn(t, img, want, 0)
	interop.BtrlabTurn(t, img, want, 0)
	interop.Btrlab(t, "snapshot", img+":/", "/before")
	interop.Sh(t, "btrfstune", "-x", img)
	interop.Btrlab(t, "subvolume", "delete", img+":/before")
	interop.Judged(t, img)
	interop.BtrlabTurn(t, img, want, 1)
	sharingTurn(t, img, want, 1)
	interop.Mounted(t, img, "", func(dir string) {
		interop.NoTimes(t, dir, want)
		interop.SameTree(t, dir, want)
	})
}

// TestVariantsRootdir: a tree that is made with an image of any kind is the same to Linux.
func TestVariantsRootdir(t *testing.T) {
	need.Long(t)
	interop.Linux(t)
	want := filepath.Join(t.TempDir(), "want")
	interop.Tree(t, filepath.Join(want, "tree"), 3, interop.Pick(2000, 200))
	for _, v := range interop.ImageKinds {
		for _, more := range []string{"", "--shrink --compress zstd"} {
			t.Run(v.Ours+" "+more, func(t *testing.T) {
				img := interop.Image(t, "rootdir.img")
				interop.Btrlab(t, append(append([]string{"mkfs", "-q", "--rootdir", want, img}, strings.Fields(v.Ours)...), strings.Fields(more)...)...)
				interop.Judged(t, img)
				interop.Mounted(t, img, "", func(dir string) {
					interop.SameTree(t, dir, want)
					interop.Scrubbed(t, dir)
				})
			})
		}
	}
}
