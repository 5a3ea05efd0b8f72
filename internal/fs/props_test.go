package fs_test

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"strings"
	"testing"

	"btrlab/internal/blockdev"
	"btrlab/internal/compress"
	"btrlab/internal/errno"
	"btrlab/internal/format"
	"btrlab/internal/fs"
	"btrlab/internal/iopath"
	"btrlab/internal/kiocb"
	"btrlab/internal/testing/fstest"
)

// compressing is what tells how an inode is compressed: c or m of lsattr, and its property.
func compressing(x *fstest.Fixture, path string) string {
	x.Helper()
	at, err := x.FS.Lstat(x.T, path)
	x.Must(err)
	word := "-"
	for _, c := range []struct {
		letter string
		flag   uint64
	}{{"c", format.InodeCompress}, {"m", format.InodeNoCompress}, {"C", format.InodeNoDataCow}} {
		if at.Flags&c.flag != 0 {
			word += c.letter
		}
	}
	n, err := x.FS.NodeAt(x.T, path)
	x.Must(err)
	defer n.Forget(x.T, 1)
	value, err := n.Getxattr(x.T, fs.Compression)
	if errors.Is(err, errno.ENOENT) {
		return word
	}
	x.Must(err)
	return word + " " + string(value)
}

// TestProperty: what Linux 6.18 says to values of btrfs.compression, and what the inode has then,
// also after another mount.
func TestProperty(t *testing.T) {
	x := fstest.New(t)
	x.Must(x.Create("/f").Close(x.T))
	for _, c := range []struct {
		value string
		err   error
		want  string
	}{
		{"zlib", nil, "-c zlib"}, {"zstd:5", nil, "-c zstd:5"}, {"zstdfoo", nil, "-c zstdfoo"}, {"lzo:3", nil, "-c lzo:3"},
		{"none", nil, "-m none"}, {"no", nil, "-m no"}, {"nonex", errno.EINVAL, "-m no"}, {"", nil, "-"}, {"", nil, "-"},
		{"zl", errno.EINVAL, "-"}, {"zlib\x00", nil, "-c zlib\x00"}, {"best", errno.EINVAL, "-c zlib\x00"}, {"lzo", nil, "-c lzo"},
	} {
		if err := x.FS.Setxattr(x.T, "/f", fs.Compression, []byte(c.value)); !errors.Is(err, c.err) || c.err == nil && err != nil {
			t.Errorf("%q: %v want %v", c.value, err, c.err)
		}
		if have := compressing(x, "/f"); have != c.want {
			t.Errorf("after %q: have %q want %q", c.value, have, c.want)
		}
		x.Reopen()
		if have := compressing(x, "/f"); have != c.want {
			t.Errorf("after %q and a mount: have %q want %q", c.value, have, c.want)
		}
	}
	x.Must(x.FS.Removexattr(x.T, "/f", fs.Compression))
	wantErr(t, "remove it again", x.FS.Removexattr(x.T, "/f", fs.Compression), errno.ENOENT)
	for _, name := range []string{"btrfs.", "btrfs.foo"} {
		wantErr(t, name, x.FS.Setxattr(x.T, "/f", name, []byte("1")), errno.EINVAL)
		wantErr(t, "no "+name, x.FS.Removexattr(x.T, "/f", name), errno.EINVAL)
	}
	x.Must(x.FS.SetFlags(x.T, "/f", format.InodeNoDataCow))
	wantErr(t, "of a NOCOW file", x.FS.Setxattr(x.T, "/f", fs.Compression, []byte("zlib")), errno.EINVAL)
	wantErr(t, "none of a NOCOW file", x.FS.Setxattr(x.T, "/f", fs.Compression, []byte("none")), errno.EINVAL)
	x.Must(x.FS.Setxattr(x.T, "/f", fs.Compression, nil))
	x.Must(x.FS.SetFlags(x.T, "/f", format.InodeImmutable))
	wantErr(t, "of an immutable file", x.FS.Setxattr(x.T, "/f", fs.Compression, []byte("zlib")), errno.EPERM)
	if have := x.FS.Super(x.T).IncompatFlags & (format.IncompatCompressLZO | format.IncompatCompressZSTD); have != format.IncompatCompressLZO|format.IncompatCompressZSTD {
		t.Errorf("incompatible features %#x", have)
	}
}

