package fstree

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"btrlab/internal/errno"
	"btrlab/internal/format"
	"btrlab/internal/kiocb"
	"btrlab/internal/meta/ctree"
	"btrlab/internal/sched"
)

// cell is one sector of a file in the model: where its data lies and how. addr 0 is a hole.
type cell struct {
	addr     uint64
	prealloc bool
}

const cells = 512 // sectors of a model file

// modelFile is a file as DropExtents and MarkExtentWritten should leave it.
type modelFile struct {
	ino   format.Ino
	cells [cells]cell
}

func (m *modelFile) nbytes() (n uint64) {
	for _, c := range m.cells {
		if c.addr != 0 {
			n += sector
		}
	}
	return n
}

type item struct {
	off uint64
	fe  format.FileExtent
}

func (e *env) items(ino format.Ino) (list []item) {
	e.Helper()
	e.ok(e.s.each(e.t, e.fs, extentKey(ino, 0), func(p *ctree.Path, k format.Key) (bool, error) {
		if k.Objectid != uint64(ino) || k.Type != format.EXTENT_DATA_KEY {
			return false, nil
		}
		var fe format.FileExtent
		fe.Decode(p.Item())
		fe.Inline = append([]byte(nil), fe.Inline...)
		list = append(list, item{k.Offset, fe})
		return true, nil
	}))
	return list
}

func (e *env) dump(ino format.Ino) string {
	s := ""
	for _, it := range e.items(ino) {
		s += fmt.Sprintf("  [%d,%d) type %d disk %d+%d offset %d gen %d\n", it.off/sector, extentEnd(it.off, &it.fe)/sector,
			it.fe.Type, it.fe.DiskBytenr, it.fe.DiskNumBytes, it.fe.Offset, it.fe.Generation)
	}
	return s
}

// verify compares the tree with the models: content, order, and every reference.
func (e *env) verify(files []*modelFile) {
	e.Helper()
	refs := map[uint64]map[format.DataRef]int{}
	for _, m := range files {
		var have [cells]cell
		end := uint64(0)
		for _, it := range e.items(m.ino) {
			fe := &it.fe
			if it.off < end || fe.NumBytes == 0 {
				e.Fatalf("inode %d: item at %d overlaps or is empty\n%s", m.ino, it.off, e.dump(m.ino))
			}
			end = it.off + fe.NumBytes
			if fe.DiskBytenr == 0 {
				continue
			}
			if fe.Offset+fe.NumBytes > fe.RAMBytes || fe.Generation > e.tr.ID {
				e.Fatalf("inode %d: bad item at %d\n%s", m.ino, it.off, e.dump(m.ino))
			}
			for o := uint64(0); o < fe.NumBytes; o += sector {
				have[(it.off+o)/sector] = cell{fe.DiskBytenr + fe.Offset + o, fe.Type == format.FileExtentTypePrealloc}
			}
			if refs[fe.DiskBytenr] == nil {
				refs[fe.DiskBytenr] = map[format.DataRef]int{}
			}
			refs[fe.DiskBytenr][format.DataRef{Root: e.fs.ID, Ino: format.Ino(m.ino), Offset: format.FileOff(it.off - fe.Offset)}]++
		}
		if have != m.cells {
			for i := range have {
				if have[i] != m.cells[i] {
					e.Fatalf("inode %d sector %d: have %v want %v\n%s", m.ino, i, have[i], m.cells[i], e.dump(m.ino))
				}
			}
		}
	}
	if len(refs) != len(e.refs.extents) {
		e.Fatalf("have %d extents referenced, %d exist", len(refs), len(e.refs.extents))
	}
	for bytenr, want := range refs {
		x := e.refs.extents[format.Logical(bytenr)]
		if x == nil || len(x.refs) != len(want) {
			e.Fatalf("extent %d: have references %v want %v", bytenr, x, want)
		}
		for r, n := range want {
			if x.refs[r] != n {
				e.Fatalf("extent %d: have references %v want %v", bytenr, x.refs, want)
			}
		}
	}
}

