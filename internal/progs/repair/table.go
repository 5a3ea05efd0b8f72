package repair

// The order of mending. What a check finds further on may follow from what is wrong before, so each
// stage that has changed something ends the round, and all is judged anew.

// step is a step of a repair.
type step struct {
	rules []string              // it is taken if one of them is broken
	needs func(c *changes) bool // and this holds; nil for nothing more
	mend  func(c *changes)      // of the whole image
	files func(m *mender)       // or of a subvolume with findings
	says  []line                // for labs/guide/broken.md
}

// line says what is put right, and what it is made from.
type line struct{ broken, from string }

// blockRules are broken by a tree block that is not the one that its parent means.
var blockRules = []string{"tree.read", "tree.block", "tree.header", "tree.level", "tree.generation", "tree.owner", "tree.loop", "tree.chunk"}

// treeRules are the rules of tree blocks but for those of single keys.
var treeRules = []string{"tree.read", "tree.csum", "tree.mirror", "tree.block", "tree.header", "tree.level", "tree.generation", "tree.owner",
	"tree.first_key", "tree.key_range", "tree.loop", "tree.chunk"}

// stages are the steps, in order.
var stages = [][]step{
	{{
		rules: []string{"super.bad", "super.copy"},
		mend:  func(c *changes) { c.try(c.fixSupers()) },
		says:  []line{{"superblocks", "a whole copy on the same device"}},
	}},
	{{
		rules: []string{"super.sys_array"},
		mend:  (*changes).mendArray,
		says: []line{{"the array of system chunks in the superblock", "the chunk tree"},
			{"a system chunk without its item", "the array in the superblock"}},
	}, {
		rules: []string{"dev.item"},
		mend:  (*changes).mendDevItem,
		says: []line{{"the item of a device", "the superblock"},
			{"`total_bytes` of the superblock", "the items of the devices"}},
	}},
	{{
		rules: []string{"tree.csum", "tree.mirror", "data.csum"},
		mend:  (*changes).fixCopies,
		says:  []line{{"copies of tree blocks and of data", "a whole copy, or the parity of RAID5 and RAID6"}},
	}},
	{{
		rules: []string{"data.parity"},
		mend:  (*changes).fixParity,
		says:  []line{{"the parity of a row of RAID5 and RAID6", "its data, if all of it is whole"}},
	}},
	{{
		rules: blockRules,
		mend:  (*changes).mendHeaders,
		says:  []line{{"the header of a block", "what its parent says, if only one field is wrong"}},
	}, {
		rules: []string{"tree.block", "tree.key_range"},
		mend:  (*changes).mendRefused,
		says: []line{{"a leaf that Linux refuses", "its items: offsets from their neighbours, a bit of a key, generations, modes, hashes; an item that still breaks a rule is dropped"},
			{"an inner node that Linux refuses", "the blocks below it"}},
	}, {
		rules: blockRules,
		mend:  (*changes).mendMeant,
		says:  []line{{"a pointer to nowhere", "the one block with its key, level and generation"}},
	}, {
		rules: []string{"tree.first_key", "tree.generation", "tree.level"},
		mend:  (*changes).mendPointers,
		says:  []line{{"the key or the generation in a pointer", "the block that it leads to"}},
	}},
	{{
		rules: []string{"group.chunk"},
		needs: func(c *changes) bool { return c.found("dev.extent") },
		mend:  (*changes).mendChunks,
		says:  []line{{"a chunk item", "its block group and device extents, if its stripes have no order"}},
	}, {
		rules: []string{"chunk.item", "chunk.dev_extent"},
		mend:  (*changes).mendStripes,
		says: []line{{"the device and the place of a stripe", "its other name of the device, and the device extent without a stripe"},
			{"a chunk over another, without a block group", "dropped"}},
	}},
	{{
		rules: []string{"dev.extent", "chunk.dev_extent"},
		mend:  (*changes).mendDevExtents,
		says:  []line{{"device extents", "the chunks"}},
	}, {
		rules: []string{"root.orphan", "root.missing", "root.item", "root.flags", "root.ref"},
		mend:  (*changes).mendRoots,
		says: []line{{"the orphan item of a deleted subvolume", "its root item"},
			{"the root items of extents, checksums, free space, devices, relocated data", "the tree is made anew"},
			{"fields of a root item", "each other"},
			{"the links of subvolumes", "their entry, the other end, or `/lost+found/subvolume-N`"},
			{"the root item of a subvolume that is linked", "its newest root that a scan finds, if that leads to all of it"}},
	}},
	{{ // the steps after it want to know what is in use
		rules: treeRules,
		needs: (*changes).badTrees,
		mend:  (*changes).remake,
		says:  []line{{"a checksum tree that cannot be read whole", "the checksums that are left, then the data as it is"}},
	}},
	{{
		rules: []string{"tree.key_type", "inode.cache"},
		mend:  (*changes).mendKeys,
		says: []line{{"keys of types that btrfs does not have in their tree, in trees of files and the root tree", "dropped, unless the superblock has a compat feature"},
			{"the inode cache of before Linux 5.11", "dropped"}},
	}},
	{{
		rules: []string{"quota.item"},
		mend:  (*changes).mendQuotaItems,
		says:  []line{{"items of qgroups", "each other; limits are lost"}},
	}, {
		rules: []string{"uuid.item"},
		mend:  (*changes).mendUUIDs,
		says:  []line{{"items of the UUID tree", "the root items"}},
	}},
	{{
		rules: []string{"inode.missing"},
		files: (*mender).mendInodes,
		says:  []line{{"an inode item", "the other items of the inode and its entry; owner, times and permissions are lost: it is root's, for root only"}},
	}},
	{{
		// A directory with two names counts one link.
		rules: []string{"dir.item", "dir.index", "dir.ref", "dir.name", "dir.type", "dir.cycle", "inode.nlink"},
		files: (*mender).mendNames,
		says: []line{{"one or two of the three records of a directory entry", "the others; a lone DIR_ITEM or DIR_INDEX only if the link count wants it"},
			{"two entries of one name", "the second gets its inode number after its name"},
			{"a directory with two names, or below itself", "one name is dropped"}},
	}},
	{{
		rules: []string{"inode.nlink"},
		files: (*mender).lost,
		says:  []line{{"an inode or a directory without a name", "it is linked into `/lost+found` of its subvolume, by its number"}},
	}, {
		rules: []string{"file.hole"},
		files: (*mender).holes,
		says:  []line{{"holes without items, in images that want them", "items that say hole"}},
	}, {
		rules: []string{"inode.orphan"},
		files: (*mender).orphans,
		says:  []line{{"the orphan item of a deleted inode", "its inode item"}},
	}, {
		rules: []string{"inode.kind", "inode.nlink", "dir.ref"},
		files: (*mender).kinds,
		says: []line{{"items that an inode of its mode does not have", "dropped"},
			{"the name of the root directory for itself", "made anew"}},
	}, {
		rules: []string{"file.extent", "file.inline"},
		files: (*mender).extents,
		says: []line{{"a file extent at an address that no chunk, block group or device extent has", "a hole: its data is lost"},
			{"a file extent that goes beyond its extent", "the extent's length"},
			{"the size of a symbolic link", "its target"}},
	}, {
		rules: []string{"quota.count"},
		mend:  (*changes).fixQuotas,
		says:  []line{{"counts of qgroups", "what the subvolumes reach"}},
	}, {
		rules: []string{"inode.nlink", "inode.nbytes", "dir.size", "inode.flags", "file.extent"},
		mend:  (*changes).fixCounts,
		says:  []line{{"link count, byte count, size of a directory", "the names and extents that are there"}},
	}},
	{{
		rules: []string{"extent.type"},
		mend:  (*changes).strangers,
		says:  []line{{"a file extent that points at a tree block", "dropped"}},
	}},
	{{
		rules: append([]string{"extent.group", "extent.overlap", "extent.missing", "extent.ref_missing", "extent.ref_extra", "extent.refs", "extent.length",
			"extent.type", "extent.generation", "group.chunk", "group.used", "free_space.info", "free_space.range", "csum.extent", "csum.missing",
			"super.bytes_used", "tree.key_type"}, treeRules...),
		needs: (*changes).badExtents,
		mend:  (*changes).remake,
		says: []line{{"the extent tree, block groups, the free space tree, `bytes_used` of the superblock", "all other trees, which it walks; all of them are made anew"},
			{"checksums that are missing", "the data as it is"}},
	}},
	{{
		rules: []string{"dev.bytes_used", "super.dev_item"},
		mend:  func(c *changes) { c.try("sizes of the devices", c.fixDevices()) },
		says:  []line{{"sizes of devices, the device item in the superblock", "the device extents"}},
	}},
}

// unmended are the rules that no step puts right, with the reason.
var unmended = []line{
	{"device.read", "the device fails: what lies there is in another copy, or lost"},
	{"super.device", "which of two devices is right is for people to say"},
	{"dev.overlap", "nothing is moved"},
	{"data.read", "the bytes are lost"},
	{"log.root", "a log is replayed by a mount, or given up by `rescue zero-log`"},
	{"log.space", "as log.root"},
	{"log.item", "as log.root"},
	{"log.csum", "as log.root"},
}
