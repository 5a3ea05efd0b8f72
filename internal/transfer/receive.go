package transfer

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"

	"btrlab/internal/compress"
	"btrlab/internal/errno"
	"btrlab/internal/format"
	"btrlab/internal/fs"
	"btrlab/internal/sched"
	ss "btrlab/internal/sendstream"
)

// Receive makes the subvolumes that the streams of r describe, in the directory to: all streams up
// to the end of r, one after the other. Each subvolume is read-only and durable before the next one
// begins. After an error the one under way is deleted again; those before it stay. Begin is called
// with the path of each.
//
// A path of the stream leads to a place in the subvolume under way, and never through a symbolic
// link.
//
// Model: cmds/receive.c of btrfs-progs. Differences: it leaves a part of a subvolume after an
// error; it follows symbolic links; it takes a parent that has been changed since, and a stream
// without an end.
func Receive(t *sched.Task, x *fs.FS, w Watcher, r io.Reader, to string) error {
	dir, err := x.NodeAt(t, to)
	if err != nil {
		return err
	}
	defer dir.Forget(t, 1)
	if !dir.IsDir() {
		return errno.ENOTDIR
	}
	c := receiver{t: t, x: x, count: count{w: w}, in: ss.NewReader(r), dir: dir, to: strings.TrimSuffix(to, "/")}
	for {
		err := c.in.Header()
		if errors.Is(err, io.EOF) {
			if c.in.Offset() == 0 {
				return errors.New("the stream is empty")
			}
			return nil
		}
		if err == nil {
			err = c.stream()
		}
		if err != nil {
			return c.abandon(err)
		}
	}
}

// receiver is a receive under way.
type receiver struct {
	t     *sched.Task
	x     *fs.FS
	count count
	in    *ss.Reader
	dir   *fs.Node // gets the subvolumes
	to    string   // its path

	name     string   // of the subvolume under way, in dir
	top      *fs.Node // of it; nil between two
	uuid     format.UUID
	ctransid uint64

	file *fs.File // open for writing, at path
	path string
	data []byte // of a compressed write
}

// stream receives one stream, up to its end.
func (c *receiver) stream() error {
	for {
		if err := c.count.w.Stop(); err != nil {
			return err
		}
		cmd, err := c.in.Next()
		if err != nil {
			return err
		}
		switch cmd.Cmd {
		case ss.C_SUBVOL, ss.C_SNAPSHOT:
			if err = c.finish(); err == nil {
				err = c.begin(cmd)
			}
		case ss.C_END:
			if c.top == nil {
				return cmd.Errorf("no subvolume has begun")
			}
			if err := c.finish(); err != nil {
				return cmd.Errorf("%s: %w", c.name, err)
			}
			return nil
		default:
			if c.top == nil {
				return cmd.Errorf("no subvolume has begun, want subvol or snapshot")
			}
			err = c.do(cmd)
		}
		if err != nil {
			return cmd.Errorf("%s: %w", cmd.Text(ss.A_PATH), err)
		}
	}
}

// begin makes the subvolume of a command: an empty one, or a snapshot of its parent.
func (c *receiver) begin(cmd *ss.Command) error {
	name := cmd.Text(ss.A_PATH)
	if name == "" || name == "." || name == ".." || strings.Contains(name, "/") {
		return errors.New("bad name of a subvolume")
	}
	if err := c.count.next(c.to + "/" + name); err != nil {
		return err
	}
	var top *fs.Node
	var err error
	if cmd.Cmd == ss.C_SUBVOL {
		top, err = c.dir.Subvolume(c.t, name, 0o755, fs.Owner{})
	} else {
		var parent *fs.Node
		if parent, err = c.sent(cmd.UUID(ss.A_CLONE_UUID), cmd.Uint(ss.A_CLONE_CTRANSID)); err != nil {
			return fmt.Errorf("parent: %w", err)
		}
		top, err = c.dir.Snapshot(c.t, name, parent, false)
		parent.Forget(c.t, 1)
	}
	if err != nil {
		return err
	}
	c.name, c.top, c.uuid, c.ctransid = name, top, cmd.UUID(ss.A_UUID), cmd.Uint(ss.A_CTRANSID)
	return nil
}

