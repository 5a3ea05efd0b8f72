package fs_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"btrlab/internal/blockdev"
	"btrlab/internal/errno"
	"btrlab/internal/format"
	"btrlab/internal/fs"
	"btrlab/internal/sched"
	"btrlab/internal/testing/datatest"
	"btrlab/internal/testing/fstest"
)

func wantErr(t *testing.T, what string, have, want error) {
	t.Helper()
	if !errors.Is(have, want) {
		t.Errorf("%s: have %v want %v", what, have, want)
	}
}

func names(x *fstest.Fixture, dir string) string {
	x.Helper()
	list, err := x.FS.ReadDir(x.T, dir)
	x.Must(err)
	var s []string
	for _, e := range list {
		s = append(s, e.Name)
	}
	return strings.Join(s, " ")
}

// TestNames walks through the namespace operations and the answers of their wrong uses.
func TestNames(t *testing.T) {
	x := fstest.New(t)
	f, tk := x.FS, x.T
	x.Must(f.Mkdir(tk, "/a", 0o755))
	x.Must(f.Mkdir(tk, "/a/b", 0o700))
	x.Must(x.Create("/a/b/file").Close(tk))
	x.Must(f.Symlink(tk, "b/file", "/a/link"))
	x.Must(f.Symlink(tk, "/a/b", "/dir"))
	x.Must(f.Symlink(tk, "loop2", "/loop1"))
	x.Must(f.Symlink(tk, "loop1", "/loop2"))

	wantErr(t, "mkdir over a name", f.Mkdir(tk, "/a", 0o755), errno.EEXIST)
	wantErr(t, "mkdir below nothing", f.Mkdir(tk, "/x/y", 0o755), errno.ENOENT)
	wantErr(t, "mkdir below a file", f.Mkdir(tk, "/a/b/file/c", 0o755), errno.ENOTDIR)
	wantErr(t, "rmdir of a full directory", f.Rmdir(tk, "/a"), errno.ENOTEMPTY)
	wantErr(t, "rmdir of a file", f.Rmdir(tk, "/a/b/file"), errno.ENOTDIR)
	wantErr(t, "unlink of a directory", f.Unlink(tk, "/a/b"), errno.EISDIR)
	wantErr(t, "unlink of nothing", f.Unlink(tk, "/a/c"), errno.ENOENT)
	wantErr(t, "a long name", f.Mkdir(tk, "/"+strings.Repeat("n", 256), 0o755), errno.ENAMETOOLONG)
	_, err := f.Stat(tk, "/loop1")
	wantErr(t, "a loop of links", err, errno.ELOOP)
	_, err = f.OpenFile(tk, "/a", fs.O_RDONLY, 0)
	wantErr(t, "open a directory", err, errno.EISDIR)
	_, err = f.OpenFile(tk, "/a/b/file", fs.O_RDWR|fs.O_CREAT|fs.O_EXCL, 0o644)
	wantErr(t, "create what exists", err, errno.EEXIST)
	wantErr(t, "link to a directory", f.Link(tk, "/a", "/l"), errno.EPERM)
	wantErr(t, "rename below itself", f.Rename(tk, "/a", "/a/b/c"), errno.EINVAL)
	wantErr(t, "rename over a full directory", f.Rename(tk, "/a/b", "/a"), errno.ENOTEMPTY)

	for _, p := range []string{"/a/link", "/dir/file", "/dir/../b/file", "//a//b/./file"} {
		ino, err := f.Lookup(tk, p)
		want, _ := f.Lookup(tk, "/a/b/file")
		if err != nil || ino != want {
			t.Errorf("lookup %s: have %d, %v want %d", p, ino, err, want)
		}
	}
	if s, err := f.Readlink(tk, "/a/link"); s != "b/file" || err != nil {
		t.Errorf("readlink: %q, %v", s, err)
	}
	x.Must(f.Link(tk, "/a/b/file", "/hard"))
	if a, err := f.Stat(tk, "/a/b/file"); err != nil || a.Nlink != 2 {
		t.Errorf("nlink after link: %d, %v", a.Nlink, err)
	}
	x.Must(f.Rename(tk, "/hard", "/a/b/file")) // two names of one file: nothing happens
	x.Must(f.Rename(tk, "/a/b/file", "/a/moved"))
	x.Must(f.Rename(tk, "/a/b", "/c"))
	x.Must(f.Unlink(tk, "/hard"))
	if have := names(x, "/"); have != "a dir loop1 loop2 c" {
		t.Errorf("names in /: %s", have)
	}
	if have := names(x, "/a"); have != "link moved" {
		t.Errorf("names in /a: %s", have)
	}
	// Create through a dangling link makes its target.
	x.Must(f.Symlink(tk, "made", "/a/dangling"))
	x.Must(x.Create("/a/dangling").Close(tk))
	if a, err := f.Lstat(tk, "/a/made"); err != nil || !a.IsRegular() {
		t.Errorf("create through a link: %v", err)
	}
	// A directory replaces an empty one.
	x.Must(f.Mkdir(tk, "/d1", 0o755))
	x.Must(f.Mkdir(tk, "/d1/in", 0o755))
	x.Must(f.Mkdir(tk, "/d2", 0o755))
	x.Must(f.Rename(tk, "/d1", "/d2"))
	if have := names(x, "/d2"); have != "in" {
		t.Errorf("names in /d2: %s", have)
	}
	x.Reopen()
	if have := names(x, "/"); have != "a dir loop1 loop2 c d2" {
		t.Errorf("names in / after reopen: %s", have)
	}
}

