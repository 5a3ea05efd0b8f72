//go:build unix

package transfer

import (
	"bytes"
	"compress/zlib"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"btrlab/internal/errno"
	"btrlab/internal/format"
	"btrlab/internal/fs"
	ss "btrlab/internal/sendstream"
	"btrlab/internal/testing/fstest"
	"btrlab/internal/testing/need"
)

// quiet is a watcher that is told nothing, and never stops.
type quiet struct{}

func (quiet) Begin(string, uint64, uint64) {}
func (quiet) LeaveOut(LeftOut)             {}
func (quiet) Stop() error                  { return nil }

// linuxStream is a stream of btrfs send; see internal/sendstream/testdata/make.sh.
func linuxStream(t testing.TB, name string) []byte {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("../sendstream/testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func receiveAll(x *fstest.Fixture, streams ...[]byte) {
	x.Helper()
	for _, b := range streams {
		if err := Receive(x.T, x.FS, quiet{}, bytes.NewReader(b), "/"); err != nil {
			x.Fatalf("receive: %v", err)
		}
	}
}

// described is everything that a stream carries of what lies below path, a line for each name:
// attributes, contents, and which names are one inode.
func described(x *fstest.Fixture, path string) string {
	x.Helper()
	var b strings.Builder
	first := map[format.Ino]string{}
	var walk func(path, name string)
	walk = func(path, name string) {
		at, err := x.FS.Lstat(x.T, path)
		x.Must(err)
		fmt.Fprintf(&b, "%q %o %d:%d %v", name, at.Mode, at.UID, at.GID, at.Mtime.UTC().Format("15:04:05.000000000"))
		if one, ok := first[at.Ino]; ok {
			fmt.Fprintf(&b, " is %q\n", one)
			return
		}
		first[at.Ino] = name
		n, err := x.FS.NodeAt(x.T, path)
		x.Must(err)
		list, err := n.Listxattr(x.T)
		x.Must(err)
		for _, k := range list {
			v, err := n.Getxattr(x.T, k)
			x.Must(err)
			fmt.Fprintf(&b, " %s=%q", k, v)
		}
		x.Must(n.Forget(x.T, 1))
		switch at.Mode & format.S_IFMT {
		case format.S_IFREG:
			p := x.ReadFile(path)
			fmt.Fprintf(&b, " %d bytes %x", len(p), format.CRC32C(p))
		case format.S_IFLNK:
			to, err := x.FS.Readlink(x.T, path)
			x.Must(err)
			fmt.Fprintf(&b, " -> %q", to)
		case format.S_IFCHR, format.S_IFBLK:
			fmt.Fprintf(&b, " %x", at.Rdev)
		}
		b.WriteString("\n")
		if at.IsDir() {
			list, err := x.FS.ReadDir(x.T, path)
			x.Must(err)
			names := make([]string, 0, len(list))
			for _, e := range list {
				names = append(names, e.Name)
			}
			for _, e := range slices.Sorted(slices.Values(names)) {
				walk(path+"/"+e, name+"/"+e)
			}
		}
	}
	walk(path, "")
	return b.String()
}

// state is what must be as before after a receive that failed.
func state(x *fstest.Fixture) string {
	x.Helper()
	x.Must(x.FS.Sync(x.T))
	list, err := x.FS.Subvolumes(x.T)
	x.Must(err)
	entries, err := x.FS.ReadDir(x.T, "/")
	x.Must(err)
	var names []string
	for _, e := range entries {
		names = append(names, e.Name)
	}
	var ids []string
	for _, s := range list {
		ids = append(ids, fmt.Sprintf("%d %s %v", s.ID, s.Path, s.ReadOnly))
	}
	s := x.FS.Statfs(x.T)
	return fmt.Sprint(names, ids, s.DataUsed, s.MetadataUsed)
}

// Streams of Linux, of both versions, make the same subvolumes.
func TestReceiveLinux(t *testing.T) {
	var want [2]string
	for _, version := range []string{"v1", "v2"} {
		x := fstest.New(t)
		receiveAll(x, linuxStream(t, "full-"+version), linuxStream(t, "inc-"+version))
		for i, path := range []string{"/s1", "/s2"} {
			have := described(x, path)
			if want[i] == "" {
				want[i] = have
			}
			if have != want[i] {
				t.Errorf("%s of %s:\n%s\nand of v1:\n%s", path, version, have, want[i])
			}
		}
		for _, line := range []string{
			`"/d/hard" 100644 1000:1001`, `is "/a"`, `user.k="v"`, `"/n" 20644 0:0`, ` 100003`, `"/d/sym" 120777 0:0`, `-> "../a"`,
			`"/sparse" 100644 0:0`, `1048580 bytes`, `"/big" 104755`,
		} {
			if !strings.Contains(want[0], line) {
				t.Errorf("%s: %s is missing in\n%s", version, line, want[0])
			}
		}
		yes := bytes.Repeat([]byte("y\n"), 10000)
		for _, kind := range []string{"zlib", "lzo", "zstd"} {
			if have := x.ReadFile("/s2/c/" + kind); !bytes.Equal(have, yes) {
				t.Errorf("%s: compressed with %s: %d bytes differ", version, kind, len(have))
			}
		}
	}
}

// A stream that is cut short anywhere, or has a wrong bit, is one line of error, and the image is
// as before.
func TestReceiveCut(t *testing.T) {
	need.Long(t)
	x := fstest.New(t)
	receiveAll(x, linuxStream(t, "full-v2"))
	want := state(x)
	b := linuxStream(t, "inc-v2")
	step := 1
	if testing.Short() {
		step = 97
	}
	fails := func(what string, n int, b []byte) {
		t.Helper()
		err := Receive(x.T, x.FS, quiet{}, bytes.NewReader(b), "/")
		if err == nil || strings.Contains(err.Error(), "\n") {
			t.Fatalf("%s %d: error %v", what, n, err)
		}
		if have := state(x); have != want {
			t.Fatalf("%s %d: %v:\nhave %s\nwant %s", what, n, err, have, want)
		}
	}
	for n := 0; n < len(b); n += step {
		fails("cut at", n, b[:n])
	}
	for n := 17; n < len(b); n += 10 * step {
		bad := bytes.Clone(b)
		bad[n] ^= 1 << (n % 8)
		fails("wrong bit in byte", n, bad)
	}
	receiveAll(x, b)
}

// stream is what f writes, as a stream of version 2.
func stream(f func(w *ss.Writer)) []byte {
	var b bytes.Buffer
	w := ss.NewWriter(&b, 2)
	fstest.NoError(w.Header())
	f(w)
	return b.Bytes()
}

// command writes a command that has texts for attributes.
func command(w *ss.Writer, cmd ss.Cmd, texts ...any) {
	w.Begin(cmd)
	for i := 0; i < len(texts); i += 2 {
		a := texts[i].(ss.Attr)
		switch v := texts[i+1].(type) {
		case string:
			w.Text(a, v)
		case int:
			w.Uint(a, uint64(v))
		case format.UUID:
			w.UUID(a, v)
		}
	}
	fstest.NoError(w.End())
}

var sentUUID = format.UUID{1: 0xaa}

func begin(w *ss.Writer, name string) {
	command(w, ss.C_SUBVOL, ss.A_PATH, name, ss.A_UUID, sentUUID, ss.A_CTRANSID, 7)
}

// What a command may not do is said with the place, and nothing is left.
func TestReceiveRefuses(t *testing.T) {
	x := fstest.New(t)
	x.Must(x.FS.Mkdir(x.T, "/outside", 0o755))
	x.Must(x.FS.Mkdir(x.T, "/there", 0o755))
	want := state(x)
	u := format.UUID{0: 0x12, 15: 0x34}
	for _, tt := range []struct {
		name string
		do   func(w *ss.Writer)
		want string
	}{
		{"a name that is taken", func(w *ss.Writer) { begin(w, "there") }, "command=1 (subvol): there: file exists"},
		{"a path for a name", func(w *ss.Writer) { begin(w, "outside/s") }, "command=1 (subvol): outside/s: bad name of a subvolume"},
		{"above", func(w *ss.Writer) { begin(w, "..") }, "command=1 (subvol): ..: bad name of a subvolume"},
		{"no parent", func(w *ss.Writer) {
			command(w, ss.C_SNAPSHOT, ss.A_PATH, "s", ss.A_UUID, sentUUID, ss.A_CTRANSID, 7, ss.A_CLONE_UUID, u, ss.A_CLONE_CTRANSID, 5)
		}, "command=1 (snapshot): s: parent: no subvolume is 12000000-0000-0000-0000-000000000034, nor was received from it"},
		{"no subvolume", func(w *ss.Writer) { command(w, ss.C_MKDIR, ss.A_PATH, "d") }, "command=1 (mkdir): no subvolume has begun, want subvol or snapshot"},
		{"only an end", func(w *ss.Writer) { command(w, ss.C_END) }, "command=1 (end): no subvolume has begun"},
		{"dots", func(w *ss.Writer) {
			begin(w, "s")
			command(w, ss.C_MKDIR, ss.A_PATH, "../outside/d")
		}, "command=2 (mkdir): ../outside/d: bad path"},
		{"through a link", func(w *ss.Writer) {
			begin(w, "s")
			command(w, ss.C_SYMLINK, ss.A_PATH, "l", ss.A_PATH_LINK, "/outside")
			command(w, ss.C_MKDIR, ss.A_PATH, "l/d")
		}, "command=3 (mkdir): l/d: not a directory"},
		{"into a link", func(w *ss.Writer) {
			begin(w, "s")
			command(w, ss.C_SYMLINK, ss.A_PATH, "l", ss.A_PATH_LINK, "/outside")
			command(w, ss.C_WRITE, ss.A_PATH, "l", ss.A_FILE_OFFSET, 0, ss.A_DATA, "x")
		}, "command=3 (write): l: too many levels"},
		{"no file", func(w *ss.Writer) {
			begin(w, "s")
			command(w, ss.C_WRITE, ss.A_PATH, "f", ss.A_FILE_OFFSET, 0, ss.A_DATA, "x")
		}, "command=2 (write): f: no such file or directory"},
		{"no clone source", func(w *ss.Writer) {
			begin(w, "s")
			command(w, ss.C_MKFILE, ss.A_PATH, "f")
			command(w, ss.C_CLONE, ss.A_PATH, "f", ss.A_FILE_OFFSET, 0, ss.A_CLONE_LEN, 4096, ss.A_CLONE_UUID, u, ss.A_CLONE_CTRANSID, 5, ss.A_CLONE_PATH, "g", ss.A_CLONE_OFFSET, 0)
		}, "command=3 (clone): f: clone source: no subvolume is 12000000-"},
		{"encryption", func(w *ss.Writer) {
			begin(w, "s")
			command(w, ss.C_MKFILE, ss.A_PATH, "f")
			command(w, ss.C_ENCODED_WRITE, ss.A_PATH, "f", ss.A_FILE_OFFSET, 0, ss.A_UNENCODED_FILE_LEN, 1, ss.A_UNENCODED_LEN, 1, ss.A_UNENCODED_OFFSET, 0, ss.A_ENCRYPTION, 1, ss.A_DATA, "x")
		}, "command=3 (encoded_write): f: encryption 1 is not supported"},
		{"compression", func(w *ss.Writer) {
			begin(w, "s")
			command(w, ss.C_MKFILE, ss.A_PATH, "f")
			command(w, ss.C_ENCODED_WRITE, ss.A_PATH, "f", ss.A_FILE_OFFSET, 0, ss.A_UNENCODED_FILE_LEN, 1, ss.A_UNENCODED_LEN, 1, ss.A_UNENCODED_OFFSET, 0, ss.A_COMPRESSION, 4, ss.A_DATA, "x")
		}, "command=3 (encoded_write): f: compression 4 is not supported"},
		{"a range outside", func(w *ss.Writer) {
			begin(w, "s")
			command(w, ss.C_MKFILE, ss.A_PATH, "f")
			command(w, ss.C_ENCODED_WRITE, ss.A_PATH, "f", ss.A_FILE_OFFSET, 0, ss.A_UNENCODED_FILE_LEN, 2, ss.A_UNENCODED_LEN, 2, ss.A_UNENCODED_OFFSET, 1, ss.A_COMPRESSION, 1, ss.A_DATA, "x")
		}, "command=3 (encoded_write): f: bad unencoded range, have 2 bytes at 1 want at most 2 bytes"},
		{"a broken stream in it", func(w *ss.Writer) {
			begin(w, "s")
			command(w, ss.C_MKFILE, ss.A_PATH, "f")
			command(w, ss.C_ENCODED_WRITE, ss.A_PATH, "f", ss.A_FILE_OFFSET, 0, ss.A_UNENCODED_FILE_LEN, 2, ss.A_UNENCODED_LEN, 2, ss.A_UNENCODED_OFFSET, 0, ss.A_COMPRESSION, 1, ss.A_DATA, "x")
		}, "command=3 (encoded_write): f: corrupt zlib stream"},
	} {
		err := Receive(x.T, x.FS, quiet{}, bytes.NewReader(stream(tt.do)), "/")
		if err == nil || !strings.Contains(err.Error(), tt.want) || !strings.HasPrefix(err.Error(), "stream byte=") {
			t.Errorf("%s:\nhave %v\nwant %s", tt.name, err, tt.want)
		}
		if have := state(x); have != want {
			t.Fatalf("%s:\nhave %s\nwant %s", tt.name, have, want)
		}
	}
	v3 := stream(func(w *ss.Writer) {
		begin(w, "s")
		command(w, ss.C_MKFILE, ss.A_PATH, "f")
		command(w, ss.C_ENABLE_VERITY, ss.A_PATH, "f", ss.A_VERITY_ALGORITHM, 1, ss.A_VERITY_BLOCK_SIZE, 4096)
	})
	v3[13] = 3
	if err := Receive(x.T, x.FS, quiet{}, bytes.NewReader(v3), "/"); err == nil || !strings.Contains(err.Error(), "(enable_verity): f: enable_verity is not supported") {
		t.Errorf("fs-verity: have %v", err)
	}
	for _, tt := range []struct{ path, want string }{{"/outside", "the stream is empty"}, {"/nowhere", "no such file or directory"}} {
		if err := Receive(x.T, x.FS, quiet{}, strings.NewReader(""), tt.path); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: have %v want %s", tt.path, err, tt.want)
		}
	}
}

