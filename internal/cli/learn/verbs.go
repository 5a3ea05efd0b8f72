// Package learn is the verbs of the course: labs, and questions to practise.
package learn

import (
	"github.com/spf13/cobra"

	"btrlab/internal/cli/app"
)

// verbs makes the verbs of one run.
type verbs struct{ *app.Run }

// Verbs are the verbs of the course.
func Verbs(a *app.Run) []*cobra.Command {
	v := verbs{a}
	return []*cobra.Command{completeLabs(v.lab()), v.practice()}
}
