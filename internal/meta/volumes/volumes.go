// Package volumes maps logical addresses to the device: the chunk map, the mirrors of a chunk, the
// superblock copies, and the making of new chunks out of unallocated device space.
//
// One device; profiles single and DUP. Everything else is refused when its chunk is added, so the
// paths above never meet it.
//
// Lock order:
//
//	chunk_map                 the map is changed (Add, AllocChunk, Remove); leaf
//	bio_list                  the free list of requests (Submit, end of a bio); leaf
//
// Invariants:
//   - The map is never changed in place: readers load a pointer and see one state of it.
//   - Chunks ascend by logical address and overlap neither there nor on the device.
//
// Models fs/btrfs/volumes.c for one device.
package volumes

import (
	"fmt"
	"sort"
	"sync/atomic"

	"btrlab/internal/blockdev"
	"btrlab/internal/errno"
	"btrlab/internal/format"
	"btrlab/internal/lock"
	"btrlab/internal/lock/lockdep"
	"btrlab/internal/sched"
	"btrlab/internal/sched/cost"
)

var (
	mapClass = lockdep.NewClass("chunk_map")
	bioClass = lockdep.NewClass("bio_list")
)

// maxMirrors is the number of copies of a DUP chunk.
const maxMirrors = 2

// minChunk is the smallest chunk that AllocChunk makes when the device is nearly full, in bytes.
const minChunk = 1 << 20

// ChunkInfo is a chunk with the logical address of its first byte.
type ChunkInfo struct {
	Logical uint64
	Chunk   format.Chunk
}

// End is the first logical address after the chunk.
func (c *ChunkInfo) End() uint64 { return c.Logical + c.Chunk.Length }

// hole is free space of the device.
type hole = format.Range[format.Physical]

// chunkMap is one state of the map; it does not change.
type chunkMap struct {
	chunks    []ChunkInfo // ascending
	used      uint64      // physical bytes in chunks
	freeBytes uint64      // physical bytes that chunks could still take
}

