package rescue

import (
	"cmp"
	"fmt"

	"btrlab/internal/compress"
	"btrlab/internal/format"
	"btrlab/internal/progs/image"
)

// Loss is a part of a file that is not as it was.
type Loss struct {
	Off, Len uint64 // bytes in the file
	Why      string
}

func (l Loss) String() string { return fmt.Sprintf("%d bytes at %d: %s", l.Len, l.Off, l.Why) }

// reader reads the data of one file.
type reader struct {
	im   *Image
	tr   *tree
	ino  uint64
	item *format.InodeItem // nil: lost
	size uint64
	out  func(off uint64, p []byte) error
	loss []Loss
	// plain says that some of the data has no checksum to compare it with.
	plain  bool
	nbytes uint64
	buf    []byte
	copy   []byte // of a piece, as one place has it
}

// dataStep is how much data is read at once, in bytes.
const dataStep = 1 << 20

// lossesMax bounds what is kept of one file.
const lossesMax = 1000

func (r *reader) lose(off, n uint64, why string) {
	if off >= r.size {
		return
	}
	n = min(n, r.size-off)
	if k := len(r.loss); k > 0 && r.loss[k-1].Why == why && r.loss[k-1].Off+r.loss[k-1].Len == off {
		r.loss[k-1].Len += n
	} else if k < lossesMax {
		r.loss = append(r.loss, Loss{off, n, why})
	}
}

// emit hands out bytes of the file, as far as its size goes.
func (r *reader) emit(off uint64, p []byte) error {
	if off >= r.size {
		return nil
	}
	return r.out(off, p[:min(uint64(len(p)), r.size-off)])
}

// read hands out the data in ascending order, without its holes. What is wrong is in r.loss; the
// error is of out.
func (r *reader) read() error {
	end := uint64(0)
	err := r.tr.each(format.Key{Objectid: r.ino, Type: format.EXTENT_DATA_KEY}, func(k format.Key, b []byte, l *leaf) error {
		if k.Objectid != r.ino || k.Type != format.EXTENT_DATA_KEY {
			return errEnd
		}
		if err := r.im.stop(); err != nil {
			return err
		}
		if len(b) < format.FileExtentInline || b[20] != format.FileExtentTypeInline && len(b) < format.FileExtentSize {
			r.lose(k.Offset, 0, "a file extent item of the wrong size")
			return nil
		}
		var fe format.FileExtent
		fe.Decode(b)
		if l.suspect {
			r.lose(k.Offset, fe.NumBytes, "its tree block has a wrong checksum")
		}
		if k.Offset < end { // of an older leaf
			return nil
		}
		n, err := r.extent(k.Offset, &fe)
		end = k.Offset + n
		return err
	})
	if err != nil {
		return err
	}
	lo, hi := format.Key{Objectid: r.ino, Type: format.EXTENT_DATA_KEY}, format.Key{Objectid: r.ino, Type: format.EXTENT_DATA_KEY, Offset: ^uint64(0)}
	if r.item == nil || r.item.Mode&format.S_IFMT != format.S_IFREG {
		return nil
	}
	if r.nbytes < r.item.Nbytes {
		r.lose(0, r.item.Nbytes-r.nbytes, "no file extent is left of them")
	} else if r.nbytes > r.item.Nbytes && r.tr.misses(lo, hi) {
		r.lose(0, r.nbytes-r.item.Nbytes, "more bytes than the inode has, of an older state")
	}
	return nil
}

// extent hands out one file extent and returns its length in the file.
func (r *reader) extent(off uint64, fe *format.FileExtent) (n uint64, err error) {
	sector := uint64(r.im.SB.SectorSize)
	if fe.Type == format.FileExtentTypeInline {
		r.nbytes += fe.RAMBytes
		p := fe.Inline
		if fe.Compression != format.CompressNone {
			p = make([]byte, min(fe.RAMBytes, compress.MaxLen))
			if derr := compress.Decode(fe.Compression, p, fe.Inline); derr != nil {
				r.lose(off, fe.RAMBytes, derr.Error())
				return fe.RAMBytes, nil
			}
		}
		return format.AlignUp(uint64(len(p)), sector), r.emit(off, p)
	}
	n = fe.NumBytes
	if fe.DiskBytenr == 0 {
		return n, nil
	}
	r.nbytes += n
	if fe.Type != format.FileExtentTypeReg {
		return n, nil
	}
	if fe.Compression != format.CompressNone {
		return n, r.compressed(off, fe)
	}
	if ch := r.im.Chunks.At(fe.DiskBytenr); ch == nil || fe.Offset+n > fe.DiskNumBytes || fe.Offset+n < n || fe.DiskBytenr-ch.Start+fe.DiskNumBytes > ch.Length {
		why := "its chunk is lost"
		if ch != nil {
			why = "a file extent with impossible lengths"
		}
		r.lose(off, n, why)
		return n, nil
	}
	for at := uint64(0); at < n && off+at < r.size; {
		step := min(n-at, dataStep)
		p := r.space(step)
		r.fetch(p, fe.DiskBytenr+fe.Offset+at, func(in, length uint64, why string) { r.lose(off+at+in, length, why) })
		if err := r.emit(off+at, p); err != nil {
			return n, err
		}
		at += step
	}
	return n, nil
}

func (r *reader) space(n uint64) []byte { return grown(&r.buf, n) }

// grown is n bytes of buf, which is made anew if it has fewer.
func grown(buf *[]byte, n uint64) []byte {
	if uint64(len(*buf)) < n {
		*buf = make([]byte, n)
	}
	return (*buf)[:n]
}

