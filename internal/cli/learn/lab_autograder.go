package learn

import (
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"btrlab/internal/cli/app"
	"btrlab/internal/prose"
	"btrlab/internal/study/course"
	"btrlab/internal/study/handout"
)

// labAutograder makes the zip of a Gradescope autograder.
func (a verbs) labAutograder() *cobra.Command {
	var o handout.AutograderOptions
	var toolchain string
	cmd := &cobra.Command{
		Use: "autograder N FILE.zip", Short: "make a Gradescope autograder for lab N", Args: cobra.ExactArgs(2),
		Long: `Autograder makes the zip that Gradescope takes as an autograder of lab N: setup.sh, run_autograder and what grading needs of the last
commit, without solutions, with the packages of other modules. setup.sh downloads Go where the image has none that is new enough, or takes the
one of --go; it unpacks an archive only if its SHA-256 is the one that is written in setup.sh; grading a submission needs no network. A submission that does not build, hangs or eats memory has a result with the reason and the
rows that it has earned. The same commit and options give the same bytes.`,
		Example: `  btrlab lab autograder 4 autograder-04.zip
  btrlab lab autograder 5 autograder-05.zip --student email
  btrlab lab autograder 4 autograder-04.zip --go go1.26.0.linux-amd64.tar.gz`,
	}
	cmd.Flags().StringVar(&toolchain, "go", "", "take this archive of Go along, go1.N.linux-ARCH.tar.gz, and download nothing")
	cmd.Flags().StringVar(&o.Student, "student", "", "grade personal questions of whoever has this email, name or id at Gradescope")
	cmd.Flags().DurationVar(&o.Limit, "limit", 9*time.Minute, "stop a student's code after this time and report what was judged by then; want less than Gradescope's own limit")
	app.CompleteFixed(cmd, "student", course.StudentFields)
	cmd.ValidArgsFunction = func(cmd *cobra.Command, args []string, word string) ([]string, cobra.ShellCompDirective) {
		return []string{"zip"}, cobra.ShellCompDirectiveFilterFileExt
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		l, root, err := findLab(cmd, args[0])
		if err != nil {
			return err
		}
		err = app.Check(cmd,
			app.OneOf(o.Student, course.StudentFields, "--student %q, want one of %s").If(o.Student != ""),
			app.AtLeast(o.Limit, time.Second, "--limit %v, want 1s or more"))
		if err != nil {
			return err
		}
		if toolchain != "" {
			if o.Go, err = os.ReadFile(toolchain); err != nil {
				return err
			}
			if gzip := "\x1f\x8b"; !strings.HasPrefix(string(o.Go), gzip) {
				return app.Usagef(cmd, "--go %s is no archive of Go, want go1.N.linux-ARCH.tar.gz", toolchain)
			}
		}
		files, err := a.handedOut(root)
		if err != nil {
			return err
		}
		if files, err = handout.Autograder(root, l, files, o); err != nil {
			return err
		}
		if err := app.ReplaceFile(args[1], func(w io.Writer) error { return handout.WriteZip(w, "", files) }); err != nil {
			return err
		}
		fmt.Fprintf(a.Out, "%s in %s; upload it as the autograder of a programming assignment\n", prose.Count(len(files), "file"), args[1])
		return nil
	}
	return cmd
}
