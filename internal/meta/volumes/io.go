package volumes

import (
	"fmt"
	"slices"
	"sync/atomic"

	"btrlab/internal/blockdev"
	"btrlab/internal/errno"
	"btrlab/internal/format"
	"btrlab/internal/sched"
	"btrlab/internal/sched/cost"
)

// maxCopies is the number of copies of a RAID1C4 chunk.
const maxCopies = 4

// Read fills p from one mirror. The range lies in one chunk.
func (v *Volumes) Read(t *sched.Task, p []byte, logical uint64, mirror int) error {
	c, err := v.mapping(logical, uint64(len(p)))
	for n := 0; err == nil && n < len(p); {
		at := c.locate(logical + uint64(n) - c.Logical)
		end := n + int(min(uint64(len(p)-n), at.Len))
		err = v.readPiece(t, p[n:end], c, at, mirror)
		n = end
	}
	if err != nil {
		return fmt.Errorf("read logical %d len %d mirror %d: %w", logical, len(p), mirror, err)
	}
	return nil
}

// readPiece fills p from one mirror of a piece.
func (v *Volumes) readPiece(t *sched.Task, p []byte, c *ChunkInfo, at format.Piece, mirror int) error {
	switch {
	case mirror < at.Copies:
		if t.Tracing() {
			tracedBio(t, blockdev.OpRead, len(p))
		}
		return blockdev.Read(t, c.devs[at.First+mirror].Device, p, c.offset(at, mirror))
	case mirror < c.profile.Mirrors(len(c.devs)):
		return c.recover(t, [][]byte{p}, at, mirror)
	}
	return errno.EIO
}

// offset is where copy i of a piece lies on its device.
func (c *ChunkInfo) offset(at format.Piece, i int) int64 {
	return int64(c.Chunk.Stripes[at.First+i].Offset + at.Off)
}

// Write writes p to every mirror. The range lies in one chunk. It is durable after Flush.
func (v *Volumes) Write(t *sched.Task, p []byte, logical uint64) error {
	return blockdev.Do(t, v, &blockdev.Bio{Op: blockdev.OpWrite, Off: int64(logical), Vecs: [][]byte{p}})
}

// request is a bio of one piece on its way: one bio per copy.
type request struct {
	v       *Volumes
	logical *blockdev.Bio
	copies  int
	left    atomic.Int32 // copies whose end has not come
	failed  atomic.Bool
	next    *request // free list
	bio     [maxCopies]blockdev.Bio
	err     [maxCopies]error

	// Of a read.
	c      *ChunkInfo
	at     format.Piece
	mirror int // that is read
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
	r.logical, r.next, r.mirror = b, nil, 0
	return r
}

// Submit starts a bio whose Off is a logical address; the range lies in one chunk, or the bio ends
// with EIO. A write goes to every mirror; a read to the first, and to the next when that fails.
// EndIO of b is called once, after all mirrors; Off of b is unchanged.
//
// Models fs/btrfs/bio.c:btrfs_submit_bio(). Differences: a write that fails on one of several
// mirrors is an error, where the kernel counts it in the device's statistics and goes on; a read
// begins at the first mirror, where the kernel chooses one by the task's number.
func (v *Volumes) Submit(t *sched.Task, b *blockdev.Bio) {
	t.Spend(cost.Submit, 1)
	t.Spend(cost.Vec, len(b.Vecs))
	b.Err = nil
	n := uint64(b.Len())
	c, err := v.mapping(uint64(b.Off), n)
	parity := err == nil && c.profile.Parity > 0 && b.Op == blockdev.OpWrite
	if parity && (uint64(b.Off)|n)%format.SectorSize != 0 {
		err = fmt.Errorf("not of whole sectors of %d: %w", format.SectorSize, errno.EINVAL)
	}
	if err != nil {
		b.Err = fmt.Errorf("%v logical %d len %d: %w", b.Op, b.Off, n, err)
		b.EndIO(t, b)
		return
	}
	if parity {
		v.submitRows(t, b, c, n)
	} else if at := c.locate(uint64(b.Off) - c.Logical); n <= at.Len {
		v.submitPiece(t, b, c, at)
	} else {
		v.submitSplit(t, b, c, n)
	}
}

// submitPiece starts a bio that lies in one piece.
func (v *Volumes) submitPiece(t *sched.Task, b *blockdev.Bio, c *ChunkInfo, at format.Piece) {
	r := v.newRequest(t, b)
	var devs [maxCopies]*Device
	copies := 0
	for i := range at.Copies {
		d := c.devs[at.First+i]
		if b.Op == blockdev.OpWrite && d.missing && at.Copies > 1 {
			continue // the other copies have it
		}
		m := &r.bio[copies]
		m.Op, m.Off, m.Vecs, m.Err = b.Op, c.offset(at, i), b.Vecs, nil
		devs[copies] = d
		if copies++; b.Op != blockdev.OpWrite {
			r.c, r.at = c, at
			break
		}
	}
	if copies == 0 { // of more devices than the profile bears
		copies, devs[0] = 1, c.devs[at.First]
		r.bio[0].Op, r.bio[0].Off, r.bio[0].Vecs, r.bio[0].Err = b.Op, c.offset(at, 0), b.Vecs, nil
	}
	r.copies = copies
	r.left.Store(int32(copies))
	// The end of the last copy gives r back, so r is not touched after its submit.
	for i := range copies {
		start(t, devs[i], &r.bio[i])
	}
}

// split is a bio that lies in several pieces.
type split struct {
	whole *blockdev.Bio
	left  atomic.Int32 // pieces whose end has not come, and the submitter
	err   atomic.Pointer[error]
}

