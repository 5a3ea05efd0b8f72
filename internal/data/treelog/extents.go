package treelog

import (
	"bytes"
	"fmt"

	"btrlab/internal/format"
	"btrlab/internal/meta/fstree"
)

// extent replays a file extent: what is there gives way, the item is inserted, its data extent gets
// a reference and its checksums. Models replay_one_extent().
func (r *replayer) extent(l *log, ino format.Ino, start uint64, item []byte) error {
	key := format.Key{Objectid: uint64(ino), Type: format.EXTENT_DATA_KEY, Offset: start}
	old, err := r.item(l.root, key)
	if err != nil || old != nil && bytes.Equal(old, item) {
		return err
	}
	var fe format.FileExtent
	fe.Decode(item)
	size, counts := fe.NumBytes, fe.NumBytes
	if fe.Type == format.FileExtentTypeInline {
		size, counts = format.AlignUp(fe.RAMBytes, r.Store.SectorSize), fe.RAMBytes
	} else if fe.DiskBytenr == 0 {
		counts = 0
	}
	if err := r.dropExtents(l, ino, start, start+size, counts); err != nil {
		return err
	}
	hole := fe.Type != format.FileExtentTypeInline && fe.DiskBytenr == 0
	if hole && !r.Store.Holes {
		return nil
	}
	if err := r.Store.Forest.InsertItem(r.t, r.tr, l.root, key, item); err != nil {
		return err
	}
	if hole || fe.Type == format.FileExtentTypeInline {
		return nil
	}
	ref := format.DataRef{Root: l.subvol, Ino: ino, Offset: format.FileOff(start - fe.Offset)}
	if err := r.Extents.AddLoggedExtent(r.t, r.tr, ref, format.Logical(fe.DiskBytenr), fe.DiskNumBytes); err != nil {
		return err
	}
	at, length := fe.DiskBytenr+fe.Offset, fe.NumBytes
	if fe.Compression != format.CompressNone {
		at, length = fe.DiskBytenr, fe.DiskNumBytes
	}
	return r.sums(l, at, length)
}

// dropExtents empties a range of a file, into which adds bytes come next that count in nbytes.
func (r *replayer) dropExtents(l *log, ino format.Ino, start, end, adds uint64) error {
	res, err := r.Store.DropExtents(r.t, r.tr, l.root, ino, start, end, fstree.DropOptions{})
	if err != nil || res.BytesFound == adds {
		return err
	}
	return r.change(l, ino, func(it *format.InodeItem) { it.Nbytes += adds - res.BytesFound })
}

// sums copies the checksums of a range from the log. Older ones of the range go first: an item that
// covers a part of it with older bounds must not stay beside the new one.
func (r *replayer) sums(l *log, at, length uint64) error {
	n, size := length/r.Store.SectorSize, uint64(r.Store.CsumType().Size())
	sums, have := make([]byte, size*n), make([]bool, n)
	if err := l.csums.LookupCsums(r.t, at, length, sums, have); err != nil {
		return fmt.Errorf("read checksums of the log: %w", err)
	}
	for i := uint64(0); i < n; {
		j := i
		for j < n && have[j] {
			j++
		}
		if j == i {
			i++
			continue
		}
		from := at + i*r.Store.SectorSize
		if err := r.Store.DelCsums(r.t, r.tr, from, (j-i)*r.Store.SectorSize); err != nil {
			return err
		}
		if err := r.Store.InsertCsums(r.t, r.tr, from, sums[i*size:j*size]); err != nil {
			return err
		}
		i = j
	}
	return nil
}
