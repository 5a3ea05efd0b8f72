package mount

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"

	"btrlab/internal/fs"
	"btrlab/internal/testing/fstest"
)

// TestAtime: which reads change access times, under each option, at any age, and once the kernel's
// mount has been changed. What is seen is on the image, and a directory and a link are read, too.
func TestAtime(t *testing.T) {
	var now atomic.Int64 // seconds
	x := fstest.New(t, fstest.FSOptions(func(o *fs.Options) {
		o.Now = func() time.Time { return fstest.Epoch.Add(time.Duration(now.Load()) * time.Second) }
	}))
	c := &client{x, newServer(x.FS, Options{})}
	t.Cleanup(func() { x.Must((&Mount{s: c.s}).Release(x.T)) })
	id, fh := c.create(1, "f", unix.O_RDWR)
	c.write(id, fh, 0, 0, "text")
	h := head(1)
	var link fuse.EntryOut
	c.want("symlink", c.s.Symlink(nil, &h, "f", "link", &link), 0)
	read := func(flags uint32) func() {
		return func() {
			_, st := c.s.Read(nil, &fuse.ReadIn{InHeader: head(id), Fh: fh, Flags: flags, Size: 4}, make([]byte, 4))
			c.want("read", st, 0)
		}
	}
	list := func() { c.list(1) }
	readlink := func() {
		h := head(link.NodeId)
		_, st := c.s.Readlink(nil, &h)
		c.want("readlink", st, 0)
	}
	const day = 24 * 60 * 60
	for _, k := range []struct {
		name    string
		of      uint64
		atime   fs.Atime
		noDir   bool
		later   int64 // seconds after the step before
		do      func()
		changed bool
	}{
		{"noatime", id, fs.Noatime, false, 1, read(0), false},
		{"O_NOATIME", id, fs.Relatime, false, 1, read(unix.O_NOATIME), false},
		{"a page to write into", id, fs.Relatime, false, 1, read(unix.O_WRONLY), false},
		{"first", id, fs.Relatime, false, 1, read(0), true},
		{"again", id, fs.Relatime, false, 1, read(unix.O_RDWR), false},
		{"less than a day", id, fs.Relatime, false, day - 2, read(0), false},
		{"a day", id, fs.Relatime, false, 1, read(0), true},
		{"strictatime", id, fs.Strictatime, false, 1, read(0), true},
		{"strictatime, the same time", id, fs.Strictatime, false, 0, read(0), false},
		{"relatime after it", id, fs.Relatime, false, 1, read(0), false},
		{"after a write", id, fs.Relatime, false, 1, func() { c.write(id, fh, 0, 0, "more"); read(0)() }, true},
		{"after a write at the same time", id, fs.Relatime, false, 0, read(0), false},
		{"it is not newer", id, fs.Relatime, false, 1, read(0), true},
		{"after a chmod", id, fs.Relatime, false, 1, func() {
			c.setattr(id, fuse.FATTR_MODE, func(in *fuse.SetAttrInCommon) { in.Mode = unix.S_IFREG | 0o600 })
			read(0)()
		}, true},
		{"nodiratime", 1, fs.Relatime, true, 1, list, false},
		{"directory", 1, fs.Relatime, false, 1, list, true},
		{"directory again", 1, fs.Relatime, false, 1, list, false},
		{"link", link.NodeId, fs.Relatime, true, 1, readlink, true},
		{"link again", link.NodeId, fs.Relatime, false, 1, readlink, false},
	} {
		now.Add(k.later)
		c.s.opt.Atime, c.s.opt.NoDirAtime = k.atime, k.noDir
		before := c.attr(k.of)
		k.do()
		after := c.attr(k.of)
		if changed := before.Atime != after.Atime || before.Atimensec != after.Atimensec; changed != k.changed {
			t.Errorf("%s: access time changed %v, want %v", k.name, changed, k.changed)
		}
		if k.changed && int64(after.Atime) != fstest.Epoch.Unix()+now.Load() {
			t.Errorf("%s: access time %d, want now", k.name, after.Atime)
		}
	}
	was := c.attr(id)
	x.Must(x.FS.Sync(x.T))
	d := fstest.Must(fs.Open(x.T, x.FS.Devices(), fs.Options{ReadOnly: true}))
	n := fstest.Must(d.NodeAt(x.T, "/f"))
	if have := n.Attr(x.T).Atime; uint64(have.Unix()) != was.Atime {
		t.Errorf("on the image %v, have %d", have, was.Atime)
	}
	x.Must(n.Forget(x.T, 1))
	x.Must(d.Close(x.T))
}

// TestKernelFlags: what mountinfo says of the mount, whose first line is that of the device.
func TestKernelFlags(t *testing.T) {
	const before = "24 1 0:5 / / rw,noatime shared:1 - ext4 /dev/root ro\n"
	for _, k := range []struct {
		line      string
		file, dir bool
	}{
		{"36 24 0:44 / /mnt rw,relatime shared:9 - fuse.btrlab a.img rw,user_id=0\n", false, false},
		{"36 24 0:44 / /mnt rw,noatime - fuse.btrlab a.img rw,user_id=0\n", true, true},
		{"36 24 0:44 / /mnt rw,nodiratime,relatime - fuse.btrlab a.img rw,user_id=0\n", false, true},
		{"36 24 0:44 / /mnt ro,relatime - fuse.btrlab a.img rw,user_id=0\n", true, true},
		{"36 24 0:44 / /mnt rw,relatime - fuse.btrlab a.img ro,user_id=0\n", true, true},
		{"36 24 0:44 / /mnt rw,relatime - fuse.btrlab a.img rw\n40 24 0:44 / /bind ro,noatime - fuse.btrlab a.img rw\n", false, false},
		{"36 24 0:45 / /mnt ro,noatime - fuse.btrlab a.img ro\n", false, false},
		{"36 24 0:44\n", false, false},
	} {
		f := kernelFlags{dev: "0:44"}
		f.parse([]byte(before + k.line))
		if f.keeps(false) != k.file || f.keeps(true) != k.dir {
			t.Errorf("%q: of a file %v, of a directory %v", k.line, f.keeps(false), f.keeps(true))
		}
	}
}
