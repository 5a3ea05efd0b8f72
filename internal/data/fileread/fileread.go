// Package fileread reads file data from the device into pages: one page for a writer that
// overwrites a part of it, and pages with readahead for a reader.
//
// A sequential read of a page that is not in memory:
//
//	ReadPage       State.next is the index: the window doubles, 16 to 256 pages      State.size
//	  readAhead    the pages that are missing are added, locked
//	    readRun    i_size; extent lock with nothing ordered in the range; place.At; unlock
//	      fill     zeros, inline bytes, or
//	        ReadSectors  LookupSums; one bio; each page checked; a bad one from the other mirrors
//	        compress.Decode  of a compressed extent, whose sectors are read and checked as they are
//	               pages uptodate and unlocked; a page that failed stays as it was
//	  ReadPage     finds the page uptodate; if not, FillPage reads it alone and reports the error
//
// FillPage is the writer's way: the page is the caller's and stays locked, and an ordered extent in
// the way is the caller's to wait for, because only the caller knows which other pages it has
// locked.
//
// Lock order:
//
//	page                     the caller's, or readAhead's, ascending
//	  extent                 readRun, FillPage; let go before the bio, because the page keeps the extent in place
//	    tree_fs              place.At
//	  tree_csum              ReadSectors
//
// Invariants:
//   - a page becomes uptodate only when all its bytes are the file's, or zeros beyond i_size;
//   - data of an inode with checksums is never handed out unchecked.
//
// Model: fs/btrfs/extent_io.c (btrfs_read_folio, btrfs_readahead), mm/filemap.c, mm/readahead.c.
// Differences: readahead is synchronous, and what an extent decompresses to is kept for the pages
// that were asked for only; a bad copy is not rewritten; no encryption.
package fileread

import (
	"fmt"
	"math"
	"slices"
	"sync/atomic"

	"btrlab/internal/blockdev"
	"btrlab/internal/compress"
	"btrlab/internal/data/extentmap"
	"btrlab/internal/data/inode"
	"btrlab/internal/data/ordered"
	"btrlab/internal/data/pagecache"
	"btrlab/internal/data/place"
	"btrlab/internal/errno"
	"btrlab/internal/format"
	"btrlab/internal/meta/fstree"
	"btrlab/internal/meta/volumes"
	"btrlab/internal/sched"
)

const (
	pageShift = pagecache.PageShift
	pageSize  = pagecache.PageSize
)

// Reader reads the files of one file system.
type Reader struct {
	// Place answers where their ranges are.
	Place *place.Finder
	// BadCopy, if set, is told of a sector that had a wrong checksum on one mirror, and was read
	// from another. Many tasks call it at once.
	BadCopy func(err error)

	fs       *inode.FS
	items    *fstree.Store
	store    *volumes.Volumes
	unlocked bool
}

// New makes a Reader.
func New(fs *inode.FS, pl *place.Finder, items *fstree.Store, store *volumes.Volumes) *Reader {
	return &Reader{Place: pl, fs: fs, items: items, store: store}
}

// SetAheadUnlocked makes readahead ask where its pages are without their range locked, and with
// whatever is ordered in it (labs/reference 9.2, number 14). The caller has no operation in flight.
func (rd *Reader) SetAheadUnlocked(yes bool) { rd.unlocked = yes }

// FillPage makes a locked page uptodate from the disk: a write of a part of a page does so first.
// The page stays locked and the caller's in every case. busy, if not nil, is an ordered extent over
// the page, referenced, and the page is as it was: the caller unlocks all pages that it has, calls
// WaitPut and looks the page up again.
// Models btrfs_read_folio() as prepare_uptodate_page() calls it.
func (rd *Reader) FillPage(t *sched.Task, ip *inode.Inode, p *pagecache.Page) (busy *ordered.Extent, err error) {
	if p.Uptodate() {
		return nil, nil
	}
	start, end := p.Offset(), p.Offset()+pageSize
	// The page went out of memory before its data got into the trees; or, beyond EOF, it is cut off
	// and still on its way.
	if busy = ip.LockUnlessOrdered(t, start, end); busy != nil {
		return busy, nil
	}
	// With the range locked: a direct write, or a clone, has looked for pages under that lock, and
	// makes the file longer before it lets it go.
	if start >= ip.Size(t) {
		ip.IOTree.Unlock(t, start, end)
		clear(p.Edit(t))
		p.SetUptodate()
		return nil, nil
	}
	m, err := rd.Place.At(t, ip, start)
	// The page lock keeps the extent: a task that replaces or drops it must have this page first.
	ip.IOTree.Unlock(t, start, end)
	if err != nil {
		return nil, err
	}
	if err := rd.fill(t, ip, m, []*pagecache.Page{p}); err != nil {
		return nil, err
	}
	p.SetUptodate()
	return nil, nil
}

