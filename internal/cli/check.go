package cli

import (
	"fmt"

	"github.com/spf13/cobra"

	"btrlab/internal/blockdev"
	"btrlab/internal/progs/check"
	"btrlab/internal/prose"
)

func (a *app) check() *cobra.Command {
	var asJSON bool
	var o check.Options
	cmd := &cobra.Command{
		Use:   "check IMAGE",
		Short: "check every structure and every checksum of an image",
		Long: `Check reads an image with a walker of its own and prints one line per broken rule: the rule and the place, what is there, what should be, and
what it means to you, with the file that it is about. It never writes.
Exit code 1 means that something was found.`,
		Example:           "  btrlab check disk.img",
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: cobra.FixedCompletions(nil, cobra.ShellCompDirectiveDefault),
	}
	cmd.Flags().BoolVar(&o.NoData, "no-data", false, "leave the data and its checksums unread")
	jsonFlag(cmd, &asJSON)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		var res check.Result
		bar := a.newBar("check", !asJSON)
		o.Progress = func(phase string, done, total uint64) { bar.set(phase, done, total) }
		err := a.withDevices(args[0], blockdev.ReadOnly, func(devs []blockdev.Device) (err error) {
			o.Devices = devs[1:]
			res, err = check.Check(a.t, devs[0], o)
			return err
		})
		bar.done()
		if err != nil {
			return err
		}
		if asJSON {
			if res.Findings == nil {
				res.Findings = []check.Finding{}
			}
			if err := a.printJSON(res); err != nil {
				return err
			}
		} else {
			a.printCheck(args[0], res)
		}
		if !res.Clean {
			return errFound
		}
		return nil
	}
	return cmd
}

func (a *app) printCheck(image string, res check.Result) {
	for _, f := range res.Findings {
		fmt.Fprintln(a.out, shown(a.out, f.String()+"; "+f.Means))
	}
	for _, n := range res.Notes {
		fmt.Fprintln(a.out, "note:", shown(a.out, n))
	}
	if !res.Clean {
		fmt.Fprintf(a.out, "%s: %s found\n", image, prose.Count(len(res.Findings), "broken rule"))
		return
	}
	s := res.Stats
	fmt.Fprintf(a.out, "%s: clean; %s, %s (%s,\n  %s), %s, %s of data verified by checksum\n", image, prose.Count(s.TreeBlocks, "tree block"),
		prose.Count(s.Inodes, "inode"), prose.Count(s.Files, "file"), prose.Count(s.Dirs, "directory"), prose.Count(s.DataExtents, "data extent"), humanSize(s.DataBytes))
}
