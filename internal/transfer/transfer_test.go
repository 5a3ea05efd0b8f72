//go:build unix

package transfer

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	iofs "io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"btrlab/internal/blockdev"
	"btrlab/internal/blockdev/dm"
	"btrlab/internal/errno"
	"btrlab/internal/format"
	"btrlab/internal/fs"
	"btrlab/internal/progs/mkfs"
	"btrlab/internal/sched"
	"btrlab/internal/testing/fstest"
)

var errStop = errors.New("stop")

// watch records what it is told, and stops at the stopAt-th question.
type watch struct {
	t      *testing.T
	names  []string
	known  uint64
	left   []LeftOut
	asked  atomic.Int64 // several tasks ask
	stopAt int64
}

func (w *watch) Begin(name string, begun, known uint64) {
	w.names = append(w.names, name)
	if begun != uint64(len(w.names)) || known < begun || known < w.known {
		w.t.Errorf("%s: begun %d known %d, after %d names and %d known", name, begun, known, len(w.names), w.known)
	}
	w.known = known
}

func (w *watch) LeaveOut(x LeftOut) { w.left = append(w.left, x) }

func (w *watch) Stop() error {
	if w.asked.Add(1) == w.stopAt {
		return errStop
	}
	return nil
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// noise gives n bytes that are not zero.
func noise(n int) []byte {
	r := rand.New(rand.NewPCG(1, uint64(n)))
	p := make([]byte, n)
	for i := range p {
		p[i] = byte(1 + r.IntN(255))
	}
	return p
}

var when = time.Date(2018, 5, 16, 3, 52, 0, 123456789, time.UTC)

// hostTree makes a tree with everything that any user can make.
func hostTree(t *testing.T) string {
	dir := filepath.Join(t.TempDir(), "src")
	path := func(name string) string { return filepath.Join(dir, filepath.FromSlash(name)) }
	must(t, os.MkdirAll(path("d/empty"), 0o755))
	must(t, os.WriteFile(path("a"), noise(5000), 0o644))
	must(t, os.Link(path("a"), path("d/second")))
	must(t, os.Symlink("../nowhere", path("d/sym")))
	must(t, os.WriteFile(path("none"), nil, 0o600))
	f, err := os.Create(path("sparse"))
	must(t, err)
	_, err = f.WriteAt(noise(8192), 1<<20)
	must(t, err)
	must(t, f.Truncate(8<<20))
	must(t, f.Close())
	must(t, syscall.Mkfifo(path("pipe"), 0o644))
	must(t, os.Link(path("pipe"), path("d/pipe2")))
	must(t, os.Link(path("d/sym"), path("d/sym2")))
	must(t, os.Chmod(path("a"), 0o751))
	must(t, os.Chmod(path("none"), 0o640|os.ModeSetuid))
	must(t, os.Chmod(path("d"), 0o775|os.ModeSetgid|os.ModeSticky))
	for _, name := range []string{"a", "none", "sparse", "d/empty", "d", ""} {
		must(t, os.Chtimes(path(name), when, when.Add(time.Duration(len(name))*time.Second)))
	}
	return dir
}

// facts are the properties that a copy of a tree must keep: for each path its mode, size, time,
// target and contents, and which path is the same file.
func facts(t *testing.T, dir string) map[string]string {
	m := map[string]string{}
	var seen []iofs.FileInfo
	var first []string
	must(t, filepath.WalkDir(dir, func(path string, d iofs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		st, err := d.Info()
		if err != nil {
			return err
		}
		name, _ := filepath.Rel(dir, path)
		s := st.Mode().String()
		switch {
		case st.Mode().IsRegular():
			b, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			s += " " + st.ModTime().UTC().String() + " " + string(b)
		case st.IsDir():
			s += " " + st.ModTime().UTC().String()
		case st.Mode()&iofs.ModeSymlink != 0:
			if s, err = os.Readlink(path); err != nil {
				return err
			}
			s += " " + st.ModTime().UTC().String()
		default:
			s += " " + st.ModTime().UTC().String()
		}
		if i := slices.IndexFunc(seen, func(o iofs.FileInfo) bool { return os.SameFile(o, st) }); i >= 0 {
			s = "is " + first[i]
		} else {
			seen, first = append(seen, st), append(first, name)
		}
		m[name] = s
		return nil
	}))
	return m
}

// What the image refuses of a tree is left out, and the rest goes in; a tree that goes in twice is
// the same.
func TestInGoesOn(t *testing.T) {
	x := fstest.New(t)
	src := hostTree(t)
	must(t, os.WriteFile(filepath.Join(src, "taken"), []byte("f"), 0o644))
	must(t, os.MkdirAll(filepath.Join(src, "file/below"), 0o755))
	must(t, x.FS.Mkdir(x.T, "/taken", 0o755))
	x.Must(x.Create("/file").Close(x.T))
	w := &watch{t: t}
	in := NewIn(x.T, x.FS, w)
	for range 2 {
		must(t, in.Fill(src, "/"))
	}
	var left []string
	for _, l := range w.left {
		left = append(left, strings.TrimPrefix(l.Name, src))
		if !errors.Is(l.Err, errno.ENOTDIR) && !errors.Is(l.Err, errno.EISDIR) {
			t.Errorf("%s: %v", l.Name, l.Err)
		}
	}
	if want := []string{"/file", "/taken"}; !slices.Equal(left, append(want, want...)) {
		t.Errorf("left out %q want %q, twice", left, want)
	}
	dest := filepath.Join(t.TempDir(), "dest")
	must(t, NewOut(x.T, x.FS, &watch{t: t}).Tree("/", dest))
	for _, p := range []string{filepath.Join(src, "file"), filepath.Join(src, "taken"), filepath.Join(dest, "file"), filepath.Join(dest, "taken")} {
		must(t, os.RemoveAll(p))
	}
	have, want := facts(t, dest), facts(t, src)
	for _, name := range []string{".", "d"} { // a directory that is there keeps its own time
		delete(have, name)
		delete(want, name)
	}
	if !maps.Equal(have, want) {
		t.Errorf("have %.60q want %.60q", have, want)
	}
}

// A tree goes in and comes out as it was: hard links, holes, symbolic links, modes and times. What
// cannot be copied is reported.
func TestRoundTrip(t *testing.T) {
	x := fstest.New(t)
	src := hostTree(t)
	in := &watch{t: t}
	must(t, NewIn(x.T, x.FS, in).Tree(src, "/tree"))
	want := []string{"/tree", "/tree/a", "/tree/d", "/tree/d/empty", "/tree/d/pipe2", "/tree/d/second", "/tree/d/sym", "/tree/d/sym2", "/tree/none", "/tree/pipe", "/tree/sparse"}
	if !slices.Equal(in.names, want) || in.known != uint64(len(want)) {
		t.Errorf("begun %v, %d known", in.names, in.known)
	}
	if len(in.left) != 0 {
		t.Errorf("left out %+v, want nothing", in.left)
	}
	at, err := x.FS.Stat(x.T, "/tree/a")
	must(t, err)
	if at.Nlink != 2 || at.Mode != format.S_IFREG|0o751 || !at.Mtime.Equal(when.Add(time.Second)) {
		t.Errorf("a has %+v", at)
	}
	must(t, x.FS.Sync(x.T))
	if at, err = x.FS.Stat(x.T, "/tree/sparse"); err != nil || at.Size != 8<<20 || at.Nbytes > 1<<20 {
		t.Errorf("sparse has size %d and %d bytes, %v; want 8 MiB with holes", at.Size, at.Nbytes, err)
	}
	if at, err = x.FS.Stat(x.T, "/tree/none"); err != nil || at.Mode != format.S_IFREG|0o4640 {
		t.Errorf("none has mode %o, %v", at.Mode, err)
	}

	dest := filepath.Join(t.TempDir(), "dest")
	out := &watch{t: t}
	must(t, NewOut(x.T, x.FS, out).Tree("/tree", dest))
	if len(out.names) != len(want) || out.names[0] != dest || len(out.left) != 0 {
		t.Errorf("begun %v", out.names)
	}
	a, b := facts(t, src), facts(t, dest)
	for _, name := range slices.Sorted(maps.Keys(a)) {
		if a[name] != b[name] {
			t.Errorf("%s: have %.80q, want %.80q", name, b[name], a[name])
		}
	}
	if len(a) != len(b) || len(a) != len(want) {
		t.Errorf("%d objects went in, %d came out, want %d", len(a), len(b), len(want))
	}
	st, err := os.Stat(filepath.Join(dest, "sparse"))
	must(t, err)
	if blocks := st.Sys().(*syscall.Stat_t).Blocks; blocks*512 > 1<<20 {
		t.Errorf("sparse takes %d bytes on the host, want holes", blocks*512)
	}

	// Once more over what is there: the same, but a directory that was there keeps its own mode and
	// time.
	must(t, NewIn(x.T, x.FS, &watch{t: t}).Tree(src, "/tree"))
	must(t, NewOut(x.T, x.FS, &watch{t: t}).Tree("/tree", dest))
	for name, s := range facts(t, dest) {
		if a[name] != s && !strings.HasPrefix(s, "d") {
			t.Errorf("the second time, %s: have %.80q, want %.80q", name, s, a[name])
		}
	}
}

// A transfer into an image that ends in the middle of a file names the trouble; files before it
// stay, a new file is removed, one that was there stays.
func TestInStops(t *testing.T) {
	src := t.TempDir()
	for _, name := range []string{"1", "2", "3"} {
		must(t, os.WriteFile(filepath.Join(src, name), noise(3<<20+1), 0o644))
	}
	for _, old := range []bool{false, true} {
		x := fstest.New(t)
		if old {
			must(t, x.FS.Mkdir(x.T, "/t", 0o755))
			f, err := x.FS.Create(x.T, "/t/2", 0o644)
			must(t, err)
			must(t, f.Close(x.T))
		}
		// The directory, file 1 with 5 chunks (the last is empty), file 2 with its first: the
		// question after that.
		w := &watch{t: t, stopAt: 1 + 6 + 3}
		if err := NewIn(x.T, x.FS, w).Tree(src, "/t"); err != errStop {
			t.Fatalf("have %v, want the watcher's error", err)
		}
		got := names(t, x, "/t")
		want := []string{"1"}
		if old {
			want = []string{"1", "2"}
		}
		if !slices.Equal(got, want) || !strings.HasSuffix(w.names[len(w.names)-1], "/2") {
			t.Errorf("old %v: /t has %v, want %v; begun %v", old, got, want, w.names)
		}
	}
}

func names(t *testing.T, x *fstest.Fixture, dir string) []string {
	list, err := x.FS.ReadDir(x.T, dir)
	must(t, err)
	var l []string
	for _, e := range list {
		l = append(l, e.Name)
	}
	slices.Sort(l)
	return l
}

// A source that fails, and an image that is full: the error is theirs, with the file's name, and
// the new file is gone.
func TestInFails(t *testing.T) {
	x := fstest.New(t)
	broken := errors.New("the tape is torn")
	err := NewIn(x.T, x.FS, &watch{t: t}).Reader(io.MultiReader(bytes.NewReader(noise(2<<20)), failing{broken}), "/tape")
	if !errors.Is(err, broken) {
		t.Errorf("have %v, want the reader's error", err)
	}
	must(t, NewIn(x.T, x.FS, &watch{t: t}).Reader(strings.NewReader("kept"), "/kept"))
	err = NewIn(x.T, x.FS, &watch{t: t}).Reader(io.LimitReader(endless{}, 1<<30), "/huge")
	var op *errno.OpError
	if !errors.Is(err, errno.ENOSPC) || !errors.As(err, &op) || op.Path != "/huge" {
		t.Errorf("have %v, want ENOSPC for /huge", err)
	}
	if got := names(t, x, "/"); !slices.Equal(got, []string{"kept"}) {
		t.Errorf("the image has %v, want kept alone", got)
	}
	err = NewIn(x.T, x.FS, &watch{t: t}).Tree(filepath.Join(t.TempDir(), "missing"), "/m")
	var path *iofs.PathError
	if !errors.As(err, &path) || !strings.HasSuffix(path.Path, "missing") {
		t.Errorf("have %v, want one that names the file", err)
	}
}

type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }

