package treelog_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	gopath "path"
	"path/filepath"
	"slices"
	"sort"
	"strings"
	"testing"

	"btrlab/internal/blockdev"
	"btrlab/internal/blockdev/dm"
	"btrlab/internal/format"
	"btrlab/internal/fs"
	"btrlab/internal/meta/transaction"
	"btrlab/internal/meta/volumes"
	"btrlab/internal/sched"
	"btrlab/internal/testing/fstest"
)

// TestReplayStories: the logs that Linux left after each story of testdata/log are replayed, and
// everything is as Linux shows it after its own replay. Package interop makes the images and asks
// Linux again.
func TestReplayStories(t *testing.T) {
	stories, err := filepath.Glob("testdata/log/*.txt")
	if err != nil || len(stories) == 0 {
		t.Fatal("no stories", err)
	}
	for _, path := range stories {
		name := strings.TrimSuffix(filepath.Base(path), ".txt")
		t.Run(name, func(t *testing.T) {
			b, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			_, text, _ := strings.Cut(string(b), "----\n")
			want := strings.Split(strings.TrimSpace(text), "\n")
			x := fstest.New(t, fstest.Image(strings.TrimSuffix(path, ".txt")+".blocks.gz"))
			for _, when := range []string{"replayed", "after another open"} {
				have := facts(x, "/", nil, map[string]string{})
				for _, l := range want {
					if !slices.Contains(have, l) {
						t.Errorf("%s: missing %s", when, l)
					}
				}
				for _, l := range have {
					if !slices.Contains(want, l) {
						t.Errorf("%s: have    %s", when, l)
					}
				}
				if n := x.FS.Super(x.T).LogRoot; n != 0 {
					t.Errorf("%s: log_root is %d", when, n)
				}
				x.Reopen()
			}
		})
	}
}

// facts describes everything from path down, a line for each name.
func facts(x *fstest.Fixture, path string, l []string, inodes map[string]string) []string {
	x.Helper()
	at, err := x.FS.Lstat(x.T, path)
	x.Must(err)
	rel := strings.TrimPrefix(path, "/")
	if rel == "" {
		rel = "."
	}
	text := fmt.Sprintf("%s mode=%o links=%d", rel, at.Mode, at.Nlink)
	switch {
	case at.IsSymlink():
		to, err := x.FS.Readlink(x.T, path)
		x.Must(err)
		return append(l, text+" to="+to)
	case at.IsRegular():
		f, err := x.FS.OpenFile(x.T, path, 0, 0)
		x.Must(err)
		b := make([]byte, at.Size)
		if n, err := f.ReadAt(x.T, b, 0); n != len(b) || err != nil && err != io.EOF {
			x.Errorf("%s: read %d bytes: %v", path, n, err)
		}
		x.Must(f.Close(x.T))
		id := fmt.Sprint(at.Subvol, " ", at.Ino)
		if inodes[id] == "" {
			inodes[id] = rel
		}
		text += fmt.Sprintf(" size=%d blocks=%d bytes=%.6x same=%s", at.Size, at.Blocks, sha256.Sum256(b), inodes[id])
	default:
		text += fmt.Sprintf(" size=%d", at.Size)
	}
	n, err := x.FS.Node(x.T, at.Subvol, at.Ino)
	x.Must(err)
	attrs, err := n.Listxattr(x.T)
	x.Must(err)
	sort.Strings(attrs)
	for _, a := range attrs {
		v, err := n.Getxattr(x.T, a)
		x.Must(err)
		text += fmt.Sprintf(" %s=%.4x", a, sha256.Sum256(v))
	}
	x.Must(n.Forget(x.T, 1))
	l = append(l, text)
	if at.IsDir() {
		list, err := x.FS.ReadDir(x.T, path)
		x.Must(err)
		slices.SortFunc(list, func(a, b fs.DirEntry) int { return strings.Compare(a.Name, b.Name) })
		for _, e := range list {
			l = facts(x, gopath.Join(path, e.Name), l, inodes)
		}
	}
	return l
}

