package fs_test

import (
	"errors"
	"testing"

	"btrlab/internal/errno"
	"btrlab/internal/fs"
	"btrlab/internal/iopath"
	"btrlab/internal/kiocb"
	"btrlab/internal/testing/fstest"
)

// TestErrorsNameTheFile: an operation on an open file that fails says which one, of which file and
// where: "write /f ino=257 off=5 len=3", and not its errno alone.
func TestErrorsNameTheFile(t *testing.T) {
	x := fstest.New(t)
	x.Must(x.Create("/f").Close(x.T))
	r := fstest.Must(x.FS.OpenFile(x.T, "/f", fs.O_RDONLY, 0))
	p := []byte("abc")
	for _, c := range []struct {
		op  string
		off uint64
		do  func() error
	}{
		{"write", 5, func() error { _, err := r.WriteAt(x.T, p, 5); return err }},
		{"write", 6, func() error {
			_, err := r.WriteIter(x.T, kiocb.Request{Pos: 6}, iopath.Source{Buf: p})
			return err
		}},
		{"write", 7, func() error { _, err := r.WriteDirect(x.T, p, 7); return err }},
		{"read", ^uint64(0), func() error { _, err := r.ReadAt(x.T, p, -1); return err }},
		{"truncate", 9, func() error { return r.Truncate(x.T, 9) }},
		{"fallocate", 10, func() error { return r.Fallocate(x.T, 0, 10, 3) }},
	} {
		err := c.do()
		var e *errno.OpError
		if !errors.As(err, &e) || e.Op != c.op || e.Path != "/f" || e.Ino != uint64(r.Inode().Ino) || e.Off != c.off || e.Err == nil {
			t.Errorf("%s at %d: have %v", c.op, c.off, err)
		}
	}
	x.Must(r.Close(x.T))
}
