package dump

import (
	"testing"

	"btrlab/internal/format"
)

// TestItemRows: every type of items that this program reads is shown, and none that btrfs lacks.
func TestItemRows(t *testing.T) {
	// Of features that are refused by name, and of repairs under way: as bytes.
	asBytes := map[string]bool{"UNTYPED": true, "VERITY_DESC_ITEM": true, "VERITY_MERKLE_ITEM": true, "EXTENT_OWNER_REF": true, "EXTENT_REF_V0": true,
		"RAID_STRIPE": true, "TEMPORARY_ITEM": true, "DEV_REPLACE": true, "STRING_ITEM": true}
	for typ := range 256 {
		it, known := format.ItemTypeOf(uint8(typ))
		_, row := shown[uint8(typ)]
		if row && !known {
			t.Errorf("type %d is shown, and btrfs has none such", typ)
		}
		if known && row == asBytes[it.Name] {
			t.Errorf("%s: has a row: %t, is among those shown as bytes: %t", it.Name, row, asBytes[it.Name])
		}
	}
}
