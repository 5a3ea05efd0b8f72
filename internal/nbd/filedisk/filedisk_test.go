package filedisk

import (
	"bytes"
	"testing"

	"btrlab/internal/nbd"
	"btrlab/internal/testing/fstest"
)

// TestExtents: what is written, not yet durable, is data; holes and reserved space read as zeros.
// To zero without a hole keeps the space.
func TestExtents(t *testing.T) {
	x := fstest.New(t)
	f := x.Create("/f")
	const block = 4096
	x.Must(f.Truncate(x.T, 10*block))
	d := New(x.T, f)
	if d.Size() != 10*block {
		t.Errorf("size %d", d.Size())
	}
	x.Must(d.WriteAt(x.T, bytes.Repeat([]byte{1}, 6*block), 2*block))
	x.Must(d.Zero(x.T, 3*block, block, true))
	x.Must(d.Zero(x.T, 5*block, block, false))
	var n int64
	states := ""
	x.Must(d.Extents(x.T, 0, 10*block, func(k int64, s nbd.State) bool {
		for range k / block {
			states += string('0' + rune(s))
		}
		n += k
		return true
	}))
	if n != 10*block || states != "3303030033" {
		t.Errorf("have states %s of %d bytes", states, n)
	}
	x.Must(d.Flush(x.T))
	x.Must(x.FS.Sync(x.T)) // a fast fsync does not wait until the space is counted
	if have := f.Stat(x.T).Blocks * 512; have != 5*block {
		t.Errorf("have %d bytes of space want %d: 6 were written, 1 became a hole", have, 5*block)
	}
	p := make([]byte, 10*block)
	x.Must(d.ReadAt(x.T, p, 0))
	for i := range 10 {
		if have := p[i*block]; have != "0010101100"[i]-'0' {
			t.Errorf("block %d begins with %d", i, have)
		}
	}
	x.Must(f.Close(x.T))
}
