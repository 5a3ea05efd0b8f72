package interop

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"btrlab/internal/cli"
	"btrlab/internal/policy"
	"btrlab/internal/testing/need"
)

// image is the path of an image to be made, in memory where /dev/shm has room.
func image(t *testing.T, name string) string {
	t.Helper()
	dir := t.TempDir()
	if d, err := os.MkdirTemp("/dev/shm", "btrlab-interop-"); err == nil {
		t.Cleanup(func() { os.RemoveAll(d) })
		dir = d
	}
	return filepath.Join(dir, name)
}

// linuxTurn is a mount in which Linux compares, scrubs and writes; it adds what it wrote to want.
func linuxTurn(t *testing.T, img, want string, turn int) {
	t.Helper()
	mounted(t, img, "", func(dir string) {
		sameTree(t, dir, want)
		scrubbed(t, dir)
		for _, root := range []string{dir, want} {
			f := newFiller(uint64(turn) + 1000)
			for i, n := range []int{0, 700, 4096, 100000, 3 << 20} {
				write(t, filepath.Join(root, fmt.Sprintf("linux-%d", turn), fmt.Sprintf("f%d", i)), f.bytes(n))
			}
		}
		keepTimes(t, dir, want, fmt.Sprintf("linux-%d", turn))
	})
	judged(t, img)
}

// keepTimes gives the files below sub of want the times that they have in dir.
func keepTimes(t *testing.T, dir, want, sub string) {
	t.Helper()
	must(t, filepath.Walk(filepath.Join(dir, sub), func(path string, info os.FileInfo, err error) error {
		if err != nil || !info.Mode().IsRegular() {
			return err
		}
		rel, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		return os.Chtimes(filepath.Join(want, rel), info.ModTime(), info.ModTime())
	}))
}

// btrlabTurn reads everything back and writes: new files, an overwrite, a truncate, a hole, a
// rename and deletes.
func btrlabTurn(t *testing.T, img, want string, turn int) {
	t.Helper()
	out := filepath.Join(t.TempDir(), "out")
	btrlab(t, "get", "-r", img+":/", out)
	sameTree(t, out, want)
	must(t, os.RemoveAll(out))

	src := filepath.Join(t.TempDir(), fmt.Sprintf("btrlab-%d", turn))
	f := newFiller(uint64(turn) + 5000)
	for i, n := range []int{0, 5, 2048, 2049, 4096, 70000, 2<<20 + 1} {
		write(t, filepath.Join(src, fmt.Sprintf("f%d", i)), f.bytes(n))
	}
	btrlab(t, "put", "-r", src, img+":/")
	judged(t, img)
	at := fmt.Sprintf(":/btrlab-%d", turn)
	patch := f.bytes(9000)
	edit := func(name string, g func(h *os.File)) {
		h, err := os.OpenFile(filepath.Join(src, name), os.O_RDWR, 0)
		must(t, err)
		g(h)
		must(t, h.Close())
	}
	btrlabIn(t, string(patch), "write", "--offset", "12345", img+at+"/f5")
	edit("f5", func(h *os.File) { _, err := h.WriteAt(patch, 12345); must(t, err) })
	btrlab(t, "truncate", "--size", "5000", img+at+"/f6")
	edit("f6", func(h *os.File) { must(t, h.Truncate(5000)) })
	btrlab(t, "truncate", "--size", "100000", img+at+"/f6")
	edit("f6", func(h *os.File) { must(t, h.Truncate(100000)) })
	btrlab(t, "fallocate", "--length", "1M", img+at+"/f0")
	edit("f0", func(h *os.File) { must(t, h.Truncate(1<<20)) })
	btrlab(t, "fallocate", "--punch-hole", "--offset", "10000", "--length", "30000", img+at+"/f5")
	edit("f5", func(h *os.File) { _, err := h.WriteAt(make([]byte, 30000), 10000); must(t, err) })
	btrlab(t, "mv", img+at+"/f1", fmt.Sprintf("/btrlab-%d/renamed", turn))
	must(t, os.Rename(filepath.Join(src, "f1"), filepath.Join(src, "renamed")))
	btrlab(t, "rm", img+at+"/f2")
	must(t, os.Remove(filepath.Join(src, "f2")))
	sh(t, "cp", "-a", src, want)

	// What was edited has the time of the edit; take it from the image.
	btrlab(t, "get", "-r", img+at, out)
	must(t, filepath.Walk(out, func(path string, info os.FileInfo, err error) error {
		if err != nil || !info.Mode().IsRegular() {
			return err
		}
		rel, err := filepath.Rel(out, path)
		if err != nil {
			return err
		}
		return os.Chtimes(filepath.Join(want, filepath.Base(src), rel), info.ModTime(), info.ModTime())
	}))
	judged(t, img)
}

