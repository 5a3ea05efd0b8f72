package fio

import "math/bits"

// random is splitmix64: one addition and a few shifts per number, any seed is good.
type random uint64

func (r *random) next() uint64 {
	*r += 0x9e3779b97f4a7c15
	z := uint64(*r)
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

// below is uniform in [0, n) up to a bias of n/2^64.
func (r *random) below(n uint64) uint64 {
	hi, _ := bits.Mul64(r.next(), n)
	return hi
}

// fill fills p with random bytes.
func (r *random) fill(p []byte) {
	for len(p) > 0 {
		x := r.next()
		for i := 0; i < 8 && i < len(p); i++ {
			p[i] = byte(x >> (8 * i))
		}
		p = p[min(8, len(p)):]
	}
}

// blockMap remembers which blocks of a region were used, and finds the next one that was not: a
// bitmap with summaries, where a set bit in level n+1 says that 64 blocks of level n are all used.
//
// Models fio lib/axmap.c.
type blockMap struct {
	levels [][]uint64
	n      uint64 // blocks
}

func newBlockMap(n uint64) *blockMap {
	m := &blockMap{n: n}
	for size := n; ; size = (size + 63) / 64 {
		words := make([]uint64, (size+63)/64)
		m.levels = append(m.levels, words)
		if len(words) <= 1 {
			break
		}
	}
	m.reset()
	return m
}

// reset marks every block unused; the bits beyond the end stay used.
func (m *blockMap) reset() {
	size := m.n
	for _, words := range m.levels {
		clear(words)
		if r := size % 64; r != 0 {
			words[len(words)-1] = ^uint64(0) << r
		}
		size = (size + 63) / 64
	}
}

func (m *blockMap) used(b uint64) bool { return m.levels[0][b/64]>>(b%64)&1 != 0 }

func (m *blockMap) set(b uint64) {
	for _, words := range m.levels {
		words[b/64] |= 1 << (b % 64)
		if words[b/64] != ^uint64(0) {
			return
		}
		b /= 64
	}
}

// take marks up to want blocks from b on, and stops at one that is used. It returns how many.
func (m *blockMap) take(b uint64, want int) int {
	n := 0
	for n < want && b < m.n && !m.used(b) {
		m.set(b)
		b++
		n++
	}
	return n
}

// free finds the first unused block at or after b, and from the start when there is none.
func (m *blockMap) free(b uint64) (uint64, bool) {
	if r, ok := m.freeFrom(b); ok {
		return r, true
	}
	return m.freeFrom(0)
}

func (m *blockMap) freeFrom(b uint64) (uint64, bool) {
	for l := 0; l < len(m.levels); l++ {
		if b/64 >= uint64(len(m.levels[l])) {
			return 0, false
		}
		if w := ^m.levels[l][b/64] >> (b % 64); w != 0 {
			b += uint64(bits.TrailingZeros64(w))
			for ; l > 0; l-- { // down to the leaf: the first that is not full
				b = b*64 + uint64(bits.TrailingZeros64(^m.levels[l-1][b]))
			}
			return b, true
		}
		b = b/64 + 1
	}
	return 0, false
}

// region is where and how one task works: the next offset and length for each direction.
type region struct {
	rnd    random
	start  int64 // bytes: [start, start+blocks*unit) of the file
	unit   int64 // bytes: offsets are multiples of it from start
	blocks uint64
	random bool
	bmap   *blockMap // nil: norandommap, or sequential
	bs     [2][]BlockShare
	// blocks: where the sequential stream, or what follows a random request, goes on
	pos     [2]uint64
	skip    int64  // blocks between two requests of a stream
	follow  int    // requests that go on where a random one ended, with it
	left    [2]int // of them
	dist    picker // nil: uniform
	mixRead uint64 // percent
	both    bool
	onlyDir int
}

// direction picks read or write.
func (g *region) direction() int {
	if !g.both {
		return g.onlyDir
	}
	if g.rnd.below(100) < g.mixRead {
		return DirRead
	}
	return DirWrite
}

func (g *region) size(dir int) int {
	s := g.bs[dir]
	if len(s) == 1 {
		return s[0].Size
	}
	if s[0].Percent == 0 && s[len(s)-1].Percent == 0 {
		return s[g.rnd.below(uint64(len(s)))].Size // bsrange
	}
	r := int(g.rnd.below(100))
	for _, b := range s {
		if r -= b.Percent; r < 0 {
			return b.Size
		}
	}
	return s[len(s)-1].Size
}

// next is the next request. ok is false when every block has been used once (random with a map) or
// the stream reached the end of the region; reset starts over.
func (g *region) next(dir int) (off int64, n int, ok bool) {
	n = g.size(dir)
	units := int((int64(n) + g.unit - 1) / g.unit)
	var b uint64
	switch {
	case g.random:
		if b = g.pos[dir]; g.left[dir] == 0 || b >= g.blocks {
			b, g.left[dir] = g.pick(), g.follow
		}
		if g.bmap != nil {
			if b, ok = g.bmap.free(b); !ok {
				return 0, 0, false
			}
			if got := g.bmap.take(b, units); got < units {
				units = got
				n = int(int64(got) * g.unit)
			}
		}
		g.left[dir]--
	case g.skip != 0:
		b = g.skipped(g.pos[dir])
	default:
		if b = g.pos[dir]; b >= g.blocks {
			return 0, 0, false
		}
	}
	g.pos[dir] = b + uint64(units)
	if left := g.blocks - b; uint64(units) > left {
		n = int(int64(left) * g.unit)
	}
	return g.start + int64(b)*g.unit, n, true
}

// pick is a random block.
func (g *region) pick() uint64 {
	if g.dist == nil {
		return g.rnd.below(g.blocks)
	}
	return g.dist.pick(&g.rnd, g.blocks)
}

// skipped is where a stream with gaps goes on whose last request ended at block b. Beyond the end
// of the region it begins again, backwards at the end. Models get_next_seq_offset().
func (g *region) skipped(b uint64) uint64 {
	at := int64(b)
	// the first: a stream that goes forward is sent to the begin, one that goes backwards comes
	// from the end
	if at == 0 {
		at = int64(g.blocks)
	}
	if at += g.skip; at >= 0 && at < int64(g.blocks) {
		return uint64(at)
	}
	if g.skip > 0 {
		return 0
	}
	return uint64(max(0, int64(g.blocks)+g.skip))
}

func (g *region) reset() {
	g.pos, g.left = [2]uint64{}, [2]int{}
	if g.bmap != nil {
		g.bmap.reset()
	}
}
