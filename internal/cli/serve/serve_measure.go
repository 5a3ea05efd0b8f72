package serve

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"btrlab/internal/cli/app"
	"btrlab/internal/measure/served"
	"btrlab/internal/measure/stats"
)

// Bounds of serve measure.
const (
	maxDepth = 1024
	minDisk  = 1 << 20
)

func (a verbs) serveMeasure() *cobra.Command {
	o := served.Options{}
	size := app.ByteSize{N: 256 << 20}
	var seconds float64
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "measure",
		Short: "measure a served disk under each policy, as the guest of a virtual machine sees it",
		Long: `Measure serves a file of an image in memory by NBD and is its client: random reads and writes of 4 KiB, --depth of them under way, and
a flush every --flush, as the file system of a guest has them. Each round runs every policy once. The table has requests a second, their
ratio to the first policy's, the latency of a write, and which part of the time of all requests went into waits for stable pages, while
writeback has them, for the lock of the inode or of a range of it, and for ordered extents, whose end a flush waits for.`,
		Example: `  btrlab serve measure --device-model ssd-raid5
  btrlab serve measure --device-model ssd-raid5 --policy locked,bounce --depth 64 --reads 30`,
		Args: cobra.NoArgs,
	}
	f := cmd.Flags()
	f.StringSliceVar(&o.Policies, "policy", []string{"locked", "unlocked", "prewait", "range-lock"}, "policies to measure; the first is the one that the others are compared with")
	app.ModelFlag(cmd, &o.Model)
	f.Var(&size, "size", "size of the disk")
	f.IntVar(&o.Depth, "depth", 16, "requests under way")
	f.IntVar(&o.Reads, "reads", 0, "percent of the requests that read")
	f.DurationVar(&o.Flush, "flush", time.Second, "time from one flush to the next; 0 is none")
	f.Float64Var(&seconds, "runtime-seconds", 3, "seconds of each run")
	f.IntVar(&o.Rounds, "rounds", 3, "rounds; each runs every policy once")
	f.Uint64Var(&o.Seed, "seed", 1, "seed of the random offsets and of the device model")
	app.JSONFlag(cmd, &asJSON)
	app.CompletePolicies(cmd, "policy")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := app.ParsePolicies(cmd, o.Policies); err != nil {
			return err
		}
		if err := app.ParseModel(cmd, o.Model); err != nil {
			return err
		}
		o.Size, o.Time = size.N, time.Duration(seconds*float64(time.Second))
		err := app.Check(cmd,
			app.Not(len(o.Policies) == 0, "no --policy, want one at least"),
			app.AtLeast(o.Size, minDisk, "bad --size, have %d want at least %d"),
			app.Within(o.Depth, 1, maxDepth, "bad --depth, have %d want 1 to %d"),
			app.Within(o.Reads, 0, 100, "bad --reads, have %d want 0 to 100"),
			app.Not(o.Time <= 0 || o.Rounds < 1 || o.Flush < 0, "bad --runtime-seconds, --rounds or --flush, want more than 0 of the first two and no less of the third"))
		if err != nil {
			return err
		}
		b := a.NewBar("serve", true)
		runs := uint64(0)
		o.Progress = func(round int, policy string) {
			b.Set(fmt.Sprintf("round %d of %d: %s", round+1, o.Rounds, policy), runs, uint64(o.Rounds*len(o.Policies)))
			runs++
		}
		o.Stop = a.Interrupted
		rows, err := served.Run(a.Task, o)
		b.Done()
		if errors.Is(err, app.ErrInterrupted) {
			if err = app.ErrRounds; len(rows) == 0 || len(rows[0].Rate) == 0 {
				return app.ErrNothing
			}
		}
		if err != nil && !errors.Is(err, app.ErrRounds) {
			return err
		}
		if asJSON {
			return errors.Join(a.PrintJSON(rows), err)
		}
		return errors.Join(printServed(a.Out, rows), err)
	}
	return cmd
}

// printServed prints the middle of the rounds, and of the ratios the range.
func printServed(out io.Writer, rows []served.Row) error {
	w := tabwriter.NewWriter(out, 0, 8, 2, ' ', 0)
	fmt.Fprintln(w, "policy\trequests/s\tratio\trange\twrite p50\tp99\tstable pages\tinode lock\tordered extents")
	for _, r := range rows {
		fmt.Fprintf(w, "%s\t%.0f\t%.2f\t%.2f-%.2f\t%s\t%s\t%.1f %%\t%.1f %%\t%.1f %%\n", r.Policy, stats.Median(r.Rate), stats.Median(r.Ratio), slices.Min(r.Ratio), slices.Max(r.Ratio),
			micros(stats.Median(r.P50)), micros(stats.Median(r.P99)), 100*stats.Median(r.Stable), 100*stats.Median(r.Lock), 100*stats.Median(r.Ordered))
	}
	if err := w.Flush(); err != nil {
		return err
	}
	_, err := fmt.Fprintln(out, strings.Join(served.Conclude(rows), "\n"))
	return err
}

func micros(ns float64) string { return fmt.Sprintf("%.0f us", ns/1000) }
