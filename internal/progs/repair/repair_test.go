package repair

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"

	"btrlab/internal/blockdev"
	"btrlab/internal/format"
	"btrlab/internal/progs/check"
	"btrlab/internal/testing/damaged"
	"btrlab/internal/testing/need"
)

// TestRepair damages an image. The repair makes it clean, and nothing is written before Commit;
// what undo was told is what makes it as it was.
func TestRepair(t *testing.T) {
	need.Long(t)
	base := damaged.NewImage(t)
	dataKey := damaged.Key(base.Data0(), format.EXTENT_ITEM_KEY, 4*damaged.Sector)
	group := func(m *damaged.Image, i int) format.Key {
		return damaged.Key(m.Chunks[i].Start, format.BLOCK_GROUP_ITEM_KEY, m.Chunks[i].Length)
	}
	wipe := func(m *damaged.Image, bytenr uint64) {
		for _, off := range m.Copies(bytenr) {
			m.Write(off, make([]byte, m.Super.NodeSize))
		}
	}
	rows := 0 // one in eight is compared whole
	for _, c := range []struct {
		name string
		do   func(m *damaged.Image)
	}{
		{"the primary superblock", func(m *damaged.Image) { m.Write(format.SuperOffset+0x400, []byte("torn")) }},
		{"a superblock copy", func(m *damaged.Image) { m.Write(format.SuperMirror(1), make([]byte, 100)) }},
		{"one copy of a tree block", func(m *damaged.Image) { m.Write(m.Copies(m.Root(damaged.CsumTree))[1]+5000, []byte("rot")) }},
		{"one copy of data", func(m *damaged.Image) { m.Write(m.DupData()+2*damaged.Sector, []byte("rot")) }},
		{"nlink", func(m *damaged.Image) { m.EditInode(damaged.FileIno, func(i *format.InodeItem) { i.Nlink = 3 }) }},
		{"nbytes", func(m *damaged.Image) { m.EditInode(damaged.SubIno, func(i *format.InodeItem) { i.Nbytes += 4096 }) }},
		{"the size of a directory", func(m *damaged.Image) { m.EditInode(damaged.DirIno, func(i *format.InodeItem) { i.Size++ }) }},
		{"the DIR_ITEM of an entry", func(m *damaged.Image) {
			m.Del(damaged.FsTree, damaged.Key(damaged.DirIno, format.DIR_ITEM_KEY, format.NameHash("nocow")))
		}},
		{"the DIR_INDEX of an entry", func(m *damaged.Image) { m.Del(damaged.FsTree, damaged.Key(damaged.DirIno, format.DIR_INDEX_KEY, 4)) }},
		{"the reference in an inode", func(m *damaged.Image) {
			m.Del(damaged.FsTree, damaged.Key(damaged.SubIno, format.INODE_REF_KEY, damaged.DirIno))
		}},
		{"the orphan item of a subvolume", func(m *damaged.Image) {
			m.Subvol(300, 70)
			m.RootItem(300, func(r *format.RootItem) { r.Refs = 0 })
		}},
		{"the count of a qgroup", func(m *damaged.Image) {
			m.AddQuota(1, m.Super.Generation)
			m.Edit(format.QUOTA_TREE_OBJECTID, damaged.Key(0, format.QGROUP_INFO_KEY, 1<<damaged.QgroupLevelShift|100), func(b []byte) { b[24]++ })
		}},
		{"all names of a file", func(m *damaged.Image) { m.Unname(damaged.SubIno, damaged.DirIno, "nocow", 4) }},
		{"the name of a directory", func(m *damaged.Image) { m.Unname(damaged.DirIno, 256, "dir", 4) }},
		{"the names of a directory and of a file in it", func(m *damaged.Image) {
			m.Unname(damaged.SubIno, damaged.DirIno, "nocow", 4)
			m.Unname(damaged.DirIno, 256, "dir", 4)
		}},
		{"a name that two entries have", func(m *damaged.Image) { m.Again("nocow", damaged.DeepIno, format.FtDir) }},
		{"a key that no btrfs has, in a tree of files", func(m *damaged.Image) { m.Add(damaged.FsTree, damaged.Key(damaged.FileIno, 200+55, 7), []byte("what")) }},
		{"a key that no btrfs has, in the root tree", func(m *damaged.Image) { m.Add(damaged.RootTree, damaged.Key(damaged.FsTree, 200+55, 7), nil) }},
		{"a device extent of no chunk", func(m *damaged.Image) {
			d := format.DevExtent{ChunkTree: 3, ChunkObjectid: 256, ChunkOffset: 1 << 40, Length: 1 << 20}
			m.Add(damaged.DevTree, damaged.Key(1, format.DEV_EXTENT_KEY, 190<<20), damaged.Enc(format.DevExtentSize, &d))
		}},
		{"a device extent", func(m *damaged.Image) {
			m.Del(damaged.DevTree, damaged.Key(1, format.DEV_EXTENT_KEY, m.Chunks[2].Stripes[0]))
		}},
		{"a chunk item", func(m *damaged.Image) {
			m.Del(damaged.ChunkTree, damaged.Key(format.FIRST_CHUNK_TREE_OBJECTID, format.CHUNK_ITEM_KEY, m.Chunks[2].Start))
		}},
		{"total_bytes of the superblock", func(m *damaged.Image) { m.Super.TotalBytes -= 64 * damaged.Sector; m.PutSuper() }},
		{"the device item of the superblock", func(m *damaged.Image) { m.Super.DevItem.TotalBytes -= damaged.Sector; m.PutSuper() }},
		{"the array of system chunks", func(m *damaged.Image) {
			le.PutUint64(m.Super.SysChunkArray[format.KeySize+format.ChunkHeaderSize+format.StripeSize+8:], 150<<20)
			m.PutSuper()
		}},
		{"a name in a leaf that is full", func(m *damaged.Image) {
			k := damaged.Key(damaged.DirIno, format.DIR_ITEM_KEY, format.NameHash("nocow"))
			m.Del(damaged.FsTree, k)
			m.Stuff(m.LeafOf(damaged.FsTree, k))
		}},
		{"the inode item of a file", func(m *damaged.Image) { m.Del(damaged.FsTree, damaged.InodeKey(damaged.SubIno)) }},
		{"the inode item of the root directory", func(m *damaged.Image) { m.Del(damaged.FsTree, damaged.InodeKey(256)) }},
		{"a size in a leaf", func(m *damaged.Image) {
			m.Node(m.Block(m.Root(damaged.FsTree)).Blockptr(1), func(n format.Node) { n.SetItemSize(3, n.ItemSize(3)+9) })
		}},
		{"a bit of a key", func(m *damaged.Image) {
			m.Node(m.Block(m.Root(damaged.FsTree)).Blockptr(1), func(n format.Node) {
				slot, _ := n.Search(damaged.InodeKey(damaged.SubIno))
				n.SetKey(slot, damaged.Key(damaged.SubIno|1<<20, format.INODE_ITEM_KEY, 0))
			})
		}},
		{"the root items of extents, free space and checksums", func(m *damaged.Image) {
			for _, id := range []uint64{damaged.ExtentTree, damaged.FreeTree, damaged.CsumTree} {
				m.Del(damaged.RootTree, damaged.Key(id, format.ROOT_ITEM_KEY, 0))
			}
		}},
		{"the root item of devices", func(m *damaged.Image) { m.Del(damaged.RootTree, damaged.Key(damaged.DevTree, format.ROOT_ITEM_KEY, 0)) }},
		{"the root item of relocated data", func(m *damaged.Image) {
			m.Del(damaged.RootTree, damaged.Key(damaged.RelocTree, format.ROOT_ITEM_KEY, 0))
		}},
		{"both ends of the link of a subvolume", func(m *damaged.Image) { m.Subvol(300, 70) }},
		{"one end of the link of a subvolume", func(m *damaged.Image) {
			m.Subvol(300, 70)
			m.LinkSubvol(300, "sub")
			m.Del(damaged.RootTree, damaged.Key(damaged.FsTree, format.ROOT_REF_KEY, 300))
		}},
		{"the directory in one end of the link of a subvolume", func(m *damaged.Image) {
			m.Subvol(300, 70)
			m.LinkSubvol(300, "sub")
			m.Edit(damaged.RootTree, damaged.Key(300, format.ROOT_BACKREF_KEY, damaged.FsTree), func(b []byte) { b[1] ^= 1 })
		}},
		{"the index in the other end of the link of a subvolume", func(m *damaged.Image) {
			m.Subvol(300, 70)
			m.LinkSubvol(300, "sub")
			m.Edit(damaged.RootTree, damaged.Key(damaged.FsTree, format.ROOT_REF_KEY, 300), func(b []byte) { b[9] ^= 0x84 })
		}},
		{"both ends of the link of a subvolume, each in another byte", func(m *damaged.Image) {
			m.Subvol(300, 70)
			m.LinkSubvol(300, "sub")
			m.Edit(damaged.RootTree, damaged.Key(300, format.ROOT_BACKREF_KEY, damaged.FsTree), func(b []byte) { b[1] ^= 1 })
			m.Edit(damaged.RootTree, damaged.Key(damaged.FsTree, format.ROOT_REF_KEY, 300), func(b []byte) { b[len(b)-1] ^= 1 })
		}},
		{"one end of the link of a subvolume, and the directory in the other", func(m *damaged.Image) {
			m.Subvol(300, 70)
			m.LinkSubvol(300, "sub")
			m.Del(damaged.RootTree, damaged.Key(damaged.FsTree, format.ROOT_REF_KEY, 300))
			m.Edit(damaged.RootTree, damaged.Key(300, format.ROOT_BACKREF_KEY, damaged.FsTree), func(b []byte) { b[1] ^= 1 })
		}},
		{"an extent item with quotas on, the counts of an older commit", func(m *damaged.Image) {
			m.AddQuota(1, m.Super.Generation-1)
			m.Edit(format.QUOTA_TREE_OBJECTID, damaged.Key(0, format.QGROUP_INFO_KEY, damaged.FsTree), func(b []byte) { b[8]++ })
			m.Del(damaged.ExtentTree, dataKey)
		}},
		{"the address of a file extent", func(m *damaged.Image) {
			m.Edit(damaged.FsTree, m.Find(damaged.FsTree, damaged.FileIno, format.EXTENT_DATA_KEY), func(b []byte) { b[28] = 0x6c })
		}},
		{"a checksum", func(m *damaged.Image) {
			m.Del(damaged.CsumTree, m.Find(damaged.CsumTree, format.EXTENT_CSUM_OBJECTID, format.EXTENT_CSUM_KEY))
		}},
		{"the extent tree", func(m *damaged.Image) { wipe(m, m.Root(damaged.ExtentTree)) }},
		{"the free space tree", func(m *damaged.Image) { wipe(m, m.Root(damaged.FreeTree)) }},
		{"the checksum tree", func(m *damaged.Image) { wipe(m, m.Root(damaged.CsumTree)) }},
		{"trees of extents, free space and checksums", func(m *damaged.Image) {
			for _, id := range []uint64{damaged.ExtentTree, damaged.FreeTree, damaged.CsumTree} {
				wipe(m, m.Root(id))
			}
		}},
		{"both of them, and the superblock", func(m *damaged.Image) {
			wipe(m, m.Root(damaged.ExtentTree))
			wipe(m, m.Root(damaged.FreeTree))
			m.Write(format.SuperOffset+0x400, []byte("torn"))
		}},
		{"an extent item", func(m *damaged.Image) { m.Del(damaged.ExtentTree, dataKey) }},
		{"the refs of an extent", func(m *damaged.Image) { m.Edit(damaged.ExtentTree, dataKey, damaged.Set64(0, 2)) }},
		{"a block group item", func(m *damaged.Image) { m.Del(damaged.ExtentTree, group(m, 2)) }},
		{"used of a block group", func(m *damaged.Image) { m.Edit(damaged.ExtentTree, group(m, 2), damaged.Set64(0, 5*damaged.Sector)) }},
		{"bytes_used of the superblock", func(m *damaged.Image) { m.Super.BytesUsed += damaged.Sector; m.PutSuper() }},
		{"bytes_used of the device", func(m *damaged.Image) {
			m.Edit(damaged.ChunkTree, m.Find(damaged.ChunkTree, format.DEV_ITEMS_OBJECTID, format.DEV_ITEM_KEY), damaged.Set64(16, 4096))
		}},
	} {
		rows++
		t.Run(c.name, func(t *testing.T) {
			m := base.Clone(t)
			c.do(m)
			hurt := m.Dev.Snapshot()
			r, err := Propose(m.Task, m.Dev, check.Options{})
			if err != nil {
				t.Fatal(err)
			}
			if !r.After.Clean || !r.Better() || r.Before.Clean || len(r.Done) == 0 {
				t.Fatalf("before:\n%s\nafter:\n%s\n%q %q", damaged.Text(r.Before), damaged.Text(r.After), r.Done, r.Left)
			}
			same := func(d blockdev.Device, what string) {
				t.Helper()
				if rows%8 == 1 && !bytes.Equal(all(t, m, hurt), all(t, m, d)) {
					t.Error(what)
				}
			}
			same(m.Dev, "the device was written before Commit")
			type block struct {
				off int64
				old []byte
			}
			var undo []block
			done := 0
			err = r.Commit(m.Task, func(_ int, off int64, old []byte) error {
				undo = append(undo, block{off, slices.Clone(old)})
				return nil
			}, func() error {
				done++
				same(m.Dev, "the device was written before the undo was kept")
				return nil
			})
			if err != nil || done != 1 {
				t.Fatal(err, done)
			}
			if after := m.Check(); !after.Clean {
				t.Errorf("after Commit:\n%s", damaged.Text(after))
			}
			for _, b := range undo {
				m.Write(uint64(b.off), b.old)
			}
			same(m.Dev, "the undo does not make it as it was")
			proposed(t, m)
		})
	}
}