func (r *reader) compressed(off uint64, fe *format.FileExtent) error {
	if fe.DiskNumBytes > compress.MaxLen || fe.RAMBytes > compress.MaxLen || fe.Offset > fe.RAMBytes || fe.NumBytes > fe.RAMBytes-fe.Offset {
		r.lose(off, fe.NumBytes, "a compressed extent with impossible lengths")
		return nil
	}
	p := r.space(fe.DiskNumBytes)
	bad := ""
	r.fetch(p, fe.DiskBytenr, func(_, _ uint64, why string) { bad = why })
	q := make([]byte, fe.RAMBytes)
	if err := compress.Decode(fe.Compression, q, p); err != nil {
		r.lose(off, fe.NumBytes, cmp.Or(bad, err.Error()))
		return nil
	}
	if bad != "" {
		r.lose(off, fe.NumBytes, bad)
	}
	return r.emit(off, q[fe.Offset:fe.Offset+fe.NumBytes])
}

// fetch fills p with the data at logical: of each sector the first copy whose checksum is right, or
// the first that can be read, which lose is told of; zeros, if there is none. Parity counts as a
// copy.
func (r *reader) fetch(p []byte, logical uint64, lose func(in, length uint64, why string)) {
	im := r.im
	sums := r.sums(logical, uint64(len(p)))
	for in := uint64(0); in < uint64(len(p)); {
		ch := im.Chunks.At(logical + in)
		if ch == nil {
			clear(p[in:])
			lose(in, uint64(len(p))-in, "its chunk is lost")
			return
		}
		places, run := ch.Places(logical + in)
		n := min(run, uint64(len(p))-in)
		r.piece(p[in:in+n], ch, logical+in, places, func(i uint64) []byte { return sums(in + i) }, func(i, n uint64, why string) { lose(in+i, n, why) })
		in += n
	}
}

// piece is fetch of what lies in one place of each copy.
func (r *reader) piece(p []byte, ch *image.Chunk, logical uint64, places []image.Stripe, sum func(in uint64) []byte, lose func(in, length uint64, why string)) {
	im := r.im
	sector := uint64(im.SB.SectorSize)
	good := make([]bool, (uint64(len(p))+sector-1)/sector)
	left, some := len(good), make([]bool, len(good))
	for _, place := range places {
		q := grown(&r.copy, uint64(len(p)))
		whole := place.Read(im.Task, q) == nil
		for i := range good {
			if good[i] {
				continue
			}
			at := uint64(i) * sector
			s := q[at:min(at+sector, uint64(len(q)))]
			if part := (image.Stripe{Dev: place.Dev, Off: place.Off + at}); !whole && part.Read(im.Task, s) != nil {
				continue
			}
			want := sum(at)
			ok := want == nil || uint64(len(s)) == sector && im.SB.CsumType.Match(want, s)
			if ok || !some[i] {
				copy(p[at:], s)
				some[i] = true
			}
			if ok {
				good[i] = true
				left--
			}
		}
		if left == 0 {
			return
		}
	}
	for i := range good {
		at := uint64(i) * sector
		n := min(sector, uint64(len(p))-at)
		for k := 0; k < ch.Rebuilds() && !good[i]; k++ {
			s := make([]byte, n)
			want := sum(at)
			if want == nil && some[i] || !ch.Rebuild(im.Task, s, logical+at, k) {
				continue
			}
			if good[i] = want == nil || n == sector && im.SB.CsumType.Match(want, s); good[i] || !some[i] {
				copy(p[at:], s)
				some[i] = true
			}
		}
		switch {
		case !some[i]:
			clear(p[at : at+n])
			lose(at, n, "cannot be read: zeros")
		case !good[i]:
			lose(at, n, "wrong checksum: the bytes are those of the disk")
		}
	}
}

// sums is the checksums of the data at logical, by the offset in it; nil for none.
func (r *reader) sums(logical, length uint64) func(in uint64) []byte {
	im := r.im
	if r.item != nil && r.item.Flags&format.InodeNoDataSum != 0 {
		r.plain = true
		return func(uint64) []byte { return nil }
	}
	sector, size := uint64(im.SB.SectorSize), uint64(im.SB.CsumType.Size())
	all := make([]byte, length/sector*size)
	have := make([]bool, length/sector)
	from := format.Key{Objectid: format.EXTENT_CSUM_OBJECTID, Type: format.EXTENT_CSUM_KEY, Offset: logical}
	if at, ok := im.csums.floor(from); ok && at.Objectid == from.Objectid && at.Type == from.Type {
		from = at
	}
	_ = im.csums.each(from, func(k format.Key, b []byte, _ *leaf) error {
		if k.Objectid != format.EXTENT_CSUM_OBJECTID || k.Type != format.EXTENT_CSUM_KEY || k.Offset >= logical+length {
			return errEnd
		}
		for i := uint64(0); (i+1)*size <= uint64(len(b)); i++ {
			at := k.Offset + i*sector
			if at < logical || at >= logical+length {
				continue
			}
			copy(all[(at-logical)/sector*size:], b[i*size:(i+1)*size])
			have[(at-logical)/sector] = true
		}
		return nil
	})
	for _, ok := range have {
		if !ok {
			r.plain = true
		}
	}
	return func(in uint64) []byte {
		i := in / sector
		if i >= uint64(len(have)) || !have[i] {
			return nil
		}
		return all[i*size : (i+1)*size]
	}
}
