package fs_test

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"btrlab/internal/errno"
	"btrlab/internal/format"
	"btrlab/internal/fs"
	"btrlab/internal/progs/dump"
	"btrlab/internal/progs/mkfs"
	"btrlab/internal/testing/fstest"
	"btrlab/internal/testing/need"
)

// volume is the right content of a subvolume: its files.
type volume struct {
	path     string
	readOnly bool
	files    map[string][]byte
	nocow    map[string]bool
}

func (v *volume) copy(path string, readOnly bool) *volume {
	c := &volume{path: path, readOnly: readOnly, files: map[string][]byte{}, nocow: maps.Clone(v.nocow)}
	for name, b := range v.files {
		c.files[name] = bytes.Clone(b)
	}
	return c
}

// world is a file system with subvolumes beside the slices that they should be.
type world struct {
	*fstest.Fixture
	r    *rand.Rand
	vols []*volume
	made int
}

// writable picks a subvolume that takes writes.
func (w *world) writable() *volume {
	for {
		if v := w.vols[w.r.IntN(len(w.vols))]; !v.readOnly {
			return v
		}
	}
}

// file picks a file of v, "" when it has none.
func (w *world) file(v *volume) string {
	names := slices.Sorted(maps.Keys(v.files))
	if len(names) == 0 {
		return ""
	}
	return names[w.r.IntN(len(names))]
}

const volumeFileMax = 200 << 10

func (w *world) write(v *volume) {
	name := w.file(v)
	if name == "" || w.r.IntN(4) == 0 {
		name = fmt.Sprintf("f%d", w.r.IntN(12))
	}
	f, err := w.FS.OpenFile(w.T, v.path+"/"+name, fs.O_RDWR|fs.O_CREAT, 0o644)
	w.Must(err)
	if _, there := v.files[name]; !there {
		v.files[name] = nil
		if v.nocow[name] = w.r.IntN(2) == 0; v.nocow[name] {
			w.Must(f.SetFlags(w.T, format.InodeNoDataCow))
		}
	}
	off, n := w.r.IntN(volumeFileMax), 1+w.r.IntN(40<<10)
	if w.r.IntN(2) == 0 {
		off, n = off&^4095, (n+4095)&^4095
	}
	if w.r.IntN(6) == 0 {
		off, n = 0, 1+w.r.IntN(2000) // an inline extent, if the file is new
	}
	p := make([]byte, n)
	fstest.Random(w.r, p)
	w.WriteAt(f, p, int64(off))
	b := v.files[name]
	b = append(b, make([]byte, max(off+n-len(b), 0))...)
	copy(b[off:], p)
	v.files[name] = b
	if w.r.IntN(8) == 0 {
		w.Must(f.Fsync(w.T))
	}
	w.Must(f.Close(w.T))
}

func (w *world) reflink() {
	from, to := w.vols[w.r.IntN(len(w.vols))], w.writable()
	src, dst := w.file(from), w.file(to)
	if src == "" || dst == "" || from.nocow[src] != to.nocow[dst] {
		return
	}
	s, d := from.files[src], to.files[dst]
	off := w.r.IntN(len(s)/4096+1) * 4096
	n, at := (1+w.r.IntN(8))*4096, w.r.IntN(volumeFileMax/4096)*4096
	if w.r.IntN(3) == 0 {
		off, n, at = 0, len(s), 0
	}
	sf, err := w.FS.OpenFile(w.T, from.path+"/"+src, fs.O_RDONLY, 0)
	w.Must(err)
	df, err := w.FS.OpenFile(w.T, to.path+"/"+dst, fs.O_RDWR, 0)
	w.Must(err)
	whole := (n + 4095) &^ 4095
	same := from == to && src == dst
	ok := n > 0 && off < len(s) && n <= len(s)-off && !(same && at+whole > off && at < off+whole) && (n%4096 == 0 || off+n == len(s) && at+n >= len(d))
	err = df.Reflink(w.T, sf, int64(off), int64(n), int64(at))
	if n == 0 {
		w.Must(err)
	} else if !ok && !errors.Is(err, errno.EINVAL) || ok && err != nil {
		w.Fatalf("reflink %s/%s %d+%d of %d to %s/%s at %d of %d: %v, may %v", from.path, src, off, n, len(s), to.path, dst, at, len(d), err, ok)
	}
	if ok {
		piece := bytes.Clone(s[off : off+n])
		d = append(d, make([]byte, max(at+n-len(d), 0))...)
		copy(d[at:], piece)
		to.files[dst] = d
	}
	w.Must(errors.Join(sf.Close(w.T), df.Close(w.T)))
}

