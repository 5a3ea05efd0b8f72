package iopath

import "sync/atomic"

// poolSize is how many objects a Pool keeps.
const poolSize = 512

// Pool keeps the objects of a room for its next requests. It takes no lock, because a NOWAIT
// request comes here as well, and is no scheduling point: an object is made ready by the task that
// gets it. The zero value is empty.
type Pool struct {
	n     atomic.Int64 // about where the free slots begin
	slots [poolSize]atomic.Pointer[Pooled]
}

// Pooled links an object into a pool. Keep it in the object.
type Pooled struct {
	// Of is the object, set when it is made.
	Of any
}

// Get takes an object, or nil: the caller makes one.
func (p *Pool) Get() any {
	i := p.n.Add(-1)
	if i < 0 {
		p.n.Add(1)
		return nil
	}
	// A Put that has counted, and not stored yet, loses its place to the next one.
	if i < poolSize {
		if x := p.slots[i].Swap(nil); x != nil {
			return x.Of
		}
	}
	return nil
}

// Put gives an object back; a full pool drops it.
func (p *Pool) Put(x *Pooled) {
	i := p.n.Add(1) - 1
	if i >= 0 && i < poolSize {
		p.slots[i].CompareAndSwap(nil, x)
	} else if i >= poolSize {
		p.n.Add(-1)
	}
}