// TestFresh: an empty image of ours, of each profile and several sizes, is a file system to Linux.
func TestFresh(t *testing.T) {
	need.Long(t)
	linux(t)
	for _, args := range [][]string{{"--size", "256M"}, {"--size", "1G", "--label", "one gigabyte"}, {"--size", "1G", "-m", "single"}, {"--size", "20G"},
		{"--size", "1G", "--features", "block-group-tree"}} {
		t.Run(strings.Join(args, " "), func(t *testing.T) {
			img := image(t, "fresh.img")
			btrlab(t, append([]string{"mkfs", "-q", img}, args...)...)
			judged(t, img)
			want := t.TempDir()
			for turn := range 2 {
				linuxTurn(t, img, want, turn)
				btrlabTurn(t, img, want, turn)
			}
			linuxTurn(t, img, want, 9)
		})
	}
}

// TestPutTree: thousands of files and every kind of file, put by us, are the same to Linux; and the
// image takes turns of both from there.
func TestPutTree(t *testing.T) {
	need.Long(t)
	linux(t)
	img := image(t, "put.img")
	want := filepath.Join(t.TempDir(), "want")
	tree(t, filepath.Join(want, "tree"), 1, pick(3000, 400))
	btrlab(t, "mkfs", "-q", "--size", "2G", img)
	btrlab(t, "put", "-r", filepath.Join(want, "tree"), img+":/")
	judged(t, img)
	for turn := range 2 {
		linuxTurn(t, img, want, turn)
		btrlabTurn(t, img, want, turn)
	}
	mounted(t, img, "", func(dir string) { sameTree(t, dir, want) })

	// Half of it goes, and the space with it.
	btrlab(t, "rm", "-r", img+":/tree/many", img+":/tree/sizes")
	must(t, os.RemoveAll(filepath.Join(want, "tree", "many")))
	must(t, os.RemoveAll(filepath.Join(want, "tree", "sizes")))
	judged(t, img)
	mounted(t, img, "", func(dir string) {
		sameTree(t, dir, want)
		scrubbed(t, dir)
	})
}

// TestRootdir: a tree that is made with the file system is the same to Linux, which goes on from
// there, also in a file system that is no larger than its tree.
func TestRootdir(t *testing.T) {
	need.Long(t)
	linux(t)
	want := filepath.Join(t.TempDir(), "want")
	tree(t, filepath.Join(want, "tree"), 2, pick(800, 400))
	for _, args := range [][]string{nil, {"-O", "bgt", "-m", "single"}, {"--compress", "zstd"}, {"--compress", "lzo", "--shrink"}, {"--compress", "zlib:9", "-u", "tree/many"}, {"--shrink"}} {
		t.Run(strings.Join(args, " "), func(t *testing.T) {
			img := image(t, "rootdir.img")
			btrlab(t, append([]string{"mkfs", "-q", "--rootdir", want, img}, args...)...)
			judged(t, img)
			same := filepath.Join(t.TempDir(), "same")
			sh(t, "cp", "-a", want, same)
			if slices.Contains(args, "--shrink") {
				mounted(t, img, "", func(dir string) {
					sameTree(t, dir, same)
					scrubbed(t, dir)
					must(t, os.RemoveAll(filepath.Join(dir, "tree", "many")))
					must(t, os.WriteFile(filepath.Join(dir, "new"), []byte("new"), 0o644))
				})
				judged(t, img)
				return
			}
			for turn := range 2 {
				linuxTurn(t, img, same, turn)
				btrlabTurn(t, img, same, turn)
			}
			mounted(t, img, "", func(dir string) { sameTree(t, dir, same) })
		})
	}
}

// TestComparePolicies: 5 s of the experiment under each policy, and what is left is an image that
// Linux takes.
func TestComparePolicies(t *testing.T) {
	need.Long(t)
	linux(t)
	for _, p := range pick(policy.Names(), []string{"locked", "unlocked", "range-lock"}) {
		t.Run(p, func(t *testing.T) {
			img := image(t, "compare.img")
			btrlab(t, "mkfs", "-q", "--size", "1G", img)
			want := filepath.Join(t.TempDir(), "want")
			tree(t, filepath.Join(want, "tree"), 2, 100)
			btrlab(t, "put", "-r", filepath.Join(want, "tree"), img+":/")
			btrlab(t, "compare", "--device", img, "--policy", p, "--rounds", "2", "--runtime", pick("2.5", "0.1"), "--size", "64M")
			judged(t, img)
			btrlab(t, "get", img+":/btrlab-test", want)
			linuxTurn(t, img, want, 0)
			btrlabTurn(t, img, want, 1)
			linuxTurn(t, img, want, 2)
		})
	}
}

