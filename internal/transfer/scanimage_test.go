//go:build unix

package transfer

import (
	"bytes"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"

	"btrlab/internal/blockdev"
	"btrlab/internal/compress"
	"btrlab/internal/errno"
	"btrlab/internal/format"
	"btrlab/internal/fs"
	"btrlab/internal/progs/mkfs"
	"btrlab/internal/sched"
	"btrlab/internal/testing/fstest"
)

// sourceImage is an image with what a file system can have: subvolumes, one the default one, a
// snapshot, links, holes, compression, flags.
func sourceImage(t *testing.T) *fstest.Fixture {
	x := fstest.New(t)
	must(t, NewIn(x.T, x.FS, &watch{t: t}).Tree(hostTree(t), "/tree"))
	x.Must(x.FS.Mknod(x.T, "/tree/null", format.S_IFCHR|0o666, 1<<20|3))
	x.Must(x.FS.Chown(x.T, "/tree/d", 1<<31, 99))
	x.Must(x.FS.Setxattr(x.T, "/tree/a", "user.bytes", []byte("\x00=\n\xff")))
	x.Must(x.FS.Link(x.T, "/tree/null", "/tree/d/null"))
	f := x.Create("/tree/large")
	x.Must(f.SetFlags(x.T, format.InodeNoDataCow))
	x.WriteAt(f, noise(3<<20), 1<<20)
	x.WriteAt(f, []byte("end"), 9<<20)
	x.Must(f.Fallocate(x.T, 1, 10<<20, 1<<20)) // KEEP_SIZE: allocated beyond the end
	x.Must(f.Close(x.T))
	f = x.Create("/tree/packed")
	x.Must(x.FS.Setxattr(x.T, "/tree/packed", fs.Compression, []byte("zstd")))
	x.WriteAt(f, bytes.Repeat([]byte("packed "), 100_000), 0)
	x.Must(f.Close(x.T))
	for _, name := range []string{"/sub", "/sub/below", "/other"} {
		x.Must(x.FS.Subvolume(x.T, name, 0o750))
		f := x.Create(name + "/file")
		x.WriteAt(f, []byte(name), 0)
		x.Must(f.Close(x.T))
	}
	x.Must(x.FS.Sync(x.T))
	x.Must(x.FS.Snapshot(x.T, "/sub", "/sub.1", true))
	at, err := x.FS.Stat(x.T, "/other")
	x.Must(err)
	x.Must(x.FS.SetDefaultSubvolume(x.T, at.Subvol))
	return x
}

// A file system that is made of an image has its tree, names of one inode, subvolumes and holes,
// and is sound; its own features and compression are what it is made with.
func TestScanFrom(t *testing.T) {
	x := sourceImage(t)
	for _, snapshots := range []bool{false, true} {
		w := &watch{t: t}
		s := NewScan(w)
		s.Snapshots = snapshots
		root, err := s.From(x.T, x.FS, "/")
		must(t, err)
		m, err := compress.Parse("zstd")
		must(t, err)
		z := opened(t, s, root, mkfs.Options{Compress: m})
		sub, err := z.FS.Subvolumes(z.T)
		must(t, err)
		have := map[string]bool{}
		for _, v := range sub {
			have[v.Path] = v.ReadOnly
		}
		want := 3
		if snapshots {
			want = 4
			if at, err := z.FS.Lstat(z.T, "/sub.1/below"); err != nil || !at.IsDir() || string(z.ReadFile("/sub.1/file")) != "/sub" {
				t.Errorf("the snapshot: %+v, %v", at, err)
			}
		} else if len(w.left) != 1 || !w.left[0].Snapshot || w.left[0].Name != "/sub.1" {
			t.Errorf("left out %+v, want the snapshot", w.left)
		}
		if len(have) != want || have["/sub"] || have["/sub/below"] || have["/other"] || have["/sub.1"] != snapshots {
			t.Errorf("snapshots %t: subvolumes and whether they are read-only: %v", snapshots, have)
		}
		id, err := z.FS.DefaultSubvolume(z.T)
		must(t, err)
		if at, err := z.FS.Stat(z.T, "/other"); err != nil || at.Subvol != id {
			t.Errorf("subvolume %d is the default one, %v, want %d", id, err, at.Subvol)
		}
		if string(z.ReadFile("/other/file")) != "/other" {
			t.Error("/other/file is not what it was")
		}
		for _, path := range []string{"/tree", "/sub"} {
			sameTrees(t, path, x, z, path)
		}
		at, err := z.FS.Stat(z.T, "/tree/large")
		if err != nil || at.Nbytes > 3<<20+16<<10 || at.Flags&format.InodeNoDataCow == 0 {
			t.Errorf("large: %+v, %v: want its holes, and NOCOW", at, err)
		}
	}
}

