package explore

import (
	"strings"
	"sync/atomic"
)

// SpuriousPrefix begins a schedule of a search with spurious wake-ups: their choices are steps,
// which the same program without them does not have.
const SpuriousPrefix = "spurious,"

// Spurious reports whether the task that runs, which is about to sleep in a condition, is to be
// woken without a reason. It is called with the condition's lock released, and in place of the
// sleep when it is true: whatever the others do until then, they do while the task takes its lock
// again.
//
// It is a choice of the search, with Config.Spurious for each task at most, so that a wait in a
// loop ends. The bound is by task and not by execution: a count that tasks share would make their
// choices depend on each other.
func (w *world) Spurious() bool {
	k := w.cur
	if w.phase != exploring || w.aborting || k == nil || k == w.root {
		return false
	}
	if w.cfg.Asleep != nil {
		w.cfg.Asleep.Store(true)
	}
	if int(k.spurious) >= w.cfg.Spurious {
		return false
	}
	if w.pub.Choose(2, "spurious wake-up") == 0 {
		return false
	}
	k.spurious++
	return true
}

// mark begins the schedules of the search.
func (c *Config) mark() string {
	if c.Spurious > 0 {
		return SpuriousPrefix
	}
	return ""
}

// cutSpurious takes the mark of spurious wake-ups off a schedule.
func cutSpurious(schedule string) (rest string, marked bool) {
	rest, marked = strings.CutPrefix(strings.TrimSpace(schedule)+",", SpuriousPrefix)
	return strings.TrimSuffix(rest, ","), marked
}

// RunSpurious is Run, and where that finds nothing and some task slept in a condition, Run once
// more with a spurious wake-up for each task. The second result is that search; it is nil if there
// was none. A search that was stopped has no second.
func RunSpurious(cfg Config, prog func(w *World)) (Result, *Result) {
	var asleep atomic.Bool
	cfg.Spurious, cfg.Asleep = 0, &asleep
	r := Run(cfg, prog)
	if r.Verdict == Violated || r.Stopped || !asleep.Load() {
		return r, nil
	}
	cfg.Spurious = 1
	x := Run(cfg, prog)
	return r, &x
}
