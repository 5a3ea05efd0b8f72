package fs_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"btrlab/internal/blockdev"
	"btrlab/internal/blockdev/dm"
	"btrlab/internal/errno"
	"btrlab/internal/format"
	"btrlab/internal/fs"
	"btrlab/internal/lock/lockdep"
	"btrlab/internal/sched"
	"btrlab/internal/sched/explore"
	"btrlab/internal/testing/fstest"
	"btrlab/internal/testing/need"
)

// subvolPaths are the paths of the subvolumes, which a walk to each must find.
func subvolPaths(x *fstest.Fixture) string {
	x.Helper()
	list, err := x.FS.Subvolumes(x.T)
	x.Must(err)
	var paths []string
	for _, s := range list {
		at, err := x.FS.Stat(x.T, s.Path)
		x.Must(err)
		if at.Subvol != s.ID || at.Ino != format.FIRST_FREE_OBJECTID {
			x.Errorf("%s leads to inode %d of tree %d, want the top of %d", s.Path, at.Ino, at.Subvol, s.ID)
		}
		paths = append(paths, s.Path)
	}
	slices.Sort(paths)
	return strings.Join(paths, " ")
}

// Subvolumes are renamed and moved, also to other subvolumes; what is open in them stays open. That
// is the way back of those who roll back: mv @ @old, snapshot of a snapshot as @. A read-only one
// stays in its directory, and nothing replaces one, as in Linux.
func TestSubvolumeRename(t *testing.T) {
	x := fstest.New(t)
	f, tk := x.FS, x.T
	x.Must(f.Mkdir(tk, "/dir", 0o755))
	x.Must(f.Subvolume(tk, "/@", 0o755))
	x.Must(f.Subvolume(tk, "/@/inner", 0o755))
	x.Must(f.Subvolume(tk, "/other", 0o755))
	x.Must(f.Mkdir(tk, "/other/d", 0o755))
	open := x.Create("/@/inner/f")
	x.WriteAt(open, []byte("before"), 0)
	x.Must(f.Snapshot(tk, "/@", "/snap", false)) // with the place of /@/inner
	x.Must(f.Snapshot(tk, "/@", "/ro", true))
	steps := []struct {
		from, to string
		want     error
		paths    string
	}{
		{"/@", "/@old", nil, "/@old /@old/inner /other /ro /snap"},
		{"/@old", "/dir/@", nil, "/dir/@ /dir/@/inner /other /ro /snap"},
		{"/dir/@/inner", "/other/d/in", nil, "/dir/@ /other /other/d/in /ro /snap"},
		{"/dir", "/dir2", nil, "/dir2/@ /other /other/d/in /ro /snap"},
		{"/dir2/@", "/other/d/@", nil, "/other /other/d/@ /other/d/in /ro /snap"},
		{"/other/d/@", "/other/d/@", nil, ""}, // onto itself
		{"/ro", "/read", nil, "/other /other/d/@ /other/d/in /read /snap"},
		{"/read", "/dir2/read", errno.EROFS, ""},
		{"/other", "/other/d/x", errno.EINVAL, ""},         // below itself
		{"/other", "/other/d/@/x", errno.EINVAL, ""},       // by way of another subvolume
		{"/other/d/@", "/other", errno.ENOTEMPTY, ""},      // what it is in
		{"/other/d/in", "/snap", errno.ENOTEMPTY, ""},      // over a subvolume
		{"/other/d/in", "/other/d/@", errno.ENOTEMPTY, ""}, // the same
		{"/dir2", "/snap", errno.ENOTEMPTY, ""},            // a directory over one
		{"/other/d", "/dir2/d", errno.EXDEV, ""},           // a directory to another subvolume
		{"/other/d/in", "/read/inner", errno.EROFS, ""},    // over a place in a read-only one
		{"/snap/inner", "/snap/in", errno.ENOTEMPTY, ""},   // a place
		{"/other/d/in", "/snap/inner", nil, "/other /other/d/@ /read /snap /snap/inner"},
		// over an empty directory
		{"/snap/inner", "/dir2", nil, "/dir2 /other /other/d/@ /read /snap"},
	}
	for _, c := range steps {
		err := f.Rename(tk, c.from, c.to)
		if !errors.Is(err, c.want) { // what goes on after a circle of directories does not end
			t.Fatalf("%s to %s: have %v want %v", c.from, c.to, err, c.want)
		}
		if err != nil {
			continue
		}
		if have := subvolPaths(x); c.paths != "" && have != c.paths {
			t.Fatalf("%s to %s: subvolumes %q want %q", c.from, c.to, have, c.paths)
		}
		x.Must(f.Sync(tk))
		x.Check(x.Dev)
	}
	x.WriteAt(open, []byte("after."), 0)
	x.Must(open.Close(tk))
	// A place is an empty directory: rmdir removes it. It was in the way of rm -r.
	x.Must(f.Snapshot(tk, "/other", "/last", false))
	wantErr(t, "unlink of a place", f.Unlink(tk, "/last/d/@"), errno.EISDIR)
	x.Must(f.Rmdir(tk, "/last/d/@"))
	x.Must(f.Subvolume(tk, "/other/d/none", 0o755))
	x.Must(f.Symlink(tk, "x", "/other/d/none/link"))
	wantErr(t, "rmdir of a subvolume with a link in it", f.Rmdir(tk, "/other/d/none"), errno.ENOTEMPTY)
	x.Must(f.Unlink(tk, "/other/d/none/link"))
	x.Must(f.Rmdir(tk, "/other/d/none"))
	wantErr(t, "an empty subvolume after rmdir", f.Rmdir(tk, "/other/d/none"), errno.ENOENT)
	x.Reopen()
	if have := string(x.ReadFile("/dir2/f")); have != "after." {
		t.Errorf("the file has %q", have)
	}
	if n, err := x.FS.Stat(x.T, "/other/d/@/.."); err != nil || n.Subvol != mustStat(x, "/other/d").Subvol || n.Ino != mustStat(x, "/other/d").Ino {
		t.Errorf("above /other/d/@ is %+v, %v", n, err)
	}
	for _, path := range []string{"/other/d/@", "/dir2", "/last", "/other"} {
		x.Must(x.FS.DeleteSubvolume(x.T, path))
	}
	if have := subvolPaths(x); have != "/read /snap" {
		t.Errorf("after the deletions: %q", have)
	}
}

