package learn

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"btrlab/internal/prose"
	"btrlab/internal/study/handout"
	"btrlab/internal/study/handout/packed"
	"btrlab/internal/study/sandbox"
)

// labInit writes the labs into a new folder.
func (a verbs) labInit() *cobra.Command {
	return &cobra.Command{
		Use: "init DIR", Short: "write the labs into a new folder, to work in", Args: cobra.ExactArgs(1),
		Long: `Init writes the labs into a new folder: texts, starters, the package kit, and of the engine what grading builds. All that needs a clone
works in it: lab, practice --own, policy, notebooks. The folder needs the go tool, and the network at the first grade for the modules that the
program is built of. A btrlab of a release has the labs in it; one that was built in a clone takes them from the clone's last commit.`,
		Example: "  btrlab lab init course && cd course && btrlab lab show 3",
		RunE: func(_ *cobra.Command, args []string) error {
			files, err := a.ownLabs()
			if err != nil {
				return err
			}
			dir, _, err := newTree(args[0], files)
			if err != nil {
				return err
			}
			fmt.Fprintf(a.Out, "%s in %s\n", prose.Count(len(files), "file"), dir)
			fmt.Fprintln(a.Out, prose.Command("next: ", "cd "+prose.ShellWord(dir)+" && btrlab lab list", a.Width()))
			return nil
		},
	}
}

// ownLabs are the files that the program has in it, or those of the clone around the working
// directory.
func (a verbs) ownLabs() ([]handout.File, error) {
	files, err := packed.Files()
	if !errors.Is(err, packed.ErrNone) {
		return files, err
	}
	root, outside := sandbox.Root(".")
	if outside != nil {
		return nil, err
	}
	return a.handedOut(root)
}
