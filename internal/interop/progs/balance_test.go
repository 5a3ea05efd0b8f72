package progs

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"btrlab/internal/interop"
)

// A file system that Linux has made and lived on gets devices, profiles and other devices by
// btrlab, loses one and goes on without it; both checkers and Linux judge each step, and Linux
// takes it all back at the end.
func TestBalanceAndDevices(t *testing.T) {
	interop.Linux(t)
	want := filepath.Join(t.TempDir(), "want")
	interop.Must(t, os.Mkdir(want, 0o755))
	all := newArray(t, 4)
	interop.Sh(t, "mkfs.btrfs", "-q", "-f", "-m", "dup", all[0])
	one := all[:1]
	one.mounted(t, func(dir string) {
		interop.Tree(t, filepath.Join(dir, "tree"), 11, 300)
		interop.Sh(t, "btrfs", "subvolume", "snapshot", dir, dir+"/first")
		interop.Sh(t, "sh", "-c", "cd "+dir+"/tree && for f in *; do test -f $f && echo more >> $f; done; true")
		interop.Sh(t, "btrfs", "subvolume", "snapshot", "-r", dir, dir+"/second")
		interop.Sh(t, "cp", "-a", dir+"/tree", want+"/tree")
		interop.Sh(t, "cp", "-a", dir+"/first/tree", want+"/first")
	})
	same := func(a array, also ...func(dir string)) {
		t.Helper()
		a.judged(t)
		a.mounted(t, func(dir string) {
			interop.SameTree(t, dir+"/tree", want+"/tree")
			interop.SameTree(t, dir+"/second/tree", want+"/tree")
			interop.SameTree(t, dir+"/first/tree", want+"/first")
			for _, f := range also {
				f(dir)
			}
		})
	}
	profiles := func(data, metadata string) func(dir string) {
		return func(dir string) {
			out := interop.Sh(t, "btrfs", "filesystem", "df", dir)
			for _, line := range []string{"Data, " + data + ":", "Metadata, " + metadata + ":", "System, " + metadata + ":"} {
				if strings.Count(out, line) != 1 {
					t.Errorf("want one line %q in\n%s", line, out)
				}
			}
			if strings.Count(out, "\n") != 4 {
				t.Errorf("want one profile of each type, have\n%s", out)
			}
		}
	}
	interop.Btrlab(t, one.verb("", "balance", "start")...)
	same(one, profiles("single", "DUP"))

	interop.Btrlab(t, append(one.verb("", "device", "add"), all[1])...)
	interop.Btrlab(t, append(all[:2].verb("", "device", "add"), all[2])...)
	three := all[:3]
	interop.Btrlab(t, three.verb("", "balance", "start", "--data=convert=raid1", "--metadata=convert=raid1c3")...)
	same(three, profiles("RAID1", "RAID1C3"))
	interop.Btrlab(t, three.verb("", "balance", "start", "--data=convert=raid0", "--metadata=convert=raid1")...)
	same(three, profiles("RAID0", "RAID1"))
	interop.Btrlab(t, three.verb("", "balance", "start", "--data=convert=raid1")...)
	interop.Btrlab(t, append(three.verb("", "device", "remove"), all[0])...)
	two := all[1:3]
	same(two, profiles("RAID1", "RAID1"))

	// One is gone: what is written without it is on the new one, too.
	left := all[2:3]
	file := filepath.Join(t.TempDir(), "file")
	interop.Write(t, file, interop.NewFiller(3).Bytes(3<<20))
	interop.Btrlab(t, "put", "--degraded", file, left[0]+":/file")
	interop.Btrlab(t, append(left.verb("", "device", "replace", "--degraded"), "missing", all[3])...)
	last := all[2:4]
	same(last, profiles("RAID1", "RAID1"), func(dir string) {
		interop.Sh(t, "cmp", file, dir+"/file")
		interop.Scrubbed(t, dir)
	})

	last.mounted(t, func(dir string) {
		interop.Sh(t, "btrfs", "balance", "start", "-f", "-dconvert=single", "-mconvert=dup", dir)
		interop.Sh(t, "btrfs", "device", "remove", "2", dir)
	})
	all[2:3].judged(t)
}
