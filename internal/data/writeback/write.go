package writeback

import (
	"fmt"

	"btrlab/internal/blockdev"
	"btrlab/internal/compress"
	"btrlab/internal/data/inode"
	"btrlab/internal/data/ordered"
	"btrlab/internal/data/pagecache"
	"btrlab/internal/format"
	"btrlab/internal/lock/extentio"
	"btrlab/internal/sched"
	"btrlab/internal/sched/cost"
)

const (
	pageShift = pagecache.PageShift
	pageSize  = pagecache.PageSize

	maxRunPages = inode.MaxExtent >> pageShift // pages that one run locks
	maxBioPages = 256
)

// run is one consecutive run of dirty pages on its way to the device. Runs are recycled.
type run struct {
	pages []*pagecache.Page // under writeback once the run has its ordered extents
	parts []part
	next  *run
}

// part is one ordered extent and its pages.
type part struct {
	oe    *ordered.Extent
	pages []*pagecache.Page // of run.pages
	data  []byte            // what is written: the pages compressed; nil: the pages
	// bounce is a copy of the pages that is written in their place; nil: the pages
	bounce []byte
}

// view is what the device is given of the i-th page.
func (pt *part) view(t *sched.Task, i int) []byte {
	if pt.bounce != nil {
		return pt.bounce[i<<pageShift:][:pageSize]
	}
	return pt.pages[i].View(t)
}

func (e *Engine) getRun(t *sched.Task) *run {
	e.mu.Lock(t)
	w := e.runs
	if w != nil {
		e.runs = w.next
	}
	e.mu.Unlock(t)
	if w == nil {
		w = new(run)
	}
	w.next = nil
	return w
}

func (e *Engine) putRun(t *sched.Task, w *run) {
	clear(w.pages)
	clear(w.parts)
	w.pages, w.parts = w.pages[:0], w.parts[:0]
	e.mu.Lock(t)
	w.next = e.runs
	e.runs = w
	e.mu.Unlock(t)
}

// writeRange writes back dirty pages of [from, to), in pages, in index order, about most pages at
// most. It returns where to go on, how many pages it wrote, and the first error. Models
// extent_write_cache_pages().
func (e *Engine) writeRange(t *sched.Task, ip *inode.Inode, from, to uint64, sync bool, most int) (next uint64, wrote int, err error) {
	w := e.getRun(t)
	defer e.putRun(t, w)
	for wrote < most {
		i, ok := ip.Pages.NextDirty(t, from, to)
		if !ok {
			return to, wrote, err
		}
		n := e.lockRun(t, ip, w, i, min(to, i+uint64(min(most-wrote, e.runPages(ip)))), sync)
		if n == 0 {
			from = i + 1
			continue
		}
		if rerr := e.writeRun(t, ip, w); rerr != nil && err == nil {
			err = rerr
		}
		wrote += n
		from = i + uint64(n)
		clear(w.pages)
		clear(w.parts)
		w.pages, w.parts = w.pages[:0], w.parts[:0]
	}
	return from, wrote, err
}

// lockRun locks the dirty pages from index first on, as many as follow each other, and returns how
// many. Only for the first does it wait, and only with sync: a page that is busy ends the run and
// begins the next.
func (e *Engine) lockRun(t *sched.Task, ip *inode.Inode, w *run, first, end uint64, sync bool) int {
	for i := first; i < end; i++ {
		var p *pagecache.Page
		if sync && i == first {
			if p = ip.Pages.Lock(t, i); p != nil {
				p.WaitWriteback(t)
			}
		} else {
			if i > first {
				// A look at the tag is cheaper than at the page.
				if n, ok := ip.Pages.NextDirty(t, i, i+1); !ok || n != i {
					break
				}
			}
			p, _ = ip.Pages.TryLock(t, i)
		}
		if p == nil {
			break
		}
		if !p.Dirty() || p.UnderWriteback(t) {
			p.UnlockPut(t)
			break
		}
		if e.changes() {
			if oe := ip.Ordered.First(t, p.Offset(), p.Offset()+pageSize); oe != nil {
				p.UnlockPut(t)
				if i > first {
					oe.Put(t)
					break
				}
				oe.WaitPut(t) // its bytes are written, and its end needs no page of ours
				i--
				continue
			}
		}
		// i_size is looked at under the page lock: a writer that extends the file into this page
		// sets it before it lets the page go.
		size := ip.Size(t)
		if p.Offset() >= size {
			// Truncated meanwhile, or a writer lost a race with truncate: nothing there belongs to
			// the file.
			if len(w.pages) == 0 {
				ip.Invalidate(t, p.Offset(), p.Offset()+pageSize)
				ip.Pages.ClearDirty(t, p)
			}
			p.UnlockPut(t)
			break
		}
		if p.Offset()+pageSize > size {
			clear(p.Edit(t)[size-p.Offset():])
		}
		w.pages = append(w.pages, p)
	}
	return len(w.pages)
}

