package check

import (
	"os"
	"testing"

	"btrlab/internal/sched"
)

func TestMain(m *testing.M) {
	sched.SetChecked(true)
	os.Exit(m.Run())
}

func TestSampleIsClean(t *testing.T) {
	r := newImage(t).check()
	if !r.Clean {
		t.Fatalf("have findings:\n%s", r.text())
	}
	if r.Stats.DataBytes != 4*blk || r.Stats.Inodes != 10 {
		t.Errorf("stats: %+v", r.Stats)
	}
}
