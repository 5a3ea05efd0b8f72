package fio

import (
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"sync/atomic"
	"time"

	"btrlab/internal/blockdev"
	"btrlab/internal/errno"
	"btrlab/internal/hostio"
	"btrlab/internal/iopath"
	"btrlab/internal/kiocb"
	"btrlab/internal/lock/lockdep"
	"btrlab/internal/measure/stats"
	"btrlab/internal/sched"
	"btrlab/internal/sched/cost"
)

const (
	sampleNs = int64(500 * time.Millisecond) // fio's bwavgtime, iopsavgtime
	tickNs   = int64(100 * time.Millisecond) // progress

	fallocKeepSize = 0x01 // FALLOC_FL_KEEP_SIZE
)

// file is a target that one or more tasks use.
type file struct {
	name   string
	target Target
	direct DirectTarget // nil without
	iter   IterTarget   // nil without
	users  int          // tasks over the whole run
}

// worker is one task of a job: its random sequence, its buffers and what it measured.
type worker struct {
	job    *Job
	num    int // over the run
	file   *file
	group  int
	opt    *Options
	gen    region
	ioSize int64  // bytes of one pass
	queue  Queue  // of libaio and io_uring
	overs  overer // queue, if it knows
	units  []unit // by tag
	free   []*unit
	batch  []*unit // in the queue and not submitted
	stamp  Stamper
	res    stats.Job
	task   *sched.Task
	wave   *wave

	start     int64 // Now
	end       int64 // Now at which the run time is over; MaxInt64 without
	number    uint64
	passIOs   uint64
	passBytes int64
	sinceSync int
	lastWrite []uint64 // verify: by unit, the number of the write that went there; nil without
	fly       int      // units that the engine has
	rateNext  [2]int64
	rateStep  [2]int64

	rampAt           int64 // Now at which measuring starts; MaxInt64 once it has
	sampleAt, tickAt int64
	sampleFrom       int64
	sampled          [2]struct{ ios, bytes uint64 }
	published        atomic.Uint64 // IOs, for progress
	failed           error
	rampWaits        sched.Waits // before measuring started
	counts           sched.Counts
	rampSleeps       []sched.NowaitSleep // before measuring started
}

// wave is the workers that run at the same time.
type wave struct{ workers []*worker }

func notice(opt *Options, format string, a ...any) {
	if opt.Notice != nil {
		opt.Notice(fmt.Sprintf(format, a...))
	}
}

func run(t *sched.Task, jf *JobFile, opt Options) (*stats.Run, error) {
	began := t.Now()
	out := &stats.Run{Global: jf.Global}
	files := map[string]*file{}
	var waves []*wave
	group, inGroup, num := 0, 0, 0
	for i, j := range jf.Jobs {
		if i == 0 || j.Stonewall {
			waves = append(waves, &wave{})
		}
		if (j.Stonewall || j.NewGroup) && inGroup > 0 {
			group, inGroup = group+1, 0
		}
		if !j.Engine.async() && j.IODepth > 1 {
			notice(&opt, "%s: both iodepth >= 1 and synchronous I/O engine are selected, queue depth will be capped at 1", j.Name)
		}
		w := waves[len(waves)-1]
		for k := range j.NumJobs {
			name := j.fileName(k)
			f := files[name]
			if f == nil {
				target, err := opt.Open(t, j, name)
				if err != nil {
					return nil, fmt.Errorf("job %s: open %s: %w", j.Name, name, err)
				}
				f = &file{name: name, target: target}
				f.direct, _ = target.(DirectTarget)
				f.iter, _ = target.(IterTarget)
				files[name] = f
			}
			if j.Direct && f.direct == nil {
				return nil, fmt.Errorf("job %s: %s: the target does not support direct=1", j.Name, name)
			}
			f.users++
			inGroup++
			w.workers = append(w.workers, &worker{job: j, num: num, file: f, group: group, opt: &opt, wave: w})
			num++
		}
	}
	for _, w := range waves {
		for _, k := range w.workers {
			if err := k.setup(t); err != nil {
				return nil, fmt.Errorf("job %s: %s: %w", k.job.Name, k.file.name, err)
			}
		}
	}
	for _, w := range waves {
		if opt.Stop == nil || !opt.Stop.Load() {
			w.run(t)
		}
	}
	for _, w := range waves {
		for _, k := range w.workers {
			last := len(out.Jobs) - 1
			if k.job.GroupReporting && last >= 0 && out.Jobs[last].GroupID == k.group && out.Jobs[last].Tasks > 0 {
				out.Jobs[last].Merge(&k.res)
				continue
			}
			out.Jobs = append(out.Jobs, &k.res)
		}
	}
	out.ElapsedNs = t.Now() - began
	out.End = time.Now()
	if t.Runtime() != nil {
		out.End = time.Unix(0, t.Now()).UTC() // the same every time
	}
	return out, nil
}

