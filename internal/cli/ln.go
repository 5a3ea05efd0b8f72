package cli

import (
	"github.com/spf13/cobra"

	"btrlab/internal/fs"
)

func (a *app) ln() *cobra.Command {
	var symbolic bool
	cmd := &cobra.Command{
		Use:   "ln IMAGE:/target /name",
		Short: "give a file a second name, or make a symbolic link with -s",
		Example: `  btrlab ln disk.img:/a /b
  btrlab ln -s ../lib disk.img:/usr/lib`,
		Args: cobra.ExactArgs(2),
	}
	cmd.Flags().BoolVarP(&symbolic, "symbolic", "s", false, "symbolic link: TARGET IMAGE:/name, where TARGET is any text")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if symbolic {
			image, name, err := a.fileSpec(cmd, args[1])
			if err != nil {
				return err
			}
			return a.writeFS(image, func(x *fs.FS) error {
				return inImage(image, name, x.Symlink(a.t, args[0], a.intoDir(x, args[0], name)))
			})
		}
		image, old, name, err := a.twoPaths(cmd, args)
		if err != nil {
			return err
		}
		return a.writeFS(image, func(x *fs.FS) error {
			return inImage(image, name, x.Link(a.t, old, a.intoDir(x, old, name)))
		})
	}
	return cmd
}
