// Package fairlock is a solution of lab 13: one line of requests, in which each waits for the
// earlier ones that it has a byte in common with, whether they hold or wait.
package fairlock

import (
	"slices"

	"btrlab/labs/kit"
)

// RangeLock lets tasks hold ranges of bytes: no byte is held by two, and nobody is passed by a
// later request for a common byte.
type RangeLock struct {
	mu   kit.Mutex
	cond kit.Cond // line became shorter

	// line is who holds and who waits, in the order in which they came. Protected by mu.
	line kit.Var[[]ticket]
	// next is the number of the next ticket. Protected by mu.
	next kit.Var[uint64]
}

// ticket is a place in the line. Two tasks may want one range, so it has a number.
type ticket struct {
	number uint64
	bytes  kit.Range
}

// New makes a lock that nobody holds.
func New() *RangeLock {
	l := &RangeLock{}
	l.mu.Init()
	l.cond.Init()
	return l
}

// first reports whether no earlier ticket has a byte in common with mine.
func (l *RangeLock) first(t *kit.Task, mine ticket) bool {
	for _, other := range l.line.Load(t) {
		if other.number == mine.number {
			return true
		}
		if other.bytes.Overlaps(mine.bytes) {
			return false
		}
	}
	return true
}

// Lock returns when t holds [start, end).
func (l *RangeLock) Lock(t *kit.Task, start, end uint64) {
	l.mu.Lock(t)
	mine := ticket{l.next.Load(t), kit.Range{Start: start, End: end}}
	l.next.Store(t, mine.number+1)
	l.line.Store(t, append(l.line.Load(t), mine))
	for !l.first(t, mine) {
		l.cond.Wait(t, &l.mu)
	}
	l.mu.Unlock(t)
}

// Unlock ends the Lock of the same range by t.
func (l *RangeLock) Unlock(t *kit.Task, start, end uint64) {
	l.mu.Lock(t)
	line := l.line.Load(t)
	// the first ticket of the range is its holder's: the others wait for it
	i := slices.IndexFunc(line, func(x ticket) bool { return x.bytes == (kit.Range{Start: start, End: end}) })
	l.line.Store(t, slices.Delete(line, i, i+1))
	l.cond.Broadcast(t)
	l.mu.Unlock(t)
}

func Answers() map[string]string {
	return map[string]string{
		"wakes-one":  "never",
		"wait-late":  "never",
		"passed":     "never",
		"all-asleep": "never",
	}
}
