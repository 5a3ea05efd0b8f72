package inode

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"testing"

	"btrlab/internal/data/ordered"
	"btrlab/internal/data/pagecache"
	"btrlab/internal/errno"
	"btrlab/internal/format"
	"btrlab/internal/meta/ctree"
	"btrlab/internal/meta/spaceinfo"
	"btrlab/internal/sched"
	"btrlab/internal/sched/explore"
)

func TestMain(m *testing.M) {
	sched.SetChecked(true)
	os.Exit(m.Run())
}

// tree is a subvolume tree of inode items only.
type tree struct {
	items  map[uint64]format.InodeItem
	fail   error
	during func(ino format.Ino)
	fails  func(ino format.Ino) error
}

func (r *tree) UpdateInode(t *sched.Task, tr *ctree.Trans, root *ctree.Root, ino format.Ino, it *format.InodeItem) error {
	if r.fail != nil {
		return r.fail
	}
	if r.fails != nil {
		if err := r.fails(ino); err != nil {
			return err
		}
	}
	r.items[uint64(ino)] = *it
	if r.during != nil {
		r.during(ino)
	}
	return nil
}

func newFS() *FS {
	return NewFS(spaceinfo.New(16384, 1), pagecache.NewCache(0, 1<<20, 2<<20))
}

// A schedule's report names the locks and values of an inode as the kernel does: each has a name,
// and no two share one.
func TestObjects(tt *testing.T) {
	ip := newFS().New(ctree.BareRoot(format.FS_TREE_OBJECTID), 257, &format.InodeItem{Mode: format.S_IFREG})
	var names []string
	ids := map[any]bool{}
	ip.Objects(func(id any, name string) {
		names = append(names, name)
		ids[id] = true
	})
	want := []string{"i_rwsem", "i_size", "READDIO_NEED_LOCK", "i_dio_count", "extent range", "byte range"}
	if !slices.Equal(names, want) || len(ids) != len(want) {
		tt.Errorf("%d objects are named %q, want %q", len(ids), names, want)
	}
}

// An inode with many changed ranges keeps one that has all of them: an fsync logs too much then,
// and never less than what has changed.
func TestManyModifiedRanges(tt *testing.T) {
	t := sched.NewTask("test")
	fs := newFS()
	fs.Logging.Store(true)
	for _, down := range []bool{false, true} {
		ip := fs.New(ctree.BareRoot(format.FS_TREE_OBJECTID), 257, &format.InodeItem{Mode: format.S_IFREG})
		const n, step = 3*modifiedMax + 1, 16 << 12
		ip.IOTree.Lock(t, 0, pagecache.MaxFileEnd)
		for i := range uint64(n) {
			if down {
				i = n - 1 - i
			}
			ip.ExtentsChanged(t, 7, i*step, i*step+4096)
		}
		list := ip.TakeModified(t, 7, nil)
		ip.IOTree.Unlock(t, 0, pagecache.MaxFileEnd)
		if len(list) > modifiedMax {
			tt.Errorf("down %v: %d ranges, want at most %d", down, len(list), modifiedMax)
		}
		for i := range uint64(n) {
			if !slices.ContainsFunc(list, func(r Range) bool { return r.Start <= i*step && r.End >= i*step+4096 }) {
				tt.Fatalf("down %v: the change at %d is in none of %v", down, i*step, list)
			}
		}
	}
}

