package app

import (
	"strings"

	"github.com/spf13/cobra"

	"btrlab/internal/measure/rig"
	"btrlab/internal/policy"
	"btrlab/internal/study/timeline"
)

// MaxSeconds is the longest run of a comparison: a day.
const MaxSeconds = 24 * 60 * 60

type completion func(cmd *cobra.Command, args []string, word string) ([]string, cobra.ShellCompDirective)

// CompleteFixed completes a flag with one of the words.
func CompleteFixed(cmd *cobra.Command, flag string, words []string) {
	cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(words, cobra.ShellCompDirectiveNoFileComp))
}

// CompletePolicies completes a flag with a policy, or several with commas: a name, and after + or !
// a toggle.
func CompletePolicies(cmd *cobra.Command, flag string) {
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

// First completes the first argument only.
func First(words func() []string) completion {
	return func(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return words(), cobra.ShellCompDirectiveNoFileComp
	}
}

// ParsePolicies checks a list of policies.
func ParsePolicies(cmd *cobra.Command, list []string) error {
	for _, p := range list {
		if _, err := policy.Parse(p); err != nil {
			return Usagef(cmd, "%v", err)
		}
	}
	return nil
}

// ParseModel checks the name of a latency model.
func ParseModel(cmd *cobra.Command, model string) error {
	if err := rig.CheckModel(model); err != nil {
		return Usagef(cmd, "%v", err)
	}
	return nil
}

// PolicyUsage is the help text of a flag that takes a policy.
func PolicyUsage() string {
	return "locking policy: " + strings.Join(policy.Names(), ", ") + ", or an era of 'btrlab policy list', with +TOGGLE and !TOGGLE"
}

// LayoutFlags say how timelines are printed.
type LayoutFlags struct {
	all   bool
	width int
}

// Flags adds the flags to cmd.
func (l *LayoutFlags) Flags(cmd *cobra.Command) {
	cmd.Flags().BoolVar(&l.all, "all-steps", false, "a line for every step, also for those that change nothing")
	cmd.Flags().IntVar(&l.width, "width", 0, "width of the timeline in characters (default: the terminal's, and 80 without one)")
}

// Layout is the layout that the flags ask for, by default as wide as the output.
func (a *Run) Layout(l *LayoutFlags) timeline.Layout {
	w := l.width
	if w == 0 {
		w = a.Width()
	}
	return timeline.Layout{Width: w, All: l.all}
}

// ModelFlag adds --device-model to cmd.
func ModelFlag(cmd *cobra.Command, model *string) {
	cmd.Flags().StringVar(model, "device-model", "none", "latency model over the device: "+strings.Join(rig.Models(), ", "))
	CompleteFixed(cmd, "device-model", rig.Models())
}
