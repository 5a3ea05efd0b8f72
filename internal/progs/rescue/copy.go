package rescue

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	gopath "path"
	"slices"
	"strings"

	"btrlab/internal/format"
	"btrlab/internal/progs/image"
)

// Object is a file, a directory or another inode of the image, on its way out.
type Object struct {
	Path string // from the top, without a leading slash; "" is the top
	image.Attrs
	Size   uint64 // of a regular file, in bytes
	Target string // of a symbolic link
	// Data hands out the contents of a regular file in ascending order, without its holes. The
	// bytes are out's until it returns. The error is that of out, or of Options.Stop.
	Data func(out func(off uint64, p []byte) error) error
}

// Sink is where objects go. A *RefusedError leaves one object out; any other error ends the copy.
type Sink interface {
	// Enter makes a directory, unless it is there.
	Enter(o *Object) error
	// Leave gives a directory its attributes, when what is in it has come.
	Leave(o *Object) error
	// Has reports whether the object is there, as it is in the image: an earlier copy has made it.
	Has(o *Object) bool
	// Put makes anything else in the place of what has the name.
	Put(o *Object) error
	// Link makes path another name of the object that went to first.
	Link(path, first string) error
}

// RefusedError is the error of a Sink that does not take one object, or a part of it.
type RefusedError struct{ Err error }

func (e *RefusedError) Error() string { return e.Err.Error() }
func (e *RefusedError) Unwrap() error { return e.Err }

// Kind says how much of an object there is.
type Kind uint8

// Kinds of Report.
const (
	Partial Kind = iota // some of it is lost
	Lost                // all of it
)

// Report is told of what is not whole.
type Report struct {
	Kind Kind
	Path string
	Why  string
}

// CopyOptions of Image.Copy.
type CopyOptions struct {
	Snapshots bool // copy snapshots as well. Model: btrfs restore -s.
	// Under is the path of what is copied only, without a leading slash: a file, which goes to the
	// top, or a directory, whose contents do. A snapshot that it names is copied. Match, if it is
	// set, chooses by paths from the top of the image; what is below a directory that it chooses is
	// copied as well. Model: btrfs restore --path-regex.
	Under string
	Match func(path string) bool
	// Report, if any, is called with each object that is not whole.
	Report func(Report)
	// Begin, if any, is called before each object, with the count of those that have begun.
	Begin func(path string, begun uint64)
}

// Summary of a copy: each file, link and special file is in one of the first four. Lost counts also
// further names of directories, and subvolumes whose tree is gone.
type Summary struct {
	Whole, Partial, Lost, Already uint64
	Dirs                          uint64
	Plain                         uint64 // files of Whole without a checksum for all data
	Snapshots                     uint64 // left out
	Bytes                         uint64 // handed out
}

// lostFound is the directory for what has no place any more.
const lostFound = "lost+found"

type copier struct {
	im    *Image
	sink  Sink
	o     CopyOptions
	sum   Summary
	begun uint64
	done  map[uint64]bool // subvolumes
}

// Copy copies all files that are left to the sink. What has no name any more goes to the directory
// lost+found at the top. Memory grows with the tree blocks of a subvolume, the files with several
// names, and the largest directory, not with the data.
//
// Model: btrfs restore -m -S -x -i. Differences: it goes on without any of the trees (tree.go),
// verifies checksums, and keeps hard links, devices, pipes and sockets.
//
// Errors: ErrNothing, when Under and Match choose nothing; those of the sink and of Options.Stop.
func (im *Image) Copy(sink Sink, o CopyOptions) (Summary, error) {
	c := &copier{im: im, sink: sink, o: o, done: map[uint64]bool{}}
	p := &part{Sink: sink, o: &c.o, entered: map[string]bool{}}
	if o.partial() {
		c.sink = p
	}
	err := c.all()
	if o.partial() {
		c.sum.Dirs = uint64(len(p.entered))
		if s := c.sum; err == nil && s.Whole+s.Partial+s.Lost+s.Already+s.Dirs == 0 {
			err = ErrNothing
		}
	}
	return c.sum, err
}

// all copies all subvolumes.
func (c *copier) all() error {
	im := c.im
	err := c.subvolume(format.FS_TREE_OBJECTID, "")
	for _, id := range im.subvolumes() {
		if err != nil {
			break
		}
		path := gopath.Join(lostFound, fmt.Sprintf("subvolume-%d", id))
		if !c.done[id] && c.o.wants(path, true) && !c.skip(id, path) {
			c.report(Partial, path, "a subvolume whose name is lost")
			err = c.subvolume(id, path)
		}
	}
	return err
}

