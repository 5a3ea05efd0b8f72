package transfer

import (
	"bytes"
	"errors"
	"io"

	"btrlab/internal/format"
	"btrlab/internal/fs"
	"btrlab/internal/sched"
	ss "btrlab/internal/sendstream"
)

// fileData is the data of a file that is sent.
type fileData struct {
	c    *sender
	ino  format.Ino
	path string
	size uint64 // of the file in the subvolume
	end  uint64 // of the file at the receiver, so far
	bare bool   // its extents have no checksums: a file that has some can share none of them
	file *fs.File
}

// data sends what has changed of a file's data and its size; it reports whether anything has.
func (c *sender) data(ch *change, path string, it, old *format.InodeItem) (changed bool, err error) {
	d := fileData{c: c, ino: ch.ino, path: path, size: it.Size, bare: it.Flags&format.InodeNoDataSum != 0}
	if !ch.made() {
		d.end = old.Size
	}
	defer func() {
		if d.file != nil {
			if cerr := d.file.Close(c.t); err == nil {
				err = cerr
			}
		}
	}()
	was := d.end
	for off := uint64(0); off < d.size; {
		e, err := c.z.Extent(c.t, ch.ino, off)
		if err != nil {
			return changed, err
		}
		stop := min(e.End, d.size)
		for off < stop {
			to := stop
			what := sendData
			if ch.made() {
				if e.Hole {
					what = sendNothing
				}
			} else if what, to, err = d.compare(&e, was, off, stop); err != nil {
				return changed, err
			}
			if what != sendNothing {
				changed = true
				if err := d.send(what, &e, off, to); err != nil {
					return changed, err
				}
			}
			off = to
		}
	}
	if d.end == d.size {
		return changed, nil
	}
	c.out.Begin(ss.C_TRUNCATE).Text(ss.A_PATH, path).Uint(ss.A_SIZE, d.size)
	return true, c.out.End()
}

// What is sent of a range.
const (
	sendNothing = iota
	sendData
	sendZeros
)

// compare says what is sent of the piece e of the file from off on, and up to where that is true:
// what the parent's file of was bytes does not have. Its last block, and what is beyond, is other
// data as soon as the size is another one.
func (d *fileData) compare(e *fs.Extent, was, off, stop uint64) (what int, to uint64, err error) {
	p, err := d.c.Parent.Extent(d.c.t, d.ino, off)
	if err != nil {
		return 0, 0, err
	}
	to = min(stop, p.End)
	whole := was &^ (format.SectorSize - 1)
	if was == d.size {
		whole = was
	}
	if off < whole {
		to = min(to, whole)
	}
	switch {
	case e.Hole && (p.Hole || off >= was):
		return sendNothing, to, nil
	case e.Hole:
		return sendZeros, to, nil
	case off < whole && samePiece(e, &p):
		return sendNothing, to, nil
	}
	return sendData, to, nil
}

// samePiece reports whether two pieces of a file have the same bytes at the same place.
func samePiece(e, p *fs.Extent) bool {
	if p.Hole || e.Type != p.Type || e.Compression != p.Compression || e.Generation != p.Generation || e.RAMBytes != p.RAMBytes {
		return false
	}
	if e.Type == format.FileExtentTypeInline {
		return e.Start == p.Start && bytes.Equal(e.Inline, p.Inline)
	}
	return e.DiskBytenr == p.DiskBytenr && e.DiskNumBytes == p.DiskNumBytes && e.Offset-e.Start == p.Offset-p.Start
}

// send sends a range of the piece e.
func (d *fileData) send(what int, e *fs.Extent, off, end uint64) error {
	c := d.c
	if c.NoData {
		c.out.Begin(ss.C_UPDATE_EXTENT).Text(ss.A_PATH, d.path).Uint(ss.A_FILE_OFFSET, off).Uint(ss.A_SIZE, end-off)
		d.end = max(d.end, end)
		return c.out.End()
	}
	for off < end {
		n := end - off
		if what == sendData {
			done, err := d.clone(e, off, end)
			if err != nil {
				return err
			}
			if done > 0 {
				off += done
				d.end = max(d.end, off)
				continue
			}
		}
		if err := d.write(what, off, n); err != nil {
			return err
		}
		if err := d.offer(e, what, off, n); err != nil {
			return err
		}
		off += n
		d.end = max(d.end, off)
	}
	return nil
}

// write sends n bytes at off, by as many commands as it takes.
func (d *fileData) write(what int, off, n uint64) error {
	c := d.c
	most := uint64(ss.MaxDataV1)
	if c.Version > 1 {
		most = ss.MaxDataV2
	}
	if c.buf == nil {
		c.buf = make([]byte, most)
	}
	for n > 0 {
		if err := c.count.w.Stop(); err != nil {
			return err
		}
		p := c.buf[:min(n, most)]
		if what == sendZeros {
			clear(p)
		} else if err := d.read(p, off); err != nil {
			return err
		}
		c.out.Begin(ss.C_WRITE).Text(ss.A_PATH, d.path).Uint(ss.A_FILE_OFFSET, off).Bytes(ss.A_DATA, p)
		if err := c.out.End(); err != nil {
			return err
		}
		off += uint64(len(p))
		n -= uint64(len(p))
	}
	return nil
}

