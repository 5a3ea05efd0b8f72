package dump

import (
	"fmt"
	"io"
	"strings"

	"btrlab/internal/compress"
	"btrlab/internal/format"
)

// What is in an item, as btrfs inspect-internal prints it: a row of shown for each key type.

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

// shown prints what is in an item, by the type of its key; the tree checker has passed its leaf. A
// type without a row is shown as bytes.
var shown = map[uint8]func(d *dumper, k format.Key, b []byte){
	format.INODE_ITEM_KEY: (*dumper).inodeItem,
	format.INODE_REF_KEY: func(d *dumper, _ format.Key, b []byte) {
		refs, _ := format.InodeRefs(b)
		for _, r := range refs {
			d.p("index %d namelen %d name: %s", r.Index, len(r.Name), r.Name)
		}
	},
	format.INODE_EXTREF_KEY: func(d *dumper, _ format.Key, b []byte) {
		refs, _ := format.InodeExtrefs(b)
		for _, r := range refs {
			d.p("index %d parent %d namelen %d name: %s", r.Index, r.Parent, len(r.Name), r.Name)
		}
	},
	format.DIR_ITEM_KEY:      (*dumper).dirItem,
	format.DIR_INDEX_KEY:     (*dumper).dirItem,
	format.XATTR_ITEM_KEY:    (*dumper).dirItem,
	format.DIR_LOG_ITEM_KEY:  (*dumper).dirLog,
	format.DIR_LOG_INDEX_KEY: (*dumper).dirLog,
	format.EXTENT_DATA_KEY:   (*dumper).fileExtent,
	format.EXTENT_CSUM_KEY: func(d *dumper, k format.Key, b []byte) {
		length := uint64(len(b)/d.im.SB.CsumType.Size()) * uint64(d.im.SB.SectorSize)
		d.p("range start %d end %d length %d", k.Offset, k.Offset+length, length)
	},
	format.ROOT_ITEM_KEY:        (*dumper).rootItem,
	format.ROOT_REF_KEY:         func(d *dumper, _ format.Key, b []byte) { d.rootRef("ref", b) },
	format.ROOT_BACKREF_KEY:     func(d *dumper, _ format.Key, b []byte) { d.rootRef("backref", b) },
	format.EXTENT_ITEM_KEY:      (*dumper).extentItem,
	format.METADATA_ITEM_KEY:    (*dumper).extentItem,
	format.TREE_BLOCK_REF_KEY:   words("tree block backref"),
	format.SHARED_BLOCK_REF_KEY: words("shared block backref"),
	format.EXTENT_DATA_REF_KEY: func(d *dumper, _ format.Key, b []byte) {
		for ; len(b) > 0; b = b[format.ExtentDataRefSize:] {
			var r format.ExtentDataRef
			r.Decode(b)
			d.p("extent data backref root %s objectid %d offset %d count %d", objectText(r.Root, 0), r.Ino, r.Offset, r.Count)
		}
	},
	format.SHARED_DATA_REF_KEY: func(d *dumper, _ format.Key, b []byte) {
		d.p("shared data backref count %d", format.SharedDataRefCount(b))
	},
	format.BLOCK_GROUP_ITEM_KEY: func(d *dumper, _ format.Key, b []byte) {
		var g format.BlockGroupItem
		g.Decode(b)
		d.p("block group used %d chunk_objectid %d flags %s", g.Used, g.ChunkObjectid, groupFlags(g.Flags))
	},
	format.FREE_SPACE_INFO_KEY: func(d *dumper, _ format.Key, b []byte) {
		var f format.FreeSpaceInfo
		f.Decode(b)
		d.p("free space info extent count %d flags %d", f.ExtentCount, f.Flags)
	},
	format.FREE_SPACE_EXTENT_KEY:    words("free space extent"),
	format.FREE_SPACE_BITMAP_KEY:    words("free space bitmap"),
	format.DEV_ITEM_KEY:             (*dumper).devItem,
	format.CHUNK_ITEM_KEY:           func(d *dumper, _ format.Key, b []byte) { chunkText(d.w, b) },
	format.DEV_EXTENT_KEY:           (*dumper).devExtent,
	format.UUID_KEY_SUBVOL:          (*dumper).uuidItem,
	format.UUID_KEY_RECEIVED_SUBVOL: (*dumper).uuidItem,
	format.ORPHAN_ITEM_KEY:          words("orphan item"),
	format.PERSISTENT_ITEM_KEY:      (*dumper).persistent,
	format.QGROUP_STATUS_KEY:        (*dumper).qgroupStatus,
	format.QGROUP_INFO_KEY:          (*dumper).qgroupInfo,
	format.QGROUP_LIMIT_KEY:         (*dumper).qgroupLimit,
	format.QGROUP_RELATION_KEY:      func(*dumper, format.Key, []byte) {}, // its key says all
}

// words shows an item whose key says the rest.
func words(text string) func(*dumper, format.Key, []byte) {
	return func(d *dumper, _ format.Key, _ []byte) { d.p("%s", text) }
}

