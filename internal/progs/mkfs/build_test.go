package mkfs_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"runtime"
	"strings"
	"testing"
	"time"

	"btrlab/internal/blockdev"
	"btrlab/internal/compress"
	"btrlab/internal/errno"
	"btrlab/internal/format"
	"btrlab/internal/progs/check"
	"btrlab/internal/progs/image"
	. "btrlab/internal/progs/mkfs"
	"btrlab/internal/sched"
	"btrlab/internal/testing/fstest"
	"btrlab/internal/testing/need"
)

// source is an Opener of contents in memory: an entry's Source is its *contents.
type source struct{}

type contents struct {
	data   []byte
	holes  [][2]int64 // ascending
	xattrs []image.Xattr
	flags  uint64
	err    error // of reading it
}

func (source) Close() {}

func (source) Open(e *Entry) (Object, error) {
	if c, ok := e.Source.(*contents); ok {
		return object{c}, nil
	}
	return object{&contents{}}, nil
}

type object struct{ *contents }

func (o object) Attrs() ([]image.Xattr, uint64, error) {
	return append([]image.Xattr(nil), o.xattrs...), o.flags, o.err
}
func (o object) Size() (int64, error) { return int64(len(o.data)), nil }
func (o object) Close() error         { return nil }
func (o object) NextData(off, size int64) (start, end int64, err error) {
	end = size
	for _, h := range o.holes {
		if h[0] <= off && off < h[1] {
			off = h[1]
		}
		if off < h[0] {
			end = min(end, h[0])
			break
		}
	}
	if off >= size {
		return 0, 0, io.EOF
	}
	return off, end, nil
}