// TestChattrCompress: +c and +m as check_fsflags and btrfs_fileattr_set have them; what Linux 6.18
// says to each step, but that a property stays when another flag changes.
func TestChattrCompress(t *testing.T) {
	x := fstest.New(t)
	x.Must(x.Create("/f").Close(x.T))
	const c, m, nocow, a = format.InodeCompress, format.InodeNoCompress, format.InodeNoDataCow, format.InodeNoAtime
	for i, s := range []struct {
		flags uint64
		prop  string // set before
		err   error
		want  string
	}{
		{c, "", nil, "-c zlib"}, {0, "", nil, "-"}, {m, "", nil, "-m"}, {m | c, "", errno.EINVAL, "-m"}, {0, "", nil, "-"},
		{c, "", nil, "-c zlib"}, {c | nocow, "", errno.EINVAL, "-c zlib"}, {nocow, "", errno.EINVAL, "-c zlib"},
		{c | a, "zstd:5", nil, "-c zstd:5"}, {m | a, "none", nil, "-m none"}, {nocow, "", errno.EINVAL, "-m none"}, {a, "", nil, "-"},
		{c, "", nil, "-c zlib"}, {m, "", nil, "-m"}, {0, "", nil, "-"},
		{nocow, "", nil, "-C"}, {nocow | c, "", errno.EINVAL, "-C"}, {nocow | m, "", errno.EINVAL, "-C"}, {m, "", errno.EINVAL, "-C"}, {0, "", nil, "-"},
		{nocow | m, "", nil, "-mC"},
	} {
		if s.prop != "" {
			x.Must(x.FS.Setxattr(x.T, "/f", fs.Compression, []byte(s.prop)))
		}
		if err := x.FS.SetFlags(x.T, "/f", s.flags); !errors.Is(err, s.err) || s.err == nil && err != nil {
			t.Errorf("step %d: %v want %v", i, err, s.err)
		}
		if have := compressing(x, "/f"); have != s.want {
			t.Errorf("step %d: have %q want %q", i, have, s.want)
		}
	}
	// The kind is the mount's, if that has one.
	x.Must(x.Create("/g").Close(x.T))
	setCompress(x, "lzo")
	x.Must(x.FS.SetFlags(x.T, "/g", c))
	if have := compressing(x, "/g"); have != "-c lzo" {
		t.Errorf("under compress=lzo: %q", have)
	}
}

// TestPropertyInherited: files and directories get the kind of their directory, a subvolume that of
// the top directory above, and nothing else has one.
func TestPropertyInherited(t *testing.T) {
	x := fstest.New(t)
	x.Must(x.FS.Mkdir(x.T, "/d", 0o755))
	x.Must(x.FS.Setxattr(x.T, "/d", fs.Compression, []byte("zstd:5")))
	x.Must(x.FS.Subvolume(x.T, "/d/plain", 0o755))
	x.Must(x.FS.Setxattr(x.T, "/", fs.Compression, []byte("lzo")))
	x.Must(x.FS.Subvolume(x.T, "/d/sub", 0o755))
	x.Reopen()
	x.Must(x.FS.Mkdir(x.T, "/d/d", 0o755))
	x.Must(x.Create("/d/d/f").Close(x.T))
	x.Must(x.Create("/d/sub/f").Close(x.T))
	x.Must(x.FS.Symlink(x.T, "f", "/d/link"))
	x.Must(x.FS.Mknod(x.T, "/d/pipe", format.S_IFIFO|0o644, 0))
	x.Must(x.FS.Setxattr(x.T, "/d/pipe", fs.Compression, []byte("zlib"))) // ignored
	wantErr(t, "a wrong value of a pipe", x.FS.Setxattr(x.T, "/d/pipe", fs.Compression, []byte("best")), errno.EINVAL)
	x.Must(x.FS.Mkdir(x.T, "/none", 0o755))
	x.Must(x.FS.Setxattr(x.T, "/none", fs.Compression, []byte("none")))
	x.Must(x.Create("/none/f").Close(x.T))
	x.Must(x.FS.Snapshot(x.T, "/", "/snap", true))
	for path, want := range map[string]string{"/d": "-c zstd:5", "/d/d": "-c zstd", "/d/d/f": "-c zstd", "/d/plain": "-", "/d/sub": "-c lzo",
		"/d/sub/f": "-c lzo", "/d/pipe": "-c", "/none": "-m none", "/none/f": "-m", "/snap/d/d/f": "-c zstd"} {
		if have := compressing(x, path); have != want {
			t.Errorf("%s: have %q want %q", path, have, want)
		}
	}
}

