package cli

import (
	"fmt"

	"github.com/spf13/cobra"

	"btrlab/internal/study/course"
)

func (a *app) labList() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use: "list", Short: "list the labs", Args: cobra.NoArgs, Example: "  btrlab lab list",
		RunE: func(cmd *cobra.Command, args []string) error {
			if asJSON {
				return a.printJSON(course.Labs)
			}
			for _, l := range course.Labs {
				fmt.Fprintf(a.out, "%2d  %-28s %3d min  labs/%s/%s\n", l.N, l.Title, l.Minutes, l.Folder, l.File)
			}
			return nil
		},
	}
	jsonFlag(cmd, &asJSON)
	return cmd
}
