package direct

import (
	"fmt"
	"sync/atomic"

	"btrlab/internal/blockdev"
	"btrlab/internal/data/fileread"
	"btrlab/internal/data/finish"
	"btrlab/internal/data/inode"
	"btrlab/internal/data/ordered"
	"btrlab/internal/data/pagecache"
	"btrlab/internal/errno"
	"btrlab/internal/format"
	"btrlab/internal/iopath"
	"btrlab/internal/kiocb"
	"btrlab/internal/lock"
	"btrlab/internal/lock/extentio"
	"btrlab/internal/lock/workqueue"
	"btrlab/internal/sched"
	"btrlab/internal/sched/cost"
)

// maxBio bounds a bio, in bytes. Models BIO_MAX_VECS pages.
const maxBio = 1 << 20

// keepCopy bounds the memory that a request keeps for the next one, in bytes.
const keepCopy = 1 << 20

// request is the I/O of one direct read or write. Models struct iomap_dio. Its life, with left, the
// bios that have not ended and one for the submitter:
//
//	newRequest       left 1      i_dio_count up
//	start            left +1     for each bio
//	bio.put          left -1     its end; the last one ends the request
//	submitted        left -1     the submitter's: it waits for the last bio, or leaves the request to it
//	complete                     pages go, i_dio_count down; the request is free for another one
type request struct {
	iopath.Pooled
	env   *iopath.Env
	ip    *inode.Inode
	write bool
	// of blocks that are written: no ordered extent knows of it, and it keeps snapshots out
	sectors bool
	req     kiocb.Request // req.Done is nil: the caller waits

	left   atomic.Int64
	ended  atomic.Bool // the submitter may go on
	wait   lock.WaitQueue
	failed atomic.Pointer[error]

	// Set by the submitter before it counts itself off.
	queued     bool   // the submitter does not wait
	start, end uint64 // bytes of the file
	n          int    // what the caller is told
	err        error
	syncs      bool // later is the sync of a durable write
	later      workqueue.Work[finish.Deferred]

	bios   []*bio // the first used of them were started for this request
	used   int
	copies []byte // of what a file with checksums is written from
}

// bio is one transfer of a request.
type bio struct {
	blockdev.Bio
	rq    *request
	oe    *ordered.Extent // the extent that a write is a part of
	off   uint64          // in the file
	n     uint64          // bytes
	vecs  [][]byte
	lock  extentio.Bits                   // a read's: how [off, off+n) is locked
	sums  fileread.Sums                   // ... what it is checked with
	let   bool                            // ... it is checked, and its range unlocked
	check workqueue.Work[finish.Deferred] // ... on a worker
}

// newRequest takes a request from the pool and counts it among the I/Os in flight, as t's.
func newRequest(t *sched.Task, env *iopath.Env, ip *inode.Inode, write bool, req kiocb.Request) *request {
	rq, _ := env.Requests.Get().(*request)
	if rq == nil {
		rq = new(request)
		rq.Of, rq.later.Of = rq, rq
		rq.wait.Init(blockdev.WaitClass)
	}
	rq.env, rq.ip, rq.write, rq.req = env, ip, write, req
	rq.left.Store(1)
	rq.ended.Store(false)
	rq.failed.Store(nil)
	if req.Done != nil {
		rq.prepare(t)
	}
	ip.DIO.Inc(t)
	return rq
}

// prepare makes the workers that the end may need.
func (rq *request) prepare(t *sched.Task) {
	if !rq.write {
		rq.env.Finish.Prepare(t, finish.CheckRead)
		return
	}
	rq.env.Finish.Prepare(t, finish.EndWrite)
	if rq.req.Flags&kiocb.DSync != 0 {
		rq.env.Finish.Prepare(t, finish.SyncWrite)
	}
}

// bio is the next bio of the request, which start makes one of its own.
func (rq *request) bio() *bio {
	if rq.used == len(rq.bios) {
		b := new(bio)
		b.Private, b.check.Of = b, b
		rq.bios = append(rq.bios, b)
	}
	b := rq.bios[rq.used]
	b.rq, b.Err = rq, nil
	return b
}

// start submits the bio, for vecs at the address at.
func (b *bio) start(t *sched.Task, op blockdev.Op, at int64, end func(*sched.Task, *blockdev.Bio)) {
	b.Op, b.Off, b.Vecs, b.Bio.EndIO = op, at, b.vecs, end
	b.rq.used++
	b.rq.left.Add(1)
	b.rq.env.Device.Submit(t, &b.Bio)
}

