package serve

import (
	"bytes"
	"testing"

	"btrlab/internal/blockdev"
	"btrlab/internal/sched"
)

// TestServedImage: zeroes of many writes that begin and end inside a sector leave the rest.
func TestServedImage(t *testing.T) {
	task := sched.NewTask("main")
	d := &imageDisk{blockdev.NewMemory(1 << 20)}
	if err := d.WriteAt(task, bytes.Repeat([]byte{1}, 1<<20), 0); err != nil {
		t.Fatal(err)
	}
	if err := d.Zero(task, 100, 600<<10, true); err != nil {
		t.Fatal(err)
	}
	p := make([]byte, 1<<20)
	if err := d.ReadAt(task, p, 0); err != nil {
		t.Fatal(err)
	}
	want := bytes.Repeat([]byte{1}, 1<<20)
	clear(want[100 : 100+600<<10])
	if !bytes.Equal(p, want) {
		t.Error("zeroes are elsewhere")
	}
}
