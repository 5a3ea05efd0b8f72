package transfer

import (
	"archive/tar"
	"cmp"
	"errors"
	"fmt"
	"io"
	iofs "io/fs"
	"os"
	gopath "path"
	"slices"
	"strings"
	"time"

	"btrlab/internal/progs/image"

	"btrlab/internal/compress"
	"btrlab/internal/errno"
	"btrlab/internal/format"
	"btrlab/internal/fs"
	"btrlab/internal/progs/mkfs"
)

// An archive as the source of a new file system. Its headers become the tree, by the rules of
// In.Tar; the contents of its files stay where they are:
//
//	a regular file -> Tar  Next, and where the data begins; Seek to the next header
//	a pipe, and what the archive says is sparse -> spool: a file of the host without a name
//	Build -> archived.ReadAt of either, by many workers

// errArchive is the error of an archive that ends too soon or is damaged.
func errArchive(err error) error { return fmt.Errorf("bad archive: %w", err) }

// section is the contents of a file in an archive, or in the spool.
type section struct {
	f         *os.File
	off, size int64
}

// tarTree is a tree that an archive is read into. Paths begin with /.
type tarTree struct {
	s      *Scan
	src    *os.File               // what contents are read from; nil when r cannot be read twice
	r      io.ReadSeeker          // src, from where the archive begins
	base   int64                  // of r in src
	size   int64                  // of r
	made   map[string]*mkfs.Entry // by path, those that are excluded as well
	dead   map[*mkfs.Entry]bool   // a later entry has their place
	inodes map[*mkfs.Entry]*mkfs.Entry
	buf    []byte
}

// Tar lists an archive. What cannot be in a file system is left out, as by In.Tar; a later entry
// takes the place of an earlier one. A regular file is not copied: Build reads contents from it,
// and the caller closes it after that. What anything else brings goes to a file that Close removes.
func (s *Scan) Tar(r io.Reader) (*mkfs.Entry, error) { return s.archive(r, openTar) }

// Cpio is Tar of a cpio archive: newc, crc or odc.
func (s *Scan) Cpio(r io.Reader) (*mkfs.Entry, error) { return s.archive(r, openCpio) }

// archiveReader reads an archive: after Next it reads the contents of that entry, and has read
// nothing of the archive but what comes before them.
type archiveReader interface {
	Next() (*tar.Header, error)
	io.Reader
}

func openTar(r io.Reader) archiveReader  { return tar.NewReader(r) }
func openCpio(r io.Reader) archiveReader { return newCpioReader(r) }

// archive lists the archive that open reads.
func (s *Scan) archive(r io.Reader, open func(io.Reader) archiveReader) (*mkfs.Entry, error) {
	t := &tarTree{s: s, made: map[string]*mkfs.Entry{}, dead: map[*mkfs.Entry]bool{}, inodes: map[*mkfs.Entry]*mkfs.Entry{}, buf: make([]byte, chunk)}
	if f, ok := r.(*os.File); ok {
		if err := t.inPlace(f); err != nil {
			return nil, err
		}
		if t.src != nil {
			r = t.r
		}
	}
	root := t.directory("")
	t.made["/"] = root
	a := open(r)
	for {
		h, err := a.Next()
		if errors.Is(err, io.EOF) {
			t.sweep(root, map[*mkfs.Entry]*mkfs.Entry{})
			return root, nil
		}
		if err != nil {
			return nil, errArchive(err)
		}
		if err := s.count.w.Stop(); err != nil {
			return nil, err
		}
		data, err := t.data(a, h)
		if err != nil {
			return nil, err
		}
		if err := s.count.leave(h.Name, t.entry(h, data)); err != nil {
			return nil, err
		}
	}
}

// inPlace makes a regular file the source of contents, from where it is read on.
func (t *tarTree) inPlace(f *os.File) error {
	st, err := f.Stat()
	if err != nil || !st.Mode().IsRegular() {
		return err
	}
	if t.s.Image != nil && os.SameFile(st, t.s.Image) {
		return errIsImage
	}
	if t.base, err = f.Seek(0, io.SeekCurrent); err != nil {
		return err
	}
	t.size = max(st.Size()-t.base, 0)
	t.src, t.r = f, io.NewSectionReader(f, t.base, t.size)
	return nil
}

// Close removes what Tar has kept of a pipe, and of sparse files.
func (s *Scan) Close() error {
	if s.spool == nil {
		return nil
	}
	err := s.spool.Close()
	if rerr := os.Remove(s.spool.Name()); err == nil && !errors.Is(rerr, iofs.ErrNotExist) {
		err = rerr
	}
	s.spool = nil
	return err
}

