package image

import (
	"fmt"
	"strconv"

	"github.com/spf13/cobra"

	"btrlab/internal/cli/app"
	"btrlab/internal/fs"
)

func (a verbs) chmod() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "chmod MODE IMAGE:/path...",
		Short:   "change the permissions of files, in octal",
		Example: "  btrlab chmod 4755 disk.img:/a",
		Args:    cobra.MinimumNArgs(2),
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		mode, err := parseMode(args[0])
		if err != nil {
			return app.Usagef(cmd, "%v", err)
		}
		return a.EachImage(cmd, args[1:], func(x *fs.FS, path string) error { return x.Chmod(a.Task, path, mode) })
	}
	return cmd
}

func parseMode(s string) (uint32, error) {
	mode, err := strconv.ParseUint(s, 8, 32)
	if err != nil || mode > 0o7777 {
		return 0, fmt.Errorf("mode %q, want an octal number to 7777", s)
	}
	return uint32(mode), nil
}
