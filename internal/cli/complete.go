package cli

import (
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"btrlab/internal/policy"
	"btrlab/internal/sched/explore"
	"btrlab/internal/study/course"
	"btrlab/internal/study/scenario"
)

type completion func(cmd *cobra.Command, args []string, word string) ([]string, cobra.ShellCompDirective)

func completeFixed(cmd *cobra.Command, flag string, words []string) {
	cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(words, cobra.ShellCompDirectiveNoFileComp))
}

// completePolicies completes a flag with a policy, or several with commas: a name, and after + or !
// a toggle.
func completePolicies(cmd *cobra.Command, flag string) {
	cmd.RegisterFlagCompletionFunc(flag, func(_ *cobra.Command, _ []string, word string) ([]string, cobra.ShellCompDirective) {
		return policies(word), cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveNoSpace
	})
}

func policies(word string) (out []string) {
	if i := strings.LastIndexAny(word, "+!"); i > strings.LastIndex(word, ",") {
		for x := range policy.Switches() {
			out = append(out, word[:i+1]+x.String())
		}
		return out
	}
	before := word[:strings.LastIndex(word, ",")+1]
	for _, p := range policy.All() {
		out = append(out, before+p.Name+"\t"+p.About)
	}
	return out
}

// first completes the first argument only.
func first(words func() []string) completion {
	return func(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return words(), cobra.ShellCompDirectiveNoFileComp
	}
}

func labNumbers() (out []string) {
	for _, l := range course.Labs {
		out = append(out, fmt.Sprintf("%d\t%s", l.N, l.Title))
	}
	return out
}

// completeLabs completes the number of a lab, and no more arguments, in every verb of lab that
// takes one and knows no better.
func completeLabs(lab *cobra.Command) *cobra.Command {
	for _, c := range lab.Commands() {
		if c.ValidArgsFunction != nil {
			own := c.ValidArgsFunction
			c.ValidArgsFunction = func(cmd *cobra.Command, args []string, word string) ([]string, cobra.ShellCompDirective) {
				if len(args) == 0 {
					return first(labNumbers)(cmd, args, word)
				}
				return own(cmd, args, word)
			}
		} else if strings.Contains(c.Use, " N") {
			c.ValidArgsFunction = first(labNumbers)
		}
	}
	return lab
}

func exhibits() (out []string) {
	for _, e := range scenario.Museum {
		out = append(out, fmt.Sprintf("%d\t%s", e.Number, e.Title))
	}
	return out
}

// completeScenarios completes the name of a scenario.
var completeScenarios = first(scenario.Names)

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
