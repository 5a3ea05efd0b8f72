package fs_test

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"btrlab/internal/errno"
	"btrlab/internal/format"
	"btrlab/internal/fs"
	"btrlab/internal/sched"
	"btrlab/internal/testing/fstest"
)

// testdata/nested.blocks.gz is an image that Linux 6.18 made:
//
//	truncate -s 256M i; mkfs.btrfs -m single -n 4096 i; mount -o loop i m
//	btrfs subvolume create m/sub; mkdir m/dir; echo top > m/file
//	head -c 10000 /dev/zero | tr '\0' s > m/sub/big; echo inner > m/sub/file
//	mkdir m/sub/d; btrfs subvolume create m/sub/d/deep; echo deepest > m/sub/d/deep/f
//	btrfs subvolume create m/dir/src; echo one > m/dir/src/one
//	btrfs subvolume snapshot m/dir/src m/snap; btrfs subvolume snapshot -r m/sub m/ro

// TestSubvolRead walks into nested subvolumes and snapshots. Inode 257 exists in each of them: the
// cache must not take one for the other, and ".." must find the way out again.
func TestSubvolRead(t *testing.T) {
	for _, readOnly := range []bool{true, false} {
		x := fstest.New(t, fstest.Image("testdata/nested.blocks.gz"), fstest.FSOptions(func(o *fs.Options) { o.ReadOnly = readOnly }))
		f, tk := x.FS, x.T
		for _, c := range []struct{ path, want string }{
			{"/file", "top\n"}, {"/sub/file", "inner\n"}, {"/sub/big", strings.Repeat("s", 10000)},
			{"/sub/d/deep/f", "deepest\n"}, {"/dir/src/one", "one\n"}, {"/snap/one", "one\n"}, {"/ro/file", "inner\n"},
			{"/sub/d/deep/../../file", "inner\n"}, {"/sub/d/deep/../../../file", "top\n"}, {"/dir/src/../../snap/../file", "top\n"},
		} {
			if have := x.ReadFile(c.path); string(have) != c.want {
				t.Errorf("read-only %v: %s: have %d bytes %.20q, want %.20q", readOnly, c.path, len(have), have, c.want)
			}
		}
		if have := names(x, "/sub/d/deep"); have != "f" {
			t.Errorf("names in a nested subvolume: %q", have)
		}
		nodes := make(map[*fs.Node]bool)
		for _, dir := range []string{"/", "/sub", "/sub/d/deep", "/dir/src", "/snap", "/ro"} {
			at, err := f.Stat(tk, dir)
			x.Must(err)
			n, err := f.Node(tk, at.Subvol, 257)
			x.Must(err)
			if at.Ino != format.FIRST_FREE_OBJECTID || n.Ino() != 257 || n.Subvol() != at.Subvol {
				t.Errorf("%s: inode %d; inode 257 of tree %d is number %d of tree %d", dir, at.Ino, at.Subvol, n.Ino(), n.Subvol())
			}
			nodes[n] = true
			defer n.Forget(tk, 1)
		}
		if len(nodes) != 6 {
			t.Errorf("inode 257 of six subvolumes are %d inodes in memory", len(nodes))
		}
		// /sub/d/deep lies in /sub; in its snapshot the name leads nowhere.
		_, err := f.Stat(tk, "/ro/d/deep")
		wantErr(t, "a subvolume in a snapshot of its parent", err, errno.ENOENT)
	}
}

// TestSubvolWrite writes into subvolumes of Linux, with snapshots and without, at once; the fixture
// checks the image. A read-only snapshot takes nothing, and a name that would leave its subvolume
// is refused.
func TestSubvolWrite(t *testing.T) {
	x := fstest.New(t, fstest.Image("testdata/nested.blocks.gz"))
	f, tk := x.FS, x.T
	dirs := []string{"/", "/sub/d/deep", "/sub", "/snap", "/dir/src"}
	var tasks []*sched.Task
	for _, dir := range dirs {
		tasks = append(tasks, tk.Go(dir, func(t *sched.Task) {
			for i, name := range []string{"a", "b", "c"} {
				w, err := f.Create(t, dir+"/"+name, 0o644)
				if err != nil {
					x.Error(err)
					return
				}
				p := bytes.Repeat([]byte(dir+name), 5000*i+1)
				if _, err := w.WriteAt(t, p, 0); err != nil {
					x.Error(err)
				}
				if err := errors.Join(w.Fsync(t), w.Close(t)); err != nil {
					x.Error(err)
				}
			}
			x.Must(f.Mkdir(t, dir+"/new", 0o755))
			x.Must(f.Rename(t, dir+"/b", dir+"/new/b"))
			x.Must(f.Unlink(t, dir+"/a"))
		}))
	}
	for _, task := range tasks {
		tk.Join(task)
	}
	for _, c := range []struct {
		what string
		err  error
		want error
	}{
		{"a file in a read-only snapshot", f.Mkdir(tk, "/ro/x", 0o755), errno.EROFS},
		{"unlink in a read-only snapshot", f.Unlink(tk, "/ro/file"), errno.EROFS},
		{"chmod in a read-only snapshot", f.Chmod(tk, "/ro/file", 0o600), errno.EROFS},
		{"link into another subvolume", f.Link(tk, "/file", "/sub/d/deep/hard"), errno.EXDEV},
		{"rename into another subvolume", f.Rename(tk, "/file", "/sub/d/deep/file"), errno.EXDEV},
		{"rmdir of a subvolume", f.Rmdir(tk, "/snap"), errno.ENOTEMPTY},
		{"rename over a subvolume", f.Rename(tk, "/dir", "/snap"), errno.ENOTEMPTY},
	} {
		wantErr(t, c.what, c.err, c.want)
	}
	if _, err := f.OpenFile(tk, "/ro/file", fs.O_RDWR, 0); !errors.Is(err, errno.EROFS) {
		t.Errorf("open in a snapshot for writing: %v", err)
	}
	x.Reopen()
	for _, dir := range dirs {
		want := bytes.Repeat([]byte(dir+"b"), 5001)
		if !bytes.Equal(x.ReadFile(dir+"/new/b"), want) {
			t.Errorf("%s/new/b differs after the file system was opened again", dir)
		}
	}
	if have := names(x, "/sub/d/deep"); have != "f c new" {
		t.Errorf("names in the subvolume: %q", have)
	}
}
