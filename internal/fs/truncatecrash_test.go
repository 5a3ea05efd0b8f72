package fs_test

import (
	"bytes"
	"errors"
	"io"
	"testing"

	"btrlab/internal/blockdev"
	"btrlab/internal/blockdev/dm"
	"btrlab/internal/format"
	"btrlab/internal/fs"
	"btrlab/internal/sched"
	"btrlab/internal/testing/fstest"
	"btrlab/internal/testing/need"
)

// A truncate of a file with more extents than one transaction drops, and a crash between two of
// them: the file has a size between the old one and the new one, nothing of it is beyond that size,
// and what it grows by then is zeroes. Space preallocated beyond EOF makes it no longer than it
// was.
func TestTruncateCrash(t *testing.T) {
	need.Long(t)
	fstest.OneTask(t)
	const extents, block, step, small = 4200, format.SectorSize, 2 * format.SectorSize, 12 * format.SectorSize
	const end = extents * step
	for _, c := range []struct {
		what string
		fill func(x *fstest.Fixture, f *fs.File)
		size int64
	}{
		{"written", func(x *fstest.Fixture, f *fs.File) {
			for i := range int64(extents) {
				x.WriteAt(f, bytes.Repeat([]byte{'x'}, block), i*step)
			}
		}, end - block},
		{"preallocated beyond EOF", func(x *fstest.Fixture, f *fs.File) {
			x.WriteAt(f, bytes.Repeat([]byte{'x'}, 2*small), 0)
			for i := int64(2 * small); i < end; i += step {
				x.Must(f.Fallocate(x.T, fs.FALLOC_FL_KEEP_SIZE, i, block))
			}
		}, 2 * small},
	} {
		t.Run(c.what, func(t *testing.T) {
			var log *dm.LogWrites
			x := fstest.New(t, fstest.Wrap(func(dev blockdev.Device) blockdev.Device {
				log = dm.NewLogWrites(dev, dev.(*blockdev.Memory).Snapshot())
				return log
				// one transaction's frees are more
			}), fstest.FSOptions(func(o *fs.Options) { o.DirtyMetadata = 1 << 20 }))
			f := x.Create("/f")
			c.fill(x, f)
			x.Must(x.FS.Sync(x.T))
			log.Mark(x.T, "full")
			x.Must(f.Truncate(x.T, small))
			x.Must(errors.Join(x.FS.Sync(x.T), f.Close(x.T)))
			between := 0
			x.Must(log.Images(x.T, dm.ImageOptions{SectorBytes: format.SectorSize}, func(tk *sched.Task, m dm.Image) error {
				if m.Mark != "full" {
					return nil
				}
				y, err := fs.Open(tk, []blockdev.Device{m.Dev}, fs.Options{})
				if err != nil {
					return err
				}
				g, err := y.OpenFile(tk, "/f", fs.O_RDWR, 0)
				if err != nil {
					return err
				}
				size := int64(g.Size(tk))
				if size < small || size > c.size {
					t.Errorf("%s: have size %d want %d to %d", m.Name, size, small, c.size)
				}
				if n := int64(g.Stat(tk).Nbytes); n < end/2 && n > small {
					between++
				}
				if err := g.Truncate(tk, end); err != nil {
					return err
				}
				p := make([]byte, end-size)
				if _, err := g.ReadAt(tk, p, size); err != nil && !errors.Is(err, io.EOF) {
					return err
				}
				if i := bytes.IndexByte(p, 'x'); i >= 0 {
					t.Errorf("%s: size %d, and old bytes at %d when it grows", m.Name, size, size+int64(i))
				}
				return errors.Join(g.Close(tk), y.Close(tk))
			}))
			if between == 0 {
				t.Error("no crash fell between two transactions of the truncate")
			}
		})
	}
}
