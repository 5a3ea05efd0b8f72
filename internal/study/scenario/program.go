package scenario

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"btrlab/internal/blockdev"
	"btrlab/internal/data/inode"
	"btrlab/internal/data/pagecache"
	"btrlab/internal/errno"
	"btrlab/internal/format"
	"btrlab/internal/fs"
	"btrlab/internal/iopath"
	"btrlab/internal/judge/oracle"
	"btrlab/internal/kiocb"
	"btrlab/internal/lock"
	"btrlab/internal/policy"
	"btrlab/internal/sched"
	"btrlab/internal/sched/explore"
	"btrlab/internal/uring"
)

// Program makes the scenario under policy p a program for the explorer. With own set it judges by
// what the policy promises, not by the scenario's rule.
func (s *Scenario) Program(p *policy.Policy, own bool) (func(w *explore.World), error) {
	return s.program(p, own, nil)
}

// program is Program. Unless it is nil, kept is called for each file when every task has returned
// and an order of its operations explains it: with the file's name and that order.
func (s *Scenario) program(p *policy.Policy, own bool, kept func(file string, order []string)) (func(w *explore.World), error) {
	devs, err := s.prepare()
	if err != nil {
		return nil, err
	}
	rule := s.rule(p, own)
	var mu sync.Mutex
	ready := map[*explore.World]*opened{} // one for each worker of a search
	return func(w *explore.World) {
		mu.Lock()
		o := ready[w]
		mu.Unlock()
		if o == nil {
			o = s.open(devs, p)
			mu.Lock()
			ready[w] = o
			mu.Unlock()
		}
		o.start(s, w, p, rule, own)
		o.run.kept = kept
	}, nil
}

// start begins an execution.
func (o *opened) start(s *Scenario, w *explore.World, p *policy.Policy, rule oracle.Rule, own bool) {
	o.heap.restore()
	o.devs.reset()
	o.nodes.reset()
	o.fs.Resume(w.Task())
	r := &o.run
	check, first, second := r.check, r.first.hist, r.second.hist
	*r = run{s: s, w: w, rule: rule, own: own, policy: p, lab: s.lab.Under(p), fs: o.fs, devs: o.devs, check: check, crashes: r.crashes[:0], recoveries: r.recoveries,
		bufs: r.bufs}
	r.first.start(FileName, o.f, s.File.At, s.File.Size, first)
	r.second.start(secondName, o.second, 0, s.Second, second)
	for _, o := range s.Before {
		r.names = append(r.names, naming{kind: OpRename, from: o.From, to: o.To})
	}
	r.start()
}

// opened is an open file system that executions use one after the other.
type opened struct {
	devs disks
	fs   *fs.FS
	f    *fs.File
	// second is the second file, nil if there is none.
	second *fs.File
	heap   *heap
	nodes  nodes
	run    run
}

// nodes is memory for tree blocks, which one execution uses after the other.
type nodes struct {
	all  []format.Node
	used int
}

// take returns a block of zeros.
func (n *nodes) take(size int) format.Node {
	if n.used == len(n.all) {
		n.all = append(n.all, make(format.Node, size))
	} else {
		clear(n.all[n.used])
	}
	n.used++
	return n.all[n.used-1]
}

// reset takes back what was taken.
func (n *nodes) reset() { n.used = 0 }