// TestRenameReplaces: what a rename, a link or a create would lose for good is refused, and stays.
func TestRenameReplaces(t *testing.T) {
	x := fstest.New(t)
	f, tk := x.FS, x.T
	x.Must(f.Mkdir(tk, "/from", 0o755))
	x.Must(f.Mkdir(tk, "/full", 0o755))
	x.Must(f.Mkdir(tk, "/empty", 0o755))
	x.Must(x.Create("/full/kept").Close(tk))
	x.Must(x.Create("/file").Close(tk))
	wantErr(t, "rename of a directory over a full one", f.Rename(tk, "/from", "/full"), errno.ENOTEMPTY)
	wantErr(t, "rename of a directory over a file", f.Rename(tk, "/from", "/file"), errno.ENOTDIR)
	wantErr(t, "rename of a file over a directory", f.Rename(tk, "/file", "/empty"), errno.EISDIR)
	x.Must(f.Rename(tk, "/from", "/empty"))

	root := f.Root(tk)
	open, err := root.Create(tk, "open", fs.O_EXCL, 0o644, fs.Owner{})
	x.Must(err)
	x.Must(root.Unlink(tk, "open"))
	wantErr(t, "link of a file without a name", root.Link(tk, "again", open), errno.ENOENT)
	x.Must(open.Forget(tk, 1))
	dir, err := root.Mkdir(tk, "dir", 0o755, fs.Owner{})
	x.Must(err)
	x.Must(root.Rmdir(tk, "dir"))
	_, err = dir.Create(tk, "lost", 0, 0o644, fs.Owner{})
	wantErr(t, "create in a directory that was removed", err, errno.ENOENT)
	wantErr(t, "rename into it", root.Rename(tk, "file", dir, "lost"), errno.ENOENT)
	x.Must(dir.Forget(tk, 1))
	x.Must(root.Forget(tk, 1))
	x.Reopen()
	if have := names(x, "/") + " " + names(x, "/full"); have != "full file empty kept" {
		t.Errorf("names: %s", have)
	}
}