// A parent that somebody has written to is none; one that was received under the same uuid with
// another number is.
func TestReceiveParent(t *testing.T) {
	x := fstest.New(t)
	x.Must(x.FS.Subvolume(x.T, "/rw", 0o755))
	_, items, err := x.FS.SubvolItems(x.T)
	x.Must(err)
	inc := func(of format.UUID, ctransid uint64, name string) error {
		return Receive(x.T, x.FS, quiet{}, bytes.NewReader(stream(func(w *ss.Writer) {
			command(w, ss.C_SNAPSHOT, ss.A_PATH, name, ss.A_UUID, sentUUID, ss.A_CTRANSID, 9, ss.A_CLONE_UUID, of, ss.A_CLONE_CTRANSID, int(ctransid))
			command(w, ss.C_END)
		})), "/")
	}
	x.Must(inc(items[0].UUID, items[0].Ctransid, "a"))
	x.Must(x.FS.Mkdir(x.T, "/rw/new", 0o755))
	x.Must(x.FS.Sync(x.T))
	if err := inc(items[0].UUID, items[0].Ctransid, "b"); err == nil || !strings.Contains(err.Error(), "has been changed since transaction") {
		t.Errorf("a changed parent: have %v", err)
	}
	x.Must(inc(sentUUID, 12345, "c"))
}

