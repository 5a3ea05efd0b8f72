package fs_test

import (
	"errors"
	"fmt"
	"testing"

	"btrlab/internal/errno"
	"btrlab/internal/format"
	"btrlab/internal/fs"
	"btrlab/internal/progs/mkfs"
	"btrlab/internal/testing/fstest"
	"btrlab/internal/testing/need"
)

// Mixed block groups have one account for data and metadata: a file system of 46 MiB is filled with
// files until there is no space, emptied and filled again, and has at least nine tenths as many the
// second time; no chunk is of data or of metadata alone, and the check at the end is clean.
func TestMixedFull(t *testing.T) {
	need.LongRaced(t)
	x := fstest.New(t, fstest.Size(46<<20), fstest.MkfsOptions(func(o *mkfs.Options) { o.Mixed = true }))
	data := make([]byte, 70000)
	for i := range data {
		data[i] = byte(i)
	}
	fill := func() (n int) {
		for ; n < 10000; n++ {
			f, err := x.FS.OpenFile(x.T, fmt.Sprintf("/f%d", n), fs.O_CREAT|fs.O_RDWR, 0)
			if err == nil {
				_, err = f.WriteAt(x.T, data, 0)
				if err == nil {
					err = f.Fsync(x.T)
				}
				err = errors.Join(err, f.Close(x.T))
			}
			if errors.Is(err, errno.ENOSPC) {
				return n
			}
			x.Must(err)
		}
		return n
	}
	first := fill()
	for i := range first {
		x.Must(x.FS.Unlink(x.T, fmt.Sprintf("/f%d", i)))
	}
	_ = x.FS.Unlink(x.T, fmt.Sprintf("/f%d", first)) // the one that did not fit
	x.Must(x.FS.Sync(x.T))
	second := fill()
	if first < 300 || second < first*9/10 {
		t.Errorf("have %d files, then %d, want hundreds and as many again", first, second)
	}
	for _, c := range x.FS.Chunks() {
		switch c.Chunk.Type & format.BlockGroupTypeMask {
		case format.BlockGroupSystem, format.BlockGroupData | format.BlockGroupMetadata:
		default:
			t.Errorf("have a chunk of type %#x, want both data and metadata in it", c.Chunk.Type)
		}
	}
}