// TestRepairLost: what has no name is in lost+found afterwards, with what is below it.
func TestRepairLost(t *testing.T) {
	m := damaged.NewImage(t)
	m.Unname(damaged.DirIno, 256, "dir", 4)
	m.Unname(damaged.SubIno, damaged.DirIno, "nocow", 4)
	if r := proposed(t, m); !r.After.Clean {
		t.Fatalf("%q\n%s", r.Left, damaged.Text(r.After))
	}
	_, c, _ := check.Examine(m.Task, m.Dev, check.Options{})
	for ino, want := range map[uint64]string{damaged.DirIno: "/lost+found/258", damaged.SubIno: "/lost+found/261", damaged.InlineIn: "/lost+found/258/inline"} {
		if have := pathOf(c, damaged.FsTree, ino); have != want {
			t.Errorf("inode %d: have %s want %s", ino, have, want)
		}
	}
}

// TestRepairStray: a DIR_ITEM alone is no name of a file whose links all have their references. It
// is one of a file that counts a link more.
func TestRepairStray(t *testing.T) {
	for _, nlink := range []uint32{2, 3} {
		m := damaged.NewImage(t)
		d := format.DirItem{Location: damaged.InodeKey(damaged.FileIno), Transid: 1, Type: format.FtRegFile, Name: "stray"}
		m.Add(damaged.FsTree, damaged.Key(damaged.DirIno, format.DIR_ITEM_KEY, format.NameHash(d.Name)), damaged.Enc(d.Size(), &d))
		m.EditInode(damaged.FileIno, func(i *format.InodeItem) { i.Nlink = nlink })
		if r := proposed(t, m); !r.After.Clean {
			t.Fatalf("nlink %d: %q\n%s", nlink, r.Left, damaged.Text(r.After))
		}
		_, c, _ := check.Examine(m.Task, m.Dev, check.Options{})
		names := uint32(0)
		c.Search(damaged.FsTree, format.Key{Objectid: damaged.FileIno, Type: format.INODE_REF_KEY}, func(k format.Key, b []byte) bool {
			if refs, _ := format.InodeRefs(b); k.Type == format.INODE_REF_KEY {
				names += uint32(len(refs))
			}
			return true
		})
		if names != nlink {
			t.Errorf("%d links: %d names after a repair", nlink, names)
		}
	}
}

