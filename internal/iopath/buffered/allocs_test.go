//go:build !race

package buffered_test

// The race detector allocates.

import (
	"testing"

	"btrlab/internal/iopath"
	"btrlab/internal/kiocb"
	"btrlab/internal/sched"
	"btrlab/internal/testing/fstest"
)

// TestNowaitDoesNotAllocate: neither a write that is done nor one that is refused.
func TestNowaitDoesNotAllocate(t *testing.T) {
	x := fstest.New(t, fstest.Policy("nowait-strict"))
	f := x.Create("/f")
	src := make([]byte, 4096)
	x.WriteAt(f, src, 0)
	other, writer := sched.NewTask("other"), sched.NewTask("writer")
	write := func(want error) func() {
		return func() {
			if _, err := f.WriteIter(writer, kiocb.Request{Flags: kiocb.Nowait}, iopath.Source{Buf: src}); err != want {
				t.Fatalf("have %v want %v", err, want)
			}
		}
	}
	if n := testing.AllocsPerRun(200, write(nil)); n >= 1 {
		t.Errorf("%v allocations for a write", n)
	}
	f.Inode().Lock(other)
	if n := testing.AllocsPerRun(200, write(kiocb.AgainInode)); n >= 1 {
		t.Errorf("%v allocations for EAGAIN at i_rwsem", n)
	}
	f.Inode().Unlock(other)
	x.Must(f.Close(x.T))
}
