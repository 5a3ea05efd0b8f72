package kernel

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"btrlab/internal/blockdev"
	"btrlab/internal/fs"
	"btrlab/internal/hostio"
	"btrlab/internal/interop"
	"btrlab/internal/iopath"
	"btrlab/internal/kiocb"
	"btrlab/internal/policy"
	"btrlab/internal/sched"
)

// change is a system call on a file of two blocks, of Linux and of ours.
type change struct {
	name  string
	linux func(fd int, path string) error
	ours  func(k *sched.Task, x *fs.FS, f *fs.File) error
}

var changes = []change{
	writing("write", 0, 0),
	writing("nowait", kiocb.Nowait, unix.RWF_NOWAIT),
	writing("append", kiocb.Append, unix.RWF_APPEND),
	writing("direct", kiocb.Direct, 0),
	{"ftruncate", func(fd int, _ string) error { return unix.Ftruncate(fd, 4*kib) },
		func(k *sched.Task, x *fs.FS, f *fs.File) error { return f.Truncate(k, 4*kib) }},
	{"ftruncate-same", func(fd int, _ string) error { return unix.Ftruncate(fd, 8*kib) },
		func(k *sched.Task, x *fs.FS, f *fs.File) error { return f.Truncate(k, 8*kib) }},
	allocating("fallocate", unix.FALLOC_FL_KEEP_SIZE, 16*kib),
	allocating("punch", unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, 4*kib),
	allocating("zero-range", unix.FALLOC_FL_ZERO_RANGE, 4*kib),
	{"reflink", func(fd int, _ string) error {
		return unix.IoctlFileCloneRange(fd, &unix.FileCloneRange{Src_fd: int64(fd), Src_length: 4 * kib, Dest_offset: 4 * kib})
	}, func(k *sched.Task, x *fs.FS, f *fs.File) error { return f.Reflink(k, f, 0, 4*kib, 4*kib) }},
	{"chown", func(_ int, path string) error { return unix.Chown(path, 1, 1) },
		func(k *sched.Task, x *fs.FS, f *fs.File) error { return x.Chown(k, "/ours/chown", 1, 1) }},
	{"chmod", func(_ int, path string) error { return unix.Chmod(path, 0o755) },
		func(k *sched.Task, x *fs.FS, f *fs.File) error { return x.Chmod(k, "/ours/chmod", 0o755) }},
	{"read", func(fd int, _ string) error { _, err := unix.Pread(fd, make([]byte, kib), 0); return err },
		func(k *sched.Task, x *fs.FS, f *fs.File) error {
			_, err := f.ReadAt(k, make([]byte, kib), 0)
			return err
		}},
}

// writing is a write of the first block.
func writing(name string, flags kiocb.Flags, rwf int) change {
	p := hostio.Aligned(4 * kib)
	return change{name, func(fd int, path string) error {
		if flags&kiocb.Direct != 0 {
			var err error
			if fd, err = unix.Open(path, unix.O_RDWR|unix.O_DIRECT, 0); err != nil {
				return err
			}
			defer unix.Close(fd)
		}
		_, err := unix.Pwritev2(fd, [][]byte{p}, 0, rwf)
		return err
	}, func(k *sched.Task, x *fs.FS, f *fs.File) error {
		_, err := f.WriteIter(k, kiocb.Request{Flags: flags}, iopath.Source{Buf: p})
		return err
	}}
}

// allocating is fallocate(2) of the first n bytes.
func allocating(name string, mode uint32, n int64) change {
	return change{name, func(fd int, _ string) error { return unix.Fallocate(fd, mode, 0, n) },
		func(k *sched.Task, x *fs.FS, f *fs.File) error { return f.Fallocate(k, mode, 0, n) }}
}

// TestCapabilities: the system calls that take a program's capabilities away are the same on both
// sides. Linux makes two programs for each and says in the end which of them have theirs. A NOWAIT
// direct write is among the states of TestVerdicts.
func TestCapabilities(t *testing.T) {
	interop.Linux(t, "chattr")
	const attr = "security.capability"
	// struct vfs_cap_data: cap_net_raw=ep
	caps := []byte{1, 0, 0, 2, 0, 32, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}
	img := interop.Image(t, "privs.img")
	interop.Must(t, os.WriteFile(img, nil, 0o600))
	interop.Must(t, os.Truncate(img, 256<<20))
	interop.Sh(t, "mkfs.btrfs", "-q", img)
	interop.Mounted(t, img, "", func(dir string) {
		for _, side := range []string{"kernel", "ours"} {
			interop.Must(t, os.Mkdir(filepath.Join(dir, side), 0o755))
			interop.Sh(t, "chattr", "+C", filepath.Join(dir, side))
			for _, c := range changes {
				path := filepath.Join(dir, side, c.name)
				interop.Must(t, os.WriteFile(path, make([]byte, 8*kib), 0o755))
				interop.Must(t, unix.Setxattr(path, attr, caps, 0))
			}
		}
		interop.Sh(t, "sync", "-f", dir)
		for _, c := range changes {
			path := filepath.Join(dir, "kernel", c.name)
			fd, err := unix.Open(path, unix.O_RDWR, 0)
			interop.Must(t, err)
			// so that what NOWAIT asks the trees is in memory
			_, err = unix.Pread(fd, make([]byte, 8*kib), 0)
			interop.Must(t, err)
			interop.Must(t, unix.Fadvise(fd, 0, 0, unix.FADV_DONTNEED))
			if err := c.linux(fd, path); err != nil {
				t.Errorf("%s of Linux: %v", c.name, err)
			}
			interop.Must(t, unix.Close(fd))
		}
	})
	k := sched.NewTask("test")
	dev, err := blockdev.Open(img, 0)
	interop.Must(t, err)
	modern, err := policy.Parse("modern")
	interop.Must(t, err)
	x, err := fs.Open(k, []blockdev.Device{dev}, fs.Options{Policy: &modern})
	interop.Must(t, err)
	for _, c := range changes {
		f, err := x.OpenFile(k, "/ours/"+c.name, fs.O_RDWR, 0)
		interop.Must(t, err)
		if err := c.ours(k, x, f); err != nil {
			t.Errorf("%s of ours: %v", c.name, err)
		}
		interop.Must(t, f.Close(k))
	}
	interop.Must(t, x.Close(k))
	interop.Must(t, dev.Close())
	interop.Judged(t, img)
	have := 0
	interop.Mounted(t, img, "ro", func(dir string) {
		for _, c := range changes {
			has := func(side string) bool {
				_, err := unix.Getxattr(filepath.Join(dir, side, c.name), attr, make([]byte, 64))
				if err != nil && !errors.Is(err, unix.ENODATA) {
					t.Error(err)
				}
				return err == nil
			}
			theirs, ours := has("kernel"), has("ours")
			if theirs != ours {
				t.Errorf("capabilities after %s: Linux %v, ours %v", c.name, theirs, ours)
			}
			if theirs {
				have++
			}
		}
	})
	t.Logf("%d calls, capabilities stay after %d", len(changes), have)
	if have == 0 || have == len(changes) {
		t.Error("the calls do not differ")
	}
}
