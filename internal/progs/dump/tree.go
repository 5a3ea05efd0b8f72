package dump

import (
	"fmt"
	"io"
	"strconv"
	"strings"

	"btrlab/internal/blockdev"
	"btrlab/internal/format"
	"btrlab/internal/progs/image"
	"btrlab/internal/sched"
)

// One tree as text, in the manner of btrfs inspect-internal dump-tree: Tree walks the blocks; what
// is in an item is a row in items.go.

// objectNames are the ids that have a name, as btrfs inspect-internal prints them.
var objectNames = map[uint64]string{
	format.ROOT_TREE_OBJECTID: "ROOT_TREE", format.EXTENT_TREE_OBJECTID: "EXTENT_TREE", format.CHUNK_TREE_OBJECTID: "CHUNK_TREE",
	format.DEV_TREE_OBJECTID: "DEV_TREE", format.FS_TREE_OBJECTID: "FS_TREE", format.ROOT_TREE_DIR_OBJECTID: "ROOT_TREE_DIR",
	format.CSUM_TREE_OBJECTID: "CSUM_TREE", format.QUOTA_TREE_OBJECTID: "QUOTA_TREE", format.UUID_TREE_OBJECTID: "UUID_TREE",
	format.FREE_SPACE_TREE_OBJECTID: "FREE_SPACE_TREE", format.BLOCK_GROUP_TREE_OBJECTID: "BLOCK_GROUP_TREE",
	format.ORPHAN_OBJECTID: "ORPHAN", format.TREE_LOG_OBJECTID: "TREE_LOG", format.DATA_RELOC_TREE_OBJECTID: "DATA_RELOC_TREE",
	format.EXTENT_CSUM_OBJECTID: "EXTENT_CSUM", format.FREE_SPACE_OBJECTID: "FREE_SPACE", format.FREE_INO_OBJECTID: "FREE_INO",
	^uint64(0) - 3: "BALANCE", ^uint64(0) - 6: "TREE_LOG_FIXUP", ^uint64(0) - 7: "TREE_RELOC",
}

// treeNames are the names that Tree takes, with the words of inspect-internal's -t.
var treeNames = map[string]uint64{
	"root": format.ROOT_TREE_OBJECTID, "extent": format.EXTENT_TREE_OBJECTID, "chunk": format.CHUNK_TREE_OBJECTID,
	"dev": format.DEV_TREE_OBJECTID, "device": format.DEV_TREE_OBJECTID, "fs": format.FS_TREE_OBJECTID,
	"csum": format.CSUM_TREE_OBJECTID, "checksum": format.CSUM_TREE_OBJECTID, "quota": format.QUOTA_TREE_OBJECTID,
	"uuid": format.UUID_TREE_OBJECTID, "free-space": format.FREE_SPACE_TREE_OBJECTID, "free_space": format.FREE_SPACE_TREE_OBJECTID,
	"block-group": format.BLOCK_GROUP_TREE_OBJECTID, "data-reloc": format.DATA_RELOC_TREE_OBJECTID, "data_reloc": format.DATA_RELOC_TREE_OBJECTID,
	"log": format.TREE_LOG_OBJECTID,
}

// treeHeads are the words before a tree's key.
var treeHeads = map[uint64]string{
	format.EXTENT_TREE_OBJECTID: "extent", format.DEV_TREE_OBJECTID: "device", format.FS_TREE_OBJECTID: "fs", format.CSUM_TREE_OBJECTID: "checksum",
	format.UUID_TREE_OBJECTID: "uuid", format.FREE_SPACE_TREE_OBJECTID: "free space", format.DATA_RELOC_TREE_OBJECTID: "data reloc",
	format.QUOTA_TREE_OBJECTID: "quota", format.BLOCK_GROUP_TREE_OBJECTID: "block group",
}

