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

// TestDisks: of several devices each counts, and those that are lost are not there. A device that
// was written anew is the base of the next execution.
func TestDisks(t *testing.T) {
	task := sched.NewTask("test")
	base := []*blockdev.Memory{blockdev.NewMemory(1 << 20), blockdev.NewMemory(1 << 20), blockdev.NewMemory(1 << 20)}
	l := over(base)
	was := l.each((*overlay).clone)
	for i, d := range l {
		must(t, blockdev.Write(task, d, []byte{byte(i + 1)}, sector))
		if l.equal(was) {
			t.Errorf("device %d has another byte, and the devices are the same", i+1)
		}
		was = l.each((*overlay).clone)
		if !l.equal(was) {
			t.Errorf("clones of the devices are others")
		}
	}
	for lost, want := range []string{"123", "23", "13", "3", "12", "2", "1", ""} {
		have := ""
		for _, d := range l.devices(uint(lost)) {
			p := make([]byte, 1)
			must(t, blockdev.Read(task, d, p, sector))
			have += string('0' + rune(p[0]))
		}
		if have != want {
			t.Errorf("lost %b: have devices %s want %s", lost, have, want)
		}
	}
	l.settle()
	l.reset()
	p := make([]byte, 1)
	must(t, blockdev.Read(task, l[2], p, sector))
	if p[0] != 3 {
		t.Errorf("after a reset device 3 has %d, want 3", p[0])
	}
}
