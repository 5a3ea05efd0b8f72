package blockdev

// Sparse is a device that knows where it has nothing but zeros without reading.
type Sparse interface {
	Device
	// NextData is the first offset at or after off where there may be other bytes than zeros, or
	// Size. It may name one where there are zeros.
	NextData(off int64) int64
}

// NextData is that of d, through the layers over it; off itself where nobody knows.
func NextData(d Device, off int64) int64 {
	size, shift := d.Size(), int64(0)
	for {
		if s, ok := d.(Sparse); ok {
			return min(s.NextData(off+shift)-shift, size)
		}
		l, ok := d.(Layer)
		if !ok {
			return off
		}
		if s, ok := d.(Shifted); ok {
			shift += s.Offset()
		}
		d = l.Under()
	}
}

// NextData makes Memory Sparse, in chunks.
func (m *Memory) NextData(off int64) int64 {
	for off < m.size {
		li, slot, in := memPlace(off)
		l := m.leaves[li].Load()
		if l == nil {
			off += int64(memLeafSize-slot)*memChunkSize - int64(in)
			continue
		}
		if l[slot].Load() != nil {
			return off
		}
		off += int64(memChunkSize - in)
	}
	return m.size
}
