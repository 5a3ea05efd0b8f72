package fio

import (
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"sync/atomic"
	"time"

	"btrlab/internal/errno"
	"btrlab/internal/hostio"
	"btrlab/internal/lock"
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
	direct DirectTarget
	users  int // tasks over the whole run
}

// worker is one task of a job: its random sequence, its buffers and what it measured.
type worker struct {
	job    *Job
	num    int // over the run
	file   *file
	group  int
	opt    *Options
	gen    region
	ioSize int64 // bytes of one pass
	buf    [2][]byte
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
	lastWrite []uint64    // verify: by unit, the number of the write that went there; nil without
	queues    QueueTarget // the target, if the job's engine goes through a queue of its own
	slots     []slot
	ring      []inFlight
	head, fly int
	rateNext  [2]int64
	rateStep  [2]int64

	rampAt           int64 // Now at which measuring starts; MaxInt64 once it has
	sampleAt, tickAt int64
	sampleFrom       int64
	sampled          [2]struct{ ios, bytes uint64 }
	published        atomic.Uint64 // IOs, for progress
	failed           error
	waits            sched.Waits // of tasks the worker started
	rampWaits        sched.Waits // before measuring started
}

// inFlight is a buffered libaio request that fio has not reaped.
type inFlight struct {
	issue int64 // Now when io_submit returned
	slat  int64
	dir   uint8
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
				files[name] = f
			}
			if _, ok := f.target.(QueueTarget); j.Engine == IOUring && !ok {
				return nil, fmt.Errorf("job %s: %s: the target does not support ioengine=io_uring", j.Name, name)
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
	for d, use := range [2]bool{j.Read, j.Write} {
		if use {
			k.buf[d] = hostio.Aligned(j.maxBS(d))
			if d == DirWrite {
				k.gen.rnd.fill(k.buf[d])
			}
		}
		if r := j.RateIOPS[d]; r > 0 {
			k.rateStep[d] = int64(time.Second) / int64(r)
		}
	}
	if j.Verify && j.Write {
		k.lastWrite = make([]uint64, k.gen.blocks)
	}
	own := k.useQueue()
	k.res.HasSlat = j.Engine.async()
	if j.Engine == LibAIO && !own {
		k.ring = make([]inFlight, j.IODepth)
	}
	if k.opt.Stamper != nil && j.Write {
		if j.Engine == LibAIO && j.Direct && !own {
			return fmt.Errorf("direct=1 with ioengine=libaio has many writes in flight, and these are told apart by task")
		}
		k.stamp = k.opt.Stamper(j, k.num)
	}
	k.res.Name, k.res.Desc, k.res.GroupID, k.res.Tasks = j.Name, j.Description, k.group, 1
	k.res.Options, k.res.IODepth = j.Options, j.IODepth
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
			k.waits.Add(w.Class, w.WaitStat)
		}
		slices.SortFunc(k.waits, func(a, b sched.ClassWait) int { return int(a.Class) - int(b.Class) })
		for _, w := range k.waits {
			ramp := k.rampWaits.Of(w.Class)
			if n := w.Count - ramp.Count; n > 0 {
				waits = append(waits, stats.Wait{Class: lockdep.ByID(w.Class).Name, Nanos: w.Nanos - ramp.Nanos, Count: n})
			}
		}
		k.res.Waits = stats.MergeWaits(nil, waits)
		if k.failed != nil {
			k.res.Errno, k.res.ErrorText = int(errno.EIO), k.failed.Error()
			var no errno.Errno
			if errors.As(k.failed, &no) {
				k.res.Errno = int(no)
			}
		}
	}
}

