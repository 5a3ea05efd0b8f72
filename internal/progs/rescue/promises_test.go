package rescue_test

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"btrlab/internal/blockdev"
	"btrlab/internal/blockdev/dm"
	"btrlab/internal/format"
	"btrlab/internal/fs"
	"btrlab/internal/progs/check"
	"btrlab/internal/progs/mkfs"
	"btrlab/internal/progs/rescue"
	"btrlab/internal/sched"
	"btrlab/internal/testing/fstest"
)

// What labs/guide/broken.md promises, each against an image with two candidates for the answer.

// edit changes the item with the key in each copy of its leaf, under a right checksum.
func (v *victim) edit(id uint64, k format.Key, change func(n format.Node, slot int)) {
	v.t.Helper()
	bytenr, generation := v.im.Leaf(id, k)
	done := 0
	for _, b := range v.blocks {
		if b.Bytenr != bytenr || b.Generation != generation {
			continue
		}
		n := format.Node(v.read(int(v.im.Super().NodeSize), b.Off))
		slot, found := n.Search(k)
		if !found {
			v.t.Fatalf("no item %v in the block at %d", k, bytenr)
		}
		change(n, slot)
		n.UpdateCsum(v.im.Super().CsumType)
		v.write(n, b.Off)
		done++
	}
	if done == 0 {
		v.t.Fatalf("no block at %d", bytenr)
	}
}

// resuper changes superblock copy i, under a right checksum.
func resuper(t *testing.T, tk *sched.Task, dev blockdev.Device, i int, change func(s *format.Super)) {
	t.Helper()
	b, s := super(t, tk, dev, i)
	change(&s)
	s.Encode(b)
	fstest.NoError(blockdev.Write(tk, dev, b, int64(format.SuperMirror(i))))
}

// TestFixSuperNewest: of two whole superblocks it is the newer one that is written over the third,
// whichever comes first; the older one stays.
func TestFixSuperNewest(t *testing.T) {
	tk := sched.NewTask("test")
	made := blockdev.NewMemory(300 << 30)
	fstest.NoError(mkfs.Make(tk, made, mkfs.Options{}))
	for torn := range 3 {
		for older := range 3 {
			if older == torn {
				continue
			}
			dev := made.Snapshot()
			newer := 3 - torn - older
			resuper(t, tk, dev, older, func(s *format.Super) { s.Generation, s.Label = 7, "older" })
			resuper(t, tk, dev, newer, func(s *format.Super) { s.Generation, s.Label = 8, "newer" })
			fstest.NoError(blockdev.Write(tk, dev, []byte("torn"), int64(format.SuperMirror(torn))+300))
			fixed, err := rescue.FixSuper(tk, []blockdev.Device{dev})
			if err != nil || len(fixed) != 1 || fixed[0].Copy != torn || fixed[0].Generation != 8 {
				t.Errorf("torn %d, older %d: %v, %v", torn, older, fixed, err)
			}
			for i, want := range map[int]string{torn: "newer", newer: "newer", older: "older"} {
				if _, s := super(t, tk, dev, i); s.Label != want || s.Bytenr != format.SuperMirror(i) {
					t.Errorf("torn %d, older %d: copy %d has label %q of address %d, want %q", torn, older, i, s.Label, s.Bytenr, want)
				}
			}
		}
	}
}

// TestOlderRootIsThatState: the superblocks are those of the earlier transaction in all that check
// compares, and lead to no log: that of a later transaction would be replayed on older trees.
func TestOlderRootIsThatState(t *testing.T) {
	x := fstest.New(t, fstest.NoCheck(), fstest.Size(300<<20))
	x.Must(x.FS.Sync(x.T))
	f := x.Create("/later")
	x.WriteAt(f, bytes.Repeat([]byte("later"), 100000), 0)
	x.Must(f.Close(x.T))
	x.Must(x.FS.Sync(x.T))
	dev := x.Dev.(*blockdev.Memory).Snapshot()
	_, now := super(t, x.T, dev, 0)
	for i := range 2 {
		resuper(t, x.T, dev, i, func(s *format.Super) { s.LogRoot, s.LogRootLevel = s.Root, 1 })
	}
	g, err := rescue.OlderRoot(x.T, []blockdev.Device{dev}, now.Generation-1)
	if err != nil || g != now.Generation-1 {
		t.Fatalf("generation %d, %v", g, err)
	}
	var backup format.RootBackup
	for _, b := range now.Backups {
		if b.TreeRootGen == g {
			backup = b
		}
	}
	if backup.BytesUsed == now.BytesUsed || backup.ChunkRoot == 0 {
		t.Fatalf("the two states are alike: %+v", backup)
	}
	for i := range 2 {
		_, s := super(t, x.T, dev, i)
		if s.LogRoot != 0 || s.LogRootLevel != 0 {
			t.Errorf("copy %d leads to a log at %d", i, s.LogRoot)
		}
		if s.Root != backup.TreeRoot || s.RootLevel != backup.TreeRootLevel || s.BytesUsed != backup.BytesUsed || s.TotalBytes != backup.TotalBytes ||
			s.ChunkRoot != backup.ChunkRoot || s.ChunkRootGeneration != backup.ChunkRootGen || s.NumDevices != backup.NumDevices {
			t.Errorf("copy %d: %+v, want %+v", i, s, backup)
		}
	}
	if r, err := check.Check(x.T, dev, check.Options{}); err != nil {
		t.Error(err)
	} else {
		for _, f := range r.Findings {
			if strings.HasPrefix(f.Rule, "super.") {
				t.Errorf("check of the older state: %v", f)
			}
		}
	}
}

