package treelog_test

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"btrlab/internal/blockdev"
	"btrlab/internal/errno"
	"btrlab/internal/format"
	"btrlab/internal/fs"
	"btrlab/internal/progs/check"
	"btrlab/internal/sched"
	"btrlab/internal/testing/fstest"
)

// entry is a name in a directory.
type entry struct {
	dir  format.Ino
	name string
}

// namespace is which inode each name leads to.
type namespace map[entry]format.Ino

// walkTree calls do for path and all that is below.
func walkTree(tb testing.TB, t *sched.Task, f *fs.FS, path string, do func(path string, at fs.Attr, list []fs.DirEntry)) {
	tb.Helper()
	at, err := f.Lstat(t, path)
	var list []fs.DirEntry
	if err == nil && at.IsDir() {
		list, err = f.ReadDir(t, path)
	}
	if err != nil {
		tb.Fatal(err)
	}
	do(path, at, list)
	for _, e := range list {
		walkTree(tb, t, f, strings.TrimSuffix(path, "/")+"/"+e.Name, do)
	}
}

// namespaceOf reads the names of the whole image.
func namespaceOf(tb testing.TB, t *sched.Task, f *fs.FS) namespace {
	tb.Helper()
	m := namespace{}
	walkTree(tb, t, f, "/", func(_ string, at fs.Attr, list []fs.DirEntry) {
		for _, e := range list {
			m[entry{at.Ino, e.Name}] = e.Ino
		}
	})
	return m
}

// of are the names of an inode, in order.
func (m namespace) of(ino format.Ino) (l []entry) {
	for e, i := range m {
		if i == ino {
			l = append(l, e)
		}
	}
	slices.SortFunc(l, func(a, b entry) int { return strings.Compare(fmt.Sprint(a), fmt.Sprint(b)) })
	return l
}

// in are the names of a directory.
func (m namespace) in(dir format.Ino) namespace {
	n := namespace{}
	for e, i := range m {
		if e.dir == dir {
			n[e] = i
		}
	}
	return n
}

// TestFsyncLogNames: names come, go and move at random, files and directories are synced, and the
// power goes after each. A synced directory has the names that it had and no others, a synced file
// has its names, and an inode that lives is somewhere: no name leads to an inode that it never led
// to since the last sync, and no inode has more names than it ever had.
func TestFsyncLogNames(t *testing.T) {
	fstest.OneTask(t)
	seeds, steps := uint64(6), 300
	if testing.Short() {
		seeds, steps = 2, 200
	}
	for seed := range seeds {
		t.Run(fmt.Sprint(seed), func(t *testing.T) { fsyncNames(t, seed, steps) })
	}
}

