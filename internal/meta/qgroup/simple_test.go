package qgroup_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"btrlab/internal/blockdev"
	"btrlab/internal/errno"
	"btrlab/internal/format"
	"btrlab/internal/testing/fstest"
)

const simpleNode = 16 << 10

// wantSimple fails unless the groups have these bytes, all of them exclusive, and the checker comes
// to the same.
func wantSimple(x *fstest.Fixture, want map[uint64]uint64) {
	x.Helper()
	x.Must(x.FS.Sync(x.T))
	for id, n := range want {
		if rfer, excl := fstest.Counts(x, id); rfer != n || excl != n {
			x.Errorf("qgroup %s: rfer %d excl %d, want %d", format.QgroupName(id), rfer, excl, n)
		}
	}
	fstest.JudgedQuota(x)
}

func fill(x *fstest.Fixture, path string, n int) {
	x.Helper()
	f := x.Create(path)
	x.WriteAt(f, make([]byte, n), 0)
	x.Must(f.Close(x.T))
}

// What is there before simple quotas is not counted, also not when it goes. What comes later counts
// for the subvolume that wrote it, whoever else refers to it, and until the last of them is gone.
func TestSimpleOwner(t *testing.T) {
	x := fstest.New(t)
	fill(x, "/old", 200<<10)
	x.Must(x.FS.EnableSimpleQuota(x.T))
	x.Must(x.FS.EnableSimpleQuota(x.T))
	if err := x.FS.EnableQuota(x.T); !errors.Is(err, errno.EINVAL) {
		t.Errorf("full quotas beside simple ones: %v", err)
	}
	if err := x.FS.RescanQuota(x.T); !errors.Is(err, errno.EINVAL) {
		t.Errorf("rescan: %v", err)
	}
	const top, sub, snap = format.FS_TREE_OBJECTID, 256, 257
	wantSimple(x, map[uint64]uint64{top: 0})
	x.Must(x.FS.Subvolume(x.T, "/sub", 0o755))
	x.Must(x.FS.Unlink(x.T, "/old"))
	fill(x, "/sub/a", 64<<10)
	wantSimple(x, map[uint64]uint64{top: simpleNode, sub: simpleNode + 64<<10})

	x.Must(x.FS.Snapshot(x.T, "/sub", "/snap", false))
	x.Reopen()
	fill(x, "/snap/b", 128<<10)
	a := x.Open("/sub/a")
	shared := x.Create("/shared")
	x.Must(shared.Reflink(x.T, a, 0, 64<<10, 0))
	x.Must(errors.Join(a.Close(x.T), shared.Close(x.T), x.FS.Unlink(x.T, "/sub/a")))
	wantSimple(x, map[uint64]uint64{top: simpleNode, sub: simpleNode + 64<<10, snap: simpleNode + 128<<10})

	// The subvolume goes; its group stays for the extent that others have.
	x.Must(x.FS.DeleteSubvolume(x.T, "/sub"))
	wantSimple(x, map[uint64]uint64{sub: 64 << 10})
	x.Must(x.FS.Unlink(x.T, "/shared"))
	wantSimple(x, map[uint64]uint64{sub: 64 << 10})
	x.Reopen()
	x.Must(x.FS.Unlink(x.T, "/snap/a"))
	wantSimple(x, map[uint64]uint64{top: simpleNode, sub: 0, snap: simpleNode + 128<<10})
	x.Must(x.FS.DeleteSubvolume(x.T, "/snap"))
	x.Must(x.FS.Sync(x.T))
	q, err := x.FS.Quotas(x.T)
	x.Must(err)
	if !q.Simple || len(q.Groups) != 2 {
		t.Errorf("after the last subvolume: %+v", q)
	}
}

