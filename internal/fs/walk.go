package fs

import (
	"fmt"
	"strings"

	"btrlab/internal/errno"
	"btrlab/internal/format"
	"btrlab/internal/sched"
)

// maxSymlinks bounds the links that one path walk follows, as the kernel's MAXSYMLINKS.
const maxSymlinks = 40

// maxSymlinkTarget is the longest target in bytes: it lies inline in one item, as in the kernel.
const maxSymlinkTarget = 3800

// nextComponent cuts the first name off path; rest is empty after the last one.
func nextComponent(path string) (name, rest string) {
	path = strings.TrimLeft(path, "/")
	i := strings.IndexByte(path, '/')
	if i < 0 {
		return path, ""
	}
	return path[:i], strings.TrimLeft(path[i:], "/")
}

// checkName says whether name may be the name of something new.
func checkName(name string) error {
	switch {
	case name == "" || strings.ContainsAny(name, "/\x00"):
		return errno.EINVAL
	case name == "." || name == "..":
		return errno.EEXIST
	case len(name) > format.MaxNameLen:
		return errno.ENAMETOOLONG
	}
	return nil
}

// walk follows path from the top directory. The caller puts the node it gets.
// Follow says whether a symbolic link at the end is followed too. Models path_lookupat().
func (f *FS) walk(t *sched.Task, path string, follow bool) (*node, error) {
	links := 0
	return f.walkFrom(t, f.top, path, follow, &links)
}

// walkFrom is walk from dir, which it takes a reference of its own on.
func (f *FS) walkFrom(t *sched.Task, dir *node, path string, follow bool, links *int) (*node, error) {
	if strings.HasPrefix(path, "/") {
		dir = f.top
	}
	n := f.get(t, dir)
	for path != "" {
		var name string
		if name, path = nextComponent(path); name == "" || name == "." {
			continue
		}
		next, err := f.step(t, n, name)
		if err != nil {
			f.put(t, n)
			return nil, err
		}
		if next.isSymlink() && (follow || path != "") {
			target, err := f.readlink(t, next)
			f.put(t, next)
			if *links++; err == nil && *links > maxSymlinks {
				err = errno.ELOOP
			}
			if err == nil {
				next, err = f.walkFrom(t, n, target, true, links)
			}
			if err != nil {
				f.put(t, n)
				return nil, err
			}
		}
		f.put(t, n)
		n = next
	}
	return n, nil
}

// walkParent follows path up to its last name: the directory that has it or will have it, and the name.
// The caller puts the directory.
func (f *FS) walkParent(t *sched.Task, path string) (*node, string, error) {
	path = strings.TrimRight(path, "/")
	i := strings.LastIndexByte(path, '/')
	name := path[i+1:]
	dir, err := f.walk(t, path[:i+1], true)
	if err != nil {
		return nil, "", err
	}
	if !dir.isDir() {
		f.put(t, dir)
		return nil, "", errno.ENOTDIR
	}
	return dir, name, nil
}

// step goes from a directory to what it calls name.
func (f *FS) step(t *sched.Task, dir *node, name string) (*node, error) {
	if !dir.isDir() {
		return nil, errno.ENOTDIR
	}
	if len(name) > format.MaxNameLen {
		return nil, errno.ENAMETOOLONG
	}
	if name == ".." {
		return f.parent(t, dir)
	}
	dir.rlockParent(t)
	d, err := f.store.Lookup(t, dir.vol.root, dir.Ino, name)
	dir.RUnlock(t)
	if err != nil {
		return nil, err
	}
	return f.iget(t, dir.vol, d)
}

// parent is the directory that has dir. Models btrfs_get_parent().
func (f *FS) parent(t *sched.Task, dir *node) (*node, error) {
	if dir.isTop() {
		return f.get(t, dir), nil
	}
	names, err := f.store.Names(t, dir.vol.root, dir.Ino)
	if err != nil {
		return nil, err
	}
	if len(names) == 0 {
		return nil, errno.ENOENT // removed
	}
	return f.igetIno(t, dir.vol, names[0].Dir)
}

// readlink reads the target of a symbolic link: the one inline extent of the inode.
func (f *FS) readlink(t *sched.Task, n *node) (string, error) {
	start, fe, ok, err := f.store.LookupFileExtent(t, n.vol.root, n.Ino, 0)
	switch {
	case err != nil:
		return "", err
	case !ok || start != 0 || fe.Type != format.FileExtentTypeInline:
		return "", fmt.Errorf("corrupt symbolic link: root=%d ino=%d has no inline extent: %w", n.vol.root.ID, n.Ino, errno.EUCLEAN)
	case fe.Compression != format.CompressNone:
		return "", errno.EOPNOTSUPP
	}
	return string(fe.Inline), nil
}
