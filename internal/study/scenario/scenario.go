// Package scenario puts questions to the real write path: a small file, a few tasks with a few
// operations each, and what must hold whatever the schedule. Package explore runs the tasks in
// every order; package oracle judges what was seen.
//
// A Scenario is data. Program makes it a program for the explorer: it opens the real file system on
// a copy of a prepared image in memory, starts the tasks, and at the end reads the file back and
// judges. Every buffer is painted with the number of its operation, so that the bytes of the file
// say who wrote them.
//
// Model: the endio worker and the flusher are daemons that take part in the schedules. Device
// transfers end inside Submit. Only the classes in Switch are scheduling points; everything else
// between two of them is one step, unless it must wait. The write path keeps much plain data under
// its locks (io tree bits, tree blocks, block groups, lists) that no Var shows: method state takes
// for equal only histories with one happens-before order (explore.Config.Plain).
package scenario

import (
	"fmt"
	"slices"
	"strings"

	"btrlab/internal/data/pagecache"
	"btrlab/internal/iopath"
	"btrlab/internal/judge/oracle"
	"btrlab/internal/lock/lockdep"
	"btrlab/internal/policy"
	"btrlab/internal/prose"
	"btrlab/internal/sched"
	"btrlab/internal/sched/explore"
)

// OpKind is the kind of an operation.
type OpKind uint8

// The kinds.
const (
	OpWrite OpKind = iota
	OpRead
	OpTruncate
	OpPunch
	OpFallocate
	OpFsync
	OpFlush // writeback of the whole file, not waited for
	OpDrop  // clean pages leave memory
	OpMap   // fiemap: lock the extent range, look, unlock
	OpSync  // of the whole file system: all data, and a commit
	// OpSnapshot makes a snapshot of the top-level subvolume and reads the file in it; at the end
	// the file must read the same.
	OpSnapshot
	OpRename // of a file, over the other one perhaps; changes of names are all one task's
	OpLink   // another name of a file
	OpUnlink // a name goes; the task has the file open
	// OpReflink shares a range of the other file: to the oracle a write here, and a read there.
	OpReflink
	OpChmod
	OpSetxattr // of user.a
	OpLimit    // of the subvolume's quota, as many bytes beyond what it has
)

var opNames = [...]string{"write", "read", "truncate", "punch", "fallocate", "fsync", "flush", "drop", "fiemap", "sync", "snapshot", "rename",
	"link", "unlink", "reflink", "chmod", "setxattr", "limit"}

func (k OpKind) String() string { return opNames[k] }

// Op is one operation on the file, or on the second one.
type Op struct {
	Kind   OpKind
	Second bool  // it is on the second file; requests of a ring are on the first
	Off, N int64 // bytes [Off, Off+N); truncate: the new size is Off
	// From and To are the paths of a rename or a link; From is that of an unlink.
	From, To string
	// Source is where a reflink begins in the other file.
	Source int64
	// Value is the value that a chmod (in octal) or a setxattr sets.
	Value string
	// Short lets every copy of a write stop after so many bytes or not, as a page fault does that
	// may come again each time.
	Short int64
	// Mapped says that the source of a write is a mapping of the file's page at MapOff: to touch it
	// locks that page.
	Mapped bool
	MapOff int64
	// Direct says that a write or a read goes past the page cache. Append and DSync are a write's
	// flags.
	Direct, Append, DSync bool
	// Nowait says that a write is NOWAIT: EAGAIN is no error, and to sleep is a violation.
	Nowait bool
	// Sure says that nothing hinders a NOWAIT write: EAGAIN is an error, after all.
	Sure bool
	// Queued says that a direct write is queued: the task sleeps until it is told the end, and
	// holds no lock meanwhile.
	Queued bool
	// Fails says that the operation may end with an error, such as ENOSPC.
	Fails bool
	// Ring, if it is not 0, says that the operation is a request of the task's ring, and how many
	// are left of its submission, itself among them. Only writes, reads and fsync can be.
	Ring int
	// Async says that a request goes to a worker without an attempt.
	Async bool
}