func objectText(id uint64, typ uint8) string {
	switch typ {
	case format.PERSISTENT_ITEM_KEY:
		if id == format.DEV_STATS_OBJECTID {
			return "DEV_STATS"
		}
	case format.DEV_EXTENT_KEY:
		return strconv.FormatUint(id, 10)
	case format.UUID_KEY_SUBVOL, format.UUID_KEY_RECEIVED_SUBVOL:
		return fmt.Sprintf("0x%016x", id)
	case format.QGROUP_RELATION_KEY:
		return format.QgroupName(id)
	case format.DEV_ITEM_KEY:
		if id == format.DEV_ITEMS_OBJECTID {
			return "DEV_ITEMS"
		}
	case format.CHUNK_ITEM_KEY:
		if id == format.FIRST_CHUNK_TREE_OBJECTID {
			return "FIRST_CHUNK_TREE"
		}
	}
	if n, ok := objectNames[id]; ok {
		return n
	}
	return strconv.FormatUint(id, 10)
}

// Key is a key as Tree prints it: "(256 INODE_ITEM 0)".
func Key(k format.Key) string { return keyText(k) }

// TreeID is the tree that Tree prints for a name, or for a number.
func TreeID(name string) (uint64, bool) {
	if id, ok := treeNames[strings.ToLower(name)]; ok {
		return id, true
	}
	if n, err := strconv.ParseInt(name, 0, 64); err == nil {
		return uint64(n), true
	}
	u, err := strconv.ParseUint(name, 0, 64)
	return u, err == nil
}

// keyText is a key as inspect-internal prints it: "(256 INODE_ITEM 0)".
func keyText(k format.Key) string {
	typ := fmt.Sprintf("UNKNOWN.%d", k.Type)
	if t, ok := format.ItemTypeOf(k.Type); ok && (k.Type != 0 || k.Objectid == format.FREE_SPACE_OBJECTID) {
		typ = t.Name
	}
	off := strconv.FormatUint(k.Offset, 10)
	switch k.Type {
	case format.UUID_KEY_SUBVOL, format.UUID_KEY_RECEIVED_SUBVOL:
		off = fmt.Sprintf("0x%016x", k.Offset)
	case format.QGROUP_INFO_KEY, format.QGROUP_LIMIT_KEY, format.QGROUP_RELATION_KEY:
		off = format.QgroupName(k.Offset)
	case format.ROOT_ITEM_KEY:
		if k.Objectid == ^uint64(0)-7 {
			off = objectText(k.Offset, 0)
		}
	}
	return fmt.Sprintf("(%s %s %s)", objectText(k.Objectid, k.Type), typ, off)
}

func groupFlags(f uint64) string {
	var l []string
	for _, n := range []struct {
		bit  uint64
		name string
	}{{format.BlockGroupData, "DATA"}, {format.BlockGroupSystem, "SYSTEM"}, {format.BlockGroupMetadata, "METADATA"}, {format.BlockGroupRAID0, "RAID0"},
		{format.BlockGroupRAID1, "RAID1"}, {format.BlockGroupDup, "DUP"}, {format.BlockGroupRAID10, "RAID10"}, {format.BlockGroupRAID5, "RAID5"},
		{format.BlockGroupRAID6, "RAID6"}, {format.BlockGroupRAID1C3, "RAID1C3"}, {format.BlockGroupRAID1C4, "RAID1C4"}} {
		if f&n.bit != 0 {
			l = append(l, n.name)
		}
	}
	if f&format.BlockGroupProfileMask == 0 {
		l = append(l, "single")
	}
	return strings.Join(l, "|")
}

// Log prints the tree of logs and every log that it leads to, in the same way. An image without a
// log is an error.
func Log(t *sched.Task, w io.Writer, dev blockdev.Device, more ...blockdev.Device) error {
	im, err := image.Open(t, dev, more...)
	if err != nil {
		return err
	}
	if im.SB.LogRoot == 0 {
		return blockdev.Errorf(dev, "no log tree")
	}
	d := &dumper{im: im, w: w}
	fmt.Fprintln(w, "log root tree")
	d.tree(im.LogTree())
	// its errors have been printed
	_ = im.Each(im.LogTree(), func(k format.Key, b []byte) {
		if k.Type == format.ROOT_ITEM_KEY {
			var it format.RootItem
			it.Decode(b)
			fmt.Fprintf(w, "log tree key %s \n", keyText(k))
			d.tree(image.Ref{Tree: format.TREE_LOG_OBJECTID, Bytenr: it.Bytenr, Level: int(it.Level)})
		}
	})
	if d.err != nil {
		return blockdev.Errorf(dev, "%w", d.err)
	}
	return nil
}

