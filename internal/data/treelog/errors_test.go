package treelog_test

import (
	"bytes"
	"fmt"
	"io"
	"maps"
	"testing"

	"btrlab/internal/blockdev"
	"btrlab/internal/fs"
	"btrlab/internal/sched"
	"btrlab/internal/testing/fstest"
)

// TestFsyncLogBlockENOSPC: there is room for so many blocks of a log and for no more, from none on,
// while a directory is synced in which all names have moved. The fsync commits when the room runs
// out, at each of its places in turn, and keeps its promise: the power goes after it.
func TestFsyncLogBlockENOSPC(t *testing.T) {
	fstest.OneTask(t)
	const names, node = 400, 16 << 10
	text := bytes.Repeat([]byte("data"), 10000)
	var commits [2]int
	for room := uint64(0); ; room++ {
		var mem *blockdev.Memory
		x := fstest.New(t, fstest.OneCopy(fstest.Wrap(func(d blockdev.Device) blockdev.Device {
			mem = d.(*blockdev.Memory)
			return d
		}))...)
		f := x.Create("/f")
		x.Must(x.FS.Mkdir(x.T, "/d", 0o755))
		name := func(i int) string {
			return fmt.Sprintf("/d/a rather long name, so that the leaves fill up %d", i%names)
		}
		for i := range names {
			x.Must(x.Create(name(i)).Close(x.T))
		}
		x.Must(x.FS.Rename(x.T, name(0), "/d/last"))
		x.Must(x.FS.Sync(x.T))
		x.WriteAt(f, text, 0)
		x.Must(x.FS.Flush(x.T, f))
		x.Must(f.Inode().Ordered.WaitRange(x.T, 0, 1<<30)) // its completion has reserved room
		for i := 1; i < names; i++ {
			x.Must(x.FS.Rename(x.T, name(i), name(i-1)))
		}
		end := fstest.Leave(sched.NewTask("other"), f.Inode().FS.Space.Metadata(), room*node)
		before := commits
		for i, path := range []string{"/d", "/f"} {
			generation := x.FS.Super(x.T).Generation
			x.Must(x.FS.Fsync(x.T, path))
			if x.FS.Super(x.T).Generation != generation {
				commits[i]++
			}
			have, want := recoveredNames(t, x.T, mem.Snapshot()), namespaceOf(t, x.T, x.FS)
			if !maps.Equal(have, want) {
				t.Errorf("room for %d blocks: after fsync of %s and the crash %v, want %v", room, path, have, want)
			}
		}
		if have := recoveredFile(t, x.T, mem.Snapshot(), "/f"); !bytes.Equal(have, text) {
			t.Errorf("room for %d blocks: after the crash %d bytes%s", room, len(have), fstest.DiffAt(have, text))
		}
		end()
		x.Must(f.Close(x.T))
		if commits == before {
			break
		}
	}
	t.Logf("fsyncs that commit for want of room: %v", commits)
	if commits[0] < 10 || commits[1] < 3 {
		t.Errorf("fsyncs that commit for want of room: %v, want at least 10 and 3", commits)
	}
}

// recoveredFile is the content of a file after a loss of power.
func recoveredFile(tb testing.TB, t *sched.Task, dev *blockdev.Memory, path string) []byte {
	tb.Helper()
	f, err := fs.Open(t, []blockdev.Device{dev}, fs.Options{FirstFit: true})
	if err != nil {
		tb.Fatal(err)
	}
	defer f.Close(t)
	g, err := f.OpenFile(t, path, fs.O_RDONLY, 0)
	if err != nil {
		tb.Fatal(err)
	}
	defer g.Close(t)
	b := make([]byte, g.Size(t))
	if _, err := g.ReadAt(t, b, 0); err != nil && err != io.EOF {
		tb.Fatal(err)
	}
	return b
}