// endless gives bytes that no checksum or hole makes small.
type endless struct{}

func (endless) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = byte(i)
	}
	return len(p), nil
}

// A transfer out that ends in the middle leaves what was read, for nobody else to see.
func TestOutStops(t *testing.T) {
	x := fstest.New(t)
	f, err := x.FS.Create(x.T, "/f", 0o644)
	must(t, err)
	data := noise(3 << 20)
	_, err = f.WriteAt(x.T, data, 0)
	must(t, err)
	must(t, f.Close(x.T))
	dest := filepath.Join(t.TempDir(), "f")
	if err := NewOut(x.T, x.FS, &watch{t: t, stopAt: 4}).Tree("/f", dest); err != errStop {
		t.Fatalf("have %v, want the watcher's error", err)
	}
	st, err := os.Stat(dest)
	must(t, err)
	got, err := os.ReadFile(dest)
	must(t, err)
	if st.Mode() != 0o600 || !bytes.Equal(got, data[:2<<20]) {
		t.Errorf("%d bytes with mode %v, want the first two chunks with 0600", len(got), st.Mode())
	}
}

// TestOutKeepsWhatWasThere: a file of the host stays as it was, with its other names, until the new
// one is whole: when the image cannot be read, and when the transfer is stopped. No other file is
// left in the directory.
func TestOutKeepsWhatWasThere(t *testing.T) {
	x := fstest.New(t)
	must(t, x.FS.Mkdir(x.T, "/d", 0o755))
	f, err := x.FS.Create(x.T, "/d/f", 0o644)
	must(t, err)
	_, err = f.WriteAt(x.T, noise(3<<20), 0)
	must(t, err)
	must(t, f.Close(x.T))
	for _, c := range []struct {
		way string
		get func(c *Out, dir string) error
	}{
		{"onto it", func(c *Out, dir string) error { return c.Tree("/d/f", filepath.Join(dir, "f")) }},
		{"by a link", func(c *Out, dir string) error { return c.Tree("/d/f", filepath.Join(dir, "link")) }},
		{"into its directory", func(c *Out, dir string) error { return c.Into("/d/f", dir, "f") }},
		{"with a tree", func(c *Out, dir string) error { return c.Tree("/d", dir) }},
	} {
		for _, stop := range []bool{true, false} {
			dir := t.TempDir()
			at := filepath.Join(dir, "f")
			must(t, os.WriteFile(at, []byte("the only copy"), 0o640))
			must(t, os.Link(at, filepath.Join(dir, "other")))
			must(t, os.Symlink("f", filepath.Join(dir, "link")))
			w := &watch{t: t}
			if stop {
				w.stopAt = 4
			}
			err := c.get(NewOut(x.T, x.FS, w), dir)
			if stop != (err == errStop) {
				t.Errorf("%s: %v, stopped %v", c.way, err, stop)
			}
			have, err := os.ReadFile(at)
			must(t, err)
			other, err := os.ReadFile(filepath.Join(dir, "other"))
			must(t, err)
			if string(other) != "the only copy" || stop != (string(have) == "the only copy") || !stop && len(have) != 3<<20 {
				t.Errorf("%s, stopped %v: %d bytes, its other name %q", c.way, stop, len(have), other)
			}
			if names, err := os.ReadDir(dir); err != nil || len(names) != 3 {
				t.Errorf("%s: %v, %v", c.way, names, err)
			}
		}
	}
}

