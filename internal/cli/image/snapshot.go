package image

import (
	"github.com/spf13/cobra"

	"btrlab/internal/cli/app"
	"btrlab/internal/fs"
)

func (a verbs) snapshot() *cobra.Command {
	var readOnly bool
	cmd := &cobra.Command{
		Use:   "snapshot [-r] IMAGE:/subvolume /name",
		Short: "make a snapshot of a subvolume",
		Long: `Snapshot makes /name a subvolume with the contents of another, as btrfs subvolume snapshot: they share all blocks until
one of the two changes. Into a directory that exists it keeps its name; the top-level subvolume is IMAGE:/.`,
		Example: `  btrlab snapshot disk.img:/ /before
  btrlab snapshot -r disk.img:/home /backup/home`,
		Args: cobra.ExactArgs(2),
	}
	cmd.ValidArgsFunction = a.CompleteSpec
	cmd.Flags().BoolVarP(&readOnly, "readonly", "r", false, "make a snapshot that takes no writes")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		image, from, to, err := a.TwoPaths(cmd, args)
		if err != nil {
			return err
		}
		return a.WriteFS(image, func(x *fs.FS) error {
			to := to
			if from != "/" {
				to = a.IntoDir(x, from, to)
			}
			return app.InImage(image, to, x.Snapshot(a.Task, from, to, readOnly))
		})
	}
	return cmd
}
