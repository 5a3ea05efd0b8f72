package image

import (
	"github.com/spf13/cobra"

	"btrlab/internal/fs"
)

func (a verbs) touch() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "touch IMAGE:/path...",
		Short:   "make empty files; those that are there stay as they are",
		Example: "  btrlab touch disk.img:/file",
		Args:    cobra.MinimumNArgs(1),
	}
	cmd.ValidArgsFunction = a.CompleteSpec
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return a.EachImage(cmd, args, func(x *fs.FS, path string) error {
			f, err := x.OpenFile(a.Task, path, fs.O_RDWR|fs.O_CREAT, 0o644)
			if err != nil {
				return err
			}
			return f.Close(a.Task)
		})
	}
	return cmd
}