// Write, Read and so on make operations, for tables.
func Write(off, n int64) Op     { return Op{Kind: OpWrite, Off: off, N: n} }
func Read(off, n int64) Op      { return Op{Kind: OpRead, Off: off, N: n} }
func Truncate(size int64) Op    { return Op{Kind: OpTruncate, Off: size} }
func Punch(off, n int64) Op     { return Op{Kind: OpPunch, Off: off, N: n} }
func Fallocate(off, n int64) Op { return Op{Kind: OpFallocate, Off: off, N: n} }
func Fsync() Op                 { return Op{Kind: OpFsync} }
func Flush() Op                 { return Op{Kind: OpFlush} }
func Drop() Op                  { return Op{Kind: OpDrop} }
func Map(off, n int64) Op       { return Op{Kind: OpMap, Off: off, N: n} }
func Sync() Op                  { return Op{Kind: OpSync} }
func Snapshot() Op              { return Op{Kind: OpSnapshot} }

// Rename moves the name from to the name to. A file stays the first or the second, whatever its
// name.
func Rename(from, to string) Op { return Op{Kind: OpRename, From: from, To: to} }

// Link gives the file from another name, and Unlink takes a name away.
func Link(from, to string) Op { return Op{Kind: OpLink, From: from, To: to} }
func Unlink(name string) Op   { return Op{Kind: OpUnlink, From: name} }

// Reflink shares [source, source+n) of the other file at off.
func Reflink(source, n, off int64) Op { return Op{Kind: OpReflink, Off: off, N: n, Source: source} }

// Chmod sets the permissions, in octal, and Setxattr the attribute user.a.
func Chmod(mode string) Op     { return Op{Kind: OpChmod, Value: mode} }
func Setxattr(value string) Op { return Op{Kind: OpSetxattr, Value: value} }

// Limit lets the subvolume have left bytes more than it has. The scenario has a Quota.
func Limit(left int64) Op { return Op{Kind: OpLimit, N: left} }

// Second is an operation on the second file.
func Second(o Op) Op { o.Second = true; return o }

// NowaitWrite is Write with NOWAIT.
func NowaitWrite(off, n int64) Op { return Op{Kind: OpWrite, Off: off, N: n, Nowait: true} }

// NowaitDirect is NowaitWrite past the page cache.
func NowaitDirect(off, n int64) Op {
	return Op{Kind: OpWrite, Off: off, N: n, Nowait: true, Direct: true}
}

// DirectWrite and DirectRead are Write and Read past the page cache.
func DirectWrite(off, n int64) Op { return Op{Kind: OpWrite, Off: off, N: n, Direct: true} }
func DirectRead(off, n int64) Op  { return Op{Kind: OpRead, Off: off, N: n, Direct: true} }

// QueuedWrite is DirectWrite, queued.
func QueuedWrite(off, n int64) Op {
	return Op{Kind: OpWrite, Off: off, N: n, Direct: true, Queued: true}
}

// Ring makes operations one submission to the task's ring.
func Ring(ops ...Op) []Op {
	for i := range ops {
		ops[i].Ring = len(ops) - i
	}
	return ops
}

// Async is a request of a ring that a worker gets without an attempt.
func Async(o Op) Op { o.Async = true; return o }

