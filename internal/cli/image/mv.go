package image

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"btrlab/internal/cli/app"
	"btrlab/internal/errno"
	"btrlab/internal/fs"
)

func (a verbs) mv() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "mv IMAGE:/from /to",
		Short: "rename or move within an image",
		Long: `Mv renames a file or directory and replaces what has the new name, as rename(2). Into a directory that exists it keeps its name.
A subvolume moves as well, also into another one. A file or a directory stays in its subvolume: reflink the file there
and rm it.`,
		Example: `  btrlab mv disk.img:/draft.txt /final.txt
  btrlab mv disk.img:/@ /@old`,
		Args: cobra.ExactArgs(2),
	}
	cmd.ValidArgsFunction = a.CompleteSpec
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		image, from, to, err := a.TwoPaths(cmd, args)
		if err != nil {
			return err
		}
		return a.WriteFS(image, func(x *fs.FS) error {
			to := a.IntoDir(x, from, to)
			err := x.Rename(a.Task, from, to)
			if errors.Is(err, errno.EINVAL) {
				err = fmt.Errorf("a directory does not move into itself, to %s: %w", to, err)
			}
			return app.InImage(image, from, err)
		})
	}
	return cmd
}