func (o object) ReadAt(p []byte, off int64) (int, error) {
	if off >= int64(len(o.data)) {
		return 0, io.EOF
	}
	n := copy(p, o.data[off:])
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

// grower makes random trees.
type grower struct {
	r     *rand.Rand
	n     int // names so far
	bytes int // of data that may still come
	files []*Entry
}

func (g *grower) name() string {
	g.n++
	n := fmt.Sprintf("%d", g.n)
	switch g.r.IntN(20) {
	case 0:
		n += strings.Repeat("n", format.MaxNameLen-len(n))
	case 1:
		n += "\n\xff%="
	}
	return n
}

func (g *grower) time() time.Time {
	return time.Unix(g.r.Int64N(4e9)-1e9, g.r.Int64N(1e9))
}

func (g *grower) entry(mode uint32) *Entry {
	e := &Entry{Name: g.name(), Mode: mode | uint32(g.r.IntN(0o10000)), UID: g.r.Uint32(), GID: g.r.Uint32(), Atime: g.time(), Mtime: g.time()}
	c := &contents{}
	for range g.r.IntN(4) / 2 * g.r.IntN(4) {
		n := g.r.IntN(100)
		if g.r.IntN(20) == 0 {
			n = 10000
		}
		c.xattrs = append(c.xattrs, image.Xattr{Name: fmt.Sprintf("user.%d", len(c.xattrs)), Value: g.noise(n)})
	}
	e.Source = c
	return e
}

func (g *grower) noise(n int) []byte {
	p := make([]byte, n)
	fstest.Random(g.r, p)
	if g.r.IntN(2) == 0 { // it compresses
		for i := range p {
			p[i] = p[i]%3 + 'a'
		}
	}
	return p
}

func (g *grower) file() *Entry {
	e := g.entry(format.S_IFREG)
	c := e.Source.(*contents)
	sizes := []int{0, 1, 100, 2047, 2048, 2049, 4095, 4096, 4097, 5000, 65536, 128 << 10, 128<<10 + 1, 300000, 1 << 20, 3<<20 + 5}
	n := min(sizes[g.r.IntN(len(sizes))], g.bytes)
	g.bytes -= n
	c.data = g.noise(n)
	e.Size = int64(n)
	if g.r.IntN(3) == 0 && n > 128<<10 {
		for at := int64(0); at < int64(n); at += 65536 + 4096*g.r.Int64N(50) {
			h := [2]int64{at, min(at+4096*(1+g.r.Int64N(8)), int64(n))}
			clear(c.data[h[0]:h[1]])
			c.holes = append(c.holes, h)
			at = h[1]
		}
	}
	switch g.r.IntN(12) {
	case 0:
		c.flags = format.InodeNoDataCow
	case 1:
		c.flags = format.InodeNoCompress | format.InodeNoDump
	}
	return e
}

func (g *grower) dir(depth int) *Entry {
	d := g.entry(format.S_IFDIR)
	start := len(g.files)
	for range g.r.IntN(30) {
		var e *Entry
		switch k := g.r.IntN(12); {
		case k == 0 && depth > 0:
			e = g.dir(depth - 1)
			e.Subvol, e.ReadOnly = true, g.r.IntN(2) == 0
		case k < 3 && depth > 0:
			e = g.dir(depth - 1)
		case k == 3:
			e = g.entry(format.S_IFLNK)
			e.Target = strings.Repeat("t", 1+g.r.IntN(4095))
		case k == 4:
			e = g.entry(format.S_IFCHR)
			e.Rdev = 5<<20 | 77
		case k == 5 && len(g.files) > start:
			first := g.files[start+g.r.IntN(len(g.files)-start)]
			for range 1 + g.r.IntN(3) {
				l := *first
				l.Name, l.Link = g.name(), first
				d.Entries = append(d.Entries, &l)
			}
			continue
		case k == 6:
			e = g.entry(format.S_IFSOCK)
		default:
			e = g.file()
			g.files = append(g.files, e)
		}
		d.Entries = append(d.Entries, e)
	}
	return d
}

// inode is that of an entry in a subvolume: in two it has two.
type inode struct {
	e      *Entry
	subvol uint64
}

// agrees holds a directory of the file system against the tree.
func agrees(x *fstest.Fixture, path string, e *Entry, inos map[inode]format.Ino) {
	x.Helper()
	at, err := x.FS.Lstat(x.T, path)
	if err != nil {
		x.Errorf("%.40q: %v", path, err)
		return
	}
	c, _ := e.Source.(*contents)
	if c == nil {
		c = &contents{}
	}
	if at.Mode != e.Mode || at.UID != e.UID || at.GID != e.GID || !at.Mtime.Equal(e.Mtime) || !at.Atime.Equal(e.Atime) || at.Rdev != e.Rdev {
		x.Errorf("%.40q: have %+v want %+v", path, at, e)
	}
	if want := c.flags; at.Flags&(format.InodeNoDataCow|format.InodeNoCompress|format.InodeNoDump) != want {
		x.Errorf("%.40q: flags %#x want %#x", path, at.Flags, want)
	}
	n, err := x.FS.Node(x.T, at.Subvol, at.Ino)
	x.Must(err)
	names, err := n.Listxattr(x.T)
	x.Must(err)
	if len(names) != len(c.xattrs) {
		x.Errorf("%.40q: attributes %q want %d", path, names, len(c.xattrs))
	}
	for _, a := range c.xattrs {
		if v, err := n.Getxattr(x.T, a.Name); err != nil || !bytes.Equal(v, a.Value) {
			x.Errorf("%.40q: attribute %s has %d bytes, %v, want %d", path, a.Name, len(v), err, len(a.Value))
		}
	}
	n.Forget(x.T, 1)
	key := inode{e, at.Subvol}
	if e.Link != nil {
		key.e = e.Link
	}
	if ino, ok := inos[key]; ok && ino != at.Ino {
		x.Errorf("%.40q is inode %d, another name of it %d", path, at.Ino, ino)
	}
	inos[key] = at.Ino
	switch e.Mode & format.S_IFMT {
	case format.S_IFLNK:
		if target, err := x.FS.Readlink(x.T, path); err != nil || target != e.Target {
			x.Errorf("%.40q: target of %d bytes, %v, want %d", path, len(target), err, len(e.Target))
		}
	case format.S_IFREG:
		if have := x.ReadFile(path); !bytes.Equal(have, c.data) {
			x.Errorf("%.40q: %s", path, fstest.DiffAt(have, c.data))
		}
	case format.S_IFDIR:
		list, err := x.FS.ReadDir(x.T, path)
		x.Must(err)
		if len(list) != len(e.Entries) {
			x.Errorf("%.40q has %d names want %d", path, len(list), len(e.Entries))
		}
		for _, b := range e.Entries {
			agrees(x, strings.TrimSuffix(path, "/")+"/"+b.Name, b, inos)
		}
	}
}

// Random trees of all kinds are there as they were given, both for the checker and for the engine,
// which then changes them.
func TestBuild(t *testing.T) {
	need.Long(t)
	fstest.OneTask(t)
	rounds := uint64(24)
	if testing.Short() {
		rounds = 8
	}
	methods := []string{"", "zstd", "lzo", "zlib:1"}
	for seed := range rounds {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			g := &grower{r: rand.New(rand.NewPCG(seed, 0)), bytes: 25 << 20}
			root := g.dir(4)
			root.Mode = format.S_IFDIR | 0o751
			o := Options{Open: func() Opener { return source{} }, Shrink: seed%3 == 1, BlockGroupTree: seed%2 == 1, Now: time.Unix(1e9, 0),
				Csum: format.CsumType(seed % 4), NodeSize: []int{32768, 0, 65536}[seed%3], LongExtents: seed%7 == 2, Holes: seed%4 == 2}
			if m := methods[seed%4]; m != "" {
				o.Compress = fstest.Must(compress.Parse(m))
			}
			if seed%5 == 0 {
				o.MetadataProfile = "single"
			}
			tk := sched.NewTask("build")
			dev := blockdev.NewMemory([]int64{80 << 20, 128 << 20, 1 << 30}[seed%3])
			size, err := Build(tk, dev, o, root)
			if err != nil {
				t.Fatal(err)
			}
			if o.Shrink {
				small := blockdev.NewMemory(size)
				p := make([]byte, size)
				fstest.NoError(blockdev.Read(tk, dev, p, 0))
				fstest.NoError(blockdev.Write(tk, small, p, 0))
				dev = small
			}
			r, err := check.Check(tk, dev, check.Options{})
			if err != nil || !r.Clean {
				t.Fatalf("not clean, %v: %s", err, fstest.Findings(tk, dev))
			}
			x := fstest.New(t, fstest.Wrap(func(blockdev.Device) blockdev.Device { return dev }))
			agrees(x, "/", root, map[inode]format.Ino{})
			if f, err := x.FS.Create(x.T, "/new", 0o644); err != nil {
				t.Error(err)
			} else {
				x.WriteAt(f, make([]byte, 100000), 5)
				x.Must(f.Close(x.T))
			}
			for _, e := range root.Entries {
				if e.Mode&format.S_IFMT == format.S_IFREG {
					x.Must(x.FS.Unlink(x.T, "/"+e.Name))
				}
			}
		})
	}
}