func (d *dumper) item(k format.Key, b []byte) {
	if show, ok := shown[k.Type]; ok {
		show(d, k, b)
		return
	}
	d.p("%d bytes: %x", len(b), b[:min(len(b), 64)])
}

// p prints a line about an item.
func (d *dumper) p(text string, args ...any) { fmt.Fprintf(d.w, "\t\t"+text+"\n", args...) }

func (d *dumper) inodeItem(_ format.Key, b []byte) {
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
	d.p("generation %d transid %d size %d nbytes %d", i.Generation, i.Transid, i.Size, i.Nbytes)
	d.p("block group %d mode %o links %d uid %d gid %d rdev %d", i.BlockGroup, i.Mode, i.Nlink, i.UID, i.GID, i.Rdev)
	d.p("sequence %d flags 0x%x(%s)", i.Sequence, i.Flags, strings.Join(l, "|"))
	d.time("atime", i.Atime)
	d.time("ctime", i.Ctime)
	d.time("mtime", i.Mtime)
	d.time("otime", i.Otime)
}

func (d *dumper) dirItem(_ format.Key, b []byte) {
	entries, _ := format.DirItems(b)
	for _, e := range entries {
		typ := fmt.Sprintf("DIR_ITEM.%d", e.Type)
		if int(e.Type) < len(fileTypes) {
			typ = fileTypes[e.Type]
		}
		d.p("location key %s type %s", keyText(e.Location), typ)
		d.p("transid %d data_len %d name_len %d", e.Transid, len(e.Data), len(e.Name))
		d.p("name: %s", e.Name)
		if len(e.Data) > 0 {
			d.p("data %s", e.Data)
		}
	}
}

func (d *dumper) dirLog(_ format.Key, b []byte) {
	if end, err := format.DirLogEnd(b); err == nil {
		d.p("dir log end %d", end)
	}
}

func (d *dumper) rootRef(word string, b []byte) {
	var r format.RootRef
	r.Decode(b)
	d.p("root %s key dirid %d sequence %d name %s", word, r.Dirid, r.Sequence, r.Name)
}

func (d *dumper) devItem(_ format.Key, b []byte) {
	var v format.DevItem
	v.Decode(b)
	d.p("devid %d total_bytes %d bytes_used %d", v.Devid, v.TotalBytes, v.BytesUsed)
	d.p("io_align %d io_width %d sector_size %d type %d", v.IOAlign, v.IOWidth, v.SectorSize, v.Type)
	d.p("generation %d start_offset %d dev_group %d", v.Generation, v.StartOffset, v.DevGroup)
	d.p("seek_speed %d bandwidth %d", v.SeekSpeed, v.Bandwidth)
	d.p("uuid %v", v.UUID)
	d.p("fsid %v", v.FSID)
}

func (d *dumper) devExtent(_ format.Key, b []byte) {
	var e format.DevExtent
	e.Decode(b)
	d.p("dev extent chunk_tree %d", e.ChunkTree)
	d.p("chunk_objectid %d chunk_offset %d length %d", e.ChunkObjectid, e.ChunkOffset, e.Length)
	d.p("chunk_tree_uuid %v", e.ChunkTreeUUID)
}

func (d *dumper) uuidItem(_ format.Key, b []byte) {
	for ; len(b) >= 8; b = b[8:] {
		d.p("subvol_id %d", le.Uint64(b))
	}
}

func (d *dumper) persistent(k format.Key, b []byte) {
	d.p("persistent item objectid %s offset %d", objectText(k.Objectid, k.Type), k.Offset)
	if k.Objectid == format.DEV_STATS_OBJECTID && len(b) >= 40 {
		d.p("device stats")
		d.p("write_errs %d read_errs %d flush_errs %d corruption_errs %d generation %d",
			le.Uint64(b), le.Uint64(b[8:]), le.Uint64(b[16:]), le.Uint64(b[24:]), le.Uint64(b[32:]))
	}
}

// The tree checker has no rules for the items of qgroups, so their sizes are looked at here.

func (d *dumper) qgroupStatus(_ format.Key, b []byte) {
	if len(b) != format.QgroupStatusSize && len(b) != format.QgroupStatusSize-8 {
		d.p("bad size")
		return
	}
	var q format.QgroupStatus
	q.Decode(b)
	flags := "OFF"
	if q.Flags&format.QgroupStatusOn != 0 {
		flags = "ON"
	}
	for _, f := range []struct {
		bit  uint64
		name string
	}{{format.QgroupStatusRescan, "SCANNING"}, {format.QgroupStatusInconsistent, "INCONSISTENT"}, {format.QgroupStatusSimple, "SIMPLE_MODE"}} {
		if q.Flags&f.bit != 0 {
			flags += "|" + f.name
		}
	}
	enabled := ""
	if q.Flags&format.QgroupStatusSimple != 0 {
		enabled = fmt.Sprintf(" enable_gen %d", q.EnableGen)
	}
	d.p("version %d generation %d flags %s scan %d%s", q.Version, q.Generation, flags, q.Rescan, enabled)
}

