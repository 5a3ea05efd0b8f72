package experiment_test

import (
	"strings"
	"testing"

	"btrlab/internal/measure/experiment"
	"btrlab/internal/measure/fio"
	"btrlab/internal/measure/rig"
	"btrlab/internal/measure/seeds"
	"btrlab/internal/policy"
	"btrlab/internal/sched"
	"btrlab/internal/sched/vtime"
)

// Under every policy, on a real image, every block ends up as one whole write that no other
// followed, and the image is clean. The file is small and the blocks differ in size, so that writes
// meet.
func TestPoliciesKeepBlocks(t *testing.T) {
	jf, err := fio.Parse("meet", strings.NewReader(`
[j]
rw=randwrite
norandommap
size=2m
io_size=8m
bssplit=4k/70:16k/20:64k/10
numjobs=6
filename=f
fsync=200
group_reporting`))
	if err != nil {
		t.Fatal(err)
	}
	task := sched.NewTask("test")
	l, err := rig.Open(task, rig.Config{Size: 256 << 20})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	r, err := experiment.Compare(task, l, experiment.Options{Job: jf, Policies: policy.Names(), Rounds: 1, Device: l.DeviceName(), Model: l.ModelName()})
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Rows) < 6 {
		t.Errorf("%d policies", len(r.Rows))
	}
	for _, row := range r.Rows {
		if row.Content != "ok" || row.Check != "clean" {
			t.Errorf("%s: content %s, check %s", row.Policy, row.Content, row.Check)
		}
		if row.Clat.Max == 0 || row.IOPS == 0 {
			t.Errorf("%s: nothing measured: %+v", row.Policy, row)
		}
	}
}

// The job of seed 004, smaller: direct writes of half a block, many in flight, under each design
// and through the page cache. Each half of a block is one whole write in the end. The file is so
// small that writes of one block meet.
func TestSeed004KeepsSectors(t *testing.T) {
	jf, err := fio.Parse("seed-004", strings.NewReader(seeds.Get("004").Job))
	for _, kv := range [][2]string{{"size", "128k"}, {"numjobs", "4"}, {"iodepth", "16"}, {"rw", "randwrite"}, {"norandommap", "1"}, {"io_size", "1m"}, {"time_based", "0"}, {"ramp_time", "0"}, {"bssplit", "512/20:1k/20:2k/40:6k/20"}} {
		if err == nil {
			err = jf.Set(kv[0], kv[1])
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	task := sched.NewTask("test")
	l, err := rig.Open(task, rig.Config{Size: 256 << 20, Model: "delay:write=50us,read=50us,flush=50us"})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	s := seeds.Get("004")
	r, err := experiment.Compare(task, l, experiment.Options{Job: jf, Variants: s.Variants(), Baseline: s.Compare.Baseline, Pairs: s.Compare.Pairs, Rounds: 1})
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range r.Rows {
		if row.Content != "ok" || row.Check != "clean" || row.IOPS == 0 {
			t.Errorf("%s: content %s, check %s, %g iops", row.Policy, row.Content, row.Check, row.IOPS)
		}
	}
	if len(r.Rows) != 4 || r.Baseline != "exclusive" || r.Pairs[0].Published < 185 || r.Pairs[0].Published > 186 {
		t.Errorf("%d rows, baseline %s, pairs %+v", len(r.Rows), r.Baseline, r.Pairs)
	}
}

// The job of seed 003, smaller: each task has a file of its own, and every block of every file ends
// up as one whole write. The row that commits has no costs of logs; the others have one superblock
// for each fsync at most, and fewer steps under the leaf's lock with the patches.
func TestSeed003KeepsFiles(t *testing.T) {
	jf, err := fio.Parse("seed-003", strings.NewReader(seeds.Get("003").Job))
	for _, kv := range [][2]string{{"filesize", "256k"}, {"numjobs", "3"}, {"io_size", "512k"}, {"time_based", "0"}, {"bssplit", "4k/40:8k/40:16k/20"}} {
		if err == nil {
			err = jf.Set(kv[0], kv[1])
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	task := sched.NewTask("test")
	l, err := rig.Open(task, rig.Config{Size: 256 << 20, Files: 3})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	s := seeds.Get("003")
	opt := experiment.Options{Job: jf, Variants: s.Variants(), Baseline: s.Compare.Baseline, Pairs: s.Compare.Pairs, Rounds: 1, Files: 3}
	r, err := experiment.Compare(task, l, opt)
	if err != nil {
		t.Fatal(err)
	}
	for i, row := range r.Rows {
		if row.Content != "ok" || row.Check != "clean" || row.IOPS == 0 {
			t.Errorf("%s: content %s, check %s, %g iops", row.Policy, row.Content, row.Check, row.IOPS)
		}
		if (row.Log == nil) != (i == 0) {
			t.Fatalf("%s: have costs of logs %v", row.Policy, row.Log)
		}
		if l := row.Log; l != nil && (l.Costs["superblocks"] == 0 || l.Costs["superblocks"] > l.Fsyncs || l.HeldNs[0] == 0) {
			t.Errorf("%s: have %+v", row.Policy, *l)
		}
	}
	if old, now := r.Rows[1].Log.StepsEach(0), r.Rows[2].Log.StepsEach(0); now >= old {
		t.Errorf("steps with a leaf locked: have %g want less than %g", now, old)
	}
	if len(r.Rows) != 3 || len(s.Compare.Ablation) != 6 || r.Pairs[1].Published < 1.07 || r.Pairs[1].Published > 1.08 {
		t.Errorf("%d rows, %d patches, pairs %+v", len(r.Rows), len(s.Compare.Ablation), r.Pairs)
	}
	opt.Files = 2
	if _, err := experiment.Compare(task, l, opt); err == nil || !strings.Contains(err.Error(), "a file of its own") {
		t.Errorf("three tasks and two files: %v", err)
	}
}

// Sixteen writers of one locked file and a device that takes what it gets: the flusher is the
// limit, so more CPUs must not make the row slower. Two faults once did, by six times from 2 to 8
// CPUs: a throttled writer slept for 200 ms with i_rwsem while the flusher had nothing left to
// write, and a lock promised to a sleeper was idle until that had woken.
func TestMoreCPUs(t *testing.T) {
	if testing.Short() {
		t.Skip("half a minute under the race detector")
	}
	iops := map[int]float64{}
	for _, cpus := range []int{2, 8} {
		_, err := vtime.Run(vtime.Machine{CPUs: cpus}, func(task *sched.Task) {
			jf, err := fio.Parse("seed-002", strings.NewReader(seeds.Get("002").Job))
			for _, kv := range [][2]string{{"numjobs", "16"}, {"size", "64m"}, {"runtime", "400ms"}, {"ramp_time", "100ms"}} {
				if err == nil {
					err = jf.Set(kv[0], kv[1])
				}
			}
			if err != nil {
				t.Error(err)
				return
			}
			l, err := rig.Open(task, rig.Config{Size: 256 << 20, NoPayload: true})
			if err != nil {
				t.Error(err)
				return
			}
			defer l.Close()
			r, err := experiment.Compare(task, l, experiment.Options{Job: jf, Policies: []string{"locked"}, Rounds: 1, NoPayload: true})
			if err != nil {
				t.Error(err)
				return
			}
			iops[cpus] = r.Rows[0].IOPS
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("iops by CPUs: %v", iops)
	if iops[8] < 0.8*iops[2] {
		t.Errorf("%.0f iops with 2 CPUs, %.0f with 8", iops[2], iops[8])
	}
}