// TestCowJobs: COW files under concurrent writers with fsync, under each policy.
func TestCowJobs(t *testing.T) {
	need.Long(t)
	linux(t)
	job := filepath.Join(t.TempDir(), "cow.fio")
	must(t, os.WriteFile(job, fmt.Appendf(nil, `[global]
ioengine=psync
time_based
runtime=%s
group_reporting
[random]
filename=random
rw=randwrite
bssplit=4k/50:8k/20:64k/20:1k/10
norandommap
size=16M
numjobs=4
fsync=64
[grow]
directory=/dir
rw=write
bs=3k
size=8M
numjobs=3
`, pick("1", "100ms")), 0o644))
	for _, p := range pick(policy.Names(), []string{"locked", "unlocked", "range-lock"}) {
		t.Run(p, func(t *testing.T) {
			img := image(t, "cow.img")
			btrlab(t, "mkfs", "-q", "--size", "1G", img)
			btrlab(t, "bench", job, "--image", img, "--policy", p)
			judged(t, img)
			out := filepath.Join(t.TempDir(), "out")
			btrlab(t, "get", "-r", img+":/", out)
			mounted(t, img, "", func(dir string) {
				sameTree(t, dir, out)
				scrubbed(t, dir)
			})
			judged(t, img)
		})
	}
}

// TestLinuxTree: an image that mkfs.btrfs made and Linux filled is listed, read byte for byte and
// written by us, and stays clean.
func TestLinuxTree(t *testing.T) {
	need.Long(t)
	linux(t)
	many := pick(2000, 200)
	for _, args := range [][]string{nil, {"-m", "single"}, {"-n", "4096"}, {"-R", "free-space-tree", "-O", "no-holes"}} {
		t.Run(strings.Join(append([]string{"mkfs.btrfs"}, args...), " "), func(t *testing.T) {
			img := image(t, "linux.img")
			sh(t, "truncate", "-s", "1G", img)
			sh(t, "mkfs.btrfs", append(append([]string{"-q"}, args...), img)...)
			want := filepath.Join(t.TempDir(), "want")
			mounted(t, img, "", func(dir string) {
				tree(t, dir, 3, many)
				must(t, os.Chmod(dir, 0o755))
				// Deletes, overwrites, a hole, preallocation and a NOCOW file: what a used file
				// system has.
				for i := 0; i < many; i += 3 {
					must(t, os.Remove(filepath.Join(dir, "many", fmt.Sprintf("file-%05d", i))))
				}
				sh(t, "sync", "-f", dir)
				h, err := os.OpenFile(filepath.Join(dir, "sizes", "5242880"), os.O_RDWR, 0)
				must(t, err)
				for off := int64(0); off < 5<<20; off += 300_000 {
					_, err := h.WriteAt(newFiller(uint64(off)).bytes(5000), off)
					must(t, err)
				}
				must(t, h.Close())
				sh(t, "fallocate", "-l", "8M", filepath.Join(dir, "prealloc"))
				sh(t, "fallocate", "-p", "-o", "1M", "-l", "2M", filepath.Join(dir, "sizes", "5242880"))
				sh(t, "sh", "-c", fmt.Sprintf("touch %s/nocow && chattr +C %s/nocow && head -c 3000000 /dev/urandom > %s/nocow", dir, dir, dir))
				sh(t, "sync", "-f", dir)
				must(t, os.MkdirAll(want, 0o755))
				sh(t, "cp", "-a", dir+"/.", want)
			})
			judged(t, img)
			names := btrlab(t, "ls", "-R", img)
			if n := len(list(t, want)); strings.Count(names, "\n") < n {
				t.Errorf("ls -R shows %d lines, want at least %d", strings.Count(names, "\n"), n)
			}
			for turn := range 2 {
				btrlabTurn(t, img, want, turn)
				linuxTurn(t, img, want, turn)
			}

			// In-place writes into what Linux preallocated and into its NOCOW file.
			patch := newFiller(77).bytes(20000)
			for _, name := range []string{"prealloc", "nocow"} {
				btrlabIn(t, string(patch), "write", "--offset", "50000", img+":/"+name)
				h, err := os.OpenFile(filepath.Join(want, name), os.O_RDWR, 0)
				must(t, err)
				_, err = h.WriteAt(patch, 50000)
				must(t, err)
				must(t, h.Close())
			}
			judged(t, img)
			mounted(t, img, "", func(dir string) {
				keepTimes(t, dir, want, "prealloc")
				keepTimes(t, dir, want, "nocow")
				sameTree(t, dir, want)
				scrubbed(t, dir)
			})
		})
	}
}

