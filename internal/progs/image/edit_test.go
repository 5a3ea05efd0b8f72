package image_test

import (
	"bytes"
	"math/rand/v2"
	"slices"
	"testing"

	"btrlab/internal/blockdev"
	"btrlab/internal/format"
	"btrlab/internal/progs/image"
	"btrlab/internal/progs/mkfs"
)

const (
	uuidTree = format.UUID_TREE_OBJECTID
	fsTree   = format.FS_TREE_OBJECTID
)

// edited is an editor of a new image of small blocks. New blocks come from the end of a chunk.
func edited(t *testing.T) (*blockdev.Memory, *image.Editor) {
	t.Helper()
	dev := blockdev.NewMemory(128 << 20)
	if err := mkfs.Make(task, dev, mkfs.Options{NodeSize: 4096}); err != nil {
		t.Fatal(err)
	}
	im := open(t, []blockdev.Device{dev})
	e, err := image.NewEditor(im)
	if err != nil {
		t.Fatal(err)
	}
	next := map[uint64]uint64{}
	for _, c := range im.Chunks {
		next[c.Type&format.BlockGroupTypeMask] = c.End()
	}
	e.Place = func(tree uint64) (uint64, error) {
		typ := uint64(format.BlockGroupMetadata)
		if tree == format.CHUNK_TREE_OBJECTID {
			typ = format.BlockGroupSystem
		}
		next[typ] -= uint64(im.SB.NodeSize)
		return next[typ], nil
	}
	return dev, e
}

