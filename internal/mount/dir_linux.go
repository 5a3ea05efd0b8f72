package mount

import (
	"github.com/hanwen/go-fuse/v2/fuse"

	"btrlab/internal/errno"
	"btrlab/internal/format"
	"btrlab/internal/fs"
	"btrlab/internal/sched"
)

func (s *server) OpenDir(_ <-chan struct{}, in *fuse.OpenIn, out *fuse.OpenOut) fuse.Status {
	return s.on("opendir", in.NodeId, func(_ *sched.Task, d *fs.Node) error {
		if !d.IsDir() {
			return errno.ENOTDIR
		}
		out.Fh = s.handles.add(new(handle))
		return nil
	})
}

func (s *server) ReleaseDir(in *fuse.ReleaseIn) { s.handles.drop(in.Fh) }

func (s *server) ReadDir(_ <-chan struct{}, in *fuse.ReadIn, out *fuse.DirEntryList) fuse.Status {
	return s.readDir(in, func(_ *sched.Task, _ *fs.Node, _ fs.DirEntry, e fuse.DirEntry) bool { return out.AddDirEntry(e) })
}

func (s *server) ReadDirPlus(_ <-chan struct{}, in *fuse.ReadIn, out *fuse.DirEntryList) fuse.Status {
	return s.readDir(in, func(t *sched.Task, d *fs.Node, at fs.DirEntry, e fuse.DirEntry) bool {
		o := out.AddDirLookupEntry(e)
		if o == nil || at.Name == "" {
			return o != nil
		}
		// The kernel has the directory locked: no name comes or goes. Without an answer it looks
		// the name up by itself.
		var n *fs.Node
		var err error
		if at.Subvol != 0 {
			n, err = d.Lookup(t, at.Name)
		} else {
			n, err = s.fs.Node(t, d.Subvol(), at.Ino)
		}
		if err == nil {
			s.entry(t, n, o)
		}
		return true
	})
}

// dirBatch is how many entries are read under one lock of the directory.
const dirBatch = 256

// readDir gives add the entries from in.Offset on until one does not fit. The offset after an entry
// is its index and one: it stays right while names come and go. Indices begin at 2, so 1 and 2 are
// the offsets after "." and "..".
func (s *server) readDir(in *fuse.ReadIn, add func(t *sched.Task, d *fs.Node, at fs.DirEntry, e fuse.DirEntry) bool) fuse.Status {
	h := s.handles.get(in.Fh)
	if h == nil {
		return fuse.EBADF
	}
	return s.on("readdir", in.NodeId, func(t *sched.Task, d *fs.Node) error {
		defer s.accessed(t, d, in.Flags)
		off := in.Offset
		if off == 0 {
			end, err := d.DirEnd(t)
			if err != nil {
				return err
			}
			h.end.Store(end)
		}
		for ; off < 2; off++ {
			e := fuse.DirEntry{Name: "."[:1], Mode: format.S_IFDIR, Ino: s.ino(d.Subvol(), d.Ino()), Off: off + 1}
			if off == 1 {
				e.Name = ".."
				if up, err := d.Lookup(t, ".."); err == nil {
					e.Ino = s.ino(up.Subvol(), up.Ino())
					if err := up.Forget(t, 1); err != nil {
						return err
					}
				}
			}
			if !add(t, d, fs.DirEntry{}, e) {
				return nil
			}
		}
		batch := make([]fs.DirEntry, 0, dirBatch)
		for {
			batch = batch[:0]
			end := h.end.Load()
			err := d.ReadDir(t, off, func(e fs.DirEntry) bool {
				if e.Index < end {
					batch = append(batch, e)
				}
				return e.Index < end && len(batch) < cap(batch)
			})
			if err != nil {
				return err
			}
			for _, e := range batch {
				subvol := d.Subvol()
				if e.Subvol != 0 {
					subvol = e.Subvol
				}
				if !add(t, d, e, fuse.DirEntry{Name: e.Name, Mode: modeOf(e.Type), Ino: s.ino(subvol, e.Ino), Off: e.Index + 1}) {
					return nil
				}
				off = e.Index + 1
			}
			if len(batch) < cap(batch) {
				return nil
			}
		}
	})
}

// modeOf is the type of a directory entry as a mode has it.
func modeOf(ft uint8) uint32 {
	switch ft {
	case format.FtRegFile:
		return format.S_IFREG
	case format.FtDir:
		return format.S_IFDIR
	case format.FtChrdev:
		return format.S_IFCHR
	case format.FtBlkdev:
		return format.S_IFBLK
	case format.FtFifo:
		return format.S_IFIFO
	case format.FtSock:
		return format.S_IFSOCK
	case format.FtSymlink:
		return format.S_IFLNK
	}
	return 0
}