// setup finds the region of a worker, makes its file large enough, and its buffers.
func (k *worker) setup(t *sched.Task) error {
	j := k.job
	size := k.file.target.Size(t)
	whole := size // the file as the job wants it
	if j.FileSize > 0 {
		whole = j.FileSize
	}
	unit := int64(j.minBS())
	off := j.Offset
	if j.OffsetPercent > 0 {
		off = whole * int64(j.OffsetPercent) / 100
		off -= off % unit
	}
	length := whole - off
	switch {
	case j.SizePercent > 0:
		length = whole * int64(j.SizePercent) / 100
	case j.FileSize > 0:
	case j.Size > 0:
		length = j.Size
	}
	if j.FileSize == 0 && j.SizePercent == 0 && j.Size == 0 && size == 0 {
		return fmt.Errorf("the file is empty and no size is given")
	}
	if off+length > whole && (j.FileSize > 0 || j.SizePercent > 0) {
		length = whole - off
	}
	if length < unit {
		return fmt.Errorf("nothing to do: %d bytes at offset %d hold no block of %d", max(length, 0), off, unit)
	}
	k.ioSize = length - length%unit
	if j.FileSize > 0 && j.Size > 0 {
		k.ioSize = j.Size
	}
	if j.IOSize > 0 {
		k.ioSize = j.IOSize
	}
	if err := k.layout(t, max(off+length, j.FileSize)); err != nil {
		return fmt.Errorf("lay out: %w", err)
	}

	// Two rounds of the generator apart: neighbouring seeds give unlike sequences.
	seed := random(j.RandSeed*0x2545f4914f6cdd1d + uint64(k.num)*0x9e3779b97f4a7c15 + 1)
	k.gen = region{rnd: random(seed.next()), start: off, unit: unit, blocks: uint64(length / unit), random: j.Random,
		bs: j.BS, mixRead: uint64(j.RWMixRead), both: j.Read && j.Write}
	if j.Write {
		k.gen.onlyDir = DirWrite
	}
	if j.Random && !j.NoRandomMap {
		k.gen.bmap = newBlockMap(k.gen.blocks)
	}
	k.makeUnits()
	for d, r := range j.RateIOPS {
		if r > 0 {
			k.rateStep[d] = int64(time.Second) / int64(r)
		}
	}
	if j.Verify && j.Write {
		k.lastWrite = make([]uint64, k.gen.blocks)
	}
	k.res.HasSlat = j.Engine.async()
	if k.opt.Stamper != nil && j.Write {
		k.stamp = k.opt.Stamper(j, k.num)
	}
	k.res.Name, k.res.Desc, k.res.GroupID, k.res.Tasks = j.Name, j.Description, k.group, 1
	k.res.Options, k.res.IODepth, k.res.IgnoresErrors = j.Options, j.IODepth, len(j.IgnoreError[0])+len(j.IgnoreError[1]) > 0
	return nil
}

