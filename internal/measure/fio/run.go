package fio

import (
	"fmt"
	"math"
	"slices"
	"sync/atomic"
	"time"

	"btrlab/internal/lock"
	"btrlab/internal/lock/lockdep"
	"btrlab/internal/measure/stats"
	"btrlab/internal/sched"
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
	num    int    // over the run
	of     int    // of the job's tasks
	parts  []part // a file each
	group  int
	opt    *Options
	ioSize int64      // bytes of one pass
	queue  Queue      // of libaio and io_uring
	overs  overer     // queue, if it knows
	ring   *ringQueue // queue, if it is one
	units  []unit     // by tag
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
	written   int // writes, for fsync= and fdatasync=
	fly       int // units that the engine has
	rateNext  [2]int64
	rateStep  [2]int64 // ns for a request, or 0
	flow      *flow    // nil without
	flowed    int64    // requests in it
	pauses    random   // of a Poisson rate
	chooser   random   // of the next file
	files     picker   // of the next file, for zipf; else nil
	turn      int      // the file of the last request
	turns     int      // requests until it is another one's turn
	loops     int      // passes after this one
	sinceIdle int      // requests since the last thinktime
	halt      *atomic.Bool
	over      atomic.Bool
	full      bool    // fill_device: there is no space left
	logs      *logger // nil without

	rampAt           int64 // Now at which measuring starts; MaxInt64 once it has
	sampleAt, tickAt int64
	sampleFrom       int64
	sampled          [2]struct{ ios, bytes uint64 }
	published        atomic.Uint64 // IOs, for progress
	failed           error
	rampWaits        sched.Waits // before measuring started
	rampRing         stats.Ring
	counts           sched.Counts
	rampSleeps       []sched.NowaitSleep // before measuring started
}

// wave is the workers that run at the same time.
type wave struct {
	workers []*worker
	halts   map[int]*atomic.Bool // by group; exitall sets them
	flows   map[int]*flow        // by flow_id
	ended   lock.WaitQueue       // for the end of a worker
}

// jobClass is the wait for another task of the run: wait_for= and flow=.
var jobClass = lockdep.NewClass("fio_job")

func notice(opt *Options, format string, a ...any) {
	if opt.Notice != nil {
		opt.Notice(fmt.Sprintf(format, a...))
	}
}