// TestReplayTwice: the power goes while replay is committed, before the superblock is written. The
// log is as it was, and is replayed again. With first fit the new tree blocks would lie in the
// log's, if these were not pinned.
func TestReplayTwice(t *testing.T) {
	for _, name := range []string{"extents", "directory", "leaves"} {
		t.Run(name, func(t *testing.T) {
			path := "testdata/log/" + name
			before := facts(fstest.New(t, fstest.Image(path+".blocks.gz")), "/", nil, map[string]string{})
			dev := fstest.New(t, fstest.Image(path+".blocks.gz"), fstest.FSOptions(func(o *fs.Options) { o.ReadOnly = true })).Dev.(*blockdev.Memory).Snapshot()
			torn := dm.NewFlakey(dev, dm.Fault{Op: blockdev.OpWrite, Start: format.SuperOffset, End: format.SuperOffset + format.SuperSize})
			tk := sched.NewTask("replay")
			if x, err := fs.Open(tk, []blockdev.Device{torn}, fs.Options{FirstFit: true}); err == nil {
				x.Close(tk)
				t.Fatal("the superblock could not be written, and the open did not fail")
			}
			x := fstest.New(t, fstest.Wrap(func(blockdev.Device) blockdev.Device { return dev }))
			if after := facts(x, "/", nil, map[string]string{}); !slices.Equal(after, before) {
				t.Errorf("have\n%s\nwant\n%s", strings.Join(after, "\n"), strings.Join(before, "\n"))
			}
		})
	}
}

// TestReplayLostNames: a file lost a name in a directory, and the log has the file's names there
// but no range of the directory's indices that covers the lost one. The name goes, and everything
// is as when the log has the range.
func TestReplayLostNames(t *testing.T) {
	want := facts(fstest.New(t, fstest.Image("testdata/log/two-names.blocks.gz")), "/", nil, map[string]string{})
	ro := fstest.New(t, fstest.Image("testdata/log/two-names.blocks.gz"), fstest.NoCheck(), fstest.FSOptions(func(o *fs.Options) { o.ReadOnly = true }))
	dev := ro.Dev.(*blockdev.Memory).Snapshot()
	hurtLog(t, ro.T, dev, func(leaf format.Node, slot int) bool {
		k := leaf.Key(slot)
		if k.Type != format.DIR_LOG_INDEX_KEY || k.Offset != 3 {
			return false
		}
		k.Type = format.DIR_LOG_ITEM_KEY // which nobody reads any more
		leaf.SetKey(slot, k)
		leaf.UpdateCsum(format.CsumCRC32C)
		return true
	})
	x := fstest.New(t, fstest.Wrap(func(blockdev.Device) blockdev.Device { return dev }))
	if have := facts(x, "/", nil, map[string]string{}); !slices.Equal(have, want) {
		t.Errorf("have\n%s\nwant\n%s", strings.Join(have, "\n"), strings.Join(want, "\n"))
	}
}

