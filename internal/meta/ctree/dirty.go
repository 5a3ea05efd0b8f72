package ctree

import (
	"fmt"
	"slices"
	"sync/atomic"

	"btrlab/internal/blockdev"
	"btrlab/internal/lock"
	"btrlab/internal/sched"
	"btrlab/internal/sched/cost"
)

// dirtyShards is the number of locks of a DirtySet.
const dirtyShards = 16

// DirtySet is the blocks that one transaction has made and not written: its tasks add to it at
// once.
//
// Models btrfs_transaction.dirty_pages.
type DirtySet struct {
	shards [dirtyShards]dirtyShard
	count  atomic.Int64 // of all lists, for a look without their locks

	// Left are the blocks that the device has and the tree has left while this set was its own. The
	// allocator keeps it, for trees of logs only, and protects it.
	Left []uint64
}

type dirtyShard struct {
	mu   lock.Mutex // leaf; protects list and the dirtyAt of its buffers
	list []*Buffer
}

// NewDirtySet makes an empty set.
func NewDirtySet() *DirtySet {
	d := &DirtySet{}
	for i := range d.shards {
		d.shards[i].mu.Init(classCache)
	}
	return d
}

func (d *DirtySet) shard(b *Buffer) *dirtyShard {
	return &d.shards[(b.Bytenr>>12)*0x9e3779b97f4a7c15>>60]
}

func (d *DirtySet) add(t *sched.Task, b *Buffer) {
	s := d.shard(b)
	s.mu.Lock(t)
	b.dirtyAt = len(s.list)
	s.list = append(s.list, b)
	s.mu.Unlock(t)
	d.count.Add(1)
}

// Remove takes b out of the set: a block that is freed before it was written.
func (d *DirtySet) Remove(t *sched.Task, b *Buffer) {
	s := d.shard(b)
	s.mu.Lock(t)
	if b.dirtyAt < 0 || b.dirtyAt >= len(s.list) || s.list[b.dirtyAt] != b {
		panic(fmt.Sprintf("ctree: block %d is not in the dirty set", b.Bytenr))
	}
	last := len(s.list) - 1
	s.list[b.dirtyAt] = s.list[last]
	s.list[b.dirtyAt].dirtyAt = b.dirtyAt
	s.list[last] = nil
	s.list = s.list[:last]
	b.dirtyAt = -1
	s.mu.Unlock(t)
	d.count.Add(-1)
}

// Count is Len without a lock.
func (d *DirtySet) Count() int64 { return d.count.Load() }

// Len is how many blocks the set has.
func (d *DirtySet) Len(t *sched.Task) int {
	n := 0
	for i := range d.shards {
		s := &d.shards[i]
		s.mu.Lock(t)
		n += len(s.list)
		s.mu.Unlock(t)
	}
	return n
}

// Buffers lists the set by address, ascending.
func (d *DirtySet) Buffers(t *sched.Task) []*Buffer {
	var all []*Buffer
	for i := range d.shards {
		s := &d.shards[i]
		s.mu.Lock(t)
		all = append(all, s.list...)
		s.mu.Unlock(t)
	}
	slices.SortFunc(all, func(a, b *Buffer) int {
		if a.Bytenr < b.Bytenr {
			return -1
		}
		return 1
	})
	return all
}

// Seal marks every block of the set as written: from now on a change copies it. After that tasks of
// the next transaction may use the trees while WriteOut works.
//
// Preconditions:
//   - No task of the set's transaction changes a tree any more.
func (f *Forest) Seal(t *sched.Task, d *DirtySet) {
	for _, b := range d.Buffers(t) {
		b.Lock(t)
		b.Node.SetWritten(true)
		b.Unlock(t)
	}
}

// writeBytesMax bounds one bio of WriteOut.
const writeBytesMax = 512 << 10

// chunkEnder is a blockdev.Submitter that knows where the chunk of an address ends. A
// bio lies in one chunk.
type chunkEnder interface {
	ChunkEnd(logical uint64) uint64
}

// boundary is an end that a bio from logical on must not cross.
func boundary(w blockdev.Submitter, logical uint64) uint64 {
	if c, ok := w.(chunkEnder); ok {
		return c.ChunkEnd(logical)
	}
	return logical/chunkAlign*chunkAlign + chunkAlign
}

// chunkAlign divides the address of every chunk.
const chunkAlign = 64 << 10

