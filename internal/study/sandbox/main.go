package sandbox

import (
	"errors"
	"os"
	"strconv"
	"sync"

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
	dog.start(len(r.Before) > 0, earlier.CPU, func(wrong string, spent bool) {
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
