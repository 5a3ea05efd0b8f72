// Package profile collects profiles of a run: Go's own, and one of waits by lock class, operation
// and policy, which Go's mutex and block profiles cannot tell apart.
//
// Model: a Locks is the trace.Sink. Each wait is added to the stack that waited, with its labels
// lock, op and policy; waits are rare and long beside what adding costs. The written profile has
// the sample types contentions/count and delay/nanoseconds of Go's mutex profile, so
// `go tool pprof` and its -tagfocus, -tagroot and -http show it like one.
package profile

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/pprof"
	"os"
	"runtime"
	rtpprof "runtime/pprof"
	"slices"
	"sort"
	"strings"
	"sync"
	"time"

	"github.com/google/pprof/profile"

	"btrlab/internal/trace"
)

const (
	maxDepth   = 54 // with the frames inside sched and lock, which are left out
	lockShards = 16
)

// key is a stack with its labels.
type key struct {
	class, op, policy string
	n                 int
	pcs               [maxDepth]uintptr
}

type sum struct{ count, nanos int64 }

type shard struct {
	mu  sync.Mutex // leaf
	sum map[key]*sum
	_   [40]byte // shards on lines of their own
}

// Locks is a trace.Sink that adds up waits. The zero value is not ready; use NewLocks.
type Locks struct {
	start  time.Time
	shards [lockShards]shard
	keys   sync.Pool // *key: a key is too large for every stack
}

// NewLocks returns an empty profile. trace.SetSink makes it listen.
func NewLocks() *Locks {
	l := &Locks{start: time.Now(), keys: sync.Pool{New: func() any { return new(key) }}}
	for i := range l.shards {
		l.shards[i].sum = map[key]*sum{}
	}
	return l
}

// Waited adds a wait. It is called by the task that waited. A class whose name ends in _idle is a
// worker with nothing to do, which delays nobody: it is left out.
func (l *Locks) Waited(w trace.Wait) {
	if strings.HasSuffix(w.Class, "_idle") {
		return
	}
	k := l.keys.Get().(*key)
	k.class, k.op, k.policy = w.Class, w.Op, w.Policy
	k.n = runtime.Callers(2, k.pcs[:])
	clear(k.pcs[k.n:])
	h := uintptr(0)
	for _, pc := range k.pcs[:min(k.n, 10)] {
		h = h*31 + pc
	}
	s := &l.shards[h>>2%lockShards]
	s.mu.Lock()
	v := s.sum[*k]
	if v == nil {
		v = new(sum)
		s.sum[*k] = v
	}
	v.count++
	v.nanos += w.Nanos
	s.mu.Unlock()
	l.keys.Put(k)
}

// Listen makes the profile hear the waits of the process until stop, and nobody else.
func (l *Locks) Listen() (stop func()) {
	was := trace.SetSink(l)
	return func() { trace.SetSink(was) }
}

// ByClass is how long tasks have waited for each class of locks in the operations ops, in
// nanoseconds.
func (l *Locks) ByClass(ops ...string) map[string]int64 {
	sums := map[string]int64{}
	for i := range l.shards {
		s := &l.shards[i]
		s.mu.Lock()
		for k, v := range s.sum {
			if slices.Contains(ops, k.op) {
				sums[k.class] += v.nanos
			}
		}
		s.mu.Unlock()
	}
	return sums
}