// sent is the top directory of the subvolume here that is the one of the sender: received from it,
// or itself. One that has been changed since is not; but a read-only one that only another number
// speaks against is: a sender that has received it has a number of its own.
func (c *receiver) sent(uuid format.UUID, ctransid uint64) (*fs.Node, error) {
	ids, items, err := c.x.SubvolItems(c.t)
	if err != nil {
		return nil, err
	}
	var id uint64
	best, changed := 0, false
	for i := range items {
		it, rank := &items[i], 0
		switch readOnly := it.Flags&format.RootSubvolReadonly != 0; {
		case it.ReceivedUUID == uuid && it.Stransid == ctransid, it.UUID == uuid && it.Ctransid == ctransid:
			rank = 2
		case (it.ReceivedUUID == uuid || it.UUID == uuid) && readOnly:
			rank = 1
		case it.ReceivedUUID == uuid || it.UUID == uuid:
			changed = true
		}
		if rank > best {
			best, id = rank, ids[i]
		}
	}
	switch {
	case best > 0:
		return c.x.Node(c.t, id, format.FIRST_FREE_OBJECTID)
	case changed:
		return nil, fmt.Errorf("subvolume %v has been changed since transaction %d", uuid, ctransid)
	}
	return nil, fmt.Errorf("no subvolume is %v, nor was received from it: %w", uuid, errno.ENOENT)
}

// finish ends the subvolume under way, if there is one.
func (c *receiver) finish() error {
	if c.top == nil {
		return nil
	}
	if err := c.closeFile(); err != nil {
		return err
	}
	if err := c.top.SetReceived(c.t, c.uuid, c.ctransid); err != nil {
		return err
	}
	err := c.top.Forget(c.t, 1)
	c.top = nil
	return err
}

// abandon deletes what was made of the subvolume under way, because of err.
func (c *receiver) abandon(err error) error {
	if c.top == nil {
		return err
	}
	cerr := c.closeFile()
	if ferr := c.top.Forget(c.t, 1); cerr == nil {
		cerr = ferr
	}
	c.top = nil
	if derr := c.dir.DeleteSubvolume(c.t, c.name); derr != nil {
		return fmt.Errorf("%w; and the part that was received stays at %s/%s: %w", err, c.to, c.name, errors.Join(derr, cerr))
	}
	return err
}

// walk finds the place of a path below top; the last component may be a symbolic link.
func (c *receiver) walk(top *fs.Node, path string) (*fs.Node, error) {
	n, err := c.x.Node(c.t, top.Subvol(), top.Ino())
	for path != "" && err == nil {
		var name string
		name, path, _ = strings.Cut(path, "/")
		var next *fs.Node
		if name == "" || name == "." || name == ".." {
			err = errors.New("bad path")
		} else if next, err = n.Lookup(c.t, name); err == nil && next.Subvol() != top.Subvol() {
			next.Forget(c.t, 1)
			err = errno.EXDEV
		}
		n.Forget(c.t, 1)
		n = next
	}
	if err != nil {
		return nil, err
	}
	return n, nil
}

// at does something to what is at a path of the subvolume.
func (c *receiver) at(path string, do func(n *fs.Node) error) error {
	n, err := c.walk(c.top, path)
	if err != nil {
		return err
	}
	err = do(n)
	if ferr := n.Forget(c.t, 1); err == nil {
		err = ferr
	}
	return err
}

// parent does something to the last name of a path, in its directory.
func (c *receiver) parent(path string, do func(dir *fs.Node, name string) error) error {
	i := strings.LastIndexByte(path, '/')
	name := path[i+1:]
	if name == "" || name == "." || name == ".." {
		return errors.New("bad path")
	}
	return c.at(path[:max(i, 0)], func(dir *fs.Node) error { return do(dir, name) })
}

// open is the file at a path, open for writing until another one is.
func (c *receiver) open(path string) (*fs.File, error) {
	if c.file != nil && c.path == path {
		return c.file, nil
	}
	if err := c.closeFile(); err != nil {
		return nil, err
	}
	err := c.at(path, func(n *fs.Node) (err error) {
		c.file, err = n.Open(c.t, fs.O_RDWR)
		return err
	})
	c.path = path
	return c.file, err
}

func (c *receiver) closeFile() error {
	f := c.file
	if c.file = nil; f == nil {
		return nil
	}
	return f.Close(c.t)
}

