package mount

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"btrlab/internal/interop"
)

// TestNumbersMountLinux: what a mount of ours does beside the kernel's own of an image of the same
// size and age, on a loop device: 4 KiB direct writes of four jobs, stores to mapped memory, files
// that are made and removed, and a directory of 100,000 names: made, listed, and each of them
// asked for its attributes, the two last by a mount that has read nothing yet. The goal for direct
// writes is 1.
func TestNumbersMountLinux(t *testing.T) {
	interop.Numbers(t, "fio")
	fuse(t)
	modes(t)
	bin := interop.Binary(t)
	direct := []string{"--ioengine=psync", "--direct=1", "--numjobs=4"}
	mapped := []string{"--ioengine=mmap", "--size=64M"}
	rows := []struct {
		name, file, unit string
		rate             func(dir, file string) float64
	}{
		{"4 KiB direct random writes, 4 jobs, NOCOW", "f", "/s", fioOn(t, direct)},
		{"the same, COW", "c", "/s", fioOn(t, direct)},
		{"4 KiB random stores to mapped memory, NOCOW", "f", "/s", fioOn(t, mapped)},
		{"the same, COW", "c", "/s", fioOn(t, mapped)},
		{"create and unlink of 10,000 files", "", "files/s", func(dir, _ string) float64 { return createRate(t, dir) }},
		{"a directory of 100,000 names: create", "d", "names/s", func(dir, d string) float64 { return fillRate(t, filepath.Join(dir, d)) }},
		{"the same: list", "d", "names/s", func(dir, d string) float64 { return listRate(t, filepath.Join(dir, d), false) }},
		{"the same: stat", "d", "names/s", func(dir, d string) float64 { return listRate(t, filepath.Join(dir, d), true) }},
	}
	ours, theirs := make([][]float64, len(rows)), make([][]float64, len(rows))
	for range interop.Rounds {
		a, b := interop.Image(t, "ours.img"), interop.Image(t, "theirs.img")
		for _, img := range []string{a, b} {
			interop.Sh(t, "rm", "-f", img)
			interop.Btrlab(t, "mkfs", "-q", "--size", "4G", img)
			interop.Btrlab(t, "touch", img+":/f", img+":/c")
			interop.Btrlab(t, "chattr", "+C", img+":/f")
			for _, f := range []string{"f", "c"} {
				interop.Btrlab(t, "write", "--length", "256M", img+":/"+f)
			}
		}
		for i, r := range rows {
			m := serve(t, bin, a)
			ours[i] = append(ours[i], r.rate(m.dir, r.file))
			m.umount(t)
			interop.Mounted(t, b, "", func(dir string) { theirs[i] = append(theirs[i], r.rate(dir, r.file)) })
		}
	}
	for i, r := range rows {
		interop.Spread(t, "mount: "+r.name, ours[i], "Linux", theirs[i], r.unit)
	}
}

const names = 100_000

// fillRate makes a directory of empty files.
func fillRate(t *testing.T, dir string) float64 {
	t.Helper()
	began := time.Now()
	interop.Must(t, os.Mkdir(dir, 0o755))
	for i := range names {
		fd, err := unix.Open(filepath.Join(dir, fmt.Sprintf("n%d", i)), unix.O_CREAT|unix.O_WRONLY, 0o644)
		interop.Must(t, err)
		interop.Must(t, unix.Close(fd))
	}
	return names / time.Since(began).Seconds()
}

// listRate lists the directory, and with stat asks for the attributes of each name.
func listRate(t *testing.T, dir string, stat bool) float64 {
	t.Helper()
	began := time.Now()
	d, err := os.Open(dir)
	interop.Must(t, err)
	list, err := d.Readdirnames(-1)
	interop.Must(t, err)
	interop.Must(t, d.Close())
	if len(list) != names {
		t.Fatalf("%s has %d names, want %d", dir, len(list), names)
	}
	for i := 0; stat && i < len(list); i++ {
		var st unix.Stat_t
		interop.Must(t, unix.Lstat(filepath.Join(dir, list[i]), &st))
	}
	return names / time.Since(began).Seconds()
}