// submitSplit starts a bio of n bytes piece by piece. Models btrfs_submit_bbio() with
// btrfs_split_bio().
func (v *Volumes) submitSplit(t *sched.Task, b *blockdev.Bio, c *ChunkInfo, n uint64) {
	s := &split{whole: b}
	s.left.Store(1)
	for from := uint64(0); from < n; {
		at := c.locate(uint64(b.Off) + from - c.Logical)
		k := min(n-from, at.Len)
		s.left.Add(1)
		v.submitPiece(t, &blockdev.Bio{Op: b.Op, Off: b.Off + int64(from), Vecs: cut(b.Vecs, int(from), int(k)), EndIO: endPiece, Private: s}, c, at)
		from += k
	}
	s.end(t)
}

func endPiece(t *sched.Task, b *blockdev.Bio) {
	s := b.Private.(*split)
	if b.Err != nil {
		s.err.CompareAndSwap(nil, &b.Err)
	}
	s.end(t)
}

func (s *split) end(t *sched.Task) {
	if s.left.Add(-1) > 0 {
		return
	}
	if err := s.err.Load(); err != nil {
		s.whole.Err = *err
	}
	s.whole.EndIO(t, s.whole)
}

// cut is the n bytes of vecs that begin from bytes after their start.
func cut(vecs [][]byte, from, n int) (out [][]byte) {
	for _, p := range vecs {
		skip := min(from, len(p))
		p = p[skip:]
		from -= skip
		if p = p[:min(n, len(p))]; len(p) > 0 {
			out = append(out, p)
			n -= len(p)
		}
	}
	return out
}

// start gives a bio to a device.
func start(t *sched.Task, d *Device, b *blockdev.Bio) {
	if t.Tracing() {
		tracedBio(t, b.Op, b.Len())
	}
	d.Device.Submit(t, b)
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

// nextMirror reads r from the mirror after one that failed. A submit may sleep, the end of a bio
// may not: it runs in a task of its own.
func (r *request) nextMirror(t *sched.Task) {
	m := &r.bio[0]
	m.Err = nil
	if r.mirror < r.at.Copies {
		m.Off = r.c.offset(r.at, r.mirror)
		start(t, r.c.devs[r.at.First+r.mirror], m)
		return
	}
	m.Err = r.c.recover(t, m.Vecs, r.at, r.mirror)
	endMirror(t, m)
}

// endMirror is the end of one copy's bio.
func endMirror(t *sched.Task, m *blockdev.Bio) {
	r := m.Private.(*request)
	v := r.v
	if m.Err != nil {
		if m.Op == blockdev.OpRead && r.mirror+1 < r.c.profile.Mirrors(len(r.c.devs)) {
			r.mirror++
			t.Go("mirror-read", r.nextMirror)
			return
		}
		for i := range r.copies {
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
		b.Err = r.failure()
	}
	r.logical = nil
	for i := range r.copies {
		r.bio[i].Vecs = nil
	}
	if v.freeMu.TryLock(t) {
		r.next = v.free
		v.free = r
		v.freeMu.Unlock(t)
	}
	b.EndIO(t, b)
}

// failure is the error of the first copy that failed, which r forgets.
func (r *request) failure() error {
	b := r.logical
	i := slices.IndexFunc(r.err[:], func(err error) bool { return err != nil })
	err := fmt.Errorf("%v logical %d len %d mirror %d: %w", b.Op, b.Off, b.Len(), r.mirror+i, r.err[i])
	r.failed.Store(false)
	r.err = [maxCopies]error{}
	return err
}

// Discard gives the place of n bytes at logical, which nothing refers to, back to the devices:
// EOPNOTSUPP when one of them cannot, and of a profile with parity, where a row is given back whole
// or not at all. Models btrfs_discard_extent().
func (v *Volumes) Discard(t *sched.Task, logical, n uint64) error {
	c, err := v.mapping(logical, n)
	if err != nil {
		return err
	}
	if c.profile.Parity > 0 {
		return errno.EOPNOTSUPP
	}
	for n > 0 {
		at := c.locate(logical - c.Logical)
		k := min(n, at.Len)
		for i := range at.Copies {
			if d := c.devs[at.First+i]; !d.missing {
				if err := blockdev.Discard(t, d.Device, c.offset(at, i), int64(k)); err != nil {
					return err
				}
			}
		}
		logical, n = logical+k, n-k
	}
	return nil
}

// DiscardUnused gives the places of no chunk back to the devices, but for the copies of the
// superblock, in ranges of at least least bytes; no chunk is made meanwhile. It returns how many
// bytes that was. Models btrfs_trim_free_extents().
func (v *Volumes) DiscardUnused(t *sched.Task, least uint64) (bytes uint64, err error) {
	chunks := v.Chunks()
	for _, d := range v.devices {
		for _, h := range d.holes(chunks) {
			for _, part := range clearOfSupers(h) {
				if part.Len() < least {
					continue
				}
				if err := blockdev.Discard(t, d.Device, int64(part.Start), int64(part.Len())); err != nil {
					return bytes, err
				}
				bytes += part.Len()
			}
		}
	}
	return bytes, nil
}

// Forget tells a device that makes use of it that nobody will read n bytes at logical before they
// are written again. Bytes of a row with parity are read with the rest of the row, and stay.
func (v *Volumes) Forget(logical, n uint64) {
	c, err := v.mapping(logical, n)
	if err != nil || c.profile.Parity > 0 {
		return
	}
	for n > 0 {
		at := c.locate(logical - c.Logical)
		k := min(n, at.Len)
		for i := range at.Copies {
			if dev, ok := c.devs[at.First+i].Device.(blockdev.Forgetter); ok {
				dev.Forget(c.offset(at, i), int64(k))
			}
		}
		logical, n = logical+k, n-k
	}
}