func (o Op) String() string {
	switch o.Kind {
	case OpRename:
		return fmt.Sprintf("rename %s to %s", o.From, o.To)
	case OpLink:
		return fmt.Sprintf("link %s as %s", o.From, o.To)
	case OpUnlink:
		return "unlink " + o.From
	case OpLimit:
		return "limit the subvolume to " + oracle.Offset(o.N) + " more"
	}
	if o.Second {
		o.Second = false
		return o.String() + " of the second file"
	}
	switch o.Kind {
	case OpTruncate:
		return "truncate to " + oracle.Offset(o.Off)
	case OpFsync, OpFlush, OpDrop, OpSync, OpSnapshot:
		return o.Kind.String()
	case OpChmod, OpSetxattr:
		return o.Kind.String() + " " + o.Value
	case OpReflink:
		return fmt.Sprintf("reflink [%s, %s) of the other file to %s", oracle.Offset(o.Source), oracle.Offset(o.Source+o.N), oracle.Offset(o.Off))
	}
	s := fmt.Sprintf("%v [%s, %s)", o.Kind, oracle.Offset(o.Off), oracle.Offset(o.Off+o.N))
	if o.Append {
		s = fmt.Sprintf("append of %s", oracle.Offset(o.N))
	}
	if o.Direct {
		s = "direct " + s
	}
	if o.Queued {
		s = "queued " + s
	}
	if o.DSync {
		s = "durable " + s
	}
	if o.Nowait {
		s = "NOWAIT " + s
	}
	if o.Short > 0 {
		s += fmt.Sprintf(", each copy cut short after %d bytes or not", o.Short)
	}
	if o.Mapped {
		s += fmt.Sprintf(", from a mapping of the file's page at %s", oracle.Offset(o.MapOff))
	}
	switch {
	case o.Async:
		s += " by a worker of the ring"
	case o.Ring > 0:
		s += " through the ring"
	}
	return s
}

// Task is one task and what it does, in order.
type Task struct {
	Name string
	Ops  []Op
}

// File is the file before the tasks start.
type File struct {
	// At is the size of a hole before everything else, whole pages: all offsets and sizes of the
	// scenario count from its end. Code that asks for the size of the file finds the scenario in a
	// big one.
	At       int64
	Size     int64 // bytes, painted with oracle.Initial and on disk
	Nocow    bool
	Prealloc int64 // bytes allocated in advance, from 0 on
	// Unwritten is bytes inside EOF, from 0 on, that are allocated and not written; Size is 0 then.
	Unwritten int64
	// Compressed says that the bytes of Unwritten were written before, by the file that is open,
	// and compressed: the inode in memory has async extents.
	Compressed bool
	Extent     int64 // bytes of each extent on disk; 0 is one for the whole file
	// Cached are the ranges whose pages are in memory, clean; the other pages are not.
	Cached []oracle.Range
	// Privileged gives the file capabilities, as setcap does; they are not on disk yet.
	Privileged bool
	// Dirty are ranges written again before the tasks start, not yet written back.
	Dirty []oracle.Range
}

// Scenario is a question to the write path. See the table in catalog.go.
type Scenario struct {
	Name  string
	About string // one line
	Goal  string // what a student who plays scheduler tries to reach
	File  File
	// Second, if it is not 0, is the size in bytes of a second file beside the first, painted and
	// on disk as that is.
	Second int64
	// Before are renames that the running transaction has done when the tasks start.
	Before []Op
	Tasks  []Task
	// Switch are the lock classes whose operations are scheduling points.
	Switch []string
	// Rule is the rule that the history must keep under every policy that keeps its requests whole;
	// Contract of a policy may promise less (Policy).
	Rule oracle.Rule
	// Preemptions bounds the default search, where everything would take minutes; 0 is no bound.
	Preemptions int
	// Method is the default search; empty is explore.Bound. DPOR is for what it exhausts and bound
	// does not in minutes.
	Method explore.Method
	// Prove says that DPOR exhausts it: after the default search has kept to its bound of
	// Preemptions without a violation, DPOR tries the schedules that are left. (It would find no
	// shortest schedule, so it does not come first.)
	Prove bool
	// TooMany are policies under which that is known to end at CellSchedules without a verdict. It
	// is not begun there.
	TooMany []string
	// Deep ends every execution with a sync, a look at all reservations and a second reading, from
	// disk. Without it only replays do.
	Deep bool
	// Profile is that of the data, raid5 on three devices or raid6 on four; empty is single, on
	// one. Where there is one, every execution ends with a sync, and then the files are read once
	// more without each device, of raid6 without each two: the oracle judges what the parity makes.
	Profile string
	// FillTo leaves so many bytes for data on the image; 0 fills nothing.
	FillTo int64
	// Quota turns quotas on and leaves the subvolume so many bytes until its limit; 0 is no quota.
	Quota uint64
	// DirtyLimit is the hard limit on dirty bytes; 0 is the default.
	DirtyLimit int64
	// MaxSteps ends an execution as a livelock; 0 is 20,000.
	MaxSteps int
	// ByLog says that a log can tell everything here: with Deep, an fsync that commits is a
	// violation.
	ByLog bool
	// Policies are those it is about; empty is all presets.
	Policies []string

	// Image names the prepared image of a scenario that is not in the table; scenarios of one Image
	// have the same File. Empty: Name.
	Image string

	flags string                      // how replay is told of With
	file  string                      // that it was read from, empty for the table's
	end   func(*oracle.History) error // WithEnd
	lab   iopath.Lab                  // WithLab
}

