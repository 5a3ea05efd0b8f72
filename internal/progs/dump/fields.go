package dump

import (
	"encoding/hex"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"btrlab/internal/format"
)

// The fields of items, superblocks and headers of blocks by name: where each is, for whoever
// changes one. The names are those of the format on disk; a field that a dump prints under another
// word has that, too.

// Kind is how the value of a field is written.
type Kind uint8

// The kinds.
const (
	Number Kind = iota // decimal, or with 0x; negative ones count from 2^64
	Octal              // a mode
	UUIDs              // as a dump prints them
	Keys               // as a dump prints them: (256 INODE_ITEM 0)
	Text               // bytes, of a length that is said elsewhere
)

// Field is a field of a structure on disk: Size bytes at Off, in little endian.
type Field struct {
	Name  string
	Shown string // what a dump calls it; "" is Name, "-" is nothing
	Off   int
	Size  int
	Kind  Kind
	Len   int // of Text: where its length is, in two bytes
}

// Layout is the fields of an item, and the bytes that it has, without a name.
type Layout struct {
	Size   int
	Fields []Field
}

// run are fields that follow each other, of the same size.
func run(off, size int, names ...string) (l []Field) {
	for i, n := range names {
		f := Field{Name: n, Off: off + i*size, Size: size}
		f.Name, f.Shown, _ = strings.Cut(n, " ")
		l = append(l, f)
	}
	return l
}

// times are points of time: seconds and nanoseconds.
func times(off int, names ...string) (l []Field) {
	for i, n := range names {
		l = append(l, Field{Name: n + ".sec", Shown: n, Off: off + 12*i, Size: 8}, Field{Name: n + ".nsec", Shown: "-", Off: off + 12*i + 8, Size: 4})
	}
	return l
}

func kind(k Kind, fields []Field) []Field {
	for i := range fields {
		fields[i].Kind = k
	}
	return fields
}

// name is a name of bytes, and its length.
func name(off, length int) []Field {
	return []Field{{Name: "name_len", Shown: "-", Off: length, Size: 2}, {Name: "name", Shown: "-", Off: off, Kind: Text, Len: length}}
}

func inodeFields() []Field {
	return slices.Concat(run(0, 8, "generation", "transid", "size", "nbytes", "block_group group"), run(40, 4, "nlink links", "uid", "gid"),
		kind(Octal, run(52, 4, "mode")), run(56, 8, "rdev", "flags -", "sequence"), times(112, "atime", "ctime", "mtime", "otime"))
}

func devFields() []Field {
	return slices.Concat(run(0, 8, "devid", "total_bytes", "bytes_used"), run(24, 4, "io_align", "io_width", "sector_size"),
		run(36, 8, "type", "generation", "start_offset"), run(60, 4, "dev_group"), run(64, 1, "seek_speed", "bandwidth"), kind(UUIDs, run(66, 16, "uuid", "fsid")))
}

func dirFields() []Field {
	return slices.Concat(kind(Keys, run(0, format.KeySize, "location -")), run(17, 8, "transid"), run(25, 2, "data_len"), run(29, 1, "type -"), name(30, 27))
}

func extentFields() []Field { return run(0, 8, "refs", "generation gen", "flags -") }

