package progs

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"btrlab/internal/cli"
	"btrlab/internal/interop"
	"btrlab/internal/testing/need"
)

// array is interop.Array, with what this package asks of one.
type array []string

func newArray(t *testing.T, n int) array { t.Helper(); return array(interop.NewArray(t, n)) }

func (a array) verb(rest string, words ...string) []string {
	return interop.Array(a).Verb(rest, words...)
}

func (a array) mounted(t *testing.T, f func(dir string), options ...string) {
	t.Helper()
	interop.Array(a).Mounted(t, f, options...)
}

func (a array) mountedAs(t *testing.T, f func(dir string, loops []string), by int, options ...string) {
	t.Helper()
	interop.Array(a).MountedAs(t, f, by, options...)
}

func (a array) attachedTo(t *testing.T, f func(loops []string)) {
	t.Helper()
	interop.Array(a).AttachedTo(t, f)
}

func (a array) judged(t *testing.T) {
	t.Helper()
	interop.Array(a).Judged(t)
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
