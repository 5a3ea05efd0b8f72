package fstree

import (
	"errors"
	"fmt"
	"testing"

	"btrlab/internal/format"
	"btrlab/internal/meta/ctree"
)

// TestFillHole: a hole joins the one before it or the one after it, and nothing else.
func TestFillHole(t *testing.T) {
	e := newEnv(t, 4096)
	e.inode(rootDir, format.S_IFDIR|0o755)
	fill := func(from, to uint64) error { return e.s.FillHole(e.t, e.tr, e.fs, 257, from*sector, to*sector) }
	want := func(list ...[2]uint64) {
		t.Helper()
		var have [][2]uint64
		e.ok(e.s.each(e.t, e.fs, extentKey(257, 0), func(p *ctree.Path, k format.Key) (bool, error) {
			var fe format.FileExtent
			fe.Decode(p.Item())
			if fe.DiskBytenr == 0 && (fe.RAMBytes != fe.NumBytes || fe.Offset != 0) {
				t.Errorf("hole %+v", fe)
			}
			have = append(have, [2]uint64{k.Offset / sector, (k.Offset + fe.NumBytes) / sector})
			return true, nil
		}))
		if fmt.Sprint(have) != fmt.Sprint(list) {
			t.Errorf("have items %v want %v", have, list)
		}
	}
	e.ok(fill(4, 6))
	e.ok(fill(6, 7)) // after it
	e.ok(fill(2, 4)) // before it
	want([2]uint64{2, 7})
	e.ok(fill(9, 10))
	want([2]uint64{2, 7}, [2]uint64{9, 10})
	if err := fill(9, 10); !errors.Is(err, ErrNoGap) {
		t.Errorf("a hole in the place of one: %v", err)
	}
	fe := format.FileExtent{Type: format.FileExtentTypeReg, DiskBytenr: 1 << 40, DiskNumBytes: sector, RAMBytes: sector, NumBytes: sector}
	e.ok(e.s.InsertFileExtent(e.t, e.tr, e.fs, 257, 11*sector, &fe))
	e.ok(fill(12, 13)) // data is no hole
	want([2]uint64{2, 7}, [2]uint64{9, 10}, [2]uint64{11, 12}, [2]uint64{12, 13})
}
