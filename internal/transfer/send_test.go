//go:build unix

package transfer

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	gopath "path"
	"slices"
	"strings"
	"testing"
	"time"

	"btrlab/internal/blockdev"
	"btrlab/internal/blockdev/dm"
	"btrlab/internal/errno"
	"btrlab/internal/format"
	"btrlab/internal/fs"
	ss "btrlab/internal/sendstream"
	"btrlab/internal/testing/fstest"
)

// frozenAt opens a read-only subvolume.
func frozenAt(x *fstest.Fixture, path string) *fs.Frozen {
	x.Helper()
	n, err := x.FS.NodeAt(x.T, path)
	x.Must(err)
	defer n.Forget(x.T, 1)
	z, err := n.Frozen(x.T)
	x.Must(err)
	return z
}

// sent is the stream of a subvolume, or of its difference from another one.
func sent(x *fstest.Fixture, version uint32, parent, path string, clones ...string) []byte {
	x.Helper()
	s := Send{Version: version}
	if parent != "" {
		s.Parent = frozenAt(x, parent)
	}
	for _, c := range clones {
		s.Clones = append(s.Clones, frozenAt(x, c))
	}
	var b bytes.Buffer
	x.Must(s.Send(x.T, x.FS, quiet{}, frozenAt(x, path), &b))
	return b.Bytes()
}

// commands lists the commands of a stream, as NAME PATH [SECOND PATH] [RANGE].
func commands(t testing.TB, b []byte) (list []string) {
	t.Helper()
	r := ss.NewReader(bytes.NewReader(b))
	fstest.NoError(r.Header())
	for {
		c, err := r.Next()
		fstest.NoError(err)
		line := strings.TrimSpace(fmt.Sprint(c.Cmd, " ", c.Text(ss.A_PATH)))
		for _, a := range []ss.Attr{ss.A_PATH_TO, ss.A_PATH_LINK, ss.A_CLONE_PATH, ss.A_XATTR_NAME} {
			if c.Has(a) {
				line += " " + c.Text(a)
			}
		}
		switch c.Cmd {
		case ss.C_WRITE:
			line += fmt.Sprintf(" %d+%d", c.Uint(ss.A_FILE_OFFSET), len(c.Bytes(ss.A_DATA)))
		case ss.C_CLONE:
			line += fmt.Sprintf(" %d+%d from %d", c.Uint(ss.A_FILE_OFFSET), c.Uint(ss.A_CLONE_LEN), c.Uint(ss.A_CLONE_OFFSET))
		case ss.C_UPDATE_EXTENT, ss.C_TRUNCATE:
			line += fmt.Sprintf(" %d+%d", c.Uint(ss.A_FILE_OFFSET), c.Uint(ss.A_SIZE))
		}
		list = append(list, line)
		if c.Cmd == ss.C_END {
			return list
		}
	}
}

// author changes a subvolume at random.
type author struct {
	x    *fstest.Fixture
	r    *rand.Rand
	top  string
	made int
}

// all lists the names below the top by kind, with the top among the directories.
func (a *author) all() (dirs, files, others []string) {
	dirs = []string{a.top}
	for i := 0; i < len(dirs); i++ {
		list, err := a.x.FS.ReadDir(a.x.T, dirs[i])
		a.x.Must(err)
		for _, e := range list {
			path := gopath.Join(dirs[i], e.Name)
			switch e.Type {
			case format.FtDir:
				dirs = append(dirs, path)
			case format.FtRegFile:
				files = append(files, path)
			default:
				others = append(others, path)
			}
		}
	}
	return dirs, files, others
}

func pick(r *rand.Rand, list []string) string { return list[r.IntN(len(list))] }

// fresh is a name, often one that others have had before.
func (a *author) fresh(dirs []string) string {
	a.made++
	return gopath.Join(pick(a.r, dirs), fmt.Sprintf("n%d", a.r.IntN(12)))
}