// WriteOut checks, checksums and writes the blocks of a sealed set and waits until all are written;
// they are durable after the next flush. A block that breaks a rule stops it before anything is
// submitted. After an error all blocks stay dirty and cached, because the device does not have
// them.
//
// Models fs/btrfs/disk-io.c:btree_csum_one_bio() and
// transaction.c:btrfs_write_and_wait_transaction().
func (f *Forest) WriteOut(t *sched.Task, d *DirtySet, w blockdev.Submitter) error {
	fl, err := f.StartOut(t, d, w)
	if err != nil {
		return err
	}
	return fl.End(t)
}

// StartOut is WriteOut up to the wait, which is Flight.End. Models btrfs_write_marked_extents().
func (f *Forest) StartOut(t *sched.Task, d *DirtySet, w blockdev.Submitter) (*Flight, error) {
	all := d.Buffers(t)
	for _, b := range all {
		if err := f.checkOut(b); err != nil {
			return nil, err
		}
		// Readers of the block and tasks that copy it do not look at the checksum.
		b.Node.UpdateCsum(f.cfg.Csum)
		t.Spend(cost.CheckBlock, 1)
		t.Spend(cost.Checksum, len(b.Node))
	}
	fl := &Flight{forest: f, blocks: all}
	fl.left.Init(classWrite)
	size := uint64(f.cfg.NodeSize)
	for i := 0; i < len(all); {
		end := min(boundary(w, all[i].Bytenr), all[i].Bytenr+writeBytesMax)
		j := i + 1
		for j < len(all) && all[j].Bytenr == all[j-1].Bytenr+size && all[j].Bytenr+size <= end {
			j++
		}
		bio := &blockdev.Bio{Op: blockdev.OpWrite, Off: int64(all[i].Bytenr), Vecs: make([][]byte, 0, j-i),
			EndIO: writeEnd, Private: fl}
		for _, b := range all[i:j] {
			bio.Vecs = append(bio.Vecs, b.Node)
		}
		fl.left.Inc(t)
		w.Submit(t, bio)
		i = j
	}
	return fl, nil
}

// Discard forgets the blocks of a set that nobody will write: a log that a commit makes needless.
// No task uses their trees.
func (f *Forest) Discard(t *sched.Task, d *DirtySet) {
	for _, b := range d.Buffers(t) {
		d.Remove(t, b)
		f.cache.setDirty(b, false)
		f.cache.drop(t, b)
	}
}

// checkOut judges a block that is about to be written.
func (f *Forest) checkOut(b *Buffer) error {
	n := b.Node
	if !n.Written() {
		panic(fmt.Sprintf("ctree: block %d is written out but not sealed", b.Bytenr))
	}
	if n.Bytenr() != b.Bytenr || n.Level() != b.level || n.Generation() != b.generation || n.Owner() != b.owner {
		panic(fmt.Sprintf("ctree: block %d level %d generation %d owner %d, but its header says %d %d %d %d",
			b.Bytenr, b.level, b.generation, b.owner, n.Bytenr(), n.Level(), n.Generation(), n.Owner()))
	}
	if err := f.checkNode(n, b.owner, b.generation, b.level); err != nil {
		return fmt.Errorf("not written: %w", err)
	}
	return nil
}

// Flight is the blocks of a sealed set on their way to the device.
type Flight struct {
	forest *Forest
	blocks []*Buffer
	left   lock.Counter               // bios
	err    atomic.Pointer[writeError] // the first
}

// Wait waits until the device has all blocks. Any task may call it, at any time. Models
// btrfs_wait_tree_log_extents().
func (fl *Flight) Wait(t *sched.Task) error {
	fl.left.WaitZero(t)
	if e := fl.err.Load(); e != nil {
		return e.err
	}
	return nil
}

// End is Wait for the task of StartOut, which calls it once: from here on the blocks are clean.
func (fl *Flight) End(t *sched.Task) error {
	if err := fl.Wait(t); err != nil {
		return err
	}
	for _, b := range fl.blocks {
		fl.forest.cache.setDirty(b, false)
	}
	fl.forest.cache.trim(t)
	return nil
}

type writeError struct{ err error }

func writeEnd(t *sched.Task, b *blockdev.Bio) {
	fl := b.Private.(*Flight)
	if b.Err != nil {
		fl.err.CompareAndSwap(nil, &writeError{fmt.Errorf("write tree blocks at %d len %d: %w", b.Off, b.Len(), b.Err)})
	}
	fl.left.Dec(t)
}