// subvolumes lists the subvolumes that are not being deleted: those of the root tree, and where
// that is not whole those of which a scan has found blocks.
func (im *Image) subvolumes() (ids []uint64) {
	dying := map[uint64]bool{}
	_ = im.eachRoot(func(id uint64, r *format.RootItem) error {
		if format.IsFSTree(id) {
			if r.Refs == 0 && id != format.FS_TREE_OBJECTID {
				dying[id] = true
			} else {
				ids = append(ids, id)
			}
		}
		return nil
	})
	if !im.roots.whole() {
		for i := range im.found {
			if f := &im.found[i]; format.IsFSTree(f.owner) && !dying[f.owner] && (im.o.Generation == 0 || f.generation <= im.o.Generation) {
				ids = append(ids, f.owner)
			}
		}
	}
	slices.Sort(ids)
	return slices.Compact(ids)
}

// skip reports whether a subvolume is a snapshot that is not wanted.
func (c *copier) skip(id uint64, path string) bool {
	r, ok := c.im.item(id)
	if !ok || c.o.Snapshots || r.ParentUUID.IsZero() || c.o.Under != "" && within(c.o.Under, path) {
		return false
	}
	c.done[id] = true
	c.sum.Snapshots++
	return true
}

func (c *copier) report(kind Kind, path, why string) {
	if c.o.Report != nil {
		c.o.Report(Report{kind, path, why})
	}
}

// lose counts an object as lost.
func (c *copier) lose(path, why string) {
	c.sum.Lost++
	c.report(Lost, path, why)
}

// refused is err, unless the sink has left one object out.
func (c *copier) refused(path string, err error) error {
	var r *RefusedError
	if errors.As(err, &r) {
		c.lose(path, r.Error())
		return nil
	}
	return err
}

// subvol is one subvolume on its way.
type subvol struct {
	*copier
	tr    *tree
	id    uint64
	path  string
	seen  map[uint64]uint64 // a bit for each inode
	links map[uint64]string // inodes with several names -> where the first one went
}

func (s *subvol) visit(ino uint64) (first bool) {
	bit := uint64(1) << (ino % 64)
	first = s.seen[ino/64]&bit == 0
	s.seen[ino/64] |= bit
	return first
}

func (c *copier) subvolume(id uint64, path string) error {
	c.done[id] = true
	tr, err := c.im.tree(id)
	if err != nil {
		return err
	}
	if len(tr.leaves) == 0 {
		c.lose(cmp.Or(path, "/"), fmt.Sprintf("subvolume %d: no tree block is left", id))
		return nil
	}
	s := &subvol{copier: c, tr: tr, id: id, path: path, seen: map[uint64]uint64{}, links: map[uint64]string{}}
	if err := s.dir(format.FIRST_FREE_OBJECTID, path, format.FtDir); err != nil {
		return err
	}
	return s.strays()
}

// inode reads an inode item.
func (s *subvol) inode(ino uint64) (item format.InodeItem, l *leaf, ok bool) {
	key := format.Key{Objectid: ino, Type: format.INODE_ITEM_KEY}
	_ = s.tr.each(key, func(k format.Key, b []byte, at *leaf) error {
		if k == key && len(b) >= format.InodeItemSize {
			item.Decode(b)
			l, ok = at, true
		}
		return errEnd
	})
	return item, l, ok
}

// object is an inode on its way out. Without an inode item it is what its entry says, of this
// process's owner.
func (s *subvol) object(ino uint64, path string, item *format.InodeItem, ok bool, ft uint8) *Object {
	o := &Object{Path: path}
	if !ok {
		o.Mode = format.S_IFREG | 0o600
		switch ft {
		case format.FtDir:
			o.Mode = format.S_IFDIR | 0o700
		case format.FtSymlink:
			o.Mode = format.S_IFLNK | 0o777
		}
		return o
	}
	o.Mode, o.UID, o.GID, o.Rdev, o.Flags, o.Size = item.Mode, item.UID, item.GID, item.Rdev, item.Flags, item.Size
	o.Atime, o.Mtime = item.Atime.Time(), item.Mtime.Time()
	_ = s.tr.each(format.Key{Objectid: ino, Type: format.XATTR_ITEM_KEY}, func(k format.Key, b []byte, _ *leaf) error {
		if k.Objectid != ino || k.Type != format.XATTR_ITEM_KEY {
			return errEnd
		}
		list, err := format.DirItems(b)
		if err != nil {
			return nil
		}
		for _, x := range list {
			o.Xattrs = append(o.Xattrs, image.Xattr{Name: x.Name, Value: bytes.Clone(x.Data)})
		}
		return nil
	})
	return o
}

