package fallocate_test

import (
	"bytes"
	"errors"
	"slices"
	"testing"
	"time"

	"btrlab/internal/errno"
	"btrlab/internal/format"
	"btrlab/internal/fs"
	"btrlab/internal/testing/fstest"
)

const (
	k = 1024

	alloc = 0
	keep  = fs.FALLOC_FL_KEEP_SIZE
	punch = fs.FALLOC_FL_PUNCH_HOLE | keep
	zeros = fs.FALLOC_FL_ZERO_RANGE
)

func fill(b byte, n int) []byte { return bytes.Repeat([]byte{b}, n) }

// islands is a file with data in [0, 16K) and [64K, 80K), and a hole between.
func islands(x *fstest.Fixture, f *fs.File) {
	x.WriteAt(f, fill(1, 16*k), 0)
	x.WriteAt(f, fill(2, 16*k), 64*k)
}

// small is a file whose bytes are in the tree.
func small(x *fstest.Fixture, f *fs.File) { x.WriteAt(f, fill(1, 100), 0) }

// ahead is a file with data in [0, 16K) and preallocated extents in [16K, 32K), beyond its end.
func ahead(x *fstest.Fixture, f *fs.File) {
	x.WriteAt(f, fill(1, 16*k), 0)
	x.Must(f.Fallocate(x.T, keep, 16*k, 16*k))
}

func none(*fstest.Fixture, *fs.File) {}

// zeroed is b with the bytes [from, to) zero.
func zeroed(b []byte, from, to int) []byte {
	b = slices.Clone(b)
	clear(b[from:min(to, len(b))])
	return b
}

func hasXattr(x *fstest.Fixture, path, name string) bool {
	st, err := x.FS.Stat(x.T, path)
	x.Must(err)
	n, err := x.FS.Node(x.T, st.Subvol, st.Ino)
	x.Must(err)
	names, err := n.Listxattr(x.T)
	x.Must(err)
	x.Must(n.Forget(x.T, 1))
	return slices.Contains(names, name)
}

// TestRanges: what a mode does to a range: bytes, size, space, and whether times change and
// capabilities go. Times and errors are those of Linux 6.18, where each row was tried: a punch of
// what is a hole already leaves the file alone, an allocation of what is allocated does not. A
// block of a hole stays a hole when a punch reaches into it.
func TestRanges(t *testing.T) {
	two := slices.Concat(fill(1, 16*k), make([]byte, 48*k), fill(2, 16*k))
	for _, c := range []struct {
		name   string
		layout func(x *fstest.Fixture, f *fs.File)
		mode   uint32
		off, n int64
		same   bool // the file is as it was, times and capabilities as well
		want   []byte
		nbytes uint64
	}{
		{"punch in a hole", islands, punch, 32 * k, 16 * k, true, two, 32 * k},
		{"punch the whole hole", islands, punch, 16 * k, 48 * k, true, two, 32 * k},
		{"punch a part of a block in a hole", islands, punch, 32*k + 100, 200, true, two, 32 * k},
		{"punch parts of blocks in a hole", islands, punch, 32*k + 100, 9000, true, two, 32 * k},
		{"punch a hole and the block after it", islands, punch, 32 * k, 36 * k, false, zeroed(two, 64*k, 68*k), 28 * k},
		{"punch a block and the hole after it", islands, punch, 12 * k, 8 * k, false, zeroed(two, 12*k, 16*k), 28 * k},
		{"punch into a block of a hole", islands, punch, 12 * k, 28*k + 100, false, zeroed(two, 12*k, 16*k), 28 * k},
		{"punch from a block of a hole", islands, punch, 20*k + 5, 48*k - 5, false, zeroed(two, 64*k, 68*k), 28 * k},
		{"punch data", islands, punch, 4 * k, 4 * k, false, zeroed(two, 4*k, 8*k), 28 * k},
		{"punch parts of two blocks", islands, punch, 4*k - 10, 20, false, zeroed(two, 4*k-10, 4*k+10), 32 * k},
		{"punch a part of a block", islands, punch, 4*k + 10, 20, false, zeroed(two, 4*k+10, 4*k+30), 32 * k},
		{"punch two blocks and parts of others", islands, punch, 3*k + 1, 10 * k, false, zeroed(two, 3*k+1, 13*k+1), 24 * k},
		{"punch all", islands, punch, 0, 80 * k, false, make([]byte, 80*k), 0},
		{"punch over the end", islands, punch, 72*k + 1, 100 * k, false, zeroed(two, 72*k+1, 80*k), 28 * k},
		{"punch beyond the end", islands, punch, 128 * k, 16 * k, true, two, 32 * k},
		{"punch beyond the end, in its block", small, punch, 200, 100, false, fill(1, 100), 100},
		{"punch beyond the end, from its block on", small, punch, 200, 100 * k, false, fill(1, 100), 100},
		{"punch beyond the end, after its block", small, punch, 4096, 4096, true, fill(1, 100), 100},
		{"punch an empty file", none, punch, 0, 4096, true, nil, 0},
		{"punch preallocated blocks", ahead, punch, 20 * k, 4 * k, false, fill(1, 16*k), 28 * k},
		{"allocate what is allocated", islands, alloc, 0, 4 * k, false, two, 32 * k},
		{"allocate what is allocated, keeping the size", islands, keep, 0, 4 * k, false, two, 32 * k},
		{"allocate in a hole", islands, alloc, 32*k + 1, 1, false, two, 36 * k},
		{"allocate a hole and both sides", islands, alloc, 12 * k, 56 * k, false, two, 80 * k},
		{"allocate over the end", islands, alloc, 76 * k, 8*k + 1, false, append(slices.Clone(two), make([]byte, 4*k+1)...), 40 * k},
		{"allocate over the end, keeping the size", islands, keep, 76 * k, 8*k + 1, false, two, 40 * k},
		{"allocate beyond the end", islands, alloc, 100 * k, 4 * k, false, append(slices.Clone(two), make([]byte, 24*k)...), 36 * k},
		{"zero data", islands, zeros, 4 * k, 4 * k, false, zeroed(two, 4*k, 8*k), 32 * k},
		{"zero parts of blocks", islands, zeros, 3 * k, 10 * k, false, zeroed(two, 3*k, 13*k), 32 * k},
		{"zero in a hole", islands, zeros, 32 * k, 4 * k, false, two, 36 * k},
		{"zero over the end", islands, zeros, 76 * k, 8 * k, false, append(zeroed(two, 76*k, 80*k), make([]byte, 4*k)...), 36 * k},
		{"zero over the end, keeping the size", islands, zeros | keep, 76 * k, 8 * k, false, zeroed(two, 76*k, 80*k), 36 * k},
		{"zero preallocated blocks", ahead, zeros | keep, 20 * k, 4 * k, false, fill(1, 16*k), 32 * k},
	} {
		for _, p := range []string{"modern", "locked", "range-lock"} {
			now := fstest.Epoch
			x := fstest.New(t, fstest.Policy(p), fstest.FSOptions(func(o *fs.Options) { o.Now = func() time.Time { return now } }))
			f := x.Create("/f")
			c.layout(x, f)
			x.Must(x.FS.Sync(x.T))
			x.Must(x.FS.Setxattr(x.T, "/f", "security.capability", make([]byte, 20)))
			old := f.Stat(x.T)
			now = now.Add(time.Hour)
			x.Must(f.Fallocate(x.T, c.mode, c.off, c.n))
			x.Must(x.FS.Sync(x.T))
			st := f.Stat(x.T)
			touched, bare := st.Mtime.Equal(now) && st.Ctime.Equal(now), !hasXattr(x, "/f", "security.capability")
			untouched := st.Mtime.Equal(old.Mtime) && st.Ctime.Equal(old.Ctime)
			if c.same && !untouched || !c.same && !touched {
				t.Errorf("%s, %s: mtime %v, ctime %v; the times stay: want %v", c.name, p, st.Mtime, st.Ctime, c.same)
			}
			if bare == c.same {
				t.Errorf("%s, %s: the capabilities are gone: have %v want %v", c.name, p, bare, !c.same)
			}
			if st.Nbytes > old.Nbytes && f.Flags()&format.InodePrealloc == 0 {
				t.Errorf("%s, %s: the inode does not say that it may have preallocated extents", c.name, p)
			}
			if st.Size != uint64(len(c.want)) || st.Nbytes != c.nbytes {
				t.Errorf("%s, %s: size %d, %d bytes allocated; want %d, %d", c.name, p, st.Size, st.Nbytes, len(c.want), c.nbytes)
			}
			x.Must(f.Close(x.T))
			x.Reopen()
			if have := x.ReadFile("/f"); !bytes.Equal(have, c.want) {
				t.Errorf("%s, %s: %d bytes, want %d, or others", c.name, p, len(have), len(c.want))
			}
			x.Close()
		}
	}
}

