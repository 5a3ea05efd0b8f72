package uring

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"testing"

	"btrlab/internal/errno"
	"btrlab/internal/format"
	"btrlab/internal/iopath"
	"btrlab/internal/kiocb"
	"btrlab/internal/lock"
	"btrlab/internal/lock/lockdep"
	"btrlab/internal/sched"
	"btrlab/internal/sched/explore"
)

func TestMain(m *testing.M) {
	sched.SetChecked(true)
	os.Exit(m.Run())
}

var fileClass = lockdep.NewTestClass("test_file", "i_rwsem")

// fakeFile is bytes under one lock. A Nowait request that finds the lock taken, or that is told to,
// answers EAGAIN.
type fakeFile struct {
	lock  lock.Mutex
	mem   sched.Shared
	data  [64]byte
	ino   format.Ino
	modes kiocb.Modes
	// again is how many Nowait requests answer EAGAIN whatever the lock says.
	again int
	// part is the most bytes of one transfer, 0 is all.
	part int
	// gate, if set, is called by a transfer that may sleep, outside the lock.
	gate func(t *sched.Task)
	// fail is the error of transfers that begin at failAt or after.
	fail   error
	failAt uint64
	// device, if set, is given the direct requests instead of doing them.
	device func(t *sched.Task, rq kiocb.Request, src []byte)

	mu    sync.Mutex
	calls []string
}

func newFile() *fakeFile {
	f := &fakeFile{ino: 257, modes: kiocb.ModeNowait | kiocb.ModeBufferWAsync}
	f.lock.Init(fileClass)
	return f
}

func (f *fakeFile) String() string            { return "the file" }
func (f *fakeFile) Modes() kiocb.Modes        { return f.modes }
func (f *fakeFile) Ino() format.Ino           { return f.ino }
func (f *fakeFile) Fsync(t *sched.Task) error { f.note("fsync", t, 0, 0); return f.fail }

func (f *fakeFile) note(op string, t *sched.Task, rq kiocb.Flags, n int) {
	how := ""
	if rq&kiocb.Nowait != 0 {
		how = " nowait"
	}
	f.mu.Lock()
	f.calls = append(f.calls, fmt.Sprintf("%s%s %d by %s", op, how, n, t.Name))
	f.mu.Unlock()
}

func (f *fakeFile) transfer(t *sched.Task, op string, rq kiocb.Request, p []byte, copy func(at, p []byte)) (int, error) {
	f.note(op, t, rq.Flags, len(p))
	if rq.Flags&kiocb.Direct != 0 && f.device != nil {
		f.device(t, rq, p)
		return 0, errno.EIOCBQUEUED
	}
	if rq.Flags&kiocb.Nowait != 0 {
		if f.again > 0 {
			f.again--
			return 0, errno.EAGAIN
		}
		if !f.lock.TryLock(t) {
			return 0, &errno.OpError{Op: op, Err: errno.EAGAIN}
		}
	} else {
		if f.gate != nil {
			f.gate(t)
		}
		f.lock.Lock(t)
	}
	defer f.lock.Unlock(t)
	f.mem.Write(t, f)
	if f.fail != nil && rq.Pos >= f.failAt {
		return 0, &errno.OpError{Op: op, Err: f.fail}
	}
	n := len(p)
	if f.part > 0 {
		n = min(n, f.part)
	}
	copy(f.data[rq.Pos:], p[:n])
	return n, nil
}

func (f *fakeFile) ReadIter(t *sched.Task, rq kiocb.Request, p []byte) (int, error) {
	return f.transfer(t, "read", rq, p, func(at, p []byte) { copy(p, at) })
}

func (f *fakeFile) WriteIter(t *sched.Task, rq kiocb.Request, src iopath.Source) (int, error) {
	return f.transfer(t, "write", rq, src.Buf, func(at, p []byte) { copy(at, p) })
}

