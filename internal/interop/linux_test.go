package interop

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"sort"
	"strings"
	"syscall"
	"testing"
	"time"

	"btrlab/internal/cli"
	"btrlab/internal/testing/need"
)

func TestMain(m *testing.M) {
	code := m.Run()
	if left := attached(); len(left) > 0 {
		fmt.Fprintf(os.Stderr, "interop: loop devices left: %v\n", left)
		code = 1
	}
	os.Exit(code)
}

var loopFiles = map[string]bool{} // images that were mounted

// attached lists loop devices that hold an image of ours, and detaches them.
func attached() []string {
	var left []string
	for img := range loopFiles {
		out, _ := exec.Command("losetup", "-n", "-O", "NAME", "-j", img).Output()
		for _, dev := range strings.Fields(string(out)) {
			left = append(left, dev)
			exec.Command("losetup", "-d", dev).Run()
		}
	}
	return left
}

// linux skips the test, loudly, where Linux cannot be the judge.
func linux(t *testing.T, tools ...string) {
	t.Helper()
	need.All(t, append([]string{need.Root, need.Loop, "mkfs.btrfs", "btrfs", "mount", "umount", "losetup"}, tools...)...)
}

// pick returns its first value under make interop, and its second under make test.
func pick[T any](all, look T) T {
	if need.Forced() {
		return all
	}
	return look
}

// sh runs a host command and gives its output.
func sh(t *testing.T, name string, args ...string) string {
	t.Helper()
	out, err := exec.Command(name, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, tail(out))
	}
	return string(out)
}

func tail(out []byte) []byte {
	if len(out) > 4000 {
		return append([]byte("...\n"), out[len(out)-4000:]...)
	}
	return out
}

// btrlab runs a verb and wants it to succeed.
func btrlab(t *testing.T, args ...string) string {
	t.Helper()
	return btrlabIn(t, "", args...)
}

func btrlabIn(t *testing.T, stdin string, args ...string) string {
	t.Helper()
	var out, errw bytes.Buffer
	if code := cli.Main(args, strings.NewReader(stdin), &out, &errw); code != 0 {
		t.Fatalf("btrlab %s: exit code %d\n%s%s", strings.Join(args, " "), code, tail(out.Bytes()), tail(errw.Bytes()))
	}
	return out.String()
}

// judged asks both checkers.
func judged(t *testing.T, img string) {
	t.Helper()
	btrlab(t, "check", img)
	out := sh(t, "btrfs", "check", "--check-data-csum", "--readonly", img)
	if !strings.Contains(out, "no error found") {
		t.Fatalf("btrfs check %s:\n%s", img, tail([]byte(out)))
	}
}

// mounted mounts an image and runs f on it.
func mounted(t *testing.T, img, options string, f func(dir string)) {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "mnt")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if options != "" {
		options = "," + options
	}
	loopFiles[img] = true
	sh(t, "mount", "-t", "btrfs", "-o", "loop"+options, img, dir)
	up := true
	umount := func() {
		if !up {
			return
		}
		up = false
		// Linux 6.18 can crash in an umount that has data to write back: the last of it ends when
		// the file system is closed already (btrfs_add_delayed_iput warns, then busy inodes are a
		// BUG). So it is written before.
		_ = exec.Command("sync", "-f", dir).Run()
		for try := 0; ; try++ {
			out, err := exec.Command("umount", dir).CombinedOutput()
			if err == nil {
				break
			}
			if try == 20 {
				exec.Command("umount", "-l", dir).Run()
				t.Errorf("umount %s: %v %s", dir, err, out)
				break
			}
			time.Sleep(100 * time.Millisecond)
		}
	}
	defer umount()
	f(dir)
	umount()
	// The loop device goes with the last close, which the kernel may do a moment after umount.
	for try := 0; try < 50; try++ {
		out, _ := exec.Command("losetup", "-n", "-O", "NAME", "-j", img).Output()
		if len(bytes.TrimSpace(out)) == 0 {
			return
		}
		time.Sleep(20 * time.Millisecond)
	}
	t.Errorf("%s is still attached to a loop device", img)
}

