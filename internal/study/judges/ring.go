package judges

import (
	"fmt"
	"slices"
	"strings"

	"btrlab/internal/errno"
	"btrlab/internal/format"
	"btrlab/internal/fs"
	"btrlab/internal/iopath"
	"btrlab/internal/kiocb"
	"btrlab/internal/lock"
	"btrlab/internal/lock/lockdep"
	"btrlab/internal/policy"
	"btrlab/internal/sched"
	"btrlab/internal/sched/explore"
	"btrlab/internal/study/sandbox"
	"btrlab/internal/uring"
	"btrlab/labs/kit"
)

// Ring is lab 8: what becomes of the requests of a ring.
type Ring struct {
	kit.SubmitPath

	times int // the counts that the code is told are so many times as large; 0 is 1
}

// About says what the lab is.
func (Ring) About() *About {
	return &About{N: 8, Folder: "08-ring", Title: "The ring", Minutes: 90, Narrow: true, File: "ring.go",
		Code: judged(sandbox.Rules{Allowed: []string{sandbox.KitPath, "errors"}, Entry: "Submit", Want: "func Submit and func Work (t *kit.Task, q *kit.Request)"},
			"judges.Ring{SubmitPath: kit.SubmitPath{Submit: student.Submit, Work: student.Work}}", sandbox.KitPath),
		Given: []string{"ring-busy", "ring-three", "ring-short", "ring-full", "ring-stall", "ring-queued", "ring-order"}}
}

// path is the student's submit path as the ring takes it.
func (l Ring) path() *uring.Path {
	run := func(worker bool) func(t *sched.Task, h uring.Handle) {
		return func(t *sched.Task, h uring.Handle) {
			if l.times > 1 {
				l.Run(t, movedRequest{h, l.times}, worker)
				return
			}
			l.Run(t, h, worker)
		}
	}
	return &uring.Path{Submit: run(false), Work: run(true)}
}

// labFile is the lock of a ringFile: it stands where the write path takes i_rwsem.
var labFile = lockdep.NewClass("lab_file")

// ringFile is a file of lab 8's workloads: bytes under one lock. With Nowait it answers EAGAIN
// where the lock is taken.
type ringFile struct {
	lock  lock.Mutex
	mem   sched.Shared
	ino   format.Ino
	data  [16]byte
	moved [16]int // how often requests of the ring have written each byte
	part  int     // the most bytes of one transfer; 0 is all
	room  int     // bytes before the end of the space; 0 is all
	full  error   // of a transfer that begins after room
	queue bool    // a device carries out the direct requests
	awake bool    // a transfer that may sleep is a violation: all requests are RWF_NOWAIT
}

func newRingFile(ino format.Ino) *ringFile {
	f := &ringFile{ino: ino}
	f.lock.Init(labFile)
	return f
}

func (f *ringFile) String() string          { return fmt.Sprintf("file %d", f.ino) }
func (f *ringFile) Ino() format.Ino         { return f.ino }
func (f *ringFile) Fsync(*sched.Task) error { return nil }
func (f *ringFile) Modes() kiocb.Modes {
	return kiocb.ModeNowait | kiocb.ModeBufferWAsync | kiocb.ModeDIOParallelWrite
}
func (f *ringFile) ReadIter(*sched.Task, kiocb.Request, []byte) (int, error) { return 0, errno.EINVAL }

// WriteIter writes for a ring.
func (f *ringFile) WriteIter(t *sched.Task, rq kiocb.Request, src iopath.Source) (int, error) {
	if f.queue && rq.Flags&kiocb.Direct != 0 {
		t.Go("device", func(t *sched.Task) {
			f.lock.Lock(t)
			n, err := f.put(t, int(rq.Pos), src.Buf)
			f.lock.Unlock(t)
			rq.Done.Complete(t, n, err)
		})
		return 0, errno.EIOCBQUEUED
	}
	if f.awake && rq.Flags&kiocb.Nowait == 0 {
		breaks(completion, "a transfer that may sleep is asked for, and the request is RWF_NOWAIT")
	}
	if rq.Flags&kiocb.Nowait == 0 {
		f.lock.Lock(t)
	} else if !f.lock.TryLock(t) {
		return 0, kiocb.AgainInode
	}
	defer f.lock.Unlock(t)
	return f.put(t, int(rq.Pos), src.Buf)
}

