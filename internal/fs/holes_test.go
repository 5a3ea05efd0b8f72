package fs_test

import (
	"bytes"
	"errors"
	"testing"

	"btrlab/internal/blockdev"
	"btrlab/internal/fs"
	"btrlab/internal/progs/mkfs"
	"btrlab/internal/testing/fstest"
)

// TestExplicitHoles: in an image without no-holes every commit leaves files without gaps, whatever
// makes holes. Data that is on the device before what lies before it in the file does not make the
// file longer on disk.
func TestExplicitHoles(t *testing.T) {
	x := fstest.New(t, fstest.MkfsOptions(func(o *mkfs.Options) { o.Holes = true }))
	f, g := x.Create("/f"), x.Create("/g")
	const mib = 1 << 20
	data := bytes.Repeat([]byte("data"), mib/4)
	direct := func(off int64) error { _, err := f.WriteDirect(x.T, data[:8192], off); return err }
	write := func(f *fs.File, n int, off int64) error { _, err := f.WriteAt(x.T, data[:n], off); return err }
	for _, step := range []struct {
		name string
		do   func() error
	}{
		{"data", func() error { return errors.Join(write(f, 8192, 0), f.Fsync(x.T)) }},
		{"dirty data", func() error { return write(f, mib, 0) }},
		{"direct after dirty data", func() error { return direct(mib) }},
		{"write beyond the end", func() error { return write(f, 100, 5*mib+5000) }},
		{"direct beyond the end", func() error { return direct(7 * mib) }},
		{"truncate up", func() error { return f.Truncate(x.T, 9*mib+1) }},
		{"truncate down into a hole", func() error { return f.Truncate(x.T, 8*mib+1) }},
		{"allocate beyond the end", func() error { return f.Fallocate(x.T, fs.FALLOC_FL_KEEP_SIZE, 10*mib, mib) }},
		{"truncate up over it", func() error { return f.Truncate(x.T, 12*mib) }},
		{"punch", func() error {
			return f.Fallocate(x.T, fs.FALLOC_FL_PUNCH_HOLE|fs.FALLOC_FL_KEEP_SIZE, 4096, 6*mib)
		}},
		{"allocate in a hole", func() error { return f.Fallocate(x.T, 0, 2*mib, mib) }},
		{"zero", func() error { return f.Fallocate(x.T, fs.FALLOC_FL_ZERO_RANGE, 7*mib-5000, 3*mib) }},
		{"share data and holes", func() error { return g.Reflink(x.T, f, 0, 0, 3*mib) }},
		{"share a hole beyond the end", func() error { return g.Reflink(x.T, f, 4*mib, mib, 20*mib) }},
		{"inline", func() error {
			h := x.Create("/h")
			return errors.Join(write(h, 10, 0), h.Close(x.T))
		}},
		{"sync", func() error { return x.FS.Sync(x.T) }},
	} {
		x.Must(step.do())
		x.Must(x.FS.Commit(x.T)) // no data is written back for it
		if msg := fstest.Findings(x.T, x.Dev.(*blockdev.Memory).Snapshot()); msg != "" {
			t.Errorf("after %s: %s", step.name, msg)
		}
	}
	x.Must(f.Close(x.T))
	x.Must(g.Close(x.T))
	x.Reopen()
	have := x.ReadFile("/g")
	if len(have) != 21*mib || !bytes.Equal(have[3*mib:][:4096], data[:4096]) || !bytes.Equal(have[4*mib:][:4096], make([]byte, 4096)) {
		t.Errorf("the clone has %d bytes of another content", len(have))
	}
}