// A part of an image, with owners and exclusions of one's own; what is no directory is refused.
func TestScanFromPart(t *testing.T) {
	x := sourceImage(t)
	s := NewScan(&watch{t: t})
	s.Exclude, s.Owner = Exclude{"below", "a"}, &fs.Owner{UID: 5, GID: 6}
	root, err := s.From(x.T, x.FS, "/sub")
	must(t, err)
	z := opened(t, s, root, mkfs.Options{})
	if at, err := z.FS.Lstat(z.T, "/file"); err != nil || at.UID != 5 || at.GID != 6 || string(z.ReadFile("/file")) != "/sub" {
		t.Errorf("/file: %+v, %v", at, err)
	}
	if _, err := z.FS.Lstat(z.T, "/below"); !errors.Is(err, errno.ENOENT) {
		t.Errorf("/below: %v", err)
	}
	if _, err := s.From(x.T, x.FS, "/tree/a"); err == nil || !strings.Contains(err.Error(), "no directory") {
		t.Errorf("a file as the source: %v", err)
	}
	if _, err := s.From(x.T, x.FS, "/none"); !errors.Is(err, errno.ENOENT) {
		t.Errorf("no source: %v", err)
	}
}

// Several workers read pieces of one file at a time, each as a task of its own. As one task they
// made lockdep panic, and the race detector sees them. A file of 1 GB had stayed in memory whole.
func TestScanFromPieces(t *testing.T) {
	x := sourceImage(t)
	root, err := NewScan(&watch{t: t}).From(x.T, x.FS, "/tree")
	must(t, err)
	i := slices.IndexFunc(root.Entries, func(e *mkfs.Entry) bool { return e.Name == "large" })
	large := root.Entries[i]
	from := large.Source.(*source).from.(*imageInode)
	want := x.ReadFile("/tree/large")
	for range 20 {
		o, err := from.open(large)
		must(t, err)
		f := o.(*imaged).f
		f.DropCache(x.T, 0, int64(len(want)))
		const piece = 128 << 10
		var workers sync.WaitGroup
		for n := range 4 {
			workers.Go(func() {
				p := make([]byte, piece)
				for off := n * piece; off+piece <= len(want); off += 4 * piece {
					if _, err := o.ReadAt(p, int64(off)); err != nil || !bytes.Equal(p, want[off:off+piece]) {
						t.Errorf("%d bytes at %d are not those of the file, %v", piece, off, err)
					}
				}
			})
		}
		workers.Wait()
		if n := f.Inode().Pages.Pages(); n > 4*64 {
			t.Errorf("%d pages of the file are in memory after it was read, want what was read ahead at most", n)
		}
		must(t, o.Close())
	}
}

