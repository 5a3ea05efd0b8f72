package learn

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"github.com/spf13/cobra"

	"btrlab/internal/cli/app"
)

func (a verbs) labPredict() *cobra.Command {
	return &cobra.Command{
		Use: "predict N [LETTER...]", Short: "show the questions that come before lab N, or keep your answers",
		Long:    "Predict prints the questions; with a letter for each it keeps your answers, and grade sets them beside what is so.",
		Args:    cobra.MinimumNArgs(1),
		Example: "  btrlab lab predict 4\n  btrlab lab predict 4 b a c",
		RunE: func(cmd *cobra.Command, args []string) error {
			l, root, err := findLab(cmd, args[0])
			if err != nil {
				return err
			}
			if len(args) > 1 {
				var file *fs.PathError
				if err := l.Predict(root, args[1:]); errors.As(err, &file) {
					return err
				} else if err != nil {
					return app.Usagef(cmd, "%v", err)
				}
				fmt.Fprintf(a.Out, "kept; btrlab lab grade %d shows what is so\n", l.N)
				return nil
			}
			qs, err := l.Questions(root)
			if err != nil {
				return err
			}
			for i, q := range qs {
				a.Say(fmt.Sprintf("%d. ", i+1), q.Ask)
				for j, c := range q.Choices {
					a.Say(fmt.Sprintf("   %c  ", 'a'+j), c)
				}
			}
			fmt.Fprintf(a.Out, "\nanswer: btrlab lab predict %d%s\n", l.N, strings.Repeat(" LETTER", len(qs)))
			if said := l.Said(root); said != nil {
				fmt.Fprintf(a.Out, "kept so far: %s\n", strings.Join(said, " "))
			}
			return nil
		},
	}
}