// With is the scenario with other switch points ("all" is every class; nil leaves them) and with
// deep set if asked for.
func (s *Scenario) With(classes []string, deep bool) *Scenario {
	n := *s
	if deep && !n.Deep {
		n.Deep = true
		n.flags += " --deep"
	}
	if classes != nil {
		n.flags += " --switch " + strings.Join(classes, ",")
		n.Switch = classes
		if len(classes) == 1 && classes[0] == "all" {
			n.Switch = nil
		}
	}
	return &n
}

// isAbout reports whether the scenario is about p: somebody's own policy is what its preset is.
func (s *Scenario) isAbout(p *policy.Policy) bool {
	return len(s.Policies) == 0 || slices.Contains(s.Policies, p.Name) || p.Own != nil && slices.Contains(s.Policies, p.Own.Base)
}

// under is the scenario with the locks of policy p among its switch points, where p is somebody's
// own and tasks are not switched everywhere.
func (s *Scenario) under(p *policy.Policy) *Scenario {
	if p.Own == nil || len(s.Switch) == 0 {
		return s
	}
	n := *s
	n.Switch = slices.Concat(s.Switch, p.Own.Classes)
	return &n
}

// WithLab is the scenario on a file system with a lab's functions; those for whole writes and files
// begin with its tasks. No command line replays it.
func (s *Scenario) WithLab(lab iopath.Lab) *Scenario {
	n := *s
	n.lab = lab
	return &n
}

// Far is the scenario, by another name, on a file that begins with a hole of at bytes.
func (s *Scenario) Far(name string, at int64) *Scenario {
	n := *s
	n.Name, n.Image, n.File.At = name, "", at
	n.About += fmt.Sprintf(", %s into the file, from where offsets count", oracle.Offset(at))
	return &n
}

// Wide is the scenario far into a file, with every offset and length so many times as large. About
// Size, Prealloc, Unwritten and Extent of its file, what is Cached and Dirty, and the operations.
func (s *Scenario) Wide(name string, at, times int64) *Scenario {
	n := s.Far(name, at)
	if times == 1 {
		return n
	}
	n.About += fmt.Sprintf(", and everything %d times as long", times)
	wide := func(l []oracle.Range) []oracle.Range {
		l = slices.Clone(l)
		for i := range l {
			l[i].Lo, l[i].Hi = l[i].Lo*times, l[i].Hi*times
		}
		return l
	}
	f := &n.File
	f.Size, f.Prealloc, f.Unwritten, f.Extent = f.Size*times, f.Prealloc*times, f.Unwritten*times, f.Extent*times
	f.Cached, f.Dirty = wide(f.Cached), wide(f.Dirty)
	if n.MaxSteps > 0 {
		n.MaxSteps *= int(times)
	}
	n.Tasks = slices.Clone(n.Tasks)
	for i := range n.Tasks {
		ops := slices.Clone(n.Tasks[i].Ops)
		for k := range ops {
			o := &ops[k]
			o.Off, o.N, o.Source, o.Short, o.MapOff = o.Off*times, o.N*times, o.Source*times, o.Short*times, o.MapOff*times
		}
		n.Tasks[i].Ops = ops
	}
	return n
}