func fsyncNames(t *testing.T, seed uint64, steps int) {
	var mem *blockdev.Memory
	x := fstest.New(t, fstest.Logging(fstest.Size(128<<20), fstest.Wrap(func(d blockdev.Device) blockdev.Device {
		mem = d.(*blockdev.Memory)
		return d
	}))...)
	rng := rand.New(rand.NewPCG(77, seed))
	var log []string
	now := namespaceOf(t, x.T, x.FS)
	ever, most, durable := namespace{}, map[format.Ino]int{}, map[format.Ino]bool{}
	note := func() {
		now = namespaceOf(t, x.T, x.FS)
		count := map[format.Ino]int{}
		for e, ino := range now {
			ever[entry{e.dir, fmt.Sprint(e.name, " ", ino)}] = ino
			count[ino]++
			most[ino] = max(most[ino], count[ino])
		}
	}
	sync := func() {
		x.Must(x.FS.Sync(x.T))
		log, ever, most = log[:0], namespace{}, map[format.Ino]int{}
		note()
		for _, ino := range now {
			durable[ino] = true
		}
	}
	sync()
	logs, ofDirs := 0, 0
	for range steps {
		text := nameStep(t, x, rng)
		if text == "" {
			continue
		}
		log = append(log, text)
		note()
		switch rng.IntN(12) {
		case 0, 1, 2, 3:
		case 4:
			sync()
			continue
		default:
			continue
		}
		path, at := anyPath(t, x, rng, rng.IntN(5) < 3)
		if at.IsSymlink() {
			continue
		}
		log = append(log, "fsync "+path)
		x.Must(x.FS.Fsync(x.T, path))
		durable[at.Ino] = true
		if fstest.SuperOn(t, x.T, mem).LogRoot != 0 {
			if logs++; at.IsDir() {
				ofDirs++
			}
		}
		have := recoveredNames(t, x.T, mem.Snapshot())
		bad := func(format string, a ...any) {
			t.Helper()
			t.Fatalf("%s\nafter\n%s", fmt.Sprintf(format, a...), strings.Join(log, "\n"))
		}
		if a, b := have.of(at.Ino), now.of(at.Ino); !slices.Equal(a, b) && !at.IsDir() {
			bad("inode %d has names %v, want %v", at.Ino, a, b)
		}
		if a, b := have.in(at.Ino), now.in(at.Ino); !maps.Equal(a, b) {
			bad("directory %d has %v, want %v", at.Ino, a, b)
		}
		for ino := range durable {
			if len(now.of(ino)) > 0 && len(have.of(ino)) == 0 {
				bad("inode %d has no name", ino)
			}
		}
		for e, ino := range have {
			if _, ok := ever[entry{e.dir, fmt.Sprint(e.name, " ", ino)}]; !ok {
				bad("%v leads to inode %d, which it never did", e, ino)
			}
			if n := len(have.of(ino)); n > most[ino] {
				bad("inode %d has %d names, want %d at most", ino, n, most[ino])
			}
		}
	}
	t.Logf("%d logs, %d of directories", logs, ofDirs)
	if logs < steps/20 || ofDirs < steps/40 {
		t.Errorf("%d fsyncs wrote a log, %d of directories", logs, ofDirs)
	}
}

// recoveredNames is the namespace after a loss of power.
func recoveredNames(tb testing.TB, t *sched.Task, dev *blockdev.Memory) namespace {
	tb.Helper()
	f, err := fs.Open(t, []blockdev.Device{dev}, fs.Options{FirstFit: true, CheckQuiescence: true})
	if err != nil {
		tb.Fatal(err)
	}
	m := namespaceOf(tb, t, f)
	if err := f.Close(t); err != nil {
		tb.Fatal(err)
	}
	if r, err := check.Check(t, dev, check.Options{}); err != nil || !r.Clean {
		tb.Fatalf("check: %v %v", r.Findings, err)
	}
	return m
}

// anyPath is a directory, or with dir false something else if there is any.
func anyPath(t *testing.T, x *fstest.Fixture, rng *rand.Rand, dir bool) (string, fs.Attr) {
	t.Helper()
	type node struct {
		path string
		at   fs.Attr
	}
	var l []node
	walkTree(t, x.T, x.FS, "/", func(path string, at fs.Attr, _ []fs.DirEntry) {
		if at.IsDir() == dir {
			l = append(l, node{path, at})
		}
	})
	if len(l) == 0 {
		return anyPath(t, x, rng, true)
	}
	n := l[rng.IntN(len(l))]
	return n.path, n.at
}

// nameStep changes a name, and says what it did; nothing when that was not possible. Few names make
// them meet.
func nameStep(t *testing.T, x *fstest.Fixture, rng *rand.Rand) string {
	t.Helper()
	dir, _ := anyPath(t, x, rng, true)
	to := strings.TrimSuffix(dir, "/") + "/" + string("abcdef"[rng.IntN(6)])
	from, at := anyPath(t, x, rng, rng.IntN(4) == 0)
	var err error
	text := ""
	switch n := rng.IntN(20); {
	case n < 5:
		text = "touch " + to
		var f *fs.File
		if f, err = x.FS.OpenFile(x.T, to, fs.O_RDWR|fs.O_CREAT|fs.O_EXCL, 0o644); err == nil {
			err = f.Close(x.T)
		}
	case n < 8:
		text, err = "mkdir "+to, x.FS.Mkdir(x.T, to, 0o755)
	case n < 9:
		text, err = "ln -s target "+to, x.FS.Symlink(x.T, "target", to)
	case n < 12:
		text, err = "ln "+from+" "+to, x.FS.Link(x.T, from, to)
	case n < 17:
		text, err = "mv "+from+" "+to, x.FS.Rename(x.T, from, to)
	case at.IsDir():
		text, err = "rmdir "+from, x.FS.Rmdir(x.T, from)
	default:
		text, err = "rm "+from, x.FS.Unlink(x.T, from)
	}
	var no errno.Errno
	if errors.As(err, &no) && no != errno.EIO && no != errno.EROFS {
		return ""
	}
	x.Must(err)
	return text
}