// snapshot makes a snapshot of the top level, which shares its leaves, and has a repair make the
// extent tree.
func snapshot(m *damaged.Image, id, at uint64) {
	m.T.Helper()
	m.Subvol(id, at)
	m.LinkSubvol(id, "snap")
	root := m.Block(m.Root(damaged.FsTree))
	root.SetBytenr(m.Meta(at))
	root.SetOwner(id)
	m.Put(root)
	m.RootItem(id, func(r *format.RootItem) { r.Level = 1 })
	r, err := Propose(m.Task, m.Dev, check.Options{})
	if err != nil || !r.After.Clean {
		m.T.Fatalf("%v %q\n%s", err, r.Left, damaged.Text(r.After))
	}
	if err := commit(m, r); err != nil {
		m.T.Fatal(err)
	}
	m.Load()
}

// TestRepairShared: a file has lost all names in the top level, and in a snapshot its reference
// only. Both have the leaf with its inode, which after the repair says something else for each.
func TestRepairShared(t *testing.T) {
	m := damaged.NewImage(t)
	snapshot(m, 300, 70)
	if r := m.Check(); !r.Clean {
		t.Fatalf("a snapshot:\n%s", damaged.Text(r))
	}
	before := readable(t, m.Task, m.Dev)
	left := m.Block(m.Block(m.Root(damaged.FsTree)).Blockptr(0))
	left.SetBytenr(m.Meta(75)) // the directory is the top level's own
	m.Put(left)
	m.Node(m.Root(damaged.FsTree), func(n format.Node) { n.SetBlockptr(0, m.Meta(75)) })
	m.Unname(damaged.SubIno, damaged.DirIno, "nocow", 4)
	r := proposed(t, m)
	if !r.After.Clean {
		t.Fatalf("%q\n%s", r.Left, damaged.Text(r.After))
	}
	after := readable(t, m.Task, m.Dev)
	for id, want := range before {
		if after[id] != want {
			t.Errorf("file %s: have %q want %q", id, after[id], want)
		}
	}
	_, c, _ := check.Examine(m.Task, m.Dev, check.Options{})
	for root, want := range map[uint64]string{damaged.FsTree: "/lost+found/261", 300: "/snap/dir/nocow"} {
		if have := pathOf(c, root, damaged.SubIno); have != want {
			t.Errorf("subvolume %d: have %s want %s", root, have, want)
		}
	}
}

