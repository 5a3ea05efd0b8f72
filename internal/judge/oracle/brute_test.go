package oracle

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
)

// world is the number of bytes the small histories of the tests live in.
const world = 8

// A brutePiece is a piece as the tests see it: bytes one by one, and no idea of segments.
type brutePiece struct {
	op         *Op
	bytes      []int64
	size       bool // changes the size
	to         int64
	truncates  bool
	seesSize   bool
	sMin, sMax int64
}

// brute decides a history by trying the orders of its pieces, depth first, remembering the states
// that led nowhere.
type brute struct {
	h      *History
	pieces []brutePiece
	before []uint64 // piece -> pieces that returned before it started
	dead   map[string]bool
	key    []byte
	data   [world]ID
	size   int64
	sizes  bool
}

func bruteCut(o *Op, r Rule, off int64) bool {
	k := r.Write
	if o.Kind == Read {
		k = r.Read
	}
	switch k {
	case Byte:
		return true
	case Page:
		return off%r.pageSize() == 0
	case Batch:
		return slices.Contains(o.Batches, off)
	case Extent:
		return slices.Contains(o.Extents, off)
	}
	return false
}

func newBrute(h *History, r Rule) *brute {
	b := &brute{h: h, dead: map[string]bool{}, size: h.Size, sizes: r.Sizes != SizesOff}
	for i := range b.data {
		if int64(i) >= h.Size {
			b.data[i] = Zero
		}
	}
	for _, x := range h.Holes {
		for i := x.Lo; i < x.Hi && i < world; i++ {
			b.data[i] = Zero
		}
	}
	for i := range h.Ops {
		o := &h.Ops[i]
		lo, hi := o.Lo, o.Hi
		switch o.Kind {
		case Truncate:
			hi = world
		case Read:
			hi = o.Lo + o.Got
		case Allocate, Stat:
			hi = lo
		}
		first := len(b.pieces)
		var cur []int64
		for x := lo; x < hi; x++ {
			cur = append(cur, x)
			if x+1 == hi || bruteCut(o, r, x+1) {
				b.pieces = append(b.pieces, brutePiece{op: o, bytes: cur})
				cur = nil
			}
		}
		if o.Kind == Truncate && lo >= world {
			b.pieces = append(b.pieces, brutePiece{op: o})
		}
		if o.Kind == Read && o.Got == 0 && o.Hi > o.Lo && b.sizes {
			b.pieces = append(b.pieces, brutePiece{op: o, seesSize: true, sMax: o.Lo})
		} else if b.sizes && (r.Sizes == SizesWith) && o.Kind == Read && o.Got < o.Hi-o.Lo && bruteCut(o, r, hi) {
			b.pieces = append(b.pieces, brutePiece{op: o, seesSize: true, sMax: hi})
		}
		switch mine := b.pieces[first:]; {
		case !b.sizes:
		case o.Kind == Stat:
			b.pieces = append(b.pieces, brutePiece{op: o, seesSize: true, sMin: o.Size, sMax: o.Size})
		case o.Kind == Allocate && o.Hi > o.Lo:
			b.pieces = append(b.pieces, brutePiece{op: o, size: true, to: o.Hi})
		case r.Sizes == SizesApart && (o.Kind == Write || o.Kind == Append) && o.Hi > o.Lo:
			b.pieces = append(b.pieces, brutePiece{op: o, size: true, to: o.Hi, seesSize: o.Kind == Append, sMin: o.Lo, sMax: o.Lo})
		case r.Sizes == SizesApart && o.Kind == Truncate:
			b.pieces = append(b.pieces, brutePiece{op: o, truncates: true, to: o.Lo})
		case r.Sizes == SizesApart && o.Kind == Read && o.Got > 0:
			p := brutePiece{op: o, seesSize: true, sMin: o.Lo + o.Got, sMax: 1000}
			if o.Got < o.Hi-o.Lo {
				p.sMax = p.sMin
			}
			b.pieces = append(b.pieces, p)
		case r.Sizes == SizesWith:
			for j := range mine {
				p := &mine[j]
				switch {
				case o.Kind == Write || o.Kind == Append:
					p.size, p.to = true, p.bytes[len(p.bytes)-1]+1
					if o.Kind == Append && j == 0 {
						p.seesSize, p.sMin, p.sMax = true, o.Lo, o.Lo
					}
				case o.Kind == Truncate && j == 0:
					p.truncates, p.to = true, o.Lo
				case o.Kind == Read && len(p.bytes) > 0:
					end := p.bytes[len(p.bytes)-1] + 1
					p.seesSize, p.sMin, p.sMax = true, end, 1000
					if end == hi && o.Got < o.Hi-o.Lo && !bruteCut(o, r, hi) {
						p.sMax = hi
					}
				}
			}
		}
	}
	b.before = make([]uint64, len(b.pieces))
	for i := range b.pieces {
		for j := range b.pieces {
			if b.pieces[j].op.End < b.pieces[i].op.Start {
				b.before[i] |= 1 << j
			}
		}
	}
	return b
}