func (m *chunkMap) find(logical uint64) *ChunkInfo {
	lo, hi := 0, len(m.chunks)
	for lo < hi {
		mid := int(uint(lo+hi) >> 1)
		if m.chunks[mid].End() <= logical {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	if lo == len(m.chunks) || m.chunks[lo].Logical > logical {
		return nil
	}
	return &m.chunks[lo]
}

// Volumes is the one device of a file system and its chunk map.
type Volumes struct {
	dev        blockdev.Device
	devid      uint64
	devUUID    format.UUID
	total      uint64 // bytes of the device that the file system owns
	sectorSize uint64

	m  atomic.Pointer[chunkMap]
	mu lock.Mutex // class chunk_map: one change of m at a time

	freeMu lock.Mutex // class bio_list; protects free
	free   *request
}

// Open makes the map from the superblock's array of system chunks. The rest comes from the chunk
// tree, by Add.
func Open(dev blockdev.Device, sb *format.Super) (*Volumes, error) {
	v := &Volumes{
		dev: dev, devid: sb.DevItem.Devid, devUUID: sb.DevItem.UUID,
		total: sb.DevItem.TotalBytes, sectorSize: uint64(sb.SectorSize),
	}
	v.mu.Init(mapClass)
	v.freeMu.Init(bioClass)
	v.m.Store(&chunkMap{})
	if sb.NumDevices != 1 {
		return nil, fmt.Errorf("%s: file system has %d devices, only one is supported", dev.Name(), sb.NumDevices)
	}
	if v.sectorSize == 0 || v.sectorSize&(v.sectorSize-1) != 0 {
		return nil, fmt.Errorf("%s: corrupt superblock: bad sectorsize, have %d want a power of two", dev.Name(), sb.SectorSize)
	}
	if v.total > uint64(dev.Size()) {
		return nil, fmt.Errorf("%s: device is shorter than its file system, have %d bytes want %d", dev.Name(), dev.Size(), v.total)
	}
	v.m.Store(&chunkMap{freeBytes: v.freeIn(nil)})
	for a := sb.SysChunkArray; len(a) > 0; {
		if len(a) < format.KeySize+format.ChunkSize(1) {
			return nil, fmt.Errorf("%s: corrupt superblock: bad sys_chunk_array, %d bytes left over", dev.Name(), len(a))
		}
		key := format.DecodeKey(a)
		a = a[format.KeySize:]
		n := format.ChunkStripes(a)
		if key.Type != format.CHUNK_ITEM_KEY || n < 1 || len(a) < format.ChunkSize(n) {
			return nil, fmt.Errorf("%s: corrupt superblock: bad sys_chunk_array, key %v with %d stripes in %d bytes", dev.Name(), key, n, len(a))
		}
		var c format.Chunk
		c.Decode(a)
		a = a[c.Size():]
		if c.Type&format.BlockGroupSystem == 0 {
			return nil, fmt.Errorf("%s: corrupt superblock: bad sys_chunk_array, chunk %d has type %#x want system", dev.Name(), key.Offset, c.Type)
		}
		if err := v.add(ChunkInfo{key.Offset, c}); err != nil {
			return nil, fmt.Errorf("%s: %w", dev.Name(), err)
		}
	}
	return v, nil
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

// Device is the device under the map.
func (v *Volumes) Device() blockdev.Device { return v.dev }

// Devid is the device's number in this file system.
func (v *Volumes) Devid() uint64 { return v.devid }

// TotalBytes is the part of the device that belongs to the file system.
func (v *Volumes) TotalBytes() uint64 { return v.total }

// Add puts a chunk of the chunk tree into the map. A chunk that is there already, equal, is fine.
// Add is for the time before the file system is in use by other tasks.
func (v *Volumes) Add(logical uint64, c format.Chunk) error { return v.add(ChunkInfo{logical, c}) }

func (v *Volumes) add(c ChunkInfo) error {
	if err := v.check(&c); err != nil {
		return err
	}
	m := v.m.Load()
	for i := range m.chunks {
		o := &m.chunks[i]
		if o.Logical == c.Logical && equalMapping(&o.Chunk, &c.Chunk) {
			return nil
		}
		if o.Logical < c.End() && c.Logical < o.End() {
			return fmt.Errorf("corrupt chunk: logical=%d, overlap, have end %d want at most %d or start %d", o.Logical, o.End(), c.Logical, c.End())
		}
		for _, a := range o.Chunk.Stripes {
			for _, b := range c.Chunk.Stripes {
				if a.Offset < b.Offset+c.Chunk.Length && b.Offset < a.Offset+o.Chunk.Length {
					return fmt.Errorf("corrupt chunk: logical=%d, stripe at %d overlaps stripe at %d of chunk %d", c.Logical, b.Offset, a.Offset, o.Logical)
				}
			}
		}
	}
	v.store(m, c)
	return nil
}

// equalMapping leaves out the fields that mkfs writes into the superblock's copy and nobody reads.
func equalMapping(a, b *format.Chunk) bool {
	if a.Length != b.Length || a.Type != b.Type || len(a.Stripes) != len(b.Stripes) {
		return false
	}
	for i := range a.Stripes {
		if a.Stripes[i] != b.Stripes[i] {
			return false
		}
	}
	return true
}

// check checks one chunk by itself.
//
// Models fs/btrfs/tree-checker.c:btrfs_check_chunk_valid().
func (v *Volumes) check(c *ChunkInfo) error {
	bad := func(format string, a ...any) error {
		return fmt.Errorf("corrupt chunk: logical=%d, %s", c.Logical, fmt.Sprintf(format, a...))
	}
	k := &c.Chunk
	want := 1
	switch k.Type & format.BlockGroupProfileMask {
	case 0:
	case format.BlockGroupDup:
		want = 2
	default:
		return bad("unsupported profile, have type %#x want single or dup", k.Type)
	}
	switch {
	case k.Type&format.BlockGroupTypeMask == 0:
		return bad("bad type, have %#x", k.Type)
	case k.Type&^uint64(format.BlockGroupTypeMask|format.BlockGroupProfileMask) != 0:
		return bad("unknown type bits, have %#x", k.Type)
	case len(k.Stripes) != want:
		return bad("bad stripe count, have %d want %d", len(k.Stripes), want)
	case k.StripeLen != format.StripeLen:
		return bad("bad stripe length, have %d want %d", k.StripeLen, format.StripeLen)
	case k.Length == 0 || k.Length%v.sectorSize != 0:
		return bad("bad length, have %d want a multiple of %d", k.Length, v.sectorSize)
	case c.Logical%v.sectorSize != 0:
		return bad("bad start, want a multiple of %d", v.sectorSize)
	case c.Logical+k.Length < c.Logical:
		return bad("bad length, have %d which wraps", k.Length)
	}
	for i, s := range k.Stripes {
		if s.Devid != v.devid || s.DevUUID != v.devUUID {
			return bad("stripe %d on another device, have devid %d want %d", i, s.Devid, v.devid)
		}
		if s.Offset%v.sectorSize != 0 || s.Offset > v.total || k.Length > v.total-s.Offset {
			return bad("stripe %d out of device, have %d+%d want at most %d", i, s.Offset, k.Length, v.total)
		}
	}
	if want == 2 && k.Stripes[0].Offset < k.Stripes[1].Offset+k.Length && k.Stripes[1].Offset < k.Stripes[0].Offset+k.Length {
		return bad("stripes overlap, have %d and %d", k.Stripes[0].Offset, k.Stripes[1].Offset)
	}
	return nil
}

// store publishes m with c added.
func (v *Volumes) store(m *chunkMap, c ChunkInfo) {
	i := sort.Search(len(m.chunks), func(i int) bool { return m.chunks[i].Logical > c.Logical })
	chunks := make([]ChunkInfo, 0, len(m.chunks)+1)
	chunks = append(chunks, m.chunks[:i]...)
	chunks = append(chunks, c)
	chunks = append(chunks, m.chunks[i:]...)
	v.publish(chunks)
}

func (v *Volumes) publish(chunks []ChunkInfo) {
	m := &chunkMap{chunks: chunks, freeBytes: v.freeIn(chunks)}
	for i := range chunks {
		m.used += chunks[i].Chunk.Length * uint64(len(chunks[i].Chunk.Stripes))
	}
	v.m.Store(m)
}

// Remove takes a chunk that AllocChunk made out of the map again: its items could not be inserted.
func (v *Volumes) Remove(t *sched.Task, logical uint64) {
	v.mu.Lock(t)
	defer v.mu.Unlock(t)
	m := v.m.Load()
	chunks := make([]ChunkInfo, 0, len(m.chunks))
	for _, c := range m.chunks {
		if c.Logical != logical {
			chunks = append(chunks, c)
		}
	}
	if len(chunks) == len(m.chunks) {
		panic(fmt.Sprintf("volumes: remove of unknown chunk %d", logical))
	}
	v.publish(chunks)
}

// Chunks lists the chunks, ascending. The caller must not change the slice.
func (v *Volumes) Chunks() []ChunkInfo { return v.m.Load().chunks }

// Lookup finds the chunk that holds the logical address.
func (v *Volumes) Lookup(logical uint64) (ChunkInfo, bool) {
	c := v.m.Load().find(logical)
	if c == nil {
		return ChunkInfo{}, false
	}
	return *c, true
}

// Mirrors is the number of copies of the byte at logical: 1 single, 2 DUP, 0 when no chunk has it.
func (v *Volumes) Mirrors(logical uint64) int {
	c := v.m.Load().find(logical)
	if c == nil {
		return 0
	}
	return len(c.Chunk.Stripes)
}

// ChunkEnd is the end of the chunk that holds logical, or logical itself when no chunk has it: a
// bio that starts at logical must end there.
func (v *Volumes) ChunkEnd(logical uint64) uint64 {
	c := v.m.Load().find(logical)
	if c == nil {
		return logical
	}
	return c.End()
}

// mapping finds the chunk that has all of [logical, logical+n).
func (v *Volumes) mapping(logical, n uint64) (*ChunkInfo, error) {
	c := v.m.Load().find(logical)
	if c == nil {
		return nil, fmt.Errorf("no chunk: %w", errno.EIO)
	}
	if n > c.End()-logical {
		return nil, fmt.Errorf("crosses the end of its chunk at %d: %w", c.End(), errno.EIO)
	}
	return c, nil
}

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

// Flush makes every completed write durable.
func (v *Volumes) Flush(t *sched.Task) error {
	if t.Tracing() {
		tracedBio(t, blockdev.OpFlush, 0)
	}
	if err := blockdev.Flush(t, v.dev); err != nil {
		return fmt.Errorf("flush %s: %w", v.dev.Name(), err)
	}
	return nil
}

// WriteSupers makes sb the state of the file system: all that was written before becomes durable,
// then the first n copies that are in range are written, the primary last, and made durable. n is
// format.SuperMirrorMax for a commit; 1, the primary only, is enough for what a mount of the
// primary must find at once.
//
// Models fs/btrfs/disk-io.c:write_all_supers(). Difference: the primary comes last, so that a crash
// among the copies leaves the old state.
func (v *Volumes) WriteSupers(t *sched.Task, sb *format.Super, n int) error {
	if err := v.Flush(t); err != nil {
		return err
	}
	return v.PutSupers(t, sb, n)
}

// PutSupers is WriteSupers without the flush before: the superblock may become durable before what
// it names.
func (v *Volumes) PutSupers(t *sched.Task, sb *format.Super, n int) error {
	b := make([]byte, format.SuperSize)
	sb.Encode(b)
	for i := n - 1; i >= 0; i-- {
		off := format.SuperMirror(i)
		if i > 0 && off+format.SuperSize >= v.total {
			continue
		}
		format.SetBytenr(b, off)
		if t.Tracing() {
			tracedBio(t, blockdev.OpWrite, len(b))
		}
		if err := blockdev.Write(t, v.dev, b, int64(off)); err != nil {
			return fmt.Errorf("write superblock copy %d of %s: %w", i, v.dev.Name(), err)
		}
	}
	return v.Flush(t)
}

// holes lists the device ranges that a chunk may take: free, not below format.BlockReserved, starts
// aligned to format.StripeLen; ascending.
func (v *Volumes) holes(chunks []ChunkInfo) []hole {
	var used []hole
	for i := range chunks {
		for _, s := range chunks[i].Chunk.Stripes {
			used = append(used, format.RangeOf(format.Physical(s.Offset), chunks[i].Chunk.Length))
		}
	}
	sort.Slice(used, func(i, j int) bool { return used[i].Start < used[j].Start })
	var holes []hole
	pos := format.Physical(format.BlockReserved)
	upTo := func(end format.Physical) {
		if h := format.Between(format.AlignUp(pos, format.StripeLen), end); !h.Empty() {
			holes = append(holes, h)
		}
	}
	for _, u := range used {
		upTo(u.Start)
		pos = max(pos, u.End)
	}
	upTo(format.Physical(v.total))
	return holes
}

func (v *Volumes) freeIn(chunks []ChunkInfo) uint64 {
	var n uint64
	for _, h := range v.holes(chunks) {
		n += format.AlignDown(h.Len(), format.StripeLen)
	}
	return n
}

// AllocChunk makes a chunk of type and profile typ, size bytes of logical space, and adds it to the
// map; its items in the chunk, device and extent trees are the caller's. When the device has no
// hole of that size the chunk gets smaller, down to 1 MiB; then it is ENOSPC.
//
// Models fs/btrfs/volumes.c:btrfs_create_chunk(): logical addresses are never used twice, the new
// chunk starts where the last one ends.
func (v *Volumes) AllocChunk(t *sched.Task, typ uint64, size uint64) (ChunkInfo, error) {
	n := 1
	switch typ & format.BlockGroupProfileMask {
	case 0:
	case format.BlockGroupDup:
		n = 2
	default:
		panic(fmt.Sprintf("volumes: chunk of unsupported type %#x", typ))
	}
	v.mu.Lock(t)
	defer v.mu.Unlock(t)
	m := v.m.Load()
	holes := v.holes(m.chunks)
	size = min(format.AlignDown(size, format.StripeLen), largestStripe(holes, n))
	if size < minChunk {
		return ChunkInfo{}, errno.ENOSPC
	}
	c := ChunkInfo{Chunk: format.Chunk{
		Length: size, Owner: format.EXTENT_TREE_OBJECTID, StripeLen: format.StripeLen, Type: typ,
		IOAlign: format.StripeLen, IOWidth: format.StripeLen, SectorSize: uint32(v.sectorSize), SubStripes: 1,
	}}
	if k := len(m.chunks); k > 0 {
		c.Logical = format.AlignUp(m.chunks[k-1].End(), format.StripeLen)
	} else {
		c.Logical = format.BlockReserved
	}
	for _, h := range holes {
		for ; len(c.Chunk.Stripes) < n && h.Len() >= size; h.Start += format.Physical(size) {
			c.Chunk.Stripes = append(c.Chunk.Stripes, format.Stripe{Devid: v.devid, Offset: uint64(h.Start), DevUUID: v.devUUID})
		}
	}
	if len(c.Chunk.Stripes) != n {
		panic(fmt.Sprintf("volumes: %d stripes of %d bytes, want %d", len(c.Chunk.Stripes), size, n))
	}
	v.store(m, c)
	return c, nil
}

// largestStripe is the largest size, a multiple of format.StripeLen, of which n (1 or 2) stripes
// fit the holes: both in the largest one, or the second in the second largest.
func largestStripe(holes []hole, n int) uint64 {
	var first, second uint64
	for _, h := range holes {
		if n := h.Len(); n > first {
			first, second = n, first
		} else {
			second = max(second, n)
		}
	}
	if n == 2 {
		first = max(first/2, second)
	}
	return format.AlignDown(first, format.StripeLen)
}

// BytesUsed is the physical bytes in chunks, as DEV_ITEM counts them.
func (v *Volumes) BytesUsed() uint64 { return v.m.Load().used }

// FreeDeviceBytes is the physical bytes that new chunks could take.
func (v *Volumes) FreeDeviceBytes() uint64 { return v.m.Load().freeBytes }

// SuperLogical lists the logical ranges of c that lie on a superblock copy: the 64 KiB at each
// copy, in every stripe. They are never allocated. Ascending, not overlapping.
//
// Models fs/btrfs/block-group.c:exclude_super_stripes().
func (v *Volumes) SuperLogical(c ChunkInfo) []format.Range[format.Logical] {
	var out []format.Range[format.Logical]
	for i := range format.SuperMirrorMax {
		super := format.RangeOf(format.Physical(format.SuperMirror(i)), format.StripeLen)
		for _, s := range c.Chunk.Stripes {
			stripe := format.RangeOf(format.Physical(s.Offset), c.Chunk.Length)
			if both := super.Intersect(stripe); !both.Empty() {
				in := uint64(both.Start - stripe.Start)
				out = append(out, format.RangeOf(format.Logical(c.Logical+in), both.Len()))
			}
		}
	}
	sort.Slice(out, func(i, j int) bool { return out[i].Start < out[j].Start })
	merged := out[:0]
	for _, r := range out {
		if k := len(merged) - 1; k >= 0 && r.Start <= merged[k].End {
			merged[k].End = max(merged[k].End, r.End)
			continue
		}
		merged = append(merged, r)
	}
	return merged
}