// The bytes do not depend on how many processors read the tree.
func TestBuildSameBytes(t *testing.T) {
	var images [3][]byte
	for i := range images {
		defer runtime.GOMAXPROCS(runtime.GOMAXPROCS([]int{1, 2, 7}[i]))
		g := &grower{r: rand.New(rand.NewPCG(5, 5)), bytes: 15 << 20}
		root := g.dir(4)
		o := Options{Open: func() Opener { return source{} }, FSID: format.UUID{1}, Now: time.Unix(1e9, 0), Compress: fstest.Must(compress.Parse("lzo"))}
		tk := sched.NewTask("build")
		dev := blockdev.NewMemory(128 << 20)
		if _, err := Build(tk, dev, o, root); err != nil {
			t.Fatal(err)
		}
		images[i] = make([]byte, dev.Size())
		fstest.NoError(blockdev.Read(tk, dev, images[i], 0))
	}
	for i := range images[1:] {
		if !bytes.Equal(images[0], images[i+1]) {
			t.Error("images differ at byte ", fstest.Differs(images[0], images[i+1]))
		}
	}
}

// twins are two names of one hash, whatever is before them.
func twins() [2]string {
	byHash := map[uint64]string{}
	for i := 0; ; i++ {
		name := fmt.Sprintf("%08d", i)
		h := format.NameHash(name)
		if other, ok := byHash[h]; ok {
			return [2]string{other, name}
		}
		byHash[h] = name
	}
}

