package mount

import (
	"errors"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"

	"btrlab/internal/format"
	"btrlab/internal/fs"
	"btrlab/internal/sched"
)

// openFlags are what package fs wants to know of the flags of open(2). A write says for itself
// whether it is direct or durable, and the kernel says where it goes, but an append-only file wants
// to hear O_APPEND.
func openFlags(n *fs.Node, linux uint32) (flags fs.OpenFlags) {
	if linux&unix.O_ACCMODE != unix.O_RDONLY {
		flags |= fs.O_RDWR
		if linux&unix.O_APPEND != 0 && n.Flags()&format.InodeAppend != 0 {
			flags |= fs.O_APPEND
		}
	}
	return flags
}

// open opens the file n, which the kernel knows by the number id.
func (s *server) open(t *sched.Task, id uint64, n *fs.Node, flags uint32, out *fuse.OpenOut) error {
	f, err := n.Open(t, openFlags(n, flags))
	if err != nil {
		return err
	}
	h := &handle{file: f}
	const direct = fuse.FOPEN_DIRECT_IO | fuse.FOPEN_PARALLEL_DIRECT_WRITES
	switch {
	case !s.opt.KernelCache:
		out.OpenFlags = direct
		h.pages = &s.nodes.get(id).pages
		h.pages.open()
	case flags&unix.O_DIRECT != 0:
		// Without it the kernel lets one direct write into a file at a time. With it, it writes
		// back and drops what it has cached of the range, as before.
		out.OpenFlags = direct | fuse.FOPEN_KEEP_CACHE
	default:
		out.OpenFlags = fuse.FOPEN_KEEP_CACHE
	}
	out.Fh = s.handles.add(h)
	return nil
}

func (s *server) Create(_ <-chan struct{}, in *fuse.CreateIn, name string, out *fuse.CreateOut) fuse.Status {
	return s.on("create", in.NodeId, func(t *sched.Task, d *fs.Node) error {
		var flags fs.OpenFlags
		if in.Flags&unix.O_EXCL != 0 {
			flags = fs.O_EXCL
		}
		n, err := d.Create(t, name, flags, in.Mode, owner(&in.InHeader, in.Umask))
		return s.created(t, n, err, in, out)
	})
}

// created answers Create and Tmpfile.
func (s *server) created(t *sched.Task, n *fs.Node, err error, in *fuse.CreateIn, out *fuse.CreateOut) error {
	if err != nil {
		return err
	}
	s.entry(t, n, &out.EntryOut)
	if err := s.open(t, out.NodeId, n, in.Flags, &out.OpenOut); err != nil {
		n, refs := s.nodes.forget(out.NodeId, 1) // the kernel takes none over
		return errors.Join(err, n.Forget(t, refs))
	}
	return nil
}

func (s *server) Tmpfile(_ <-chan struct{}, in *fuse.CreateIn, out *fuse.CreateOut) fuse.Status {
	return s.on("tmpfile", in.NodeId, func(t *sched.Task, d *fs.Node) error {
		var flags fs.OpenFlags
		if in.Flags&unix.O_EXCL != 0 {
			flags = fs.O_EXCL
		}
		n, err := d.Tmpfile(t, flags, in.Mode, owner(&in.InHeader, in.Umask))
		return s.created(t, n, err, in, out)
	})
}

func (s *server) Open(_ <-chan struct{}, in *fuse.OpenIn, out *fuse.OpenOut) fuse.Status {
	return s.on("open", in.NodeId, func(t *sched.Task, n *fs.Node) error { return s.open(t, in.NodeId, n, in.Flags, out) })
}

func (s *server) Release(_ <-chan struct{}, in *fuse.ReleaseIn) {
	if h := s.handles.drop(in.Fh); h != nil && h.file != nil {
		t := s.begin("release")
		defer s.end(t)
		if h.pages != nil {
			h.pages.close()
		}
		if err := h.file.Close(t); err != nil {
			s.warn(err)
		}
	}
}
