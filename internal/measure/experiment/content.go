package experiment

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"math"
	"sort"
	"strings"

	"btrlab/internal/measure/fio"
	"btrlab/internal/sched"
)

// Every block that is written says who wrote it. A block is 4 KiB, or as much of it as the job's
// requests are made of, at least a sector of 512 bytes. It is lines of 64 bytes; each line begins
// with the stamp of its write, so that a block made of two writes shows where one ends and the
// other begins.
//
//	line 0      stamp, offset in the file (8 bytes), crc32c of the two (4 bytes), the writer's pattern
//	line 1..    stamp, the writer's pattern
//
// A stamp is run (16 bits), writer (8), sequence (40). The pattern depends on the writer alone: a
// write costs the runner 64 stores, and the reader can still compare every byte.
//
// What a block may hold is exact. Writers note when each write started and ended. A write is
// allowed at the end of a run when no other write to its block started after it had ended: the
// older would have to come after the newer. So it is allowed if and only if it ended no earlier
// than the latest start of a write to its block. Two writes that ran at the same time may end up in
// either order; a block that mixes them breaks the block contract, which every policy has to keep:
// the page lock makes a copy into a page whole, and the device a write of sectors.
const (
	blockSize  = 4096 // the largest block
	minBlock   = 512
	lineSize   = 64
	maxWriters = 255
	fillWriter = 255 // who wrote the file before the first run
	maxRuns    = 1<<16 - 1
)

type stamp uint64

func makeStamp(run, writer int, seq uint64) stamp {
	return stamp(uint64(run)<<48 | uint64(writer)<<40 | seq&(1<<40-1))
}

func (s stamp) run() int    { return int(s >> 48) }
func (s stamp) writer() int { return int(s >> 40 & 0xff) }
func (s stamp) seq() uint64 { return uint64(s) & (1<<40 - 1) }
func (s stamp) String() string {
	return fmt.Sprintf("run %d writer %d write %d", s.run(), s.writer(), s.seq())
}

// unknown stands for what a block with a finding holds.
const unknown = stamp(math.MaxUint64)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// patternOf is the bytes of a writer's blocks without stamps and headers. It never reads as a
// stamp.
func patternOf(writer int) *[blockSize]byte {
	p := new([blockSize]byte)
	x := uint64(writer+1) * 0x9e3779b97f4a7c15
	for i := 0; i < blockSize; i += 8 {
		x ^= x << 13
		x ^= x >> 7
		x ^= x << 17
		binary.LittleEndian.PutUint64(p[i:], x)
	}
	return p
}

// seal puts stamp and header into block, which holds the writer's pattern and is whole lines.
func seal(block []byte, s stamp, off int64) {
	for i := 0; i < len(block); i += lineSize {
		binary.LittleEndian.PutUint64(block[i:], uint64(s))
	}
	binary.LittleEndian.PutUint64(block[8:], uint64(off))
	binary.LittleEndian.PutUint32(block[16:], crc32.Checksum(block[:16], castagnoli))
}

// logged is one write: blocks [block, block+n) between two moments of the runtime's clock.
type logged struct {
	start, end int64
	block, n   uint32
}

const logChunk = 1 << 15

// writer stamps the writes of one task and notes their times. It is a fio.Stamper.
type writer struct {
	c       *content
	id      int
	pattern *[blockSize]byte
	chunks  [][]logged
	seq     uint64
	base    *byte         // the buffer stamped last
	filled  map[*byte]int // by buffer: how much of it holds the pattern
	n       int           // filled[base]
}

