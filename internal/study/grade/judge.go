package grade

import (
	"errors"
	"os"
	"slices"
	"strconv"
	"sync"
)

// Run is what the grading program is asked for.
type Run struct {
	// Only, if set, is the workload to judge, by the one Schedule.
	Only, Schedule string
	First          bool // stop at the first row that fails
	// Schedules bounds each pass of a search, unless it is 0 or more than a workload has.
	Schedules int
	Before    []Row // judged by an earlier process
	// Keep, if set, is called before a row is judged.
	Keep     func(done []Row, at string)
	Progress func(Progress)
}

// judging is a Run on its way.
type judging struct {
	*Run
	done  []Row // so far
	clean bool  // no workload so far is violated; a ratio that is missed violates nothing
}

// profileSuffix is the file of the profile, beside the report.
const profileSuffix = ".pprof"

// profiled is a Lab that keeps a profile of what it has measured.
type profiled interface{ writeProfile(path string) error }

// Main is the main function of the generated grader, for the lab with the student's functions.
// args: ledger [, workload, schedule to replay] or [, schedules of each pass, stop at the first row
// that fails, ""]. Rows that the ledger has already are not judged again.
func Main(l Lab, args []string) int {
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
		r.Keep = func(done []Row, at string) {
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
	rows := Judge(l, r)
	if p, ok := l.(profiled); ok && r.Only == "" {
		if err := p.writeProfile(args[0] + profileSuffix); err != nil {
			return 1
		}
	}
	mu.Lock()
	return write(ledger{Rows: rows, Done: true})
}

// parseRun reads the arguments of Main.
func parseRun(args []string) (*Run, error) {
	r, err := &Run{}, error(nil)
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

// Judge runs the workloads of a lab under the student's code, or one schedule of one of them.
func Judge(l Lab, run *Run) []Row {
	asks, _ := l.(reader)
	if asks != nil {
		if name, wrong := asks.read(); len(wrong) > 0 {
			return refused(name, points(l), wrong)
		}
	}
	j := &judging{Run: run, clean: true}
	shown := false
	for _, w := range l.Workloads() {
		if run.Only != "" && w.name != run.Only {
			continue
		}
		r, before := j.earlier(w.name)
		if !before {
			if run.Keep != nil {
				run.Keep(j.done, w.name)
			}
			r = w.row(j)
			if shown {
				r.Trace = "" // the first is enough to read
			}
		}
		shown = shown || r.Trace != ""
		j.clean = j.clean && (r.Pass || w.onlyMeasures())
		j.done = append(j.done, r)
		if run.First && !r.Pass && !before {
			break
		}
	}
	rows := j.done
	if len(rows) == 0 {
		return refused(run.Only, 0, []string{"no such workload"})
	}
	if run.Only != "" {
		count(l, rows)
		return rows
	}
	rows = finish(l, rows)
	if asks != nil {
		guesses(rows, asks.said())
	}
	return rows
}

// earlier is the row of an earlier process.
func (j *judging) earlier(name string) (r Row, ok bool) {
	i := slices.IndexFunc(j.Before, func(r Row) bool { return r.Name == name })
	if i < 0 {
		return r, false
	}
	return j.Before[i], true
}

// row judges the workload.
func (w *workload) row(j *judging) Row {
	r := Row{Name: w.name, Asks: w.asks, Max: w.points}
	var err error
	dog.begin(w.name, cpuOfExecution)
	switch {
	case j.Only != "" && w.replay != nil:
		err = w.replay(j.Schedule, &r)
	case j.Only != "" && w.explored():
		err = w.runOne(j.Schedule, &r)
	case w.judge != nil:
		err = w.judge(j, &r)
	case w.measure != nil:
		err = w.measure(j.clean, &r)
	case w.ratio == nil:
		err = w.search(j, &r)
	case !j.clean && !w.judges:
		r.Result = "not measured: a workload is violated"
	default:
		r.Pass, r.Result, err = w.ratio()
	}
	if err != nil {
		r.Pass, r.Result = false, err.Error()
	}
	if r.Pass {
		r.Score = r.Max
	}
	return r
}
