package cli

import (
	"github.com/spf13/cobra"

	"btrlab/internal/fs"
)

func (a *app) touch() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "touch IMAGE:/path...",
		Short:   "make empty files; those that are there stay as they are",
		Example: "  btrlab touch disk.img:/file",
		Args:    cobra.MinimumNArgs(1),
	}
	cmd.ValidArgsFunction = a.completeSpec
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return a.eachImage(cmd, args, func(x *fs.FS, path string) error {
			f, err := x.OpenFile(a.t, path, fs.O_RDWR|fs.O_CREAT, 0o644)
			if err != nil {
				return err
			}
			return f.Close(a.t)
		})
	}
	return cmd
}