// Tree prints a tree, by name ("root", "fs", "extent", ...) or number, item by item. A block that
// cannot be read is a line of its own, and the first such is the error after all else has been
// printed.
func Tree(t *sched.Task, w io.Writer, dev blockdev.Device, name string, more ...blockdev.Device) error {
	id, ok := TreeID(name)
	if !ok {
		return fmt.Errorf("no tree %q, want root, chunk, dev, extent, fs, csum, free-space, block-group, uuid, quota, data-reloc, log or a number", name)
	}
	im, err := image.Open(t, dev, more...)
	if err != nil {
		return err
	}
	d := &dumper{im: im, w: w}
	switch id {
	case format.ROOT_TREE_OBJECTID:
		fmt.Fprintln(w, "root tree")
		d.tree(im.RootTree())
	case format.CHUNK_TREE_OBJECTID:
		fmt.Fprintln(w, "chunk tree")
		d.tree(im.ChunkTree())
	case format.TREE_LOG_OBJECTID:
		if im.SB.LogRoot == 0 {
			return blockdev.Errorf(dev, "no log tree")
		}
		fmt.Fprintln(w, "log root tree")
		d.tree(im.LogTree())
	default:
		roots, err := im.Roots()
		found := false
		for _, x := range roots {
			if x.Key.Objectid != id {
				continue
			}
			found = true
			head, ok := treeHeads[id]
			if !ok {
				head = "file"
			}
			fmt.Fprintf(w, "%s tree key %s \n", head, keyText(x.Key))
			d.tree(x.Ref())
		}
		if !found {
			if err != nil {
				return blockdev.Errorf(dev, "root tree: %w", err)
			}
			return blockdev.Errorf(dev, "no tree %s", name)
		}
	}
	if d.err != nil {
		return blockdev.Errorf(dev, "%w", d.err)
	}
	return nil
}

type dumper struct {
	im  *image.Image
	w   io.Writer
	err error // the first
}

func (d *dumper) tree(root image.Ref) {
	image.Nodes(root, d.im.Checked, d.node, func(err error) {
		fmt.Fprintf(d.w, "error: %v\n", err)
		if d.err == nil {
			d.err = err
		}
	})
}

func (d *dumper) node(n format.Node) {
	w := d.w
	owner := objectText(n.Owner(), 0)
	if n.Level() > 0 {
		fmt.Fprintf(w, "node %d level %d items %d free space %d generation %d owner %s\n", n.Bytenr(), n.Level(), n.Nritems(),
			format.PtrsPerNode(len(n))-n.Nritems(), n.Generation(), owner)
	} else {
		fmt.Fprintf(w, "leaf %d items %d free space %d generation %d owner %s\n", n.Bytenr(), n.Nritems(), n.LeafFreeSpace(), n.Generation(), owner)
	}
	kind := "leaf"
	if n.Level() > 0 {
		kind = "node"
	}
	flags := ""
	if n.Written() {
		flags = "WRITTEN"
	}
	if n.Flags()&format.HeaderFlagReloc != 0 {
		flags = strings.TrimPrefix(flags+"|RELOC", "|")
	}
	fmt.Fprintf(w, "%s %d flags 0x%x(%s) backref revision %d\n", kind, n.Bytenr(), n.Flags()&^(0xff<<format.BackrefRevShift), flags, n.Flags()>>format.BackrefRevShift)
	fmt.Fprintf(w, "fs uuid %v\nchunk uuid %v\n", n.FSID(), n.ChunkTreeUUID())
	for i := range n.Nritems() {
		k := n.Key(i)
		if n.Level() > 0 {
			fmt.Fprintf(w, "\tkey %s block %d gen %d\n", keyText(k), n.Blockptr(i), n.PtrGeneration(i))
			continue
		}
		fmt.Fprintf(w, "\titem %d key %s itemoff %d itemsize %d\n", i, keyText(k), n.ItemOffset(i), n.ItemSize(i))
		d.item(k, n.Item(i))
	}
}
