// Package rangelock is the starter: right, and one holder for the whole file.
package rangelock

import "btrlab/labs/kit"

// RangeLock lets tasks hold ranges of bytes: no byte is held by two. Make one with New.
//
// This one is right and slow: it lets one holder in, whatever the range. Change it.
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
