package format

import "fmt"

// Items of files: inodes, their names, extents and checksums.

// sameInode: in a subvolume tree an inode's other items follow its INODE_ITEM, so the item before
// one of them, when it is in this leaf, is of the same inode. Log trees are not like that.
func (k *checker) sameInode() error {
	if k.slot > 0 && k.prev.Objectid != k.key.Objectid && IsFSTree(k.n.Owner()) {
		return k.err("item without inode item before it", fmt.Sprintf("%v after %v", k.key, k.prev), "")
	}
	return nil
}

// InodeFlagsKnown are the flags that an inode item may have.
const InodeFlagsKnown = InodeNoDataSum | InodeNoDataCow | InodeReadonly | InodeNoCompress | InodePrealloc | InodeSync |
	InodeImmutable | InodeAppend | InodeNoDump | InodeNoAtime | InodeDirSync | InodeCompress | 1<<31 | 1<<32

func (k *checker) inodeItem(b []byte) error {
	id := k.key.Objectid
	if (id < FIRST_FREE_OBJECTID || id > LAST_FREE_OBJECTID) && id != ROOT_TREE_DIR_OBJECTID && id != FREE_INO_OBJECTID {
		return k.err("bad inode number", dec(id), fmt.Sprintf("%d..%d", FIRST_FREE_OBJECTID, LAST_FREE_OBJECTID))
	}
	if k.key.Offset != 0 {
		return k.err("bad inode key offset", dec(k.key.Offset), "0")
	}
	if len(b) != InodeItemSize {
		return k.err("bad inode item size", dec(len(b)), dec(InodeItemSize))
	}
	var it InodeItem
	it.Decode(b)
	if err := k.generation("inode generation", it.Generation); err != nil {
		return err
	}
	if err := k.generation("inode transid", it.Transid); err != nil {
		return err
	}
	if it.Mode&^(S_IFMT|0o7777) != 0 || FtOf(it.Mode) == FtUnknown {
		return k.err("bad inode mode", fmt.Sprintf("0%o", it.Mode), "")
	}
	if it.Mode&S_IFMT == S_IFDIR && it.Nlink > 1 {
		return k.err("bad directory nlink", dec(it.Nlink), "at most 1")
	}
	if f := it.Flags &^ uint64(InodeFlagsKnown); f != 0 {
		return k.err("unknown inode flags", hexa(f), "")
	}
	return nil
}

// inodeRef checks INODE_REF and INODE_EXTREF: a head of head bytes, then the name.
func (k *checker) inodeRef(b []byte, head int, nameLen func([]byte) int) error {
	if err := k.sameInode(); err != nil {
		return err
	}
	if len(b) == 0 {
		return k.err("bad inode ref size", "0", fmt.Sprintf("at least %d", head+1))
	}
	for p := 0; p < len(b); {
		if p+head > len(b) {
			return k.err("bad inode ref size", fmt.Sprintf("%d bytes left", len(b)-p), dec(head))
		}
		n := nameLen(b[p:])
		if n == 0 || n > MaxNameLen || p+head+n > len(b) {
			return k.err("bad inode ref name length", dec(n), fmt.Sprintf("1..%d", min(MaxNameLen, len(b)-p-head)))
		}
		p += head + n
	}
	return nil
}

func (k *checker) dirItem(b []byte) error {
	if err := k.sameInode(); err != nil {
		return err
	}
	if len(b) == 0 {
		return k.err("bad dir item size", "0", fmt.Sprintf("at least %d", DirItemSize))
	}
	xattr := k.key.Type == XATTR_ITEM_KEY
	for p := 0; p < len(b); {
		if p+DirItemSize > len(b) {
			return k.err("bad dir item size", fmt.Sprintf("%d bytes left", len(b)-p), dec(DirItemSize))
		}
		e := DirItemView(b[p:])
		loc, dn, nn := e.Location(), e.DataLen(), e.NameLen()
		switch loc.Type {
		case ROOT_ITEM_KEY:
			if !IsFSTree(loc.Objectid) {
				return k.err("bad dir item location", loc.String(), "")
			}
		case INODE_ITEM_KEY:
			if loc.Offset != 0 || loc.Objectid < FIRST_FREE_OBJECTID || loc.Objectid > LAST_FREE_OBJECTID {
				return k.err("bad dir item location", loc.String(), "")
			}
		case 0:
			if !xattr || loc != (Key{}) {
				return k.err("bad dir item location", loc.String(), "")
			}
		default:
			return k.err("bad dir item location type", dec(loc.Type), fmt.Sprintf("%d or %d", INODE_ITEM_KEY, ROOT_ITEM_KEY))
		}
		// The top bit marks an encrypted name.
		ft := e.Type() &^ 0x80
		if ft > FtXattr {
			return k.err("bad dir item type", dec(ft), fmt.Sprintf("at most %d", FtXattr))
		}
		if xattr != (ft == FtXattr) {
			return k.err("bad dir item type", fmt.Sprintf("%d under key type %d", ft, k.key.Type), "")
		}
		if nn == 0 || nn > MaxNameLen {
			return k.err("bad dir item name length", dec(nn), fmt.Sprintf("1..%d", MaxNameLen))
		}
		if dn != 0 && !xattr {
			return k.err("bad dir item data length", dec(dn), "0")
		}
		if e.Size() > len(e) {
			return k.err("bad dir item lengths", fmt.Sprintf("name %d data %d in %d bytes", nn, dn, len(e)-DirItemSize), "")
		}
		if k.key.Type != DIR_INDEX_KEY {
			if h := uint64(rawCRC32C(^uint32(1), e.Name())); h != k.key.Offset {
				return k.err("bad name hash", hexa(k.key.Offset), hexa(h))
			}
		} else if DirItemSize+nn != len(b) {
			return k.err("bad dir index size", dec(len(b)), dec(DirItemSize+nn))
		}
		p += e.Size()
	}
	return nil
}