// layout makes the file want bytes long: what will be read is written, the rest is allocated as
// fallocate= says.
//
// Models fio filesetup.c:extend_file() and fallocate_file().
func (k *worker) layout(t *sched.Task, want int64) error {
	f, j := k.file.target, k.job
	have := f.Size(t)
	if have >= want {
		return nil
	}
	switch j.Fallocate {
	case FallocNative, FallocPosix, FallocKeep:
		mode := uint32(0)
		if j.Fallocate == FallocKeep {
			mode = fallocKeepSize
		}
		err := f.Fallocate(t, mode, 0, want)
		if err != nil && !(j.Fallocate == FallocNative && errors.Is(err, errno.EOPNOTSUPP)) {
			return err
		}
	case FallocTruncate:
		if err := f.Truncate(t, want); err != nil {
			return err
		}
	}
	if !j.Read {
		return nil
	}
	chunk := make([]byte, 1<<20)
	rnd := random(have)
	for off := have; off < want; {
		p := chunk[:min(int64(len(chunk)), want-off)]
		rnd.fill(p)
		n, err := f.WriteAt(t, p, off)
		if err != nil {
			return err
		}
		off += int64(n)
		if k.opt.Stop != nil && k.opt.Stop.Load() {
			break
		}
	}
	return f.Fsync(t)
}

// invalidate drops what the jobs of the wave will use from the cache, as fio does by posix_fadvise(POSIX_FADV_DONTNEED): else a job
// that reads would get what its own layout has left there. Models file_invalidate_cache(). Difference: all jobs of a wave do it before
// the first of them starts, so none takes away what another has read.
func (w *wave) invalidate(t *sched.Task) {
	for _, k := range w.workers {
		if c, ok := k.file.target.(CachedTarget); ok && k.job.Invalidate {
			c.DropCache(t, k.gen.start, int64(k.gen.blocks)*k.gen.unit)
		}
	}
}

func (w *wave) run(t *sched.Task) {
	w.invalidate(t)
	var before, after usage
	if t.Runtime() == nil { // what the simulator itself uses says nothing
		before = processUsage()
	}
	for _, k := range w.workers {
		k.task = t.Go(fmt.Sprintf("%s.%d", k.job.Name, k.num), k.main)
	}
	for _, k := range w.workers {
		t.Join(k.task)
	}
	if t.Runtime() == nil {
		after = processUsage()
	}
	total := int64(0)
	for _, k := range w.workers {
		total += k.res.RunNs
	}
	for _, k := range w.workers {
		if total > 0 {
			share := float64(k.res.RunNs) / float64(total)
			part := func(a, b int64) int64 { return int64(math.Round(share * float64(b-a))) }
			k.res.UserNs = part(before.user, after.user)
			k.res.SysNs = part(before.sys, after.sys)
			k.res.Ctx = part(before.switches, after.switches)
			k.res.Majf = part(before.majorFaults, after.majorFaults)
			k.res.Minf = part(before.minorFaults, after.minorFaults)
		}
		var waits []stats.Wait
		for _, w := range k.task.Waits {
			ramp := k.rampWaits.Of(w.Class)
			if n := w.Count - ramp.Count; n > 0 {
				waits = append(waits, stats.Wait{Class: lockdep.ByID(w.Class).Name, Nanos: w.Nanos - ramp.Nanos, Count: n})
			}
		}
		k.res.Waits = stats.MergeWaits(nil, waits)
		k.res.Nowait = k.nowait()
		if k.failed != nil {
			k.res.Errno, k.res.ErrorText = numberOf(k.failed), k.failed.Error()
		}
	}
}