func all(t *testing.T, m *damaged.Image, d blockdev.Device) []byte {
	t.Helper()
	p := make([]byte, d.Size())
	if err := blockdev.Read(m.Task, d, p, 0); err != nil {
		t.Fatal(err)
	}
	return p
}

// TestRepairKeepsSums: of a checksum tree with one leaf left, its checksums stay. Data that is bad
// by them is bad after the repair; what the lost leaf knew is taken from the disk.
func TestRepairKeepsSums(t *testing.T) {
	m := damaged.NewImage(t)
	first := damaged.Key(format.EXTENT_CSUM_OBJECTID, format.EXTENT_CSUM_KEY, m.Data0())
	second := damaged.Key(format.EXTENT_CSUM_OBJECTID, format.EXTENT_CSUM_KEY, m.Data0()+2*damaged.Sector)
	n := m.Block(m.Root(damaged.CsumTree))
	sums := slices.Clone(n.Item(0))
	m.Del(damaged.CsumTree, first)
	m.Add(damaged.CsumTree, first, sums[:8])
	m.Add(damaged.CsumTree, second, sums[8:])
	m.Leaf2(damaged.CsumTree, second, 70)
	m.Settle()
	if r := m.Check(); !r.Clean {
		t.Fatalf("two leaves:\n%s", damaged.Text(r))
	}
	lost := m.LeafOf(damaged.CsumTree, first)
	for _, off := range m.Copies(lost) {
		m.Write(off, make([]byte, m.Super.NodeSize))
	}
	for _, in := range []uint64{0, 3 * damaged.Sector} { // one sector of each
		m.Write(m.Copies(m.Data0())[0]+in+17, []byte("rot"))
	}
	r, err := Propose(m.Task, m.Dev, check.Options{})
	if err != nil {
		t.Fatal(err)
	}
	want := fmt.Sprintf("logical=%d length=%d ", m.Data0()+3*damaged.Sector, damaged.Sector)
	if damaged.Rules(r.After) != "[data.csum]" || len(r.After.Findings) != 1 || !strings.HasPrefix(r.After.Findings[0].Where(), want) {
		t.Errorf("want data.csum at %q\n%s\n%q %q", want, damaged.Text(r.After), r.Done, r.Left)
	}
}

