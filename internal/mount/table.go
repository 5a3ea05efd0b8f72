package mount

import (
	"sync"
	"sync/atomic"

	"btrlab/internal/fs"
)

// pageLen is the number of slots of a page of a table.
const pageLen = 1024

// table gives objects numbers from 1 on. get takes no lock; a number that was dropped is given
// again.
type table[T any] struct {
	pages atomic.Pointer[[]*[pageLen]atomic.Pointer[T]]

	mu   sync.Mutex // protects what follows, and changes of pages
	free []uint64
	last uint64
}

// get is the object with the number, nil when there is none.
func (b *table[T]) get(id uint64) *T {
	pages := b.pages.Load()
	if pages == nil || id/pageLen >= uint64(len(*pages)) {
		return nil
	}
	return (*pages)[id/pageLen][id%pageLen].Load()
}

// add gives x a number.
func (b *table[T]) add(x *T) uint64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	var id uint64
	if n := len(b.free); n > 0 {
		id, b.free = b.free[n-1], b.free[:n-1]
	} else {
		b.last++
		id = b.last
	}
	var pages []*[pageLen]atomic.Pointer[T]
	if p := b.pages.Load(); p != nil {
		pages = *p
	}
	if id/pageLen >= uint64(len(pages)) {
		// readers may look at the old slice
		grown := append(pages[:len(pages):len(pages)], new([pageLen]atomic.Pointer[T]))
		b.pages.Store(&grown)
		pages = grown
	}
	pages[id/pageLen][id%pageLen].Store(x)
	return id
}

// drop takes the number away from its object, which it returns; nil when there was none.
func (b *table[T]) drop(id uint64) *T {
	if b.get(id) == nil {
		return nil
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	x := (*b.pages.Load())[id/pageLen][id%pageLen].Swap(nil)
	if x != nil {
		b.free = append(b.free, id)
	}
	return x
}

// each calls f with all objects.
func (b *table[T]) each(f func(id uint64, x *T)) {
	b.mu.Lock()
	last := b.last
	b.mu.Unlock()
	for id := uint64(1); id <= last; id++ {
		if x := b.get(id); x != nil {
			f(id, x)
		}
	}
}

// known is a node that the kernel knows by its number.
type known struct {
	n     *fs.Node
	count uint64 // lookups, each with a reference of n; protected by nodes.mu
	pages kernelPages
}

// nodes are the nodes that the kernel knows. A node has one number while it is known: the kernel
// has one inode for each number.
type nodes struct {
	table[known]
	mu  sync.Mutex // taken before table.mu
	ids map[*fs.Node]uint64
}

// of is the node with the number, nil when there is none. The kernel's lookup has a reference.
func (b *nodes) of(id uint64) *fs.Node {
	if k := b.get(id); k != nil {
		return k.n
	}
	return nil
}

// remember counts a lookup of n, whose reference it takes over, and gives n's number.
func (b *nodes) remember(n *fs.Node) uint64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	if id, ok := b.ids[n]; ok {
		b.get(id).count++
		return id
	}
	id := b.add(&known{n: n, count: 1})
	if b.ids == nil {
		b.ids = map[*fs.Node]uint64{}
	}
	b.ids[n] = id
	return id
}

// number is the number of n, 0 when the kernel does not know it.
func (b *nodes) number(n *fs.Node) uint64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.ids[n]
}

// knows reports whether the kernel knows a node of the subvolume.
func (b *nodes) knows(subvol uint64) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	for n := range b.ids {
		if n.Subvol() == subvol {
			return true
		}
	}
	return false
}

// some gives about n numbers of nodes that are known, at random and without the root, if more than
// limit are known.
func (b *nodes) some(n, limit int) (ids []uint64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.ids) <= limit {
		return nil
	}
	for _, id := range b.ids {
		if len(ids) == n {
			break
		}
		if id != 1 {
			ids = append(ids, id)
		}
	}
	return ids
}

// len is the number of nodes that are known.
func (b *nodes) len() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.ids)
}

// forget takes back so many lookups. It returns the node and the references that the caller gives
// back: of lookups that the kernel has.
func (b *nodes) forget(id, count uint64) (*fs.Node, int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	k := b.get(id)
	if k == nil {
		return nil, 0
	}
	count = min(count, k.count)
	if k.count -= count; k.count == 0 {
		delete(b.ids, k.n)
		b.drop(id)
	}
	return k.n, int(count)
}
