package transfer

import (
	"bytes"
	"errors"
	"io"
	iofs "io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"btrlab/internal/progs/image"

	"btrlab/internal/blockdev"
	"btrlab/internal/format"
	"btrlab/internal/fs"
	"btrlab/internal/progs/mkfs"
	"btrlab/internal/sched"
)

// Scan lists a directory of the host, an archive or an image for a new file system, and makes it.
type Scan struct {
	Keep    Keep
	Exclude Exclude
	Image   os.FileInfo // the file that is written, or nil: it is left out
	Owner   *fs.Owner   // of everything, instead of the host's
	Date    time.Time   // as In has it
	// Snapshots copies snapshots of an image as well.
	Snapshots bool

	count  count
	links  map[hostIno]*mkfs.Entry
	hidden bool // files may be unreadable for us

	spool    *os.File // of Tar
	spoolEnd int64    // whole blocks of it are used
}

// NewScan keeps all.
func NewScan(w Watcher) *Scan { return &Scan{Keep: All, count: count{w: w}, hidden: !holdsOwners()} }

// Fakeroot makes the files of the host what fakeroot says of them; nil is what they are.
func (s *Scan) Fakeroot(f *Fakeroot) { s.count.fake = f }

// source is what the opener needs of an entry: nil for a name in its parent's directory, whose
// capabilities stay with their owner.
type source struct {
	from    origin
	trusted bool

	// Of a plan: beside what from has.
	xattrs []image.Xattr
	flags  uint64
}

// origin is where the contents of an entry are, and its attributes: hostFile, text, *section of an
// archive, *imageInode. Nil is nowhere: there is nothing but what a plan says.
type origin any

// hostFile is a path of the host.
type hostFile struct {
	path   string
	follow bool // a symbolic link there
	bare   bool // its contents only
}

// text is the contents that a plan has.
type text []byte

// Tree lists the directory src. What cannot be read is left out.
func (s *Scan) Tree(src string) (*mkfs.Entry, error) {
	st, err := os.Stat(src)
	if err != nil {
		return nil, err
	}
	if !st.IsDir() {
		return nil, &iofs.PathError{Op: "read", Path: src, Err: errors.New("is no directory")}
	}
	s.links = map[hostIno]*mkfs.Entry{}
	e, trusted := s.entry("", s.count.faked(src, st))
	e.Source = &source{from: hostFile{path: src, follow: true}, trusted: trusted}
	return e, s.list(e, src, "")
}

// list lists what is in a directory: rel is its path below the source.
func (s *Scan) list(d *mkfs.Entry, path, rel string) error {
	if err := s.count.w.Stop(); err != nil {
		return err
	}
	names, err := os.ReadDir(path)
	if err != nil {
		return err
	}
	err = s.count.each(names, path, rel, s.Exclude, func(from, below string, st iofs.FileInfo) error {
		if out, err := s.count.omits(from, st, s.Keep, s.Image); out || err != nil {
			return err
		}
		if s.hidden && st.Mode().Type() == 0 {
			if err := readable(from); err != nil {
				return err
			}
		}
		return s.add(d, from, below, st)
	})
	d.Pack(nil)
	return err
}

// add lists a name in d, with all below.
func (s *Scan) add(d *mkfs.Entry, path, rel string, st iofs.FileInfo) error {
	e, trusted := s.entry(st.Name(), st)
	if !trusted {
		e.Source = &source{from: hostFile{path: path}}
	}
	if e.Mode&format.S_IFMT == format.S_IFLNK {
		target, err := os.Readlink(path)
		if err != nil {
			return err
		}
		e.Target = target
	}
	if st.IsDir() {
		if err := s.list(e, path, rel); err != nil {
			return err
		}
	} else if id, several := linked(st); several {
		if e.Several = true; s.links[id] != nil {
			e.Link = s.links[id]
		} else {
			s.links[id] = e
		}
	}
	s.count.known++
	d.Add(e)
	return nil
}

// entry is what st says of an inode, and whether its capabilities stay with their owner.
func (s *Scan) entry(name string, st iofs.FileInfo) (*mkfs.Entry, bool) {
	h := statAttrs(st)
	own, trusted := owned(s.Keep, s.Owner, fs.Owner{}, &h)
	e := &mkfs.Entry{Name: name, Mode: imageMode(st.Mode()), UID: own.UID, GID: own.GID, Rdev: h.Rdev}
	e.Atime, e.Mtime = dated(s.Date, h.Atime, h.Mtime)
	e.Mode = modeOf(e.Mode, trusted)
	if st.Mode().IsRegular() {
		e.Size = st.Size()
	}
	return e, trusted
}

// Need is about how many bytes a file system needs for the tree, with some to spare. Holes of large
// files take nothing.
func Need(root *mkfs.Entry) int64 {
	n := int64(0)
	o := &hostOpener{}
	defer o.Close()
	var walk func(e *mkfs.Entry)
	walk = func(e *mkfs.Entry) {
		data := dataOf(o, e)
		n += 2 * (512 + 4*int64(len(e.Name)) + data/1024) // metadata is there twice
		if e.Link == nil && data > format.MaxInlineData {
			n += int64(format.AlignUp(uint64(data), format.SectorSize))
		}
		for _, c := range e.Children() {
			walk(c)
		}
	}
	walk(root)
	return n + n/8 + 256<<20
}

