package fio

import (
	"math"
	"sync/atomic"
	"time"

	"btrlab/internal/lock"
	"btrlab/internal/sched"
)

// flow is the running tasks of a flow_id: each has its share of their requests. Models fio flow.c.
type flow struct {
	weight, requests atomic.Int64   // of those that run
	moved            lock.WaitQueue // for a request or an end of another task
}

// enter gives the wave's worker k its flow.
func (w *wave) enter(k *worker) {
	if k.job.Flow == 0 {
		return
	}
	f := w.flows[k.job.FlowID]
	if f == nil {
		f = new(flow)
		f.moved.Init(jobClass)
		w.flows[k.job.FlowID] = f
	}
	f.weight.Add(int64(k.job.Flow))
	k.flow = f
}

// share waits until the worker may have one request more, and returns the time.
func (k *worker) share(t *sched.Task, now int64) int64 {
	f := k.flow
	within := func() bool {
		return k.flowed*f.weight.Load() <= int64(k.job.Flow)*f.requests.Load() || k.halt.Load() || k.opt.Stop != nil && k.opt.Stop.Load()
	}
	if !within() {
		now = k.drain(t, now) // the wait must not count as the latency of what has ended
		if k.end == math.MaxInt64 {
			f.moved.Wait(t, within)
		} else {
			f.moved.WaitAtMost(t, time.Duration(max(0, k.end-now)), within)
		}
		now = t.Now()
	}
	k.flowed++
	f.requests.Add(1)
	f.moved.Wake(t)
	return now
}

// leave gives the worker's share to those that go on.
func (k *worker) leave(t *sched.Task) {
	if f := k.flow; f != nil {
		f.weight.Add(-int64(k.job.Flow))
		f.requests.Add(-k.flowed)
		f.moved.Wake(t)
	}
}
