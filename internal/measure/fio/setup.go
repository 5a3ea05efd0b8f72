package fio

import (
	"errors"
	"fmt"
	"time"

	"btrlab/internal/errno"
	"btrlab/internal/hostio"
	"btrlab/internal/sched"
)

// setup finds the region of a worker, makes its file large enough, and its buffers.
func (k *worker) setup(t *sched.Task) error {
	j := k.job
	size := k.file.target.Size(t)
	whole := size // the file as the job wants it
	if j.FileSize > 0 {
		whole = j.FileSize
	}
	unit := int64(j.minBS())
	off := j.Offset
	if j.OffsetPercent > 0 {
		off = whole * int64(j.OffsetPercent) / 100
		off -= off % unit
	}
	off += int64(k.of) * j.OffsetStep
	length := whole - off
	switch {
	case j.SizePercent > 0:
		length = whole * int64(j.SizePercent) / 100
	case j.FileSize > 0:
	case j.Size > 0:
		length = j.Size
	}
	if j.FileSize == 0 && j.SizePercent == 0 && j.Size == 0 && size == 0 {
		return fmt.Errorf("the file is empty and no size is given")
	}
	if off+length > whole && (j.FileSize > 0 || j.SizePercent > 0) {
		length = whole - off
	}
	if length < unit {
		return fmt.Errorf("nothing to do: %d bytes at offset %d hold no block of %d", max(length, 0), off, unit)
	}
	k.ioSize = length - length%unit
	if j.FileSize > 0 && j.Size > 0 {
		k.ioSize = j.Size
	}
	if j.IOSize > 0 {
		k.ioSize = j.IOSize
	}
	if err := k.layout(t, max(off+length, j.FileSize)); err != nil {
		return fmt.Errorf("lay out: %w", err)
	}

	// Two rounds of the generator apart: neighbouring seeds give unlike sequences.
	seed := random(j.RandSeed*0x2545f4914f6cdd1d + uint64(k.num)*0x9e3779b97f4a7c15 + 1)
	k.gen = region{rnd: random(seed.next()), start: off, unit: unit, blocks: uint64(length / unit), random: j.Random,
		bs: j.BS, mixRead: uint64(j.RWMixRead), both: j.Read && j.Write, skip: j.Skip / unit, follow: j.Follow}
	if j.Random {
		k.gen.dist = j.Distribution.picker(k.gen.blocks)
	}
	if j.Write {
		k.gen.onlyDir = DirWrite
	}
	if j.Random && !j.NoRandomMap {
		k.gen.bmap = newBlockMap(k.gen.blocks)
	}
	k.makeUnits()
	for d, r := range j.RateIOPS {
		if r > 0 {
			k.rateStep[d] = int64(time.Second) / int64(r)
		}
	}
	k.loops, k.pauses = j.Loops-1, random(seed.next())
	if j.Verify && j.Write && j.DoVerify {
		k.lastWrite = make([]uint64, k.gen.blocks)
	}
	k.res.HasSlat = j.Engine.async()
	if k.opt.Stamper != nil && j.Write {
		k.stamp = k.opt.Stamper(j, k.num)
	}
	k.res.Name, k.res.Desc, k.res.GroupID, k.res.Tasks = j.Name, j.Description, k.group, 1
	k.res.Options, k.res.IODepth, k.res.IgnoresErrors = j.Options, j.IODepth, len(j.IgnoreError[0])+len(j.IgnoreError[1]) > 0
	return nil
}

// layout makes the file want bytes long: what will be read is written, the rest is allocated as
// fallocate= says.
//
// Models fio filesetup.c:extend_file() and fallocate_file().
func (k *worker) layout(t *sched.Task, want int64) error {
	f, j := k.file.target, k.job
	have := f.Size(t)
	if have >= want {
		return nil
	}
	switch j.Fallocate {
	case FallocNative, FallocPosix, FallocKeep:
		mode := uint32(0)
		if j.Fallocate == FallocKeep {
			mode = fallocKeepSize
		}
		err := f.Fallocate(t, mode, 0, want)
		if err != nil && !(j.Fallocate == FallocNative && errors.Is(err, errno.EOPNOTSUPP)) {
			return err
		}
	case FallocTruncate:
		if err := f.Truncate(t, want); err != nil {
			return err
		}
	}
	if !j.Read {
		return nil
	}
	chunk := make([]byte, 1<<20)
	rnd := random(have)
	for off := have; off < want; {
		p := chunk[:min(int64(len(chunk)), want-off)]
		rnd.fill(p)
		n, err := f.WriteAt(t, p, off)
		if err != nil {
			return err
		}
		off += int64(n)
		if k.opt.Stop != nil && k.opt.Stop.Load() {
			break
		}
	}
	return f.Fsync(t)
}

// makeUnits makes as many units as may be in flight, each with buffers of its own.
func (k *worker) makeUnits() {
	j := k.job
	k.units = make([]unit, j.depth())
	for i := range k.units {
		u := &k.units[i]
		u.tag = uint32(i)
		for d, use := range [2]bool{j.Read, j.Write} {
			if use {
				u.mem[d] = hostio.Aligned(j.maxBS(d))
			}
		}
		if j.Write && i == 0 {
			// once: the sequence of offsets does not depend on iodepth
			k.gen.rnd.fill(u.mem[DirWrite])
		}
		copy(u.mem[DirWrite], k.units[0].mem[DirWrite])
		k.free = append(k.free, u)
	}
}