// drop drops [from, to) sectors in steps of maxItems and returns the bytes found.
func (e *env) drop(ino format.Ino, from, to uint64, opt DropOptions) (found uint64) {
	e.Helper()
	for start, end := from*sector, to*sector; start < end; {
		res, err := e.s.DropExtents(e.t, e.tr, e.fs, ino, start, end, opt)
		e.ok(err)
		if res.NextStart <= start || res.NextStart > end {
			e.Fatalf("drop of [%d, %d): next start %d", start, end, res.NextStart)
		}
		if opt.MaxItems > 0 && res.Items > opt.MaxItems+1 {
			e.Fatalf("drop of [%d, %d): %d items, bound %d", start, end, res.Items, opt.MaxItems)
		}
		start = res.NextStart
		found += res.BytesFound
	}
	return found
}

// TestExtentsModel does random writes, preallocations, holes, completions, truncates and reflinks
// on a few files whose items share leaves, and compares with a byte-array model after each.
func TestExtentsModel(t *testing.T) {
	for seed := range uint64(6) {
		t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) { extentsModel(t, seed) })
	}
}

func extentsModel(t *testing.T, seed uint64) {
	rnd := rand.New(rand.NewPCG(seed, 1))
	e := newEnv(t, 4096)
	var files []*modelFile
	for i := range uint64(3) {
		files = append(files, &modelFile{ino: format.Ino(257 + i)})
		e.inode(format.Ino(257+i), format.S_IFREG|0o644)
	}
	disk := uint64(1 << 40)
	ops := 700
	if testing.Short() {
		ops = 200
	}
	for op := range ops {
		m := files[rnd.IntN(len(files))]
		from := uint64(rnd.IntN(cells))
		to := from + 1 + uint64(rnd.IntN(min(cells-int(from), 1+rnd.IntN(40))))
		before := m.nbytes()
		expect := uint64(0)
		for _, c := range m.cells[from:to] {
			if c.addr != 0 {
				expect += sector
			}
		}
		opt := DropOptions{}
		if rnd.IntN(3) == 0 {
			opt.MaxItems = 1 + rnd.IntN(3)
		}
		dropped := func(n uint64) {
			if n != expect {
				t.Fatalf("op %d: drop of [%d, %d) found %d bytes want %d", op, from, to, n, expect)
			}
		}
		switch k := rnd.IntN(100); {
		case k < 50: // a write or a preallocation
			n := (to - from) * sector
			fe := format.FileExtent{Type: format.FileExtentTypeReg, DiskBytenr: disk, DiskNumBytes: n, NumBytes: n, RAMBytes: n}
			if k < 25 {
				fe.Type = format.FileExtentTypePrealloc
			}
			if rnd.IntN(2) == 0 {
				found, err := e.s.SetFileExtent(e.t, e.tr, e.fs, m.ino, from*sector, to*sector, &fe)
				e.ok(err)
				dropped(found)
			} else {
				dropped(e.drop(m.ino, from, to, opt))
				e.ok(e.s.InsertFileExtent(e.t, e.tr, e.fs, m.ino, from*sector, &fe))
			}
			e.ok(e.refs.AllocReservedFileExtent(e.t, e.tr, refOf(e.fs, m.ino, from*sector), format.Logical(disk), n))
			for i := from; i < to; i++ {
				m.cells[i] = cell{disk + (i-from)*sector, k < 25}
			}
			disk += n + sector*uint64(rnd.IntN(2))
		case k < 60: // a hole, sometimes explicit
			dropped(e.drop(m.ino, from, to, opt))
			clear(m.cells[from:to])
			if k < 54 {
				n := (to - from) * sector
				e.ok(e.s.InsertFileExtent(e.t, e.tr, e.fs, m.ino, from*sector, &format.FileExtent{Type: format.FileExtentTypeReg, NumBytes: n, RAMBytes: n}))
			}
		case k < 65: // a truncate
			size := from*sector + uint64(rnd.IntN(2)*rnd.IntN(sector))
			for left := uint64(math.MaxUint64); left > size; {
				n, now, err := e.s.TruncateItems(e.t, e.tr, e.fs, m.ino, size, opt.MaxItems)
				e.ok(err)
				if now >= left || now < size {
					t.Fatalf("op %d: truncate to %d leaves size %d after %d", op, size, now, left)
				}
				before, left = before-n, now
				if edge := (now + sector - 1) / sector; edge < uint64(len(m.cells)) {
					clear(m.cells[edge:])
				}
				if before != m.nbytes() {
					t.Fatalf("op %d: truncate to %d leaves size %d and nbytes %d want %d", op, size, now, before, m.nbytes())
				}
			}
		case k < 75: // a reflink: another window of an extent
			o := files[rnd.IntN(len(files))]
			list := e.items(o.ino)
			if len(list) == 0 {
				continue
			}
			it := list[rnd.IntN(len(list))]
			if it.fe.DiskBytenr == 0 {
				continue
			}
			to = min(cells, from+it.fe.NumBytes/sector)
			n := (to - from) * sector
			e.drop(m.ino, from, to, opt)
			// The source may just have been dropped with its last reference.
			x := e.refs.extents[format.Logical(it.fe.DiskBytenr)]
			if x == nil {
				clear(m.cells[from:to])
				continue
			}
			fe := it.fe
			fe.NumBytes, fe.Generation = n, 0
			e.ok(e.s.InsertFileExtent(e.t, e.tr, e.fs, m.ino, from*sector, &fe))
			e.ok(e.refs.IncExtentRef(e.t, e.tr, refOf(e.fs, m.ino, from*sector-fe.Offset), format.Logical(fe.DiskBytenr), fe.DiskNumBytes))
			for i := from; i < to; i++ {
				m.cells[i] = cell{fe.DiskBytenr + fe.Offset + (i-from)*sector, fe.Type == format.FileExtentTypePrealloc}
			}
		case k < 98: // a write into preallocated space is done
			list := e.items(m.ino)
			var pre []item
			for _, it := range list {
				if it.fe.Type == format.FileExtentTypePrealloc {
					pre = append(pre, it)
				}
			}
			if len(pre) == 0 {
				continue
			}
			it := pre[rnd.IntN(len(pre))]
			n := it.fe.NumBytes / sector
			from = it.off/sector + uint64(rnd.IntN(int(n)))
			to = from + 1 + uint64(rnd.IntN(int(it.off/sector+n-from)))
			if rnd.IntN(3) == 0 {
				from = it.off / sector
			}
			if rnd.IntN(3) == 0 {
				to = it.off/sector + n
			}
			e.ok(e.s.MarkExtentWritten(e.t, e.tr, e.fs, m.ino, from*sector, to*sector))
			for i := from; i < to; i++ {
				m.cells[i].prealloc = false
			}
		default:
			e.commit()
		}
		e.verify(files)
		e.lookups(rnd, m)
	}
	for _, m := range files {
		_, left, err := e.s.TruncateItems(e.t, e.tr, e.fs, m.ino, 0, 0)
		e.ok(err)
		if left > 0 {
			t.Fatalf("an unbounded truncate leaves %d bytes", left)
		}
		e.ok(e.s.DeleteInode(e.t, e.tr, e.fs, m.ino))
	}
	if keys := e.keys(e.fs); len(keys) != 0 || len(e.refs.extents) != 0 {
		t.Errorf("left over: %v, %d extents", keys, len(e.refs.extents))
	}
}