// A file of the host that is written over, longer and full of other bytes, has the new contents
// only: zeros in the holes, and the new end.
func TestOutOverAnOldFile(t *testing.T) {
	x := fstest.New(t)
	f, err := x.FS.Create(x.T, "/f", 0o644)
	must(t, err)
	want := make([]byte, 3<<20)
	for _, at := range []int{0, 1 << 20, 1<<20 + 3*hostBlock, 2<<20 + 5*hostBlock/2} {
		copy(want[at:], noise(3*hostBlock/2))
		_, err = f.WriteAt(x.T, want[at:at+3*hostBlock/2], int64(at))
		must(t, err)
	}
	must(t, f.Truncate(x.T, int64(len(want))))
	must(t, f.Close(x.T))
	dest := filepath.Join(t.TempDir(), "f")
	must(t, os.WriteFile(dest, noise(len(want)+12345), 0o644))
	must(t, NewOut(x.T, x.FS, &watch{t: t}).Tree("/f", dest))
	have, err := os.ReadFile(dest)
	must(t, err)
	if len(have) != len(want) {
		t.Errorf("%d bytes, want %d", len(have), len(want))
	}
	for i := range min(len(have), len(want)) {
		if have[i] != want[i] {
			t.Fatalf("byte %d: have %d want %d", i, have[i], want[i])
		}
	}
}