// Items are written once per commit however often the inode changed, with the size that is on disk
// and not i_size; a change that comes while the item is being written is not lost; a failed commit
// forgets nobody.
func TestWriteDirty(tt *testing.T) {
	t := sched.NewTask("test")
	fs := newFS()
	root := ctree.BareRoot(format.FS_TREE_OBJECTID)
	a := fs.New(root, 257, &format.InodeItem{Size: 10, Mode: format.S_IFREG})
	b := fs.New(root, 258, &format.InodeItem{Size: 20, Mode: format.S_IFDIR})
	r := &tree{items: map[uint64]format.InodeItem{}}

	a.SetSize(t, 5000)
	a.Touch(t, format.Timespec{Sec: 7})
	a.AddBytes(t, 4096)
	a.Change(t, func(it *format.InodeItem) { it.Nlink = 3 })
	b.Change(t, func(it *format.InodeItem) { it.Size = 26 })
	if n := fs.DirtyCount(t); n != 2 {
		tt.Fatalf("%d dirty inodes", n)
	}
	r.fail = errors.New("tree is broken")
	if err := fs.WriteDirty(t, &ctree.Trans{ID: 9}, r); !errors.Is(err, r.fail) {
		tt.Fatalf("have %v", err)
	}
	if n := fs.DirtyCount(t); n != 2 || !a.Dirty() || !b.Dirty() {
		tt.Fatalf("%d dirty inodes after a failed commit", n)
	}
	r.fail = nil
	r.during = func(ino format.Ino) {
		if ino == 258 && !b.Dirty() && b.LastTransid.Load() != 10 {
			tt.Error("an inode whose item is on its way is neither dirty nor of the transaction: fsync takes it for durable")
		}
		if ino == 257 {
			a.SetDiskSize(t, 5000)
			a.MarkDirty(t)
		}
	}
	if err := fs.WriteDirty(t, &ctree.Trans{ID: 10}, r); err != nil {
		tt.Fatal(err)
	}
	it := r.items[257]
	if it.Size != 10 || it.Nbytes != 4096 || it.Nlink != 3 || it.Mtime.Sec != 7 || it.Sequence != 1 || it.Transid != 10 {
		tt.Fatalf("item %+v", it)
	}
	if r.items[258].Size != 26 {
		tt.Fatalf("directory item %+v", r.items[258])
	}
	if !a.Dirty() || b.Dirty() || fs.DirtyCount(t) != 1 {
		tt.Fatal("the change during the write was lost")
	}
	r.during = nil
	if err := fs.WriteDirty(t, &ctree.Trans{ID: 11}, r); err != nil {
		tt.Fatal(err)
	}
	if it := r.items[257]; it.Size != 5000 || a.LastTransid.Load() != 11 {
		tt.Fatalf("item %+v, last transid %d", it, a.LastTransid.Load())
	}
	a.MarkDirty(t)
	a.Forget(t)
	if fs.DirtyCount(t) != 0 || a.Dirty() {
		tt.Fatal("a deleted inode waits for a commit")
	}

	// An inode is deleted while the items are written. That the item of any other is missing is
	// damage.
	a.MarkDirty(t)
	b.MarkDirty(t)
	missing := errno.ENOENT
	r.fails = func(ino format.Ino) error {
		if ino == 258 {
			b.Forget(t)
			return missing
		}
		return nil
	}
	if err := fs.WriteDirty(t, &ctree.Trans{ID: 12}, r); err != nil {
		tt.Errorf("the item of a deleted inode is missing: %v", err)
	}
	c := fs.New(root, 259, &format.InodeItem{Mode: format.S_IFREG})
	c.MarkDirty(t)
	r.fails = func(format.Ino) error { return missing }
	if err := fs.WriteDirty(t, &ctree.Trans{ID: 13}, r); !errors.Is(err, errno.ENOENT) {
		tt.Errorf("the item of a live inode is missing: %v", err)
	}
}

// A completion brings the size on disk to i_size while a truncate changes both: whoever comes last,
// the truncate's size stays.
func TestFollowSizeSchedules(tt *testing.T) {
	r := explore.Run(explore.Config{MaxSteps: 1000}, func(w *explore.World) {
		ip := newFS().New(ctree.BareRoot(5), 257, &format.InodeItem{Size: 100, Mode: format.S_IFREG})
		ip.SetSize(w.Task(), 8192)
		w.Go("completion", func(t *sched.Task) { w.Call(t); ip.FollowSize(t) })
		w.Go("truncate", func(t *sched.Task) {
			w.Call(t)
			ip.SetSize(t, 4096)
			ip.SetDiskSize(t, 4096)
		})
		w.Finally(func(t *sched.Task) error {
			if n := ip.DiskSize(t); n != 4096 {
				return fmt.Errorf("size on disk %d, want 4096", n)
			}
			return nil
		})
	})
	if r.Verdict != explore.Exhausted {
		tt.Errorf("%v after %d schedules: %s; schedule %q", r.Verdict, r.Schedules, r.Violation, r.Schedule)
	}
}