// lookups compares LookupFileExtent and CanNocow with the model at one random offset.
func (e *env) lookups(rnd *rand.Rand, m *modelFile) {
	e.Helper()
	i := uint64(rnd.IntN(cells))
	off := i*sector + uint64(rnd.IntN(sector))
	start, fe, ok, err := e.s.LookupFileExtent(e.t, e.fs, m.ino, off)
	e.ok(err)
	c := m.cells[i]
	switch {
	case c.addr == 0:
		if ok && !fe.IsHole() {
			e.Fatalf("lookup at %d: have %+v at %d want a hole", off, fe, start)
		}
		if !ok && start != math.MaxUint64 && (start <= off || start%sector != 0) {
			e.Fatalf("lookup at %d: next extent at %d", off, start)
		}
		for j := i; !ok && j < cells && j*sector < start; j++ {
			if m.cells[j].addr != 0 {
				e.Fatalf("lookup at %d: next extent at %d, but sector %d is one", off, start, j)
			}
		}
	case !ok || fe.DiskBytenr+fe.Offset+i*sector-start != c.addr:
		e.Fatalf("lookup at %d: have %v %+v at %d want address %d", off, ok, fe, start, c.addr)
	}
	nodatacow := rnd.IntN(2) == 0
	n, x, err := e.s.CanNocow(e.t, e.fs, m.ino, i*sector, 10*sector, nodatacow, false)
	e.ok(err)
	may := c.addr != 0 && (c.prealloc || nodatacow)
	if may {
		may = len(e.refs.extents[format.Logical(fe.DiskBytenr)].refs) == 1
	}
	if may != (n > 0) {
		e.Fatalf("can nocow at sector %d: have %d want %v; %v\n%s", i, n, may, c, e.dump(m.ino))
	}
	if n > 0 && (x.WriteBytenr != c.addr || n > 10*sector || x.Start+x.NumBytes < i*sector+n) {
		e.Fatalf("can nocow at sector %d: have %+v want address %d", i, x, c.addr)
	}
}