// open opens the image once, brings the page cache into the state that the scenario begins with,
// and copies everything. It does so under a runtime of its own whose clock stands still, so that
// two processes do the same.
func (s *Scenario) open(devs []*blockdev.Memory, p *policy.Policy) *opened {
	o := &opened{devs: over(devs)}
	x := explore.Once(explore.OnceConfig{}, func(t *sched.Task) {
		// A lab's order, here and below, is for the tasks: the file is made by the policy's.
		plain := *p
		plain.WriteSteps = policy.WriteOrder{}
		plain.Own = nil
		opt := s.options(p)
		opt.Policy = &plain
		opt.NewNode = o.nodes.take
		limit := opt.DirtyLimit
		opt.DirtyLimit, opt.DirtyBackground = 0, 0
		var err error
		if o.fs, err = fs.Open(t, o.devs.devices(0), opt); err != nil {
			panic(err)
		}
		if o.f, err = o.fs.OpenFile(t, FileName, fs.O_RDWR, 0); err != nil {
			panic(err)
		}
		if s.Second > 0 {
			if o.second, err = o.fs.OpenFile(t, secondName, fs.O_RDWR, 0); err != nil {
				panic(err)
			}
		}
		for _, r := range s.Before {
			if err := o.fs.Rename(t, r.From, r.To); err != nil {
				panic(err)
			}
		}
		s.warm(t, o.fs, o.f)
		o.fs.Pause(t)
		o.fs.SetPolicy(t, p)
		o.fs.SetLab(t, s.lab)
		if limit > 0 {
			o.fs.SetDirtyLimits(limit/2, limit)
		}
	})
	if x.Verdict != explore.OK {
		panic(fmt.Sprintf("scenario %s: open: %v: %s", s.Name, x.Verdict, x.Violation))
	}
	o.devs.settle()
	o.heap = take(o.fs, o.f, o.second)
	o.nodes = nodes{} // those taken so far belong to what is put back
	return o
}

// run is one execution.
type run struct {
	s      *Scenario
	w      *explore.World
	rule   oracle.Rule
	own    bool
	policy *policy.Policy
	lab    iopath.Lab
	fs     *fs.FS
	devs   disks
	tick   int64
	first  subject
	second subject // its file is nil if there is none
	// crashes are the device as it was when an fsync returned, in the order in which they did.
	crashes    []crash
	recoveries []*recovery // of this execution and earlier ones
	err        error       // of an operation that must not fail
	names      []naming
	clones     []clone
	// snap is the file in the snapshot right after it was made, if one was, from snapStart to
	// snapEnd.
	snap               []byte
	snapStart, snapEnd int64
	check              oracle.Checker
	bufs               buffers
	kept               func(file string, order []string) // see Scenario.program
}

// subject is a file with what happened to it.
type subject struct {
	name string // at the start
	f    *fs.File
	at   int64 // where offset 0 of the history is in the file: File.At
	hist oracle.History
	sets []set // of attributes
}

// start begins a history, in the memory of another one.
func (x *subject) start(name string, f *fs.File, at, size int64, old oracle.History) {
	*x = subject{name: name, f: f, at: at, hist: oracle.History{Size: size, FinalSize: oracle.NoSize, Final: old.Final[:0], Ops: old.Ops[:0]}}
}

// read reads all of f, which is x or a copy of it, from where the history begins. It reads into p
// if that is large enough.
func (x *subject) read(t *sched.Task, f *fs.File, p []byte) ([]byte, error) {
	size := f.Size(t)
	if size < x.at {
		return nil, fmt.Errorf("the file has %d bytes, and nobody has cut it below %d", size, x.at)
	}
	p = slices.Grow(p[:0], int(size-x.at))[:size-x.at]
	if n, err := f.ReadAt(t, p, x.at); n != len(p) {
		return nil, fmt.Errorf("read %d of %d bytes: %w", n, len(p), err)
	}
	return p, nil
}

// of is the file that an operation is on.
func (r *run) of(o Op) *subject {
	if o.Second {
		return &r.second
	}
	return &r.first
}

// subjects are the files of the scenario.
func (r *run) subjects() []*subject {
	if r.second.f == nil {
		return []*subject{&r.first}
	}
	return []*subject{&r.first, &r.second}
}

// buffers are memory for the bytes of operations, which one execution uses after the other.
type buffers struct {
	ops  [][]byte // by operation
	last []byte   // for the file at the end
}

// of returns n bytes for operation id, with any content.
func (b *buffers) of(id oracle.ID, n int64) []byte {
	for len(b.ops) <= int(id) {
		b.ops = append(b.ops, nil)
	}
	b.ops[id] = slices.Grow(b.ops[id][:0], int(n))[:n]
	return b.ops[id]
}

type crash struct {
	sync oracle.Sync
	of   *subject // whose it is; nil for a sync of everything
	devs disks
}

