package check

import (
	"encoding/json"
	"testing"

	"btrlab/internal/format"
)

// TestFindingText: a finding is shown as before it had fields, and JSON has both.
func TestFindingText(t *testing.T) {
	leaf := on(AtTree, ^uint64(0)-5).with(AtBlock, 30457856).with(AtSlot, 3)
	for _, c := range []struct {
		f          Finding
		text, json string // of json what follows the texts
	}{
		{Finding{Rule: "inode.nlink", Place: PlaceOf(5, 257), Have: num(3), Want: num(2), Means: "m"},
			"inode.nlink: root=5 ino=257, have 3 want 2",
			`"place":{"ino":257,"root":5},"have_value":3,"want_value":2}`},
		{Finding{Rule: "tree.block", Place: leaf.with(apart|AtIno, 257).with(AtFileOffset, 4096), What: "bad encryption", Have: Words("1"), Want: Words("0")},
			"tree.block: root=-6 block=30457856 slot=3, ino=257 file_offset=4096, bad encryption, have 1 want 0",
			`"place":{"block":30457856,"file_offset":4096,"ino":257,"root":-6,"slot":3}}`},
		{Finding{Rule: "file.extent", Flaw: NoChunk, Place: PlaceOf(5, 257).with(AtFileOffset, 0), Have: words("data at %d, in no chunk", 7)},
			"file.extent: root=5 ino=257 file_offset=0, have data at 7, in no chunk",
			`"flaw":"no chunk","place":{"file_offset":0,"ino":257,"root":5}}`},
		{Finding{Rule: "dir.name", Place: on(AtTree, 5).with(AtDir, 256).named("a \"b\"").with(AtSubvolume, 300), Have: hex(255), Want: format.Key{Objectid: ^uint64(0), Type: 1, Offset: 2}},
			`dir.name: root=5 dir=256 name="a \"b\"" subvolume=300, have 0xff want (-1 1 2)`,
			`"place":{"dir":256,"name":"a \"b\"","root":5,"subvolume":300},"have_value":255,"want_value":{"objectid":-1,"offset":2,"type":1}}`},
		{Finding{Rule: "quota.count", Place: on(AtQgroup, 1<<qgroupLevelShift|100), Have: Counts{1, 2}, Want: Counts{3, 4}},
			"quota.count: qgroup=1/100, have rfer 1 excl 2 want rfer 3 excl 4",
			`"place":{"qgroup":"1/100"},"have_value":{"rfer":1,"excl":2},"want_value":{"rfer":3,"excl":4}}`},
		{Finding{Rule: "log.space", Place: on(AtLog, 5).with(AtBlock, 1), Have: Words("a block")},
			"log.space: log of root=5 block=1, have a block", `"place":{"block":1,"log_of_root":5}}`},
		{Finding{Rule: "data.parity", Place: on(AtLogical, 9).with(AtRow, 1).with(AtParity, 'Q').joined(on(AtDevid, 2).with(AtDeviceOffset, 4)), Have: Words("x")},
			"data.parity: logical=9 row=1 Q devid=2 device_offset=4, have x",
			`"place":{"device_offset":4,"devid":2,"logical":9,"parity":"Q","row":1}}`},
		{Finding{Rule: "super.bad", Place: Place{}.ofDevice("a b.img"), Have: Words("x")},
			"super.bad: device=a b.img, have x", `"place":{"device":"a b.img"}}`},
		{Finding{Rule: "super.sys_array", Place: on(AtSysArray, 0).with(AtLogical, 4), Have: Words("x")},
			"super.sys_array: sys_chunk_array logical=4, have x", `"place":{"logical":4,"sys_chunk_array":true}}`},
	} {
		if have := c.f.String(); have != c.text {
			t.Errorf("have %s\nwant %s", have, c.text)
		}
		b, err := json.Marshal(c.f)
		if err != nil {
			t.Fatal(err)
		}
		texts, _ := json.Marshal(map[string]string{"rule": c.f.Rule, "where": c.f.Where(), "have": text(c.f.Have), "want": text(c.f.Want), "means": c.f.Means})
		var have, want map[string]any
		if err := json.Unmarshal(b, &have); err != nil {
			t.Fatal(err)
		}
		rest := string(texts[:len(texts)-1]) + "," + c.json
		if err := json.Unmarshal([]byte(rest), &want); err != nil {
			t.Fatal(err, rest)
		}
		h, _ := json.Marshal(have)
		w, _ := json.Marshal(want)
		if string(h) != string(w) {
			t.Errorf("have %s\nwant %s", h, w)
		}
	}
	if PlaceOf(5, 257) != on(AtTree, 5).with(AtIno, 257) || PlaceOf(5, 257) == PlaceOf(5, 258) {
		t.Error("places do not compare by their coordinates")
	}
	if v, ok := leaf.Get(AtIno); ok || v != 0 || leaf.Num(AtSlot) != 3 {
		t.Errorf("ino %d %v, slot %d", v, ok, leaf.Num(AtSlot))
	}
}