// main is a worker's task.
func (k *worker) main(t *sched.Task) {
	if k.job.tries() {
		t.Counts = &k.counts
	}
	k.start = t.Now()
	k.end, k.rampAt = math.MaxInt64, math.MaxInt64
	if k.job.Ramp > 0 {
		k.rampAt = k.start + int64(k.job.Ramp)
	}
	if k.job.Runtime > 0 {
		k.end = k.start + int64(k.job.Ramp) + int64(k.job.Runtime)
	}
	k.sampleFrom, k.sampleAt, k.tickAt = k.start, k.start+sampleNs, k.start+tickNs
	k.rateNext = [2]int64{k.start, k.start}
	now := k.start
	if k.failed = k.openQueue(t); k.failed == nil {
		now = k.loop(t)
	}
	if k.queue != nil {
		if err := k.queue.Close(t); err != nil {
			k.fail(err)
		}
	}
	if k.failed == nil && k.job.EndFsync && k.job.Write {
		k.fsync(t)
		now = t.Now()
	}
	d := now - k.start
	k.res.RunNs, k.res.ElapsedNs = d, d
	for dir, s := range [2]*stats.Dir{&k.res.Read, &k.res.Write} {
		if s.IOs > 0 || [2]bool{k.job.Read, k.job.Write}[dir] {
			s.RunNs = d
		}
	}
	if k.lastWrite != nil && k.failed == nil {
		k.verify(t)
	}
	k.publish()
}

// due reports whether the worker has more to do at time now; it starts the next pass of a time_based job.
func (k *worker) due(now int64) bool {
	if now >= k.end || k.opt.Stop != nil && k.opt.Stop.Load() {
		return false
	}
	if k.passBytes >= k.ioSize || k.job.NumberIOs > 0 && k.passIOs >= k.job.NumberIOs {
		return k.again()
	}
	return true
}

// again starts the next pass; only time_based jobs have one.
func (k *worker) again() bool {
	if !k.job.TimeBased {
		return false
	}
	k.passBytes, k.passIOs = 0, 0
	k.gen.reset()
	return true
}

// pick is the next request. A region can be used up before ioSize bytes are (bssplit, io_size > size): then it
// starts over, as fio's files do.
func (k *worker) pick() (dir int, off int64, n int, ok bool) {
	dir = k.gen.direction()
	off, n, ok = k.gen.next(dir)
	if !ok {
		k.gen.reset()
		off, n, ok = k.gen.next(dir)
	}
	if left := k.ioSize - k.passBytes; int64(n) > left && left >= k.gen.unit {
		n = int(left - left%k.gen.unit)
	}
	k.passBytes += int64(n)
	k.passIOs++
	return dir, off, n, ok
}

// fill makes p the data of write number k.number at off, and gives the stamper's name of the write.
func (k *worker) fill(p []byte, off int64) (write uint64) {
	switch {
	case k.stamp != nil:
		return k.stamp.Stamp(p, off)
	case k.lastWrite != nil:
		k.rescramble(p, off)
		sealUnits(p, off, int(k.gen.unit), k.num, k.number)
		for b := (off - k.gen.start) / k.gen.unit; b < (off-k.gen.start+int64(len(p)))/k.gen.unit; b++ {
			k.lastWrite[b] = k.number
		}
	default:
		k.rescramble(p, off)
	}
	return 0
}

// rescramble makes no two writes alike at the price of a few stores, as fio's scramble_buffers does.
func (k *worker) rescramble(p []byte, off int64) {
	x := uint64(off) ^ k.number<<40
	for len(p) >= 512 {
		p[500], p[501], p[502], p[503] = byte(x), byte(x>>8), byte(x>>16), byte(x>>24)
		p[504], p[505], p[506], p[507] = byte(x>>32), byte(x>>40), byte(x>>48), byte(x>>56)
		p = p[512:]
	}
}

// opNames label the waits of a request, by direction.
var opNames = [2]string{"read", "write"}

// unit is one request, from the moment it is made until its latencies are noted. Models fio's struct io_u.
type unit struct {
	tag   uint32
	mem   [2][]byte // by direction
	dir   int
	whole []byte
	left  []byte // of whole, what is not done
	off   int64  // of left
	again bool   // a part was done
	noted bool   // the stamper knows its end

	start  int64  // Now when it was made
	issued int64  // Now when it had been submitted
	write  uint64 // the stamper's number of the write
	err    error
}