func (d *dumper) qgroupInfo(_ format.Key, b []byte) {
	if len(b) != format.QgroupInfoSize {
		d.p("bad size")
		return
	}
	var q format.QgroupInfo
	q.Decode(b)
	d.p("generation %d", q.Generation)
	d.p("referenced %d referenced_compressed %d", q.Rfer, q.RferCmpr)
	d.p("exclusive %d exclusive_compressed %d", q.Excl, q.ExclCmpr)
}

func (d *dumper) qgroupLimit(_ format.Key, b []byte) {
	if len(b) != format.QgroupLimitSize {
		d.p("bad size")
		return
	}
	var q format.QgroupLimit
	q.Decode(b)
	d.p("flags %x", q.Flags)
	d.p("max_referenced %d max_exclusive %d", q.MaxRfer, q.MaxExcl)
	d.p("rsv_referenced %d rsv_exclusive %d", q.RsvRfer, q.RsvExcl)
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

func (d *dumper) fileExtent(_ format.Key, b []byte) {
	var f format.FileExtent
	f.Decode(b)
	types := [...]string{"inline", "regular", "prealloc"}
	d.p("generation %d type %d (%s)", f.Generation, f.Type, types[f.Type])
	switch f.Type {
	case format.FileExtentTypeInline:
		d.p("inline extent data size %d ram_bytes %d compression %d (%s)", len(f.Inline), f.RAMBytes, f.Compression, compress.Name(f.Compression))
	case format.FileExtentTypePrealloc:
		d.p("prealloc data disk byte %d nr %d", f.DiskBytenr, f.DiskNumBytes)
		d.p("prealloc data offset %d nr %d", f.Offset, f.NumBytes)
	default:
		d.p("extent data disk byte %d nr %d", f.DiskBytenr, f.DiskNumBytes)
		d.p("extent data offset %d nr %d ram %d", f.Offset, f.NumBytes, f.RAMBytes)
		d.p("extent compression %d (%s)", f.Compression, compress.Name(f.Compression))
	}
}

func (d *dumper) rootItem(_ format.Key, b []byte) {
	var r format.RootItem
	r.Decode(b)
	flags := "none"
	if r.Flags&format.RootSubvolReadonly != 0 {
		flags = "RDONLY"
	}
	d.p("generation %d root_dirid %d bytenr %d byte_limit %d bytes_used %d", r.Generation, r.RootDirid, r.Bytenr, r.ByteLimit, r.BytesUsed)
	d.p("last_snapshot %d flags 0x%x(%s) refs %d", r.LastSnapshot, r.Flags, flags, r.Refs)
	d.p("drop_progress key %s drop_level %d", keyText(r.DropProgress), r.DropLevel)
	d.p("level %d generation_v2 %d", r.Level, r.GenerationV2)
	if len(b) < format.RootItemSize {
		return
	}
	d.p("uuid %v", r.UUID)
	d.p("parent_uuid %v", r.ParentUUID)
	d.p("received_uuid %v", r.ReceivedUUID)
	d.p("ctransid %d otransid %d stransid %d rtransid %d", r.Ctransid, r.Otransid, r.Stransid, r.Rtransid)
	d.time("ctime", r.Ctime)
	d.time("otime", r.Otime)
	d.time("stime", r.Stime)
	d.time("rtime", r.Rtime)
}

func (d *dumper) extentItem(k format.Key, b []byte) {
	var e format.ExtentItem
	e.Decode(b)
	flags := "DATA"
	if e.Flags&format.ExtentFlagTreeBlock != 0 {
		flags = "TREE_BLOCK"
	}
	if e.Flags&format.BlockFlagFullBackref != 0 {
		flags += "|FULL_BACKREF"
	}
	d.p("refs %d gen %d flags %s", e.Refs, e.Generation, flags)
	start := format.ExtentItemSize
	if k.Type == format.METADATA_ITEM_KEY {
		d.p("tree block skinny level %d", k.Offset)
	} else if e.Flags&format.ExtentFlagTreeBlock != 0 {
		d.p("tree block key %s level %d", keyText(format.DecodeKey(b[start:])), b[start+format.KeySize])
		start += format.KeySize + 1
	}
	refs, _ := format.InlineRefs(b, start)
	for _, r := range refs {
		switch r.Type {
		case format.TREE_BLOCK_REF_KEY:
			d.p("tree block backref root %s", objectText(r.Offset, 0))
		case format.SHARED_BLOCK_REF_KEY:
			d.p("shared block backref parent %d", r.Offset)
		case format.EXTENT_DATA_REF_KEY:
			d.p("extent data backref root %s objectid %d offset %d count %d", objectText(r.Data.Root, 0), r.Data.Ino, r.Data.Offset, r.Count)
		case format.EXTENT_OWNER_REF_KEY:
			d.p("extent owner root %s", objectText(r.Offset, 0))
		case format.SHARED_DATA_REF_KEY:
			d.p("shared data backref parent %d count %d", r.Offset, r.Count)
		}
	}
}
