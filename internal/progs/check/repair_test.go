package check

import (
	"bytes"
	"slices"
	"testing"

	"btrlab/internal/blockdev"
	"btrlab/internal/format"
)

// TestRepair damages an image. The repair makes it clean, and nothing is written before Commit;
// what undo was told is what makes it as it was.
func TestRepair(t *testing.T) {
	base := newImage(t)
	dataKey := key(base.data0(), format.EXTENT_ITEM_KEY, 4*blk)
	group := func(m *image, i int) format.Key {
		return key(m.ch[i].start, format.BLOCK_GROUP_ITEM_KEY, m.ch[i].length)
	}
	wipe := func(m *image, bytenr uint64) {
		for _, off := range m.copies(bytenr) {
			m.write(off, make([]byte, m.sb.NodeSize))
		}
	}
	for _, c := range []struct {
		name string
		do   func(m *image)
	}{
		{"the primary superblock", func(m *image) { m.write(format.SuperOffset+0x400, []byte("torn")) }},
		{"a superblock copy", func(m *image) { m.write(format.SuperMirror(1), make([]byte, 100)) }},
		{"one copy of a tree block", func(m *image) { m.write(m.copies(m.root(csumTree))[1]+5000, []byte("rot")) }},
		{"one copy of data", func(m *image) { m.write(m.dupData()+2*blk, []byte("rot")) }},
		{"nlink", func(m *image) { m.editInode(fileIno, func(i *format.InodeItem) { i.Nlink = 3 }) }},
		{"nbytes", func(m *image) { m.editInode(subIno, func(i *format.InodeItem) { i.Nbytes += 4096 }) }},
		{"the size of a directory", func(m *image) { m.editInode(dirIno, func(i *format.InodeItem) { i.Size++ }) }},
		{"the DIR_ITEM of an entry", func(m *image) { m.del(fsTree, key(dirIno, format.DIR_ITEM_KEY, format.NameHash("nocow"))) }},
		{"the DIR_INDEX of an entry", func(m *image) { m.del(fsTree, key(dirIno, format.DIR_INDEX_KEY, 4)) }},
		{"the reference in an inode", func(m *image) { m.del(fsTree, key(subIno, format.INODE_REF_KEY, dirIno)) }},
		{"the orphan item of a subvolume", func(m *image) {
			m.subvol(300, 70)
			m.rootItem(300, func(r *format.RootItem) { r.Refs = 0 })
		}},
		{"the extent tree", func(m *image) { wipe(m, m.root(extentTree)) }},
		{"the free space tree", func(m *image) { wipe(m, m.root(freeTree)) }},
		{"both of them, and the superblock", func(m *image) {
			wipe(m, m.root(extentTree))
			wipe(m, m.root(freeTree))
			m.write(format.SuperOffset+0x400, []byte("torn"))
		}},
		{"an extent item", func(m *image) { m.del(extentTree, dataKey) }},
		{"the refs of an extent", func(m *image) { m.edit(extentTree, dataKey, set64(0, 2)) }},
		{"a block group item", func(m *image) { m.del(extentTree, group(m, 2)) }},
		{"used of a block group", func(m *image) { m.edit(extentTree, group(m, 2), set64(0, 5*blk)) }},
		{"bytes_used of the superblock", func(m *image) { m.sb.BytesUsed += blk; m.super() }},
		{"bytes_used of the device", func(m *image) {
			m.edit(chunkTree, m.find(chunkTree, format.DEV_ITEMS_OBJECTID, format.DEV_ITEM_KEY), set64(16, 4096))
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := base.clone(t)
			c.do(m)
			damaged := m.dev.Snapshot()
			r, err := Propose(m.tk, m.dev, Options{})
			if err != nil {
				t.Fatal(err)
			}
			if !r.After.Clean || !r.Better() || r.Before.Clean || len(r.Done) == 0 {
				t.Fatalf("before:\n%s\nafter:\n%s\n%q %q", r.Before.text(), r.After.text(), r.Done, r.Left)
			}
			same := func(d blockdev.Device, what string) {
				t.Helper()
				if !bytes.Equal(all(t, m, damaged), all(t, m, d)) {
					t.Error(what)
				}
			}
			same(m.dev, "the device was written before Commit")
			type block struct {
				off int64
				old []byte
			}
			var undo []block
			done := 0
			err = r.Commit(m.tk, func(_ int, off int64, old []byte) error {
				undo = append(undo, block{off, slices.Clone(old)})
				return nil
			}, func() error {
				done++
				same(m.dev, "the device was written before the undo was kept")
				return nil
			})
			if err != nil || done != 1 {
				t.Fatal(err, done)
			}
			if after := m.check(); !after.Clean {
				t.Errorf("after Commit:\n%s", after.text())
			}
			for _, b := range undo {
				m.write(uint64(b.off), b.old)
			}
			same(m.dev, "the undo does not make it as it was")
		})
	}
}

func all(t *testing.T, m *image, d blockdev.Device) []byte {
	t.Helper()
	p := make([]byte, d.Size())
	if err := blockdev.Read(m.tk, d, p, 0); err != nil {
		t.Fatal(err)
	}
	return p
}

// TestRepairLeaves: what is lost stays lost. The proposal is none, and says why.
func TestRepairLeaves(t *testing.T) {
	base := newImage(t)
	for _, c := range []struct {
		name string
		do   func(m *image)
	}{
		{"data", func(m *image) { m.write(m.copies(m.data0())[0]+blk+17, []byte("rot")) }},
		{"a leaf of the tree of files, and the extent tree", func(m *image) {
			for _, bytenr := range []uint64{m.block(m.root(fsTree)).Blockptr(1), m.root(extentTree)} {
				for _, off := range m.copies(bytenr) {
					m.write(off, make([]byte, m.sb.NodeSize))
				}
			}
		}},
	} {
		m := base.clone(t)
		c.do(m)
		r, err := Propose(m.tk, m.dev, Options{})
		if err != nil {
			t.Fatal(err)
		}
		if r.Better() || r.After.Clean || len(r.Done) > 0 {
			t.Errorf("%s: %q\n%s", c.name, r.Done, r.After.text())
		}
		t.Logf("%s: left %q", c.name, r.Left)
	}
}
