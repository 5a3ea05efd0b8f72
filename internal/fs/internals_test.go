package fs_test

import (
	"fmt"
	"testing"

	"btrlab/internal/blockdev"
	"btrlab/internal/blockdev/dm"
	"btrlab/internal/format"
	"btrlab/internal/testing/fstest"
)

// Tests that look into the file system, by export_test.go.

// TestFsyncLogBlockEIO: a block of a log cannot be written, so the fsync commits, and all is well.
// The log is freed with the commit, and other blocks come to lie where it was: a block of it that
// stays in memory as dirty is in their way.
func TestFsyncLogBlockEIO(t *testing.T) {
	fstest.OneTask(t)
	for nth := int64(1); ; nth++ { // of the writes of two fsyncs, each a log block or a superblock
		var dev *dm.Flakey
		x := fstest.New(t, fstest.OneCopy(fstest.Faults(&dev))...)
		f := x.Create("/f")
		x.Must(x.FS.Sync(x.T))
		logged := func(text string) {
			x.WriteAt(f, []byte(text), 0) // inline: no other write
			x.Must(f.Fsync(x.T))
		}
		before := dev.Count(blockdev.OpWrite)
		// but a superblock, which is fatal
		dev.Set(dm.Fault{Op: blockdev.OpWrite, Nth: before + nth, Start: 1 << 20, End: 64 << 20})
		logged("first")
		logged("second")
		writes := dev.Count(blockdev.OpWrite) - before
		dev.Set()
		x.Must(x.FS.Sync(x.T))
		if n := x.FS.DirtyBlocks(x.T); n != 0 {
			t.Errorf("write %d fails, and after a commit %d tree blocks are dirty, want none", nth, n)
		}
		for i := range 8 { // where the log was
			x.Must(x.Create(fmt.Sprint("/g", i)).Close(x.T))
			x.Must(x.FS.Sync(x.T))
		}
		x.Must(f.Close(x.T))
		if nth > writes {
			if writes < 6 {
				t.Errorf("two fsyncs have %d writes, want at least 6", writes)
			}
			break
		}
	}
}

// Counts that are not of the last commit, as when a kernel without quotas has written, are
// inconsistent until a rescan, and those of a rescan that was broken off are made again by the next
// commit.
func TestQuotaRescan(t *testing.T) {
	for _, flags := range []uint64{format.QgroupStatusInconsistent, format.QgroupStatusRescan} {
		x := fstest.New(t)
		x.Must(x.FS.EnableQuota(x.T))
		x.FS.SpoilQuota(x.T, flags)
		x.Reopen()
		q, err := x.FS.Quotas(x.T)
		if x.Must(err); q.Inconsistent != (flags == format.QgroupStatusInconsistent) {
			t.Errorf("flags %#x: after the open: %+v", flags, q)
		}
		f := x.Create("/f")
		x.WriteAt(f, make([]byte, 100<<10), 0)
		x.Must(f.Close(x.T))
		x.Must(x.FS.Sync(x.T))
		if flags == format.QgroupStatusInconsistent {
			x.Must(x.FS.RescanQuota(x.T))
		}
		fstest.JudgedQuota(x)
		if q, err = x.FS.Quotas(x.T); err != nil || q.Inconsistent || q.Rescan {
			t.Errorf("flags %#x: in the end: %+v, %v", flags, q, err)
		}
		// A kernel that finds a rescan under way goes on with it; it looks for the place in the
		// status.
		if s := x.FS.QuotaStatus(x.T); s.Rescan != ^uint64(0) || s.Flags != format.QgroupStatusOn {
			t.Errorf("flags %#x: the status says %+v, want no rescan", flags, s)
		}
	}
}