// kindOf is the compression of the extent at the start of the file.
func kindOf(x *fstest.Fixture, f *fs.File) string {
	x.Helper()
	x.Must(x.FS.Sync(x.T))
	x.FS.DropCaches(x.T)
	_, err := f.ReadAt(x.T, make([]byte, 4096), 0)
	x.Must(err)
	m, ok := f.Inode().Extents.Lookup(x.T, 0)
	if !ok {
		x.Fatal("nothing is known of the extent")
	}
	return compress.Name(m.Compression)
}

// TestCompressOrder: the property comes before the mount option, the flag after it, and what is
// NOCOMPRESS, NOCOW or preallocated is not compressed.
func TestCompressOrder(t *testing.T) {
	text := []byte(strings.Repeat("a line of text\n", 20000))
	for _, c := range []struct {
		option, prop string
		flags        uint64
		want         string
	}{
		{"", "", 0, "none"}, {"", "zlib", 0, "zlib"}, {"", "lzo", 0, "lzo"}, {"", "zstd:9", 0, "zstd"}, {"lzo", "zstd", 0, "zstd"},
		{"zstd:1", "zstd", 0, "zstd"}, {"lzo", "", 0, "lzo"}, {"lzo", "none", 0, "none"}, {"", "none", 0, "none"},
		{"", "", format.InodeCompress, "zlib"}, {"zstd", "", format.InodeCompress, "zstd"}, {"lzo", "", format.InodeNoDataCow, "none"},
	} {
		x := fstest.New(t)
		setCompress(x, c.option)
		f := x.Create("/f")
		if c.flags != 0 {
			x.Must(f.SetFlags(x.T, c.flags))
		}
		if c.prop != "" {
			x.Must(x.FS.Setxattr(x.T, "/f", fs.Compression, []byte(c.prop)))
		}
		x.WriteAt(f, text, 0)
		if have := kindOf(x, f); have != c.want {
			t.Errorf("%+v: have %s", c, have)
		}
		x.Must(f.Close(x.T))
		x.Close()
	}
}

// shy is n bytes of which a sample looks like text, and which save less than a sector: 240 of 256
// are noise.
func shy(n int) []byte {
	p := make([]byte, n)
	fstest.Random(rand.New(rand.NewPCG(9, 9)), p)
	for i := 0; i < n; i += 256 {
		clear(p[i : i+16])
	}
	return p
}

// TestNotWorthIt: a file with the flag alone that is found not to compress is NOCOMPRESS from then
// on, as in Linux; one with the property never is, and neither is one whose sample was enough. Only
// a file that was really handed to compression has async extents.
func TestNotWorthIt(t *testing.T) {
	noise := make([]byte, 8192)
	fstest.Random(rand.New(rand.NewPCG(8, 8)), noise)
	for _, c := range []struct {
		name        string
		prop, force string
		data        []byte
		want        string
		async       bool
	}{
		{"flag", "", "", shy(8192), "-cm", true},
		{"flag, noise", "", "", noise, "-c", false},
		{"property", "zlib", "", shy(8192), "-c zlib", true},
		{"property, noise", "zlib", "", noise, "-c zlib", false},
		{"force", "", "zlib", shy(8192), "-c", true},
		{"force, noise", "", "zlib", noise, "-c", true},
	} {
		x := fstest.New(t)
		setCompress(x, c.force)
		f := x.Create("/f")
		if c.prop != "" {
			x.Must(x.FS.Setxattr(x.T, "/f", fs.Compression, []byte(c.prop)))
		} else {
			f.Inode().AddFlags(format.InodeCompress) // as mkfs.btrfs does, without a property
		}
		x.WriteAt(f, c.data, 0)
		if have := kindOf(x, f); have != "none" {
			t.Errorf("%s: compressed with %s", c.name, have)
		}
		if have := compressing(x, "/f"); have != c.want {
			t.Errorf("%s: have %q want %q", c.name, have, c.want)
		}
		if have := f.Inode().HasAsyncExtent(); have != c.async {
			t.Errorf("%s: async extents %v", c.name, have)
		}
		x.Must(f.Close(x.T))
		x.Reopen()
		if have := compressing(x, "/f"); have != c.want {
			t.Errorf("%s: after a mount have %q want %q", c.name, have, c.want)
		}
		n, err := x.FS.NodeAt(x.T, "/f")
		x.Must(err)
		if err := n.SetFlags(x.T, n.Flags()|format.InodeNoAtime); err != nil {
			t.Errorf("%s: another flag: %v", c.name, err)
		}
		n.Forget(x.T, 1)
		x.Close()
	}
}

