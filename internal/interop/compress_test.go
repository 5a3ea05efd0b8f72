package interop

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// text is n bytes of lines, which compress well, mixed with some that do not.
func text(r *rand.Rand, n int) []byte {
	var b bytes.Buffer
	for b.Len() < n {
		if r.IntN(8) == 0 {
			for range r.IntN(5000) {
				b.WriteByte(byte(r.Uint32()))
			}
		}
		for range r.IntN(400) {
			fmt.Fprintf(&b, "line %d of a file that is compressed\n", r.IntN(1000))
		}
	}
	return b.Bytes()[:n]
}

// compressedTree fills the mounted dir with files of all sizes that a kernel compresses in its own
// ways, and makes holes, parts and shared extents of them.
func compressedTree(t *testing.T, dir string, seed uint64) {
	t.Helper()
	r := rand.New(rand.NewPCG(seed, 32))
	sizes := []int{1, 100, 2047, 2048, 2049, 4095, 4096, 4097, 8192, 65536, 131071, 131072, 131073, 262144, 300001, 1 << 20}
	for i, n := range append(sizes, r.IntN(5000), r.IntN(200000), r.IntN(2000000)) {
		write(t, filepath.Join(dir, fmt.Sprintf("f%02d", i)), text(r, n))
	}
	sh(t, "sync", "-f", dir)
	for i := range 8 {
		from, to := filepath.Join(dir, fmt.Sprintf("f%02d", 11+i)), filepath.Join(dir, fmt.Sprintf("g%02d", i))
		sh(t, "cp", "--reflink=auto", from, to)
		f, err := os.OpenFile(to, os.O_RDWR, 0)
		must(t, err)
		st, err := f.Stat()
		must(t, err)
		size := int(st.Size())
		_, err = f.WriteAt(text(r, 1+r.IntN(30000)), int64(r.IntN(size)))
		must(t, err)
		sh(t, "fallocate", "-p", "-o", fmt.Sprint(r.IntN(size)), "-l", fmt.Sprint(1+r.IntN(50000)), to)
		if i%2 == 0 {
			must(t, f.Truncate(int64(r.IntN(size))))
		} else {
			must(t, f.Truncate(int64(size+r.IntN(100000))))
		}
		must(t, f.Close())
	}
	sh(t, "sync", "-f", dir)
}

// TestCompressedByLinux: files that Linux compressed are read back as the mount has them, also out
// of a snapshot. Both sides edit them, and Linux reads the same again.
func TestCompressedByLinux(t *testing.T) {
	linux(t, "fallocate", "cp")
	for i, option := range []string{"zlib", "zlib:9", "lzo", "zstd", "zstd:1", "zstd:15", "zstd:-7"} {
		t.Run(option, func(t *testing.T) {
			seed := uint64(i)
			img, want := image(t, "compressed.img"), t.TempDir()
			sh(t, "truncate", "-s", "300M", img)
			sh(t, "mkfs.btrfs", "-q", img)
			mounted(t, img, "compress-force="+option, func(dir string) {
				compressedTree(t, dir, seed)
				sh(t, "btrfs", "-q", "subvolume", "snapshot", dir, filepath.Join(dir, "snap"))
				sh(t, "cp", "-a", dir+"/.", want)
			})
			judged(t, img)
			out := filepath.Join(t.TempDir(), "out")
			btrlab(t, "get", "-r", "-s", img+":/", out)
			noTimes(t, out, want)
			sameTree(t, out, want)
			editCompressed(t, img, want, seed)
			judged(t, img)
			mounted(t, img, "", func(dir string) {
				noTimes(t, dir, want)
				sameTree(t, dir, want)
			})
		})
	}
}

// editCompressed changes the files of the image and of the folder want in the same ways.
func editCompressed(t *testing.T, img, want string, seed uint64) {
	t.Helper()
	m := &model{t: t, r: rand.New(rand.NewPCG(seed, 33)), f: newFiller(seed), img: img, dir: want, dirs: []string{""}}
	for name, e := range list(t, want) {
		if e.mode.IsRegular() && !strings.HasPrefix(name, "snap/") {
			m.file = append(m.file, name)
		}
	}
	for range 60 {
		m.step()
	}
	for i := range 6 {
		name := fmt.Sprintf("clone%d", i)
		from := m.file[m.r.IntN(len(m.file))]
		btrlab(t, "reflink", m.spec(from), "/"+name)
		b, err := os.ReadFile(m.host(from))
		must(t, err)
		write(t, m.host(name), b)
	}
}

// TestCompressedByBtrlab: what put compresses is read back by Linux, and by btrlab after Linux has
// written into it.
func TestCompressedByBtrlab(t *testing.T) {
	linux(t, "fallocate", "cp")
	for i, method := range []string{"zlib", "zlib:9", "lzo", "zstd", "zstd:1", "zstd:15"} {
		t.Run(method, func(t *testing.T) {
			img, want := image(t, "compressed.img"), t.TempDir()
			compressedTree(t, want, uint64(100+i))
			btrlab(t, "mkfs", "--size", "300M", img)
			btrlab(t, "put", "-r", "--compress", method, want+"/.", img+":/")
			editCompressed(t, img, want, uint64(i))
			judged(t, img)
			mounted(t, img, "", func(dir string) {
				scrubbed(t, dir)
				noTimes(t, dir, want)
				sameTree(t, dir, want)
				for _, root := range []string{dir, want} {
					r := rand.New(rand.NewPCG(uint64(i), 34))
					f, err := os.OpenFile(filepath.Join(root, "f15"), os.O_RDWR, 0)
					if err != nil { // a random edit has removed it
						continue
					}
					_, err = f.WriteAt(text(r, 70000), 50000)
					must(t, err)
					must(t, f.Close())
				}
			})
			judged(t, img)
			out := filepath.Join(t.TempDir(), "out")
			btrlab(t, "get", "-r", img+":/", out)
			noTimes(t, out, want)
			sameTree(t, out, want)
		})
	}
}
