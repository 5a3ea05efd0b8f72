//go:build unix

package transfer

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"testing"

	"btrlab/internal/errno"
	"btrlab/internal/format"
	"btrlab/internal/fs"
	"btrlab/internal/testing/fstest"
)

// A tree that leaves an image as an archive and goes into another from it is the same: links,
// holes, targets, owners, modes, times, devices, attributes.
func TestTar(t *testing.T) {
	x := fstest.New(t)
	must(t, NewIn(x.T, x.FS, &watch{t: t}).Tree(hostTree(t), "/tree"))
	x.Must(x.FS.Mknod(x.T, "/tree/null", format.S_IFCHR|0o666, 1<<20|3))
	x.Must(x.FS.Chown(x.T, "/tree/d", 1<<31, 99))
	x.Must(x.FS.Setxattr(x.T, "/tree/a", "user.bytes", []byte("\x00=\n\xff")))
	x.Must(x.FS.Setxattr(x.T, "/tree/d", "user.d", nil))
	x.Must(x.FS.Setxattr(x.T, "/tree/a", "user.a=b%3D\n\xff", []byte("v")))
	x.Must(x.FS.Link(x.T, "/tree/null", "/tree/d/null"))
	x.Must(x.FS.Subvolume(x.T, "/tree/sub", 0o755))
	x.Must(x.FS.Mkdir(x.T, "/tree/sub/"+strings.Repeat("n", 200), 0o700))
	var b bytes.Buffer
	w := &watch{t: t}
	must(t, NewOut(x.T, x.FS, w).Tar("/tree", "tree", &b))
	if len(w.left) != 0 {
		t.Errorf("left out %+v", w.left)
	}
	y := fstest.New(t)
	w = &watch{t: t}
	must(t, NewIn(y.T, y.FS, w).Tar(bytes.NewReader(b.Bytes()), "/"))
	if len(w.left) != 0 {
		t.Errorf("left out %+v", w.left)
	}
	left, right := map[string]string{}, map[string]string{}
	listing(x, "/tree", left)
	listing(y, "/tree", right)
	for _, name := range slices.Sorted(maps.Keys(left)) {
		if left[name] != right[name] {
			t.Errorf("%s: have %.200q want %.200q", name, right[name], left[name])
		}
	}
	if len(left) != len(right) || len(left) < 11 {
		t.Errorf("%d objects, want %d", len(right), len(left))
	}
	y.Must(y.FS.Sync(y.T))
	if at, err := y.FS.Stat(y.T, "/tree/sparse"); err != nil || at.Nbytes > 1<<20 {
		t.Errorf("sparse has %d bytes, %v; want holes", at.Nbytes, err)
	}
	for a, b := range map[string]string{"/tree/a": "/tree/d/second", "/tree/null": "/tree/d/null", "/tree/pipe": "/tree/d/pipe2", "/tree/d/sym": "/tree/d/sym2"} {
		first, err1 := y.FS.Lstat(y.T, a)
		second, err2 := y.FS.Lstat(y.T, b)
		if err := errors.Join(err1, err2); err != nil || first.Ino != second.Ino || first.Nlink != 2 {
			t.Errorf("%s is inode %d, %s %d, %v", a, first.Ino, b, second.Ino, err)
		}
	}
}

// listing is what a test compares of a tree of an image, by path.
func listing(x *fstest.Fixture, path string, into map[string]string) {
	x.Helper()
	at, xattrs := inodeText(x, path)
	s := at + xattrs
	a, err := x.FS.Lstat(x.T, path)
	x.Must(err)
	switch {
	case a.IsRegular():
		s += string(x.ReadFile(path))
	case a.IsSymlink():
		target, err := x.FS.Readlink(x.T, path)
		x.Must(err)
		s += target
	case a.IsDir():
		list, err := x.FS.ReadDir(x.T, path)
		x.Must(err)
		for _, e := range list {
			listing(x, path+"/"+e.Name, into)
		}
	}
	into[path] = s
}

// inodeOf reads what a test asks of an inode of the image.
func inodeOf(x *fstest.Fixture, path string) (at fs.Attr, xattrs map[string]string) {
	x.Helper()
	xattrs = map[string]string{}
	n, err := x.FS.NodeAt(x.T, path)
	x.Must(err)
	names, err := n.Listxattr(x.T)
	x.Must(err)
	for _, name := range names {
		v, err := n.Getxattr(x.T, name)
		x.Must(err)
		xattrs[name] = string(v)
	}
	at = n.Attr(x.T)
	x.Must(n.Forget(x.T, 1))
	return at, xattrs
}