// TestNamesRandom makes, moves and removes names at random and holds the directories against a map.
func TestNamesRandom(t *testing.T) {
	x := fstest.New(t)
	r := rand.New(rand.NewPCG(7, 7))
	dirs := []string{"", "/d0", "/d1", "/d0/e"}
	for _, d := range dirs[1:] {
		x.Must(x.FS.Mkdir(x.T, d, 0o755))
	}
	want := map[string]uint64{} // path: inode
	some := func() string { return fmt.Sprintf("%s/n%d", dirs[r.IntN(len(dirs))], r.IntN(60)) }
	verify := func() {
		have := map[string]uint64{}
		for _, d := range dirs {
			list, err := x.FS.ReadDir(x.T, d+"/")
			x.Must(err)
			for _, e := range list {
				if strings.HasPrefix(e.Name, "n") {
					have[d+"/"+e.Name] = uint64(e.Ino)
				}
			}
		}
		for p, ino := range want {
			if have[p] != ino {
				t.Fatalf("%s: have inode %d want %d", p, have[p], ino)
			}
		}
		if len(have) != len(want) {
			t.Fatalf("%d names, want %d", len(have), len(want))
		}
	}
	for i := range 3000 {
		p, q := some(), some()
		_, pok := want[p]
		_, qok := want[q]
		switch r.IntN(5) {
		case 0, 1:
			f, err := x.FS.OpenFile(x.T, p, fs.O_RDWR|fs.O_CREAT|fs.O_EXCL, 0o644)
			if pok != errors.Is(err, errno.EEXIST) {
				t.Fatalf("create %s: %v", p, err)
			}
			if err == nil {
				want[p] = uint64(f.Ino())
				if r.IntN(2) == 0 {
					x.WriteAt(f, make([]byte, 1+r.IntN(10000)), 0)
				}
				x.Must(f.Close(x.T))
			}
		case 2:
			if err := x.FS.Unlink(x.T, p); pok != (err == nil) {
				t.Fatalf("unlink %s: %v", p, err)
			}
			delete(want, p)
		case 3:
			err := x.FS.Rename(x.T, p, q)
			if pok != (err == nil) {
				t.Fatalf("rename %s %s: %v", p, q, err)
			}
			if pok && want[p] != want[q] {
				want[q] = want[p]
				delete(want, p)
			}
		case 4:
			err := x.FS.Link(x.T, p, q)
			if (pok && !qok) != (err == nil) {
				t.Fatalf("link %s %s: %v", p, q, err)
			}
			if err == nil {
				want[q] = want[p]
			}
		}
		switch {
		case i%1000 == 999:
			x.Reopen()
			verify()
		case i%200 == 199:
			verify()
		}
	}
}

// TestOrphan: a file that is unlinked while open can be read and written until it is closed, and is
// gone after a crash at any committed state in between.
func TestOrphan(t *testing.T) {
	x := fstest.New(t)
	f := x.Create("/f")
	x.WriteAt(f, make([]byte, 300000), 0)
	x.Must(x.FS.Unlink(x.T, "/f"))
	x.WriteAt(f, []byte("still here"), 5000)
	x.Must(x.FS.Sync(x.T))
	crash := x.Dev.(*blockdev.Memory).Snapshot()
	x.Check(crash)
	p := make([]byte, 10)
	if _, err := f.ReadAt(x.T, p, 5000); err != nil || string(p) != "still here" {
		t.Errorf("read of an orphan: %q, %v", p, err)
	}
	x.Must(f.Close(x.T))
	x.Must(x.FS.Sync(x.T))

	again, err := fs.Open(x.T, []blockdev.Device{crash}, fs.Options{CheckQuiescence: true})
	x.Must(err)
	list, err := again.ReadDir(x.T, "/")
	x.Must(err)
	if len(list) != 0 {
		t.Errorf("names after the crash: %v", list)
	}
	x.Must(again.Close(x.T))
	x.Check(crash)
	r, err := fs.Open(x.T, []blockdev.Device{crash}, fs.Options{ReadOnly: true})
	x.Must(err)
	if used, now := r.Statfs(x.T).Used, x.FS.Statfs(x.T).Used; used != now {
		t.Errorf("bytes used after the orphan went: have %d want %d", used, now)
	}
	if s := r.Statfs(x.T); s.Free == 0 || s.Free != s.Total-s.Used {
		t.Errorf("of an image that is open read-only %d bytes are free, want what is not used, %d", s.Free, s.Total-s.Used)
	}
	x.Must(r.Close(x.T))

	x.Close()
	w := datatest.Mount(t, x.T, x.Dev, x.Dev)
	if list, err := w.Items.Orphans(x.T, w.Manager.Root(format.FS_TREE_OBJECTID)); err != nil || len(list) != 0 {
		t.Errorf("orphan items after the last close: %v, %v; want none", list, err)
	}
	w.CloseTasks()
}