// What is not at rest is found, with the numbers.
func TestCheckQuiescent(tt *testing.T) {
	t := sched.NewTask("test")
	fs := newFS()
	ip := fs.New(ctree.BareRoot(5), 257, &format.InodeItem{Mode: format.S_IFREG, Flags: format.InodeNoDataSum})
	ip.CheckQuiescent(t)
	panics := func(what string, f func()) {
		tt.Helper()
		defer func() {
			if recover() == nil {
				tt.Errorf("%s was not noticed", what)
			}
		}()
		f()
	}
	ip.IOTree.Lock(t, 0, 4096)
	panics("a locked range", func() { ip.CheckQuiescent(t) })
	oe := ip.AddOrdered(t, ordered.Nocow, 0, 4096, 1<<30)
	ip.IOTree.Unlock(t, 0, 4096)
	panics("an ordered extent whose range is not locked", func() { ip.AddOrdered(t, ordered.Nocow, 4096, 4096, 1<<30) })
	panics("an ordered extent", func() { ip.CheckQuiescent(t) })
	panics("an ordered extent in flight", func() { fs.CheckQuiescent(t) })
	ip.Ordered.Remove(t, oe)
	ip.ReturnOrdered(t, oe, ip.LendOrdered(t, oe))
	oe.Put(t)
	p := ip.Pages.Grab(t, 0)
	p.SetUptodate()
	ip.Pages.SetDirty(t, p)
	panics("a dirty page", func() { ip.CheckQuiescent(t) })
	ip.Pages.ClearDirty(t, p)
	p.UnlockPut(t)
	ip.IOTree.Lock(t, 0, 4096)
	oe = ip.AddOrdered(t, ordered.Nocow, 0, 4096, 1<<30)
	ip.IOTree.Unlock(t, 0, 4096)
	ip.Ordered.Remove(t, oe)
	panics("an outstanding extent", func() { ip.CheckQuiescent(t) })
	ip.ReturnOrdered(t, oe, ip.LendOrdered(t, oe))
	oe.Put(t)
	ip.DIO.Inc(t)
	panics("a dio count", func() { ip.CheckQuiescent(t) })
	ip.DIO.Dec(t)
	ip.CheckQuiescent(t)
	fs.CheckQuiescent(t)
	ip.AddBytes(t, -1) // a damaged image may say less than there is
	if it := ip.Item(t); it.Nbytes != 0 {
		tt.Errorf("nbytes %d", it.Nbytes)
	}
}

// A try has the inode's place in the order, as Lock has: with a lower inode held by a try, a higher
// one may be locked, and lockdep stops the other way round.
func TestTryLockKeepsTheOrder(tt *testing.T) {
	root := ctree.BareRoot(format.FS_TREE_OBJECTID)
	fs := newFS()
	lo := fs.New(root, 257, &format.InodeItem{Mode: format.S_IFREG})
	hi := fs.New(root, 258, &format.InodeItem{Mode: format.S_IFREG})
	stopped := func(f func()) (yes bool) {
		defer func() { yes = recover() != nil }()
		f()
		return
	}
	for _, try := range []func(ip *Inode, t *sched.Task) bool{(*Inode).TryLock, (*Inode).TryRLock} {
		t := sched.NewTask("ascending")
		if !try(lo, t) {
			tt.Fatal("a free lock is not taken")
		}
		if stopped(func() { hi.Lock(t) }) {
			tt.Error("257 by a try, then 258: lockdep stops the right order")
		}
		t2 := sched.NewTask("descending")
		hi.Unlock(t)
		if !try(hi, t2) {
			tt.Fatal("a free lock is not taken")
		}
		if lo2 := fs.New(root, 256, &format.InodeItem{Mode: format.S_IFREG}); !stopped(func() { lo2.Lock(t2) }) {
			tt.Error("258 by a try, then 256: lockdep does not see the wrong order")
		}
		lo, hi = fs.New(root, 257, &format.InodeItem{Mode: format.S_IFREG}), fs.New(root, 258, &format.InodeItem{Mode: format.S_IFREG})
	}
}

// Readers share i_rwsem and keep a writer out; a try gives up instead of waiting.
func TestTryRLockShares(tt *testing.T) {
	ip := newFS().New(ctree.BareRoot(format.FS_TREE_OBJECTID), 257, &format.InodeItem{Mode: format.S_IFREG})
	a, b := sched.NewTask("a"), sched.NewTask("b")
	if !ip.TryRLock(a) || !ip.TryRLock(b) {
		tt.Fatal("two readers do not share")
	}
	w := sched.NewTask("w")
	if ip.TryLock(w) {
		tt.Fatal("a writer beside two readers")
	}
	ip.RUnlock(a)
	ip.RUnlock(b)
	if !ip.TryLock(w) {
		tt.Fatal("a free lock is not taken")
	}
	if ip.TryRLock(a) {
		tt.Fatal("a reader beside a writer")
	}
	ip.Unlock(w)
}