// step does something; what the file system refuses is not done.
func (a *author) step() {
	f, t, r := a.x.FS, a.x.T, a.r
	dirs, files, others := a.all()
	any := slices.Concat(dirs[1:], files, others)
	what := r.IntN(24)
	switch {
	case what < 3 || len(any) == 0:
		_ = f.Mkdir(t, a.fresh(dirs), 0o755)
	case what < 7:
		if x, err := f.OpenFile(t, a.fresh(dirs), fs.O_RDWR|fs.O_CREAT|fs.O_EXCL, 0o644); err == nil {
			a.write(x)
			a.x.Must(x.Close(t))
		}
	case what < 8:
		_ = f.Symlink(t, fmt.Sprintf("to%d", a.made), a.fresh(dirs))
	case what < 9:
		_ = f.Mknod(t, a.fresh(dirs), []uint32{format.S_IFIFO, format.S_IFCHR, format.S_IFSOCK}[r.IntN(3)]|0o640, 1<<20|uint64(r.IntN(1000)))
	case what < 14:
		_ = f.Rename(t, pick(r, any), a.fresh(dirs))
	case what < 15 && len(dirs) > 2: // two change places
		p, q, tmp := pick(r, dirs[1:]), pick(r, dirs[1:]), gopath.Join(a.top, "tmp")
		if f.Rename(t, p, tmp) == nil {
			_ = f.Rename(t, q, p)
			if f.Rename(t, tmp, q) != nil {
				_ = f.Rename(t, tmp, gopath.Join(a.top, fmt.Sprintf("x%d", a.made)))
			}
		}
	case what < 17 && len(files)+len(others) > 0:
		_ = f.Link(t, pick(r, slices.Concat(files, others)), a.fresh(dirs))
	case what < 19:
		a.remove(pick(r, any))
	case what < 22 && len(files) > 0:
		x, err := f.OpenFile(t, pick(r, files), fs.O_RDWR, 0)
		a.x.Must(err)
		a.write(x)
		a.x.Must(x.Close(t))
	case what < 23 && len(files) > 1:
		src, err := f.OpenFile(t, pick(r, files), fs.O_RDONLY, 0)
		a.x.Must(err)
		dst, err := f.OpenFile(t, pick(r, files), fs.O_RDWR, 0)
		a.x.Must(err)
		if !dst.SameInode(src) && r.IntN(2) == 0 {
			_ = dst.ReflinkAll(t, src)
		} else {
			_ = dst.Reflink(t, src, int64(r.IntN(4))*4096, int64(1+r.IntN(4))*4096, int64(r.IntN(8))*4096)
		}
		a.x.Must(dst.Close(t))
		a.x.Must(src.Close(t))
	default:
		a.attrs(pick(r, append(any, a.top)))
	}
}

func (a *author) remove(path string) {
	at, err := a.x.FS.Lstat(a.x.T, path)
	a.x.Must(err)
	if !at.IsDir() {
		a.x.Must(a.x.FS.Unlink(a.x.T, path))
		return
	}
	list, err := a.x.FS.ReadDir(a.x.T, path)
	a.x.Must(err)
	for _, e := range list {
		a.remove(gopath.Join(path, e.Name))
	}
	a.x.Must(a.x.FS.Rmdir(a.x.T, path))
}

// write changes contents or size.
func (a *author) write(x *fs.File) {
	t, r := a.x.T, a.r
	for range 1 + r.IntN(3) {
		off, n := int64(r.IntN(60000)), int64(1+r.IntN(20000))
		if r.IntN(3) == 0 {
			n = int64(1 + r.IntN(300))
		}
		var err error
		switch r.IntN(6) {
		case 0:
			err = x.Truncate(t, off)
		case 1:
			err = x.Fallocate(t, fs.FALLOC_FL_PUNCH_HOLE|fs.FALLOC_FL_KEEP_SIZE, off, n)
		case 2:
			err = x.Fallocate(t, uint32(r.IntN(2)), off, n)
		case 3:
			off = 0
			fallthrough
		default:
			p := make([]byte, n)
			fstest.Random(r, p)
			_, err = x.WriteAt(t, p, off)
		}
		a.x.Must(err)
	}
}