// has reports whether byte x, which holds what v says, may be seen as from.
func (b *brute) has(x int64, from ID) bool {
	v := b.data[x]
	switch {
	case from == Zero:
		return v == Zero || v > 0 && b.kind(v).zeroes()
	}
	return v == from
}

func (b *brute) kind(id ID) Kind {
	for i := range b.h.Ops {
		if b.h.Ops[i].ID == id {
			return b.h.Ops[i].Kind
		}
	}
	return numKinds
}

func (b *brute) final() bool {
	for _, s := range b.h.Final {
		for x := s.Lo; x < s.Hi; x++ {
			if !b.has(x, s.From) {
				return false
			}
		}
	}
	return !b.sizes || b.h.FinalSize == NoSize || b.size == b.h.FinalSize
}

func (b *brute) try(done uint64) bool {
	if done == 1<<len(b.pieces)-1 {
		return b.final()
	}
	b.key = binary.LittleEndian.AppendUint64(b.key[:0], done)
	for _, v := range b.data {
		b.key = append(b.key, byte(v))
	}
	b.key = append(b.key, byte(b.size))
	key := string(b.key)
	if b.dead[key] {
		return false
	}
	for i := range b.pieces {
		if done>>i&1 != 0 || b.before[i]&^done != 0 {
			continue
		}
		p := &b.pieces[i]
		if p.seesSize && (b.size < p.sMin || b.size > p.sMax) {
			continue
		}
		data, size := b.data, b.size
		ok := true
		for _, x := range p.bytes {
			if p.op.Kind == Read {
				for _, s := range p.op.See {
					if s.Lo <= x && x < s.Hi && !b.has(x, s.From) {
						ok = false
					}
				}
			} else {
				b.data[x] = p.op.ID
			}
		}
		if p.size {
			b.size = max(b.size, p.to)
		}
		if p.truncates {
			b.size = p.to
		}
		if ok && b.try(done|1<<i) {
			return true
		}
		b.data, b.size = data, size
	}
	b.dead[key] = true
	return false
}

// randomHistory makes a small history: operations at random, run in an order that may be torn into
// bytes, and what they saw, sometimes bent.
func randomHistory(rng *rand.Rand, ops int) *History {
	h := &History{Size: int64(rng.IntN(world + 1)), FinalSize: NoSize}
	if rng.IntN(3) == 0 {
		h.Size = world
	}
	if rng.IntN(3) == 0 {
		lo := rng.Int64N(world)
		h.Holes = []Range{{lo, lo + rng.Int64N(world-lo) + 1}}
	}
	kinds := []Kind{Write, Write, Write, Read, Read, Truncate, Punch, Append, Allocate, Stat}
	if rng.IntN(2) == 0 {
		kinds = []Kind{Write, Write, Read}
	}
	for i := range ops {
		o := Op{ID: ID(i + 1), Kind: kinds[rng.IntN(len(kinds))]}
		o.Lo = rng.Int64N(world)
		o.Hi = o.Lo + 1 + rng.Int64N(world-o.Lo)
		if o.Kind == Truncate || o.Kind == Stat {
			o.Hi = 0
		}
		o.Start = rng.Int64N(20)
		o.End = o.Start + rng.Int64N(12)
		for x := o.Lo + 1; x < o.Hi; x++ {
			if rng.IntN(3) == 0 {
				o.Batches = append(o.Batches, x)
			}
			if rng.IntN(3) == 0 {
				o.Extents = append(o.Extents, x)
			}
		}
		h.Ops = append(h.Ops, o)
	}
	// Run: an event is a byte of an operation, or a whole operation, at a time within it.
	type event struct {
		at   float64
		op   int
		byte int64
	}
	var events []event
	torn, hints := rng.IntN(3), rng.IntN(3)
	for i := range h.Ops {
		o := &h.Ops[i]
		at := func() float64 { return float64(o.Start) + rng.Float64()*float64(o.End-o.Start) }
		whole := at()
		switch hints {
		case 1:
			o.Commit = 1 + int64(whole*1000)
		case 2: // wrong ones
			o.Commit = 1 + rng.Int64N(30)
		}
		for x := range int64(world) {
			e := event{whole, i, x}
			if torn == 2 || torn == 1 && o.Kind == Read {
				e.at = at()
			}
			events = append(events, e)
		}
	}
	slices.SortStableFunc(events, func(a, b event) int {
		switch {
		case a.at < b.at:
			return -1
		case a.at > b.at:
			return 1
		}
		return 0
	})
	var data [world]ID
	b := newBrute(h, Rule{})
	data = b.data
	size := h.Size
	started := make([]bool, ops)
	saw := make([][world]ID, ops)
	for _, e := range events {
		o := &h.Ops[e.op]
		if !started[e.op] {
			started[e.op] = true
			switch o.Kind {
			case Append:
				o.Lo = min(size, world-1)
				o.Hi = min(max(o.Hi, o.Lo+1), world)
				o.Batches, o.Extents = nil, nil
				size = max(size, o.Hi)
			case Write, Allocate:
				size = max(size, o.Hi)
			case Truncate:
				size = o.Lo
			case Read:
				o.Got = min(o.Hi, max(size, o.Lo)) - o.Lo
			case Stat:
				o.Size = size
			}
		}
		switch {
		case o.Kind == Truncate && e.byte >= o.Lo, (o.Kind == Write || o.Kind == Append || o.Kind == Punch) && o.Lo <= e.byte && e.byte < o.Hi:
			data[e.byte] = o.ID
		case o.Kind == Read:
			saw[e.op][e.byte] = data[e.byte]
		}
	}
	bend := func(x int64, v ID) ID {
		if rng.IntN(40) == 0 {
			id := ID(rng.IntN(ops+3)) - 2
			if id == Foreign && rng.IntN(4) != 0 {
				return v
			}
			if id > 0 && (x < h.Ops[id-1].Lo || x >= h.Ops[id-1].Hi && h.Ops[id-1].Kind != Truncate || !h.Ops[id-1].Kind.changes()) && rng.IntN(8) != 0 {
				return v
			}
			return id
		}
		if v > 0 && h.Ops[v-1].Kind.zeroes() && rng.IntN(4) != 0 {
			return Zero
		}
		return v
	}
	for i := range h.Ops {
		if o := &h.Ops[i]; o.Kind == Read {
			for x := o.Lo; x < o.Lo+o.Got; x++ {
				if rng.IntN(12) != 0 {
					o.See = append(o.See, Seen{x, x + 1, bend(x, saw[i][x])})
				}
			}
		}
		if o := &h.Ops[i]; o.Kind == Stat && rng.IntN(6) == 0 {
			o.Size = rng.Int64N(world + 1)
		}
	}
	if rng.IntN(4) != 0 {
		h.Final = []Seen{}
		for x := range int64(world) {
			if rng.IntN(20) != 0 {
				h.Final = append(h.Final, Seen{x, x + 1, bend(x, data[x])})
			}
		}
		h.FinalSize = size
		if rng.IntN(8) == 0 {
			h.FinalSize = rng.Int64N(world + 1)
		}
	}
	return h
}

