package vtime

import (
	"math"
	"time"

	"btrlab/internal/sched/cost"
)

// Noise is the CPU time that tasks lose to the rest of the machine: interrupts, driver threads (a
// software RAID has busy ones), workers that are not simulated. Without noise all waits end in
// step, to the nanosecond, and a resonance that no real machine has decides which task gets a
// contended lock. The zero value is a machine without noise.
//
// Model: the CPU is taken from a task at exponential distances of its own CPU time. The task stays
// on the CPU and loses time. Tasks that spin for a lock it owns go to sleep, as owner_on_cpu()
// says; so does a spinner that is hit itself (need_resched()).
type Noise struct {
	PerSec float64       // how often a task loses its CPU in a second of its CPU time
	Mean   time.Duration // how long it lasts, on average (exponential)
	// Wake is the sigma of the lognormal factor on cost.IdleExit: a CPU that has been idle for
	// longer sleeps deeper.
	Wake float64
	Seed uint64
}

// hit takes k's CPU from it for a while.
func (w *World) hit(k *task) {
	w.stats.Hits++
	k.quiet = w.nextQuiet()
	k.state = preempted
	w.offCPU(k)
	w.push(w.now+int64(w.rng.ExpFloat64()*float64(w.m.Noise.Mean)), k, false)
	k.yield(struct{}{})
	k.state = running
}

// nextQuiet is the CPU time until the next hit.
func (w *World) nextQuiet() int64 {
	if w.m.Noise.PerSec <= 0 {
		return math.MaxInt64
	}
	return int64(w.rng.ExpFloat64() / w.m.Noise.PerSec * 1e9)
}

// idleExit is how long an idle CPU takes until it runs a task.
func (w *World) idleExit() int64 {
	n := w.price(cost.IdleExit, 1)
	if s := w.m.Noise.Wake; s > 0 {
		n = int64(float64(n) * math.Exp(s*w.rng.NormFloat64()))
	}
	return n + w.price(cost.Switch, 1)
}