// warm brings the page cache, and the attributes, into the state that the scenario begins with.
func (s *Scenario) warm(t *sched.Task, x *fs.FS, f *fs.File) {
	if s.File.Compressed {
		if err := s.compressed(t, x, f); err != nil {
			panic(err)
		}
	}
	for _, c := range s.File.Cached {
		if _, err := f.ReadAt(t, make([]byte, c.Hi-c.Lo), s.File.At+c.Lo); err != nil && !errors.Is(err, io.EOF) {
			panic(err)
		}
	}
	for _, c := range s.File.Dirty {
		p := make([]byte, c.Hi-c.Lo)
		oracle.Paint(p, oracle.Initial)
		if _, err := f.WriteAt(t, p, s.File.At+c.Lo); err != nil {
			panic(err)
		}
	}
	if s.File.Privileged {
		if err := x.Setxattr(t, FileName, "security.capability", CapNetRaw); err != nil {
			panic(err)
		}
	}
}

// compressed makes a file without data the one that File.Compressed says.
func (s *Scenario) compressed(t *sched.Task, x *fs.FS, f *fs.File) error {
	if err := x.Setxattr(t, FileName, fs.Compression, []byte("zlib")); err != nil {
		return err
	}
	if _, err := f.WriteAt(t, make([]byte, 2*s.File.Unwritten), s.File.At); err != nil {
		return err
	}
	if err := f.Fsync(t); err != nil {
		return err
	}
	if err := f.Truncate(t, s.File.At); err != nil {
		return err
	}
	if err := f.Fallocate(t, 0, s.File.At, s.File.Unwritten); err != nil {
		return err
	}
	return x.Sync(t)
}

// CapNetRaw is the value of security.capability that setcap cap_net_raw=ep writes. Layout: struct
// vfs_cap_data.
var CapNetRaw = []byte{1, 0, 0, 2, 0, 32, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}

func (r *run) start() {
	w := r.w
	id := oracle.ID(0)
	for _, task := range r.s.Tasks {
		first := id + 1
		id += oracle.ID(len(task.Ops))
		ops := task.Ops
		w.Go(task.Name, func(t *sched.Task) {
			var ring *uring.Ring
			for i := 0; i < len(ops); {
				n := ops[i].Ring
				if n == 0 {
					r.do(t, ops[i], first+oracle.ID(i))
					i++
					continue
				}
				if ring == nil {
					ring = r.ring(t)
				}
				r.submit(t, ring, ops[i:i+n], first+oracle.ID(i))
				i += n
			}
			if ring != nil {
				ring.Close(t)
			}
		})
	}
	ip := r.first.f.Inode()
	if w.Tracing() {
		ip.Objects(w.Name)
		for i, d := range r.devs {
			if len(r.devs) > 1 {
				w.Name(d, fmt.Sprint("device ", i+1))
			}
		}
		w.NameHeld(heldName(ip))
		w.Watch("i_size", func() string { return oracle.Offset(int64(ip.DebugSize()) - r.first.at) })
		w.Watch("dio", func() string { return fmt.Sprint(ip.DIO.Load()) })
		w.Watch("pages", r.pageStates)
	}
	w.Finally(r.judge)
}

// Shared is what the name of an i_rwsem ends with that is held, or taken, shared.
const Shared = " shared"

// heldName names page locks by the page, and says of an i_rwsem that it is shared.
func heldName(first *inode.Inode) func(h sched.Held) string {
	var rwsem any
	first.Objects(func(id any, name string) {
		if name == inode.Class.Name {
			rwsem = id
		}
	})
	return func(h sched.Held) string {
		switch {
		case h.Class == pagecache.PageClass.ID:
			return fmt.Sprintf("page %d", h.Sub)
		case h.Class != inode.Class.ID || !h.Read:
			return ""
		case h.Obj != rwsem:
			return inode.Class.Name + " of another file" + Shared
		}
		return inode.Class.Name + Shared
	}
}

