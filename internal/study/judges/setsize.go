package judges

import (
	"fmt"
	"slices"
	"strings"

	"btrlab/internal/iopath/policy"
	"btrlab/internal/prose"
	"btrlab/internal/study/grade"
	"btrlab/internal/study/sandbox"
	"btrlab/internal/study/scenario"
)

// Truncate is lab 4: the order of a truncate's steps, and the answers to the questions about it.
type Truncate struct {
	Steps   func() []policy.SetsizeStep
	Answers func() map[string]string

	order   []policy.SetsizeStep // once Steps is called
	answers map[string]string
}

// About says what the lab is.
func (*Truncate) About() *About {
	return &About{N: 4, Folder: "04-truncate-race", Title: "The truncate race", Minutes: 75, File: "setsize.go",
		Code: judged(sandbox.Rules{Allowed: []string{policyPath}, Entry: "Steps", Want: "func Steps() []policy.SetsizeStep and func Answers() map[string]string"},
			"&judges.Truncate{Steps: student.Steps, Answers: student.Answers}"),
		Given: []string{"shrink-grow", "shrink-grow-reader", "shrink-writeback"}}
}

// Workloads are those of the order, then the questions.
func (l *Truncate) Workloads() []Workload { return append(races(l.order), l.swaps()...) }

func (l *Truncate) read() (name string, wrong []string) {
	sandbox.Call("Steps")
	l.order = slices.Clone(l.Steps())
	if err := policy.CheckSetsizeOrder(l.order); err != nil {
		return "steps", []string{err.Error()}
	}
	l.answers, wrong = written(l.Answers, l.swaps())
	return "answers", wrong
}

func (l *Truncate) said() map[string]string { return l.answers }

// races are the rows of an order; nil is the policy's. Request is too much to ask of writers that
// hold no lock, but with one writer there is nothing to mix.
func races(order []policy.SetsizeStep) []Workload {
	grow := []scenario.Op{scenario.Truncate(4 * kib), scenario.Truncate(16 * kib), scenario.Read(0, 16*kib)}
	cached := scenario.File{Size: 16 * kib, Cached: all(16 * kib)}
	dirty := scenario.File{Size: 16 * kib, Dirty: all(16 * kib)}
	locks := []string{"i_rwsem", "dio_wait", "page", "extent"}
	l := []Workload{
		{name: "truncate-race", asks: "a writer and a truncate below it: the truncate is not lost", points: 10, policy: "unlocked", scenario: must("truncate-race")},
		{name: "truncate-into", asks: "a truncate into the middle of a write, inside a page", points: 10, policy: "unlocked", scenario: must("truncate-into")},
		{name: "two-writers-truncate", asks: "two writers and a truncate below both", points: 10, policy: "unlocked", scenario: must("two-writers-truncate")},
		{name: "shrink-grow", asks: "what was cut does not come back when the file grows", points: 10, policy: "unlocked", scenario: &scenario.Scenario{
			Name: "shrink-grow", About: "a truncate below the end, one above it, and a look at what is in between",
			File: cached, Tasks: []scenario.Task{{Name: "truncate", Ops: grow}}, Switch: locks, Rule: calls, Deep: true}},
		{name: "shrink-grow-reader", asks: "nor when a reader comes in between", points: 10, policy: "unlocked", scenario: &scenario.Scenario{
			Name: "shrink-grow-reader", About: "a truncate below the end, one above it, and a reader that brings pages back",
			File:   scenario.File{Size: 16 * kib},
			Tasks:  []scenario.Task{{Name: "truncate", Ops: []scenario.Op{grow[0], grow[1], scenario.Read(8*kib, 4*kib)}}, {Name: "reader", Ops: []scenario.Op{scenario.Read(8*kib, 4*kib)}}},
			Switch: locks, Rule: calls, Deep: true}},
		{name: "shrink-writeback", asks: "nor when what is cut is on its way to the disk", points: 10, policy: "unlocked", limit: 5_000, scenario: &scenario.Scenario{
			Name: "shrink-writeback", About: "a truncate while dirty pages beyond the new end are written back",
			File:   dirty,
			Tasks:  []scenario.Task{{Name: "truncate", Ops: grow}, {Name: "writeback", Ops: []scenario.Op{scenario.Flush()}}},
			Switch: []string{"i_rwsem", "page", "extent", "ordered_extent", "workqueue_idle"},
			Rule:   calls, Deep: true}},
	}
	for i := range l {
		if order != nil {
			l[i].order = func(p *policy.Policy) {
				copy(p.SetsizeSteps[:], order)
				p.Name += " with your order"
			}
		}
	}
	return l
}

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
