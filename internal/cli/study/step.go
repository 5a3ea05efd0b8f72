package study

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"btrlab/internal/cli/app"
	"btrlab/internal/cli/screen"
	"btrlab/internal/study/scenario"
)

func (a verbs) step() *cobra.Command {
	var pol string
	var own bool
	cmd := &cobra.Command{
		Use:   "step SCENARIO [SCHEDULE]",
		Short: "be the scheduler: choose who goes on, step by step",
		Long: `Step runs a scenario on the real write path and asks before each step who goes on. There is a column for each task: what
it is about to do, what it holds, whom it waits for; above them the file as it is now. The number of a task lets it do one
step, r lets it run on until it waits or returns, u takes a step back. Where a step takes a value, such as how much of a copy is
done, step asks for it. With a schedule, n follows it. At the end step says whether the contract was kept, and after q it prints the
command that replays what was done, with the policy: step takes unlocked where none is given, replay and explore locked.`,
		Example: `  btrlab step truncate-race --policy unlocked
  btrlab step truncate-race 11:1 --policy unlocked-drain`,
		Args: cobra.RangeArgs(1, 2),
	}
	f := cmd.Flags()
	f.StringVar(&pol, "policy", "unlocked", app.PolicyUsage())
	f.BoolVar(&own, "own", false, "judge by what the policy promises, not by the scenario's rule")
	app.CompletePolicies(cmd, "policy")
	cmd.ValidArgsFunction = completeScenarios
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := app.ParsePolicies(cmd, []string{pol}); err != nil {
			return err
		}
		s, err := scenario.Lookup(args[0])
		if err != nil {
			return app.Usagef(cmd, "%v", err)
		}
		schedule := ""
		if len(args) > 1 {
			schedule = args[1]
		}
		st, err := screen.NewStepper(s, pol, schedule, own)
		if err != nil {
			return app.Usagef(cmd, "%s under %s: %v", s.Name, pol, err)
		}
		if !app.IsTerminal(a.Out) {
			return errors.New("step: standard output is no terminal; replay prints a schedule without one")
		}
		if err := st.Run(); err != nil {
			return err
		}
		_, err = fmt.Fprintln(a.Out, st.Parting())
		return err
	}
	return cmd
}
