package fstest

import (
	"testing"
	"time"

	"btrlab/internal/fs"
	"btrlab/internal/policy"
	"btrlab/internal/sched"
)

// Schedules is how many schedules a test's search may make: most, or under the race detector a
// tenth. An explorer runs one task at a time, so the detector sees little that it does not see in
// the first of them.
func Schedules(most int) int {
	if sched.UnderRace {
		return max(most/10, 1)
	}
	return most
}

// Explored are the options of a file system in a search: one worker, few tree blocks in memory, and
// a clock that stands.
func Explored(spec string) fs.Options {
	return fs.Options{Policy: policy.MustParse(spec), EndioWorkers: 1, CacheBlocks: 64, Memory: fs.NoLimit, Now: func() time.Time { return Epoch }}
}

// OneTask skips, under the race detector, a long test whose calls all come from one task: those of
// the flusher beside it are seen elsewhere.
func OneTask(tb testing.TB) {
	tb.Helper()
	if sched.UnderRace {
		tb.Skip("one task: nothing for the race detector that shorter tests do not have")
	}
}