func (a *author) attrs(path string) {
	n, err := a.x.FS.NodeAt(a.x.T, path)
	a.x.Must(err)
	t, r := a.x.T, a.r
	switch name := fmt.Sprintf("user.%d", r.IntN(3)); r.IntN(5) {
	case 0:
		if !n.IsSymlink() {
			err = n.SetAttr(t, fs.SetAttr{Set: fs.SetMode, Mode: uint32(r.IntN(0o10000))})
		}
	case 1:
		err = n.SetAttr(t, fs.SetAttr{Set: fs.SetUID | fs.SetGID, UID: uint32(r.IntN(5)), GID: uint32(r.IntN(5))})
	case 2:
		err = n.Removexattr(t, name)
	case 3:
		name = capability
		fallthrough
	default:
		err = n.Setxattr(t, name, fmt.Appendf(nil, "%d", r.IntN(1000)))
	}
	if !errors.Is(err, errno.ENOENT) && !errors.Is(err, errno.EPERM) { // user.* of a link
		a.x.Must(err)
	}
	a.x.Must(n.SetAttr(t, fs.SetAttr{Set: fs.SetAtime | fs.SetMtime, Atime: fstest.Epoch, Mtime: fstest.Epoch.Add(time.Duration(r.IntN(1e9)))}))
	a.x.Must(n.Forget(t, 1))
}

// Whatever happens to a subvolume between two snapshots, the difference makes the second of the
// first; the number of an inode may be used again.
func TestSendRandom(t *testing.T) {
	rounds := 60
	if testing.Short() {
		rounds = 8
	}
	for seed := range rounds {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			later := fstest.FSOptions(func(o *fs.Options) { o.Now = func() time.Time { return fstest.Epoch.Add(time.Hour) } })
			x, y := fstest.New(t, fstest.Size(256<<20)), fstest.New(t, fstest.Size(256<<20), later)
			x.Must(x.FS.Subvolume(x.T, "/s", 0o755))
			a := author{x: x, r: rand.New(rand.NewPCG(uint64(seed), 1)), top: "/s"}
			version := uint32(1 + seed%2)
			last := ""
			for i := range 4 {
				for range 5 + a.r.IntN(60) {
					a.step()
				}
				if a.r.IntN(3) == 0 {
					x.Reopen()
				}
				name := fmt.Sprintf("/snap%d", i)
				x.Must(x.FS.Snapshot(x.T, "/s", name, true))
				for _, parent := range slices.Compact([]string{"", last}) {
					b := sent(x, version, parent, name)
					if err := Receive(y.T, y.FS, quiet{}, bytes.NewReader(b), "/"); err != nil {
						t.Fatalf("snapshot %d, parent %q: %v\n%s", i, parent, err, strings.Join(commands(t, b), "\n"))
					}
					if have, want := described(y, name), described(x, name); have != want {
						t.Fatalf("snapshot %d, parent %q:\n%s\nhave\n%s\nwant\n%s", i, parent, strings.Join(commands(t, b), "\n"), have, want)
					}
					if parent != last {
						y.Must(y.FS.DeleteSubvolume(y.T, name)) // the difference comes next
					}
				}
				last = name
			}
		})
	}
}