// put writes under lock.
func (f *ringFile) put(t *sched.Task, at int, p []byte) (int, error) {
	f.mem.Write(t, f)
	if f.room > 0 && at >= f.room {
		return 0, f.full
	}
	if f.part > 0 {
		p = p[:min(len(p), f.part)]
	}
	for i := range copy(f.data[at:], p) {
		f.moved[at+i]++
	}
	return len(p), nil
}

// ringWrite is a request of a workload.
type ringWrite struct {
	file  int
	at, n int
	flags kiocb.Flags
	async bool
	res   int  // of its completion
	more  bool // so is every count from res to n: it moved that much
}

// completion is the kind of violation in which a completion is not what the caller was promised.
const completion explore.Kind = "completion"

// ringWork is a workload of the ring alone: a task submits writes together and takes their
// completions.
type ringWork struct {
	part, room int
	full       error
	queue      bool
	beside     bool // another task writes the last bytes of file 0
	held       bool // another task holds the lock of file 0 until all completions were taken
	ordered    bool // completions come in the order of the writes
	awake      bool // of the files
	writes     []ringWrite
}

func (x ringWork) program(path *uring.Path) func(w *explore.World) {
	return func(w *explore.World) {
		x := x
		x.writes = slices.Clone(x.writes) // what they are told is noted there
		files := []*ringFile{newRingFile(257), newRingFile(258)}
		for _, f := range files {
			f.part, f.room, f.full, f.queue, f.awake = x.part, x.room, x.full, x.queue, x.awake
		}
		var turn explore.Atomic[int] // 1: the holder has the lock, 2: all completions were taken
		turn.Class = studentClass.ID
		w.Name(&turn, "the holder's turn")
		var told []string
		w.Watch("completions", func() string {
			if told == nil {
				return "-"
			}
			return strings.Join(told, " ")
		})
		w.Go("ring", func(t *sched.Task) {
			r, err := uring.New(t, uring.Config{Entries: 4, Workers: 2, Path: path})
			if err != nil {
				panic(err)
			}
			if x.held {
				turn.Await(t, func(n int) bool { return n == 1 })
			}
			for i, q := range x.writes {
				*r.GetSQE() = uring.SQE{Op: uring.Write, Async: q.async, Flags: q.flags, File: files[q.file], Pos: uint64(q.at),
					Buf: []byte(strings.Repeat(string(rune('a'+i)), q.n)), UserData: uint64(i)}
			}
			if _, err := r.Submit(t); err != nil {
				panic(err)
			}
			buf := make([]uring.CQE, 1)
			for seen := 0; seen < len(x.writes); seen++ {
				if r.Wait(t, 1); r.Reap(t, buf) == 0 {
					breaks(completion, "have %d completions, want %d", seen, len(x.writes))
				}
				e := buf[0]
				told = append(told, fmt.Sprintf("%d:%d", e.UserData, e.Res))
				if bad := x.judge(t, files, e, seen); bad != "" {
					breaks(completion, "%s", bad)
				}
			}
			if x.held {
				turn.Store(t, 2)
			}
			r.Close(t)
			x.atEnd(t, files)
		})
		if x.beside {
			w.Go("writer", func(t *sched.Task) {
				f := files[0]
				f.lock.Lock(t)
				f.mem.Write(t, f)
				f.data[15] = 'z'
				f.lock.Unlock(t)
			})
		}
		if x.held {
			w.Go("holder", func(t *sched.Task) {
				files[0].lock.Lock(t)
				turn.Store(t, 1)
				turn.Await(t, func(n int) bool { return n == 2 })
				files[0].lock.Unlock(t)
			})
		}
	}
}

