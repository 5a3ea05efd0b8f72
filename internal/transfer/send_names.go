package transfer

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"btrlab/internal/errno"
	"btrlab/internal/format"
	"btrlab/internal/fs"
	"btrlab/internal/meta/fstree"
	ss "btrlab/internal/sendstream"
)

// nameTree is the tree of names at the receiver, as far as it is not the parent's any more.
type nameTree struct {
	orphans map[format.Ino]string // inodes of the parent that have a name at the top for now
	passed  bool                  // one has been at the top
	gone    map[ref]bool          // names of the parent that are no more where they were
	ready   map[format.Ino]bool   // directories that placeDir has come to
	bare    map[format.Ino]bool   // directories whose default ACL has been taken away
	dead    []format.Ino          // directories that go
}

// ref is a name in a directory of the parent.
type ref struct {
	dir  format.Ino
	name string
}

// defaultACL goes to what is made in a directory: at the receiver as well, unless it is taken away
// before.
const defaultACL = "system.posix_acl_default"

const top = format.Ino(format.FIRST_FREE_OBJECTID)

// pathMax is the longest path in bytes that a system call takes.
const pathMax = 4095

func join(dir, name string) (string, error) {
	if dir == "" {
		return name, nil
	}
	if len(dir)+1+len(name) > pathMax {
		return "", errLong
	}
	return dir + "/" + name, nil
}

// name is the one name of a directory, which is not the top one.
func (c *sender) name(z *fs.Frozen, dir format.Ino) (fstree.NameRef, error) {
	list, err := z.Names(c.t, dir)
	if err == nil && len(list) != 1 {
		err = fmt.Errorf("corrupt directory: ino=%d, bad names, have %d want 1: %w", dir, len(list), errno.EUCLEAN)
	}
	if err != nil {
		return fstree.NameRef{}, err
	}
	return list[0], nil
}

// pathIn is a path of an inode of a subvolume. In the subvolume that is sent it is the receiver's
// once all names are in their places.
func (c *sender) pathIn(z *fs.Frozen, ino format.Ino) (string, error) {
	var names []string
	for at := ino; at != top; {
		if dir, ok := c.paths[at]; ok && z == c.z {
			names = append(names, dir)
			break
		}
		list, err := z.Names(c.t, at)
		if err == nil && len(list) == 0 {
			err = errno.ENOENT
		}
		if err != nil {
			return "", err
		}
		names, at = append(names, list[0].Name), list[0].Dir
		if len(names) > pathMax {
			return "", errLong
		}
	}
	path, err := upward(names)
	if err == nil && z == c.z && c.isDir(z, ino) {
		c.paths[ino] = path
	}
	return path, err
}

var errLong = fmt.Errorf("path of more than %d bytes: %w", pathMax, errno.ENAMETOOLONG)

// upward is the path of names that begin with the last.
func upward(names []string) (string, error) {
	slices.Reverse(names)
	path := strings.Join(names, "/")
	if len(path) > pathMax {
		return "", errLong
	}
	return path, nil
}

func (c *sender) isDir(z *fs.Frozen, ino format.Ino) bool {
	it, err := z.Inode(c.t, ino)
	return err == nil && it.Mode&format.S_IFMT == format.S_IFDIR
}

// oldPath is where a directory of the parent is now, and newPath one of the subvolume, which is
// there.
func (c *sender) oldPath(dir format.Ino) (string, error) { return c.where(dir, false) }
func (c *sender) newPath(dir format.Ino) (string, error) { return c.where(dir, true) }

// where goes up from a directory: by the subvolume's names from where that is in its place, else by
// the parent's.
func (c *sender) where(dir format.Ino, isNew bool) (string, error) {
	var names []string
	for dir != top {
		ch := c.find(dir)
		if !isNew {
			if name, ok := c.names.orphans[dir]; ok {
				names = append(names, name)
				break
			}
			isNew = ch != nil && ch.placed && !ch.gone()
		} else if ch == nil || !ch.placed {
			isNew = false
			continue
		}
		z := c.Parent
		if isNew {
			z = c.z
		}
		r, err := c.name(z, dir)
		if err != nil {
			return "", err
		}
		names, dir = append(names, r.Name), r.Dir
		if len(names) > pathMax {
			return "", errLong
		}
	}
	return upward(names)
}

