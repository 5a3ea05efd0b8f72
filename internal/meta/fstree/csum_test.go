package fstree

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"btrlab/internal/format"
	"btrlab/internal/meta/ctree"
)

// csumItems lists the checksum items as [start, end) disk ranges.
func (e *env) csumItems() (list [][2]uint64) {
	e.Helper()
	e.ok(e.s.each(e.t, e.s.CsumRoot, csumKey(0), func(p *ctree.Path, k format.Key) (bool, error) {
		start, end, _ := e.s.isCsum(p.Leaf(), p.Slot())
		list = append(list, [2]uint64{start, end})
		return true, nil
	}))
	return list
}

// TestCsumsModel inserts and deletes runs of checksums and compares with an array after each.
func TestCsumsModel(t *testing.T) {
	for seed := range uint64(4) {
		t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) { csumsModel(t, seed) })
	}
}

func csumsModel(t *testing.T, seed uint64) {
	const n, base = 20000, 1 << 40
	rnd := rand.New(rand.NewPCG(seed, 2))
	e := newEnv(t, 4096)
	e.inode(rootDir, format.S_IFDIR|0o755)
	have, sums := make([]bool, n), make([]uint32, n)
	next := 0 // where the last insert ended
	ops := 300
	if testing.Short() {
		ops = 80
	}
	out, ok := make([]uint32, n), make([]bool, n)
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
			run := make([]uint32, to-from)
			for i := range run {
				run[i] = rnd.Uint32()
			}
			e.ok(e.s.InsertCsums(e.t, e.tr, base+uint64(from)*sector, run))
			for i := range run {
				have[from+i], sums[from+i] = true, run[i]
			}
			next = to
		} else {
			e.ok(e.s.DelCsums(e.t, e.tr, base+uint64(from)*sector, uint64(to-from)*sector))
			clear(have[from:to])
			next = from
		}
		if rnd.IntN(10) == 0 {
			e.commit()
		}
		e.ok(e.s.LookupCsums(e.t, base, n*sector, out, ok))
		for i := range have {
			if ok[i] != have[i] || have[i] && out[i] != sums[i] {
				t.Fatalf("op %d [%d, %d): sector %d: have %v %#x want %v %#x", op, from, to, i, ok[i], out[i], have[i], sums[i])
			}
		}
		end := uint64(0)
		for _, it := range e.csumItems() {
			if it[0] < end || it[0] == it[1] || it[1]-it[0] > uint64(e.s.maxCsums())*sector {
				t.Fatalf("op %d: items overlap, or are empty or too long: %v", op, e.csumItems())
			}
			end = it[1]
		}
		any := false
		for _, h := range have[from:to] {
			any = any || h
		}
		got, err := e.s.CsumExists(e.t, base+uint64(from)*sector, uint64(to-from)*sector)
		e.ok(err)
		if got != any {
			t.Fatalf("op %d: checksum exists in [%d, %d): have %v want %v", op, from, to, got, any)
		}
	}
	e.ok(e.s.DelCsums(e.t, e.tr, base, n*sector))
	if list := e.csumItems(); len(list) != 0 {
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
		e.ok(e.s.InsertCsums(e.t, e.tr, base+i*4*sector, []uint32{1, 2, 3, 4}))
		want = base + (i+1)*4*sector
	}
	list := e.csumItems()
	most := uint64(e.s.maxCsums()) * sector
	if len(list) != int((want-base+most-1)/most) || list[len(list)-1][1] != want {
		t.Errorf("12000 checksums in %d items, at most %d each: %v", len(list), e.s.maxCsums(), list)
	}
	if e.s.maxCsums() != 4057 {
		t.Errorf("have %d checksums in a full item, the kernel 4057", e.s.maxCsums())
	}
	e.commit()
}