// fill reads consecutive locked pages that all lie in m.
func (rd *Reader) fill(t *sched.Task, ip *inode.Inode, m extentmap.Map, pages []*pagecache.Page) error {
	off := pages[0].Offset()
	switch m.Kind {
	case extentmap.Hole, extentmap.Prealloc:
		for _, p := range pages {
			clear(p.Edit(t))
		}
		return nil
	case extentmap.Inline:
		start, fe, ok, err := rd.items.LookupFileExtent(t, ip.Root, ip.Ino, off)
		if err != nil {
			return err
		}
		var data []byte
		if ok && fe.Type == format.FileExtentTypeInline {
			if data, err = InlineData(ip, &fe); err != nil {
				return err
			}
			data = data[min(off-start, uint64(len(data))):]
		}
		setPages(t, pages, data)
		return nil
	}
	if m.Compression != format.CompressNone {
		data, err := rd.decompress(t, ip, m, off, uint64(len(pages))*pageSize)
		if err != nil {
			return err
		}
		size := ip.Size(t)
		setPages(t, pages, data[:min(uint64(len(data)), size-min(size, off))])
		return nil
	}
	sectors := make([][]byte, len(pages))
	for i, p := range pages {
		sectors[i] = p.Edit(t)
	}
	if err := rd.ReadSectors(t, ip, off, m.Bytenr(off), sectors); err != nil {
		return err
	}
	// Bytes beyond the end of the file are not the file's.
	if size := ip.Size(t); size < off+uint64(len(pages))*pageSize {
		for _, p := range pages {
			if at := p.Offset(); at+pageSize > size {
				clear(p.Edit(t)[max(size, at)-at:])
			}
		}
	}
	return nil
}

// setPages gives pages the bytes of data, and zeros after them.
func setPages(t *sched.Task, pages []*pagecache.Page, data []byte) {
	for _, p := range pages {
		b := p.Edit(t)
		n := copy(b, data)
		clear(b[n:])
		data = data[n:]
	}
}

// InlineData is the data of an inline extent, at most a sector. Errors: EIO when it is compressed
// and broken. Models uncompress_inline().
func InlineData(ip *inode.Inode, fe *format.FileExtent) ([]byte, error) {
	if fe.Compression == format.CompressNone {
		return fe.Inline, nil
	}
	if fe.RAMBytes > format.SectorSize {
		return nil, fmt.Errorf("read root=%d ino=%d: compressed inline extent, bad length, have %d want at most %d: %w", ip.Root.ID, ip.Ino, fe.RAMBytes, format.SectorSize, errno.EIO)
	}
	data := make([]byte, fe.RAMBytes)
	if err := compress.Decode(fe.Compression, data, fe.Inline); err != nil {
		return nil, fmt.Errorf("read root=%d ino=%d: compressed inline extent: %w", ip.Root.ID, ip.Ino, err)
	}
	return data, nil
}

// decompress reads the n bytes at off, which are in the compressed extent m. Checksums are of what
// is on disk: a sector that is bad there is read from another mirror before anything is decoded.
// Models btrfs_submit_compressed_read(). Difference: it adds no pages beyond the caller's.
func (rd *Reader) decompress(t *sched.Task, ip *inode.Inode, m extentmap.Map, off, n uint64) ([]byte, error) {
	from := m.ExtentOffset + off - m.Start
	if from+n > compress.MaxLen || m.ExtentLen > compress.MaxLen {
		return nil, fmt.Errorf("read root=%d ino=%d off=%d: bad compressed extent, have %d bytes at logical %d for %d want at most %d: %w",
			ip.Root.ID, ip.Ino, off, m.ExtentLen, m.ExtentBytenr, from+n, compress.MaxLen, errno.EIO)
	}
	raw := make([]byte, m.ExtentLen)
	var sectors [][]byte
	for i := 0; i < len(raw); i += format.SectorSize {
		sectors = append(sectors, raw[i:i+format.SectorSize])
	}
	if err := rd.ReadSectors(t, ip, off, m.ExtentBytenr, sectors); err != nil {
		return nil, err
	}
	data := make([]byte, from+n)
	if err := compress.Decode(m.Compression, data, raw); err != nil {
		return nil, fmt.Errorf("read root=%d ino=%d off=%d logical=%d: %w", ip.Root.ID, ip.Ino, off, m.ExtentBytenr, err)
	}
	return data[from:], nil
}

// Sums is the checksums of consecutive sectors, as they were looked up. The zero value has none.
type Sums struct {
	raw  []byte
	have []bool // of each sector; empty: the file has no checksums
}