// writeRun gives the locked dirty pages of w their places on disk, submits them and unlocks them.
// The pages stay dirty until they have a place, so that a task that looks for data in flight finds
// a dirty page that is locked, or one under writeback. Models extent_writepage() and
// btrfs_run_delalloc_range().
func (e *Engine) writeRun(t *sched.Task, ip *inode.Inode, w *run) error {
	if t.Tracing() {
		for _, p := range w.pages {
			t.Trace(sched.TraceEvent{Name: "extent_writepage", Val: int64(p.Index())})
		}
	}
	start := w.pages[0].Offset()
	end := start + uint64(len(w.pages))*pageSize
	findDelalloc(t, ip, start, end)
	if x, ok := e.inline(t, ip, w, start); ok {
		err := e.writeInline(t, ip, w, x)
		w.pages[0].UnlockPut(t)
		return err
	}
	err := e.runDelalloc(t, ip, w, start, end)
	ip.Settle(t)
	if lab := e.lab.Load(); lab != nil && len(w.parts) > 0 {
		(*lab)(t, &labRun{e, ip, w})
		return err
	}
	if e.bounce.Load() {
		e.bouncePages(t, w)
	}
	// From here on writeback keeps the pages in place, and unless they were copied unchanged. The
	// last one is unlocked when its bio is on its way, as in Linux.
	last := len(w.pages) - 1
	for _, p := range w.pages[:last] {
		p.UnlockPut(t)
	}
	for i := range w.parts {
		e.sum(t, ip, &w.parts[i])
		e.submit(t, ip, &w.parts[i])
	}
	w.pages[last].UnlockPut(t)
	return err
}

// findDelalloc makes sure that the pages of [start, end), which are locked, have delayed
// allocation. The range is locked for the look alone; each piece is locked again once it has its
// place: the page locks keep the bits as they are. Models find_lock_delalloc_range(). Until 6.1 the
// range stayed locked.
func findDelalloc(t *sched.Task, ip *inode.Inode, start, end uint64) {
	ip.IOTree.Lock(t, start, end)
	if t.Checked() && !ip.IOTree.All(t, start, end, extentio.Delalloc) {
		panic(fmt.Sprintf("writeback: ino=%d dirty pages [%d, %d) without delalloc:\n%s", ip.Ino, start, end, ip.IOTree.Dump(t)))
	}
	ip.IOTree.Unlock(t, start, end)
}

// begin puts pages, which are locked and dirty, under writeback.
func begin(t *sched.Task, ip *inode.Inode, pages []*pagecache.Page) {
	for _, p := range pages {
		// Writeback first: a task that looks for pages in flight must find one or the other.
		ip.Pages.StartWriteback(t, p)
		ip.Pages.ClearDirty(t, p)
	}
}

// bouncePages copies the pages of w that go to the device as they are. They are locked.
//
// Difference: Linux has no such copy; its block layer had one for devices that asked for it
// (block/bounce.c), of each page of a bio when it was submitted.
func (e *Engine) bouncePages(t *sched.Task, w *run) {
	for i := range w.parts {
		pt := &w.parts[i]
		if pt.data != nil {
			continue
		}
		t.Spend(cost.Copy, len(pt.pages)<<pageShift)
		pt.bounce = make([]byte, 0, len(pt.pages)<<pageShift)
		for _, p := range pt.pages {
			pt.bounce = append(pt.bounce, p.View(t)...)
		}
	}
}

