package blockdev

import (
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"

	"btrlab/internal/sched"
	"btrlab/internal/sched/cost"
)

// A memory device is a two-level table of chunks. A chunk that was never written is not there and
// reads as zeros, so a device of a terabyte costs a table of 32,768 pointers until it is filled.
const (
	memChunkShift = 16 // 64 KiB
	memChunkSize  = 1 << memChunkShift
	memLeafShift  = 9 // chunks in a leaf: 512, or 32 MiB
	memLeafSize   = 1 << memLeafShift
)

// memEpoch numbers the periods between two snapshots of one device. A chunk belongs to the epoch
// that wrote it first; a device writes only chunks of its own epoch in place.
var memEpoch atomic.Uint64

// NoPayload stands for bytes that nobody wants to see again. A memory device neither stores a
// transfer from it nor fills it, so that an experiment that only counts and times costs no memory
// for data. What it holds means nothing.
var NoPayload [4096]byte

type memChunk struct {
	epoch uint64
	mu    sync.Mutex // held for a copy into data; protects the two below
	kept  uint16     // a bit for each 4 KiB that Forget must not drop
	gone  bool       // Forget has dropped the chunk
	data  [memChunkSize]byte
}

// memKept are the bits of memChunk.kept of the bytes [from, to) of a chunk, those of a block in
// part too.
func memKept(from, to int) uint16 {
	const block = memChunkSize / 16
	return uint16(1<<((to+block-1)/block) - 1<<(from/block))
}

type memLeaf [memLeafSize]atomic.Pointer[memChunk]

// Memory is a sparse device in memory. It completes every bio in Submit. Of bios that overlap in
// time and place some parts may be the one's and some the other's, as on any device; two writes do
// not mix inside a sector, a read and a write may.
type Memory struct {
	name    string
	size    int64
	epoch   uint64
	writing atomic.Int64 // writes inside Submit
	copying atomic.Bool  // a Snapshot is under way, which has snapMu
	snapMu  sync.Mutex
	leaves  []atomic.Pointer[memLeaf]
}

// NewMemory makes a device of size zero bytes.
func NewMemory(size int64) *Memory { return newMemory("memory", size) }

func newMemory(name string, size int64) *Memory {
	if size < 0 {
		panic(fmt.Sprintf("blockdev: memory device of %d bytes", size))
	}
	span := int64(memChunkSize * memLeafSize)
	return &Memory{
		name:   name,
		size:   size,
		epoch:  memEpoch.Add(1),
		leaves: make([]atomic.Pointer[memLeaf], (size+span-1)/span),
	}
}

// Name is "memory".
func (m *Memory) Name() string { return m.name }

// Size is in bytes.
func (m *Memory) Size() int64 { return m.size }

// Close keeps the contents: a memory device is forgotten with its last reference.
func (m *Memory) Close() error { return nil }

// Submit does b and ends it.
func (m *Memory) Submit(t *sched.Task, b *Bio) {
	t.Enter(sched.PointDevice, WaitClass.ID, m)
	if !b.DMA && t.Simulator() != nil {
		t.Spend(cost.Cold, 1)
		t.Spend(cost.Media, b.Len())
	}
	b.Err = m.do(b)
	b.EndIO(t, b)
}

func (m *Memory) do(b *Bio) error {
	if err := CheckRange(m, b); err != nil {
		return err
	}
	switch b.Op {
	case OpRead:
		off := b.Off
		for _, v := range b.Vecs {
			m.read(v, off)
			off += int64(len(v))
		}
	case OpWrite:
		m.enter()
		off := b.Off
		for _, v := range b.Vecs {
			m.write(v, off)
			off += int64(len(v))
		}
		m.writing.Add(-1)
	}
	return nil
}

// enter begins a write, which lowers writing at its end. It waits while a Snapshot is under way.
func (m *Memory) enter() {
	if m.writing.Add(1); m.copying.Load() {
		m.writing.Add(-1)
		m.snapMu.Lock()
		m.writing.Add(1)
		m.snapMu.Unlock()
	}
}

