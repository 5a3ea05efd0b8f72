package interop

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sort"
	"strings"
	"syscall"
	"testing"
	"time"
)

// Text is n bytes of lines, which compress well, mixed with some that do not.
func Text(r *rand.Rand, n int) []byte {
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

// Image is the path of an image to be made, in memory where /dev/shm has room.
func Image(t *testing.T, name string) string {
	t.Helper()
	dir := t.TempDir()
	if d, err := os.MkdirTemp("/dev/shm", "btrlab-interop-"); err == nil {
		t.Cleanup(func() { os.RemoveAll(d) })
		dir = d
	}
	return filepath.Join(dir, name)
}

// LinuxTurn is a mount in which Linux compares, scrubs and writes; it adds what it wrote to want.
func LinuxTurn(t *testing.T, img, want string, turn int) {
	t.Helper()
	Mounted(t, img, "", func(dir string) {
		SameTree(t, dir, want)
		Scrubbed(t, dir)
		for _, root := range []string{dir, want} {
			f := NewFiller(uint64(turn) + 1000)
			for i, n := range []int{0, 700, 4096, 100000, 3 << 20} {
				Write(t, filepath.Join(root, fmt.Sprintf("linux-%d", turn), fmt.Sprintf("f%d", i)), f.Bytes(n))
			}
		}
		KeepTimes(t, dir, want, fmt.Sprintf("linux-%d", turn))
	})
	Judged(t, img)
}

// KeepTimes gives the files below sub of want the times that they have in dir.
func KeepTimes(t *testing.T, dir, want, sub string) {
	t.Helper()
	Must(t, filepath.Walk(filepath.Join(dir, sub), func(path string, info os.FileInfo, err error) error {
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

// BtrlabTurn reads everything back and writes: new files, an overwrite, a truncate, a hole, a
// rename and deletes.
func BtrlabTurn(t *testing.T, img, want string, turn int) {
	t.Helper()
	out := filepath.Join(t.TempDir(), "out")
	Btrlab(t, "get", "-r", img+":/", out)
	SameTree(t, out, want)
	Must(t, os.RemoveAll(out))

	src := filepath.Join(t.TempDir(), fmt.Sprintf("btrlab-%d", turn))
	f := NewFiller(uint64(turn) + 5000)
	for i, n := range []int{0, 5, 2048, 2049, 4096, 70000, 2<<20 + 1} {
		Write(t, filepath.Join(src, fmt.Sprintf("f%d", i)), f.Bytes(n))
	}
	Btrlab(t, "put", "-r", src, img+":/")
	Judged(t, img)
	at := fmt.Sprintf(":/btrlab-%d", turn)
	patch := f.Bytes(9000)
	edit := func(name string, g func(h *os.File)) {
		h, err := os.OpenFile(filepath.Join(src, name), os.O_RDWR, 0)
		Must(t, err)
		g(h)
		Must(t, h.Close())
	}
	BtrlabIn(t, string(patch), "write", "--offset", "12345", img+at+"/f5")
	edit("f5", func(h *os.File) { _, err := h.WriteAt(patch, 12345); Must(t, err) })
	Btrlab(t, "truncate", "--size", "5000", img+at+"/f6")
	edit("f6", func(h *os.File) { Must(t, h.Truncate(5000)) })
	Btrlab(t, "truncate", "--size", "100000", img+at+"/f6")
	edit("f6", func(h *os.File) { Must(t, h.Truncate(100000)) })
	Btrlab(t, "fallocate", "--length", "1M", img+at+"/f0")
	edit("f0", func(h *os.File) { Must(t, h.Truncate(1<<20)) })
	Btrlab(t, "fallocate", "--punch-hole", "--offset", "10000", "--length", "30000", img+at+"/f5")
	edit("f5", func(h *os.File) { _, err := h.WriteAt(make([]byte, 30000), 10000); Must(t, err) })
	Btrlab(t, "mv", img+at+"/f1", fmt.Sprintf("/btrlab-%d/renamed", turn))
	Must(t, os.Rename(filepath.Join(src, "f1"), filepath.Join(src, "renamed")))
	Btrlab(t, "rm", img+at+"/f2")
	Must(t, os.Remove(filepath.Join(src, "f2")))
	Sh(t, "cp", "-a", src, want)

	// What was edited has the time of the edit; take it from the image.
	Btrlab(t, "get", "-r", img+at, out)
	Must(t, filepath.Walk(out, func(path string, info os.FileInfo, err error) error {
		if err != nil || !info.Mode().IsRegular() {
			return err
		}
		rel, err := filepath.Rel(out, path)
		if err != nil {
			return err
		}
		return os.Chtimes(filepath.Join(want, filepath.Base(src), rel), info.ModTime(), info.ModTime())
	}))
	Judged(t, img)
}

// Filler makes contents that repeat for a seed and do not compress.
type Filler struct{ R *rand.ChaCha8 }

// NewFiller begins the contents of a seed.
func NewFiller(seed uint64) *Filler {
	var key [32]byte
	for i := range 8 {
		key[i] = byte(seed >> (8 * i))
	}
	return &Filler{rand.NewChaCha8(key)}
}

// Bytes are the next n bytes.
func (f *Filler) Bytes(n int) []byte {
	b := make([]byte, n)
	f.R.Read(b)
	return b
}

// Write makes a file, and the folders that it is in.
func Write(t *testing.T, path string, b []byte) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, b, 0o644); err != nil {
		t.Fatal(err)
	}
}

// Tree fills dir with every kind of file that both sides handle: sizes around every border, sparse
// files, many small files, deep folders, hard and symbolic links, long and odd names.
func Tree(t *testing.T, dir string, seed uint64, many int) {
	t.Helper()
	f := NewFiller(seed)
	for _, n := range []int{0, 1, 100, 2047, 2048, 2049, 4095, 4096, 4097, 8191, 65536, 131072, 131073, 1<<20 + 3, 5 << 20} {
		Write(t, filepath.Join(dir, "sizes", fmt.Sprintf("%d", n)), f.Bytes(n))
	}
	for i := range many {
		Write(t, filepath.Join(dir, "many", fmt.Sprintf("file-%05d", i)), f.Bytes(int(f.R.Uint64()%6000)))
	}
	deep := filepath.Join(dir, "deep")
	for i := range 12 {
		deep = filepath.Join(deep, fmt.Sprintf("level%d", i))
		Write(t, filepath.Join(deep, "leaf"), f.Bytes(i*500))
	}
	for i, name := range []string{strings.Repeat("n", 255), "with space", "ünïcode-文件", "-dash", "new\nline", "back\\slash", ".hidden", "colon:/x"} {
		if strings.Contains(name, "/") {
			name = "colon:x"
		}
		Write(t, filepath.Join(dir, "names", name), f.Bytes(10+i))
	}
	Must(t, os.MkdirAll(filepath.Join(dir, "empty"), 0o700))
	Must(t, os.MkdirAll(filepath.Join(dir, "links"), 0o755))
	Must(t, os.Link(filepath.Join(dir, "sizes", "4097"), filepath.Join(dir, "links", "hard1")))
	Must(t, os.Link(filepath.Join(dir, "sizes", "4097"), filepath.Join(dir, "links", "hard2")))
	Must(t, os.Symlink("../sizes/8191", filepath.Join(dir, "links", "soft")))
	Must(t, os.Symlink("/nowhere/"+strings.Repeat("x", 900), filepath.Join(dir, "links", "dangling")))
	Must(t, os.Link(filepath.Join(dir, "links", "soft"), filepath.Join(dir, "links", "soft2")))
	Must(t, syscall.Mkfifo(filepath.Join(dir, "pipe"), 0o644))
	Must(t, os.Link(filepath.Join(dir, "pipe"), filepath.Join(dir, "links", "pipe")))
	Must(t, os.Chmod(filepath.Join(dir, "sizes", "100"), 0o4751))
	sparse, err := os.Create(filepath.Join(dir, "sparse"))
	Must(t, err)
	for _, off := range []int64{0, 1 << 20, 40<<20 + 1234} {
		_, err := sparse.WriteAt(f.Bytes(10000), off)
		Must(t, err)
	}
	Must(t, sparse.Truncate(64<<20))
	Must(t, sparse.Close())
	old := time.Date(2001, 9, 9, 1, 46, 40, 123456789, time.UTC)
	Must(t, os.Chtimes(filepath.Join(dir, "sizes", "1"), old, old))
}

// entry holds the fields of a file that SameTree compares.
type entry struct {
	Mode   fs.FileMode
	size   int64
	mtime  time.Time // of a regular file
	nlink  uint64    // but of a directory
	target string
}

// List has what is in a folder, by the path from there.
func List(t *testing.T, dir string) map[string]entry {
	t.Helper()
	m := map[string]entry{}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, _ := filepath.Rel(dir, path)
		if rel == "." {
			return nil
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		e := entry{Mode: info.Mode(), mtime: info.ModTime()}
		switch {
		case info.Mode().IsRegular():
			e.size = info.Size()
		case info.Mode()&fs.ModeSymlink != 0:
			e.target, err = os.Readlink(path)
			e.mtime = time.Time{}
		default:
			e.mtime = time.Time{}
		}
		if !info.IsDir() {
			e.nlink = uint64(info.Sys().(*syscall.Stat_t).Nlink)
		}
		m[rel] = e
		return err
	})
	Must(t, err)
	return m
}

// SameTree wants have to be want: names, kinds, modes, sizes, times of files, links and every byte.
func SameTree(t *testing.T, have, want string) {
	t.Helper()
	h, w := List(t, have), List(t, want)
	var names []string
	for name := range w {
		names = append(names, name)
	}
	sort.Strings(names)
	bad := 0
	complain := func(format string, args ...any) {
		t.Helper()
		if bad++; bad <= 10 {
			t.Errorf(format, args...)
		}
	}
	for _, name := range names {
		he, ok := h[name]
		if !ok {
			complain("%q is missing in %s", name, have)
			continue
		}
		we := w[name]
		if he.Mode != we.Mode || he.size != we.size || he.target != we.target || he.nlink != we.nlink || !he.mtime.Equal(we.mtime) {
			complain("%q: have %v %d bytes, %d links, %v %q, want %v %d bytes, %d links, %v %q", name, he.Mode, he.size, he.nlink, he.mtime,
				he.target, we.Mode, we.size, we.nlink, we.mtime, we.target)
			continue
		}
		if we.Mode.IsRegular() {
			if at, err := Differ(filepath.Join(have, name), filepath.Join(want, name)); err != nil || at >= 0 {
				complain("%q differs at byte %d, error %v", name, at, err)
			}
		}
	}
	for name := range h {
		if _, ok := w[name]; !ok {
			complain("%q is in %s and should not be", name, have)
		}
	}
	if bad > 10 {
		t.Errorf("and %d more", bad-10)
	}
	if bad > 0 {
		t.FailNow()
	}
}

// Differ gives the first byte in which two files differ, or -1.
func Differ(a, b string) (int64, error) {
	fa, err := os.Open(a)
	if err != nil {
		return 0, err
	}
	defer fa.Close()
	fb, err := os.Open(b)
	if err != nil {
		return 0, err
	}
	defer fb.Close()
	ba, bb := make([]byte, 1<<18), make([]byte, 1<<18)
	for off := int64(0); ; {
		na, ea := io.ReadFull(fa, ba)
		nb, eb := io.ReadFull(fb, bb)
		for _, err := range []error{ea, eb} {
			if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
				return off, err
			}
		}
		n := min(na, nb)
		if !bytes.Equal(ba[:n], bb[:n]) {
			for i := range n {
				if ba[i] != bb[i] {
					return off + int64(i), nil
				}
			}
		}
		if na != nb {
			return off + int64(n), nil
		}
		if off += int64(n); ea != nil {
			return -1, nil
		}
	}
}

// NoTimes sets all times of regular files to one, on both sides: edits take place at two moments.
func NoTimes(t *testing.T, dirs ...string) {
	t.Helper()
	when := time.Unix(1_000_000_000, 0)
	for _, dir := range dirs {
		for name, e := range List(t, dir) {
			if e.Mode.IsRegular() {
				Must(t, os.Chtimes(filepath.Join(dir, name), when, when))
			}
		}
	}
}

// ImageKind is a kind of image: the options that make one, of mkfs.btrfs and of btrlab mkfs.
type ImageKind struct{ Linux, Ours string }

// ImageKinds are the kinds of images that are written besides the default.
var ImageKinds = []ImageKind{
	{"--csum xxhash", "--csum xxhash64"}, {"--csum sha256", "--csum sha256"}, {"--csum blake2", "--csum blake2b"},
	{"-O ^skinny-metadata", "-O ^skinny-metadata"}, {"-O ^no-holes", "-O ^no-holes"},
	{"-n 4k -O ^no-holes,^skinny-metadata", "-n 4k -O ^no-holes,^skinny-metadata"}, {"-n 64k --csum sha256", "-n 64k --csum sha256"},
}

// Made makes an image of one of both makers.
func (v ImageKind) Made(t *testing.T, img, size string, ours bool) {
	t.Helper()
	if ours {
		Btrlab(t, append([]string{"mkfs", "-q", "--size", size, img}, strings.Fields(v.Ours)...)...)
		return
	}
	Sh(t, "truncate", "-s", size, img)
	Sh(t, "mkfs.btrfs", append(append([]string{"-q"}, strings.Fields(v.Linux)...), img)...)
}

// KindOf is a kind by seed; every fourth is the default.
func KindOf(seed uint64) ImageKind {
	if seed%4 == 0 {
		return ImageKind{}
	}
	return ImageKinds[(seed-1-seed/4)%uint64(len(ImageKinds))]
}
