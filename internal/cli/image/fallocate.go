package image

import (
	"github.com/spf13/cobra"

	"btrlab/internal/cli/app"
	"btrlab/internal/fs"
	"btrlab/internal/script"
)

func (a verbs) fallocate() *cobra.Command {
	var r script.Range
	cmd := &cobra.Command{
		Use:   "fallocate --length N IMAGE:/path",
		Short: "reserve space in a file, or punch a hole",
		Example: `  btrlab fallocate --length 64M disk.img:/file
  btrlab fallocate --punch-hole --offset 1M --length 1M disk.img:/file`,
		Args: cobra.ExactArgs(1),
	}
	cmd.ValidArgsFunction = a.CompleteSpec
	r.Flags(cmd.Flags())
	cmd.MarkFlagsMutuallyExclusive("punch-hole", "zero-range")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		image, path, err := a.FileSpec(cmd, args[0])
		if err != nil {
			return err
		}
		if r.Length.N == 0 {
			return app.Usagef(cmd, "no length, want --length N")
		}
		return a.OnFile(image, path, 0, func(_ *fs.FS, f *fs.File) error { return r.Allocate(a.Task, f) })
	}
	return cmd
}
