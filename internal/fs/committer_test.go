package fs_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"btrlab/internal/blockdev"
	"btrlab/internal/fs"
	"btrlab/internal/lock"
	"btrlab/internal/policy"
	"btrlab/internal/progs/check"
	"btrlab/internal/progs/mkfs"
	"btrlab/internal/sched"
	"btrlab/internal/sched/vtime"
	"btrlab/internal/testing/fstest"
)

// clocked runs prog in virtual time with an open file system whose transactions are committed after
// 30 s.
func clocked(tb testing.TB, prog func(t *sched.Task, x *fs.FS, dev *blockdev.Memory)) error {
	_, err := vtime.Run(vtime.Machine{CPUs: 4, Checked: true}, func(t *sched.Task) {
		dev := blockdev.NewMemory(fstest.DefaultSize)
		if err := mkfs.Make(t, dev, mkfs.Options{Now: time.Unix(0, 0)}); err != nil {
			tb.Error(err)
			return
		}
		x, err := fs.Open(t, []blockdev.Device{dev}, fs.Options{Policy: policy.MustParse("fsync-5.18"), CommitInterval: fs.DefaultCommitInterval,
			CheckQuiescence: true, Now: func() time.Time { return time.Unix(0, t.Now()) }})
		if err != nil {
			tb.Error(err)
			return
		}
		prog(t, x, dev)
		if err := x.Close(t); err != nil {
			tb.Error(err)
		}
		res, err := check.Check(t, dev, check.Options{})
		if err != nil || len(res.Findings) > 0 {
			tb.Errorf("check: %v %v", err, res)
		}
	})
	return err
}

// What nobody syncs is lost when the power goes; Linux loses half a minute of it. A transaction is
// committed 30 s after it began, whoever committed the one before it, and without a transaction
// there is no commit.
func TestCommitter(t *testing.T) {
	err := clocked(t, func(k *sched.Task, x *fs.FS, dev *blockdev.Memory) {
		super := x.Super(k)
		start := super.Generation
		n := 0
		create := func() {
			n++
			f, err := x.Create(k, fmt.Sprint("/f", n), 0o644)
			if err == nil {
				err = f.Close(k)
			}
			if err != nil {
				t.Error(err)
			}
		}
		commits := func(after time.Duration, want uint64) {
			t.Helper()
			k.Sleep(after)
			if s := x.Super(k); s.Generation != start+want {
				t.Errorf("at %v: %d commits, want %d", time.Duration(k.Now()).Round(time.Second), s.Generation-start, want)
			}
		}
		commits(100*time.Second, 0)
		create() // after the committer has found nothing
		commits(29*time.Second, 0)
		create() // of the same transaction
		commits(2*time.Second, 1)
		lost, err := fs.Open(k, []blockdev.Device{dev.Snapshot()}, fs.Options{})
		if err == nil {
			if _, err = lost.Stat(k, "/f2"); err == nil {
				err = lost.Close(k)
			}
		}
		if err != nil {
			t.Errorf("after the commit and a power cut: %v", err)
		}
		commits(100*time.Second, 1)
		create()
		k.Sleep(20 * time.Second)
		if err := x.Sync(k); err != nil {
			t.Error(err)
		}
		create()
		commits(20*time.Second, 2) // 40 s after the transaction before began
		commits(11*time.Second, 3)
	})
	if err != nil {
		t.Error(err)
	}
}

// The blocks of logs are used again after the commit by the clock: without it a job of fsyncs takes
// new ones until the device is full.
func TestCommitterFreesLogs(t *testing.T) {
	err := clocked(t, func(k *sched.Task, x *fs.FS, _ *blockdev.Memory) {
		f, err := x.Create(k, "/f", 0o644)
		if err != nil {
			t.Error(err)
			return
		}
		defer f.Close(k)
		var reserved []uint64
		for range 4 {
			for i := range 60 {
				_, err := f.WriteAt(k, make([]byte, 4096), int64(4096*(i%16)))
				if err == nil {
					err = f.Fsync(k)
				}
				if err != nil {
					t.Error(err)
				}
				k.Sleep(100 * time.Millisecond)
			}
			reserved = append(reserved, x.Statfs(k).MetadataReserved)
			k.Sleep(31 * time.Second)
			if s := x.Statfs(k); s.MetadataReserved != 0 || s.MetadataPinned != 0 || s.DataPinned != 0 {
				t.Errorf("31 s after the last fsync: metadata reserved=%d pinned=%d, data pinned=%d", s.MetadataReserved, s.MetadataPinned, s.DataPinned)
			}
		}
		if reserved[3] == 0 || reserved[3] > 2*reserved[1] {
			t.Errorf("the logs have %v bytes before the commits", reserved)
		}
	})
	if err != nil {
		t.Error(err)
	}
}

// The committer's clock does not keep a program alive of which no task can go on.
func TestCommitterIsNoProgress(t *testing.T) {
	err := clocked(t, func(k *sched.Task, x *fs.FS, _ *blockdev.Memory) {
		if _, err := x.Create(k, "/f", 0o644); err != nil {
			t.Error(err)
		}
		var never lock.WaitQueue
		never.Wait(k, func() bool { return false })
	})
	if err == nil || !strings.Contains(err.Error(), "nothing can go on at 30.") || !strings.Contains(err.Error(), "transaction#4 waits for committer_idle") {
		t.Errorf("have %v, want that nothing can go on, after the commit at 30 s", err)
	}
}

// Commits by the clock beside writers that fsync to logs, in the real runtime: all of it is there
// afterwards.
func TestCommitterBesideWriters(t *testing.T) {
	x := fstest.New(t, fstest.Policy("fsync-5.18"), fstest.FSOptions(func(o *fs.Options) { o.CommitInterval = time.Millisecond }))
	super := x.FS.Super(x.T)
	start := super.Generation
	commits := func(k *sched.Task) uint64 { s := x.FS.Super(k); return s.Generation - start }
	var tasks []*sched.Task
	const writers, want = 3, 5
	for w := range writers {
		tasks = append(tasks, x.T.Go(fmt.Sprint("writer", w), func(k *sched.Task) {
			f, err := x.FS.Create(k, fmt.Sprint("/f", w), 0o644)
			for i := 0; err == nil && i < 50_000 && commits(k) < want; i++ {
				if _, err = f.WriteAt(k, []byte{byte(i)}, int64(i%64)*4096); err == nil {
					err = f.Fsync(k)
				}
			}
			if err == nil {
				err = f.Close(k)
			}
			if err != nil {
				t.Error(err)
			}
		}))
	}
	for _, k := range tasks {
		x.T.Join(k)
	}
	if n := commits(x.T); n < want {
		t.Errorf("%d commits in all those fsyncs, want %d", n, want)
	}
	x.FS.Pause(x.T)
	x.FS.Resume(x.T)
	n := commits(x.T)
	f, err := x.FS.Create(x.T, "/last", 0o644)
	x.Must(err)
	for i := 0; commits(x.T) == n; i++ {
		if i == 5000 {
			t.Fatal("no commit after Resume")
		}
		x.T.Sleep(time.Millisecond)
	}
	x.Must(f.Close(x.T))
}
