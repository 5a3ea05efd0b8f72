package check_test

import (
	"encoding/binary"
	"os"
	"testing"

	"btrlab/internal/sched"
	"btrlab/internal/testing/damaged"
)

var le = binary.LittleEndian

func TestMain(m *testing.M) {
	sched.SetChecked(true)
	os.Exit(m.Run())
}

func TestSampleIsClean(t *testing.T) {
	r := damaged.NewImage(t).Check()
	if !r.Clean {
		t.Fatalf("have findings:\n%s", damaged.Text(r))
	}
	if r.Stats.DataBytes != 4*damaged.Sector || r.Stats.Inodes != 10 {
		t.Errorf("stats: %+v", r.Stats)
	}
}
