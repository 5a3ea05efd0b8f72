package judges

import (
	"fmt"
	"math"

	"btrlab/internal/data/inode"
	"btrlab/internal/format"
	"btrlab/internal/prose"
	"btrlab/internal/sched"
	"btrlab/internal/study/grade"
	"btrlab/internal/study/sandbox"
	"btrlab/labs/kit"
)

// A workload that is searched is small and at the beginning of a file, and code that is told where
// and how long a request is could be right there only. So one judge asks all labs elsewhere as
// well: every workload of a lab whose code is told places or lengths is searched again, as a part
// of its row, with its bytes moved and stretched. A lab whose code is told neither says why in
// About.Blind. What code could count instead of bytes (tasks, turns) the measured rows have: see
// stress, meeting and powerCuts.

// place is somewhere that no example is: an offset x of a workload is at + x*times there.
type place struct {
	name  string // that a workload has after its own
	at    int64
	times int64
}

func (p place) String() string {
	switch {
	case p.times == 1:
		return fmt.Sprintf("at %s of the file", bytesOf(p.at))
	case p.at == 0:
		return fmt.Sprintf("with every offset and length %d times as large", p.times)
	}
	return fmt.Sprintf("at %s of the file, with every offset and length %d times as large", bytesOf(p.at), p.times)
}

// bytesOf is n bytes in words.
func bytesOf(n int64) string {
	for i, unit := range []string{"TiB", "GiB", "MiB", "KiB"} {
		if u := int64(1) << (40 - 10*i); n >= u {
			return fmt.Sprintf("%d %s", n/u, unit)
		}
	}
	return prose.Count(n, "byte")
}

// places are all whole pages, and no powers of two.
var places = []place{
	{"@1M", 1<<20 + 7*4096, 1},
	{"@measured", measuredBytes, 1}, // the file of a scenario ends there, as the measured one does
	{"@5G", 5<<30 + 31*4096, 1},
	{"@3T", 3<<40 + 7*4096, 1},
	{"@wide", 48 << 20, 24},
}

// farSchedules bounds the search of a workload at one of the places: a mistake that is one
// everywhere shows in the first dozens of schedules.
const farSchedules = 100

// placed is a Lab whose workloads without a file system have places of their own.
type placed interface {
	Lab
	// moved is the lab with code that is told other places.
	moved(p place) Lab
}

// everywhere gives the workloads that are searched the same at other places.
func everywhere(l Lab) []Workload {
	rows := l.Workloads()
	if l.About().Blind != "" {
		return rows
	}
	var programs [][]Workload
	if l, ok := l.(placed); ok {
		for _, p := range places {
			programs = append(programs, l.moved(p).Workloads())
		}
	}
	for i := range rows {
		w := &rows[i]
		for k, p := range places {
			x := *w
			x.name, x.limit, x.quick = w.name+p.name, farSchedules, true
			switch {
			case w.family != nil: // which of so many, the lab says itself
				continue
			case w.scenario != nil && p.times > 1 && w.scenario.FillTo > 0: // space has a size
				continue
			case w.scenario != nil:
				at := p.at
				if at == measuredBytes {
					at = (at - w.scenario.File.Size) &^ (format.SectorSize - 1)
				}
				x.scenario = w.scenario.Wide(x.name, at, p.times)
			case w.program != nil && programs != nil:
				x.program = programs[k][i].program
			default:
				continue
			}
			w.far = append(w.far, farWorkload{p, x})
		}
	}
	return rows
}

// farWorkload is a workload at a place.
type farWorkload struct {
	place place
	Workload
}

// searchFar searches the workload elsewhere, once it has kept its rule where it stands. The first
// that does not is in the row, and returned.
func (w *Workload) searchFar(j *judging, r *grade.Row) (*farWorkload, error) {
	for i := range w.far {
		f := &w.far[i]
		sandbox.Execute(f.name)
		x := grade.Row{}
		if err := f.explore(j, &x); err != nil {
			return nil, fmt.Errorf("%v: %w", f.place, err)
		}
		if r.Schedules += x.Schedules; x.Violated {
			r.Pass, r.Exhausted, r.Violated = false, false, true
			r.Kind, r.Result, r.Schedule, r.Workload = x.Kind, x.Result, x.Schedule, f.name
			return f, nil
		}
	}
	return nil, nil
}

// find is the workload of a name, which may be one elsewhere.
func find(l []Workload, name string) *Workload {
	for i := range l {
		if l[i].name == name {
			return &l[i]
		}
		for k := range l[i].far {
			if f := &l[i].far[k]; f.name == name {
				return &f.Workload
			}
		}
	}
	return nil
}

// movedLock is a range lock whose code is told other places.
type movedLock struct {
	kit.RangeLocker
	place
}

// to is where an offset is; what is no place of a file stays the end of all.
func (p place) to(x uint64) uint64 {
	if x > math.MaxInt64/uint64(p.times)-uint64(p.at) {
		return math.MaxUint64
	}
	return uint64(p.at) + x*uint64(p.times)
}

func (l movedLock) Lock(t *kit.Task, start, end uint64) {
	l.RangeLocker.Lock(t, l.to(start), l.to(end))
}

func (l movedLock) Unlock(t *kit.Task, start, end uint64) {
	l.RangeLocker.Unlock(t, l.to(start), l.to(end))
}

func (l RangeLock) moved(p place) Lab {
	return RangeLock{New: func() kit.RangeLocker { return movedLock{l.New(), p} }}
}

func (l FairLock) moved(p place) Lab {
	return FairLock{RangeLock: RangeLock{New: func() kit.RangeLocker { return movedLock{l.New(), p} }}}
}

// movedRequest is a request of a ring whose code is told other counts.
type movedRequest struct {
	kit.RingRequest
	times int
}

func (q movedRequest) Done() int { return q.RingRequest.Done() * q.times }
func (q movedRequest) Left() int { return q.RingRequest.Left() * q.times }

// less is a count that the code says, in the ring's own.
func (q movedRequest) less(n int, call string) int {
	if n%q.times != 0 {
		breaks(completion, "%s of %d bytes, and no transfer has said such a number", call, n)
	}
	return n / q.times
}

func (q movedRequest) Advance(n int) { q.RingRequest.Advance(q.less(n, "Advance")) }

func (q movedRequest) Try(t *sched.Task) (int, error) {
	n, err := q.RingRequest.Try(t)
	return n * q.times, err
}

func (q movedRequest) Transfer(t *sched.Task) (int, error) {
	n, err := q.RingRequest.Transfer(t)
	return n * q.times, err
}

func (q movedRequest) Complete(t *sched.Task, n int, err error) {
	q.RingRequest.Complete(t, q.less(n, "Complete"), err)
}

// moved stretches the lengths of requests; they have no offsets.
func (l Ring) moved(p place) Lab {
	return Ring{SubmitPath: l.SubmitPath, times: int(min(max(p.at>>10, 1)*p.times, 1<<28))}
}

var _ = []placed{RangeLock{}, FairLock{}, Ring{}}

// excluding is what is measured of locks: run gets locks that are judged while it measures, so that
// no measured row counts in which two tasks have held one byte. All rows that measure locks go
// through it.
func excluding(newLock func() inode.RangeLocker, run lockRun) (ok bool, text string, err error) {
	judge := &exclusion{newLock: newLock}
	ok, text, err = run(judge.make)
	if judge.wrong != nil {
		return false, "", judge.wrong
	}
	return ok, text, err
}