// do carries out a command on the subvolume under way.
func (c *receiver) do(cmd *ss.Command) error {
	t, path := c.t, cmd.Text(ss.A_PATH)
	switch cmd.Cmd {
	case ss.C_MKFILE, ss.C_MKDIR, ss.C_MKNOD, ss.C_MKFIFO, ss.C_MKSOCK, ss.C_SYMLINK:
		return c.parent(path, func(dir *fs.Node, name string) error { return c.make(cmd, dir, name) })
	case ss.C_RENAME, ss.C_UNLINK, ss.C_RMDIR:
		// what has the open file's path may be another one afterwards
		if err := c.closeFile(); err != nil {
			return err
		}
		return c.parent(path, func(dir *fs.Node, name string) error {
			switch cmd.Cmd {
			case ss.C_UNLINK:
				return dir.Unlink(t, name)
			case ss.C_RMDIR:
				return dir.Rmdir(t, name)
			}
			return c.parent(cmd.Text(ss.A_PATH_TO), func(to *fs.Node, newName string) error { return dir.Rename(t, name, to, newName) })
		})
	case ss.C_LINK:
		return c.at(cmd.Text(ss.A_PATH_LINK), func(old *fs.Node) error {
			return c.parent(path, func(dir *fs.Node, name string) error { return dir.Link(t, name, old) })
		})
	case ss.C_WRITE, ss.C_ENCODED_WRITE, ss.C_CLONE, ss.C_FALLOCATE, ss.C_TRUNCATE:
		f, err := c.open(path)
		if err != nil {
			return err
		}
		return c.change(cmd, f)
	case ss.C_SET_XATTR, ss.C_REMOVE_XATTR, ss.C_CHMOD, ss.C_CHOWN, ss.C_UTIMES:
		return c.at(path, func(n *fs.Node) error { return c.attrs(cmd, n) })
	case ss.C_UPDATE_EXTENT, ss.C_FILEATTR:
		return nil // a stream without data has the one; the other is left out as by btrfs receive
	}
	return fmt.Errorf("%v is not supported", cmd.Cmd)
}

// make makes what a command says; owner, permissions and times are in commands of their own.
func (c *receiver) make(cmd *ss.Command, dir *fs.Node, name string) (err error) {
	var n *fs.Node
	mode := uint32(cmd.Uint(ss.A_MODE)) & 0o7777
	switch cmd.Cmd {
	case ss.C_MKFILE:
		n, err = dir.Create(c.t, name, fs.O_EXCL, 0o600, fs.Owner{})
	case ss.C_MKDIR:
		n, err = dir.Mkdir(c.t, name, 0o700, fs.Owner{})
	case ss.C_SYMLINK:
		n, err = dir.Symlink(c.t, name, cmd.Text(ss.A_PATH_LINK), fs.Owner{})
	case ss.C_MKFIFO:
		n, err = dir.Mknod(c.t, name, format.S_IFIFO|mode, 0, fs.Owner{})
	case ss.C_MKSOCK:
		n, err = dir.Mknod(c.t, name, format.S_IFSOCK|mode, 0, fs.Owner{})
	default:
		n, err = dir.Mknod(c.t, name, uint32(cmd.Uint(ss.A_MODE)), format.DecodeDev(cmd.Uint(ss.A_RDEV)), fs.Owner{})
	}
	if err != nil {
		return err
	}
	return n.Forget(c.t, 1)
}

// change changes the contents of a file.
func (c *receiver) change(cmd *ss.Command, f *fs.File) error {
	off := int64(cmd.Uint(ss.A_FILE_OFFSET))
	switch cmd.Cmd {
	case ss.C_WRITE:
		_, err := f.WriteAt(c.t, cmd.Bytes(ss.A_DATA), off)
		return err
	case ss.C_TRUNCATE:
		return f.Truncate(c.t, int64(cmd.Uint(ss.A_SIZE)))
	case ss.C_FALLOCATE:
		return f.Fallocate(c.t, uint32(cmd.Uint(ss.A_FALLOCATE_MODE)), off, int64(cmd.Uint(ss.A_SIZE)))
	case ss.C_CLONE:
		return c.clone(cmd, f, off)
	}
	p, err := c.decode(cmd)
	if err == nil {
		_, err = f.WriteAt(c.t, p, off)
	}
	return err
}