// TestDeletedSubvolumes: a subvolume that is being deleted is not copied, although its blocks are
// there; nor is it when the root tree is lost and a scan has found these.
func TestDeletedSubvolumes(t *testing.T) {
	x := sample(t)
	dev := x.Dev.(*blockdev.Memory).Snapshot()
	v := newVictim(t, x.T, dev)
	before, _, _ := copyOf(t, x, dev, rescue.Options{}, rescue.CopyOptions{})
	if _, ok := before.files["sv/s1"]; !ok {
		t.Fatal("the sample has no subvolume sv")
	}
	key := format.Key{Objectid: 256, Type: format.ROOT_ITEM_KEY}
	v.edit(format.ROOT_TREE_OBJECTID, key, func(n format.Node, slot int) {
		var r format.RootItem
		r.Decode(n.Item(slot))
		if r.Refs != 1 {
			t.Fatalf("subvolume 256 has %d references", r.Refs)
		}
		r.Refs = 0
		r.Encode(n.Item(slot))
	})
	for _, o := range []rescue.Options{{}, {Scan: true}} {
		m, _, _ := copyOf(t, x, dev, o, rescue.CopyOptions{})
		for path := range m.files {
			if strings.HasPrefix(path, "sv/") || strings.Contains(path, "subvolume-256") {
				t.Errorf("scan %v: %s of a deleted subvolume", o.Scan, path)
			}
		}
		if len(m.files) < 150 {
			t.Errorf("scan %v: %d files", o.Scan, len(m.files))
		}
	}
}

// TestNamesByHash: a name whose DIR_INDEX is lost is found by its DIR_ITEM, and has its file.
func TestNamesByHash(t *testing.T) {
	x := sample(t)
	dev := x.Dev.(*blockdev.Memory).Snapshot()
	v := newVictim(t, x.T, dev)
	n, err := x.FS.NodeAt(x.T, "/a")
	x.Must(err)
	dir := uint64(n.Ino())
	var index uint64
	x.Must(n.ReadDir(x.T, 0, func(e fs.DirEntry) bool {
		if e.Name == "small5" {
			index = e.Index
		}
		return true
	}))
	x.Must(n.Forget(x.T, 1))
	v.edit(format.FS_TREE_OBJECTID, format.Key{Objectid: dir, Type: format.DIR_INDEX_KEY, Offset: index}, func(n format.Node, slot int) {
		clear(n.Item(slot)) // a name of no bytes, to inode 0
		n.Item(slot)[27] = 0xff
	})
	m, _, lines := copyOf(t, x, dev, rescue.Options{}, rescue.CopyOptions{})
	if want := "100644 0:0 " + strings.Repeat("f", 205); m.files["a/small5"] != want {
		t.Errorf("a/small5 is %.40q, want %.40q; %v", m.files["a/small5"], want, lines)
	}
}

// undoFile is one of the ranges, each with the bytes old.
func undoFile(t *testing.T, ranges ...[2]int64) *bytes.Reader {
	t.Helper()
	var b bytes.Buffer
	u := rescue.NewUndoWriter(&b)
	for _, r := range ranges {
		fstest.NoError(u.Add(int(r[0]), r[1], []byte("old bytes")))
	}
	fstest.NoError(u.Close())
	return bytes.NewReader(b.Bytes())
}

// TestUndoWhole: an undo file of other devices, or one that is cut or changed, changes nothing,
// also where its first ranges would fit; what a good one writes back is durable.
func TestUndoWhole(t *testing.T) {
	tk := sched.NewTask("test")
	const size = 1 << 20
	good, err := io.ReadAll(undoFile(t, [2]int64{0, 4096}, [2]int64{0, 8192}))
	fstest.NoError(err)
	changed := bytes.Clone(good)
	changed[40] ^= 1
	for what, r := range map[string]*bytes.Reader{
		"a range beyond the end": undoFile(t, [2]int64{0, 4096}, [2]int64{0, size - 4}),
		"a second device":        undoFile(t, [2]int64{0, 4096}, [2]int64{1, 4096}),
		"before the beginning":   undoFile(t, [2]int64{0, 4096}, [2]int64{0, -4096}),
		"cut":                    bytes.NewReader(good[:len(good)-1]),
		"changed":                bytes.NewReader(changed),
	} {
		dev := blockdev.NewMemory(size)
		if _, err := rescue.Undo(tk, []blockdev.Device{dev}, r); err == nil {
			t.Errorf("%s: no error", what)
		}
		if dev.Allocated() != 0 {
			t.Errorf("%s: something was written", what)
		}
	}
	cuts := fstest.NewCuts(blockdev.NewMemory(size))
	n, err := rescue.Undo(tk, cuts.Devices(), bytes.NewReader(good))
	if err != nil || n != 18 {
		t.Fatalf("%d bytes, %v", n, err)
	}
	cuts.Mark("undone")
	last := fstest.Cut{}
	cuts.Each(tk, 1, 1, func(x fstest.Cut) { last = x })
	p := make([]byte, 9)
	fstest.NoError(blockdev.Read(tk, last.Devs[0], p, 8192))
	if string(p) != "old bytes" || last.Mark != "undone" {
		t.Errorf("after a power cut: %q", p)
	}
	if _, err := rescue.Undo(tk, []blockdev.Device{dm.NewFlakey(blockdev.NewMemory(size), dm.Fault{Op: blockdev.OpFlush, Nth: 1, On: true})}, bytes.NewReader(good)); err == nil {
		t.Error("a flush that fails is no error")
	}
}

