package progs

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"btrlab/internal/cli"
	"btrlab/internal/interop"
	"btrlab/internal/testing/need"
)

// array is a file system on several image files.
type array []string

// newArray makes n files for one.
func newArray(t *testing.T, n int) (a array) {
	t.Helper()
	dir := t.TempDir()
	for i := range n {
		img := filepath.Join(dir, fmt.Sprint("device", i+1))
		interop.Sh(t, "truncate", "-s", "256M", img)
		a = append(a, img)
	}
	return a
}

// verb is a command line of btrlab, whose last argument is of the first device: rest follows its
// name.
func (a array) verb(rest string, words ...string) []string {
	for _, img := range a[1:] {
		words = append(words, "--device", img)
	}
	return append(words, a[0]+rest)
}

// attachedTo runs f with a loop device for each file.
func (a array) attachedTo(t *testing.T, f func(loops []string)) {
	t.Helper()
	var loops []string
	defer func() {
		for _, l := range loops {
			if out, err := exec.Command("losetup", "-d", l).CombinedOutput(); err != nil {
				t.Errorf("losetup -d %s: %v %s", l, err, out)
			}
		}
	}()
	for _, img := range a {
		interop.LoopFiles[img] = true
		loops = append(loops, strings.TrimSpace(interop.Sh(t, "losetup", "-f", "--show", img)))
	}
	f(loops)
}

// mounted mounts the file system and runs f on it.
func (a array) mounted(t *testing.T, f func(dir string), options ...string) {
	t.Helper()
	a.mountedAs(t, func(dir string, _ []string) { f(dir) }, 0, options...)
}

// mountedAs mounts the file system by the device of a number in the list, and those after it. F
// gets the loop devices of all.
func (a array) mountedAs(t *testing.T, f func(dir string, loops []string), by int, options ...string) {
	t.Helper()
	a.attachedTo(t, func(loops []string) {
		t.Helper()
		interop.Sh(t, "btrfs", append([]string{"device", "scan"}, loops[by:]...)...)
		dir := filepath.Join(t.TempDir(), "mnt")
		interop.Must(t, os.Mkdir(dir, 0o755))
		interop.Sh(t, "mount", "-t", "btrfs", "-o", strings.Join(append(options, "noatime"), ","), loops[by], dir)
		defer func() {
			_ = exec.Command("sync", "-f", dir).Run() // as mounted
			interop.Sh(t, "umount", dir)
			_ = exec.Command("btrfs", append([]string{"device", "scan", "--forget"}, loops...)...).Run()
		}()
		f(dir, loops)
	})
}

// judged asks both checkers. Of what lies in rows with parity scrub is the judge, with btrfs check
// for the trees: btrfs check 6.2 does not know the parity of RAID5 on two devices, which is a copy,
// and makes wrong data from that of five, also of file systems that Linux alone has written.
func (a array) judged(t *testing.T) {
	t.Helper()
	interop.Btrlab(t, a.verb("", "check")...)
	words := []string{"check", "--check-data-csum", "--readonly"}
	if df := interop.Btrlab(t, a.verb("", "df")...); strings.Contains(df, "raid5") || strings.Contains(df, "raid6") {
		a.mounted(t, func(dir string) { interop.Scrubbed(t, dir) })
		if words = slices.Delete(words, 1, 2); len(a) == 2 {
			return
		}
	}
	a.attachedTo(t, func(loops []string) {
		t.Helper()
		interop.Sh(t, "btrfs", append([]string{"device", "scan"}, loops...)...)
		if out := interop.Sh(t, "btrfs", append(words, loops[0])...); !strings.Contains(out, "no error found") {
			t.Fatalf("btrfs check:\n%s", interop.Tail([]byte(out)))
		}
		_ = exec.Command("btrfs", append([]string{"device", "scan", "--forget"}, loops...)...).Run()
	})
}

// same wants btrlab to read the tree want, with more words for the verb.
func (a array) same(t *testing.T, want string, more ...string) {
	t.Helper()
	out := filepath.Join(t.TempDir(), "out")
	interop.Btrlab(t, append(a.verb(":/", append([]string{"get", "-r"}, more...)...), out)...)
	interop.SameTree(t, out, want)
	interop.Must(t, os.RemoveAll(out))
}

// without wants the tree to be read without each device in turn.
func (a array) without(t *testing.T, want string) {
	t.Helper()
	for i := range a {
		left := append(append(array{}, a[:i]...), a[i+1:]...)
		left.same(t, want, "--degraded")
	}
}

