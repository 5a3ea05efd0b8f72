package qgroup_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"btrlab/internal/blockdev"
	"btrlab/internal/blockdev/dm"
	"btrlab/internal/format"
	"btrlab/internal/fs"
	"btrlab/internal/progs/check"
	"btrlab/internal/sched"
	"btrlab/internal/testing/fstest"
)

// deletable makes a file system with quotas and gives its device, closed. Its subvolumes /sub and
// /snap share blocks and extents, and take several transactions to delete. One of these ends inside
// a file whose extent has thousands of references at one offset.
func deletable(t *testing.T) *blockdev.Memory {
	const files, blocks = 500, 5000
	x := fstest.New(t, fstest.FSOptions(func(o *fs.Options) { o.FirstFit = true }))
	x.Must(x.FS.EnableQuota(x.T))
	x.Must(x.FS.Subvolume(x.T, "/sub", 0o755))
	x.Must(x.FS.Subvolume(x.T, "/kept", 0o755))
	for i := range files {
		f := x.Create(fmt.Sprintf("/sub/file%d", i))
		if i%20 == 0 {
			x.WriteAt(f, make([]byte, 8<<10), 0)
		}
		x.Must(f.Close(x.T))
	}
	big := x.Create("/sub/big")
	x.WriteAt(big, make([]byte, 2*blocks*format.SectorSize), 0)
	x.Must(x.FS.Snapshot(x.T, "/sub", "/snap", false))
	for i := range blocks {
		x.WriteAt(big, make([]byte, format.SectorSize), int64(2*i+1)*format.SectorSize)
		if i%1000 == 0 {
			x.Must(x.FS.Sync(x.T)) // what is dirty reserves more than the device has
		}
	}
	last, kept := x.Create("/sub/last"), x.Create("/kept/f")
	// in the first leaf of the file and in the last of the subvolume
	x.Must(last.Reflink(x.T, big, 0, 64<<10, 0))
	x.Must(kept.Reflink(x.T, big, 0, 64<<10, 0))
	x.Must(errors.Join(big.Close(x.T), last.Close(x.T), kept.Close(x.T)))
	x.Must(x.FS.Sync(x.T))
	fstest.JudgedQuota(x)
	x.Close()
	return x.Dev.(*blockdev.Memory)
}

// countsRight fails unless the checker comes to the counts of the image, and each qgroup has its
// subvolume.
func countsRight(t *sched.Task, dev blockdev.Device) error {
	r, err := check.Check(t, dev, check.Options{})
	if err != nil {
		return err
	}
	if !r.Clean || slices.ContainsFunc(r.Notes, func(n string) bool { return strings.Contains(n, "quota") }) {
		return fmt.Errorf("findings %v, notes %q", r.Findings, r.Notes)
	}
	f, err := fs.Open(t, []blockdev.Device{dev}, fs.Options{ReadOnly: true})
	if err != nil {
		return err
	}
	q, err := f.Quotas(t)
	for _, g := range q.Groups {
		if g.Path == "" {
			err = fmt.Errorf("qgroup %s has no subvolume", format.QgroupName(g.ID))
		}
	}
	return errors.Join(err, f.Close(t))
}

// A crash at any flush of a long deletion leaves counts from which the next open, which finishes
// it, comes to the right ones; and the qgroup goes with its subvolume. The bug: the counts were
// those without the subvolume from the loss of its name on, and the rest of the deletion changed
// nothing. Of one that Linux had begun, whose counts have the subvolume still, the others'
// exclusive bytes stayed too small.
func TestQuotaDeleteCrash(t *testing.T) {
	fstest.OneTask(t)
	dev := deletable(t)
	for path, commits := range map[string]uint64{"/sub": 4, "/snap": 2} {
		t.Run(path[1:], func(t *testing.T) { quotaDeleteCrash(t, dev.Snapshot(), path, commits) })
	}
}

// quotaDeleteCrash deletes the subvolume at path of dev, in that many commits at least.
func quotaDeleteCrash(t *testing.T, dev *blockdev.Memory, path string, commits uint64) {
	tk := sched.NewTask("delete")
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	log := dm.NewLogWrites(dev, dev.Snapshot())
	f, err := fs.Open(tk, []blockdev.Device{log}, fs.Options{CheckQuiescence: true, FirstFit: true})
	must(err)
	before := f.Statfs(tk).Generation
	must(f.DeleteSubvolume(tk, path))
	if n := f.Statfs(tk).Generation - before; n < commits {
		t.Fatalf("%d commits, want %d", n, commits)
	}
	must(f.Close(tk))
	must(countsRight(tk, dev))
	must(log.Images(tk, dm.ImageOptions{SectorBytes: format.SectorSize, Subsets: 1, Seed: 9}, func(t *sched.Task, m dm.Image) error {
		f, err := fs.Open(t, []blockdev.Device{m.Dev}, fs.Options{CheckQuiescence: true, FirstFit: true})
		if err == nil {
			err = f.Close(t)
		}
		if err == nil {
			err = countsRight(t, m.Dev)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", m.Name, err)
		}
		return nil
	}))
}
