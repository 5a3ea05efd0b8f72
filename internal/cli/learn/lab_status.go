package learn

import (
	"fmt"

	"github.com/spf13/cobra"

	"btrlab/internal/cli/app"
	"btrlab/internal/prose"
	"btrlab/internal/study/course"
	"btrlab/internal/study/sandbox"
)

// labState is one lab of lab status.
type labState struct {
	*course.Lab
	Last *course.Kept `json:"last,omitempty"`
	// Changed says that the files are not those that were graded.
	Changed bool `json:"changed,omitempty"`
}

// labStatus shows how far one is.
func (a verbs) labStatus() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use: "status", Short: "show the last score of each lab", Args: cobra.NoArgs, Example: "  btrlab lab status",
		Long: `Status prints a line for each lab: its score when lab grade or lab watch last graded it in this clone, and whether the files have
changed since.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			root, err := sandbox.Root(".")
			if err != nil {
				return err
			}
			all, err := labStates(root)
			if err != nil {
				return err
			}
			if asJSON {
				return a.PrintJSON(all)
			}
			a.labTable(all)
			return nil
		},
	}
	app.JSONFlag(cmd, &asJSON)
	return cmd
}

func labStates(root string) ([]labState, error) {
	var all []labState
	for _, l := range course.Labs {
		k, changed, err := l.Kept(root)
		if err != nil {
			return nil, err
		}
		all = append(all, labState{l, k, changed})
	}
	return all, nil
}

// labTable prints the labs with their scores, in less than 80 columns, and how many are done.
func (a verbs) labTable(all []labState) {
	fmt.Fprintf(a.Out, "lab  %-30s %9s\n", "title", "points")
	done := 0
	for _, x := range all {
		points, state := "", "not graded"
		if x.Last != nil {
			points, state = fmt.Sprintf("%g/%g", x.Last.Score, x.Last.Max), "begun"
			switch {
			case x.Changed:
				state = fmt.Sprintf("changed: btrlab lab grade %d", x.N)
			case x.Last.Pass:
				state = "done"
				done++
			}
		}
		fmt.Fprintf(a.Out, "%3d  %-30s %9s  %s\n", x.N, x.Title, points, state)
	}
	fmt.Fprintf(a.Out, "%d of %s done\n", done, prose.Count(len(all), "lab"))
}