// memPlace splits a device offset.
func memPlace(off int64) (leaf, slot, in int) {
	c := off >> memChunkShift
	return int(c >> memLeafShift), int(c & (memLeafSize - 1)), int(off & (memChunkSize - 1))
}

func (m *Memory) read(p []byte, off int64) {
	if len(p) > 0 && &p[0] == &NoPayload[0] {
		return
	}
	for len(p) > 0 {
		li, slot, in := memPlace(off)
		n := min(len(p), memChunkSize-in)
		var c *memChunk
		if l := m.leaves[li].Load(); l != nil {
			c = l[slot].Load()
		}
		if c == nil {
			clear(p[:n])
		} else {
			c.read(p[:n], in)
		}
		p, off = p[n:], off+int64(n)
	}
}

// read copies from data. A write may be at work in it: on a device that is no error, and the race
// detector is not to see one.
func (c *memChunk) read(p []byte, in int) {
	if sched.UnderRace {
		c.mu.Lock()
		defer c.mu.Unlock()
	}
	copy(p, c.data[in:])
}

func (m *Memory) write(p []byte, off int64) {
	if len(p) > 0 && &p[0] == &NoPayload[0] {
		return
	}
	for len(p) > 0 {
		li, slot, in := memPlace(off)
		c := m.chunk(li, slot)
		c.mu.Lock()
		if c.gone {
			c.mu.Unlock()
			continue // there is another one now
		}
		n := copy(c.data[in:], p)
		c.kept |= memKept(in, in+n)
		c.mu.Unlock()
		p, off = p[n:], off+int64(n)
	}
}

// chunk returns a chunk that may be written in place: it makes one, or copies one that a snapshot
// shares. Two writers that both do so agree on the first one's.
func (m *Memory) chunk(li, slot int) *memChunk {
	l := m.leaves[li].Load()
	if l == nil {
		l = new(memLeaf)
		if !m.leaves[li].CompareAndSwap(nil, l) {
			l = m.leaves[li].Load()
		}
	}
	for {
		old := l[slot].Load()
		if old != nil && old.epoch == m.epoch {
			return old
		}
		c := &memChunk{epoch: m.epoch}
		if old != nil {
			c.data, c.kept = old.data, 0xffff
		}
		if l[slot].CompareAndSwap(old, c) {
			return c
		}
	}
}

// Forget makes Memory a Forgetter, for whole blocks of 4 KiB. A chunk of which nothing else was
// written is not kept, unless a snapshot has it as well.
func (m *Memory) Forget(off, n int64) {
	m.enter()
	defer m.writing.Add(-1)
	for n > 0 {
		li, slot, in := memPlace(off)
		part := min(n, int64(memChunkSize-in))
		if l := m.leaves[li].Load(); l != nil {
			if c := l[slot].Load(); c != nil && c.epoch == m.epoch {
				c.mu.Lock()
				c.kept &^= memKept(in, in+int(part))
				if c.kept == 0 && !c.gone {
					c.gone = true
					l[slot].Store(nil)
				}
				c.mu.Unlock()
			}
		}
		off, n = off+part, n-part
	}
}

// Snapshot returns a device with the present contents. Both may be written from now on; a chunk is
// copied when one of them writes it first. Of a write of another task the snapshot has all or
// nothing.
func (m *Memory) Snapshot() *Memory {
	m.snapMu.Lock()
	defer m.snapMu.Unlock()
	m.copying.Store(true)
	defer m.copying.Store(false)
	for m.writing.Load() != 0 {
		runtime.Gosched()
	}
	s := newMemory(m.name, m.size)
	for i := range m.leaves {
		l := m.leaves[i].Load()
		if l == nil {
			continue
		}
		c := new(memLeaf)
		for j := range l {
			c[j].Store(l[j].Load())
		}
		s.leaves[i].Store(c)
	}
	m.epoch = memEpoch.Add(1)
	return s
}

// Allocated is the number of bytes that chunks hold, those shared with snapshots included.
func (m *Memory) Allocated() int64 {
	var n int64
	for i := range m.leaves {
		if l := m.leaves[i].Load(); l != nil {
			for j := range l {
				if l[j].Load() != nil {
					n += memChunkSize
				}
			}
		}
	}
	return n
}
