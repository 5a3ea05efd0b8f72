package kernel

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"btrlab/internal/blockdev"
	engine "btrlab/internal/fs"
	"btrlab/internal/interop"
	"btrlab/internal/policy"
	"btrlab/internal/sched"
)

const fsyncJob = `[w]
ioengine=psync
rw=randwrite
bs=4k
filesize=16M
norandommap
fsync=1
numjobs=8
thread
group_reporting
time_based
runtime=2
`

// TestNumbersFsyncLog: eight writers with a file each, which write 4 KiB and fsync, by the log and
// by a commit for each fsync: in memory, and on a device that takes its time. The goal is 5.
func TestNumbersFsyncLog(t *testing.T) {
	interop.Measurement(t)
	bin := interop.Binary(t)
	job := filepath.Join(t.TempDir(), "job")
	interop.Must(t, os.WriteFile(job, []byte(fsyncJob), 0o644))
	for _, model := range []string{"none", "nvme"} {
		rate := func(policy string) float64 {
			return interop.FioIOPS(t, interop.Sh(t, bin, "bench", job, "--policy", policy, "--device-model", model, "--json"))
		}
		var a, b []float64
		for range interop.Rounds {
			a = append(a, rate("fsync-5.18"))
			b = append(b, rate("fsync-commit"))
		}
		interop.Spread(t, fmt.Sprintf("4k and fsync, 8 writers, device %s, fsync-5.18, goal 5", model), a, "fsync-commit", b, "iops")
	}
}

// TestNumbersFsyncLogLinux: what a log is worth to Linux: the same job with the log tree and with
// the mount option notreelog, by which an fsync commits, and ours by both, all on images in memory
// that are new in every round.
func TestNumbersFsyncLogLinux(t *testing.T) {
	interop.Numbers(t, "fio")
	bin := interop.Binary(t)
	our := filepath.Join(t.TempDir(), "ours.fio")
	interop.Must(t, os.WriteFile(our, []byte(fsyncJob), 0o644))
	rate := func(run func(img string) float64, mkfs ...string) float64 {
		img := interop.Image(t, "img")
		interop.Sh(t, "truncate", "-s", "16G", img)
		interop.Sh(t, mkfs[0], append(mkfs[1:], img)...)
		defer os.Remove(img)
		return run(img)
	}
	linuxRate := func(options string) float64 {
		return rate(func(img string) (iops float64) {
			interop.Mounted(t, img, options, func(dir string) {
				iops = interop.FioIOPS(t, interop.Sh(t, "fio", "--output-format=json", "--directory="+dir, our))
			})
			return iops
		}, "mkfs.btrfs", "-q")
	}
	ourRate := func(policy string) float64 {
		return rate(func(img string) float64 {
			return interop.FioIOPS(t, interop.Sh(t, bin, "bench", our, "--image", img, "--policy", policy, "--json"))
		}, bin, "mkfs", "-q", "--force")
	}
	var ourLog, ourCommit, log, commit []float64
	for range interop.Rounds {
		ourLog = append(ourLog, ourRate("fsync-5.18"))
		log = append(log, linuxRate(""))
		ourCommit = append(ourCommit, ourRate("fsync-commit"))
		commit = append(commit, linuxRate("notreelog"))
	}
	interop.Spread(t, "4k and fsync, 8 writers, image in memory, fsync-5.18", ourLog, "fsync-commit", ourCommit, "iops")
	interop.Spread(t, "the same by Linux (the first figure)", log, "notreelog", commit, "iops")
	interop.Spread(t, "the same, fsync-5.18", ourLog, "Linux", log, "iops")
	interop.Spread(t, "the same, fsync-commit", ourCommit, "Linux notreelog", commit, "iops")
}

// TestNumbersFsyncLinux: seed 003's job with files of 16 MiB, ours and Linux's, each on an image in
// memory that is new in every round. The goal is 1.
func TestNumbersFsyncLinux(t *testing.T) {
	interop.Numbers(t, "fio")
	bin := interop.Binary(t)
	posted, err := os.ReadFile("../../measure/seeds/seed-003.fio")
	interop.Must(t, err)
	job := func(name, dir string) string {
		path := filepath.Join(t.TempDir(), name)
		text := strings.NewReplacer("directory=/mnt/sdi", "directory="+dir, "filesize=128M", "filesize=16M", "runtime=200", "runtime=3").Replace(string(posted))
		interop.Must(t, os.WriteFile(path, []byte(text), 0o644))
		return path
	}
	our := job("ours.fio", "/")
	var a, b []float64
	for range interop.Rounds {
		img := interop.Image(t, "img")
		interop.Sh(t, bin, "mkfs", "-q", "--size", "16G", img)
		a = append(a, interop.FioIOPS(t, interop.Sh(t, bin, "bench", our, "--image", img, "--policy", "fsync-5.18", "--json")))
		interop.Judged(t, img)
		interop.Must(t, os.Remove(img))
		interop.Sh(t, "truncate", "-s", "16G", img)
		interop.Sh(t, "mkfs.btrfs", "-q", img)
		interop.Mounted(t, img, "", func(dir string) {
			b = append(b, interop.FioIOPS(t, interop.Sh(t, "fio", "--output-format=json", job("linux.fio", dir))))
		})
		interop.Must(t, os.Remove(img))
	}
	interop.Spread(t, "seed 003's job, 8 writers, fsync-5.18, goal 1", a, "Linux", b, "iops")
}

