package study

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"btrlab/internal/cli/app"
	"btrlab/internal/judge/park/reproducer"
	"btrlab/internal/policy"
	"btrlab/internal/prose"
	"btrlab/internal/sched/explore"
	"btrlab/internal/study/scenario"
	"btrlab/internal/study/timeline"
)

// replaying is the verb replay, with its flags.
type replaying struct {
	verbs
	cmd          *cobra.Command
	policy, page string
	rows         string // of a picture
	file         string // of the scenario
	kernel       string
	folder       string // of the reproducer
	asJSON, own  bool
	recorded     bool // not led: what the kernel did before
	debug        bool // for a debugger
	view         viewFlags
	lf           app.LayoutFlags
}

func (a verbs) replay() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "replay SCENARIO SCHEDULE",
		Short: "run one schedule of a scenario and show every step",
		Long: `Replay runs a schedule as explore prints it: step:task for each step at which another task goes on than by default. It
prints a table with a column for each task; at the left is the state of the file. The empty schedule '' has no preemptions.
With --out it also writes the timeline as one HTML page with lanes, locks and waits; the arrow keys go through the steps.
A name that ends in .svg gets a picture of the steps that change the file instead, or of those of --rows. A
schedule belongs to one policy, because other policies have other steps.
With --kernel it also boots a kernel that make fetch has fetched, and leads it through the schedule: its own tasks, parked at
its functions, take their steps in the order of the engine's; below the table is what each did, and whether the end is the
same. With --json that alone is printed. With --recorded no kernel is booted: it is what Linux did when btrlab was made, for some
schedules. With --reproducer it then writes a folder for somebody who has no btrlab: a program
in C with the calls, a script that leads a kernel through the schedule, the disk, and a README.
With --debug it runs in Delve (dlv) and stops at each step, on the stack of the task that does it; onward, a command of dlv there,
goes to the next one.
Exit code 1 means that the schedule violates the contract. With --kernel it is what the kernel does that counts: 1 means that it
breaks, too, or ends otherwise than an engine that keeps its promises, 0 that it keeps them or refuses the order, and 2 that there is
no verdict.`,
		Example: `  btrlab replay truncate-race 11:1 --policy unlocked
  btrlab replay truncate-race 11:1 --policy unlocked --out race.html
  btrlab replay truncate-race '' --policy modern
  btrlab replay truncate-race 11:1 --policy linux-6.1 --kernel 6.1
  btrlab replay nowait-privs 8:1 --policy nowait-6.1 --kernel 6.1 --reproducer mail
  btrlab explore three-truncate --print > mine.scenario; btrlab replay --scenario mine.scenario '' --policy unlocked`,
		Args: cobra.RangeArgs(1, 2),
	}
	r := &replaying{verbs: a, cmd: cmd}
	f := cmd.Flags()
	f.StringVar(&r.policy, "policy", "locked", app.PolicyUsage())
	f.BoolVar(&r.own, "own", false, "judge by what the policy promises, not by the scenario's rule")
	f.StringVar(&r.file, "scenario", "", "replay a schedule of the scenario in this file, which explore --scenario has printed")
	f.StringVar(&r.kernel, "kernel", "", "lead this kernel through the schedule, too: a version or a folder")
	recordedFlag(cmd, &r.recorded)
	reproducerFlag(cmd, &r.folder)
	f.BoolVar(&r.debug, "debug", false, "stop at each step, in Delve (dlv), on the stack of the task that does it")
	r.view.flags(cmd)
	r.lf.Flags(cmd)
	f.StringVar(&r.page, "out", "", "also write the timeline to this file, as one HTML page, or a picture if it ends in .svg")
	f.StringVar(&r.rows, "rows", "", "draw these steps in the picture, as 9-11,16,34-36 (default: those that change something)")
	app.OutputFlag(cmd, "out")
	app.JSONFlag(cmd, &r.asJSON)
	app.CompletePolicies(cmd, "policy")
	cmd.ValidArgsFunction = completeSchedule
	cmd.RunE = func(_ *cobra.Command, args []string) error {
		if r.kernel != "" {
			return app.Asked(r.run(args))
		}
		return r.run(args)
	}
	return cmd
}