// makeUnits makes as many units as may be in flight, each with buffers of its own.
func (k *worker) makeUnits() {
	j := k.job
	k.units = make([]unit, j.depth())
	for i := range k.units {
		u := &k.units[i]
		u.tag = uint32(i)
		for d, use := range [2]bool{j.Read, j.Write} {
			if use {
				u.mem[d] = hostio.Aligned(j.maxBS(d))
			}
		}
		if j.Write && i == 0 {
			k.gen.rnd.fill(u.mem[DirWrite]) // once: the sequence of offsets does not depend on iodepth
		}
		copy(u.mem[DirWrite], k.units[0].mem[DirWrite])
		k.free = append(k.free, u)
	}
}

// loop is the life of a worker: it returns the time when it ended.
//
// Models fio backend.c:do_io().
func (k *worker) loop(t *sched.Task) int64 {
	now := k.start
	for k.failed == nil && k.due(now) {
		dir, off, n, ok := k.pick()
		if !ok {
			break
		}
		if step := k.rateStep[dir]; step > 0 {
			if k.rateNext[dir] > now {
				now = k.drain(t, now) // a sleep must not count as the latency of what has ended
				t.Sleep(time.Duration(max(0, min(k.rateNext[dir], k.end)-now)))
				if now = t.Now(); now >= k.end {
					break
				}
			}
			k.rateNext[dir] += step
		}
		u := k.free[len(k.free)-1]
		k.free = k.free[:len(k.free)-1]
		u.dir, u.off, u.whole, u.err, u.again, u.noted = dir, off, u.mem[dir][:n], nil, false, false
		u.left = u.whole
		if dir == DirWrite {
			k.number++
			u.write = k.fill(u.whole, off)
		}
		t.Op = opNames[dir]
		t.Spend(cost.Issue, 1)
		u.start = t.Now()
		if k.queue == nil {
			now = k.call(t, u)
		} else {
			now = k.issue(t, u)
		}
		k.observe(t, now)
		if dir == DirWrite && k.failed == nil && k.syncDue() {
			k.fsync(t)
			now = t.Now()
		}
	}
	return k.drain(t, now)
}

// call does u by system calls of its own, as many as it needs. Models engines/sync.c.
func (k *worker) call(t *sched.Task, u *unit) (now int64) {
	flags := k.job.flags()
	for n, err := k.syscall(t, u, flags); !k.ended(t, u, n, err); {
		n, err = k.syscall(t, u, flags)
	}
	now = t.Now()
	u.issued = u.start
	k.res.Depth[0]++
	k.res.Submit[1]++
	k.res.Complete[1]++
	k.done(u, now)
	return now
}

// syscall moves what is left of u, or a part of it.
func (k *worker) syscall(t *sched.Task, u *unit, flags kiocb.Flags) (int, error) {
	f, direct, write := k.file, flags&kiocb.Direct != 0, u.dir == DirWrite
	switch {
	case flags&kiocb.Nowait != 0: // preadv2, pwritev2
		rq := kiocb.Request{Pos: uint64(u.off), Flags: flags}
		if write {
			return f.iter.WriteIter(t, rq, iopath.Source{Buf: u.left})
		}
		return f.iter.ReadIter(t, rq, u.left)
	case write && direct:
		return f.direct.WriteDirect(t, u.left, u.off)
	case write:
		return f.target.WriteAt(t, u.left, u.off)
	case direct:
		return f.direct.ReadDirect(t, u.left, u.off)
	}
	return f.target.ReadAt(t, u.left, u.off)
}

