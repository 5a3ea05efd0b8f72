package treelog_test

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"testing"
	"time"

	"btrlab/internal/blockdev"
	"btrlab/internal/blockdev/dm"
	"btrlab/internal/format"
	"btrlab/internal/fs"
	"btrlab/internal/policy"
	"btrlab/internal/progs/check"
	"btrlab/internal/progs/mkfs"
	"btrlab/internal/sched"
	"btrlab/internal/sched/cost"
	"btrlab/internal/sched/vtime"
	"btrlab/internal/testing/fstest"
)

// lateDevice has the bytes of a write when the write ends, after a random time, and keeps what a
// power cut leaves right after each primary superblock: that, and the writes that had ended.
type lateDevice struct {
	*blockdev.Memory
	late  *rand.Rand // nil: at once
	crash []*blockdev.Memory
	logs  int // superblocks that name a tree of logs
}

func (d *lateDevice) Submit(t *sched.Task, b *blockdev.Bio) {
	if b.Op != blockdev.OpWrite || d.late == nil {
		d.Memory.Submit(t, b)
		return
	}
	if b.Off == format.SuperOffset {
		var sb format.Super
		if sb.Decode(b.Vecs[0]); sb.LogRoot != 0 {
			d.logs++
		}
		m := d.Snapshot()
		m.Submit(t, &blockdev.Bio{Op: b.Op, Off: b.Off, Vecs: b.Vecs, EndIO: func(*sched.Task, *blockdev.Bio) {}})
		d.crash = append(d.crash, m)
	}
	wait := time.Duration(50+d.late.IntN(2)*d.late.IntN(10_000)) * time.Microsecond
	t.Go("disk", func(t *sched.Task) {
		t.Sleep(wait)
		d.Memory.Submit(t, b)
	})
}

// TestFsyncLogLateBlocks: the blocks of a log are on their way to the device while the tree of logs
// is changed and written, and another subvolume's sync may be the one that writes the superblock.
// Whatever the device's order is, a superblock names only blocks that it has.
func TestFsyncLogLateBlocks(t *testing.T) {
	const rounds = 12
	_, err := vtime.Run(vtime.Machine{CPUs: 4, Checked: true}, func(k *sched.Task) {
		dev := &lateDevice{Memory: blockdev.NewMemory(256 << 20)}
		// One copy of metadata: with two a superblock may be right by luck.
		fstest.Must(0, mkfs.Make(k, dev, mkfs.Options{Now: time.Unix(0, 0), MetadataProfile: "single"}))
		x := fstest.Must(fs.Open(k, []blockdev.Device{dev}, fs.Options{Policy: policy.MustParse("fsync-5.18"), CheckQuiescence: true, Now: func() time.Time { return time.Unix(0, k.Now()) }}))
		var files []*fs.File
		for i := range 4 {
			dir := fmt.Sprint("/s", i)
			fstest.Must(0, x.Subvolume(k, dir, 0o755))
			f := fstest.Must(x.Create(k, dir+"/f", 0o644))
			fstest.Must(f.WriteAt(k, make([]byte, rounds*4096), 0))
			files = append(files, f)
		}
		fstest.Must(0, x.Sync(k))
		dev.late = rand.New(rand.NewPCG(11, 11))
		var tasks []*sched.Task
		for _, f := range files {
			tasks = append(tasks, k.Go("writer", func(t *sched.Task) {
				for i := range rounds {
					fstest.Must(f.WriteAt(t, make([]byte, 4096), int64(i)*4096))
					fstest.Must(0, f.Fsync(t))
				}
			}))
		}
		for _, w := range tasks {
			k.Join(w)
		}
		dev.late = nil
		for _, f := range files {
			fstest.Must(0, f.Close(k))
		}
		fstest.Must(0, x.Close(k))
		for i, m := range dev.crash {
			y, err := fs.Open(k, []blockdev.Device{m}, fs.Options{})
			if err != nil {
				t.Fatalf("after superblock %d: %v", i, err)
			}
			fstest.Must(0, y.Close(k))
			if res, err := check.Check(k, m, check.Options{}); err != nil || len(res.Findings) > 0 {
				t.Fatalf("after superblock %d: %v %v", i, err, res.Findings)
			}
		}
		if dev.logs < rounds {
			t.Errorf("%d of %d superblocks name a log, want at least %d", dev.logs, len(dev.crash), rounds)
		}
	})
	if err != nil {
		t.Error(err)
	}
}

// TestFsyncLogGroups: eight writers on one processor, and a device in memory, which nobody sleeps
// for. A sync of the log serves those that are ready to log, and not one writer after the other.
func TestFsyncLogGroups(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	x := fstest.New(t, fstest.Policy("fsync-5.18"))
	const writers, rounds = 8, 50
	var files []*fs.File
	for i := range writers {
		f := x.Create(fmt.Sprint("/f", i))
		x.WriteAt(f, make([]byte, rounds*4096), 0)
		files = append(files, f)
	}
	x.Must(x.FS.Sync(x.T))
	counts := make([]sched.Counts, writers)
	var tasks []*sched.Task
	for i, f := range files {
		tasks = append(tasks, x.T.Go("writer", func(k *sched.Task) {
			k.Counts = &counts[i]
			for n := range rounds {
				fstest.Must(f.WriteAt(k, make([]byte, 4096), int64(n)*4096))
				fstest.Must(0, f.Fsync(k))
			}
		}))
	}
	var sum sched.Counts
	for i, k := range tasks {
		x.T.Join(k)
		sum.Add(&counts[i])
		x.Must(files[i].Close(x.T))
	}
	fsyncs, syncs := sum.Log.N[sched.LogFsyncs], sum.Log.N[sched.LogSupers]
	if fsyncs != writers*rounds || 2*syncs > fsyncs {
		t.Errorf("%d fsyncs went to the log in %d syncs, want %d in at most half as many", fsyncs, syncs, writers*rounds)
	}
	t.Logf("%d fsyncs, %d syncs", fsyncs, syncs)
}

