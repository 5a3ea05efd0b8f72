package gantt

import (
	"bufio"
	"cmp"
	"encoding/json"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"btrlab/internal/sched"
	"btrlab/internal/sched/vtime"
)

// MaxEvents bounds a Trace: Perfetto opens about so many at once.
const MaxEvents = 1 << 20

// Trace is a vtime.Watcher that keeps every interval of a window, for a viewer of traces: which
// task each CPU ran, what each task did and waited for, and who had each lock.
type Trace struct {
	at, span time.Duration // the window, since Begin
	from, to int64
	began    bool
	events   []event
	lost     int // events beyond MaxEvents
	tasks    map[*sched.Task]int
	names    []string // of tasks, by number from 1
	locks    map[vtime.LockID]int
	order    []vtime.LockID
}

// event is a complete event of the format: a slice of a track.
type event struct {
	track, tid int
	from, to   int64
	name       string
}

// The groups of tracks, which the format calls processes.
const (
	cpuTracks = 1 + iota
	taskTracks
	lockTracks
)

// NewTrace keeps span from at after Begin on.
func NewTrace(at, span time.Duration) *Trace {
	return &Trace{at: at, span: span, tasks: map[*sched.Task]int{}, locks: map[vtime.LockID]int{}}
}

// Begin begins the time of the job at now, in ns of the run's clock.
func (r *Trace) Begin(now int64) {
	r.began, r.from = true, now+int64(r.at)
	r.to = r.from + int64(r.span)
}

// End ends it: what comes later is not the job's.
func (r *Trace) End(now int64) { r.to = min(r.to, now) }

func (r *Trace) add(track, tid int, from, to int64, name string) {
	if from, to = max(from, r.from), min(to, r.to); !r.began || from >= to {
		return
	}
	if len(r.events) == MaxEvents {
		r.lost++
		return
	}
	r.events = append(r.events, event{track, tid, from, to, name})
}

func taskName(t *sched.Task) string {
	if t == nil {
		return "readers"
	}
	return t.Name
}

// task is the number of t.
func (r *Trace) task(t *sched.Task) int {
	n, ok := r.tasks[t]
	if !ok {
		r.names = append(r.names, taskName(t))
		n = len(r.names)
		r.tasks[t] = n
	}
	return n
}

// lock is the number of l.
func (r *Trace) lock(l vtime.LockID) int {
	n, ok := r.locks[l]
	if !ok {
		r.order = append(r.order, l)
		n = len(r.order)
		r.locks[l] = n
	}
	return n
}

func lockName(l vtime.LockID) string {
	name := sched.ClassByID(l.Class).Name
	if l.N > 0 {
		name += " " + strconv.Itoa(int(l.N))
	}
	return name
}

// shows says whether an interval is in the window, before a number is spent on it.
func (r *Trace) shows(from, to int64) bool { return r.began && from < r.to && to > r.from }

// Ran is vtime.Watcher's.
func (r *Trace) Ran(t *sched.Task, cpu int, from, to int64) {
	if r.shows(from, to) {
		r.add(cpuTracks, cpu, from, to, taskName(t))
		r.add(taskTracks, r.task(t), from, to, "runs")
	}
}

// Spun is vtime.Watcher's.
func (r *Trace) Spun(t *sched.Task, cpu int, from, to int64) {
	if r.shows(from, to) {
		r.add(cpuTracks, cpu, from, to, taskName(t)+" spins")
	}
}

// Held is vtime.Watcher's.
func (r *Trace) Held(t *sched.Task, l vtime.LockID, from, to int64) {
	if r.shows(from, to) {
		r.add(lockTracks, r.lock(l), from, to, taskName(t))
	}
}

// Waited is vtime.Watcher's. A task with nothing to do waits for a class whose name says so, or for
// none: its track is empty then.
func (r *Trace) Waited(t *sched.Task, l vtime.LockID, from, to int64) {
	if r.shows(from, to) && l.Class != 0 && !strings.HasSuffix(sched.ClassByID(l.Class).Name, "_idle") {
		r.add(taskTracks, r.task(t), from, to, "waits for "+lockName(l))
	}
}

