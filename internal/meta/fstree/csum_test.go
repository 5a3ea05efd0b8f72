package fstree

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"btrlab/internal/format"
	"btrlab/internal/meta/ctree"
	"btrlab/internal/sched"
)

// csumItems lists the checksum items as [start, end) disk ranges.
func (e *env) csumItems(c *Csums) (list [][2]uint64) {
	e.Helper()
	e.ok(e.s.each(e.t, c.root, csumKey(0), func(p *ctree.Path, k format.Key) (bool, error) {
		start, end, _ := e.s.isCsum(p.Leaf(), p.Slot())
		list = append(list, [2]uint64{start, end})
		return true, nil
	}))
	return list
}

// TestCsumsModel inserts and deletes runs of checksums and compares with an array after each. Into
// a log they go over those that are there; of the checksum tree these are deleted first.
func TestCsumsModel(t *testing.T) {
	for seed := range uint64(4) {
		t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) { csumsModel(t, seed, format.CsumCRC32C, false) })
		t.Run(fmt.Sprintf("log/seed=%d", seed), func(t *testing.T) { csumsModel(t, seed, format.CsumCRC32C, true) })
	}
	t.Run("xxhash64", func(t *testing.T) { csumsModel(t, 0, format.CsumXXHash64, false) })
	t.Run("blake2b", func(t *testing.T) { csumsModel(t, 1, format.CsumBLAKE2b, false) })
}

func csumsModel(t *testing.T, seed uint64, typ format.CsumType, log bool) {
	const n, base = 20000, 1 << 40
	rnd := rand.New(rand.NewPCG(seed, 2))
	e := newEnvOf(t, 4096, typ)
	e.inode(rootDir, format.S_IFDIR|0o755)
	c := e.s.Csums
	if log {
		r, err := e.f.NewRoot(e.t, e.tr, format.TREE_LOG_OBJECTID)
		e.ok(err)
		c = e.s.CsumsIn(r)
	}
	size := typ.Size()
	have, sums := make([]bool, n), make([]byte, n*size)
	next := 0 // where the last insert ended
	ops := 300
	if testing.Short() {
		ops = 80
	}
	out, ok := make([]byte, n*size), make([]bool, n)
	for op := range ops {
		from := rnd.IntN(n)
		if rnd.IntN(2) == 0 {
			from = next
		}
		to := min(n, from+1+rnd.IntN(1+rnd.IntN(3000)))
		if from == n {
			next = 0
			continue
		}
		if rnd.IntN(5) < 3 {
			run := make([]byte, (to-from)*size)
			for i := range run {
				run[i] = byte(rnd.Uint32())
			}
			if !log && slices.Contains(have[from:to], true) {
				e.ok(c.DelCsums(e.t, e.tr, base+uint64(from)*sector, uint64(to-from)*sector))
			}
			e.ok(c.InsertCsums(e.t, e.tr, base+uint64(from)*sector, run))
			copy(sums[from*size:], run)
			for i := from; i < to; i++ {
				have[i] = true
			}
			next = to
		} else {
			e.ok(c.DelCsums(e.t, e.tr, base+uint64(from)*sector, uint64(to-from)*sector))
			clear(have[from:to])
			next = from
		}
		if rnd.IntN(10) == 0 && !log {
			e.commit()
		}
		e.ok(c.LookupCsums(e.t, base, n*sector, out, ok))
		for i := range have {
			h, w := out[i*size:][:size], sums[i*size:][:size]
			if ok[i] != have[i] || have[i] && !bytes.Equal(h, w) {
				t.Fatalf("op %d [%d, %d): sector %d: have %v %x want %v %x", op, from, to, i, ok[i], h, have[i], w)
			}
		}
		end := uint64(0)
		for _, it := range e.csumItems(c) {
			if it[0] < end || it[0] == it[1] || it[1]-it[0] > uint64(c.maxCsums())*sector {
				t.Fatalf("op %d: items overlap, or are empty or too long: %v", op, e.csumItems(c))
			}
			end = it[1]
		}
		any := false
		for _, h := range have[from:to] {
			any = any || h
		}
		got, err := c.CsumExists(e.t, base+uint64(from)*sector, uint64(to-from)*sector)
		e.ok(err)
		if got != any {
			t.Fatalf("op %d: checksum exists in [%d, %d): have %v want %v", op, from, to, got, any)
		}
	}
	e.ok(c.DelCsums(e.t, e.tr, base, n*sector))
	if list := e.csumItems(c); len(list) != 0 {
		t.Errorf("left over: %v", list)
	}
}

