package treelog_test

import (
	"bytes"
	"maps"
	"testing"
	"time"

	"btrlab/internal/blockdev"
	"btrlab/internal/format"
	"btrlab/internal/fs"
	"btrlab/internal/testing/fstest"
)

// powerCut lets do work on a new file system whose fsyncs write logs, cuts the power, and opens
// what is there: the log is replayed. The fixture checks the image when it closes.
func powerCut(t *testing.T, do func(x *fstest.Fixture)) *fstest.Fixture {
	t.Helper()
	var mem *blockdev.Memory
	x := fstest.New(t, fstest.Policy("locked"), fstest.Size(128<<20), fstest.Wrap(func(d blockdev.Device) blockdev.Device {
		mem = d.(*blockdev.Memory)
		return d
	}))
	do(x)
	var sb format.Super
	b := make([]byte, format.SuperSize)
	x.Must(blockdev.Read(x.T, mem, b, format.SuperOffset))
	if sb.Decode(b); sb.LogRoot == 0 {
		t.Fatal("no log is written")
	}
	crash := mem.Snapshot()
	return fstest.New(t, fstest.Wrap(func(blockdev.Device) blockdev.Device { return crash }))
}

// fsynced is Fsync of a path.
func fsynced(x *fstest.Fixture, path string) { x.Must(x.FS.Fsync(x.T, path)) }

// attributes are the extended attributes of path, which is no symbolic link.
func attributes(x *fstest.Fixture, path string) map[string]string {
	st, err := x.FS.Stat(x.T, path)
	x.Must(err)
	n, err := x.FS.Node(x.T, st.Subvol, st.Ino)
	x.Must(err)
	names, err := n.Listxattr(x.T)
	x.Must(err)
	m := map[string]string{}
	for _, name := range names {
		v, err := n.Getxattr(x.T, name)
		x.Must(err)
		m[name] = string(v)
	}
	x.Must(n.Forget(x.T, 1))
	return m
}

// TestLongExtent: a file extent of more sectors than the log copies checksums of at once has all of
// them in the log, each at its address.
func TestLongExtent(t *testing.T) {
	const n = 9 << 20 // three times: 4 MiB, 4 MiB, 1 MiB
	want := make([]byte, n)
	for i := range want {
		want[i] = byte(i>>12) ^ byte(i>>20)
	}
	y := powerCut(t, func(x *fstest.Fixture) {
		f := x.Create("/f")
		// a chunk that is new in the transaction asks for a commit
		x.Must(f.Fallocate(x.T, 0, 0, n+8<<20))
		x.Must(x.FS.Sync(x.T))
		x.Must(f.Truncate(x.T, 0))
		x.Must(x.FS.Sync(x.T))
		x.WriteAt(f, want, 0)
		x.Must(x.FS.Flush(x.T, f))
		// the tree has it, and the log copies from there
		x.Must(f.Inode().Ordered.WaitRange(x.T, 0, n))
		x.Must(f.Fsync(x.T))
		x.Must(f.Close(x.T))
	})
	if have := y.ReadFile("/f"); !bytes.Equal(have, want) {
		t.Errorf("%d bytes, want %d, or others", len(have), n)
	}
}

// TestDirectoryInPart: a log has a directory only because a name in it is gone. The directory keeps
// its attributes, mode, owner and times: those of the last commit and those that came later.
func TestDirectoryInPart(t *testing.T) {
	for _, again := range []bool{false, true} {
		stamp := fstest.Epoch.Add(-500 * time.Hour)
		y := powerCut(t, func(x *fstest.Fixture) {
			x.Must(x.FS.Mkdir(x.T, "/d", 0o750))
			x.Must(x.FS.Setxattr(x.T, "/d", "user.a", []byte("one")))
			x.Must(x.FS.Setxattr(x.T, "/d", "user.b", []byte("two")))
			x.Must(x.Create("/d/f").Close(x.T))
			x.Must(x.Create("/d/g").Close(x.T))
			x.Must(x.FS.Chown(x.T, "/d", 5, 6))
			x.Must(x.FS.Sync(x.T))
			x.Must(x.FS.Rename(x.T, "/d/f", "/f"))
			x.Must(x.FS.Utimes(x.T, "/d", stamp, stamp))
			fsynced(x, "/f")
			if again { // the log has the directory
				x.Must(x.FS.Rename(x.T, "/d/g", "/g"))
				x.Must(x.FS.Utimes(x.T, "/d", stamp, stamp))
				fsynced(x, "/g")
			}
		})
		if have, want := attributes(y, "/d"), (map[string]string{"user.a": "one", "user.b": "two"}); !maps.Equal(have, want) {
			t.Errorf("two syncs %v: attributes %q, want %q", again, have, want)
		}
		st, err := y.FS.Stat(y.T, "/d")
		y.Must(err)
		if st.Mode&0o777 != 0o750 || st.UID != 5 || st.GID != 6 {
			t.Errorf("two syncs %v: /d has mode %o, owner %d:%d", again, st.Mode, st.UID, st.GID)
		}
		for name, there := range map[string]bool{"/d/f": false, "/f": true, "/d/g": !again, "/g": again} {
			if _, err := y.FS.Stat(y.T, name); (err == nil) != there {
				t.Errorf("two syncs %v: %s: %v", again, name, err)
			}
		}
	}
}

