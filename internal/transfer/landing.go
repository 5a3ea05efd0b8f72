package transfer

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	iofs "io/fs"
	"os"
	"path/filepath"
	"strings"

	"btrlab/internal/progs/image"

	"btrlab/internal/format"
	"btrlab/internal/progs/rescue"
)

// Landing is a directory of the host that a rescue fills. As Out it follows no symbolic link in it.
type Landing struct {
	// Keep says what is kept of the inodes; NewLanding keeps all, and owners if this process is
	// root.
	Keep Keep
	// Refused, if any, is told of an owner or an attribute that the host does not take.
	Refused func(path string, err error)

	path string
	top  *hostDir
	last *hostDir // the directory of the last object, or nil
	at   string   // its path
}

// NewLanding opens the directory dir, which it makes if there is none.
func NewLanding(dir string) (*Landing, error) {
	if err := os.Mkdir(dir, 0o777); err != nil && !errors.Is(err, iofs.ErrExist) {
		return nil, err
	}
	top, err := openDir(os.OpenRoot(dir))
	if err != nil {
		return nil, err
	}
	keep := All
	keep.Owners = holdsOwners()
	return &Landing{Keep: keep, path: dir, top: top}, nil
}

// Close closes the directory.
func (l *Landing) Close() error { return errors.Join(l.drop(), l.top.Close()) }

func (l *Landing) drop() error {
	if l.last == nil {
		return nil
	}
	err := l.last.Close()
	l.last, l.at = nil, ""
	return err
}

// dir opens the directory of the path, which is the landing's until the next call.
func (l *Landing) dir(path string) (*hostDir, error) {
	switch {
	case path == "" || path == ".":
		return l.top, nil
	case l.last != nil && l.at == path:
		return l.last, nil
	}
	if err := l.drop(); err != nil {
		return nil, err
	}
	d, err := openDir(l.top.OpenRoot(path))
	if err == nil {
		l.last, l.at = d, path
	}
	return d, err
}

// place is the place of a path.
func (l *Landing) place(path string) (place, error) {
	up, name := filepath.Split(path)
	d, err := l.dir(strings.TrimSuffix(up, "/"))
	return place{dir: d, name: name, path: filepath.Join(l.path, path), rel: path}, err
}

// refusedBy turns an error of one object into one that leaves it out.
func refusedBy(err error) error {
	var u *unreadable
	switch {
	case err == nil:
		return nil
	case errors.As(err, &u):
		return &rescue.RefusedError{Err: u.err}
	case exhausted(err):
		return err
	}
	var host *iofs.PathError
	var link *os.LinkError
	if errors.As(err, &host) || errors.As(err, &link) {
		return &rescue.RefusedError{Err: err}
	}
	return err
}

// Enter makes a directory.
func (l *Landing) Enter(o *rescue.Object) error {
	if o.Path == "" {
		return nil
	}
	p, err := l.place(o.Path)
	if err != nil {
		return refusedBy(err)
	}
	sub, err := p.mkdir(0o700)
	if err != nil {
		return refusedBy(err)
	}
	return sub.Close()
}

// Leave gives a directory its attributes.
func (l *Landing) Leave(o *rescue.Object) error {
	d, err := l.dir(o.Path)
	if err != nil {
		return refusedBy(err)
	}
	return refusedBy(l.finish(o, &object{f: d.self, dir: d, name: "."}))
}

func (l *Landing) finish(o *rescue.Object, made *object) error {
	var st iofs.FileInfo
	var err error
	if made.f != nil {
		st, err = made.f.Stat()
	} else {
		st, err = made.dir.Lstat(made.name)
	}
	if err != nil {
		return err
	}
	h := &inodeAttrs{o.Attrs, true}
	return l.Keep.finish(h, func() ([]image.Xattr, error) { return h.Xattrs, nil }, made, st, func(what string, err error) {
		if l.Refused != nil {
			l.Refused(o.Path, fmt.Errorf("%s: %w", what, err))
		}
	})
}

// Has reports whether a regular file of the size and the time of o is there: the time is set when
// all else is done.
func (l *Landing) Has(o *rescue.Object) bool {
	p, err := l.place(o.Path)
	if err != nil {
		return false
	}
	st, err := p.dir.Lstat(p.name)
	return err == nil && st.Mode().IsRegular() && st.Size() == int64(o.Size) && st.ModTime().Equal(o.Mtime)
}

