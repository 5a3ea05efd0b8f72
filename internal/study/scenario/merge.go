package scenario

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"sync"

	"btrlab/internal/policy"
	"btrlab/internal/sched/explore"
)

// Merge joins the results of the shards of one search. What a missing shard would have found is not
// known: the search is then bounded, not exhausted.
func Merge(parts []Result) (Result, error) {
	if len(parts) == 0 {
		return Result{}, errors.New("merge: no results")
	}
	r := parts[0]
	r.Schedules, r.Cut, r.Steps, r.Seconds = 0, 0, 0, 0
	r.Verdict, r.Violation, r.Schedule, r.Replay, r.Kind, r.Found = explore.Exhausted, explore.Violation{}, "", "", "", 0
	have := make([]bool, max(r.Shards, 1))
	var best *Result
	least := -1
	for i := range parts {
		p := &parts[i]
		if p.Scenario != r.Scenario || p.Policy != r.Policy || p.Method != r.Method || p.Shards != r.Shards || p.Rule != r.Rule || !slices.Equal(p.Switch, r.Switch) {
			return r, fmt.Errorf("merge: part %d is %s under %s, %s, %d shards; want %s under %s, %s, %d shards, with the same rule and switch points",
				i+1, p.Scenario, p.Policy, p.Method, p.Shards, r.Scenario, r.Policy, r.Method, r.Shards)
		}
		if p.Shard < 0 || p.Shard >= len(have) {
			return r, fmt.Errorf("merge: part %d has shard %d of %d", i+1, p.Shard, p.Shards)
		}
		if have[p.Shard] {
			return r, fmt.Errorf("merge: shard %d is there twice", p.Shard)
		}
		have[p.Shard] = true
		r.Schedules, r.Cut, r.Steps = r.Schedules+p.Schedules, r.Cut+p.Cut, r.Steps+p.Steps
		r.Seconds = max(r.Seconds, p.Seconds)
		r.Stopped = r.Stopped || p.Stopped
		switch p.Verdict {
		case explore.Violated:
			if best == nil || p.Preemptions < best.Preemptions || p.Preemptions == best.Preemptions && len(p.Schedule) < len(best.Schedule) {
				best = p
			}
		case explore.Bounded:
			if r.Verdict != explore.Bounded || p.Preemptions < least {
				least = p.Preemptions
			}
			r.Verdict = explore.Bounded
		}
		r.Preemptions = max(r.Preemptions, p.Preemptions)
	}
	r.Shard, r.Shards = 0, 1
	r.Bound = explore.Coverage{Joined: len(have), Schedules: r.Schedules, Stopped: r.Stopped}
	for _, ok := range have {
		if !ok {
			r.Bound.Missing++
		}
	}
	switch {
	case best != nil:
		r.Verdict, r.Preemptions, r.Violation, r.Schedule, r.Replay, r.Kind, r.Found =
			explore.Violated, best.Preemptions, best.Violation, best.Schedule, best.Replay, best.Kind, best.Found
		r.Bound.Shard = best.Shard
	case r.Bound.Missing > 0:
		r.Verdict = explore.Bounded
	case r.Verdict == explore.Bounded:
		r.Preemptions = least
	}
	r.Bound.Verdict, r.Bound.Preemptions = r.Verdict, r.Preemptions
	return r, nil
}

// Cell is a scenario under a policy.
type Cell struct {
	scenario *Scenario
	policy   *policy.Policy
}

// Cells are those of a matrix, in the order of the scenarios: a policy that changes nothing of what
// a scenario is about has none.
func Cells(scenarios []*Scenario, policies []string) (cells []Cell, err error) {
	for _, s := range scenarios {
		for _, name := range policies {
			p, err := parsePolicy(name)
			if err != nil {
				return nil, err
			}
			if s.isAbout(p) {
				cells = append(cells, Cell{s, p})
			}
		}
	}
	return cells, nil
}

// Run explores the cell.
func (c *Cell) Run(o Options) (Result, error) { return Run(c.scenario, c.policy, o) }

// Matrix explores scenarios under policies, so many cells at a time, each as if it were alone. It
// returns the results in the order of the cells. Progress, unless it is nil, is called before the
// first cell and after each, one call at a time, with the number of cells done and of all. Row,
// unless it is nil, is called in the same way with the results of each scenario, in order, once all
// of them and of those before are there. No search begins after one that was stopped.
func Matrix(scenarios []*Scenario, policies []string, o Options, jobs int, progress func(done, all int), row func(scenario string, results []Result)) ([]Result, error) {
	cells, err := Cells(scenarios, policies)
	if err != nil {
		return nil, err
	}
	known := make([]*Result, len(cells))
	var mu sync.Mutex // protects the variables below, and what progress does
	var failed error
	next, done, stopped, told := 0, 0, false, 0
	if progress == nil {
		progress = func(int, int) {}
	}
	progress(0, len(cells))
	take := func() (cell int, ok bool) {
		mu.Lock()
		defer mu.Unlock()
		if next == len(cells) || stopped || failed != nil {
			return 0, false
		}
		next++
		return next - 1, true
	}
	tell := func() { // rows that have ended
		for row != nil && told < len(cells) {
			s, end := cells[told].scenario, told
			var results []Result
			for ; end < len(cells) && cells[end].scenario == s; end++ {
				if known[end] == nil {
					return
				}
				results = append(results, *known[end])
			}
			row(s.Name, results)
			told = end
		}
	}
	work := func() {
		for i, ok := take(); ok; i, ok = take() {
			r, err := cells[i].Run(o)
			mu.Lock()
			if err == nil {
				known[i], stopped = &r, stopped || r.Stopped
			}
			failed = cmp.Or(failed, err)
			done++
			progress(done, len(cells))
			tell()
			mu.Unlock()
		}
	}
	var wg sync.WaitGroup
	for range jobs - 1 {
		wg.Go(work)
	}
	work()
	wg.Wait()
	var l []Result
	for _, r := range known {
		if r != nil {
			l = append(l, *r)
		}
	}
	return l, failed
}
