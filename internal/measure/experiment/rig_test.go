package experiment_test

import (
	"strings"
	"testing"

	"btrlab/internal/iopath/policy"
	"btrlab/internal/measure/experiment"
	"btrlab/internal/measure/fio"
	"btrlab/internal/measure/rig"
	"btrlab/internal/sched"
)

// Under every policy, on a real image, every block ends up as one whole write that no other followed, and the
// image is clean. The file is small and the blocks differ in size, so that writes meet.
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
