package judges

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"time"

	"btrlab/internal/format"
	"btrlab/internal/fs"
	"btrlab/internal/iopath"
	"btrlab/internal/judge/oracle"
	"btrlab/internal/kiocb"
	"btrlab/internal/sched"
	"btrlab/internal/sched/explore"
	"btrlab/labs/kit"
)

// The explorer judges small scenarios, and a measurement runs one schedule on a big file. Code that
// tells the two apart could lock in the first and not in the second. So what is measured is judged
// as well:
//
//	recorder   notes each request of the timed tasks, and the oracle judges their history and the
//	           file
//	meeting    afterwards, on the same file and not timed: rounds of requests that do meet, judged
//	           alike

// recorder notes what tasks in virtual time, which run one at a time, do with a file.
type recorder struct {
	f    *fs.File
	hist oracle.History
}

// newRecorder begins a history of f, whose bytes are zero.
func newRecorder(t *sched.Task, f *fs.File) *recorder {
	w := &recorder{f: f}
	w.begin(t)
	return w
}

// begin forgets what was noted. The bytes that the file has now are not looked at.
func (w *recorder) begin(t *sched.Task) {
	size := w.f.Size(t)
	w.hist = oracle.History{Size: size, Holes: []oracle.Range{{Lo: 0, Hi: size}}, FinalSize: oracle.NoSize, Ops: w.hist.Ops[:0], Final: w.hist.Final[:0]}
}

// enter notes an operation that begins now. Its number stays, and end is given it when it has
// returned.
func (w *recorder) enter(t *sched.Task, o oracle.Op) oracle.ID {
	o.ID, o.Start, o.End = oracle.ID(len(w.hist.Ops)+1), t.Now(), oracle.Never
	w.hist.Ops = append(w.hist.Ops, o)
	return o.ID
}

func (w *recorder) end(t *sched.Task, id oracle.ID) *oracle.Op {
	o := &w.hist.Ops[id-1]
	o.End = t.Now()
	return o
}

// A word of a painted buffer is the number of its operation.
const wordBytes = 4

func paint(p []byte, id oracle.ID) {
	for i := 0; i+wordBytes <= len(p); i += wordBytes {
		binary.LittleEndian.PutUint32(p[i:], uint32(id))
	}
}

// unpaint appends to dst whose words p has, which is at off in the file.
func (w *recorder) unpaint(dst []oracle.Seen, p []byte, off int64) []oracle.Seen {
	for i := 0; i+wordBytes <= len(p); i += wordBytes {
		id := oracle.ID(binary.LittleEndian.Uint32(p[i:]))
		switch {
		case id == 0:
			id = oracle.Zero
		case id < 0 || int(id) > len(w.hist.Ops):
			id = oracle.Foreign
		}
		at := off + int64(i)
		if n := len(dst); n > 0 && dst[n-1].From == id && dst[n-1].Hi == at {
			dst[n-1].Hi += wordBytes
		} else {
			dst = append(dst, oracle.Seen{Lo: at, Hi: at + wordBytes, From: id})
		}
	}
	return dst
}

// write writes n bytes at off by way of p; with slow set the source is not there from slow on until
// it was waited for.
func (w *recorder) write(t *sched.Task, off int64, p []byte, slow int) error {
	id := w.enter(t, oracle.Op{Kind: oracle.Write, Lo: off, Hi: off + int64(len(p)), Batches: pagesIn(off, off+int64(len(p)))})
	paint(p, id)
	n, err := w.f.WriteIter(t, kiocb.Request{Pos: uint64(off)}, sourceOf(p, slow))
	w.end(t, id)
	return whole(n, len(p), err)
}

// append appends p.
func (w *recorder) append(t *sched.Task, p []byte, slow int) error {
	id := w.enter(t, oracle.Op{Kind: oracle.Append})
	paint(p, id)
	var at uint64
	n, err := w.f.WriteIter(t, kiocb.Request{Flags: kiocb.Append, Wrote: &at}, sourceOf(p, slow))
	o := w.end(t, id)
	o.Lo, o.Hi = int64(at), int64(at)+int64(n)
	o.Batches = pagesIn(o.Lo, o.Hi)
	return whole(n, len(p), err)
}

