package progs

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
	"btrlab/internal/interop"
	"btrlab/internal/policy"
	"btrlab/internal/testing/need"
)

// TestFresh: an empty image of ours, of each profile and several sizes, is a file system to Linux.
func TestFresh(t *testing.T) {
	need.Long(t)
	interop.Linux(t)
	for _, args := range [][]string{{"--size", "256M"}, {"--size", "1G", "--label", "one gigabyte"}, {"--size", "1G", "-m", "single"}, {"--size", "20G"},
		{"--size", "1G", "--features", "block-group-tree"}} {
		t.Run(strings.Join(args, " "), func(t *testing.T) {
			img := interop.Image(t, "fresh.img")
			interop.Btrlab(t, append([]string{"mkfs", "-q", img}, args...)...)
			interop.Judged(t, img)
			want := t.TempDir()
			for turn := range 2 {
				interop.LinuxTurn(t, img, want, turn)
				interop.BtrlabTurn(t, img, want, turn)
			}
			interop.LinuxTurn(t, img, want, 9)
		})
	}
}

// TestPutTree: thousands of files and every kind of file, put by us, are the same to Linux; and the
// image takes turns of both from there.
func TestPutTree(t *testing.T) {
	need.Long(t)
	interop.Linux(t)
	img := interop.Image(t, "put.img")
	want := filepath.Join(t.TempDir(), "want")
	interop.Tree(t, filepath.Join(want, "tree"), 1, interop.Pick(3000, 400))
	interop.Btrlab(t, "mkfs", "-q", "--size", "2G", img)
	interop.Btrlab(t, "put", "-r", filepath.Join(want, "tree"), img+":/")
	interop.Judged(t, img)
	for turn := range 2 {
		interop.LinuxTurn(t, img, want, turn)
		interop.BtrlabTurn(t, img, want, turn)
	}
	interop.Mounted(t, img, "", func(dir string) { interop.SameTree(t, dir, want) })

	// Half of it goes, and the space with it.
	interop.Btrlab(t, "rm", "-r", img+":/tree/many", img+":/tree/sizes")
	interop.Must(t, os.RemoveAll(filepath.Join(want, "tree", "many")))
	interop.Must(t, os.RemoveAll(filepath.Join(want, "tree", "sizes")))
	interop.Judged(t, img)
	interop.Mounted(t, img, "", func(dir string) {
		interop.SameTree(t, dir, want)
		interop.Scrubbed(t, dir)
	})
}

// TestRootdir: a tree that is made with the file system is the same to Linux, which goes on from
// there, also in a file system that is no larger than its tree.
func TestRootdir(t *testing.T) {
	need.Long(t)
	interop.Linux(t)
	want := filepath.Join(t.TempDir(), "want")
	interop.Tree(t, filepath.Join(want, "tree"), 2, interop.Pick(800, 400))
	for _, args := range [][]string{nil, {"-O", "bgt", "-m", "single"}, {"--compress", "zstd"}, {"--compress", "lzo", "--shrink"}, {"--compress", "zlib:9", "-u", "tree/many"}, {"--shrink"}} {
		t.Run(strings.Join(args, " "), func(t *testing.T) {
			img := interop.Image(t, "rootdir.img")
			interop.Btrlab(t, append([]string{"mkfs", "-q", "--rootdir", want, img}, args...)...)
			interop.Judged(t, img)
			same := filepath.Join(t.TempDir(), "same")
			interop.Sh(t, "cp", "-a", want, same)
			if slices.Contains(args, "--shrink") {
				interop.Mounted(t, img, "", func(dir string) {
					interop.SameTree(t, dir, same)
					interop.Scrubbed(t, dir)
					interop.Must(t, os.RemoveAll(filepath.Join(dir, "tree", "many")))
					interop.Must(t, os.WriteFile(filepath.Join(dir, "new"), []byte("new"), 0o644))
				})
				interop.Judged(t, img)
				return
			}
			for turn := range 2 {
				interop.LinuxTurn(t, img, same, turn)
				interop.BtrlabTurn(t, img, same, turn)
			}
			interop.Mounted(t, img, "", func(dir string) { interop.SameTree(t, dir, same) })
		})
	}
}

