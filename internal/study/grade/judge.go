package grade

import (
	"encoding/json"
	"os"
	"strconv"
	"sync"

	"btrlab/internal/data/inode"
	"btrlab/internal/iopath/policy"
	"btrlab/labs/kit"
)

// Student is what a solution gives the grader.
type Student struct {
	Baseline     Baseline                              // lab 2
	Locking      Locking                               // lab 3
	Steps        func() []policy.SetsizeStep           // lab 4
	NewRangeLock func() inode.RangeLocker              // lab 5
	Waits        kit.WaitPath                          // lab 6
	Nowait       kit.NowaitPath                        // lab 7
	Ring         kit.SubmitPath                        // lab 8
	LogItem      kit.LogPath                           // lab 9
	Sectors      func(t *kit.Task, w *kit.SectorWrite) // lab 10
	Own          func(w *kit.World)                    // no lab: a program of one's own
	Orders       Orders                                // lab 11

	progress func(Progress)
}

// Main is the main function of the generated grader. args: result file, lab number [, workload, schedule to replay].
func Main(s Student, args []string) int {
	if len(args) != 2 && len(args) != 4 {
		return 2
	}
	n, err := strconv.Atoi(args[1])
	if err != nil {
		return 2
	}
	only, schedule := "", ""
	if len(args) == 4 {
		only, schedule = args[2], args[3]
	}
	var ending sync.Mutex
	write := func(rows []Row) int {
		ending.Lock() // for good: the first report counts
		b, err := json.Marshal(rows)
		if err != nil || os.WriteFile(args[0], b, 0o644) != nil {
			return 1
		}
		return 0
	}
	s.progress = toFile(args[0] + progressSuffix)
	dog.start(func(wrong string) { os.Exit(write(refused("run", points(n), []string{wrong}))) })
	return write(Judge(n, &s, only, schedule))
}

// Judge runs the workloads of lab n under the student's code; with only set, one schedule of that workload.
func Judge(n int, s *Student, only, schedule string) []Row {
	if s.Steps != nil {
		dog.begin("Steps", cpuOfSteps)
		order := s.Steps()
		if err := policy.CheckSetsizeOrder(order); err != nil {
			return refused("steps", points(n), []string{err.Error()})
		}
		s.Steps = func() []policy.SetsizeStep { return order }
	}
	if s.Orders.Locked != nil {
		if bad := s.Orders.read(); len(bad) > 0 {
			return refused("order", points(n), bad)
		}
	}
	var rows []Row
	clean, shown := true, false // clean: no workload before is violated; a ratio that is missed violates nothing
	for _, w := range workloads(n) {
		if only != "" && w.name != only {
			continue
		}
		r := Row{Name: w.name, Asks: w.asks, Max: w.points}
		var err error
		dog.begin(w.name, cpuOfExecution)
		switch {
		case w.question && only == "":
			err = w.answer(s, &r)
		case only != "" && w.ratio == nil:
			err = w.replay(s, schedule, &r)
		case w.ratio == nil:
			err = w.search(s, &r)
			if shown {
				r.Trace = "" // the first is enough to read
			}
			shown = shown || r.Trace != ""
		case !clean:
			r.Result = "not measured: a workload is violated"
		default:
			r.Pass, r.Result, err = w.ratio(s)
		}
		if err != nil {
			r.Pass, r.Result = false, err.Error()
		}
		if r.Pass {
			r.Score = r.Max
		}
		clean = clean && (r.Pass || w.ratio != nil)
		rows = append(rows, r)
	}
	if len(rows) == 0 {
		return refused(only, 0, []string{"no such workload"})
	}
	return rows
}
