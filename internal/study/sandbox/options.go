package sandbox

import (
	"time"

	"btrlab/internal/sched/explore"
)

// Options say how to judge.
type Options struct {
	// Workload and Schedule, when Workload is set, run only one schedule of one workload.
	Workload, Schedule string
	// First ends the grading at the first row that fails; the rows after it are missing.
	First bool
	// Schedules, unless it is 0, bounds each pass of each search that has no bound of its own below
	// it.
	Schedules int
	// Limit, unless it is 0, bounds the building and running of a student's code, in time of this
	// machine, and CPU the running, in processor time of all its processes: the rows that are not
	// judged by then have no points, and the report says which limit it was.
	Limit, CPU time.Duration
	// Profile, if set, is the file that gets the profile of the waits of what was measured, if the
	// lab measures and nothing is violated.
	Profile string
	// Explored, if set, has the rows of code that was explored before, and gets those of this one,
	// whose name is Name.
	Explored *Explored
	Name     string
	// Progress, if set, is called now and then during a search.
	Progress func(Progress)
	// Judged, if set, is called with the name and the Verdict of each row, once, when it is known.
	// Rows of a family come before the family's.
	Judged func(name, verdict string)
}

// Progress is how far a search of the grading is.
type Progress struct {
	Workload string
	explore.Progress
}
