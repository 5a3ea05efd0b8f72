package learn

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"btrlab/internal/cli/app"
	"btrlab/internal/shard"
	"btrlab/internal/study/course"
	"btrlab/internal/study/sandbox"
)

// ofClass is what the work of grading a class is called.
const ofClass = "lab grade --all"

// Joiners are those of the verbs of this room.
func Joiners(a *app.Run) app.Joiners { return app.Joiners{ofClass: verbs{a}.joinClass} }

// askedClass is what the grading of a class was asked for.
type askedClass struct {
	Lab    int    `json:"lab"`
	Class  string `json:"class"` // the digest of all submissions
	ByName bool   `json:"by_name"`
	Limit  string `json:"limit"`
	Memory int64  `json:"memory"`
}

// shardOfClass grades the submissions of a shard, each by itself: code that two have is explored
// twice.
func (a verbs) shardOfClass(cmd *cobra.Command, root string, l *course.Lab, c *gradeFlags) error {
	ctx, cancel := a.Context(cmd.Context())
	defer cancel()
	class, err := course.NewClass(ctx, root, l, c.class, c.byName, c.limits())
	var nothing *sandbox.NoFilesError
	if errors.As(err, &nothing) {
		return app.Usagef(cmd, "%v", err)
	}
	if err != nil {
		return err
	}
	q := askedClass{l.N, class.Digest(), c.byName, c.limit.String(), c.memory.N}
	return a.DoShard(cmd, &c.shard, app.Cut{Kind: ofClass, Asked: q, Items: class.Len(), Item: func(n int) (any, error) {
		x, err := class.Grade(ctx, n)
		switch {
		case errors.Is(err, context.Canceled):
			return nil, shard.ErrStopped
		case err != nil:
			return nil, err
		}
		fmt.Fprintf(a.Err, "%s: %g of %g points\n", x.Name, x.Score, x.Max)
		return x, nil
	}})
}

// joinClass prints the table of a class, as lab grade --all does.
func (a verbs) joinClass(_ *cobra.Command, s *shard.Set, asJSON bool) error {
	l, err := shard.Values[course.Graded](s)
	if err != nil {
		return err
	}
	if asJSON {
		return a.PrintJSON(l)
	}
	all := course.Joined(l)
	if err := course.WriteCSV(a.Out, all); err != nil {
		return err
	}
	a.printClusters(a.Err, all)
	return nil
}