// inline decides whether the run is the whole of a small file, which goes into the tree, and
// prepares its data: compressed, where that makes it fit or smaller. Models
// can_cow_file_range_inline().
func (e *Engine) inline(t *sched.Task, ip *inode.Inode, w *run, start uint64) (x encoded, ok bool) {
	size := ip.Size(t)
	if start != 0 || size > pageSize || ip.MayNocow() || len(w.pages) != 1 {
		return x, false
	}
	plain := w.pages[0].View(t)[:size]
	if m := e.method(ip); m.Kind != format.CompressNone && size > 0 && (m.force || compress.Worth(w.pages[0].View(t))) {
		ip.SetAsyncExtent()
		if data := m.Encode(nil, plain, min(int(size)-1, int(e.cfg.MaxInline))); data != nil {
			return encoded{data: data, size: size, kind: m.Kind}, true
		}
	}
	if size > e.cfg.MaxInline {
		return x, false
	}
	return encoded{data: append([]byte(nil), plain...), size: size}, true
}

// writeInline puts the whole of a small file, which is one page, into the tree. The page is
// locked. Models cow_file_range_inline().
func (e *Engine) writeInline(t *sched.Task, ip *inode.Inode, w *run, x encoded) error {
	const end = pageSize
	p := w.pages[0]
	ip.IOTree.Lock(t, 0, end)
	ip.IOTree.Change(t, 0, end, extentio.Delalloc|extentio.DoAccounting, 0)
	ip.FreeQuota(t, 0, end)
	rsv := ip.TakeSurplus(t)
	err := e.cfg.Finish.Inline(t, ip, x.data, x.size, x.kind, rsv)
	ip.IOTree.Unlock(t, 0, end)
	begin(t, ip, w.pages)
	if err != nil {
		// before the end of writeback: a task that waits for it asks for errors next
		ip.Pages.SetError(t, err)
	}
	t.Discharge(p)
	ip.Pages.EndWriteback(t, p)
	return err
}

// runDelalloc makes ordered extents for [start, end), whose pages are locked, and puts the pages
// under writeback. What cannot get a place is dropped with an error. Models
// btrfs_run_delalloc_range().
func (e *Engine) runDelalloc(t *sched.Task, ip *inode.Inode, w *run, start, end uint64) (first error) {
	var plan pieces
	if m := e.method(ip); m.Kind != format.CompressNone {
		plan = e.compress(t, ip, w, m, start, end)
	}
	for cur := start; cur < end; {
		limit := end
		if x, next := plan.at(cur, end); x != nil {
			ip.IOTree.Lock(t, x.start, x.start+x.size)
			if oe := e.placeCompressed(t, ip, x); oe != nil {
				pages := w.pages[(cur-start)>>pageShift:][:oe.Len>>pageShift]
				w.parts = append(w.parts, part{oe: oe, pages: pages, data: x.data})
				cur = oe.End()
				ip.IOTree.Change(t, oe.Start, cur, extentio.Locked|extentio.Delalloc, 0)
				begin(t, ip, pages)
				continue
			}
			ip.IOTree.Unlock(t, x.start, x.start+x.size)
			limit = x.start + x.size
		} else {
			limit = next
		}
		x, err := e.cfg.Place.Next(t, ip, cur, limit)
		pages := w.pages[(x.Start-start)>>pageShift:][:x.Len>>pageShift]
		cur = x.Start + x.Len
		ip.IOTree.Lock(t, x.Start, cur)
		if err != nil {
			e.dropRange(t, ip, x.Start, cur, pages, err)
			if first == nil {
				first = err
			}
			continue
		}
		w.parts = append(w.parts, part{oe: ip.AddOrdered(t, x.Type, x.Start, x.Len, x.DiskBytenr), pages: pages})
		clear := extentio.Locked | extentio.Delalloc
		if x.Type != ordered.Regular {
			// The data reservation is not needed; the ordered extent keeps the metadata's, if it
			// needs one.
			clear |= extentio.ClearDataResv
		}
		ip.IOTree.Change(t, x.Start, cur, clear, 0)
		ip.SettleData(t)
		begin(t, ip, pages)
	}
	return first
}

// dropRange gives up [start, end), which is dirty and locked and has no place on disk: it loses its
// data, and err says why. Models extent_clear_unlock_delalloc() with PAGE_START_WRITEBACK and
// PAGE_END_WRITEBACK.
func (e *Engine) dropRange(t *sched.Task, ip *inode.Inode, start, end uint64, pages []*pagecache.Page, err error) {
	ip.IOTree.AssertLocked(t, start, end)
	begin(t, ip, pages)
	// before the end of writeback: a task that waits for it asks for errors next
	ip.Pages.SetError(t, err)
	ip.FreeQuota(t, start, end)
	ip.IOTree.Change(t, start, end, extentio.Locked|extentio.Delalloc|extentio.DoAccounting, 0)
	for _, p := range pages {
		t.Discharge(p)
		ip.Pages.EndWriteback(t, p)
	}
}

