package fio

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"

	"btrlab/internal/errno"
	"btrlab/internal/hostio"
	"btrlab/internal/kiocb"
	"btrlab/internal/sched"
	"btrlab/internal/sched/cost"
)

// With verify=crc32c every unit (the smallest block) of what is written begins with a header, as
// fio's with verify_interval, so that requests of other sizes can overlap it and each unit can
// still be judged.
//
//	0  uint16 magic 0xacca   2  uint16 kind 1 = crc32c   4  uint32 length of the unit
//	8  uint64 task           16 uint64 offset in the file
//	24 uint64 number of the write in its task, from 1     32 uint32 zero
//	36 uint32 crc32c of the unit without this field
const (
	verifyHeaderLen = 40
	verifyMagic     = 0xacca
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func unitSum(p []byte) uint32 {
	return crc32.Update(crc32.Checksum(p[:36], castagnoli), castagnoli, p[40:])
}

// sealUnits writes the headers of p, which goes to off.
func sealUnits(p []byte, off int64, unit, task int, number uint64) {
	for ; len(p) > 0; p, off = p[min(unit, len(p)):], off+int64(unit) {
		u := p[:min(unit, len(p))]
		if len(u) < verifyHeaderLen {
			return // the tail of a file that is not a multiple of the unit
		}
		binary.LittleEndian.PutUint16(u[0:], verifyMagic)
		binary.LittleEndian.PutUint16(u[2:], 1)
		binary.LittleEndian.PutUint32(u[4:], uint32(len(u)))
		binary.LittleEndian.PutUint64(u[8:], uint64(task))
		binary.LittleEndian.PutUint64(u[16:], uint64(off))
		binary.LittleEndian.PutUint64(u[24:], number)
		binary.LittleEndian.PutUint32(u[32:], 0)
		binary.LittleEndian.PutUint32(u[36:], unitSum(u))
	}
}

// checkUnit judges the unit u read at off. Number 0 means that any task's write is right.
func checkUnit(u []byte, off int64, task int, number uint64) error {
	le := binary.LittleEndian
	switch {
	case le.Uint16(u) != verifyMagic:
		return fmt.Errorf("verify: bad magic at offset %d, have 0x%x want 0x%x", off, le.Uint16(u), verifyMagic)
	case le.Uint32(u[4:]) != uint32(len(u)):
		return fmt.Errorf("verify: bad length at offset %d, have %d want %d", off, le.Uint32(u[4:]), len(u))
	case le.Uint64(u[16:]) != uint64(off):
		return fmt.Errorf("verify: bad offset at offset %d, have %d want %d", off, le.Uint64(u[16:]), off)
	case le.Uint32(u[36:]) != unitSum(u):
		return fmt.Errorf("verify: bad crc32c at offset %d, have 0x%08x want 0x%08x", off, le.Uint32(u[36:]), unitSum(u))
	case number != 0 && (le.Uint64(u[8:]) != uint64(task) || le.Uint64(u[24:]) != number):
		return fmt.Errorf("verify: bad write at offset %d, have task %d write %d want task %d write %d",
			off, le.Uint64(u[8:]), le.Uint64(u[24:]), task, number)
	}
	return nil
}

// checkUnits judges what a job that only reads found.
func (k *worker) checkUnits(p []byte, off int64) error {
	unit := k.job.minBS()
	for i := 0; i+unit <= len(p); i += unit {
		if err := checkUnit(p[i:i+unit], off+int64(i), 0, 0); err != nil {
			k.res.VerifyErrors++
			return fmt.Errorf("%w (%w)", err, errno.EILSEQ)
		}
	}
	return nil
}

// verify reads back every unit of p that was written and judges it. What it reads counts as reads,
// as in fio. When other tasks write the same file, a unit may hold any write of theirs.
func (k *worker) verify(t *sched.Task, p *part) {
	size := p.gen.unit
	u := unit{part: p, dir: DirRead, whole: hostio.Aligned(int(size))}
	began := t.Now()
	t.Doing(opNames[DirRead])
	for b, number := range p.lastWrite {
		if number == 0 {
			continue
		}
		if k.opt.Stop != nil && k.opt.Stop.Load() {
			break
		}
		if p.users > 1 || k.job.depth() > 1 && (k.job.Direct || k.job.Engine == IOUring) {
			number = 0 // several writes of the unit may have been in flight
		}
		off := p.gen.start + int64(b)*size
		u.off, u.left, u.err = off, u.whole, nil
		t.Spend(cost.Issue, 1)
		start := t.Now()
		for n, err := k.syscall(t, &u, k.job.flags()&^kiocb.Nowait); !k.ended(t, &u, n, err); {
			n, err = k.syscall(t, &u, k.job.flags()&^kiocb.Nowait)
		}
		end := t.Now()
		if u.err != nil {
			k.failed = u.err
			break
		}
		k.res.Read.IOs++
		k.res.Read.Bytes += uint64(size)
		k.res.Depth[0]++
		k.res.Submit[1]++
		k.res.Complete[1]++
		k.res.Read.Clat.Add(end - start)
		k.res.Read.Lat.Add(end - start)
		if err := checkUnit(u.whole, off, k.num, number); err != nil {
			k.res.VerifyErrors++
			if k.failed == nil {
				k.failed = fmt.Errorf("%s: %w (%w)", p.name, err, errno.EILSEQ)
			}
		}
	}
	d := t.Now() - began
	k.res.Read.RunNs += d
	k.res.RunNs += d
	k.res.ElapsedNs += d
}
