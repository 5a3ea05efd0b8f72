package image_test

import (
	"errors"
	"slices"
	"testing"

	"btrlab/internal/blockdev"
	"btrlab/internal/blockdev/dm"
	"btrlab/internal/errno"
	"btrlab/internal/format"
	"btrlab/internal/progs/image"
	"btrlab/internal/progs/mkfs"
)

// TestMap: chunks are found by the addresses in them, whatever the order in which they came; one
// that overlaps another is refused, or takes the place of one with the same start.
func TestMap(t *testing.T) {
	var m image.Map
	for _, start := range []uint64{40, 10, 30} {
		if !m.Insert(image.Chunk{Start: start, Length: 10}) {
			t.Errorf("the chunk at %d is refused", start)
		}
	}
	for _, c := range []image.Chunk{{Start: 25, Length: 6}, {Start: 19, Length: 2}, {Start: 30, Length: 10}, {Start: 49, Length: 1}, {Start: 5, Length: 100}} {
		if m.Insert(c) {
			t.Errorf("the chunk at %d of %d is taken", c.Start, c.Length)
		}
	}
	m.Replace(image.Chunk{Start: 30, Length: 8, Type: 1})
	m.Replace(image.Chunk{Start: 20, Length: 5})
	var starts []uint64
	for at := range uint64(60) {
		if c := m.At(at); c != nil {
			if at < c.Start || at >= c.End() {
				t.Errorf("%d is in %d..%d", at, c.Start, c.End())
			}
			starts = append(starts, c.Start)
		}
	}
	want := slices.Concat(slices.Repeat([]uint64{10}, 10), slices.Repeat([]uint64{20}, 5), slices.Repeat([]uint64{30}, 8), slices.Repeat([]uint64{40}, 10))
	if !slices.Equal(starts, want) {
		t.Errorf("have %v want %v", starts, want)
	}
}

// TestOverSuper: a place whose copy reaches one of the superblocks, or its unit, is no place for a
// block.
func TestOverSuper(t *testing.T) {
	single := format.ProfileOf(0)
	at := format.SuperMirror(1) // 64 MiB
	c := image.Chunk{Start: 1 << 40, Length: 1 << 30, Profile: single, Stripes: []image.Stripe{{Off: at - 1<<20}}}
	over := c.Start + 1<<20
	for logical, want := range map[uint64]bool{over - 4096: false, over - 4095: true, over: true, over + format.StripeLen - 1: true, over + format.StripeLen: false} {
		if have := c.OverSuper(logical, 4096); have != want {
			t.Errorf("%d bytes from the superblock: have %v want %v", int64(logical-over), have, want)
		}
	}
}

// TestSupers: each superblock that has room is read, and says why it is bad, or that it cannot be
// read.
func TestSupers(t *testing.T) {
	base := blockdev.NewMemory(128 << 20)
	if err := mkfs.Make(task, base, mkfs.Options{}); err != nil {
		t.Fatal(err)
	}
	list := image.Supers(task, base)
	if len(list) != 2 || list[0].Err != nil || list[1].Err != nil || list[0].Generation == 0 || list[1].Bytenr != format.SuperMirror(1) || list[1].Copy != 1 {
		t.Fatalf("%+v", list)
	}
	if s := image.ReadSuper(task, base, 2); s.Raw != nil || s.Err == nil || s.Unread() == nil {
		t.Errorf("a superblock beyond the end of the device: %+v", s)
	}
	rotten := base.Snapshot()
	if err := blockdev.Write(task, rotten, []byte("rot"), format.SuperOffset+100); err != nil {
		t.Fatal(err)
	}
	if s := image.ReadSuper(task, rotten, 0); s.Raw == nil || s.Err == nil {
		t.Errorf("a superblock with a wrong checksum: %v", s.Err)
	}
	if _, err := image.Open(task, rotten); err == nil {
		t.Error("an image is opened by it")
	}
	unreadable := dm.NewFlakey(base, dm.Fault{Op: blockdev.OpRead, Start: format.SuperOffset, End: format.SuperOffset + 1})
	if s := image.ReadSuper(task, unreadable, 0); s.Raw != nil || !errors.Is(s.Unread(), errno.EIO) {
		t.Errorf("a superblock that cannot be read: %v", s.Unread())
	}
	var none image.Stripe
	if err := none.Read(task, make([]byte, 1)); !errors.Is(err, image.ErrMissing) {
		t.Errorf("a device that is not here: %v", err)
	}
}