// layouts are the items whose fields have names. Others are changed byte by byte.
var layouts = map[uint8]Layout{
	format.INODE_ITEM_KEY:    {format.InodeItemSize, inodeFields()},
	format.INODE_REF_KEY:     {format.InodeRefSize, append(run(0, 8, "index"), name(10, 8)...)},
	format.INODE_EXTREF_KEY:  {format.InodeExtrefSize, append(run(0, 8, "parent", "index"), name(18, 16)...)},
	format.DIR_ITEM_KEY:      {format.DirItemSize, dirFields()},
	format.DIR_INDEX_KEY:     {format.DirItemSize, dirFields()},
	format.XATTR_ITEM_KEY:    {format.DirItemSize, dirFields()},
	format.DIR_LOG_ITEM_KEY:  {8, run(0, 8, "end")},
	format.DIR_LOG_INDEX_KEY: {8, run(0, 8, "end")},
	format.ORPHAN_ITEM_KEY:   {},
	format.EXTENT_DATA_KEY: {format.FileExtentSize, slices.Concat(run(0, 8, "generation", "ram_bytes -"), run(16, 1, "compression", "encryption -"),
		run(18, 2, "other_encoding -"), run(20, 1, "type"), run(21, 8, "disk_bytenr byte", "disk_num_bytes -", "offset", "num_bytes -"))},
	format.ROOT_ITEM_KEY: {format.RootItemSize, slices.Concat(run(160, 8, "generation", "root_dirid", "bytenr", "byte_limit", "bytes_used", "last_snapshot", "flags -"),
		run(216, 4, "refs"), kind(Keys, run(220, format.KeySize, "drop_progress -")), run(237, 1, "drop_level", "level"), run(239, 8, "generation_v2"),
		kind(UUIDs, run(247, 16, "uuid", "parent_uuid", "received_uuid")), run(295, 8, "ctransid", "otransid", "stransid", "rtransid"), times(327, "ctime", "otime", "stime", "rtime"))},
	format.ROOT_REF_KEY:          {format.RootRefSize, append(run(0, 8, "dirid", "sequence"), name(18, 16)...)},
	format.ROOT_BACKREF_KEY:      {format.RootRefSize, append(run(0, 8, "dirid", "sequence"), name(18, 16)...)},
	format.EXTENT_ITEM_KEY:       {format.ExtentItemSize, extentFields()},
	format.METADATA_ITEM_KEY:     {format.ExtentItemSize, extentFields()},
	format.EXTENT_DATA_REF_KEY:   {format.ExtentDataRefSize, append(run(0, 8, "root", "objectid", "offset"), run(24, 4, "count")...)},
	format.SHARED_DATA_REF_KEY:   {4, run(0, 4, "count")},
	format.TREE_BLOCK_REF_KEY:    {},
	format.SHARED_BLOCK_REF_KEY:  {},
	format.BLOCK_GROUP_ITEM_KEY:  {format.BlockGroupItemSize, run(0, 8, "used", "chunk_objectid", "flags -")},
	format.FREE_SPACE_INFO_KEY:   {format.FreeSpaceInfoSize, run(0, 4, "extent_count count", "flags")},
	format.FREE_SPACE_EXTENT_KEY: {},
	format.DEV_ITEM_KEY:          {format.DevItemSize, devFields()},
	format.DEV_EXTENT_KEY: {format.DevExtentSize, slices.Concat(run(0, 8, "chunk_tree", "chunk_objectid", "chunk_offset", "length"),
		kind(UUIDs, run(32, 16, "chunk_tree_uuid")))},
	format.CHUNK_ITEM_KEY: {format.ChunkHeaderSize + format.StripeSize, slices.Concat(run(0, 8, "length", "owner", "stripe_len", "type -"),
		run(32, 4, "io_align", "io_width", "sector_size"), run(44, 2, "num_stripes", "sub_stripes"))},
	format.UUID_KEY_SUBVOL:          {8, run(0, 8, "subvol_id")},
	format.UUID_KEY_RECEIVED_SUBVOL: {8, run(0, 8, "subvol_id")},
	format.PERSISTENT_ITEM_KEY:      {40, run(0, 8, "write_errs", "read_errs", "flush_errs", "corruption_errs", "generation")},
	format.QGROUP_STATUS_KEY:        {format.QgroupStatusSize, run(0, 8, "version", "generation", "flags -", "scan")},
	format.QGROUP_INFO_KEY:          {format.QgroupInfoSize, run(0, 8, "generation", "referenced", "referenced_compressed", "exclusive", "exclusive_compressed")},
	format.QGROUP_LIMIT_KEY:         {format.QgroupLimitSize, run(0, 8, "flags -", "max_referenced", "max_exclusive", "rsv_referenced", "rsv_exclusive")},
	format.QGROUP_RELATION_KEY:      {},
}

// LayoutOf is how an item of a type, with the bytes b, is laid out. A chunk has fields for each of
// its stripes. False: its fields have no names.
func LayoutOf(typ uint8, b []byte) (Layout, bool) {
	l, ok := layouts[typ]
	if typ == format.CHUNK_ITEM_KEY {
		l.Fields = slices.Clone(l.Fields)
		for i, at := 0, format.ChunkHeaderSize; at+format.StripeSize <= len(b); i, at = i+1, at+format.StripeSize {
			l.Fields = append(l.Fields, slices.Concat(run(at, 8, fmt.Sprintf("stripe.%d.devid devid", i), fmt.Sprintf("stripe.%d.offset offset", i)),
				kind(UUIDs, run(at+16, 16, fmt.Sprintf("stripe.%d.dev_uuid dev_uuid", i))))...)
		}
	}
	return l, ok
}

