// Package serve is the verbs that keep an image open for others: for the kernel (mount), for
// clients of the NBD protocol (serve), and for lines of verbs (sh).
package serve

import (
	"github.com/spf13/cobra"

	"btrlab/internal/cli/app"
)

// verbs makes the verbs of one run.
type verbs struct {
	*app.Run
	onOpen OnOpen
	live   *liveImage // of an image that is mounted while lines run on it, else nil
}

// OnOpen makes the verbs of a line, which work on the open image of a run and on the files in it.
type OnOpen func(a *app.Run) (images, files []*cobra.Command)

// Verbs are the verbs that keep an image open.
func Verbs(a *app.Run, onOpen OnOpen) []*cobra.Command {
	v := verbs{Run: a, onOpen: onOpen}
	return []*cobra.Command{v.sh(), v.mount(), v.serve()}
}

// Line runs the words of a line of sh on the open image of a.
func Line(a *app.Run, onOpen OnOpen, words []string) error {
	return verbs{Run: a, onOpen: onOpen}.verbLine(words)
}
