//go:build unix

package transfer

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"btrlab/internal/blockdev"
	"btrlab/internal/errno"
	"btrlab/internal/format"
	"btrlab/internal/fs"
	"btrlab/internal/progs/check"
	"btrlab/internal/progs/mkfs"
	"btrlab/internal/sched"
	"btrlab/internal/testing/fstest"
	"btrlab/internal/testing/need"
)

// built makes a file system of an archive, by bytes of a file or of a pipe, and opens it.
func built(t *testing.T, s *Scan, b []byte, pipe bool) *fstest.Fixture {
	t.Helper()
	var r io.Reader = bytes.NewReader(b)
	if !pipe {
		name := filepath.Join(t.TempDir(), "a.tar")
		must(t, os.WriteFile(name, b, 0o600))
		f, err := os.Open(name)
		must(t, err)
		defer f.Close()
		r = f
	}
	root, err := s.Tar(r)
	must(t, err)
	return opened(t, s, root, mkfs.Options{})
}

// opened makes a file system of a tree, and opens it.
func opened(t *testing.T, s *Scan, root *mkfs.Entry, o mkfs.Options) *fstest.Fixture {
	t.Helper()
	image := filepath.Join(t.TempDir(), "image")
	dev, err := blockdev.Create(image, 256<<20)
	must(t, err)
	tk := sched.NewTask("build")
	_, err = s.Build(tk, dev, o, root)
	must(t, err)
	if r, err := check.Check(tk, dev, check.Options{}); err != nil || !r.Clean {
		t.Fatal(err, fstest.Findings(tk, dev))
	}
	must(t, s.Close())
	x := &fstest.Fixture{TB: t, T: tk}
	x.FS, err = fs.Open(tk, []blockdev.Device{dev}, fs.Options{Subvol: format.FS_TREE_OBJECTID})
	must(t, err)
	t.Cleanup(func() { must(t, errors.Join(x.FS.Close(tk), dev.Close())) })
	return x
}

// sameTrees compares what listing tells of two trees, and which names are of one inode.
func sameTrees(t *testing.T, what string, x, y *fstest.Fixture, path string) {
	t.Helper()
	left, right := map[string]string{}, map[string]string{}
	listing(x, path, left)
	listing(y, path, right)
	for _, name := range slices.Sorted(maps.Keys(left)) {
		if left[name] != right[name] {
			t.Errorf("%s: %s: have %.200q want %.200q", what, name, right[name], left[name])
		}
		a, err := x.FS.Lstat(x.T, name)
		x.Must(err)
		if b, err := y.FS.Lstat(y.T, name); err != nil || a.Nlink != b.Nlink {
			t.Errorf("%s: %s: have %d names, %v; want %d", what, name, b.Nlink, err, a.Nlink)
		}
	}
	if len(left) != len(right) || len(left) < 3 {
		t.Errorf("%s: %d objects, want %d", what, len(right), len(left))
	}
}

// A file system that is made of an archive is what put --from-tar makes of it in an empty one:
// links, targets, owners, modes, times, devices, attributes, contents, and blocks of zeros as
// holes.
func TestScanTar(t *testing.T) {
	x := fstest.New(t)
	must(t, NewIn(x.T, x.FS, &watch{t: t}).Tree(hostTree(t), "/tree"))
	x.Must(x.FS.Mknod(x.T, "/tree/null", format.S_IFCHR|0o666, 1<<20|3))
	x.Must(x.FS.Chown(x.T, "/tree/d", 1<<31, 99))
	x.Must(x.FS.Setxattr(x.T, "/tree/a", "user.bytes", []byte("\x00=\n\xff")))
	x.Must(x.FS.Setxattr(x.T, "/tree/a", "user.a=b%3D\n\xff", []byte("v")))
	x.Must(x.FS.Link(x.T, "/tree/null", "/tree/d/null"))
	f := x.Create("/tree/large")
	x.WriteAt(f, noise(3<<20), 1<<20)
	x.WriteAt(f, []byte("end"), 9<<20)
	x.Must(f.Close(x.T))
	x.Must(x.FS.Setxattr(x.T, "/tree/large", fs.Compression, []byte("zstd")))
	x.Must(x.FS.Mkdir(x.T, "/tree/"+strings.Repeat("n", 200), 0o700))
	var b bytes.Buffer
	must(t, NewOut(x.T, x.FS, &watch{t: t}).Tar("/", "", &b))
	for _, keep := range []Keep{All, {Xattrs: true, Special: true}, {Owners: true, Flags: true}} {
		y := fstest.New(t)
		wy := &watch{t: t}
		in := NewIn(y.T, y.FS, wy)
		in.Keep = keep
		must(t, in.Tar(bytes.NewReader(b.Bytes()), "/"))
		for _, pipe := range []bool{false, true} {
			what := fmt.Sprintf("%+v, pipe %v", keep, pipe)
			wz := &watch{t: t}
			s := NewScan(wz)
			s.Keep = keep
			z := built(t, s, b.Bytes(), pipe)
			sameTrees(t, what, y, z, "/")
			if len(wz.left) != len(wy.left) {
				t.Errorf("%s: left out %+v, want %+v", what, wz.left, wy.left)
			}
			for name, most := range map[string]uint64{"/tree/sparse": 16 << 10, "/tree/large": 3<<20 + 16<<10} {
				if at, err := z.FS.Stat(z.T, name); err != nil || at.Nbytes > most {
					t.Errorf("%s: %s has %d bytes, %v; want %d and holes", what, name, at.Nbytes, err, most)
				}
			}
		}
	}
}