// SuperFields are those of a superblock.
func SuperFields() []Field {
	l := slices.Concat(kind(UUIDs, run(0x20, 16, "fsid")), run(0x30, 8, "bytenr", "flags -", "magic -", "generation", "root", "chunk_root", "log_root",
		"log_root_transid -", "total_bytes", "bytes_used", "root_dir", "num_devices"), run(0x90, 4, "sectorsize", "nodesize", "leafsize -", "stripesize", "sys_array_size"),
		run(0xa4, 8, "chunk_root_generation", "compat_flags -", "compat_ro_flags -", "incompat_flags -"), run(0xc4, 2, "csum_type"),
		run(0xc6, 1, "root_level", "chunk_root_level", "log_root_level"))
	for _, f := range devFields() {
		f.Name, f.Off = "dev_item."+f.Name, f.Off+0xc9
		if f.Shown = ""; f.Name == "dev_item.start_offset" {
			f.Shown = "-"
		}
		l = append(l, f)
	}
	return append(append(l, run(0x22b, 8, "cache_generation", "uuid_tree_generation")...), kind(UUIDs, run(0x23b, 16, "metadata_uuid -"))...)
}

// BlockFields are those of a tree block: its header, and the headers of its items or its pointers,
// as item.3.size and ptr.3.block.
func BlockFields(n format.Node) []Field {
	l := slices.Concat(kind(UUIDs, run(32, 16, "fsid")), run(48, 8, "bytenr", "flags"), kind(UUIDs, run(64, 16, "chunk_tree_uuid")), run(80, 8, "generation", "owner"),
		run(96, 4, "nritems"), run(100, 1, "level"))
	for i := range n.Nritems() {
		if at := format.HeaderSize + i*format.KeyPtrSize; n.Level() > 0 && at+format.KeyPtrSize <= len(n) {
			word := fmt.Sprintf("ptr.%d.", i)
			l = append(append(l, kind(Keys, run(at, format.KeySize, word+"key"))...), run(at+format.KeySize, 8, word+"block", word+"generation")...)
		} else if at := format.HeaderSize + i*format.ItemHeaderSize; n.Level() == 0 && at+format.ItemHeaderSize <= len(n) {
			word := fmt.Sprintf("item.%d.", i)
			l = append(append(l, kind(Keys, run(at, format.KeySize, word+"key"))...), run(at+format.KeySize, 4, word+"offset", word+"size")...)
		}
	}
	return l
}

// in is the bytes of the field in b, nil if it is not all in it.
func (f Field) in(b []byte) []byte {
	size := f.Size
	if f.Kind == Text && f.Len+2 <= len(b) {
		size = int(le.Uint16(b[f.Len:]))
	}
	if f.Off+size > len(b) {
		return nil
	}
	return b[f.Off:][:size]
}

// Get is the value of the field in b. False: b is too short for it.
func (f Field) Get(b []byte) (string, bool) {
	p := f.in(b)
	if p == nil {
		return "", false
	}
	switch f.Kind {
	case Text:
		return strconv.Quote(string(p)), true
	case UUIDs:
		return format.UUID(p).String(), true
	case Keys:
		return keyText(format.DecodeKey(p)), true
	}
	var wide [8]byte
	copy(wide[:], p)
	if f.Kind == Octal {
		return strconv.FormatUint(le.Uint64(wide[:]), 8), true
	}
	return strconv.FormatUint(le.Uint64(wide[:]), 10), true
}

