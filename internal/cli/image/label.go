package image

import (
	"fmt"

	"github.com/spf13/cobra"

	"btrlab/internal/cli/app"
	"btrlab/internal/format"
	"btrlab/internal/fs"
)

func (a verbs) label() *cobra.Command {
	return &cobra.Command{
		Use:     "label IMAGE [LABEL]",
		Short:   "show the label of a file system, or set it",
		Example: "  btrlab label disk.img data",
		Args:    cobra.RangeArgs(1, 2),
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 1 {
				return a.ReadFS(args[0], func(x *fs.FS) error {
					s := x.Super(a.Task)
					_, err := fmt.Fprintln(a.Out, app.Shown(a.Out, s.Label))
					return err
				})
			}
			if !format.LabelOK(args[1]) {
				return app.Usagef(cmd, "label %q, want at most 255 bytes without a newline", args[1])
			}
			return a.WriteFS(args[0], func(x *fs.FS) error { return x.SetLabel(a.Task, args[1]) })
		},
	}
}
