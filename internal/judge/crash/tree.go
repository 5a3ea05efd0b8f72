package crash

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	gopath "path"
	"sort"
	"strings"
	"time"

	"btrlab/internal/errno"
	"btrlab/internal/format"
	"btrlab/internal/fs"
	"btrlab/internal/sched"
)

// inodeID names an inode in all versions and after a crash: numbers are not used again while a
// workload runs.
type inodeID struct {
	subvol uint64
	ino    format.Ino
}

// tree is one version: everything that can be seen from the top directory.
type tree struct {
	names   map[string]inodeID // by path
	entries map[entry]inodeID  // the same by directory: all but that of the top directory
	nodes   map[inodeID]*node
	count   map[inodeID]int // names of an inode
}

// entry is a name in a directory.
type entry struct {
	dir  inodeID
	name string
}

// pathOf is the path of the entry, "" if its directory is not there.
func (v *tree) pathOf(x entry) string {
	dir := ""
	for p, id := range v.names {
		if id == x.dir && (dir == "" || p < dir) {
			dir = p
		}
	}
	if dir == "" {
		return ""
	}
	return gopath.Join(dir, x.name)
}

// node is an inode. Contents are not changed once it is made.
type node struct {
	kind   uint32
	size   uint64
	data   []byte
	target string
	xattrs string
	attrs
}

// attrs are the attributes that chmod(1), chown(1), chattr(1) and touch(1) change.
type attrs struct {
	mode                       uint32 // permissions
	uid, gid                   uint32
	rdev                       uint64
	flags                      uint64
	atime, mtime, ctime, otime time.Time
}

func attrsOf(at *fs.Attr) attrs {
	return attrs{mode: at.Mode &^ format.S_IFMT, uid: at.UID, gid: at.GID, rdev: at.Rdev, flags: at.Flags,
		atime: at.Atime, mtime: at.Mtime, ctime: at.Ctime, otime: at.Otime}
}

// againMax is the size in bytes of a file that is read after every operation, whatever its stamps
// say: an operation that forgets to mark an inode forgets its stamps as well.
const againMax = 256 << 10

// observe looks at everything. A node of prev with the same ctime and size that is larger than
// againMax is taken over: between two operations of one task that means the same contents. Nil is
// nothing to take over.
func observe(t *sched.Task, f *fs.FS, prev *tree) (*tree, error) {
	v := &tree{map[string]inodeID{}, map[entry]inodeID{}, map[inodeID]*node{}, map[inodeID]int{}}
	return v, v.add(t, f, prev, "/", entry{})
}

// add looks at what is at path, the entry x.
func (v *tree) add(t *sched.Task, f *fs.FS, prev *tree, path string, x entry) error {
	at, err := f.Lstat(t, path)
	if err != nil {
		return err
	}
	id := inodeID{at.Subvol, at.Ino}
	v.names[path] = id
	if x.name != "" {
		v.entries[x] = id
	}
	v.count[id]++
	if v.nodes[id] == nil {
		var old *node
		if prev != nil {
			old = prev.nodes[id]
		}
		if v.nodes[id], err = look(t, f, path, &at, old); err != nil {
			return err
		}
	}
	if !at.IsDir() {
		return nil
	}
	list, err := f.ReadDir(t, path)
	if err != nil {
		return err
	}
	for _, e := range list {
		// In a snapshot the name of a subvolume of the original leads nowhere (fs.FS.enter):
		// nothing can be made durable in it.
		err := v.add(t, f, prev, gopath.Join(path, e.Name), entry{id, e.Name})
		if err != nil && !(e.Subvol != 0 && errors.Is(err, errno.ENOENT)) {
			return err
		}
	}
	return nil
}

func look(t *sched.Task, f *fs.FS, path string, at *fs.Attr, old *node) (*node, error) {
	if old != nil && old.ctime.Equal(at.Ctime) && old.size == at.Size && old.size > againMax {
		if old.attrs == attrsOf(at) {
			return old, nil
		}
		n := *old
		n.attrs = attrsOf(at)
		return &n, nil
	}
	n := &node{kind: at.Mode & format.S_IFMT, size: at.Size, attrs: attrsOf(at)}
	switch {
	case at.IsSymlink():
		to, err := f.Readlink(t, path)
		if err != nil {
			return nil, err
		}
		n.target = to
	case at.IsRegular():
		x, err := f.OpenFile(t, path, fs.O_RDONLY, 0)
		if err != nil {
			return nil, err
		}
		n.data = make([]byte, at.Size)
		k, err := x.ReadAt(t, n.data, 0)
		if cerr := x.Close(t); err == nil || errors.Is(err, io.EOF) {
			err = cerr
		}
		if err == nil && uint64(k) != at.Size {
			err = fmt.Errorf("%s: read %d of %d bytes", path, k, at.Size)
		}
		if err != nil {
			return nil, err
		}
	}
	x, err := f.Node(t, at.Subvol, at.Ino)
	if err != nil {
		return nil, err
	}
	names, err := x.Listxattr(t)
	sort.Strings(names)
	for _, name := range names {
		value, gerr := x.Getxattr(t, name)
		err = errors.Join(err, gerr)
		n.xattrs += fmt.Sprintf("%q=%q ", name, value)
	}
	n.xattrs = strings.TrimSpace(n.xattrs)
	return n, errors.Join(err, x.Forget(t, 1))
}

// block is the first size bytes of block i of the file, less at its end.
func (n *node) block(i uint64, size int) []byte {
	from := i * blockSize
	if from >= uint64(len(n.data)) {
		return nil
	}
	return n.data[from:min(uint64(len(n.data)), from+uint64(size))]
}

// sameBlock compares have with the bytes of a version, which are zero beyond its end.
func sameBlock(have, want []byte) bool {
	return bytes.Equal(have[:len(want)], want) && zero(have[len(want):])
}

func zero(p []byte) bool {
	for len(p) > 0 {
		n := min(len(p), len(zeros))
		if !bytes.Equal(p[:n], zeros[:n]) {
			return false
		}
		p = p[n:]
	}
	return true
}

// blockSize is the unit in which bytes of files are compared, and in which a write is torn.
const blockSize = 4096

var zeros [blockSize]byte
