package check_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"btrlab/internal/format"
	"btrlab/internal/testing/damaged"
)

// More damage, of kinds that a rule must tell apart: a value that is wrong in one of two fields, on
// one side of a border, in the second leaf of a tree, or in an item that others repeat.

func TestDamageByOne(t *testing.T) {
	base := damaged.NewImage(t)
	for _, c := range damaged.ByOne(base) {
		t.Run(strings.ReplaceAll(c.Name, " ", "-"), func(t *testing.T) {
			m := base.Clone(t)
			c.Do(m)
			r := m.Check()
			if want := fmt.Sprint(strings.Fields(c.Rules)); damaged.Rules(r) != want {
				t.Errorf("have %s want %s\n%s", damaged.Rules(r), want, damaged.Text(r))
			}
		})
	}
}

// TestExplicitHoles: without NO_HOLES every byte below i_size has an item: the start of a file, its
// end, and all of one without any.
func TestExplicitHoles(t *testing.T) {
	sample := func() *damaged.Image {
		m := damaged.NewImage(t)
		m.Super.IncompatFlags &^= format.IncompatNoHoles
		m.PutSuper()
		m.FileExtent(damaged.SubIno, 0, format.FileExtent{Type: format.FileExtentTypeReg, RAMBytes: 2 * damaged.Sector, NumBytes: 2 * damaged.Sector})
		return m
	}
	if r := sample().Check(); !r.Clean {
		t.Fatalf("with its hole in an item, have:\n%s", damaged.Text(r))
	}
	for _, c := range []struct {
		want string
		do   func(m *damaged.Image)
	}{
		{"no file extent for 0..8192", func(m *damaged.Image) { m.Del(damaged.FsTree, damaged.Key(damaged.SubIno, format.EXTENT_DATA_KEY, 0)) }},
		{"no file extent for 4096..8192", func(m *damaged.Image) {
			m.FileExtentEdit(damaged.SubIno, 0, func(fe *format.FileExtent) { fe.RAMBytes, fe.NumBytes = damaged.Sector, damaged.Sector })
		}},
		{"no file extent for 16384..16385", func(m *damaged.Image) { m.EditInode(damaged.SubIno, func(i *format.InodeItem) { i.Size++ }) }},
		{"no file extent for 0..5", func(m *damaged.Image) {
			m.Del(damaged.FsTree, damaged.Key(damaged.InlineIn, format.EXTENT_DATA_KEY, 0))
			m.EditInode(damaged.InlineIn, func(i *format.InodeItem) { i.Nbytes = 0 })
		}},
	} {
		m := sample()
		c.do(m)
		if r := m.Check(); damaged.Rules(r) != "[file.hole]" || !strings.Contains(damaged.Text(r), c.want) {
			t.Errorf("have %s want file.hole, %s\n%s", damaged.Rules(r), c.want, damaged.Text(r))
		}
	}
}

// TestRottenSectors: the report names the sectors that are rotten, those between them are sound,
// and where in which file they lie, also when the file has the extent at another offset, and a part
// of it only.
func TestRottenSectors(t *testing.T) {
	m := damaged.NewImage(t)
	d := m.Data0()
	rot := func(sectors ...uint64) {
		for _, s := range sectors {
			m.Write(m.Copies(d)[0]+s*damaged.Sector+17, []byte("rot"))
		}
	}
	// The file has sectors 1 to 3 of the extent, from 8 on.
	m.Rekey(damaged.FsTree, damaged.Key(damaged.FileIno, format.EXTENT_DATA_KEY, 0), damaged.Key(damaged.FileIno, format.EXTENT_DATA_KEY, 8*damaged.Sector))
	m.FileExtentEdit(damaged.FileIno, 8*damaged.Sector, func(fe *format.FileExtent) { fe.Offset, fe.NumBytes = damaged.Sector, 3*damaged.Sector })
	m.EditInode(damaged.FileIno, func(i *format.InodeItem) { i.Size, i.Nbytes = 11*damaged.Sector, 3*damaged.Sector })
	m.Edit(damaged.ExtentTree, damaged.Key(d, format.EXTENT_ITEM_KEY, 4*damaged.Sector), damaged.Set64(25+16, 7*damaged.Sector))
	if r := m.Check(); !r.Clean {
		t.Fatalf("the sample:\n%s", damaged.Text(r))
	}
	rot(0, 2, 3)
	var have []string
	for _, f := range m.Check().Findings {
		have = append(have, f.Rule+" "+f.Where())
	}
	at := func(s uint64) uint64 { return m.Copies(d)[0] + s*damaged.Sector }
	want := []string{
		fmt.Sprintf("data.csum logical=%d length=4096 mirror=0 device_offset=%d root=5 ino=%d file_offset=%d", d, at(0), damaged.FileIno, 7*damaged.Sector),
		fmt.Sprintf("data.csum logical=%d length=8192 mirror=0 device_offset=%d root=5 ino=%d file_offset=%d", d+2*damaged.Sector, at(2), damaged.FileIno, 9*damaged.Sector),
	}
	if !slices.Equal(have, want) {
		t.Errorf("have\n%s\nwant\n%s", strings.Join(have, "\n"), strings.Join(want, "\n"))
	}
}

// TestHalfDeletedSubvolume: a delete that was interrupted has dropped the start of the tree, and
// says how far it came. A mount goes on from there; nothing is wrong.
func TestHalfDeletedSubvolume(t *testing.T) {
	const sub, at = 300, 70
	m := damaged.NewImage(t)
	m.Subvol(sub, at)
	leaf := m.Block(m.Meta(at))
	root := make(format.Node, m.Super.NodeSize)
	root.InitHeader(m.Super.FSID, leaf.ChunkTreeUUID(), m.Meta(at+1), 1, sub, 1)
	root.SetWritten(true)
	root.SetNritems(2)
	// The first leaf is gone, its place perhaps in use by others; the second one has inodes from
	// 300 on.
	root.SetKey(0, damaged.InodeKey(256))
	root.SetBlockptr(0, m.Meta(at+2))
	root.SetPtrGeneration(0, 1)
	root.SetKey(1, damaged.InodeKey(300))
	root.SetBlockptr(1, leaf.Bytenr())
	root.SetPtrGeneration(1, 1)
	file := format.InodeItem{Generation: 1, Transid: 1, Nlink: 1, Mode: format.S_IFREG | 0o644}
	damaged.Fill(leaf, []damaged.Item{{K: damaged.InodeKey(300), B: damaged.Enc(format.InodeItemSize, &file)}})
	m.Put(leaf)
	m.Put(root)
	m.TreeExtent(root.Bytenr(), 1, sub)
	m.RootItem(sub, func(r *format.RootItem) {
		r.Bytenr, r.Level, r.Refs, r.DropProgress, r.DropLevel = root.Bytenr(), 1, 0, damaged.InodeKey(300), 1
	})
	m.OrphanRoot(sub)
	m.Settle()
	if r := m.Check(); !r.Clean || !strings.Contains(damaged.Text(r), "subvolume 300 is being deleted") {
		t.Errorf("have:\n%s", damaged.Text(r))
	}
	// Up to where the delete came, no further: what comes after must be there.
	m.RootItem(sub, func(r *format.RootItem) { r.DropProgress = damaged.InodeKey(299) })
	if r := m.Check(); r.Clean {
		t.Error("a pointer after the progress of the delete leads nowhere, and nothing is found")
	}
}