func (w *world) step() {
	switch v := w.writable(); w.r.IntN(24) {
	default:
		w.write(v)
	case 11, 12, 13, 14:
		w.reflink()
	case 15, 16:
		if name := w.file(v); name != "" {
			n := w.r.IntN(len(v.files[name]) + 5000)
			f := w.Open(v.path + "/" + name)
			w.Must(f.Truncate(w.T, int64(n)))
			w.Must(f.Close(w.T))
			b := v.files[name]
			v.files[name] = append(b[:min(n, len(b))], make([]byte, max(n-len(b), 0))...)
		}
	case 17:
		if name := w.file(v); name != "" {
			w.Must(w.FS.Unlink(w.T, v.path+"/"+name))
			delete(v.files, name)
			delete(v.nocow, name)
		}
	case 18, 19:
		if len(w.vols) < 7 {
			src := w.vols[w.r.IntN(len(w.vols))]
			w.made++
			path, ro := fmt.Sprintf("/s%d", w.made), w.r.IntN(3) == 0
			w.Must(w.FS.Snapshot(w.T, "/"+strings.TrimPrefix(src.path, "/"), path, ro))
			w.vols = append(w.vols, src.copy(path, ro))
		}
	case 20:
		if i := w.r.IntN(len(w.vols)); i > 0 {
			w.Must(w.FS.DeleteSubvolume(w.T, w.vols[i].path))
			w.vols = slices.Delete(w.vols, i, i+1)
		}
	case 21:
		w.FS.DropCaches(w.T)
	case 22:
		w.Must(w.FS.Sync(w.T))
	case 23:
		if name := w.file(v); name != "" {
			f := w.Open(v.path + "/" + name)
			off, n := w.r.IntN(volumeFileMax), 1+w.r.IntN(60<<10)
			w.Must(f.Fallocate(w.T, fs.FALLOC_FL_KEEP_SIZE, int64(off), int64(n)))
			w.Must(f.Close(w.T))
		}
	}
}

func (w *world) compare() {
	w.Helper()
	for _, v := range w.vols {
		for name, want := range v.files {
			if have := w.ReadFile(v.path + "/" + name); !bytes.Equal(have, want) {
				w.Fatalf("%s/%s has %d bytes, want %d%s", v.path, name, len(have), len(want), fstest.DiffAt(have, want))
			}
		}
	}
}

// Files of the top-level subvolume, of snapshots and of snapshots of these change at random, share
// extents and go; each subvolume keeps its own bytes, and the fixture checks the references of
// every image.
func TestSnapshotModel(t *testing.T) {
	need.Long(t)
	seeds := []uint64{1, 2, 3, 4}
	if testing.Short() {
		seeds = seeds[:2]
	}
	for _, seed := range seeds {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) { snapshotModel(t, fstest.New(t), seed, 600) })
	}
	for _, v := range fstest.Variants() {
		t.Run(v.Name, func(t *testing.T) {
			x := fstest.New(t, v.Option)
			x.Must(x.FS.EnableQuota(x.T)) // the checker comes to the same counts
			snapshotModel(t, x, 1, 150)
		})
	}
}

func snapshotModel(t *testing.T, x *fstest.Fixture, seed uint64, steps int) {
	w := &world{Fixture: x, r: rand.New(rand.NewPCG(seed, 9))}
	top := &volume{files: map[string][]byte{}, nocow: map[string]bool{}}
	w.vols = []*volume{top}
	for i := range 120 { // several leaves, which snapshots share
		name := fmt.Sprintf("g%d", i)
		b := make([]byte, 1+w.r.IntN(3000))
		fstest.Random(w.r, b)
		f := w.Create("/" + name)
		w.WriteAt(f, b, 0)
		w.Must(f.Close(w.T))
		top.files[name] = b
	}
	for i := range steps {
		w.step()
		if i%150 == 149 {
			w.compare()
			w.Reopen()
			w.compare()
		}
	}
}

