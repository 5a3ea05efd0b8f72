package explore

import (
	"fmt"

	"btrlab/internal/sched"
)

// Merge joins the results of all shards of one search. They are given in any order.
func Merge(parts []Result) (Result, error) {
	if len(parts) == 0 {
		return Result{}, fmt.Errorf("no parts to merge")
	}
	r := Result{Method: parts[0].Method, Switch: parts[0].Switch, Shards: 1, Verdict: Exhausted, Preemptions: -1}
	have := make([]bool, parts[0].Shards)
	first := true
	for _, p := range parts {
		if p.Method != r.Method || p.Shards != len(have) || p.Switch != r.Switch {
			return Result{}, fmt.Errorf("shard %d of %d by %s does not go with shard %d of %d by %s", p.Shard, p.Shards, p.Method, parts[0].Shard, len(have), r.Method)
		}
		if p.Shard < 0 || p.Shard >= len(have) || have[p.Shard] {
			return Result{}, fmt.Errorf("shard %d of %d is there twice, or is none", p.Shard, p.Shards)
		}
		have[p.Shard] = true
		r.Schedules += p.Schedules
		r.Cut += p.Cut
		r.Violations += p.Violations
		r.Steps += p.Steps
		r.Seconds = max(r.Seconds, p.Seconds)
		r.Stopped = r.Stopped || p.Stopped
		switch {
		case p.Verdict == Violated && (r.Verdict != Violated || p.Preemptions < r.Preemptions):
			r.Verdict, r.Kind, r.Violation, r.Schedule, r.Preemptions, r.Found = Violated, p.Kind, p.Violation, p.Schedule, p.Preemptions, p.Found
		case r.Verdict == Violated:
		case p.Verdict == Bounded && r.Verdict == Exhausted:
			r.Verdict, r.Preemptions = Bounded, p.Preemptions
		case p.Verdict == Bounded:
			r.Preemptions = min(r.Preemptions, p.Preemptions)
		case first:
			r.Preemptions = p.Preemptions
		case r.Verdict == Exhausted:
			r.Preemptions = max(r.Preemptions, p.Preemptions)
		}
		first = false
	}
	for i, ok := range have {
		if !ok {
			return Result{}, fmt.Errorf("shard %d of %d is missing", i, len(have))
		}
	}
	c := Config{Method: r.Method}
	if r.Switch != "" {
		c.Switch = make([]sched.ClassID, 1)
	}
	r.Bound = r.boundText(&c)
	return r, nil
}