func newRing(t testing.TB, k *sched.Task, cfg Config) *Ring {
	t.Helper()
	r, err := New(k, cfg)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// put fills an entry.
func put(r *Ring, e SQE) {
	s := r.GetSQE()
	if s == nil {
		panic("the submission queue is full")
	}
	*s = e
}

// all submits, waits for n completions and takes them.
func all(k *sched.Task, r *Ring, n int) []CQE {
	if _, err := r.Submit(k); err != nil {
		panic(err)
	}
	r.Wait(k, n)
	out := make([]CQE, n+1)
	return out[:r.Reap(k, out)]
}

func same[T comparable](t *testing.T, what string, have, want []T) {
	t.Helper()
	if !slices.Equal(have, want) {
		t.Errorf("%s:\nhave %v\nwant %v", what, have, want)
	}
}

// Each way of a request: who calls the file, with how many bytes, and what the completion says.
func TestWays(t *testing.T) {
	const nowait, direct = kiocb.Nowait, kiocb.Direct
	write := func(flags kiocb.Flags) SQE {
		return SQE{Op: Write, Pos: 4, Buf: make([]byte, 8), Flags: flags, UserData: 7}
	}
	async := write(0)
	async.Async = true
	asyncNowait := write(nowait)
	asyncNowait.Async = true
	for _, c := range []struct {
		name  string
		file  func(f *fakeFile)
		sqe   SQE
		calls []string
		res   int
		stats Stats
	}{
		{"inline", nil, write(0), []string{"write nowait 8 by test"}, 8, Stats{Inline: 1}},
		{"read inline", nil, SQE{Op: Read, Buf: make([]byte, 8)}, []string{"read nowait 8 by test"}, 8, Stats{Inline: 1}},
		{"gate: no patch", func(f *fakeFile) { f.modes = kiocb.ModeNowait }, write(0), []string{"write 8 by iou-wrk-0"}, 8, Stats{Punted: 1, Again: 1}},
		{"gate: reads do not need the patch", func(f *fakeFile) { f.modes = kiocb.ModeNowait }, SQE{Op: Read, Buf: make([]byte, 8)},
			[]string{"read nowait 8 by test"}, 8, Stats{Inline: 1}},
		{"gate: direct does not need the patch", func(f *fakeFile) { f.modes = kiocb.ModeNowait }, write(direct),
			[]string{"write nowait 8 by test"}, 8, Stats{Inline: 1}},
		{"EAGAIN", func(f *fakeFile) { f.again = 1 }, write(0), []string{"write nowait 8 by test", "write 8 by iou-wrk-0"}, 8, Stats{Punted: 1, Again: 1}},
		{"EAGAIN is the answer to RWF_NOWAIT", func(f *fakeFile) { f.again = 1 }, write(nowait), []string{"write nowait 8 by test"},
			-int(errno.EAGAIN), Stats{Inline: 1}},
		{"the gate's, too", func(f *fakeFile) { f.modes = kiocb.ModeNowait }, write(nowait), nil, -int(errno.EAGAIN), Stats{Inline: 1}},
		{"a file without RWF_NOWAIT", func(f *fakeFile) { f.modes = 0 }, write(nowait), nil, -int(errno.EOPNOTSUPP), Stats{Inline: 1}},
		{"EOPNOTSUPP of an attempt is no answer", func(f *fakeFile) { f.fail, f.failAt = errno.EOPNOTSUPP, 4 }, write(0),
			[]string{"write nowait 8 by test", "write 8 by iou-wrk-0"}, -int(errno.EOPNOTSUPP), Stats{Punted: 1, Again: 1}},
		{"force_async", nil, async, []string{"write 8 by iou-wrk-0"}, 8, Stats{Punted: 1}},
		{"a worker may sleep for RWF_NOWAIT", nil, asyncNowait, []string{"write 8 by iou-wrk-0"}, 8, Stats{Punted: 1}},
		{"short", func(f *fakeFile) { f.part = 3 }, write(0),
			[]string{"write nowait 8 by test", "write 5 by iou-wrk-0", "write 2 by iou-wrk-0"}, 8, Stats{Punted: 1, Short: 1}},
		{"short under RWF_NOWAIT", func(f *fakeFile) { f.part = 3 }, write(nowait), []string{"write nowait 8 by test"}, 3, Stats{Inline: 1}},
		{"short, then an error", func(f *fakeFile) { f.part, f.fail, f.failAt = 3, errno.ENOSPC, 10 }, write(0),
			[]string{"write nowait 8 by test", "write 5 by iou-wrk-0", "write 2 by iou-wrk-0"}, 6, Stats{Punted: 1, Short: 1}},
		{"an error", func(f *fakeFile) { f.fail = errno.EIO }, write(0), []string{"write nowait 8 by test"}, -int(errno.EIO), Stats{Inline: 1}},
		{"an error without a number", func(f *fakeFile) { f.fail = errors.New("bad leaf") }, write(0), []string{"write nowait 8 by test"}, -int(errno.EIO), Stats{Inline: 1}},
		{"fsync", nil, SQE{Op: Fsync}, []string{"fsync 0 by iou-wrk-0"}, 0, Stats{Punted: 1}},
		{"nop", nil, SQE{Op: Nop}, nil, 0, Stats{Inline: 1}},
		{"cancel nothing", nil, SQE{Op: Cancel, Target: 3}, nil, -int(errno.ENOENT), Stats{Inline: 1}},
		{"no such operation", nil, SQE{Op: 99}, nil, -int(errno.EINVAL), Stats{Inline: 1}},
	} {
		k := sched.NewTask("test")
		f := newFile()
		if c.file != nil {
			c.file(f)
		}
		r := newRing(t, k, Config{Entries: 1})
		c.sqe.File = f
		put(r, c.sqe)
		got := all(k, r, 1)
		c.stats.Submitted = 1
		if len(got) != 1 || got[0].Res != c.res || got[0].UserData != c.sqe.UserData || (got[0].Err != nil) != (c.res < 0) {
			t.Errorf("%s: completions %v, want one with %d", c.name, got, c.res)
		}
		if s := r.Stats(k); s != c.stats {
			t.Errorf("%s: have %+v want %+v", c.name, s, c.stats)
		}
		same(t, c.name, f.calls, c.calls)
		r.Close(k)
		if n := r.Pending(k); n != 0 {
			t.Errorf("%s: %d requests left", c.name, n)
		}
	}
}

// A direct request that the file has queued leaves the submitter and the workers free; its end is a
// completion, also when it comes before the file's own answer.
func TestQueued(t *testing.T) {
	for _, early := range []bool{true, false} {
		k := sched.NewTask("test")
		f := newFile()
		var rqs []kiocb.Request
		f.device = func(t *sched.Task, rq kiocb.Request, p []byte) {
			if early {
				rq.Done.Complete(t, len(p), nil)
				return
			}
			rqs = append(rqs, rq)
		}
		r := newRing(t, k, Config{Entries: 4})
		for i := range 3 {
			put(r, SQE{Op: Write, File: f, Flags: kiocb.Direct, Buf: make([]byte, 8), UserData: uint64(i)})
		}
		if _, err := r.Submit(k); err != nil {
			t.Fatal(err)
		}
		if !early {
			if n := r.Pending(k); n != 3 {
				t.Errorf("%d requests in flight, want 3", n)
			}
			put(r, SQE{Op: Cancel, Target: 1, UserData: 9})
			if got := all(k, r, 1); len(got) != 1 || got[0].Res != -int(errno.ENOENT) {
				t.Errorf("cancel of what the device has: %v", got)
			}
			for _, i := range []int{2, 0, 1} {
				rqs[i].Done.Complete(k, 8-i, map[bool]error{true: errno.EIO}[i == 2])
			}
		}
		got := all(k, r, 3)
		want := []CQE{{0, 8, nil}, {1, 8, nil}, {2, 8, nil}}
		if !early { // part of it counts more than the error
			want = []CQE{{2, 6, nil}, {0, 8, nil}, {1, 7, nil}}
		}
		same(t, "completions", got, want)
		if s := r.Stats(k); s.Queued != 3 {
			t.Errorf("early %v: %+v, want 3 queued", early, s)
		}
		r.Close(k)
	}
}

// Works that write one inode are done one at a time and in the order they came; others of another
// inode, reads, and direct ones where the file takes several, at the same time.
func TestWorkers(t *testing.T) {
	for _, c := range []struct {
		name string
		sqe  SQE
		mode kiocb.Modes
		ino  format.Ino // of every second request
		most int
	}{
		{"buffered writes", SQE{Op: Write}, 0, 257, 1},
		{"of two inodes", SQE{Op: Write}, 0, 258, 2},
		{"of two inodes of one bucket", SQE{Op: Write}, 0, 257 + buckets, 1},
		{"direct writes", SQE{Op: Write, Flags: kiocb.Direct}, 0, 257, 1},
		{"direct writes in parallel", SQE{Op: Write, Flags: kiocb.Direct}, kiocb.ModeDIOParallelWrite, 257, 4},
		{"reads", SQE{Op: Read}, 0, 257, 4},
		{"buffered writes with the mode of direct ones", SQE{Op: Write}, kiocb.ModeDIOParallelWrite, 257, 1},
	} {
		const n = 8
		k := sched.NewTask("test")
		files := [2]*fakeFile{newFile(), newFile()}
		files[1].ino = c.ino
		var mu sync.Mutex
		var in, most, begun, want int
		var full, sent chan struct{}
		for _, f := range files {
			f.modes |= c.mode
			f.gate = func(*sched.Task) {
				mu.Lock()
				in++
				begun++
				most = max(most, in)
				if in == want && begun <= want {
					close(full) // as many as may be here are here
				}
				mu.Unlock()
				<-full
				<-sent
				mu.Lock()
				in--
				mu.Unlock()
			}
		}
		r := newRing(t, k, Config{Entries: n, Workers: 4})
		// in the second one some workers are made and one is woken
		for round, n := range []int{1, n, n} {
			in, most, begun, want, full, sent = 0, 0, 0, min(n, c.most), make(chan struct{}), make(chan struct{})
			for i := range n {
				e := c.sqe
				e.Async, e.File, e.Buf, e.UserData = true, files[i%2], []byte{byte(i)}, uint64(i)
				put(r, e)
			}
			if _, err := r.Submit(k); err != nil {
				t.Fatal(err)
			}
			// no work ends before: one that comes while a woken worker is not there yet may get a
			// new one
			close(sent)
			got := all(k, r, n)
			if len(got) != n || most != want {
				t.Errorf("%s: %d completions, at most %d at a time, want %d and %d", c.name, len(got), most, n, want)
			}
			if c.most == 1 {
				for i, e := range got {
					if e.UserData != uint64(i) {
						t.Errorf("%s: completion %d is of request %d", c.name, i, e.UserData)
					}
				}
			}
			for idle := 0; round < 2 && idle < len(r.wq.tasks); {
				r.wq.mu.Lock(k)
				idle = r.wq.idle
				r.wq.mu.Unlock(k)
			}
		}
		if workers := len(r.wq.tasks); workers > c.most {
			t.Errorf("%s: %d workers for %d works at a time", c.name, workers, c.most)
		}
		r.Close(k)
	}
}

// A full submission queue has no entry until Submit; completions that find no room wait for it and
// stay in order.
func TestFull(t *testing.T) {
	k := sched.NewTask("test")
	r := newRing(t, k, Config{Entries: 4, CQEntries: 4})
	next := uint64(0)
	for range 3 {
		for range 4 {
			put(r, SQE{Op: Nop, UserData: next})
			next++
		}
		if r.GetSQE() != nil {
			t.Fatal("a fifth entry in a queue of four")
		}
		if n, err := r.Submit(k); n != 4 || err != nil {
			t.Fatal(n, err)
		}
	}
	if n, err := r.Submit(k); n != 0 || err != nil {
		t.Errorf("nothing to submit: %d, %v", n, err)
	}
	if s := r.Stats(k); s.Overflows != 8 || r.Pending(k) != 0 {
		t.Errorf("%+v, %d pending", s, r.Pending(k))
	}
	r.Wait(k, 12)
	var got []uint64
	for buf := make([]CQE, 3); ; {
		n := r.Reap(k, buf)
		if n == 0 {
			break
		}
		for _, e := range buf[:n] {
			got = append(got, e.UserData)
		}
	}
	want := make([]uint64, 12)
	for i := range want {
		want[i] = uint64(i)
	}
	same(t, "completions", got, want)
	r.Close(k)
	for _, cfg := range []Config{{}, {Entries: MaxEntries + 1}, {Entries: 8, CQEntries: 4}} {
		if _, err := New(k, cfg); !errors.Is(err, errno.EINVAL) {
			t.Errorf("%+v: %v", cfg, err)
		}
	}
}

// A task that waits for eleven completions has them when eight are in the queue and three wait for
// room there, though one more request is with the device; and when they are taken only what is left
// counts. If those without room did not count, or counted after they were taken, the task would
// sleep for ever, or return with too few.
func TestWaitCountsOverflow(t *testing.T) {
	r := explore.Once(explore.OnceConfig{}, func(k *sched.Task) {
		f := newFile()
		var late kiocb.Request
		f.device = func(_ *sched.Task, rq kiocb.Request, p []byte) { late = rq }
		r := newRing(t, k, Config{Entries: 8, CQEntries: 8})
		put(r, SQE{Op: Write, File: f, Flags: kiocb.Direct, Buf: make([]byte, 8), UserData: 9})
		must(r.Submit(k))
		for _, n := range []int{8, 3} {
			for i := range n {
				put(r, SQE{Op: Nop, UserData: uint64(i)})
			}
			must(r.Submit(k))
		}
		r.Wait(k, 11)
		buf := make([]CQE, 16)
		if n := r.Reap(k, buf); n != 11 {
			t.Errorf("%d completions, want 11", n)
		}
		k.Go("device", func(t *sched.Task) { late.Done.Complete(t, 8, nil) })
		r.Wait(k, 1)
		if n := r.Reap(k, buf); n != 1 || buf[0].UserData != 9 {
			t.Errorf("%d completions after a wait for one: %v", n, buf[:n])
		}
		r.Close(k)
	})
	if r.Verdict != explore.OK {
		t.Errorf("%v: %s", r.Verdict, r.Violation)
	}
}

// Cancel takes back what no worker has begun, tells what a worker has, and ends the latter after
// the part at hand.
func TestCancel(t *testing.T) {
	k := sched.NewTask("test")
	f := newFile()
	f.part = 1
	held, goOn := make(chan struct{}), make(chan struct{})
	first := true
	f.gate = func(*sched.Task) {
		if first {
			first = false
			close(held)
			<-goOn
		}
	}
	r := newRing(t, k, Config{Entries: 8})
	for i := range 3 {
		put(r, SQE{Op: Write, Async: true, File: f, Buf: make([]byte, 4), UserData: uint64(i)})
	}
	if _, err := r.Submit(k); err != nil {
		t.Fatal(err)
	}
	<-held
	for i := range 3 {
		put(r, SQE{Op: Cancel, Target: uint64(i), UserData: uint64(10 + i)})
	}
	put(r, SQE{Op: Cancel, Target: 1, UserData: 13})
	got := all(k, r, 6)
	// of an earlier Submit: at once
	want := []CQE{{1, -int(errno.ECANCELED), errno.ECANCELED}, {2, -int(errno.ECANCELED), errno.ECANCELED},
		{10, -int(errno.EALREADY), errno.EALREADY}, {11, 0, nil}, {12, 0, nil}, {13, -int(errno.ENOENT), errno.ENOENT}}
	same(t, "completions", got, want)
	close(goOn)
	same(t, "the running one ends with its first part", all(k, r, 1), []CQE{{0, 1, nil}})
	// the bucket is free again
	put(r, SQE{Op: Write, Async: true, File: f, Buf: make([]byte, 1), UserData: 20})
	same(t, "the next one", all(k, r, 1), []CQE{{20, 1, nil}})
	r.Close(k)

	// Of two works of one inode the first waits for a worker: once it is cancelled the second does.
	other := newFile()
	other.ino = 258
	first, held, goOn = true, make(chan struct{}), make(chan struct{})
	r = newRing(t, k, Config{Entries: 8, Workers: 1})
	for i, f := range []*fakeFile{f, other, other} {
		put(r, SQE{Op: Write, Async: true, File: f, Buf: make([]byte, 1), UserData: uint64(i)})
	}
	put(r, SQE{Op: Cancel, Target: 1, UserData: 11})
	same(t, "completions", all(k, r, 2), []CQE{{1, -int(errno.ECANCELED), errno.ECANCELED}, {11, 0, nil}})
	close(goOn)
	same(t, "completions", all(k, r, 2), []CQE{{0, 1, nil}, {2, 1, nil}})
	r.Close(k)
}

// A ring that is closed with requests in every place has one completion for each of them, and takes
// no more.
func TestClose(t *testing.T) {
	k := sched.NewTask("test")
	f := newFile()
	held, goOn := make(chan struct{}), make(chan struct{})
	first := true
	f.gate = func(*sched.Task) {
		if first {
			first = false
			close(held)
			<-goOn
		}
	}
	var queued kiocb.Completion
	f.device = func(_ *sched.Task, rq kiocb.Request, _ []byte) { queued = rq.Done }
	r := newRing(t, k, Config{Entries: 8})
	put(r, SQE{Op: Write, File: f, Buf: make([]byte, 1), UserData: 0})
	put(r, SQE{Op: Write, File: f, Flags: kiocb.Direct, Buf: make([]byte, 1), UserData: 1})
	for i := range 4 {
		put(r, SQE{Op: Write, Async: true, File: f, Buf: make([]byte, 1), UserData: uint64(2 + i)})
	}
	if _, err := r.Submit(k); err != nil {
		t.Fatal(err)
	}
	<-held
	put(r, SQE{Op: Nop, UserData: 99}) // not submitted
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		r.Close(sched.NewTask("closer"))
	}()
	for r.Stats(k).Cancelled < 3 {
		r.Wait(k, 1)
	}
	close(goOn)
	queued.Complete(k, 1, nil)
	<-closed
	out := make([]CQE, 10)
	got := out[:r.Reap(k, out)]
	slices.SortFunc(got, func(a, b CQE) int { return int(a.UserData) - int(b.UserData) })
	gone := CQE{Res: -int(errno.ECANCELED), Err: errno.ECANCELED}
	want := []CQE{{0, 1, nil}, {1, 1, nil}, {2, 1, nil}, gone, gone, gone}
	for i := range want {
		want[i].UserData = uint64(i)
	}
	same(t, "completions", got, want)
	put(r, SQE{Op: Nop})
	if _, err := r.Submit(k); !errors.Is(err, errno.EBADF) {
		t.Errorf("submit after close: %v", err)
	}
}