func (r *replaying) run(args []string) error {
	if err := app.ParsePolicies(r.cmd, []string{r.policy}); err != nil {
		return err
	}
	if err := checkRecorded(r.cmd, r.recorded, r.kernel, r.folder); err != nil {
		return err
	}
	if r.recorded && r.file != "" {
		return app.Usagef(r.cmd, "have --recorded and --scenario, want one: what is recorded is of the scenarios of btrlab explore")
	}
	if have := len(args); r.file == "" && have != 2 {
		return app.Usagef(r.cmd, "have %s, want a scenario and a schedule, or --scenario FILE and a schedule", prose.Count(have, "argument"))
	} else if r.file != "" && have != 1 {
		return app.Usagef(r.cmd, "have %s with --scenario, want a schedule", prose.Count(have, "argument"))
	}
	s, err := oneScenario(r.cmd, r.file, args)
	if err != nil {
		return err
	}
	if s, err = r.view.of(r.cmd, s); err != nil {
		return err
	}
	if err := checkReproducer(r.cmd, r.folder, r.kernel, s); err != nil {
		return err
	}
	if r.rows != "" && !isPicture(r.page) {
		return app.Usagef(r.cmd, "have --rows without a picture, want --out FILE.svg")
	}
	if r.debug && (r.kernel != "" || r.asJSON || r.page != "") {
		return app.Usagef(r.cmd, "--debug goes neither with --kernel nor with --json nor with --out")
	}
	p := policy.MustParse(r.policy)
	tr, err := scenario.Replay(s, p, args[len(args)-1], r.own)
	if err != nil {
		return err
	}
	if tr.Kind == explore.KindMisfit {
		return app.Usagef(r.cmd, "%s under %s: %s", s.Name, r.policy, tr.Violation)
	}
	if r.debug {
		if err := timeline.Debug(r.Out); errors.Is(err, timeline.ErrNoDebugger) {
			return debugSelf()
		}
		if tr, err = scenario.Replay(s, p, args[len(args)-1], r.own); err != nil {
			return err
		}
	}
	steps, err := stepsOf(r.rows, len(tr.Steps))
	if err != nil {
		return app.Usagef(r.cmd, "%v", err)
	}
	switch {
	case !r.asJSON:
		err = timeline.WriteText(r.Out, tr, r.Layout(&r.lf))
	case r.kernel == "":
		err = r.PrintJSON(tr)
	}
	if err == nil && r.page != "" {
		err = writeTimeline(r.page, tr, steps)
	}
	found := tr.Kind != explore.OK
	if err == nil && r.kernel != "" {
		found, err = r.throughKernel(s, p, tr.Schedule)
	}
	if err == nil && found {
		err = app.ErrFound
	}
	return err
}

// throughKernel leads the kernel through the schedule, writes the reproducer if one is wanted, and
// reports whether the kernel breaks.
func (r *replaying) throughKernel(s *scenario.Scenario, p *policy.Policy, schedule string) (breaks bool, err error) {
	x, err := r.replayLed(r.kernel, r.recorded, s, p, schedule, r.asJSON)
	if err != nil || r.folder == "" {
		return err == nil && failed(x), err
	}
	return failed(x), r.reproduce(r.folder, r.asJSON, &reproducer.Subject{Title: s.Name + ": " + s.About, Scenario: s, Policy: p, Led: x})
}

func isPicture(name string) bool { return strings.HasSuffix(name, ".svg") }

// stepsOf are the steps of a list such as 9-11,16, of an execution with n of them.
func stepsOf(list string, n int) (steps []int, err error) {
	if list == "" {
		return nil, nil
	}
	for part := range strings.SplitSeq(list, ",") {
		first, last, ok := strings.Cut(part, "-")
		if !ok {
			last = first
		}
		from, errFrom := strconv.Atoi(first)
		to, errTo := strconv.Atoi(last)
		if errFrom != nil || errTo != nil || from < 0 || from > to || to >= n {
			return nil, fmt.Errorf("bad --rows, have %q want steps from 0 to %d, as 9-11,16", part, n-1)
		}
		for i := from; i <= to; i++ {
			steps = append(steps, i)
		}
	}
	return steps, nil
}

// debugSelf runs this command once more, in Delve.
func debugSelf() error {
	dlv, err := app.FindDelve()
	if err != nil {
		return err
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	return app.Delve(dlv, self, os.Args[1:]...)
}

// writeTimeline writes the HTML page of tr to a file, or its picture, with a row for each of steps,
// to an .svg.
func writeTimeline(name string, tr *scenario.Trace, steps []int) error {
	write := timeline.WriteHTML
	if isPicture(name) {
		write = func(w io.Writer, tr *scenario.Trace) error { return timeline.WriteSVG(w, tr, steps) }
	}
	if err := app.ReplaceFile(name, func(w io.Writer) error { return write(w, tr) }); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}