// inodeText is inodeOf in words that can be compared.
func inodeText(x *fstest.Fixture, path string) (at, xattrs string) {
	x.Helper()
	a, values := inodeOf(x, path)
	for _, name := range slices.Sorted(maps.Keys(values)) {
		xattrs += name + "=" + values[name] + " "
	}
	return fmt.Sprintf("%o %d:%d %#x %v %v ", a.Mode, a.UID, a.GID, a.Rdev, a.Mtime.UTC(), a.Atime.UTC()), xattrs
}

// archive is one of the entries, each with its body.
func archive(t *testing.T, entries ...tar.Header) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, e := range entries {
		body := strings.Repeat("b", int(e.Size))
		e.Mode = 0o644
		must(t, w.WriteHeader(&e))
		_, err := io.WriteString(w, body)
		must(t, err)
	}
	must(t, w.Close())
	return b.Bytes()
}

// No name of an archive leads out of the directory it is put into, nor through a link that the
// archive has made; what cannot be is left out, and the rest goes in. A later entry takes the place
// of an earlier one. An archive that ends too soon is an error, and its last file is not there.
func TestTarHostile(t *testing.T) {
	x := fstest.New(t)
	x.Must(x.FS.Mkdir(x.T, "/in", 0o755))
	x.Must(x.FS.Mkdir(x.T, "/other", 0o755))
	file := func(name string) tar.Header { return tar.Header{Name: name, Typeflag: tar.TypeReg, Size: 5} }
	b := archive(t,
		file("../../up"), file("/abs"), file("deep/er/f"),
		tar.Header{Name: "link", Typeflag: tar.TypeSymlink, Linkname: "/other"}, file("link/f"),
		tar.Header{Name: "hard", Typeflag: tar.TypeLink, Linkname: "none"},
		tar.Header{Name: "hard2", Typeflag: tar.TypeLink, Linkname: "../abs"},
		tar.Header{Name: "twice", Typeflag: tar.TypeDir}, file("abs2"),
		tar.Header{Name: "abs2", Typeflag: tar.TypeSymlink, Linkname: "x"},
		file("was"), tar.Header{Name: "was/", Typeflag: tar.TypeDir}, file("was/f"))
	w := &watch{t: t}
	must(t, NewIn(x.T, x.FS, w).Tar(bytes.NewReader(b), "/in"))
	var left []string
	for _, l := range w.left {
		left = append(left, l.Name)
	}
	if !slices.Equal(left, []string{"link/f", "hard"}) {
		t.Errorf("left out %q", left)
	}
	for _, name := range []string{"/in/up", "/in/abs", "/in/deep/er/f", "/in/hard2", "/in/was/f"} {
		if have := string(x.ReadFile(name)); have != "bbbbb" {
			t.Errorf("%s has %q", name, have)
		}
	}
	if list, err := x.FS.ReadDir(x.T, "/other"); err != nil || len(list) != 0 {
		t.Errorf("/other has %v, %v", list, err)
	}
	if target, err := x.FS.Readlink(x.T, "/in/abs2"); err != nil || target != "x" {
		t.Errorf("abs2 leads to %q, %v", target, err)
	}
	for _, cut := range []int{100, 512, 700, 9000} {
		y := fstest.New(t)
		err := NewIn(y.T, y.FS, &watch{t: t}).Tar(bytes.NewReader(archive(t, tar.Header{Name: "f", Typeflag: tar.TypeReg, Size: 9000})[:cut]), "/")
		if err == nil || !strings.Contains(err.Error(), "bad archive") {
			t.Errorf("cut at %d: %v", cut, err)
		}
		if _, serr := y.FS.Lstat(y.T, "/f"); !errors.Is(serr, errno.ENOENT) {
			t.Errorf("cut at %d: a part of the file stays: %v", cut, serr)
		}
	}
	if err := NewIn(x.T, x.FS, &watch{t: t}).Tar(strings.NewReader("no archive at all, and long enough to see it"), "/in"); err == nil {
		t.Error("text was taken for an archive")
	}
}