// TestReadOnly: nothing is written by an image that is open for reading, whatever is tried.
func TestReadOnly(t *testing.T) {
	x := fstest.New(t)
	f := x.Create("/f")
	x.WriteAt(f, []byte("content"), 0)
	x.Must(f.Close(x.T))
	x.Close()
	ro, err := fs.Open(x.T, []blockdev.Device{x.Dev}, fs.Options{ReadOnly: true})
	x.Must(err)
	defer ro.Close(x.T)
	_, err = ro.Create(x.T, "/g", 0o644)
	wantErr(t, "create", err, errno.EROFS)
	_, err = ro.OpenFile(x.T, "/f", fs.O_RDWR, 0)
	wantErr(t, "open for writing", err, errno.EROFS)
	wantErr(t, "unlink", ro.Unlink(x.T, "/f"), errno.EROFS)
	g, err := ro.OpenFile(x.T, "/f", fs.O_RDONLY, 0)
	x.Must(err)
	_, err = g.WriteAt(x.T, []byte("x"), 0)
	wantErr(t, "write", err, errno.EBADF)
	p := make([]byte, 7)
	if _, err := g.ReadAt(x.T, p, 0); err != nil || string(p) != "content" {
		t.Errorf("read: %q, %v", p, err)
	}
	x.Must(g.Close(x.T))
}

// TestManyFiles: a directory of several levels of tree, listed in order, and half of it removed.
func TestManyFiles(t *testing.T) {
	n := 3000
	if testing.Short() {
		n = 500
	}
	x := fstest.New(t)
	var want []string
	for i := range n {
		name := fmt.Sprintf("file-%d", i)
		f := x.Create("/" + name)
		x.WriteAt(f, []byte(name), 0)
		x.Must(f.Close(x.T))
		want = append(want, name)
	}
	x.Reopen()
	if have := names(x, "/"); have != strings.Join(want, " ") {
		t.Fatal("names differ after reopen")
	}
	for i := 0; i < n; i += 2 {
		x.Must(x.FS.Unlink(x.T, "/"+want[i]))
	}
	x.Reopen()
	var left []string
	for i := 1; i < n; i += 2 {
		left = append(left, want[i])
		if have := string(x.ReadFile("/" + want[i])); have != want[i] {
			t.Fatalf("%s: have %q", want[i], have)
		}
	}
	list, err := x.FS.ReadDir(x.T, "/")
	x.Must(err)
	if !slices.EqualFunc(list, left, func(e fs.DirEntry, s string) bool { return e.Name == s }) {
		t.Fatal("names differ after removal")
	}
}

// TestSmallInodeCache: inodes come and go while tasks create, read, write and remove files and
// another commits. What was written is there however often its inode was dropped.
func TestSmallInodeCache(t *testing.T) {
	x := fstest.New(t, fstest.FSOptions(func(o *fs.Options) { o.CacheInodes = 20 }))
	var done atomic.Bool
	fstest.Parallel(x.T, 4, func(t *sched.Task, i int) {
		if i == 3 {
			for !done.Load() {
				if err := x.FS.Sync(t); err != nil {
					x.Error(err)
					return
				}
			}
			return
		}
		defer done.Store(true) // also when it gives up
		r := rand.New(rand.NewPCG(uint64(i), 11))
		want := map[string]byte{}
		for n := range 400 {
			path := fmt.Sprintf("/t%d-%d", i, r.IntN(50))
			v, ok := want[path]
			if ok {
				a, err := x.FS.Stat(t, path)
				if err != nil || a.Size != uint64(v)*100 {
					x.Errorf("stat %s: size %d, %v, want %d", path, a.Size, err, int(v)*100)
					return
				}
			}
			if ok && r.IntN(4) == 0 {
				if err := x.FS.Unlink(t, path); err != nil {
					x.Error(err)
				}
				delete(want, path)
				continue
			}
			v = byte(1 + n%200)
			f, err := x.FS.Create(t, path, 0o644)
			if err == nil {
				_, err = f.WriteAt(t, make([]byte, int(v)*100), 0)
			}
			if err == nil {
				err = f.Close(t)
			}
			if err != nil {
				x.Error(err)
				return
			}
			want[path] = v
		}
	})
	if n := x.FS.Statfs(x.T).Files; n > 200 {
		t.Errorf("%d inodes in memory at the end", n)
	}
}

