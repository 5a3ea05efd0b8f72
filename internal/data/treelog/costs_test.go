package treelog_test

import (
	"bytes"
	"math/rand/v2"
	"testing"

	"btrlab/internal/sched"
	"btrlab/internal/testing/fstest"
)

// TestFsyncLogOverwrite: an fsync of one overwritten block of a file writes the leaf of the log,
// the leaf of the tree of logs and one superblock, under each policy of logs, and never more than
// three blocks.
func TestFsyncLogOverwrite(t *testing.T) {
	for _, spec := range []string{"fsync-5.17", "fsync-5.18"} {
		x := fstest.New(t, fstest.Policy(spec))
		f := x.Create("/f")
		p := bytes.Repeat([]byte{1}, 64<<10)
		x.WriteAt(f, p, 0)
		x.Must(x.FS.Sync(x.T))
		w := sched.NewTask("writer")
		for i := range 4 {
			var c sched.Counts
			w.Counts = &c
			if _, err := f.WriteAt(w, p[:4096], int64(4096*(i+1))); err != nil {
				t.Fatal(err)
			}
			x.Must(f.Fsync(w))
			n := &c.Log.N
			if n[sched.LogFsyncs] != 1 || n[sched.LogSupers] != 1 || n[sched.LogBlocks] < 2 || n[sched.LogBlocks] > 3 {
				t.Errorf("%s: fsync %d: have %d logs, %d blocks and %d superblocks, want 1, 2 to 3 and 1", spec, i, n[sched.LogFsyncs], n[sched.LogBlocks], n[sched.LogSupers])
			}
			if want := n[sched.LogBlocks]*16384 + 4096; n[sched.LogBytes] != want {
				t.Errorf("%s: fsync %d: have %d bytes of log want %d", spec, i, n[sched.LogBytes], want)
			}
		}
		x.Must(f.Close(x.T))
	}
}

// logCosts counts the costs of fsyncs in a log that has two files in many leaves, after writes like
// those of seed 003's job: of 4 KiB to 1 MiB at random.
func logCosts(t *testing.T, spec string) sched.LogCounts {
	x := fstest.New(t, fstest.Policy(spec))
	const blocks = 2048
	room := x.Create("/room") // no fsync goes to a log in a transaction that makes a block group
	x.Must(room.Fallocate(x.T, 0, 0, 8*blocks*4096))
	x.Must(x.FS.Sync(x.T))
	x.Must(room.Truncate(x.T, 0))
	x.Must(room.Close(x.T))
	f := x.Create("/f")
	x.WriteAt(f, make([]byte, blocks*4096), 0)
	x.Must(x.FS.Sync(x.T))
	for i := 0; i < blocks; i += 2 {
		x.WriteAt(f, make([]byte, 4096), int64(4096*i))
	}
	x.Must(f.Fsync(x.T))
	var c sched.Counts
	w := sched.NewTask("writer")
	w.Counts = &c
	r := rand.New(rand.NewPCG(3, 3))
	p := make([]byte, 1<<20)
	for range 60 {
		n := []int{1, 1, 2, 4, 8, 16, 32, 64, 128, 256}[r.IntN(10)]
		x.WriteAt(f, p[:4096*n], int64(4096*r.IntN(blocks-n)))
		x.Must(f.Fsync(w))
	}
	x.Must(f.Close(x.T))
	return c.Log
}

// TestFsyncLogCosts: what a patch of seed 003 takes away from an fsync, alone and with the other
// five. L1 and L2 are in package ctree's TestSmallLeaf: what they and L4 save depends on how full
// the leaves are, which is not the same in every run.
func TestFsyncLogCosts(t *testing.T) {
	fstest.OneTask(t)
	old, all := logCosts(t, "fsync-5.17"), logCosts(t, "fsync-5.18")
	t.Logf("5.17: %v", old)
	t.Logf("5.18: %v", all)
	leaf := func(c *sched.LogCounts) int64 { return c.Steps[0] }
	n := func(i sched.LogCounter) func(c *sched.LogCounts) int64 {
		return func(c *sched.LogCounts) int64 { return c.N[i] }
	}
	for _, c := range []struct {
		toggle, what string
		cost         func(c *sched.LogCounts) int64
	}{
		{"L3_LAZY_SUM", "sizes added up", n(sched.LogSums)},
		{"L5_NO_EXTRA_RELEASE", "releases", n(sched.LogReleases)},
		{"L6_PREPARE_FIRST", "steps with the leaf locked", leaf},
	} {
		with := logCosts(t, "fsync-5.17+"+c.toggle)
		if have, all, was := c.cost(&with), c.cost(&all), c.cost(&old); have >= was || all >= was {
			t.Errorf("%s: %s: have %d, with all six %d, want less than %d", c.toggle, c.what, have, all, was)
		}
	}
}

// TestFsyncLogReplaceMulti: patch 4 of seed 003. An fsync logs a large extent over many small ones,
// whose items lie in more than one leaf of the log. Since 5.18 the item goes to the last of them,
// before its place was searched once more; the trees are the same after it.
func TestFsyncLogReplaceMulti(t *testing.T) {
	fstest.OneTask(t)
	searches := func(spec string) int64 {
		x := fstest.New(t, fstest.Policy(spec))
		const blocks, large = 1024, 256
		f := x.Create("/f")
		p := make([]byte, blocks*4096)
		x.WriteAt(f, p, 0)
		x.Must(x.FS.Sync(x.T))
		for i := 0; i < blocks; i += 2 {
			x.WriteAt(f, p[:4096], int64(4096*i))
		}
		// An fsync logs what is on its way into the tree, and what is in it, at different costs:
		// fallocate, which has nothing to do, waits for all.
		inTree := func() { x.Must(f.Fallocate(x.T, 0, 0, blocks*4096)) }
		inTree()
		x.Must(f.Fsync(x.T)) // an item for each block, some 200 to a leaf
		var c sched.Counts
		w := sched.NewTask("writer")
		w.Counts = &c
		x.WriteAt(f, p[:4096*large], 4096*large)
		inTree()
		x.Must(f.Fsync(w))
		if n := c.Log.N[sched.LogFsyncs]; n != 1 {
			t.Fatalf("%s: have %d fsyncs that went to the log want 1", spec, n)
		}
		x.Must(f.Close(x.T))
		return c.Log.N[sched.LogSearches]
	}
	with, without := searches("fsync-5.18"), searches("fsync-5.18!L4_REPLACE_MULTI")
	if with+1 != without {
		t.Errorf("have %d searches with L4_REPLACE_MULTI and %d without, want one more", with, without)
	}
	if alone, none := searches("fsync-5.17+L4_REPLACE_MULTI"), searches("fsync-5.17"); alone+1 != none {
		t.Errorf("have %d searches with L4_REPLACE_MULTI alone and %d without any, want one more", alone, none)
	}
}
