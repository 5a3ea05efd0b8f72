package fstree

import (
	"strconv"
	"testing"

	"btrlab/internal/format"
	"btrlab/internal/sched"
)

// nocowFile makes inode 257 with n written sectors in one NOCOW extent, in items of one sector each
// when split is set, among 10,000 other inodes.
func nocowFile(b *testing.B, n uint64, split bool) *env {
	sched.SetChecked(false)
	e := newEnv(b, 16384)
	e.f.Stats(e.t)
	for i := range uint64(10000) {
		e.inode(format.Ino(300+i), format.S_IFREG)
	}
	e.inode(257, format.S_IFREG)
	const addr = 1 << 40
	e.ok(e.refs.AllocReservedFileExtent(e.t, e.tr, refOf(e.fs, 257, 0), format.Logical(addr), n*sector))
	if !split {
		e.ok(e.s.InsertFileExtent(e.t, e.tr, e.fs, 257, 0, reg(addr, n, 0, n)))
		return e
	}
	for i := range n {
		e.ok(e.s.InsertFileExtent(e.t, e.tr, e.fs, 257, i*sector, reg(addr, n, i, 1)))
	}
	return e
}

func BenchmarkUpdateInode(b *testing.B) {
	e := nocowFile(b, 1000, false)
	item := format.InodeItem{Mode: format.S_IFREG}
	b.ReportAllocs()
	for i := uint64(0); b.Loop(); i++ {
		e.ok(e.s.UpdateInode(e.t, e.tr, e.fs, format.Ino(300+i%10000), &item))
	}
}

func BenchmarkLookupFileExtent(b *testing.B) {
	e := nocowFile(b, 10000, true)
	b.ReportAllocs()
	for i := uint64(0); b.Loop(); i++ {
		if _, _, ok, err := e.s.LookupFileExtent(e.t, e.fs, 257, i*7919%10000*sector); !ok || err != nil {
			b.Fatal(ok, err)
		}
	}
}

func BenchmarkCanNocow(b *testing.B) {
	e := nocowFile(b, 10000, true)
	e.refs.extents[1<<40].refs = map[format.DataRef]int{refOf(e.fs, 257, 0): 10000}
	b.ReportAllocs()
	for i := uint64(0); b.Loop(); i++ {
		if n, _, err := e.s.CanNocow(e.t, e.fs, 257, i*7919%10000*sector, sector, true, false); n != sector || err != nil {
			b.Fatal(n, err)
		}
	}
}

// BenchmarkCowWrite is the metadata of one random 4 KiB COW overwrite: drop, insert, checksum.
func BenchmarkCowWrite(b *testing.B) {
	e := nocowFile(b, 10000, true)
	e.refs.extents[1<<40].refs = map[format.DataRef]int{refOf(e.fs, 257, 0): 10000}
	sums := crcs(1)
	addr := uint64(1 << 41)
	b.ReportAllocs()
	for i := uint64(0); b.Loop(); i++ {
		off := i * 7919 % 10000 * sector
		if _, err := e.s.DropExtents(e.t, e.tr, e.fs, 257, off, off+sector, DropOptions{}); err != nil {
			b.Fatal(err)
		}
		fe := format.FileExtent{Type: format.FileExtentTypeReg, DiskBytenr: addr, DiskNumBytes: sector, RAMBytes: sector, NumBytes: sector}
		e.ok(e.s.InsertFileExtent(e.t, e.tr, e.fs, 257, off, &fe))
		e.ok(e.refs.AllocReservedFileExtent(e.t, e.tr, refOf(e.fs, 257, off), format.Logical(addr), sector))
		e.ok(e.s.InsertCsums(e.t, e.tr, addr, sums))
		addr += sector
	}
}

func BenchmarkInsertCsums(b *testing.B) {
	e := nocowFile(b, 1, false)
	sums := crcs(1)
	addr := uint64(1 << 41)
	b.ReportAllocs()
	for b.Loop() {
		e.ok(e.s.InsertCsums(e.t, e.tr, addr, sums))
		addr += sector
	}
}

func BenchmarkMarkExtentWritten(b *testing.B) {
	const n = 100000
	e := nocowFile(b, n, false)
	b.ReportAllocs()
	i := uint64(n)
	for b.Loop() {
		if i == n {
			b.StopTimer()
			i = 0
			e.drop(257, 0, n, DropOptions{})
			pre := reg(1<<42, n, 0, n)
			pre.Type = format.FileExtentTypePrealloc
			delete(e.refs.extents, 1<<42)
			e.ok(e.refs.AllocReservedFileExtent(e.t, e.tr, refOf(e.fs, 257, 0), 1<<42, n*sector))
			e.ok(e.s.InsertFileExtent(e.t, e.tr, e.fs, 257, 0, pre))
			b.StartTimer()
		}
		off := i * 7919 % n * sector
		e.ok(e.s.MarkExtentWritten(e.t, e.tr, e.fs, 257, off, off+sector))
		i++
	}
}

// BenchmarkPutFile is the names and the inode of one new file.
func BenchmarkPutFile(b *testing.B) {
	e := nocowFile(b, 1, false)
	item := format.InodeItem{Mode: format.S_IFREG, Nlink: 1}
	var name [16]byte
	b.ReportAllocs()
	for i := uint64(0); b.Loop(); i++ {
		e.ok(e.s.InsertInode(e.t, e.tr, e.fs, format.Ino(1<<20+i), &item))
		e.ok(e.s.AddLink(e.t, e.tr, e.fs, 256, format.Ino(1<<20+i), string(strconv.AppendUint(append(name[:0], "file-"...), i, 10)), format.FtRegFile, 2+i))
	}
}