// The parts of a stream that have a rule of their own.
func TestSendCommands(t *testing.T) {
	x := fstest.New(t)
	f, tk := x.FS, x.T
	x.Must(f.Subvolume(tk, "/s", 0o755))
	put := func(path string, p []byte, off int64) {
		t.Helper()
		h, err := f.OpenFile(tk, path, fs.O_RDWR|fs.O_CREAT, 0o644)
		x.Must(err)
		x.WriteAt(h, p, off)
		x.Must(h.Close(tk))
	}
	reflink := func(from, to string) {
		t.Helper()
		src, dst := x.Open(from), x.Create(to)
		x.Must(dst.ReflinkAll(tk, src))
		x.Must(src.Close(tk))
		x.Must(dst.Close(tk))
	}
	put("/s/big", noise(100000), 0)
	put("/s/sparse", noise(10), 1<<20)
	reflink("/s/big", "/s/copy")
	x.Must(f.Mkdir(tk, "/s/acl", 0o755))
	x.Must(f.Setxattr(tk, "/s/acl", defaultACL, []byte("a list")))
	x.Must(f.Setxattr(tk, "/s/big", capability, []byte("may")))
	x.Must(f.Snapshot(tk, "/s", "/s1", true))
	put("/s/big", noise(5000), 50000)
	x.Must(f.Setxattr(tk, "/s/big", capability, []byte("may")))
	put("/s/sparse", noise(20), 8192)
	reflink("/s/copy", "/s/acl/third")
	put("/s/acl/new", noise(7), 0)
	x.Must(f.Snapshot(tk, "/s", "/s2", true))
	x.Must(f.Subvolume(tk, "/other", 0o755))
	reflink("/s/big", "/other/mine")
	x.Must(f.Snapshot(tk, "/other", "/o1", true))

	has := func(name string, list []string, want ...string) {
		t.Helper()
		at := 0
		for _, w := range want {
			i := slices.Index(list[at:], w)
			if i < 0 {
				t.Errorf("%s: %q is missing, or out of order, in\n%s", name, w, strings.Join(list, "\n"))
				return
			}
			at += i + 1
		}
	}
	full := commands(t, sent(x, 1, "", "/s1"))
	has("48 KiB in version 1", full, "write big 0+49152", "write big 49152+49152", "write big 98304+1696", "chown big", "set_xattr big "+capability)
	has("a hole is not sent", full, "write sparse 1048576+10")
	has("a clone in the subvolume", full, "clone copy big 0+100000 from 0")
	has("a default ACL after what is made in its directory", full, "mkdir acl", "set_xattr acl "+defaultACL)
	has("128 KiB in version 2", commands(t, sent(x, 2, "", "/s1")), "write big 0+100000")
	inc := commands(t, sent(x, 1, "/s1", "/s2"))
	has("a default ACL does not go to what is new", inc, "remove_xattr acl "+defaultACL, "mkfile acl/third", "set_xattr acl "+defaultACL)
	has("only what has changed, and the capability, which a write takes", inc, "write big 49152+8192", "set_xattr big "+capability)
	has("data in a hole", inc, "write sparse 8192+4096")
	has("a clone from the parent", inc, "clone acl/third big 0+100000 from 0")
	has("a clone source", commands(t, sent(x, 1, "", "/o1", "/s2")), "clone mine big 0+49152 from 0", "clone mine big 49152+8192 from 49152")
	if list := commands(t, sent(x, 1, "/s2", "/s2")); len(list) != 2 {
		t.Errorf("nothing has changed: have %q", list)
	}
	var b bytes.Buffer
	s := Send{Version: 1, NoData: true, Parent: frozenAt(x, "/s1")}
	x.Must(s.Send(tk, f, quiet{}, frozenAt(x, "/s2"), &b))
	has("without data", commands(t, b.Bytes()), "update_extent big 49152+8192")

	for _, path := range []string{"/s", "/s1/acl"} {
		n, err := f.NodeAt(tk, path)
		x.Must(err)
		if _, err := n.Frozen(tk); !errors.Is(err, errno.EPERM) && !errors.Is(err, errno.EINVAL) {
			t.Errorf("%s: have %v, want a refusal", path, err)
		}
		x.Must(n.Forget(tk, 1))
	}
}