// Two streams in a row, an interrupt in the second: the first one's subvolume stays.
func TestReceiveInterrupted(t *testing.T) {
	x := fstest.New(t)
	b := append(bytes.Clone(linuxStream(t, "full-v1")), linuxStream(t, "inc-v1")...)
	w := &watch{t: t, stopAt: 125}
	err := Receive(x.T, x.FS, w, bytes.NewReader(b), "/")
	if !errors.Is(err, errStop) || fmt.Sprint(w.names) != "[/s1 /s2]" {
		t.Fatalf("have %v, names %v", err, w.names)
	}
	list, err := x.FS.ReadDir(x.T, "/")
	x.Must(err)
	if len(list) != 1 || list[0].Name != "s1" {
		t.Errorf("have %v", list)
	}
	receiveAll(x, linuxStream(t, "inc-v1"))
}

// A full image: the part is deleted, and what was there before stays.
func TestReceiveFull(t *testing.T) {
	x := fstest.New(t, fstest.Size(128<<20))
	f := x.Create("/f")
	x.WriteAt(f, noise(1000), 0)
	x.Must(f.Close(x.T))
	want := state(x)
	err := Receive(x.T, x.FS, quiet{}, io.MultiReader(bytes.NewReader(stream(func(w *ss.Writer) {
		begin(w, "s")
		command(w, ss.C_MKFILE, ss.A_PATH, "f")
	})), &writes{}), "/")
	if !errors.Is(err, errno.ENOSPC) {
		t.Fatalf("have %v", err)
	}
	if have := state(x); have != want {
		t.Errorf("have %s\nwant %s", have, want)
	}
}

