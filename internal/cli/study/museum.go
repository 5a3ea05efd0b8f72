package study

import (
	"fmt"
	"io"
	"runtime"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"btrlab/internal/blockdev"
	"btrlab/internal/cli/app"
	"btrlab/internal/judge/crash"
	"btrlab/internal/policy"
	"btrlab/internal/prose"
	"btrlab/internal/sched/explore"
	"btrlab/internal/study/scenario"
	"btrlab/internal/study/timeline"
)

// visit is the verb museum, with its flags.
type visit struct {
	verbs
	cmd    *cobra.Command
	policy string
	asJSON bool
	sf     searchFlags
	lf     app.LayoutFlags
	kernel string
	// recorded says that the kernel is not booted: what it did before is shown.
	recorded bool
	folder   string // of the reproducer
	limit    string // of the searches, in words
}

func (a verbs) museum() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "museum [NUMBER|all]",
		Short: "show bugs that the kernel had: the story, the schedule, and that the right order passes",
		Long: fmt.Sprintf(`Museum runs historic bugs of btrfs on the real write path: first the wrong order of steps, which a named toggle switches on,
then the right order. The numbers are those of labs/reference 9.2; from 31 on there are data races of ours among them. Some lose what
fsync promised: those come with a workload in which the power is cut anywhere, as btrlab crash does it, under both orders. Without a
number it lists the exhibits; museum all runs every one, which takes a minute or two, and says what was found for each. With --policy it
also says whether that policy falls into the same hole. It tries at most %d schedules of each order unless you say otherwise.
With --kernel it boots a kernel that make fetch has fetched, and leads it through the schedules of those exhibits that a kernel
of a distribution has or had; with --recorded as well it shows what that kernel did when btrlab was made, and boots none. With
--reproducer it then writes the exhibit as a folder for somebody who has no btrlab.
Exit code 1 means that an exhibit did not prove itself or that the policy of --policy is broken. With --kernel it is 1 if the kernel
breaks in an exhibit, 0 if it keeps what it promises or refuses the order in each, and 2 if there is no verdict.`, scenario.CellSchedules),
		Example: "  btrlab museum\n  btrlab museum 23\n  btrlab museum all\n  btrlab museum 1 --policy modern\n  btrlab museum 41 --kernel 6.1\n  btrlab museum 41 --kernel 6.1 --reproducer mail",
		Args:    cobra.MaximumNArgs(1),

		ValidArgsFunction: app.First(exhibits),
	}
	v := &visit{verbs: a, cmd: cmd}
	cmd.Flags().StringVar(&v.policy, "policy", "", "also explore each exhibit's scenario under this policy")
	cmd.Flags().StringVar(&v.kernel, "kernel", "", "lead this kernel through the exhibit, or all that one was led through: a version or a folder")
	recordedFlag(cmd, &v.recorded)
	reproducerFlag(cmd, &v.folder)
	v.sf.flags(cmd)
	v.lf.Flags(cmd)
	app.JSONFlag(cmd, &v.asJSON)
	app.CompletePolicies(cmd, "policy")
	cmd.RunE = func(_ *cobra.Command, args []string) error { return v.run(args) }
	return cmd
}

func (v *visit) run(args []string) error {
	if len(args) == 0 && v.policy == "" && v.kernel == "" && v.folder == "" && !v.recorded {
		return v.listMuseum(v.asJSON)
	}
	if v.policy != "" {
		if err := app.ParsePolicies(v.cmd, []string{v.policy}); err != nil {
			return err
		}
	}
	number := ""
	if len(args) == 1 && args[0] != "all" {
		number = args[0]
	}
	if err := checkRecorded(v.cmd, v.recorded, v.kernel, v.folder); err != nil {
		return err
	}
	if err := v.checkExhibit(number); err != nil {
		return err
	}
	if v.kernel != "" {
		if v.policy != "" {
			return app.Usagef(v.cmd, "have --kernel and --policy, want one: a kernel has its own order of steps")
		}
		return app.Asked(v.leadMuseum(v.kernel, number))
	}
	shown, stopped, err := v.show(number)
	if err != nil {
		return err
	}
	if len(shown) == 0 {
		return app.Usagef(v.cmd, "no exhibit %s, want a number that btrlab museum lists", number)
	}
	if err := v.printShown(shown, number != ""); err != nil {
		return err
	}
	switch {
	case stopped:
		return app.ErrStopped
	case slices.ContainsFunc(shown, func(x *exhibited) bool { return !x.OK }):
		return app.ErrFound
	}
	return nil
}