// submitWrite starts the write of data to the place of oe. The memory is the device's until the
// request ends. A file with checksums is written from a copy: the caller may change its memory
// meanwhile, and the checksum must fit what the device got.
func (rq *request) submitWrite(t *sched.Task, oe *ordered.Extent, data []byte) {
	if rq.ip.Sums() {
		from := len(rq.copies)
		rq.copies = append(rq.copies, data...)
		data = rq.copies[from:]
		t.Spend(cost.Copy, len(data))
		t.Spend(cost.Checksum, len(data))
		oe.SetSums(t, rq.ip.FS.Csum.AppendSectors(oe.SumsBuffer(), data))
	}
	// The end of the last bio may finish and recycle the extent. From here on it is the device's,
	// which waits for no task.
	t.Discharge(oe)
	at, off := int64(oe.DiskBytenr), oe.Start
	for len(data) > 0 {
		n := min(len(data), maxBio)
		b := rq.bio()
		b.oe, b.off, b.n, b.vecs = oe, off, uint64(n), rq.vectors(b.vecs[:0], data[:n])
		data, off = data[n:], off+uint64(n)
		b.start(t, blockdev.OpWrite, at, endWrite)
		at += int64(n)
	}
}

// vectors appends p to list, or what stands for it on a file system that keeps no file data.
func (rq *request) vectors(list [][]byte, p []byte) [][]byte {
	if !rq.env.NoPayload {
		return append(list, p)
	}
	for n := 0; n < len(p); n += len(blockdev.NoPayload) {
		list = append(list, blockdev.NoPayload[:min(len(p)-n, len(blockdev.NoPayload))])
	}
	return list
}

// endWrite is the end of a bio. It never sleeps. Models btrfs_dio_end_io().
func endWrite(t *sched.Task, bb *blockdev.Bio) {
	b := bb.Private.(*bio)
	rq, oe, err := b.rq, b.oe, bb.Err
	t.Spend(cost.Complete, 1)
	if err != nil {
		err = fmt.Errorf("direct write at %d: %w", b.off, err)
		rq.fail(err)
		rq.ip.SetError(t, err)
	}
	if oe != nil && oe.Done(t, b.n, err) {
		rq.env.Finish.Complete(t, oe)
	}
	rq.put(t)
}

// submitRead starts b as the read of p, from the address at, of [off, off+len(p)) of the file,
// which is locked as lb says until the bytes are there.
func (rq *request) submitRead(t *sched.Task, b *bio, lb extentio.Bits, off uint64, at int64, p []byte) {
	b.oe, b.off, b.n, b.lock, b.let = nil, off, uint64(len(p)), lb, false
	b.vecs = b.vecs[:0]
	if !rq.ip.Sums() {
		b.vecs = rq.vectors(b.vecs, p)
	} else {
		for ; len(p) > 0; p = p[format.SectorSize:] { // each has a checksum
			b.vecs = append(b.vecs, p[:format.SectorSize])
		}
	}
	rq.ip.IOTree.Disown(t, b.off, b.off+b.n, lb)
	b.start(t, blockdev.OpRead, at, endRead)
}

// endRead is the end of a bio. It never sleeps. A queued read leaves its checksums to a worker. A
// synchronous read is checked and unlocked here: its submitter may be waiting for an ordered extent
// whose completion needs this range, so keeping it locked could deadlock. Only a bad sector is left
// to the submitter, which looks for a good copy.
//
// Models btrfs_simple_end_io() and btrfs_dio_end_io(). Difference: there a worker checks every
// read.
func endRead(t *sched.Task, bb *blockdev.Bio) {
	b := bb.Private.(*bio)
	t.Spend(cost.Complete, 1)
	switch rq := b.rq; {
	case !rq.ip.Sums():
		b.checked(t)
		rq.put(t)
	case rq.req.Done != nil:
		rq.env.Finish.Defer(t, finish.CheckRead, &b.check, &rq.ip.DIO)
	default:
		if b.Err == nil && rq.env.Read.Match(b.vecs, &b.sums) {
			b.unlock(t)
		}
		rq.put(t)
	}
}

// Run checks a read with checksums, on a worker.
func (b *bio) Run(t *sched.Task) {
	dio := &b.rq.ip.DIO
	dio.Disown(t) // the queue's
	dio.Adopt(t)
	b.checked(t)
	dio.Disown(t)
	b.rq.put(t)
}

// checked compares what was read with its checksums, if it has any, and lets the range go.
func (b *bio) checked(t *sched.Task) {
	rq := b.rq
	if err := rq.env.Read.CheckSectors(t, rq.ip, b.off, uint64(b.Off), b.vecs, &b.sums, b.Err); err != nil {
		rq.fail(err)
	}
	b.unlock(t)
}

// unlock lets the range of a read go.
func (b *bio) unlock(t *sched.Task) {
	b.let = true
	tree := &b.rq.ip.IOTree
	tree.Adopt(t, b.off, b.off+b.n, b.lock)
	tree.Change(t, b.off, b.off+b.n, b.lock, 0)
}

// fail records the first error.
func (rq *request) fail(err error) { rq.failed.CompareAndSwap(nil, &err) }

