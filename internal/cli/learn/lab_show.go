package learn

import (
	"fmt"

	"github.com/spf13/cobra"

	"btrlab/internal/prose"
)

func (a verbs) labShow() *cobra.Command {
	return &cobra.Command{
		Use: "show N", Short: "print the text of lab N", Args: cobra.ExactArgs(1), Example: "  btrlab lab show 4",
		RunE: func(cmd *cobra.Command, args []string) error {
			l, root, err := findLab(cmd, args[0])
			if err != nil {
				return err
			}
			text, err := l.Text(root)
			if err != nil {
				return err
			}
			fmt.Fprint(a.Out, prose.Fill(text+"\n## Rows of the grade\n\n"+l.Rows(), a.Width()))
			return nil
		},
	}
}