// Write writes the trace in the JSON of Chrome's trace events, which Perfetto and chrome://tracing
// open. Times count from the window's begin. The slices of a track come one after the other: where
// CPU time that a task has ahead of the clock reaches into the next one, that begins later.
func (r *Trace) Write(w io.Writer, title, command string) error {
	b := bufio.NewWriter(w)
	line := func(v any) {
		p, err := json.Marshal(v)
		if err == nil {
			_, err = b.Write(append(p, ",\n"...))
		}
		_ = err // the writer keeps its first error for Flush
	}
	type args map[string]any
	meta := func(what string, pid, tid int, v args) {
		line(map[string]any{"ph": "M", "name": what, "pid": pid, "tid": tid, "args": v})
	}
	b.WriteString("{\"traceEvents\": [\n")
	for _, g := range []struct {
		pid  int
		name string
	}{{cpuTracks, "CPUs"}, {taskTracks, "tasks"}, {lockTracks, "locks"}} {
		meta("process_name", g.pid, 0, args{"name": g.name})
		meta("process_sort_index", g.pid, 0, args{"sort_index": g.pid})
	}
	for i, name := range r.names {
		meta("thread_name", taskTracks, i+1, args{"name": name})
	}
	for i, l := range r.order {
		meta("thread_name", lockTracks, i+1, args{"name": lockName(l)})
	}
	slices.SortStableFunc(r.events, func(a, b event) int {
		return cmp.Or(cmp.Compare(a.track, b.track), cmp.Compare(a.tid, b.tid), cmp.Compare(a.from, b.from))
	})
	var last event
	for _, e := range r.events {
		if e.track == last.track && e.tid == last.tid {
			if e.from = max(e.from, last.to); e.from >= e.to {
				continue
			}
		}
		last = e
		if e.track == cpuTracks && e.tid >= 0 {
			e.tid++ // a viewer takes thread 0 for the process
		}
		line(struct {
			Ph   string  `json:"ph"`
			Name string  `json:"name"`
			Pid  int     `json:"pid"`
			Tid  int     `json:"tid"`
			Ts   float64 `json:"ts"`
			Dur  float64 `json:"dur"`
		}{"X", e.name, e.track, e.tid, float64(e.from-r.from) / 1000, float64(e.to-e.from) / 1000})
	}
	labels, err := json.Marshal(map[string]any{"ph": "M", "name": "process_labels", "pid": cpuTracks, "tid": 0, "args": args{"labels": title}})
	if err != nil {
		return err
	}
	b.Write(labels)
	end, err := json.Marshal(map[string]any{"title": title, "command": command, "events lost": strconv.Itoa(r.lost)})
	if err != nil {
		return err
	}
	b.WriteString("\n],\n\"displayTimeUnit\": \"ns\",\n\"otherData\": ")
	b.Write(end)
	b.WriteString("}\n")
	return b.Flush()
}

// Lost is how many events there were beyond MaxEvents.
func (r *Trace) Lost() int { return r.lost }

// Pictured is a Watcher that is told when the job begins and ends: a Recorder or a Trace.
type Pictured interface {
	vtime.Watcher
	Begin(now int64)
	End(now int64)
}

// Watchers are several in the place of one.
type Watchers []Pictured

// Begin begins the time of the job at now, in ns of the run's clock.
func (l Watchers) Begin(now int64) {
	for _, w := range l {
		w.Begin(now)
	}
}

// End ends it.
func (l Watchers) End(now int64) {
	for _, w := range l {
		w.End(now)
	}
}

// Ran is vtime.Watcher's.
func (l Watchers) Ran(t *sched.Task, cpu int, from, to int64) {
	for _, w := range l {
		w.Ran(t, cpu, from, to)
	}
}

// Spun is vtime.Watcher's.
func (l Watchers) Spun(t *sched.Task, cpu int, from, to int64) {
	for _, w := range l {
		w.Spun(t, cpu, from, to)
	}
}

// Held is vtime.Watcher's.
func (l Watchers) Held(t *sched.Task, id vtime.LockID, from, to int64) {
	for _, w := range l {
		w.Held(t, id, from, to)
	}
}

// Waited is vtime.Watcher's.
func (l Watchers) Waited(t *sched.Task, id vtime.LockID, from, to int64) {
	for _, w := range l {
		w.Waited(t, id, from, to)
	}
}
