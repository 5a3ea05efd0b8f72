// Package study is the verbs that ask what can happen under a policy: in every order of its steps,
// and after a power cut.
package study

import (
	"github.com/spf13/cobra"

	"btrlab/internal/cli/app"
	"btrlab/internal/measure/experiment"
)

// verbs makes the verbs of one run.
type verbs struct {
	*app.Run
	doors Doors
}

// Doors are what other rooms do for the verbs of this one.
type Doors struct {
	// Line runs the words of a line of sh on the open image of a run.
	Line func(a *app.Run, words []string) error

	// Compare runs compare's default seed with flags of compare.
	Compare func(a *app.Run, flags []string) ([]*experiment.Result, error)

	// Machine is what a page calls the machine of such a comparison in virtual time.
	Machine [][2]string
}

// Verbs are the verbs that explore, replay and cut the power.
func Verbs(a *app.Run, d Doors) []*cobra.Command {
	v := verbs{a, d}
	return []*cobra.Command{v.explore(), v.replay(), v.step(), v.museum(), v.policy(), v.crash(), v.conform()}
}