// pageStates is one letter per page, from pagecache.Mapping.Describe: - not in memory, c clean, n
// not uptodate, D dirty, W under writeback, B both.
func (r *run) pageStates() string {
	var b strings.Builder
	ip := r.first.f.Inode()
	n, first := uint64(r.pagesShown()), uint64(r.first.at)>>12
	for i := range n {
		b.WriteString(ip.Pages.Describe(first + i))
	}
	return b.String()
}

// pagesShown is how many pages of the first file the operations can touch.
func (r *run) pagesShown() int64 {
	hi := r.s.File.Size
	for _, t := range r.s.Tasks {
		for _, o := range t.Ops {
			if !o.Second {
				hi = max(hi, o.Off+o.N)
			}
		}
	}
	return (hi + 4095) / 4096
}

// do carries out one operation and enters it into the history.
func (r *run) do(t *sched.Task, o Op, id oracle.ID) {
	r.w.Call(t) // the oracle judges by real time: which operations have returned before
	r.tick++
	h := oracle.Op{ID: id, Lo: o.Off, Hi: o.Off + o.N, Start: r.tick}
	x := r.of(o)
	at := x.at + o.Off // in the file
	r.note(Begins, id, o)
	var err error
	n := 0
	enter := true
	switch o.Kind {
	case OpWrite:
		h.Kind = oracle.Write
		p := r.bufs.of(id, o.N)
		oracle.Paint(p, id)
		t.Dirty = sched.DirtyState{Pause: minBatch} // small batches
		if n, err = r.write(t, o, p, &h); h.Kind == oracle.Write {
			h.Hi = o.Off + int64(n)
		}
		enter = n > 0
		h.Batches = r.batches(o, h.Hi)
		if o.DSync && err == nil {
			r.promised(x, h.Start)
		}
	case OpRead:
		h.Kind = oracle.Read
		p := r.bufs.of(id, o.N)
		n, err = x.f.ReadIter(t, o.request(x.at), p)
		if errors.Is(err, io.EOF) {
			err = nil
		}
		h.Got = int64(n)
		h.See = r.seen(x, nil, p[:n], o.Off)
	case OpTruncate:
		h.Kind, h.Hi = oracle.Truncate, 0
		err = x.f.Truncate(t, at)
	case OpPunch:
		h.Kind = oracle.Punch
		err = x.f.Fallocate(t, fs.FALLOC_FL_PUNCH_HOLE|fs.FALLOC_FL_KEEP_SIZE, at, o.N)
	case OpFallocate:
		h.Kind = oracle.Allocate
		err = x.f.Fallocate(t, 0, at, o.N)
	case OpFsync:
		enter = false
		if err = x.f.Fsync(t); err == nil {
			r.promised(x, h.Start)
		}
	case OpSync:
		enter = false
		if err = r.fs.Sync(t); err == nil {
			r.promised(nil, h.Start)
		}
	case OpSnapshot:
		enter = false
		err = r.snapshot(t, h.Start)
	case OpFlush:
		enter = false
		err = r.fs.Flush(t, x.f)
	case OpDrop:
		enter = false
		r.fs.DropCaches(t)
	case OpMap:
		enter = false
		ip := x.f.Inode()
		ip.IOTree.Lock(t, uint64(at), uint64(at+o.N))
		ip.IOTree.Unlock(t, uint64(at), uint64(at+o.N))
	case OpRename, OpLink, OpUnlink:
		enter = false
		err = r.changeName(t, o, h.Start)
	case OpReflink:
		h.Kind = oracle.Write
		err = x.f.Reflink(t, r.other(x).f, r.other(x).at+o.Source, o.N, at)
	case OpChmod, OpSetxattr:
		enter = false
		err = r.setAttr(t, x, o, h.Start)
	case OpLimit:
		enter = false
		err = limit(t, r.fs, uint64(o.N))
	}
	r.returned(t, o, h, enter, err)
}

