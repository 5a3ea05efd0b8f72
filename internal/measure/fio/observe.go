package fio

import (
	"math"
	"slices"

	"btrlab/internal/blockdev"
	"btrlab/internal/kiocb"
	"btrlab/internal/measure/stats"
	"btrlab/internal/sched"
)

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

// ramped ends ramp_time: what was measured so far is forgotten. Requests that fio has not reaped
// count when it does.
//
// Measuring starts now, as in fio. One request may take longer than ramp_time and most of the run
// time, and then the requests that are still in flight would be all there is, in next to no time: a
// rate of millions. So a worker that misses half of the run time is measured from the end of
// ramp_time.
func (k *worker) ramped(t *sched.Task, now int64) {
	from := now
	if k.job.Runtime > 0 && now-k.rampAt > int64(k.job.Runtime)/2 {
		from = k.rampAt
	}
	k.rampAt = math.MaxInt64
	k.start, k.sampleFrom, k.sampleAt = from, from, from+sampleNs
	r := &k.res
	r.Read, r.Write, r.Sync = stats.Dir{}, stats.Dir{}, stats.Hist{}
	clear(r.Depth[:])
	clear(r.Submit[:])
	clear(r.Complete[:])
	k.sampled[0], k.sampled[1] = struct{ ios, bytes uint64 }{}, struct{ ios, bytes uint64 }{}
	k.rampWaits = slices.Clone(t.Waits)
	if k.ring != nil {
		k.rampRing = k.ring.stats(t)
	}
	if k.logs != nil {
		k.logs.ramped(now)
	}
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
	n.Tried = k.counts.Tried
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

// log is what the fsyncs cost that went to a log, since measuring started.
func (k *worker) log() *stats.Log {
	c := &k.counts.Log
	if c.N[sched.LogFsyncs] == 0 {
		return nil
	}
	l := &stats.Log{Fsyncs: c.N[sched.LogFsyncs], Costs: map[string]int64{}, Steps: c.Steps, HeldNs: c.HeldNs}
	for i, v := range c.N[sched.LogFsyncs+1:] {
		l.Costs[(sched.LogFsyncs + 1 + sched.LogCounter(i)).String()] = v
	}
	return l
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