// ended takes note of n bytes that were moved, and reports whether u is over, at all or with an error. Of a short one without an error
// the rest is to be done.
func (k *worker) ended(t *sched.Task, u *unit, n int, err error) bool {
	at := u.off
	u.left, u.off = u.left[n:], u.off+int64(n)
	switch {
	case len(u.left) == 0: // io.EOF may come with the last byte
		return true
	case err == nil && n > 0:
		k.dir(u).Short++
		u.again = true
		return false
	case errors.Is(err, io.EOF), err == nil && u.dir == DirRead:
		err = fmt.Errorf("read at %d of %d bytes: end of file, size %d", at, len(u.whole), k.file.target.Size(t))
	case err == nil:
		err = errno.EIO
	}
	u.err = err
	return true
}

// issue puts u into the queue, and makes room when iodepth requests are in flight. Models td_io_queue() and the end of do_io().
func (k *worker) issue(t *sched.Task, u *unit) (now int64) {
	k.fly++
	k.prep(t, u)
	now = u.start
	if len(k.batch) >= k.job.batch() {
		now = k.commit(t)
	}
	for full := k.fly == len(k.units); full && k.failed == nil && (k.fly == len(k.units) || k.fly > k.job.low()); {
		now = k.reap(t, k.job.BatchMin, k.job.BatchMax)
	}
	return now
}

func (k *worker) prep(t *sched.Task, u *unit) {
	if err := k.queue.Prep(t, u.dir, u.left, u.off, u.tag); err != nil {
		k.fail(err)
	}
	k.batch = append(k.batch, u)
}

func (k *worker) fail(err error) {
	if k.failed == nil {
		k.failed = err
	}
}

func (k *worker) dir(u *unit) *stats.Dir {
	if u.dir == DirRead {
		return &k.res.Read
	}
	return &k.res.Write
}

// commit submits the batch. Models td_io_commit() and fio_libaio_queued().
func (k *worker) commit(t *sched.Task) (now int64) {
	n := len(k.batch)
	err := k.queue.Submit(t)
	now = t.Now()
	if err != nil {
		k.fail(fmt.Errorf("submit: %w", err))
	}
	k.res.Submit[stats.BatchLevel(n)]++
	for _, u := range k.batch {
		if !u.again {
			k.res.Depth[stats.DepthLevel(k.fly)]++
			k.dir(u).Slat.Add(now - u.start)
		}
		u.issued = now
		if k.overs != nil && k.overs.Over(u.tag) {
			k.note(u, now)
		}
	}
	k.batch = k.batch[:0]
	return now
}

// reap waits for at least atLeast requests and ends up to most, or as many when most is less. Of what was moved in part the rest goes into
// the queue again. Models wait_for_completions() and io_u_queued_complete().
func (k *worker) reap(t *sched.Task, atLeast, most int) (now int64) {
	if len(k.batch) > 0 {
		k.commit(t)
	}
	atLeast = max(1, min(atLeast, k.fly))
	if err := k.queue.Wait(t, atLeast); err != nil {
		k.fail(fmt.Errorf("wait for requests: %w", err))
		k.fly = 0 // nobody knows
		return t.Now()
	}
	now = t.Now()
	got := 0
	for got < max(most, atLeast) {
		tag, n, err, ok := k.queue.Reap(t)
		if !ok {
			break
		}
		got++
		if u := &k.units[tag]; k.ended(t, u, n, err) {
			k.fly--
			k.done(u, now)
		} else {
			k.prep(t, u)
		}
	}
	k.res.Complete[stats.BatchLevel(got)]++
	return now
}

// drain waits for all requests in flight.
func (k *worker) drain(t *sched.Task, now int64) int64 {
	for k.fly > 0 {
		now = k.reap(t, k.fly, k.fly)
	}
	return now
}

// note tells the stamper that u's write ended at now at the latest.
func (k *worker) note(u *unit, now int64) {
	if u.dir == DirWrite && k.stamp != nil && !u.noted {
		u.noted = true
		k.stamp.Done(u.write, u.start, now, u.err)
	}
}

