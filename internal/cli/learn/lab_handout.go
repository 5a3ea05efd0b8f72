package learn

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"btrlab/internal/cli/app"
	"btrlab/internal/prose"
	"btrlab/internal/study/handout"
	"btrlab/internal/study/sandbox"
)

// labHandout makes what a class is given.
func (a verbs) labHandout() *cobra.Command {
	return &cobra.Command{
		Use: "handout DIR", Short: "make what a class is given: a tree and a zip without solutions", Args: cobra.ExactArgs(1),
		Long: `Handout takes the last commit of this clone without the folders instructor, the tests that hold solutions and the history, and
writes it as a tree to DIR and as a zip to DIR.zip. Labs can be predicted and graded in it, and make test passes. The same commit gives the
same bytes. If a line of a solution were left in it, that is an error. After an error nothing of it is there.`,
		Example: "  btrlab lab handout artifacts/handout",
		RunE: func(cmd *cobra.Command, args []string) error {
			root, err := sandbox.Root(".")
			if err != nil {
				return err
			}
			files, err := a.handedOut(root)
			if err != nil {
				return err
			}
			dir, undo, err := newTree(args[0], files)
			if err != nil {
				return err
			}
			if err := app.ReplaceFile(dir+".zip", func(w io.Writer) error { return handout.WriteZip(w, handout.ZipFolder, files) }); err != nil {
				err = errors.Join(err, os.RemoveAll(dir)) // half of a handout looks like one
				undo()
				return err
			}
			fmt.Fprintf(a.Out, "%s in %s and %s.zip\n", prose.Count(len(files), "file"), dir, dir)
			return nil
		},
	}
}

// handedOut are the files that a class is given of the last commit of the clone at root. A line of
// a solution among them is an error; changes that are not committed are said on standard error.
func (a verbs) handedOut(root string) ([]handout.File, error) {
	tree, err := handout.Committed(root)
	if err != nil {
		return nil, err
	}
	changed, err := handout.Uncommitted(root)
	if err != nil {
		return nil, err
	}
	if n := len(changed); n > 0 {
		const most = 3
		more := ""
		if n > most {
			more = fmt.Sprintf(" and %d more", n-most)
		}
		fmt.Fprintf(a.Err, "btrlab: not committed, so not in it: %s%s\n", strings.Join(changed[:min(n, most)], ", "), more)
	}
	files, err := handout.From(tree)
	if err != nil {
		return nil, err
	}
	if leaks := handout.Leaks(tree, files); len(leaks) > 0 {
		return nil, fmt.Errorf("not handed out: %s", strings.Join(leaks, "\n"))
	}
	return files, nil
}

// newTree writes the files below a new folder, with the folders above it. Undo takes away those
// that it has made above.
func newTree(name string, files []handout.File) (dir string, undo func(), err error) {
	dir = filepath.Clean(name)
	if undo, err = app.MakeDirs(filepath.Dir(dir)); err != nil {
		return "", nil, err
	}
	if err := handout.WriteTree(dir, files); err != nil {
		undo()
		return "", nil, err
	}
	return dir, undo, nil
}
