package mount

import (
	"encoding/binary"
	"errors"
	"math"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"

	"btrlab/internal/blockdev"
	"btrlab/internal/fs"
	"btrlab/internal/testing/fstest"
)

// rootHead is the head of a request of root.
func rootHead(id uint64) fuse.InHeader { return fuse.InHeader{NodeId: id} }

// TestShutdown: after FS_IOC_SHUTDOWN every request is EIO, the end of the mount writes nothing,
// and the image has what was synced and nothing else. Only root may.
func TestShutdown(t *testing.T) {
	x := fstest.New(t, append(fstest.Logging(), fstest.NoCheck())...)
	c := &client{x, newServer(x.FS, Options{})}
	id, fh := c.create(1, "synced", unix.O_RDWR)
	c.write(id, fh, 0, 0, "kept")
	c.want("fsync", c.s.Fsync(nil, &fuse.FsyncIn{InHeader: head(id), Fh: fh}), 0)
	lost, lostFh := c.create(1, "lost", unix.O_RDWR)
	c.write(lost, lostFh, 0, 0, "lost")
	c.write(id, fh, 0, 0, "gone")
	out := make([]byte, 4)
	c.want("shutdown by a user", c.s.Ioctl(nil, &fuse.IoctlIn{InHeader: head(1), Cmd: ioctlShutdown}, nil, nil, out), syscall.EPERM)
	c.want("shutdown", c.s.Ioctl(nil, &fuse.IoctlIn{InHeader: rootHead(1), Cmd: ioctlShutdown}, nil, nil, out), 0)
	_, st := c.s.Read(nil, &fuse.ReadIn{InHeader: head(id), Fh: fh, Size: 4}, make([]byte, 4))
	c.want("read", st, syscall.EIO)
	c.want("getattr", c.s.GetAttr(nil, &fuse.GetAttrIn{InHeader: head(id)}, new(fuse.AttrOut)), syscall.EIO)
	c.want("fsync", c.s.Fsync(nil, &fuse.FsyncIn{InHeader: head(lost), Fh: lostFh}), syscall.EIO)
	_ = (&Mount{s: c.s}).Release(x.T) // what was dirty cannot be written
	if err := x.FS.Sync(x.T); !errors.Is(err, fs.ErrShutdown) {
		t.Errorf("sync: %v", err)
	}
	x.Close()
	have := fstest.Recovered(t, x.T, x.Dev.(*blockdev.Memory).Snapshot())
	if len(have) != 1 || string(have["synced"]) != "kept" {
		t.Errorf("on the image %q", have)
	}
}

// TestTrimRange: FITRIM refuses what btrfs refuses, and trims for the rest.
func TestTrimRange(t *testing.T) {
	c := newClient(t)
	for _, k := range []struct {
		start, length uint64
		want          syscall.Errno
	}{
		{0, 0, syscall.EINVAL}, {0, 100, syscall.EINVAL}, {0, 4096, 0}, {0, math.MaxUint64, 0}, {4096, math.MaxUint64, 0},
		{math.MaxUint64, math.MaxUint64, syscall.EINVAL}, {math.MaxUint64 - 1, 8192, syscall.EINVAL},
	} {
		p, out := make([]byte, sizeofTrim), make([]byte, sizeofTrim)
		binary.NativeEndian.PutUint64(p, k.start)
		binary.NativeEndian.PutUint64(p[8:], k.length)
		c.want("trim", c.s.Ioctl(nil, &fuse.IoctlIn{InHeader: rootHead(1), Cmd: ioctlTrim}, p, nil, out), k.want)
		if n := binary.NativeEndian.Uint64(out[8:]); k.want == 0 && n == 0 {
			t.Errorf("%d bytes from %d: nothing is trimmed", k.length, k.start)
		}
	}
}

// TestForgetsBounded: the kernel sends as many requests to forget as a process that ends had files
// open, and waits for none of them: some are served, and the rest wait before they have begun.
func TestForgetsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := fstest.New(t)
		c := &client{x, newServer(x.FS, Options{})}
		id, fh := c.create(1, "f", unix.O_RDWR)
		c.s.Release(nil, &fuse.ReleaseIn{Fh: fh})
		for range forgetsMax {
			c.s.forgets <- struct{}{}
		}
		var waits sync.WaitGroup
		waits.Go(func() { c.s.Forget(id, 1) })
		synctest.Wait()
		if c.s.nodes.of(id) == nil {
			t.Errorf("%d requests are under way, and one more has been served", forgetsMax)
		}
		<-c.s.forgets
		waits.Wait()
		if c.s.nodes.of(id) != nil {
			t.Error("it has not been served when there is room")
		}
		x.Must((&Mount{s: c.s}).Release(x.T))
		x.Close()
	})
}

// TestCopyToImmutable: a file that became immutable after it was opened takes writes, and no
// copies.
func TestCopyToImmutable(t *testing.T) {
	c := newClient(t)
	from, fromFh := c.create(1, "from", unix.O_RDWR)
	c.write(from, fromFh, 0, 0, "text")
	to, toFh := c.create(1, "to", unix.O_RDWR)
	in := &fuse.CopyFileRangeIn{InHeader: head(from), FhIn: fromFh, NodeIdOut: to, FhOut: toFh, Len: 4}
	_, st := c.s.CopyFileRange(nil, in)
	c.want("copy", st, 0)
	flag := []byte{0x10, 0, 0, 0}
	c.want("immutable", c.s.Ioctl(nil, &fuse.IoctlIn{InHeader: head(to), Cmd: ioctlSetFlags}, flag, nil, nil), 0)
	_, st = c.s.CopyFileRange(nil, in)
	c.want("copy to an immutable file", st, syscall.EPERM)
	c.write(to, toFh, 0, 0, "more")
}