// TestRepairLeaves: what is lost stays lost. The proposal is none, and says why.
func TestRepairLeaves(t *testing.T) {
	base := damaged.NewImage(t)
	for _, c := range []struct {
		name string
		do   func(m *damaged.Image)
	}{
		{"data", func(m *damaged.Image) { m.Write(m.Copies(m.Data0())[0]+damaged.Sector+17, []byte("rot")) }},
		{"a leaf of the tree of files, and the extent tree", func(m *damaged.Image) {
			for _, bytenr := range []uint64{m.Block(m.Root(damaged.FsTree)).Blockptr(1), m.Root(damaged.ExtentTree)} {
				for _, off := range m.Copies(bytenr) {
					m.Write(off, make([]byte, m.Super.NodeSize))
				}
			}
		}},
	} {
		m := base.Clone(t)
		c.do(m)
		r, err := Propose(m.Task, m.Dev, check.Options{})
		if err != nil {
			t.Fatal(err)
		}
		if r.Better() || r.After.Clean || len(r.Done) > 0 {
			t.Errorf("%s: %q\n%s", c.name, r.Done, damaged.Text(r.After))
		}
		t.Logf("%s: left %q", c.name, r.Left)
	}
}

// pathOf is the path of an inode, by the references of its links.
func pathOf(c *check.Seen, root, ino uint64) string {
	dir, name := uint64(0), ""
	switch {
	case ino != format.FIRST_FREE_OBJECTID:
		c.Search(root, format.Key{Objectid: ino, Type: format.INODE_REF_KEY}, func(k format.Key, b []byte) bool {
			if refs, err := format.InodeRefs(b); k.Type == format.INODE_REF_KEY && err == nil {
				dir, name = k.Offset, refs[0].Name
			}
			return false
		})
	case root == format.FS_TREE_OBJECTID:
		return ""
	default:
		for _, r := range c.RootRefs {
			if r.Child == root {
				root, dir, name = r.Parent, r.Dirid, r.Name
			}
		}
	}
	if name == "" {
		return fmt.Sprintf("<inode %d of subvolume %d>", ino, root)
	}
	return pathOf(c, root, dir) + "/" + name
}

