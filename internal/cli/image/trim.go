package image

import (
	"fmt"

	"github.com/spf13/cobra"

	"btrlab/internal/cli/app"
	"btrlab/internal/fs"
)

func (a verbs) trim() *cobra.Command {
	min := app.ByteSize{N: 4096}
	cmd := &cobra.Command{
		Use:   "trim IMAGE",
		Short: "give the place of what is free back: holes in the image file",
		Long: `Trim makes holes of all that is free in the image, in chunks and outside of them, so that its file takes what is in it and no
more; a block device is told by discard. Chunks of RAID5 and RAID6 stay as they are. On a mount fstrim(8) does it, and mount --discard with each commit.`,
		Example: "  btrlab trim disk.img",
		Args:    cobra.ExactArgs(1),
	}
	cmd.Flags().Var(&min, "minimum", "leave free `bytes` that are fewer together")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return a.WriteFS(args[0], func(x *fs.FS) error {
			n, err := x.Trim(a.Task, uint64(min.N))
			if err != nil {
				return err
			}
			_, err = fmt.Fprintf(a.Out, "%s: %s (%d bytes) trimmed\n", args[0], app.HumanSize(n), n)
			return err
		})
	}
	return cmd
}