// The contents of one file, from an offset on, and all of it.
func TestWriteAndRead(t *testing.T) {
	x := fstest.New(t)
	f, err := x.FS.OpenFile(x.T, "/f", fs.O_RDWR|fs.O_CREAT, 0o644)
	must(t, err)
	data := noise(chunk + 3)
	must(t, Write(x.T, &watch{t: t}, f, bytes.NewReader(data), 4096))
	var b bytes.Buffer
	must(t, Read(x.T, &watch{t: t}, f, &b))
	if !bytes.Equal(b.Bytes(), append(make([]byte, 4096), data...)) {
		t.Errorf("read %d bytes, want 4096 zeros and what was written", b.Len())
	}
	must(t, f.Close(x.T))
}

// noted tells of every bio on its way to the device.
type noted struct {
	blockdev.Device
	note func(b *blockdev.Bio)
}

func (n noted) Submit(t *sched.Task, b *blockdev.Bio) {
	n.note(b)
	n.Device.Submit(t, b)
}

// TestOutLeavesOut: a tree from a damaged image comes out without what is damaged: the data of a
// file with two names, or the items of some files. Each is reported with its reason and leaves no
// stump on the host, and the rest is whole. Earlier the first bad block ended the copy, and the
// beginning of its file lay there as if it were the file.
func TestOutLeavesOut(t *testing.T) {
	var dev *dm.Flakey
	x := fstest.New(t, fstest.MkfsOptions(func(o *mkfs.Options) { o.MetadataProfile = "single" }), fstest.Faults(&dev))
	want := map[string][]byte{}
	put := func(name string, data []byte) {
		t.Helper()
		f, err := x.FS.Create(x.T, "/t/"+name, 0o644)
		must(t, err)
		_, err = f.WriteAt(x.T, data, 0)
		must(t, err)
		must(t, f.Close(x.T))
		want[name] = data
	}
	must(t, x.FS.Mkdir(x.T, "/t", 0o755))
	put("1-good", noise(70_000))
	put("2-bad", noise(3<<20))
	must(t, x.FS.Link(x.T, "/t/2-bad", "/t/3-bad"))
	want["3-bad"] = want["2-bad"]
	must(t, x.FS.Mkdir(x.T, "/t/4-dir", 0o755))
	for i := range 1000 { // many leaves
		put(fmt.Sprintf("4-dir/%04d", i), noise(100))
	}
	put("5-good", noise(80_000))
	x.Close()

	// copyOut copies the tree with faults, and compares what is there.
	// where a chunk of 2-bad is, and the first tree block that a file of 4-dir needs
	var data, leaf int64
	copyOut := func(what string, faults ...dm.Fault) (left []string) {
		t.Helper()
		w := &watch{t: t}
		f, err := fs.Open(x.T, []blockdev.Device{noted{dev, func(b *blockdev.Bio) {
			if len(w.names) == 0 || b.Op != blockdev.OpRead {
				return
			}
			switch name := w.names[len(w.names)-1]; {
			case strings.HasSuffix(name, "2-bad"):
				data = b.Off // the last: what is before it is read
			case strings.Contains(name, "4-dir/05"):
				leaf = b.Off
			}
		}}}, fs.Options{ReadOnly: true})
		must(t, err)
		dev.Set(faults...)
		dest := filepath.Join(t.TempDir(), "out")
		must(t, NewOut(x.T, f, w).Tree("/t", dest))
		dev.Set()
		must(t, f.Close(x.T))
		for _, l := range w.left {
			name := strings.TrimPrefix(l.Name, "/t/")
			left = append(left, name)
			if !errors.Is(l.Err, errno.EIO) {
				t.Errorf("%s: %s: have %v want %v", what, name, l.Err, errno.EIO)
			}
		}
		for name, b := range want {
			have, err := os.ReadFile(filepath.Join(dest, name))
			switch {
			case slices.Contains(left, name):
				if !errors.Is(err, iofs.ErrNotExist) {
					t.Errorf("%s: %s was left out and is on the host", what, name)
				}
			case err != nil || !bytes.Equal(have, b):
				t.Errorf("%s: %s: %d bytes, %v, want %d", what, name, len(have), err, len(b))
			}
		}
		return left
	}
	if left := copyOut("sound"); left != nil {
		t.Errorf("of a sound image %v are left out", left)
	}
	at := dm.Fault{Op: blockdev.OpRead, Start: data, End: data + 1}
	if left := copyOut("data", at); !slices.Equal(left, []string{"2-bad", "3-bad"}) {
		t.Errorf("with bad data of 2-bad %v are left out", left)
	}
	at = dm.Fault{Op: blockdev.OpRead, Start: leaf, End: leaf + 1}
	left := copyOut("items", at)
	if len(left) == 0 || len(left) > 500 || slices.ContainsFunc(left, func(s string) bool { return !strings.HasPrefix(s, "4-dir/0") }) {
		t.Errorf("with a bad leaf of 4-dir %d are left out, %.200v", len(left), left)
	}
}