// show runs the exhibits, or the one with a number, until one is stopped.
func (v *visit) show(number string) (shown []*exhibited, stopped bool, err error) {
	st := v.NewStatus()
	defer st.Done()
	o, err := v.searchOptions(v.cmd, &v.sf, false, st)
	if err != nil {
		return nil, false, err
	}
	o.Own = false
	v.limit = v.sf.limitCells(&o)
	for i := range scenario.Museum {
		e := &scenario.Museum[i]
		if number != "" && number != fmt.Sprint(e.Number) {
			continue
		}
		st.Search(fmt.Sprintf("exhibit %d", e.Number))
		x, err := v.exhibit(e, o)
		if err != nil {
			return nil, false, err
		}
		shown = append(shown, x)
		if x.Found.Stopped || x.Proof.Stopped {
			return shown, true, nil
		}
	}
	return shown, false, nil
}

// exhibit runs one: under its two orders, with power cuts if it has a script, and under --policy.
// After a search that was stopped the rest is left out.
func (v *visit) exhibit(e *scenario.Exhibit, o scenario.Options) (*exhibited, error) {
	s, err := e.Show(o)
	if err != nil {
		return nil, err
	}
	x := &exhibited{Shown: s}
	if x.Found.Stopped || x.Proof.Stopped {
		return x, nil
	}
	if e.Script != "" {
		if x.Cut, err = v.cutExhibit(e); err != nil {
			return nil, err
		}
		x.OK = x.OK && x.Cut.Wrong.Found != nil && x.Cut.Right.Found == nil
	}
	if v.policy != "" {
		if x.Other, err = underOther(e, v.policy, o); err != nil {
			return nil, err
		}
		x.OK = x.OK && x.Other.Verdict != explore.Violated
	}
	return x, nil
}

func (v *visit) printShown(shown []*exhibited, one bool) error {
	if v.asJSON {
		return v.PrintJSON(shown)
	}
	if one {
		if err := timeline.WriteExhibit(v.Out, shown[0].Shown, v.Layout(&v.lf)); err != nil {
			return err
		}
		v.printCut(shown[0])
		v.printOther(shown[0], "")
		return nil
	}
	for _, x := range shown {
		v.Say(fmt.Sprintf("%3d  ", x.Number), fmt.Sprintf("%s (%s)", x.Title, x.Source))
		v.Say("     wrong: ", fmt.Sprintf("%s, %s", x.Found.Bound, x.Found.Kind))
		v.Say("     right: ", x.Proof.Bound.String())
		if x.Found.Replay != "" {
			fmt.Fprintln(v.Out, prose.Command("     ", x.Found.Replay, v.Width()))
		}
		v.printOther(x, "     ")
		if x.Cut != nil {
			v.Say("     power cut: ", fmt.Sprintf("wrong: %s; right: %s", x.Cut.Wrong.verdict(), x.Cut.Right.verdict()))
		}
	}
	v.Say("", "searched: at most "+v.limit+" for each order")
	return v.printPreemptions(shown)
}

// printPreemptions counts the exhibits by the preemptions of the schedule that shows the wrong
// order; a search by bound finds one with the fewest.
func (v *visit) printPreemptions(shown []*exhibited) error {
	var of []int
	for _, x := range shown {
		if n := x.Found.Preemptions; x.Found.Verdict == explore.Violated {
			of = append(of, make([]int, max(0, n+1-len(of)))...)
			of[n]++
		}
	}
	table := [][]string{{"preemptions", "exhibits"}}
	for n, have := range of {
		table = append(table, []string{fmt.Sprint(n), fmt.Sprint(have)})
	}
	v.Say("\n", "exhibits by the preemptions of the schedule that shows the wrong order:")
	_, err := io.WriteString(v.Out, prose.Table(2, table))
	return err
}

// exhibited is an exhibit with what the explorer made of it, and what the power cuts showed, if it
// has a script.
type exhibited struct {
	*scenario.Shown
	Cut   *cutShown        `json:"cut,omitempty"`
	Other *scenario.Result `json:"other,omitempty"` // of --policy
}

