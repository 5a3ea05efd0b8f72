package check

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
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
	rows := 0 // one in eight is compared whole
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
		{"the count of a qgroup", func(m *image) {
			m.addQuota(1, m.sb.Generation)
			m.edit(format.QUOTA_TREE_OBJECTID, key(0, format.QGROUP_INFO_KEY, 1<<qgroupLevelShift|100), func(b []byte) { b[24]++ })
		}},
		{"all names of a file", func(m *image) { m.unname(subIno, dirIno, "nocow", 4) }},
		{"the name of a directory", func(m *image) { m.unname(dirIno, 256, "dir", 4) }},
		{"the names of a directory and of a file in it", func(m *image) {
			m.unname(subIno, dirIno, "nocow", 4)
			m.unname(dirIno, 256, "dir", 4)
		}},
		{"a name that two entries have", func(m *image) { m.again("nocow", deepIno, format.FtDir) }},
		{"a key that no btrfs has, in a tree of files", func(m *image) { m.add(fsTree, key(fileIno, 200+55, 7), []byte("what")) }},
		{"a key that no btrfs has, in the root tree", func(m *image) { m.add(rootTree, key(fsTree, 200+55, 7), nil) }},
		{"a device extent of no chunk", func(m *image) {
			d := format.DevExtent{ChunkTree: 3, ChunkObjectid: 256, ChunkOffset: 1 << 40, Length: 1 << 20}
			m.add(devTree, key(1, format.DEV_EXTENT_KEY, 190<<20), enc(format.DevExtentSize, &d))
		}},
		{"a device extent", func(m *image) { m.del(devTree, key(1, format.DEV_EXTENT_KEY, m.ch[2].stripes[0].off)) }},
		{"a chunk item", func(m *image) {
			m.del(chunkTree, key(format.FIRST_CHUNK_TREE_OBJECTID, format.CHUNK_ITEM_KEY, m.ch[2].start))
		}},
		{"total_bytes of the superblock", func(m *image) { m.sb.TotalBytes -= 64 * blk; m.super() }},
		{"the device item of the superblock", func(m *image) { m.sb.DevItem.TotalBytes -= blk; m.super() }},
		{"the array of system chunks", func(m *image) {
			le.PutUint64(m.sb.SysChunkArray[format.KeySize+format.ChunkHeaderSize+format.StripeSize+8:], 150<<20)
			m.super()
		}},
		{"a name in a leaf that is full", func(m *image) {
			k := key(dirIno, format.DIR_ITEM_KEY, format.NameHash("nocow"))
			m.del(fsTree, k)
			m.stuff(m.leafOf(fsTree, k))
		}},
		{"the inode item of a file", func(m *image) { m.del(fsTree, inodeKey(subIno)) }},
		{"the inode item of the root directory", func(m *image) { m.del(fsTree, inodeKey(256)) }},
		{"a size in a leaf", func(m *image) {
			m.node(m.block(m.root(fsTree)).Blockptr(1), func(n format.Node) { n.SetItemSize(3, n.ItemSize(3)+9) })
		}},
		{"a bit of a key", func(m *image) {
			m.node(m.block(m.root(fsTree)).Blockptr(1), func(n format.Node) {
				slot, _ := n.Search(inodeKey(subIno))
				n.SetKey(slot, key(subIno|1<<20, format.INODE_ITEM_KEY, 0))
			})
		}},
		{"the root items of extents, free space and checksums", func(m *image) {
			for _, id := range []uint64{extentTree, freeTree, csumTree} {
				m.del(rootTree, key(id, format.ROOT_ITEM_KEY, 0))
			}
		}},
		{"the root item of devices", func(m *image) { m.del(rootTree, key(devTree, format.ROOT_ITEM_KEY, 0)) }},
		{"the root item of relocated data", func(m *image) { m.del(rootTree, key(relocTree, format.ROOT_ITEM_KEY, 0)) }},
		{"both ends of the link of a subvolume", func(m *image) { m.subvol(300, 70) }},
		{"one end of the link of a subvolume", func(m *image) {
			m.subvol(300, 70)
			m.linkSubvol(300, "sub")
			m.del(rootTree, key(fsTree, format.ROOT_REF_KEY, 300))
		}},
		{"the directory in one end of the link of a subvolume", func(m *image) {
			m.subvol(300, 70)
			m.linkSubvol(300, "sub")
			m.edit(rootTree, key(300, format.ROOT_BACKREF_KEY, fsTree), func(b []byte) { b[1] ^= 1 })
		}},
		{"the index in the other end of the link of a subvolume", func(m *image) {
			m.subvol(300, 70)
			m.linkSubvol(300, "sub")
			m.edit(rootTree, key(fsTree, format.ROOT_REF_KEY, 300), func(b []byte) { b[9] ^= 0x84 })
		}},
		{"both ends of the link of a subvolume, each in another byte", func(m *image) {
			m.subvol(300, 70)
			m.linkSubvol(300, "sub")
			m.edit(rootTree, key(300, format.ROOT_BACKREF_KEY, fsTree), func(b []byte) { b[1] ^= 1 })
			m.edit(rootTree, key(fsTree, format.ROOT_REF_KEY, 300), func(b []byte) { b[len(b)-1] ^= 1 })
		}},
		{"one end of the link of a subvolume, and the directory in the other", func(m *image) {
			m.subvol(300, 70)
			m.linkSubvol(300, "sub")
			m.del(rootTree, key(fsTree, format.ROOT_REF_KEY, 300))
			m.edit(rootTree, key(300, format.ROOT_BACKREF_KEY, fsTree), func(b []byte) { b[1] ^= 1 })
		}},
		{"an extent item with quotas on, the counts of an older commit", func(m *image) {
			m.addQuota(1, m.sb.Generation-1)
			m.edit(format.QUOTA_TREE_OBJECTID, key(0, format.QGROUP_INFO_KEY, fsTree), func(b []byte) { b[8]++ })
			m.del(extentTree, dataKey)
		}},
		{"the address of a file extent", func(m *image) {
			m.edit(fsTree, m.find(fsTree, fileIno, format.EXTENT_DATA_KEY), func(b []byte) { b[28] = 0x6c })
		}},
		{"a checksum", func(m *image) { m.del(csumTree, m.find(csumTree, format.EXTENT_CSUM_OBJECTID, format.EXTENT_CSUM_KEY)) }},
		{"the extent tree", func(m *image) { wipe(m, m.root(extentTree)) }},
		{"the free space tree", func(m *image) { wipe(m, m.root(freeTree)) }},
		{"the checksum tree", func(m *image) { wipe(m, m.root(csumTree)) }},
		{"trees of extents, free space and checksums", func(m *image) {
			for _, id := range []uint64{extentTree, freeTree, csumTree} {
				wipe(m, m.root(id))
			}
		}},
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
		rows++
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
				if rows%8 == 1 && !bytes.Equal(all(t, m, damaged), all(t, m, d)) {
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
			proposed(t, m)
		})
	}
}