// itemsOf are the items of a tree. Its blocks must pass the tree checker, and have the first key
// that the pointer to them says.
func itemsOf(t *testing.T, e *image.Editor, tree uint64) (list []image.Item) {
	t.Helper()
	root, err := e.RootOf(tree)
	if err != nil {
		t.Fatal(err)
	}
	err = image.Walk(root, image.Whole, func(r image.Ref, keys image.Span) (format.Node, error) {
		n, err := e.Checked(r)
		if err != nil {
			return nil, err
		}
		if nr := n.Nritems(); nr > 0 && (r.Level < root.Level && keys.Lo != (format.Key{}) && n.Key(0) != keys.Lo || keys.Hi.Less(n.Key(nr-1))) {
			t.Errorf("block %d has keys %v to %v, its pointer leaves %v", r.Bytenr, n.Key(0), n.Key(nr-1), keys)
		}
		if n.Generation() != r.Generation {
			t.Errorf("block %d has generation %d, its pointer %d", r.Bytenr, n.Generation(), r.Generation)
		}
		if n.Level() == 0 {
			list = append(list, image.LeafItems(n)...)
		}
		return n, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return list
}

func same(a, b image.Item) bool { return a.Key == b.Key && bytes.Equal(a.Data, b.Data) }

// TestEditor: items come, change their size and go at random, until the tree has three levels and
// until it is empty again; at each look it has what it should.
func TestEditor(t *testing.T) {
	_, e := edited(t)
	want := itemsOf(t, e, uuidTree)
	r := rand.New(rand.NewPCG(1, 2))
	level := 0
	look := func(round int) {
		t.Helper()
		if have := itemsOf(t, e, uuidTree); !slices.EqualFunc(have, want, same) {
			t.Fatalf("round %d: %d items, want %d", round, len(have), len(want))
		}
		root, err := e.RootOf(uuidTree)
		if err != nil {
			t.Fatal(err)
		}
		level = max(level, root.Level)
	}
	for i := range 3000 {
		k := format.Key{Objectid: 1000 + r.Uint64N(2000), Type: format.TEMPORARY_ITEM_KEY}
		at, found := slices.BinarySearchFunc(want, k, func(it image.Item, k format.Key) int { return it.Key.Compare(k) })
		data := make([]byte, r.IntN(900))
		for j := range data {
			data[j] = byte(i)
		}
		var err error
		switch {
		case !found:
			want = slices.Insert(want, at, image.Item{Key: k, Data: data})
			err = e.Insert(uuidTree, k, data)
		case r.IntN(3) == 0:
			want = slices.Delete(want, at, at+1)
			err = e.Delete(uuidTree, k)
		case r.IntN(2) == 0:
			want[at].Data = bytes.Repeat([]byte{1}, len(want[at].Data))
			err = e.Change(uuidTree, k, func(b []byte) error { copy(b, want[at].Data); return nil })
		default:
			want[at].Data = data
			err = e.Replace(uuidTree, k, data)
		}
		if err != nil {
			t.Fatal(i, err)
		}
		if i%300 == 0 {
			look(i)
			// What is new is newer than the blocks before.
			if err := e.EditSupers(func(s *format.Super) { s.Generation++ }); err != nil {
				t.Fatal(err)
			}
		}
	}
	if look(3000); level < 2 {
		t.Errorf("the tree had %d levels", level+1)
	}
	for len(want) > 0 {
		i := r.IntN(len(want))
		if err := e.Delete(uuidTree, want[i].Key); err != nil {
			t.Fatal(err)
		}
		want = slices.Delete(want, i, i+1)
		if len(want)%300 == 0 {
			look(-len(want))
		}
	}
	if root, err := e.RootOf(uuidTree); err != nil || root.Level != 0 {
		t.Errorf("the empty tree has level %d, %v", root.Level, err)
	}
}

// TestEditorRefuses: an edit that cannot be is an error, and changes nothing.
func TestEditorRefuses(t *testing.T) {
	dev, e := edited(t)
	e.Place = nil
	k := itemsOf(t, e, fsTree)[0].Key
	missing := format.Key{Objectid: 5000, Type: format.TEMPORARY_ITEM_KEY}
	before := dev.Snapshot()
	for what, f := range map[string]func() error{
		"a second item of a key":     func() error { return e.Insert(fsTree, k, nil) },
		"no item to take":            func() error { return e.Delete(fsTree, missing) },
		"no item to replace":         func() error { return e.Replace(fsTree, missing, nil) },
		"no item to change":          func() error { return e.Change(fsTree, missing, func([]byte) error { return nil }) },
		"no tree":                    func() error { return e.Insert(300, missing, nil) },
		"an item larger than a leaf": func() error { return e.Insert(fsTree, missing, make([]byte, format.MaxItemSize(4096)+1)) },
	} {
		if err := f(); err == nil {
			t.Errorf("%s: no error", what)
		}
	}
	if !equal(t, dev, before) {
		t.Error("the image has changed")
	}
}

// TestEditorRollback: changes of items, of the root of a tree and of superblocks are taken back,
// down to the byte; what was kept stays.
func TestEditorRollback(t *testing.T) {
	dev, e := edited(t)
	key := func(i int) format.Key { return format.Key{Objectid: 1000 + uint64(i), Type: format.TEMPORARY_ITEM_KEY} }
	fill := func(tree uint64, from, to int) {
		t.Helper()
		for i := from; i < to; i++ {
			if err := e.Insert(tree, key(i), make([]byte, 300)); err != nil {
				t.Fatal(err)
			}
		}
	}
	fill(fsTree, 0, 5)
	e.Keep()
	kept, items, sb := dev.Snapshot(), itemsOf(t, e, fsTree), e.SB
	fill(fsTree, 5, 200)
	fill(format.ROOT_TREE_OBJECTID, 0, 100)
	fill(format.CHUNK_TREE_OBJECTID, 0, 100)
	if e.SB.RootLevel == 0 || e.SB.ChunkRootLevel == 0 || equal(t, dev, kept) {
		t.Fatal("nothing was split")
	}
	for _, s := range image.Supers(task, dev) {
		if s.Err != nil || s.Super.Root != e.SB.Root || s.Super.ChunkRoot != e.SB.ChunkRoot {
			t.Errorf("superblock %d: %v; root at %d want %d, chunk root at %d want %d", s.Copy, s.Err, s.Super.Root, e.SB.Root, s.Super.ChunkRoot, e.SB.ChunkRoot)
		}
	}
	if err := e.Rollback(); err != nil {
		t.Fatal(err)
	}
	if have := itemsOf(t, e, fsTree); !equal(t, dev, kept) || !slices.EqualFunc(have, items, same) || e.SB.Root != sb.Root || e.SB.RootLevel != sb.RootLevel {
		t.Errorf("%d items after the rollback, want %d; root at %d, want %d", len(have), len(items), e.SB.Root, sb.Root)
	}
	fill(fsTree, 5, 10)
	if have := itemsOf(t, e, fsTree); len(have) != len(items)+5 {
		t.Errorf("%d items, want %d", len(have), len(items)+5)
	}
}

// TestEditSupers: a superblock of another commit stays as it is.
func TestEditSupers(t *testing.T) {
	dev, e := edited(t)
	old := image.ReadSuper(task, dev, 1)
	if err := e.EditSupers(func(s *format.Super) { s.Generation++ }); err != nil {
		t.Fatal(err)
	}
	if err := blockdev.Write(task, dev, old.Raw, int64(old.Bytenr)); err != nil {
		t.Fatal(err)
	}
	if err := e.EditSupers(func(s *format.Super) { s.Label = "new" }); err != nil {
		t.Fatal(err)
	}
	for i, s := range image.Supers(task, dev) {
		if want := []string{"new", ""}[i]; s.Err != nil || s.Super.Label != want {
			t.Errorf("superblock %d has the label %q, want %q: %v", i, s.Super.Label, want, s.Err)
		}
	}
	if e.SB.Label != "new" {
		t.Errorf("the editor has the label %q", e.SB.Label)
	}
}

func equal(t *testing.T, a, b *blockdev.Memory) bool {
	t.Helper()
	p, q := make([]byte, 1<<20), make([]byte, 1<<20)
	for off := int64(0); off < a.Size(); off += 1 << 20 {
		if blockdev.Read(task, a, p, off) != nil || blockdev.Read(task, b, q, off) != nil {
			t.Fatal("cannot be read")
		}
		if !bytes.Equal(p, q) {
			return false
		}
	}
	return true
}