// writes is a write after another, without an end.
type writes struct {
	buf []byte
	off int
}

func (e *writes) Read(p []byte) (int, error) {
	if len(e.buf) == 0 {
		data := make([]byte, ss.MaxDataV2)
		r := rand.New(rand.NewPCG(1, uint64(e.off)))
		for i := range data {
			data[i] = byte(r.Uint32())
		}
		e.buf = stream(func(w *ss.Writer) {
			command(w, ss.C_WRITE, ss.A_PATH, "f", ss.A_FILE_OFFSET, e.off, ss.A_DATA, string(data))
		})[17:]
		e.off += len(data)
	}
	n := copy(p, e.buf)
	e.buf = e.buf[n:]
	return n, nil
}

// Device numbers are those of system calls.
func TestDeviceNumbers(t *testing.T) {
	for _, tt := range []struct{ major, minor, dev uint64 }{{1, 3, 0x103}, {8, 0, 0x800}, {259, 300, 0x11032c}, {0xfff, 0xfffff, 0xffffffff}} {
		rdev := tt.major<<20 | tt.minor
		if format.DecodeDev(tt.dev) != rdev || format.EncodeDev(rdev) != tt.dev {
			t.Errorf("%d:%d: %#x and %#x, want %#x and %#x", tt.major, tt.minor, format.DecodeDev(tt.dev), format.EncodeDev(rdev), rdev, tt.dev)
		}
	}
}

