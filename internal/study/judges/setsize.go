package judges

import (
	"fmt"
	"slices"

	"btrlab/internal/policy"
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
	return &About{N: 4, Folder: "04-truncate-race", Title: "The truncate race", Minutes: 75, Blind: "an order of steps", Narrow: true, File: "setsize.go",
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

// The questions of lab 4 are the swaps of two neighbours in the student's own order.

const (
	lastSwap   = policy.MaxSetsizeSteps - 1
	swapPoints = 10
)

// swaps are the rows of the questions.
func (l *Truncate) swaps() (rows []Workload) {
	for i := 1; i <= lastSwap; i++ {
		rows = append(rows, l.swap(i).workload())
	}
	return rows
}

// swap is the question about the steps at and at+1 of the student's order, from 1.
func (l *Truncate) swap(at int) *twist {
	return &twist{name: fmt.Sprintf("swap-%d-%d", at, at+1), points: swapPoints, what: "swap", of: "order", answers: l.said,
		asks: fmt.Sprintf("steps %d and %d of your order swapped: the workload that tells, and a schedule for it, or never", at, at+1),
		rows: func() []Workload {
			order := slices.Clone(l.order)
			order[at-1], order[at] = order[at], order[at-1]
			return races(order)
		}}
}
