package check

// Rule is one thing that must hold on an image, by the name that findings carry.
type Rule struct {
	Name  string
	Doc   string
	Means string // to the user, when it is broken; of data it is said with the file
}

// Rules are all rules, in the order findings are listed. Numbers are items of labs/reference 10.6.
var Rules = []Rule{
	{"device.read", "every place that is used can be read", "what lies there can be read from another copy, if there is one"},
	{"super.bad", "the primary superblock passes format.CheckSuper (10.1)", "nothing mounts it; rescue fix-super, or rescue copy"},
	{"super.copy", "every copy in range is a whole superblock, and equal to the primary if of the same generation", "the image works; the spare is bad: rescue fix-super"},
	{"super.sys_array", "the system chunk array is an exact copy of all SYSTEM chunks (7)", "a mount may not find the chunk tree"},
	{"super.bytes_used", "bytes_used is the sum of the block groups' used (5)", "df is wrong"},
	{"super.dev_item", "the superblock's dev item is the chunk tree's (6)", "the device's sizes are wrong until the next commit"},
	{"super.device", "every device of the file system is there, with the superblock of the last commit", "the device has missed commits: what it has is old"},

	{"tree.read", "a tree block has a readable copy with a good checksum", "what was in the block is lost; rescue copy gets the rest"},
	{"tree.csum", "every copy of a tree block has a good checksum", "one copy is bad; without another the block is lost"},
	{"tree.mirror", "all copies of a tree block are the same", "which copy is read is chance"},
	{"tree.block", "a tree block passes the tree checker", "Linux refuses the block: what is in it is out of reach"},
	{"tree.header", "a tree block's bytenr, fsid and chunk tree uuid are those of the file system", "Linux refuses the block: what is in it is out of reach"},
	{"tree.level", "a child is one level below its parent; a root has its root item's level (1)", "Linux refuses the block: what is below it is out of reach"},
	{"tree.generation", "a block's generation is what its parent says (1)", "a write was lost: what is below the block is out of reach"},
	{"tree.owner", "a block is owned by its tree, or in a snapshot by another subvolume", "Linux refuses the block: what is in it is out of reach"},
	{"tree.first_key", "a child's first key is its parent's key for it (1)", "Linux refuses the block: what is in it is out of reach"},
	{"tree.key_range", "a child's keys are below its parent's next key", "items are where no search finds them"},
	{"tree.key_type", "the type of a key is one that btrfs has", "Linux leaves the item alone; something has damaged it"},
	{"tree.loop", "a tree reaches each block once", "two places share a block, and the next write to one damages the other"},
	{"tree.chunk", "tree blocks lie in METADATA block groups, the chunk tree's in SYSTEM ones (4)", "the block is where none may be; the next write may damage it"},

	{"root.missing", "the trees that a mount needs are there (10.3)", "Linux does not mount it; rescue copy gets the files"},
	{"root.item", "a root item agrees with itself: generation_v2, level, refs (1)", "the tree may be refused, or its newer fields be ignored"},
	{"root.flags", "a read-only subvolume has BTRFS_INODE_ROOT_ITEM_INIT, without which Linux ignores that it is read-only", "the subvolume can be written to"},
	{"root.orphan", "a subvolume without a name has an orphan item, by which a mount deletes it", "its space is never freed"},
	{"root.ref", "subvolume references and back references pair up", "the subvolume is listed wrongly, or cannot be deleted"},

	{"chunk.item", "chunks do not overlap, and this program knows their profile", "what lies in the chunk may be read from the wrong place"},
	{"chunk.dev_extent", "each chunk stripe has its dev extent (6)", "the space may be given away twice; Linux does not mount it"},
	{"dev.extent", "each dev extent belongs to a chunk stripe (6)", "Linux does not mount it, or the space is lost"},
	{"dev.overlap", "dev extents do not overlap, and none is below 1 MiB or beyond the device (2, 6)", "two chunks share space, and one damages the other"},
	{"dev.bytes_used", "the dev item's bytes_used is the sum of its dev extents (6)", "the device seems fuller or emptier than it is"},
	{"dev.item", "each device at hand has one dev item, and no other has", "Linux does not mount it, or wants a device that is not there"},

	{"group.chunk", "block groups and chunks pair up, with the same length and flags (4)", "space is lost, or Linux does not mount it"},
	{"group.used", "a block group's used is the sum of its extents (4)", "free space is counted wrongly: writes may fail early, or too late"},

	{"extent.group", "an extent lies in one block group of its type (4)", "the space may be given away twice"},
	{"extent.overlap", "extents do not overlap, nor cover a superblock copy (2)", "two extents share space, and one damages the other"},
	{"extent.missing", "what is referenced has an extent item (3)", "the space passes for free: the next write may go over it"},
	{"extent.ref_missing", "each reference from a tree is listed in the extent tree (3)", "a deletion elsewhere frees it too early; Linux turns read-only then"},
	{"extent.ref_extra", "each reference listed in the extent tree exists (3)", "its space is never freed"},
	{"extent.refs", "an extent's refs is the sum of its listed references (3)", "it is freed too early or never"},
	{"extent.length", "a file extent names its extent's whole length (3)", "it cannot be freed; Linux turns read-only then"},
	{"extent.type", "tree blocks and data are not mixed up, levels agree (3)", "data and metadata may be written over each other"},
	{"extent.generation", "a tree block's extent item has the block's generation", "send and incremental backups may miss it"},

	{"free_space.info", "each block group has its free space info, with the right count (8)", "Linux searches the space anew, or uses less of it"},
	{"free_space.range", "the free space tree is the exact complement of the extents (8)", "space in use passes for free, or free space is not used"},

	{"quota.count", "a qgroup's bytes are those of the extents that its subvolumes reach, with simple quotas have allocated", "limits of quotas hold too early or too late: rescan"},

	{"quota.item", "qgroups have a status, and each its counts and limits; relations are there from both sides", "a limit or a qgroup does not count, or quotas go off"},

	{"uuid.item", "the UUID tree has each subvolume's UUIDs", "send and receive do not find the subvolume"},

	{"csum.extent", "checksums exist for allocated data only (9)", "the next data there may seem damaged"},
	{"csum.missing", "data that needs checksums has them (9)", "a part of the file cannot be read"},
	{"data.read", "data can be read", ""},
	{"data.csum", "data matches its checksum, on every copy (9)", ""},
	{"data.parity", "the parity of a row is that of its data", "a device that fails takes this data with it"},

	{"inode.missing", "items of a file have an inode item", "what is left of it cannot be reached"},
	{"inode.nlink", "nlink is the number of names (11)", "it goes too early, or its space is never freed"},
	{"inode.orphan", "an inode without a name has an orphan item", "it has no name, and its space is never freed"},
	{"inode.nbytes", "nbytes is the sum of the file's extents, and of an orphan at least that (10)", "du is wrong"},
	{"inode.flags", "a symbolic link is neither immutable nor append-only", "Linux refuses the link"},
	{"inode.cache", "no tree has the inode cache of before Linux 5.11, which nobody uses or frees", "its space is never freed"},
	{"inode.kind", "directories have entries and no data, other inodes no entries", "Linux refuses it, or a part of it is out of reach"},
	{"file.extent", "file extents are in order, do not overlap, and stay inside their extents (10)", "a part of it may read as the wrong bytes"},
	{"file.inline", "an inline extent is a small file's only one (10)", "a part of it may be out of reach"},
	{"file.hole", "without NO_HOLES, holes are explicit (10)", "the missing range reads as zeros"},
	{"dir.size", "a directory's size is twice the sum of its names' lengths (11)", "nothing but a wrong size in ls; rmdir may refuse it"},
	{"dir.name", "a directory has a name once", "one of the two cannot be reached"},
	{"dir.item", "a name has its DIR_ITEM (11)", "opening it by name fails, while ls may show it"},
	{"dir.index", "a name has its DIR_INDEX, with the index of the reference, from 2 on (11)", "ls does not show it, while opening it by name may work"},
	{"dir.ref", "a directory entry has its inode reference (11)", "it is listed, and may be gone or not be deleted"},
	{"dir.type", "an entry's type is its inode's", "ls and find take it for another kind of file"},
	{"dir.cycle", "every directory is reached from the root directory", "it cannot be reached from the root"},

	{"log.root", "the tree of logs has one root item for each log (6.1)", "what was fsynced last may be lost; rescue zero-log gives it up"},
	{"log.space", "a log's blocks, and the data extents that the last commit does not have, lie in space that is free in it (6.1)", "a mount may damage data: rescue zero-log gives the log up"},
	{"log.item", "the items of a log follow the item of their inode (6.3)", "a mount fails: rescue zero-log gives up what was fsynced last"},
	{"log.csum", "logged data has checksums, in order, in its log or in the checksum tree (6.3)", "what was fsynced last may be unreadable"},
}

// ruleMeans is Means by name.
var ruleMeans = func() map[string]string {
	m := map[string]string{}
	for _, r := range Rules {
		m[r.Name] = r.Means
	}
	return m
}()

var ruleOrder = func() map[string]int {
	m := map[string]int{}
	for i, r := range Rules {
		m[r.Name] = i
	}
	return m
}()
