package transaction_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"btrlab/internal/blockdev"
	"btrlab/internal/blockdev/dm"
	"btrlab/internal/errno"
	"btrlab/internal/format"
	"btrlab/internal/lock/lockdep"
	"btrlab/internal/meta/ctree"
	"btrlab/internal/meta/spaceinfo"
	"btrlab/internal/meta/transaction"
	"btrlab/internal/sched"
	"btrlab/internal/sched/explore"
)

// A hook brings into the trees what is kept outside. It runs beside open handles, where most of the
// work is done, and again when none is open: what changed in between is in the same commit.
func TestHooks(tt *testing.T) {
	t := sched.NewTask("test")
	dev := newImage(tt, t, 128<<20)
	m := open(tt, t, dev)
	key := func(n int) format.Key { return format.Key{Objectid: uint64(1000 + n), Type: format.INODE_ITEM_KEY} }
	calls := 0
	m.OnCommit(func(t *sched.Task, h *transaction.Handle) error {
		it := format.InodeItem{Generation: h.Transid(), Transid: h.Transid(), Nlink: 1, Mode: format.S_IFREG | 0o644}
		var b [format.InodeItemSize]byte
		it.Encode(b[:])
		calls++
		return m.Forest.InsertItem(t, h.Trans(), m.Root(format.FS_TREE_OBJECTID), key(calls), b[:])
	})
	h, err := m.Join(t)
	if err == nil {
		err = h.End(t)
	}
	if err == nil {
		err = m.Commit(t)
	}
	if err != nil {
		tt.Fatal(err)
	}
	if calls != 2 {
		tt.Errorf("the hook ran %d times in a commit, want 2", calls)
	}
	m = open(tt, t, dev)
	for n := 1; n <= calls; n++ {
		var p ctree.Path
		found, err := m.Forest.SearchSlot(t, nil, m.Root(format.FS_TREE_OBJECTID), key(n), &p, 0, false)
		p.Release(t)
		if !found || err != nil {
			tt.Errorf("what run %d of the hook inserted is not in the commit: %v", n, err)
		}
	}
}

// A commit waits for the handles that are open, so that a change of several steps is in it whole or
// not at all. Every order with one switch is tried; the image is read as a crash after the commit
// would leave it.
func TestCommitWaits(tt *testing.T) {
	tt.Run("start", func(tt *testing.T) {
		commitWaits(tt, func(t *sched.Task, m *transaction.Manager) (*transaction.Handle, error) { return m.Start(t, 2) })
	})
	tt.Run("join", func(tt *testing.T) { // has a wait of its own, after that for ordered extents
		commitWaits(tt, func(t *sched.Task, m *transaction.Manager) (*transaction.Handle, error) {
			bytes := m.Space.CalcInsert(2)
			if err := m.Space.Metadata().Reserve(t, bytes, spaceinfo.NoFlush); err != nil {
				return nil, err
			}
			return m.JoinReserved(t, bytes)
		})
	})
}

func commitWaits(tt *testing.T, begin func(t *sched.Task, m *transaction.Manager) (*transaction.Handle, error)) {
	image := newImage(tt, sched.NewTask("mkfs"), 64<<20).(*blockdev.Memory)
	prog := func(w *explore.World) {
		dev := image.Snapshot()
		m := open(tt, w.Task(), dev)
		must := func(err error) {
			if err != nil {
				panic(err)
			}
		}
		insert := func(t *sched.Task, h *transaction.Handle, ino uint64) {
			it := format.InodeItem{Generation: h.Transid(), Transid: h.Transid(), Nlink: 1, Mode: format.S_IFREG | 0o644}
			var b [format.InodeItemSize]byte
			it.Encode(b[:])
			must(m.Forest.InsertItem(t, h.Trans(), m.Root(format.FS_TREE_OBJECTID), format.Key{Objectid: ino, Type: format.INODE_ITEM_KEY}, b[:]))
		}
		w.Go("writer", func(t *sched.Task) {
			h, err := begin(t, m)
			must(err)
			insert(t, h, 1001)
			insert(t, h, 1002)
			must(h.End(t))
		})
		w.Go("sync", func(t *sched.Task) {
			must(m.Commit(t))
			n := 0
			c := open(tt, t, dev.Snapshot())
			for ino := uint64(1001); ino <= 1002; ino++ {
				var p ctree.Path
				found, err := c.Forest.SearchSlot(t, nil, c.Root(format.FS_TREE_OBJECTID), format.Key{Objectid: ino, Type: format.INODE_ITEM_KEY}, &p, 0, false)
				must(err)
				p.Release(t)
				if found {
					n++
				}
			}
			if n == 1 {
				panic("half a change is in the commit")
			}
		})
	}
	cfg := explore.Config{Preemptions: 1, Switch: lockdep.IDs("tree_fs", "trans_lock", "transaction_writers", "commit")}
	r := explore.Run(cfg, prog)
	if r.Kind != "" {
		tt.Errorf("%s, %s, schedule %q: %s", r.Bound, r.Kind, r.Schedule, r.Violation)
	}
}