// relink makes every entry with the given name in the leaves of the device lead to inode ino.
func relink(t *testing.T, task *sched.Task, dev blockdev.Device, name string, ino uint64) {
	t.Helper()
	n := format.Node(make([]byte, 16<<10))
	found := 0
	for off := int64(0); off+int64(len(n)) <= dev.Size(); off += int64(len(n)) {
		must(t, blockdev.Read(task, dev, n, off))
		if n.Nritems() == 0 || n.Level() != 0 || n.Csum() != n.ComputeCsum() {
			continue
		}
		changed := false
		for i := range n.Nritems() {
			if k := n.Key(i); k.Type != format.DIR_ITEM_KEY && k.Type != format.DIR_INDEX_KEY {
				continue
			}
			if d := format.DirItemView(n.Item(i)); string(d.Name()) == name {
				k := d.Location()
				k.Objectid = ino
				k.Encode(d)
				changed = true
				found++
			}
		}
		if changed {
			n.UpdateCsum(format.CsumCRC32C)
			must(t, blockdev.Write(task, dev, n, off))
		}
	}
	if found < 2 {
		t.Fatalf("%d entries with the name %q, want 2 at least", found, name)
	}
}

// TestOutCycle: on a damaged image a directory has an entry that leads to a directory above it, or
// to one that has another name. Linux refuses a second dentry of a directory; the copy followed the
// first until the host's names got too long, without a word of damage. Both names are left out with
// their paths, and all else is copied.
func TestOutCycle(t *testing.T) {
	x := fstest.New(t, fstest.NoCheck(), fstest.MkfsOptions(func(o *mkfs.Options) { o.MetadataProfile = "single" }))
	for _, d := range []string{"/t", "/t/a", "/t/a/b", "/t/a/b/loop", "/t/c", "/t/c/twin"} {
		must(t, x.FS.Mkdir(x.T, d, 0o755))
	}
	f := x.Create("/t/a/b/file")
	x.WriteAt(f, []byte("text"), 0)
	must(t, f.Close(x.T))
	ino := func(path string) uint64 {
		at, err := x.FS.Stat(x.T, path)
		must(t, err)
		return uint64(at.Ino)
	}
	a, b := ino("/t/a"), ino("/t/a/b")
	x.Close()
	relink(t, x.T, x.Dev, "loop", a)
	relink(t, x.T, x.Dev, "twin", b)
	damaged, err := fs.Open(x.T, []blockdev.Device{x.Dev}, fs.Options{ReadOnly: true})
	must(t, err)
	w, dest := &watch{t: t}, filepath.Join(t.TempDir(), "out")
	must(t, NewOut(x.T, damaged, w).Tree("/t", dest))
	must(t, damaged.Close(x.T))
	var have []string
	for _, l := range w.left {
		have = append(have, fmt.Sprint(l.Name, ": ", l.Err))
	}
	want := []string{
		fmt.Sprintf("/t/a/b/loop: bad directory /t/a/b/loop, have inode %d of /t/a want one of its own", a),
		fmt.Sprintf("/t/c/twin: bad directory /t/c/twin, have inode %d of /t/a/b want one of its own", b),
	}
	if !slices.Equal(have, want) {
		t.Errorf("left out\n%s\nwant\n%s", strings.Join(have, "\n"), strings.Join(want, "\n"))
	}
	if text, err := os.ReadFile(filepath.Join(dest, "a/b/file")); err != nil || string(text) != "text" {
		t.Errorf("a/b/file: have %q, %v", text, err)
	}
}

