package cli

import (
	"fmt"

	"github.com/spf13/cobra"

	"btrlab/internal/prose"
	"btrlab/internal/study/scenario"
	"btrlab/internal/study/timeline"
)

func (a *app) museum() *cobra.Command {
	var asJSON bool
	var sf searchFlags
	var lf layoutFlags
	cmd := &cobra.Command{
		Use:   "museum [NUMBER]",
		Short: "show bugs that the kernel had: the story, the schedule, and that the right order passes",
		Long: fmt.Sprintf(`Museum runs historic bugs of btrfs on the real write path: first the wrong order of steps, which a named toggle switches on,
then the right order. The numbers are those of labs/reference 9.2; from 31 on the bugs are data races of ours. Without a
number it lists what the explorer found for each. It tries at most %d schedules of each order unless you say otherwise.
Exit code 1 means that an exhibit did not prove itself.`, scenario.CellSchedules),
		Example: "  btrlab museum\n  btrlab museum 23",
		Args:    cobra.MaximumNArgs(1),
	}
	sf.flags(cmd)
	lf.flags(cmd)
	jsonFlag(cmd, &asJSON)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		st := a.newStatus()
		defer st.done()
		o, err := a.searchOptions(cmd, &sf, st)
		if err != nil {
			return err
		}
		o.Own = false
		limit := sf.limitCells(&o)
		var shown []*scenario.Shown
		ok, stopped := true, false
		for i := range scenario.Museum {
			e := &scenario.Museum[i]
			if len(args) == 1 && args[0] != fmt.Sprint(e.Number) {
				continue
			}
			st.search(fmt.Sprintf("exhibit %d", e.Number))
			x, err := e.Show(o)
			if err != nil {
				return err
			}
			ok = ok && x.OK
			shown = append(shown, x)
			if stopped = x.Found.Stopped || x.Proof.Stopped; stopped {
				break
			}
		}
		st.done()
		switch {
		case len(shown) == 0:
			return usagef(cmd, "no exhibit %s, see btrlab museum", args[0])
		case asJSON:
			err = a.printJSON(shown)
		case len(args) == 1:
			err = timeline.WriteExhibit(a.out, shown[0], a.layout(&lf))
		default:
			for _, x := range shown {
				a.say(fmt.Sprintf("%3d  ", x.Number), fmt.Sprintf("%s (%s)", x.Title, x.Source))
				a.say("     wrong: ", fmt.Sprintf("%s, %s", x.Found.Bound, x.Found.Kind))
				a.say("     right: ", x.Proof.Bound.String())
				if x.Found.Replay != "" {
					fmt.Fprintln(a.out, prose.Command("     ", x.Found.Replay, a.width()))
				}
			}
			a.say("", "searched: at most "+limit+" for each order")
		}
		switch {
		case err != nil:
		case stopped:
			err = errStopped
		case !ok:
			err = errFound
		}
		return err
	}
	return cmd
}