// Random work, with commits and mounts between.
func TestSimpleCounts(t *testing.T) {
	x := fstest.New(t)
	x.Must(x.FS.EnableSimpleQuota(x.T))
	w := &fstest.Workload{Tb: t, T: x.T, F: x.FS, Model: fstest.Tree{}, Rng: rand.New(rand.NewPCG(5, 6))}
	for range 6 {
		for range 40 {
			w.Step()
		}
		x.Reopen()
		w.F = x.FS
		fstest.JudgedQuota(x)
	}
	for name := range w.Model {
		x.Must(x.FS.Unlink(x.T, "/"+name))
	}
	wantSimple(x, map[uint64]uint64{format.FS_TREE_OBJECTID: simpleNode})
	x.Must(x.FS.DisableQuota(x.T))
	x.Must(x.FS.EnableQuota(x.T))
	fstest.JudgedQuota(x)
}

// Two trees of three levels that share what lies in the middle: the one that goes last frees blocks
// that the other allocated.
func TestSimpleDeep(t *testing.T) {
	x := fstest.New(t)
	x.Must(x.FS.EnableSimpleQuota(x.T))
	x.Must(x.FS.Subvolume(x.T, "/sub", 0o755))
	target := strings.Repeat("t", 2000)
	for i := range 4500 {
		x.Must(x.FS.Symlink(x.T, target, fmt.Sprintf("/sub/link%d", i)))
	}
	x.Must(x.FS.Snapshot(x.T, "/sub", "/snap", false))
	for k := range 3 {
		x.Must(x.FS.Unlink(x.T, fmt.Sprintf("/snap/link%d", 1400*k)))
	}
	x.Must(x.FS.DeleteSubvolume(x.T, "/sub"))
	x.Reopen()
	fstest.JudgedQuota(x)
	if n, _ := fstest.Counts(x, 256); n < 400*simpleNode {
		t.Errorf("the subvolume that is gone allocated %d bytes that its snapshot has", n)
	}
	x.Must(x.FS.DeleteSubvolume(x.T, "/snap"))
	x.Reopen()
	wantSimple(x, map[uint64]uint64{format.FS_TREE_OBJECTID: simpleNode, 256: 0})
}

// An extent with its owner is one file's alone: an overwrite without COW goes in place.
func TestSimpleNocow(t *testing.T) {
	x := fstest.New(t)
	x.Must(x.FS.EnableSimpleQuota(x.T))
	f := x.Create("/f")
	x.Must(f.SetFlags(x.T, format.InodeNoDataCow))
	x.WriteAt(f, make([]byte, 64<<10), 0)
	x.Must(x.FS.Sync(x.T))
	x.WriteAt(f, []byte("changed"), 0) // with COW a new extent, beside the whole old one
	x.Must(f.Close(x.T))
	wantSimple(x, map[uint64]uint64{format.FS_TREE_OBJECTID: simpleNode + 64<<10})
}

// What a replayed log brings has its owner, too.
func TestSimpleLog(t *testing.T) {
	x := fstest.New(t)
	x.Must(x.FS.EnableSimpleQuota(x.T))
	x.Must(x.FS.Subvolume(x.T, "/sub", 0o755))
	x.Must(x.FS.Sync(x.T))
	f := x.Create("/sub/f")
	x.WriteAt(f, make([]byte, 48<<10), 0)
	x.Must(f.Fsync(x.T))
	x.Must(f.Close(x.T))
	crashed := x.Dev.(*blockdev.Memory).Snapshot()
	x.Close()
	x.Dev = crashed
	x.Reopen()
	wantSimple(x, map[uint64]uint64{256: simpleNode + 48<<10})
}

// A limit holds for what a subvolume allocates, and a new subvolume belongs to the groups that the
// one with its name belongs to.
func TestSimpleLimit(t *testing.T) {
	x := fstest.New(t)
	x.Must(x.FS.EnableSimpleQuota(x.T))
	x.Must(x.FS.LimitQuota(x.T, format.FS_TREE_OBJECTID, 1<<20, false, false))
	f := x.Create("/f")
	n := 0
	for ; n < 64; n++ {
		if _, err := f.WriteAt(x.T, make([]byte, 64<<10), int64(n)*64<<10); errors.Is(err, errno.EDQUOT) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
	}
	if n < 8 || n > 15 {
		t.Errorf("wrote %d pieces of 64 KiB within 1 MiB", n)
	}
	x.Must(f.Close(x.T))
	fstest.WantWithin(x)
}