// The number of a deleted inode is used again after the next open; what has it is another one, also
// when it is of the same kind and has the same name.
func TestSendNumberUsedAgain(t *testing.T) {
	x, y := fstest.New(t), fstest.New(t)
	x.Must(x.FS.Subvolume(x.T, "/s", 0o755))
	put := func(p []byte, attr string) {
		h := x.Create("/s/f")
		x.WriteAt(h, p, 0)
		x.Must(h.Close(x.T))
		x.Must(x.FS.Setxattr(x.T, "/s/f", attr, []byte("x")))
	}
	put(noise(9000), "user.old")
	x.Must(x.FS.Snapshot(x.T, "/s", "/s1", true))
	x.Must(x.FS.Unlink(x.T, "/s/f"))
	x.Reopen()
	put(noise(5), "user.new")
	x.Must(x.FS.Snapshot(x.T, "/s", "/s2", true))
	for _, path := range []string{"/s1/f", "/s2/f"} {
		if at, err := x.FS.Stat(x.T, path); err != nil || at.Ino != 257 {
			t.Fatalf("%s: inode %d, %v", path, at.Ino, err)
		}
	}
	receiveAll(y, sent(x, 1, "", "/s1"), sent(x, 1, "/s1", "/s2"))
	if have, want := described(y, "/s2"), described(x, "/s2"); have != want {
		t.Errorf("have %s\nwant %s", have, want)
	}
}

// A file that shares extents with itself: a range is cloned from one that lies before it.
func TestSendSelfClone(t *testing.T) {
	x, y := fstest.New(t), fstest.New(t)
	x.Must(x.FS.Subvolume(x.T, "/s", 0o755))
	h := x.Create("/s/f")
	x.WriteAt(h, noise(65536), 65536)
	x.Must(h.Reflink(x.T, h, 65536, 32768, 0))
	x.Must(h.Reflink(x.T, h, 98304, 32768, 32768))
	x.Must(h.Close(x.T))
	x.Must(x.FS.Snapshot(x.T, "/s", "/s1", true))
	b := sent(x, 1, "", "/s1", "/s1")
	receiveAll(y, b)
	if have, want := described(y, "/s1"), described(x, "/s1"); have != want {
		t.Errorf("have %s\nwant %s\n%s", have, want, strings.Join(commands(t, b), "\n"))
	}
	if list := strings.Join(commands(t, b), "\n"); strings.Count(list, "clone f f") != 2 {
		t.Errorf("have\n%s\nwant two clones", list)
	}
}

// A send that cannot read what it sends fails: a stream without an error is whole, and its receiver
// deletes nothing. The rest of a file, or an empty file, would be taken for the file.
func TestSendUnread(t *testing.T) {
	var dev *dm.Flakey
	x := fstest.New(t, fstest.Faults(&dev))
	f := x.Create("/f")
	x.WriteAt(f, noise(3<<20), 0)
	x.Must(f.Close(x.T))
	x.Must(x.FS.Snapshot(x.T, "/", "/s", true))
	x.Must(x.FS.Sync(x.T))
	whole := len(sent(x, 1, "", "/s"))
	read := func(faults ...dm.Fault) (n int, err error) {
		t.Helper()
		z := frozenAt(x, "/s")
		x.FS.DropCaches(x.T)
		for i := range faults {
			faults[i].Nth += dev.Count(blockdev.OpRead)
		}
		dev.Set(faults...)
		defer dev.Set()
		var b bytes.Buffer
		s := Send{Version: 1}
		err = s.Send(x.T, x.FS, quiet{}, z, &b)
		return b.Len(), err
	}
	before := dev.Count(blockdev.OpRead)
	if n, err := read(); n != whole || err != nil {
		t.Fatalf("%d bytes, %v, want %d", n, err, whole)
	}
	reads := dev.Count(blockdev.OpRead) - before
	for nth := int64(1); nth <= reads; nth++ {
		failed := dev.Failed()
		n, err := read(dm.Fault{Op: blockdev.OpRead, Nth: nth, On: true})
		if dev.Failed() > failed && (!errors.Is(err, errno.EIO) || n >= whole) {
			t.Errorf("read %d of %d fails: %v, after %d of %d bytes", nth, reads, err, n, whole)
		}
	}
	if dev.Failed() < 2 || reads < 2 {
		t.Errorf("%d of %d reads have failed", dev.Failed(), reads)
	}
}
