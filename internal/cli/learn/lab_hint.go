package learn

import (
	"fmt"

	"github.com/spf13/cobra"

	"btrlab/internal/cli/app"
	"btrlab/internal/prose"
	"btrlab/internal/study/course"
)

func (a verbs) labHint() *cobra.Command {
	level := 1
	cmd := &cobra.Command{
		Use: "hint N", Short: "print a hint for lab N", Args: cobra.ExactArgs(1),
		Long:    "Hint prints a hint: level 1 is a nudge, 2 the idea, 3 almost the answer.",
		Example: "  btrlab lab hint 4\n  btrlab lab hint 4 --level 2",
		RunE: func(cmd *cobra.Command, args []string) error {
			l, root, err := findLab(cmd, args[0])
			if err != nil {
				return err
			}
			if err := app.Check(cmd, app.Within(level, 1, course.MaxHint, "--level %d, want 1 to %d")); err != nil {
				return err
			}
			text, err := l.Hint(root, level)
			if err != nil {
				return err
			}
			fmt.Fprint(a.Out, prose.Fill(text, a.Width()))
			if level < course.MaxHint {
				fmt.Fprintf(a.Out, "\nmore: btrlab lab hint %d --level %d\n", l.N, level+1)
			}
			return nil
		},
	}
	cmd.Flags().IntVar(&level, "level", 1, "1, 2 or 3")
	return cmd
}
