package fio

import (
	"errors"
	"fmt"
	"time"

	"btrlab/internal/errno"
	"btrlab/internal/hostio"
	"btrlab/internal/sched"
)

// setup finds the regions of a worker, makes its files large enough, and its buffers.
func (k *worker) setup(t *sched.Task) error {
	j := k.job
	// Two rounds of the generator apart: neighbouring seeds give unlike sequences.
	seed := random(j.RandSeed*0x2545f4914f6cdd1d + uint64(k.num)*0x9e3779b97f4a7c15 + 1)
	first, pauses := random(seed.next()), random(seed.next())
	sizes, others := random(seed.next()), random(seed.next())
	k.chooser = random(seed.next())
	for i := range k.parts {
		rnd := first
		if i > 0 {
			rnd = random(others.next())
		}
		n, err := k.place(t, &k.parts[i], j.sizeOf(&sizes), rnd)
		if err != nil {
			return fmt.Errorf("%s: %w", k.parts[i].name, err)
		}
		k.ioSize += n
	}
	if j.FileSizeMax > 0 && j.Size > 0 {
		k.ioSize = min(k.ioSize, j.Size)
	}
	if j.IOSize > 0 {
		k.ioSize = j.IOSize
	}
	switch j.Service.kind {
	case roundRobin:
		k.turns = j.Service.Each // the first file's
	case zipfFile:
		k.files = newZipf(uint64(len(k.parts)), j.Service.theta)
	}
	k.makeUnits()
	for d, r := range j.RateIOPS {
		if r > 0 {
			k.rateStep[d] = int64(time.Second) / int64(r)
		}
	}
	k.logs = k.newLogger()
	k.loops, k.pauses = j.Loops-1, pauses
	k.res.HasSlat = j.Engine.async()
	if k.opt.Stamper != nil && j.Write {
		k.stamp = k.opt.Stamper(j, k.num)
	}
	k.res.Name, k.res.Desc, k.res.GroupID, k.res.Tasks = j.Name, j.Description, k.group, 1
	k.res.Options, k.res.IODepth, k.res.IgnoresErrors = j.Options, j.IODepth, len(j.IgnoreError[0])+len(j.IgnoreError[1]) > 0 || j.IgnoreAll != [2]bool{}
	return nil
}

// layout makes f want bytes long: what will be read is written, the rest is allocated as
// fallocate= says.
//
// Models fio filesetup.c:extend_file() and fallocate_file().
func (k *worker) layout(t *sched.Task, f Target, want int64) error {
	j := k.job
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
		err := k.fallocate(t, f, mode, want)
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

// fallocateMost is how much one call allocates, in bytes. What is more is allocated in pieces, so
// that a stop is heard between two.
const fallocateMost = 1 << 40

func (k *worker) fallocate(t *sched.Task, f Target, mode uint32, want int64) error {
	piece := want
	if want > fallocateMost {
		piece = fallocateMost / 8
	}
	for off := int64(0); off < want && !(k.opt.Stop != nil && k.opt.Stop.Load()); off += piece {
		if err := f.Fallocate(t, mode, off, min(piece, want-off)); err != nil {
			return err
		}
	}
	return nil
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
			k.parts[0].gen.rnd.fill(u.mem[DirWrite])
		}
		copy(u.mem[DirWrite], k.units[0].mem[DirWrite])
		k.free = append(k.free, u)
	}
}