func (w *recorder) read(t *sched.Task, off int64, p []byte) error {
	id := w.enter(t, oracle.Op{Kind: oracle.Read, Lo: off, Hi: off + int64(len(p))})
	n, err := w.f.ReadAt(t, p, off)
	if errors.Is(err, io.EOF) {
		err = nil
	}
	o := w.end(t, id)
	o.Got, o.See = int64(n), w.unpaint(nil, p[:n], off)
	return err
}

func (w *recorder) truncate(t *sched.Task, size int64) error {
	id := w.enter(t, oracle.Op{Kind: oracle.Truncate, Lo: size})
	err := w.f.Truncate(t, size)
	w.end(t, id)
	return err
}

func (w *recorder) punch(t *sched.Task, off, n int64) error {
	id := w.enter(t, oracle.Op{Kind: oracle.Punch, Lo: off, Hi: off + n})
	err := w.f.Fallocate(t, fs.FALLOC_FL_PUNCH_HOLE|fs.FALLOC_FL_KEEP_SIZE, off, n)
	w.end(t, id)
	return err
}

// whole is err, or an error if fewer bytes were written than asked for.
func whole(n, want int, err error) error {
	if err == nil && n != want {
		err = fmt.Errorf("a write of %d bytes has written %d", want, n)
	}
	return err
}

// pagesIn are the offsets in (lo, hi) at which a page begins: where a lab may end a
// batch.
func pagesIn(lo, hi int64) (l []int64) {
	for at := lo&^4095 + 4096; at < hi; at += 4096 {
		l = append(l, at)
	}
	return l
}

// judge reads [lo, hi), as far as the file goes, when all that was noted has returned, and asks for
// an order that explains it.
func (w *recorder) judge(t *sched.Task, lo, hi int64, rule oracle.Rule, when string) error {
	size := w.f.Size(t)
	w.hist.FinalSize = size
	p := make([]byte, 1<<20)
	for at := lo; at < min(hi, size); {
		k := min(int64(len(p)), min(hi, size)-at)
		if n, err := w.f.ReadAt(t, p[:k], at); int64(n) != k {
			return fmt.Errorf("%s: read %d of %d bytes: %w", when, n, k, err)
		}
		w.hist.Final = w.unpaint(w.hist.Final, p[:k], at)
		at += k
	}
	var c oracle.Checker
	if c.Check(&w.hist, rule).Outcome != oracle.Broken {
		return nil
	}
	text := when + " no order of the requests explains what is in the file"
	if x := c.Explain(&w.hist, rule); x != nil {
		text = x.Plain(when)
	}
	return violation{explore.KindOracle, text}
}

// slowly is a source of which the bytes from at on are on a device: the page fault waits for it,
// once.
type slowly struct {
	at   int
	here bool
}

const faultTime = 300 * time.Microsecond

func sourceOf(p []byte, slow int) iopath.Source {
	if slow <= 0 {
		return iopath.Source{Buf: p}
	}
	return iopath.Source{Buf: p, Faults: &slowly{at: slow}}
}

func (s *slowly) FaultIn(t *sched.Task, from, to int) int {
	if !s.here && from >= s.at {
		t.Sleep(faultTime)
		s.here = true
	}
	return to - from
}

func (s *slowly) Present(from, to int) int {
	if s.here || to <= s.at {
		return to - from
	}
	return max(s.at-from, 0)
}

// meeting is rounds of requests that meet in a file: writers over each other whose sources are
// slow, a reader, appends, truncates, and holes if the student's policy has a say in them. The file
// has its size again after each round.
type meeting struct {
	rule  oracle.Rule // of writers over each other; what changes the size is whole in every lab
	holes bool
	// piece is the size of the measured requests: some that meet are like those in size and place.
	piece int64
}

// The measures of a round.
const (
	meetBytes = 128 << 10 // of the file that a round is in
	// rounds of each kind, at places from the beginning of the file to its end
	meetParts = 6
)