// wbio is a bio of file pages. They are recycled.
type wbio struct {
	bio   blockdev.Bio
	pages []*pagecache.Page
	ip    *inode.Inode
	oe    *ordered.Extent
	e     *Engine
	next  *wbio
	// bounced: the device was given a copy, and the pages may have changed.
	bounced bool
}

func (e *Engine) getBio(t *sched.Task) *wbio {
	e.mu.Lock(t)
	b := e.bios
	if b != nil {
		e.bios = b.next
	}
	e.mu.Unlock(t)
	if b == nil {
		b = &wbio{e: e}
		b.bio.Op = blockdev.OpWrite
		b.bio.EndIO = endWrite
		b.bio.Private = b
	}
	b.next = nil
	return b
}

func (e *Engine) putBio(t *sched.Task, b *wbio) {
	clear(b.pages)
	clear(b.bio.Vecs)
	b.pages, b.bio.Vecs, b.ip, b.oe, b.bio.Err = b.pages[:0], b.bio.Vecs[:0], nil, nil, nil
	e.mu.Lock(t)
	b.next = e.bios
	e.bios = b
	e.mu.Unlock(t)
}

// sum makes the checksums of what the device is given of an ordered extent. Those of compressed
// data are made when it is submitted.
func (e *Engine) sum(t *sched.Task, ip *inode.Inode, pt *part) {
	if pt.data != nil || pt.oe.Type == ordered.Nocow || !ip.Sums() {
		return
	}
	t.Spend(cost.Checksum, len(pt.pages)<<pageShift)
	sums := pt.oe.SumsBuffer()
	for i := range pt.pages {
		sums = ip.FS.Csum.Append(sums, pt.view(t, i))
	}
	pt.oe.SetSums(t, sums)
}

// submit starts the bios of an ordered extent, which has its checksums. Pages of one extent are
// contiguous on disk.
func (e *Engine) submit(t *sched.Task, ip *inode.Inode, pt *part) {
	if pt.data != nil {
		e.submitCompressed(t, ip, *pt)
		return
	}
	oe, pages, bounce := pt.oe, pt.pages, pt.bounce
	// The end of the last bio may finish and recycle the extent. From here on it is the device's,
	// which waits for no task.
	t.Discharge(oe)
	at := oe.DiskBytenr
	for len(pages) > 0 {
		n := min(len(pages), maxBioPages)
		b := e.getBio(t)
		b.ip, b.oe = ip, oe
		b.bio.Off = int64(at)
		if b.bounced = bounce != nil; b.bounced {
			b.bio.Vecs = append(b.bio.Vecs, bounce[:n<<pageShift])
			bounce = bounce[n<<pageShift:]
		}
		for _, p := range pages[:n] {
			t.Discharge(p)
			b.pages = append(b.pages, p)
			if !b.bounced {
				b.bio.Vecs = append(b.bio.Vecs, p.Data())
			}
		}
		at += format.Logical(n) * pageSize
		pages = pages[n:]
		e.cfg.Store.Submit(t, &b.bio)
	}
}

// endWrite is the end of a bio: the pages are stable no longer, and with the last bio of its
// ordered extent a worker finishes it. It never sleeps. Models end_bbio_data_write().
func endWrite(t *sched.Task, bio *blockdev.Bio) {
	b := bio.Private.(*wbio)
	e, ip, oe := b.e, b.ip, b.oe
	err := bio.Err
	if err != nil {
		err = fmt.Errorf("write ino=%d off=%d: %w", ip.Ino, b.pages[0].Offset(), err)
		ip.Pages.SetError(t, err)
	}
	t.Spend(cost.Complete, 1)
	t.Spend(cost.Vec, len(b.pages))
	n := uint64(len(b.pages)) * pageSize
	sums := ip.Sums() && !b.bounced
	for _, p := range b.pages {
		if sums {
			// The device has read the page, and nobody may have changed it meanwhile: its checksum
			// is that of before. Without checksums that does no harm.
			_ = p.View(t)
		}
		ip.Pages.EndWriteback(t, p)
	}
	e.putBio(t, b)
	if oe.Done(t, n, err) {
		e.cfg.Finish.Complete(t, oe)
	}
}