// TestPreallocatedBeyondEOF: replay drops what an inode has beyond its size, so the log has the
// preallocated extents there: in the first log of a transaction, which did not change them, and in
// later ones.
func TestPreallocatedBeyondEOF(t *testing.T) {
	for syncs := range 3 {
		y := powerCut(t, func(x *fstest.Fixture) {
			f := x.Create("/f")
			x.Must(f.Fallocate(x.T, fs.FALLOC_FL_KEEP_SIZE, 0, 256<<10))
			x.Must(x.FS.Sync(x.T))
			for i := range syncs + 1 {
				x.WriteAt(f, bytes.Repeat([]byte{byte(i + 1)}, 4096), int64(i)*4096)
				x.Must(f.Fsync(x.T))
			}
			x.Must(f.Close(x.T))
		})
		st, err := y.FS.Stat(y.T, "/f")
		y.Must(err)
		if st.Nbytes != 256<<10 || st.Size != uint64(syncs+1)*4096 {
			t.Errorf("after %d syncs: %d bytes are allocated, size %d; want %d, %d", syncs+1, st.Nbytes, st.Size, 256<<10, (syncs+1)*4096)
		}
		for i, b := range y.ReadFile("/f") {
			if b != byte(i>>12+1) {
				t.Fatalf("after %d syncs: byte %d is %d", syncs+1, i, b)
			}
		}
	}
}

// TestReplayedAttributes: an inode that the last commit has gets mode, owner, times, flags and
// attributes of the log, whether the log was written because of them or because of data, and
// whether it is a file or a directory. What the inode does not have any more is gone.
func TestReplayedAttributes(t *testing.T) {
	mtime, atime := fstest.Epoch.Add(-300*time.Hour), fstest.Epoch.Add(-200*time.Hour)
	for _, c := range []struct {
		name string
		data bool
	}{{"/f", false}, {"/f", true}, {"/d", false}} {
		y := powerCut(t, func(x *fstest.Fixture) {
			f := x.Create("/f")
			x.WriteAt(f, make([]byte, 8192), 0)
			x.Must(x.FS.Mkdir(x.T, "/d", 0o777))
			x.Must(x.FS.Setxattr(x.T, c.name, "user.gone", []byte("x")))
			x.Must(x.FS.Setxattr(x.T, c.name, "user.kept", []byte("y")))
			x.Must(x.FS.Setxattr(x.T, c.name, "user.other", []byte("old")))
			x.Must(x.FS.Sync(x.T))
			if c.data {
				x.WriteAt(f, []byte("data"), 4096)
			}
			x.Must(x.FS.Removexattr(x.T, c.name, "user.gone"))
			x.Must(x.FS.Setxattr(x.T, c.name, "user.other", []byte("a new value")))
			x.Must(x.FS.Setxattr(x.T, c.name, "user.new", nil))
			x.Must(x.FS.Chown(x.T, c.name, 5, 6))
			x.Must(x.FS.Chmod(x.T, c.name, 0o640))
			x.Must(x.FS.SetFlags(x.T, c.name, format.InodeNoAtime))
			x.Must(x.FS.Utimes(x.T, c.name, atime, mtime))
			fsynced(x, c.name)
			x.Must(f.Close(x.T))
		})
		st, err := y.FS.Stat(y.T, c.name)
		y.Must(err)
		if st.Mode&0o777 != 0o640 || st.UID != 5 || st.GID != 6 || !st.Mtime.Equal(mtime) || !st.Atime.Equal(atime) || st.Flags&format.InodeNoAtime == 0 {
			t.Errorf("%s: mode %o, owner %d:%d, mtime %v, atime %v, flags %#x", c.name, st.Mode&0o777, st.UID, st.GID, st.Mtime, st.Atime, st.Flags)
		}
		if have, want := attributes(y, c.name), (map[string]string{"user.kept": "y", "user.other": "a new value", "user.new": ""}); !maps.Equal(have, want) {
			t.Errorf("%s: attributes %q, want %q", c.name, have, want)
		}
	}
}