// The files whose holes are looked for, and in how many runs of data: the rest of a file with more
// counts as data.
const (
	holesFrom = 1 << 20
	maxRuns   = 1 << 16
)

// dataOf is how many bytes of data a file has. What cannot be asked has no holes.
func dataOf(o *hostOpener, e *mkfs.Entry) int64 {
	if e.Size < holesFrom || e.Link != nil {
		return e.Size
	}
	x, err := o.Open(e)
	if err != nil {
		return e.Size
	}
	defer x.Close()
	if a, ok := x.(*archived); ok {
		a.whole = true // or it would be read twice
	}
	var data, off int64
	for range maxRuns {
		start, end, err := x.NextData(off, e.Size)
		switch {
		case errors.Is(err, io.EOF) || err == nil && start >= e.Size:
			return data
		case err != nil || end <= off:
			return data + e.Size - off
		}
		data += end - start
		if off = end; off == e.Size {
			return data
		}
	}
	return data + e.Size - off
}

// Build makes a file system of root on dev; what turns out to be unreadable is left out. It returns
// the size of the file system.
func (s *Scan) Build(t *sched.Task, dev blockdev.Device, o mkfs.Options, root *mkfs.Entry) (int64, error) {
	o.Open = func() mkfs.Opener { return &hostOpener{keep: s.Keep} }
	o.Next = func(e *mkfs.Entry) error { return s.count.next(e.Path()) }
	o.Stop = s.count.w.Stop
	o.LeaveOut = func(e *mkfs.Entry, err error) { s.count.w.LeaveOut(LeftOut{Name: hostPath(e), Err: err}) }
	names := s.count.known + 1
	for {
		s.count.known = s.count.begun + names
		size, err := mkfs.Build(t, dev, o, root)
		var bad *mkfs.SourceError
		if !errors.As(err, &bad) || bad.Entry.Parent() == nil {
			return size, err
		}
		if !drop(bad.Entry) {
			return size, err
		}
		s.count.w.LeaveOut(LeftOut{Name: hostPath(bad.Entry), Err: bad.Err})
		o.Force = true
	}
}

// drop takes an entry out of its directory, and reports whether it was there. Its other names still
// have it as their Link, by which they know each other.
func drop(e *mkfs.Entry) bool {
	d := e.Parent()
	i := slices.Index(d.Entries, e)
	if i < 0 && d.Unpack() {
		i = slices.IndexFunc(d.Entries, func(c *mkfs.Entry) bool { return c.Name == e.Name })
	}
	if i < 0 {
		return false
	}
	d.Entries = slices.Delete(d.Entries, i, i+1)
	return true
}

// hostPath is the path of an entry's source.
func hostPath(e *mkfs.Entry) string {
	s, ok := e.Source.(*source)
	if !ok {
		return filepath.Join(hostPath(e.Parent()), e.Name)
	}
	switch from := s.from.(type) {
	case hostFile:
		return from.path
	case *imageInode:
		return from.path
	}
	return e.Path()
}

// kept are the attributes of an entry: those of the host, and those of a plan, which come first.
func kept(e *mkfs.Entry, list []image.Xattr, flags uint64) (attrs []image.Xattr, _ uint64) {
	s, ok := e.Source.(*source)
	if ok {
		attrs, flags = append(attrs, s.xattrs...), flags|s.flags
	}
	for _, x := range list {
		planned := slices.ContainsFunc(attrs, func(a image.Xattr) bool { return a.Name == x.Name })
		if planned || ok && !copies(x.Name, s.trusted) {
			continue
		}
		attrs = append(attrs, x)
	}
	return attrs, flags
}

// fromHost is the path of the host that an entry has of its own.
func fromHost(e *mkfs.Entry) (from hostFile, ok bool) {
	if s, has := e.Source.(*source); has {
		from, ok = s.from.(hostFile)
	}
	return from, ok
}

// openElsewhere opens what is not on the host; nil when it is there.
func openElsewhere(e *mkfs.Entry) (mkfs.Object, error) {
	s, ok := e.Source.(*source)
	if !ok {
		return nil, nil
	}
	switch from := s.from.(type) {
	case hostFile:
		return nil, nil
	case *imageInode:
		return from.open(e)
	case *section:
		if e.Mode&format.S_IFMT == format.S_IFREG {
			return &archived{planned: planned{e: e}, at: from}, nil
		}
	case text:
		return &planned{*bytes.NewReader(from), e}, nil
	}
	return &planned{e: e}, nil
}

// planned is an object of a plan.
type planned struct {
	bytes.Reader
	e *mkfs.Entry
}

func (p *planned) Attrs() ([]image.Xattr, uint64, error) {
	attrs, flags := kept(p.e, nil, 0)
	return attrs, flags, nil
}

func (p *planned) Size() (int64, error) { return p.Reader.Size(), nil }

func (p *planned) NextData(off, size int64) (start, end int64, err error) { return off, size, nil }

func (p *planned) Close() error { return nil }
