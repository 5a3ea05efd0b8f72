package judges

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"btrlab/internal/prose"
	"btrlab/internal/sched"
	"btrlab/internal/sched/explore"
	"btrlab/internal/study/grade"
	"btrlab/internal/study/sandbox"
	"btrlab/internal/study/scenario"
)

// Second is the second half of a lab: questions about the student's own code with something changed
// under it, and the answers.
type Second struct {
	Answers func() map[string]string

	answers map[string]string
}

// ask calls Answers, once, and says what is wrong on sight. Without a Second there is no answer.
func (s *Second) ask(questions []Workload) (name string, wrong []string) {
	if s == nil || s.Answers == nil {
		return "", nil
	}
	s.answers, wrong = written(s.Answers, questions)
	return "answers", wrong
}

func (s *Second) said() map[string]string {
	if s == nil {
		return nil
	}
	return s.answers
}

// twist is a question about the student's code with one thing changed: the workload that tells,
// with a schedule for it, or never. An answer is judged by what it does. The schedule runs in the
// workload beside one task more, for which no search prints schedules; a workload alone,
// or with a schedule that breaks nothing, is searched as its row is, and has half the points if it
// is broken; never is searched in all workloads. A workload must be kept by the code as it is, or
// it says nothing of the change.
type twist struct {
	name, asks string
	points     float64
	what, of   string // the change, and what it is in, in words
	run        bool   // nothing is wrong: it is asked whether a run can be seen
	answers    func() map[string]string
	// rows are the workloads with the change.
	rows func() []Workload
}

// workload is the row of the question.
func (x *twist) workload() Workload {
	return Workload{name: x.name, asks: x.asks, points: x.points, judge: x.judge, replay: x.replay}
}

// beside is the workload with one task more as task 0, which goes first by default: a reader of the
// first block, or without a file one that does nothing.
func (w Workload) beside() *Workload {
	if w.scenario == nil {
		prog := w.program
		w.program = func(x *explore.World) {
			var own explore.Atomic[int]
			own.Class = studentClass.ID
			x.Name(&own, "nothing")
			x.Go("other", func(t *sched.Task) { own.Store(t, 1) })
			prog(x)
		}
		return &w
	}
	x := *w.scenario
	x.Tasks = append([]scenario.Task{{Name: "other reader", Ops: []scenario.Op{scenario.Read(0, 4*kib)}}}, x.Tasks...)
	w.scenario = &x
	return &w
}

// row is the workload with that name under the change, or what is wrong with the name.
func (x *twist) row(name string) (w *Workload, wrong string) {
	var names []string
	for _, w := range x.rows() {
		if w.name == name {
			return &w, ""
		}
		names = append(names, w.name)
	}
	return nil, fmt.Sprintf("no workload %q, want one of %s", name, strings.Join(names, ", "))
}

// replay runs an answer, WORKLOAD=SCHEDULE, and leaves the steps in the row.
func (x *twist) replay(answer string, r *grade.Row) error {
	name, schedule, _ := strings.Cut(answer, "=")
	in, wrong := x.row(name)
	if wrong != "" {
		r.Misfit, r.Result = true, wrong
		return nil
	}
	err := in.beside().runOne(schedule, r)
	if x.run && err == nil && r.Pass {
		r.Result = "the run is not seen in this schedule"
	}
	r.Schedule = answer
	return err
}

// judge judges the student's answer. The rows before it are those of the code as it is.
func (x *twist) judge(j *judging, r *grade.Row) error {
	answer := strings.TrimSpace(x.answers()[x.name])
	switch answer {
	case "", "?":
		r.Result = NoAnswer
		return nil
	case Never:
		return x.never(j, r)
	}
	name, _, shown := strings.Cut(answer, "=")
	in, wrong := x.row(name)
	if wrong != "" {
		r.Result = wrong + ", or " + Never
		return nil
	}
	if !slices.ContainsFunc(j.done, func(d grade.Row) bool { return d.Name == name && d.Pass }) {
		r.Result = fmt.Sprintf("%s is violated by your %s as it is: it says nothing of the %s", name, x.of, x.what)
		return nil
	}
	says := "no schedule is given"
	if shown {
		var seen grade.Row
		switch err := x.replay(answer, &seen); {
		case err != nil:
			return err
		case seen.Misfit:
			says = seen.Result
		case seen.Violated:
			r.Pass, r.Result = true, "found: "+seen.Result
			return nil
		default:
			says = x.words("the run is not seen in this schedule beside task 0", "nothing is violated by this schedule beside task 0")
		}
	}
	var found grade.Row
	if err := in.explore(j, &found); err != nil {
		return err
	}
	r.Schedules, r.Switch = found.Schedules, found.Switch
	if found.Pass {
		r.Result = x.words(name+" does not show the run: ", fmt.Sprintf("%s keeps the %s: ", name, x.what)) + found.Result
		return nil
	}
	r.Score, r.Result = r.Max/2, fmt.Sprintf("%s tells, half the points; %s", name, says)
	return nil
}