// TestSyncedDirectories: a log has every name of the new directories below one that is synced, with
// links and their targets, and the names that came and went between two syncs.
func TestSyncedDirectories(t *testing.T) {
	y := powerCut(t, func(x *fstest.Fixture) {
		x.Must(x.FS.Mkdir(x.T, "/old", 0o755))
		x.Must(x.Create("/old/gone").Close(x.T))
		x.Must(x.FS.Sync(x.T))
		x.Must(x.FS.Mkdir(x.T, "/old/new", 0o755))
		x.Must(x.Create("/old/new/first").Close(x.T))
		x.Must(x.FS.Mkdir(x.T, "/old/new/below", 0o755))
		x.Must(x.Create("/old/new/below/f").Close(x.T))
		x.Must(x.FS.Symlink(x.T, "target", "/old/new/link"))
		x.Must(x.FS.Unlink(x.T, "/old/gone"))
		fsynced(x, "/old")
		x.Must(x.Create("/old/new/second").Close(x.T))
		x.Must(x.FS.Rename(x.T, "/old/new/first", "/old/moved"))
		x.Must(x.Create("/old/third").Close(x.T))
		x.Must(x.FS.Unlink(x.T, "/old/new/below/f"))
		fsynced(x, "/old/new/below")
		fsynced(x, "/old/new")
		fsynced(x, "/old")
	})
	for name, there := range map[string]bool{"/old/gone": false, "/old/new/first": false, "/old/moved": true, "/old/third": true,
		"/old/new/second": true, "/old/new/below": true, "/old/new/below/f": false, "/old/new/link": true} {
		if _, err := y.FS.Lstat(y.T, name); (err == nil) != there {
			t.Errorf("%s: %v, want it there: %v", name, err, there)
		}
	}
	if to, err := y.FS.Readlink(y.T, "/old/new/link"); err != nil || to != "target" {
		t.Errorf("the link leads to %q, %v", to, err)
	}
}

// TestAttributesTwice: attributes and names change between two syncs in one transaction: the log
// has them as they are, each once.
func TestAttributesTwice(t *testing.T) {
	y := powerCut(t, func(x *fstest.Fixture) {
		f := x.Create("/f")
		x.WriteAt(f, make([]byte, 8192), 0)
		x.Must(x.FS.Setxattr(x.T, "/f", "user.a", []byte("a")))
		x.Must(x.FS.Sync(x.T))
		x.Must(x.FS.Setxattr(x.T, "/f", "user.b", []byte("b")))
		x.Must(f.Fsync(x.T))
		x.Must(x.FS.Removexattr(x.T, "/f", "user.b"))
		x.Must(x.FS.Setxattr(x.T, "/f", "user.a", []byte("longer")))
		x.Must(x.FS.Setxattr(x.T, "/f", "user.c", []byte("c")))
		x.Must(x.FS.Link(x.T, "/f", "/g"))
		x.Must(f.Fsync(x.T))
		x.Must(f.Close(x.T))
	})
	if have, want := attributes(y, "/g"), (map[string]string{"user.a": "longer", "user.c": "c"}); !maps.Equal(have, want) {
		t.Errorf("attributes %q, want %q", have, want)
	}
	if st, err := y.FS.Stat(y.T, "/f"); err != nil || st.Nlink != 2 {
		t.Errorf("%d links, %v", st.Nlink, err)
	}
}

// TestAttributesOfData: a log that was written for data alone has the attributes: replay deletes
// those that a log does not have.
func TestAttributesOfData(t *testing.T) {
	y := powerCut(t, func(x *fstest.Fixture) {
		f := x.Create("/f")
		x.WriteAt(f, make([]byte, 8192), 0)
		x.Must(x.FS.Setxattr(x.T, "/f", "user.a", []byte("a")))
		x.Must(x.FS.Sync(x.T))
		x.WriteAt(f, []byte("data"), 0)
		x.Must(f.Fsync(x.T))
		x.Must(f.Close(x.T))
	})
	if have := attributes(y, "/f"); have["user.a"] != "a" {
		t.Errorf("attributes %q", have)
	}
}