// Set puts a value into the field in b. An error says what was expected, and leaves b as it was.
func (f Field) Set(b []byte, value string) error {
	p := f.in(b)
	if p == nil {
		return fmt.Errorf("%s is %d bytes at %d, and there are %d bytes", f.Name, f.Size, f.Off, len(b))
	}
	switch f.Kind {
	case Text:
		if len(value) != len(p) {
			return fmt.Errorf("%s=%s, want %d bytes, as there are", f.Name, value, len(p))
		}
		copy(p, value)
		return nil
	case UUIDs:
		u, ok := format.ParseUUID(value)
		if !ok {
			return fmt.Errorf("%s=%s, want a UUID", f.Name, value)
		}
		copy(p, u[:])
		return nil
	case Keys:
		k, err := ParseKey(value)
		if err != nil {
			return fmt.Errorf("%s=%s, %w", f.Name, value, err)
		}
		k.Encode(p)
		return nil
	}
	base := 0
	if f.Kind == Octal {
		base = 8
	}
	n, err := strconv.ParseUint(value, base, 8*f.Size)
	if s, serr := strconv.ParseInt(value, base, 8*f.Size); err != nil && serr == nil {
		n, err = uint64(s), nil
	}
	if err != nil {
		what := "a number"
		if f.Kind == Octal {
			what = "an octal number"
		}
		return fmt.Errorf("%s=%s, want %s of %d bits", f.Name, value, what, 8*f.Size)
	}
	var wide [8]byte
	le.PutUint64(wide[:], n)
	copy(p, wide[:f.Size])
	return nil
}

// SetText gives an item another name, of any length: b is an item without one.
func (f Field) SetText(b []byte, value string) []byte {
	le.PutUint16(b[f.Len:], uint16(len(value)))
	return append(b[:f.Off:f.Off], value...)
}

// SetBytes writes bytes at an offset: @40=00ff, the offset decimal or with 0x, the bytes in hex.
func SetBytes(b []byte, word, value string) (old []byte, err error) {
	off, err := strconv.ParseUint(word, 0, 31)
	p, herr := hex.DecodeString(value)
	switch {
	case err != nil || herr != nil || len(p) == 0:
		return nil, fmt.Errorf("@%s=%s, want @OFFSET=BYTES, in hexadecimal", word, value)
	case int(off)+len(p) > len(b):
		return nil, fmt.Errorf("@%s=%s, want at most byte %d: there are no more", word, value, len(b)-1)
	}
	old = slices.Clone(b[off:][:len(p)])
	copy(b[off:], p)
	return old, nil
}

// ParseKey reads a key as Key prints it: (257 INODE_ITEM 0). The parentheses may be left out, and
// all three may be numbers.
func ParseKey(text string) (k format.Key, err error) {
	words := strings.Fields(strings.TrimSuffix(strings.TrimPrefix(strings.TrimSpace(text), "("), ")"))
	if len(words) != 3 {
		return k, fmt.Errorf("want a key, as (257 INODE_ITEM 0)")
	}
	typ, ok := typeOf(words[1])
	if !ok {
		return k, fmt.Errorf("want a type of items, as INODE_ITEM, or a number")
	}
	k.Type = typ
	if k.Objectid, ok = objectOf(words[0]); !ok {
		return k, fmt.Errorf("want an objectid, a number or a name as CSUM_TREE")
	}
	if k.Offset, ok = objectOf(words[2]); !ok {
		return k, fmt.Errorf("want an offset, a number")
	}
	return k, nil
}

func typeOf(word string) (uint8, bool) {
	for typ := range 256 {
		if it, ok := format.ItemTypeOf(uint8(typ)); ok && strings.EqualFold(it.Name, word) {
			return uint8(typ), true
		}
	}
	n, err := strconv.ParseUint(strings.TrimPrefix(word, "UNKNOWN."), 0, 8)
	return uint8(n), err == nil
}

func objectOf(word string) (uint64, bool) {
	for id, name := range objectNames {
		if name == word {
			return id, true
		}
	}
	switch word {
	case "DEV_STATS":
		return format.DEV_STATS_OBJECTID, true
	case "DEV_ITEMS":
		return format.DEV_ITEMS_OBJECTID, true
	case "FIRST_CHUNK_TREE":
		return format.FIRST_CHUNK_TREE_OBJECTID, true
	}
	if level, id, ok := strings.Cut(word, "/"); ok { // of a qgroup
		l, err := strconv.ParseUint(level, 10, 16)
		n, nerr := strconv.ParseUint(id, 10, 48)
		return l<<48 | n, err == nil && nerr == nil
	}
	if n, err := strconv.ParseInt(word, 0, 64); err == nil {
		return uint64(n), true
	}
	n, err := strconv.ParseUint(word, 0, 64)
	return n, err == nil
}