// TestFsyncLogOneHash: the names of one hash fill their item. One goes, another comes and is
// synced: a log that has the new one only cannot be replayed, because the item has no room for it
// beside the old ones. Linux 6.18 writes that log, and cannot mount the image then.
func TestFsyncLogOneHash(t *testing.T) {
	const room = 57 // names of 255 bytes
	names := fstest.OneHash(room + 1)
	for _, how := range []string{"unlink a committed name", "unlink a logged name", "rename a committed name"} {
		t.Run(how, func(t *testing.T) {
			var mem *blockdev.Memory
			x := fstest.New(t, fstest.Logging(fstest.Size(128<<20), fstest.Wrap(func(d blockdev.Device) blockdev.Device {
				mem = d.(*blockdev.Memory)
				return d
			}))...)
			create := func(name string) {
				f, err := x.FS.Create(x.T, "/"+name, 0o644)
				x.Must(err)
				x.Must(f.Fsync(x.T))
				x.Must(f.Close(x.T))
			}
			for _, name := range names[:room-1] {
				create(name)
			}
			x.Must(x.FS.Sync(x.T))
			create(names[room-1])
			if fstest.SuperOn(t, x.T, mem).LogRoot == 0 {
				t.Fatal("the last name that has room is not logged")
			}
			switch how {
			case "unlink a committed name":
				x.Must(x.FS.Unlink(x.T, "/"+names[0]))
			case "unlink a logged name":
				x.Must(x.FS.Unlink(x.T, "/"+names[room-1]))
			default:
				x.Must(x.FS.Rename(x.T, "/"+names[0], "/elsewhere"))
			}
			create(names[room])
			want := namespaceOf(t, x.T, x.FS)
			if have := recoveredNames(t, x.T, mem.Snapshot()); !maps.Equal(have, want) {
				t.Errorf("after the crash there are %d names, want the %d there were", len(have), len(want))
			}
		})
	}
}

// TestFsyncLogStubAttributes: an inode comes into a log with its name only, because another one was
// synced: the directory of a new file, a file of a directory. It was changed since it was made,
// which the tree gets with the commit. After a power cut it has the mode, owner and times that it
// had: a directory that was closed to all others is not open again.
func TestFsyncLogStubAttributes(t *testing.T) {
	stamp := fstest.Epoch.Add(-1000 * time.Hour)
	for _, sync := range []string{"/d/f", "/"} {
		var mem *blockdev.Memory
		x := fstest.New(t, fstest.Logging(fstest.Wrap(func(d blockdev.Device) blockdev.Device {
			mem = d.(*blockdev.Memory)
			return d
		}))...)
		x.Must(x.FS.Mkdir(x.T, "/d", 0o777))
		x.Must(x.Create("/d/f").Close(x.T))
		x.Must(x.FS.Chmod(x.T, "/d", 0o700))
		x.Must(x.FS.Chown(x.T, "/d", 7, 8))
		x.Must(x.FS.Utimes(x.T, "/d", stamp, stamp))
		x.Must(x.FS.Fsync(x.T, sync))
		if fstest.SuperOn(t, x.T, mem).LogRoot == 0 {
			t.Fatalf("fsync %s has written no log", sync)
		}
		y, err := fs.Open(x.T, []blockdev.Device{mem.Snapshot()}, fs.Options{})
		x.Must(err)
		st, err := y.Stat(x.T, "/d")
		x.Must(errors.Join(err, y.Close(x.T)))
		if st.Mode&0o777 != 0o700 || st.UID != 7 || st.GID != 8 || !st.Mtime.Equal(stamp) {
			t.Errorf("fsync %s: /d has mode %o, owner %d:%d, mtime %v", sync, st.Mode, st.UID, st.GID, st.Mtime)
		}
	}
}
