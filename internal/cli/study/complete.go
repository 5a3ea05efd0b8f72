package study

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"btrlab/internal/cli/app"
	"btrlab/internal/policy"
	"btrlab/internal/sched/explore"
	"btrlab/internal/study/scenario"
)

func exhibits() (out []string) {
	for _, e := range scenario.Museum {
		out = append(out, fmt.Sprintf("%d\t%s", e.Number, e.Title))
	}
	return out
}

// completeScenarios completes the name of a scenario.
var completeScenarios = app.First(scenario.Names)

// completeSchedule completes a scenario, and then the schedule of a violation under the policy of
// the command line, if there is one that half a second finds.
func completeSchedule(cmd *cobra.Command, args []string, word string) ([]string, cobra.ShellCompDirective) {
	if len(args) != 1 {
		return completeScenarios(cmd, args, word)
	}
	const quick = 500 * time.Millisecond
	s, err := scenario.Lookup(args[0])
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	p, err := policy.Parse(cmd.Flag("policy").Value.String())
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	r, err := scenario.Run(s, &p, scenario.Options{Config: func(c *explore.Config) { c.Schedules, c.Time = 20_000, quick }})
	if err != nil || r.Verdict != explore.Violated {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return []string{r.Schedule + "\tviolates its rule under " + p.Name}, cobra.ShellCompDirectiveNoFileComp
}
