package inode

import (
	"testing"

	"btrlab/internal/data/ordered"
	"btrlab/internal/format"
	"btrlab/internal/lock/lockdep"
	"btrlab/internal/meta/ctree"
	"btrlab/internal/sched"
)

// A range with an ordered extent in it is not locked, also not in part: the completion needs it. A
// range beside it is.
func TestLockUnlessOrdered(tt *testing.T) {
	t := sched.NewTask("test")
	ip := newFS().New(ctree.BareRoot(5), 257, &format.InodeItem{Mode: format.S_IFREG})
	oe := ip.Ordered.Add(t, ip, ordered.Regular, 8192, 4096, 1<<30)
	if busy := ip.LockUnlessOrdered(t, 0, 16384); busy != oe {
		tt.Fatalf("have %v want %v", busy, oe)
	} else {
		busy.Put(t)
	}
	if ip.TryLockUnlessOrdered(t, 0, 16384) {
		tt.Fatal("locked with an ordered extent in the range")
	}
	lockdep.AssertNone(t)
	if ip.LockUnlessOrdered(t, 0, 8192) != nil || !ip.TryLockUnlessOrdered(t, 12288, 16384) {
		tt.Fatal("an ordered extent beside the range keeps it from being locked")
	}
	if ip.TryLockUnlessOrdered(t, 4096, 8192) {
		tt.Fatal("locked a range that is locked")
	}
	ip.IOTree.Unlock(t, 0, 8192)
	ip.IOTree.Unlock(t, 12288, 16384)

	// A waiter gets the range once the extent is finished, and holds nothing meanwhile.
	waiter := t.Go("waiter", func(t *sched.Task) {
		ip.LockAndFlushOrdered(t, 0, 16384)
		if !oe.Finished() {
			panic("locked before the ordered extent was finished")
		}
		ip.IOTree.Unlock(t, 0, 16384)
	})
	ip.IOTree.Lock(t, 8192, 12288) // as its completion does
	ip.IOTree.Unlock(t, 8192, 12288)
	ip.Ordered.Remove(t, oe)
	t.Join(waiter)
	oe.Put(t)
	ip.CheckQuiescent(t)
}
