package image

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"btrlab/internal/cli/app"
	"btrlab/internal/fs"
)

func (a verbs) getxattr() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "getxattr IMAGE:/path [NAME]",
		Short: "show the extended attributes of a file, or the value of one",
		Long: `Getxattr lists the extended attributes with their values, bytes that cannot be printed as \ooo, or prints the value of one as
it is. A symbolic link is not followed. With --json values are in base64.`,
		Example: "  btrlab getxattr disk.img:/file user.origin",
		Args:    cobra.RangeArgs(1, 2),
	}
	cmd.ValidArgsFunction = a.CompleteSpec
	app.JSONFlag(cmd, &asJSON)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		image, path, err := a.FileSpec(cmd, args[0])
		if err != nil {
			return err
		}
		return a.ReadFS(image, func(x *fs.FS) error {
			n, err := x.NodeAt(a.Task, path)
			if err != nil {
				return app.InImage(image, path, err)
			}
			defer n.Forget(a.Task, 1)
			if len(args) == 2 {
				value, err := n.Getxattr(a.Task, args[1])
				if err != nil {
					return app.InImage(image, path, fmt.Errorf("attribute %s: %w", args[1], err))
				}
				_, err = a.Out.Write(value)
				return err
			}
			values := map[string][]byte{}
			names, err := n.Listxattr(a.Task)
			for _, name := range names {
				if values[name], err = n.Getxattr(a.Task, name); err != nil {
					break
				}
			}
			if err != nil {
				return app.InImage(image, path, err)
			}
			if asJSON {
				return json.NewEncoder(a.Out).Encode(values)
			}
			for _, name := range names {
				fmt.Fprintf(a.Out, "%s=\"%s\"\n", app.Shown(a.Out, name), octal(values[name]))
			}
			return nil
		})
	}
	return cmd
}

// octal is b as getfattr -e text writes it.
func octal(b []byte) string {
	var s strings.Builder
	for _, c := range b {
		switch {
		case c == '"' || c == '\\':
			fmt.Fprintf(&s, "\\%c", c)
		case c < 0x20 || c > 0x7e:
			fmt.Fprintf(&s, "\\%03o", c)
		default:
			s.WriteByte(c)
		}
	}
	return s.String()
}
