package writeback

import (
	"sync/atomic"

	"btrlab/internal/compress"
	"btrlab/internal/data/inode"
	"btrlab/internal/data/ordered"
	"btrlab/internal/data/pagecache"
	"btrlab/internal/format"
	"btrlab/internal/meta/spaceinfo"
	"btrlab/internal/sched"
	"btrlab/internal/sched/cost"
)

// Compressed writeback. The run is cut into pieces of compress.MaxLen, which tasks encode side by
// side while its pages and its range are locked; then each piece that saves a sector becomes an
// ordered extent of its own, with its sectors in one place, and what does not is written as it is.
//
// An inode is compressed that has the property btrfs.compression or the flag COMPRESS, and every
// inode under SetCompress, which is the mount option compress-force:
//
//	                  property       flag           compress-force
//	kind              the property's the option's,  the property's, else the option's
//	                                 else zlib
//	a sample decides  yes            yes            no: every piece is encoded
//	no sector saved   as it is       as it is, and  as it is
//	                                 NOCOMPRESS
//
// Model: fs/btrfs/inode.c:inode_need_compress(), compress_file_range() and
// submit_one_async_extent(). Differences: the caller waits until the pieces of its run are encoded,
// where the kernel leaves pages and range locked to workers; each piece has a sample of its own,
// and one that is not worth it does not end the run; a piece of one sector leaves no NOCOMPRESS;
// NOCOMPRESS holds under compress-force as well; a level is the option's, or the default for
// another kind; a piece of which less metadata or space is to be had than it needs is written as it
// is.

const (
	compressedRunPages = 4 << 20 >> pageShift // pages that one run locks when it is compressed
	compressTasks      = 4                    // tasks at most that encode the pieces of a run
)

// encoded is a piece of a file, and what it is compressed to.
type encoded struct {
	start, size uint64 // in bytes of the file; start is 0 for inline data
	data        []byte // nil: it is not worth it
	kind        uint8
}

// how is the way in which an inode is compressed.
type how struct {
	compress.Method
	force bool // without a sample
	mark  bool // NOCOMPRESS if it saves nothing
}

// method is how data of ip is compressed. Models inode_need_compress(): an inode whose data may be
// overwritten in place, or has no checksums, has none.
func (e *Engine) method(ip *inode.Inode) how {
	flags, prop := ip.Flags(), ip.CompressProp()
	if ip.MayNocow() || !ip.Sums() || flags&format.InodeNoCompress != 0 {
		return how{}
	}
	var option compress.Method
	if m := e.how.Load(); m != nil {
		option = *m
	}
	force := option.Kind != format.CompressNone
	switch {
	case prop == option.Kind && force, prop == format.CompressNone && force:
		return how{Method: option, force: true}
	case prop != format.CompressNone:
		return how{Method: compress.Method{Kind: prop}, force: force}
	case flags&format.InodeCompress != 0:
		return how{Method: compress.Method{Kind: format.CompressZlib}, mark: true}
	}
	return how{}
}

// runPages is how many pages a run of ip has at most.
func (e *Engine) runPages(ip *inode.Inode) int {
	if e.method(ip).Kind != format.CompressNone {
		return compressedRunPages
	}
	return maxRunPages
}

// pieces are those of a run that are compressed, in the order of the file.
type pieces []encoded

// at is the piece that begins at cur; without one, next is where the next one begins, or end.
func (p *pieces) at(cur, end uint64) (x *encoded, next uint64) {
	for i := range *p {
		switch x := &(*p)[i]; {
		case x.data == nil || x.start < cur:
		case x.start == cur:
			return x, cur + x.size
		default:
			return nil, x.start
		}
	}
	return nil, end
}

// compress encodes [start, end) of the run, whose pages are locked and under writeback.
func (e *Engine) compress(t *sched.Task, ip *inode.Inode, w *run, m how, start, end uint64) pieces {
	size := ip.Size(t)
	var list pieces
	for cur := start; cur < end; cur += compress.MaxLen {
		list = append(list, encoded{start: cur, size: min(end-cur, compress.MaxLen), kind: m.Kind})
	}
	var next atomic.Int64
	work := func(t *sched.Task) {
		plain := make([]byte, compress.MaxLen)
		for i := next.Add(1) - 1; int(i) < len(list); i = next.Add(1) - 1 {
			x := &list[i]
			pages := w.pages[(x.start-start)>>pageShift:][:x.size>>pageShift]
			var tried bool
			x.data, tried = encodePages(t, m, pages, plain, min(x.size, size-min(size, x.start)))
			if tried {
				ip.SetAsyncExtent()
			}
			if x.data == nil && tried && m.mark {
				ip.AddFlags(format.InodeNoCompress)
			}
		}
	}
	var tasks []*sched.Task
	for range min(len(list), compressTasks) - 1 {
		tasks = append(tasks, t.Go("compress", work))
	}
	work(t)
	for _, c := range tasks {
		t.Join(c)
	}
	return list
}

// encodePages is the first n bytes of pages compressed, filled up to whole sectors, or nil when it
// does not save one; then tried says whether that was seen by encoding them. Models the end of
// compress_file_range().
func encodePages(t *sched.Task, m how, pages []*pagecache.Page, plain []byte, n uint64) (data []byte, tried bool) {
	whole := len(pages) << pageShift
	if whole <= format.SectorSize || n == 0 {
		return nil, false
	}
	for i, p := range pages {
		copy(plain[i<<pageShift:], p.View(t))
	}
	if !m.force && !compress.Worth(plain[:whole]) {
		return nil, false
	}
	most := whole - format.SectorSize
	data = m.Encode(make([]byte, 0, whole), plain[:n], most)
	if data == nil {
		return nil, true
	}
	pad := format.AlignUp(uint64(len(data)), format.SectorSize) - uint64(len(data))
	return append(data, make([]byte, pad)...), true
}

// placeCompressed finds a place for a piece and makes its ordered extent, or nil when there is no
// space for that: the delalloc of the range has the metadata of one extent, and becomes many.
func (e *Engine) placeCompressed(t *sched.Task, ip *inode.Inode, x *encoded) *ordered.Extent {
	if ip.ReserveExtents(t, x.size, spaceinfo.NoFlush) != nil {
		return nil
	}
	defer ip.ReleaseExtents(t, x.size, x.size)
	at, err := e.cfg.Place.Whole(t, ip, x.start, uint64(len(x.data)))
	if err != nil {
		return nil
	}
	return ip.AddCompressed(t, x.start, x.size, at, uint64(len(x.data)), x.kind)
}

// submitCompressed is submit of an ordered extent that is compressed: one bio, with the checksums
// of what is written. Models btrfs_submit_compressed_write().
func (e *Engine) submitCompressed(t *sched.Task, ip *inode.Inode, pt part) {
	oe := pt.oe
	t.Spend(cost.Checksum, len(pt.data))
	b, sums := e.getBio(t), oe.SumsBuffer()
	b.ip, b.oe, b.bio.Off = ip, oe, int64(oe.DiskBytenr)
	for p := pt.data; len(p) > 0; p = p[format.SectorSize:] {
		sums = ip.FS.Csum.Append(sums, p[:format.SectorSize])
		b.bio.Vecs = append(b.bio.Vecs, p[:format.SectorSize])
	}
	oe.SetSums(t, sums)
	t.Discharge(oe)
	for _, p := range pt.pages {
		t.Discharge(p)
		b.pages = append(b.pages, p)
	}
	e.cfg.Store.Submit(t, &b.bio)
}
