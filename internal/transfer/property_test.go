//go:build unix

package transfer

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"btrlab/internal/compress"
	"btrlab/internal/format"
	"btrlab/internal/fs"
	"btrlab/internal/testing/fstest"
)

// stored is how the inode is compressed: its property, the shown flags of compression and NOCOW,
// and the kind of its first extent.
func stored(x *fstest.Fixture, path string) (prop string, flags uint64, kind string) {
	x.Helper()
	at, xattrs := inodeOf(x, path)
	if at.IsRegular() && at.Size > 0 {
		x.Must(x.FS.Sync(x.T))
		x.FS.DropCaches(x.T)
		x.ReadFile(path)
		f := x.Open(path)
		m, _ := f.Inode().Extents.Lookup(x.T, 0)
		kind = compress.Name(m.Compression)
		x.Must(f.Close(x.T))
	}
	return xattrs[fs.Compression], fs.Shown(at.Flags) & (compress.FlagsOfProperty | format.InodeNoDataCow), kind
}

// TestPropertyTravels: an archive has the property btrfs.compression, and data that comes from one
// is compressed by it, whatever the directory says that it comes into. Without a property it is the
// directory's; NOCOW files have none.
func TestPropertyTravels(t *testing.T) {
	text := bytes.Repeat([]byte("a line of text\n"), 20000)
	x := fstest.New(t)
	for name, prop := range map[string]string{"/d/lzo": "lzo", "/d/none": "none", "/d/bare": ""} {
		_ = x.FS.Mkdir(x.T, "/d", 0o755)
		f := x.Create(name)
		x.Must(x.FS.Setxattr(x.T, name, fs.Compression, []byte(prop)))
		x.WriteAt(f, text, 0)
		x.Must(f.Close(x.T))
	}
	x.Must(x.FS.Setxattr(x.T, "/d", fs.Compression, []byte("zlib:7")))
	var b bytes.Buffer
	must(t, NewOut(x.T, x.FS, &watch{t: t}).Tar("/d", "d", &b))
	// The first pages of a file are written back before its last ones come.
	y := fstest.New(t, fstest.FSOptions(func(o *fs.Options) { o.DirtyBackground, o.DirtyLimit = 16<<10, 64<<10 }))
	y.Must(y.FS.Mkdir(y.T, "/to", 0o755))
	y.Must(y.FS.Setxattr(y.T, "/to", fs.Compression, []byte("zstd")))
	into := func(nocow bool, do func(in *In) error) {
		t.Helper()
		w := &watch{t: t}
		in := NewIn(y.T, y.FS, w)
		in.Nocow = nocow
		must(t, do(in))
		if len(w.left) != 0 {
			t.Errorf("left out %+v", w.left)
		}
	}
	dir := t.TempDir()
	must(t, os.WriteFile(filepath.Join(dir, "host"), text, 0o644))
	into(false, func(in *In) error { return in.Tar(bytes.NewReader(b.Bytes()), "/to") })
	into(false, func(in *In) error { return in.Tree(dir, "/to/plain") })
	into(true, func(in *In) error { return in.Tree(dir, "/to/nocow") })
	into(true, func(in *In) error { return in.Tar(bytes.NewReader(b.Bytes()), "/to/nocow") })
	const c, m = format.InodeCompress, format.InodeNoCompress
	for path, want := range map[string]struct {
		prop  string
		flags uint64
		kind  string
	}{
		"/to/d": {"zlib:7", c, ""}, "/to/d/lzo": {"lzo", c, "lzo"}, "/to/d/none": {"none", m, "none"}, "/to/d/bare": {"zstd", c, "zstd"},
		"/to/plain/host": {"zstd", c, "zstd"}, "/to/nocow/host": {"", format.InodeNoDataCow, "none"}, "/to/nocow/d/lzo": {"", format.InodeNoDataCow, "none"},
	} {
		prop, flags, kind := stored(y, path)
		if prop != want.prop || flags != want.flags || kind != want.kind {
			t.Errorf("%s: have %q %#x %s want %q %#x %s", path, prop, flags, kind, want.prop, want.flags, want.kind)
		}
	}
}
