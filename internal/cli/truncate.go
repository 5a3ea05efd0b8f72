package cli

import (
	"github.com/spf13/cobra"

	"btrlab/internal/fs"
)

func (a *app) truncate() *cobra.Command {
	var size byteSize
	cmd := &cobra.Command{
		Use:     "truncate --size N IMAGE:/path",
		Short:   "set the size of a file",
		Example: "  btrlab truncate --size 1M disk.img:/file",
		Args:    cobra.ExactArgs(1),
	}
	cmd.ValidArgsFunction = a.completeSpec
	cmd.Flags().Var(&size, "size", "the new size (required)")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		image, path, err := a.fileSpec(cmd, args[0])
		if err != nil {
			return err
		}
		if !size.set {
			return usagef(cmd, "no size, want --size N")
		}
		return a.onFile(image, path, 0, func(_ *fs.FS, f *fs.File) error { return f.Truncate(a.t, size.n) })
	}
	return cmd
}