// returned ends the operation h, which is o, and enters it into the history if the history is to
// have it.
func (r *run) returned(t *sched.Task, o Op, h oracle.Op, enter bool, err error) {
	r.w.Return(t)
	r.tick++
	h.End = r.tick
	if x := r.of(o); enter && !(err != nil && h.Kind != oracle.Write) {
		x.hist.Ops = append(x.hist.Ops, h)
	}
	if err == nil {
		switch o.Kind {
		case OpRename, OpLink, OpUnlink:
			r.names[len(r.names)-1].end = h.End
		case OpChmod, OpSetxattr:
			x := r.of(o)
			x.sets[slices.IndexFunc(x.sets, func(s set) bool { return s.start == h.Start })].end = h.End
		case OpReflink:
			r.clones = append(r.clones, clone{o, h.ID, h.Start, h.End})
		}
	}
	if err != nil {
		r.note(Fails, h.ID, err)
		if !o.expects(err) {
			r.err = errors.Join(r.err, fmt.Errorf("operation %d: %w", h.ID, err))
		}
		return
	}
	r.note(Returns, h.ID, "")
}

// write asks for a write, and sleeps until it has ended. An append enters into h the place that it
// has found.
func (r *run) write(t *sched.Task, o Op, p []byte, h *oracle.Op) (int, error) {
	x := r.of(o)
	rq := o.request(x.at)
	wrote := rq.Pos
	rq.Wrote = &wrote
	n, err := r.request(t, rq, o, p)
	if o.Append {
		at := int64(wrote) - x.at
		h.Kind, h.Lo, h.Hi = oracle.Append, at, at+int64(n)
	}
	return n, err
}

// request carries out the request of a write, up to its end.
func (r *run) request(t *sched.Task, rq kiocb.Request, o Op, p []byte) (int, error) {
	f := r.of(o).f
	if !o.Queued {
		return f.WriteIter(t, rq, r.source(o, p))
	}
	end := new(ending)
	end.wait.Init(blockdev.WaitClass)
	rq.Done = end
	r.devs.defers(t, true)
	n, err := f.WriteIter(t, rq, r.source(o, p))
	r.devs.defers(t, false)
	if errors.Is(err, errno.EIOCBQUEUED) {
		end.wait.Wait(t, end.over.Load)
		n, err = end.n, end.err
	}
	return n, err
}

// ending is the end of a queued request, for the task that waits for it.
type ending struct {
	wait lock.WaitQueue
	over atomic.Bool
	n    int
	err  error
}

// Complete makes it a kiocb.Completion.
func (e *ending) Complete(t *sched.Task, n int, err error) {
	e.n, e.err = n, err
	e.over.Store(true)
	e.wait.Wake(t)
}

// expects reports whether an operation may end so: a NOWAIT one is refused by a policy without such
// requests.
func (o *Op) expects(err error) bool {
	if o.Nowait && !o.Sure {
		return errors.Is(err, errno.EAGAIN) || errors.Is(err, errno.EOPNOTSUPP)
	}
	return o.Fails && (errors.Is(err, errno.ENOSPC) || errors.Is(err, errno.EDQUOT))
}

// promised keeps what a power cut at the end of a sync of x, nil is everything, which began at
// start, would leave.
func (r *run) promised(x *subject, start int64) {
	if r.s.Deep {
		r.crashes = append(r.crashes, crash{oracle.Sync{Start: start, End: r.tick + 1}, x, r.devs.each((*overlay).crashed)})
	}
}

// note notes what becomes of an operation, for a reader.
func (r *run) note(e Event, id oracle.ID, what any) {
	if r.w.Tracing() {
		r.w.Note(Note{e, id, fmt.Sprint(what)})
	}
}

// minBatch is the pages of the smallest batch of a write that is not cut to single folios.
const minBatch = policy.BatchMinPages

// request is the operation as the file system is asked for it, on a file whose history begins at
// byte at.
func (o Op) request(at int64) kiocb.Request {
	rq := kiocb.Request{Pos: uint64(at + o.Off)}
	set := func(flag kiocb.Flags, on bool) {
		if on {
			rq.Flags |= flag
		}
	}
	set(kiocb.Direct, o.Direct)
	set(kiocb.Append, o.Append)
	set(kiocb.DSync, o.DSync)
	set(kiocb.Nowait, o.Nowait)
	return rq
}

