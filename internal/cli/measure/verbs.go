// Package measure is the verbs that ask what a policy costs.
package measure

import (
	"github.com/spf13/cobra"

	"btrlab/internal/cli/app"
)

// verbs makes the verbs of one run.
type verbs struct{ *app.Run }

// Verbs are the verbs that measure.
func Verbs(a *app.Run) []*cobra.Command {
	v := verbs{a}
	return []*cobra.Command{v.bench(), v.compare(), v.calibrate(), v.reproduce()}
}
