package progs

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"btrlab/internal/interop"
)

// took is what a command took.
type took struct {
	wall, cpu float64 // seconds
	rss       int64   // KiB
}

// run runs a command and says what it took.
func run(t *testing.T, name string, args ...string) took {
	t.Helper()
	cmd := exec.Command(name, args...)
	start := time.Now()
	out, err := cmd.CombinedOutput()
	c := took{wall: time.Since(start).Seconds()}
	if err != nil {
		t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, interop.Tail(out))
	}
	st := cmd.ProcessState
	c.cpu = (st.UserTime() + st.SystemTime()).Seconds()
	c.rss = st.SysUsage().(*syscall.Rusage).Maxrss
	return c
}

// TestNumbersImages: the Go distribution's src, 11,500 files and 122 MiB in memory, made into a
// file system, put into one, taken out and checked, beside btrfs-progs. The goals: half of the CPU
// and the time of mkfs.btrfs 6.19 for a new image (0.65 of 6.2), 0.7 into an image with files, the
// CPU and 0.7 of the time of btrfs restore, half of the time of btrfs check, 64 MiB.
func TestNumbersImages(t *testing.T) {
	interop.Numbers(t)
	bin := interop.Binary(t)
	dir := filepath.Dir(interop.Image(t, "x"))
	src := filepath.Join(dir, "src")
	interop.Sh(t, "cp", "-a", filepath.Join(strings.TrimSpace(interop.Sh(t, "go", "env", "GOROOT")), "src"), src)
	ours, theirs, out := filepath.Join(dir, "ours.img"), filepath.Join(dir, "theirs.img"), filepath.Join(dir, "out")
	fresh := func(img string) {
		os.Remove(img)
		interop.Sh(t, "truncate", "-s", "1G", img)
	}
	empty := func() {
		interop.Must(t, os.RemoveAll(out))
		interop.Must(t, os.Mkdir(out, 0o755))
	}
	peer := func() took { return run(t, "mkfs.btrfs", "-q", "--rootdir", src, theirs) }
	for _, w := range []struct {
		what       string
		ready      func()
		ours, peer func() took
		other      string
	}{
		{"build", func() { os.Remove(ours); fresh(theirs) }, func() took { return run(t, bin, "mkfs", "-q", "--rootdir", src, ours) }, peer, "mkfs.btrfs --rootdir"},
		{"put -r", func() {
			fresh(ours)
			fresh(theirs)
			interop.Sh(t, bin, "mkfs", "-q", ours)
			interop.Sh(t, bin, "put", "-r", filepath.Join(src, "fmt"), ours+":/")
		}, func() took { return run(t, bin, "put", "-r", src, ours+":/") }, peer, "mkfs.btrfs --rootdir"},
		{"get -r", empty, func() took { return run(t, bin, "get", "-r", theirs+":/", filepath.Join(out, "ours")) },
			func() took { return run(t, "btrfs", "restore", "-m", "-x", "-S", theirs, out) }, "btrfs restore -m -x -S"},
		{"check", func() {}, func() took { return run(t, bin, "check", theirs) },
			func() took { return run(t, "btrfs", "check", "--check-data-csum", theirs) }, "btrfs check --check-data-csum"},
		{"build zstd:3", func() { os.Remove(ours); fresh(theirs); interop.Sh(t, "mkfs.btrfs", "-q", theirs) },
			func() took { return run(t, bin, "mkfs", "-q", "--compress", "zstd:3", "--rootdir", src, ours) },
			func() took {
				start := time.Now()
				interop.Mounted(t, theirs, "compress=zstd:3", func(dir string) { interop.Sh(t, "cp", "-a", src, dir) })
				// The kernel's threads are not seen.
				return took{wall: time.Since(start).Seconds(), cpu: 1}
			}, "Linux, cp -a"},
	} {
		var a, b, ac, bc []float64
		var rss int64
		for range interop.Rounds {
			w.ready()
			x, y := w.ours(), w.peer()
			a, b = append(a, x.wall), append(b, y.wall)
			ac, bc = append(ac, x.cpu), append(bc, y.cpu)
			rss = max(rss, x.rss)
		}
		interop.Spread(t, w.what+", time", a, w.other, b, "s")
		if w.other != "Linux, cp -a" {
			interop.Spread(t, w.what+", CPU", ac, w.other, bc, "s")
		}
		fmt.Printf("%-58s %d MiB\n", w.what+", memory at most", rss>>10)
	}
	interop.Judged(t, ours)
}

// TestNumbersMillion: ls, stat and cat in 1 TiB with a million files, warm. The goals: 64 MiB and
// 50 ms each.
func TestNumbersMillion(t *testing.T) {
	interop.Numbers(t)
	bin := interop.Binary(t)
	img := interop.Image(t, "million.img")
	src := filepath.Join(filepath.Dir(img), "src")
	for d := range 1000 {
		dir := filepath.Join(src, fmt.Sprintf("d%03d", d))
		interop.Must(t, os.MkdirAll(dir, 0o755))
		for f := range 1000 {
			interop.Must(t, os.WriteFile(filepath.Join(dir, fmt.Sprintf("f%03d", f)), []byte("content"), 0o644))
		}
	}
	build := run(t, bin, "mkfs", "-q", "--size", "1T", "--rootdir", src, img)
	fmt.Printf("%-58s %.1f s, %.1f s of CPU, %d MiB\n", "build of a million files", build.wall, build.cpu, build.rss>>10)
	for _, args := range [][]string{{"ls", "-l", img + ":/d777"}, {"stat", img + ":/d777/f777"}, {"cat", img + ":/d777/f777"}} {
		best, rss := 1e9, int64(0)
		for range interop.Rounds {
			c := run(t, bin, args...)
			best, rss = min(best, c.wall), max(rss, c.rss)
		}
		fmt.Printf("%-58s %.0f ms, %d MiB\n", args[0]+" in 1 TiB with a million files", best*1e3, rss>>10)
	}
}