// batches are the offsets at which the policy may cut a write that ends at hi. A direct one may be
// cut where an extent ends.
func (r *run) batches(o Op, hi int64) []int64 {
	lo, step := o.Off, int64(minBatch<<12)
	switch {
	case o.Direct && r.s.File.Extent == 0:
		return nil
	case o.Direct:
		step = r.s.File.Extent
		lo -= lo % step
	case r.policy.Has(policy.CopyByFolio) || r.lab.Write != nil || r.lab.File != nil:
		// a lab may cut where it likes
		step = 1 << 12
	}
	var l []int64
	for at := lo&^4095 + step; at < hi; at += step {
		l = append(l, at)
	}
	return l
}

func (r *run) source(o Op, p []byte) iopath.Source {
	src := iopath.Source{Buf: p}
	switch {
	case o.Mapped && o.Direct:
		src.Faults = &cached{r: r, off: r.first.at + o.MapOff}
	case o.Mapped:
		src.Faults = &mapped{r: r, page: uint64(r.first.at+o.MapOff) >> 12}
	case o.Short > 0:
		src.Faults = &shortly{r, int(o.Short)}
	}
	return src
}

// shortly is a source of which a copy gets n bytes, or all: the explorer chooses for each.
type shortly struct {
	r *run
	n int
}

func (s *shortly) FaultIn(t *sched.Task, from, to int) int { return to - from }

func (s *shortly) Present(from, to int) int {
	if s.n < to-from && s.r.w.Choose(2, "whole copy") == 0 {
		return s.n
	}
	return to - from
}

// mapped is a source that is a mapping of a page of the file itself: a fault locks the page.
// Models filemap_fault().
type mapped struct {
	r    *run
	page uint64
}

func (m *mapped) FaultIn(t *sched.Task, from, to int) int {
	m.r.first.f.Inode().Pages.Grab(t, m.page).UnlockPut(t)
	return to - from
}

func (m *mapped) Present(from, to int) int { return to - from }

// cached is a source that is a mapping of the file's page at off: it is there while the page is in
// memory, and a fault reads it.
type cached struct {
	r   *run
	off int64
}

func (m *cached) FaultIn(t *sched.Task, from, to int) int {
	if _, err := m.r.first.f.ReadAt(t, make([]byte, 1), m.off); err != nil {
		return 0
	}
	return to - from
}

func (m *cached) Present(from, to int) int {
	if _, ok := m.r.first.f.Inode().Pages.NextPage(uint64(m.off)>>12, uint64(m.off)>>12+1); !ok {
		return 0
	}
	return to - from
}

func (r *run) lastID() oracle.ID {
	n := oracle.ID(0)
	for _, t := range r.s.Tasks {
		n += oracle.ID(len(t.Ops))
	}
	return n
}

// unpaint is oracle.Unpaint, quicker for bytes that are the same for long.
func unpaint(dst []oracle.Seen, p []byte, off int64, last oracle.ID) []oracle.Seen {
	const step = 512
	for len(p) > 0 {
		n := min(step, len(p))
		m := n
		if n > 1 && !bytes.Equal(p[:n-1], p[1:n]) {
			dst = oracle.Unpaint(dst, p[:n], off, last)
		} else {
			for m < len(p) && p[m] == p[0] && bytes.Equal(p[m-n:min(m, len(p)-n)], p[m:min(m+n, len(p))]) {
				m += min(n, len(p)-m)
			}
			m = min(m, len(p))
			dst = oracle.Unpaint(dst, p[:1], off, last)
			dst[len(dst)-1].Hi = off + int64(m)
		}
		if k := len(dst); k > 1 && dst[k-2].From == dst[k-1].From && dst[k-2].Hi == dst[k-1].Lo {
			dst[k-2].Hi = dst[k-1].Hi
			dst = dst[:k-1]
		}
		p, off = p[m:], off+int64(m)
	}
	return dst
}