// same reports whether a directory of the subvolume is the one with that number in the parent.
func (c *sender) same(dir format.Ino) bool {
	ch := c.find(dir)
	return ch == nil || ch.old == ch.now
}

// in reports whether the list of the other tree has the name, in the same directory.
func (c *sender) in(list []fstree.NameRef, r fstree.NameRef) bool {
	return c.same(r.Dir) && slices.ContainsFunc(list, func(o fstree.NameRef) bool { return o.Dir == r.Dir && o.Name == r.Name })
}

// place gives an inode all names that are new.
func (c *sender) place(ch *change) error {
	switch {
	case ch.now == 0:
		return nil
	case c.isDir(c.z, ch.ino):
		return c.placeDir(ch.ino)
	}
	list, err := c.z.Names(c.t, ch.ino)
	if err != nil {
		return err
	}
	var old []fstree.NameRef
	if !ch.made() {
		if old, err = c.Parent.Names(c.t, ch.ino); err != nil {
			return err
		}
	}
	var added []fstree.NameRef
	for _, r := range list {
		if !ch.made() && c.in(old, r) {
			continue
		}
		if err := c.placeDir(r.Dir); err != nil {
			return err
		}
		if err := c.free(r); err != nil {
			return err
		}
		if ch.made() && len(added) == 0 {
			err = c.make(ch.ino, r)
		} else {
			err = c.addName(ch, r, list, old, added)
		}
		if err != nil {
			return err
		}
		added = append(added, r)
	}
	ch.placed = true
	return nil
}

// addName gives an inode that is there the name r: by a rename of one that goes, or by a link. list
// are its names in the subvolume, old those of the parent, added those that were given before.
func (c *sender) addName(ch *change, r fstree.NameRef, list, old, added []fstree.NameRef) error {
	to, err := c.path(r, true)
	if err != nil {
		return err
	}
	if from, ok := c.names.orphans[ch.ino]; ok && !ch.made() {
		delete(c.names.orphans, ch.ino)
		return c.rename(from, to)
	}
	for _, o := range old {
		if k := (ref{o.Dir, o.Name}); !c.in(list, o) && !c.names.gone[k] {
			from, err := c.path(o, false)
			if err != nil {
				return err
			}
			c.names.gone[k] = true
			return c.rename(from, to)
		}
		if c.in(list, o) {
			added = append(added, o)
		}
	}
	if len(added) == 0 {
		return fmt.Errorf("no name to link %q to: %w", to, errno.EUCLEAN)
	}
	from, err := c.path(added[0], true)
	if err != nil {
		return err
	}
	c.out.Begin(ss.C_LINK).Text(ss.A_PATH, to).Text(ss.A_PATH_LINK, from)
	return c.out.End()
}

// path is where a name is now, or will be, of the subvolume or of the parent.
func (c *sender) path(r fstree.NameRef, isNew bool) (string, error) {
	dir, err := c.where(r.Dir, isNew)
	if err != nil {
		return "", err
	}
	return join(dir, r.Name)
}

func (c *sender) rename(from, to string) error {
	c.out.Begin(ss.C_RENAME).Text(ss.A_PATH, from).Text(ss.A_PATH_TO, to)
	return c.out.End()
}

func (c *sender) unlink(cmd ss.Cmd, path string) error {
	c.out.Begin(cmd).Text(ss.A_PATH, path)
	return c.out.End()
}

