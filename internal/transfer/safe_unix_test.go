//go:build unix

package transfer

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"btrlab/internal/fs"
	"btrlab/internal/testing/fstest"
)

// A file whose owner is not kept loses setuid and setgid, into the image and out of it: root's copy
// of a user's program ran as root for everybody. One whose owner is the same in the copy keeps
// them.
func TestSetuidGoesWithTheOwner(t *testing.T) {
	uid, gid := uint32(os.Getuid()), uint32(os.Getgid())
	for _, c := range []struct {
		name     string
		uid, gid uint32
		kept     bool
	}{
		{"owner kept", uid, gid, true},
		{"another user", uid + 1000, gid, false},
		{"another group", uid, gid + 1000, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			x := fstest.New(t, fstest.FSOptions(func(o *fs.Options) { o.UID, o.GID = c.uid, c.gid }))
			src := filepath.Join(t.TempDir(), "s")
			must(t, os.Mkdir(src, 0o755))
			must(t, os.WriteFile(filepath.Join(src, "tool"), noise(5000), 0o755))
			must(t, os.Mkdir(filepath.Join(src, "dir"), 0o755))
			must(t, os.Chmod(filepath.Join(src, "tool"), 0o755|os.ModeSetuid|os.ModeSetgid))
			must(t, os.Chmod(filepath.Join(src, "dir"), 0o755|os.ModeSetgid))
			in := NewIn(x.T, x.FS, &watch{t: t})
			in.Keep.Owners = false
			must(t, in.Tree(src, "/s"))
			for name, bits := range map[string]uint32{"/s/tool": 0o6000, "/s/dir": 0o2000} {
				at, err := x.FS.Stat(x.T, name)
				must(t, err)
				if !c.kept {
					bits = 0
				}
				if at.Mode&0o7777 != 0o755|bits || at.UID != c.uid {
					t.Errorf("put: %s has uid %d mode %o", name, at.UID, at.Mode&0o7777)
				}
				must(t, x.FS.Chmod(x.T, name, 0o755|map[string]uint32{"/s/tool": 0o6000, "/s/dir": 0o2000}[name]))
			}
			dest := t.TempDir()
			out := NewOut(x.T, x.FS, &watch{t: t})
			out.Keep.Owners = false
			must(t, out.Into("/s", dest, "o"))
			for name, bits := range map[string]os.FileMode{"tool": os.ModeSetuid | os.ModeSetgid, "dir": os.ModeDir | os.ModeSetgid} {
				st, err := os.Lstat(filepath.Join(dest, "o", name))
				must(t, err)
				if !c.kept {
					bits &= os.ModeDir
				}
				if st.Mode() != 0o755|bits {
					t.Errorf("get: %s has mode %v", name, st.Mode())
				}
			}
		})
	}
}

// Nothing is written through a symbolic link that lies in the destination: a file takes its place,
// a directory is left out and named. Two images one after the other into one folder were enough to
// write outside of it.
func TestOutFollowsNoLink(t *testing.T) {
	x := fstest.New(t)
	must(t, x.FS.Mkdir(x.T, "/s", 0o755))
	must(t, x.FS.Mkdir(x.T, "/s/dir", 0o755))
	for _, name := range []string{"/s/dir/f", "/s/g", "/s/one"} {
		f, err := x.FS.Create(x.T, name, 0o644)
		must(t, err)
		_, err = f.WriteAt(x.T, []byte("new"), 0)
		must(t, err)
		must(t, f.Close(x.T))
	}
	must(t, x.FS.Link(x.T, "/s/one", "/s/two"))
	d := t.TempDir()
	for _, dir := range []string{"out", "out/s", "outside"} {
		must(t, os.Mkdir(filepath.Join(d, dir), 0o755))
	}
	victim := filepath.Join(d, "victim")
	must(t, os.WriteFile(victim, []byte("precious"), 0o600))
	must(t, os.Symlink("../../outside", filepath.Join(d, "out/s/dir")))
	must(t, os.Symlink("../../victim", filepath.Join(d, "out/s/g")))
	must(t, os.Symlink("../../victim", filepath.Join(d, "out/s/two")))
	must(t, os.Link(victim, filepath.Join(d, "out/s/one"))) // another name of a file outside
	w := &watch{t: t}
	must(t, NewOut(x.T, x.FS, w).Into("/s", filepath.Join(d, "out"), "s"))
	if left := w.left; len(left) != 1 || left[0].Name != "/s/dir" || !strings.Contains(left[0].Err.Error(), "not followed") {
		t.Errorf("left out %v, want /s/dir", left)
	}
	if list, err := os.ReadDir(filepath.Join(d, "outside")); err != nil || len(list) > 0 {
		t.Errorf("outside has %v, %v", list, err)
	}
	for path, want := range map[string]string{victim: "precious", "out/s/g": "new", "out/s/one": "new", "out/s/two": "new"} {
		if !filepath.IsAbs(path) {
			path = filepath.Join(d, path)
		}
		if have, err := os.ReadFile(path); err != nil || string(have) != want {
			t.Errorf("%s has %q, %v", path, have, err)
		}
	}
	if st, err := os.Stat(victim); err != nil || st.Mode() != 0o600 {
		t.Errorf("the file outside has mode %v, %v", st.Mode(), err)
	}
	// The directory itself may be a link, too, when it lies in the one that was named.
	must(t, os.Symlink("../outside", filepath.Join(d, "out/s2")))
	if err := NewOut(x.T, x.FS, &watch{t: t}).Into("/s", filepath.Join(d, "out"), "s2"); err == nil {
		t.Error("a link was followed to the directory")
	}
	// A link that the caller has named is followed.
	must(t, os.Symlink("outside", filepath.Join(d, "named")))
	must(t, NewOut(x.T, x.FS, &watch{t: t}).Tree("/s", filepath.Join(d, "named")))
	if _, err := os.Lstat(filepath.Join(d, "outside/dir/f")); err != nil {
		t.Error(err)
	}
}