// TestFsyncLogDeviceTimes: an fsync of one block waits for the device three times, not counting
// flushes: for the data, for the blocks of the log and of the tree of logs together, and for the
// superblock.
func TestFsyncLogDeviceTimes(t *testing.T) {
	const service = 10 * time.Millisecond
	fstest.Must(vtime.Run(vtime.Machine{CPUs: 4, Checked: true}, func(k *sched.Task) {
		model := dm.New(k, blockdev.NewMemory(256<<20), dm.Params{Name: "test", Disks: 1, Channels: 64, Depth: 64, Write: service})
		fstest.Must(0, mkfs.Make(k, model, mkfs.Options{Now: time.Unix(0, 0)}))
		x := fstest.Must(fs.Open(k, []blockdev.Device{model}, fs.Options{Policy: policy.MustParse("fsync-5.18")}))
		f := fstest.Must(x.Create(k, "/f", 0o644))
		fstest.Must(f.WriteAt(k, make([]byte, 64<<10), 0))
		fstest.Must(0, x.Sync(k))
		for i := range 3 {
			fstest.Must(f.WriteAt(k, make([]byte, 4096), int64(i)*4096))
			from := k.Now()
			fstest.Must(0, f.Fsync(k))
			if took := time.Duration(k.Now() - from); took < 3*service || took >= 3*service+service/2 {
				t.Errorf("fsync %d took %v, want three writes of %v", i, took, service)
			}
		}
		fstest.Must(0, f.Close(k))
		fstest.Must(0, x.Close(k))
		fstest.Must(0, model.Close())
	}))
}

// TestFsyncLogTick: what a sync of the log waits for before it writes, which 7.3 has changed. Eight
// writers come to the log at different times. With LOG_TICK a sync that is not alone sleeps a tick
// for them: fewer syncs, and each fsync takes a tick. With LOG_ONE_WAIT it does not wait once more
// for who has come meanwhile, which is seldom anybody, and costs nothing.
func TestFsyncLogTick(t *testing.T) {
	const writers, rounds = 8, 40
	costs := cost.Default()
	run := func(spec string, writers int) (syncs int64, mean time.Duration) {
		fstest.Must(vtime.Run(vtime.Machine{CPUs: writers, Checked: true, Costs: &costs}, func(k *sched.Task) {
			model := dm.New(k, blockdev.NewMemory(256<<20), dm.Params{Name: "test", Disks: 1, Channels: 64, Depth: 64, Write: 100 * time.Microsecond, Seed: 5})
			fstest.Must(0, mkfs.Make(k, model, mkfs.Options{Now: time.Unix(0, 0)}))
			x := fstest.Must(fs.Open(k, []blockdev.Device{model}, fs.Options{Policy: policy.MustParse(spec)}))
			counts := make([]sched.Counts, writers)
			var files []*fs.File
			for i := range writers {
				f := fstest.Must(x.Create(k, fmt.Sprint("/f", i), 0o644))
				fstest.Must(f.WriteAt(k, make([]byte, rounds*4096), 0))
				files = append(files, f)
			}
			fstest.Must(0, x.Sync(k))
			var tasks []*sched.Task
			total := make([]int64, writers)
			for i, f := range files {
				tasks = append(tasks, k.Go("writer", func(k *sched.Task) {
					k.Counts = &counts[i]
					for n := range rounds {
						k.Sleep(time.Duration(1+(i*7+n*3)%11) * 40 * time.Microsecond)
						fstest.Must(f.WriteAt(k, make([]byte, 4096), int64(n)*4096))
						from := k.Now()
						fstest.Must(0, f.Fsync(k))
						total[i] += k.Now() - from
					}
				}))
			}
			var sum sched.Counts
			for i, w := range tasks {
				k.Join(w)
				sum.Add(&counts[i])
				mean += time.Duration(total[i]) / time.Duration(writers*rounds)
				fstest.Must(0, files[i].Close(k))
			}
			syncs = sum.Log.N[sched.LogSupers]
			fstest.Must(0, x.Close(k))
			fstest.Must(0, model.Close())
		}))
		t.Logf("%s, %d writers: %d syncs, an fsync takes %v", spec, writers, syncs, mean)
		return syncs, mean
	}
	again, mean := run("fsync-5.18", writers)
	once, meanOnce := run("fsync-5.18+LOG_ONE_WAIT", writers)
	tick, meanTick := run("fsync-5.18+LOG_TICK", writers)
	_, alone := run("fsync-5.18+LOG_TICK", 1)
	if once < again {
		t.Errorf("%d syncs that wait once, want at least the %d that wait again", once, again)
	}
	if meanOnce > mean {
		t.Errorf("an fsync that waits once takes %v, want at most the %v of one that waits again", meanOnce, mean)
	}
	if tick >= again || meanTick < 4*time.Millisecond {
		t.Errorf("with a tick %d syncs and %v for an fsync, want less than %d and at least 4 ms", tick, meanTick, again)
	}
	if alone > time.Millisecond {
		t.Errorf("a task that logs alone takes %v for an fsync: it sleeps a tick", alone)
	}
}