func mustStat(x *fstest.Fixture, path string) fs.Attr {
	x.Helper()
	at, err := x.FS.Stat(x.T, path)
	x.Must(err)
	return at
}

// A crash at any flush while subvolumes are renamed and files beside them are fsynced: each
// subvolume has one name, an old one or the new one, and once an fsync has returned the file that
// it was for is there. A log says nothing of subvolumes: what it says of the directories would take
// their names away.
func TestSubvolumeRenameCrash(t *testing.T) {
	fstest.OneTask(t)
	base := blockdev.NewMemory(128 << 20)
	var log *dm.LogWrites
	x := fstest.New(t, fstest.Logging(fstest.Size(base.Size()), fstest.Wrap(func(dev blockdev.Device) blockdev.Device {
		log = dm.NewLogWrites(dev, dev.(*blockdev.Memory).Snapshot())
		return log
	}))...)
	x.Must(x.FS.Mkdir(x.T, "/d", 0o755))
	x.Must(x.FS.Subvolume(x.T, "/sub", 0o755))
	x.Must(x.FS.Subvolume(x.T, "/other", 0o755))
	x.Must(x.FS.Sync(x.T))
	log.Mark(x.T, "0")
	paths := []string{"/sub", "/d/sub", "/d/sub2", "/other/s", "/sub"}
	for i := 1; i < len(paths); i++ {
		dir := paths[i][:strings.LastIndex(paths[i], "/")]
		early := x.Create(fmt.Sprintf("%s/early%d", dir, i))
		x.Must(early.Fsync(x.T)) // the log has the directory
		x.Must(x.FS.Rename(x.T, paths[i-1], paths[i]))
		f := x.Create(fmt.Sprintf("%s/f%d", dir, i))
		x.WriteAt(f, []byte("data"), 0)
		x.Must(f.Fsync(x.T))
		if dir != "" {
			x.Must(x.FS.Fsync(x.T, dir))
		}
		x.Must(errors.Join(early.Close(x.T), f.Close(x.T)))
		log.Mark(x.T, fmt.Sprint(i))
	}
	x.Must(log.Images(x.T, dm.ImageOptions{SectorBytes: format.SectorSize, Subsets: 2, Seed: 7}, func(t *sched.Task, m dm.Image) error {
		var done int
		if _, err := fmt.Sscan(m.Mark, &done); err != nil {
			return nil // before the first mark
		}
		f, err := fs.Open(t, []blockdev.Device{m.Dev}, fs.Options{CheckQuiescence: true})
		if err != nil {
			return fmt.Errorf("%s: %w", m.Name, err)
		}
		list, err := f.Subvolumes(t)
		if err != nil || len(list) != 2 {
			return fmt.Errorf("%s after mark %d: subvolumes %v, %w", m.Name, done, list, err)
		}
		next := min(done+1, len(paths)-1)
		if at := list[0].Path; at != paths[done] && at != paths[next] {
			return fmt.Errorf("%s after mark %d: the subvolume is %s", m.Name, done, at)
		}
		for i := 1; i <= done; i++ {
			path := fmt.Sprintf("%s/f%d", paths[i][:strings.LastIndex(paths[i], "/")], i)
			if at, err := f.Stat(t, path); err != nil || at.Size != 4 {
				return fmt.Errorf("%s after mark %d: %s has %d bytes, %w", m.Name, done, path, at.Size, err)
			}
		}
		if err := f.Close(t); err != nil {
			return err
		}
		if s := fstest.Findings(t, m.Dev); s != "" {
			return fmt.Errorf("%s after mark %d: %s", m.Name, done, s)
		}
		return nil
	}))
}

