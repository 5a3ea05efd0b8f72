package transfer

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"maps"
	gopath "path"
	"slices"
	"strings"

	"btrlab/internal/progs/image"

	"btrlab/internal/errno"
	"btrlab/internal/format"
	"btrlab/internal/fs"
	"btrlab/internal/sched"
)

// Tar archives: POSIX (PAX) with owners, nanoseconds, devices and extended attributes, which stand
// in records SCHILY.xattr.NAME, as GNU tar and bsdtar write them.

const (
	xattrRecord = "SCHILY.xattr."
	maxRecords  = 1 << 20 // bytes of all of an entry's, as package tar has it
)

// A record's name has no =. As GNU tar writes them.
var (
	recordName = strings.NewReplacer("%", "%25", "=", "%3D")
	xattrName  = strings.NewReplacer("%25", "%", "%3D", "=")
)

// Tar copies an archive into the directory to. A name leads to a place below to, whatever its dots
// say, and never through a symbolic link: such an entry is left out, and so is what the image
// refuses. Blocks of zeros become holes.
func (c *In) Tar(r io.Reader, to string) error { return c.archive(openTar(r), to) }

// Cpio is Tar of a cpio archive: newc, crc or odc.
func (c *In) Cpio(r io.Reader, to string) error { return c.archive(openCpio(r), to) }

func (c *In) archive(a archiveReader, to string) error {
	made := map[string]string{} // names of the archive -> where they went
	type dir struct {
		to string
		h  inodeAttrs
	}
	var dirs []dir // their times are set at the end: what is made in them changes them
	for {
		e, err := a.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return fmt.Errorf("bad archive: %w", err)
		}
		name := gopath.Clean("/" + e.Name)
		at := gopath.Join(to, name)
		if err := c.count.next(at); err != nil {
			return err
		}
		h, err := c.Keep.tarAttrs(e)
		switch {
		case err != nil:
		case e.Typeflag == tar.TypeDir:
			if err = c.tarParents(at, true); err == nil {
				dirs = append(dirs, dir{at, h})
			}
		default:
			if err = c.tarParents(gopath.Dir(at), false); err == nil {
				err = c.tarEntry(a, e, at, made, &h)
			}
		}
		if err == nil {
			made[name] = at
		} else if err := c.count.leave(e.Name, err); err != nil {
			return err
		}
	}
	for _, d := range dirs { // of two entries of one the later counts
		if err := c.count.leave(d.to, c.apply(d.to, d.to, &d.h)); err != nil {
			return err
		}
	}
	return nil
}

// tarAttrs is what an entry says of its inode; an error for what an inode item cannot hold.
func (k Keep) tarAttrs(e *tar.Header) (h inodeAttrs, err error) {
	if int64(e.Uid)>>32 != 0 || int64(e.Gid)>>32 != 0 {
		return h, &unreadable{fmt.Errorf("owner %d:%d, want numbers of 32 bits", e.Uid, e.Gid)}
	}
	if e.Devmajor>>12 != 0 || e.Devminor>>20 != 0 {
		return h, &unreadable{fmt.Errorf("device %d:%d, want a major number to 4095 and a minor to 1048575", e.Devmajor, e.Devminor)}
	}
	h = inodeAttrs{image.Attrs{UID: uint32(e.Uid), GID: uint32(e.Gid), Mode: uint32(e.Mode) & 0o7777, Mtime: e.ModTime, Atime: e.AccessTime}, true}
	if h.Atime.IsZero() {
		h.Atime = h.Mtime
	}
	if k.Xattrs {
		have := map[string]bool{} // two records may be of one name
		for _, r := range slices.Sorted(maps.Keys(e.PAXRecords)) {
			name, ok := strings.CutPrefix(r, xattrRecord)
			if name = xattrName.Replace(name); ok && !have[name] {
				have[name] = true
				h.Xattrs = append(h.Xattrs, image.Xattr{Name: name, Value: []byte(e.PAXRecords[r])})
			}
		}
	}
	return h, nil
}

// tarKind is the type of an entry's inode, of a link that of a regular file; an error for what is
// not copied.
func (k Keep) tarKind(e *tar.Header) (uint32, error) {
	kind, known := map[byte]uint32{tar.TypeReg: format.S_IFREG, tar.TypeGNUSparse: format.S_IFREG, tar.TypeLink: format.S_IFREG, tar.TypeDir: format.S_IFDIR,
		tar.TypeSymlink: format.S_IFLNK, tar.TypeChar: format.S_IFCHR, tar.TypeBlock: format.S_IFBLK, tar.TypeFifo: format.S_IFIFO, typeSocket: format.S_IFSOCK}[e.Typeflag]
	switch {
	case !known:
		return 0, &unreadable{fmt.Errorf("an entry of type %q", e.Typeflag)}
	case !k.Special && (kind == format.S_IFCHR || kind == format.S_IFBLK || kind == format.S_IFIFO || kind == format.S_IFSOCK):
		return 0, &unreadable{errors.New("is special")}
	}
	return kind, nil
}

