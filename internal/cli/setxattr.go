package cli

import (
	"github.com/spf13/cobra"

	"btrlab/internal/fs"
)

func (a *app) setxattr() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "setxattr NAME VALUE IMAGE:/path",
		Short:   "give a file an extended attribute",
		Example: "  btrlab setxattr user.origin mirror disk.img:/file",
		Args:    cobra.ExactArgs(3),
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return a.eachImage(cmd, args[2:], func(x *fs.FS, path string) error { return x.Setxattr(a.t, path, args[0], []byte(args[1])) })
	}
	return cmd
}