func reg(addr, sectors, offset, num uint64) *format.FileExtent {
	return &format.FileExtent{Type: format.FileExtentTypeReg, DiskBytenr: addr, DiskNumBytes: sectors * sector, RAMBytes: sectors * sector,
		Offset: offset * sector, NumBytes: num * sector}
}

func TestInlineExtent(t *testing.T) {
	e := newEnv(t, 4096)
	e.inode(257, format.S_IFREG|0o644)
	data := []byte("hello, inline world")
	fe := format.FileExtent{Type: format.FileExtentTypeInline, RAMBytes: uint64(len(data)), Inline: data}
	e.ok(e.s.InsertFileExtent(e.t, e.tr, e.fs, 257, 0, &fe))
	start, got, ok, err := e.s.LookupFileExtent(e.t, e.fs, 257, 4000)
	e.ok(err)
	if !ok || start != 0 || string(got.Inline) != string(data) {
		t.Fatalf("have %v %d %q", ok, start, got.Inline)
	}
	if _, _, ok, _ := e.s.LookupFileExtent(e.t, e.fs, 257, 4096); ok {
		t.Fatal("an inline extent covers more than its sector")
	}
	if n, _, err := e.s.CanNocow(e.t, e.fs, 257, 0, 4096, true, false); n != 0 || err != nil {
		t.Fatalf("inline extent may be written in place: %d %v", n, err)
	}
	freed, _, err := e.s.TruncateItems(e.t, e.tr, e.fs, 257, 5, 0)
	e.ok(err)
	if freed != uint64(len(data)-5) {
		t.Fatalf("have %d bytes freed want %d", freed, len(data)-5)
	}
	e.commit()
	_, got, _, err = e.s.LookupFileExtent(e.t, e.fs, 257, 0)
	e.ok(err)
	if string(got.Inline) != "hello" || got.RAMBytes != 5 {
		t.Fatalf("have %q of %d want hello", got.Inline, got.RAMBytes)
	}
	res, err := e.s.DropExtents(e.t, e.tr, e.fs, 257, 0, 8192, DropOptions{})
	e.ok(err)
	if res.BytesFound != 5 || res.Items != 1 || res.NextStart != 8192 {
		t.Fatalf("have %+v", res)
	}
}

