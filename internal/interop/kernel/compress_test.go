package kernel

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"btrlab/internal/interop"
)

// compressedTree fills the mounted dir with files of all sizes that a kernel compresses in its own
// ways, and makes holes, parts and shared extents of them.
func compressedTree(t *testing.T, dir string, seed uint64) {
	t.Helper()
	r := rand.New(rand.NewPCG(seed, 32))
	sizes := []int{1, 100, 2047, 2048, 2049, 4095, 4096, 4097, 8192, 65536, 131071, 131072, 131073, 262144, 300001, 1 << 20}
	for i, n := range append(sizes, r.IntN(5000), r.IntN(200000), r.IntN(2000000)) {
		interop.Write(t, filepath.Join(dir, fmt.Sprintf("f%02d", i)), interop.Text(r, n))
	}
	interop.Sh(t, "sync", "-f", dir)
	for i := range 8 {
		from, to := filepath.Join(dir, fmt.Sprintf("f%02d", 11+i)), filepath.Join(dir, fmt.Sprintf("g%02d", i))
		interop.Sh(t, "cp", "--reflink=auto", from, to)
		f, err := os.OpenFile(to, os.O_RDWR, 0)
		interop.Must(t, err)
		st, err := f.Stat()
		interop.Must(t, err)
		size := int(st.Size())
		_, err = f.WriteAt(interop.Text(r, 1+r.IntN(30000)), int64(r.IntN(size)))
		interop.Must(t, err)
		interop.Sh(t, "fallocate", "-p", "-o", fmt.Sprint(r.IntN(size)), "-l", fmt.Sprint(1+r.IntN(50000)), to)
		if i%2 == 0 {
			interop.Must(t, f.Truncate(int64(r.IntN(size))))
		} else {
			interop.Must(t, f.Truncate(int64(size+r.IntN(100000))))
		}
		interop.Must(t, f.Close())
	}
	interop.Sh(t, "sync", "-f", dir)
}

// TestCompressedByLinux: files that Linux compressed are read back as the mount has them, also out
// of a snapshot. Both sides edit them, and Linux reads the same again.
func TestCompressedByLinux(t *testing.T) {
	interop.Linux(t, "fallocate", "cp")
	for i, option := range []string{"zlib", "zlib:9", "lzo", "zstd", "zstd:1", "zstd:15", "zstd:-7"} {
		t.Run(option, func(t *testing.T) {
			seed := uint64(i)
			img, want := interop.Image(t, "compressed.img"), t.TempDir()
			interop.Sh(t, "truncate", "-s", "300M", img)
			interop.Sh(t, "mkfs.btrfs", "-q", img)
			interop.Mounted(t, img, "compress-force="+option, func(dir string) {
				compressedTree(t, dir, seed)
				interop.Sh(t, "btrfs", "-q", "subvolume", "snapshot", dir, filepath.Join(dir, "snap"))
				interop.Sh(t, "cp", "-a", dir+"/.", want)
			})
			interop.Judged(t, img)
			out := filepath.Join(t.TempDir(), "out")
			interop.Btrlab(t, "get", "-r", "-s", img+":/", out)
			interop.NoTimes(t, out, want)
			interop.SameTree(t, out, want)
			editCompressed(t, img, want, seed)
			interop.Judged(t, img)
			interop.Mounted(t, img, "", func(dir string) {
				interop.NoTimes(t, dir, want)
				interop.SameTree(t, dir, want)
			})
		})
	}
}

// editCompressed changes the files of the image and of the folder want in the same ways.
func editCompressed(t *testing.T, img, want string, seed uint64) {
	t.Helper()
	m := &model{t: t, r: rand.New(rand.NewPCG(seed, 33)), f: interop.NewFiller(seed), img: img, dir: want, dirs: []string{""}}
	for name, e := range interop.List(t, want) {
		if e.Mode.IsRegular() && !strings.HasPrefix(name, "snap/") {
			m.file = append(m.file, name)
		}
	}
	for range 60 {
		m.step()
	}
	for i := range 6 {
		name := fmt.Sprintf("clone%d", i)
		from := m.file[m.r.IntN(len(m.file))]
		interop.Btrlab(t, "reflink", m.spec(from), "/"+name)
		b, err := os.ReadFile(m.host(from))
		interop.Must(t, err)
		interop.Write(t, m.host(name), b)
	}
}

// TestCompressedByBtrlab: what put compresses is read back by Linux, and by btrlab after Linux has
// written into it.
func TestCompressedByBtrlab(t *testing.T) {
	interop.Linux(t, "fallocate", "cp")
	for i, method := range []string{"zlib", "zlib:9", "lzo", "zstd", "zstd:1", "zstd:15"} {
		t.Run(method, func(t *testing.T) {
			img, want := interop.Image(t, "compressed.img"), t.TempDir()
			compressedTree(t, want, uint64(100+i))
			interop.Btrlab(t, "mkfs", "--size", "300M", img)
			interop.Btrlab(t, "put", "-r", "--compress", method, want+"/.", img+":/")
			editCompressed(t, img, want, uint64(i))
			interop.Judged(t, img)
			interop.Mounted(t, img, "", func(dir string) {
				interop.Scrubbed(t, dir)
				interop.NoTimes(t, dir, want)
				interop.SameTree(t, dir, want)
				for _, root := range []string{dir, want} {
					r := rand.New(rand.NewPCG(uint64(i), 34))
					f, err := os.OpenFile(filepath.Join(root, "f15"), os.O_RDWR, 0)
					if err != nil { // a random edit has removed it
						continue
					}
					_, err = f.WriteAt(interop.Text(r, 70000), 50000)
					interop.Must(t, err)
					interop.Must(t, f.Close())
				}
			})
			interop.Judged(t, img)
			out := filepath.Join(t.TempDir(), "out")
			interop.Btrlab(t, "get", "-r", img+":/", out)
			interop.NoTimes(t, out, want)
			interop.SameTree(t, out, want)
		})
	}
}