// TestManyLinks: names of one file in one directory fill an INODE_REF item and go on in
// INODE_EXTREF items.
func TestManyLinks(t *testing.T) {
	x := fstest.New(t)
	x.Must(x.Create("/f").Close(x.T))
	name := func(i int) string { return fmt.Sprintf("/%s%d", strings.Repeat("n", 200), i) }
	for i := range 150 {
		x.Must(x.FS.Link(x.T, "/f", name(i)))
	}
	if a, err := x.FS.Stat(x.T, name(149)); err != nil || a.Nlink != 151 {
		t.Errorf("stat: nlink %d, %v", a.Nlink, err)
	}
	x.Reopen()
	for i := range 150 {
		x.Must(x.FS.Unlink(x.T, name(149-i)))
	}
	x.Must(x.FS.Unlink(x.T, "/f"))
	if have := names(x, "/"); have != "" {
		t.Errorf("names left: %s", have)
	}
}

// TestMaxLinks: an inode has at most 65,535 names, as in Linux; the next one is EMLINK, and one
// less makes room.
func TestMaxLinks(t *testing.T) {
	x := fstest.New(t)
	f := x.Create("/f")
	count := func(n uint32) { f.Inode().Change(x.T, func(i *format.InodeItem) { i.Nlink = n }) }
	count(65534) // so many names take seconds to make
	x.Must(x.FS.Link(x.T, "/f", "/last"))
	wantErr(t, "one name more", x.FS.Link(x.T, "/f", "/more"), errno.EMLINK)
	x.Must(x.FS.Unlink(x.T, "/last"))
	x.Must(x.FS.Link(x.T, "/f", "/more"))
	count(2)
	x.Must(f.Close(x.T))
}

// TestRemoveAll: every kind of inode goes with all its items, and their space comes back.
func TestRemoveAll(t *testing.T) {
	x := fstest.New(t)
	x.Must(x.FS.Sync(x.T))
	before := x.FS.Statfs(x.T)
	x.Must(x.FS.Symlink(x.T, strings.Repeat("t", 3000), "/long"))
	x.Must(x.FS.Symlink(x.T, "t", "/short"))
	x.Must(x.FS.Mkdir(x.T, "/d", 0o755))
	for i, n := range []int{0, 10, 2048, 2049, 4096, 300000} {
		f := x.Create(fmt.Sprintf("/d/f%d", i))
		x.WriteAt(f, make([]byte, n), 0)
		x.Must(f.Close(x.T))
	}
	f := x.Create("/d/prealloc")
	x.Must(f.Fallocate(x.T, fs.FALLOC_FL_KEEP_SIZE, 0, 1<<20))
	x.Must(f.Close(x.T))
	x.Reopen()
	if s, err := x.FS.Readlink(x.T, "/long"); err != nil || s != strings.Repeat("t", 3000) {
		t.Errorf("readlink of %d bytes: %d, %v", 3000, len(s), err)
	}
	list, err := x.FS.ReadDir(x.T, "/d")
	x.Must(err)
	for _, e := range list {
		x.Must(x.FS.Unlink(x.T, "/d/"+e.Name))
	}
	x.Must(x.FS.Rmdir(x.T, "/d"))
	x.Must(x.FS.Unlink(x.T, "/long"))
	x.Must(x.FS.Unlink(x.T, "/short"))
	x.Must(x.FS.Sync(x.T))
	if after := x.FS.Statfs(x.T); after.DataUsed != before.DataUsed || after.MetadataUsed != before.MetadataUsed {
		t.Errorf("used after all was removed: data %d metadata %d, want %d %d", after.DataUsed, after.MetadataUsed, before.DataUsed, before.MetadataUsed)
	}
}