// LookupSums looks the checksums of n sectors from the logical address bytenr on up, before the
// device reads them: once the extent is free a commit takes them away. With try it answers EAGAIN
// rather than wait or read. Models btrfs_lookup_bio_sums().
//
// Preconditions:
//   - the extent cannot be freed meanwhile: the caller has the pages of the range, or its extent
//     lock.
func (rd *Reader) LookupSums(t *sched.Task, ip *inode.Inode, bytenr uint64, n int, try bool, s *Sums) error {
	s.raw, s.have = s.raw[:0], s.have[:0]
	if !ip.Sums() {
		return nil
	}
	size := n * rd.items.CsumType().Size()
	s.raw, s.have = slices.Grow(s.raw, size)[:size], slices.Grow(s.have, n)[:n]
	lookup := rd.items.LookupCsums
	if try {
		lookup = rd.items.TryLookupCsums
	}
	return lookup(t, bytenr, uint64(n)*format.SectorSize, s.raw, s.have)
}

// ReadSectors reads consecutive sectors of the file from off on, which are at the logical address
// bytenr, and checks them against the checksum tree. One that does not match is read from the other
// mirrors.
//
// Preconditions:
//   - the extent cannot be freed meanwhile: the caller has the pages of the range, or its range
//     lock.
func (rd *Reader) ReadSectors(t *sched.Task, ip *inode.Inode, off, bytenr uint64, sectors [][]byte) error {
	var sums Sums
	if err := rd.LookupSums(t, ip, bytenr, len(sectors), false, &sums); err != nil {
		return err
	}
	b := blockdev.Bio{Op: blockdev.OpRead, Off: int64(bytenr), Vecs: sectors}
	return rd.CheckSectors(t, ip, off, bytenr, sectors, &sums, blockdev.Do(t, rd.store, &b))
}

// CheckSectors is the part of ReadSectors after the device has read them, with its error.
func (rd *Reader) CheckSectors(t *sched.Task, ip *inode.Inode, off, bytenr uint64, sectors [][]byte, sums *Sums, ioErr error) error {
	if len(sums.have) == 0 {
		if ioErr != nil {
			return fmt.Errorf("read ino=%d off=%d: %w", ip.Ino, off, ioErr)
		}
		return nil
	}
	csum := rd.items.CsumType()
	size := csum.Size()
	for i, s := range sectors {
		at := uint64(i) * format.SectorSize
		if !sums.have[i] {
			return fmt.Errorf("csum hole root=%d ino=%d off=%d logical=%d: %w", ip.Root.ID, ip.Ino, off+at, bytenr+at, errno.EIO)
		}
		want := sums.raw[i*size:][:size]
		if ioErr == nil && csum.Match(want, s) {
			continue
		}
		if err := rd.readMirrors(t, ip, off+at, bytenr+at, s, want); err != nil {
			return err
		}
	}
	return nil
}

// Match reports whether sectors that the device has read without an error are what their checksums
// say. It does not sleep.
func (rd *Reader) Match(sectors [][]byte, sums *Sums) bool {
	csum := rd.items.CsumType()
	size := csum.Size()
	for i := range sums.have {
		if !sums.have[i] || !csum.Match(sums.raw[i*size:][:size], sectors[i]) {
			return false
		}
	}
	return true
}

// readMirrors reads one sector from each mirror until one has the checksum. Models
// btrfs_repair_one_sector(). Difference: a bad copy is not rewritten.
func (rd *Reader) readMirrors(t *sched.Task, ip *inode.Inode, off, bytenr uint64, sector, want []byte) error {
	csum := rd.items.CsumType()
	var last, bad error
	for m := range rd.store.Mirrors(bytenr) {
		if err := rd.store.Read(t, sector, bytenr, m); err != nil {
			last = fmt.Errorf("read ino=%d off=%d: %w", ip.Ino, off, err)
			continue
		}
		if csum.Match(want, sector) {
			if bad != nil && rd.BadCopy != nil {
				rd.BadCopy(bad)
			}
			return nil
		}
		have := csum.Sum(sector)
		bad = fmt.Errorf("csum failed root=%d ino=%d off=%d logical=%d mirror=%d, have %s want %s", ip.Root.ID, ip.Ino, off, bytenr, m, csum.Text(have[:]), csum.Text(want))
		last = fmt.Errorf("%w: %w", bad, errno.EIO)
	}
	if last == nil {
		last = fmt.Errorf("read ino=%d off=%d: logical %d has no chunk: %w", ip.Ino, off, bytenr, errno.EIO)
	}
	return last
}

// Readahead, in pages.
const (
	readAheadFirst = 16
	readAheadMax   = 256
)

// State is the readahead state of an open file. The zero value is ready; tasks that share it only
// make each other read too much or too little.
type State struct {
	next atomic.Uint64 // the index after the last one asked for
	size atomic.Uint64 // pages read ahead last time
}

