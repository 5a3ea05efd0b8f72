package learn

import (
	"path/filepath"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"btrlab/internal/cli/app"
	"btrlab/internal/study/course"
	"btrlab/internal/study/sandbox"
)

// lab is the verb for the labs: it reads labs/ of the clone that the working directory is in.
func (a verbs) lab() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "lab",
		Short: "the labs: their texts, predictions, hints and grades",
		Long: `Lab works in a folder of lab init, or in a clone of btrlab, and wants the go tool for labs with Go code. Read first (show), predict,
work in labs/, grade (or watch, which grades each time you save). Grades come from the explorer and from virtual time, never from the clock of this machine.`,
		Example: "  btrlab lab list\n  btrlab lab show 4\n  btrlab lab grade 4",
	}
	cmd.AddCommand(a.labList(), a.labShow(), a.labPredict(), a.labQuestions(), a.labHint(), a.labRun(), a.labImages(), a.labGrade(), a.labDebug(), a.labWatch(), a.labStatus(), a.labHandout(), a.labInit(), a.labAutograder())
	return cmd
}

// findLab is the lab that arg names and the module's folder.
func findLab(cmd *cobra.Command, arg string) (*course.Lab, string, error) {
	n, err := strconv.Atoi(arg)
	if err != nil {
		return nil, "", app.Usagef(cmd, "lab %q, want a number", arg)
	}
	l, err := course.Lookup(n)
	if err != nil {
		return nil, "", app.Usagef(cmd, "%v", err)
	}
	root, err := sandbox.Root(".")
	return l, root, err
}

// relative is path from root where it lies in there.
func relative(root, path string) string {
	if rel, err := filepath.Rel(root, path); err == nil && !strings.HasPrefix(rel, "..") {
		return rel
	}
	return path
}
