// Package extentmap remembers, per inode, which file extent covers which bytes, so that a read or
// the writeback of a NOCOW range need not search the tree again.
//
// Model: fs/btrfs/extent_map.c. Differences: a map is what the tree says, never what writeback is
// about to write, because fsync logs from the tree and the ordered extents, and needs no list of
// modified maps; and a map may carry the verdict that its bytes can be overwritten in place, which
// the kernel asks the trees for each time. Of maps that are joined the older generation counts, not
// the younger one: what is asked of it is whether a snapshot has the extent.
//
// Whoever changes file extents holds the extent lock of the range, changes the tree, then calls
// Drop. Whoever reads the tree takes Gen first and passes it to Insert, which refuses when any Drop
// came in between.
//
// Lock order:
//
//	extent             of the range: changers and readers of the tree hold it
//	  extent_map       Cache.mu, a leaf
package extentmap

import (
	"fmt"
	"math"
	"sync/atomic"

	"github.com/tidwall/btree"

	"btrlab/internal/lock"
	"btrlab/internal/lock/lockdep"
	"btrlab/internal/sched"
)

var class = lockdep.NewClass("extent_map")

// Kind is the state of a range of a file.
type Kind uint8

// The kinds.
const (
	Hole     Kind = iota
	Regular       // data on disk
	Prealloc      // space on disk that reads as zero
	Inline        // in the tree; not cached here beyond its place
)

var kindNames = [...]string{"hole", "regular", "prealloc", "inline"}

func (k Kind) String() string { return kindNames[k] }

// Map is one range [Start, End) of a file, in bytes.
type Map struct {
	Start, End uint64
	Kind       Kind
	// Nocow says that the trees were asked and allow to overwrite the range in place.
	Nocow       bool
	Compression uint8
	// DiskBytenr is the logical address of the byte at Start; of a compressed extent that of the
	// extent; 0 for a hole or inline.
	DiskBytenr uint64
	// ExtentBytenr and ExtentLen are the whole extent on disk; ExtentOffset is where Start lies in
	// its data, which is longer when it is compressed.
	ExtentBytenr, ExtentLen, ExtentOffset uint64
	Generation                            uint64
}

// Bytenr is the logical address of file offset off; the map is not compressed.
func (m *Map) Bytenr(off uint64) uint64 { return m.DiskBytenr + off - m.Start }

// advance cuts the front off, up to start.
func (m Map) advance(start uint64) Map {
	d := start - m.Start
	m.Start = start
	m.ExtentOffset += d
	if m.DiskBytenr != 0 && m.Compression == 0 {
		m.DiskBytenr += d
	}
	return m
}

// join adds n, which begins where m ends, if the extent on disk goes on there and the same is known
// of it. Models mergeable_maps() and try_merge_map().
func (m *Map) join(n Map) bool {
	if n.Kind != m.Kind || n.Nocow != m.Nocow || m.DiskBytenr == 0 || m.Compression != 0 || n.Compression != 0 ||
		n.ExtentBytenr != m.ExtentBytenr || n.ExtentOffset != m.ExtentOffset+m.End-m.Start {
		return false
	}
	m.End, m.Generation = n.End, min(m.Generation, n.Generation)
	return true
}

// Cache is the maps of one inode.
type Cache struct {
	gen atomic.Uint64
	n   atomic.Int64
	mu  lock.RWSem              // leaf; protects the fields below
	by  *btree.Map[uint64, Map] // by Start
	// last is the map of the last Insert as long as nothing of it was dropped, or empty: most files
	// that are written in place are one extent, and its map is found without a search.
	last Map

	data sched.Shared // by, to an explorer
}

// nameMaps is the name of the maps in reports of data races.
const nameMaps = sched.Label("extent maps")

// Init makes an empty cache.
func (c *Cache) Init() { c.mu.Init(class) }

// Gen is the state of the cache for Insert: take it before the tree is read.
func (c *Cache) Gen() uint64 { return c.gen.Load() }

// Len is the number of maps.
func (c *Cache) Len() int { return int(c.n.Load()) }

// Lookup finds the map that covers off.
func (c *Cache) Lookup(t *sched.Task, off uint64) (m Map, ok bool) {
	if c.n.Load() == 0 {
		return Map{}, false
	}
	c.mu.RLock(t)
	c.data.Read(t, nameMaps)
	m, ok = c.atLocked(t, off)
	c.mu.RUnlock(t)
	return m, ok
}

func (c *Cache) atLocked(t *sched.Task, off uint64) (m Map, ok bool) {
	c.mu.AssertRHeld(t)
	if c.last.Start <= off && off < c.last.End {
		return c.last, true
	}
	c.by.Descend(off, func(_ uint64, e Map) bool {
		m, ok = e, off < e.End
		return false
	})
	return m, ok
}

// Insert adds what the tree said about [m.Start, m.End), in place of what was known, unless
// something was dropped since gen. It reports whether it did. Maps that go on in each other become
// one: the blocks of a preallocated extent that were written one by one.
func (c *Cache) Insert(t *sched.Task, m Map, gen uint64) bool {
	if m.Start >= m.End {
		panic(fmt.Sprintf("extentmap: insert [%d, %d)", m.Start, m.End))
	}
	c.mu.Lock(t)
	defer c.mu.Unlock(t)
	if c.gen.Load() != gen {
		return false
	}
	if c.by == nil {
		c.by = btree.NewMap[uint64, Map](0)
	}
	c.data.Write(t, nameMaps)
	c.cutLocked(t, m.Start, m.End)
	if m.Start > 0 {
		if prev, ok := c.atLocked(t, m.Start-1); ok && prev.join(m) {
			m = prev
		}
	}
	if next, ok := c.by.Get(m.End); ok && m.join(next) {
		c.by.Delete(next.Start)
	}
	c.by.Set(m.Start, m)
	c.last = m
	c.n.Store(int64(c.by.Len()))
	return true
}

// Drop forgets [start, end); math.MaxUint64 as end is all the rest.
func (c *Cache) Drop(t *sched.Task, start, end uint64) {
	c.gen.Add(1)
	if c.n.Load() == 0 {
		// An Insert that has seen the old gen cannot be under way any more once we have passed its
		// lock, but one that took the lock before us may have added a map.
		c.mu.RLock(t)
		n := c.n.Load()
		c.mu.RUnlock(t)
		if n == 0 {
			return
		}
	}
	c.mu.Lock(t)
	if c.by != nil {
		c.data.Write(t, nameMaps)
		c.cutLocked(t, start, end)
		c.n.Store(int64(c.by.Len()))
	}
	c.mu.Unlock(t)
}

// DropAll forgets everything.
func (c *Cache) DropAll(t *sched.Task) { c.Drop(t, 0, math.MaxUint64) }

// cutLocked removes [start, end) from all maps.
func (c *Cache) cutLocked(t *sched.Task, start, end uint64) {
	c.mu.AssertHeld(t)
	if c.last.Start < end && start < c.last.End {
		c.last = Map{}
	}
	if e, ok := c.atLocked(t, start); ok && e.Start < start {
		head := e
		head.End = start
		c.by.Set(head.Start, head)
		if e.End > end {
			c.by.Set(end, e.advance(end))
		}
	}
	for {
		var e Map
		found := false
		c.by.Ascend(start, func(_ uint64, m Map) bool {
			e, found = m, m.Start < end
			return false
		})
		if !found {
			return
		}
		c.by.Delete(e.Start)
		if e.End > end {
			c.by.Set(end, e.advance(end))
		}
	}
}
