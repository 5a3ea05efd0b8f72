package fs_test

import (
	"testing"

	"btrlab/internal/blockdev"
	"btrlab/internal/fs"
	"btrlab/internal/progs/check"
	"btrlab/internal/testing/fstest"
)

// Every fsync writes new blocks for a log, and none is used again before the next commit. A device
// of a simulation that keeps no file data has memory for the version that the superblock leads to
// and for the one that is being written; without NoPayload for all. What a power cut leaves is
// whole at any time: the log is there, and replays.
func TestForgetLogs(t *testing.T) {
	fstest.OneTask(t)
	const fsyncs = 400
	grown := func(noPayload bool) int64 {
		opts := []fstest.Option{fstest.Policy("fsync-5.18"), fstest.FSOptions(func(o *fs.Options) { o.NoPayload = noPayload })}
		if noPayload {
			opts = append(opts, fstest.NoCheck()) // the checksums are of data that nobody kept
		}
		x := fstest.New(t, opts...)
		f := x.Create("/f")
		x.Must(x.FS.Sync(x.T))
		dev := x.Dev.(*blockdev.Memory)
		start := dev.Allocated()
		for i := range fsyncs {
			x.WriteAt(f, make([]byte, 4096), int64(i)*8192)
			x.Must(f.Fsync(x.T))
			if i%50 != 49 {
				continue
			}
			cut := dev.Snapshot()
			res, err := check.Check(x.T, cut, check.Options{NoData: true})
			if err != nil || !res.Clean {
				t.Errorf("after fsync %d and a power cut: %v %v", i+1, err, res.Findings)
			}
			c, err := fs.Open(x.T, []blockdev.Device{cut}, fs.Options{NoPayload: true})
			if err != nil {
				t.Fatalf("after fsync %d and a power cut: %v", i+1, err)
			}
			if a, err := c.Stat(x.T, "/f"); err != nil || a.Size != uint64(i*8192+4096) {
				t.Errorf("after fsync %d and a power cut: %v, %d bytes want %d", i+1, err, a.Size, uint64(i*8192+4096))
			}
			x.Must(c.Close(x.T))
		}
		n := dev.Allocated() - start
		x.Must(f.Close(x.T))
		return n
	}
	all, one := grown(false), grown(true)
	t.Logf("%d fsyncs: %d bytes, and %d without file data", fsyncs, all, one)
	if one > all/4 || one == 0 {
		t.Errorf("the device has grown by %d bytes without file data, and by %d with it", one, all)
	}
}
