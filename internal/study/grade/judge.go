package grade

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"

	"btrlab/internal/data/inode"
	"btrlab/internal/iopath/policy"
	"btrlab/internal/prose"
	"btrlab/internal/trace"
	"btrlab/labs/kit"
)

// Student is what a solution gives the grader.
type Student struct {
	Baseline     Baseline                              // lab 2
	Locking      Locking                               // lab 3
	Steps        func() []policy.SetsizeStep           // lab 4
	Answers      func() map[string]string              // lab 4: to its questions
	NewRangeLock func() inode.RangeLocker              // lab 5
	Waits        kit.WaitPath                          // lab 6
	Nowait       kit.NowaitPath                        // lab 7
	Ring         kit.SubmitPath                        // lab 8
	LogItem      kit.LogPath                           // lab 9
	Sectors      func(t *kit.Task, w *kit.SectorWrite) // lab 10
	Policy       func() kit.Policy                     // lab 12
	Own          func(w *kit.World)                    // no lab: a program of one's own
	Orders       Orders                                // lab 11

	// Profile, if set, gets the waits of what is measured.
	Profile LockProfile

	answers  map[string]string // Answers, once they are called
	progress func(Progress)
	watch    func(kit.FileSide) kit.FileSide // between the operations of Policy and their locks
	keep     func(done []Row, at string)     // before a row is judged
	before   []Row                           // judged by an earlier process
	first    bool                            // stop at the first row that fails
	// of each pass, unless it is 0 or more than a workload has
	schedules int
}

// LockProfile is a profile of waits: profile.Locks, which this package does not know.
type LockProfile interface {
	trace.Sink
	WriteLocks(w io.Writer) error
}

// profileSuffix is the file of the profile, beside the report.
const profileSuffix = ".pprof"