// Profile is what was collected so far.
func (l *Locks) Profile() *profile.Profile {
	type entry struct {
		k key
		v sum
	}
	var all []entry
	for i := range l.shards {
		s := &l.shards[i]
		s.mu.Lock()
		for k, v := range s.sum {
			all = append(all, entry{k, *v})
		}
		s.mu.Unlock()
	}
	sort.Slice(all, func(i, k int) bool { return all[i].v.nanos > all[k].v.nanos })

	p := &profile.Profile{
		SampleType:        []*profile.ValueType{{Type: "contentions", Unit: "count"}, {Type: "delay", Unit: "nanoseconds"}},
		PeriodType:        &profile.ValueType{Type: "contentions", Unit: "count"},
		Period:            1,
		DefaultSampleType: "delay",
		TimeNanos:         l.start.UnixNano(),
		DurationNanos:     int64(time.Since(l.start)),
	}
	type place struct {
		fn, file string
		line     int
	}
	// Functions and lines are known: a reader need not look into the program, which it looks for
	// all the same.
	program := &profile.Mapping{ID: 1, File: executable(), HasFunctions: true, HasFilenames: true, HasLineNumbers: true, HasInlineFrames: true}
	p.Mapping = []*profile.Mapping{program}
	locs := map[place]*profile.Location{}
	funcs := map[[2]string]*profile.Function{}
	for _, e := range all {
		s := &profile.Sample{Value: []int64{e.v.count, e.v.nanos}, Label: map[string][]string{"lock": {e.k.class}}}
		for name, v := range map[string]string{"op": e.k.op, "policy": e.k.policy} {
			if v != "" {
				s.Label[name] = []string{v}
			}
		}
		// CallersFrames gives inlined calls frames of their own; leaf first, as a sample wants
		// them.
		for frames, more := runtime.CallersFrames(e.k.pcs[:e.k.n]), e.k.n > 0; more; {
			var f runtime.Frame
			f, more = frames.Next()
			if f.Function == "" || len(s.Location) == 0 && trace.Inside(&f) {
				continue
			}
			at := place{f.Function, f.File, f.Line}
			loc := locs[at]
			if loc == nil {
				fn := funcs[[2]string{f.Function, f.File}]
				if fn == nil {
					fn = &profile.Function{ID: uint64(len(p.Function) + 1), Name: f.Function, SystemName: f.Function, Filename: f.File}
					if f.Func != nil {
						_, start := f.Func.FileLine(f.Func.Entry())
						fn.StartLine = int64(start)
					}
					funcs[[2]string{f.Function, f.File}] = fn
					p.Function = append(p.Function, fn)
				}
				loc = &profile.Location{ID: uint64(len(p.Location) + 1), Mapping: program, Line: []profile.Line{{Function: fn, Line: int64(f.Line)}}}
				locs[at] = loc
				p.Location = append(p.Location, loc)
			}
			s.Location = append(s.Location, loc)
		}
		p.Sample = append(p.Sample, s)
	}
	return p
}

// executable is the program's path, or its name.
func executable() string {
	if path, err := os.Executable(); err == nil {
		return path
	}
	return os.Args[0]
}

// labeller gives the samples of a CPU profile what a task does and under which policy.
func labeller() func(op, policy string) {
	var known sync.Map // [2]string: context.Context
	return func(op, policy string) {
		key := [2]string{op, policy}
		ctx, ok := known.Load(key)
		if !ok {
			ctx, _ = known.LoadOrStore(key, rtpprof.WithLabels(context.Background(), rtpprof.Labels("op", op, "policy", policy)))
		}
		rtpprof.SetGoroutineLabels(ctx.(context.Context))
	}
}

// WriteLocks writes the lock profile so far as pprof's gzipped protobuf.
func (l *Locks) WriteLocks(w io.Writer) error {
	p := l.Profile()
	if err := p.CheckValid(); err != nil {
		return fmt.Errorf("lock profile: %w", err)
	}
	return p.Write(w)
}

// Paths says which profiles to write and where; an empty path is none. Lock is written as a text to
// LockText where it is "-". Breakdown, if set, gets tables of where the time went.
type Paths struct {
	CPU, Mutex, Block, Lock string
	LockText                io.Writer
	Breakdown               io.Writer
}

// Start begins the profiles. Stop ends them and writes the files; call it once.
//
// Mutex and block profiles see the sync primitives under lock.*, as Go does; Lock knows their
// classes.
func Start(p Paths) (stop func() error, err error) {
	var undo []func() error
	stop = func() error {
		var errs []error
		for _, f := range slices.Backward(undo) {
			errs = append(errs, f())
		}
		return errors.Join(errs...)
	}
	// Files are made first: a path that cannot be written is said before the run, not after it.
	for _, want := range p.profiles() {
		if want.path == "" {
			continue
		}
		var f *os.File
		var err error
		if want.path != "-" || want.text == nil {
			f, err = os.Create(want.path)
		}
		var end func(*os.File) error
		if err == nil {
			if end, err = want.begin(f); err != nil && f != nil {
				f.Close()
			}
		}
		if err != nil {
			return nil, errors.Join(fmt.Errorf("profile: %w", err), stop())
		}
		undo = append(undo, func() error { return end(f) })
	}
	return stop, nil
}

// one is a profile to begin; the end that begin returns writes and closes the file.
type one struct {
	path  string
	text  io.Writer // where the text goes if path is "-"; nil if there is no text
	begin func(f *os.File) (end func(f *os.File) error, err error)
}