// window is how many pages to read from index on, when the caller wants want: not so many that a
// small cache would drop the first before the caller gets to the last.
func (ra *State) window(index uint64, want int, cachePages uint64) uint64 {
	most := uint64(readAheadMax)
	if cachePages > 0 {
		most = max(min(most, cachePages/8), 1)
	}
	if ra == nil {
		return min(uint64(want), most)
	}
	n := uint64(0)
	if ra.next.Load() == index {
		n = min(max(ra.size.Load()*2, readAheadFirst), readAheadMax)
	}
	ra.size.Store(n)
	return min(max(n, uint64(want)), most)
}

// ReadPage finds the page and returns it referenced and uptodate, not locked. want is how many
// pages the caller will read from here on, at least 1; sequential reads read ahead. The caller
// copies and calls Put. Models filemap_get_pages().
func (rd *Reader) ReadPage(t *sched.Task, ip *inode.Inode, index uint64, want int, ra *State) (*pagecache.Page, error) {
	tried := false
	for {
		if p := ip.Pages.Get(t, index); p != nil {
			if p.Uptodate() {
				if ra != nil {
					ra.next.Store(index + 1)
				}
				return p, nil
			}
			p.Put(t)
		}
		if !tried {
			tried = true
			rd.readAhead(t, ip, index, ra.window(index, max(want, 1), rd.fs.Cache.LimitPages()))
			continue
		}
		p := ip.Pages.Grab(t, index)
		if !p.Uptodate() {
			busy, err := rd.FillPage(t, ip, p)
			if busy != nil || err != nil {
				p.UnlockPut(t)
			}
			if err != nil {
				return nil, err
			}
			if busy != nil {
				busy.WaitPut(t)
				continue
			}
		}
		p.Unlock(t)
		if ra != nil {
			ra.next.Store(index + 1)
		}
		return p, nil
	}
}

// CachedPage is ReadPage that does not sleep: nil when the page is not in memory. Models
// filemap_get_pages() with IOCB_NOWAIT. Difference: no readahead begins; ours is the caller's own
// work.
func (rd *Reader) CachedPage(t *sched.Task, ip *inode.Inode, index uint64) *pagecache.Page {
	p := ip.Pages.Get(t, index)
	if p != nil && !p.Uptodate() {
		p.Put(t)
		return nil
	}
	return p
}

// readAhead reads the pages of [first, first+n) that are not in memory. An error leaves pages that
// are not uptodate: a reader that needs one reads it by itself and gets the error. Models
// page_cache_ra_unbounded() and btrfs_readahead().
func (rd *Reader) readAhead(t *sched.Task, ip *inode.Inode, first, n uint64) {
	size := ip.Size(t)
	last := min(first+n, (size+pageSize-1)>>pageShift)
	var pages []*pagecache.Page
	for i := first; i < last; {
		for ; i < last && len(pages) < readAheadMax; i++ {
			p := ip.Pages.Add(t, i)
			if p == nil {
				break
			}
			pages = append(pages, p)
		}
		if len(pages) == 0 {
			i++
			continue
		}
		rd.readRun(t, ip, pages)
		for _, p := range pages {
			p.UnlockPut(t)
		}
		clear(pages)
		pages = pages[:0]
	}
}

// readRun fills what it can of consecutive locked pages. A truncate may have gone by before the
// pages were in the cache: i_size is asked again now that they are, and a later truncate must have
// them first. Models the look at i_size in btrfs_do_readpage().
func (rd *Reader) readRun(t *sched.Task, ip *inode.Inode, pages []*pagecache.Page) {
	size := ip.Size(t)
	for len(pages) > 0 && pages[len(pages)-1].Offset() >= size {
		pages = pages[:len(pages)-1]
	}
	if len(pages) == 0 {
		return
	}
	start := pages[0].Offset()
	end := start + uint64(len(pages))*pageSize
	for len(pages) > 0 {
		m, ok := rd.whereAhead(t, ip, start, end)
		if !ok {
			return
		}
		n := len(pages)
		if m.End != math.MaxUint64 && m.End < end {
			n = int((m.End - start) >> pageShift)
		}
		if n == 0 || rd.fill(t, ip, m, pages[:n]) != nil {
			return
		}
		for _, p := range pages[:n] {
			p.SetUptodate()
		}
		pages = pages[n:]
		start += uint64(n) * pageSize
	}
}

// whereAhead finds the file's extent at start, if that can be told: nothing is ordered in [start,
// end).
func (rd *Reader) whereAhead(t *sched.Task, ip *inode.Inode, start, end uint64) (m extentmap.Map, ok bool) {
	if !rd.unlocked {
		if oe := ip.LockUnlessOrdered(t, start, end); oe != nil {
			oe.Put(t)
			return m, false
		}
		defer ip.IOTree.Unlock(t, start, end)
	}
	m, err := rd.Place.At(t, ip, start)
	return m, err == nil
}
