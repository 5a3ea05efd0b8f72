package fs_test

import (
	"bytes"
	"testing"

	"btrlab/internal/blockdev"
	"btrlab/internal/format"
	"btrlab/internal/fs"
	"btrlab/internal/testing/fstest"
)

// A write, a truncate to the size that it gave the file, a commit of something else, and a power
// cut: the inode has the size, and the data is not there, as in Linux 6.18. Without the truncate
// the file is empty. With SETSIZE_WAIT_ORDERED the truncate waits for the block of its end, if the
// file ends inside one; 7.3 does not. Story: a truncate to the same size returned at once.
func TestTruncateSame(t *testing.T) {
	const size, inside = 64 << 10, 64<<10 - 100
	for _, c := range []struct {
		policy   string
		wrote    int
		truncate bool
		size     uint64
		data     bool
	}{
		{"fsync-commit", size, false, 0, false},
		{"fsync-commit", size, true, size, false},
		{"linux-6.18!FSYNC_LOG", inside, true, inside, false},
		{"linux-7.3!FSYNC_LOG", size, true, size, false},
		{"linux-7.3!FSYNC_LOG", inside, true, inside, false},
		{"linux-7.3!FSYNC_LOG+SETSIZE_WAIT_ORDERED", size, true, size, false},
		{"linux-7.3!FSYNC_LOG+SETSIZE_WAIT_ORDERED", inside, true, inside, true},
	} {
		x := fstest.New(t, fstest.Policy(c.policy))
		other := x.Create("/g")
		f := x.Create("/f")
		x.Must(x.FS.Sync(x.T))
		x.WriteAt(other, []byte("g"), 0)
		x.WriteAt(f, bytes.Repeat([]byte{'x'}, c.wrote), 0)
		if c.truncate {
			x.Must(f.Truncate(x.T, int64(c.wrote)))
		}
		x.Must(other.Fsync(x.T))
		dev := x.Dev.(*blockdev.Memory).Snapshot() // what is on the device when the power goes
		x.Must(f.Close(x.T))
		x.Must(other.Close(x.T))
		after, err := fs.Open(x.T, []blockdev.Device{dev}, fs.Options{})
		x.Must(err)
		g, err := after.OpenFile(x.T, "/f", 0, 0)
		x.Must(err)
		p := make([]byte, c.size)
		if at := g.Stat(x.T); at.Size != c.size {
			t.Errorf("%s, truncate %t: size %d after the cut, want %d", c.policy, c.truncate, at.Size, c.size)
		} else if c.size > 0 {
			if _, err := g.ReadAt(x.T, p, 0); err != nil || bytes.Contains(p, []byte{'x'}) != c.data {
				t.Errorf("%s: the data is there: %t, %v, want %t", c.policy, !c.data, err, c.data)
			}
		}
		x.Must(g.Close(x.T))
		x.Must(after.Close(x.T))
	}
}

// What a truncate to the same size does besides: space that was allocated beyond the end goes, and
// an end inside a block keeps data that is still on its way to the device.
func TestTruncateSameDrops(t *testing.T) {
	for _, policy := range []string{"locked", "modern", "modern+SETSIZE_WAIT_ORDERED"} {
		x := fstest.New(t, fstest.Policy(policy))
		f := x.Create("/f")
		const size = 5000
		want := bytes.Repeat([]byte{'x'}, size)
		x.WriteAt(f, want, 0)
		x.Must(f.Fallocate(x.T, fs.FALLOC_FL_KEEP_SIZE, 8192, 1<<20))
		x.Must(f.Truncate(x.T, size))
		if have := f.Stat(x.T).Nbytes; have > 8192 {
			t.Errorf("%s: %d bytes allocated, want those of two blocks at most", policy, have)
		}
		x.Must(f.Fsync(x.T))
		f.DropCache(x.T, 0, format.SectorSize*2)
		have := make([]byte, size)
		if _, err := f.ReadAt(x.T, have, 0); err != nil || !bytes.Equal(have, want) {
			t.Errorf("%s: the file is not what was written, %v", policy, err)
		}
		x.Must(f.Close(x.T))
	}
}