// One write of a commit fails, each in turn, and those after it succeed: the commit reports it, the
// file system is read-only, and the device has the commit before, whole. Only a copy of the
// superblock may fail: the primary makes the commit, as in Linux, and the next commit writes the
// copy again.
func TestCommitWriteFails(tt *testing.T) {
	t := sched.NewTask("test")
	base := newImage(tt, t, 128<<20).(*blockdev.Memory)
	m := open(tt, t, base)
	makeInodes(tt, t, m, 3)
	if err := m.Commit(t); err != nil {
		tt.Fatal(err)
	}
	want, copies := m.Generation(t), 0
	for nth := int64(1); ; nth++ {
		mem := base.Snapshot()
		dev := dm.NewFlakey(mem, dm.Fault{Op: blockdev.OpWrite, Nth: nth})
		m := open(tt, t, dev)
		model := extents{}
		for i := range uint64(3) {
			if err := insert(t, m, model, format.Key{Objectid: 1000 + i, Type: format.EXTENT_DATA_KEY}, 64<<10); err != nil {
				tt.Fatal(err)
			}
		}
		err := m.Commit(t)
		if dev.Failed() == 0 {
			if err != nil || nth < 6 || copies != 1 {
				tt.Errorf("a commit of %d writes, %d of them copies of the superblock: %v", nth-1, copies, err)
			}
			break
		}
		if all := supers(tt, t, mem); err == nil && all[0].Generation == want+1 && all[1].Generation == want {
			copies++
			if err := insert(t, m, model, format.Key{Objectid: 1000, Type: format.EXTENT_DATA_KEY, Offset: 1 << 20}, 64<<10); err != nil {
				tt.Error(err)
			}
			if err := m.Commit(t); err != nil {
				tt.Error(err)
			}
			if again := supers(tt, t, mem); again[1].Generation != again[0].Generation {
				tt.Errorf("the copy of the superblock stays at generation %d, the primary has %d", again[1].Generation, again[0].Generation)
			}
			continue
		}
		if !errors.Is(err, errno.EIO) || !m.Broken() {
			tt.Errorf("write %d fails, the commit says %v, broken %v", nth, err, m.Broken())
		}
		if _, err := m.Start(t, 1); !errors.Is(err, errno.EROFS) {
			tt.Errorf("write %d fails, a handle after it: %v, want EROFS", nth, err)
		}
		if sb := supers(tt, t, mem)[0]; sb.Generation != want {
			tt.Errorf("write %d fails, the primary superblock has generation %d, want %d", nth, sb.Generation, want)
			continue
		}
		verify(tt, t, mem, extents{})
	}
}

// A handle that is refused takes nothing with it: what was reserved for it, by Start or by the
// caller of JoinReserved, is free again. A file system that runs out of handles after an abort
// would else run out of space in its accounts.
func TestRefusedHandle(tt *testing.T) {
	t := sched.NewTask("test")
	m := open(tt, t, newImage(tt, t, 128<<20))
	h, err := m.Start(t, 1)
	if err != nil {
		tt.Fatal(err)
	}
	h.Abort(t, errno.EIO)
	if err := h.End(t); !errors.Is(err, errno.EROFS) {
		tt.Errorf("end of an aborted handle: %v", err)
	}
	meta := m.Space.Metadata()
	before := meta.Usage(t)
	if _, err := m.Start(t, 5); !errors.Is(err, errno.EROFS) {
		tt.Errorf("start after an abort: %v", err)
	}
	if err := meta.Reserve(t, 1<<20, spaceinfo.NoFlush); err != nil {
		tt.Fatal(err)
	}
	if _, err := m.JoinReserved(t, 1<<20); !errors.Is(err, errno.EROFS) {
		tt.Errorf("join after an abort: %v", err)
	}
	if err := m.Commit(t); err == nil {
		tt.Error("commit after an abort: no error")
	}
	if after := meta.Usage(t); after != before {
		tt.Errorf("before %+v, after %+v", before, after)
	}
}

