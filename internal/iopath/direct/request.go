package direct

import (
	"fmt"
	"sync/atomic"

	"btrlab/internal/blockdev"
	"btrlab/internal/data/inode"
	"btrlab/internal/data/ordered"
	"btrlab/internal/format"
	"btrlab/internal/iopath"
	"btrlab/internal/lock"
	"btrlab/internal/sched"
	"btrlab/internal/sched/cost"
)

// maxBio bounds a bio, in bytes. Models BIO_MAX_VECS pages.
const maxBio = 1 << 20

// request is the I/O of one direct write: its bios, of which the submitter waits for the last. Models struct iomap_dio.
type request struct {
	env    *iopath.Env
	ip     *inode.Inode
	left   atomic.Int64 // bios that have not ended, and one for the submitter
	failed atomic.Pointer[error]
	done   lock.WaitQueue
	first  bio // most requests have one
}

// bio is one transfer of a request: a part of an ordered extent.
type bio struct {
	blockdev.Bio
	rq  *request
	oe  *ordered.Extent
	off uint64 // in the file, for errors
	vec [1][]byte
}

func newRequest(env *iopath.Env, ip *inode.Inode) *request {
	rq := &request{env: env, ip: ip}
	rq.left.Store(1)
	rq.done.Init(blockdev.WaitClass)
	return rq
}

// submit starts the write of data to the place of oe. The memory is the device's until wait returns. A file with checksums is
// written from a copy: the caller may change its memory meanwhile, and the checksum must fit what the device got.
func (rq *request) submit(t *sched.Task, oe *ordered.Extent, data []byte) {
	if rq.ip.Sums() {
		data = append([]byte(nil), data...)
		t.Spend(cost.Copy, len(data))
		t.Spend(cost.Checksum, len(data))
		sums := oe.SumsBuffer()
		for s := data; len(s) > 0; s = s[format.SectorSize:] {
			sums = append(sums, format.CRC32C(s[:format.SectorSize]))
		}
		oe.SetSums(t, sums)
	}
	// The end of the last bio may finish and recycle the extent. From here on it is the device's, which waits for no task.
	t.Discharge(oe)
	at, off := int64(oe.DiskBytenr), oe.Start
	for len(data) > 0 {
		n := min(len(data), maxBio)
		b := &rq.first
		if b.rq != nil {
			b = new(bio)
		}
		b.rq, b.oe, b.off, b.vec[0] = rq, oe, off, data[:n]
		b.Bio = blockdev.Bio{Op: blockdev.OpWrite, Off: at, Vecs: b.vec[:], EndIO: endWrite, Private: b}
		data, at, off = data[n:], at+int64(n), off+uint64(n)
		rq.left.Add(1)
		rq.env.Device.Submit(t, &b.Bio)
	}
}

// endWrite is the end of a bio. It never sleeps. Models btrfs_dio_end_io().
func endWrite(t *sched.Task, bb *blockdev.Bio) {
	b := bb.Private.(*bio)
	rq, oe, n, err := b.rq, b.oe, uint64(len(b.vec[0])), bb.Err
	t.Spend(cost.Complete, 1)
	if err != nil {
		err = fmt.Errorf("direct write at %d: %w", b.off, err)
		rq.failed.CompareAndSwap(nil, &err)
		rq.ip.SetError(t, err)
	}
	if oe.Done(n, err) {
		rq.env.Finish.Complete(t, oe)
	}
	rq.put(t)
}

// put counts a bio, or the submitter, off.
func (rq *request) put(t *sched.Task) {
	if rq.left.Add(-1) == 0 {
		rq.done.Wake(t)
	}
}

// wait waits until every bio has ended and returns the first error.
func (rq *request) wait(t *sched.Task) error {
	if rq.left.Add(-1) != 0 {
		rq.done.Wait(t, func() bool { return rq.left.Load() == 0 })
	}
	if e := rq.failed.Load(); e != nil {
		return *e
	}
	return nil
}