// data finds the contents of a regular file of the archive, or spools them; nil for all else.
func (t *tarTree) data(a archiveReader, h *tar.Header) (*section, error) {
	sparse := h.Typeflag == tar.TypeGNUSparse
	if h.Typeflag != tar.TypeReg && !sparse || h.Size == 0 {
		return nil, nil
	}
	for k := range h.PAXRecords {
		sparse = sparse || strings.HasPrefix(k, "GNU.sparse.")
	}
	if t.src == nil || sparse {
		off, err := t.s.spooled(a, h, t.buf)
		return &section{t.s.spool, off, h.Size}, err
	}
	off, err := t.r.Seek(0, io.SeekCurrent)
	if err == nil && h.Size > t.size-off {
		err = errEnds(h, t.size-off)
	}
	if c, ok := a.(*cpioReader); ok && c.sums && err == nil {
		if _, err = io.CopyBuffer(struct{ io.Writer }{io.Discard}, c, t.buf); err != nil {
			err = errArchive(err)
		}
	}
	return &section{t.src, t.base + off, h.Size}, err
}

func errEnds(h *tar.Header, n int64) error {
	return errArchive(fmt.Errorf("%s ends after %d of %d bytes", h.Name, n, h.Size))
}

// spooled appends contents to the spool, through buf, and returns where they begin. Blocks of zeros
// are holes there.
func (s *Scan) spooled(r io.Reader, h *tar.Header, buf []byte) (off int64, err error) {
	if s.spool == nil {
		if s.spool, err = os.CreateTemp("", "btrlab-tar-"); err != nil {
			return 0, err
		}
		_ = os.Remove(s.spool.Name()) // or by Close, where an open file keeps its name
	}
	off = s.spoolEnd
	w := &sparseWriter{f: s.spool, off: off}
	for n := int64(0); n < h.Size; {
		if err := s.count.w.Stop(); err != nil {
			return 0, err
		}
		k, err := io.ReadFull(r, buf[:min(int64(len(buf)), h.Size-n)])
		n += int64(k)
		switch {
		case errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF):
			return 0, errEnds(h, n)
		case err != nil:
			return 0, errArchive(err)
		}
		if _, err := w.Write(buf[:k]); err != nil {
			return 0, err
		}
	}
	s.spoolEnd = off + int64(format.AlignUp(uint64(h.Size), hostBlock))
	return off, s.spool.Truncate(s.spoolEnd)
}

// directory is a directory that the archive has no entry of.
func (t *tarTree) directory(name string) *mkfs.Entry {
	now := t.s.Date
	if now.IsZero() {
		now = time.Now()
	}
	own, _ := owned(t.s.Keep, t.s.Owner, fs.Owner{}, &inodeAttrs{})
	return &mkfs.Entry{Name: name, Mode: format.S_IFDIR | 0o755, UID: own.UID, GID: own.GID, Atime: now, Mtime: now, Source: &source{}}
}

// entry puts an entry of the archive into the tree.
func (t *tarTree) entry(h *tar.Header, data *section) error {
	path := gopath.Clean("/" + h.Name)
	e, err := t.inode(h, data)
	if err != nil {
		return err
	}
	old := t.made[path]
	switch {
	case old == nil || !old.IsDir():
	case !e.IsDir():
		return errno.EISDIR
	default: // the same directory once more: the later one counts
		old.Mode, old.UID, old.GID, old.Atime, old.Mtime, old.Source = e.Mode, e.UID, e.GID, e.Atime, e.Mtime, e.Source
		return nil
	}
	var first *mkfs.Entry
	if h.Typeflag == tar.TypeLink {
		switch first = t.made[gopath.Clean("/"+h.Linkname)]; {
		case first == nil:
			return errNoLink(h)
		case first.IsDir():
			return errno.EPERM
		case first == old:
			return nil // no other name may be left of it
		}
	}
	if err := t.add(path, e); err != nil {
		return err
	}
	if first != nil {
		e.LinkTo(first)
		t.inodes[e] = cmp.Or(t.inodes[first], first)
	}
	return nil
}

// inode is what a header says of an inode; of a link it is nothing but a file.
func (t *tarTree) inode(h *tar.Header, data *section) (*mkfs.Entry, error) {
	a, err := t.s.Keep.tarAttrs(h)
	if err != nil {
		return nil, err
	}
	kind, err := t.s.Keep.tarKind(h)
	if err != nil {
		return nil, err
	}
	own, trusted := owned(t.s.Keep, t.s.Owner, fs.Owner{}, &a)
	src := &source{}
	e := &mkfs.Entry{Mode: kind | modeOf(a.Mode, trusted), UID: own.UID, GID: own.GID, Source: src}
	e.Atime, e.Mtime = dated(t.s.Date, a.Atime, a.Mtime)
	switch kind {
	case format.S_IFREG:
		if data != nil {
			src.from, e.Size = data, data.size
		}
	case format.S_IFLNK:
		e.Mode, e.Target = kind|0o777, h.Linkname
		if len(e.Target) == 0 || len(e.Target) >= format.SectorSize {
			return nil, errno.ENAMETOOLONG
		}
	case format.S_IFCHR, format.S_IFBLK:
		e.Rdev = uint64(h.Devmajor)<<20 | uint64(h.Devminor)
	}
	for _, x := range a.Xattrs {
		if !copies(x.Name, trusted) {
			continue
		}
		if err := takes(kind, x); err != nil {
			t.s.count.w.LeaveOut(LeftOut{Name: h.Name, Err: fmt.Errorf("extended attribute %s: %w", x.Name, err)})
			continue
		}
		src.xattrs = append(src.xattrs, x)
	}
	return e, nil
}