// judge says what is wrong with a completion that was taken as number seen.
func (x *ringWork) judge(t *sched.Task, files []*ringFile, e uring.CQE, seen int) string {
	q := &x.writes[e.UserData]
	if q.more && e.Res > q.res && e.Res <= q.n {
		q.res = e.Res
	}
	if e.Res != q.res {
		return fmt.Sprintf("request %d was told %s, want %s", e.UserData, result(e.Res), result(q.res))
	}
	if x.ordered && int(e.UserData) != seen {
		return fmt.Sprintf("request %d has ended as number %d: workers write a file in the order of the requests", e.UserData, seen)
	}
	if q.res <= 0 {
		return ""
	}
	f := files[q.file]
	f.lock.Lock(t)
	defer f.lock.Unlock(t)
	f.mem.Read(t, f)
	for i := range q.res {
		if f.moved[q.at+i] == 0 {
			return fmt.Sprintf("request %d was told %s, and byte %d of them is not in the file", e.UserData, result(e.Res), i)
		}
	}
	return ""
}

// atEnd looks at the files after the last completion: each byte that was promised was written once
// by each request for it.
func (x *ringWork) atEnd(t *sched.Task, files []*ringFile) {
	for k, f := range files {
		var want [16]int
		var data [16]byte
		for i, q := range x.writes {
			for j := range max(0, q.res) {
				if q.file == k {
					want[q.at+j]++
					data[q.at+j] = byte('a' + i)
				}
			}
		}
		f.lock.Lock(t)
		f.mem.Read(t, f)
		for i := range want {
			if f.moved[i] != want[i] {
				breaks(completion, "byte %d of file %d was written %d times, want %d", i, k, f.moved[i], want[i])
			}
			if want[i] > 0 && f.data[i] != data[i] {
				breaks(completion, "byte %d of file %d is %c, want %c of the last request", i, k, f.data[i], data[i])
			}
		}
		f.lock.Unlock(t)
	}
}

// result is the number of a completion in words.
func result(res int) string {
	if res < 0 {
		return errno.Errno(-res).Error()
	}
	return fmt.Sprintf("%d bytes", res)
}

// Workloads are the ring alone, with files that sleep, write a part, fail and queue,
// then the ratio on the real write path.
func (l Ring) Workloads() []Workload {
	const direct, nowait = kiocb.Direct, kiocb.Nowait
	asleep := "nobody may sleep for a request with RWF_NOWAIT: it ends with EAGAIN while the file is locked"
	w := func(name, asks, stuck string, points float64, work ringWork) Workload {
		return Workload{name: name, asks: asks, points: points, stuck: stuck, anyWait: true, program: work.program(l.path())}
	}
	return []Workload{
		w("ring-busy", "a write of a file that another task writes, too: its bytes and one completion", "", 12,
			ringWork{beside: true, writes: []ringWrite{{n: 4, res: 4}}}),
		w("ring-three", "three writes of two files, one of them for a worker", "", 10,
			ringWork{writes: []ringWrite{{n: 4, res: 4}, {at: 4, n: 4, res: 4, async: true}, {file: 1, n: 4, res: 4}}}),
		w("ring-short", "a file that writes three bytes at a time: the whole count, and no byte twice", "", 12,
			ringWork{part: 3, beside: true, writes: []ringWrite{{n: 8, res: 8}, {file: 1, n: 4, res: 4, async: true}}}),
		w("ring-full", "no space after a part: the count of the part; no space at all: the error", "", 10,
			ringWork{part: 3, room: 6, full: errno.ENOSPC, writes: []ringWrite{{n: 8, res: 6}, {at: 8, n: 4, res: -int(errno.ENOSPC)}}}),
		w("ring-stall", "a file that writes no more and has no error ends the request, too", "", 8,
			ringWork{part: 3, room: 6, writes: []ringWrite{{n: 8, res: 6}, {file: 1, at: 8, n: 4, async: true}}}),
		w("ring-nowait", "RWF_NOWAIT: EAGAIN while the file is locked", asleep, 6,
			ringWork{held: true, writes: []ringWrite{{n: 4, flags: nowait, res: -int(errno.EAGAIN)}, {file: 1, n: 4, flags: nowait, res: 4}}}),
		w("ring-nowait-part", "RWF_NOWAIT: what needs no sleep is the answer, a part or more", "", 4,
			ringWork{part: 3, awake: true, writes: []ringWrite{{n: 8, flags: nowait, res: 3, more: true}}}),
		w("ring-queued", "direct writes that a device ends, of the submitter and of a worker", "", 10,
			ringWork{queue: true, writes: []ringWrite{{n: 4, flags: direct, res: 4}, {at: 4, n: 4, flags: direct, async: true, res: 4}}}),
		w("ring-order", "writes of one file that workers do end in their order", "", 8,
			ringWork{ordered: true, part: 3, writes: []ringWrite{{n: 4, async: true, res: 4}, {n: 4, async: true, res: 4}, {n: 4, async: true, res: 4}}}),
		{name: "virtual-time", points: 20, ratio: l.speed,
			asks: fmt.Sprintf("4 KiB overwrites of the real write path, one at a time: at least %d times force_async", minRing)},
	}
}

