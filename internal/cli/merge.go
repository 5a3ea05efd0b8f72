package cli

import (
	"errors"
	"maps"

	"github.com/spf13/cobra"

	"btrlab/internal/cli/app"
	"btrlab/internal/cli/learn"
	"btrlab/internal/cli/study"
	"btrlab/internal/shard"
)

// merge is the verb that joins the shards of any other.
func (a cmdline) merge() *cobra.Command {
	joiners := study.Joiners(a.Run)
	maps.Copy(joiners, learn.Joiners(a.Run))
	asJSON := false
	cmd := &cobra.Command{
		Use:   "merge FILE...",
		Short: "join the files of the shards of a search, a crash run or a class",
		Long: `Merge reads the files that a command with --shard I/N --out FILE has written, one for each I, and prints what that command
without --shard would: a search, a matrix, what crashes lose, the grades of a class, drawn faults (make drawn). Shards that are missing are named on standard
error; what they would have found is not known, and a search is then bounded, not exhausted.
The files must be whole, and of the same command, seed, size and version of btrlab. Exit code 1 means that a shard has found
something, 2 that nothing was found and a shard is missing, or that a file is not whole, was changed, or does not belong to the others.`,
		Example: `  btrlab explore truncate-race --policy unlocked --shard 0/2 --out part-0.json
  btrlab explore truncate-race --policy unlocked --shard 1/2 --out part-1.json
  btrlab merge part-*.json`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			s, err := shard.Join(args)
			var bad *shard.FileError
			if errors.As(err, &bad) {
				return app.Usagef(cmd, "%v", err)
			}
			if err != nil {
				return err
			}
			join := joiners[s.Kind]
			if join == nil {
				return app.Usagef(cmd, "%s: bad command, have %q want one that this version of btrlab cuts into shards", args[0], s.Kind)
			}
			err = join(cmd, s, asJSON)
			if missing := s.Incomplete(); missing != "" {
				if err == nil {
					return &app.NoVerdict{Err: errors.New(missing)}
				}
				a.Note(missing)
			}
			return err
		},
	}
	app.JSONFlag(cmd, &asJSON)
	return cmd
}
