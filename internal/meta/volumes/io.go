package volumes

import (
	"fmt"
	"sync/atomic"

	"btrlab/internal/blockdev"
	"btrlab/internal/errno"
	"btrlab/internal/sched"
	"btrlab/internal/sched/cost"
)

// maxMirrors is the number of copies of a DUP chunk.
const maxMirrors = 2

// Read fills p from one mirror. The range lies in one chunk.
func (v *Volumes) Read(t *sched.Task, p []byte, logical uint64, mirror int) error {
	c, err := v.mapping(logical, uint64(len(p)))
	if err == nil && mirror >= len(c.Chunk.Stripes) {
		err = errno.EIO
	}
	if err == nil {
		if t.Tracing() {
			tracedBio(t, blockdev.OpRead, len(p))
		}
		err = blockdev.Read(t, v.dev, p, int64(c.Chunk.Stripes[mirror].Offset+(logical-c.Logical)))
	}
	if err != nil {
		return fmt.Errorf("read logical %d len %d mirror %d: %w", logical, len(p), mirror, err)
	}
	return nil
}

// Write writes p to every mirror. The range lies in one chunk. It is durable after Flush.
func (v *Volumes) Write(t *sched.Task, p []byte, logical uint64) error {
	return blockdev.Do(t, v, &blockdev.Bio{Op: blockdev.OpWrite, Off: int64(logical), Vecs: [][]byte{p}})
}

// request is a logical bio on its way: one bio per mirror.
type request struct {
	v       *Volumes
	logical *blockdev.Bio
	left    atomic.Int32 // mirrors whose end has not come
	failed  atomic.Bool
	next    *request // free list
	retry   int64    // device offset of the other mirror of a read, -1 for none
	bio     [maxMirrors]blockdev.Bio
	err     [maxMirrors]error
}

func (v *Volumes) newRequest(t *sched.Task, b *blockdev.Bio) *request {
	// Nobody waits for the list: a NOWAIT request comes here too.
	var r *request
	if v.freeMu.TryLock(t) {
		if r = v.free; r != nil {
			v.free = r.next
		}
		v.freeMu.Unlock(t)
	}
	if r == nil {
		r = &request{v: v}
		for i := range r.bio {
			r.bio[i].EndIO = endMirror
			r.bio[i].Private = r
		}
	}
	r.logical, r.next, r.retry = b, nil, -1
	r.failed.Store(false)
	r.err = [maxMirrors]error{}
	return r
}

// Submit starts a bio whose Off is a logical address; the range lies in one chunk, or the bio ends
// with EIO. A write goes to every mirror; a read to the first, and to the second when that fails.
// EndIO of b is called once, after all mirrors; Off of b is unchanged.
//
// Models fs/btrfs/bio.c:btrfs_submit_bio(). Difference: a write that fails on one of two mirrors is
// an error, where the kernel counts it in the device's statistics and goes on.
func (v *Volumes) Submit(t *sched.Task, b *blockdev.Bio) {
	t.Spend(cost.Submit, 1)
	t.Spend(cost.Vec, len(b.Vecs))
	b.Err = nil
	if b.Op == blockdev.OpFlush {
		v.start(t, b)
		return
	}
	n := b.Len()
	c, err := v.mapping(uint64(b.Off), uint64(n))
	if err != nil {
		b.Err = fmt.Errorf("%v logical %d len %d: %w", b.Op, b.Off, n, err)
		b.EndIO(t, b)
		return
	}
	r := v.newRequest(t, b)
	delta := b.Off - int64(c.Logical)
	stripes := c.Chunk.Stripes
	mirrors := 1
	if b.Op == blockdev.OpWrite {
		mirrors = len(stripes)
	} else if len(stripes) > 1 {
		r.retry = int64(stripes[1].Offset) + delta
	}
	r.left.Store(int32(mirrors))
	for i := range mirrors {
		m := &r.bio[i]
		m.Op, m.Off, m.Vecs, m.Err = b.Op, int64(stripes[i].Offset)+delta, b.Vecs, nil
	}
	// The end of the last mirror gives r back, so r is not touched after its submit.
	for i := range mirrors {
		v.start(t, &r.bio[i])
	}
}

// start gives a bio to the device.
func (v *Volumes) start(t *sched.Task, b *blockdev.Bio) {
	if t.Tracing() {
		tracedBio(t, b.Op, b.Len())
	}
	v.dev.Submit(t, b)
}

// tracedBio tells a tracer of a bio of n bytes.
func tracedBio(t *sched.Task, op blockdev.Op, n int) {
	what := "R"
	switch op {
	case blockdev.OpWrite:
		what = "W"
	case blockdev.OpFlush:
		what = "F"
	}
	t.Trace(sched.TraceEvent{Name: "block_bio_queue", What: what, Len: uint64(n)})
}

// endMirror is the end of one mirror's bio.
func endMirror(t *sched.Task, m *blockdev.Bio) {
	r := m.Private.(*request)
	v := r.v
	if m.Err != nil {
		if r.retry >= 0 {
			// A submit may sleep, the end of a bio may not: the second read has a task of its own.
			off := r.retry
			r.retry = -1
			t.Go("mirror-read", func(t *sched.Task) {
				m.Off, m.Err = off, nil
				v.start(t, m)
			})
			return
		}
		for i := range r.bio {
			if m == &r.bio[i] {
				r.err[i] = m.Err
			}
		}
		r.failed.Store(true)
	}
	if r.left.Add(-1) > 0 {
		return
	}
	b := r.logical
	b.Err = nil
	if r.failed.Load() {
		for i, err := range r.err {
			if err != nil {
				b.Err = fmt.Errorf("%v logical %d len %d mirror %d: %w", b.Op, b.Off, b.Len(), i, err)
				break
			}
		}
	}
	r.logical = nil
	for i := range r.bio {
		r.bio[i].Vecs = nil
	}
	if v.freeMu.TryLock(t) {
		r.next = v.free
		v.free = r
		v.freeMu.Unlock(t)
	}
	b.EndIO(t, b)
}

// Forget tells a device that makes use of it that nobody will read n bytes at logical before they
// are written again.
func (v *Volumes) Forget(logical, n uint64) {
	dev, ok := v.dev.(blockdev.Forgetter)
	if !ok {
		return
	}
	if c, err := v.mapping(logical, n); err == nil {
		for _, s := range c.Chunk.Stripes {
			dev.Forget(int64(s.Offset+logical-c.Logical), int64(n))
		}
	}
}
