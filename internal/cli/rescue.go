package cli

import (
	"fmt"

	"github.com/spf13/cobra"

	"btrlab/internal/blockdev"
	"btrlab/internal/progs/rescue"
)

func (a *app) rescue() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "rescue",
		Short:   "change an image that cannot be opened",
		Example: "  btrlab rescue zero-log disk.img",
	}
	cmd.AddCommand(&cobra.Command{
		Use:   "zero-log IMAGE",
		Short: "drop the log of an image, which cannot be replayed",
		Long: `Zero-log makes the superblocks point at no log. The file system is then as at its last commit: what was fsynced
after it is lost. It is for an image whose log cannot be replayed; any verb that writes replays a good one.`,
		Example:           "  btrlab rescue zero-log disk.img",
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: cobra.FixedCompletions(nil, cobra.ShellCompDirectiveDefault),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.withDevices(args[0], 0, func(devs []blockdev.Device) error {
				bytenr, level, err := rescue.ZeroLog(a.t, devs...)
				switch {
				case err != nil:
					return err
				case bytenr == 0:
					fmt.Fprintf(a.out, "%s: no log\n", args[0])
				default:
					fmt.Fprintf(a.out, "%s: log dropped, was at %d, level %d\n", args[0], bytenr, level)
				}
				return nil
			})
		},
	})
	return cmd
}
