package park

import (
	"fmt"
	"math/bits"
	"math/rand/v2"
	"strconv"
	"strings"

	"btrlab/internal/policy"
	"btrlab/internal/study/scenario"
)

// Draw draws a schedule of a scenario that the engine can run under a policy: at so many steps,
// each drawn from those that are left, another one of the scenario's tasks goes on. It has fewer
// where no such step is left.
func Draw(s *scenario.Scenario, p *policy.Policy, rng *rand.Rand, switches int) (string, error) {
	var list []string
	for from := 0; ; {
		tr, err := scenario.Replay(s, p, strings.Join(list, ","), false)
		if err != nil {
			return "", err
		}
		var choices [][2]int
		for k := from; k < len(tr.Steps); k++ {
			x := &tr.Steps[k]
			for task := range tr.Own {
				if x.Kind != "start" && task != x.Task && x.Enabled>>task&1 == 1 && tr.Steps[k-1].Task != task {
					choices = append(choices, [2]int{k, task})
				}
			}
		}
		if len(list) == switches || len(choices) == 0 {
			return tr.Schedule, nil
		}
		c := choices[rng.IntN(len(choices))]
		list = append(list, fmt.Sprintf("%d:%d", c[0], c[1]))
		from = c[0] + 1
	}
}

// Eager is a schedule with the engine's workers put where Linux has them, which nobody leads: they
// do what there is to do whenever one of the scenario's tasks stops and another one goes on. It is
// the schedule itself where they have done so anyway.
func Eager(s *scenario.Scenario, p *policy.Policy, schedule string) (string, error) {
	for from := 1; ; {
		tr, err := scenario.Replay(s, p, schedule, false)
		if err != nil {
			return "", err
		}
		k, worker := idler(tr, from)
		if worker < 0 {
			return tr.Schedule, nil
		}
		own := tr.Steps[k].Task
		before, after, err := cut(tr.Schedule, k)
		if err != nil {
			return "", err
		}
		before = append(before, [2]int{k, worker})
		if tr, err = scenario.Replay(s, p, text(before), false); err != nil {
			return "", err
		}
		end := k
		for end < len(tr.Steps) && tr.Steps[end].Task >= tr.Own {
			end++
		}
		if end < len(tr.Steps) && tr.Steps[end].Task != own {
			before = append(before, [2]int{end, own})
		}
		for _, x := range after {
			if x[0] != k {
				before = append(before, [2]int{x[0] + end - k, x[1]})
			}
		}
		schedule, from = text(before), end+1
	}
}

// idler is the first step from one on with which another of the scenario's tasks goes on while a
// worker could; worker is -1 if there is none.
func idler(tr *scenario.Trace, from int) (k, worker int) {
	last := -1
	for k := range tr.Steps {
		x := &tr.Steps[k]
		if x.Task >= tr.Own {
			continue
		}
		if workers := x.Enabled >> tr.Own; k >= from && last >= 0 && last != x.Task && workers != 0 {
			return k, tr.Own + bits.TrailingZeros64(workers)
		}
		last = x.Task
	}
	return 0, -1
}

// cut takes the switches of a schedule apart: those before a step, and the others.
func cut(schedule string, step int) (before, after [][2]int, err error) {
	for word := range strings.SplitSeq(schedule, ",") {
		var x [2]int
		if word == "" {
			continue
		}
		at, to, _ := strings.Cut(word, ":")
		for i, part := range []string{at, to} {
			n, err := strconv.Atoi(part)
			if err != nil {
				return nil, nil, fmt.Errorf("schedule %q: %w", schedule, err)
			}
			x[i] = n
		}
		if x[0] < step {
			before = append(before, x)
		} else {
			after = append(after, x)
		}
	}
	return before, after, nil
}

// text is switches as a schedule.
func text(switches [][2]int) string {
	words := make([]string, len(switches))
	for i, x := range switches {
		words[i] = fmt.Sprintf("%d:%d", x[0], x[1])
	}
	return strings.Join(words, ",")
}
