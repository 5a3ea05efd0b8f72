package measure

import (
	"encoding/json"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"btrlab/internal/cli/app"
	"btrlab/internal/measure/calibrate"
	"btrlab/internal/measure/linuxprice"
)

// calibrateFlags is the command line of calibrate.
type calibrateFlags struct {
	asJSON, verify bool
	rounds, passes int
	loop           time.Duration
	size           app.ByteSize
	out, linux     string
}

func (a verbs) calibrate() *cobra.Command {
	var c calibrateFlags
	cmd := &cobra.Command{
		Use:   "calibrate",
		Short: "measure what the write path's work costs on this machine",
		Long: `Calibrate measures this machine's prices of the work that virtual time counts (a page found, a byte copied, a lock handed over, a
task woken), with short loops in the real runtime, and prints them beside those of the model. With a file of --out, bench, compare and
reproduce take them: --runtime vtime --costs FILE. Virtual time then predicts what the real runtime does on this machine.

Costs without a loop of their own are what the other costs leave of a whole operation. The last lines are these operations: their time, and
what the costs make of it. Nothing else should run meanwhile: passes of so many rounds are measured until two agree, and where none do
calibrate writes nothing, says what is furthest apart, and exits with 1.

--linux DIR measures the running kernel instead, on files in DIR on a btrfs: its prices beside the model's, by sampled stacks and counted
tracepoints, each with what it rests on. It needs root.

--verify runs jobs on an image in memory in the real runtime, in rounds, and in virtual time with the costs and with Go's locks, which are the
real runtime's. A run from which other processes took more than 3 % of the machine is repeated, up to twice.`,
		Example: `  btrlab calibrate --out costs.json
  btrlab bench job.fio --runtime vtime --cpus 2 --costs costs.json
  btrlab calibrate --linux /mnt/btrfs`,
		Args: cobra.NoArgs,
	}
	f := cmd.Flags()
	f.StringVar(&c.out, "out", "", "write the costs, as JSON, to this file")
	app.OutputFlag(cmd, "out")
	f.IntVar(&c.rounds, "rounds", calibrate.DefaultRounds, "rounds of a pass; each measures every cost once")
	f.IntVar(&c.passes, "passes", calibrate.DefaultPasses, "passes of rounds at most; with 1 no machine is refused")
	f.DurationVar(&c.loop, "loop", calibrate.DefaultLoop, "how long each cost is measured in a round")
	f.StringVar(&c.linux, "linux", "", "measure the running kernel on a btrfs mounted here, and not this program")
	c.size.N = calibrate.DefaultSize
	f.Var(&c.size, "size", "size of the file that is worked on; smaller ones stay in the processor's caches")
	f.BoolVar(&c.verify, "verify", false, "then run a dozen jobs in both runtimes, and say how far they agree (two minutes)")
	app.JSONFlag(cmd, &c.asJSON)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		err := app.Check(cmd,
			app.AtLeast(c.rounds, 1, "rounds %d, want at least 1"),
			app.AtLeast(c.passes, 1, "passes %d, want at least 1"),
			app.Above(c.loop, 0, "loop %v, want more than 0"),
			app.Within(c.size.N, 16<<20, 8<<30, "size %d, want 16M to 8G"),
			app.Excludes("linux", "out verify", "--linux goes with neither --out nor --verify: its prices are the kernel's"))
		switch {
		case err != nil:
			return err
		case c.linux != "":
			return a.calibrateLinux(&c)
		}
		return a.calibrateHere(&c)
	}
	return cmd
}

// calibrateLinux measures the running kernel.
func (a verbs) calibrateLinux(c *calibrateFlags) error {
	bar := a.NewBar("calibrate", true)
	r, err := linuxprice.Run(a.Task, linuxprice.Options{Dir: c.linux, Progress: func(done, of int) { bar.Set("linux", uint64(done), uint64(of)) }})
	bar.Done()
	switch {
	case err != nil:
		return a.orStopped(err)
	case c.asJSON:
		return a.PrintJSON(r)
	}
	return r.WriteText(a.Out)
}

// calibrateHere measures this program, and writes the costs.
func (a verbs) calibrateHere(c *calibrateFlags) error {
	bar := a.NewBar("calibrate", true)
	r, err := calibrate.Run(a.Task, calibrate.Options{Rounds: c.rounds, Passes: c.passes, Loop: c.loop, Size: int64(c.size.N), Stop: &a.Stop,
		Progress: func(done, of int) { bar.Set(fmt.Sprintf("round %d", done+1), uint64(done), uint64(of)) }})
	if err == nil && c.verify {
		costs := r.Table()
		r.Agreement, err = calibrate.Verify(a.Task, &costs, calibrate.VerifyOptions{Stop: &a.Stop,
			Progress: func(done, of int) { bar.Set("verify", uint64(done), uint64(of)) }})
	}
	bar.Done()
	if err != nil {
		return a.orStopped(err)
	}
	if c.out != "" {
		err := app.ReplaceFile(c.out, func(w io.Writer) error {
			e := json.NewEncoder(w)
			e.SetIndent("", "  ")
			return e.Encode(r)
		})
		if err != nil {
			return fmt.Errorf("costs %s: %w", c.out, err)
		}
	}
	if c.asJSON {
		return a.PrintJSON(r)
	}
	return r.WriteText(a.Out)
}
