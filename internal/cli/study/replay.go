package study

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"btrlab/internal/cli/app"
	"btrlab/internal/policy"
	"btrlab/internal/prose"
	"btrlab/internal/sched/explore"
	"btrlab/internal/study/scenario"
	"btrlab/internal/study/timeline"
)

func (a verbs) replay() *cobra.Command {
	var pol, page, file, kernel string
	var asJSON, own bool
	var view viewFlags
	var lf app.LayoutFlags
	cmd := &cobra.Command{
		Use:   "replay SCENARIO SCHEDULE",
		Short: "run one schedule of a scenario and show every step",
		Long: `Replay runs a schedule as explore prints it: step:task for each step at which another task goes on than by default. It
prints a table with a column for each task; at the left is the state of the file. The empty schedule '' has no preemptions.
With --out it also writes the timeline as one HTML page with lanes, locks and waits; the arrow keys go through the steps.
A name that ends in .svg gets a picture of the steps that change the file instead. A
schedule belongs to one policy, because other policies have other steps.
With --kernel it also boots a kernel that make kernels has fetched, and leads it through the schedule: its own tasks, parked at
its functions, take their steps in the order of the engine's; below the table is what each did, and whether the end is the
same. With --json that alone is printed.
Exit code 1 means that the schedule violates the contract, or that the kernel ends otherwise.`,
		Example: `  btrlab replay truncate-race 11:1 --policy unlocked
  btrlab replay truncate-race 11:1 --policy unlocked --out race.html
  btrlab replay truncate-race '' --policy modern
  btrlab replay truncate-race 11:1 --policy linux-6.1 --kernel 6.1
  btrlab explore three-truncate --print > mine.scenario; btrlab replay --scenario mine.scenario '' --policy unlocked`,
		Args: cobra.RangeArgs(1, 2),
	}
	f := cmd.Flags()
	f.StringVar(&pol, "policy", "locked", app.PolicyUsage())
	f.BoolVar(&own, "own", false, "judge by what the policy promises, not by the scenario's rule")
	f.StringVar(&file, "scenario", "", "replay a schedule of the scenario in this file, which explore --scenario has printed")
	f.StringVar(&kernel, "kernel", "", "lead this kernel through the schedule, too: a version or a folder")
	view.flags(cmd)
	lf.Flags(cmd)
	f.StringVar(&page, "out", "", "also write the timeline to this file, as one HTML page, or a picture if it ends in .svg")
	app.OutputFlag(cmd, "out")
	app.JSONFlag(cmd, &asJSON)
	app.CompletePolicies(cmd, "policy")
	cmd.ValidArgsFunction = completeSchedule
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := app.ParsePolicies(cmd, []string{pol}); err != nil {
			return err
		}
		if have := len(args); file == "" && have != 2 {
			return app.Usagef(cmd, "have %s, want a scenario and a schedule, or --scenario FILE and a schedule", prose.Count(have, "argument"))
		} else if file != "" && have != 1 {
			return app.Usagef(cmd, "have %s with --scenario, want a schedule", prose.Count(have, "argument"))
		}
		s, err := oneScenario(cmd, file, args)
		if err != nil {
			return err
		}
		if s, err = view.of(cmd, s); err != nil {
			return err
		}
		tr, err := scenario.Replay(s, policy.MustParse(pol), args[len(args)-1], own)
		if err != nil {
			return err
		}
		if tr.Kind == explore.KindMisfit {
			return app.Usagef(cmd, "%s under %s: %s", s.Name, pol, tr.Violation)
		}
		switch {
		case !asJSON:
			err = timeline.WriteText(a.Out, tr, a.Layout(&lf))
		case kernel == "":
			err = a.PrintJSON(tr)
		}
		if err == nil && page != "" {
			err = writeTimeline(page, tr)
		}
		other := false
		if err == nil && kernel != "" {
			other, err = a.replayLed(kernel, s, policy.MustParse(pol), tr.Schedule, asJSON)
		}
		if err == nil && (other || tr.Kind != explore.OK) {
			err = app.ErrFound
		}
		return err
	}
	return cmd
}

// writeTimeline writes the HTML page of tr to a file, or its picture to an .svg.
func writeTimeline(name string, tr *scenario.Trace) error {
	write := timeline.WriteHTML
	if strings.HasSuffix(name, ".svg") {
		write = timeline.WriteSVG
	}
	if err := app.ReplaceFile(name, func(w io.Writer) error { return write(w, tr) }); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}