// TestComparePolicies: 5 s of the experiment under each policy, and what is left is an image that
// Linux takes.
func TestComparePolicies(t *testing.T) {
	need.Long(t)
	interop.Linux(t)
	for _, p := range interop.Pick(policy.Names(), []string{"locked", "unlocked", "range-lock"}) {
		t.Run(p, func(t *testing.T) {
			img := interop.Image(t, "compare.img")
			interop.Btrlab(t, "mkfs", "-q", "--size", "1G", img)
			want := filepath.Join(t.TempDir(), "want")
			interop.Tree(t, filepath.Join(want, "tree"), 2, 100)
			interop.Btrlab(t, "put", "-r", filepath.Join(want, "tree"), img+":/")
			interop.Btrlab(t, "compare", "--device", img, "--policy", p, "--rounds", "2", "--runtime", interop.Pick("2.5", "0.1"), "--size", "64M")
			interop.Judged(t, img)
			interop.Btrlab(t, "get", img+":/btrlab-test", want)
			interop.LinuxTurn(t, img, want, 0)
			interop.BtrlabTurn(t, img, want, 1)
			interop.LinuxTurn(t, img, want, 2)
		})
	}
}

// TestCowJobs: COW files under concurrent writers with fsync, under each policy.
func TestCowJobs(t *testing.T) {
	need.Long(t)
	interop.Linux(t)
	job := filepath.Join(t.TempDir(), "cow.fio")
	interop.Must(t, os.WriteFile(job, fmt.Appendf(nil, `[global]
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
`, interop.Pick("1", "100ms")), 0o644))
	for _, p := range interop.Pick(policy.Names(), []string{"locked", "unlocked", "range-lock"}) {
		t.Run(p, func(t *testing.T) {
			img := interop.Image(t, "cow.img")
			interop.Btrlab(t, "mkfs", "-q", "--size", "1G", img)
			interop.Btrlab(t, "bench", job, "--image", img, "--policy", p)
			interop.Judged(t, img)
			out := filepath.Join(t.TempDir(), "out")
			interop.Btrlab(t, "get", "-r", img+":/", out)
			interop.Mounted(t, img, "", func(dir string) {
				interop.SameTree(t, dir, out)
				interop.Scrubbed(t, dir)
			})
			interop.Judged(t, img)
		})
	}
}

// TestLinuxTree: an image that mkfs.btrfs made and Linux filled is listed, read byte for byte and
// written by us, and stays clean.
func TestLinuxTree(t *testing.T) {
	need.Long(t)
	interop.Linux(t)
	many := interop.Pick(2000, 200)
	for _, args := range [][]string{nil, {"-m", "single"}, {"-n", "4096"}, {"-R", "free-space-tree", "-O", "no-holes"}} {
		t.Run(strings.Join(append([]string{"mkfs.btrfs"}, args...), " "), func(t *testing.T) {
			img := interop.Image(t, "linux.img")
			interop.Sh(t, "truncate", "-s", "1G", img)
			interop.Sh(t, "mkfs.btrfs", append(append([]string{"-q"}, args...), img)...)
			want := filepath.Join(t.TempDir(), "want")
			interop.Mounted(t, img, "", func(dir string) {
				interop.Tree(t, dir, 3, many)
				interop.Must(t, os.Chmod(dir, 0o755))
				// Deletes, overwrites, a hole, preallocation and a NOCOW file: what a used file
				// system has.
				for i := 0; i < many; i += 3 {
					interop.Must(t, os.Remove(filepath.Join(dir, "many", fmt.Sprintf("file-%05d", i))))
				}
				interop.Sh(t, "sync", "-f", dir)
				h, err := os.OpenFile(filepath.Join(dir, "sizes", "5242880"), os.O_RDWR, 0)
				interop.Must(t, err)
				for off := int64(0); off < 5<<20; off += 300_000 {
					_, err := h.WriteAt(interop.NewFiller(uint64(off)).Bytes(5000), off)
					interop.Must(t, err)
				}
				interop.Must(t, h.Close())
				interop.Sh(t, "fallocate", "-l", "8M", filepath.Join(dir, "prealloc"))
				interop.Sh(t, "fallocate", "-p", "-o", "1M", "-l", "2M", filepath.Join(dir, "sizes", "5242880"))
				interop.Sh(t, "sh", "-c", fmt.Sprintf("touch %s/nocow && chattr +C %s/nocow && head -c 3000000 /dev/urandom > %s/nocow", dir, dir, dir))
				interop.Sh(t, "sync", "-f", dir)
				interop.Must(t, os.MkdirAll(want, 0o755))
				interop.Sh(t, "cp", "-a", dir+"/.", want)
			})
			interop.Judged(t, img)
			names := interop.Btrlab(t, "ls", "-R", img)
			if n := len(interop.List(t, want)); strings.Count(names, "\n") < n {
				t.Errorf("ls -R shows %d lines, want at least %d", strings.Count(names, "\n"), n)
			}
			for turn := range 2 {
				interop.BtrlabTurn(t, img, want, turn)
				interop.LinuxTurn(t, img, want, turn)
			}

			// In-place writes into what Linux preallocated and into its NOCOW file.
			patch := interop.NewFiller(77).Bytes(20000)
			for _, name := range []string{"prealloc", "nocow"} {
				interop.BtrlabIn(t, string(patch), "write", "--offset", "50000", img+":/"+name)
				h, err := os.OpenFile(filepath.Join(want, name), os.O_RDWR, 0)
				interop.Must(t, err)
				_, err = h.WriteAt(patch, 50000)
				interop.Must(t, err)
				interop.Must(t, h.Close())
			}
			interop.Judged(t, img)
			interop.Mounted(t, img, "", func(dir string) {
				interop.KeepTimes(t, dir, want, "prealloc")
				interop.KeepTimes(t, dir, want, "nocow")
				interop.SameTree(t, dir, want)
				interop.Scrubbed(t, dir)
			})
		})
	}
}