// TestCsumsPack: runs written one after the other make full items, as few as can be.
func TestCsumsPack(t *testing.T) {
	e := newEnv(t, 16384)
	e.inode(rootDir, format.S_IFDIR|0o755)
	const base = 1 << 40
	want := uint64(0)
	for i := range uint64(3000) {
		e.ok(e.s.InsertCsums(e.t, e.tr, base+i*4*sector, crcs(1, 2, 3, 4)))
		want = base + (i+1)*4*sector
	}
	list := e.csumItems(e.s.Csums)
	most := uint64(e.s.maxCsums()) * sector
	if len(list) != int((want-base+most-1)/most) || list[len(list)-1][1] != want {
		t.Errorf("12000 checksums in %d items, at most %d each: %v", len(list), e.s.maxCsums(), list)
	}
	for typ, want := range []int{4057, 2028, 506, 506} {
		if have := newEnvOf(t, 16384, format.CsumType(typ)).s.maxCsums(); have != want {
			t.Errorf("%v: have %d checksums in a full item, the kernel %d", format.CsumType(typ), have, want)
		}
	}
	e.commit()
}

// TestCsumsIn keeps checksums of the same disk range in two trees, as a log tree and the checksum
// tree do between an fsync and the next commit: neither sees what the other has.
func TestCsumsIn(t *testing.T) {
	const at, n = 1 << 40, 4
	e := newEnv(t, 4096)
	r, err := e.f.NewRoot(e.t, e.tr, format.TREE_LOG_OBJECTID)
	e.ok(err)
	log := e.s.CsumsIn(r)
	look := func(c *Csums) (sums [n]uint32, have [n]bool) {
		e.ok(lookupCRCs(e.t, c, at, n*sector, sums[:], have[:]))
		return sums, have
	}
	want := func(what string, c *Csums, wantSums [n]uint32, wantHave [n]bool) {
		t.Helper()
		sums, have := look(c)
		for i := range sums {
			if have[i] != wantHave[i] || have[i] && sums[i] != wantSums[i] {
				t.Errorf("%s: have %v %v want %v %v", what, sums, have, wantSums, wantHave)
				return
			}
		}
	}
	all := [n]bool{true, true, true, true}
	e.ok(log.InsertCsums(e.t, e.tr, at, crcs(1, 2, 3, 4)))
	want("the csum tree after an insert into the log", e.s.Csums, [n]uint32{}, [n]bool{})
	e.ok(e.s.InsertCsums(e.t, e.tr, at+sector, crcs(20, 30)))
	want("the log after an insert into the csum tree", log, [n]uint32{1, 2, 3, 4}, all)
	want("the csum tree", e.s.Csums, [n]uint32{0, 20, 30, 0}, [n]bool{1: true, 2: true})
	e.ok(log.DelCsums(e.t, e.tr, at, 3*sector))
	want("the log after a delete", log, [n]uint32{3: 4}, [n]bool{3: true})
	want("the csum tree after a delete in the log", e.s.Csums, [n]uint32{0, 20, 30, 0}, [n]bool{1: true, 2: true})
}

// crcs packs checksums of crc32c.
func crcs(sums ...uint32) (b []byte) {
	for _, v := range sums {
		b = le.AppendUint32(b, v)
	}
	return b
}

// lookupCRCs is LookupCsums for crc32c, with the checksums as numbers.
func lookupCRCs(t *sched.Task, c *Csums, bytenr, length uint64, out []uint32, have []bool) error {
	b := make([]byte, len(out)*format.CsumSize)
	err := c.LookupCsums(t, bytenr, length, b, have)
	for i := range out {
		out[i] = le.Uint32(b[i*format.CsumSize:])
	}
	return err
}
