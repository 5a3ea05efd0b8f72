package repair

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"btrlab/internal/blockdev"
	"btrlab/internal/format"
	"btrlab/internal/progs/check"
	"btrlab/internal/progs/image"
)

// The checksum tree, made anew when it cannot be read whole. What its readable leaves say is kept,
// so that data that is bad stays bad; all other data of files with checksums gets those of the
// bytes that are on the disk.

// sumsMax bounds the memory for checksums, in bytes: 4 for each 4 KiB of data, in the usual type.
const sumsMax = 1 << 30

// dataStep is how much data is read at a time, in bytes.
const dataStep = 1 << 20

// keptSums is an item of the old tree.
type keptSums struct {
	start uint64
	sums  []byte
}

// leafOf notes the data of files with checksums in a leaf of a subvolume.
func (s *survey) leafOf(flags map[uint64]uint64) func(n format.Node, fresh bool) {
	return func(n format.Node, fresh bool) {
		for i := range n.Nritems() {
			switch k := n.Key(i); k.Type {
			case format.INODE_ITEM_KEY:
				var it format.InodeItem
				it.Decode(n.Item(i))
				clear(flags) // the items of an inode are together
				flags[k.Objectid] = it.Flags
			case format.EXTENT_DATA_KEY:
				var fe format.FileExtent
				fe.Decode(n.Item(i))
				if !fresh || fe.Type != format.FileExtentTypeReg || fe.DiskBytenr == 0 || flags[k.Objectid]&format.InodeNoDataSum != 0 {
					continue
				}
				r := check.Span{Start: fe.DiskBytenr + fe.Offset, End: fe.DiskBytenr + fe.Offset + fe.NumBytes}
				if fe.Compression != format.CompressNone {
					r = check.Span{Start: fe.DiskBytenr, End: fe.DiskBytenr + fe.DiskNumBytes}
				}
				s.data = append(s.data, r)
			}
		}
	}
}

// oldSums reads what is left of the checksum tree, ascending.
func (c *changes) oldSums() (list []keptSums) {
	c.Walker().Tree(format.CSUM_TREE_OBJECTID, c.Roots[format.CSUM_TREE_OBJECTID].Item, format.Key{}, func(n format.Node, _ bool) {
		for i := range n.Nritems() {
			if k := n.Key(i); k.Type == format.EXTENT_CSUM_KEY {
				list = append(list, keptSums{k.Offset, slices.Clone(n.Item(i))})
			}
		}
	}, nil)
	return list
}

// sumItems are the items of a new checksum tree.
func (c *changes) sumItems(s *survey) (items []image.Item, err error) {
	sector, size := uint64(c.Super.SectorSize), uint64(c.Super.CsumType.Size())
	old := c.oldSums()
	kept := func(at uint64) []byte {
		i, found := slices.BinarySearchFunc(old, at, func(k keptSums, at uint64) int { return cmp.Compare(k.start, at) })
		if !found {
			i--
		}
		if i < 0 || (at-old[i].start)/sector*size >= uint64(len(old[i].sums)) {
			return nil
		}
		return old[i].sums[(at-old[i].start)/sector*size:][:size]
	}
	// BTRFS_MAX_CSUM_ITEMS() of the kernel.
	most := (uint64(format.LeafDataSize(int(c.Super.NodeSize)))-2*format.ItemHeaderSize)/size - 1
	var total uint64
	buf := make([]byte, dataStep)
	for _, r := range check.Merged(s.data) {
		var sums []byte
		start := r.Start
		end := func() {
			if len(sums) > 0 {
				items = append(items, newItem(format.Key{Objectid: format.EXTENT_CSUM_OBJECTID, Type: format.EXTENT_CSUM_KEY, Offset: start}, sums))
			}
			sums = nil
		}
		for at := r.Start; at < r.End; {
			ch := c.ChunkAt(at)
			if ch == nil || at%sector != 0 {
				return nil, fmt.Errorf("data at %d is in no chunk", at)
			}
			places, run := ch.Places(at)
			p := buf[:min(run, r.End-at, dataStep)]
			known := true // none is to be read then
			for in := uint64(0); in < uint64(len(p)) && known; in += sector {
				known = kept(at+in) != nil
			}
			if !known && c.Super.Metadump() {
				return nil, errors.New("the image has no file data to make checksums of")
			}
			if !known && !c.readAny(places, p) {
				end() // data.read and csum.missing say it
				at += uint64(len(p))
				start = at
				continue
			}
			for in := uint64(0); in+sector <= uint64(len(p)); in += sector {
				if uint64(len(sums)) == most*size {
					end()
					start = at + in
				}
				if k := kept(at + in); k != nil {
					sums = append(sums, k...)
				} else {
					sums = c.Super.CsumType.Append(sums, p[in:in+sector])
				}
			}
			if total += uint64(len(p)) / sector * size; total > sumsMax {
				return nil, errors.New("more data than there is memory for its checksums")
			}
			at += uint64(len(p))
		}
		end()
	}
	return items, nil
}

// readAny fills p from the first of the places that can be read.
func (c *changes) readAny(places []check.Stripe, p []byte) bool {
	for _, place := range places {
		if place.Dev != nil && blockdev.Read(c.Task, place.Dev, p, int64(place.Off)) == nil {
			return true
		}
	}
	return false
}
