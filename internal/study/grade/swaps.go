package grade

import (
	"fmt"
	"slices"
	"strings"

	"btrlab/internal/iopath/policy"
	"btrlab/internal/prose"
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

// swapWorkloads are the rows of the questions.
func swapWorkloads() (l []workload) {
	for i := 1; i <= lastSwap; i++ {
		l = append(l, workload{name: fmt.Sprintf("swap-%d-%d", i, i+1), points: swapPoints, swap: i,
			asks: fmt.Sprintf("steps %d and %d of your order swapped: the workload that tells, and a schedule for it, or never", i, i+1)})
	}
	return l
}

// withSwap is s with the steps swap and swap+1 of its order, from 1, swapped.
func (s *Student) withSwap(swap int) *Student {
	x, order := *s, slices.Clone(s.Steps())
	order[swap-1], order[swap] = order[swap], order[swap-1]
	x.Steps = func() []policy.SetsizeStep { return order }
	return &x
}

// withReader is the workload of a scenario with a reader of the first block as task 0, which goes
// first by default.
func (w workload) withReader() workload {
	x := *w.scenario
	x.Tasks = append([]scenario.Task{{Name: "other reader", Ops: []scenario.Op{scenario.Read(0, 4*kib)}}}, x.Tasks...)
	w.scenario = &x
	return w
}

// setsizeWorkload is the row of lab 4's order with that name, or what is wrong with the name.
func setsizeWorkload(name string) (w workload, wrong string) {
	var names []string
	for _, w := range setsizeWorkloads() {
		if w.name == name {
			return w, ""
		}
		names = append(names, w.name)
	}
	return w, fmt.Sprintf("no workload %q, want one of %s", name, strings.Join(names, ", "))
}

// replaySwap runs an answer, WORKLOAD=SCHEDULE, and leaves the steps in the row.
func (w *workload) replaySwap(s *Student, answer string, r *Row) error {
	name, schedule, _ := strings.Cut(answer, "=")
	in, wrong := setsizeWorkload(name)
	if wrong != "" {
		r.Misfit, r.Result = true, wrong
		return nil
	}
	in = in.withReader()
	err := in.replay(s.withSwap(w.swap), schedule, r)
	r.Schedule = answer
	return err
}

// judgeSwap judges the student's answer to the question. done are the rows before it: those of the
// order as it is.
func (w *workload) judgeSwap(s *Student, done []Row, r *Row) error {
	answer := strings.TrimSpace(s.answers[w.name])
	switch answer {
	case "", "?":
		r.Result = noAnswer
		return nil
	case never:
		return w.judgeNever(s, r)
	}
	name, _, shown := strings.Cut(answer, "=")
	in, wrong := setsizeWorkload(name)
	if wrong != "" {
		r.Result = wrong + ", or " + never
		return nil
	}
	if !slices.ContainsFunc(done, func(d Row) bool { return d.Name == name && d.Pass }) {
		r.Result = name + " is violated by your order as it is: it says nothing of the swap"
		return nil
	}
	says := "no schedule is given"
	if shown {
		var x Row
		switch err := w.replaySwap(s, answer, &x); {
		case err != nil:
			return err
		case x.Misfit:
			says = x.Result
		case x.Violated:
			r.Pass, r.Result = true, "found: "+x.Result
			return nil
		default:
			says = "nothing is violated by this schedule beside the reader"
		}
	}
	var x Row
	if err := in.explore(s.withSwap(w.swap), &x); err != nil {
		return err
	}
	r.Schedules, r.Switch = x.Schedules, x.Switch
	if x.Pass {
		r.Result = name + " keeps the swap: " + x.Result
		return nil
	}
	r.Score, r.Result = r.Max/2, fmt.Sprintf("%s tells, half the points; %s", name, says)
	return nil
}

// judgeNever searches all workloads under the swapped order: each a little first, since most swaps
// that can be broken are broken soon.
func (w *workload) judgeNever(s *Student, r *Row) error {
	const little = 300 // schedules of each pass
	all, proved := setsizeWorkloads(), 0
	look := s.withSwap(w.swap)
	look.schedules = little
	for _, x := range []*Student{look, s.withSwap(w.swap)} {
		r.Schedules, proved = 0, 0
		for _, in := range all {
			var found Row
			if err := in.explore(x, &found); err != nil {
				return err
			}
			r.Schedules += found.Schedules
			if !found.Pass { // without the workload and the schedule: those were asked for
				r.Result = fmt.Sprintf("it can be broken: %s", found.Kind)
				return nil
			}
			if strings.HasPrefix(found.Result, "exhausted") {
				proved++
			}
		}
	}
	r.Pass, r.Result = true, fmt.Sprintf("never: %s kept in %s; %d exhausted", prose.Count(len(all), "workload"), prose.Count(r.Schedules, "schedule"), proved)
	return nil
}