// TestOutSubvolumes: a tree goes out with the subvolumes in it, as btrfs restore does it, and with
// snapshots when they are wanted. A subvolume's name in a snapshot of its parent is an empty
// directory, as in Linux. The file numbers of subvolumes are alike: they are not hard links.
func TestOutSubvolumes(t *testing.T) {
	x := fstest.New(t, fstest.Image("../fs/testdata/nested.blocks.gz"), fstest.FSOptions(func(o *fs.Options) { o.ReadOnly = true }))
	always := map[string]string{"file": "top\n", "sub/file": "inner\n", "sub/d/deep/f": "deepest\n", "dir/src/one": "one\n"}
	snaps := map[string]string{"snap/one": "one\n", "ro/file": "inner\n", "ro/d/deep": ""}
	for _, snapshots := range []bool{false, true} {
		w, dest := &watch{t: t}, filepath.Join(t.TempDir(), "out")
		o := NewOut(x.T, x.FS, w)
		o.Snapshots = snapshots
		must(t, o.Tree("/", dest))
		for name, text := range always {
			if have, err := os.ReadFile(filepath.Join(dest, name)); err != nil || string(have) != text {
				t.Errorf("snapshots %v: %s: have %q, %v", snapshots, name, have, err)
			}
		}
		for name, text := range snaps {
			have, err := os.ReadFile(filepath.Join(dest, name))
			if st, serr := os.Stat(filepath.Join(dest, name)); text == "" && serr == nil && st.IsDir() {
				have, err = nil, nil
			}
			if (err == nil) != snapshots || snapshots && string(have) != text {
				t.Errorf("snapshots %v: %s: have %q, %v", snapshots, name, have, err)
			}
		}
		var left []string
		for _, l := range w.left {
			left = append(left, fmt.Sprintf("%s %v %v", l.Name, l.Snapshot, l.Err))
		}
		if want := []string{"/snap true <nil>", "/ro true <nil>"}; !snapshots && !slices.Equal(left, want) || snapshots && left != nil {
			t.Errorf("snapshots %v: left out %v", snapshots, left)
		}
	}
}