// TestPunchMany: a punch of more file extents than one transaction drops is several transactions,
// and drops all of them.
func TestPunchMany(t *testing.T) {
	const n = 4096 + 100
	x := fstest.New(t)
	f := x.Create("/f")
	for i := range int64(n) {
		x.Must(f.Fallocate(x.T, keep, i*8*k, 4*k))
	}
	x.Must(f.Truncate(x.T, n*8*k))
	x.Must(f.Fallocate(x.T, punch, 8*k, (n-2)*8*k))
	x.Must(x.FS.Sync(x.T))
	if st := f.Stat(x.T); st.Nbytes != 8*k {
		t.Errorf("%d bytes are allocated, want the first block and the last", st.Nbytes)
	}
	x.Must(f.Close(x.T))
}

// TestModes: modes that btrfs does not have, and ranges that are none.
func TestModes(t *testing.T) {
	x := fstest.New(t)
	f := x.Create("/f")
	islands(x, f)
	old := f.Stat(x.T)
	for _, c := range []struct {
		mode   uint32
		off, n int64
		want   error
	}{
		{fs.FALLOC_FL_PUNCH_HOLE, 0, 4096, errno.EOPNOTSUPP}, // without KEEP_SIZE
		{punch | zeros, 0, 4096, errno.EOPNOTSUPP},
		{0x08, 0, 4096, errno.EOPNOTSUPP}, // collapse
		{0x20, 0, 4096, errno.EOPNOTSUPP}, // insert
		{punch, 0, 0, errno.EINVAL},
		{zeros, 0, 0, errno.EINVAL},
		{alloc, -1, 4096, errno.EINVAL},
		{alloc, 0, -1, errno.EINVAL},
		{alloc, 1<<63 - 1, 1<<63 - 1, errno.EFBIG},
	} {
		if err := f.Fallocate(x.T, c.mode, c.off, c.n); !errors.Is(err, c.want) {
			t.Errorf("mode %#x, [%d, +%d): have %v want %v", c.mode, c.off, c.n, err, c.want)
		}
	}
	if st := f.Stat(x.T); st != old {
		t.Errorf("the file has changed: have %+v want %+v", st, old)
	}
	x.Must(f.Close(x.T))
}
