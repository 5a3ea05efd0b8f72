package cli

import (
	gopath "path"

	"github.com/spf13/cobra"

	"btrlab/internal/fs"
)

func (a *app) mv() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "mv IMAGE:/from /to",
		Short:   "rename or move within an image",
		Long:    "Mv renames a file or directory and replaces what has the new name, as rename(2). Into a directory that exists it keeps its name.",
		Example: "  btrlab mv disk.img:/draft.txt /final.txt",
		Args:    cobra.ExactArgs(2),
	}
	cmd.ValidArgsFunction = a.completeSpec
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		image, from, to, err := twoPaths(cmd, args)
		if err != nil {
			return err
		}
		return a.writeFS(image, func(x *fs.FS) error {
			return inImage(image, from, x.Rename(a.t, from, a.intoDir(x, from, to)))
		})
	}
	return cmd
}

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
			image, name, err := fileSpec(cmd, args[1])
			if err != nil {
				return err
			}
			return a.writeFS(image, func(x *fs.FS) error {
				return inImage(image, name, x.Symlink(a.t, args[0], a.intoDir(x, args[0], name)))
			})
		}
		image, old, name, err := twoPaths(cmd, args)
		if err != nil {
			return err
		}
		return a.writeFS(image, func(x *fs.FS) error {
			return inImage(image, name, x.Link(a.t, old, a.intoDir(x, old, name)))
		})
	}
	return cmd
}

// twoPaths reads IMAGE:/a and /b or IMAGE:/b.
func twoPaths(cmd *cobra.Command, args []string) (image, a, b string, err error) {
	image, a, err = fileSpec(cmd, args[0])
	if err != nil {
		return "", "", "", err
	}
	b = args[1]
	if other, path, ok := splitSpec(b); ok {
		if other != image {
			return "", "", "", usagef(cmd, "%s and %s are two images, want one", image, other)
		}
		b = path
	}
	if !gopath.IsAbs(b) {
		return "", "", "", usagef(cmd, "%q is no path in the image, want /path", args[1])
	}
	return image, a, gopath.Clean(b), nil
}

// intoDir is to, or the name of from in it when to is a directory.
func (a *app) intoDir(x *fs.FS, from, to string) string {
	if at, err := x.Stat(a.t, to); err == nil && at.IsDir() {
		return gopath.Join(to, gopath.Base(from))
	}
	return to
}