func errNoLink(e *tar.Header) error {
	return &unreadable{fmt.Errorf("a link to %s, which the archive does not have before it", e.Linkname)}
}

func errNotFollowed(path string) error {
	return &unreadable{fmt.Errorf("%s is no directory, and not followed", path)}
}

// tarParents makes path and the directories above it, where they are missing. A symbolic link in
// the way of one is not followed; last says that a file at path itself makes room.
func (c *In) tarParents(path string, last bool) error {
	if path == "/" {
		return nil
	}
	at, err := c.x.Lstat(c.t, path)
	switch {
	case err == nil && at.IsDir():
		return nil
	case err == nil && !last:
		return errNotFollowed(path)
	case err == nil:
		if err := c.x.Unlink(c.t, path); err != nil {
			return err
		}
	case !errors.Is(err, errno.ENOENT) && !errors.Is(err, errno.ENOTDIR):
		return err
	}
	if err := c.tarParents(gopath.Dir(path), false); err != nil {
		return err
	}
	return c.x.Mkdir(c.t, path, 0o755)
}

// tarEntry makes what is no directory.
func (c *In) tarEntry(a archiveReader, e *tar.Header, at string, made map[string]string, h *inodeAttrs) error {
	kind, err := c.Keep.tarKind(e)
	if err != nil {
		return err
	}
	if e.Typeflag == tar.TypeLink {
		first, ok := made[gopath.Clean("/"+e.Linkname)]
		if !ok {
			return errNoLink(e)
		}
		return c.link(first, at)
	}
	if kind != format.S_IFREG {
		if err := c.unlinkOld(at); err != nil {
			return err
		}
	}
	switch kind {
	case format.S_IFREG:
		err = c.tarFile(a, e.Size, at, h)
	case format.S_IFLNK:
		err = c.x.Symlink(c.t, e.Linkname, at)
	default:
		err = c.x.Mknod(c.t, at, kind|h.Mode, uint64(e.Devmajor)<<20|uint64(e.Devminor))
	}
	if err != nil {
		return err
	}
	return c.apply(e.Name, at, h)
}

// tarFile makes a regular file of the bytes that follow.
func (c *In) tarFile(r io.Reader, size int64, to string, h *inodeAttrs) error {
	_, statErr := c.x.Lstat(c.t, to)
	f, err := c.create(to, 0o600, h)
	if err != nil {
		return err
	}
	n, err := writeSparse(c.t, c.count.w, f, r, c.buf)
	if err == nil && n < size {
		err = fmt.Errorf("bad archive: %s ends after %d of %d bytes", to, n, size)
	}
	if err == nil && f.Size(c.t) < size {
		err = f.Truncate(c.t, size)
	}
	return c.finish(f, to, errors.Is(statErr, errno.ENOENT), err)
}

// writeSparse copies r to f, leaves blocks of zeros out, and returns how many bytes there were.
func writeSparse(t *sched.Task, w Watcher, f *fs.File, r io.Reader, buf []byte) (off int64, err error) {
	for {
		if err := w.Stop(); err != nil {
			return off, err
		}
		n, err := io.ReadFull(r, buf)
		for from := 0; from < n; {
			to := from
			for to < n && !isZeroBlock(buf[to:n]) {
				to += min(hostBlock, n-to)
			}
			if to > from {
				if _, err := f.WriteAt(t, buf[from:to], off+int64(from)); err != nil {
					return off, err
				}
			}
			for to < n && isZeroBlock(buf[to:n]) {
				to += min(hostBlock, n-to)
			}
			from = to
		}
		off += int64(n)
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			return off, nil
		}
		if err != nil {
			return off, fmt.Errorf("bad archive: %w", err)
		}
	}
}

// Tar writes path, with everything below a directory, as an archive to w; its names begin with
// name, or with what is in the directory if that is empty. What cannot be read is left out, as by
// Tree.
func (c *Out) Tar(path, name string, w io.Writer) error {
	at, err := c.x.Stat(c.t, path)
	if err != nil {
		return err
	}
	a := tar.NewWriter(w)
	if err := bare(c.tarTree(a, path, name, at)); err != nil {
		return err
	}
	return a.Close()
}

func (c *Out) tarTree(a *tar.Writer, path, name string, at fs.Attr) error {
	if err := c.count.next(path); err != nil {
		return err
	}
	e, err := c.tarHeader(path, name, at)
	if err != nil {
		return err
	}
	if e == nil {
		c.count.w.LeaveOut(LeftOut{Name: path, Mode: at.Mode})
		return nil
	}
	id := inode{at.Subvol, at.Ino}
	if !at.IsDir() && at.Nlink > 1 {
		if first, ok := c.links[id]; ok {
			e.Typeflag, e.Linkname, e.Size, e.PAXRecords = tar.TypeLink, first, 0, nil
			return a.WriteHeader(e)
		}
		c.links[id] = e.Name
	}
	if at.IsRegular() {
		return c.tarContents(a, e, path)
	}
	if err := a.WriteHeader(e); err != nil || !at.IsDir() {
		return err
	}
	if first, ok := c.dirs[id]; ok {
		return &unreadable{fmt.Errorf("bad directory %s, have inode %d of %s want one of its own", path, at.Ino, first)}
	}
	c.dirs[id] = path
	list, err := c.x.ReadDir(c.t, path)
	if err != nil {
		if err := c.leave(path, &unreadable{err}); err != nil {
			return err
		}
	}
	c.count.known += uint64(len(list))
	for _, d := range list {
		full := gopath.Join(path, d.Name)
		if err := c.leave(full, c.tarName(a, path, full, gopath.Join(name, d.Name), d)); err != nil {
			return err
		}
	}
	return nil
}

