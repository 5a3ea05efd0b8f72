package dump

import (
	"fmt"
	"io"
	"strconv"
	"strings"

	"btrlab/internal/blockdev"
	"btrlab/internal/compress"
	"btrlab/internal/format"
	"btrlab/internal/progs/image"
	"btrlab/internal/sched"
)

// One tree as text, in the manner of btrfs inspect-internal dump-tree: Tree walks the blocks, item
// prints one item by its type.

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

var typeNames = map[uint8]string{
	format.INODE_ITEM_KEY: "INODE_ITEM", format.INODE_REF_KEY: "INODE_REF", format.INODE_EXTREF_KEY: "INODE_EXTREF",
	format.XATTR_ITEM_KEY: "XATTR_ITEM", format.ORPHAN_ITEM_KEY: "ORPHAN_ITEM", format.DIR_LOG_ITEM_KEY: "DIR_LOG_ITEM",
	format.DIR_LOG_INDEX_KEY: "DIR_LOG_INDEX", format.DIR_ITEM_KEY: "DIR_ITEM", format.DIR_INDEX_KEY: "DIR_INDEX",
	format.EXTENT_DATA_KEY: "EXTENT_DATA", format.EXTENT_CSUM_KEY: "EXTENT_CSUM", format.ROOT_ITEM_KEY: "ROOT_ITEM",
	format.ROOT_BACKREF_KEY: "ROOT_BACKREF", format.ROOT_REF_KEY: "ROOT_REF", format.EXTENT_ITEM_KEY: "EXTENT_ITEM",
	format.METADATA_ITEM_KEY: "METADATA_ITEM", format.TREE_BLOCK_REF_KEY: "TREE_BLOCK_REF", format.EXTENT_DATA_REF_KEY: "EXTENT_DATA_REF",
	format.SHARED_BLOCK_REF_KEY: "SHARED_BLOCK_REF", format.SHARED_DATA_REF_KEY: "SHARED_DATA_REF",
	format.BLOCK_GROUP_ITEM_KEY: "BLOCK_GROUP_ITEM", format.FREE_SPACE_INFO_KEY: "FREE_SPACE_INFO",
	format.FREE_SPACE_EXTENT_KEY: "FREE_SPACE_EXTENT", format.FREE_SPACE_BITMAP_KEY: "FREE_SPACE_BITMAP",
	format.DEV_EXTENT_KEY: "DEV_EXTENT", format.DEV_ITEM_KEY: "DEV_ITEM", format.CHUNK_ITEM_KEY: "CHUNK_ITEM",
	format.QGROUP_STATUS_KEY: "QGROUP_STATUS", format.QGROUP_INFO_KEY: "QGROUP_INFO", format.QGROUP_LIMIT_KEY: "QGROUP_LIMIT",
	format.QGROUP_RELATION_KEY: "QGROUP_RELATION", format.TEMPORARY_ITEM_KEY: "TEMPORARY_ITEM", format.PERSISTENT_ITEM_KEY: "PERSISTENT_ITEM",
	format.UUID_KEY_SUBVOL: "UUID_KEY_SUBVOL", format.UUID_KEY_RECEIVED_SUBVOL: "UUID_KEY_RECEIVED_SUBVOL", format.STRING_ITEM_KEY: "STRING_ITEM",
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
	typ, ok := typeNames[k.Type]
	if !ok {
		typ = fmt.Sprintf("UNKNOWN.%d", k.Type)
	}
	off := strconv.FormatUint(k.Offset, 10)
	switch k.Type {
	case format.UUID_KEY_SUBVOL, format.UUID_KEY_RECEIVED_SUBVOL:
		off = fmt.Sprintf("0x%016x", k.Offset)
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
		return fmt.Errorf("no tree %q, want root, chunk, dev, extent, fs, csum, free-space, uuid, data-reloc, log or a number", name)
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

var fileTypes = [...]string{"UNKNOWN", "FILE", "DIR", "CHRDEV", "BLKDEV", "FIFO", "SOCK", "SYMLINK", "XATTR"}

var inodeFlags = []struct {
	bit  uint64
	name string
}{{format.InodeNoDataSum, "NODATASUM"}, {format.InodeNoDataCow, "NODATACOW"}, {format.InodeReadonly, "READONLY"}, {format.InodeNoCompress, "NOCOMPRESS"},
	{format.InodePrealloc, "PREALLOC"}, {format.InodeSync, "SYNC"}, {format.InodeImmutable, "IMMUTABLE"}, {format.InodeAppend, "APPEND"},
	{format.InodeNoDump, "NODUMP"}, {format.InodeNoAtime, "NOATIME"}, {format.InodeDirSync, "DIRSYNC"}, {format.InodeCompress, "COMPRESS"}}

func (d *dumper) time(name string, t format.Timespec) {
	fmt.Fprintf(d.w, "\t\t%s %d.%d (%s)\n", name, t.Sec, t.Nsec, t.Time().Format("2006-01-02 15:04:05"))
}

// item prints what is in an item; the tree checker has passed its leaf.
func (d *dumper) item(k format.Key, b []byte) {
	w := d.w
	p := func(text string, args ...any) { fmt.Fprintf(w, "\t\t"+text+"\n", args...) }
	switch k.Type {
	case format.INODE_ITEM_KEY:
		var i format.InodeItem
		i.Decode(b)
		var l []string
		for _, f := range inodeFlags {
			if i.Flags&f.bit != 0 {
				l = append(l, f.name)
			}
		}
		if len(l) == 0 {
			l = []string{"none"}
		}
		p("generation %d transid %d size %d nbytes %d", i.Generation, i.Transid, i.Size, i.Nbytes)
		p("block group %d mode %o links %d uid %d gid %d rdev %d", i.BlockGroup, i.Mode, i.Nlink, i.UID, i.GID, i.Rdev)
		p("sequence %d flags 0x%x(%s)", i.Sequence, i.Flags, strings.Join(l, "|"))
		d.time("atime", i.Atime)
		d.time("ctime", i.Ctime)
		d.time("mtime", i.Mtime)
		d.time("otime", i.Otime)
	case format.INODE_REF_KEY:
		refs, _ := format.InodeRefs(b)
		for _, r := range refs {
			p("index %d namelen %d name: %s", r.Index, len(r.Name), r.Name)
		}
	case format.INODE_EXTREF_KEY:
		refs, _ := format.InodeExtrefs(b)
		for _, r := range refs {
			p("index %d parent %d namelen %d name: %s", r.Index, r.Parent, len(r.Name), r.Name)
		}
	case format.DIR_ITEM_KEY, format.DIR_INDEX_KEY, format.XATTR_ITEM_KEY:
		entries, _ := format.DirItems(b)
		for _, e := range entries {
			typ := fmt.Sprintf("DIR_ITEM.%d", e.Type)
			if int(e.Type) < len(fileTypes) {
				typ = fileTypes[e.Type]
			}
			p("location key %s type %s", keyText(e.Location), typ)
			p("transid %d data_len %d name_len %d", e.Transid, len(e.Data), len(e.Name))
			p("name: %s", e.Name)
			if len(e.Data) > 0 {
				p("data %s", e.Data)
			}
		}
	case format.DIR_LOG_ITEM_KEY, format.DIR_LOG_INDEX_KEY:
		if end, err := format.DirLogEnd(b); err == nil {
			p("dir log end %d", end)
		}
	case format.EXTENT_DATA_KEY:
		d.fileExtent(b)
	case format.EXTENT_CSUM_KEY:
		length := uint64(len(b)/d.im.SB.CsumType.Size()) * uint64(d.im.SB.SectorSize)
		p("range start %d end %d length %d", k.Offset, k.Offset+length, length)
	case format.ROOT_ITEM_KEY:
		d.rootItem(b)
	case format.ROOT_REF_KEY, format.ROOT_BACKREF_KEY:
		var r format.RootRef
		r.Decode(b)
		word := "ref"
		if k.Type == format.ROOT_BACKREF_KEY {
			word = "backref"
		}
		p("root %s key dirid %d sequence %d name %s", word, r.Dirid, r.Sequence, r.Name)
	case format.EXTENT_ITEM_KEY, format.METADATA_ITEM_KEY:
		d.extentItem(k, b)
	case format.TREE_BLOCK_REF_KEY:
		p("tree block backref")
	case format.SHARED_BLOCK_REF_KEY:
		p("shared block backref")
	case format.EXTENT_DATA_REF_KEY:
		for ; len(b) > 0; b = b[format.ExtentDataRefSize:] {
			var r format.ExtentDataRef
			r.Decode(b)
			p("extent data backref root %s objectid %d offset %d count %d", objectText(r.Root, 0), r.Ino, r.Offset, r.Count)
		}
	case format.SHARED_DATA_REF_KEY:
		p("shared data backref count %d", format.SharedDataRefCount(b))
	case format.BLOCK_GROUP_ITEM_KEY:
		var g format.BlockGroupItem
		g.Decode(b)
		p("block group used %d chunk_objectid %d flags %s", g.Used, g.ChunkObjectid, groupFlags(g.Flags))
	case format.FREE_SPACE_INFO_KEY:
		var f format.FreeSpaceInfo
		f.Decode(b)
		p("free space info extent count %d flags %d", f.ExtentCount, f.Flags)
	case format.FREE_SPACE_EXTENT_KEY:
		p("free space extent")
	case format.FREE_SPACE_BITMAP_KEY:
		p("free space bitmap")
	case format.DEV_ITEM_KEY:
		var v format.DevItem
		v.Decode(b)
		p("devid %d total_bytes %d bytes_used %d", v.Devid, v.TotalBytes, v.BytesUsed)
		p("io_align %d io_width %d sector_size %d type %d", v.IOAlign, v.IOWidth, v.SectorSize, v.Type)
		p("generation %d start_offset %d dev_group %d", v.Generation, v.StartOffset, v.DevGroup)
		p("seek_speed %d bandwidth %d", v.SeekSpeed, v.Bandwidth)
		p("uuid %v", v.UUID)
		p("fsid %v", v.FSID)
	case format.CHUNK_ITEM_KEY:
		chunkText(w, b)
	case format.DEV_EXTENT_KEY:
		var e format.DevExtent
		e.Decode(b)
		p("dev extent chunk_tree %d", e.ChunkTree)
		p("chunk_objectid %d chunk_offset %d length %d", e.ChunkObjectid, e.ChunkOffset, e.Length)
		p("chunk_tree_uuid %v", e.ChunkTreeUUID)
	case format.UUID_KEY_SUBVOL, format.UUID_KEY_RECEIVED_SUBVOL:
		for ; len(b) >= 8; b = b[8:] {
			p("subvol_id %d", le.Uint64(b))
		}
	case format.ORPHAN_ITEM_KEY:
		p("orphan item")
	case format.PERSISTENT_ITEM_KEY:
		p("persistent item objectid %s offset %d", objectText(k.Objectid, k.Type), k.Offset)
		if k.Objectid == format.DEV_STATS_OBJECTID && len(b) >= 40 {
			p("device stats")
			p("write_errs %d read_errs %d flush_errs %d corruption_errs %d generation %d",
				le.Uint64(b), le.Uint64(b[8:]), le.Uint64(b[16:]), le.Uint64(b[24:]), le.Uint64(b[32:]))
		}
	default:
		p("%d bytes: %x", len(b), b[:min(len(b), 64)])
	}
}

func chunkText(w io.Writer, b []byte) {
	var c format.Chunk
	c.Decode(b)
	fmt.Fprintf(w, "\t\tlength %d owner %d stripe_len %d type %s\n", c.Length, c.Owner, c.StripeLen, groupFlags(c.Type))
	fmt.Fprintf(w, "\t\tio_align %d io_width %d sector_size %d\n", c.IOAlign, c.IOWidth, c.SectorSize)
	fmt.Fprintf(w, "\t\tnum_stripes %d sub_stripes %d\n", len(c.Stripes), c.SubStripes)
	for i, s := range c.Stripes {
		fmt.Fprintf(w, "\t\t\tstripe %d devid %d offset %d\n\t\t\tdev_uuid %v\n", i, s.Devid, s.Offset, s.DevUUID)
	}
}

func (d *dumper) fileExtent(b []byte) {
	var f format.FileExtent
	f.Decode(b)
	p := func(text string, args ...any) { fmt.Fprintf(d.w, "\t\t"+text+"\n", args...) }
	types := [...]string{"inline", "regular", "prealloc"}
	p("generation %d type %d (%s)", f.Generation, f.Type, types[f.Type])
	switch f.Type {
	case format.FileExtentTypeInline:
		p("inline extent data size %d ram_bytes %d compression %d (%s)", len(f.Inline), f.RAMBytes, f.Compression, compress.Name(f.Compression))
	case format.FileExtentTypePrealloc:
		p("prealloc data disk byte %d nr %d", f.DiskBytenr, f.DiskNumBytes)
		p("prealloc data offset %d nr %d", f.Offset, f.NumBytes)
	default:
		p("extent data disk byte %d nr %d", f.DiskBytenr, f.DiskNumBytes)
		p("extent data offset %d nr %d ram %d", f.Offset, f.NumBytes, f.RAMBytes)
		p("extent compression %d (%s)", f.Compression, compress.Name(f.Compression))
	}
}

func (d *dumper) rootItem(b []byte) {
	var r format.RootItem
	r.Decode(b)
	p := func(text string, args ...any) { fmt.Fprintf(d.w, "\t\t"+text+"\n", args...) }
	flags := "none"
	if r.Flags&format.RootSubvolReadonly != 0 {
		flags = "RDONLY"
	}
	p("generation %d root_dirid %d bytenr %d byte_limit %d bytes_used %d", r.Generation, r.RootDirid, r.Bytenr, r.ByteLimit, r.BytesUsed)
	p("last_snapshot %d flags 0x%x(%s) refs %d", r.LastSnapshot, r.Flags, flags, r.Refs)
	p("drop_progress key %s drop_level %d", keyText(r.DropProgress), r.DropLevel)
	p("level %d generation_v2 %d", r.Level, r.GenerationV2)
	if len(b) < format.RootItemSize {
		return
	}
	p("uuid %v", r.UUID)
	p("parent_uuid %v", r.ParentUUID)
	p("received_uuid %v", r.ReceivedUUID)
	p("ctransid %d otransid %d stransid %d rtransid %d", r.Ctransid, r.Otransid, r.Stransid, r.Rtransid)
	d.time("ctime", r.Ctime)
	d.time("otime", r.Otime)
	d.time("stime", r.Stime)
	d.time("rtime", r.Rtime)
}

func (d *dumper) extentItem(k format.Key, b []byte) {
	var e format.ExtentItem
	e.Decode(b)
	p := func(text string, args ...any) { fmt.Fprintf(d.w, "\t\t"+text+"\n", args...) }
	flags := "DATA"
	if e.Flags&format.ExtentFlagTreeBlock != 0 {
		flags = "TREE_BLOCK"
	}
	if e.Flags&format.BlockFlagFullBackref != 0 {
		flags += "|FULL_BACKREF"
	}
	p("refs %d gen %d flags %s", e.Refs, e.Generation, flags)
	start := format.ExtentItemSize
	if k.Type == format.METADATA_ITEM_KEY {
		p("tree block skinny level %d", k.Offset)
	} else if e.Flags&format.ExtentFlagTreeBlock != 0 {
		p("tree block key %s level %d", keyText(format.DecodeKey(b[start:])), b[start+format.KeySize])
		start += format.KeySize + 1
	}
	refs, _ := format.InlineRefs(b, start)
	for _, r := range refs {
		switch r.Type {
		case format.TREE_BLOCK_REF_KEY:
			p("tree block backref root %s", objectText(r.Offset, 0))
		case format.SHARED_BLOCK_REF_KEY:
			p("shared block backref parent %d", r.Offset)
		case format.EXTENT_DATA_REF_KEY:
			p("extent data backref root %s objectid %d offset %d count %d", objectText(r.Data.Root, 0), r.Data.Ino, r.Data.Offset, r.Count)
		case format.EXTENT_OWNER_REF_KEY:
			p("extent owner root %s", objectText(r.Offset, 0))
		case format.SHARED_DATA_REF_KEY:
			p("shared data backref parent %d count %d", r.Offset, r.Count)
		}
	}
}