// TestNamelessInode: an inode whose item and name are both gone has data left. A repair that makes
// the item anew gives it a link, so that it comes to lost+found: with none, an orphan item would
// have followed, and the next mount would have deleted the data. A file that was being deleted
// stays so.
func TestNamelessInode(t *testing.T) {
	m := damaged.NewImage(t)
	item := func(k format.Key) []byte {
		n := m.Block(m.LeafOf(damaged.FsTree, k))
		slot, found := n.Search(k)
		if !found {
			t.Fatalf("no item %v", k)
		}
		return n.Item(slot)
	}
	of := map[uint64]bool{damaged.FileIno: true, damaged.PreIno: true}
	m.Add(damaged.FsTree, damaged.Key(format.ORPHAN_OBJECTID, format.ORPHAN_ITEM_KEY, damaged.PreIno), nil)
	for _, k := range m.Keys(m.Root(damaged.FsTree)) {
		gone := of[k.Objectid] && (k.Type == format.INODE_ITEM_KEY || k.Type == format.INODE_REF_KEY)
		entry := false
		if k.Type == format.DIR_ITEM_KEY || k.Type == format.DIR_INDEX_KEY {
			list, err := format.DirItems(item(k))
			if err != nil {
				t.Fatal(err)
			}
			entry = of[list[0].Location.Objectid]
		}
		if gone || entry {
			m.Del(damaged.FsTree, k)
		}
	}
	r := proposed(t, m)
	if !r.After.Clean {
		t.Fatalf("left %q\n%s", r.Left, damaged.Text(r.After))
	}
	for ino, want := range map[uint64]uint32{damaged.FileIno: 1, damaged.PreIno: 0} {
		var i format.InodeItem
		i.Decode(item(damaged.InodeKey(ino)))
		if i.Nlink != want {
			t.Errorf("inode %d has %d links, want %d: %q", ino, i.Nlink, want, r.Done)
		}
	}
}
