package fstest

import (
	"testing"

	"btrlab/internal/sched"
)

// Schedules is how many schedules a test's search may make: most, or under the race detector a tenth. An explorer runs one task at a time,
// so the detector sees little that it does not see in the first of them.
func Schedules(most int) int {
	if sched.UnderRace {
		return max(most/10, 1)
	}
	return most
}

// OneTask skips, under the race detector, a long test whose calls all come from one task: those of the flusher beside it are seen elsewhere.
func OneTask(tb testing.TB) {
	tb.Helper()
	if sched.UnderRace {
		tb.Skip("one task: nothing for the race detector that shorter tests do not have")
	}
}
