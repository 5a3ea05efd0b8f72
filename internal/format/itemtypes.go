package format

// Home is a set of kinds of trees.
type Home uint16

// The kinds of trees. A tree of a feature that this program does not know is InOther.
const (
	InFiles     Home = 1 << iota // subvolumes, and the tree of relocated data
	InLog                        // the logs of fsync
	InRoots                      // the root tree, and the tree of logs
	InExtents                    // the extent tree
	InGroups                     // the block group tree
	InChunks                     // the chunk tree
	InDevices                    // the device tree
	InCsums                      // the checksum tree
	InFreeSpace                  // the free space tree
	InQuota                      // the quota tree
	InUUIDs                      // the UUID tree
	InOther                      // any other tree
	InAny       Home = 1<<iota - 1
	// The root tree has a directory, and the inodes of the free space caches of the first version.
	fileHomes = InFiles | InLog | InRoots
)

// HomeOf is the kind of the tree with an id. The logs and the tree of logs have one id.
func HomeOf(tree uint64) Home {
	switch tree {
	case ROOT_TREE_OBJECTID:
		return InRoots
	case TREE_LOG_OBJECTID:
		return InLog | InRoots
	case EXTENT_TREE_OBJECTID:
		return InExtents
	case CHUNK_TREE_OBJECTID:
		return InChunks
	case DEV_TREE_OBJECTID:
		return InDevices
	case CSUM_TREE_OBJECTID:
		return InCsums
	case QUOTA_TREE_OBJECTID:
		return InQuota
	case UUID_TREE_OBJECTID:
		return InUUIDs
	case FREE_SPACE_TREE_OBJECTID:
		return InFreeSpace
	case BLOCK_GROUP_TREE_OBJECTID:
		return InGroups
	case DATA_RELOC_TREE_OBJECTID:
		return InFiles
	}
	if IsFSTree(tree) {
		return InFiles
	}
	return InOther
}

// ItemType is what is known of the items of one key type. Its row gives a type its name in keys and
// its place; how an item is read stands with its codec (items.go), what must hold of it in
// checker.item, how it is shown in package dump.
type ItemType struct {
	Name string // as btrfs inspect-internal prints it
	// Home: where such items are. InOther is no reason to doubt one.
	Home Home
	// Judged: checker.item has rules for it. What it has none for, readers must check for
	// themselves.
	Judged bool
}

// itemTypes has a row for each type that btrfs has given to a key, those of features that this
// program does not know among them (include/uapi/linux/btrfs_tree.h). 0 heads the free space caches
// of the first version, 180 is of the first format, gone since Linux 2.6.31.
var itemTypes = [256]ItemType{
	0:                        {Name: "UNTYPED", Home: InAny},
	INODE_ITEM_KEY:           {"INODE_ITEM", fileHomes, true},
	INODE_REF_KEY:            {"INODE_REF", fileHomes, true},
	INODE_EXTREF_KEY:         {"INODE_EXTREF", fileHomes, true},
	XATTR_ITEM_KEY:           {"XATTR_ITEM", fileHomes, true},
	36:                       {Name: "VERITY_DESC_ITEM", Home: InFiles},
	37:                       {Name: "VERITY_MERKLE_ITEM", Home: InFiles},
	ORPHAN_ITEM_KEY:          {"ORPHAN_ITEM", fileHomes, true},
	DIR_LOG_ITEM_KEY:         {Name: "DIR_LOG_ITEM", Home: InLog},
	DIR_LOG_INDEX_KEY:        {Name: "DIR_LOG_INDEX", Home: InLog},
	DIR_ITEM_KEY:             {"DIR_ITEM", fileHomes, true},
	DIR_INDEX_KEY:            {"DIR_INDEX", fileHomes, true},
	EXTENT_DATA_KEY:          {"EXTENT_DATA", fileHomes, true},
	EXTENT_CSUM_KEY:          {"EXTENT_CSUM", InCsums | InLog, true},
	ROOT_ITEM_KEY:            {"ROOT_ITEM", InRoots, true},
	ROOT_BACKREF_KEY:         {"ROOT_BACKREF", InRoots, true},
	ROOT_REF_KEY:             {"ROOT_REF", InRoots, true},
	EXTENT_ITEM_KEY:          {"EXTENT_ITEM", InExtents, true},
	METADATA_ITEM_KEY:        {"METADATA_ITEM", InExtents, true},
	EXTENT_OWNER_REF_KEY:     {Name: "EXTENT_OWNER_REF", Home: InExtents}, // inline only
	TREE_BLOCK_REF_KEY:       {"TREE_BLOCK_REF", InExtents, true},
	EXTENT_DATA_REF_KEY:      {"EXTENT_DATA_REF", InExtents, true},
	180:                      {Name: "EXTENT_REF_V0", Home: InExtents},
	SHARED_BLOCK_REF_KEY:     {"SHARED_BLOCK_REF", InExtents, true},
	SHARED_DATA_REF_KEY:      {"SHARED_DATA_REF", InExtents, true},
	BLOCK_GROUP_ITEM_KEY:     {"BLOCK_GROUP_ITEM", InExtents | InGroups, true},
	FREE_SPACE_INFO_KEY:      {"FREE_SPACE_INFO", InFreeSpace, true},
	FREE_SPACE_EXTENT_KEY:    {"FREE_SPACE_EXTENT", InFreeSpace, true},
	FREE_SPACE_BITMAP_KEY:    {"FREE_SPACE_BITMAP", InFreeSpace, true},
	DEV_EXTENT_KEY:           {"DEV_EXTENT", InDevices, true},
	DEV_ITEM_KEY:             {"DEV_ITEM", InChunks, true},
	CHUNK_ITEM_KEY:           {"CHUNK_ITEM", InChunks, true},
	230:                      {Name: "RAID_STRIPE", Home: InOther},
	QGROUP_STATUS_KEY:        {Name: "QGROUP_STATUS", Home: InQuota},
	QGROUP_INFO_KEY:          {Name: "QGROUP_INFO", Home: InQuota},
	QGROUP_LIMIT_KEY:         {Name: "QGROUP_LIMIT", Home: InQuota},
	QGROUP_RELATION_KEY:      {Name: "QGROUP_RELATION", Home: InQuota},
	TEMPORARY_ITEM_KEY:       {Name: "TEMPORARY_ITEM", Home: InAny},  // a balance under way
	PERSISTENT_ITEM_KEY:      {Name: "PERSISTENT_ITEM", Home: InAny}, // counts of a device's errors
	250:                      {Name: "DEV_REPLACE", Home: InDevices},
	UUID_KEY_SUBVOL:          {"UUID_KEY_SUBVOL", InUUIDs, true},
	UUID_KEY_RECEIVED_SUBVOL: {"UUID_KEY_RECEIVED_SUBVOL", InUUIDs, true},
	STRING_ITEM_KEY:          {Name: "STRING_ITEM", Home: InAny},
}

// ItemTypeOf is what is known of items of the key type; ok is false if no version of btrfs has such
// keys.
func ItemTypeOf(t uint8) (it ItemType, ok bool) {
	it = itemTypes[t]
	return it, it.Name != ""
}
