package fs_test

import (
	"errors"
	"fmt"
	"testing"

	"btrlab/internal/blockdev"
	"btrlab/internal/errno"
	"btrlab/internal/fs"
	"btrlab/internal/lock/lockdep"
	"btrlab/internal/progs/mkfs"
	"btrlab/internal/sched"
	"btrlab/internal/sched/explore"
	"btrlab/internal/testing/fstest"
	"btrlab/internal/testing/need"
)

// subvolImages makes an image with a file /s/f in a subvolume, and one in which a crash has also
// left a file there without a name; with more subvolumes if there are any.
func subvolImages(o fs.Options, also ...string) (image, orphan *blockdev.Memory) {
	image = blockdev.NewMemory(128 << 20)
	tk := sched.NewTask("image")
	fstest.NoError(mkfs.Make(tk, image, mkfs.Options{Now: fstest.Epoch}))
	x, err := fs.Open(tk, []blockdev.Device{image}, o)
	fstest.NoError(err)
	for _, path := range append([]string{"/s"}, also...) {
		fstest.NoError(x.Subvolume(tk, path, 0o755))
	}
	create := func(path string) *fs.File {
		f, err := x.Create(tk, path, 0o644)
		fstest.NoError(err)
		_, err = f.WriteAt(tk, make([]byte, 8192), 0)
		fstest.NoError(err)
		return f
	}
	fstest.NoError(create("/s/f").Close(tk))
	left := create("/s/left")
	fstest.NoError(errors.Join(x.Sync(tk), x.Unlink(tk, "/s/left"), x.Sync(tk)))
	orphan = image.Snapshot()
	fstest.NoError(errors.Join(left.Close(tk), x.Close(tk)))
	return image, orphan
}

// notViolated fails the test with the schedule that a search has found.
func notViolated(t *testing.T, r explore.Result) {
	t.Helper()
	if r.Verdict == explore.Violated {
		t.Errorf("%v after %d schedules: %s; schedule %q", r.Verdict, r.Schedules, r.Violation, r.Schedule)
	}
	t.Logf("%v after %d schedules", r.Verdict, r.Schedules)
}

// closedClean closes x, which is on dev, and says what check finds.
func closedClean(t *sched.Task, x *fs.FS, dev *blockdev.Memory) error {
	fstest.NoError(x.Close(t))
	if s := fstest.Findings(t, dev); s != "" {
		return errors.New(s)
	}
	return nil
}

// TestDeleteSubvolumeSchedules: a subvolume is deleted while another task closes an unlinked file
// of it, is on its way into it, deletes a file of it, is the first to open it and deletes what a
// crash has left, or makes a subvolume in it. One of the two is told that there is nothing, or that
// somebody is at work. Nobody changes a tree that is being dropped, and nothing that is to stay
// lies in it.
func TestDeleteSubvolumeSchedules(t *testing.T) {
	need.Long(t)
	o := fstest.Explored("locked")
	image, orphan := subvolImages(o)
	for _, c := range []struct {
		name  string
		image *blockdev.Memory
		open  string // held open, and unlinked
		other func(t *sched.Task, x *fs.FS, f *fs.File) error
		also  string // a class of locks inside the step
		alone bool   // one of the two cannot be done when the other is
	}{
		{"close", image, "/s/f", func(t *sched.Task, x *fs.FS, f *fs.File) error { return f.Close(t) }, "extent", false},
		{"write", image, "", func(t *sched.Task, x *fs.FS, _ *fs.File) error {
			f, err := x.OpenFile(t, "/s/f", fs.O_RDWR, 0)
			if err != nil {
				return err
			}
			_, err = f.WriteAt(t, make([]byte, 4096), 0)
			return errors.Join(err, f.Fsync(t), f.Close(t))
		}, "", false},
		{"unlink", image, "", func(t *sched.Task, x *fs.FS, _ *fs.File) error { return x.Unlink(t, "/s/f") }, "", false},
		{"orphan", orphan, "", func(t *sched.Task, x *fs.FS, _ *fs.File) error {
			_, err := x.Stat(t, "/s")
			return err
		}, "", false},
		{"subvolume", image, "", func(t *sched.Task, x *fs.FS, _ *fs.File) error { return x.Subvolume(t, "/s/n", 0o755) }, "tree_root", true},
	} {
		t.Run(c.name, func(t *testing.T) {
			classes := lockdep.IDs("subvol_open", "inode_cache", "transaction", "commit")
			if c.also != "" { // in this case alone: each class takes schedules from the others
				classes = append(classes, lockdep.IDs(c.also)...)
			}
			r := explore.Run(explore.Config{Preemptions: 2, Schedules: fstest.Schedules(800), NoShrink: true, Switch: classes}, func(w *explore.World) {
				dev := c.image.Snapshot()
				x, err := fs.Open(w.Task(), []blockdev.Device{dev}, o)
				fstest.NoError(err)
				var f *fs.File
				if c.open != "" {
					f, err = x.OpenFile(w.Task(), c.open, fs.O_RDWR, 0)
					fstest.NoError(errors.Join(err, x.Unlink(w.Task(), c.open)))
				}
				var done [2]bool
				for i, do := range []func(t *sched.Task, x *fs.FS, f *fs.File) error{c.other,
					func(t *sched.Task, x *fs.FS, _ *fs.File) error { return x.DeleteSubvolume(t, "/s") }} {
					w.Go("task", func(t *sched.Task) {
						err := do(t, x, f)
						if done[i] = err == nil; !errors.Is(err, errno.ENOENT) && !errors.Is(err, errno.EBUSY) && !errors.Is(err, errno.ENOTEMPTY) {
							fstest.NoError(err)
						}
					})
				}
				w.Check(func() error {
					if c.alone && done[0] && done[1] {
						return errors.New("both have returned success")
					}
					fstest.NoError(x.Sync(w.Task()))
					x.CheckQuiescent(w.Task())
					fstest.NoError(x.Close(w.Task()))
					// drops what a busy subvolume has left
					y, err := fs.Open(w.Task(), []blockdev.Device{dev}, o)
					fstest.NoError(err)
					return closedClean(w.Task(), y, dev)
				})
			})
			notViolated(t, r)
		})
	}
}

