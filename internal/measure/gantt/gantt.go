// Package gantt draws a run in virtual time: which task each CPU runs, who has each lock, and how
// many tasks wait for it.
//
// A run is as long as it likes; a picture is not. So a picture has columns, and a column keeps for
// each CPU and lock how long which task had it: it is an average over its time, and no moment is
// left out. The picture of the whole run widens its columns as the run goes on. Others show a short
// window, in which a column is shorter than most locks are held.
//
// Model: CPU time that a task has ahead of the clock (vtime: up to a microsecond) counts where it
// is spent.
package gantt

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"

	"btrlab/internal/sched"
	"btrlab/internal/sched/vtime"
)

const (
	columns = 500 // of a picture
	// classLocks is how many locks of a class are told apart: the first for which a task waits. The
	// others count together.
	classLocks = 12
	// names is how many tasks are told apart.
	names = 48
	// coldMax bounds the memory for locks for which no task has waited yet.
	coldMax = 4096
)

// others is the number of the locks of a class that are not told apart.
const others = -1

// Options say which windows are recorded.
type Options struct {
	CPUs  int             // of the machine
	Spans []time.Duration // how long each window is
	// At is when the windows begin; negative: of the windows that begin at 1, 2, 4, 8, ... times
	// their length, the one in which the CPUs are busiest.
	At time.Duration
}

// DefaultSpans show a burst, and single writes.
var DefaultSpans = []time.Duration{20 * time.Millisecond, time.Millisecond}

// Recorder is a vtime.Watcher that keeps what a picture shows.
type Recorder struct {
	whole   *window
	windows []*window // in the order of Options.Spans, then of time
	opt     Options
	began   int64 // when Begin was called
	ended   int64 // when End was called; 0: not yet
	next    []int64
	keys    map[string]int
	tasks   []string // by key
	seen    map[sched.ClassID]int
	hot     map[vtime.LockID]bool
	cold    map[vtime.LockID]part
	lockish [sched.MaxClasses]bool // the class has locks
}

// part is an interval, or a task's share of a column.
type part struct {
	key      int
	from, to int64
}

// New returns a Recorder. Nothing counts until Begin.
func New(o Options) *Recorder {
	return &Recorder{opt: o, began: -1, keys: map[string]int{}, seen: map[sched.ClassID]int{}, hot: map[vtime.LockID]bool{}, cold: map[vtime.LockID]part{}}
}

// Begin begins the pictures at now, in ns of the run's clock: what comes before is not drawn.
func (r *Recorder) Begin(now int64) {
	r.began, r.ended = now, 0
	r.whole = &window{from: now, width: 1000, grows: true}
	r.windows, r.next = nil, nil
	for i, d := range r.opt.Spans {
		at := int64(r.opt.At)
		if at < 0 {
			at = int64(d)
		}
		r.windows = append(r.windows, newWindow(now+at, int64(d), i))
		r.next = append(r.next, 2*at)
	}
}

// End ends them.
func (r *Recorder) End(now int64) { r.ended = now }

func newWindow(from, span int64, kind int) *window {
	return &window{from: from, width: max(1, span/columns), kind: kind}
}

// key is the number of t's name. Tasks of one kind, such as the workers of a queue, have one name.
func (r *Recorder) key(t *sched.Task) int {
	name := "readers"
	if t != nil {
		name, _, _ = strings.Cut(t.Name, "/")
	}
	k, ok := r.keys[name]
	if !ok {
		if k = len(r.tasks); k >= names {
			k, name = names, "other tasks"
		}
		if k == len(r.tasks) {
			r.tasks = append(r.tasks, name)
		}
		if len(r.keys) < 1<<16 {
			r.keys[name] = k
		}
	}
	return k
}

// each calls f with every window that shows part of an interval.
func (r *Recorder) each(from, to int64, f func(w *window, from, to int64)) {
	if r.began < 0 || r.ended > 0 && from >= r.ended {
		return
	}
	if r.ended > 0 {
		to = min(to, r.ended)
	}
	if from = max(from, r.began); from >= to {
		return
	}
	if r.opt.At < 0 {
		for i, at := range r.next {
			if to-r.began >= at {
				r.windows = append(r.windows, newWindow(r.began+at, int64(r.opt.Spans[i]), i))
				r.next[i] = 2 * at
			}
		}
	}
	f(r.whole, from, to)
	for _, w := range r.windows {
		if end := w.from + w.width*columns; from < end && to > w.from {
			f(w, max(from, w.from), min(to, end))
		}
	}
}

// Ran is vtime.Watcher's.
func (r *Recorder) Ran(t *sched.Task, cpu int, from, to int64) {
	k := r.key(t)
	r.each(from, to, func(w *window, from, to int64) { w.cpu(cpu).busy.add(w, k, from, to) })
}

// Spun is vtime.Watcher's.
func (r *Recorder) Spun(t *sched.Task, cpu int, from, to int64) {
	k := r.key(t)
	r.each(from, to, func(w *window, from, to int64) { w.cpu(cpu).wait.add(w, k, from, to) })
}

// Held is vtime.Watcher's. Of a lock for which no task has waited only the last time is kept.
func (r *Recorder) Held(t *sched.Task, l vtime.LockID, from, to int64) {
	r.lockish[l.Class] = true
	if !r.hot[l] {
		if len(r.cold) >= coldMax {
			clear(r.cold)
		}
		r.cold[l] = part{r.key(t), from, to}
		return
	}
	r.held(r.key(t), l, from, to)
}