// refusedBy wants a command line to fail with one line that has the text.
func refusedBy(t *testing.T, text string, args ...string) {
	t.Helper()
	var out, errw bytes.Buffer
	code := cli.Main(args, strings.NewReader(""), &out, &errw)
	if code != 1 || !strings.Contains(errw.String(), text) || strings.Count(errw.String(), "\n") != 1 {
		t.Errorf("btrlab %v: exit code %d and %q, want 1 and one line with %q", args, code, errw.String(), text)
	}
}

// edited lets btrlab write into the file system, new chunks too, and Linux judge, read and write
// it.
func (a array) edited(t *testing.T, want string) {
	t.Helper()
	src := filepath.Join(t.TempDir(), "btrlab")
	f := interop.NewFiller(77)
	for i, n := range []int{0, 5, 4097, 200000, 20 << 20, 20 << 20} {
		interop.Write(t, filepath.Join(src, fmt.Sprint("f", i)), f.Bytes(n))
	}
	interop.Btrlab(t, a.verb(":/", "put", "-r", src)...)
	interop.Btrlab(t, a.verb(":/many", "rm", "-r")...)
	interop.Must(t, os.RemoveAll(filepath.Join(want, "many")))
	interop.Sh(t, "cp", "-a", src, want)
	a.judged(t)
	a.mounted(t, func(dir string) {
		interop.SameTree(t, dir, want)
		interop.Scrubbed(t, dir)
		interop.Sh(t, "cp", "-a", filepath.Join(src, "f4"), filepath.Join(dir, "linux"))
		interop.Sh(t, "cp", "-a", filepath.Join(src, "f4"), filepath.Join(want, "linux"))
	})
	a.judged(t)
	a.same(t, want)
}

// profiles are those of Linux: devices, data, metadata, and whether one device may be missing.
var profiles = []struct {
	n              int
	data, metadata string
	spare          bool
}{
	{2, "single", "single", false},
	{2, "single", "dup", false},
	{3, "single", "raid1", false},
	{2, "raid0", "raid0", false},
	{4, "raid0", "raid1", false},
	{2, "raid1", "raid1", true},
	{3, "raid1", "raid1", true},
	{4, "raid10", "raid10", true},
	{3, "raid1c3", "raid1c3", true},
	{4, "raid1c4", "raid1c4", true},
	{4, "raid1", "raid1c3", true},
	{2, "raid5", "raid1", true},
	{3, "raid5", "raid5", true},
	{3, "raid6", "raid1c3", true},
	{4, "raid6", "raid6", true},
}

// TestProfiles: every profile, made by mkfs.btrfs and filled by Linux, is read, also without one of
// its devices, and written.
func TestProfiles(t *testing.T) {
	need.Long(t)
	interop.Linux(t)
	for _, p := range profiles {
		t.Run(fmt.Sprintf("%d %s %s", p.n, p.data, p.metadata), func(t *testing.T) {
			a := newArray(t, p.n)
			a.attachedTo(t, func(loops []string) {
				args := append([]string{"-q", "-d", p.data, "-m", p.metadata, "-O", "no-holes", "-R", "free-space-tree"}, loops...)
				if out, err := exec.Command("mkfs.btrfs", args...).CombinedOutput(); err != nil {
					need.Without(t, fmt.Sprintf("profile %s in mkfs.btrfs: %s", p.data, interop.Tail(out)))
				}
			})
			want := filepath.Join(t.TempDir(), "want")
			interop.Tree(t, want, 9, 100)
			a.mounted(t, func(dir string) { interop.Sh(t, "cp", "-a", want+"/.", dir) })
			a.judged(t)
			a.same(t, want)
			if p.spare {
				a.without(t, want)
			}
			a.edited(t, want)
		})
	}
}

// TestMkfsDevices: file systems that btrlab makes on several devices.
func TestMkfsDevices(t *testing.T) {
	need.Long(t)
	interop.Linux(t)
	for _, p := range profiles {
		t.Run(fmt.Sprintf("%d %s %s", p.n, p.data, p.metadata), func(t *testing.T) {
			a := newArray(t, p.n)
			interop.Btrlab(t, a.verb("", "mkfs", "-q", "-d", p.data, "-m", p.metadata)...)
			a.judged(t)
			want := filepath.Join(t.TempDir(), "want")
			interop.Must(t, os.MkdirAll(filepath.Join(want, "many"), 0o755))
			interop.Btrlab(t, a.verb(":/many", "mkdir")...)
			a.edited(t, want)
		})
	}
}