// done is the end of u, as the task sees it at time now.
func (k *worker) done(u *unit, now int64) {
	k.note(u, now)
	k.free = append(k.free, u)
	if u.err == nil && u.dir == DirRead && k.job.Verify && !k.job.Write {
		u.err = k.checkUnits(u.whole, u.off-int64(len(u.whole)))
	}
	switch {
	case u.err != nil && k.job.ignores(u.dir, u.err):
		k.res.Ignore(numberOf(u.err))
		return
	case u.err != nil:
		k.fail(u.err)
		return
	}
	s := k.dir(u)
	s.IOs++
	s.Bytes += uint64(len(u.whole))
	s.Clat.Add(now - u.issued)
	s.Lat.Add(now - u.start)
}

func (k *worker) fsync(t *sched.Task) {
	t.Op = "fsync"
	start := t.Now()
	if err := k.file.target.Fsync(t); err != nil {
		k.failed = fmt.Errorf("fsync: %w", err)
		return
	}
	k.res.Sync.Add(t.Now() - start)
}

// observe does the bookkeeping that is due at now: the end of ramp_time, a sample, a tick.
func (k *worker) observe(t *sched.Task, now int64) {
	if now >= k.rampAt {
		k.ramped(t, now)
	}
	if now >= k.sampleAt {
		k.sample(now)
	}
	if now >= k.tickAt {
		k.tick(now)
	}
}

// syncDue counts a write and reports whether fsync=N asks for an fsync after it.
func (k *worker) syncDue() bool {
	if k.job.Fsync == 0 {
		return false
	}
	if k.sinceSync++; k.sinceSync < k.job.Fsync {
		return false
	}
	k.sinceSync = 0
	return true
}

// ramped ends ramp_time: what was measured so far is forgotten. Requests that fio has not reaped count when it does.
func (k *worker) ramped(t *sched.Task, now int64) {
	k.rampAt = math.MaxInt64
	k.start, k.sampleFrom, k.sampleAt = now, now, now+sampleNs
	r := &k.res
	r.Read, r.Write, r.Sync = stats.Dir{}, stats.Dir{}, stats.Hist{}
	clear(r.Depth[:])
	clear(r.Submit[:])
	clear(r.Complete[:])
	k.sampled[0], k.sampled[1] = struct{ ios, bytes uint64 }{}, struct{ ios, bytes uint64 }{}
	k.rampWaits = slices.Clone(t.Waits)
	k.counts, k.rampSleeps = sched.Counts{}, slices.Clone(t.NowaitSleeps())
}

// tries reports whether the job's requests are tried without waiting.
func (j *Job) tries() bool { return j.Nowait || j.Engine == IOUring }

// nowait is what the requests cost that were tried without waiting, since measuring started.
func (k *worker) nowait() *stats.Nowait {
	if !k.job.tries() {
		return nil
	}
	n := stats.NewNowait()
	for c, v := range k.counts.N {
		n.Costs[sched.Counter(c).String()] = v
	}
	for a, v := range k.counts.Again {
		if v > 0 {
			n.Again[kiocb.Again(a).Place()+": "+kiocb.Again(a).Reason()] = v
		}
	}
	for _, s := range k.task.NowaitSleeps() {
		if sched.ClassByID(s.Class).Leaf && s.Class != blockdev.WaitClass.ID {
			continue // the kernel spins there
		}
		i := slices.IndexFunc(k.rampSleeps, func(r sched.NowaitSleep) bool { return r.Step == s.Step && r.Class == s.Class })
		if i >= 0 {
			s.Count -= k.rampSleeps[i].Count
		}
		if s.Count > 0 {
			n.Slept[s.String()] += s.Count
		}
	}
	return n
}

