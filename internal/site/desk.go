// Package site answers the questions of the page that `make site` builds: which scenarios there
// are, what a player's step leads to, what a search finds. The page asks in JSON and shows the
// answers; the rooms that play, search and draw are those of the command line.
//
// A Desk is for one page. The page asks one question at a time, but for Stop, which it may ask
// while a search runs: then the search has called Yield, so that the browser could deliver the
// question.
package site

import (
	"encoding/json"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"btrlab/internal/sched/explore"
	"btrlab/internal/study/scenario"
	"btrlab/internal/study/timeline"
)

// Desk answers the questions of one page.
type Desk struct {
	// Yield is called during a search about twenty times a second, so that the page can be heard;
	// nil is never.
	Yield func()
	// Tell is called about ten times a second with how far a search is; nil is never.
	Tell func(Progress)

	game    *game
	stop    atomic.Bool
	yielded time.Time
}

// The time of a search between two calls of Yield, and of one that a question may interrupt.
const (
	yieldEvery     = 50 * time.Millisecond
	warmYieldEvery = 5 * time.Millisecond
)

// warmSearches is how many searches it takes until a browser has compiled well what they run
// through.
const warmSearches = 3

// Progress is how far a search is.
type Progress struct {
	Text  string  `json:"text"`
	Share float64 `json:"share"` // 0 to 1, by the estimate of the whole; 0 is not known
}

// Ask answers one question: what is asked, with its arguments in JSON. The error is a sentence for
// the user of the page.
func (d *Desk) Ask(what string, args []byte) ([]byte, error) {
	answer, err := d.answer(what, args)
	if err != nil {
		return nil, err
	}
	return json.Marshal(answer)
}

func (d *Desk) answer(what string, args []byte) (any, error) {
	switch what {
	case "catalog":
		return d.catalog(), nil
	case "policy":
		return with(args, d.policy)
	case "open":
		return with(args, d.open)
	case "move":
		return with(args, d.move)
	case "timeline":
		return with(args, d.timeline)
	case "never":
		return with(args, d.never)
	case "explore":
		return with(args, d.explore)
	case "program":
		return with(args, d.program)
	case "exhibit":
		return with(args, d.exhibit)
	}
	return nil, fmt.Errorf("bad question, have %q want one that the page asks", what)
}

// with calls f with its argument, read from JSON.
func with[A, R any](args []byte, f func(A) (R, error)) (any, error) {
	var a A
	if err := json.Unmarshal(args, &a); err != nil {
		return nil, fmt.Errorf("bad arguments: %w", err)
	}
	return f(a)
}

// Stop ends the search that runs. It returns what it has found so far.
func (d *Desk) Stop() { d.stop.Store(true) }

// stopped lets the page be heard, and says whether it has asked for the end.
func (d *Desk) stopped() bool {
	d.yield(yieldEvery)
	return d.stop.Load()
}

func (d *Desk) yield(every time.Duration) {
	if now := time.Now(); d.Yield != nil && now.Sub(d.yielded) >= every {
		d.Yield()
		d.yielded = time.Now()
	}
}

// Warm searches what a visitor is likely to search first, and drops what it finds: a browser
// compiles a function well once it has been called often, and the first search of a page takes
// three times as long as the next. It gives up as soon as busy says that a question waits, and
// reports whether it came to its end.
func (d *Desk) Warm(busy func() bool) bool {
	s, pol, err := (&Place{Scenario: "truncate-race", Policy: "unlocked-drain"}).find()
	if err != nil {
		panic(err) // both are the program's own
	}
	for range warmSearches {
		r, err := scenario.Run(s, pol, scenario.Options{Config: func(c *explore.Config) {
			c.Stop = func() bool { d.yield(warmYieldEvery); return busy() }
		}})
		if err != nil || r.Stopped {
			return false
		}
	}
	return true
}

// search fills the options of a search that the page can watch and stop.
func (d *Desk) search(o *scenario.Options, limit func(c *explore.Config)) {
	d.stop.Store(false)
	d.yielded = time.Now()
	o.Config = func(c *explore.Config) {
		limit(c)
		d.watch(c)
	}
}

// watch lets the page see how far a search is, and stop it.
func (d *Desk) watch(c *explore.Config) {
	c.Stop = d.stopped
	if d.Tell != nil {
		c.Progress = func(p explore.Progress) { d.Tell(progressOf(&p)) }
	}
}

func progressOf(p *explore.Progress) Progress {
	text := fmt.Sprintf("%d schedules, %d of them cut off as repetitions, %.1f s", p.Schedules, p.Cut, p.Took.Seconds())
	if p.Preemptions >= 0 {
		text += fmt.Sprintf("; now those with %d preemptions", p.Preemptions)
	}
	x := Progress{Text: text}
	if p.Total > 0 {
		x.Share = min(1, float64(p.Schedules)/p.Total)
	}
	return x
}

// drawn is the page of a trace.
func drawn(tr *scenario.Trace) (string, error) {
	var b strings.Builder
	err := timeline.WriteHTML(&b, tr)
	return b.String(), err
}