// TestNamesOfOneHash: the names of one hash share an item, which a leaf bounds. One more is
// EOVERFLOW, whatever makes it, and nothing else happens: it came in the middle of the transaction,
// which was aborted, and all that no commit had was lost.
func TestNamesOfOneHash(t *testing.T) {
	x := fstest.New(t)
	names := fstest.OneHash(60)
	made := 0
	var err error
	for _, name := range names {
		if err = x.FS.Mkdir(x.T, "/"+name, 0o755); err != nil {
			break
		}
		made++
	}
	if !errors.Is(err, errno.EOVERFLOW) || made < 50 {
		t.Fatalf("%d directories, then %v, want EOVERFLOW after at least 50", made, err)
	}
	first, more := "/"+names[0], "/"+names[made]
	f := x.Create("/f")
	x.WriteAt(f, []byte("data"), 0)
	x.Must(x.FS.Mkdir(x.T, "/d", 0o755))
	for what, do := range map[string]func() error{
		"create":    func() error { _, err := x.FS.Create(x.T, more, 0o644); return err },
		"symlink":   func() error { return x.FS.Symlink(x.T, "target", more) },
		"link":      func() error { return x.FS.Link(x.T, "/f", more) },
		"rename":    func() error { return x.FS.Rename(x.T, "/f", more) },
		"subvolume": func() error { return x.FS.Subvolume(x.T, more, 0o755) },
		"snapshot":  func() error { return x.FS.Snapshot(x.T, "/", more, false) },
	} {
		if err := do(); !errors.Is(err, errno.EOVERFLOW) {
			t.Errorf("%s: have %v want EOVERFLOW", what, err)
		}
	}
	x.Must(x.FS.Rename(x.T, "/d", first)) // takes no room
	x.Must(x.FS.Rmdir(x.T, first))
	x.Must(x.FS.Rename(x.T, "/f", more))
	x.Must(f.Fsync(x.T))
	x.Must(f.Close(x.T))
	x.Reopen()
	if have := string(x.ReadFile(more)); have != "data" {
		t.Errorf("the file has %q", have)
	}
}

// TestLinkNul: mkfs.btrfs --rootdir of btrfs-progs 6.2 stores the NUL of C after a symbolic link's
// target, beyond i_size. It is no part of the target: get -r made no link and gave the tree up.
func TestLinkNul(t *testing.T) {
	x := fstest.New(t)
	x.Must(x.FS.Symlink(x.T, "target-", "/link"))
	at, err := x.FS.Lstat(x.T, "/link")
	x.Must(err)
	n, err := x.FS.Node(x.T, at.Subvol, at.Ino)
	x.Must(err)
	for _, c := range []struct {
		size uint64
		want string
	}{{6, "target"}, {7, "target-"}, {9, "target-"}} {
		n.SetISize(x.T, c.size)
		if s, err := n.Readlink(x.T); err != nil || s != c.want {
			t.Errorf("i_size %d: have %q, %v want %q", c.size, s, err, c.want)
		}
	}
	n.SetISize(x.T, 7)
	x.Must(n.Forget(x.T, 1))
}

// TestLongestSymlink: a target as long as a path may be is one item, and reads back.
func TestLongestSymlink(t *testing.T) {
	x := fstest.New(t)
	target := strings.Repeat("t", 4095)
	wantErr(t, "a target of 4,096 bytes", x.FS.Symlink(x.T, target+"t", "/longer"), errno.ENAMETOOLONG)
	x.Must(x.FS.Symlink(x.T, target, "/long"))
	x.Must(x.FS.Sync(x.T))
	if have := fstest.Must(x.FS.Readlink(x.T, "/long")); have != target {
		t.Errorf("a target of %d bytes is read back, want the 4,095", len(have))
	}
}