// A file whose data is damaged is left out whole, and the rest is there.
func TestScanFromDamaged(t *testing.T) {
	x := fstest.New(t, fstest.NoCheck())
	for _, name := range []string{"/bad", "/good"} {
		f := x.Create(name)
		x.WriteAt(f, noise(64<<10), 0)
		x.Must(f.Fsync(x.T))
		x.Must(f.Close(x.T))
	}
	x.Must(x.FS.Sync(x.T))
	f := x.Open("/bad")
	dev, at, _, ok := f.Lies(x.T, 8192)
	if !ok {
		t.Fatal("the data lies nowhere")
	}
	x.Must(f.Close(x.T))
	x.Must(blockdev.Write(x.T, dev, make([]byte, 4096), at))
	x.FS.DropCaches(x.T)
	w := &watch{t: t}
	s := NewScan(w)
	root, err := s.From(x.T, x.FS, "/")
	must(t, err)
	z := opened(t, s, root, mkfs.Options{})
	if len(w.left) != 1 || w.left[0].Name != "/bad" || w.left[0].Err == nil {
		t.Errorf("left out %+v, want /bad with its error", w.left)
	}
	if _, err := z.FS.Lstat(z.T, "/bad"); !errors.Is(err, errno.ENOENT) {
		t.Errorf("/bad: %v", err)
	}
	if !bytes.Equal(z.ReadFile("/good"), noise(64<<10)) {
		t.Error("/good is not what it was")
	}
}

// A directory that is damaged so that an entry leads to one above it, or has a name that leads out,
// is left out by name, and the new file system has the rest.
func TestScanFromBadNames(t *testing.T) {
	x := fstest.New(t, fstest.NoCheck(), fstest.MkfsOptions(func(o *mkfs.Options) { o.MetadataProfile = "single" }))
	for _, d := range []string{"/t", "/t/a", "/t/a/loop", "/t/zz"} {
		must(t, x.FS.Mkdir(x.T, d, 0o755))
	}
	f := x.Create("/t/a/file")
	x.WriteAt(f, []byte("text"), 0)
	must(t, f.Close(x.T))
	at, err := x.FS.Stat(x.T, "/t/a")
	must(t, err)
	x.Close()
	relink(t, x.T, x.Dev, "loop", uint64(at.Ino))
	rename(t, x.T, x.Dev, "zz", "..")
	damaged, err := fs.Open(x.T, []blockdev.Device{x.Dev}, fs.Options{ReadOnly: true})
	must(t, err)
	w := &watch{t: t}
	s := NewScan(w)
	root, err := s.From(x.T, damaged, "/")
	must(t, err)
	z := opened(t, s, root, mkfs.Options{})
	must(t, damaged.Close(x.T))
	var left []string
	for _, l := range w.left {
		left = append(left, l.Name+": "+l.Err.Error())
	}
	text := strings.Join(left, "\n")
	if len(left) != 2 || !strings.Contains(text, `directory /t has the name ".."`) || !strings.Contains(text, "/t/a/loop: bad directory /t/a/loop") {
		t.Errorf("left out\n%s", text)
	}
	if string(z.ReadFile("/t/a/file")) != "text" {
		t.Error("the file is not what it was")
	}
	list, err := z.FS.ReadDir(z.T, "/t")
	if err != nil || len(list) != 1 {
		t.Errorf("/t has %v, %v", list, err)
	}
}

// rename gives every entry of a name in the indices of the device another one of the same length.
func rename(t *testing.T, task *sched.Task, dev blockdev.Device, from, to string) {
	t.Helper()
	n := format.Node(make([]byte, 16<<10))
	for off := int64(0); off+int64(len(n)) <= dev.Size(); off += int64(len(n)) {
		must(t, blockdev.Read(task, dev, n, off))
		if n.Nritems() == 0 || n.Level() != 0 || n.Csum() != n.ComputeCsum() {
			continue
		}
		for i := range n.Nritems() {
			if n.Key(i).Type == format.DIR_INDEX_KEY && string(format.DirItemView(n.Item(i)).Name()) == from {
				copy(format.DirItemView(n.Item(i)).Name(), to)
				n.UpdateCsum(format.CsumCRC32C)
				must(t, blockdev.Write(task, dev, n, off))
			}
		}
	}
}
