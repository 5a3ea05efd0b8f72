package study

import (
	"encoding/json"
	"errors"
	"os"

	"github.com/spf13/cobra"

	"btrlab/internal/cli/app"
	"btrlab/internal/sched/explore"
	"btrlab/internal/study/scenario"
)

func (a verbs) merge() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "merge PART.json...",
		Short:   "join the results of the shards of one search",
		Long:    "Merge reads what explore --shard I/N --json wrote for each I and prints the result of the whole, as JSON. Exit code 1 means that a shard found a violation.",
		Example: "  btrlab explore merge part-*.json",
		Args:    cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			var parts []scenario.Result
			for _, name := range args {
				b, err := os.ReadFile(name)
				if err != nil {
					return err
				}
				var r scenario.Result
				err = json.Unmarshal(b, &r)
				if err == nil && r.Scenario == "" {
					err = errors.New("no scenario in it")
				}
				if err != nil {
					return app.Usagef(cmd, "%s is no result of explore --shard I/N --json: %v", name, err)
				}
				parts = append(parts, r)
			}
			r, err := scenario.Merge(parts)
			if err != nil {
				return app.Usagef(cmd, "%v", err)
			}
			if err := a.PrintJSON(r); err != nil {
				return err
			}
			if r.Verdict == explore.Violated {
				return app.ErrFound
			}
			return nil
		},
	}
	return cmd
}