// TestPropertyFsync: after a power cut the log has the property with its flag, and what is written
// after replay is compressed by it.
func TestPropertyFsync(t *testing.T) {
	var mem *blockdev.Memory
	x := fstest.New(t, fstest.Logging(fstest.Wrap(func(d blockdev.Device) blockdev.Device { mem = d.(*blockdev.Memory); return d }))...)
	f := x.Create("/f")
	x.Must(x.FS.Setxattr(x.T, "/f", fs.Compression, []byte("lzo")))
	text := bytes.Repeat([]byte("0123456789abcde\n"), 8192)
	// An fsync commits where the ordered extents have finished before it logs: a compressed extent
	// of the tree is not logged (treelog's copier.sums). On a loaded machine that happens now and
	// then.
	for try := 0; fstest.SuperOn(t, x.T, mem).LogRoot == 0; try++ {
		if try == 20 {
			t.Fatal("no fsync wrote a log")
		}
		x.Must(x.FS.Setxattr(x.T, "/f", fs.Compression, []byte("lzo")))
		x.Must(x.FS.Sync(x.T))
		x.Must(x.FS.Setxattr(x.T, "/f", fs.Compression, []byte("zlib")))
		x.WriteAt(f, text, 0)
		x.Must(f.Fsync(x.T))
	}
	y, err := fs.Open(x.T, []blockdev.Device{mem.Snapshot()}, fs.Options{})
	x.Must(err)
	n, err := y.NodeAt(x.T, "/f")
	x.Must(err)
	if value, err := n.Getxattr(x.T, fs.Compression); err != nil || string(value) != "zlib" || n.Flags()&format.InodeCompress == 0 {
		t.Errorf("after replay: %q, flags %#x, %v", value, n.Flags(), err)
	}
	n.Forget(x.T, 1)
	x.Must(y.Close(x.T))
	x.Must(f.Close(x.T))
}

// TestDirectOnCompressed: direct I/O over compressed extents goes through the page cache, and with
// NOWAIT it is EAGAIN, also in a file that has preallocated extents, which may be written in place.
func TestDirectOnCompressed(t *testing.T) {
	for _, policy := range []string{"locked", "nowait-4.13", "nowait-5.19", "modern"} {
		x := fstest.New(t, fstest.Policy(policy))
		f := x.Create("/f")
		x.Must(x.FS.Setxattr(x.T, "/f", fs.Compression, []byte("zstd")))
		want := bytes.Repeat([]byte("0123456789abcde\n"), 16384)
		x.WriteAt(f, want, 0)
		x.Must(x.FS.Sync(x.T))
		x.Must(f.Fallocate(x.T, 0, int64(len(want)), 65536))
		want = append(want, make([]byte, 65536)...)
		x.Must(x.FS.Sync(x.T))
		x.FS.DropCaches(x.T)
		nowait := kiocb.Request{Flags: kiocb.Direct | kiocb.Nowait, Pos: 8192}
		if n, err := f.WriteIter(x.T, nowait, iopath.Source{Buf: make([]byte, 4096)}); !errors.Is(err, errno.EAGAIN) {
			t.Errorf("%s: NOWAIT write: %d, %v", policy, n, err)
		}
		if n, err := f.ReadIter(x.T, nowait, make([]byte, 4096)); !errors.Is(err, errno.EAGAIN) {
			t.Errorf("%s: NOWAIT read: %d, %v", policy, n, err)
		}
		if f.Inode().Pages.Pages() != 0 {
			t.Errorf("%s: a NOWAIT request left pages", policy)
		}
		p := bytes.Repeat([]byte("direct.."), 1024)
		n, err := f.WriteDirect(x.T, p, 8192)
		x.Must(err)
		copy(want[8192:], p[:n])
		have := make([]byte, len(want))
		n, err = f.ReadDirect(x.T, have, 0)
		x.Must(err)
		if !bytes.Equal(have[:n], want) {
			t.Errorf("%s: direct: %s", policy, fstest.DiffAt(have, want))
		}
		x.FS.DropCaches(x.T)
		if have := x.ReadFile("/f"); !bytes.Equal(have, want) {
			t.Errorf("%s: buffered: %s", policy, fstest.DiffAt(have, want))
		}
		x.Must(f.Close(x.T))
		x.Close()
	}
}
