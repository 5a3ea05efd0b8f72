// Package image reads the devices of a btrfs as what lies on them: superblocks, the chunk map, tree
// blocks copy by copy, and trees. The programs for images that nobody has mounted stand on it: a
// dump, a rescue, the wrecks of a lab. It knows the format and blockdev packages only, and nothing
// of the engine.
//
// The normal case: Open reads the superblock, makes the chunk map of it and of the chunk tree, and
// Roots reads where the other trees begin. Chunk.Places says where a logical address lies on the
// devices, Image.Block reads one copy of the block there, Image.Node the first one that is whole.
// Walk and Search go through a tree. A program that expects less of an image, as rescue does, takes
// the parts and leaves Open.
//
// The judge does not live here: progs/check has a reading of its own, and a test of this package
// holds the two against each other.
package image

import (
	"errors"
	"fmt"

	"btrlab/internal/blockdev"
	"btrlab/internal/format"
	"btrlab/internal/sched"
)

// Image is the devices of a file system.
//
// Not safe for concurrent use.
type Image struct {
	Task *sched.Task
	Devs []*Device
	// SB is the superblock that the image is read by.
	SB     format.Super
	Chunks Map
	// Items are the items of devices in the chunk tree, as Open has met them.
	Items []format.DevItem
}

// Device is a device of an image.
type Device struct {
	blockdev.Device
	ID   uint64
	UUID format.UUID
	// Known says that ID and UUID are those of a superblock or of a device item.
	Known bool
}

// Open reads the superblock of dev and the chunk tree. More are other devices of the file system;
// one that is missing is done without. A feature that this program does not know is no error: it
// need not keep anybody from looking.
func Open(t *sched.Task, dev blockdev.Device, more ...blockdev.Device) (*Image, error) {
	im := &Image{Task: t}
	primary, err := im.join(dev)
	if err != nil {
		return nil, err
	}
	im.SB = primary.Super
	for _, d := range more {
		if _, err := im.join(d); err != nil {
			return nil, err
		}
	}
	var unsupported *format.UnsupportedError
	if err := primary.Err; err != nil && !errors.As(err, &unsupported) {
		return nil, blockdev.Errorf(dev, "%w", err)
	}
	if n := im.SB.NodeSize; n < format.SectorSize || n > 64<<10 || n&(n-1) != 0 {
		return nil, blockdev.Errorf(dev, "bad nodesize, have %d", n)
	}
	for k, b := range im.SB.SysChunks() {
		if b == nil || format.ChunkStripes(b) == 0 {
			return nil, blockdev.Errorf(dev, "sys_chunk_array is cut short")
		}
		im.addChunk(k.Offset, b)
	}
	err = im.Each(im.ChunkTree(), func(k format.Key, b []byte) {
		switch k.Type {
		case format.CHUNK_ITEM_KEY:
			im.addChunk(k.Offset, b)
		case format.DEV_ITEM_KEY:
			var d format.DevItem
			d.Decode(b)
			im.Items = append(im.Items, d)
		}
	})
	if err != nil {
		return nil, blockdev.Errorf(dev, "chunk tree: %w", err)
	}
	return im, nil
}

// join takes a device into the list, and returns its superblock as far as it can be decoded.
func (im *Image) join(d blockdev.Device) (SuperCopy, error) {
	s := ReadSuper(im.Task, d, 0)
	if s.Raw == nil {
		return s, s.Unread()
	}
	if s.Super.Decode(s.Raw); len(im.Devs) > 0 {
		first := im.Devs[0]
		if s.Super.FSID != im.SB.FSID {
			return s, blockdev.Errorf(d, "device of another file system, have fsid %v want %v, that of %s", s.Super.FSID, im.SB.FSID, first.Name())
		}
		if old := im.Device(s.Super.DevItem.Devid); old != nil {
			return s, blockdev.Errorf(d, "is device %d of the file system, as %s is", s.Super.DevItem.Devid, old.Name())
		}
	}
	im.Devs = append(im.Devs, &Device{d, s.Super.DevItem.Devid, s.Super.DevItem.UUID, true})
	return s, nil
}

// Device is the device with the number; nil if it is not here.
func (im *Image) Device(id uint64) *Device {
	for _, d := range im.Devs {
		if d.Known && d.ID == id {
			return d
		}
	}
	return nil
}

// addChunk takes a chunk item into the map, in the place of one that begins at the same address.
func (im *Image) addChunk(logical uint64, b []byte) {
	var it format.Chunk
	it.Decode(b)
	im.Chunks.Replace(NewChunk(logical, &it, func(s format.Stripe) *Device { return im.Device(s.Devid) }))
}

// Ref is a pointer to a block of a tree.
type Ref struct {
	Tree               uint64
	Bytenr, Generation uint64
	Level              int
}

// RootTree is where the root tree begins.
func (im *Image) RootTree() Ref {
	return Ref{format.ROOT_TREE_OBJECTID, im.SB.Root, im.SB.Generation, int(im.SB.RootLevel)}
}

// ChunkTree is where the chunk tree begins.
func (im *Image) ChunkTree() Ref {
	return Ref{format.CHUNK_TREE_OBJECTID, im.SB.ChunkRoot, im.SB.ChunkRootGeneration, int(im.SB.ChunkRootLevel)}
}

// LogTree is where the tree of logs begins, if there is one. A log commit writes the superblock of
// the last commit, so the log is one generation newer.
func (im *Image) LogTree() Ref {
	return Ref{format.TREE_LOG_OBJECTID, im.SB.LogRoot, im.SB.Generation + 1, int(im.SB.LogRootLevel)}
}

// Root is an item of the root tree that says where a tree begins.
type Root struct {
	Key  format.Key
	Item format.RootItem
}

// Ref is where the tree begins.
func (r *Root) Ref() Ref {
	return Ref{r.Key.Objectid, r.Item.Bytenr, r.Item.Generation, int(r.Item.Level)}
}

// Roots reads the items of trees in the root tree, in key order: as many as can be read, and the
// first error.
func (im *Image) Roots() (list []Root, err error) {
	err = im.Each(im.RootTree(), func(k format.Key, b []byte) {
		if k.Type == format.ROOT_ITEM_KEY {
			r := Root{Key: k}
			r.Item.Decode(b)
			list = append(list, r)
		}
	})
	return list, err
}

// Read reads p at a logical address, from the first copy of each part on a device that can be read.
func (im *Image) Read(logical uint64, p []byte) error {
	return im.Pieces(logical, p, func(_ *Chunk, places []Stripe, p []byte) error {
		err := ErrMissing
		for _, at := range places {
			if err = at.Read(im.Task, p); err == nil {
				break
			}
		}
		return err
	})
}

// Pieces calls f with the places of each part of p, the bytes at a logical address.
func (im *Image) Pieces(logical uint64, p []byte, f func(c *Chunk, places []Stripe, p []byte) error) error {
	for len(p) > 0 {
		c := im.Chunks.At(logical)
		if c == nil || !c.Sound() {
			return fmt.Errorf("logical %d is in no chunk", logical)
		}
		places, run := c.Places(logical)
		n := min(run, uint64(len(p)))
		if err := f(c, places, p[:n]); err != nil {
			return err
		}
		p, logical = p[n:], logical+n
	}
	return nil
}