func (r *Recorder) held(key int, l vtime.LockID, from, to int64) {
	r.each(from, to, func(w *window, from, to int64) { w.lock(l).busy.add(w, key, from, to) })
}

// Waited is vtime.Watcher's. Tasks that have nothing to do wait for a class whose name says so, or
// for no class.
func (r *Recorder) Waited(t *sched.Task, l vtime.LockID, from, to int64) {
	if l.N == 0 && (l.Class == 0 || r.lockish[l.Class] || strings.HasSuffix(sched.ClassByID(l.Class).Name, "_idle")) {
		return
	}
	if l.N > 0 && !r.hot[l] {
		if r.seen[l.Class] >= classLocks {
			l.N = others
		} else {
			r.seen[l.Class]++
			r.hot[l] = true
			if h, ok := r.cold[l]; ok {
				r.held(h.key, l, h.from, h.to)
				delete(r.cold, l)
			}
		}
	}
	k := r.key(t)
	r.each(from, to, func(w *window, from, to int64) { w.lock(l).wait.add(w, k, from, to) })
}

// window is a stretch of the clock in columns of one width.
type window struct {
	from, width int64
	grows       bool // the columns widen so that all has room
	kind        int  // which of Options.Spans
	cpus        []*lane
	locks       map[vtime.LockID]*lane
}

func (w *window) end() int64 { return w.from + w.width*columns }

// lane is a row of the picture: a CPU with the tasks that run and spin there, or a lock with its
// owners and waiters.
type lane struct{ busy, wait track }

// track has, for each column, how long each task was there, in ns.
type track struct {
	cells [columns]cell
}

type cell []share

type share struct {
	key int
	ns  int64
}

func (c *cell) add(key int, ns int64) {
	for i := range *c {
		if (*c)[i].key == key {
			(*c)[i].ns += ns
			return
		}
	}
	*c = append(*c, share{key, ns})
}

func (c cell) sum() (ns int64) {
	for _, s := range c {
		ns += s.ns
	}
	return ns
}

func (w *window) cpu(n int) *lane {
	for len(w.cpus) <= n {
		w.cpus = append(w.cpus, &lane{})
	}
	return w.cpus[n]
}

func (w *window) lock(l vtime.LockID) *lane {
	if w.locks == nil {
		w.locks = map[vtime.LockID]*lane{}
	}
	if w.locks[l] == nil {
		w.locks[l] = &lane{}
	}
	return w.locks[l]
}

// add adds [from, to) to the columns that it meets.
func (t *track) add(w *window, key int, from, to int64) {
	for w.grows && to > w.end() {
		w.widen()
	}
	for i := (from - w.from) / w.width; i < columns && from < to; i++ {
		end := min(to, w.from+(i+1)*w.width)
		t.cells[i].add(key, end-from)
		from = end
	}
}

// widen makes two columns one.
func (w *window) widen() {
	w.width *= 2
	for _, l := range w.cpus {
		l.busy.halve()
		l.wait.halve()
	}
	for _, l := range w.locks {
		l.busy.halve()
		l.wait.halve()
	}
}

func (t *track) halve() {
	for i := range columns {
		var c cell
		if 2*i < columns {
			c = t.cells[2*i]
			for _, s := range t.cells[2*i+1] {
				c.add(s.key, s.ns)
			}
		}
		t.cells[i] = c
	}
}

// total is each task's time in the track, by key.
func (t *track) total() map[int]int64 {
	sum := map[int]int64{}
	for _, c := range t.cells {
		for _, s := range c {
			sum[s.key] += s.ns
		}
	}
	return sum
}

func (t *track) sum() (ns int64) {
	for _, c := range t.cells {
		ns += c.sum()
	}
	return ns
}

// busy is the CPU time of the window.
func (w *window) busy() (ns int64) {
	for _, l := range w.cpus {
		ns += l.busy.sum()
	}
	return ns
}

// chosen are the windows to draw: the whole run, and of each span the busiest, the first of these.
// Windows that the run did not reach the end of are left out. of says from how many a window was
// chosen.
func (r *Recorder) chosen() (list []*window, of []int) {
	if r.whole == nil {
		return nil, nil
	}
	list, of = append(list, r.whole), append(of, 1)
	for kind := range r.opt.Spans {
		var best *window
		n := 0
		for _, w := range r.windows {
			if w.kind != kind || w.end() > r.ended {
				continue
			}
			n++
			if best == nil || w.busy() > best.busy() {
				best = w
			}
		}
		if best != nil {
			list, of = append(list, best), append(of, n)
		}
	}
	return list, of
}

// waits are the locks and events of a window for which tasks waited for so long or longer, the
// longest first; at most so many of either.
func (w *window) waits(least int64, most int) (locks, events []vtime.LockID) {
	ids := slices.SortedFunc(maps.Keys(w.locks), func(a, b vtime.LockID) int {
		return cmp.Or(cmp.Compare(w.locks[b].wait.sum(), w.locks[a].wait.sum()), cmp.Compare(a.Class, b.Class), cmp.Compare(a.N, b.N))
	})
	for _, l := range ids {
		switch {
		case w.locks[l].wait.sum() < max(1, least):
		case l.N == 0 && len(events) < most:
			events = append(events, l)
		case l.N != 0 && len(locks) < most:
			locks = append(locks, l)
		}
	}
	return locks, events
}