// tarName writes what the entry d of directory path leads to.
func (c *Out) tarName(a *tar.Writer, path, full, name string, d fs.DirEntry) error {
	skip, err := c.skips(path, full, d)
	if err != nil || skip {
		return err
	}
	at, err := c.x.Lstat(c.t, full)
	if d.Subvol != 0 && errors.Is(err, errno.ENOENT) {
		return a.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: name + "/", Mode: 0o755, Format: tar.FormatPAX})
	}
	if err != nil {
		return &unreadable{err}
	}
	return c.tarTree(a, full, name, at)
}

// tarHeader is the entry of an inode; nil for what Keep leaves out, and for a socket, which
// archives do not have.
func (c *Out) tarHeader(path, name string, at fs.Attr) (*tar.Header, error) {
	h := inodeAttrs{Attrs: attrsAt(at)}
	target := ""
	var err error
	if at.IsSymlink() {
		if target, err = c.x.Readlink(c.t, path); err != nil {
			return nil, &unreadable{err}
		}
	}
	e := c.Keep.tarHeader(name, &h, int64(at.Size), target)
	if e == nil || !c.Keep.Xattrs {
		return e, nil
	}
	if h.Xattrs, err = c.xattrs(at); err != nil {
		return nil, &unreadable{err}
	}
	c.Keep.tarXattrs(e, h.Xattrs, func(err error) { c.count.w.LeaveOut(LeftOut{Name: path, Err: err}) })
	return e, nil
}

// tarHeader is the entry of an inode without its extended attributes; h.mode has the type as well.
func (k Keep) tarHeader(name string, h *inodeAttrs, size int64, target string) *tar.Header {
	e := &tar.Header{Name: name, Mode: int64(h.Mode & 0o7777), Uid: int(h.UID), Gid: int(h.GID), ModTime: h.Mtime, AccessTime: h.Atime, Format: tar.FormatPAX}
	if !k.Owners {
		e.Uid, e.Gid = 0, 0
		e.Mode = int64(modeOf(uint32(e.Mode), false))
	}
	kind := h.Mode & format.S_IFMT
	switch kind {
	case format.S_IFDIR:
		e.Typeflag, e.Name = tar.TypeDir, strings.TrimSuffix(name, "/")+"/"
		if name == "" {
			e.Name = "./"
		}
	case format.S_IFREG:
		e.Typeflag, e.Size = tar.TypeReg, size
	case format.S_IFLNK:
		e.Typeflag, e.Linkname = tar.TypeSymlink, target
	case format.S_IFCHR, format.S_IFBLK, format.S_IFIFO:
		if !k.Special {
			return nil
		}
		e.Typeflag = map[uint32]byte{format.S_IFCHR: tar.TypeChar, format.S_IFBLK: tar.TypeBlock, format.S_IFIFO: tar.TypeFifo}[kind]
		e.Devmajor, e.Devminor = int64(h.Rdev>>20), int64(h.Rdev&(1<<20-1))
		if kind == format.S_IFIFO {
			e.Devmajor, e.Devminor = 0, 0
		}
	default:
		return nil
	}
	return e
}

// tarXattrs adds extended attributes to an entry; leave is told of one that has no room.
func (k Keep) tarXattrs(e *tar.Header, list []image.Xattr, leave func(err error)) {
	size := 0
	for _, x := range list {
		if !copies(x.Name, k.Owners) {
			continue
		}
		name := xattrRecord + recordName.Replace(x.Name)
		record := len(name) + len(x.Value) + 16
		if size+record > maxRecords-1<<14 { // the rest is for names, times and numbers
			leave(fmt.Errorf("extended attribute %s: an archive holds 1 MiB of them", x.Name))
			continue
		}
		size += record
		if e.PAXRecords == nil {
			e.PAXRecords = map[string]string{}
		}
		e.PAXRecords[name] = string(x.Value)
	}
}

// tarContents writes a regular file. An error of the image in the middle of it ends the archive:
// its size has been said.
func (c *Out) tarContents(a *tar.Writer, e *tar.Header, path string) error {
	f, err := c.x.OpenFile(c.t, path, fs.O_RDONLY|fs.O_NOFOLLOW, 0)
	if err != nil {
		return &unreadable{err}
	}
	defer f.Close(c.t)
	if err := a.WriteHeader(e); err != nil {
		return err
	}
	return Read(c.t, c.count.w, f, a)
}