func randomRule(rng *rand.Rand) Rule {
	return Rule{Write: Contract(rng.IntN(int(numContracts))), Read: Contract(rng.IntN(int(numContracts))),
		Sizes: Sizes(rng.IntN(3)), PageSize: int64(2 + rng.IntN(3))}
}

func dump(h *History) string {
	var b strings.Builder
	fmt.Fprintf(&b, "size %d holes %v final %v size %d\n", h.Size, h.Holes, h.Final, h.FinalSize)
	for _, o := range h.Ops {
		fmt.Fprintf(&b, "  %d %v [%d,%d) time %d-%d batches %v extents %v got %d see %v size %d\n", int32(o.ID), o.Kind, o.Lo, o.Hi,
			o.Start, o.End, o.Batches, o.Extents, o.Got, o.See, o.Size)
	}
	return b.String()
}

// denseHistory makes operations that nearly all overlap, on few bytes, and lets everyone see at
// random what he could have seen: such histories are broken for reasons that take guesses to find.
func denseHistory(rng *rand.Rand, sizes bool) *History {
	bytes := 2 + rng.Int64N(3)
	h := &History{Size: bytes, FinalSize: NoSize}
	writes, looks := 2+rng.IntN(4), 2+rng.IntN(5)
	if sizes {
		h.Size = rng.Int64N(bytes + 1)
	}
	for i := range writes + looks {
		o := Op{ID: ID(i + 1), Start: rng.Int64N(4), End: 3 + rng.Int64N(4)}
		o.Lo = rng.Int64N(bytes)
		o.Hi = o.Lo + 1 + rng.Int64N(bytes-o.Lo)
		switch {
		case i < writes:
			if o.Kind = Write; rng.IntN(4) == 0 {
				o.Kind = []Kind{Truncate, Punch, Truncate}[rng.IntN(3)]
			}
		case sizes && rng.IntN(2) == 0:
			o.Kind, o.Size = Stat, rng.Int64N(bytes+1)
			if j := rng.IntN(writes); rng.IntN(4) != 0 {
				if n, ok := h.Ops[j].reach(); ok {
					o.Size = n
				}
			}
		default:
			o.Kind, o.Got = Read, o.Hi-o.Lo
			for x := o.Lo; x < o.Hi; x++ {
				from := []ID{Initial}
				if x >= h.Size {
					from[0] = Zero
				}
				for j := range h.Ops[:writes] {
					if w := &h.Ops[j]; w.Kind.zeroes() && w.Lo <= x && (x < w.Hi || w.Kind == Truncate) {
						from = append(from, Zero)
					} else if w.Lo <= x && x < w.Hi {
						from = append(from, w.ID)
					}
				}
				o.See = append(o.See, Seen{x, x + 1, from[rng.IntN(len(from))]})
			}
		}
		h.Ops = append(h.Ops, o)
	}
	return h
}