// entry is a name in a directory.
type entry struct {
	name   string
	ino    uint64
	subvol bool
	ft     uint8
}

// entries lists a directory, by its DIR_INDEX items and by the DIR_ITEMs whose index is lost.
func (s *subvol) entries(ino uint64) (list []entry) {
	type id struct {
		name string
		ino  uint64
	}
	have := map[id]bool{}
	for _, typ := range []uint8{format.DIR_INDEX_KEY, format.DIR_ITEM_KEY} {
		_ = s.tr.each(format.Key{Objectid: ino, Type: typ}, func(k format.Key, b []byte, _ *leaf) error {
			if k.Objectid != ino || k.Type != typ {
				return errEnd
			}
			items, err := format.DirItems(b)
			if err != nil {
				return nil
			}
			for _, d := range items {
				e := entry{d.Name, d.Location.Objectid, d.Location.Type == format.ROOT_ITEM_KEY, d.Type &^ 0x80}
				if !have[id{e.name, e.ino}] {
					have[id{e.name, e.ino}] = true
					list = append(list, e)
				}
			}
			return nil
		})
	}
	return list
}

// dir copies a directory with what is in it.
func (s *subvol) dir(ino uint64, path string, ft uint8) error {
	if !s.visit(ino) {
		s.lose(path, "a second name of a directory")
		return nil
	}
	if err := s.begin(path); err != nil {
		return err
	}
	item, _, ok := s.inode(ino)
	o := s.object(ino, path, &item, ok, ft)
	if !ok && s.o.chosen(path) {
		s.report(Partial, cmp.Or(path, "/"), "the directory's inode is lost: owner, mode and times are not those it had")
	}
	if err := s.sink.Enter(o); err != nil {
		return s.refused(path, err)
	}
	s.sum.Dirs++
	used := map[string]bool{}
	for _, e := range s.entries(ino) {
		name := e.name
		if bad(name) {
			name = fmt.Sprintf("inode-%d", e.ino)
		}
		if used[name] {
			name = fmt.Sprintf("%s~%d", name, e.ino)
		}
		used[name] = true
		if err := s.name(ino, gopath.Join(path, name), e); err != nil {
			return err
		}
	}
	return s.refusedDir(path, s.sink.Leave(o))
}

// refusedDir is refused for attributes of a directory, which is there.
func (s *subvol) refusedDir(path string, err error) error {
	var r *RefusedError
	if errors.As(err, &r) {
		s.report(Partial, cmp.Or(path, "/"), r.Error())
		return nil
	}
	return err
}

// bad reports whether no sound directory has the name.
func bad(name string) bool {
	return name == "" || name == "." || name == ".." || strings.ContainsAny(name, "/\x00")
}

func (s *subvol) begin(path string) error {
	if err := s.im.stop(); err != nil {
		return err
	}
	s.begun++
	if s.o.Begin != nil {
		s.o.Begin(cmp.Or(path, "/"), s.begun)
	}
	return nil
}

// name copies what the entry e of a directory leads to.
func (s *subvol) name(dir uint64, path string, e entry) error {
	if !s.o.wants(path, e.subvol || e.ft == format.FtDir) {
		return nil
	}
	if e.subvol {
		return s.nested(dir, path, e)
	}
	if e.ft == format.FtDir {
		return s.dir(e.ino, path, e.ft)
	}
	return s.file(e.ino, path, e.ft)
}

// nested copies a subvolume at its place. In a snapshot, the place of a subvolume of its source is
// an empty directory.
func (s *subvol) nested(dir uint64, path string, e entry) error {
	here, elsewhere := false, false
	_ = s.im.roots.each(format.Key{Objectid: e.ino, Type: format.ROOT_BACKREF_KEY}, func(k format.Key, b []byte, _ *leaf) error {
		if k.Objectid != e.ino || k.Type != format.ROOT_BACKREF_KEY {
			return errEnd
		}
		if len(b) >= format.RootRefSize && le.Uint64(b) == dir && k.Offset == s.id {
			here = true
		} else {
			elsewhere = true
		}
		return nil
	})
	r, known := s.im.item(e.ino)
	if !here && elsewhere || s.done[e.ino] || known && r.Refs == 0 || !known && s.im.roots.whole() {
		o := &Object{Path: path, Attrs: image.Attrs{Mode: format.S_IFDIR | 0o755}}
		if err := s.sink.Enter(o); err != nil {
			return s.refused(path, err)
		}
		s.sum.Dirs++
		return nil
	}
	if s.skip(e.ino, path) {
		return nil
	}
	return s.subvolume(e.ino, path)
}