// TestNocowComesOut: a NOCOW file with data is one on a btrfs of the host as well.
func TestNocowComesOut(t *testing.T) {
	linux(t)
	img, host := image(t, "nocow.img"), image(t, "host.img")
	for _, i := range []string{img, host} {
		btrlab(t, "mkfs", "-q", "--size", "256M", i)
	}
	btrlabIn(t, "data", "put", "--nocow", "-", img+":/f")
	mounted(t, host, "", func(dir string) {
		btrlab(t, "get", "-r", img+":/", filepath.Join(dir, "out"))
		if have := sh(t, "lsattr", filepath.Join(dir, "out", "f")); !strings.Contains(strings.Fields(have)[0], "C") {
			t.Errorf("lsattr: %s", have)
		}
	})
}

// TestResize: images that Linux has filled, with holes where it removed empty chunks, or with
// chunks that are mostly free, get larger and as small as cutting and moving makes them; Linux
// reads everything back and goes on.
func TestResize(t *testing.T) {
	need.Long(t)
	linux(t)
	for _, c := range []struct {
		options  string
		balanced bool
	}{{"", true}, {"", false}, {"-R ^free-space-tree", false}, {"-M", false}} {
		t.Run(fmt.Sprintf("%s %v", c.options, c.balanced), func(t *testing.T) { resized(t, c.options, c.balanced) })
	}
}

func resized(t *testing.T, options string, balanced bool) {
	img := image(t, "resize.img")
	want := t.TempDir()
	sh(t, "truncate", "-s", "3G", img)
	sh(t, "mkfs.btrfs", append(strings.Fields(options), "-q", img)...)
	mounted(t, img, "", func(dir string) {
		for i, name := range []string{"first", "second", "third"} {
			sh(t, "fallocate", "-l", "400M", filepath.Join(dir, name))
			for _, root := range []string{dir, want} {
				f := newFiller(uint64(i))
				write(t, filepath.Join(root, fmt.Sprintf("f%d", i)), f.bytes(40<<20))
			}
			sh(t, "sync")
		}
		sh(t, "rm", filepath.Join(dir, "first"), filepath.Join(dir, "second"), filepath.Join(dir, "third"))
		sh(t, "sync")
		if balanced {
			sh(t, "btrfs", "balance", "start", "-dusage=1", dir)
		}
		keepTimes(t, dir, want, ".")
	})
	for turn, size := range []string{"+1G", "min", "max", "2G"} {
		btrlab(t, "resize", img, size)
		if st, err := os.Stat(img); err != nil || size == "min" && st.Size() > 420<<20 {
			t.Errorf("120 MiB of files, as small as can be: %v, %v", st.Size(), err)
		}
		judged(t, img)
		mounted(t, img, "", func(dir string) {
			sameTree(t, dir, want)
			scrubbed(t, dir)
		})
		btrlab(t, "uuid", img, "random")
		btrlab(t, "label", img, fmt.Sprintf("turn %d", turn))
		judged(t, img)
	}
	linuxTurn(t, img, want, 1)
	btrlabTurn(t, img, want, 2)
	linuxTurn(t, img, want, 3)
}

// TestFull: an image that we filled until ENOSPC is clean, keeps what was put, and is writable
// again after a delete.
func TestFull(t *testing.T) {
	linux(t)
	img := image(t, "full.img")
	btrlab(t, "mkfs", "-q", "--size", "256M", img)
	src := filepath.Join(t.TempDir(), "blob")
	write(t, src, newFiller(8).bytes(16<<20))
	full := false
	for i := range 40 {
		code, text := try("put", src, fmt.Sprintf("%s:/blob%d", img, i))
		if code == 1 && strings.Contains(text, "no space left") {
			full = true
			break
		}
		if code != 0 {
			t.Fatalf("put %d: exit code %d, %s", i, code, text)
		}
	}
	if !full {
		t.Fatal("40 files of 16 MiB went into 256 MiB")
	}
	judged(t, img)
	mounted(t, img, "", func(dir string) {
		blobs, err := filepath.Glob(filepath.Join(dir, "blob*"))
		must(t, err)
		if len(blobs) < 6 {
			t.Errorf("%d files of 16 MiB fit into 256 MiB, want more", len(blobs))
		}
		for _, b := range blobs {
			if at, err := differ(b, src); at >= 0 || err != nil {
				t.Errorf("%s differs at byte %d, error %v", b, at, err)
			}
		}
		scrubbed(t, dir)
	})
	btrlab(t, "rm", img+":/blob0", img+":/blob1")
	btrlab(t, "put", src, img+":/again")
	judged(t, img)
}

