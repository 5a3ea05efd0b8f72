package fs

import (
	"strings"

	"btrlab/internal/errno"
	"btrlab/internal/sched"
)

// maxSymlinks bounds the links that one path walk follows, as the kernel's MAXSYMLINKS.
const maxSymlinks = 40

// nextComponent cuts the first name off path; rest is empty after the last one.
func nextComponent(path string) (name, rest string) {
	path = strings.TrimLeft(path, "/")
	i := strings.IndexByte(path, '/')
	if i < 0 {
		return path, ""
	}
	return path[:i], strings.TrimLeft(path[i:], "/")
}

// walk follows path from where paths begin. The caller puts the node it gets.
// follow says whether a symbolic link at the end is followed as well. Models path_lookupat().
func (f *FS) walk(t *sched.Task, path string, follow bool) (*Node, error) {
	links := 0
	return f.walkFrom(t, f.base, path, follow, &links)
}

// walkFrom is walk from dir, which it takes a reference of its own on.
func (f *FS) walkFrom(t *sched.Task, dir *Node, path string, follow bool, links *int) (*Node, error) {
	if strings.HasPrefix(path, "/") {
		dir = f.base
	}
	n := f.get(t, dir)
	for path != "" {
		var name string
		if name, path = nextComponent(path); name == "" || name == "." || name == ".." && n == f.base {
			continue
		}
		next, err := n.Lookup(t, name)
		if err != nil {
			f.put(t, n)
			return nil, err
		}
		if next.IsSymlink() && (follow || path != "") {
			target, err := next.Readlink(t)
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

// walkParent follows path up to its last name: the directory that has it or will have it, and the
// name. The caller puts the directory.
func (f *FS) walkParent(t *sched.Task, path string) (*Node, string, error) {
	path = strings.TrimRight(path, "/")
	i := strings.LastIndexByte(path, '/')
	name := path[i+1:]
	dir, err := f.walk(t, path[:i+1], true)
	if err != nil {
		return nil, "", err
	}
	if !dir.IsDir() {
		f.put(t, dir)
		return nil, "", errno.ENOTDIR
	}
	return dir, name, nil
}

// openOrCreate finds the last name of path or creates it. Models open_last_lookups().
func (f *FS) openOrCreate(t *sched.Task, path string, flags OpenFlags, mode uint32, links int) (*Node, error) {
	dir, name, err := f.walkParent(t, path)
	if err != nil {
		return nil, err
	}
	defer f.put(t, dir)
	if name == "" || name == "." || name == ".." {
		return nil, errno.EISDIR
	}
	n, err := dir.Create(t, name, flags, mode, f.owner())
	if err != nil || !n.IsSymlink() || flags&O_NOFOLLOW != 0 {
		return n, err
	}
	target, err := n.Readlink(t)
	f.put(t, n)
	if err == nil && links >= maxSymlinks {
		err = errno.ELOOP
	}
	if err != nil {
		return nil, err
	}
	if !strings.HasPrefix(target, "/") {
		target = path[:strings.LastIndexByte(strings.TrimRight(path, "/"), '/')+1] + target
	}
	return f.openOrCreate(t, target, flags, mode, links+1)
}