// A directory becomes a file system in one pass, and comes out as it was.
func TestScan(t *testing.T) {
	src, dest := hostTree(t), filepath.Join(t.TempDir(), "dest")
	w := &watch{t: t}
	x := scanned(t, NewScan(w), src, nil)
	must(t, NewOut(x.T, x.FS, &watch{t: t}).Tree("/", dest))
	have, want := facts(t, dest), facts(t, src)
	if len(w.left) > 0 || !maps.Equal(have, want) {
		t.Errorf("left out %v; have %.60q want %.60q", w.left, have, want)
	}
}

// scanned is the file system of src; between the listing and the making of it meanwhile is called.
func scanned(t *testing.T, s *Scan, src string, meanwhile func()) *fstest.Fixture {
	t.Helper()
	root, err := s.Tree(src)
	must(t, err)
	if meanwhile != nil {
		meanwhile()
	}
	dev := blockdev.NewMemory(128 << 20)
	_, err = s.Build(sched.NewTask("build"), dev, mkfs.Options{}, root)
	must(t, err)
	return fstest.New(t, fstest.Wrap(func(blockdev.Device) blockdev.Device { return dev }))
}

// What goes between the listing and the reading is left out, and the rest is there: another name of
// the same file is a file of its own then. A file that shrinks has zeros at its end.
func TestScanMeanwhile(t *testing.T) {
	src := hostTree(t)
	must(t, os.MkdirAll(filepath.Join(src, "gone/below"), 0o755))
	must(t, os.WriteFile(filepath.Join(src, "large"), noise(500000), 0o644))
	w := &watch{t: t}
	x := scanned(t, NewScan(w), src, func() {
		must(t, os.Remove(filepath.Join(src, "a")))
		must(t, os.RemoveAll(filepath.Join(src, "gone")))
		must(t, os.Truncate(filepath.Join(src, "large"), 300000))
	})
	var left []string
	for _, l := range w.left {
		left = append(left, strings.TrimPrefix(l.Name, src))
	}
	if want := []string{"/a", "/gone"}; !slices.Equal(left, want) {
		t.Errorf("left out %q want %q", left, want)
	}
	at, err := x.FS.Stat(x.T, "/d/second")
	if err != nil || at.Nlink != 1 || at.Size == 0 {
		t.Errorf("the other name: %+v, %v", at, err)
	}
	if at, err := x.FS.Stat(x.T, "/large"); err != nil || at.Size != 300000 {
		t.Errorf("large: %+v, %v", at, err)
	}
}

