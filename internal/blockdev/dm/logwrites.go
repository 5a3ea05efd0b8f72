package dm

import (
	"fmt"
	"math/rand/v2"

	"btrlab/internal/blockdev"
	"btrlab/internal/lock"
	"btrlab/internal/lock/lockdep"
	"btrlab/internal/sched"
)

var logClass = lockdep.NewClass("device_log")

// LogWrites records every write and flush that passes, in the order in which they ended, and builds
// from them what a crash may leave: what was written before a flush began is there after it; of
// what came later, anything.
type LogWrites struct {
	dev  blockdev.Device
	base *blockdev.Memory

	mu  lock.Mutex // leaf; protects log
	log []record
}

type record struct {
	kind recordKind
	off  int64
	data []byte
	// safe is of a flush: log[:safe] ended before the flush began.
	safe int
	mark string
}

type recordKind uint8

const (
	recWrite recordKind = iota
	recFlush
	recMark
)

// NewLogWrites records what goes to dev. Base is what dev holds now; nil is zeros.
func NewLogWrites(dev blockdev.Device, base *blockdev.Memory) *LogWrites {
	if base == nil {
		base = blockdev.NewMemory(dev.Size())
	}
	if base.Size() != dev.Size() {
		panic(fmt.Sprintf("dm: log of a device of %d bytes over a base of %d", dev.Size(), base.Size()))
	}
	l := &LogWrites{dev: dev, base: base.Snapshot()}
	l.mu.Init(logClass)
	return l
}

// Name is the device's below.
func (l *LogWrites) Name() string { return l.dev.Name() }

// Under is the device below.
func (l *LogWrites) Under() blockdev.Device { return l.dev }

// Size is in bytes.
func (l *LogWrites) Size() int64 { return l.dev.Size() }

// Close closes the device below. The log stays.
func (l *LogWrites) Close() error { return l.dev.Close() }

// Discard is recorded as a write of zeros, the worst that a device may make of it.
func (l *LogWrites) Discard(t *sched.Task, off, n int64) error {
	return blockdev.WriteZeros(t, l, off, n)
}

type logged struct {
	l     *LogWrites
	bio   *blockdev.Bio
	inner blockdev.Bio
	rec   record
}

// Submit passes b on and records it at its end. A write's bytes are those at Submit.
func (l *LogWrites) Submit(t *sched.Task, b *blockdev.Bio) {
	if b.Op == blockdev.OpRead {
		l.dev.Submit(t, b)
		return
	}
	r := &logged{l: l, bio: b}
	if b.Op == blockdev.OpFlush {
		l.mu.Lock(t)
		r.rec = record{kind: recFlush, safe: len(l.log)}
		l.mu.Unlock(t)
	} else {
		data := make([]byte, 0, b.Len())
		for _, v := range b.Vecs {
			data = append(data, v...)
		}
		r.rec = record{kind: recWrite, off: b.Off, data: data}
	}
	r.inner = blockdev.Bio{Op: b.Op, Off: b.Off, Vecs: b.Vecs, EndIO: endLogged, Private: r}
	l.dev.Submit(t, &r.inner)
}

func endLogged(t *sched.Task, b *blockdev.Bio) {
	r := b.Private.(*logged)
	l := r.l
	if b.Err == nil {
		l.mu.Lock(t)
		l.log = append(l.log, r.rec)
		l.mu.Unlock(t)
	}
	r.bio.Err = b.Err
	r.bio.EndIO(t, r.bio)
}

// Mark notes in the log that something is promised from here on: "fsync 17 returned". An image says
// the last mark before its crash.
func (l *LogWrites) Mark(t *sched.Task, name string) {
	l.mu.Lock(t)
	l.log = append(l.log, record{kind: recMark, mark: name})
	l.mu.Unlock(t)
}

// Counts is the number of writes and flushes in the log.
func (l *LogWrites) Counts(t *sched.Task) (writes, flushes int) {
	l.mu.Lock(t)
	defer l.mu.Unlock(t)
	for i := range l.log {
		switch l.log[i].kind {
		case recWrite:
			writes++
		case recFlush:
			flushes++
		}
	}
	return writes, flushes
}

// Image is the device after a crash.
type Image struct {
	// Name says which crash: "flush 3, dropped".
	Name string
	// Dev holds the image; it is the receiver's.
	Dev *blockdev.Memory
	// Mark is the last mark before the crash, "" if there was none.
	Mark string
	// Pending is the number of writes that no flush had covered.
	Pending int
}

// ImageOptions choose the crashes.
type ImageOptions struct {
	// SectorBytes is the unit that the device writes at once: a torn write ends at a multiple of
	// it. 0 is
	// 512. With 4096 a superblock is never torn.
	SectorBytes int
	// Subsets is the number of random subsets of the pending writes at each crash.
	Subsets int
	Seed    uint64
	// Stride takes every Stride-th flush only; 0 is all.
	Stride int
}