// Stamp fills p for a write at off.
func (w *writer) Stamp(p []byte, off int64) uint64 {
	if w.base != &p[0] {
		w.base, w.n = &p[0], w.filled[&p[0]]
	}
	if len(p) > w.n {
		for i := 0; i < len(p); i += w.c.block {
			copy(p[i:], w.pattern[:w.c.block])
		}
		w.n, w.filled[w.base] = len(p), len(p)
	}
	s := makeStamp(w.c.run, w.id, w.seq)
	unit := w.c.block
	for i := 0; i+unit <= len(p); i += unit {
		seal(p[i:i+unit], s, off+int64(i))
	}
	if w.seq/logChunk == uint64(len(w.chunks)) {
		w.chunks = append(w.chunks, make([]logged, logChunk))
	}
	// Until it has ended it may be there or not.
	w.chunks[w.seq/logChunk][w.seq%logChunk] = logged{math.MinInt64, math.MaxInt64, uint32(off / int64(unit)), uint32(len(p) / unit)}
	w.seq++
	return w.seq - 1
}

// Done notes the times of a write. One that failed may be there or not, whenever.
func (w *writer) Done(write uint64, start, end int64, err error) {
	if err == nil {
		e := &w.chunks[write/logChunk][write%logChunk]
		e.start, e.end = start, end
	}
}

func (w *writer) at(seq uint64) *logged {
	if seq >= w.seq {
		return nil
	}
	return &w.chunks[seq/logChunk][seq%logChunk]
}

// content knows what every block of the file may hold.
type content struct {
	size      int64
	block     int     // bytes of a block
	state     []stamp // by block: what the last read-back found
	lastStart []int64 // by block, of the run that is judged; MinInt64: nobody wrote it
	run       int
	writers   []*writer
	patterns  [maxWriters + 1]*[blockSize]byte
	idle      []*writer // of earlier runs, with the room for their logs
}

func newContent(size int64, block int) *content {
	n := size / int64(block)
	return &content{size: size, block: block, state: make([]stamp, n), lastStart: make([]int64, n)}
}

func (c *content) pattern(writer int) *[blockSize]byte {
	if c.patterns[writer] == nil {
		c.patterns[writer] = patternOf(writer)
	}
	return c.patterns[writer]
}

// fill writes the whole file, so that every run finds it alike, and every block has a known
// content.
func (c *content) fill(t *sched.Task, f fio.Target, tick func(share float64) error) error {
	buf, unit := make([]byte, 1<<20), int64(c.block)
	for i := 0; i < len(buf); i += c.block {
		copy(buf[i:], c.pattern(fillWriter)[:c.block])
	}
	for off := int64(0); off < c.size; off += int64(len(buf)) {
		p := buf[:min(int64(len(buf)), c.size-off)]
		for i := int64(0); i < int64(len(p)); i += unit {
			s := makeStamp(0, fillWriter, uint64((off+i)/unit))
			seal(p[i:i+unit], s, off+i)
			if c.state != nil {
				c.state[(off+i)/unit] = s
			}
		}
		if _, err := f.WriteAt(t, p, off); err != nil {
			return err
		}
		if err := tick(float64(off) / float64(c.size)); err != nil {
			return err
		}
	}
	return f.Fsync(t)
}

// begin starts run number run; newWriter makes its writers.
func (c *content) begin(run int) {
	if len(c.writers) > len(c.idle) {
		c.idle = c.writers
	}
	c.run, c.writers = run, nil
}

func (c *content) newWriter() *writer {
	id := len(c.writers)
	w := &writer{c: c, id: id, pattern: c.pattern(id), filled: map[*byte]int{}}
	if id < len(c.idle) {
		w.chunks = c.idle[id].chunks
	}
	c.writers = append(c.writers, w)
	return w
}

// findings counts by kind and keeps one example of each.
type findings struct {
	count   map[string]int
	example map[string]string
}

func (f *findings) add(kind, format string, a ...any) {
	if f.count == nil {
		f.count, f.example = map[string]int{}, map[string]string{}
	}
	if f.count[kind]++; f.count[kind] == 1 {
		f.example[kind] = fmt.Sprintf(format, a...)
	}
}

