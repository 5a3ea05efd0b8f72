package image

import (
	"github.com/spf13/cobra"

	"btrlab/internal/cli/app"
	"btrlab/internal/fs"
)

func (a verbs) ln() *cobra.Command {
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
			image, name, err := a.FileSpec(cmd, args[1])
			if err != nil {
				return err
			}
			return a.WriteFS(image, func(x *fs.FS) error {
				return app.InImage(image, name, x.Symlink(a.Task, args[0], a.IntoDir(x, args[0], name)))
			})
		}
		image, old, name, err := a.TwoPaths(cmd, args)
		if err != nil {
			return err
		}
		return a.WriteFS(image, func(x *fs.FS) error {
			return app.InImage(image, name, x.Link(a.Task, old, a.IntoDir(x, old, name)))
		})
	}
	return cmd
}
