// Package fairlock is lab 13: a lock on byte ranges under which nobody waits for ever. See
// README.md.
package fairlock

import "btrlab/labs/kit"

// RangeLock lets tasks hold ranges of bytes: no byte is held by two. Make one with New.
//
// This one is that of lab 05: one holder at a time, and whoever comes first after an Unlock is
// next. Put yours here, and change it.
type RangeLock struct {
	mu   kit.Mutex
	cond kit.Cond // held changed

	// held is what somebody holds. Protected by mu.
	held kit.Var[[]kit.Range]
}

// New makes a lock that nobody holds.
func New() *RangeLock {
	l := &RangeLock{}
	l.mu.Init()
	l.cond.Init()
	return l
}

// Lock returns when t holds [start, end).
func (l *RangeLock) Lock(t *kit.Task, start, end uint64) {
	l.mu.Lock(t)
	for len(l.held.Load(t)) > 0 {
		l.cond.Wait(t, &l.mu)
	}
	l.held.Store(t, append(l.held.Load(t), kit.Range{Start: start, End: end}))
	l.mu.Unlock(t)
}

// Unlock ends the Lock of the same range by t.
func (l *RangeLock) Unlock(t *kit.Task, start, end uint64) {
	l.mu.Lock(t)
	l.held.Store(t, nil)
	l.cond.Broadcast(t)
	l.mu.Unlock(t)
}

// Answers says of each fault what it breaks: WORKLOAD=SCHEDULE, or "never". See README.md.
func Answers() map[string]string {
	return map[string]string{
		"wakes-one":  "?",
		"wait-late":  "?",
		"passed":     "?",
		"all-asleep": "?",
	}
}