// judge looks at the file when every task has returned.
func (r *run) judge(t *sched.Task) error {
	if r.err != nil {
		return r.err
	}
	if err := r.lookAll(t, "at the end"); err != nil {
		return err
	}
	r.kept = nil // told: the rest looks at the same operations again
	if !r.s.Deep && r.s.Profile == "" && !r.w.Tracing() {
		return nil
	}
	for i := range r.crashes {
		if err := r.recovered(t, i); err != nil {
			return err
		}
	}
	if r.snap != nil {
		rec := oracle.Recovered{At: r.snapEnd, Seen: r.seen(&r.first, nil, r.snap, 0), Size: int64(len(r.snap))}
		if v := r.check.CheckFsync(&r.first.hist, []oracle.Sync{{Start: r.snapStart, End: r.snapEnd}}, rec, oracle.PerPageSync); v.Outcome == oracle.Broken {
			return errors.New("what had been written before the snapshot was made is not in it")
		}
	}
	if err := r.fs.Sync(t); err != nil {
		return err
	}
	r.fs.CheckQuiescent(t)
	for _, x := range r.subjects() {
		if ip := x.f.Inode(); ip.DiskSize(t) != ip.Size(t) {
			return fmt.Errorf("after a sync the inode item says %d bytes, i_size is %d", ip.DiskSize(t), ip.Size(t))
		}
	}
	r.fs.DropCaches(t)
	if err := r.lookAll(t, "on disk"); err != nil {
		return err
	}
	if err := r.lookDegraded(t); err != nil || r.snap == nil {
		return err
	}
	p, err := r.readSnapshot(t)
	if err == nil && !bytes.Equal(p, r.snap) {
		err = errors.New("the snapshot has changed since it was made")
	}
	return err
}

// snapName is the snapshot of a scenario that makes one.
const snapName = "/snap"

// snapshot makes the snapshot and judges it like what a crash leaves: what had returned before
// start must be in it.
func (r *run) snapshot(t *sched.Task, start int64) (err error) {
	if err = r.fs.Snapshot(t, "/", snapName, true); err != nil {
		return err
	}
	if r.snap, err = r.readSnapshot(t); err != nil {
		return err
	}
	r.snapStart, r.snapEnd = start, r.tick+1
	return nil
}

// readSnapshot reads the file in the snapshot.
func (r *run) readSnapshot(t *sched.Task) ([]byte, error) {
	f, err := r.fs.OpenFile(t, snapName+FileName, fs.O_RDONLY, 0)
	if err != nil {
		return nil, err
	}
	p, err := r.first.read(t, f, nil)
	if err != nil {
		return nil, fmt.Errorf("the snapshot: %w", err)
	}
	return p, f.Close(t)
}

// recovered judges what the syncs that had returned promised by what is on the device as it was
// after number i of them.
func (r *run) recovered(t *sched.Task, i int) error {
	c := r.recovery(t, r.crashes[i].devs, 0)
	switch {
	case c.err != nil:
		return fmt.Errorf("after fsync and a crash: %w", c.err)
	case !c.hadLog && r.s.ByLog:
		return errors.New("an fsync has committed the transaction: what went to the log was refused")
	}
	at := versionOf{FileName: &r.first}
	if r.named() {
		var err error
		if at, err = r.recoveredNames(c, i); err != nil {
			return err
		}
	}
	for name, s := range at {
		if err := r.recoveredFile(c.left[name], s, i); err != nil {
			return err
		}
	}
	return nil
}

// syncsOf are the first n syncs that promise something of x.
func (r *run) syncsOf(x *subject, n int) (l []oracle.Sync) {
	for _, c := range r.crashes[:n] {
		if c.of == nil || c.of == x {
			l = append(l, c.sync)
		}
	}
	return l
}

