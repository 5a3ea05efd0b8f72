package mkfs_test

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"testing"
	"time"

	"btrlab/internal/blockdev"
	"btrlab/internal/compress"
	"btrlab/internal/errno"
	"btrlab/internal/format"
	"btrlab/internal/fs"
	"btrlab/internal/progs/image"
	. "btrlab/internal/progs/mkfs"
	"btrlab/internal/sched"
	"btrlab/internal/testing/fstest"
)

// TestBuildProperties: the property btrfs.compression and the flags c and m of what is loaded agree
// as in Linux, and decide how the data is compressed, before Options.Compress.
func TestBuildProperties(t *testing.T) {
	text := bytes.Repeat([]byte("a line of text\n"), 20000)
	noise := make([]byte, 300000)
	fstest.Random(rand.New(rand.NewPCG(3, 3)), noise)
	for _, c := range []struct {
		option, prop string
		flags        uint64
		data         []byte
		kind         string // of the extent
		wantProp     string
		wantFlags    uint64
	}{
		{"", "zstd:9", 0, text, "zstd", "zstd:9", format.InodeCompress},
		{"lzo", "zlib", 0, text, "zlib", "zlib", format.InodeCompress},
		{"lzo", "lzo", 0, text, "lzo", "lzo", format.InodeCompress},
		{"lzo", "none", 0, text, "none", "none", format.InodeNoCompress},
		{"lzo", "", format.InodeNoCompress, text, "none", "", format.InodeNoCompress},
		{"", "", format.InodeCompress, text, "zlib", "zlib", format.InodeCompress},
		{"lzo", "", format.InodeCompress, text, "lzo", "lzo", format.InodeCompress},
		{"", "", format.InodeCompress | format.InodeNoCompress, text, "none", "", format.InodeNoCompress},
		{"lzo", "zlib", format.InodeNoDataCow | format.InodeCompress, text, "none", "", format.InodeNoDataCow | format.InodeNoDataSum},
		{"", "lzo", 0, noise, "none", "lzo", format.InodeCompress},
		{"lzo", "", 0, text, "lzo", "", 0},
		{"", "", 0, text, "none", "", 0},
	} {
		src := &contents{data: c.data, flags: c.flags}
		if c.prop != "" {
			src.xattrs = []image.Xattr{{Name: "user.a", Value: []byte("1")}, {Name: fs.Compression, Value: []byte(c.prop)}}
		}
		root := &Entry{Mode: format.S_IFDIR | 0o755, Entries: []*Entry{{Name: "f", Mode: format.S_IFREG | 0o644, Size: int64(len(c.data)), Source: src}}}
		o := Options{Open: func() Opener { return source{} }, Now: time.Unix(1e9, 0)}
		if c.option != "" {
			o.Compress = fstest.Must(compress.Parse(c.option))
		}
		dev := blockdev.NewMemory(128 << 20)
		if _, err := Build(sched.NewTask("build"), dev, o, root); err != nil {
			t.Fatal(err)
		}
		x := fstest.New(t, fstest.Wrap(func(blockdev.Device) blockdev.Device { return dev }))
		n, err := x.FS.NodeAt(x.T, "/f")
		x.Must(err)
		value, err := n.Getxattr(x.T, fs.Compression)
		if errors.Is(err, errno.ENOENT) {
			value, err = nil, nil
		}
		x.Must(err)
		if string(value) != c.wantProp || n.Flags() != c.wantFlags {
			t.Errorf("%+v: property %q, flags %#x", c.prop, value, n.Flags())
		}
		n.Forget(x.T, 1)
		f := x.Open("/f")
		if have := x.ReadFile("/f"); !bytes.Equal(have, c.data) {
			t.Errorf("%q under %q: the data differs", c.prop, c.option)
		}
		m, _ := f.Inode().Extents.Lookup(x.T, 0)
		if have := compress.Name(m.Compression); have != c.kind {
			t.Errorf("%q %#x under %q: compressed with %s want %s", c.prop, c.flags, c.option, have, c.kind)
		}
		want := fstest.Must(compress.Parse("zlib")).Incompat()
		for _, s := range []string{c.prop, c.option, c.wantProp} {
			if kind, ok := compress.Property(s); ok && c.flags&format.InodeNoDataCow == 0 {
				want |= compress.Method{Kind: kind}.Incompat()
			}
		}
		if have := x.FS.Super(x.T).IncompatFlags; have&want != want {
			t.Errorf("%q under %q: features %#x", c.prop, c.option, have)
		}
		x.Must(f.Close(x.T))
		x.Close()
	}
}
