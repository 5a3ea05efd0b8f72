package fs_test

import (
	"testing"
	"time"

	"btrlab/internal/errno"
	"btrlab/internal/format"
	"btrlab/internal/fs"
	"btrlab/internal/testing/fstest"
)

// TestImmutableAndAppend: what Linux refuses for inodes with chattr +i and +a is refused, by path
// and by an open file, and changes nothing; what it allows works. Files were deleted here that no
// tool of Linux deletes. A file that was open for writing before +i can be written to as in Linux.
func TestImmutableAndAppend(t *testing.T) {
	for _, c := range []struct {
		name string
		flag uint64
		// what bytes and names get that are added, and the cut of a file that was open before
		add, cut errno.Errno
	}{
		{"+i", format.InodeImmutable, errno.EPERM, 0},
		{"+a", format.InodeAppend, 0, errno.EPERM},
	} {
		t.Run(c.name, func(t *testing.T) {
			x := fstest.New(t)
			const fixed = errno.EPERM
			want := func(what string, err error, want errno.Errno) {
				t.Helper()
				if want == 0 {
					x.Must(err)
				} else {
					wantErr(t, what, err, want)
				}
			}
			x.Must(x.FS.Mkdir(x.T, "/d", 0o755))
			open := x.Create("/f")
			x.WriteAt(open, []byte("0123456789"), 0)
			for _, name := range []string{"/d/f", "/d/g", "/other"} {
				x.Must(x.Create(name).Close(x.T))
			}
			x.Must(x.FS.Mkdir(x.T, "/d/sub", 0o755))
			x.Must(x.FS.SetFlags(x.T, "/f", c.flag))
			x.Must(x.FS.SetFlags(x.T, "/d", c.flag))

			_, err := x.FS.OpenFile(x.T, "/f", fs.O_RDWR, 0)
			want("open to write", err, fixed)
			_, err = x.FS.OpenFile(x.T, "/f", fs.O_RDWR|fs.O_TRUNC|fs.O_APPEND, 0)
			want("open with O_TRUNC", err, fixed)
			_, err = x.FS.Create(x.T, "/f", 0o644)
			want("create over it", err, fixed)
			want("truncate", open.Truncate(x.T, 10), c.cut)
			want("punch", open.Fallocate(x.T, fs.FALLOC_FL_PUNCH_HOLE|fs.FALLOC_FL_KEEP_SIZE, 0, 4096), fixed)
			want("unlink", x.FS.Unlink(x.T, "/f"), fixed)
			want("rename", x.FS.Rename(x.T, "/f", "/g"), fixed)
			want("rename over it", x.FS.Rename(x.T, "/other", "/f"), fixed)
			want("link", x.FS.Link(x.T, "/f", "/g"), fixed)
			want("chmod", x.FS.Chmod(x.T, "/f", 0o600), fixed)
			want("chown", x.FS.Chown(x.T, "/f", 1, 1), fixed)
			want("utimes", x.FS.Utimes(x.T, "/f", time.Unix(1, 0), time.Unix(1, 0)), fixed)

			want("unlink in it", x.FS.Unlink(x.T, "/d/f"), fixed)
			want("rmdir in it", x.FS.Rmdir(x.T, "/d/sub"), fixed)
			want("rename in it", x.FS.Rename(x.T, "/d/f", "/d/h"), fixed)
			want("rename out of it", x.FS.Rename(x.T, "/d/f", "/h"), fixed)
			want("rename over a name in it", x.FS.Rename(x.T, "/other", "/d/f"), fixed)
			want("rmdir of it", x.FS.Rmdir(x.T, "/d"), fixed)
			want("mkdir in it", x.FS.Mkdir(x.T, "/d/new", 0o755), c.add)
			want("link in it", x.FS.Link(x.T, "/other", "/d/hard"), c.add)
			want("rename into it", x.FS.Rename(x.T, "/other", "/d/other"), c.add)

			ap, err := x.FS.OpenFile(x.T, "/f", fs.O_RDWR|fs.O_APPEND, 0)
			want("open to append", err, c.add)
			text := "0123456789"
			if c.add == 0 {
				x.WriteAt(ap, []byte("ab"), 0)
				text += "ab"
				wantErr(t, "truncate of what appends", ap.Truncate(x.T, 1), errno.EPERM)
				x.Must(ap.Fallocate(x.T, fs.FALLOC_FL_KEEP_SIZE, 0, 8192))
				x.Must(ap.Close(x.T))
			}
			x.Must(open.Close(x.T))
			if at, err := x.FS.Stat(x.T, "/f"); err != nil || at.Nlink != 1 || at.Mode != format.S_IFREG|0o644 || at.UID != 0 {
				t.Errorf("the file: %+v, %v", at, err)
			}
			if have := string(x.ReadFile("/f")); have != text {
				t.Errorf("the file: have %q want %q", have, text)
			}
			// Without the flags all of it is as any other.
			x.Must(x.FS.SetFlags(x.T, "/f", 0))
			x.Must(x.FS.SetFlags(x.T, "/d", 0))
			x.Must(x.FS.Unlink(x.T, "/f"))
			x.Must(x.FS.Unlink(x.T, "/d/f"))
		})
	}
}

// A subvolume does not inherit the flags of its directory, as in Linux: what was put into one made
// in a +C directory had no checksums.
func TestSubvolumeInheritsNoFlags(t *testing.T) {
	x := fstest.New(t)
	x.Must(x.FS.Mkdir(x.T, "/d", 0o755))
	x.Must(x.FS.SetFlags(x.T, "/d", format.InodeNoDataCow))
	x.Must(x.FS.Mkdir(x.T, "/d/dir", 0o755))
	x.Must(x.FS.Subvolume(x.T, "/d/sub", 0o755))
	x.Must(x.FS.Snapshot(x.T, "/d/sub", "/d/snap", false))
	for _, name := range []string{"/d/sub/f", "/d/snap/f"} {
		x.Must(x.Create(name).Close(x.T))
	}
	for path, want := range map[string]uint64{"/d/dir": format.InodeNoDataCow, "/d/sub": 0, "/d/sub/f": 0, "/d/snap": 0, "/d/snap/f": 0} {
		at, err := x.FS.Stat(x.T, path)
		x.Must(err)
		if at.Flags != want {
			t.Errorf("%s: flags %#x want %#x", path, at.Flags, want)
		}
	}
}