// Images calls f with what a crash just before the end of each flush, and one at the end of the
// log, may leave:
//
//	dropped     no pending write has reached the medium
//	all         every one has
//	torn        all, but the last one only in part
//	subset N    a random part of them, and one of them torn
//
// Where there are no pending writes all of these are one, "flushed". It stops at f's first error.
// The device must be idle.
func (l *LogWrites) Images(t *sched.Task, opt ImageOptions, f func(t *sched.Task, m Image) error) error {
	l.mu.Lock(t)
	log := l.log
	l.mu.Unlock(t)
	if opt.SectorBytes == 0 {
		opt.SectorBytes = 512
	}
	rng := rand.New(rand.NewPCG(opt.Seed, 0x63726173))
	durable := l.base.Snapshot()
	done := 0 // log[:done] is in durable
	flushes, mark := 0, ""
	for i := 0; i <= len(log); i++ {
		if i < len(log) && log[i].kind == recMark {
			mark = log[i].mark
		}
		if i < len(log) && log[i].kind != recFlush {
			continue
		}
		name := "end"
		if i < len(log) {
			flushes++
			name = fmt.Sprintf("flush %d", flushes)
		}
		if i == len(log) || opt.Stride <= 1 || flushes%opt.Stride == 0 {
			var pending []*record
			for j := done; j < i; j++ {
				if log[j].kind == recWrite {
					pending = append(pending, &log[j])
				}
			}
			if err := crashes(t, name, mark, durable, pending, opt, rng, f); err != nil {
				return err
			}
		}
		if i < len(log) {
			for ; done < log[i].safe; done++ {
				if log[done].kind == recWrite {
					apply(t, durable, &log[done], len(log[done].data))
				}
			}
		}
	}
	return nil
}

func crashes(t *sched.Task, name, mark string, durable *blockdev.Memory, pending []*record, opt ImageOptions, rng *rand.Rand, f func(t *sched.Task, m Image) error) error {
	give := func(how string, fill func(m *blockdev.Memory)) error {
		m := durable.Snapshot()
		fill(m)
		if err := f(t, Image{name + ", " + how, m, mark, len(pending)}); err != nil {
			return fmt.Errorf("crash at %s, %s (after %q, %d writes pending): %w", name, how, mark, len(pending), err)
		}
		return nil
	}
	if len(pending) == 0 {
		return give("flushed", func(*blockdev.Memory) {})
	}
	whole := func(m *blockdev.Memory, rs []*record) {
		for _, r := range rs {
			apply(t, m, r, len(r.data))
		}
	}
	if err := give("dropped", func(*blockdev.Memory) {}); err != nil {
		return err
	}
	if err := give("all", func(m *blockdev.Memory) { whole(m, pending) }); err != nil {
		return err
	}
	last := pending[len(pending)-1]
	if len(last.data) > opt.SectorBytes {
		if err := give("torn", func(m *blockdev.Memory) {
			whole(m, pending[:len(pending)-1])
			apply(t, m, last, torn(rng, last, opt.SectorBytes))
		}); err != nil {
			return err
		}
	}
	for k := range opt.Subsets {
		if err := give(fmt.Sprintf("subset %d", k+1), func(m *blockdev.Memory) {
			cut := rng.IntN(len(pending))
			for i, r := range pending {
				switch {
				case i == cut && len(r.data) > opt.SectorBytes:
					apply(t, m, r, torn(rng, r, opt.SectorBytes))
				case rng.IntN(2) == 0:
					apply(t, m, r, len(r.data))
				}
			}
		}); err != nil {
			return err
		}
	}
	return nil
}

// torn is how much of a write of several sectors a crash leaves: at least one sector, not all.
func torn(rng *rand.Rand, r *record, sector int) int {
	n := (len(r.data) + sector - 1) / sector
	return (1 + rng.IntN(n-1)) * sector
}

func apply(t *sched.Task, m *blockdev.Memory, r *record, n int) {
	if err := blockdev.Write(t, m, r.data[:n], r.off); err != nil {
		panic(fmt.Sprintf("dm: replay of a logged write: %v", err))
	}
}

// RecordKind says what a record is of.
type RecordKind uint8

// The kinds.
const (
	RecordWrite RecordKind = iota
	RecordFlush
	RecordMark
)

// Record is one entry of the log.
type Record struct {
	Kind RecordKind
	Off  int64  // of a write, bytes
	Data []byte // of a write; not to be changed
	// Safe is of a flush: the records before it in the log ended before the flush began, and are
	// durable once it has ended.
	Safe int
	Mark string
}

// Len is the number of records so far.
func (l *LogWrites) Len(t *sched.Task) int {
	l.mu.Lock(t)
	defer l.mu.Unlock(t)
	return len(l.log)
}

// Records is the log so far, in the order in which writes and flushes ended.
func (l *LogWrites) Records(t *sched.Task) []Record {
	l.mu.Lock(t)
	defer l.mu.Unlock(t)
	list := make([]Record, len(l.log))
	for i, r := range l.log {
		list[i] = Record{RecordKind(r.kind), r.off, r.data, r.safe, r.mark}
	}
	return list
}