// sample records the bandwidth since the last sample.
func (k *worker) sample(now int64) {
	ms := uint64((now - k.sampleFrom) / 1e6)
	for d, s := range [2]*stats.Dir{&k.res.Read, &k.res.Write} {
		ios, bytes := s.IOs-k.sampled[d].ios, s.Bytes-k.sampled[d].bytes
		k.sampled[d].ios, k.sampled[d].bytes = s.IOs, s.Bytes
		if [2]bool{k.job.Read, k.job.Write}[d] {
			s.BWKiB.Add(bytes * 1000 / ms / 1024)
			s.IOPSSamp.Add(ios * 1000 / ms)
		}
	}
	k.sampleFrom, k.sampleAt = now, now+sampleNs
}

func (k *worker) publish() { k.published.Store(k.res.Read.IOs + k.res.Write.IOs) }

func (k *worker) tick(now int64) {
	k.tickAt = now + tickNs
	k.publish()
	if k.opt.Progress == nil || k != k.wave.workers[0] {
		return
	}
	p := Progress{Job: k.job.Name, Elapsed: now - k.start}
	if k.rampAt == math.MaxInt64 {
		p.Elapsed += int64(k.job.Ramp)
	}
	if k.job.TimeBased {
		p.Total = int64(k.job.Ramp + k.job.Runtime)
		p.Fraction = float64(p.Elapsed) / float64(p.Total)
	} else {
		p.Fraction = float64(k.passBytes) / float64(k.ioSize)
		if k.job.Runtime > 0 {
			p.Fraction = max(p.Fraction, float64(p.Elapsed)/float64(k.job.Runtime))
		}
	}
	p.Fraction = min(p.Fraction, 1)
	for _, o := range k.wave.workers {
		p.IOs += o.published.Load()
	}
	k.opt.Progress(p)
}

// checkUnits judges what a job that only reads found.
func (k *worker) checkUnits(p []byte, off int64) error {
	unit := int(k.gen.unit)
	for i := 0; i+unit <= len(p); i += unit {
		if err := checkUnit(p[i:i+unit], off+int64(i), 0, 0); err != nil {
			k.res.VerifyErrors++
			return fmt.Errorf("%w (%w)", err, errno.EILSEQ)
		}
	}
	return nil
}

// verify reads back every unit that was written and judges it. What it reads counts as reads, as in fio.
// When other tasks write the same file, a unit may hold any write of theirs.
func (k *worker) verify(t *sched.Task) {
	size := int64(k.gen.unit)
	u := unit{dir: DirRead, whole: hostio.Aligned(int(size))}
	began := t.Now()
	t.Op = opNames[DirRead]
	for b, number := range k.lastWrite {
		if number == 0 {
			continue
		}
		if k.opt.Stop != nil && k.opt.Stop.Load() {
			break
		}
		if k.file.users > 1 || k.job.depth() > 1 && (k.job.Direct || k.job.Engine == IOUring) {
			number = 0 // several writes of the unit may have been in flight
		}
		off := k.gen.start + int64(b)*size
		u.off, u.left, u.err = off, u.whole, nil
		t.Spend(cost.Issue, 1)
		start := t.Now()
		for n, err := k.syscall(t, &u, k.job.flags()&^kiocb.Nowait); !k.ended(t, &u, n, err); {
			n, err = k.syscall(t, &u, k.job.flags()&^kiocb.Nowait)
		}
		end := t.Now()
		if u.err != nil {
			k.failed = u.err
			break
		}
		k.res.Read.IOs++
		k.res.Read.Bytes += uint64(size)
		k.res.Depth[0]++
		k.res.Submit[1]++
		k.res.Complete[1]++
		k.res.Read.Clat.Add(end - start)
		k.res.Read.Lat.Add(end - start)
		if err := checkUnit(u.whole, off, k.num, number); err != nil {
			k.res.VerifyErrors++
			if k.failed == nil {
				k.failed = fmt.Errorf("%s: %w (%w)", k.file.name, err, errno.EILSEQ)
			}
		}
	}
	d := t.Now() - began
	k.res.Read.RunNs += d
	k.res.RunNs += d
	k.res.ElapsedNs += d
}
