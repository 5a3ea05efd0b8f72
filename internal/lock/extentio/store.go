package extentio

import (
	"fmt"
	"slices"
)

// state is a range [start, end) whose bytes all have bits.
type state struct {
	start, end uint64
	bits       Bits
}

// store is a sorted sequence of states, kept in chunks of at most chunkMax with a directory of the
// chunks' first starts. A search is two binary searches over adjacent memory; an insert moves half
// a chunk. Chunks are recycled, so a tree that has grown once does not allocate.
type store struct {
	keys   []uint64 // keys[i] == chunks[i][0].start
	chunks [][]state
	free   [][]state
	small  []state // a recycled chunk of less than full size
	last   pos     // where the last search ended: a write locks, marks and unlocks one range
	sought uint64  // what it was for
}

const (
	chunkMax  = 64 // states in a chunk
	chunkFill = 44 // states in a chunk after a rebuild of many
	chunkLow  = 12 // a chunk with fewer is joined with a neighbour
	freeMax   = 16 // recycled chunks kept
	// states after the last place in which a search looks first: what a lock inserts before it
	nearMax   = 2
	nearBytes = 1 << 20
)

// pos is the place of a state, or of the end. It is valid until the next splice.
type pos struct{ c, i int }

// find is the place of the first state that ends after off. What is far from the last place is not
// looked for there: that would touch memory for nothing.
func (s *store) find(off uint64) pos {
	ok, p := false, pos{}
	if off-s.sought < nearBytes {
		p, ok = s.near(off)
	}
	if !ok {
		p = s.search(off)
	}
	s.last, s.sought = p, off
	return p
}

// near is find within the few states from the last place on, in one chunk; it reports false when
// the place may be elsewhere.
func (s *store) near(off uint64) (pos, bool) {
	p := s.last
	if p.c >= len(s.chunks) {
		return pos{}, false
	}
	c := s.chunks[p.c]
	if p.i > 0 && p.i <= len(c) && c[p.i-1].end > off || p.i == 0 && c[0].start > off {
		return pos{}, false
	}
	for end := min(p.i+nearMax+1, len(c)); p.i < end; p.i++ {
		if off < c[p.i].end {
			return p, true
		}
	}
	return pos{}, false
}

// search is find by two binary searches.
func (s *store) search(off uint64) pos {
	lo, hi := 0, len(s.keys) // the last chunk that starts at or before off is lo-1
	for lo < hi {
		m := int(uint(lo+hi) >> 1)
		if s.keys[m] <= off {
			lo = m + 1
		} else {
			hi = m
		}
	}
	if lo == 0 {
		return pos{}
	}
	c := s.chunks[lo-1]
	a, b := 0, len(c)
	for a < b {
		m := int(uint(a+b) >> 1)
		if c[m].end <= off {
			a = m + 1
		} else {
			b = m
		}
	}
	if a == len(c) {
		return pos{lo, 0}
	}
	return pos{lo - 1, a}
}

// at is the state at p, nil at the end.
func (s *store) at(p pos) *state {
	if p.c >= len(s.chunks) {
		return nil
	}
	return &s.chunks[p.c][p.i]
}

func (s *store) next(p pos) pos {
	if p.i++; p.i == len(s.chunks[p.c]) {
		return pos{p.c + 1, 0}
	}
	return p
}

func (s *store) prev(p pos) (pos, bool) {
	if p.i > 0 {
		return pos{p.c, p.i - 1}, true
	}
	if p.c > 0 {
		return pos{p.c - 1, len(s.chunks[p.c-1]) - 1}, true
	}
	return p, false
}

func (s *store) len() int {
	n := 0
	for _, c := range s.chunks {
		n += len(c)
	}
	return n
}

