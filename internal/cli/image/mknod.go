package image

import (
	"strconv"

	"github.com/spf13/cobra"

	"btrlab/internal/cli/app"
	"btrlab/internal/format"
	"btrlab/internal/fs"
)

func (a verbs) mknod() *cobra.Command {
	var mode string
	cmd := &cobra.Command{
		Use:     "mknod IMAGE:/path b|c|p|s [MAJOR MINOR]",
		Short:   "make a device (b, c), a pipe (p) or a socket (s)",
		Example: "  btrlab mknod disk.img:/null c 1 3 --mode 666",
		Args:    cobra.RangeArgs(2, 4),
	}
	cmd.Flags().StringVarP(&mode, "mode", "m", "644", "permissions, in octal")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		perm, err := parseMode(mode)
		if err != nil {
			return app.Usagef(cmd, "%v", err)
		}
		kind, ok := map[string]uint32{"b": format.S_IFBLK, "c": format.S_IFCHR, "p": format.S_IFIFO, "s": format.S_IFSOCK}[args[1]]
		device := args[1] == "b" || args[1] == "c"
		switch {
		case !ok:
			return app.Usagef(cmd, "type %q, want b, c, p or s", args[1])
		case device != (len(args) == 4):
			return app.Usagef(cmd, "type %s with %d numbers, want MAJOR and MINOR for a device, and none else", args[1], len(args)-2)
		}
		var rdev uint64
		if device {
			major, merr := strconv.ParseUint(args[2], 10, 12)
			minor, nerr := strconv.ParseUint(args[3], 10, 20)
			if merr != nil || nerr != nil {
				return app.Usagef(cmd, "device %s %s, want a major number to 4095 and a minor to 1048575", args[2], args[3])
			}
			rdev = major<<20 | minor
		}
		return a.EachImage(cmd, args[:1], func(x *fs.FS, path string) error {
			if err := x.Mknod(a.Task, path, kind|perm, rdev); err != nil {
				return err
			}
			return x.Chmod(a.Task, path, perm)
		})
	}
	return cmd
}
