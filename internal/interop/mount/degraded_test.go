package mount

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"btrlab/internal/interop"
)

// TestMountDegraded: a file system on two files loses one. It is mounted with -o degraded, and what
// is written then is on both devices once the lost one is replaced, by btrlab or by Linux; Linux
// reads the same tree, and scrub and both checkers find nothing. With -o degraded,ro it is only
// read, and profiles that cannot bear the loss are refused in one line.
func TestMountDegraded(t *testing.T) {
	fuse(t, "cp")
	bin := interop.Binary(t)
	for _, by := range []string{"btrlab", "Linux"} {
		all := interop.NewArray(t, 3)
		two, left, after := all[:2], all[:1], interop.Array{all[0], all[2]}
		want := t.TempDir()
		fill := interop.NewFiller(20261129)
		interop.Write(t, filepath.Join(want, "before"), fill.Bytes(3<<20+5))
		interop.Btrlab(t, two.Verb("", "mkfs", "-q", "-d", "raid1", "-m", "raid1")...)
		two.Mounted(t, func(dir string) { interop.Sh(t, "cp", "-a", want+"/.", dir) })

		m := serve(t, bin, left[0], "-o", "degraded,ro")
		interop.SameTree(t, m.dir, want)
		if err := os.WriteFile(m.path("no"), nil, 0o644); !errors.Is(err, unix.EROFS) {
			t.Errorf("a write with -o degraded,ro: %v, want EROFS", err)
		}
		m.umount(t)
		warned(t, m, left[0])

		m = serve(t, bin, left[0], "-o", "degraded")
		interop.Write(t, filepath.Join(want, "sub/after"), fill.Bytes(5<<20+7))
		interop.Must(t, os.Rename(filepath.Join(want, "before"), filepath.Join(want, "sub/moved")))
		interop.Sh(t, "cp", "-a", filepath.Join(want, "sub"), m.dir)
		interop.Must(t, os.Remove(m.path("before")))
		m.umount(t)
		warned(t, m, left[0])
		left.Mounted(t, func(dir string) { interop.SameTree(t, dir, want) }, "degraded,ro")

		if by == "btrlab" {
			interop.Btrlab(t, append(left.Verb("", "device", "replace", "--degraded"), "missing", all[2])...)
		} else {
			left.Mounted(t, func(dir string) {
				interop.Array{all[2]}.AttachedTo(t, func(loops []string) { interop.Sh(t, "btrfs", "replace", "start", "-fB", "2", loops[0], dir) })
			}, "degraded")
		}
		after.Judged(t)
		after.Mounted(t, func(dir string) {
			interop.SameTree(t, dir, want)
			interop.Scrubbed(t, dir)
		})
	}

	spread := interop.NewArray(t, 2)
	interop.Btrlab(t, spread.Verb("", "mkfs", "-q", "-d", "raid0", "-m", "raid1")...)
	dir := t.TempDir()
	out, err := exec.Command(bin, "mount", spread[0], dir, "-o", "degraded").CombinedOutput()
	if err == nil || strings.Count(string(out), "\n") != 1 || !strings.Contains(string(out), "1 of its devices missing, it bears 0") {
		t.Errorf("raid0 of which a device is missing: %v %s", err, out)
	}
	m := serve(t, bin, spread[0], "-o", "degraded,ro")
	m.umount(t)
}

// warned wants the server to have said that device 2 is missing, and nothing else.
func warned(t *testing.T, m *fuseMount, img string) {
	t.Helper()
	if have, want := m.err.String(), "btrlab: warning: "+img+": degraded, without the missing devid 2\n"; have != want {
		t.Errorf("the server says %q, want %q", have, want)
	}
}
