package judges

import (
	"fmt"
	"slices"
	"strings"

	"btrlab/internal/iopath/policy"
	"btrlab/internal/prose"
	"btrlab/internal/study/grade"
	"btrlab/internal/study/scenario"
)

// The questions of lab 4 are the swaps of two neighbours in the student's own order: the workload
// that tells the swap, with a schedule for it, or never. An answer is judged by what it does. The
// schedule runs in the workload beside one task more, a reader, for which no search prints
// schedules; a workload alone, or with a schedule that breaks nothing, is searched as its row is,
// and has half the points if the swap breaks it; never is searched in all of them. The workload
// must be kept by the student's order as it is, or it says nothing of the swap.

const (
	lastSwap   = policy.MaxSetsizeSteps - 1
	swapPoints = 10
)

// swaps are the rows of the questions.
func (l *Truncate) swaps() (rows []Workload) {
	for i := 1; i <= lastSwap; i++ {
		x := &swap{lab: l, at: i, name: fmt.Sprintf("swap-%d-%d", i, i+1)}
		rows = append(rows, Workload{name: x.name, points: swapPoints, judge: x.judge, replay: x.replay,
			asks: fmt.Sprintf("steps %d and %d of your order swapped: the workload that tells, and a schedule for it, or never", i, i+1)})
	}
	return rows
}

// swap is the question about the steps at and at+1 of the student's order, from 1.
type swap struct {
	lab  *Truncate
	at   int
	name string
}

// races are the workloads of the order with the two steps swapped.
func (x *swap) races() []Workload {
	order := slices.Clone(x.lab.order)
	order[x.at-1], order[x.at] = order[x.at], order[x.at-1]
	return races(order)
}

// withReader is the workload of a scenario with a reader of the first block as task 0, which goes
// first by default.
func (w Workload) withReader() *Workload {
	x := *w.scenario
	x.Tasks = append([]scenario.Task{{Name: "other reader", Ops: []scenario.Op{scenario.Read(0, 4*kib)}}}, x.Tasks...)
	w.scenario = &x
	return &w
}

// race is the workload with that name under the swap, or what is wrong with the name.
func (x *swap) race(name string) (w *Workload, wrong string) {
	var names []string
	for _, w := range x.races() {
		if w.name == name {
			return &w, ""
		}
		names = append(names, w.name)
	}
	return nil, fmt.Sprintf("no workload %q, want one of %s", name, strings.Join(names, ", "))
}

// replay runs an answer, WORKLOAD=SCHEDULE, and leaves the steps in the row.
func (x *swap) replay(answer string, r *grade.Row) error {
	name, schedule, _ := strings.Cut(answer, "=")
	in, wrong := x.race(name)
	if wrong != "" {
		r.Misfit, r.Result = true, wrong
		return nil
	}
	err := in.withReader().runOne(schedule, r)
	r.Schedule = answer
	return err
}

// judge judges the student's answer to the question. The rows before it are those of the order as
// it is.
func (x *swap) judge(j *judging, r *grade.Row) error {
	answer := strings.TrimSpace(x.lab.answers[x.name])
	switch answer {
	case "", "?":
		r.Result = NoAnswer
		return nil
	case Never:
		return x.never(j, r)
	}
	name, _, shown := strings.Cut(answer, "=")
	in, wrong := x.race(name)
	if wrong != "" {
		r.Result = wrong + ", or " + Never
		return nil
	}
	if !slices.ContainsFunc(j.done, func(d grade.Row) bool { return d.Name == name && d.Pass }) {
		r.Result = name + " is violated by your order as it is: it says nothing of the swap"
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
			says = "nothing is violated by this schedule beside the reader"
		}
	}
	var found grade.Row
	if err := in.explore(j, &found); err != nil {
		return err
	}
	r.Schedules, r.Switch = found.Schedules, found.Switch
	if found.Pass {
		r.Result = name + " keeps the swap: " + found.Result
		return nil
	}
	r.Score, r.Result = r.Max/2, fmt.Sprintf("%s tells, half the points; %s", name, says)
	return nil
}

// never searches all workloads under the swapped order: each a little first, since most swaps that
// can be broken are broken soon.
func (x *swap) never(j *judging, r *grade.Row) error {
	const little = 300 // schedules of each pass
	all, proved := x.races(), 0
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
				r.Result = fmt.Sprintf("it can be broken: %s", found.Kind)
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