// A deep tree: snapshots of a directory with many files share whole subtrees, which both sides then
// change block by block.
func TestSnapshotTree(t *testing.T) {
	need.LongRaced(t)
	x := fstest.New(t)
	put := func(path string, b byte) {
		f := x.Create(path)
		x.WriteAt(f, bytes.Repeat([]byte{b}, 3000), 0)
		x.Must(f.Close(x.T))
	}
	const n = 900
	for i := range n {
		put(fmt.Sprintf("/f%d", i), 'a')
	}
	x.Must(x.FS.Snapshot(x.T, "/", "/s1", false))
	for i := 0; i < n; i += 3 {
		put(fmt.Sprintf("/s1/f%d", i), 'b')
	}
	x.Reopen()
	x.Must(x.FS.Snapshot(x.T, "/s1", "/s2", false))
	for i := 0; i < n; i += 5 {
		put(fmt.Sprintf("/f%d", i), 'c')
		x.Must(x.FS.Unlink(x.T, fmt.Sprintf("/s2/f%d", i)))
	}
	x.Reopen()
	want := func(vol string, i int) byte {
		switch {
		case vol == "/" && i%5 == 0:
			return 'c'
		case vol == "/" || i%3 != 0:
			return 'a'
		}
		return 'b'
	}
	for _, vol := range []string{"/", "/s1/", "/s2/"} {
		for i := range n {
			path := fmt.Sprintf("%sf%d", vol, i)
			if vol == "/s2/" && i%5 == 0 {
				if _, err := x.FS.Stat(x.T, path); !errors.Is(err, errno.ENOENT) {
					t.Fatalf("%s: %v, want it gone", path, err)
				}
				continue
			}
			if b := x.ReadFile(path); len(b) != 3000 || b[0] != want(vol, i) || b[2999] != want(vol, i) {
				t.Fatalf("%s has %d bytes of %q, want 3000 of %q", path, len(b), b[0], want(vol, i))
			}
		}
	}
	// The original goes before what shares with it.
	x.Must(x.FS.DeleteSubvolume(x.T, "/s1"))
	x.Reopen()
	if b := x.ReadFile("/s2/f3"); b[0] != 'b' {
		t.Fatalf("/s2/f3 has %q after its original was deleted", b[0])
	}
	x.Must(x.FS.DeleteSubvolume(x.T, "/s2"))
}

// What may not be done with subvolumes.
func TestSubvolumeErrors(t *testing.T) {
	x := fstest.New(t)
	f, tk := x.FS, x.T
	x.Must(f.Mkdir(tk, "/dir", 0o755))
	x.Must(f.Subvolume(tk, "/sub", 0o755))
	x.Must(f.Subvolume(tk, "/sub/inner", 0o755))
	x.Must(f.Snapshot(tk, "/sub", "/ro", true))
	x.Create("/sub/file").Close(tk)
	open := x.Create("/sub/inner/open")
	for _, c := range []struct {
		what string
		err  error
		want error
	}{
		{"snapshot of a directory", f.Snapshot(tk, "/dir", "/x", false), errno.EINVAL},
		{"snapshot over a name", f.Snapshot(tk, "/sub", "/dir", false), errno.EEXIST},
		{"snapshot into a read-only one", f.Snapshot(tk, "/sub", "/ro/x", false), errno.EROFS},
		{"write into a read-only one", f.Mkdir(tk, "/ro/x", 0o755), errno.EROFS},
		{"delete a directory as a subvolume", f.DeleteSubvolume(tk, "/dir"), errno.EINVAL},
		{"delete a subvolume with another in it", f.DeleteSubvolume(tk, "/sub"), errno.ENOTEMPTY},
		{"delete a subvolume with an open file", f.DeleteSubvolume(tk, "/sub/inner"), errno.EBUSY},
		{"rmdir of a subvolume", f.Rmdir(tk, "/ro"), errno.ENOTEMPTY},
	} {
		wantErr(t, c.what, c.err, c.want)
	}
	x.Must(open.Close(tk))
	x.Must(f.DeleteSubvolume(tk, "/sub/inner"))
	x.Must(f.DeleteSubvolume(tk, "/sub"))
	list, err := f.Subvolumes(tk)
	x.Must(err)
	if len(list) != 1 || list[0].Path != "/ro" || !list[0].ReadOnly || !list[0].Snapshot() {
		t.Errorf("subvolumes: %+v, want /ro alone", list)
	}
	var root bytes.Buffer
	x.Must(dump.Tree(tk, &root, x.Dev, "root"))
	if strings.Contains(root.String(), "ORPHAN") {
		t.Errorf("dropped trees are still waiting to be dropped:\n%s", root.String())
	}
}