// What put leaves out of an archive is left out here, with one line each, and the rest is the same:
// names that lead out, through a link, too long; links to nothing; a file in the place of a
// directory. Of two entries of one name the later counts, whatever names the first one has.
func TestScanTarHostile(t *testing.T) {
	long := strings.Repeat("n", 256)
	file := func(name string) tar.Header { return tar.Header{Name: name, Typeflag: tar.TypeReg, Size: 5} }
	kept := file("kept")
	kept.PAXRecords = map[string]string{xattrRecord + "user." + long: "v", xattrRecord: "v", xattrRecord + "user.short": "v",
		xattrRecord + "btrfs.none": "v", xattrRecord + fs.Compression: "bad"}
	owned := file("owned")
	owned.Uid = 1 << 32
	b := archive(t, file("../../up"), file("/abs"), file("deep/er/f"),
		tar.Header{Name: "link", Typeflag: tar.TypeSymlink, Linkname: "/other"}, file("link/f"),
		tar.Header{Name: "hard", Typeflag: tar.TypeLink, Linkname: "none"},
		tar.Header{Name: "hard2", Typeflag: tar.TypeLink, Linkname: "../abs"},
		file("abs2"), tar.Header{Name: "abs2", Typeflag: tar.TypeSymlink, Linkname: "x"},
		file("was"), tar.Header{Name: "was/", Typeflag: tar.TypeDir}, file("was/f"),
		tar.Header{Name: "d/", Typeflag: tar.TypeDir}, file("d/x"), kept,
		file(long), tar.Header{Name: long + "/", Typeflag: tar.TypeDir}, file("d"), file("."),
		tar.Header{Name: "target", Typeflag: tar.TypeSymlink, Linkname: strings.Repeat("t", 5000)}, tar.Header{Name: "empty", Typeflag: tar.TypeSymlink},
		tar.Header{Name: "dirlink", Typeflag: tar.TypeLink, Linkname: "d"}, tar.Header{Name: "device", Typeflag: tar.TypeChar, Devmajor: 5000, Devminor: 1}, owned,
		tar.Header{Name: "kept", Typeflag: tar.TypeLink, Linkname: "kept"},
		tar.Header{Name: "c/first", Typeflag: tar.TypeLink, Linkname: "abs"}, tar.Header{Name: "abs", Typeflag: tar.TypeSymlink, Linkname: "gone"},
		tar.Header{Name: "d/", Typeflag: tar.TypeDir, Uid: 77}, file("last"))
	y := fstest.New(t)
	wy := &watch{t: t}
	must(t, NewIn(y.T, y.FS, wy).Tar(bytes.NewReader(b), "/"))
	wz := &watch{t: t}
	z := built(t, NewScan(wz), b, false)
	var have, want []string
	for _, l := range wz.left {
		have = append(have, l.Name)
	}
	for _, l := range wy.left {
		want = append(want, l.Name)
	}
	if !slices.Equal(have, want) || len(want) < 12 {
		t.Errorf("left out %.30q want %.30q", have, want)
	}
	names := func(x *fstest.Fixture) (list []string) {
		m := map[string]string{}
		listing(x, "/", m)
		return slices.Sorted(maps.Keys(m))
	}
	if have, want := names(z), names(y); !slices.Equal(have, want) {
		t.Errorf("have %q want %q", have, want)
	}
	first, err1 := z.FS.Lstat(z.T, "/c/first")
	second, err2 := z.FS.Lstat(z.T, "/hard2")
	if first.Ino != second.Ino || first.Nlink != 2 || string(z.ReadFile("/hard2")) != "bbbbb" {
		t.Errorf("the names that are left of a file are of inodes %d and %d with %d names, %v %v", first.Ino, second.Ino, first.Nlink, err1, err2)
	}
	for _, x := range []*fstest.Fixture{y, z} {
		if at, err := x.FS.Stat(x.T, "/d"); err != nil || at.UID != 77 {
			t.Errorf("a directory that comes twice is of user %d, %v", at.UID, err)
		}
	}
	sound := archive(t, tar.Header{Name: "f", Typeflag: tar.TypeReg, Size: 9000})
	for _, bad := range [][]byte{sound[:100], sound[:512], sound[:700], sound[:9000], []byte(strings.Repeat("no archive at all", 99))} {
		name := filepath.Join(t.TempDir(), "bad")
		must(t, os.WriteFile(name, bad, 0o600))
		f, err := os.Open(name)
		must(t, err)
		for _, r := range []io.Reader{f, bytes.NewReader(bad)} {
			if _, err := NewScan(&watch{t: t}).Tar(r); err == nil || !strings.HasPrefix(err.Error(), "bad archive: ") || strings.Contains(err.Error(), "\n") {
				t.Errorf("%d bytes: %v", len(bad), err)
			}
		}
		must(t, f.Close())
	}
}