// profiles are all there are, those without a path as well.
func (p Paths) profiles() []one {
	cpu, tables := p.CPU, ""
	down := &breakdown{}
	if p.Breakdown != nil {
		cpu, tables = cmp.Or(cpu, "-"), "-"
	}
	return []one{
		{tables, p.Breakdown, func(*os.File) (func(*os.File) error, error) {
			// it begins first and ends last: it reads the CPU profile
			down.began = time.Now()
			stop := down.listen()
			return func(*os.File) error {
				took := time.Since(down.began)
				stop()
				// a mount has more of Go's processors than there are CPUs
				return down.write(p.Breakdown, took, min(runtime.GOMAXPROCS(0), runtime.NumCPU()))
			}, nil
		}},
		{cpu, p.Breakdown, func(f *os.File) (func(*os.File) error, error) {
			var to []io.Writer
			if f != nil {
				to = append(to, f)
			}
			if p.Breakdown != nil {
				to = append(to, &down.cpu)
			}
			err := rtpprof.StartCPUProfile(io.MultiWriter(to...))
			trace.SetLabels(labeller())
			return func(f *os.File) error {
				trace.SetLabels(nil)
				rtpprof.StopCPUProfile()
				if f == nil {
					return nil
				}
				return f.Close()
			}, err
		}},
		{p.Mutex, nil, func(*os.File) (func(*os.File) error, error) {
			was := runtime.SetMutexProfileFraction(1)
			return func(f *os.File) error {
				runtime.SetMutexProfileFraction(was)
				return finish(f, func(w io.Writer) error { return rtpprof.Lookup("mutex").WriteTo(w, 0) })
			}, nil
		}},
		{p.Block, nil, func(*os.File) (func(*os.File) error, error) {
			runtime.SetBlockProfileRate(1)
			return func(f *os.File) error {
				runtime.SetBlockProfileRate(0)
				return finish(f, func(w io.Writer) error { return rtpprof.Lookup("block").WriteTo(w, 0) })
			}, nil
		}},
		{p.Lock, p.LockText, func(*os.File) (func(*os.File) error, error) {
			l, stop := listen()
			return func(f *os.File) error {
				stop()
				if f == nil {
					return l.WriteText(p.LockText)
				}
				return finish(f, l.WriteLocks)
			}, nil
		}},
	}
}

// listen collects waits until stop. Where some are collected already, as by Serve, those go on and
// have all of it.
func listen() (l *Locks, stop func()) {
	l = NewLocks()
	was := trace.SetSink(l)
	if first, ok := was.(*Locks); ok {
		l = first
		trace.SetSink(l)
	}
	return l, func() { trace.SetSink(was) }
}

// finish writes a profile and closes its file.
func finish(f *os.File, write func(io.Writer) error) error {
	err := write(f)
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		return fmt.Errorf("write profile %s: %w", f.Name(), err)
	}
	return nil
}

// Server serves profiles over HTTP.
type Server struct {
	ln   net.Listener
	http *http.Server
	was  trace.Sink
	done chan struct{}
}

// Serve serves net/http/pprof on addr (host:port; ":0" takes a free port), and the waits since now
// at /debug/pprof/lock, on a mux of its own. A lock profile that Start began goes on, and is the
// one served.
func Serve(addr string) (*Server, error) {
	ln, err := net.Listen("tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("pprof server: %w", err)
	}
	locks := NewLocks()
	s := &Server{ln: ln, done: make(chan struct{})}
	s.was = trace.SetSink(locks)
	if l, ok := s.was.(*Locks); ok {
		locks = l
		trace.SetSink(l)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("/debug/pprof/", pprof.Index)
	mux.HandleFunc("/debug/pprof/cmdline", pprof.Cmdline)
	mux.HandleFunc("/debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("/debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("/debug/pprof/trace", pprof.Trace)
	mux.HandleFunc("/debug/pprof/lock", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/octet-stream")
		w.Header().Set("Content-Disposition", `attachment; filename="lock"`)
		if err := locks.WriteLocks(w); err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
		}
	})
	s.http = &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second}
	go func() {
		defer close(s.done)
		s.http.Serve(ln) // ends when Close closes it
	}()
	return s, nil
}

// Addr is where the server listens.
func (s *Server) Addr() string { return s.ln.Addr().String() }

// Close stops the server.
func (s *Server) Close() error {
	if _, ok := s.was.(*Locks); !ok {
		trace.SetSink(s.was)
	}
	err := s.http.Close()
	<-s.done
	return err
}