// TestNocowComesOut: a NOCOW file with data is one on a btrfs of the host as well.
func TestNocowComesOut(t *testing.T) {
	interop.Linux(t)
	img, host := interop.Image(t, "nocow.img"), interop.Image(t, "host.img")
	for _, i := range []string{img, host} {
		interop.Btrlab(t, "mkfs", "-q", "--size", "256M", i)
	}
	interop.BtrlabIn(t, "data", "put", "--nocow", "-", img+":/f")
	interop.Mounted(t, host, "", func(dir string) {
		interop.Btrlab(t, "get", "-r", img+":/", filepath.Join(dir, "out"))
		if have := interop.Sh(t, "lsattr", filepath.Join(dir, "out", "f")); !strings.Contains(strings.Fields(have)[0], "C") {
			t.Errorf("lsattr: %s", have)
		}
	})
}

// TestResize: images that Linux has filled, with holes where it removed empty chunks, or with
// chunks that are mostly free, get larger and as small as cutting and moving makes them; Linux
// reads everything back and goes on.
func TestResize(t *testing.T) {
	need.Long(t)
	interop.Linux(t)
	for _, c := range []struct {
		options  string
		balanced bool
	}{{"", true}, {"", false}, {"-R ^free-space-tree", false}, {"-M", false}} {
		t.Run(fmt.Sprintf("%s %v", c.options, c.balanced), func(t *testing.T) { resized(t, c.options, c.balanced) })
	}
}

func resized(t *testing.T, options string, balanced bool) {
	img := interop.Image(t, "resize.img")
	want := t.TempDir()
	interop.Sh(t, "truncate", "-s", "3G", img)
	interop.Sh(t, "mkfs.btrfs", append(strings.Fields(options), "-q", img)...)
	interop.Mounted(t, img, "", func(dir string) {
		for i, name := range []string{"first", "second", "third"} {
			interop.Sh(t, "fallocate", "-l", "400M", filepath.Join(dir, name))
			for _, root := range []string{dir, want} {
				f := interop.NewFiller(uint64(i))
				interop.Write(t, filepath.Join(root, fmt.Sprintf("f%d", i)), f.Bytes(40<<20))
			}
			interop.Sh(t, "sync")
		}
		interop.Sh(t, "rm", filepath.Join(dir, "first"), filepath.Join(dir, "second"), filepath.Join(dir, "third"))
		interop.Sh(t, "sync")
		if balanced {
			interop.Sh(t, "btrfs", "balance", "start", "-dusage=1", dir)
		}
		interop.KeepTimes(t, dir, want, ".")
	})
	for turn, size := range []string{"+1G", "min", "max", "2G"} {
		interop.Btrlab(t, "resize", img, size)
		if st, err := os.Stat(img); err != nil || size == "min" && st.Size() > 420<<20 {
			t.Errorf("120 MiB of files, as small as can be: %v, %v", st.Size(), err)
		}
		interop.Judged(t, img)
		interop.Mounted(t, img, "", func(dir string) {
			interop.SameTree(t, dir, want)
			interop.Scrubbed(t, dir)
		})
		interop.Btrlab(t, "uuid", img, "random")
		interop.Btrlab(t, "label", img, fmt.Sprintf("turn %d", turn))
		interop.Judged(t, img)
	}
	interop.LinuxTurn(t, img, want, 1)
	interop.BtrlabTurn(t, img, want, 2)
	interop.LinuxTurn(t, img, want, 3)
}