// WithEnd is the scenario judged by f and not by its rule: f is asked at the end of every execution
// what it says to the history, whose slices are its own only until it returns. A search with
// several jobs asks it concurrently. No command line replays it.
func (s *Scenario) WithEnd(f func(*oracle.History) error) *Scenario {
	n := *s
	n.end = f
	return &n
}

// Aim is the goal of a player of the scenario.
func (s *Scenario) Aim() string {
	if s.Goal != "" {
		return s.Goal
	}
	return "find an order that breaks the contract: " + s.About
}

// All lists the scenarios in the order of the table.
func All() []*Scenario { return catalog }

// TaskNames are the names of the scenario's own tasks, by number.
func (s *Scenario) TaskNames() []string {
	names := make([]string, len(s.Tasks))
	for i, t := range s.Tasks {
		names[i] = t.Name
	}
	return names
}

// Names lists the scenarios' names.
func Names() []string {
	var l []string
	for _, s := range catalog {
		l = append(l, s.Name)
	}
	return l
}

// Lookup finds a scenario of the table, or a drawn one (Random), by name.
func Lookup(name string) (*Scenario, error) {
	for _, s := range catalog {
		if s.Name == name {
			return s, nil
		}
	}
	if s, ok := drawn(name); ok {
		return s, nil
	}
	if n := prose.Nearest(name, Names()); n != "" {
		return nil, fmt.Errorf("unknown scenario %q (did you mean %q?)", name, n)
	}
	return nil, fmt.Errorf("unknown scenario %q, btrlab explore --list shows all", name)
}

// Classes lists the names of the lock classes that can be switch points.
func Classes() []string {
	var l []string
	for _, c := range lockdep.Classes() {
		if c != lockdep.Unclassed {
			l = append(l, c.Name)
		}
	}
	slices.Sort(l)
	return slices.Compact(l)
}

// classes finds lock classes by name.
func classes(names []string) ([]sched.ClassID, error) {
	var ids []sched.ClassID
	for _, n := range names {
		c := lockdep.ByName(n)
		if c == nil {
			return nil, fmt.Errorf("unknown lock class %q, want all or some of %s", n, strings.Join(Classes(), ", "))
		}
		ids = append(ids, c.ID)
	}
	return ids, nil
}

// Config is the explorer's configuration for the scenario: switch points and bound.
func (s *Scenario) Config() (explore.Config, error) {
	ids, err := classes(s.Switch)
	if err != nil {
		return explore.Config{}, fmt.Errorf("scenario %s: %w", s.Name, err)
	}
	max := s.MaxSteps
	if max == 0 {
		max = 20_000
	}
	cfg := explore.Config{Plain: true, Switch: ids, Method: s.Method, Preemptions: s.Preemptions, MaxSteps: max}
	if state := pagecache.StateClass.ID; len(ids) > 0 && !slices.Contains(ids, state) {
		// the atomics of a page's state change as one, as under its lock
		cfg.Commute = append(cfg.Commute, state)
	}
	return cfg, nil
}

// rule is the rule that the history must keep: the scenario's, or with own set no more than the
// policy's contract promises.
func (s *Scenario) rule(p *policy.Policy, own bool) oracle.Rule {
	r := s.Rule
	if !own {
		return r
	}
	switch c := p.Contract(); c.WriteAtom {
	case policy.AtomByte:
		r.Write = oracle.Byte
	case policy.AtomPage:
		r.Write = oracle.Page
	case policy.AtomBatch:
		r.Write = oracle.Batch
	}
	if !p.Contract().TruncateHolds {
		r.Sizes = oracle.SizesOff
	}
	return r
}
