package study

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"btrlab/internal/cli/app"
	"btrlab/internal/prose"
	"btrlab/internal/study/own"
	"btrlab/internal/study/sandbox"
)

func (a verbs) policyNew() *cobra.Command {
	var from, toggles string
	cmd := &cobra.Command{
		Use:   "new DIR",
		Short: "make a folder with a policy of your own",
		Long: `New makes a folder with a policy that has the folder's name. It is Go, policy.go, which does what the preset does and is yours to change;
with --toggles it is a name for a set of toggles instead.
Its functions are those of the labs: New makes the policy of a file, which has the locks of every operation; Write has the steps of a batch
in an order of its own, NewRangeLock makes a range lock, Extent has the steps of a NOWAIT direct write, Sectors those of a direct write of
sectors, Put those of an fsync's log. A file toggles.txt beside them says what holds where they do not.`,
		Example: `  btrlab policy new mine --from unlocked
  btrlab policy new both --toggles prewait+WRITE_RANGE_LOCK
  btrlab policy test mine`,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: cobra.FixedCompletions(nil, cobra.ShellCompDirectiveFilterDirs),
	}
	f := cmd.Flags()
	f.StringVar(&from, "from", "locked", "preset that it begins with: "+strings.Join(own.Presets(), ", "))
	f.StringVar(&toggles, "toggles", "", "make a name for this policy, with +TOGGLE and !TOGGLE")
	app.CompleteFixed(cmd, "from", own.Presets())
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := app.Check(cmd, app.Excludes("from", "toggles", "want --from or --toggles, not both")); err != nil {
			return err
		}
		var path *os.PathError
		switch err := own.Make(args[0], from, toggles); {
		case errors.As(err, &path):
			return err
		case err != nil:
			return app.Usagef(cmd, "%v", err)
		}
		dir := args[0]
		if _, err := sandbox.Root("."); err != nil && toggles == "" {
			if dir, err = filepath.Abs(dir); err != nil {
				return err
			}
			a.Say("", "Go is built with btrlab's source, and this is no clone of it: cd to a clone, or make a folder with both by btrlab lab init DIR, before the test.")
		}
		fmt.Fprintln(a.Out, prose.Command("test it: ", "btrlab policy test "+prose.ShellWord(dir), a.Width()))
		return nil
	}
	return cmd
}