// words are those for a question about a run, or about a fault.
func (x *twist) words(run, fault string) string {
	if x.run {
		return run
	}
	return fault
}

// never searches all workloads under the change: each a little first, since most that can be broken
// are broken soon.
func (x *twist) never(j *judging, r *grade.Row) error {
	const little = 300 // schedules of each pass
	all, proved := x.rows(), 0
	look := *j.Run
	look.Schedules = little
	for _, j := range []*judging{{Run: &look}, j} {
		r.Schedules, proved = 0, 0
		for i := range all {
			var found grade.Row
			if err := all[i].explore(j, &found); err != nil {
				return err
			}
			r.Schedules += found.Schedules
			if !found.Pass { // without the workload and the schedule: those were asked for
				r.Result = x.words("it can be seen", fmt.Sprintf("it can be broken: %s", found.Kind))
				return nil
			}
			if found.Exhausted {
				proved++
			}
		}
	}
	r.Pass, r.Result = true, fmt.Sprintf("never: %s kept in %s; %d exhausted", prose.Count(len(all), "workload"), prose.Count(r.Schedules, "schedule"), proved)
	return nil
}

// fault is a mistake of somebody else's in the steps under the student's code: it is whole, and
// what it calls does not do what it says.
type fault[S any] struct {
	name, asks string
	points     float64
	plant      func(steps S) S
}

// asksRun begins what is asked about a run that somebody has seen.
const asksRun = "no fault, but a run"

// seen is the kind of violation of a run that a question asks to see: nothing is wrong with it.
const seen explore.Kind = "seen"

// questions are the rows about faults. With rows the lab's workloads are made anew, its steps
// planted.
func questions[S any](s *Second, faults []fault[S], rows func(plant func(S) S) []Workload) (l []Workload) {
	for _, f := range faults {
		x := &twist{name: f.name, asks: f.asks + ": the workload that tells, and a schedule for it, or never", points: f.points, what: "fault", of: "code", run: strings.HasPrefix(f.asks, asksRun), answers: s.said,
			rows: func() []Workload {
				return slices.DeleteFunc(rows(f.plant), func(w Workload) bool { return w.scenario == nil && !w.asked })
			}}
		l = append(l, x.workload())
	}
	return l
}

// estimate is a question whose answer is a number that is measured.
type estimate struct {
	name, asks string
	points     float64
	within     float64 // per cent
	answers    func() map[string]string
	measure    func() (float64, error)
}

// estimated are the rows of estimates.
func estimated(s *Second, all ...*estimate) (l []Workload) {
	for _, x := range all {
		x.answers = s.said
		l = append(l, x.workload())
	}
	return l
}

// workload is the row of the question.
func (x *estimate) workload() Workload {
	return Workload{name: x.name, asks: fmt.Sprintf("%s: a number, within %g %% of what is measured", x.asks, x.within), points: x.points, judge: x.judge,
		replay: func(answer string, r *grade.Row) error { return x.compare(answer, r) }}
}

func (x *estimate) judge(_ *judging, r *grade.Row) error {
	answer := strings.TrimSpace(x.answers()[x.name])
	if answer == "" || answer == "?" {
		r.Result = NoAnswer
		return nil
	}
	err := x.compare(answer, r)
	r.Misfit = false // it is the student's answer, and not what a caller wants replayed
	return err
}

// compare measures. What is measured is said beside a right answer only.
func (x *estimate) compare(answer string, r *grade.Row) error {
	said, err := strconv.ParseFloat(answer, 64)
	if err != nil {
		r.Misfit, r.Result = true, fmt.Sprintf("%q is no number", answer)
		return nil
	}
	sandbox.Execute(x.name)
	have, err := x.measure()
	if err != nil {
		return err
	}
	off := math.Abs(said-have) / have * 100
	if r.Pass = off <= x.within; r.Pass { // NaN is not
		r.Result = fmt.Sprintf("%.4g were measured, %.1f %% off", have, off)
	} else {
		r.Result = fmt.Sprintf("off by more than %g %%", x.within)
	}
	return nil
}
