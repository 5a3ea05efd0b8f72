package image

import (
	"github.com/spf13/cobra"

	"btrlab/internal/cli/app"
	"btrlab/internal/fs"
)

func (a verbs) truncate() *cobra.Command {
	var size app.ByteSize
	cmd := &cobra.Command{
		Use:     "truncate --size N IMAGE:/path",
		Short:   "set the size of a file",
		Example: "  btrlab truncate --size 1M disk.img:/file",
		Args:    cobra.ExactArgs(1),
	}
	cmd.ValidArgsFunction = a.CompleteSpec
	cmd.Flags().Var(&size, "size", "the new size (required)")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		image, path, err := a.FileSpec(cmd, args[0])
		if err != nil {
			return err
		}
		if !size.Given {
			return app.Usagef(cmd, "no size, want --size N")
		}
		return a.OnFile(image, path, 0, func(_ *fs.FS, f *fs.File) error { return f.Truncate(a.Task, size.N) })
	}
	return cmd
}