// unname takes the three records of a name away.
func (m *image) unname(ino, dir uint64, name string, index uint64) {
	m.del(fsTree, key(dir, format.DIR_ITEM_KEY, format.NameHash(name)))
	m.del(fsTree, key(dir, format.DIR_INDEX_KEY, index))
	m.del(fsTree, key(ino, format.INODE_REF_KEY, dir))
}

// stuff fills a leaf with an attribute of its last inode.
func (m *image) stuff(leaf uint64) {
	n := m.block(leaf)
	l := items(n)
	ino := l[len(l)-1].k.Objectid
	x := format.DirItem{Type: format.FtXattr, Name: "user.large", Data: make([]byte, n.LeafFreeSpace()-format.ItemHeaderSize-format.DirItemSize-10)}
	l = append(l, item{key(ino, format.XATTR_ITEM_KEY, format.NameHash(x.Name)), enc(x.Size(), &x)})
	slices.SortFunc(l, func(a, b item) int { return a.k.Compare(b.k) })
	fill(n, l)
	m.put(n)
}

// TestRepairLost: what has no name is in lost+found afterwards, with what is below it.
func TestRepairLost(t *testing.T) {
	m := newImage(t)
	m.unname(dirIno, 256, "dir", 4)
	m.unname(subIno, dirIno, "nocow", 4)
	if r := proposed(t, m); !r.After.Clean {
		t.Fatalf("%q\n%s", r.Left, r.After.text())
	}
	_, c, _ := judged(m.tk, m.dev, Options{})
	p := &paths{c: c, known: map[[2]uint64]string{}}
	for ino, want := range map[uint64]string{dirIno: "/lost+found/258", subIno: "/lost+found/261", inlineIn: "/lost+found/258/inline"} {
		if have := p.of(fsTree, ino); have != want {
			t.Errorf("inode %d: have %s want %s", ino, have, want)
		}
	}
}