// A subvolume moves while another task goes up from it, lists the subvolumes, deletes it, or moves
// another one below it: nobody finds it without a name, and no two lie in each other.
func TestSubvolumeRenameSchedules(t *testing.T) {
	need.LongRaced(t)
	o := fstest.Explored("locked")
	image, _ := subvolImages(o, "/other")
	gone := func(err error) { // by the name that the other task has taken
		if !errors.Is(err, errno.ENOENT) && !errors.Is(err, errno.EINVAL) {
			fstest.NoError(err)
		}
	}
	for _, c := range []struct {
		name  string
		other func(t *sched.Task, x *fs.FS, top *fs.Node)
	}{
		{"up", func(t *sched.Task, _ *fs.FS, top *fs.Node) {
			n, err := top.Lookup(t, "..")
			fstest.NoError(err)
			fstest.NoError(n.Forget(t, 1))
		}},
		{"list", func(t *sched.Task, x *fs.FS, _ *fs.Node) {
			list, err := x.Subvolumes(t)
			fstest.NoError(err)
			if p := list[0].Path; len(list) != 2 || p != "/s" && p != "/other/s" {
				panic(fmt.Sprint("the list is ", list))
			}
		}},
		{"move below", func(t *sched.Task, x *fs.FS, _ *fs.Node) { gone(x.Rename(t, "/other", "/s/other")) }},
		{"rename", func(t *sched.Task, x *fs.FS, _ *fs.Node) { gone(x.Rename(t, "/s", "/t")) }},
		{"stat", func(t *sched.Task, x *fs.FS, _ *fs.Node) { _, err := x.Stat(t, "/s/f"); gone(err) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := explore.Run(explore.Config{Preemptions: 2, Schedules: fstest.Schedules(600), NoShrink: true,
				Switch: lockdep.IDs("tree_root", "i_rwsem_dir", "subvol_sem")}, func(w *explore.World) {
				dev := image.Snapshot()
				x, err := fs.Open(w.Task(), []blockdev.Device{dev}, o)
				fstest.NoError(err)
				top, err := x.Node(w.Task(), 256, format.FIRST_FREE_OBJECTID)
				fstest.NoError(err)
				w.Go("move", func(t *sched.Task) { gone(x.Rename(t, "/s", "/other/s")) })
				w.Go("other", func(t *sched.Task) { c.other(t, x, top) })
				w.Check(func() error {
					fstest.NoError(top.Forget(w.Task(), 1))
					if list, err := x.Subvolumes(w.Task()); err != nil || len(list) != 2 {
						return fmt.Errorf("subvolumes %v, %w", list, err)
					}
					return closedClean(w.Task(), x, dev)
				})
			})
			notViolated(t, r)
		})
	}
}

