package buffered_test

import (
	"errors"
	"testing"

	"btrlab/internal/errno"
	"btrlab/internal/fs"
	"btrlab/internal/fs/fstest"
	"btrlab/internal/iopath"
	"btrlab/internal/kiocb"
)

// A flag that reads and writes through the page cache do not have is refused, and the file stays as it is: to carry the request out
// without it would sleep, lose durability or write to another place.
func TestFlagsAreRefused(t *testing.T) {
	x := fstest.New(t)
	f, err := x.FS.OpenFile(x.T, "/f", fs.O_RDWR|fs.O_CREAT, 0o644)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close(x.T)
	if n, err := f.WriteIter(x.T, kiocb.Request{Pos: 1}, iopath.Source{Buf: []byte("bcd")}); n != 3 || err != nil {
		t.Fatal(n, err)
	}
	for _, c := range []struct {
		flags kiocb.Flags
		want  error
	}{
		{kiocb.Nowait, errno.EOPNOTSUPP},
		{kiocb.Nowait | kiocb.DSync, errno.EOPNOTSUPP},
		{1 << 31, errno.EOPNOTSUPP},
	} {
		rq := kiocb.Request{Pos: 0, Flags: c.flags}
		if n, err := f.WriteIter(x.T, rq, iopath.Source{Buf: []byte("xxxxx")}); n != 0 || !errors.Is(err, c.want) {
			t.Errorf("write with flags %#x: have %d, %v want %v", c.flags, n, err, c.want)
		}
		if c.flags == kiocb.Nowait {
			continue // every policy has reads with NOWAIT
		}
		if n, err := f.ReadIter(x.T, rq, make([]byte, 2)); n != 0 || !errors.Is(err, c.want) {
			t.Errorf("read with flags %#x: have %d, %v want %v", c.flags, n, err, c.want)
		}
	}
	for _, flag := range []kiocb.Flags{kiocb.Append, kiocb.DSync} {
		if _, err := f.ReadIter(x.T, kiocb.Request{Flags: flag}, make([]byte, 2)); !errors.Is(err, errno.EOPNOTSUPP) {
			t.Errorf("read with flags %#x: have %v want %v", flag, err, errno.EOPNOTSUPP)
		}
	}
	got := make([]byte, 4)
	if n, err := f.ReadIter(x.T, kiocb.Request{}, got); n != 4 || err != nil || string(got) != "\x00bcd" {
		t.Errorf("have %d %q %v want \"\\x00bcd\"", n, got, err)
	}
}

// A caller can be told where a write has begun: an append, which looks for the end of the file under its lock, and any other.
func TestWrote(t *testing.T) {
	x := fstest.New(t)
	f, err := x.FS.OpenFile(x.T, "/f", fs.O_RDWR|fs.O_CREAT, 0o644)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close(x.T)
	for _, c := range []struct {
		rq   kiocb.Request
		n    int
		want uint64
	}{
		{kiocb.Request{Pos: 100}, 4000, 100},
		{kiocb.Request{Pos: 7, Flags: kiocb.Append}, 9000, 4100},
		{kiocb.Request{Flags: kiocb.Append}, 1, 13100},
		{kiocb.Request{Pos: 5, Flags: kiocb.Append}, 0, 77}, // nothing is written, and nothing is told
	} {
		at := uint64(77)
		c.rq.Wrote = &at
		if n, err := f.WriteIter(x.T, c.rq, iopath.Source{Buf: make([]byte, c.n)}); n != c.n || err != nil || at != c.want {
			t.Errorf("write of %d bytes: have %d, %v at %d want %d", c.n, n, err, at, c.want)
		}
	}
}
