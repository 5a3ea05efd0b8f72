package uring_test

import (
	"testing"

	"btrlab/internal/blockdev"
	"btrlab/internal/blockdev/dm"
	"btrlab/internal/format"
	"btrlab/internal/kiocb"
	"btrlab/internal/testing/fstest"
	"btrlab/internal/uring"
)

// TestDurablePart: a durable direct write has a place for its first blocks, and the data space ends
// there. The completion says how many bytes are on the device for good: those, or, when the sync of
// them fails, the error.
func TestDurablePart(t *testing.T) {
	for _, spec := range []string{"nowait-6.1", "locked"} {
		for _, fails := range []bool{false, true} {
			var dev *dm.Flakey
			x := fstest.New(t, fstest.Policy(spec), fstest.NoCheck(), fstest.Size(64<<20), fstest.Faults(&dev))
			f := x.Create("/f")
			x.Must(f.SetFlags(x.T, format.InodeNoDataCow|format.InodeNoDataSum))
			x.Must(f.Fallocate(x.T, 0, 0, 8192))
			fill := x.Create("/fill")
			for n := int64(16 << 20); n >= 4096; {
				if err := fill.Fallocate(x.T, 0, fill.Size(x.T), n); err != nil {
					n /= 2
				}
			}
			x.Must(fill.Close(x.T))
			x.Must(x.FS.Sync(x.T))
			r, err := uring.New(x.T, uring.Config{Entries: 1})
			x.Must(err)
			flushes := dev.Count(blockdev.OpFlush)
			if fails {
				dev.Set(dm.Fault{Op: blockdev.OpFlush})
			}
			*r.GetSQE() = uring.SQE{Op: uring.Write, File: f, Buf: make([]byte, 16384), Flags: kiocb.Direct | kiocb.DSync}
			if _, err := r.Submit(x.T); err != nil {
				t.Fatal(err)
			}
			r.Wait(x.T, 1)
			var e [1]uring.CQE
			switch r.Reap(x.T, e[:]); {
			case fails && e[0].Res >= 0:
				t.Errorf("%s: the sync fails, and the completion says %d", spec, e[0].Res)
			case !fails && (e[0].Res != 8192 || dev.Count(blockdev.OpFlush) == flushes):
				t.Errorf("%s: the completion says %d, %v after %d flushes, want 8192 after one", spec, e[0].Res, e[0].Err, dev.Count(blockdev.OpFlush)-flushes)
			}
			r.Close(x.T)
			dev.Set()
			_ = f.Close(x.T)
		}
	}
}
