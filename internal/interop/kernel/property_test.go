package kernel

import (
	"bytes"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"btrlab/internal/interop"
)

// compressionOf is what Linux says of how path is compressed: c, m and C of lsattr, and the
// property.
func compressionOf(t *testing.T, path string) string {
	t.Helper()
	word, _, _ := strings.Cut(interop.Sh(t, "lsattr", "-d", path), " ")
	return letters(word) + strings.TrimSpace(interop.Sh(t, "btrfs", "property", "get", path, "compression"))
}

// storedAs is the same of a path of an image.
func storedAs(t *testing.T, img, dir, name string) string {
	t.Helper()
	word := ""
	for _, line := range strings.Split(interop.Btrlab(t, "lsattr", img+":"+dir), "\n") {
		if l, path, _ := strings.Cut(line, " "); path == filepath.Join(dir, name) {
			word = l
		}
	}
	return letters(word) + strings.TrimSpace(interop.Btrlab(t, "property", "get", img+":"+filepath.Join(dir, name), "compression"))
}

func letters(word string) string {
	have := ""
	for _, l := range "cmC" {
		if strings.ContainsRune(word, l) {
			have += string(l)
		}
	}
	return have + " "
}

// TestPropertySteps: one sequence of chattr and setfattr on a file of a mount and of an image:
// every step is taken or refused by both, and leaves the same flags and property. Left out is
// another chattr of a file with a property: Linux sets that to zlib then, or takes it away.
func TestPropertySteps(t *testing.T) {
	interop.Linux(t, "lsattr", "chattr", "setfattr")
	img, twin := interop.Image(t, "linux.img"), interop.Image(t, "ours.img")
	interop.Sh(t, "truncate", "-s", "300M", img)
	interop.Sh(t, "mkfs.btrfs", "-q", img)
	interop.Btrlab(t, "mkfs", "--size", "128M", twin)
	interop.Btrlab(t, "touch", twin+":/f")
	interop.Mounted(t, img, "", func(dir string) {
		path := filepath.Join(dir, "f")
		interop.Write(t, path, nil)
		for i, step := range strings.Fields(`=zlib =zstd:5 =zstd:99 =lzo:3 =none =nonex =no =best = = -c =lzo x x +c -c +m +c -m,+c +C -c,+C =zstd +m -c
			+c -c,+m =none +C = +C +c +m =zlib =none = -C +c -c +c,+C`) {
			var theirs bool
			var code int
			switch value, set := strings.CutPrefix(step, "="); {
			case set:
				theirs = exec.Command("setfattr", "-n", "btrfs.compression", "-v", value, path).Run() == nil
				code, _ = interop.Try("setxattr", "btrfs.compression", value, twin+":/f")
			case step == "x":
				theirs = exec.Command("setfattr", "-x", "btrfs.compression", path).Run() == nil
				code, _ = interop.Try("removexattr", "btrfs.compression", twin+":/f")
			default:
				args := strings.Split(step, ",")
				theirs = exec.Command("chattr", append(args, path)...).Run() == nil
				code, _ = interop.Try(append(append([]string{"chattr"}, args...), twin+":/f")...)
			}
			if want, have := compressionOf(t, path), storedAs(t, twin, "/", "f"); theirs != (code == 0) || want != have {
				t.Errorf("step %d %s: Linux %v %q, btrlab %v %q", i, step, theirs, want, code == 0, have)
			}
		}
	})
	interop.Judged(t, twin)
}