func run(t *sched.Task, jf *JobFile, opt Options) (*stats.Run, error) {
	began := t.Now()
	out := &stats.Run{Global: jf.Global}
	for _, n := range jf.Notes {
		notice(&opt, "%s", n)
	}
	files := map[string]*file{}
	var waves []*wave
	group, inGroup, num := 0, 0, 0
	for i, j := range jf.Jobs {
		if i == 0 || j.Stonewall {
			waves = append(waves, &wave{halts: map[int]*atomic.Bool{}, flows: map[int]*flow{}})
			waves[len(waves)-1].ended.Init(jobClass)
		}
		if (j.Stonewall || j.NewGroup) && inGroup > 0 {
			group, inGroup = group+1, 0
		}
		if !j.Engine.async() && j.IODepth > 1 {
			notice(&opt, "%s: both iodepth >= 1 and synchronous I/O engine are selected, queue depth will be capped at 1", j.Name)
		}
		w := waves[len(waves)-1]
		for of := range j.NumJobs {
			parts, err := openParts(t, j, of, files, &opt)
			if err != nil {
				return nil, err
			}
			inGroup++
			if w.halts[group] == nil {
				w.halts[group] = new(atomic.Bool)
			}
			k := &worker{job: j, num: num, of: of, parts: parts, group: group, opt: &opt, wave: w, halt: w.halts[group]}
			w.enter(k)
			w.workers = append(w.workers, k)
			num++
		}
	}
	for _, w := range waves {
		for _, k := range w.workers {
			if err := k.setup(t); err != nil {
				return nil, fmt.Errorf("job %s: %w", k.job.Name, err)
			}
		}
	}
	if opt.Began != nil {
		opt.Began(t.Now())
	}
	over := false
	for _, w := range waves {
		if (opt.Stop == nil || !opt.Stop.Load()) && !over {
			over = w.run(t)
		}
	}
	if opt.Ended != nil {
		opt.Ended(t.Now())
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
	if err := writeLogs(waves, opt.Log); err != nil {
		return out, err
	}
	out.ElapsedNs = t.Now() - began
	out.End = time.Now()
	if t.Runtime() != nil {
		out.End = time.Unix(0, t.Now()).UTC() // the same every time
	}
	return out, nil
}

// openParts opens the files of task number of of a job, but for those that another task has opened
// already: files has all, by name.
func openParts(t *sched.Task, j *Job, of int, files map[string]*file, opt *Options) (parts []part, err error) {
	for i, name := range j.fileNames(of) {
		f := files[name]
		if f == nil || j.Engine == Null || isNull(f.target) {
			target, err := j.open(t, name, opt)
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
		parts = append(parts, part{file: f, of: i})
	}
	return parts, nil
}

// open opens a file of the job, or nothing.
func (j *Job) open(t *sched.Task, name string, opt *Options) (Target, error) {
	if j.Engine == Null {
		return nullTarget{}, nil
	}
	return opt.Open(t, j, name)
}

// invalidate drops what the jobs of the wave will use from the cache, as fio does by
// posix_fadvise(POSIX_FADV_DONTNEED): else a job that reads would get what its own layout has left
// there. Models file_invalidate_cache(). Difference: all jobs of a wave do it before the first of
// them starts, so none takes away what another has read.
func (w *wave) invalidate(t *sched.Task) {
	for _, k := range w.workers {
		for i := range k.parts {
			p := &k.parts[i]
			if c, ok := p.target.(CachedTarget); ok && k.job.Invalidate {
				c.DropCache(t, p.gen.start, int64(p.gen.blocks)*p.gen.unit)
			}
		}
	}
}

// run runs the workers and reports whether a task that has ended wants no further wave.
func (w *wave) run(t *sched.Task) (over bool) {
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
		k.res.Nowait, k.res.Log = k.nowait(), k.log()
		if k.failed != nil {
			k.res.Errno, k.res.ErrorText = numberOf(k.failed), k.failed.Error()
		}
		over = over || k.job.ExitAll && k.job.ExitWhat == ExitEverything
	}
	return over
}

// finish lets those go on that wait for the worker, and ends those that exitall names.
func (k *worker) finish(t *sched.Task) {
	k.over.Store(true)
	k.wave.ended.Wake(t)
	k.leave(t)
	for group, halt := range k.wave.halts {
		if k.job.ExitAll && (group == k.group || k.job.ExitWhat != ExitGroup) {
			halt.Store(true)
		}
	}
}

// awaits waits until the job may begin: wait_for names a job whose tasks were started before, and
// startdelay is a time.
func (k *worker) awaits(t *sched.Task) {
	for _, o := range k.wave.workers {
		if o.num < k.num && o.job.Name == k.job.WaitFor {
			k.wave.ended.Wait(t, o.over.Load)
		}
	}
	if d := k.job.StartDelay; d > 0 {
		t.Sleep(d)
	}
}

// main is a worker's task.
func (k *worker) main(t *sched.Task) {
	if k.job.tries() || k.job.syncs() {
		t.Counts = &k.counts
	}
	defer k.finish(t)
	k.awaits(t)
	k.rampWaits = slices.Clone(t.Waits)
	k.start = t.Now()
	if k.logs != nil {
		k.logs.epoch = k.start
	}
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
	if k.ring != nil {
		r := k.ring.stats(t).Since(k.rampRing)
		k.res.Ring = &r
	}
	for i := range k.parts {
		if k.failed == nil && k.job.EndFsync && k.job.Write {
			k.fsync(t, &k.parts[i])
			now = t.Now()
		}
	}
	d := now - k.start
	k.res.RunNs, k.res.ElapsedNs = d, d
	for dir, s := range [2]*stats.Dir{&k.res.Read, &k.res.Write} {
		if s.IOs > 0 || [2]bool{k.job.Read, k.job.Write}[dir] {
			s.RunNs = d
		}
	}
	for i := range k.parts {
		if k.parts[i].lastWrite != nil && k.failed == nil {
			k.verify(t, &k.parts[i])
		}
	}
	k.publish()
}

// due reports whether the worker has more to do at time now; it starts the next pass of a
// time_based job.
func (k *worker) due(now int64) bool {
	if now >= k.end || k.opt.Stop != nil && k.opt.Stop.Load() || k.halt.Load() || k.full {
		return false
	}
	if k.passBytes >= k.ioSize || k.job.NumberIOs > 0 && k.passIOs >= k.job.NumberIOs {
		return k.again()
	}
	return true
}

// again starts the next pass, if there is one: loops= has a number of them, and time_based any.
func (k *worker) again() bool {
	if !k.job.TimeBased && k.loops == 0 {
		return false
	}
	k.loops = max(0, k.loops-1)
	k.passBytes, k.passIOs = 0, 0
	k.reset()
	return true
}