// Patterns are of names, or of paths below the source; owners and dates can be one for all.
func TestScanOptions(t *testing.T) {
	src := t.TempDir()
	for _, name := range []string{"a.o", "d/a.o", "d/a.c", "d/cache/x", "e/d/cache/x", "keep"} {
		must(t, os.MkdirAll(filepath.Dir(filepath.Join(src, name)), 0o755))
		must(t, os.WriteFile(filepath.Join(src, name), []byte(name), 0o644))
	}
	must(t, os.Chtimes(filepath.Join(src, "keep"), time.Unix(5, 0), time.Unix(3, 0)))
	w := &watch{t: t}
	s := NewScan(w)
	var err error
	s.Exclude, err = ParseExclude([]string{"*.o", "./d/cache/", "/e/x"})
	must(t, err)
	s.Owner, s.Date = &fs.Owner{UID: 7, GID: 8}, time.Unix(1000, 0)
	if st, err := os.Stat(filepath.Join(src, "d/a.c")); err == nil {
		s.Image = st
	}
	x := scanned(t, s, src, nil)
	for name, want := range map[string]bool{"a.o": false, "d/a.o": false, "d/a.c": false, "d/cache": false, "e/d/cache/x": true, "keep": true} {
		at, err := x.FS.Stat(x.T, "/"+name)
		if (err == nil) != want {
			t.Errorf("%s: %v", name, err)
		}
		date := time.Unix(1000, 0)
		if name == "keep" {
			date = time.Unix(3, 0)
		}
		if want && (at.UID != 7 || at.GID != 8 || !at.Mtime.Equal(date) || !at.Atime.Equal(date)) {
			t.Errorf("%s: %+v", name, at)
		}
	}
	if len(w.left) != 1 || !errors.Is(w.left[0].Err, errIsImage) {
		t.Errorf("left out %v", w.left)
	}
	in := NewIn(x.T, x.FS, &watch{t: t})
	in.Exclude = s.Exclude
	must(t, in.Tree(src, "/put"))
	for name, want := range map[string]bool{"a.o": false, "d/a.c": true, "d/cache": false, "e/d/cache/x": true} {
		if _, err := x.FS.Stat(x.T, "/put/"+name); (err == nil) != want {
			t.Errorf("put: %s: %v", name, err)
		}
	}
	for _, bad := range []string{"", "/", "[", "./"} {
		if _, err := ParseExclude([]string{bad}); err == nil {
			t.Errorf("pattern %q is taken", bad)
		}
	}
}

// A copy ends when it is told to, whichever task is told.
func TestOutStopsAnywhere(t *testing.T) {
	x := fstest.New(t)
	must(t, NewIn(x.T, x.FS, &watch{t: t}).Tree(hostTree(t), "/tree"))
	for n := int64(1); ; n++ {
		w := &watch{t: t, stopAt: n}
		err := NewOut(x.T, x.FS, w).Tree("/tree", filepath.Join(t.TempDir(), "dest"))
		if w.asked.Load() < n {
			break
		}
		if err != errStop {
			t.Errorf("stopped at question %d: %v", n, err)
		}
	}
}

// What the host cannot read is left out, whatever the errno; the same errno of the image ends the
// transfer.
func TestLeave(t *testing.T) {
	w := &watch{t: t}
	c := count{w: w}
	must(t, c.leave("bad sector", &iofs.PathError{Op: "read", Path: "x", Err: syscall.EIO}))
	must(t, c.leave("refused", &errno.OpError{Op: "create", Err: errno.ENAMETOOLONG}))
	must(t, c.leave("nothing", nil))
	for _, end := range []error{&errno.OpError{Op: "write", Err: errno.EIO}, errno.ENOSPC, errStop} {
		if err := c.leave("x", end); err != end {
			t.Errorf("%v: %v", end, err)
		}
	}
	if len(w.left) != 2 {
		t.Errorf("left out %v", w.left)
	}
}

// TestSparseWriter: zeros at the end of a buffer are a hole, and what comes in the next buffer
// stands after it.
func TestSparseWriter(t *testing.T) {
	f, err := os.Create(filepath.Join(t.TempDir(), "f"))
	must(t, err)
	defer f.Close()
	a, b := noise(hostBlock), noise(100)
	s := &sparseWriter{f: f}
	for _, p := range [][]byte{append(slices.Clone(a), make([]byte, hostBlock)...), b} {
		if n, err := s.Write(p); n != len(p) || err != nil {
			t.Fatal(n, err)
		}
	}
	have, err := os.ReadFile(f.Name())
	must(t, err)
	if want := slices.Concat(a, make([]byte, hostBlock), b); !bytes.Equal(have, want) {
		t.Errorf("%d bytes, want %d with a hole in the middle", len(have), len(want))
	}
}

// TestIntoNothing: what is not there is said, for a file and for a directory, and nothing is made
// on the host; nor where the folder of the host is not there.
func TestIntoNothing(t *testing.T) {
	x := fstest.New(t)
	must(t, x.FS.Mkdir(x.T, "/d", 0o755))
	for _, k := range []struct{ path, dir string }{{"/nothing", "."}, {"/d/nothing", "."}, {"/d", "missing"}} {
		top := t.TempDir()
		err := NewOut(x.T, x.FS, &watch{t: t}).Into(k.path, filepath.Join(top, k.dir), "out")
		if !errors.Is(err, errno.ENOENT) && !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s into %s: %v", k.path, k.dir, err)
		}
		if list, err := os.ReadDir(top); err != nil || len(list) > 0 {
			t.Errorf("%s into %s leaves %v, %v", k.path, k.dir, list, err)
		}
	}
}
