package fs_test

import (
	"errors"
	"fmt"
	"testing"

	"btrlab/internal/blockdev"
	"btrlab/internal/blockdev/dm"
	"btrlab/internal/errno"
	"btrlab/internal/format"
	"btrlab/internal/fs"
	"btrlab/internal/lock/lockdep"
	"btrlab/internal/progs/mkfs"
	"btrlab/internal/sched"
	"btrlab/internal/sched/explore"
	"btrlab/internal/testing/fstest"
)

// TestInodeSchedules: tasks look for one inode at a time. One of them reads it, and the others wait
// for that: they have the same inode, or the same error, and none waits for ever. Afterwards the
// inode can be looked for again.
func TestInodeSchedules(t *testing.T) {
	o := fstest.Explored("locked")
	image := blockdev.NewMemory(128 << 20)
	tk := sched.NewTask("image")
	fstest.NoError(mkfs.Make(tk, image, mkfs.Options{Now: fstest.Epoch}))
	x := fstest.Must(fs.Open(tk, []blockdev.Device{image}, o))
	f := fstest.Must(x.Create(tk, "/f", 0o644))
	ino := f.Ino()
	fstest.NoError(errors.Join(f.Close(tk), x.Close(tk)))
	for _, c := range []struct {
		name string
		ino  format.Ino
		want error
	}{{"there", ino, nil}, {"not there", ino + 1, errno.ENOENT}} {
		t.Run(c.name, func(t *testing.T) {
			r := explore.Run(explore.Config{Preemptions: 2, Schedules: fstest.Schedules(500), NoShrink: true, Switch: lockdep.IDs("tree_fs", "inode_cache")}, func(w *explore.World) {
				x := fstest.Must(fs.Open(w.Task(), []blockdev.Device{image.Snapshot()}, o))
				look := func(t *sched.Task) {
					n, err := x.Node(t, format.FS_TREE_OBJECTID, c.ino)
					if !errors.Is(err, c.want) {
						panic(err)
					}
					if err == nil {
						fstest.NoError(n.Forget(t, 1))
					}
				}
				for _, name := range []string{"a", "b", "c"} {
					w.Go(name, look)
				}
				w.Check(func() error {
					look(w.Task())
					return x.Close(w.Task())
				})
			})
			t.Logf("%v after %d schedules", r.Verdict, r.Schedules)
			notViolated(t, r)
		})
	}
}

// TestInodeReadEIO: an inode that the device cannot read is an error, and is read when the device
// can.
func TestInodeReadEIO(t *testing.T) {
	var dev *dm.Flakey
	x := fstest.New(t, fstest.Faults(&dev))
	for i := range 300 { // leaves: an open reads the first and, for orphans, the last
		x.Must(x.Create(fmt.Sprint("/f", i)).Close(x.T))
	}
	ino := fstest.Must(x.FS.Lookup(x.T, "/f150"))
	x.Reopen()
	dev.Set(dm.Fault{Op: blockdev.OpRead})
	_, err := x.FS.Node(x.T, format.FS_TREE_OBJECTID, ino)
	wantErr(t, "with a device that reads nothing", err, errno.EIO)
	dev.Set()
	n, err := x.FS.Node(x.T, format.FS_TREE_OBJECTID, ino)
	x.Must(err)
	x.Must(n.Forget(x.T, 1))
}
