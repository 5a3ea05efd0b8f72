// Package trace is the one way up: code below reports what it did, and anything that wants to know
// (a profile, a timeline, a test) hangs a Sink here. With no sink a report costs one atomic load.
package trace

import (
	"runtime"
	"strings"
	"sync/atomic"

	"btrlab/internal/module"
)

// Wait is one finished wait of a task: for a lock, or for something that behaves like one.
type Wait struct {
	Class  string // lock class or wait class: "i_rwsem", "stable_page", ...
	Op     string // what the task was doing: "write", "truncate", ...
	Policy string // the locking policy in force
	Task   string
	Nanos  int64
}

// Sink receives reports. Its methods are called on the reporting task, possibly with locks held,
// so they must not block for long and must not call back into the file system.
type Sink interface {
	// Waited reports a finished wait. The code that waited is on the stack, outside of the frames
	// that are Inside.
	Waited(w Wait)
}

var sink atomic.Pointer[Sink]

// SetSink installs s for the whole process and returns the sink that was there; nil removes it.
func SetSink(s Sink) Sink {
	var old *Sink
	if s == nil {
		old = sink.Swap(nil)
	} else {
		old = sink.Swap(&s)
	}
	if old == nil {
		return nil
	}
	return *old
}

// On reports whether anybody listens.
func On() bool { return sink.Load() != nil }

// Waited passes w to the sink, if there is one.
func Waited(w Wait) {
	if s := sink.Load(); s != nil {
		(*s).Waited(w)
	}
}

var labels atomic.Pointer[func(op, policy string)]

// SetLabels installs f for the whole process; nil removes it. A task calls it on its own goroutine
// when it begins to do something else.
func SetLabels(f func(op, policy string)) {
	if f == nil {
		labels.Store(nil)
		return
	}
	labels.Store(&f)
}

// Doing passes what a task does from now on to what SetLabels installed.
func Doing(op, policy string) {
	if f := labels.Load(); f != nil {
		(*f)(op, policy)
	}
}

// Inside reports whether f is a frame of the packages that wait for their callers: trace, sched,
// lock and what is in their folders, without their tests. The stack of a wait begins after such
// frames.
func Inside(f *runtime.Frame) bool {
	pkg, ok := strings.CutPrefix(f.Function, module.Path+"/internal/")
	if !ok || strings.HasSuffix(f.File, "_test.go") {
		return false
	}
	pkg = pkg[:strings.IndexAny(pkg+".", "./")]
	return pkg == "lock" || pkg == "sched" || pkg == "trace"
}