// splice replaces the n states from p on by with, which the store copies.
func (s *store) splice(p pos, n int, with []state) {
	if p.c == len(s.chunks) { // at the end: after the last state
		if p.c == 0 {
			if len(with) == 0 {
				return
			}
			s.keys = append(s.keys, 0)
			s.chunks = append(s.chunks, s.firstChunk())
		} else {
			p = pos{p.c - 1, len(s.chunks[p.c-1])}
		}
	}
	c := s.chunks[p.c]
	size := len(c) - n + len(with)
	if p.i+n > len(c) || size > chunkMax {
		s.rebuild(p, n, with)
		return
	}
	if size > cap(c) {
		g := s.newChunk(min(chunkMax, 4*size))
		g = append(g, c...)
		s.recycle(c)
		c = g
	}
	old := len(c)
	c = c[:max(old, size)]
	copy(c[p.i+len(with):], c[p.i+n:old])
	copy(c[p.i:], with)
	s.chunks[p.c] = c[:size]
	if size == 0 {
		s.drop(p.c)
		return
	}
	s.keys[p.c] = c[0].start
	if size < chunkLow && len(with) < n {
		s.join(p.c)
	}
}

// rebuild is splice over a chunk's border: it writes the chunks concerned anew.
func (s *store) rebuild(p pos, n int, with []state) {
	last, over := p.c, p.i+n // the first state kept after the run is chunks[last][over]
	for over > len(s.chunks[last]) {
		over -= len(s.chunks[last])
		last++
	}
	head, tail := s.chunks[p.c][:p.i], s.chunks[last][over:]
	total := len(head) + len(with) + len(tail)
	var made [][]state
	var keys []uint64
	var fixed [4][]state // the usual case, one chunk to two, does not allocate
	var fixedKeys [4]uint64
	made, keys = fixed[:0], fixedKeys[:0]
	count := (total + chunkFill - 1) / chunkFill
	parts := [3][]state{head, with, tail}
	for k := range count {
		size := total*(k+1)/count - total*k/count
		c := s.newChunk(chunkMax)
		for i := range parts {
			m := min(size-len(c), len(parts[i]))
			c = append(c, parts[i][:m]...)
			parts[i] = parts[i][m:]
		}
		made, keys = append(made, c), append(keys, c[0].start)
	}
	for _, c := range s.chunks[p.c : last+1] {
		s.recycle(c)
	}
	s.chunks = slices.Replace(s.chunks, p.c, last+1, made...)
	s.keys = slices.Replace(s.keys, p.c, last+1, keys...)
}

// join puts a small chunk together with a neighbour when both fit well into one.
func (s *store) join(i int) {
	if i > 0 && len(s.chunks[i-1])+len(s.chunks[i]) <= chunkFill {
		i--
	} else if i+1 == len(s.chunks) || len(s.chunks[i])+len(s.chunks[i+1]) > chunkFill {
		return
	}
	l, r := s.chunks[i], s.chunks[i+1]
	if cap(l) < len(l)+len(r) {
		g := append(s.newChunk(chunkMax), l...)
		s.recycle(l)
		l = g
	}
	s.chunks[i] = append(l, r...)
	s.drop(i + 1)
}

func (s *store) drop(i int) {
	s.recycle(s.chunks[i])
	if i == len(s.chunks)-1 { // as always when nothing but a lock was there
		s.chunks[i] = nil
		s.chunks, s.keys = s.chunks[:i], s.keys[:i]
		return
	}
	s.chunks = slices.Delete(s.chunks, i, i+1)
	s.keys = slices.Delete(s.keys, i, i+1)
}

func (s *store) newChunk(size int) []state {
	if n := len(s.free); n > 0 {
		c := s.free[n-1]
		s.free = s.free[:n-1]
		return c[:0]
	}
	return make([]state, 0, size)
}

// firstChunk is for a store that is empty: a range lock's is so between most of its uses.
func (s *store) firstChunk() []state {
	if c := s.small; c != nil {
		s.small = nil
		return c[:0]
	}
	return s.newChunk(4)
}

// recycle keeps full-size chunks, so that newChunk may hand out any, and one small one for
// firstChunk.
func (s *store) recycle(c []state) {
	switch {
	case cap(c) < chunkMax:
		s.small = c
	case len(s.free) < freeMax:
		s.free = append(s.free, c)
	}
}

// check verifies the directory.
func (s *store) check() error {
	if len(s.keys) != len(s.chunks) {
		return fmt.Errorf("io tree: %d keys for %d chunks", len(s.keys), len(s.chunks))
	}
	for i, c := range s.chunks {
		if len(c) == 0 || len(c) > chunkMax || s.keys[i] != c[0].start {
			return fmt.Errorf("io tree: chunk %d of %d states, key %d", i, len(c), s.keys[i])
		}
	}
	return nil
}