// TestNocowRefusals goes through labs/reference 3.4 one check at a time.
func TestNocowRefusals(t *testing.T) {
	e := newEnv(t, 4096)
	e.inode(257, format.S_IFREG|0o644)
	const addr = 1 << 40
	pre := reg(addr, 8, 0, 8)
	pre.Type = format.FileExtentTypePrealloc
	e.ok(e.s.InsertFileExtent(e.t, e.tr, e.fs, 257, 0, pre))
	e.ok(e.refs.AllocReservedFileExtent(e.t, e.tr, refOf(e.fs, 257, 0), addr, 8*sector))
	e.ok(e.s.InsertFileExtent(e.t, e.tr, e.fs, 257, 16*sector, &format.FileExtent{Type: format.FileExtentTypeReg, NumBytes: sector, RAMBytes: sector}))
	try := func(what string, off, want uint64, nodatacow bool) {
		t.Helper()
		n, _, err := e.s.CanNocow(e.t, e.fs, 257, off, 100*sector, nodatacow, false)
		if err != nil || n != want {
			t.Errorf("%s: have %d, %v want %d", what, n, err, want)
		}
	}
	try("preallocated, COW file", 3*sector, 5*sector, false)
	try("before any extent's end", 8*sector, 0, true)
	try("explicit hole", 16*sector, 0, true)
	try("after the last extent", 40*sector, 0, true)
	try("part of a sector", 3*sector+100, 5*sector-100, true)

	e.ok(e.s.MarkExtentWritten(e.t, e.tr, e.fs, 257, 4*sector, 8*sector))
	try("written, COW file", 5*sector, 0, false)
	try("written, NOCOW file", 5*sector, 3*sector, true)
	// Two items of one file that refer to the extent with the same offset are no cross reference.
	try("preallocated part", sector, 3*sector, true)

	e.ok(e.s.InsertCsums(e.t, e.tr, addr+7*sector, crcs(1)))
	try("checksum at the end", 5*sector, 0, true)
	if n, _, err := e.s.CanNocow(e.t, e.fs, 257, 5*sector, 2*sector, true, false); n != 2*sector || err != nil {
		t.Errorf("before the checksum: have %d, %v", n, err)
	}
	e.ok(e.s.DelCsums(e.t, e.tr, addr, 8*sector))

	e.refs.busy = true
	if _, _, err := e.s.CanNocow(e.t, e.fs, 257, 5*sector, sector, true, true); err != error(kiocb.AgainRefs) {
		t.Errorf("busy delayed reference with nowait: %v", err)
	}
	e.refs.busy = false
	// of one question: a search here, one among the checksums; the extent tree is not in this test
	var costs sched.Counts
	e.t.Counts = &costs
	if n, _, err := e.s.CanNocow(e.t, e.fs, 257, 5*sector, sector, true, true); n != sector || err != nil {
		t.Errorf("nowait: %d %v", n, err)
	}
	e.t.Counts = nil
	if want := [sched.Counters]int64{sched.CountSearches: 2, sched.CountPaths: 1}; costs.N != want {
		t.Errorf("it cost %v want %v", costs.N, want)
	}
	e.inode(900, format.S_IFREG|0o644) // by the same path, which waits again

	e.ok(e.refs.IncExtentRef(e.t, e.tr, refOf(e.fs, 300, 0), addr, 8*sector))
	try("shared with another file", 5*sector, 0, true)
	e.ok(e.refs.FreeExtent(e.t, e.tr, refOf(e.fs, 300, 0), addr, 8*sector))

	// An extent from before the last snapshot.
	e.commit()
	bytenr, level, gen := e.fs.Pointer()
	fs, err := e.f.OpenRoot(e.t, e.fs.ID, bytenr, level, gen, gen)
	e.ok(err)
	if n, _, err := e.s.CanNocow(e.t, fs, 257, 5*sector, sector, true, false); n != 0 || err != nil {
		t.Errorf("older than the last snapshot: have %d, %v", n, err)
	}
}

// TestMarkWrittenGeneration: what a transaction writes has its generation, whatever becomes of the
// item: a new one, a part of one, or one that grows over its neighbour. An fsync logs the items of
// its transaction only.
func TestMarkWrittenGeneration(t *testing.T) {
	for _, steps := range [][][2]uint64{
		{{0, 8}},
		{{0, 4}, {4, 8}},
		{{4, 8}, {0, 4}},
		{{0, 2}, {2, 4}, {4, 6}}, // the window before grows
		{{6, 8}, {4, 6}, {2, 4}}, // the one after grows
		{{2, 4}, {6, 8}, {4, 6}, {0, 2}},
	} {
		e := newEnv(t, 4096)
		e.inode(257, format.S_IFREG|0o644)
		pre := reg(1<<40, 8, 0, 8)
		pre.Type = format.FileExtentTypePrealloc
		e.ok(e.s.InsertFileExtent(e.t, e.tr, e.fs, 257, 0, pre))
		e.ok(e.refs.AllocReservedFileExtent(e.t, e.tr, refOf(e.fs, 257, 0), 1<<40, 8*sector))
		for _, s := range steps {
			e.commit()
			e.ok(e.s.MarkExtentWritten(e.t, e.tr, e.fs, 257, s[0]*sector, s[1]*sector))
			for _, it := range e.items(257) {
				touches := it.off < s[1]*sector && it.off+it.fe.NumBytes > s[0]*sector
				if touches && (it.fe.Generation != e.tr.ID || it.fe.Type != format.FileExtentTypeReg) {
					t.Errorf("%v written in transaction %d, after %v:\n%s", s, e.tr.ID, steps, e.dump(257))
				}
			}
		}
	}
}

