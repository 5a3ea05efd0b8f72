package scenario

import (
	"testing"

	"btrlab/internal/blockdev"
	"btrlab/internal/sched"
)

// A recovery is looked up by the bytes on the device: one byte more, or another one, is another
// device. A crashed device keeps its bytes while the one that it was made of is written on, and a
// mount that replays a log on it changes neither.
func TestRecoveryByBytes(t *testing.T) {
	task := sched.NewTask("test")
	write := func(d *overlay, b byte, off int64) {
		t.Helper()
		must(t, blockdev.Write(task, d, []byte{b}, off))
	}
	d := newOverlay(blockdev.NewMemory(1 << 20))
	write(d, 1, 0)
	write(d, 2, 2*sector+7)
	must(t, blockdev.Flush(task, d))
	write(d, 3, 2*sector+8) // lost
	c := d.crashed()
	was := c.clone()
	if !c.equal(was) || !was.equal(c) {
		t.Error("a clone is another device")
	}
	write(d, 4, 2*sector+7)
	must(t, blockdev.Flush(task, d))
	write(d, 5, 0)
	if !c.equal(was) {
		t.Error("the crashed device has what was written later")
	}
	if now := d.crashed(); now.equal(was) || was.equal(now) {
		t.Error("another byte is no other device")
	}
	write(c, 6, 3*sector)
	if c.equal(was) || was.equal(c) {
		t.Error("one sector more is no other device")
	}
}