func (k *checker) fileExtent(b []byte) error {
	if k.key.Offset&k.mask != 0 {
		return k.fileErr("unaligned file offset", dec(k.key.Offset), fmt.Sprintf("a multiple of %d", k.c.SectorSize))
	}
	if err := k.sameInode(); err != nil {
		return err
	}
	if len(b) < FileExtentInline {
		return k.fileErr("bad file extent size", dec(len(b)), fmt.Sprintf("at least %d", FileExtentInline))
	}
	e := FileExtentView(b)
	typ := e.Type()
	if typ > FileExtentTypePrealloc {
		return k.fileErr("bad file extent type", dec(typ), fmt.Sprintf("at most %d", FileExtentTypePrealloc))
	}
	if e.Compression() > CompressZstd {
		return k.fileErr("bad compression", dec(e.Compression()), fmt.Sprintf("at most %d", CompressZstd))
	}
	if e.Encryption() != 0 {
		return k.fileErr("bad encryption", dec(e.Encryption()), "0")
	}
	if g := e.Generation(); g == 0 {
		return k.fileErr("bad file extent generation", "0", "")
	} else if err := k.generation("file extent generation", g); err != nil {
		return err
	}
	ram := e.RAMBytes()
	if typ == FileExtentTypeInline {
		if k.key.Offset != 0 {
			return k.fileErr("bad offset of an inline extent", dec(k.key.Offset), "0")
		}
		if e.Compression() == CompressNone && uint64(len(b)-FileExtentInline) != ram {
			return k.fileErr("bad ram_bytes of an inline extent", dec(ram), dec(len(b)-FileExtentInline))
		}
		return nil
	}
	if len(b) != FileExtentSize {
		return k.fileErr("bad file extent size", dec(len(b)), dec(FileExtentSize))
	}
	disk, diskNum, off, num := e.DiskBytenr(), e.DiskNumBytes(), e.Offset(), e.NumBytes()
	if (ram|disk|diskNum|off|num)&k.mask != 0 {
		return k.fileErr("unaligned file extent", fmt.Sprintf("ram_bytes %d disk_bytenr %d disk_num_bytes %d offset %d num_bytes %d",
			ram, disk, diskNum, off, num), "")
	}
	if num == 0 {
		return k.fileErr("bad num_bytes", "0", "")
	}
	if k.key.Offset+num < k.key.Offset {
		return k.fileErr("file extent end overflows", fmt.Sprintf("num_bytes %d", num), "")
	}
	if disk+diskNum < disk || disk != 0 && diskNum == 0 {
		return k.fileErr("bad disk_num_bytes", fmt.Sprintf("%d at disk_bytenr %d", diskNum, disk), "")
	}
	if off+num < off || disk != 0 && off+num > ram {
		return k.fileErr("bad ram_bytes", dec(ram), fmt.Sprintf("at least %d", off+num))
	}
	if k.slot > 0 && k.prev.Type == EXTENT_DATA_KEY && k.prev.Objectid == k.key.Objectid {
		p := FileExtentView(k.n.Item(k.slot - 1))
		end := k.prev.Offset
		if p.Type() == FileExtentTypeInline {
			end += AlignUp(p.RAMBytes(), k.mask+1)
		} else {
			end += p.NumBytes()
		}
		if end > k.key.Offset {
			return k.fileErr(fmt.Sprintf("file extent overlaps the one before, which ends at %d", end), "", "")
		}
	}
	return nil
}

func (k *checker) csum(b []byte) error {
	if k.key.Objectid != EXTENT_CSUM_OBJECTID {
		return k.err("bad csum objectid", dec(int64(k.key.Objectid)), dec(int64(-10)))
	}
	if k.key.Offset&k.mask != 0 {
		return k.err("unaligned csum offset", dec(k.key.Offset), "")
	}
	size := k.c.Csum.Size()
	if len(b) == 0 || len(b)%size != 0 {
		return k.err("bad csum item size", dec(len(b)), fmt.Sprintf("a multiple of %d", size))
	}
	if uint64(len(b)/size)*(k.mask+1) > -k.key.Offset-1 && k.key.Offset != 0 {
		return k.err("csum range overflows", fmt.Sprintf("%d bytes of csums at %d", len(b), k.key.Offset), "")
	}
	if k.slot > 0 && k.prev.Type == EXTENT_CSUM_KEY && k.prev.Objectid == k.key.Objectid {
		end := k.prev.Offset + uint64(k.n.ItemSize(k.slot-1)/size)*(k.mask+1)
		if end > k.key.Offset {
			return k.err("csum range overlaps the one before", dec(k.key.Offset), fmt.Sprintf("at least %d", end))
		}
	}
	return nil
}