// Main is the main function of the generated grader. args: ledger, lab number [, workload, schedule
// to replay] or [, schedules of each pass, stop at the first row that fails, ""]. Rows that the
// ledger has already are not judged again.
func Main(s Student, args []string) int {
	if len(args) != 2 && len(args) != 4 && len(args) != 5 {
		return 2
	}
	n, err := strconv.Atoi(args[1])
	if err != nil {
		return 2
	}
	only, schedule := "", ""
	switch len(args) {
	case 4:
		only, schedule = args[2], args[3]
	case 5:
		s.first = args[3] == "true"
		if s.schedules, err = strconv.Atoi(args[2]); err != nil {
			return 2
		}
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
	if s.progress = toFile(args[0] + progressSuffix); only == "" {
		s.before = earlier.Rows
		s.keep = func(done []Row, at string) {
			mu.Lock()
			defer mu.Unlock()
			write(ledger{Rows: done, At: at})
		}
	}
	bind(earlier.CPU)
	dog.start(len(s.before) > 0, earlier.CPU, func(wrong string, spent bool) {
		mu.Lock()
		now.Wrong, now.Spent = wrong, spent
		os.Exit(write(now))
	})
	rows := Judge(n, &s, only, schedule)
	if s.Profile != nil && only == "" {
		if err := writeProfile(s.Profile, args[0]+profileSuffix); err != nil {
			return 1
		}
	}
	mu.Lock()
	return write(ledger{Rows: rows, Done: true})
}

// Judge runs the workloads of lab n under the student's code; with only set, one schedule of that
// workload.
func Judge(n int, s *Student, only, schedule string) []Row {
	if s.Steps != nil {
		dog.begin("Steps", cpuOfSteps)
		order := s.Steps()
		if err := policy.CheckSetsizeOrder(order); err != nil {
			return refused("steps", points(n), []string{err.Error()})
		}
		s.Steps = func() []policy.SetsizeStep { return order }
	}
	if s.Answers != nil {
		var bad []string
		if s.answers, bad = written(s.Answers, workloads(n)); len(bad) > 0 {
			return refused("answers", points(n), bad)
		}
	}
	if s.Orders.Locked != nil {
		if bad := s.Orders.read(); len(bad) > 0 {
			return refused("order", points(n), bad)
		}
	}
	var rows []Row
	// clean: no workload before is violated; a ratio that is missed violates nothing
	clean, shown := true, false
	for _, w := range workloads(n) {
		if only != "" && w.name != only {
			continue
		}
		if i := slices.IndexFunc(s.before, func(r Row) bool { return r.Name == w.name }); i >= 0 {
			r := s.before[i]
			rows, clean, shown = append(rows, r), clean && (r.Pass || w.onlyMeasures()), shown || r.Trace != ""
			continue
		}
		if s.keep != nil {
			s.keep(rows, w.name)
		}
		r := Row{Name: w.name, Asks: w.asks, Max: w.points}
		var err error
		dog.begin(w.name, cpuOfExecution)
		switch {
		case w.swap > 0 && only == "":
			err = w.judgeSwap(s, rows, &r)
		case w.swap > 0:
			err = w.replaySwap(s, schedule, &r)
		case w.question && only == "":
			err = w.answer(s, &r)
		case only != "" && w.ratio == nil && w.measure == nil:
			err = w.replay(s, schedule, &r)
		case w.ratio == nil && w.measure == nil:
			err = w.search(s, &r)
			if shown {
				r.Trace = "" // the first is enough to read
			}
			shown = shown || r.Trace != ""
		case w.measure != nil:
			err = w.measure(s, clean, &r)
		case !clean && !w.judges:
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
		clean = clean && (r.Pass || w.onlyMeasures())
		rows = append(rows, r)
		if s.first && !r.Pass {
			break
		}
	}
	if len(rows) == 0 {
		return refused(only, 0, []string{"no such workload"})
	}
	if only != "" {
		count(n, rows)
		return rows
	}
	rows = finish(n, rows)
	guesses(rows, s.answers)
	guesses(rows, s.Orders.answers)
	return rows
}

// onlyMeasures reports whether the workload may fail and violate nothing.
func (w *workload) onlyMeasures() bool { return w.ratio != nil && !w.judges || w.measure != nil }

// finish makes the rows of the report of those of lab n's workloads.
func finish(n int, rows []Row) []Row {
	rows = fold(workloads(n), rows)
	count(n, rows)
	return rows
}

// fold puts the rows of the workloads of a family together, in the place of its first.
func fold(of []workload, rows []Row) []Row {
	family := map[string]*family{}
	for _, w := range of {
		family[w.name] = w.family
	}
	var out []Row
	at := map[string]int{}
	for _, r := range rows {
		f := family[r.Name]
		if f == nil {
			out = append(out, r)
			continue
		}
		i, ok := at[f.name]
		if !ok {
			i = len(out)
			at[f.name], out = i, append(out, Row{Name: f.name, Asks: f.asks, Max: f.points, Pass: true})
		}
		g := &out[i]
		result := r.Result
		if !r.Pass && g.Pass {
			g.Pass, g.Violated, g.Kind, g.Schedule, g.Trace, g.Workload = false, r.Violated, r.Kind, r.Schedule, r.Trace, r.Name
			g.Result = r.Name + ": " + r.Result
		}
		if i := strings.IndexByte(result, '\n'); i >= 0 {
			result = result[:i]
		}
		g.Parts = append(g.Parts, Part{r.Name, r.Pass, result})
		g.Schedules += r.Schedules
	}
	for i := range out {
		if g := &out[i]; len(g.Parts) > 0 && g.Pass {
			proved := 0
			for _, p := range g.Parts {
				if strings.HasPrefix(p.Result, "exhausted") {
					proved++
				}
			}
			g.Score = g.Max
			g.Result = fmt.Sprintf("%s kept in %s; %d exhausted", prose.Count(len(g.Parts), "scenario"), prose.Count(g.Schedules, "schedule"), proved)
		}
	}
	return out
}

func writeProfile(p LockProfile, path string) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	return errors.Join(p.WriteLocks(f), f.Close())
}