// What is excluded is not there, nor what is below it, but a link to it is a file.
func TestScanTarExclude(t *testing.T) {
	b := archive(t, tar.Header{Name: "d/", Typeflag: tar.TypeDir}, tar.Header{Name: "d/x", Typeflag: tar.TypeReg, Size: 5}, tar.Header{Name: "f.o", Typeflag: tar.TypeReg, Size: 5},
		tar.Header{Name: "one", Typeflag: tar.TypeLink, Linkname: "d/x"}, tar.Header{Name: "two", Typeflag: tar.TypeLink, Linkname: "d/x"})
	s := NewScan(&watch{t: t})
	s.Exclude, s.Owner = Exclude{"*.o", "d"}, &fs.Owner{UID: 5, GID: 6}
	z := built(t, s, b, false)
	for _, name := range []string{"/d", "/f.o"} {
		if _, err := z.FS.Lstat(z.T, name); !errors.Is(err, errno.ENOENT) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, name := range []string{"/one", "/two"} {
		if at, err := z.FS.Lstat(z.T, name); err != nil || at.Nlink != 2 || at.UID != 5 || at.GID != 6 || string(z.ReadFile(name)) != "bbbbb" {
			t.Errorf("%s: %+v, %v", name, at, err)
		}
	}
}

// The holes of a sparse file of GNU tar, whose data does not lie in the archive as in the file.
func TestScanTarSparse(t *testing.T) {
	data := noise(8192)
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	must(t, w.WriteHeader(&tar.Header{Name: "sparse", Typeflag: tar.TypeReg, Size: 8192, Mode: 0o644, Format: tar.FormatGNU}))
	_, err := w.Write(data)
	must(t, err)
	must(t, w.WriteHeader(&tar.Header{Name: "after", Typeflag: tar.TypeReg, Size: 3, Mode: 0o644}))
	_, err = w.Write([]byte("abc"))
	must(t, err)
	must(t, w.Close())
	h := b.Bytes()[:512]
	h[156] = 'S'
	const hole, size = 100 << 20, 200 << 20
	for at, v := range map[int]int64{386: hole, 398: 4096, 410: hole + 1<<20, 422: 4096, 483: size} {
		copy(h[at:], fmt.Sprintf("%011o\x00", v))
	}
	copy(h[148:156], "        ")
	sum := 0
	for _, c := range h {
		sum += int(c)
	}
	copy(h[148:156], fmt.Sprintf("%06s\x00 ", strconv.FormatInt(int64(sum), 8)))
	z := built(t, NewScan(&watch{t: t}), b.Bytes(), false)
	want := make([]byte, size)
	copy(want[hole:], data[:4096])
	copy(want[hole+1<<20:], data[4096:])
	if !bytes.Equal(z.ReadFile("/sparse"), want) || string(z.ReadFile("/after")) != "abc" {
		t.Error("the contents are not those of the archive")
	}
	if at, err := z.FS.Stat(z.T, "/sparse"); err != nil || at.Nbytes != 8192 {
		t.Errorf("has %d bytes, %v", at.Nbytes, err)
	}
}

// An archive of GNU tar, with the maps of sparse files in each of its forms, is what btrfs check
// takes for sound, and its tree is that of the host.
func TestScanTarBtrfsCheck(t *testing.T) {
	need.All(t, "btrfs", "tar")
	src := hostTree(t)
	for _, form := range []string{"--format=gnu", "--format=posix --sparse-version=0.0", "--format=posix --sparse-version=0.1", "--format=posix --sparse-version=1.0"} {
		name := filepath.Join(t.TempDir(), "a.tar")
		if out, err := exec.Command("tar", append(strings.Fields(form), "-S", "-C", src, "-cf", name, ".")...).CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		f, err := os.Open(name)
		must(t, err)
		s := NewScan(&watch{t: t})
		root, err := s.Tar(f)
		must(t, err)
		image := filepath.Join(t.TempDir(), "image")
		dev, err := blockdev.Create(image, 256<<20)
		must(t, err)
		_, err = s.Build(sched.NewTask("build"), dev, mkfs.Options{}, root)
		must(t, errors.Join(err, dev.Close(), s.Close(), f.Close()))
		if out, err := exec.Command("btrfs", "check", "--readonly", image).CombinedOutput(); err != nil {
			t.Errorf("%s: %v\n%s", form, err, out)
		}
		x := fstest.New(t, fstest.Image(image))
		for _, name := range []string{"a", "sparse", "d/second"} {
			want, err := os.ReadFile(filepath.Join(src, name))
			must(t, err)
			if !bytes.Equal(x.ReadFile("/"+name), want) {
				t.Errorf("%s: %s is not as on the host", form, name)
			}
		}
		if at, err := x.FS.Stat(x.T, "/sparse"); err != nil || at.Nbytes != 8192 {
			t.Errorf("%s: sparse has %d bytes, %v", form, at.Nbytes, err)
		}
	}
}
