package scenario

import (
	"fmt"
	"slices"
	"sync/atomic"

	"btrlab/internal/policy"
	"btrlab/internal/prose"
	"btrlab/internal/sched/explore"
)

// Options say how to search. The zero value is the scenario's default search.
type Options struct {
	// Own judges by the policy's contract instead of the scenario's rule.
	Own bool
	// Config changes the explorer's configuration after the scenario has filled it.
	Config func(c *explore.Config)
}

// Result is the outcome of a scenario's search under a policy.
type Result struct {
	Scenario    string            `json:"scenario"`
	Policy      string            `json:"policy"`
	Verdict     explore.Verdict   `json:"verdict"`
	Schedules   int               `json:"schedules"`
	Preemptions int               `json:"preemptions"`
	Seconds     float64           `json:"seconds"`
	Violation   explore.Violation `json:"violation"`
	Schedule    string            `json:"schedule"`
	Replay      string            `json:"replay"`

	Bound explore.Coverage `json:"bound"`
	// Stopped says that the search was ended before it was through.
	Stopped bool             `json:"stopped,omitempty"`
	Switch  explore.Switches `json:"switch"`
	Kind    explore.Kind     `json:"kind,omitempty"`
	Method  string           `json:"method"`
	Rule    string           `json:"rule"`
	Own     bool             `json:"own"` // Rule is the policy's, not the scenario's
	Cut     int              `json:"cut"`
	Found   int              `json:"found,omitempty"`
	Steps   int64            `json:"steps"`
	Shard   int              `json:"shard"`
	Shards  int              `json:"shards"`
	// Spurious is how many schedules more were tried in which a Cond of a policy of somebody's own
	// wakes each task once without a reason; none of them violates anything. 0 if no task waits in
	// a Cond.
	Spurious int `json:"spurious,omitempty"`
}

// Run explores the scenario under policy p.
func Run(s *Scenario, p *policy.Policy, o Options) (Result, error) {
	s = s.under(p)
	cfg, err := s.Config()
	if err != nil {
		return Result{}, err
	}
	if o.Config != nil {
		o.Config(&cfg)
	}
	prog, err := s.Program(p, o.Own)
	if err != nil {
		return Result{}, err
	}
	var asleep atomic.Bool
	cfg.Asleep = &asleep
	x := s.search(cfg, prog, p)
	var spurious *explore.Result
	if p.Own != nil && cfg.Shards <= 1 && asleep.Load() && x.Verdict != explore.Violated && !x.Stopped {
		// a Cond of the policy may wake a task without a reason
		cfg.Spurious = 1
		more := explore.Run(cfg, prog)
		if spurious = &more; more.Verdict == explore.Violated {
			more.Schedules, more.Steps, more.Cut, more.Seconds = more.Schedules+x.Schedules, more.Steps+x.Steps, more.Cut+x.Cut, more.Seconds+x.Seconds
			x, spurious = more, nil
		}
	}
	r := Result{Scenario: s.Name, Policy: p.Name, Verdict: x.Verdict, Schedules: x.Schedules, Preemptions: x.Preemptions, Seconds: x.Seconds,
		Violation: x.Violation, Schedule: x.Schedule, Bound: x.Bound, Switch: x.Switch, Kind: x.Kind, Method: string(x.Method),
		Rule: s.rule(p, o.Own).String(), Cut: x.Cut, Found: x.Found, Steps: x.Steps, Shard: x.Shard, Shards: x.Shards, Stopped: x.Stopped, Own: o.Own}
	if spurious != nil {
		r.Spurious, r.Stopped = spurious.Schedules, spurious.Stopped
	}
	if x.Verdict == explore.Violated {
		// a search keeps no words; one execution more has them
		if (x.Kind == explore.KindOracle || x.Kind == explore.KindDeadlock) && !cfg.NoShrink {
			if e := explore.Replay(cfg, x.Schedule, prog); e.Verdict == x.Kind {
				r.Violation = e.Violation
			}
		}
		r.Replay = s.replayCommand(p.Name, x.Schedule, o.Own)
	}
	return r, nil
}

// search searches by cfg, and then by DPOR if that is the scenario's default search and has ended
// at its bound. If DPOR does not end, the result is that of the first search.
func (s *Scenario) search(cfg explore.Config, prog func(*explore.World), p *policy.Policy) explore.Result {
	x := explore.Run(cfg, prog)
	byDefault := cfg.Method == s.Method && cfg.Preemptions == s.Preemptions && cfg.Shards <= 1
	if !s.Prove || slices.Contains(s.TooMany, p.Name) || !byDefault || x.Verdict != explore.Bounded || x.Stopped || x.Preemptions < s.Preemptions {
		return x
	}
	cfg.Method, cfg.Preemptions = explore.DPOR, 0
	if cfg.Schedules == 0 || cfg.Schedules > CellSchedules {
		cfg.Schedules = CellSchedules // under some policies it has more
	}
	proof := explore.Run(cfg, prog)
	if proof.Verdict == explore.Bounded {
		return x
	}
	proof.Seconds += x.Seconds
	return proof
}

// Line is a sentence about a result, after a heading that may be empty.
type Line struct {
	Head string `json:"head"`
	Text string `json:"text"`
}

// Lines are a result in sentences, the verdict first.
func (r *Result) Lines() []Line {
	rule, at := r.Rule, r.Switch.String()
	if r.Own {
		rule += ", as the policy promises"
	}
	if at == "" {
		at = "every lock, wait, atomic and device transfer"
	}
	verdict := fmt.Sprintf("%s, policy %s: %s", r.Scenario, r.Policy, r.Bound)
	if r.Spurious > 0 {
		verdict += fmt.Sprintf("; nothing in %d more with a spurious wake-up of each task", r.Spurious)
	}
	took := "" // that of shards, which ran on several machines, is not known
	if r.Seconds > 0 {
		took = fmt.Sprintf(", %.3f s", r.Seconds)
	}
	return []Line{
		{"", verdict},
		{"judged", rule},
		{"switch points", at},
		{"", fmt.Sprintf("%s by %s, %d cut off as repetitions, %s%s", prose.Count(r.Schedules, "schedule"), r.Method, r.Cut, prose.Count(r.Steps, "step"), took)},
	}
}

// ReplayCommand is the command line that shows a schedule of a scenario as it is in the catalogue.
func ReplayCommand(name, pol, schedule string, own bool) string {
	return (&Scenario{Name: name}).replayCommand(pol, schedule, own)
}

// replayCommand is the command line that shows a schedule.
func (s *Scenario) replayCommand(pol, schedule string, own bool) string {
	name := s.Name
	if s.file != "" {
		name = "--scenario " + prose.ShellWord(s.file)
	}
	c := fmt.Sprintf("btrlab replay %s %s --policy %s", name, prose.ShellWord(schedule), prose.ShellWord(pol)) + s.flags
	if own {
		c += " --own"
	}
	if p, err := policy.Parse(pol); err == nil && p.Own != nil {
		c += " --policy-dir " + prose.ShellWord(p.Own.Dir)
	}
	return c
}

func parsePolicy(name string) (*policy.Policy, error) {
	p, err := policy.Parse(name)
	return &p, err
}
