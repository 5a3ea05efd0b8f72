package image

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"btrlab/internal/errno"
	"btrlab/internal/fs"
)

func (a verbs) removexattr() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "removexattr NAME IMAGE:/path...",
		Short:   "take an extended attribute from files",
		Example: "  btrlab removexattr user.origin disk.img:/file",
		Args:    cobra.MinimumNArgs(2),
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return a.EachImage(cmd, args[1:], func(x *fs.FS, path string) error {
			err := x.Removexattr(a.Task, path, args[0])
			if errors.Is(err, errno.ENOENT) {
				if _, gone := x.Stat(a.Task, path); gone == nil {
					return fmt.Errorf("there is no attribute %q", args[0])
				}
			}
			return err
		})
	}
	return cmd
}
