package edit_test

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"

	"btrlab/internal/blockdev"
	"btrlab/internal/format"
	"btrlab/internal/progs/check"
	"btrlab/internal/progs/edit"
	"btrlab/internal/progs/rescue"
	"btrlab/internal/testing/damaged"
)

const all = -1 // copies

// commit writes an edit, and returns its undo file.
func commit(t *testing.T, m *damaged.Image, x *edit.Edit) []byte {
	t.Helper()
	var b bytes.Buffer
	w := rescue.NewUndoWriter(&b)
	if err := x.Commit(w.Add, w.Close); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func sets(t *testing.T, words ...string) (l []edit.Set) {
	t.Helper()
	for _, w := range words {
		s, err := edit.ParseSet(w)
		if err != nil {
			t.Fatal(err)
		}
		l = append(l, s)
	}
	return l
}

// provoke is one edit, and the rule that it breaks.
type provoke struct {
	rule string
	do   func(x *edit.Edit) error
}

// provokes has an edit for each class of rules.
func provokes(t *testing.T, m *damaged.Image) []provoke {
	set := func(tree uint64, k format.Key, words ...string) func(x *edit.Edit) error {
		return func(x *edit.Edit) error { return x.Set(tree, k, sets(t, words...)) }
	}
	del := func(tree uint64, k format.Key) func(x *edit.Edit) error {
		return func(x *edit.Edit) error { return x.Delete(tree, k) }
	}
	block := func(tree uint64, words ...string) func(x *edit.Edit) error {
		return func(x *edit.Edit) error { return x.Block(m.Root(tree), sets(t, words...)) }
	}
	super := func(words ...string) func(x *edit.Edit) error {
		return func(x *edit.Edit) error { return x.Super(sets(t, words...)) }
	}
	data, sum := m.Data0(), damaged.Key(format.EXTENT_CSUM_OBJECTID, format.EXTENT_CSUM_KEY, m.Data0())
	file, chunk := damaged.Key(damaged.FileIno, format.INODE_ITEM_KEY, 0), m.Chunks[2]
	return []provoke{
		{"super.bytes_used", super("bytes_used=200704")},
		{"tree.level", block(damaged.CsumTree, "level=3")},
		{"root.item", set(damaged.RootTree, damaged.Key(damaged.CsumTree, format.ROOT_ITEM_KEY, 0), "generation_v2=0")},
		{"chunk.dev_extent", del(damaged.DevTree, damaged.Key(1, format.DEV_EXTENT_KEY, chunk.Stripes[0]))},
		{"dev.bytes_used", set(damaged.ChunkTree, damaged.Key(format.DEV_ITEMS_OBJECTID, format.DEV_ITEM_KEY, 1), "bytes_used=1")},
		{"extent.refs", set(damaged.ExtentTree, damaged.Key(data, format.EXTENT_ITEM_KEY, 4*damaged.Sector), "refs=7")},
		{"group.used", set(damaged.ExtentTree, damaged.Key(chunk.Start, format.BLOCK_GROUP_ITEM_KEY, chunk.Length), "used=0")},
		{"free_space.info", set(damaged.FreeTree, damaged.Key(chunk.Start, format.FREE_SPACE_INFO_KEY, chunk.Length), "count=99")},
		{"quota.count", set(format.QUOTA_TREE_OBJECTID, damaged.Key(0, format.QGROUP_INFO_KEY, damaged.FsTree), "referenced=1")},
		{"uuid.item", set(damaged.RootTree, damaged.Key(damaged.FsTree, format.ROOT_ITEM_KEY, 0), "uuid=01010101-0202-0303-0404-050505050505")},
		{"csum.missing", del(damaged.CsumTree, sum)},
		{"data.csum", set(damaged.CsumTree, sum, "@0=deadbeef")},
		{"inode.nlink", set(damaged.FsTree, file, "nlink=9")},
		{"dir.item", func(x *edit.Edit) error {
			return x.Insert(damaged.FsTree, damaged.Key(256, format.DIR_INDEX_KEY, 77), nil, sets(t, "name=ghost", "location=(257 INODE_ITEM 0)", "type=1", "transid=1"))
		}},
		{"file.extent", set(damaged.FsTree, damaged.Key(damaged.FileIno, format.EXTENT_DATA_KEY, 0), "num_bytes=1048576", "ram_bytes=1048576")},
		{"log.space", super(fmt.Sprint("log_root=", m.Root(damaged.CsumTree)))},
	}
}

// Every class of rules of the check has an edit that provokes it, and its undo takes it back. Of
// those that are left out no field is wrong.
func TestProvokes(t *testing.T) {
	base := damaged.NewImage(t)
	base.AddQuota(1, base.Super.Generation)
	if r := base.Check(); !r.Clean {
		t.Fatalf("%s", damaged.Text(r))
	}
	classes := map[string]bool{"device": true} // a device that is not read
	for _, p := range provokes(t, base) {
		m := base.Clone(t)
		x := edit.Open(m.Task, []blockdev.Device{m.Dev}, edit.Options{Copy: all})
		if err := p.do(x); err != nil {
			t.Errorf("%s: %v", p.rule, err)
			continue
		}
		if !same(m, base) {
			t.Errorf("%s: written before Commit", p.rule)
		}
		undo := commit(t, m, x)
		r, err := check.Check(m.Task, m.Dev, check.Options{})
		if err != nil || !slices.ContainsFunc(r.Findings, func(f check.Finding) bool { return f.Rule == p.rule }) {
			t.Errorf("%s: %v, found\n%s", p.rule, err, damaged.Text(r))
		}
		if slices.ContainsFunc(r.Findings, func(f check.Finding) bool {
			return f.Rule == "tree.csum" || f.Rule == "super.bad" || f.Rule == "tree.mirror"
		}) {
			t.Errorf("%s: a checksum is wrong, or a copy\n%s", p.rule, damaged.Text(r))
		}
		if len(x.Changes) == 0 {
			t.Errorf("%s: says nothing", p.rule)
		}
		if _, err := rescue.Undo(m.Task, []blockdev.Device{m.Dev}, bytes.NewReader(undo)); err != nil || !same(m, base) {
			t.Errorf("%s: undo: %v, the same %v", p.rule, err, same(m, base))
		}
		class, _, _ := strings.Cut(p.rule, ".")
		classes[class] = true
	}
	for _, r := range check.Rules {
		if class, _, _ := strings.Cut(r.Name, "."); !classes[class] {
			t.Errorf("no edit provokes a rule of %s", class)
			classes[class] = true
		}
	}
}

// same compares what two images have: superblocks, and the first megabyte of each stripe.
func same(a, b *damaged.Image) bool {
	offs := []uint64{format.SuperOffset, format.SuperMirror(1)}
	for _, c := range b.Chunks {
		offs = append(offs, c.Stripes...)
	}
	return !slices.ContainsFunc(offs, func(off uint64) bool { return !bytes.Equal(a.Read(off, 1<<20), b.Read(off, 1<<20)) })
}

// A checksum is right, kept or wrong as it is asked for; one copy can be changed alone; a raw
// delete leaves a hole in the leaf.
func TestWays(t *testing.T) {
	base := damaged.NewImage(t)
	file := damaged.Key(damaged.FileIno, format.INODE_ITEM_KEY, 0)
	uid := func(x *edit.Edit) error { return x.Set(damaged.FsTree, file, sets(t, "uid=7")) }
	label := func(x *edit.Edit) error { return x.Super(sets(t, "@0x12b=616263")) }
	for _, c := range []struct {
		name  string
		o     edit.Options
		do    func(x *edit.Edit) error
		rules string
	}{
		{"uid", edit.Options{Copy: all}, uid, "[]"},
		{"keep", edit.Options{Copy: all, Csum: edit.KeepCsum}, uid, "[tree.csum tree.read]"},
		{"bad", edit.Options{Copy: all, Csum: edit.BadCsum}, func(x *edit.Edit) error { return x.Set(damaged.FsTree, file, nil) }, "[tree.csum tree.read]"},
		{"one copy", edit.Options{Copy: 1}, uid, "[tree.mirror]"},
		{"one copy, bad", edit.Options{Copy: 0, Csum: edit.BadCsum}, uid, "[tree.csum]"},
		{"superblocks", edit.Options{Copy: all}, label, "[]"},
		{"one superblock", edit.Options{Copy: 1}, label, "[super.copy]"},
		{"bad superblock", edit.Options{Copy: 0, Csum: edit.BadCsum}, label, "[super.bad]"},
		{"raw", edit.Options{Copy: all, Raw: true}, func(x *edit.Edit) error {
			return x.Delete(damaged.FsTree, damaged.Key(damaged.InlineIn, format.EXTENT_DATA_KEY, 0))
		}, "[tree.block]"},
		{"key", edit.Options{Copy: all}, func(x *edit.Edit) error {
			return x.Set(damaged.FsTree, damaged.Key(damaged.InlineIn, format.INODE_REF_KEY, damaged.DirIno), sets(t, "key=(259 INODE_REF 999)"))
		}, "[dir.ref]"},
		{"header", edit.Options{Copy: all}, func(x *edit.Edit) error { return x.Block(base.Root(damaged.CsumTree), sets(t, "item.0.size=3")) }, "[tree.block]"},
	} {
		m := base.Clone(t)
		x := edit.Open(m.Task, []blockdev.Device{m.Dev}, c.o)
		if err := c.do(x); err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		commit(t, m, x)
		r, err := check.Check(m.Task, m.Dev, check.Options{})
		if err != nil {
			t.Fatal(err)
		}
		// What is lost with a leaf is beside the point.
		have := damaged.Rules(r)
		if c.rules != "[]" && have != c.rules {
			for _, w := range strings.Fields(strings.Trim(c.rules, "[]")) {
				if !strings.Contains(have, w) {
					t.Errorf("%s: have %s want %s\n%s", c.name, have, c.rules, damaged.Text(r))
				}
			}
		} else if have != c.rules {
			t.Errorf("%s: have %s want %s\n%s", c.name, have, c.rules, damaged.Text(r))
		}
	}
}

// An item that is inserted and deleted again leaves the tree as it was.
func TestInsertDelete(t *testing.T) {
	m := damaged.NewImage(t)
	k := damaged.Key(damaged.FileIno, format.XATTR_ITEM_KEY, format.NameHash("user.x"))
	x := edit.Open(m.Task, []blockdev.Device{m.Dev}, edit.Options{Copy: all})
	if err := x.Insert(damaged.FsTree, k, nil, sets(t, "name=user.x", "type=8", "transid=1")); err != nil {
		t.Fatal(err)
	}
	if err := x.Insert(damaged.FsTree, k, nil, nil); err == nil || !strings.Contains(err.Error(), "has the item") {
		t.Errorf("a second time: %v", err)
	}
	commit(t, m, x)
	if r := m.Check(); !r.Clean || !slices.Contains(m.Keys(m.Root(damaged.FsTree)), k) {
		t.Errorf("inserted:\n%s", damaged.Text(r))
	}
	x = edit.Open(m.Task, []blockdev.Device{m.Dev}, edit.Options{Copy: all})
	if err := x.Delete(damaged.FsTree, k); err != nil {
		t.Fatal(err)
	}
	commit(t, m, x)
	if r := m.Check(); !r.Clean || slices.Contains(m.Keys(m.Root(damaged.FsTree)), k) {
		t.Errorf("deleted:\n%s", damaged.Text(r))
	}
}

// What is not there, or does not fit, is one line, and nothing is written.
func TestErrors(t *testing.T) {
	base := damaged.NewImage(t)
	file := damaged.Key(damaged.FileIno, format.INODE_ITEM_KEY, 0)
	for want, do := range map[string]func(x *edit.Edit) error{
		`has no field "nlinks", want @OFFSET=BYTES or one of: generation, transid,`: func(x *edit.Edit) error { return x.Set(damaged.FsTree, file, sets(t, "nlinks=1")) },
		"is not there":             func(x *edit.Edit) error { return x.Delete(damaged.FsTree, damaged.Key(9999, format.INODE_ITEM_KEY, 0)) },
		"no tree 4711":             func(x *edit.Edit) error { return x.Set(4711, file, nil) },
		"is in no chunk":           func(x *edit.Edit) error { return x.Block(1<<50, sets(t, "level=1")) },
		"want a number of 32 bits": func(x *edit.Edit) error { return x.Set(damaged.FsTree, file, sets(t, "uid=9999999999")) },
		"the size of such an item is not known": func(x *edit.Edit) error {
			return x.Insert(damaged.CsumTree, damaged.Key(format.EXTENT_CSUM_OBJECTID, format.EXTENT_CSUM_KEY, 4096), nil, nil)
		},
		"have room for": func(x *edit.Edit) error {
			return x.Insert(damaged.FsTree, damaged.Key(9, 1, 1), make([]byte, 1<<20), nil)
		},
		"want 4 bytes, as there are": func(x *edit.Edit) error {
			return x.Set(damaged.FsTree, base.Find(damaged.FsTree, damaged.FileIno, format.INODE_REF_KEY), sets(t, "name=longer"))
		},
		"want @OFFSET=BYTES":    func(x *edit.Edit) error { return x.Set(damaged.FsTree, file, sets(t, "@0x=00")) },
		"want at most byte 159": func(x *edit.Edit) error { return x.Set(damaged.FsTree, file, sets(t, "@159=0000")) },
	} {
		m := base.Clone(t)
		err := do(edit.Open(m.Task, []blockdev.Device{m.Dev}, edit.Options{Copy: all}))
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("have %v want %q", err, want)
		}
		if !same(m, base) {
			t.Errorf("%s: something is written", want)
		}
	}
	x := edit.Open(base.Task, []blockdev.Device{base.Dev}, edit.Options{Copy: 5})
	if err := x.Block(base.Root(damaged.FsTree), sets(t, "level=1")); err == nil || !strings.Contains(err.Error(), "has 2 copies") {
		t.Errorf("copy 5: %v", err)
	}
	if err := x.Super(sets(t, "generation=1")); err == nil {
		t.Error("superblock 5 is changed")
	}
}