// file copies what is no directory.
func (s *subvol) file(ino uint64, path string, ft uint8) error {
	if first, ok := s.links[ino]; ok {
		if err := s.sink.Link(path, first); err != nil {
			return s.refused(path, err)
		}
		s.sum.Whole++
		return nil
	}
	s.visit(ino)
	if err := s.begin(path); err != nil {
		return err
	}
	item, l, ok := s.inode(ino)
	o := s.object(ino, path, &item, ok, ft)
	r := &reader{im: s.im, tr: s.tr, ino: ino, size: o.Size}
	var why []string
	if ok {
		r.item = &item
		if l.suspect {
			why = append(why, "its inode is in a tree block with a wrong checksum")
		}
		if l.stale {
			why = append(why, fmt.Sprintf("perhaps an older state: its tree block is lost, and one of generation %d stands in for it", l.generation))
		}
	} else {
		r.size = s.end(ino)
		if o.Size = r.size; r.size == 0 {
			s.lose(path, "the inode is lost, with all data")
			return nil
		}
		why = append(why, "the inode is lost: owner, mode and times are not those it had, the size is that of the data")
	}
	switch o.Mode & format.S_IFMT {
	case format.S_IFDIR: // the entry is wrong
		s.seen[ino/64] &^= 1 << (ino % 64)
		return s.dir(ino, path, format.FtDir)
	case format.S_IFLNK:
		target, err := r.target()
		if err != nil {
			return err
		}
		if o.Target = target; target == "" {
			s.lose(path, "a symbolic link whose target is lost")
			return nil
		}
	case format.S_IFREG:
		if s.sink.Has(o) && ok {
			s.sum.Already++
			s.linked(ino, &item, path)
			return nil
		}
		o.Data = func(out func(off uint64, p []byte) error) error {
			r.loss, r.nbytes, r.plain = nil, 0, false
			r.out = func(off uint64, p []byte) error {
				s.sum.Bytes += uint64(len(p))
				return out(off, p)
			}
			return r.read()
		}
	}
	if err := s.sink.Put(o); err != nil {
		return s.refused(path, err)
	}
	if ok {
		s.linked(ino, &item, path)
	}
	why = append(why, r.lossText()...)
	if len(why) > 0 {
		s.sum.Partial++
		s.report(Partial, path, strings.Join(why, "; "))
		return nil
	}
	s.sum.Whole++
	if r.plain {
		s.sum.Plain++
	}
	return nil
}

// target reads the target of a symbolic link, of which at most a sector if the inode is lost.
func (r *reader) target() (string, error) {
	if r.item == nil {
		r.size = 4096
	}
	var target []byte
	r.out = func(off uint64, p []byte) error {
		target = append(target, p...)
		return nil
	}
	err := r.read()
	return strings.TrimRight(string(target), "\x00"), err
}

// lossText says where bytes of the file are lost: the first three places, and how many more.
func (r *reader) lossText() (list []string) {
	for i, x := range r.loss {
		if i == 3 {
			list = append(list, fmt.Sprintf("and %d more", len(r.loss)-i))
			break
		}
		list = append(list, x.String())
	}
	return list
}

func (s *subvol) linked(ino uint64, item *format.InodeItem, path string) {
	if item.Nlink > 1 {
		s.links[ino] = path
	}
}

// end is where the last file extent of an inode ends, in bytes; 0 if it has none.
func (s *subvol) end(ino uint64) (end uint64) {
	_ = s.tr.each(format.Key{Objectid: ino, Type: format.EXTENT_DATA_KEY}, func(k format.Key, b []byte, _ *leaf) error {
		if k.Objectid != ino || k.Type != format.EXTENT_DATA_KEY {
			return errEnd
		}
		if len(b) >= format.FileExtentInline && (b[20] == format.FileExtentTypeInline || len(b) >= format.FileExtentSize) {
			var fe format.FileExtent
			fe.Decode(b)
			n := fe.NumBytes
			if fe.Type == format.FileExtentTypeInline {
				n = fe.RAMBytes
			}
			end = max(end, k.Offset+n)
		}
		return nil
	})
	return end
}