// String is "ok" or "2 torn blocks, first at ...; 1 stale block, ...".
func (f *findings) String() string {
	if len(f.count) == 0 {
		return "ok"
	}
	var kinds, out []string
	for k := range f.count {
		kinds = append(kinds, k)
	}
	sort.Strings(kinds)
	for _, k := range kinds {
		s := "s"
		if f.count[k] == 1 {
			s = ""
		}
		out = append(out, fmt.Sprintf("%d %s block%s, first %s", f.count[k], k, s, f.example[k]))
	}
	return strings.Join(out, "; ")
}

// judge reads the file back and compares every block with what the run may have left in it.
func (c *content) judge(t *sched.Task, f fio.Target) (*findings, error) {
	for i := range c.lastStart {
		c.lastStart[i] = math.MinInt64
	}
	for _, w := range c.writers {
		for s := range w.seq {
			e := w.at(s)
			for b := e.block; b < e.block+e.n; b++ {
				c.lastStart[b] = max(c.lastStart[b], e.start)
			}
		}
	}
	out := &findings{}
	buf, unit := make([]byte, 1<<20), int64(c.block)
	if have := f.Size(t); have != c.size {
		out.add("missing", "file has %d bytes, want %d", have, c.size)
	}
	for off := int64(0); off < min(c.size, f.Size(t)); off += int64(len(buf)) {
		p := buf[:min(int64(len(buf)), c.size-off, f.Size(t)-off)]
		if n, err := f.ReadAt(t, p, off); n < len(p) {
			return nil, fmt.Errorf("read back at %d: %d of %d bytes: %w", off, n, len(p), err)
		}
		for i := int64(0); i+unit <= int64(len(p)); i += unit {
			b := (off + i) / unit
			c.state[b] = c.judgeBlock(p[i:i+unit], b, out)
		}
	}
	return out, nil
}

// judgeBlock returns the stamp of the write that block b holds.
func (c *content) judgeBlock(p []byte, b int64, out *findings) stamp {
	off := b * int64(c.block)
	s := stamp(binary.LittleEndian.Uint64(p))
	// Whole, and made by one write?
	for l := 1; l < c.block/lineSize; l++ {
		if o := stamp(binary.LittleEndian.Uint64(p[l*lineSize:])); o != s {
			out.add("torn", "at %d: line %d has %s, line %d has %s", off, l-1, s, l, o)
			return unknown
		}
	}
	w := s.writer()
	if s.run() > c.run || s.run() == c.run && w >= len(c.writers) || s.run() == 0 && w != fillWriter {
		out.add("foreign", "at %d: %s, which nobody made", off, s)
		return unknown
	}
	pat := c.pattern(w)
	sum := crc32.Checksum(p[:16], castagnoli)
	good := binary.LittleEndian.Uint32(p[16:]) == sum && bytes.Equal(p[20:lineSize], pat[20:lineSize])
	for l := lineSize; l < c.block && good; l += lineSize {
		good = bytes.Equal(p[l+8:l+lineSize], pat[l+8:l+lineSize])
	}
	if !good {
		out.add("corrupt", "at %d: %s, but not its bytes", off, s)
		return unknown
	}
	if at := int64(binary.LittleEndian.Uint64(p[8:])); at != off {
		out.add("misplaced", "at %d: %s, which was for %d", off, s, at)
		return unknown
	}
	// The right one?
	switch {
	case c.lastStart[b] == math.MinInt64 && s.run() != c.run:
		if was := c.state[b]; was != unknown && was != s {
			out.add("changed", "at %d: %s, nobody wrote it in run %d and it was %s", off, s, c.run, was)
		}
	case s.run() != c.run:
		out.add("lost", "at %d: %s, but run %d wrote it", off, s, c.run)
	default:
		e := c.writers[w].at(s.seq())
		if e == nil || uint32(b) < e.block || uint32(b) >= e.block+e.n {
			out.add("foreign", "at %d: %s, which nobody made there", off, s)
			return unknown
		}
		if e.end < c.lastStart[b] {
			out.add("stale", "at %d: %s, which had ended %d ns before another write of the block started", off, s, c.lastStart[b]-e.end)
		}
	}
	return s
}