// TestPartOfExtent: the front of an extent is overwritten in the transaction that wrote it. The
// checksums of the rest are those of the rest.
func TestPartOfExtent(t *testing.T) {
	want := make([]byte, 64<<10)
	for i := range want {
		want[i] = byte(i>>12 + 1)
	}
	y := powerCut(t, func(x *fstest.Fixture) {
		f := x.Create("/f")
		x.Must(x.FS.Sync(x.T))
		write := func(p []byte, off int64) {
			x.WriteAt(f, p, off)
			x.Must(x.FS.Flush(x.T, f))
			x.Must(f.Inode().Ordered.WaitRange(x.T, 0, 64<<10))
		}
		write(want, 0)
		write(bytes.Repeat([]byte{77}, 8192), 0)
		x.Must(f.Fsync(x.T))
		x.Must(f.Close(x.T))
	})
	copy(want, bytes.Repeat([]byte{77}, 8192))
	if have := y.ReadFile("/f"); !bytes.Equal(have, want) {
		t.Errorf("%d bytes, want %d, or others", len(have), len(want))
	}
}

// TestLostNamesOfDirectories: a directory that was there at the last commit has lost its name to a
// rename. Its log would have to say that for all that is below, so its fsync commits; the wrong
// order that forgets lost names writes a log.
func TestLostNamesOfDirectories(t *testing.T) {
	for _, c := range []struct {
		policy string
		logs   bool
	}{{"locked", false}, {"locked+WRONG_LOG_LOST_NAMES", true}} {
		var mem *blockdev.Memory
		x := fstest.New(t, fstest.Policy(c.policy), fstest.Wrap(func(d blockdev.Device) blockdev.Device {
			mem = d.(*blockdev.Memory)
			return d
		}))
		x.Must(x.FS.Mkdir(x.T, "/old", 0o755))
		x.Must(x.FS.Sync(x.T))
		x.Must(x.FS.Rename(x.T, "/old", "/new"))
		before := super(x, mem).Generation
		fsynced(x, "/new")
		if sb := super(x, mem); (sb.LogRoot != 0) != c.logs || (sb.Generation > before) == c.logs {
			t.Errorf("%s: log root %d, generation %d after %d; want a log: %v", c.policy, sb.LogRoot, sb.Generation, before, c.logs)
		}
		x.Must(x.FS.Sync(x.T))
	}
}

// super is the superblock on the device.
func super(x *fstest.Fixture, dev blockdev.Device) (sb format.Super) {
	b := make([]byte, format.SuperSize)
	x.Must(blockdev.Read(x.T, dev, b, format.SuperOffset))
	sb.Decode(b)
	return sb
}

// TestNewNameAfterData: the log has a file's data and attributes when the directory of a new name
// of the file is synced. The log then has the names and attributes that the file has by then, each
// once, and still its data.
func TestNewNameAfterData(t *testing.T) {
	var logged, after format.Super
	y := powerCut(t, func(x *fstest.Fixture) {
		mem := x.Dev
		f := x.Create("/f")
		x.Must(x.FS.Mkdir(x.T, "/d", 0o755))
		x.WriteAt(f, make([]byte, 8192), 0)
		x.Must(x.FS.Setxattr(x.T, "/f", "user.gone", []byte("a")))
		x.Must(x.FS.Setxattr(x.T, "/f", "user.kept", []byte("b")))
		x.Must(x.FS.Sync(x.T))
		x.WriteAt(f, []byte("data"), 4096)
		x.Must(f.Fsync(x.T))
		logged = super(x, mem)
		x.Must(x.FS.Removexattr(x.T, "/f", "user.gone"))
		x.Must(x.FS.Setxattr(x.T, "/f", "user.kept", []byte("another")))
		x.Must(x.FS.Link(x.T, "/f", "/d/g"))
		fsynced(x, "/d")
		after = super(x, mem)
		x.Must(f.Close(x.T))
	})
	if after.Generation != logged.Generation || after.LogRoot == 0 {
		t.Errorf("the second fsync commits: generation %d, then %d", logged.Generation, after.Generation)
	}
	if have, want := attributes(y, "/d/g"), (map[string]string{"user.kept": "another"}); !maps.Equal(have, want) {
		t.Errorf("attributes %q, want %q", have, want)
	}
	if have := y.ReadFile("/d/g"); len(have) != 8192 || string(have[4096:4100]) != "data" {
		t.Errorf("%d bytes, or others", len(have))
	}
	g := y.Open("/d/g")
	if have, want := g.Inode().LastTransid.Load(), logged.Generation+1; have != want {
		t.Errorf("the inode was changed in transaction %d last, want %d, that of the log", have, want)
	}
	y.Must(g.Close(y.T))
}