// A task with a handle that brings more reserved bytes gets the same handle, and what it does not
// use goes back with the last End.
func TestNestedHandle(tt *testing.T) {
	t := sched.NewTask("test")
	m := open(tt, t, newImage(tt, t, 128<<20))
	h, err := m.Start(t, 1)
	if err != nil {
		tt.Fatal(err)
	}
	if err := m.Space.Metadata().Reserve(t, 1<<20, spaceinfo.NoFlush); err != nil {
		tt.Fatal(err)
	}
	for range 2 {
		inner, err := m.JoinReserved(t, 512<<10)
		if err != nil || inner != h {
			tt.Fatalf("join: %v, the same handle %v", err, inner == h)
		}
	}
	if again, err := m.Start(t, 100); err != nil || again != h {
		tt.Fatalf("start: %v, the same handle %v", err, again == h)
	}
	for range 4 {
		if m.Running(t) == 0 {
			tt.Error("no transaction runs before the last end")
		}
		if err := h.End(t); err != nil {
			tt.Fatal(err)
		}
	}
	checkAccounts(tt, t, m)
	if err := m.Commit(t); err != nil {
		tt.Fatal(err)
	}
	checkAccounts(tt, t, m)
}

// The superblock has the roots of the last four commits, the oldest is written over. The uuid tree,
// which no commit here changes, stays as new as the file system, or Linux would scan all subvolumes
// at the next mount.
func TestBackupRoots(tt *testing.T) {
	t := sched.NewTask("test")
	dev := newImage(tt, t, 128<<20)
	m := open(tt, t, dev)
	for n := range 7 {
		h, err := m.Join(t)
		if err == nil {
			err = h.End(t)
		}
		if err == nil {
			err = m.Commit(t)
		}
		if err != nil {
			tt.Fatal(err)
		}
		sb := supers(tt, t, dev)[0]
		if sb.UUIDTreeGeneration != sb.Generation {
			tt.Errorf("commit %d: uuid tree generation %d, want %d", n, sb.UUIDTreeGeneration, sb.Generation)
		}
		var have, want []uint64
		for _, b := range sb.Backups {
			have = append(have, b.TreeRootGen)
		}
		for i := range uint64(len(sb.Backups)) {
			want = append(want, max(sb.Generation, i)-i)
		}
		slices.Sort(have)
		slices.Sort(want)
		if fmt.Sprint(have) != fmt.Sprint(want) {
			tt.Errorf("commit %d: backups of the generations %v, want %v", n, have, want)
		}
		newest := slices.MaxFunc(sb.Backups[:], func(a, b format.RootBackup) int { return int(a.TreeRootGen) - int(b.TreeRootGen) })
		if newest.TreeRoot != sb.Root || newest.ChunkRoot != sb.ChunkRoot || newest.TreeRootLevel != sb.RootLevel || newest.BytesUsed != sb.BytesUsed {
			tt.Errorf("commit %d: the newest backup is %+v, the superblock %+v", n, newest, sb)
		}
		for id, have := range map[uint64]uint64{format.EXTENT_TREE_OBJECTID: newest.ExtentRoot, format.FS_TREE_OBJECTID: newest.FSRoot,
			format.DEV_TREE_OBJECTID: newest.DevRoot, format.CSUM_TREE_OBJECTID: newest.CsumRoot} {
			if want, _, _ := m.Root(id).Pointer(); have != want {
				tt.Errorf("commit %d: the newest backup has tree %d at %d, want %d", n, id, have, want)
			}
		}
	}
}