// Of compressed data a file may have a part: an extent that was written over, or cloned in part.
func TestEncodedPart(t *testing.T) {
	x := fstest.New(t)
	whole := []byte(strings.Repeat("0123456789abcdef", 1024))
	var z bytes.Buffer
	w := zlib.NewWriter(&z)
	_, err := w.Write(whole)
	x.Must(err)
	x.Must(w.Close())
	receiveAll(x, stream(func(w *ss.Writer) {
		begin(w, "s")
		command(w, ss.C_MKFILE, ss.A_PATH, "f")
		command(w, ss.C_ENCODED_WRITE, ss.A_PATH, "f", ss.A_FILE_OFFSET, 4096, ss.A_UNENCODED_FILE_LEN, 5000, ss.A_UNENCODED_LEN, len(whole), ss.A_UNENCODED_OFFSET, 4099,
			ss.A_COMPRESSION, ss.EncodedZlib, ss.A_DATA, z.String())
		command(w, ss.C_END)
	}))
	if have, want := x.ReadFile("/s/f"), append(make([]byte, 4096), whole[4099:9099]...); !bytes.Equal(have, want) {
		t.Errorf("%d bytes differ from the %d wanted", len(have), len(want))
	}
}

// The commands of version 2, an access control list without entries, and two subvolumes in one
// stream, of which the first has no end of its own.
func TestReceiveMore(t *testing.T) {
	x := fstest.New(t)
	receiveAll(x, stream(func(w *ss.Writer) {
		begin(w, "s")
		command(w, ss.C_MKFILE, ss.A_PATH, "f")
		command(w, ss.C_FALLOCATE, ss.A_PATH, "f", ss.A_FALLOCATE_MODE, 0, ss.A_FILE_OFFSET, 0, ss.A_SIZE, 20000)
		command(w, ss.C_WRITE, ss.A_PATH, "f", ss.A_FILE_OFFSET, 0, ss.A_DATA, string(noise(10000)))
		command(w, ss.C_FALLOCATE, ss.A_PATH, "f", ss.A_FALLOCATE_MODE, fs.FALLOC_FL_PUNCH_HOLE|fs.FALLOC_FL_KEEP_SIZE, ss.A_FILE_OFFSET, 0, ss.A_SIZE, 8192)
		command(w, ss.C_FILEATTR, ss.A_PATH, "f", ss.A_FILEATTR, 1)
		command(w, ss.C_UPDATE_EXTENT, ss.A_PATH, "f", ss.A_FILE_OFFSET, 0, ss.A_SIZE, 4096)
		for _, value := range []string{string(emptyACL), "some", string(emptyACL)} {
			command(w, ss.C_SET_XATTR, ss.A_PATH, "f", ss.A_XATTR_NAME, "system.posix_acl_access", ss.A_XATTR_DATA, value)
		}
		begin(w, "next")
		command(w, ss.C_END)
	}))
	want := append(make([]byte, 8192), noise(10000)[8192:]...)
	if have := x.ReadFile("/s/f"); !bytes.Equal(have, append(want, make([]byte, 10000)...)) {
		t.Errorf("%d bytes differ", len(have))
	}
	n, err := x.FS.NodeAt(x.T, "/s/f")
	x.Must(err)
	if list, err := n.Listxattr(x.T); err != nil || len(list) != 0 {
		t.Errorf("extended attributes: have %q, %v", list, err)
	}
	x.Must(n.Forget(x.T, 1))
	_, items, err := x.FS.SubvolItems(x.T)
	x.Must(err)
	for _, it := range items {
		if it.ReceivedUUID != sentUUID || it.Flags&format.RootSubvolReadonly == 0 {
			t.Errorf("have a subvolume received from %v, flags %#x", it.ReceivedUUID, it.Flags)
		}
	}
	if len(items) != 2 {
		t.Errorf("have %d subvolumes, want 2", len(items))
	}
}