// The measurement of lab 8.
const (
	ringCPUs   = 4
	ringWrites = 2000
	ringBlock  = format.SectorSize
	minRing    = 2
)

// speed measures how much faster cached overwrites are on the student's path than with a worker
// for each.
func (l Ring) speed() (bool, string, error) {
	return speedup("force_async", minRing,
		func() (int64, error) { return ringTime(nil, true) },
		func() (int64, error) { return ringTime(l.path(), false) })
}

// ringTime is the virtual time that the writes take, in nanoseconds. Their bytes are compared
// afterwards.
func ringTime(path *uring.Path, async bool) (took int64, err error) {
	const size = ringWrites * ringBlock
	r := rig{cpus: ringCPUs, flags: format.InodeNoDataCow, opt: fs.Options{Policy: policy.MustParse(nowaitPolicy), DirtyLimit: 4 * size, DirtyBackground: 4 * size}}
	err = r.run(func(t *sched.Task, _ *fs.FS, f *fs.File) error {
		if _, err := f.WriteAt(t, make([]byte, size), 0); err != nil {
			return err
		}
		if took, err = ringJob(t, f, path, async); err != nil {
			return err
		}
		return stamped(t, f, ringWrites)
	})
	return took, err
}

// stampOf is the byte that a measurement writes all over a block.
func stampOf(block int) byte { return byte(1 + block%251) }

// stamped is an error if one of the first n blocks of f has not its stamp.
func stamped(t *sched.Task, f *fs.File, n int) error {
	p := make([]byte, ringBlock)
	for i := range n {
		if _, err := f.ReadAt(t, p, int64(i)*ringBlock); err != nil {
			return err
		}
		if want := stampOf(i); p[0] != want || p[ringBlock-1] != want {
			return fmt.Errorf("block %d has %d and %d, want %d: a write was told that it is whole", i, p[0], p[ringBlock-1], want)
		}
	}
	return nil
}

// ringJob writes each block once, in an order that jumps, one request at a time.
func ringJob(t *sched.Task, f *fs.File, path *uring.Path, async bool) (int64, error) {
	r, err := uring.New(t, uring.Config{Entries: 1, Path: path})
	if err != nil {
		return 0, err
	}
	defer r.Close(t)
	p := make([]byte, ringBlock)
	cqes := make([]uring.CQE, 2)
	begin := t.Now()
	for i := range ringWrites {
		block := i * 7 % ringWrites // 7 and ringWrites have no common divisor
		for k := range p {
			p[k] = stampOf(block)
		}
		*r.GetSQE() = uring.SQE{Op: uring.Write, Async: async, File: f, Pos: uint64(block) * ringBlock, Buf: p}
		if _, err := r.Submit(t); err != nil {
			return 0, err
		}
		r.Wait(t, 1)
		if n := r.Reap(t, cqes); n != 1 || cqes[0].Res != ringBlock {
			return 0, fmt.Errorf("write %d has %d completions, the first says %s, want one with %d bytes", i, n, result(cqes[0].Res), ringBlock)
		}
	}
	return t.Now() - begin, nil
}

var _ kit.RingRequest = uring.Handle{}
