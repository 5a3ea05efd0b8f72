package interop

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// Array is a file system on several image files.
type Array []string

// NewArray makes n files for one.
func NewArray(t *testing.T, n int) (a Array) {
	t.Helper()
	dir := t.TempDir()
	for i := range n {
		img := filepath.Join(dir, fmt.Sprint("device", i+1))
		Sh(t, "truncate", "-s", "256M", img)
		a = append(a, img)
	}
	return a
}

// Verb is a command line of btrlab, whose last argument is of the first device: rest follows its
// name.
func (a Array) Verb(rest string, words ...string) []string {
	for _, img := range a[1:] {
		words = append(words, "--device", img)
	}
	return append(words, a[0]+rest)
}

// AttachedTo runs f with a loop device for each file.
func (a Array) AttachedTo(t *testing.T, f func(loops []string)) {
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
		LoopFiles[img] = true
		loops = append(loops, strings.TrimSpace(Sh(t, "losetup", "-f", "--show", img)))
	}
	f(loops)
}

// Mounted mounts the file system and runs f on it.
func (a Array) Mounted(t *testing.T, f func(dir string), options ...string) {
	t.Helper()
	a.MountedAs(t, func(dir string, _ []string) { f(dir) }, 0, options...)
}

// MountedAs mounts the file system by the device of a number in the list, and those after it. F
// gets the loop devices of all.
func (a Array) MountedAs(t *testing.T, f func(dir string, loops []string), by int, options ...string) {
	t.Helper()
	a.AttachedTo(t, func(loops []string) {
		t.Helper()
		Sh(t, "btrfs", append([]string{"device", "scan"}, loops[by:]...)...)
		dir := filepath.Join(t.TempDir(), "mnt")
		Must(t, os.Mkdir(dir, 0o755))
		Sh(t, "mount", "-t", "btrfs", "-o", strings.Join(append(options, "noatime"), ","), loops[by], dir)
		defer func() {
			_ = exec.Command("sync", "-f", dir).Run() // as mounted
			Sh(t, "umount", dir)
			_ = exec.Command("btrfs", append([]string{"device", "scan", "--forget"}, loops...)...).Run()
		}()
		f(dir, loops)
	})
}

// Judged asks both checkers. Of what lies in rows with parity scrub is the judge, with btrfs check
// for the trees: btrfs check 6.2 does not know the parity of RAID5 on two devices, which is a copy,
// and makes wrong data from that of five, also of file systems that Linux alone has written.
func (a Array) Judged(t *testing.T) {
	t.Helper()
	Btrlab(t, a.Verb("", "check")...)
	words := []string{"check", "--check-data-csum", "--readonly"}
	if df := Btrlab(t, a.Verb("", "df")...); strings.Contains(df, "raid5") || strings.Contains(df, "raid6") {
		a.Mounted(t, func(dir string) { Scrubbed(t, dir) })
		if words = slices.Delete(words, 1, 2); len(a) == 2 {
			return
		}
	}
	a.AttachedTo(t, func(loops []string) {
		t.Helper()
		Sh(t, "btrfs", append([]string{"device", "scan"}, loops...)...)
		if out := Sh(t, "btrfs", append(words, loops[0])...); !strings.Contains(out, "no error found") {
			t.Fatalf("btrfs check:\n%s", Tail([]byte(out)))
		}
		_ = exec.Command("btrfs", append([]string{"device", "scan", "--forget"}, loops...)...).Run()
	})
}
