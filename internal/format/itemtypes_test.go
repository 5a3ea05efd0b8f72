package format

import "testing"

// TestItemTypes holds the table against the tree checker: a type that is judged has a case in
// checker.item, so some item of it is refused, and no item is of one that is not.
func TestItemTypes(t *testing.T) {
	for typ := range 256 {
		it, ok := ItemTypeOf(uint8(typ))
		if !ok && (it.Home != 0 || it.Judged) {
			t.Errorf("type %d has a row without a name", typ)
		}
		if ok && it.Home == 0 {
			t.Errorf("%s is in no tree", it.Name)
		}
		refused := false
		for _, size := range []int{0, 1, 33, 61} { // no item of any type has all of these sizes
			b := make([]byte, size)
			for i := range b {
				b[i] = 0xff
			}
			k := checker{n: leafOf(FS_TREE_OBJECTID, samples()[0]), c: ctx(), key: Key{4096, uint8(typ), 4096}, mask: SectorSize - 1}
			refused = refused || k.item(b) != nil
		}
		if refused != it.Judged {
			t.Errorf("type %d, %s: the tree checker refuses some item: %t, the table says %t", typ, it.Name, refused, it.Judged)
		}
	}
}

// TestHomes: the kind of each tree that a file system has.
func TestHomes(t *testing.T) {
	for id, want := range map[uint64]Home{ROOT_TREE_OBJECTID: InRoots, TREE_LOG_OBJECTID: InLog | InRoots, FS_TREE_OBJECTID: InFiles, FIRST_FREE_OBJECTID: InFiles,
		DATA_RELOC_TREE_OBJECTID: InFiles, EXTENT_TREE_OBJECTID: InExtents, BLOCK_GROUP_TREE_OBJECTID: InGroups, CHUNK_TREE_OBJECTID: InChunks,
		DEV_TREE_OBJECTID: InDevices, CSUM_TREE_OBJECTID: InCsums, FREE_SPACE_TREE_OBJECTID: InFreeSpace, QUOTA_TREE_OBJECTID: InQuota,
		UUID_TREE_OBJECTID: InUUIDs, 12: InOther} {
		if have := HomeOf(id); have != want {
			t.Errorf("tree %d: have %b want %b", int64(id), have, want)
		}
	}
}