// takes is the error of fs.Node.Setxattr for an attribute that an inode of a kind never has.
func takes(kind uint32, x image.Xattr) error {
	plain := kind == format.S_IFREG || kind == format.S_IFDIR
	_, known := compress.Property(string(x.Value))
	switch property := strings.HasPrefix(x.Name, "btrfs."); {
	case x.Name == "" || len(x.Name) > format.MaxNameLen:
		return errno.ERANGE
	case property && (x.Name != fs.Compression || !known || len(x.Value) == 0 || !plain):
		return errno.EINVAL
	case strings.HasPrefix(x.Name, "user.") && !plain:
		return errno.EPERM
	}
	return nil
}

// add gives e the name path, in the place of what is no directory there. What is excluded, and all
// below it, gets no place in the tree: only links find it.
func (t *tarTree) add(path string, e *mkfs.Entry) error {
	if e.Name = gopath.Base(path); len(e.Name) > format.MaxNameLen {
		return errno.ENAMETOOLONG
	}
	up := gopath.Dir(path)
	d := t.made[up]
	switch {
	case d == nil:
		d = t.directory("")
		if err := t.add(up, d); err != nil {
			return err
		}
	case !d.IsDir():
		return errNotFollowed(up)
	}
	if old := t.made[path]; old != nil {
		t.dead[old] = true
	}
	t.made[path] = e
	if !t.s.Exclude.Has(path[1:]) {
		d.Add(e)
		t.s.count.known++
	}
	return nil
}

// sweep takes out of d, and of all below, what a later entry has the place of, and makes names of
// one inode know each other: firsts has the first one of each.
func (t *tarTree) sweep(d *mkfs.Entry, firsts map[*mkfs.Entry]*mkfs.Entry) {
	d.Entries = slices.DeleteFunc(d.Entries, func(e *mkfs.Entry) bool { return t.dead[e] })
	for _, e := range d.Entries {
		if e.IsDir() {
			t.sweep(e, firsts)
			continue
		}
		key := cmp.Or(t.inodes[e], e)
		if e.Several, e.Link = true, firsts[key]; e.Link == nil {
			firsts[key] = e
		}
	}
}

// archived is an inode of an archive that a file system is made of.
type archived struct {
	planned
	at    *section
	whole bool // blocks of zeros are not looked for
	buf   []byte
}

func (a *archived) Size() (int64, error) { return a.at.size, nil }

func (a *archived) ReadAt(p []byte, off int64) (int, error) {
	return io.NewSectionReader(a.at.f, a.at.off, a.at.size).ReadAt(p, off)
}

// NextData leaves out the holes that the host knows of, and blocks of zeros, as In.Tar does.
func (a *archived) NextData(off, size int64) (start, end int64, err error) {
	for off < size {
		start, end, err := nextData(a.at.f, a.at.off+off, a.at.off+size)
		if err != nil {
			return 0, 0, err
		}
		start = max(int64(format.AlignDown(uint64(start-a.at.off), hostBlock)), off)
		end = min(int64(format.AlignUp(uint64(end-a.at.off), hostBlock)), size)
		if start >= size || end <= start {
			break
		}
		if !a.whole {
			if start, end, err = a.filled(start, end); err != nil {
				return 0, 0, err
			}
		}
		if start < end {
			return start, end, nil
		}
		off = end
	}
	return 0, 0, io.EOF
}

// filled is the first run of blocks in [start, end) that are not all zeros; an empty one at end if
// there is none.
func (a *archived) filled(start, end int64) (from, to int64, err error) {
	if a.buf == nil {
		a.buf = make([]byte, chunk/4)
	}
	found := false
	for at := start; at < end; {
		n, err := a.ReadAt(a.buf[:min(int64(len(a.buf)), end-at)], at)
		if n == 0 {
			return 0, 0, cmp.Or(err, io.ErrUnexpectedEOF)
		}
		for i := 0; i < n; i += hostBlock {
			switch empty := isZeroBlock(a.buf[i:n]); {
			case !found && !empty:
				found, from = true, at+int64(i)
			case found && empty:
				return from, at + int64(i), nil
			}
		}
		at += int64(n)
	}
	if !found {
		from = end
	}
	return from, end, nil
}
