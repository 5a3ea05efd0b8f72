package fio

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
)

// With verify=crc32c every unit (the smallest block) of what is written begins with a header, as fio's with
// verify_interval, so that requests of other sizes can overlap it and each unit can still be judged.
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