// recoveredFile judges what is left of the file x after crash i.
func (r *run) recoveredFile(l *leftFile, x *subject, i int) error {
	if l.err != nil {
		return fmt.Errorf("after fsync and a crash: %w", l.err)
	}
	rec := oracle.Recovered{At: r.crashes[i].sync.End, Seen: r.seen(x, nil, l.bytes, 0), Size: int64(len(l.bytes))}
	// Operations in flight at the crash are not in the history by now with their ends: all have
	// returned since.
	syncs := r.syncsOf(x, i+1)
	if v := r.check.CheckFsync(&x.hist, syncs, rec, oracle.PerPageSync); v.Outcome == oracle.Broken {
		text := "what an fsync promised is not on the device"
		if r.w.Tracing() {
			if why := r.check.ExplainFsync(&x.hist, syncs, rec, oracle.PerPageSync); why != nil {
				text += ":\n" + why.String()
			}
		}
		return errors.New(text)
	}
	if text, err := x.lostAttr(l.attr, syncs, rec.At); err != nil || text != "" {
		return cmp.Or(err, errors.New("after fsync and a crash "+text))
	}
	return nil
}

// lookAll reads the files and judges their histories and names.
func (r *run) lookAll(t *sched.Task, when string) error {
	if err := r.enterClones(t); err != nil {
		return err
	}
	for _, x := range r.subjects() {
		if err := r.look(t, x, when); err != nil {
			return err
		}
		live := func(kind OpKind) (string, error) { return attr(t, x.f.Node(), kind) }
		if text, err := x.lostAttr(live, nil, r.tick); err != nil || text != "" {
			return cmp.Or(err, fmt.Errorf("%s %s", when, text))
		}
	}
	if !r.named() {
		return nil
	}
	have, err := r.namesIn(t, r.fs)
	if all := r.versions(); err == nil && !maps.Equal(have, all[len(all)-1]) {
		err = errors.New("the names are not those after the last change")
	}
	if err != nil {
		return fmt.Errorf("%s: %w", when, err)
	}
	return nil
}

// look reads a file and judges its history with that.
func (r *run) look(t *sched.Task, x *subject, when string) error {
	p, err := x.read(t, x.f, r.bufs.last)
	if err != nil {
		return fmt.Errorf("%s: %w", when, err)
	}
	r.bufs.last = p
	return r.judgeBytes(x, p, when)
}

// judgeBytes judges the history of a file that ends with the bytes p.
func (r *run) judgeBytes(x *subject, p []byte, when string) error {
	h := &x.hist
	h.FinalSize = int64(len(p))
	h.Final = r.seen(x, h.Final[:0], p, 0)
	if r.s.end != nil {
		return r.s.end(h)
	}
	if r.own && !r.policy.Contract().TruncateHolds && r.s.truncates() {
		// A truncate that may get lost leaves nothing to promise about the bytes beyond it.
		return nil
	}
	if v := r.check.Check(h, r.rule); v.Outcome == oracle.Broken {
		return errors.New(r.explain(h, when))
	} else if v.Outcome == oracle.Undecided {
		return fmt.Errorf("%s: the oracle ran out of its budget", when)
	}
	if f := oracle.CheckStale(h); len(f) > 0 {
		return fmt.Errorf("%s: %s", when, f[0].Text)
	}
	if r.rule.Sizes != oracle.SizesOff {
		if f := oracle.CheckEOF(h); len(f) > 0 {
			return fmt.Errorf("%s: %s", when, f[0].Text)
		}
	}
	if r.kept != nil {
		r.kept(x.name, r.check.OrderWords())
	}
	return nil
}

func (s *Scenario) truncates() bool {
	for _, t := range s.Tasks {
		for _, o := range t.Ops {
			if o.Kind == OpTruncate {
				return true
			}
		}
	}
	return false
}

// explain says what is wrong, and in full for a reader: first in a sentence, then as a proof.
func (r *run) explain(h *oracle.History, when string) string {
	if !r.w.Tracing() {
		return fmt.Sprintf("%s: no order of the operations explains what is there (%v)", when, r.rule)
	}
	x := r.check.Explain(h, r.rule)
	if x == nil {
		return when + ": broken"
	}
	plain := x.Plain(when)
	// what a truncate has left is the story, whatever else does not fit
	for _, f := range oracle.CheckEOF(h) {
		if s := f.Plain(h, when); s != "" {
			plain = s
			break
		}
	}
	return fmt.Sprintf("%s\n%s: %v", plain, when, x)
}