// TestNewerThanSuper: superblocks whose last write was lost give the older state; a scan says that
// there is a newer one, --generation of it copies it, and one that never was gives the newest
// before it and says so.
func TestNewerThanSuper(t *testing.T) {
	x := fstest.New(t, fstest.NoCheck(), fstest.Size(300<<20))
	old := x.Create("/old")
	x.WriteAt(old, []byte("old"), 0)
	x.Must(x.FS.Sync(x.T))
	var supers [2][]byte
	var s format.Super
	for i := range supers {
		supers[i], s = super(t, x.T, x.Dev, i)
	}
	f := x.Create("/new")
	x.WriteAt(f, bytes.Repeat([]byte("new"), 40<<20), 0) // needs a new chunk
	x.Must(x.FS.Sync(x.T))
	_, lost := super(t, x.T, x.Dev, 0)
	dev := x.Dev.(*blockdev.Memory).Snapshot()
	for i := range supers {
		fstest.NoError(blockdev.Write(x.T, dev, supers[i], int64(format.SuperMirror(i))))
	}
	for _, c := range []struct {
		o    rescue.Options
		new  bool
		note string
	}{
		{rescue.Options{}, false, ""},
		{rescue.Options{Scan: true}, false, "newer than every superblock"},
		{rescue.Options{Generation: s.Generation}, false, ""},
		{rescue.Options{Generation: lost.Generation}, true, fmt.Sprintf("of generation %d", lost.Generation)},
		{rescue.Options{Generation: lost.Generation + 50}, true, fmt.Sprintf("no root tree of transaction %d is left; the newest before it is of %d", lost.Generation+50, lost.Generation)},
	} {
		im, err := rescue.Open(x.T, []blockdev.Device{dev}, c.o)
		x.Must(err)
		m := newMemory()
		sum, err := im.Copy(m, rescue.CopyOptions{})
		x.Must(err)
		notes := strings.Join(im.Notes(), "\n")
		if (m.files["new"] != "") != c.new || m.files["old"] == "" || sum.Partial+sum.Lost > 0 || !strings.Contains(notes, c.note) {
			t.Errorf("%+v: %d files, new %v, %+v, notes %q", c.o, len(m.files), m.files["new"] != "", sum, notes)
		}
		if c.new && len(m.files["new"]) != 120<<20+len("100644 0:0 ") {
			t.Errorf("%+v: new has %d bytes", c.o, len(m.files["new"]))
		}
	}
}

// counted is a device that counts the bytes that are read.
type counted struct {
	blockdev.Device
	read *int64
}

func (c counted) Under() blockdev.Device { return c.Device }

func (c counted) Submit(t *sched.Task, b *blockdev.Bio) {
	if b.Op == blockdev.OpRead {
		*c.read += int64(b.Len())
	}
	c.Device.Submit(t, b)
}

// TestScanHoles: a scan does not read the holes of a sparse image, whether a file has them or
// memory, also under an overlay.
func TestScanHoles(t *testing.T) {
	tk := sched.NewTask("test")
	const size = 8 << 30
	file, err := blockdev.Create(filepath.Join(t.TempDir(), "sparse"), size)
	fstest.NoError(err)
	defer file.Close()
	for _, dev := range []blockdev.Device{file, blockdev.NewMemory(size)} {
		fstest.NoError(mkfs.Make(tk, dev, mkfs.Options{}))
		for _, over := range []bool{false, true} {
			read := int64(0)
			var d blockdev.Device = counted{dev, &read}
			if over {
				d = dm.NewOverlay(d, nil)
			}
			done := uint64(0)
			im, err := rescue.Open(tk, []blockdev.Device{d}, rescue.Options{Scan: true, Progress: func(d, total uint64) { done = d }})
			fstest.NoError(err)
			trees, err := im.Trees()
			fstest.NoError(err)
			if len(trees) < 8 || read > 512<<20 || done == 0 || done > size {
				t.Errorf("%s, overlay %v: %d trees, %d bytes read, progress %d", dev.Name(), over, len(trees), read, done)
			}
		}
	}
	_ = os.Remove(file.Name())
}
