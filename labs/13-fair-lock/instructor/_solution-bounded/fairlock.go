// Package fairlock is another solution of lab 13: whoever finds bytes free takes them, until a
// waiter has been passed twice.
package fairlock

import (
	"slices"

	"btrlab/labs/kit"
)

// most is how many later requests may pass one that waits.
const most = 2

// RangeLock lets tasks hold ranges of bytes: no byte is held by two.
type RangeLock struct {
	mu   kit.Mutex
	cond kit.Cond
	// held is what somebody holds, waits who waits, in the order in which they came. Protected by
	// mu.
	held  kit.Var[[]kit.Range]
	waits kit.Var[[]*waiter]
}

type waiter struct {
	bytes  kit.Range
	passed int
}

// New makes a lock that nobody holds.
func New() *RangeLock {
	l := &RangeLock{}
	l.mu.Init()
	l.cond.Init()
	return l
}

// free reports whether nobody holds a byte of mine's, and none of the waiters before it is tired of
// being passed.
func (l *RangeLock) free(t *kit.Task, mine *waiter) bool {
	if slices.ContainsFunc(l.held.Load(t), mine.bytes.Overlaps) {
		return false
	}
	for _, w := range l.waits.Load(t) {
		if w == mine {
			break
		}
		if w.passed >= most && w.bytes.Overlaps(mine.bytes) {
			return false
		}
	}
	return true
}

// Lock returns when t holds [start, end).
func (l *RangeLock) Lock(t *kit.Task, start, end uint64) {
	l.mu.Lock(t)
	mine := &waiter{bytes: kit.Range{Start: start, End: end}}
	waits := append(l.waits.Load(t), mine)
	l.waits.Store(t, waits)
	for !l.free(t, mine) {
		l.cond.Wait(t, &l.mu)
	}
	waits = l.waits.Load(t)
	i := slices.Index(waits, mine)
	for _, w := range waits[:i] {
		if w.bytes.Overlaps(mine.bytes) {
			w.passed++
		}
	}
	l.waits.Store(t, slices.Delete(waits, i, i+1))
	l.held.Store(t, append(l.held.Load(t), mine.bytes))
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

func Answers() map[string]string {
	return map[string]string{
		"wakes-one":  "fair-wide=4:2,7:0,21:1,25:3",
		"wait-late":  "lock-identical=6:2,8:1",
		"passed":     "fair-one=3:2,6:0",
		"all-asleep": "fair-one=3:2,6:0",
	}
}
