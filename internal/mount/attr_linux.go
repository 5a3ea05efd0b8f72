package mount

import (
	"time"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"

	"btrlab/internal/format"
	"btrlab/internal/fs"
	"btrlab/internal/sched"
)

// The times for which the kernel believes what it was told. Names change by the kernel's own calls
// only; of the attributes the blocks change behind its back, when delayed allocation ends.
const (
	entryTimeout = time.Hour
	attrTimeout  = time.Second
)

// ino is the inode number that programs see. Numbers are unique in a subvolume and the mount is one
// device, so those of other subvolumes get the subvolume's number above bit 40.
func (s *server) ino(subvol uint64, ino format.Ino) uint64 {
	if subvol == s.top {
		return uint64(ino)
	}
	return subvol<<40 ^ uint64(ino)
}

// attr fills out what stat(2) shows.
func (s *server) attr(t *sched.Task, n *fs.Node, out *fuse.Attr) {
	a := n.Attr(t)
	*out = fuse.Attr{
		Ino: s.ino(a.Subvol, a.Ino), Size: a.Size, Blocks: a.Blocks, Mode: a.Mode, Nlink: a.Nlink,
		Owner: fuse.Owner{Uid: a.UID, Gid: a.GID}, Rdev: uint32(format.EncodeDev(a.Rdev)), Blksize: format.SectorSize,
	}
	out.SetTimes(&a.Atime, &a.Mtime, &a.Ctime)
}

// entry answers with the node of a name, whose reference the kernel takes over.
func (s *server) entry(t *sched.Task, n *fs.Node, out *fuse.EntryOut) {
	out.Generation = n.Generation(t)
	out.SetEntryTimeout(entryTimeout)
	out.SetAttrTimeout(attrTimeout)
	s.attr(t, n, &out.Attr)
	out.NodeId = s.nodes.remember(n)
	s.limitNodes()
}

// made is entry for a node that was made, or the error.
func (s *server) made(t *sched.Task, n *fs.Node, err error, out *fuse.EntryOut) error {
	if err == nil {
		s.entry(t, n, out)
	}
	return err
}

// owner is whom a process makes files for.
func owner(h *fuse.InHeader, umask uint32) fs.Owner {
	return fs.Owner{UID: h.Uid, GID: h.Gid, Umask: umask, Inherit: true}
}

func (s *server) GetAttr(_ <-chan struct{}, in *fuse.GetAttrIn, out *fuse.AttrOut) fuse.Status {
	return s.on("getattr", in.NodeId, func(t *sched.Task, n *fs.Node) error {
		out.SetTimeout(attrTimeout)
		s.attr(t, n, &out.Attr)
		return nil
	})
}

func (s *server) Statx(_ <-chan struct{}, in *fuse.StatxIn, out *fuse.StatxOut) fuse.Status {
	return s.on("statx", in.NodeId, func(t *sched.Task, n *fs.Node) error {
		out.SetTimeout(attrTimeout)
		a := n.Attr(t)
		at := func(x time.Time) fuse.SxTime {
			return fuse.SxTime{Sec: uint64(x.Unix()), Nsec: uint32(x.Nanosecond())}
		}
		out.Statx = fuse.Statx{
			Mask: unix.STATX_BASIC_STATS | unix.STATX_BTIME, Blksize: format.SectorSize, Nlink: a.Nlink, Uid: a.UID, Gid: a.GID,
			Mode: uint16(a.Mode), Ino: s.ino(a.Subvol, a.Ino), Size: a.Size, Blocks: a.Blocks,
			Atime: at(a.Atime), Btime: at(a.Otime), Ctime: at(a.Ctime), Mtime: at(a.Mtime),
			RdevMajor: uint32(a.Rdev >> 20), RdevMinor: uint32(a.Rdev) & 0xfffff,
		}
		for _, x := range statxFlags {
			out.AttributesMask |= x.statx
			if a.Flags&x.inode != 0 {
				out.Attributes |= x.statx
			}
		}
		return nil
	})
}

// statxFlags pairs the inode flags with what statx(2) shows of them, as btrfs_getattr().
var statxFlags = [...]struct{ inode, statx uint64 }{
	{format.InodeAppend, unix.STATX_ATTR_APPEND},
	{format.InodeCompress, unix.STATX_ATTR_COMPRESSED},
	{format.InodeImmutable, unix.STATX_ATTR_IMMUTABLE},
	{format.InodeNoDump, unix.STATX_ATTR_NODUMP},
}

func (s *server) SetAttr(_ <-chan struct{}, in *fuse.SetAttrIn, out *fuse.AttrOut) fuse.Status {
	return s.on("setattr", in.NodeId, func(t *sched.Task, n *fs.Node) (err error) {
		c := fs.SetAttr{Mode: in.Mode, UID: in.Uid, GID: in.Gid, Size: in.Size,
			Atime: time.Unix(int64(in.Atime), int64(in.Atimensec)), Mtime: time.Unix(int64(in.Mtime), int64(in.Mtimensec))}
		for _, x := range []struct {
			valid uint32
			set   fs.SetMask
		}{{fuse.FATTR_MODE, fs.SetMode}, {fuse.FATTR_UID, fs.SetUID}, {fuse.FATTR_GID, fs.SetGID}, {fuse.FATTR_SIZE, fs.SetSize},
			{fuse.FATTR_ATIME, fs.SetAtime}, {fuse.FATTR_MTIME, fs.SetMtime}, {fuse.FATTR_ATIME_NOW, fs.SetAtimeNow},
			{fuse.FATTR_MTIME_NOW, fs.SetMtimeNow}, {fuse.FATTR_KILL_SUIDGID, fs.SetNoSUID}} {
			if in.Valid&x.valid != 0 {
				c.Set |= x.set
			}
		}
		if c.Set&fs.SetSize != 0 && c.Set&fs.SetMtime == 0 {
			// The kernel leaves the times of ftruncate and O_TRUNC to us (update_mtime() in fuse),
			// and they change also when the size does not.
			c.Set |= fs.SetMtimeNow
		}
		set := func() error { return n.SetAttr(t, c) }
		if c.Set&fs.SetSize != 0 && !s.opt.KernelCache {
			err = s.nodes.get(in.NodeId).pages.truncate(in.Size, set)
		} else {
			err = set()
		}
		if err != nil {
			return err
		}
		out.SetTimeout(attrTimeout)
		s.attr(t, n, &out.Attr)
		return nil
	})
}