func TestNoAllocation(t *testing.T) {
	sched.SetChecked(false)
	defer sched.SetChecked(true)
	k := sched.NewTask("test")
	f := &quiet{modes: kiocb.ModeNowait | kiocb.ModeBufferWAsync}
	r := newRing(t, k, Config{Entries: 8})
	buf, out := make([]byte, 8), make([]CQE, 8)
	for _, async := range []bool{false, true} {
		if n := testing.AllocsPerRun(200, func() {
			for range 4 {
				s := r.GetSQE()
				s.Op, s.File, s.Buf, s.Async = Write, f, buf, async
			}
			r.Submit(k)
			r.Wait(k, 4)
			r.Reap(k, out)
		}); n != 0 {
			t.Errorf("async %v: %v allocations for 4 requests, want 0", async, n)
		}
	}
	r.Close(k)
}

// quiet is a file that does nothing, for measurements.
type quiet struct {
	fakeFile
	modes kiocb.Modes
}

func (f *quiet) Modes() kiocb.Modes { return f.modes }
func (f *quiet) WriteIter(_ *sched.Task, _ kiocb.Request, src iopath.Source) (int, error) {
	return len(src.Buf), nil
}

// BenchmarkWrite measures the ring's part of one write at depth 1.
func BenchmarkWrite(b *testing.B) {
	for _, async := range []bool{false, true} {
		b.Run(fmt.Sprintf("async=%v", async), func(b *testing.B) {
			sched.SetChecked(false)
			defer sched.SetChecked(true)
			k := sched.NewTask("bench")
			f := &quiet{modes: kiocb.ModeNowait | kiocb.ModeBufferWAsync}
			r := newRing(b, k, Config{Entries: 1})
			buf, out := make([]byte, 4096), make([]CQE, 1)
			b.ReportAllocs()
			for b.Loop() {
				s := r.GetSQE()
				s.Op, s.File, s.Buf, s.Async = Write, f, buf, async
				r.Submit(k)
				r.Wait(k, 1)
				r.Reap(k, out)
			}
			r.Close(k)
		})
	}
}