// meet runs the rounds. f has a multiple of meetBytes, and more than one.
func (c meeting) meet(t *sched.Task, f *fs.File) error {
	const kib = 1024
	size := int64(f.Size(t))
	w := newRecorder(t, f)
	buf := func(n int64) []byte { return make([]byte, n) }
	for i := range int64(meetParts) {
		at := (size - meetBytes) / (meetParts - 1) * i &^ (meetBytes - 1)
		if i == meetParts-1 {
			at = size - meetBytes
		}
		inside := []func(t *sched.Task) error{
			func(t *sched.Task) error { return w.write(t, at, buf(96*kib), 48*kib) },
			func(t *sched.Task) error { return w.write(t, at+16*kib, buf(64*kib), 0) },
			func(t *sched.Task) error { return w.write(t, at+32*kib, buf(96*kib), 8*kib) },
			func(t *sched.Task) error { return w.read(t, at, buf(64*kib)) },
		}
		if c.holes {
			inside = append(inside, func(t *sched.Task) error { return w.punch(t, at+24*kib, 40*kib) })
		}
		if err := c.round(t, w, at, at+meetBytes, c.rule, inside); err != nil {
			return err
		}
		slow := 0
		// a fault makes two batches of what a policy may take for one
		if c.piece > format.SectorSize*kit.BatchMin {
			slow = int(c.piece / 2)
		}
		alike := []func(t *sched.Task) error{
			func(t *sched.Task) error { return w.write(t, at, buf(c.piece), slow) },
			func(t *sched.Task) error { return w.write(t, at, buf(c.piece), 0) },
		}
		if err := c.round(t, w, at, at+meetBytes, c.rule, alike); err != nil {
			return err
		}
		alike = []func(t *sched.Task) error{
			func(t *sched.Task) error { return w.write(t, size-c.piece, buf(c.piece), slow) },
			func(t *sched.Task) error { return w.truncate(t, size-c.piece+c.piece/4) },
		}
		if err := c.round(t, w, size-meetBytes, size+meetBytes, calls, alike); err != nil {
			return err
		}
		if err := f.Truncate(t, size); err != nil {
			return err
		}
		cut := size - 96*kib + i*8*kib
		ending := []func(t *sched.Task) error{
			func(t *sched.Task) error { return w.write(t, size-96*kib, buf(96*kib), 64*kib) },
			func(t *sched.Task) error { return w.truncate(t, cut) },
		}
		if i%2 == 1 {
			ending = []func(t *sched.Task) error{
				func(t *sched.Task) error { return w.append(t, buf(32*kib), 16*kib) },
				func(t *sched.Task) error { return w.append(t, buf(32*kib), 0) },
				func(t *sched.Task) error { return w.write(t, size-16*kib, buf(48*kib), 32*kib) },
			}
		}
		if err := c.round(t, w, size-meetBytes, size+meetBytes, calls, ending); err != nil {
			return err
		}
		if err := f.Truncate(t, size); err != nil {
			return err
		}
	}
	return nil
}

// round runs the tasks together, each a little later than the one before, and judges what they
// leave in [lo, hi).
func (c meeting) round(t *sched.Task, w *recorder, lo, hi int64, rule oracle.Rule, tasks []func(t *sched.Task) error) error {
	w.begin(t)
	w.hist.Holes = nil
	// A write by one task alone, so that the bytes before have a number.
	if err := w.write(t, lo, make([]byte, min(hi, w.hist.Size)-lo), 0); err != nil {
		return err
	}
	if _, err := inTasks(t, len(tasks), func(t *sched.Task, i int) error {
		t.Dirty = sched.DirtyState{Pause: 8} // small batches
		t.Sleep(time.Duration(1+i) * faultTime / 8)
		return tasks[i](t)
	}); err != nil {
		return err
	}
	return w.judge(t, lo, hi, rule, fmt.Sprintf("when requests met in the measured file, %s to %s", oracle.Offset(lo), oracle.Offset(hi)))
}
