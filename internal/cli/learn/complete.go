package learn

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"btrlab/internal/cli/app"
	"btrlab/internal/study/course"
)

func labNumbers() (out []string) {
	for _, l := range course.Labs {
		out = append(out, fmt.Sprintf("%d\t%s", l.N, l.Title))
	}
	return out
}

// completeLabs completes the number of a lab, and no more arguments, in every verb of lab that
// takes one and knows no better.
func completeLabs(lab *cobra.Command) *cobra.Command {
	for _, c := range lab.Commands() {
		if c.ValidArgsFunction != nil {
			own := c.ValidArgsFunction
			c.ValidArgsFunction = func(cmd *cobra.Command, args []string, word string) ([]string, cobra.ShellCompDirective) {
				if len(args) == 0 {
					return app.First(labNumbers)(cmd, args, word)
				}
				return own(cmd, args, word)
			}
		} else if strings.Contains(c.Use, " N") {
			c.ValidArgsFunction = app.First(labNumbers)
		}
	}
	return lab
}