// TestMarkWrittenMerges: the items of a preallocated extent that is written piece by piece become
// one, so that a file has as many items as it has windows, and not as it had writes.
func TestMarkWrittenMerges(t *testing.T) {
	for _, c := range []struct {
		steps [][2]uint64
		want  int // items
	}{
		{[][2]uint64{{0, 8}}, 1},
		{[][2]uint64{{0, 2}}, 2},
		{[][2]uint64{{2, 4}}, 3},
		{[][2]uint64{{0, 4}, {4, 8}}, 1},
		{[][2]uint64{{4, 8}, {0, 4}}, 1},
		{[][2]uint64{{0, 2}, {4, 8}, {2, 4}}, 1},
		{[][2]uint64{{0, 1}, {1, 2}, {2, 3}}, 2},
		{[][2]uint64{{0, 2}, {4, 6}, {2, 4}}, 2},
		{[][2]uint64{{0, 2}, {4, 5}}, 4},
	} {
		e := newEnv(t, 4096)
		e.inode(257, format.S_IFREG|0o644)
		pre := reg(1<<40, 8, 0, 8)
		pre.Type = format.FileExtentTypePrealloc
		e.ok(e.s.InsertFileExtent(e.t, e.tr, e.fs, 257, 0, pre))
		e.ok(e.refs.AllocReservedFileExtent(e.t, e.tr, refOf(e.fs, 257, 0), 1<<40, 8*sector))
		for _, s := range c.steps {
			e.ok(e.s.MarkExtentWritten(e.t, e.tr, e.fs, 257, s[0]*sector, s[1]*sector))
		}
		if have := len(e.items(257)); have != c.want {
			t.Errorf("%v: %d items, want %d:\n%s", c.steps, have, c.want, e.dump(257))
		}
	}
}

// TestMarkWrittenApart: windows of one extent that lie side by side in a file, but not in the
// extent, stay apart, on either side of the one that is written.
func TestMarkWrittenApart(t *testing.T) {
	for _, written := range []uint64{0, 1} { // which of the two is written last
		e := newEnv(t, 4096)
		e.inode(257, format.S_IFREG|0o644)
		e.ok(e.refs.AllocReservedFileExtent(e.t, e.tr, refOf(e.fs, 257, 0), 1<<40, 8*sector))
		want := [2]uint64{0, 6} // where the windows begin in the extent, in sectors
		for i, at := range want {
			fe := reg(1<<40, 8, at, 2)
			if uint64(i) == written {
				fe.Type = format.FileExtentTypePrealloc
			}
			e.ok(e.s.InsertFileExtent(e.t, e.tr, e.fs, 257, uint64(i)*2*sector, fe))
			if i > 0 {
				e.ok(e.refs.IncExtentRef(e.t, e.tr, format.DataRef{Root: e.fs.ID, Ino: 257, Offset: format.FileOff(2*sector) - format.FileOff(at*sector)}, 1<<40, 8*sector))
			}
		}
		e.ok(e.s.MarkExtentWritten(e.t, e.tr, e.fs, 257, written*2*sector, (written+1)*2*sector))
		list := e.items(257)
		if len(list) != 2 || list[0].fe.Offset != want[0]*sector || list[1].fe.Offset != want[1]*sector {
			t.Errorf("window %d written: want two windows:\n%s", written, e.dump(257))
		}
	}
}

func TestMarkWrittenRefuses(t *testing.T) {
	e := newEnv(t, 4096)
	e.inode(257, format.S_IFREG|0o644)
	e.ok(e.s.InsertFileExtent(e.t, e.tr, e.fs, 257, 0, reg(1<<40, 8, 0, 8)))
	for _, r := range [][2]uint64{{0, 8}, {4, 12}, {10, 12}} {
		if err := e.s.MarkExtentWritten(e.t, e.tr, e.fs, 257, r[0]*sector, r[1]*sector); err == nil {
			t.Errorf("[%d, %d) marked as written", r[0], r[1])
		}
	}
	fe := format.FileExtent{Type: format.FileExtentTypeInline, RAMBytes: 5000, Inline: make([]byte, 3000), Compression: format.CompressZlib}
	e.inode(258, format.S_IFREG|0o644)
	e.ok(e.s.InsertFileExtent(e.t, e.tr, e.fs, 258, 0, &fe))
	if _, err := e.s.DropExtents(e.t, e.tr, e.fs, 258, 0, sector, DropOptions{}); !errors.Is(err, errno.EOPNOTSUPP) {
		t.Errorf("cut of an inline extent: %v", err)
	}
	e.ok(e.s.InsertFileExtent(e.t, e.tr, e.fs, 258, 2*sector, reg(0, 0, 0, 8)))
	if _, _, err := e.s.TruncateItems(e.t, e.tr, e.fs, 258, 100, 0); !errors.Is(err, errno.EOPNOTSUPP) {
		t.Errorf("truncate of a compressed inline extent: %v", err)
	}
	if left := e.items(258); len(left) != 1 {
		t.Errorf("%d extents are left, want the inline one", len(left))
	}
}