// scrubbed scrubs a mounted file system and wants no error.
func scrubbed(t *testing.T, dir string) {
	t.Helper()
	out := sh(t, "btrfs", "scrub", "start", "-B", "-R", dir)
	for _, line := range strings.Split(out, "\n") {
		name, val, ok := strings.Cut(strings.TrimSpace(line), ":")
		if ok && strings.HasSuffix(name, "_errors") && strings.TrimSpace(val) != "0" {
			t.Fatalf("scrub: %s\n%s", line, out)
		}
	}
}

// filler makes contents that repeat for a seed and do not compress.
type filler struct{ r *rand.ChaCha8 }

func newFiller(seed uint64) *filler {
	var key [32]byte
	for i := range 8 {
		key[i] = byte(seed >> (8 * i))
	}
	return &filler{rand.NewChaCha8(key)}
}

func (f *filler) bytes(n int) []byte {
	b := make([]byte, n)
	f.r.Read(b)
	return b
}

func write(t *testing.T, path string, b []byte) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, b, 0o644); err != nil {
		t.Fatal(err)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// tree fills dir with every kind of file that both sides handle: sizes around every border, sparse
// files, many small files, deep folders, hard and symbolic links, long and odd names.
func tree(t *testing.T, dir string, seed uint64, many int) {
	t.Helper()
	f := newFiller(seed)
	for _, n := range []int{0, 1, 100, 2047, 2048, 2049, 4095, 4096, 4097, 8191, 65536, 131072, 131073, 1<<20 + 3, 5 << 20} {
		write(t, filepath.Join(dir, "sizes", fmt.Sprintf("%d", n)), f.bytes(n))
	}
	for i := range many {
		write(t, filepath.Join(dir, "many", fmt.Sprintf("file-%05d", i)), f.bytes(int(f.r.Uint64()%6000)))
	}
	deep := filepath.Join(dir, "deep")
	for i := range 12 {
		deep = filepath.Join(deep, fmt.Sprintf("level%d", i))
		write(t, filepath.Join(deep, "leaf"), f.bytes(i*500))
	}
	for i, name := range []string{strings.Repeat("n", 255), "with space", "ünïcode-文件", "-dash", "new\nline", "back\\slash", ".hidden", "colon:/x"} {
		if strings.Contains(name, "/") {
			name = "colon:x"
		}
		write(t, filepath.Join(dir, "names", name), f.bytes(10+i))
	}
	must(t, os.MkdirAll(filepath.Join(dir, "empty"), 0o700))
	must(t, os.MkdirAll(filepath.Join(dir, "links"), 0o755))
	must(t, os.Link(filepath.Join(dir, "sizes", "4097"), filepath.Join(dir, "links", "hard1")))
	must(t, os.Link(filepath.Join(dir, "sizes", "4097"), filepath.Join(dir, "links", "hard2")))
	must(t, os.Symlink("../sizes/8191", filepath.Join(dir, "links", "soft")))
	must(t, os.Symlink("/nowhere/"+strings.Repeat("x", 900), filepath.Join(dir, "links", "dangling")))
	must(t, os.Link(filepath.Join(dir, "links", "soft"), filepath.Join(dir, "links", "soft2")))
	must(t, syscall.Mkfifo(filepath.Join(dir, "pipe"), 0o644))
	must(t, os.Link(filepath.Join(dir, "pipe"), filepath.Join(dir, "links", "pipe")))
	must(t, os.Chmod(filepath.Join(dir, "sizes", "100"), 0o4751))
	sparse, err := os.Create(filepath.Join(dir, "sparse"))
	must(t, err)
	for _, off := range []int64{0, 1 << 20, 40<<20 + 1234} {
		_, err := sparse.WriteAt(f.bytes(10000), off)
		must(t, err)
	}
	must(t, sparse.Truncate(64<<20))
	must(t, sparse.Close())
	old := time.Date(2001, 9, 9, 1, 46, 40, 123456789, time.UTC)
	must(t, os.Chtimes(filepath.Join(dir, "sizes", "1"), old, old))
}

// entry holds the fields of a file that sameTree compares.
type entry struct {
	mode   fs.FileMode
	size   int64
	mtime  time.Time // of a regular file
	nlink  uint64    // but of a directory
	target string
}

func list(t *testing.T, dir string) map[string]entry {
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
		e := entry{mode: info.Mode(), mtime: info.ModTime()}
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
	must(t, err)
	return m
}

// sameTree wants have to be want: names, kinds, modes, sizes, times of files, links and every byte.
func sameTree(t *testing.T, have, want string) {
	t.Helper()
	h, w := list(t, have), list(t, want)
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
		if he.mode != we.mode || he.size != we.size || he.target != we.target || he.nlink != we.nlink || !he.mtime.Equal(we.mtime) {
			complain("%q: have %v %d bytes, %d links, %v %q, want %v %d bytes, %d links, %v %q", name, he.mode, he.size, he.nlink, he.mtime,
				he.target, we.mode, we.size, we.nlink, we.mtime, we.target)
			continue
		}
		if we.mode.IsRegular() {
			if at, err := differ(filepath.Join(have, name), filepath.Join(want, name)); err != nil || at >= 0 {
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

// differ gives the first byte in which two files differ, or -1.
func differ(a, b string) (int64, error) {
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

// try runs a verb that may fail.
func try(args ...string) (code int, stderr string) {
	var out, errw bytes.Buffer
	code = cli.Main(args, strings.NewReader(""), &out, &errw)
	return code, errw.String()
}

// TestMountedMeanwhile: Linux mounts the image while btrlab has it open for writing: no lock keeps
// a loop device away. The commit is refused with one line, and the image is as Linux left it.
func TestMountedMeanwhile(t *testing.T) {
	need.Long(t)
	linux(t)
	for _, options := range pick([]string{"ro", "rw"}, []string{"rw"}) {
		t.Run(options, func(t *testing.T) {
			img := image(t, "img")
			btrlab(t, "mkfs", "-q", "--size", "256M", img)
			in, feed := io.Pipe()
			var errw bytes.Buffer
			code := make(chan int)
			go func() { code <- cli.Main([]string{"put", "-", img + ":/f"}, in, io.Discard, &errw) }()
			chunk := newFiller(1).bytes(1 << 20)
			// Once the second chunk is taken, the first is in the file system's memory, so the
			// image is open.
			for range 2 {
				_, err := feed.Write(chunk)
				must(t, err)
			}
			mounted(t, img, options, func(dir string) {
				if options == "rw" {
					write(t, filepath.Join(dir, "linux"), chunk)
					sh(t, "sync", "-f", dir)
				}
				before := sh(t, "sha256sum", img)
				for range 3 {
					_, err := feed.Write(chunk)
					must(t, err)
				}
				must(t, feed.Close())
				if have := <-code; have != 1 {
					t.Errorf("exit code: have %d want 1", have)
				}
				if have := errw.String(); strings.Count(have, "\n") != 1 || !strings.Contains(have, "mounted at "+dir) {
					t.Errorf("have %q, want one line with the place of the mount", have)
				}
				if after := sh(t, "sha256sum", img); after != before {
					t.Errorf("the image has changed")
				}
			})
			judged(t, img)
			mounted(t, img, "ro", func(dir string) {
				if _, err := os.Stat(filepath.Join(dir, "f")); err == nil {
					t.Error("the refused file is in the image")
				}
				if options == "rw" {
					have, err := os.ReadFile(filepath.Join(dir, "linux"))
					must(t, err)
					if !bytes.Equal(have, chunk) {
						t.Error("the file that Linux wrote has changed")
					}
				}
			})
		})
	}
}
