package learn

import (
	"fmt"

	"github.com/spf13/cobra"

	"btrlab/internal/cli/app"
	"btrlab/internal/study/course"
)

func (a verbs) labList() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use: "list", Short: "list the labs", Args: cobra.NoArgs, Example: "  btrlab lab list",
		RunE: func(cmd *cobra.Command, args []string) error {
			if asJSON {
				return a.PrintJSON(course.Labs)
			}
			for _, l := range course.Labs {
				fmt.Fprintf(a.Out, "%2d  %-28s %3d min  labs/%s/%s\n", l.N, l.Title, l.Minutes, l.Folder, l.File)
			}
			return nil
		},
	}
	app.JSONFlag(cmd, &asJSON)
	return cmd
}