// placeDir brings a directory of the subvolume to its place, after those above it.
func (c *sender) placeDir(dir format.Ino) error {
	ch := c.find(dir)
	switch {
	case ch != nil && ch.placed, ch == nil && c.names.ready[dir]:
		return nil
	case dir == top:
		if ch != nil {
			ch.placed = true
		}
		return nil
	case c.names.ready[dir]:
		return fmt.Errorf("directory %d is below itself: %w", dir, errno.EUCLEAN)
	}
	c.names.ready[dir] = true
	r, err := c.name(c.z, dir)
	if err != nil {
		return err
	}
	if err := c.placeDir(r.Dir); err != nil || ch == nil {
		return err
	}
	if ch.made() {
		if err := c.free(r); err != nil {
			return err
		}
		ch.placed = true
		return c.make(dir, r)
	}
	old, err := c.name(c.Parent, dir)
	if err != nil {
		return err
	}
	if c.same(r.Dir) && old.Dir == r.Dir && old.Name == r.Name {
		ch.placed = true
		return nil
	}
	if err := c.free(r); err != nil {
		return err
	}
	from, err := c.oldPath(dir)
	if err != nil {
		return err
	}
	delete(c.names.orphans, dir)
	c.names.gone[ref{old.Dir, old.Name}] = true
	ch.placed = true
	to, err := c.newPath(dir)
	if err != nil {
		return err
	}
	return c.rename(from, to)
}

// free makes the receiver's directory r.Dir, which is in its place, free of another inode with the
// name.
func (c *sender) free(r fstree.NameRef) error {
	if !c.same(r.Dir) || c.names.gone[ref{r.Dir, r.Name}] {
		return nil
	}
	ino, err := c.Parent.Lookup(c.t, r.Dir, r.Name)
	if errors.Is(err, errno.ENOENT) {
		return nil
	}
	if err != nil {
		return err
	}
	ch := c.find(ino)
	if ch == nil {
		return fmt.Errorf("name %q in directory %d is of two inodes: %w", r.Name, r.Dir, errno.EUCLEAN)
	}
	at, err := c.path(r, true)
	if err != nil {
		return err
	}
	c.names.gone[ref{r.Dir, r.Name}] = true
	if !c.isDir(c.Parent, ino) {
		spare := ch.gone() || ch.placed
		if !spare {
			list, err := c.Parent.Names(c.t, ino)
			if err != nil {
				return err
			}
			spare = slices.ContainsFunc(list, func(o fstree.NameRef) bool { return !c.names.gone[ref{o.Dir, o.Name}] })
		}
		if spare {
			return c.unlink(ss.C_UNLINK, at)
		}
	}
	name, err := c.orphanName(ino, ch.old)
	if err != nil {
		return err
	}
	c.names.orphans[ino], c.names.passed = name, true
	return c.rename(at, name)
}

// orphanName is a name at the top that neither tree has.
func (c *sender) orphanName(ino format.Ino, generation uint64) (string, error) {
	for i := 0; ; i++ {
		name, free := fmt.Sprintf("o%d-%d-%d", ino, generation, i), true
		for _, z := range []*fs.Frozen{c.Parent, c.z} {
			_, err := z.Lookup(c.t, top, name)
			if err == nil {
				free = false
			} else if !errors.Is(err, errno.ENOENT) {
				return "", err
			}
		}
		if free {
			return name, nil
		}
	}
}