// put counts a bio off. The last one ends a request that nobody waits for: here if that cannot
// sleep, else on a worker.
//
// Models iomap_dio_bio_end_io() and, for the choice, dio_bio_end_aio(). Difference: 6.16 leaves the
// end of every write to a worker, or to the submitter of a ring (IOCB_DIO_CALLER_COMP); here, as
// before iomap, only those that find pages to remove.
func (rq *request) put(t *sched.Task) {
	if rq.left.Add(-1) != 0 {
		return
	}
	switch {
	case !rq.queued:
		rq.ended.Store(true) // from here on the request is the submitter's, but for its wait queue
		rq.wait.Wake(t)
	case rq.write && rq.ip.Pages.Pages() > 0:
		rq.env.Finish.Defer(t, finish.EndWrite, &rq.later, &rq.ip.DIO)
	default:
		rq.ip.DIO.Adopt(t)
		rq.endQueued(t, false) // a page that comes from now on is read after the transfer
	}
}

// Run ends a queued request on a worker. Models iomap_dio_complete_work().
func (rq *request) Run(t *sched.Task) {
	if rq.syncs {
		rq.n, rq.err = rq.req.Durable(t, rq.n, rq.err)
		rq.report(t)
		return
	}
	rq.ip.DIO.Disown(t) // the queue's
	rq.ip.DIO.Adopt(t)
	rq.endQueued(t, true)
}

// endQueued ends a queued request, but for the sync of a durable write, which waits for i_rwsem: a
// truncate that has it may wait for i_dio_count, which has gone down by then. sleeps is complete's.
// Models the order of iomap_dio_complete().
func (rq *request) endQueued(t *sched.Task, sleeps bool) {
	rq.complete(t, sleeps)
	if rq.req.Flags&kiocb.DSync != 0 && rq.err == nil && rq.n > 0 {
		rq.syncs = true
		rq.env.Finish.Defer(t, finish.SyncWrite, &rq.later, nil)
		return
	}
	rq.report(t)
}

// report tells the caller of a queued request its end.
func (rq *request) report(t *sched.Task) {
	done, n, err := rq.req.Done, rq.n, rq.err
	rq.release()
	done.Complete(t, n, err)
}

// submitted ends the submitter's part: n bytes of [start, end) are on their way, and err stopped
// it. It reports EIOCBQUEUED, and the request is not the caller's any more, if that wants to be
// told of the end and the device is still busy; else how the request ended.
func (rq *request) submitted(t *sched.Task, start, end uint64, n int, err error) (int, error) {
	rq.start, rq.end, rq.n, rq.err, rq.queued = start, end, n, err, rq.req.Done != nil && err == nil
	if rq.queued {
		// From here on the device has it, which waits for no task.
		rq.ip.DIO.Disown(t)
		if rq.left.Add(-1) != 0 {
			return 0, errno.EIOCBQUEUED
		}
		rq.ip.DIO.Adopt(t)
	} else if rq.left.Add(-1) != 0 {
		rq.wait.Wait(t, rq.ended.Load)
	}
	for i := 0; !rq.write && rq.req.Done == nil && i < rq.used; i++ {
		if b := rq.bios[i]; !b.let {
			b.checked(t)
		}
	}
	rq.complete(t, true)
	n, err = rq.n, rq.err
	rq.release()
	return n, err
}

// complete ends the request, whose n and err are final then. t owes its count. The end of a bio may
// not sleep and removes no page: the task that has the page locked may wait for the device, and the
// device for this end.
//
// Models iomap_dio_complete(), and dio_complete() for DIO_COMPLETE_INVALIDATE, which only a worker
// sets.
func (rq *request) complete(t *sched.Task, sleeps bool) {
	if e := rq.failed.Load(); e != nil {
		rq.n, rq.err = 0, *e
	}
	if rq.sectors {
		// Now that the device has it fsync is to see a reason for a flush; and a snapshot may share
		// the block.
		rq.ip.MarkDirty(t)
		rq.ip.Root.SnapshotLock.WriteUnlockDisowned(t)
	}
	if rq.write && rq.used > 0 && sleeps {
		// A reader, or the source's own page fault, may have brought back what was there before.
		rq.ip.Pages.Invalidate(t, rq.start>>pagecache.PageShift, rq.end>>pagecache.PageShift)
	}
	rq.ip.DIO.Dec(t)
}

// release gives the request back to the pool.
func (rq *request) release() {
	for _, b := range rq.bios[:rq.used] {
		clear(b.vecs)
		b.oe, b.Vecs = nil, nil
	}
	env := rq.env
	rq.used, rq.env, rq.ip, rq.req, rq.err, rq.syncs, rq.sectors = 0, nil, nil, kiocb.Request{}, nil, false, false
	if cap(rq.copies) > keepCopy {
		rq.copies = nil
	}
	rq.copies = rq.copies[:0]
	env.Requests.Put(&rq.Pooled)
}
