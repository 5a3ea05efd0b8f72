package fs_test

import (
	"bytes"
	"fmt"
	"testing"

	"btrlab/internal/format"
	"btrlab/internal/fs"
	"btrlab/internal/testing/fstest"
)

// TestDroppedExtents: what the file system remembers of a file's extents goes when the extents go.
// A NOCOW write asks that memory whether it may write in place. If a truncate, a punch or a zero
// range leaves it as it was, the next write goes into an extent that is freed: no file extent item
// is made, and after the next mount the range reads as a hole, or another file has lost its bytes.
// The page cache hides it until then. A read that asks the same memory finds bytes that are gone.
//
// Each row takes extents away in one way, then writes or reads where they were. The file is held
// against a byte array from memory, from disk, and after a remount, beside a second file that gets
// the freed space.
func TestDroppedExtents(t *testing.T) {
	fstest.OneTask(t)
	const size, cut, end = 256 << 10, 64 << 10, 192 << 10
	drops := []struct {
		name string
		do   func(x *fstest.Fixture, m *modelFile)
	}{
		{"truncate", func(x *fstest.Fixture, m *modelFile) {
			x.Must(m.Truncate(x.T, cut))
			m.resize(cut)
		}},
		{"truncate to nothing", func(x *fstest.Fixture, m *modelFile) {
			x.Must(m.Truncate(x.T, 0))
			m.resize(0)
		}},
		{"truncate and grow", func(x *fstest.Fixture, m *modelFile) {
			x.Must(m.Truncate(x.T, cut+100))
			m.resize(cut + 100)
			x.Must(m.Truncate(x.T, size))
			m.resize(size)
		}},
		{"punch", func(x *fstest.Fixture, m *modelFile) {
			x.Must(m.Fallocate(x.T, fs.FALLOC_FL_PUNCH_HOLE|fs.FALLOC_FL_KEEP_SIZE, cut, end-cut))
			clear(m.want[cut:end])
		}},
		{"zero range", func(x *fstest.Fixture, m *modelFile) {
			x.Must(m.Fallocate(x.T, fs.FALLOC_FL_ZERO_RANGE, cut, end-cut))
			clear(m.want[cut:end])
		}},
	}
	for _, flags := range []uint64{0, format.InodeNoDataCow} {
		for _, drop := range drops {
			for _, commit := range []bool{false, true} {
				for _, write := range []bool{false, true} {
					t.Run(fmt.Sprintf("flags=%#x/%s/commit=%v/write=%v", flags, drop.name, commit, write), func(t *testing.T) {
						x := fstest.New(t, fstest.Size(64<<20))
						m := &modelFile{File: x.Create("/f"), name: "/f"}
						if flags != 0 {
							x.Must(m.SetFlags(x.T, flags))
						}
						put := func(mark byte, from, to int) {
							p := bytes.Repeat([]byte{mark}, to-from)
							x.WriteAt(m.File, p, int64(from))
							m.resize(max(len(m.want), to))
							copy(m.want[from:], p)
						}
						put(1, 0, size)
						x.Must(x.FS.Sync(x.T))
						put(2, 0, size) // over extents that exist: asks and remembers
						x.Must(x.FS.Sync(x.T))
						x.FS.DropCaches(x.T)
						m.verify(x) // reads from the extents: asks and remembers

						drop.do(x, m)
						if commit {
							x.Must(x.FS.Sync(x.T))
						}
						g := &modelFile{File: x.Create("/g"), name: "/g", want: bytes.Repeat([]byte{3}, size)}
						x.WriteAt(g.File, g.want, 0)
						x.Must(g.Fsync(x.T))
						if write {
							// At the end of file: a write beyond it forgets the gap by itself.
							put(4, min(cut, len(m.want)), end)
						}
						for range 2 {
							m.verify(x)
							g.verify(x)
							x.Must(x.FS.Sync(x.T))
							x.FS.DropCaches(x.T)
						}
						x.Must(m.Close(x.T))
						x.Must(g.Close(x.T))
						x.Reopen()
						m.verify(x)
						g.verify(x)
					})
				}
			}
		}
	}
}
