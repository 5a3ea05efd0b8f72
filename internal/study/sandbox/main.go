package sandbox

import (
	"cmp"
	"errors"
	"os"
	"strconv"
	"sync"
	"time"

	"btrlab/internal/sched/explore"
	"btrlab/internal/study/grade"
)

// Run is what the grading program is asked for.
type Run struct {
	// Only, if set, is the workload to judge, by the one Schedule.
	Only, Schedule string
	First          bool // stop at the first row that fails
	// Schedules bounds each pass of a search, unless it is 0 or more than a workload has.
	Schedules int
	Before    []grade.Row // judged by an earlier process
	// Keep, if set, is called before a row is judged.
	Keep     func(done []grade.Row, at string)
	Progress func(Progress)
	Profile  string // the file of a profile of what is measured, if there is one
}

// profileSuffix is the file of the profile, beside the report.
const profileSuffix = ".pprof"

// Main is the main function of the program that is built: judge has the rows. args: ledger [,
// workload, schedule to replay] or [, schedules of each pass, stop at the first row that fails,
// ""]. Rows that the ledger has already are not judged again.
func Main(args []string, judge func(r *Run) ([]grade.Row, error)) int {
	r, err := parseRun(args)
	if err != nil {
		return 2
	}
	earlier, err := readLedger(args[0])
	if err != nil {
		return 1
	}
	var mu sync.Mutex // who holds it writes the ledger; the last one keeps it: the first end counts
	var now ledger
	write := func(g ledger) int {
		now = g
		if now.write(args[0]) != nil {
			return 1
		}
		return 0
	}
	if r.Progress = toFile(args[0] + progressSuffix); r.Only == "" {
		r.Before = earlier.Rows
		r.Keep = func(done []grade.Row, at string) {
			mu.Lock()
			defer mu.Unlock()
			write(ledger{Rows: done, At: at})
		}
	}
	bind(earlier.CPU)
	dog.start(len(r.Before) > 0, earlier.CPU, cmp.Or(earlier.Memory, MaxHeap), func(wrong string, spent bool) {
		mu.Lock()
		now.Wrong, now.Spent = wrong, spent
		os.Exit(write(now))
	})
	rows, err := judge(r)
	if err != nil {
		return 1
	}
	mu.Lock()
	return write(ledger{Rows: rows, Done: true})
}

// parseRun reads the arguments of Main.
func parseRun(args []string) (*Run, error) {
	if len(args) == 0 {
		return nil, errors.New("no ledger")
	}
	r, err := &Run{Profile: args[0] + profileSuffix}, error(nil)
	switch len(args) {
	case 1:
	case 3:
		r.Only, r.Schedule = args[1], args[2]
	case 4:
		r.First = args[2] == "true"
		r.Schedules, err = strconv.Atoi(args[1])
	default:
		err = errors.New("want 1, 3 or 4 arguments")
	}
	return r, err
}

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
	// Memory, unless it is 0, bounds what the student's code may have of memory, in bytes, the
	// grader with it; the default is MaxHeap. A row that takes more is lost.
	Memory uint64
	// Student, if set, is the id of who hands in, for a lab without Go whose tasks hang on it.
	Student string
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