// What is there, or is not, is said before what may not be done: EEXIST and ENOENT come before
// EROFS and EXDEV, as in Linux. Scripts that test for EEXIST saw another error.
func TestErrorOrder(t *testing.T) {
	x := fstest.New(t)
	f, tk := x.FS, x.T
	x.Must(f.Subvolume(tk, "/sub", 0o755))
	x.Must(f.Mkdir(tk, "/sub/d", 0o755))
	x.Must(x.Create("/sub/f").Close(tk))
	x.Must(x.Create("/f").Close(tk))
	x.Must(f.Mkdir(tk, "/d", 0o755))
	x.Must(f.Snapshot(tk, "/sub", "/ro", true))
	_, excl := f.OpenFile(tk, "/ro/f", fs.O_RDWR|fs.O_CREAT|fs.O_EXCL, 0o644)
	_, create := f.OpenFile(tk, "/ro/g", fs.O_RDWR|fs.O_CREAT, 0o644)
	_, open := f.OpenFile(tk, "/ro/g", fs.O_RDWR, 0)
	_, write := f.OpenFile(tk, "/ro/f", fs.O_RDWR, 0)
	for _, c := range []struct {
		what string
		err  error
		want error
	}{
		{"mkdir over a name", f.Mkdir(tk, "/ro/d", 0o755), errno.EEXIST},
		{"mkdir", f.Mkdir(tk, "/ro/new", 0o755), errno.EROFS},
		{"symlink over a name", f.Symlink(tk, "x", "/ro/f"), errno.EEXIST},
		{"create with O_EXCL", excl, errno.EEXIST},
		{"create", create, errno.EROFS},
		{"open what is not there", open, errno.ENOENT},
		{"open to write", write, errno.EROFS},
		{"subvolume over a name", f.Subvolume(tk, "/ro/d", 0o755), errno.EEXIST},
		{"snapshot over a name", f.Snapshot(tk, "/sub", "/ro/d", false), errno.EEXIST},
		{"delete what is not there", f.DeleteSubvolume(tk, "/ro/none"), errno.ENOENT},
		{"unlink of nothing", f.Unlink(tk, "/ro/none"), errno.ENOENT},
		{"unlink of a directory", f.Unlink(tk, "/ro/d"), errno.EROFS},
		{"rmdir of nothing", f.Rmdir(tk, "/ro/none"), errno.ENOENT},
		{"rmdir of a file", f.Rmdir(tk, "/ro/f"), errno.EROFS},
		{"link over a name", f.Link(tk, "/f", "/sub/f"), errno.EEXIST},
		{"link over a read-only name", f.Link(tk, "/f", "/ro/f"), errno.EEXIST},
		{"link into a read-only one", f.Link(tk, "/f", "/ro/g"), errno.EROFS},
		{"link of a directory", f.Link(tk, "/d", "/sub/g"), errno.EPERM},
		{"link to another subvolume", f.Link(tk, "/f", "/sub/g"), errno.EXDEV},
		{"rename of nothing", f.Rename(tk, "/none", "/sub/x"), errno.ENOENT},
		{"rename of nothing in a read-only one", f.Rename(tk, "/ro/none", "/x"), errno.ENOENT},
		{"rename onto itself in a read-only one", f.Rename(tk, "/ro/f", "/ro/f"), nil},
		{"rename in a read-only one", f.Rename(tk, "/ro/f", "/ro/g"), errno.EROFS},
		{"rename out of a read-only one", f.Rename(tk, "/ro/f", "/g"), errno.EROFS},
		{"rename of a directory over a file", f.Rename(tk, "/d", "/sub/f"), errno.ENOTDIR},
		{"rename of a file over a directory", f.Rename(tk, "/f", "/sub/d"), errno.EISDIR},
		{"rename to another subvolume", f.Rename(tk, "/f", "/sub/f"), errno.EXDEV},
		{"rename to a long name", f.Rename(tk, "/f", "/sub/"+strings.Repeat("n", 256)), errno.ENAMETOOLONG},
		{"rename to a dot", f.Rename(tk, "/f", "/sub/."), errno.EBUSY},
	} {
		wantErr(t, c.what, c.err, c.want)
	}
}