// Put makes what is no directory.
func (l *Landing) Put(o *rescue.Object) error {
	p, err := l.place(o.Path)
	if err != nil {
		return refusedBy(err)
	}
	switch o.Mode & format.S_IFMT {
	case format.S_IFREG:
		return l.file(o, p)
	case format.S_IFLNK:
		err = linkAt(p, func(q place) error { return q.dir.Symlink(o.Target, q.name) })
	default:
		err = linkAt(p, func(q place) error { return q.mknod(o.Mode, o.Rdev) })
	}
	if err == nil {
		err = p.named(l.finish(o, &object{dir: p.dir, name: p.name}))
	}
	return refusedBy(err)
}

func (l *Landing) file(o *rescue.Object, p place) error {
	f, err := p.create()
	if err != nil {
		return refusedBy(err)
	}
	made := &object{f: f, dir: p.dir, name: p.name}
	if l.Keep.Flags && o.Flags&format.InodeNoDataCow != 0 {
		// An empty file takes it; see Keep.finish.
		_ = made.setFlags(flagsOfHost(format.InodeNoDataCow))
	}
	w := &sparseWriter{f: f}
	err = o.Data(func(off uint64, b []byte) error {
		w.off = int64(off)
		_, err := w.Write(b)
		return err
	})
	switch {
	case err != nil && w.err == nil: // not the host's: the copy has been stopped
		f.Close()
		return err
	case err == nil && w.end < int64(o.Size):
		err = f.Truncate(int64(o.Size))
	}
	if err == nil {
		err = l.finish(o, made)
	}
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	return refusedBy(p.named(err))
}

// Link makes path another name of first.
func (l *Landing) Link(path, first string) error {
	p, err := l.place(path)
	if err != nil {
		return refusedBy(err)
	}
	return refusedBy(linkAt(p, func(q place) error { return l.top.link(first, q.rel) }))
}

// Archive is a tar archive that a rescue writes.
type Archive struct {
	a    *tar.Writer
	keep Keep
	dirs map[string]bool // that are in it
	// Refused, if any, is told of an attribute that an archive does not take.
	Refused func(path string, err error)
}

// NewArchive writes to w.
func NewArchive(w io.Writer) *Archive {
	return &Archive{a: tar.NewWriter(w), keep: All, dirs: map[string]bool{}}
}

// Close ends the archive.
func (t *Archive) Close() error { return t.a.Close() }

// Enter writes a directory, with its attributes.
func (t *Archive) Enter(o *rescue.Object) error {
	if t.dirs[o.Path] {
		return nil
	}
	t.dirs[o.Path] = true
	return t.Put(o)
}

// Leave has nothing left to do.
func (t *Archive) Leave(*rescue.Object) error { return nil }

// Has is false: an archive is written from its beginning.
func (t *Archive) Has(*rescue.Object) bool { return false }

// Put writes an object.
func (t *Archive) Put(o *rescue.Object) error {
	h := &inodeAttrs{o.Attrs, true}
	e := t.keep.tarHeader(o.Path, h, int64(o.Size), o.Target)
	if e == nil {
		return &rescue.RefusedError{Err: errors.New("an archive has no sockets")}
	}
	t.keep.tarXattrs(e, h.Xattrs, func(err error) {
		if t.Refused != nil {
			t.Refused(o.Path, err)
		}
	})
	if err := t.a.WriteHeader(e); err != nil || o.Data == nil {
		return err
	}
	at := uint64(0)
	zero := func(to uint64) error {
		for at < to {
			n, err := t.a.Write(zeros[:min(to-at, uint64(len(zeros)))])
			if err != nil {
				return err
			}
			at += uint64(n)
		}
		return nil
	}
	err := o.Data(func(off uint64, p []byte) error {
		if err := zero(off); err != nil {
			return err
		}
		n, err := t.a.Write(p)
		at += uint64(n)
		return err
	})
	if err != nil {
		return err
	}
	return zero(o.Size)
}

// Link writes another name of an object.
func (t *Archive) Link(path, first string) error {
	return t.a.WriteHeader(&tar.Header{Typeflag: tar.TypeLink, Name: path, Linkname: first, Format: tar.FormatPAX})
}
