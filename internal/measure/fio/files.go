package fio

import (
	"fmt"
	"slices"
	"strings"

	"btrlab/internal/sched"
)

// serviceKind is how a task with several files takes turns between them.
type serviceKind uint8

const (
	roundRobin serviceKind = iota
	randomFile             // uniform
	sequential             // one file after the other, each to its end
	zipfFile               // some files much more often than others
)

var serviceNames = [...]string{"roundrobin", "random", "sequential", "zipf"}

// Service is file_service_type=: which of a task's files the next request is for.
type Service struct {
	kind  serviceKind
	Each  int     // requests until another file's turn
	theta float64 // of zipf
}

const wantService = wantError("random, roundrobin or sequential, each with :N for N requests before the next file, or zipf:THETA")

func parseService(v string) (Service, error) {
	name, rest, has := strings.Cut(v, ":")
	kind := serviceKind(slices.Index(serviceNames[:], name))
	s := Service{kind: kind, Each: 1}
	switch {
	case int(kind) >= len(serviceNames):
		return s, wantService
	case kind == zipfFile:
		d, err := parseDistribution(v)
		s.theta = d.Theta
		return s, err
	case has:
		n, err := parseInt(rest, 1, 1<<31-1)
		s.Each = int(n)
		return s, err
	}
	return s, nil
}

// part is what a task does with one of its files.
type part struct {
	*file
	of        int // of the task's files
	gen       region
	lastWrite []uint64 // verify: by unit, the number of the write that went there; nil without
	done      bool     // every block was used once
}

// reset makes the whole of every file unused.
func (k *worker) reset() {
	for i := range k.parts {
		k.parts[i].gen.reset()
		k.parts[i].done = false
	}
}

// next is the file that the next request is for; nil if all are done.
//
// Models fio io_u.c:get_next_file(). Difference: the turn goes on with the file after the one that
// is done, where fio counts its requests on.
func (k *worker) next() *part {
	s, n := &k.job.Service, len(k.parts)
	if n == 1 {
		if k.parts[0].done {
			return nil
		}
		return &k.parts[0]
	}
	if p := &k.parts[k.turn]; !p.done && (s.kind == sequential || k.turns > 0) {
		k.turns--
		return p
	}
	k.turns = s.Each - 1
	at := k.turn + 1
	switch s.kind {
	case randomFile:
		at = int(k.chooser.below(uint64(n)))
	case zipfFile:
		at = int(k.files.pick(&k.chooser, uint64(n)))
	case sequential:
		at = k.turn
	}
	for i := range n {
		if p := &k.parts[(at+i)%n]; !p.done {
			k.turn = p.of
			return p
		}
	}
	return nil
}

// sizeOf is the size that the job wants a file of its to have; 0 is as it is. Sizes in a range are
// multiples of the smallest block, as fio's.
func (j *Job) sizeOf(sizes *random) int64 {
	if j.FileSizeMax == j.FileSizeMin {
		return j.FileSizeMin
	}
	n := j.FileSizeMin + int64(sizes.below(uint64(j.FileSizeMax-j.FileSizeMin+1)))
	return max(n-n%int64(j.minBS()), int64(j.minBS()))
}

// maxFill is how long a file of fill_device may become, in bytes.
const maxFill = 1 << 50

// fills reports whether the job writes until there is no space left.
func (j *Job) fills() bool {
	return j.FillDevice && j.Write && !j.Random && j.Size == 0 && j.SizePercent == 0
}

// NoWork is why a job has nothing to do in a file: the sizes that its words give hold no block.
type NoWork string

func (e NoWork) Error() string { return string(e) }

// place finds the region of p and makes its file large enough. It returns how many bytes of it a
// pass moves.
func (k *worker) place(t *sched.Task, p *part, want int64, rnd random) (int64, error) {
	j := k.job
	size := p.target.Size(t)
	whole := size // the file as the job wants it
	if want > 0 {
		whole = want
	}
	unit := j.unit()
	off := j.Offset
	if j.OffsetPercent > 0 {
		off = whole * int64(j.OffsetPercent) / 100
		off -= off % unit
	}
	off += int64(k.of) * j.OffsetStep
	length := whole - off
	fills := j.fills() && want == 0
	switch {
	case fills:
		length = maxFill
	case j.SizePercent > 0:
		length = whole * int64(j.SizePercent) / 100
	case want > 0:
	case j.Size > 0:
		length = j.Size / int64(len(k.parts))
	}
	if want == 0 && j.SizePercent == 0 && j.Size == 0 && size == 0 && !fills {
		return 0, NoWork("the file is empty and no size is given")
	}
	if off+length > whole && (want > 0 || j.SizePercent > 0) {
		length = whole - off
	}
	if length < unit {
		return 0, NoWork(fmt.Sprintf("nothing to do: %d bytes at offset %d hold no block of %d", max(length, 0), off, unit))
	}
	if j.Engine != Null && !fills {
		if err := k.layout(t, p.target, max(off+length, want)); err != nil {
			return 0, fmt.Errorf("lay out: %w", err)
		}
	}
	p.gen = region{rnd: rnd, start: off, unit: unit, blocks: uint64(length / unit), random: j.Random,
		bs: j.BS, mixRead: uint64(j.RWMixRead), both: j.Read && j.Write, skip: j.Skip / unit, follow: j.Follow}
	if j.Random {
		p.gen.dist = j.Distribution.picker(p.gen.blocks, j.SequenceStride)
	}
	if j.Write {
		p.gen.onlyDir = DirWrite
	}
	if j.Random && !j.NoRandomMap && j.BlockAlign == 0 && j.Distribution.Sequence == nil { // as fio
		p.gen.bmap = newBlockMap(p.gen.blocks)
	}
	if j.Verify && j.Write && j.DoVerify {
		p.lastWrite = make([]uint64, p.gen.blocks)
	}
	return length - length%unit, nil
}
