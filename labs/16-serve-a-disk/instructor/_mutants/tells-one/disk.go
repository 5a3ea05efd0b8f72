// Package disk is a wrong solution of lab 16: an error is told to the first that asks, as by one
// open file.
package disk

import (
	"math"

	"btrlab/labs/kit"
)

// Flushes answers the flushes of all connections. Make one with New.
type Flushes struct {
	mu      kit.Mutex
	changed kit.Cond // a Sync has ended

	// Protected by mu.
	begun, ended kit.Var[int] // Syncs; they run one after the other
	failures     kit.Var[int] // of Syncs
	failure      kit.Var[error]
	heard        kit.Var[map[int]int] // failures that each connection was told of
}

// New makes one that has answered nothing.
func New() *Flushes {
	f := &Flushes{}
	f.mu.Init()
	f.changed.Init()
	return f
}

// Flush returns nil when all writes are durable that were answered before it was called.
func (f *Flushes) Flush(t *kit.Task, d *kit.Disk) error {
	f.mu.Lock(t)
	// The Sync under way, if there is one, may have begun before the last of the writes.
	mine := f.begun.Load(t) + 1
	for f.ended.Load(t) < mine {
		if f.begun.Load(t) != f.ended.Load(t) {
			f.changed.Wait(t, &f.mu)
			continue
		}
		f.begun.Store(t, f.begun.Load(t)+1)
		f.mu.Unlock(t)
		err := d.Sync(t)
		f.mu.Lock(t)
		if err != nil {
			f.failures.Store(t, f.failures.Load(t)+1)
			f.failure.Store(t, err)
		}
		f.ended.Store(t, f.begun.Load(t))
		f.changed.Broadcast(t)
	}
	err := f.news(t, 0)
	f.mu.Unlock(t)
	return err
}

// news is the last failure, if the connection was not told yet. f.mu is held.
func (f *Flushes) news(t *kit.Task, connection int) error {
	told := map[int]int{}
	for c, n := range f.heard.Load(t) {
		told[c] = n
	}
	n := f.failures.Load(t)
	if told[connection] == n {
		return nil
	}
	told[connection] = n
	f.heard.Store(t, told)
	return f.failure.Load(t)
}

// Predict says what so many connections get that do what p was measured of. One has every Sync for
// itself. Of more, a flush waits for the end of the Sync that is under way when it comes, and has
// the next one: so a connection has a flush for as many Syncs as it is away for, rounded up, and
// one.
func Predict(p kit.SyncProfile, connections int) kit.FlushRates {
	sync, away := float64(p.Sync), float64(p.Think+p.Write)
	turn := away + sync
	if connections > 1 {
		turn = sync * (math.Ceil(away/sync) + 1)
	}
	return kit.FlushRates{PerSecond: 1e9 * float64(connections) / turn, Latency: turn - float64(p.Think)}
}

func Answers() map[string]string { return nil }