// listMuseum lists the exhibits and runs none.
func (a verbs) listMuseum(asJSON bool) error {
	if asJSON {
		return a.PrintJSON(scenario.Museum)
	}
	for i := range scenario.Museum {
		e := &scenario.Museum[i]
		a.Say(fmt.Sprintf("%3d  ", e.Number), fmt.Sprintf("%s (%s)", e.Title, e.Source))
	}
	a.Say("\nbtrlab museum NUMBER runs one, btrlab museum all every one", "")
	return nil
}

// underOther explores the scenario of an exhibit under another policy.
func underOther(e *scenario.Exhibit, pol string, o scenario.Options) (*scenario.Result, error) {
	s, err := scenario.Lookup(e.Scenario)
	if err != nil {
		return nil, err
	}
	r, err := scenario.Run(s, policy.MustParse(pol), o)
	return &r, err
}

// printOther prints what the policy of --policy does in the scenario of an exhibit.
func (a verbs) printOther(x *exhibited, indent string) {
	if x.Other == nil {
		return
	}
	kind := ""
	if x.Other.Verdict == explore.Violated {
		kind = ", " + string(x.Other.Kind)
	}
	a.Say(indent+x.Other.Policy+": ", x.Other.Bound.String()+kind)
	if x.Other.Replay != "" {
		fmt.Fprintln(a.Out, prose.Command(indent, x.Other.Replay, a.Width()))
	}
}

// cutShown is the script of an exhibit with the power cut anywhere, under its two orders.
type cutShown struct {
	Wrong *crashResult `json:"wrong"`
	Right *crashResult `json:"right"`
}

// exhibitStates are the crash states of an exhibit's script at each flush.
const exhibitStates = 16

// cutExhibit runs the exhibit's script on a fresh image under both orders.
func (a verbs) cutExhibit(e *scenario.Exhibit) (*cutShown, error) {
	x := &cutShown{}
	for _, side := range []struct {
		policy string
		into   **crashResult
	}{{e.Broken, &x.Wrong}, {e.Fixed, &x.Right}} {
		o := &crashFlags{policy: side.policy, jobs: runtime.NumCPU(), choice: crash.Choice{PerFlush: exhibitStates, Seed: 1}}
		err := a.withBase(nil, func(dev blockdev.Device) error {
			r, err := crash.NewRecorder(a.Task, []blockdev.Device{dev}, o.options())
			if err != nil {
				return err
			}
			end := a.onRecorder(r, "memory")
			err = a.recordScript(r, fmt.Sprintf("exhibit %d", e.Number), strings.NewReader(e.Script))
			end()
			if err != nil {
				r.Close(a.Task)
				return err
			}
			*side.into, err = a.cutAnywhere(r, o)
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	return x, nil
}

// cutAnywhere ends a recording and judges its crash states.
func (a verbs) cutAnywhere(r *crash.Recorder, o *crashFlags) (*crashResult, error) {
	rec, err := r.End(a.Task)
	if err != nil {
		return nil, err
	}
	res := &crashResult{Operations: len(rec.Ops)}
	res.Writes, res.Flushes = rec.Writes()
	c, n, err := rec.Search(a.Task, rec.States(o.choice), o.jobs, a.Stop.Load, nil)
	if err == nil && c != nil {
		c, err = rec.Shrink(a.Task, c)
	}
	if err != nil {
		return nil, err
	}
	if res.States = n; c != nil {
		res.Found = lossOf(rec, c)
	}
	return res, nil
}

// verdict is the result in a few words.
func (r *crashResult) verdict() string {
	if r.Found == nil {
		return fmt.Sprintf("nothing that was promised is lost in %s", prose.Count(r.States, "crash state"))
	}
	return fmt.Sprintf("LOST %s: %s", r.Found.Rule, r.Found.Text)
}

// printCut prints the script of an exhibit and what its power cuts showed.
func (a verbs) printCut(x *exhibited) {
	if x.Cut == nil {
		return
	}
	fmt.Fprintln(a.Out, "\nthe same with a power cut, as btrlab crash --script has it:")
	for _, l := range strings.Split(x.Script, "\n") {
		fmt.Fprintln(a.Out, "  "+l)
	}
	side := func(which string, r *crashResult) {
		for _, l := range prose.Hang(which, strings.Repeat(" ", len(which)), r.verdict(), a.Width()) {
			fmt.Fprintln(a.Out, l)
		}
	}
	side("wrong order  ", x.Cut.Wrong)
	if f := x.Cut.Wrong.Found; f != nil {
		for _, l := range f.Timeline {
			fmt.Fprintln(a.Out, l)
		}
	}
	side("right order  ", x.Cut.Right)
}
