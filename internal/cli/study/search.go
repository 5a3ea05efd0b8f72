package study

import (
	"fmt"
	goruntime "runtime"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"btrlab/internal/cli/app"
	"btrlab/internal/prose"
	"btrlab/internal/sched/explore"
	"btrlab/internal/study/scenario"
)

// searchFlags bound and steer a search.
type searchFlags struct {
	method      string
	preemptions int
	schedules   int
	limit       time.Duration
	seed        uint64
	jobs        int
	own         bool
	shard       app.ShardFlags // of explore

	set func(name string) bool // reports whether the user has given a flag
}

// sampled is the number of schedules that the sampling methods try without a limit of the user;
// they never end by themselves.
const sampled = 10_000

// viewFlags change the scheduling points of a scenario and how deeply it is judged; explore and
// replay must agree on them.
type viewFlags struct {
	classes []string
	deep    bool
}

func (v *viewFlags) flags(cmd *cobra.Command) {
	cmd.Flags().StringSliceVar(&v.classes, "switch", nil, "lock classes that are switch points, or all (default: the scenario's, which explore prints)")
	cmd.Flags().BoolVar(&v.deep, "deep", false, "end every schedule with a sync, a look at the reservations and a reading from disk")
}

func (v *viewFlags) of(cmd *cobra.Command, s *scenario.Scenario) (*scenario.Scenario, error) {
	s = s.With(v.classes, v.deep)
	if _, err := s.Config(); err != nil {
		return nil, app.Usagef(cmd, "%v", err)
	}
	return s, nil
}

func (s *searchFlags) flags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&s.method, "method", string(explore.Bound), "how to search: bound, dpor, state, naive, random, pct, pos or portfolio (default: bound, or what the scenario names)")
	f.IntVar(&s.preemptions, "preemptions", 0, "search schedules with at most so many preemptions, by method bound; -1 is no bound (default: the scenario's bound, if it has one)")
	f.IntVar(&s.schedules, "schedules", 0, fmt.Sprintf("stop after so many schedules (default: %d for random, pct, pos and portfolio, else no limit)", sampled))
	f.DurationVar(&s.limit, "time", 0, "stop after this time, as 30s or 5m (default: no limit)")
	f.Uint64Var(&s.seed, "seed", 1, "seed of the sampling methods")
	f.IntVar(&s.jobs, "jobs", 1, "executions at a time; 0 is one for every core")
	f.BoolVar(&s.own, "own", false, "judge by what the policy promises, not by the scenario's rule")
	f.Lookup("method").DefValue = ""
	app.CompleteFixed(cmd, "method", []string{"bound", "dpor", "state", "naive", "random", "pct", "pos", "portfolio"})
	s.set = f.Changed
}

// searchOptions turns the flags into options of the search. It tells st how far each search is. A
// search that is divided is by DPOR if no other method is named.
func (a verbs) searchOptions(cmd *cobra.Command, s *searchFlags, divided bool, st *app.Status) (scenario.Options, error) {
	o := scenario.Options{Own: s.own}
	method := explore.Method(s.methodOf(divided))
	samples := false
	switch method {
	case explore.Bound, explore.DPOR, explore.State, explore.Naive:
	case explore.Random, explore.PCT, explore.POS, explore.Portfolio:
		samples = true
	default:
		return o, app.Usagef(cmd, "method %q, want bound, dpor, state, naive, random, pct, pos or portfolio", method)
	}
	err := app.Check(cmd,
		app.AtLeast(s.preemptions, -1, "bad --preemptions, have %d want at least 0, or -1 for no bound"),
		app.AtLeast(s.schedules, 0, "bad --schedules, have %d want at least 0"),
		app.AtLeast(s.limit, 0, "bad --time, have %v want at least 0"),
		app.AtLeast(s.jobs, 0, "bad --jobs, have %d want at least 0"),
		app.Not(s.set("preemptions") && method != explore.Bound, "--preemptions bounds method bound, not %s", method))
	if err != nil {
		return o, err
	}
	jobs := cores(s.jobs)
	o.Config = func(c *explore.Config) {
		if s.set("method") || s.set("preemptions") || divided {
			c.Method = method
		}
		c.Seed, c.Jobs = s.seed, jobs
		c.Stop, c.Progress = a.Stop.Load, st.Progress
		if s.set("preemptions") {
			// the explorer's zero value is no bound
			switch c.Preemptions = s.preemptions; s.preemptions {
			case 0:
				c.Preemptions = -1
			case -1:
				c.Preemptions = 0
			}
		}
		if c.Schedules = s.schedules; samples && s.schedules == 0 && s.limit == 0 {
			c.Schedules = sampled
		}
		if s.limit > 0 {
			c.Time = s.limit
		}
	}
	return o, nil
}

// methodOf is the method by name: that of the flag, or of a search that is divided and has none,
// dpor.
func (s *searchFlags) methodOf(divided bool) string {
	if divided && !s.set("method") {
		return string(explore.DPOR)
	}
	return s.method
}

// hint names the limit that ended a search if the user has set none, and the flag for another.
func (s *searchFlags) hint(sc *scenario.Scenario, r *scenario.Result) string {
	switch {
	case r.Verdict != explore.Bounded || r.Stopped || s.schedules > 0 || s.limit > 0:
	case r.Preemptions < 0 && r.Schedules == sampled:
		return fmt.Sprintf("the sampling methods', %d schedules; --schedules N is another", sampled)
	case sc.Preemptions > 0 && !s.set("preemptions"):
		return fmt.Sprintf("the scenario's, %s; --preemptions N is another, -1 none, which may take minutes", prose.Count(sc.Preemptions, "preemption"))
	}
	return ""
}

// cores is a number of jobs, 0 for every core.
func cores(jobs int) int {
	if jobs == 0 {
		return goruntime.GOMAXPROCS(0)
	}
	return jobs
}

// cells is how many cells of a matrix are searched at a time: --jobs, or one for every core. The
// search of a cell then has one job, so that its counts are the same each time.
func (s *searchFlags) cells(o *scenario.Options) int {
	config := o.Config
	o.Config = func(c *explore.Config) {
		config(c)
		c.Jobs = 1
	}
	if !s.set("jobs") {
		return cores(0)
	}
	return cores(s.jobs)
}

// limitCells gives each search of a matrix or a museum a limit, unless the user has set one, and
// returns its words.
func (s *searchFlags) limitCells(o *scenario.Options) string {
	config := o.Config
	o.Config = func(c *explore.Config) {
		if config(c); c.Schedules == 0 && c.Time == 0 {
			c.Schedules = scenario.CellSchedules
		}
	}
	var c explore.Config
	o.Config(&c)
	var l []string
	if c.Schedules > 0 {
		l = append(l, prose.Count(c.Schedules, "schedule"))
	}
	if c.Time > 0 {
		l = append(l, fmt.Sprintf("%v of this machine", c.Time))
	}
	return strings.Join(l, " and ")
}