// Names and attributes of one hash share an item, hundreds of links have more names than an item
// has room for, and a directory has more names than a leaf.
func TestBuildCrowds(t *testing.T) {
	file := func(name string) *Entry {
		return &Entry{Name: name, Mode: format.S_IFREG | 0o644, Mtime: time.Unix(1, 0), Atime: time.Unix(1, 0)}
	}
	root := &Entry{Mode: format.S_IFDIR | 0o755, Mtime: time.Unix(1, 0), Atime: time.Unix(1, 0)}
	first := file("first")
	root.Entries = append(root.Entries, first)
	for i := range 600 {
		l := file(fmt.Sprintf("link%d%s", i, strings.Repeat("x", 100)))
		l.Link = first
		root.Entries = append(root.Entries, l)
	}
	for i := range 5000 {
		root.Entries = append(root.Entries, file(fmt.Sprintf("many%d", i)))
	}
	c := &contents{}
	same := twins()
	for _, name := range same {
		root.Entries = append(root.Entries, file(name))
		c.xattrs = append(c.xattrs, image.Xattr{Name: "user." + name, Value: []byte(name)})
	}
	root.Source = c
	if format.NameHash(same[0]) != format.NameHash(same[1]) || format.NameHash("user."+same[0]) != format.NameHash("user."+same[1]) {
		t.Fatal("the hashes differ")
	}
	tk := sched.NewTask("build")
	dev := blockdev.NewMemory(128 << 20)
	if _, err := Build(tk, dev, Options{Open: func() Opener { return source{} }}, root); err != nil {
		t.Fatal(err)
	}
	x := fstest.New(t, fstest.Wrap(func(blockdev.Device) blockdev.Device { return dev }))
	agrees(x, "/", root, map[inode]format.Ino{})
}

// What cannot be read is named, and so is a device that is too small; neither leaves a file system.
func TestBuildFails(t *testing.T) {
	bad := &Entry{Name: "bad", Mode: format.S_IFREG | 0o644, Source: &contents{err: errno.EIO}}
	big := &Entry{Name: "big", Mode: format.S_IFREG | 0o644, Size: 80 << 20, Source: &contents{data: make([]byte, 80<<20)}}
	for _, e := range []*Entry{bad, big, {Name: "a/b", Mode: format.S_IFREG}, {Name: "", Mode: format.S_IFREG}, {Name: "..", Mode: format.S_IFDIR}, {Name: "x"}, {Name: "x", Mode: format.S_IFREG, Subvol: true}, {Name: "x", Mode: format.S_IFREG, Entries: []*Entry{{}}}, {Name: strings.Repeat("n", 256)},
		{Name: "link", Mode: format.S_IFLNK}, {Name: "link", Mode: format.S_IFLNK, Target: strings.Repeat("t", 4096)}} {
		root := &Entry{Mode: format.S_IFDIR | 0o755, Entries: []*Entry{e}}
		tk := sched.NewTask("build")
		dev := blockdev.NewMemory(60 << 20)
		_, err := Build(tk, dev, Options{Open: func() Opener { return source{} }}, root)
		var source *SourceError
		var space *NoSpaceError
		if e == big && !errors.As(err, &space) || e != big && (!errors.As(err, &source) || source.Entry != e) {
			t.Errorf("%.10q: %v", e.Name, err)
		}
		if found, err := Probe(tk, dev); found != "" || err != nil {
			t.Errorf("%.10q left %s, %v", e.Name, found, err)
		}
	}
}
