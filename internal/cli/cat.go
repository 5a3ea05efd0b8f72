package cli

import (
	"github.com/spf13/cobra"

	"btrlab/internal/fs"
	"btrlab/internal/transfer"
)

func (a *app) cat() *cobra.Command {
	var direct bool
	cmd := &cobra.Command{
		Use:     "cat IMAGE:/path...",
		Short:   "write files to standard output",
		Example: "  btrlab cat disk.img:/etc/passwd",
		Args:    cobra.MinimumNArgs(1),
	}
	cmd.Flags().BoolVar(&direct, "direct", false, "read past the page cache (O_DIRECT)")
	cmd.ValidArgsFunction = a.completeSpec
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		for _, arg := range args {
			image, path, err := fileSpec(cmd, arg)
			if err != nil {
				return err
			}
			err = a.readFS(image, func(x *fs.FS) error {
				f, err := x.OpenFile(a.t, path, fs.O_RDONLY|directFlag(direct), 0)
				if err != nil {
					return inImage(image, path, err)
				}
				err = transfer.Read(a.t, &watcher{app: a}, f, a.out)
				if cerr := f.Close(a.t); err == nil {
					err = cerr
				}
				return inImage(image, path, err)
			})
			if err != nil {
				return err
			}
		}
		return nil
	}
	a.cacheFlag(cmd)
	return cmd
}

// directFlag is O_DIRECT if on.
func directFlag(on bool) fs.OpenFlags {
	if on {
		return fs.O_DIRECT
	}
	return 0
}
