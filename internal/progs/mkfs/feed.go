package mkfs

import (
	"errors"
	"fmt"
	"io"
	"iter"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"

	"btrlab/internal/compress"
	"btrlab/internal/format"
	"btrlab/internal/progs/image"
)

// pieceMax is the data of a piece, in bytes of the file: what is compressed in one.
const pieceMax = compress.MaxLen

// pieces is how many pieces are in memory at once.
const pieces = 32

// piece is an inode with its data, or a part of the data of a large file.
type piece struct {
	e    *Entry
	done chan struct{} // a token when it has been read
	head bool          // the inode begins
	err  error

	// of a head
	xattrs []image.Xattr
	flags  uint64
	prop   uint8 // the kind of compression that its property says
	size   int64
	nbytes uint64
	inline []byte // the data of a small file

	shared *shared // of a large file

	off  uint64 // of the data in the file
	ram  uint64 // bytes there, whole sectors
	disk []byte // as they go to the disk, whole sectors
	sums []byte
	kind uint8

	buf, packed []byte
	own         Entry // e, of a packed one
}

// shared is a large file that is open for its pieces.
type shared struct {
	o     Object
	users atomic.Int32
	sums  bool
	csum  format.CsumType
	how   how
	size  uint64
}

func (s *shared) put() {
	if s.users.Add(-1) == 0 {
		s.o.Close()
	}
}

// feeder reads the inodes of a subvolume.
type feeder struct {
	o     *Options
	order chan *piece // in the order of the inodes
	work  chan *piece
	free  chan *piece
	quit  chan struct{}
	wg    sync.WaitGroup
}

// feed begins to read inodes.
func (l *loader) feed(inodes iter.Seq[*Entry]) *feeder {
	f := &feeder{o: &l.o, order: make(chan *piece, pieces), work: make(chan *piece, pieces), free: make(chan *piece, pieces), quit: make(chan struct{})}
	for range pieces {
		f.free <- &piece{done: make(chan struct{}, 1), buf: make([]byte, pieceMax)}
	}
	for range runtime.GOMAXPROCS(0) {
		f.wg.Go(f.worker)
	}
	f.wg.Go(func() { f.send(inodes) })
	return f
}

// stop ends all reading.
func (f *feeder) stop() {
	close(f.quit)
	f.wg.Wait() // what nobody took has been read as well, and let its file go
}

// next is a piece that is free; nil when the reading ends.
func (f *feeder) next(e *Entry) *piece {
	select {
	case p := <-f.free:
		*p = piece{e: e, done: p.done, buf: p.buf, packed: p.packed}
		if e.packedNow {
			p.own = *e
			p.e = &p.own
		}
		return p
	case <-f.quit:
		return nil
	}
}

// send hands the inodes out. It opens large files itself, because their pieces have several
// workers.
func (f *feeder) send(inodes iter.Seq[*Entry]) {
	defer close(f.order)
	defer close(f.work)
	op := f.opener()
	defer op.Close()
	for e := range inodes {
		if e.Size > pieceMax {
			e = e.kept() // for all its pieces
		}
		p := f.next(e)
		if p == nil {
			return
		}
		p.head = true
		if !e.isRegular() || e.Size <= pieceMax {
			f.order <- p
			f.work <- p
			continue
		}
		if !f.large(op, p) {
			return
		}
	}
}

// large sends a head and the pieces of its data; false when the reading ends.
func (f *feeder) large(op Opener, p *piece) bool {
	e := p.e
	o, err := op.Open(e)
	var runs []span
	if err == nil {
		if err = p.attrs(o, f.o); err == nil {
			p.size, err = o.Size()
		}
		for off := int64(0); err == nil && off < p.size; {
			var start, end int64
			if start, end, err = o.NextData(off, p.size); errors.Is(err, io.EOF) {
				err = nil
				break
			}
			if err == nil {
				runs = append(runs, format.Between(format.AlignDown(uint64(start), format.SectorSize), format.AlignUp(uint64(end), format.SectorSize)))
				off = end
			}
		}
		if err != nil {
			o.Close()
		}
	}
	runs = format.Merge(runs) // two may have one sector in common
	for _, r := range runs {
		p.nbytes += r.Len()
	}
	p.err = err
	sh := &shared{o: o, size: uint64(p.size), sums: p.sumsWanted(), csum: f.o.Csum, how: p.how(f.o)}
	sh.users.Store(1)
	p.done <- struct{}{}
	f.order <- p
	if err != nil {
		return true
	}
	defer sh.put()
	for _, r := range runs {
		for r.Len() > 0 {
			q := f.next(e)
			if q == nil {
				return false
			}
			sh.users.Add(1)
			q.shared, q.off, q.ram = sh, r.Start, min(r.Len(), pieceMax)
			r.Start += q.ram
			f.order <- q
			f.work <- q
		}
	}
	return true
}

func (f *feeder) opener() Opener {
	if f.o.Open == nil {
		return noOpener{}
	}
	return f.o.Open()
}

// noOpener is the opener of a tree without contents.
type noOpener struct{}

func (noOpener) Open(*Entry) (Object, error) { return noObject{}, nil }
func (noOpener) Close()                      {}

type noObject struct{}

func (noObject) Attrs() ([]image.Xattr, uint64, error)           { return nil, 0, nil }
func (noObject) Size() (int64, error)                            { return 0, nil }
func (noObject) NextData(_, _ int64) (start, end int64, _ error) { return 0, 0, io.EOF }
func (noObject) ReadAt([]byte, int64) (int, error)               { return 0, io.EOF }
func (noObject) Close() error                                    { return nil }

