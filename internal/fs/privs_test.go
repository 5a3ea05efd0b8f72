package fs_test

import (
	"errors"
	"slices"
	"testing"

	"btrlab/internal/format"
	"btrlab/internal/fs"
	"btrlab/internal/iopath"
	"btrlab/internal/kiocb"
	"btrlab/internal/testing/fstest"
)

// TestCapabilities: a change of a file's bytes takes its capabilities away, by whatever way it goes
// and under every lock, and no other attribute; what changes no byte leaves them. The file is
// opened anew before each change: nothing of it is in memory.
func TestCapabilities(t *testing.T) {
	block := make([]byte, 4096)
	iter := func(pos uint64, flags kiocb.Flags) func(x *fstest.Fixture, f *fs.File) error {
		return func(x *fstest.Fixture, f *fs.File) error {
			_, err := f.WriteIter(x.T, kiocb.Request{Pos: pos, Flags: flags}, iopath.Source{Buf: block})
			return err
		}
	}
	for _, c := range []struct {
		name, policy string
		change       func(x *fstest.Fixture, f *fs.File) error
		stay         bool
	}{
		{name: "write", policy: "locked", change: iter(0, 0)},
		{name: "write without the lock", policy: "unlocked", change: iter(0, 0)},
		{name: "write under a range", policy: "range-lock", change: iter(0, 0)},
		{name: "direct write under a range", policy: "range-lock", change: iter(0, kiocb.Direct)},
		{name: "write of modern", policy: "modern", change: iter(0, 0)},
		{name: "NOWAIT write", policy: "nowait-6.1", change: iter(0, kiocb.Nowait)},
		{name: "append", policy: "modern", change: iter(0, kiocb.Append)},
		{name: "direct write", policy: "modern", change: iter(0, kiocb.Direct)},
		{name: "NOWAIT direct write", policy: "nowait-5.19", change: iter(0, kiocb.Direct|kiocb.Nowait)},
		{name: "truncate", policy: "modern", change: func(x *fstest.Fixture, f *fs.File) error { return f.Truncate(x.T, 4096) }},
		{name: "fallocate", policy: "modern", change: func(x *fstest.Fixture, f *fs.File) error {
			return f.Fallocate(x.T, fs.FALLOC_FL_KEEP_SIZE, 0, 16384)
		}},
		{name: "punch", policy: "modern", change: func(x *fstest.Fixture, f *fs.File) error {
			return f.Fallocate(x.T, fs.FALLOC_FL_PUNCH_HOLE|fs.FALLOC_FL_KEEP_SIZE, 0, 4096)
		}},
		{name: "reflink", policy: "modern", change: func(x *fstest.Fixture, f *fs.File) error {
			src := x.Open("/src")
			return errors.Join(f.Reflink(x.T, src, 0, 4096, 4096), src.Close(x.T))
		}},
		{name: "chown", policy: "modern", change: func(x *fstest.Fixture, f *fs.File) error { return x.FS.Chown(x.T, "/f", 1, 1) }},
		{name: "chmod", policy: "modern", stay: true, change: func(x *fstest.Fixture, f *fs.File) error { return x.FS.Chmod(x.T, "/f", 0o755) }},
		{name: "empty write", policy: "modern", stay: true, change: func(x *fstest.Fixture, f *fs.File) error {
			_, err := f.WriteAt(x.T, nil, 0)
			return err
		}},
		{name: "read", policy: "modern", stay: true, change: func(x *fstest.Fixture, f *fs.File) error {
			_, err := f.ReadAt(x.T, make([]byte, 4096), 0)
			return err
		}},
		{name: "NOWAIT write that may not sleep", policy: "nowait-strict", stay: true, change: func(x *fstest.Fixture, f *fs.File) error {
			for _, flags := range []kiocb.Flags{kiocb.Nowait, kiocb.Nowait | kiocb.Direct} {
				if err := iter(0, flags)(x, f); !errors.Is(err, kiocb.AgainPrivs) {
					t.Errorf("flags %v: have %v want %v", flags, err, kiocb.AgainPrivs)
				}
			}
			return nil
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			x := fstest.New(t, fstest.Policy(c.policy))
			for _, path := range []string{"/f", "/src"} {
				f := x.Create(path)
				x.Must(f.SetFlags(x.T, format.InodeNoDataCow|format.InodeNoDataSum))
				x.WriteAt(f, make([]byte, 8192), 0)
				x.Must(f.Close(x.T))
			}
			x.Must(x.FS.Setxattr(x.T, "/f", "user.a", []byte("stays")))
			x.Must(x.FS.Setxattr(x.T, "/f", "security.capability", []byte("some")))
			x.Reopen()
			f := x.Open("/f")
			if err := c.change(x, f); err != nil {
				t.Fatal(err)
			}
			x.Must(f.Close(x.T))
			x.Reopen()
			want := []string{"user.a=stays"}
			if c.stay {
				want = []string{"security.capability=some", "user.a=stays"}
			}
			if have := xattrs(x, "/f"); !slices.Equal(have, want) {
				t.Errorf("have %q want %q", have, want)
			}
		})
	}
}

// TestCapabilitiesAgain: what a file had taken away it can be given again, and the next write takes
// it again.
func TestCapabilitiesAgain(t *testing.T) {
	x := fstest.New(t)
	f := x.Create("/f")
	for range 2 {
		x.WriteAt(f, []byte("bytes"), 0)
		if l := xattrs(x, "/f"); len(l) != 0 {
			t.Fatalf("after a write: %q", l)
		}
		x.Must(x.FS.Setxattr(x.T, "/f", "security.capability", []byte("some")))
	}
	x.Must(f.Close(x.T))
}