// TestOrphanSchedules: a task that opens a subvolume deletes what a crash has left in it, while
// another one unlinks a file of it and closes it. Each orphan item is taken by one of the two. A
// task that lists the subvolumes opens it too, comes to no inode of it, and still wakes the other
// one.
func TestOrphanSchedules(t *testing.T) {
	need.LongRaced(t)
	o := fstest.Explored("locked")
	_, orphan := subvolImages(o, "/s/inner")
	for _, c := range []struct {
		name string
		open func(t *sched.Task, x *fs.FS) error
	}{
		{"stat", func(t *sched.Task, x *fs.FS) error { _, err := x.Stat(t, "/s"); return err }},
		{"list", func(t *sched.Task, x *fs.FS) error { _, err := x.Subvolumes(t); return err }},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := explore.Run(explore.Config{Preemptions: 2, Schedules: fstest.Schedules(2000), NoShrink: true,
				Switch: lockdep.IDs("subvol_open", "inode_cache", "tree_fs")}, func(w *explore.World) {
				dev := orphan.Snapshot()
				x, err := fs.Open(w.Task(), []blockdev.Device{dev}, o)
				fstest.NoError(err)
				w.Go("open", func(t *sched.Task) { fstest.NoError(c.open(t, x)) })
				w.Go("unlink", func(t *sched.Task) { fstest.NoError(x.Unlink(t, "/s/f")) })
				w.Check(func() error { return closedClean(w.Task(), x, dev) })
			})
			notViolated(t, r)
		})
	}
}

// TestSubvolumesSchedules: the subvolumes are listed while one of them is deleted. The list has it
// or not, and the others.
func TestSubvolumesSchedules(t *testing.T) {
	o := fstest.Explored("locked")
	image, _ := subvolImages(o)
	r := explore.Run(explore.Config{Preemptions: 1, Schedules: fstest.Schedules(400), NoShrink: true,
		Switch: lockdep.IDs("tree_root")}, func(w *explore.World) {
		x, err := fs.Open(w.Task(), []blockdev.Device{image.Snapshot()}, o)
		fstest.NoError(err)
		fstest.NoError(x.Subvolume(w.Task(), "/other", 0o755))
		w.Go("list", func(t *sched.Task) {
			list, err := x.Subvolumes(t)
			fstest.NoError(err)
			if n := len(list); n == 0 || list[n-1].Path != "/other" {
				panic(fmt.Sprint("the list is ", list))
			}
		})
		w.Go("delete", func(t *sched.Task) { fstest.NoError(x.DeleteSubvolume(t, "/s")) })
		w.Check(func() error { return x.Close(w.Task()) })
	})
	notViolated(t, r)
}

// TestTwoSubvolumesSchedules: one commit makes a subvolume and a snapshot of what it is made in.
// When the snapshot has the name of the new one, its directory has the size with it.
func TestTwoSubvolumesSchedules(t *testing.T) {
	o := fstest.Explored("locked")
	image, _ := subvolImages(o)
	r := explore.Run(explore.Config{Preemptions: 1, Schedules: fstest.Schedules(400), NoShrink: true,
		Switch: lockdep.IDs("i_rwsem_dir", "trans_lock")}, func(w *explore.World) {
		dev := image.Snapshot()
		x, err := fs.Open(w.Task(), []blockdev.Device{dev}, o)
		fstest.NoError(err)
		fstest.NoError(x.Mkdir(w.Task(), "/d", 0o755))
		w.Go("subvolume", func(t *sched.Task) { fstest.NoError(x.Subvolume(t, "/n", 0o755)) })
		w.Go("snapshot", func(t *sched.Task) { fstest.NoError(x.Snapshot(t, "/", "/d/snap", false)) })
		w.Check(func() error { return closedClean(w.Task(), x, dev) })
	})
	notViolated(t, r)
}