// TestNumbersReplay: an open that replays a log of 10,000 inodes, ours against Linux's mount of the
// same image. Half of the files were there before and have grown, half are new. The goal is 2.
func TestNumbersReplay(t *testing.T) {
	interop.Numbers(t)
	const files = 10_000
	img := interop.Image(t, "crashed.img")
	interop.Sh(t, "truncate", "-s", "64G", img)
	interop.Sh(t, "mkfs.btrfs", "-q", img) // large: one block group holds every version of the log
	crashed := logged(t, img, files)
	all := func(dir string) {
		t.Helper()
		n, size := 0, int64(0)
		interop.Must(t, filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
			if err == nil && d.Type().IsRegular() {
				var st os.FileInfo
				if st, err = d.Info(); err == nil {
					n, size = n+1, size+st.Size()
				}
			}
			return err
		}))
		if n != files || size != files/2*(8192+4096) {
			t.Errorf("%s: %d files of %d bytes, want %d of %d", dir, n, size, files, files/2*(8192+4096))
		}
	}
	var a, b []float64
	for range interop.Rounds {
		interop.Sh(t, "cp", "--sparse=always", crashed, img)
		a = append(a, 1000*replayTime(t, img))
		interop.Mounted(t, img, "", all)
		interop.Judged(t, img)
		interop.Sh(t, "cp", "--sparse=always", crashed, img)
		b = append(b, 1000*mountTime(t, img, all))
	}
	interop.Spread(t, "replay of 10,000 logged inodes (less is better), goal 2", a, "Linux", b, "ms")
}

// logged makes n files in img, each synced by an fsync that the log takes, and returns a copy of
// the image from before the commit.
func logged(t *testing.T, img string, n int) string {
	t.Helper()
	tk := sched.NewTask("log")
	dev, err := blockdev.Open(img, 0)
	interop.Must(t, err)
	x, err := engine.Open(tk, []blockdev.Device{dev}, engine.Options{Policy: policy.MustParse("fsync-5.18")})
	interop.Must(t, err)
	put := func(i int, off int64) *engine.File {
		name := fmt.Sprintf("/dir%02d/f%d", i/100, i)
		if i%100 == 0 && off == 0 {
			interop.Must(t, x.Mkdir(tk, filepath.Dir(name), 0o755))
		}
		f, err := x.OpenFile(tk, name, engine.O_RDWR|engine.O_CREAT, 0o644)
		interop.Must(t, err)
		_, err = f.WriteAt(tk, bytes.Repeat([]byte{byte(i)}, 4096), off)
		interop.Must(t, err)
		return f
	}
	// The new ones are in directories of their own, which are logged with them.
	for i := range n / 2 {
		interop.Must(t, put(i, 0).Close(tk))
	}
	interop.Must(t, x.Sync(tk))
	super := x.Super(tk)
	start := super.Generation
	for i := range n {
		off := int64(4096)
		if i >= n/2 {
			off = 0
		}
		f := put(i, off)
		interop.Must(t, f.Fsync(tk))
		interop.Must(t, f.Close(tk))
	}
	if super = x.Super(tk); super.Generation != start {
		t.Fatalf("%d commits while %d files were logged, want none", super.Generation-start, n)
	}
	crashed := img + ".crashed"
	interop.Sh(t, "cp", "--sparse=always", img, crashed)
	interop.Must(t, x.Close(tk))
	interop.Must(t, dev.Close())
	if !hasLog(t, crashed) {
		t.Fatal("the image has no log")
	}
	return crashed
}

// replayTime is the seconds that our open of img takes.
func replayTime(t *testing.T, img string) float64 {
	t.Helper()
	tk := sched.NewTask("replay")
	dev, err := blockdev.Open(img, 0)
	interop.Must(t, err)
	start := time.Now()
	x, err := engine.Open(tk, []blockdev.Device{dev}, engine.Options{})
	interop.Must(t, err)
	took := time.Since(start).Seconds()
	interop.Must(t, x.Close(tk))
	interop.Must(t, dev.Close())
	return took
}

// mountTime is the seconds that Linux's mount of img takes; look is at what is mounted then.
func mountTime(t *testing.T, img string, look func(dir string)) float64 {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "mnt")
	interop.Must(t, os.Mkdir(dir, 0o755))
	interop.LoopFiles[img] = true
	loop := strings.TrimSpace(interop.Sh(t, "losetup", "--find", "--show", img))
	defer interop.Sh(t, "losetup", "-d", loop)
	start := time.Now()
	interop.Must(t, unix.Mount(loop, dir, "btrfs", 0, ""))
	took := time.Since(start).Seconds()
	look(dir)
	interop.Sh(t, "sync", "-f", dir)
	interop.Must(t, unix.Unmount(dir, 0))
	return took
}
