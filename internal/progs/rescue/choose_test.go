package rescue_test

import (
	"errors"
	"fmt"
	gopath "path"
	"slices"
	"strings"
	"testing"

	"btrlab/internal/blockdev"
	"btrlab/internal/format"
	"btrlab/internal/progs/image"
	"btrlab/internal/progs/rescue"
	"btrlab/internal/testing/fstest"
)

// TestCopyPart: of a file only that is copied, of a directory what is in it, and of patterns what
// they match with the directories above. Names that begin alike do not count.
func TestCopyPart(t *testing.T) {
	x := fstest.New(t, fstest.NoCheck())
	for _, dir := range []string{"/d", "/d/e", "/dx", "/empty"} {
		x.Must(x.FS.Mkdir(x.T, dir, 0o755))
	}
	x.Must(x.FS.Subvolume(x.T, "/d/sub", 0o755))
	for _, path := range []string{"/f", "/d/f", "/d/e/g", "/dx/f", "/d/sub/f"} {
		f := x.Create(path)
		x.WriteAt(f, []byte(path), 0)
		x.Must(f.Close(x.T))
	}
	x.Must(x.FS.Snapshot(x.T, "/d/sub", "/snap", true))
	x.Must(x.FS.Link(x.T, "/d/f", "/d/e/hard"))
	x.Close()
	base := func(pattern string) func(string) bool {
		return func(path string) bool {
			ok, err := gopath.Match(pattern, gopath.Base(path))
			return ok && err == nil
		}
	}
	for _, c := range []struct {
		under string
		match func(string) bool
		want  string // files, then directories
	}{
		{"", nil, "d/e/g d/e/hard d/f d/sub/f dx/f f, . d d/e d/sub dx empty"},
		{"f", nil, "f,"},
		{"d/f", nil, "f,"},
		{"d", nil, "e/g e/hard f sub/f, . e sub"},
		{"d/sub", nil, "f, ."},
		{"snap", nil, "f, ."},
		{"empty", nil, ", ."},
		{"", base("f"), "d/f d/sub/f dx/f f, . d d/sub dx"},
		{"d", base("f"), "f sub/f, . sub"},
		{"", base("e"), "d/e/g d/e/hard, . d d/e"},
		{"dx", base("f"), "f, ."},
	} {
		m, err := copyPart(x, c.under, c.match)
		if have := m.list(); err != nil || have != c.want {
			t.Errorf("%q: %v, have %q want %q", c.under, err, have, c.want)
		}
	}
	for _, c := range []struct {
		under string
		match func(string) bool
	}{{"none", nil}, {"d/f/x", nil}, {"e", nil}, {"", base("none")}, {"dx", base("g")}} {
		if m, err := copyPart(x, c.under, c.match); !errors.Is(err, rescue.ErrNothing) || m.list() != "," {
			t.Errorf("%q: %v, have %q, want nothing", c.under, err, m.list())
		}
	}
}

// copyPart copies a part of an image.
func copyPart(x *fstest.Fixture, under string, match func(string) bool) (*memory, error) {
	im, err := rescue.Open(x.T, []blockdev.Device{x.Dev}, rescue.Options{})
	x.Must(err)
	m := newMemory()
	sum, err := im.Copy(m, rescue.CopyOptions{Under: under, Match: match})
	if int(sum.Whole) != len(m.files) || err == nil && int(sum.Dirs) != len(m.dirs) {
		x.Errorf("%q: summary %+v for %s", under, sum, m.list())
	}
	return m, err
}

// list is the paths of files, a comma, and those of directories.
func (m *memory) list() string {
	var files, dirs []string
	for path := range m.files {
		files = append(files, path)
	}
	for path := range m.dirs {
		dirs = append(dirs, " "+gopath.Clean(path))
	}
	slices.Sort(files)
	slices.Sort(dirs)
	return strings.Join(files, " ") + "," + strings.Join(dirs, "")
}

// TestCopyPartStray: a file whose directory is lost is part of a copy by the path that it has in
// itself, and others are not.
func TestCopyPartStray(t *testing.T) {
	x := fstest.New(t, fstest.NoCheck())
	x.Must(x.FS.Mkdir(x.T, "/d", 0o755))
	x.Must(x.FS.Mkdir(x.T, "/other", 0o755))
	for i := range 400 {
		for _, dir := range []string{"d", "other"} {
			f := x.Create(fmt.Sprintf("/%s/file-with-a-long-name-so-that-a-leaf-has-few-%d", dir, i))
			x.WriteAt(f, []byte("x"), 0)
			x.Must(f.Close(x.T))
		}
	}
	x.Close()
	im, err := image.Open(x.T, x.Dev)
	x.Must(err)
	list, err := im.Roots()
	x.Must(err)
	i := slices.IndexFunc(list, func(r image.Root) bool { return r.Key.Objectid == format.FS_TREE_OBJECTID })
	// the second leaf has names of /d
	n, err := im.Node(list[i].Ref())
	x.Must(err)
	places, _ := im.Chunks.At(n.Blockptr(1)).Places(n.Blockptr(1))
	for _, p := range places {
		x.Must(blockdev.Write(x.T, x.Dev, make([]byte, 4096), int64(p.Off)))
	}
	m, err := copyPart(x, "d", nil)
	x.Must(err)
	if len(m.files) < 300 {
		t.Errorf("have %d files, want most of 400", len(m.files))
	}
	for path := range m.files {
		if strings.Contains(path, "other") || strings.Contains(path, "/") {
			t.Errorf("have %s", path)
		}
	}
}