// TestFull: an image that we filled until ENOSPC is clean, keeps what was put, and is writable
// again after a delete.
func TestFull(t *testing.T) {
	interop.Linux(t)
	img := interop.Image(t, "full.img")
	interop.Btrlab(t, "mkfs", "-q", "--size", "256M", img)
	src := filepath.Join(t.TempDir(), "blob")
	interop.Write(t, src, interop.NewFiller(8).Bytes(16<<20))
	full := false
	for i := range 40 {
		code, text := interop.Try("put", src, fmt.Sprintf("%s:/blob%d", img, i))
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
	interop.Judged(t, img)
	interop.Mounted(t, img, "", func(dir string) {
		blobs, err := filepath.Glob(filepath.Join(dir, "blob*"))
		interop.Must(t, err)
		if len(blobs) < 6 {
			t.Errorf("%d files of 16 MiB fit into 256 MiB, want more", len(blobs))
		}
		for _, b := range blobs {
			if at, err := interop.Differ(b, src); at >= 0 || err != nil {
				t.Errorf("%s differs at byte %d, error %v", b, at, err)
			}
		}
		interop.Scrubbed(t, dir)
	})
	interop.Btrlab(t, "rm", img+":/blob0", img+":/blob1")
	interop.Btrlab(t, "put", src, img+":/again")
	interop.Judged(t, img)
}

// TestBlockDevice: the same on a block device, which is not touched while it is mounted or holds
// something.
func TestBlockDevice(t *testing.T) {
	interop.Linux(t)
	img := interop.Image(t, "disk.img")
	interop.Sh(t, "truncate", "-s", "512M", img)
	interop.LoopFiles[img] = true
	dev := strings.TrimSpace(interop.Sh(t, "losetup", "-f", "--show", img))
	defer interop.Sh(t, "losetup", "-d", dev)
	src := filepath.Join(t.TempDir(), "src")
	interop.Write(t, src, interop.NewFiller(4).Bytes(3_000_000))

	interop.Btrlab(t, "mkfs", "-q", dev)
	if code, text := interop.Try("mkfs", "-q", dev); code != 1 || !strings.Contains(text, dev) {
		t.Errorf("mkfs over a file system: exit code %d, %q; want 1 and the device's name", code, text)
	}
	interop.Btrlab(t, "put", src, dev+":/src")
	interop.Judged(t, dev)
	dir := filepath.Join(t.TempDir(), "mnt")
	interop.Must(t, os.Mkdir(dir, 0o755))
	interop.Sh(t, "mount", dev, dir)
	for _, args := range [][]string{{"mkfs", "--force", dev}, {"put", src, dev + ":/again"}, {"put", src, img + ":/again"}, {"rm", dev + ":/src"}} {
		if code, text := interop.Try(args...); code != 1 || !strings.Contains(text, "in use") && !strings.Contains(text, "mounted") {
			t.Errorf("%v on a mounted device: exit code %d, %q; want 1 and why", args, code, text)
		}
	}
	if at, err := interop.Differ(filepath.Join(dir, "src"), src); at >= 0 || err != nil {
		t.Errorf("the file differs at byte %d, error %v", at, err)
	}
	interop.Sh(t, "umount", dir)
	interop.Btrlab(t, "mkfs", "-q", "--force", "--label", "anew", dev)
	interop.Judged(t, dev)
	if out := interop.Btrlab(t, "info", dev); !strings.Contains(out, "anew") {
		t.Errorf("info shows\n%s", out)
	}
}

// TestFullMetadata: small files are put until no metadata is left. Then rm makes room, though even
// a delete needs some, and files go in again; Linux finds no fault in the image and the files that
// must be there.
func TestFullMetadata(t *testing.T) {
	interop.Linux(t)
	img := interop.Image(t, "full.img")
	interop.Btrlab(t, "mkfs", "-q", "--size", "64M", "-m", "single", img)
	src, f := t.TempDir(), interop.NewFiller(6)
	// takes the room that metadata could grow into
	interop.Write(t, filepath.Join(src, "large"), f.Bytes(40<<20))
	interop.Btrlab(t, "put", filepath.Join(src, "large"), img+":/")
	const dirs, files = 40, 200
	for i := range dirs * files {
		interop.Write(t, filepath.Join(src, fmt.Sprintf("d%02d/f%04d", i/files, i%files)), f.Bytes(2000))
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
	interop.Judged(t, img)
	for i := range full - 1 {
		interop.Btrlab(t, "rm", "-r", fmt.Sprintf("%s:/d%02d", img, i))
	}
	interop.Judged(t, img)
	interop.Btrlab(t, "put", "-r", filepath.Join(src, "d00"), img+":/")
	interop.Judged(t, img)
	interop.Mounted(t, img, "", func(dir string) {
		for _, d := range []string{"d00", fmt.Sprintf("d%02d", full-1)} {
			interop.SameTree(t, filepath.Join(dir, d), filepath.Join(src, d))
		}
		interop.Scrubbed(t, dir)
	})
	interop.Judged(t, img)
}