// An entry that the image refuses is left out, and those after it go in. A file is not lost to a
// link to itself.
func TestTarRefused(t *testing.T) {
	x := fstest.New(t)
	long := strings.Repeat("n", 256)
	file := func(name string) tar.Header { return tar.Header{Name: name, Typeflag: tar.TypeReg, Size: 5} }
	kept := file("kept")
	kept.PAXRecords = map[string]string{xattrRecord + "user." + long: "v", xattrRecord: "v", xattrRecord + "user.short": "v"}
	owned := file("owned")
	owned.Uid = 1 << 32
	refused := []tar.Header{
		file(long), {Name: long + "/", Typeflag: tar.TypeDir}, file("d"), file("."),
		{Name: "target", Typeflag: tar.TypeSymlink, Linkname: strings.Repeat("t", 5000)}, {Name: "empty", Typeflag: tar.TypeSymlink},
		{Name: "dirlink", Typeflag: tar.TypeLink, Linkname: "d"}, {Name: "device", Typeflag: tar.TypeChar, Devmajor: 5000, Devminor: 1}, owned,
	}
	all := append([]tar.Header{{Name: "d/", Typeflag: tar.TypeDir}, file("d/x"), kept}, refused...)
	all = append(all, tar.Header{Name: "kept", Typeflag: tar.TypeLink, Linkname: "kept"}, file("last"))
	for i := range all {
		all[i].Format = tar.FormatPAX
	}
	w := &watch{t: t}
	must(t, NewIn(x.T, x.FS, w).Tar(bytes.NewReader(archive(t, all...)), "/"))
	var left, want []string
	for _, l := range w.left {
		left = append(left, l.Name)
	}
	for _, e := range refused {
		want = append(want, e.Name)
	}
	if want = append([]string{"kept", "kept"}, want...); !slices.Equal(left, want) {
		t.Errorf("left out %.30q want %.30q", left, want)
	}
	for _, name := range []string{"/d/x", "/kept", "/last"} {
		if have := string(x.ReadFile(name)); have != "bbbbb" {
			t.Errorf("%s has %q", name, have)
		}
	}
	if _, have := inodeText(x, "/kept"); have != "user.short=v " {
		t.Errorf("kept has the attributes %q", have)
	}
	x.Must(x.FS.Sync(x.T))
}

// The attributes for which an archive has no room are left out, and the file is there.
func TestTarOfManyAttributes(t *testing.T) {
	x := fstest.New(t)
	f := x.Create("/f")
	x.WriteAt(f, []byte("f"), 0)
	x.Must(f.Close(x.T))
	const n = 100
	for i := range n {
		x.Must(x.FS.Setxattr(x.T, "/f", fmt.Sprintf("user.%d", i), noise(15000)))
	}
	var b bytes.Buffer
	w := &watch{t: t}
	must(t, NewOut(x.T, x.FS, w).Tar("/", "", &b))
	y := fstest.New(t)
	must(t, NewIn(y.T, y.FS, &watch{t: t}).Tar(&b, "/"))
	_, have := inodeOf(y, "/f")
	if len(w.left) == 0 || len(have)+len(w.left) != n || string(y.ReadFile("/f")) != "f" {
		t.Errorf("%d attributes and %d left out, want %d", len(have), len(w.left), n)
	}
}

// A capability goes where setuid goes: it stays with its owner, and leaves with it, into an image
// and out of it.
func TestCapabilityGoesWithTheOwner(t *testing.T) {
	const raw = "\x01\x00\x00\x02\x00\x20\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00"
	x := fstest.New(t)
	b := archive(t, tar.Header{Name: "tool", Typeflag: tar.TypeReg, Size: 5, Uid: 7, Gid: 8, Format: tar.FormatPAX, PAXRecords: map[string]string{xattrRecord + capability: raw}})
	for _, kept := range []bool{true, false} {
		want := ""
		if kept {
			want = capability + "=" + raw + " "
		}
		in := NewIn(x.T, x.FS, &watch{t: t})
		in.Keep.Owners = kept
		must(t, in.Tar(bytes.NewReader(b), "/"))
		if _, have := inodeText(x, "/tool"); have != want {
			t.Errorf("owner kept %v: the image has %q, want %q", kept, have, want)
		}
		x.Must(x.FS.Setxattr(x.T, "/tool", capability, []byte(raw)))
		var out bytes.Buffer
		o := NewOut(x.T, x.FS, &watch{t: t})
		o.Keep.Owners = kept
		must(t, o.Tar("/tool", "tool", &out))
		if have := strings.Contains(out.String(), xattrRecord+capability); have != kept {
			t.Errorf("owner kept %v: the archive has the capability: %v", kept, have)
		}
		must(t, x.FS.Unlink(x.T, "/tool"))
	}
}
