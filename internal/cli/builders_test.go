package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestUnderFakeroot: a program that asks the kernel sees nothing of fakeroot, so it says once that
// owners are the host's; not when owners are named otherwise, and not outside of fakeroot.
func TestUnderFakeroot(t *testing.T) {
	dir := t.TempDir()
	tree, img, save := filepath.Join(dir, "tree"), filepath.Join(dir, "d.img"), filepath.Join(dir, "save")
	for _, f := range []string{filepath.Join(tree, "f"), save} {
		if err := os.MkdirAll(filepath.Dir(f), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(f, nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	run := func(want int, args ...string) {
		t.Helper()
		code, _, errs := shell(t, "", args...)
		if have := strings.Count(errs, "fakeroot's are not seen here"); code != 0 || have != want || strings.Count(errs, "\n") != want {
			t.Errorf("%q: exit code %d, %q, want %d warnings", args, code, errs, want)
		}
	}
	run(0, "mkfs", "-q", "--size", "64M", "--rootdir", tree, img)
	t.Setenv("LD_PRELOAD", "libfakeroot-sysv.so")
	run(0, "mkfs", "-q", "-f", "--rootdir", tree, img)
	t.Setenv("FAKEROOTKEY", "1")
	run(1, "mkfs", "-q", "-f", "--rootdir", tree, img)
	run(1, "mkfs.btrfs", "-q", "-f", "--rootdir", tree, img)
	run(1, "put", "-r", tree, img+":/a")
	run(0, "mkfs", "-q", "-f", "--size", "64M", img)
	run(0, "mkfs", "-q", "-f", "--rootdir", tree, "--root-owner", img)
	run(0, "mkfs", "-q", "-f", "--rootdir", tree, "--owner-from", save, img)
	run(0, "put", "-r", "--no-owner", tree, img+":/b")
	run(0, "put", "-r", "--owner-from", save, tree, img+":/c")
}