// read reads from the file; its checksums are compared.
func (d *fileData) read(p []byte, off uint64) error {
	if d.file == nil {
		n, err := d.c.z.Node(d.c.t, d.ino)
		if err != nil {
			return err
		}
		d.file, err = n.Open(d.c.t, fs.O_RDONLY)
		n.Forget(d.c.t, 1)
		if err != nil {
			return err
		}
	}
	n, err := d.file.ReadAt(d.c.t, p, int64(off))
	if errors.Is(err, io.EOF) && n == len(p) {
		err = nil
	}
	return err
}

// sources are the pieces of files that the receiver has, to clone from, by the extent.
type sources struct {
	own    map[uint64][]piece // sent before
	theirs map[uint64][]piece // of the parent and of Clones; nil before it is needed
}

// piece is where a range of an extent is in a file: n bytes of it, from byte at on, at off of the
// file of size bytes.
type piece struct {
	z                *fs.Frozen
	ino              format.Ino
	off, at, n, size uint64
}

// piecesMax bounds what is kept of one extent.
const piecesMax = 8

func addPiece(m map[uint64][]piece, bytenr uint64, p piece) {
	if len(m[bytenr]) < piecesMax {
		m[bytenr] = append(m[bytenr], p)
	}
}

// offer keeps a range that was written as a source, if others may share it.
func (d *fileData) offer(e *fs.Extent, what int, off, n uint64) error {
	c := d.c
	if what != sendData || e.Type != format.FileExtentTypeReg || d.bare {
		return nil
	}
	refs, err := c.x.DataRefs(c.t, e.DiskBytenr, e.DiskNumBytes)
	if err != nil || refs < 2 {
		return err
	}
	if c.sources.own == nil {
		c.sources.own = map[uint64][]piece{}
	}
	addPiece(c.sources.own, e.DiskBytenr, piece{c.z, d.ino, off, e.Offset + off - e.Start, n, d.size})
	return nil
}

// clone sends the first bytes of a range of the piece e as a clone, if the receiver has them
// somewhere; done is how many. Where a clone does not end with both files it is whole blocks.
func (d *fileData) clone(e *fs.Extent, off, end uint64) (done uint64, err error) {
	c := d.c
	if e.Type != format.FileExtentTypeReg || d.bare || off%format.SectorSize != 0 {
		return 0, nil
	}
	if err := c.load(e); err != nil {
		return 0, err
	}
	at := e.Offset + off - e.Start
	var best piece
	var from uint64
	for _, m := range []map[uint64][]piece{c.sources.own, c.sources.theirs} {
		for _, p := range m[e.DiskBytenr] {
			if at < p.at || at >= p.at+p.n {
				continue
			}
			src := p.off + at - p.at
			n := min(p.at+p.n-at, end-off)
			n = min(n, p.size-min(src, p.size))
			self := p.z == c.z && p.ino == d.ino
			if n%format.SectorSize != 0 && (self || src+n != p.size || off+n < d.end) {
				n &^= format.SectorSize - 1
			}
			if n > done {
				done, best, from = n, p, src
			}
		}
	}
	if done == 0 {
		return 0, nil
	}
	path, err := c.pathIn(best.z, best.ino)
	if err != nil {
		return 0, err
	}
	c.out.Begin(ss.C_CLONE).Uint(ss.A_FILE_OFFSET, off).Uint(ss.A_CLONE_LEN, done).Text(ss.A_PATH, d.path).UUID(ss.A_CLONE_UUID, identity(best.z)).
		Uint(ss.A_CLONE_CTRANSID, best.z.Item.Ctransid).Text(ss.A_CLONE_PATH, path).Uint(ss.A_CLONE_OFFSET, from)
	return done, c.out.End()
}

// load reads which extents the other subvolumes have, once one is asked for that is old enough to
// be there.
func (c *sender) load(e *fs.Extent) error {
	if c.sources.theirs != nil {
		return nil
	}
	all := c.Clones
	if c.Parent != nil {
		all = append([]*fs.Frozen{c.Parent}, all...)
	}
	wanted := false
	for _, z := range all {
		wanted = wanted || e.Generation <= z.Item.Generation
	}
	if !wanted {
		return nil
	}
	c.sources.theirs = map[uint64][]piece{}
	for _, z := range all {
		if err := c.loadFrom(c.t, z); err != nil {
			return err
		}
	}
	return nil
}

func (c *sender) loadFrom(t *sched.Task, z *fs.Frozen) error {
	var it format.InodeItem
	return z.Compare(t, nil, func(key format.Key, _, item []byte) error {
		switch key.Type {
		case format.INODE_ITEM_KEY:
			it.Decode(item)
		case format.EXTENT_DATA_KEY:
			var fe format.FileExtent
			fe.Decode(item)
			if fe.Type == format.FileExtentTypeReg && fe.DiskBytenr != 0 && it.Flags&format.InodeNoDataSum == 0 && it.Nlink > 0 {
				addPiece(c.sources.theirs, fe.DiskBytenr, piece{z, format.Ino(key.Objectid), key.Offset, fe.Offset, fe.NumBytes, it.Size})
			}
		}
		return c.count.w.Stop()
	})
}