// TestRepairStray: a DIR_ITEM alone is no name of a file whose links all have their references. It
// is one of a file that counts a link more.
func TestRepairStray(t *testing.T) {
	for _, nlink := range []uint32{2, 3} {
		m := newImage(t)
		d := format.DirItem{Location: inodeKey(fileIno), Transid: 1, Type: format.FtRegFile, Name: "stray"}
		m.add(fsTree, key(dirIno, format.DIR_ITEM_KEY, format.NameHash(d.Name)), enc(d.Size(), &d))
		m.editInode(fileIno, func(i *format.InodeItem) { i.Nlink = nlink })
		if r := proposed(t, m); !r.After.Clean {
			t.Fatalf("nlink %d: %q\n%s", nlink, r.Left, r.After.text())
		}
		_, c, _ := judged(m.tk, m.dev, Options{})
		names := uint32(0)
		c.search(fsTree, format.Key{Objectid: fileIno, Type: format.INODE_REF_KEY}, func(k format.Key, b []byte) bool {
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
func (m *image) snapshot(id, at uint64) {
	m.t.Helper()
	m.subvol(id, at)
	m.linkSubvol(id, "snap")
	root := m.block(m.root(fsTree))
	root.SetBytenr(m.meta(at))
	root.SetOwner(id)
	m.put(root)
	m.rootItem(id, func(r *format.RootItem) { r.Level = 1 })
	r, err := Propose(m.tk, m.dev, Options{})
	if err != nil || !r.After.Clean {
		m.t.Fatalf("%v %q\n%s", err, r.Left, r.After.text())
	}
	if err := m.commit(r); err != nil {
		m.t.Fatal(err)
	}
	m.load()
}

// TestRepairShared: a file has lost all names in the top level, and in a snapshot its reference
// only. Both have the leaf with its inode, which after the repair says something else for each.
func TestRepairShared(t *testing.T) {
	m := newImage(t)
	m.snapshot(300, 70)
	if r := m.check(); !r.Clean {
		t.Fatalf("a snapshot:\n%s", r.text())
	}
	before := readable(t, m.tk, m.dev)
	left := m.block(m.block(m.root(fsTree)).Blockptr(0))
	left.SetBytenr(m.meta(75)) // the directory is the top level's own
	m.put(left)
	m.node(m.root(fsTree), func(n format.Node) { n.SetBlockptr(0, m.meta(75)) })
	m.unname(subIno, dirIno, "nocow", 4)
	r := proposed(t, m)
	if !r.After.Clean {
		t.Fatalf("%q\n%s", r.Left, r.After.text())
	}
	after := readable(t, m.tk, m.dev)
	for id, want := range before {
		if after[id] != want {
			t.Errorf("file %s: have %q want %q", id, after[id], want)
		}
	}
	_, c, _ := judged(m.tk, m.dev, Options{})
	p := &paths{c: c, known: map[[2]uint64]string{}}
	for root, want := range map[uint64]string{fsTree: "/lost+found/261", 300: "/snap/dir/nocow"} {
		if have := p.of(root, subIno); have != want {
			t.Errorf("subvolume %d: have %s want %s", root, have, want)
		}
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

// TestRepairKeepsSums: of a checksum tree with one leaf left, its checksums stay. Data that is bad
// by them is bad after the repair; what the lost leaf knew is taken from the disk.
func TestRepairKeepsSums(t *testing.T) {
	m := newImage(t)
	first := key(format.EXTENT_CSUM_OBJECTID, format.EXTENT_CSUM_KEY, m.data0())
	second := key(format.EXTENT_CSUM_OBJECTID, format.EXTENT_CSUM_KEY, m.data0()+2*blk)
	n := m.block(m.root(csumTree))
	sums := slices.Clone(n.Item(0))
	m.del(csumTree, first)
	m.add(csumTree, first, sums[:8])
	m.add(csumTree, second, sums[8:])
	m.leaf2(csumTree, second, 70)
	m.settle()
	if r := m.check(); !r.Clean {
		t.Fatalf("two leaves:\n%s", r.text())
	}
	lost := m.leafOf(csumTree, first)
	for _, off := range m.copies(lost) {
		m.write(off, make([]byte, m.sb.NodeSize))
	}
	for _, in := range []uint64{0, 3 * blk} { // one sector of each
		m.write(m.copies(m.data0())[0]+in+17, []byte("rot"))
	}
	r, err := Propose(m.tk, m.dev, Options{})
	if err != nil {
		t.Fatal(err)
	}
	want := fmt.Sprintf("logical=%d length=%d ", m.data0()+3*blk, blk)
	if r.After.rules() != "[data.csum]" || len(r.After.Findings) != 1 || !strings.HasPrefix(r.After.Findings[0].Where(), want) {
		t.Errorf("want data.csum at %q\n%s\n%q %q", want, r.After.text(), r.Done, r.Left)
	}
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