// make makes an inode with the name r.
func (c *sender) make(ino format.Ino, r fstree.NameRef) error {
	path, err := c.path(r, true)
	if err != nil {
		return err
	}
	it, err := c.z.Inode(c.t, ino)
	if err != nil {
		return err
	}
	kind := it.Mode & format.S_IFMT
	if kind != format.S_IFLNK {
		if err := c.bare(r.Dir); err != nil {
			return err
		}
	}
	switch kind {
	case format.S_IFREG:
		c.out.Begin(ss.C_MKFILE).Text(ss.A_PATH, path).Uint(ss.A_INO, uint64(ino))
	case format.S_IFDIR:
		c.out.Begin(ss.C_MKDIR).Text(ss.A_PATH, path).Uint(ss.A_INO, uint64(ino))
	case format.S_IFLNK:
		to, err := c.readlink(ino)
		if err != nil {
			return err
		}
		c.out.Begin(ss.C_SYMLINK).Text(ss.A_PATH, path).Uint(ss.A_INO, uint64(ino)).Text(ss.A_PATH_LINK, to)
	default:
		cmd := map[uint32]ss.Cmd{format.S_IFCHR: ss.C_MKNOD, format.S_IFBLK: ss.C_MKNOD, format.S_IFIFO: ss.C_MKFIFO, format.S_IFSOCK: ss.C_MKSOCK}[kind]
		if cmd == 0 {
			return fmt.Errorf("corrupt inode: ino=%d, bad mode %o: %w", ino, it.Mode, errno.EUCLEAN)
		}
		c.out.Begin(cmd).Text(ss.A_PATH, path).Uint(ss.A_INO, uint64(ino)).Uint(ss.A_RDEV, format.EncodeDev(it.Rdev)).Uint(ss.A_MODE, uint64(it.Mode))
	}
	return c.out.End()
}

// bare takes the default ACL of a directory of the parent away before something is made in it. It
// comes back with the directory's contents.
func (c *sender) bare(dir format.Ino) error {
	if c.names.bare[dir] || !c.same(dir) {
		return nil
	}
	_, err := c.Parent.Getxattr(c.t, dir, defaultACL)
	if errors.Is(err, errno.ENOENT) {
		return nil
	}
	if err != nil {
		return err
	}
	path, err := c.newPath(dir)
	if err != nil {
		return err
	}
	c.names.bare[dir] = true
	c.out.Begin(ss.C_REMOVE_XATTR).Text(ss.A_PATH, path).Text(ss.A_XATTR_NAME, defaultACL)
	return c.out.End()
}

func (c *sender) readlink(ino format.Ino) (string, error) {
	n, err := c.z.Node(c.t, ino)
	if err != nil {
		return "", err
	}
	defer n.Forget(c.t, 1)
	return n.Readlink(c.t)
}

// drop takes the names of an inode away that it has no more.
func (c *sender) drop(ch *change) error {
	if ch.old == 0 || !ch.refs && !ch.gone() {
		return nil
	}
	if c.isDir(c.Parent, ch.ino) {
		if ch.gone() {
			c.names.dead = append(c.names.dead, ch.ino)
		}
		return nil
	}
	old, err := c.Parent.Names(c.t, ch.ino)
	if err != nil {
		return err
	}
	var list []fstree.NameRef
	if !ch.gone() {
		if list, err = c.z.Names(c.t, ch.ino); err != nil {
			return err
		}
	}
	for _, o := range old {
		if c.names.gone[ref{o.Dir, o.Name}] || c.in(list, o) {
			continue
		}
		path, err := c.path(o, false)
		if err != nil {
			return err
		}
		if err := c.unlink(ss.C_UNLINK, path); err != nil {
			return err
		}
		c.names.gone[ref{o.Dir, o.Name}] = true
	}
	return nil
}

// dropDirs removes the directories that go, the deepest ones of the parent first: they are empty.
func (c *sender) dropDirs() error {
	depths := make(map[format.Ino]int, len(c.names.dead))
	for _, dir := range c.names.dead {
		for d := dir; d != top; depths[dir]++ {
			r, err := c.name(c.Parent, d)
			if err != nil {
				return err
			}
			if depths[dir] > pathMax {
				return fmt.Errorf("directory %d is below itself: %w", dir, errno.EUCLEAN)
			}
			d = r.Dir
		}
	}
	slices.SortStableFunc(c.names.dead, func(a, b format.Ino) int { return cmp.Compare(depths[b], depths[a]) })
	for _, dir := range c.names.dead {
		path, err := c.oldPath(dir)
		if err != nil {
			return err
		}
		if err := c.unlink(ss.C_RMDIR, path); err != nil {
			return err
		}
		delete(c.names.orphans, dir)
	}
	return nil
}