// main is a worker's task.
func (k *worker) main(t *sched.Task) {
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
	var now int64
	if k.queues != nil {
		now = k.queued(t)
	} else if k.job.Engine == LibAIO && k.job.Direct {
		now = k.async(t)
	} else {
		now = k.loop(t)
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

// do performs one request and says when it began and ended. A short transfer without an error is counted
// and goes on, as fio does.
func (k *worker) do(t *sched.Task, dir int, p []byte, off int64) (start, end int64, err error) {
	s := &k.res.Read
	if dir == DirWrite {
		s = &k.res.Write
	}
	t.Op = opNames[dir]
	t.Spend(cost.Issue, 1)
	start = t.Now()
	for q, o := p, off; ; {
		var n int
		switch {
		case dir == DirWrite && k.job.Direct:
			n, err = k.file.direct.WriteDirect(t, q, o)
		case dir == DirWrite:
			n, err = k.file.target.WriteAt(t, q, o)
		case k.job.Direct:
			n, err = k.file.direct.ReadDirect(t, q, o)
		default:
			n, err = k.file.target.ReadAt(t, q, o)
		}
		if n == len(q) {
			err = nil // io.EOF with the last byte
			break
		}
		if err == nil && n == 0 {
			err = errno.EIO
		}
		if err != nil {
			break
		}
		s.Short++
		q, o = q[n:], o+int64(n)
	}
	end = t.Now()
	if err != nil && errors.Is(err, io.EOF) {
		err = fmt.Errorf("read at %d of %d bytes: end of file, size %d", off, len(p), k.file.target.Size(t))
	}
	return start, end, err
}

// loop is the life of a worker that has one request at a time: it returns the time when it ended.
//
// Models fio backend.c:do_io(), with libaio's events as the package comment says.
func (k *worker) loop(t *sched.Task) int64 {
	now := k.start
	submit := 0
	for k.due(now) {
		dir, off, n, ok := k.pick()
		if !ok {
			break
		}
		if step := k.rateStep[dir]; step > 0 {
			if wait := k.rateNext[dir] - now; wait > 0 {
				k.reapAll(now) // a sleep must not count as the latency of what has ended
				t.Sleep(time.Duration(min(wait, max(0, k.end-now))))
				if now = t.Now(); now >= k.end {
					break
				}
			}
			k.rateNext[dir] += step
		}
		p := k.buf[dir][:n]
		var write uint64
		if dir == DirWrite {
			k.number++
			write = k.fill(p, off)
		}
		start, end, err := k.do(t, dir, p, off)
		now = end
		if dir == DirWrite && k.stamp != nil {
			k.stamp.Done(write, start, end, err)
		}
		if err != nil {
			k.failed = err
			break
		}
		s := &k.res.Write
		if dir == DirRead {
			s = &k.res.Read
			if k.job.Verify && !k.job.Write {
				if err := k.checkUnits(p, off); err != nil {
					k.failed = err
					break
				}
			}
		}
		s.IOs++
		s.Bytes += uint64(n)
		submit++
		if k.ring == nil {
			s.Clat.Add(end - start)
			s.Lat.Add(end - start)
			k.res.Depth[0]++
		} else {
			s.Slat.Add(end - start)
			k.ring[(k.head+k.fly)%len(k.ring)] = inFlight{issue: end, slat: end - start, dir: uint8(dir)}
			k.fly++
			k.res.Depth[stats.DepthLevel(k.fly)]++
			if k.fly == len(k.ring) {
				k.reap(end)
				k.res.Complete[1]++
			}
		}
		if k.observe(t, now) {
			submit = 0
		}
		if dir == DirWrite && k.syncDue() {
			k.fsync(t)
			if now = t.Now(); k.failed != nil {
				break
			}
		}
	}
	k.reapAll(now)
	k.res.Submit[1] += uint64(submit)
	if k.ring == nil {
		k.res.Complete[1] += uint64(submit)
	}
	return now
}

// reap takes the oldest event out of the ring at time now.
func (k *worker) reap(now int64) {
	e := &k.ring[k.head]
	if k.head++; k.head == len(k.ring) {
		k.head = 0
	}
	k.fly--
	s := &k.res.Write
	if e.dir == DirRead {
		s = &k.res.Read
	}
	clat := now - e.issue
	s.Clat.Add(clat)
	s.Lat.Add(clat + e.slat)
}

func (k *worker) reapAll(now int64) {
	if k.fly > 0 {
		k.res.Complete[stats.BatchLevel(k.fly)]++
	}
	for k.fly > 0 {
		k.reap(now)
	}
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

// observe does the bookkeeping that is due at now: the end of ramp_time, which it reports, a sample, a tick.
func (k *worker) observe(t *sched.Task, now int64) (ramped bool) {
	if ramped = now >= k.rampAt; ramped {
		k.ramped(t, now)
	}
	if now >= k.sampleAt {
		k.sample(now)
	}
	if now >= k.tickAt {
		k.tick(now)
	}
	return ramped
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
	unit := int(k.gen.unit)
	p := make([]byte, unit)
	began := t.Now()
	for b, number := range k.lastWrite {
		if number == 0 {
			continue
		}
		if k.opt.Stop != nil && k.opt.Stop.Load() {
			break
		}
		if k.file.users > 1 {
			number = 0
		}
		off := k.gen.start + int64(b)*int64(unit)
		start, end, err := k.do(t, DirRead, p, off)
		if err != nil {
			k.failed = err
			break
		}
		k.res.Read.IOs++
		k.res.Read.Bytes += uint64(unit)
		k.res.Depth[0]++
		k.res.Submit[1]++
		k.res.Complete[1]++
		k.res.Read.Clat.Add(end - start)
		k.res.Read.Lat.Add(end - start)
		if err := checkUnit(p, off, k.num, number); err != nil {
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

// async keeps iodepth direct requests in flight, each by a task of its own. The tasks share the worker's
// sequence and its results, under mu.
func (k *worker) async(t *sched.Task) int64 {
	var mu lock.Mutex
	depth := k.job.IODepth
	fly := 0
	submit := func(t *sched.Task) {
		var buf [2][]byte
		for d := range buf {
			buf[d] = append([]byte(nil), k.buf[d]...)
		}
		now := t.Now()
		mu.Lock(t)
		for k.failed == nil && k.due(now) {
			queued := t.Now()
			dir, off, n, ok := k.pick()
			if !ok {
				break
			}
			if step := k.rateStep[dir]; step > 0 {
				at := k.rateNext[dir]
				k.rateNext[dir] += step
				if wait := at - queued; wait > 0 {
					mu.Unlock(t)
					t.Sleep(time.Duration(min(wait, max(0, k.end-queued))))
					mu.Lock(t)
					if queued = t.Now(); queued >= k.end {
						break
					}
				}
			}
			p := buf[dir][:n]
			if dir == DirWrite {
				k.number++
				k.fill(p, off)
			}
			fly++
			k.res.Depth[stats.DepthLevel(fly)]++
			k.res.Submit[1]++
			mu.Unlock(t)
			start, end, err := k.do(t, dir, p, off)
			now = end
			mu.Lock(t)
			fly--
			if err != nil {
				k.failed = err
				break
			}
			s := &k.res.Read
			if dir == DirWrite {
				s = &k.res.Write
			}
			s.IOs++
			s.Bytes += uint64(n)
			s.Slat.Add(start - queued)
			s.Clat.Add(end - start)
			s.Lat.Add(end - queued)
			k.res.Complete[1]++
			k.observe(t, now)
			if dir == DirWrite && k.syncDue() {
				k.fsync(t)
			}
		}
		mu.Unlock(t)
	}
	tasks := make([]*sched.Task, depth)
	for i := range tasks {
		tasks[i] = t.Go(fmt.Sprintf("%s.%d.%d", k.job.Name, k.num, i), submit)
	}
	for _, c := range tasks {
		t.Join(c)
		for _, w := range c.Waits {
			k.waits.Add(w.Class, w.WaitStat)
		}
	}
	return t.Now()
}
