package park

import (
	"fmt"
	"math/rand/v2"
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