// TestReplayBadLog: a log that is damaged, or that names space in use, ends the open with one line,
// and not a byte on the device changes. Without the log the image can still be read.
func TestReplayBadLog(t *testing.T) {
	fstest.OneTask(t)
	image := func() (*blockdev.Memory, *sched.Task) {
		x := fstest.New(t, fstest.Image("testdata/log/extents.blocks.gz"), fstest.NoCheck(), fstest.FSOptions(func(o *fs.Options) { o.ReadOnly = true }))
		return x.Dev.(*blockdev.Memory).Snapshot(), x.T
	}
	for _, c := range []struct {
		name string
		hurt func(leaf format.Node, slot int) bool // false: not this item
		want string
	}{
		{"csum", func(leaf format.Node, slot int) bool { leaf[200] ^= 1; return true }, "bad checksum"},
		{"in use", func(leaf format.Node, slot int) bool {
			fe := format.FileExtentView(leaf.Item(slot))
			if leaf.Key(slot).Type != format.EXTENT_DATA_KEY || fe.DiskBytenr() == 0 || fe.Generation() != leaf.Generation() {
				return false
			}
			// A neighbour of an extent of the last commit: the length is none that an extent has,
			// so it is no second reference.
			b := leaf.Item(slot)
			le.PutUint64(b[21:], fe.DiskBytenr()&^(1<<20-1))
			leaf.UpdateCsum(format.CsumCRC32C)
			return true
		}, "have it in use want it free"},
		{"nowhere", func(leaf format.Node, slot int) bool {
			if leaf.Key(slot).Type != format.EXTENT_DATA_KEY || format.FileExtentView(leaf.Item(slot)).DiskBytenr() == 0 {
				return false
			}
			le.PutUint64(leaf.Item(slot)[21:], 1<<50)
			leaf.UpdateCsum(format.CsumCRC32C)
			return true
		}, "lies in no data block group"},
	} {
		t.Run(c.name, func(t *testing.T) {
			dev, tk := image()
			hurtLog(t, tk, dev, c.hurt)
			before := imageBytes(t, tk, dev)
			x, err := fs.Open(tk, []blockdev.Device{dev}, fs.Options{})
			if err == nil {
				x.Close(tk)
				t.Fatal("the log is replayed")
			}
			if !errors.Is(err, fs.ErrLog) {
				t.Errorf("%v is no ErrLog", err)
			}
			if s := err.Error(); !strings.HasPrefix(s, "memory: replay log tree at ") || !strings.Contains(s, c.want) || strings.Contains(s, "\n") {
				t.Errorf("have %q, want one line with %q", s, c.want)
			}
			if !bytes.Equal(imageBytes(t, tk, dev), before) {
				t.Error("the image has changed")
			}
			x, err = fs.Open(tk, []blockdev.Device{dev}, fs.Options{ReadOnly: true})
			if err != nil {
				t.Fatalf("open for reading: %v", err)
			}
			if err := x.Close(tk); err != nil {
				t.Error(err)
			}
		})
	}
}

var le = binary.LittleEndian

// hurtLog lets hurt change a leaf of the log tree of the top-level subvolume: it is shown item by
// item until it says true.
func hurtLog(t *testing.T, tk *sched.Task, dev blockdev.Device, hurt func(leaf format.Node, slot int) bool) {
	t.Helper()
	b := make([]byte, format.SuperSize)
	if err := blockdev.Read(tk, dev, b, format.SuperOffset); err != nil {
		t.Fatal(err)
	}
	var sb format.Super
	sb.Decode(b)
	vols, err := volumes.Open([]volumes.Member{{Dev: dev, Super: &sb}}, false)
	if err != nil {
		t.Fatal(err)
	}
	m, err := transaction.Open(tk, transaction.Config{Volumes: vols, Super: &sb, ReadOnly: true})
	if err != nil {
		t.Fatal(err)
	}
	read := func(at uint64) format.Node {
		n := make(format.Node, sb.NodeSize)
		if err := m.Volumes.Read(tk, n, at, 0); err != nil {
			t.Fatal(err)
		}
		return n
	}
	top := read(sb.LogRoot)
	var r format.RootItem
	r.Decode(top.Item(0))
	at := r.Bytenr
	leaf := read(at)
	for leaf.Level() > 0 {
		at = leaf.Blockptr(0)
		leaf = read(at)
	}
	for slot := range leaf.Nritems() {
		if hurt(leaf, slot) {
			if err := m.Volumes.Write(tk, leaf, at); err != nil {
				t.Fatal(err)
			}
			return
		}
	}
	t.Fatal("the log has no such item")
}

func imageBytes(t *testing.T, tk *sched.Task, dev blockdev.Device) []byte {
	t.Helper()
	b := make([]byte, dev.Size())
	if err := blockdev.Read(tk, dev, b, 0); err != nil {
		t.Fatal(err)
	}
	return b
}