// The root item of what is made here says that its flags count. It did not, and Linux took a
// read-only snapshot for a writable one.
func TestSnapshotFlagsCount(t *testing.T) {
	x := fstest.New(t)
	x.Must(x.FS.Subvolume(x.T, "/sub", 0o755))
	x.Must(x.FS.Snapshot(x.T, "/", "/top", true))
	x.Must(x.FS.Snapshot(x.T, "/sub", "/ro", true))
	list, err := x.FS.Subvolumes(x.T)
	x.Must(err)
	for _, s := range list {
		it, err := x.FS.RootItem(x.T, s.ID)
		x.Must(err)
		if it.Inode.Flags&format.InodeRootItemInit == 0 || s.ReadOnly != (s.Path != "/sub") {
			t.Errorf("%s: read-only %v, inode flags %#x want %#x", s.Path, s.ReadOnly, it.Inode.Flags, uint64(format.InodeRootItemInit))
		}
	}
}

// Snapshots of one call are those of as many calls, one in the next, in as few commits as there is
// place for; those before one that fails are made.
func TestSnapshots(t *testing.T) {
	fstest.OneTask(t)
	for _, c := range []struct {
		name    string
		size    int64
		node    int
		quota   bool
		commits uint64 // at least
		most    uint64
	}{
		{"one commit", 1 << 30, 4096, false, 1, 1},
		{"quota", 1 << 30, 4096, true, 1, 1},
		{"little place", 256 << 20, 65536, false, 3, 40},
	} {
		t.Run(c.name, func(t *testing.T) {
			x := fstest.New(t, fstest.Size(c.size), fstest.MkfsOptions(func(o *mkfs.Options) { o.NodeSize = c.node }))
			if c.quota {
				x.Must(x.FS.EnableQuota(x.T))
			}
			x.WriteAt(x.Create("/f"), []byte("before"), 0)
			var paths []string
			for i := range 60 {
				paths = append(paths, fmt.Sprintf("/s%02d", i))
			}
			gen := x.FS.Super(x.T).Generation
			if n := fstest.Must(x.FS.Snapshots(x.T, "/", paths, false)); n != len(paths) {
				t.Fatalf("%d are made", n)
			}
			if n := x.FS.Super(x.T).Generation - gen; n < c.commits || n > c.most {
				t.Errorf("%d commits, want %d to %d", n, c.commits, c.most)
			}
			x.WriteAt(x.Open("/f"), []byte("after "), 0)
			x.WriteAt(x.Open("/s30/f"), []byte("its own"), 0)
			for i, p := range paths {
				want := "before"
				if i == 30 {
					want = "its own"
				}
				if have := x.ReadFile(p + "/f"); string(have) != want {
					t.Errorf("%s has %q", p, have)
				}
				if names := fstest.Must(x.FS.ReadDir(x.T, p)); len(names) != i+1 {
					t.Errorf("%s has %d names, want %d", p, len(names), i+1)
				}
			}
			n, err := x.FS.Snapshots(x.T, "/", []string{"/t1", "/t2", "/t1", "/t3"}, false)
			if n != 2 || !errors.Is(err, errno.EEXIST) || !strings.Contains(err.Error(), "/t1") {
				t.Errorf("%d are made: %v", n, err)
			}
			if _, err := x.FS.Stat(x.T, "/t3"); !errors.Is(err, errno.ENOENT) {
				t.Errorf("one after it: %v", err)
			}
			x.Must(x.FS.Subvolume(x.T, "/t3", 0o755)) // the next index of the directory
			if c.quota {
				fstest.JudgedQuota(x)
			}
		})
	}
}