// TestPropertyBothWays: what either side writes under the property and under +c the other reads and
// goes on with: files and directories inherit it, and both checkers are content. A tree with
// properties goes from a mount into an image and back.
func TestPropertyBothWays(t *testing.T) {
	interop.Linux(t, "lsattr", "chattr", "setfattr", "cp")
	for i, kind := range []string{"zlib", "lzo", "zstd"} {
		t.Run(kind, func(t *testing.T) {
			r := rand.New(rand.NewPCG(uint64(i), 40))
			img := interop.Image(t, "property.img")
			interop.Btrlab(t, "mkfs", "--size", "300M", img)
			interop.Btrlab(t, "mkdir", img+":/ours")
			interop.Btrlab(t, "property", "set", img+":/ours", "compression", kind)
			src := t.TempDir()
			for _, name := range []string{"a", "b", "c"} {
				interop.Write(t, filepath.Join(src, name), interop.Text(r, 1+r.IntN(600000)))
			}
			interop.Btrlab(t, "put", "-r", src, img+":/ours/tree")
			interop.Btrlab(t, "touch", img+":/plus")
			interop.Btrlab(t, "chattr", "+c", img+":/plus")
			interop.Btrlab(t, "put", filepath.Join(src, "a"), img+":/plus")
			interop.Btrlab(t, "subvolume", "create", img+":/ours/sub")
			interop.Btrlab(t, "property", "set", img+":/", "compression", kind)
			interop.Btrlab(t, "subvolume", "create", img+":/ours/heir")
			interop.Btrlab(t, "put", filepath.Join(src, "c"), img+":/ours/heir/c")
			interop.Btrlab(t, "snapshot", "-r", img+":/ours/heir", "/snap")
			stream := filepath.Join(t.TempDir(), "stream")
			interop.Btrlab(t, "send", "-f", stream, img+":/snap")
			interop.Judged(t, img)
			interop.Mounted(t, img, "", func(dir string) {
				interop.Sh(t, "mkdir", filepath.Join(dir, "received"))
				interop.Sh(t, "btrfs", "receive", "-q", "-f", stream, filepath.Join(dir, "received"))
				if have := compressionOf(t, filepath.Join(dir, "received/snap/c")); have != "c compression="+kind {
					t.Errorf("received: %q", have)
				}
				for name, want := range map[string]string{"ours": "c compression=" + kind, "ours/tree": "c compression=" + kind, "ours/tree/b": "c compression=" + kind,
					"plus": "c compression=zlib", "ours/sub": " ", "snap/c": "c compression=" + kind, "ours/heir": "c compression=" + kind} {
					if have := compressionOf(t, filepath.Join(dir, name)); have != want {
						t.Errorf("%s: Linux says %q want %q", name, have, want)
					}
				}
				interop.NoTimes(t, src, filepath.Join(dir, "ours/tree"))
				interop.SameTree(t, filepath.Join(dir, "ours/tree"), src)
				interop.Sh(t, "mkdir", filepath.Join(dir, "ours/tree/theirs"))
				interop.Sh(t, "cp", "-r", src, filepath.Join(dir, "ours/tree/theirs/tree"))
				interop.Sh(t, "mkdir", filepath.Join(dir, "mine"))
				interop.Sh(t, "btrfs", "property", "set", filepath.Join(dir, "mine"), "compression", kind)
				interop.Write(t, filepath.Join(dir, "mine/c"), interop.Text(r, 300000))
				interop.Write(t, filepath.Join(dir, "mine/m"), nil)
				interop.Sh(t, "chattr", "-c", filepath.Join(dir, "mine/m"))
				interop.Sh(t, "chattr", "+m", filepath.Join(dir, "mine/m"))
				// In and out again, from a mount that has the properties.
				copied := interop.Image(t, "copied.img")
				interop.Btrlab(t, "mkfs", "--size", "128M", copied)
				interop.Btrlab(t, "put", "-r", filepath.Join(dir, "mine"), copied+":/mine")
				interop.Btrlab(t, "get", "-r", copied+":/mine", filepath.Join(dir, "back"))
				built := interop.Image(t, "built.img")
				interop.Btrlab(t, "mkfs", "--size", "128M", "--rootdir", filepath.Join(dir, "mine"), built)
				for _, name := range []string{"c", "m"} {
					want := compressionOf(t, filepath.Join(dir, "mine", name))
					if have := storedAs(t, copied, "/mine", name); have != want {
						t.Errorf("put: %s: %q want %q", name, have, want)
					}
					if have := storedAs(t, built, "/", name); have != want {
						t.Errorf("mkfs: %s: %q want %q", name, have, want)
					}
					if have := compressionOf(t, filepath.Join(dir, "back", name)); have != want {
						t.Errorf("get: %s: %q want %q", name, have, want)
					}
				}
				interop.Judged(t, copied)
				interop.Judged(t, built)
			})
			for _, name := range []string{"theirs", "b"} {
				if have := storedAs(t, img, "/ours/tree", name); have != "c compression="+kind {
					t.Errorf("%s: btrlab says %q", name, have)
				}
			}
			interop.Btrlab(t, "put", filepath.Join(src, "b"), img+":/mine/new")
			if have := storedAs(t, img, "/mine", "new"); have != "c compression="+kind {
				t.Errorf("new: btrlab says %q", have)
			}
			interop.Judged(t, img)
			interop.Mounted(t, img, "", func(dir string) {
				if have := compressionOf(t, filepath.Join(dir, "mine/new")); have != "c compression="+kind {
					t.Errorf("new: Linux says %q", have)
				}
				want, err := os.ReadFile(filepath.Join(src, "b"))
				interop.Must(t, err)
				have, err := os.ReadFile(filepath.Join(dir, "mine/new"))
				interop.Must(t, err)
				if !bytes.Equal(have, want) {
					t.Errorf("new: Linux reads other bytes")
				}
				interop.NoTimes(t, src, filepath.Join(dir, "ours/tree/theirs/tree"))
				interop.SameTree(t, filepath.Join(dir, "ours/tree/theirs/tree"), src)
				interop.Scrubbed(t, dir)
			})
		})
	}
}