// worker reads pieces.
func (f *feeder) worker() {
	op := f.opener()
	defer op.Close()
	for p := range f.work {
		if p.head {
			p.err = p.small(op, f.o)
		} else {
			p.err = p.part()
		}
		p.done <- struct{}{}
	}
}

func (p *piece) attrs(o Object, opt *Options) (err error) {
	p.xattrs, p.flags, err = o.Attrs()
	if typ := p.e.Mode & format.S_IFMT; typ == format.S_IFREG || typ == format.S_IFDIR {
		p.flags |= p.e.Flags
		p.property(opt)
	}
	return err
}

// property makes flags and property agree as chattr and Linux do: the flags follow the property,
// and COMPRESS without one brings it. An inode that cannot be compressed has none, and NOCOMPRESS
// hides COMPRESS.
func (p *piece) property(o *Options) {
	i := slices.IndexFunc(p.xattrs, func(x image.Xattr) bool { return x.Name == propertyName })
	p.prop = format.CompressNone
	switch {
	case !p.sumsWanted():
		p.flags &^= format.InodeCompress
		if i >= 0 {
			p.xattrs = slices.Delete(slices.Clone(p.xattrs), i, i+1)
		}
		return
	case i >= 0:
		value := string(p.xattrs[i].Value)
		if kind, ok := compress.Property(value); ok {
			p.prop = kind
			p.flags = p.flags&^compress.FlagsOfProperty | compress.PropertyFlags(value)
		}
	case p.flags&compress.FlagsOfProperty == format.InodeCompress:
		p.prop = max(o.Compress.Kind, format.CompressZlib)
		p.xattrs = append(slices.Clip(p.xattrs), image.Xattr{Name: propertyName, Value: []byte(compress.Name(p.prop))})
	}
	if p.flags&format.InodeNoCompress != 0 {
		p.flags &^= format.InodeCompress
	}
}

// propertyName is the attribute that says how data is compressed.
const propertyName = "btrfs.compression"

// sumsWanted and how are those of the data: none are compressed that may be overwritten in place.
func (p *piece) sumsWanted() bool { return p.flags&(format.InodeNoDataSum|format.InodeNoDataCow) == 0 }

// how is the way in which data is compressed: with sample only what looks worth it.
type how struct {
	compress.Method
	sample bool
}

// how models inode_need_compress() under compress-force, with Options.Compress for the option.
func (p *piece) how(o *Options) how {
	force := o.Compress.Kind != format.CompressNone
	switch {
	case !p.sumsWanted() || p.flags&format.InodeNoCompress != 0:
		return how{}
	case p.prop != format.CompressNone && p.prop != o.Compress.Kind:
		return how{Method: compress.Method{Kind: p.prop}, sample: !force}
	}
	return how{Method: o.Compress}
}

// small reads an inode whole. A file that has grown beyond a piece since it was listed is taken as
// it was while it had that size.
func (p *piece) small(op Opener, o *Options) error {
	x, err := op.Open(p.e)
	if err != nil {
		return err
	}
	defer x.Close()
	if err := p.attrs(x, o); err != nil || !p.e.isRegular() {
		if p.e.Mode&format.S_IFMT == format.S_IFLNK {
			p.size = int64(len(p.e.Target))
			p.nbytes = uint64(p.size)
		}
		return err
	}
	n, err := x.ReadAt(p.buf, 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	p.size = int64(n)
	if n == 0 {
		return nil
	}
	how := p.how(o)
	if n <= format.SectorSize && p.flags&format.InodeNoDataCow == 0 {
		if how.Kind != format.CompressNone {
			if data := how.Encode(p.packed, p.buf[:n], min(n-1, format.MaxInlineData)); data != nil {
				p.packed, p.inline, p.kind, p.nbytes = data, data, how.Kind, uint64(n)
				return nil
			}
		}
		if n <= format.MaxInlineData {
			p.inline, p.nbytes = p.buf[:n], uint64(n)
			return nil
		}
	}
	p.ram = format.AlignUp(uint64(n), format.SectorSize)
	p.nbytes = p.ram
	p.pack(n, p.sumsWanted(), o.Csum, how)
	return nil
}

// part reads a part of a large file. What a file has lost meanwhile is zeros.
func (p *piece) part() error {
	s := p.shared
	defer s.put()
	n, err := s.o.ReadAt(p.buf[:min(p.ram, s.size-p.off)], int64(p.off))
	if err != nil && !errors.Is(err, io.EOF) {
		return fmt.Errorf("at byte %d: %w", p.off, err)
	}
	p.pack(n, s.sums, s.csum, s.how)
	return nil
}

// pack makes n bytes of buf what goes to the disk. Models the end of compress_file_range(): a piece
// is compressed if that saves a sector.
func (p *piece) pack(n int, sums bool, csum format.CsumType, how how) {
	p.disk = p.buf[:p.ram]
	clear(p.disk[n:])
	if how.Kind != format.CompressNone && n > 0 && len(p.disk) > format.SectorSize && (!how.sample || compress.Worth(p.disk)) {
		if p.packed == nil {
			p.packed = make([]byte, 0, pieceMax)
		}
		if data := how.Encode(p.packed, p.buf[:n], len(p.disk)-format.SectorSize); data != nil {
			whole := int(format.AlignUp(uint64(len(data)), format.SectorSize))
			data = append(data, make([]byte, whole-len(data))...)
			p.packed, p.disk, p.kind = data, data, how.Kind
		}
	}
	if sums {
		p.sums = csum.AppendSectors(p.sums, p.disk)
	}
}
