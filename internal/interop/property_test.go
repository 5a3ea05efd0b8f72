package interop

import (
	"bytes"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// compressionOf is what Linux says of how path is compressed: c, m and C of lsattr, and the
// property.
func compressionOf(t *testing.T, path string) string {
	t.Helper()
	word, _, _ := strings.Cut(sh(t, "lsattr", "-d", path), " ")
	return letters(word) + strings.TrimSpace(sh(t, "btrfs", "property", "get", path, "compression"))
}

// storedAs is the same of a path of an image.
func storedAs(t *testing.T, img, dir, name string) string {
	t.Helper()
	word := ""
	for _, line := range strings.Split(btrlab(t, "lsattr", img+":"+dir), "\n") {
		if l, path, _ := strings.Cut(line, " "); path == filepath.Join(dir, name) {
			word = l
		}
	}
	return letters(word) + strings.TrimSpace(btrlab(t, "property", "get", img+":"+filepath.Join(dir, name), "compression"))
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
	linux(t, "lsattr", "chattr", "setfattr")
	img, twin := image(t, "linux.img"), image(t, "ours.img")
	sh(t, "truncate", "-s", "300M", img)
	sh(t, "mkfs.btrfs", "-q", img)
	btrlab(t, "mkfs", "--size", "128M", twin)
	btrlab(t, "touch", twin+":/f")
	mounted(t, img, "", func(dir string) {
		path := filepath.Join(dir, "f")
		write(t, path, nil)
		for i, step := range strings.Fields(`=zlib =zstd:5 =zstd:99 =lzo:3 =none =nonex =no =best = = -c =lzo x x +c -c +m +c -m,+c +C -c,+C =zstd +m -c
			+c -c,+m =none +C = +C +c +m =zlib =none = -C +c -c +c,+C`) {
			var theirs bool
			var code int
			switch value, set := strings.CutPrefix(step, "="); {
			case set:
				theirs = exec.Command("setfattr", "-n", "btrfs.compression", "-v", value, path).Run() == nil
				code, _ = try("setxattr", "btrfs.compression", value, twin+":/f")
			case step == "x":
				theirs = exec.Command("setfattr", "-x", "btrfs.compression", path).Run() == nil
				code, _ = try("removexattr", "btrfs.compression", twin+":/f")
			default:
				args := strings.Split(step, ",")
				theirs = exec.Command("chattr", append(args, path)...).Run() == nil
				code, _ = try(append(append([]string{"chattr"}, args...), twin+":/f")...)
			}
			if want, have := compressionOf(t, path), storedAs(t, twin, "/", "f"); theirs != (code == 0) || want != have {
				t.Errorf("step %d %s: Linux %v %q, btrlab %v %q", i, step, theirs, want, code == 0, have)
			}
		}
	})
	judged(t, twin)
}

// TestPropertyBothWays: what either side writes under the property and under +c the other reads and
// goes on with: files and directories inherit it, and both checkers are content. A tree with
// properties goes from a mount into an image and back.
func TestPropertyBothWays(t *testing.T) {
	linux(t, "lsattr", "chattr", "setfattr", "cp")
	for i, kind := range []string{"zlib", "lzo", "zstd"} {
		t.Run(kind, func(t *testing.T) {
			r := rand.New(rand.NewPCG(uint64(i), 40))
			img := image(t, "property.img")
			btrlab(t, "mkfs", "--size", "300M", img)
			btrlab(t, "mkdir", img+":/ours")
			btrlab(t, "property", "set", img+":/ours", "compression", kind)
			src := t.TempDir()
			for _, name := range []string{"a", "b", "c"} {
				write(t, filepath.Join(src, name), text(r, 1+r.IntN(600000)))
			}
			btrlab(t, "put", "-r", src, img+":/ours/tree")
			btrlab(t, "touch", img+":/plus")
			btrlab(t, "chattr", "+c", img+":/plus")
			btrlab(t, "put", filepath.Join(src, "a"), img+":/plus")
			btrlab(t, "subvolume", "create", img+":/ours/sub")
			btrlab(t, "property", "set", img+":/", "compression", kind)
			btrlab(t, "subvolume", "create", img+":/ours/heir")
			btrlab(t, "put", filepath.Join(src, "c"), img+":/ours/heir/c")
			btrlab(t, "snapshot", "-r", img+":/ours/heir", "/snap")
			stream := filepath.Join(t.TempDir(), "stream")
			btrlab(t, "send", "-f", stream, img+":/snap")
			judged(t, img)
			mounted(t, img, "", func(dir string) {
				sh(t, "mkdir", filepath.Join(dir, "received"))
				sh(t, "btrfs", "receive", "-q", "-f", stream, filepath.Join(dir, "received"))
				if have := compressionOf(t, filepath.Join(dir, "received/snap/c")); have != "c compression="+kind {
					t.Errorf("received: %q", have)
				}
				for name, want := range map[string]string{"ours": "c compression=" + kind, "ours/tree": "c compression=" + kind, "ours/tree/b": "c compression=" + kind,
					"plus": "c compression=zlib", "ours/sub": " ", "snap/c": "c compression=" + kind, "ours/heir": "c compression=" + kind} {
					if have := compressionOf(t, filepath.Join(dir, name)); have != want {
						t.Errorf("%s: Linux says %q want %q", name, have, want)
					}
				}
				noTimes(t, src, filepath.Join(dir, "ours/tree"))
				sameTree(t, filepath.Join(dir, "ours/tree"), src)
				sh(t, "mkdir", filepath.Join(dir, "ours/tree/theirs"))
				sh(t, "cp", "-r", src, filepath.Join(dir, "ours/tree/theirs/tree"))
				sh(t, "mkdir", filepath.Join(dir, "mine"))
				sh(t, "btrfs", "property", "set", filepath.Join(dir, "mine"), "compression", kind)
				write(t, filepath.Join(dir, "mine/c"), text(r, 300000))
				write(t, filepath.Join(dir, "mine/m"), nil)
				sh(t, "chattr", "-c", filepath.Join(dir, "mine/m"))
				sh(t, "chattr", "+m", filepath.Join(dir, "mine/m"))
				// In and out again, from a mount that has the properties.
				copied := image(t, "copied.img")
				btrlab(t, "mkfs", "--size", "128M", copied)
				btrlab(t, "put", "-r", filepath.Join(dir, "mine"), copied+":/mine")
				btrlab(t, "get", "-r", copied+":/mine", filepath.Join(dir, "back"))
				built := image(t, "built.img")
				btrlab(t, "mkfs", "--size", "128M", "--rootdir", filepath.Join(dir, "mine"), built)
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
				judged(t, copied)
				judged(t, built)
			})
			for _, name := range []string{"theirs", "b"} {
				if have := storedAs(t, img, "/ours/tree", name); have != "c compression="+kind {
					t.Errorf("%s: btrlab says %q", name, have)
				}
			}
			btrlab(t, "put", filepath.Join(src, "b"), img+":/mine/new")
			if have := storedAs(t, img, "/mine", "new"); have != "c compression="+kind {
				t.Errorf("new: btrlab says %q", have)
			}
			judged(t, img)
			mounted(t, img, "", func(dir string) {
				if have := compressionOf(t, filepath.Join(dir, "mine/new")); have != "c compression="+kind {
					t.Errorf("new: Linux says %q", have)
				}
				want, err := os.ReadFile(filepath.Join(src, "b"))
				must(t, err)
				have, err := os.ReadFile(filepath.Join(dir, "mine/new"))
				must(t, err)
				if !bytes.Equal(have, want) {
					t.Errorf("new: Linux reads other bytes")
				}
				noTimes(t, src, filepath.Join(dir, "ours/tree/theirs/tree"))
				sameTree(t, filepath.Join(dir, "ours/tree/theirs/tree"), src)
				scrubbed(t, dir)
			})
		})
	}
}
