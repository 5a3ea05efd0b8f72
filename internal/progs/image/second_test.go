package image_test

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"btrlab/internal/blockdev"
	"btrlab/internal/format"
	"btrlab/internal/progs/check"
	"btrlab/internal/progs/image"
	"btrlab/internal/sched"
)

// TestSecondOpinion holds the reader of this room and that of the judge against each other, which
// share no line: they meet the same tree blocks, and each copy of a block and of a sector of data
// lies where the judge finds it when it is wrong.
func TestSecondOpinion(t *testing.T) {
	for name, devs := range whole(t) {
		t.Run(name, func(t *testing.T) {
			before := judged(t, devs)
			if len(before.Findings) > 0 {
				t.Fatal(before.Findings)
			}
			im := open(t, devs)
			all := blocks(t, im)
			if have, want := uint64(len(all)), before.Stats.TreeBlocks; have != want || have == 0 {
				t.Errorf("%d tree blocks, the judge has %d", have, want)
			}
			sums := sectors(t, im)
			if have, want := uint64(len(sums))*uint64(im.SB.SectorSize), before.Stats.DataBytes; have != want && im.SB.LogRoot == 0 {
				t.Errorf("%d bytes with checksums, the judge has verified %d", have, want)
			}
			for _, r := range some(all) {
				c := im.Chunks.At(r.Bytenr)
				places, _ := c.Places(r.Bytenr)
				for m, at := range places {
					hit(t, devs, at, fmt.Sprintf("tree.csum: root=%d block=%d mirror=%d %s", int64(r.Tree), r.Bytenr, m, where(devs, at)))
				}
			}
			for _, logical := range some(sums) {
				places, _ := im.Chunks.At(logical).Places(logical)
				for m, at := range places {
					hit(t, devs, at, fmt.Sprintf("data.csum: logical=%d length=%d mirror=%d %s", logical, im.SB.SectorSize, m, where(devs, at)))
				}
			}
			rebuilt(t, im, sums)
		})
	}
}

func judged(t *testing.T, devs []blockdev.Device) check.Result {
	t.Helper()
	r, err := check.Check(sched.NewTask("judge"), devs[0], check.Options{Devices: devs[1:]})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// blocks are the pointers to the blocks of all trees, each once.
func blocks(t *testing.T, im *image.Image) (list []image.Ref) {
	t.Helper()
	seen := map[uint64]bool{}
	for _, root := range roots(t, im) {
		next := format.Key{} // after the keys of the leaves so far
		err := image.Walk(root, image.Whole, func(r image.Ref, keys image.Span) (format.Node, error) {
			n, err := im.Checked(r)
			if err != nil {
				return nil, err
			}
			if !seen[r.Bytenr] {
				list = append(list, r)
			}
			seen[r.Bytenr] = true
			if n.Generation() != r.Generation {
				t.Errorf("root=%d block=%d has generation %d, its pointer %d", int64(r.Tree), r.Bytenr, n.Generation(), r.Generation)
			}
			if nr := n.Nritems(); nr > 0 && (n.Key(0).Less(keys.Lo) || keys.Hi.Less(n.Key(nr-1))) {
				t.Errorf("root=%d block=%d has keys %v to %v, its pointer leaves %v", int64(r.Tree), r.Bytenr, n.Key(0), n.Key(nr-1), keys)
			}
			if r.Level == 0 {
				if keys.Lo != next {
					t.Errorf("root=%d block=%d: the leaves have no keys from %v to %v", int64(r.Tree), r.Bytenr, next, keys.Lo)
				}
				next = keys.Hi.Next()
			}
			return n, nil
		})
		if err != nil {
			t.Fatal(err)
		}
		if next != (format.Key{}) {
			t.Errorf("root=%d: the leaves have no keys from %v on", int64(root.Tree), next)
		}
	}
	return list
}

// sectors are the addresses of all sectors of data with a checksum.
func sectors(t *testing.T, im *image.Image) (list []uint64) {
	t.Helper()
	items, err := im.Roots()
	if err != nil {
		t.Fatal(err)
	}
	for i := range items {
		if items[i].Key.Objectid != format.CSUM_TREE_OBJECTID {
			continue
		}
		err = im.Each(items[i].Ref(), func(k format.Key, b []byte) {
			for at := range len(b) / im.SB.CsumType.Size() {
				list = append(list, k.Offset+uint64(at)*uint64(im.SB.SectorSize))
			}
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return list
}

// some are the first, one in the middle and the last.
func some[T any](list []T) []T {
	if len(list) < 3 {
		return list
	}
	return []T{list[0], list[len(list)/2], list[len(list)-1]}
}

// where names a place as the judge does.
func where(devs []blockdev.Device, at image.Stripe) string {
	if len(devs) == 1 {
		return fmt.Sprintf("device_offset=%d", at.Off)
	}
	return fmt.Sprintf("devid=%d device_offset=%d", at.Devid, at.Off)
}

// hit makes a byte at a place wrong: the judge must find it there.
func hit(t *testing.T, devs []blockdev.Device, at image.Stripe, finding string) {
	t.Helper()
	at.Off += 200
	flip(t, at)
	r := judged(t, devs)
	flip(t, at)
	for _, f := range r.Findings {
		if s := f.String(); s == finding || strings.HasPrefix(s, finding+",") || strings.HasPrefix(s, finding+" ") {
			return
		}
	}
	t.Errorf("want %s\nhave %v", finding, r.Findings)
}

func flip(t *testing.T, at image.Stripe) {
	t.Helper()
	p := make([]byte, 1)
	if err := at.Read(task, p); err != nil {
		t.Fatal(err)
	}
	p[0] ^= 0x40
	if err := blockdev.Write(task, at.Dev, p, int64(at.Off)); err != nil {
		t.Fatal(err)
	}
}

// rebuilt makes each sector of a chunk with parity from the other units of its row.
func rebuilt(t *testing.T, im *image.Image, sums []uint64) {
	t.Helper()
	have, want := make([]byte, im.SB.SectorSize), make([]byte, im.SB.SectorSize)
	for _, logical := range sums {
		c := im.Chunks.At(logical)
		places, _ := c.Places(logical)
		if err := places[0].Read(task, want); err != nil {
			t.Fatal(err)
		}
		for way := range c.Rebuilds() {
			if !c.Rebuild(task, have, logical, way) {
				t.Fatalf("%d cannot be made in way %d", logical, way)
			}
			if !bytes.Equal(have, want) {
				t.Fatalf("%d is another sector in way %d", logical, way)
			}
		}
	}
}
