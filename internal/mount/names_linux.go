package mount

import (
	"errors"
	"syscall"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"

	"btrlab/internal/errno"
	"btrlab/internal/format"
	"btrlab/internal/fs"
	"btrlab/internal/sched"
)

func (s *server) Lookup(_ <-chan struct{}, h *fuse.InHeader, name string, out *fuse.EntryOut) fuse.Status {
	return s.on("lookup", h.NodeId, func(t *sched.Task, d *fs.Node) error {
		n, err := d.Lookup(t, name)
		if errors.Is(err, errno.ENOENT) { // the kernel remembers that there is none
			out.SetEntryTimeout(entryTimeout)
			return nil
		}
		return s.made(t, n, err, out)
	})
}

// forgetsMax is how many requests to forget are served at once. The kernel waits for no answer, so
// the end of a process that has 50,000 unlinked files open makes as many: their evictions would all
// wait for room in the metadata, and wake each other up whenever one of them ends.
const forgetsMax = 32

func (s *server) Forget(id, count uint64) {
	s.forgets <- struct{}{}
	defer func() { <-s.forgets }()
	if n, refs := s.nodes.forget(id, count); n != nil {
		t := s.begin("forget")
		defer s.end(t)
		if err := n.Forget(t, refs); err != nil {
			s.warn(err)
		}
	}
}

func (s *server) Mknod(_ <-chan struct{}, in *fuse.MknodIn, name string, out *fuse.EntryOut) fuse.Status {
	return s.on("mknod", in.NodeId, func(t *sched.Task, d *fs.Node) error {
		n, err := d.Mknod(t, name, in.Mode, format.DecodeDev(uint64(in.Rdev)), owner(&in.InHeader, in.Umask))
		return s.made(t, n, err, out)
	})
}

func (s *server) Mkdir(_ <-chan struct{}, in *fuse.MkdirIn, name string, out *fuse.EntryOut) fuse.Status {
	return s.on("mkdir", in.NodeId, func(t *sched.Task, d *fs.Node) error {
		n, err := d.Mkdir(t, name, in.Mode, owner(&in.InHeader, in.Umask))
		return s.made(t, n, err, out)
	})
}

func (s *server) Symlink(_ <-chan struct{}, h *fuse.InHeader, target, name string, out *fuse.EntryOut) fuse.Status {
	return s.on("symlink", h.NodeId, func(t *sched.Task, d *fs.Node) error {
		n, err := d.Symlink(t, name, target, owner(h, 0))
		return s.made(t, n, err, out)
	})
}

func (s *server) Readlink(_ <-chan struct{}, h *fuse.InHeader) (target []byte, st fuse.Status) {
	st = s.on("readlink", h.NodeId, func(t *sched.Task, n *fs.Node) error {
		to, err := n.Readlink(t)
		s.accessed(t, n, 0)
		target = []byte(to)
		return err
	})
	return target, st
}

func (s *server) Link(_ <-chan struct{}, in *fuse.LinkIn, name string, out *fuse.EntryOut) fuse.Status {
	n := s.nodes.of(in.Oldnodeid)
	if n == nil {
		return fuse.Status(syscall.ESTALE)
	}
	return s.on("link", in.NodeId, func(t *sched.Task, d *fs.Node) error {
		if err := d.Link(t, name, n); err != nil {
			return err
		}
		s.entry(t, n.Get(t), out)
		return nil
	})
}

func (s *server) Unlink(_ <-chan struct{}, h *fuse.InHeader, name string) fuse.Status {
	return s.on("unlink", h.NodeId, func(t *sched.Task, d *fs.Node) error { return d.Unlink(t, name) })
}

func (s *server) Rmdir(_ <-chan struct{}, h *fuse.InHeader, name string) fuse.Status {
	return s.on("rmdir", h.NodeId, func(t *sched.Task, d *fs.Node) error { return d.Rmdir(t, name) })
}

func (s *server) Rename(_ <-chan struct{}, in *fuse.RenameIn, from, to string) fuse.Status {
	dir := s.nodes.of(in.Newdir)
	if dir == nil {
		return fuse.Status(syscall.ESTALE)
	}
	var flags fs.RenameFlags
	for _, x := range []struct {
		linux uint32
		ours  fs.RenameFlags
	}{{unix.RENAME_NOREPLACE, fs.RenameNoReplace}, {unix.RENAME_EXCHANGE, fs.RenameExchange}, {unix.RENAME_WHITEOUT, fs.RenameWhiteout}} {
		if in.Flags&x.linux != 0 {
			flags |= x.ours
		}
	}
	return s.on("rename", in.NodeId, func(t *sched.Task, d *fs.Node) error {
		return d.RenameWith(t, from, dir, to, flags, owner(&in.InHeader, 0))
	})
}