// TestBlockDevice: the same on a block device, which is not touched while it is mounted or holds
// something.
func TestBlockDevice(t *testing.T) {
	linux(t)
	img := image(t, "disk.img")
	sh(t, "truncate", "-s", "512M", img)
	loopFiles[img] = true
	dev := strings.TrimSpace(sh(t, "losetup", "-f", "--show", img))
	defer sh(t, "losetup", "-d", dev)
	src := filepath.Join(t.TempDir(), "src")
	write(t, src, newFiller(4).bytes(3_000_000))

	btrlab(t, "mkfs", "-q", dev)
	if code, text := try("mkfs", "-q", dev); code != 1 || !strings.Contains(text, dev) {
		t.Errorf("mkfs over a file system: exit code %d, %q; want 1 and the device's name", code, text)
	}
	btrlab(t, "put", src, dev+":/src")
	judged(t, dev)
	dir := filepath.Join(t.TempDir(), "mnt")
	must(t, os.Mkdir(dir, 0o755))
	sh(t, "mount", dev, dir)
	for _, args := range [][]string{{"mkfs", "--force", dev}, {"put", src, dev + ":/again"}, {"put", src, img + ":/again"}, {"rm", dev + ":/src"}} {
		if code, text := try(args...); code != 1 || !strings.Contains(text, "in use") && !strings.Contains(text, "mounted") {
			t.Errorf("%v on a mounted device: exit code %d, %q; want 1 and why", args, code, text)
		}
	}
	if at, err := differ(filepath.Join(dir, "src"), src); at >= 0 || err != nil {
		t.Errorf("the file differs at byte %d, error %v", at, err)
	}
	sh(t, "umount", dir)
	btrlab(t, "mkfs", "-q", "--force", "--label", "anew", dev)
	judged(t, dev)
	if out := btrlab(t, "info", dev); !strings.Contains(out, "anew") {
		t.Errorf("info shows\n%s", out)
	}
}

// TestFullMetadata: small files are put until no metadata is left. Then rm makes room, though even
// a delete needs some, and files go in again; Linux finds no fault in the image and the files that
// must be there.
func TestFullMetadata(t *testing.T) {
	linux(t)
	img := image(t, "full.img")
	btrlab(t, "mkfs", "-q", "--size", "64M", "-m", "single", img)
	src, f := t.TempDir(), newFiller(6)
	// takes the room that metadata could grow into
	write(t, filepath.Join(src, "large"), f.bytes(40<<20))
	btrlab(t, "put", filepath.Join(src, "large"), img+":/")
	const dirs, files = 40, 200
	for i := range dirs * files {
		write(t, filepath.Join(src, fmt.Sprintf("d%02d/f%04d", i/files, i%files)), f.bytes(2000))
	}
	full := 0
	for ; full < dirs; full++ {
		var errw bytes.Buffer
		dir := filepath.Join(src, fmt.Sprintf("d%02d", full))
		if code := cli.Main([]string{"put", "-r", dir, img + ":/"}, strings.NewReader(""), io.Discard, &errw); code != 0 {
			if !strings.Contains(errw.String(), "no space left") {
				t.Fatalf("put: %s", errw.String())
			}
			break
		}
	}
	if full < 2 || full == dirs {
		t.Fatalf("%d of %d directories fit, want the image full", full, dirs)
	}
	judged(t, img)
	for i := range full - 1 {
		btrlab(t, "rm", "-r", fmt.Sprintf("%s:/d%02d", img, i))
	}
	judged(t, img)
	btrlab(t, "put", "-r", filepath.Join(src, "d00"), img+":/")
	judged(t, img)
	mounted(t, img, "", func(dir string) {
		for _, d := range []string{"d00", fmt.Sprintf("d%02d", full-1)} {
			sameTree(t, filepath.Join(dir, d), filepath.Join(src, d))
		}
		scrubbed(t, dir)
	})
	judged(t, img)
}
