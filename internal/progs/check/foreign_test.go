package check

import (
	"strings"
	"testing"

	"btrlab/internal/format"
)

// Images that btrlab itself does not make, made here from the sample.

// TestMetadump: btrfs-image -r restores the metadata of an image, but neither its file data nor every superblock copy.
func TestMetadump(t *testing.T) {
	for _, flag := range []uint64{format.SuperFlagMetadump, format.SuperFlagMetadumpV2} {
		m := newImage(t)
		wipe := func() {
			m.write(m.copies(m.data0())[0], make([]byte, 4*blk))
			m.write(format.SuperMirror(1), make([]byte, format.SuperSize))
		}
		wipe()
		if r := m.check(); r.rules() != "[data.csum super.copy]" {
			t.Fatalf("without the flag, have %s want data.csum and super.copy\n%s", r.rules(), r.text())
		}
		m.sb.Flags |= flag
		m.super()
		wipe()
		r := m.check()
		if !r.Clean || r.Stats.DataBytes != 0 {
			t.Errorf("flag %#x, have %d bytes verified and:\n%s", flag, r.Stats.DataBytes, r.text())
		}
		for _, want := range []string{"without file data", "no superblock copy at 67108864"} {
			if !strings.Contains(r.text(), want) {
				t.Errorf("flag %#x, no note about %q in:\n%s", flag, want, r.text())
			}
		}
		// The flag excuses what is absent, not what is wrong.
		m.write(format.SuperMirror(1)+format.SuperSize-100, []byte("x"))
		m.write(format.SuperMirror(1), m.read(format.SuperOffset, 200))
		if r := m.check(); r.rules() != "[super.copy]" {
			t.Errorf("flag %#x, with half a copy, have:\n%s", flag, r.text())
		}
	}
}