// clone makes a range of f share the extents of another file, here or in a subvolume that was
// received before.
func (c *receiver) clone(cmd *ss.Command, f *fs.File, off int64) error {
	uuid, top := cmd.UUID(ss.A_CLONE_UUID), c.top
	if uuid != c.uuid {
		var err error
		if top, err = c.sent(uuid, cmd.Uint(ss.A_CLONE_CTRANSID)); err != nil {
			return fmt.Errorf("clone source: %w", err)
		}
		defer top.Forget(c.t, 1)
	}
	from := cmd.Text(ss.A_CLONE_PATH)
	n, err := c.walk(top, from)
	if err != nil {
		return fmt.Errorf("clone source %s: %w", from, err)
	}
	defer n.Forget(c.t, 1)
	src, err := n.Open(c.t, fs.O_RDONLY)
	if err != nil {
		return fmt.Errorf("clone source %s: %w", from, err)
	}
	err = f.Reflink(c.t, src, int64(cmd.Uint(ss.A_CLONE_OFFSET)), int64(cmd.Uint(ss.A_CLONE_LEN)), off)
	if cerr := src.Close(c.t); err == nil {
		err = cerr
	}
	return err
}

// encodings are the kinds of compressed data.
var encodings = map[uint64]uint8{ss.EncodedZlib: format.CompressZlib, ss.EncodedZstd: format.CompressZstd, ss.EncodedLZO4K: format.CompressLZO}

// decode is the bytes of the file in an encoded write.
func (c *receiver) decode(cmd *ss.Command) ([]byte, error) {
	data, size := cmd.Bytes(ss.A_DATA), cmd.Uint(ss.A_UNENCODED_LEN)
	start, n, kind := cmd.Uint(ss.A_UNENCODED_OFFSET), cmd.Uint(ss.A_UNENCODED_FILE_LEN), cmd.Uint(ss.A_COMPRESSION)
	switch {
	case cmd.Uint(ss.A_ENCRYPTION) != 0:
		return nil, fmt.Errorf("encryption %d is not supported", cmd.Uint(ss.A_ENCRYPTION))
	case size > compress.MaxLen:
		return nil, fmt.Errorf("bad unencoded_len, have %d want at most %d", size, compress.MaxLen)
	case start > size || n > size-start:
		return nil, fmt.Errorf("bad unencoded range, have %d bytes at %d want at most %d bytes", n, start, size)
	case kind == ss.EncodedNone:
		if uint64(len(data)) < size {
			return nil, fmt.Errorf("bad data, have %d bytes want %d", len(data), size)
		}
		return data[start : start+n], nil
	}
	how, ok := encodings[kind]
	if !ok {
		return nil, fmt.Errorf("compression %d is not supported, want 0 to %d", kind, ss.EncodedLZO4K)
	}
	if c.data == nil {
		c.data = make([]byte, compress.MaxLen)
	}
	if err := compress.Decode(how, c.data[:size], data); err != nil {
		return nil, err
	}
	return c.data[start : start+n], nil
}

// emptyACL is an access control list without entries: only a version. Setting it removes the list.
var emptyACL = []byte{2, 0, 0, 0}

// attrs changes the attributes of an inode.
func (c *receiver) attrs(cmd *ss.Command, n *fs.Node) error {
	switch name := cmd.Text(ss.A_XATTR_NAME); cmd.Cmd {
	case ss.C_SET_XATTR:
		value := cmd.Bytes(ss.A_XATTR_DATA)
		if strings.HasPrefix(name, "system.posix_acl_") && bytes.Equal(value, emptyACL) {
			if err := n.Removexattr(c.t, name); !errors.Is(err, errno.ENOENT) {
				return err
			}
			return nil
		}
		return n.Setxattr(c.t, name, value)
	case ss.C_REMOVE_XATTR:
		return n.Removexattr(c.t, name)
	case ss.C_CHMOD:
		return n.SetAttr(c.t, fs.SetAttr{Set: fs.SetMode, Mode: uint32(cmd.Uint(ss.A_MODE))})
	case ss.C_CHOWN:
		return n.SetAttr(c.t, fs.SetAttr{Set: fs.SetUID | fs.SetGID, UID: uint32(cmd.Uint(ss.A_UID)), GID: uint32(cmd.Uint(ss.A_GID))})
	}
	return n.SetAttr(c.t, fs.SetAttr{Set: fs.SetAtime | fs.SetMtime, Atime: cmd.Time(ss.A_ATIME).Time(), Mtime: cmd.Time(ss.A_MTIME).Time()})
}
