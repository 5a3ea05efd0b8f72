package image

import (
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"btrlab/internal/cli/app"
	"btrlab/internal/fs"
)

// namespaces are the prefixes of the names of extended attributes.
var namespaces = []string{"user", "trusted", "security", "system", "btrfs"}

func (a verbs) setxattr() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "setxattr NAME VALUE IMAGE:/path",
		Short:   "give a file an extended attribute",
		Example: "  btrlab setxattr user.origin mirror disk.img:/file",
		Args:    cobra.ExactArgs(3),
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		// Linux answers EOPNOTSUPP to other names, and shows no program those that are there.
		space, name, ok := strings.Cut(args[0], ".")
		if !ok || name == "" || !slices.Contains(namespaces, space) {
			return app.Usagef(cmd, "attribute %q, want a name that begins with user., trusted., security., system. or btrfs.", args[0])
		}
		return a.EachImage(cmd, args[2:], func(x *fs.FS, path string) error { return x.Setxattr(a.Task, path, args[0], []byte(args[1])) })
	}
	return cmd
}
