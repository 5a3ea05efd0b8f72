// Package fairlock is a mistake: a right range lock of lab 05, in which whoever comes takes what is
// free.
package fairlock

import (
	"slices"

	"btrlab/labs/kit"
)

// RangeLock lets tasks hold ranges of bytes: no byte is held by two.
type RangeLock struct {
	mu   kit.Mutex
	cond kit.Cond
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
	r := kit.Range{Start: start, End: end}
	l.mu.Lock(t)
	for slices.ContainsFunc(l.held.Load(t), r.Overlaps) {
		l.cond.Wait(t, &l.mu)
	}
	l.held.Store(t, append(l.held.Load(t), r))
	l.mu.Unlock(t)
}

// Unlock ends the Lock of the same range by t.
func (l *RangeLock) Unlock(t *kit.Task, start, end uint64) {
	l.mu.Lock(t)
	held := l.held.Load(t)
	i := slices.Index(held, kit.Range{Start: start, End: end})
	l.held.Store(t, slices.Delete(held, i, i+1))
	l.cond.Broadcast(t)
	l.mu.Unlock(t)
}

func Answers() map[string]string { return nil }