// A stream writes a file, gives its name to another and goes on writing: each write goes to what
// has the name then. The file that receive keeps open between two writes is that of the old name.
func TestReceiveRenamed(t *testing.T) {
	for _, how := range []struct {
		name string
		move func(w *ss.Writer)
		a, b string // what a and b hold afterwards; empty is a name that is not there
	}{
		{"moved over", func(w *ss.Writer) {
			command(w, ss.C_RENAME, ss.A_PATH, "b", ss.A_PATH_TO, "a")
		}, "b2a2", ""},
		{"exchanged", func(w *ss.Writer) {
			command(w, ss.C_RENAME, ss.A_PATH, "a", ss.A_PATH_TO, "c")
			command(w, ss.C_RENAME, ss.A_PATH, "b", ss.A_PATH_TO, "a")
			command(w, ss.C_RENAME, ss.A_PATH, "c", ss.A_PATH_TO, "b")
		}, "b2a2", "a1"},
		{"made anew", func(w *ss.Writer) {
			command(w, ss.C_UNLINK, ss.A_PATH, "a")
			command(w, ss.C_MKFILE, ss.A_PATH, "a")
		}, "\x00\x00a2", "b2"},
		{"in a directory that is moved", func(w *ss.Writer) {
			command(w, ss.C_MKDIR, ss.A_PATH, "d")
			command(w, ss.C_RENAME, ss.A_PATH, "a", ss.A_PATH_TO, "d/a")
			command(w, ss.C_WRITE, ss.A_PATH, "d/a", ss.A_FILE_OFFSET, 0, ss.A_DATA, "d1")
			command(w, ss.C_RENAME, ss.A_PATH, "d", ss.A_PATH_TO, "e")
			command(w, ss.C_MKDIR, ss.A_PATH, "d")
			command(w, ss.C_MKFILE, ss.A_PATH, "d/a")
			command(w, ss.C_WRITE, ss.A_PATH, "d/a", ss.A_FILE_OFFSET, 0, ss.A_DATA, "d2")
			command(w, ss.C_RENAME, ss.A_PATH, "e/a", ss.A_PATH_TO, "a")
		}, "d1a2", "b2"},
	} {
		x := fstest.New(t)
		receiveAll(x, stream(func(w *ss.Writer) {
			begin(w, "s")
			command(w, ss.C_MKFILE, ss.A_PATH, "b")
			command(w, ss.C_WRITE, ss.A_PATH, "b", ss.A_FILE_OFFSET, 0, ss.A_DATA, "b2")
			command(w, ss.C_MKFILE, ss.A_PATH, "a")
			command(w, ss.C_WRITE, ss.A_PATH, "a", ss.A_FILE_OFFSET, 0, ss.A_DATA, "a1")
			how.move(w)
			command(w, ss.C_WRITE, ss.A_PATH, "a", ss.A_FILE_OFFSET, 2, ss.A_DATA, "a2")
			command(w, ss.C_END)
		}))
		for path, want := range map[string]string{"/s/a": how.a, "/s/b": how.b} {
			if _, err := x.FS.Lstat(x.T, path); want == "" {
				if !errors.Is(err, errno.ENOENT) {
					t.Errorf("%s: %s is still there, %v", how.name, path, err)
				}
			} else if have := string(x.ReadFile(path)); have != want {
				t.Errorf("%s: %s has %q, want %q", how.name, path, have, want)
			}
		}
	}
}
