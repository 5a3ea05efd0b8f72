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

// rerun is the verb replay, with its flags.
type rerun struct {
	verbs
	cmd                        *cobra.Command
	policy, page, file, kernel string
	asJSON, own, recorded      bool
	view                       viewFlags
	lf                         app.LayoutFlags
}

func (a verbs) replay() *cobra.Command {
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
same. With --json that alone is printed. With --recorded no kernel is booted: it is what Linux did when btrlab was made, for some
schedules.
Exit code 1 means that the schedule violates the contract, or that the kernel ends otherwise.`,
		Example: `  btrlab replay truncate-race 11:1 --policy unlocked
  btrlab replay truncate-race 11:1 --policy unlocked --out race.html
  btrlab replay truncate-race '' --policy modern
  btrlab replay truncate-race 11:1 --policy linux-6.1 --kernel 6.1
  btrlab explore three-truncate --print > mine.scenario; btrlab replay --scenario mine.scenario '' --policy unlocked`,
		Args: cobra.RangeArgs(1, 2),
	}
	v := &rerun{verbs: a, cmd: cmd}
	f := cmd.Flags()
	f.StringVar(&v.policy, "policy", "locked", app.PolicyUsage())
	f.BoolVar(&v.own, "own", false, "judge by what the policy promises, not by the scenario's rule")
	f.StringVar(&v.file, "scenario", "", "replay a schedule of the scenario in this file, which explore --scenario has printed")
	f.StringVar(&v.kernel, "kernel", "", "lead this kernel through the schedule, too: a version or a folder")
	f.BoolVar(&v.recorded, "recorded", false, "with --kernel VERSION: what it did when it was recorded")
	v.view.flags(cmd)
	v.lf.Flags(cmd)
	f.StringVar(&v.page, "out", "", "also write the timeline to this file, as one HTML page, or a picture if it ends in .svg")
	app.OutputFlag(cmd, "out")
	app.JSONFlag(cmd, &v.asJSON)
	app.CompletePolicies(cmd, "policy")
	cmd.ValidArgsFunction = completeSchedule
	cmd.RunE = func(_ *cobra.Command, args []string) error { return v.run(args) }
	return cmd
}

func (v *rerun) run(args []string) error {
	if err := app.ParsePolicies(v.cmd, []string{v.policy}); err != nil {
		return err
	}
	if v.recorded && v.kernel == "" {
		return app.Usagef(v.cmd, "have --recorded, want --kernel VERSION with it: which one")
	}
	if v.recorded && v.file != "" {
		return app.Usagef(v.cmd, "have --recorded and --scenario, want one: what is recorded is of the scenarios of btrlab explore")
	}
	if have := len(args); v.file == "" && have != 2 {
		return app.Usagef(v.cmd, "have %s, want a scenario and a schedule, or --scenario FILE and a schedule", prose.Count(have, "argument"))
	} else if v.file != "" && have != 1 {
		return app.Usagef(v.cmd, "have %s with --scenario, want a schedule", prose.Count(have, "argument"))
	}
	s, err := oneScenario(v.cmd, v.file, args)
	if err != nil {
		return err
	}
	if s, err = v.view.of(v.cmd, s); err != nil {
		return err
	}
	tr, err := scenario.Replay(s, policy.MustParse(v.policy), args[len(args)-1], v.own)
	if err != nil {
		return err
	}
	if tr.Kind == explore.KindMisfit {
		return app.Usagef(v.cmd, "%s under %s: %s", s.Name, v.policy, tr.Violation)
	}
	switch {
	case !v.asJSON:
		err = timeline.WriteText(v.Out, tr, v.Layout(&v.lf))
	case v.kernel == "":
		err = v.PrintJSON(tr)
	}
	if err == nil && v.page != "" {
		err = writeTimeline(v.page, tr)
	}
	other := false
	if err == nil && v.kernel != "" {
		other, err = v.replayLed(v.kernel, v.recorded, s, policy.MustParse(v.policy), tr.Schedule, v.asJSON)
	}
	if err == nil && (other || tr.Kind != explore.OK) {
		err = app.ErrFound
	}
	return err
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
