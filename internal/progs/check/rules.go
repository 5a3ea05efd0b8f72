package check

// Rule is one thing that must hold on an image, by the name that findings carry.
type Rule struct {
	Name string
	Doc  string
}

// Rules are all rules, in the order findings are listed. Numbers are items of labs/reference 10.6.
var Rules = []Rule{
	{"device.read", "every place that is used can be read"},
	{"super.bad", "the primary superblock passes format.CheckSuper (10.1)"},
	{"super.copy", "every copy in range is a whole superblock, and equal to the primary if of the same generation"},
	{"super.sys_array", "the system chunk array is an exact copy of all SYSTEM chunks (7)"},
	{"super.bytes_used", "bytes_used is the sum of the block groups' used (5)"},
	{"super.dev_item", "the superblock's dev item is the chunk tree's (6)"},
	{"super.device", "every device of the file system is there, with the superblock of the last commit"},

	{"tree.read", "a tree block has a readable copy with a good checksum"},
	{"tree.csum", "every copy of a tree block has a good checksum"},
	{"tree.mirror", "all copies of a tree block are the same"},
	{"tree.block", "a tree block passes the tree checker"},
	{"tree.header", "a tree block's bytenr, fsid and chunk tree uuid are those of the file system"},
	{"tree.level", "a child is one level below its parent; a root has its root item's level (1)"},
	{"tree.generation", "a block's generation is what its parent says (1)"},
	{"tree.owner", "a block is owned by its tree, or in a snapshot by another subvolume"},
	{"tree.first_key", "a child's first key is its parent's key for it (1)"},
	{"tree.key_range", "a child's keys are below its parent's next key"},
	{"tree.key_type", "the type of a key is one that btrfs has"},
	{"tree.loop", "a tree reaches each block once"},
	{"tree.chunk", "tree blocks lie in METADATA block groups, the chunk tree's in SYSTEM ones (4)"},

	{"root.missing", "the trees that a mount needs are there (10.3)"},
	{"root.item", "a root item agrees with itself: generation_v2, level, refs (1)"},
	{"root.flags", "a read-only subvolume has BTRFS_INODE_ROOT_ITEM_INIT, without which Linux ignores that it is read-only"},
	{"root.orphan", "a subvolume without a name has an orphan item, by which a mount deletes it"},
	{"root.ref", "subvolume references and back references pair up"},

	{"chunk.item", "chunks do not overlap, and this program knows their profile"},
	{"chunk.dev_extent", "each chunk stripe has its dev extent (6)"},
	{"dev.extent", "each dev extent belongs to a chunk stripe (6)"},
	{"dev.overlap", "dev extents do not overlap, and none is below 1 MiB or beyond the device (2, 6)"},
	{"dev.bytes_used", "the dev item's bytes_used is the sum of its dev extents (6)"},
	{"dev.item", "each device at hand has one dev item, and no other has"},

	{"group.chunk", "block groups and chunks pair up, with the same length and flags (4)"},
	{"group.used", "a block group's used is the sum of its extents (4)"},

	{"extent.group", "an extent lies in one block group of its type (4)"},
	{"extent.overlap", "extents do not overlap, nor cover a superblock copy (2)"},
	{"extent.missing", "what is referenced has an extent item (3)"},
	{"extent.ref_missing", "each reference from a tree is listed in the extent tree (3)"},
	{"extent.ref_extra", "each reference listed in the extent tree exists (3)"},
	{"extent.refs", "an extent's refs is the sum of its listed references (3)"},
	{"extent.length", "a file extent names its extent's whole length (3)"},
	{"extent.type", "tree blocks and data are not mixed up, levels agree (3)"},
	{"extent.generation", "a tree block's extent item has the block's generation"},

	{"free_space.info", "each block group has its free space info, with the right count (8)"},
	{"free_space.range", "the free space tree is the exact complement of the extents (8)"},

	{"quota.count", "a qgroup's bytes are those of the extents that its subvolumes reach"},

	{"csum.extent", "checksums exist for allocated data only (9)"},
	{"csum.missing", "data that needs checksums has them (9)"},
	{"data.read", "data can be read"},
	{"data.csum", "data matches its checksum, on every copy (9)"},
	{"data.parity", "the parity of a row is that of its data"},

	{"inode.missing", "items of a file have an inode item"},
	{"inode.nlink", "nlink is the number of names (11)"},
	{"inode.orphan", "an inode without a name has an orphan item"},
	{"inode.nbytes", "nbytes is the sum of the file's extents, and of an orphan at least that (10)"},
	{"inode.flags", "a symbolic link is neither immutable nor append-only"},
	{"inode.cache", "no tree has the inode cache of before Linux 5.11, which nobody uses or frees"},
	{"inode.kind", "directories have entries and no data, other inodes no entries"},
	{"file.extent", "file extents are in order, do not overlap, and stay inside their extents (10)"},
	{"file.inline", "an inline extent is a small file's only one (10)"},
	{"file.hole", "without NO_HOLES, holes are explicit (10)"},
	{"dir.size", "a directory's size is twice the sum of its names' lengths (11)"},
	{"dir.name", "a directory has a name once"},
	{"dir.item", "a name has its DIR_ITEM (11)"},
	{"dir.index", "a name has its DIR_INDEX, with the index of the reference, from 2 on (11)"},
	{"dir.ref", "a directory entry has its inode reference (11)"},
	{"dir.type", "an entry's type is its inode's"},
	{"dir.cycle", "every directory is reached from the root directory"},

	{"log.root", "the tree of logs has one root item for each log (6.1)"},
	{"log.space", "a log's blocks, and the data extents that the last commit does not have, lie in space that is free in it (6.1)"},
	{"log.item", "the items of a log follow the item of their inode (6.3)"},
	{"log.csum", "logged data has checksums, in order, in its log or in the checksum tree (6.3)"},
}

var ruleOrder = func() map[string]int {
	m := map[string]int{}
	for i, r := range Rules {
		m[r.Name] = i
	}
	return m
}()
