package measure

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"

	"github.com/spf13/cobra"

	"btrlab/internal/cli/app"
	"btrlab/internal/measure/reproduce"
	"btrlab/internal/measure/seeds"
	"btrlab/internal/prose"
	"btrlab/internal/sched/cost"
)

// orStopped returns err, or ErrNothing after an interruption, which is what caused it.
func (a verbs) orStopped(err error) error {
	if a.Stop.Load() {
		return app.ErrNothing
	}
	return err
}

// reproduceFlags is the command line of reproduce.
type reproduceFlags struct {
	seconds, warm                            float64
	size                                     app.ByteSize
	calFile, saveFile, costFile, out, choice string
	policies, rows                           []string
	fit                                      int
	asJSON, sensitivity, surface, all        bool
}

func (a verbs) reproduce() *cobra.Command {
	var c reproduceFlags
	cmd := &cobra.Command{
		Use:   "reproduce SEED",
		Short: "repeat a published experiment in virtual time, beside its published figures",
		Long: seeds.Paragraphs(func(s *seeds.Seed) string { return s.Study.About }) + `

The published rows are simulated, by themselves; --all adds those that show what a patch, a design or a guess is worth.

--calibrate fits the machine's speed, its idle exit and its noise, and the device's depth, garbage collection and interrupts. What it makes small is
the misfit: squared logarithms of simulated by published, 30 times that of iops, 5 of the mean, 1 of the standard deviation, 0.7 of
each clat percentile up to p80 and 0.5 of each above, none counted as more than 1.

--sensitivity says what the prediction hangs on: every knob is changed by a fifth, down and up, and every structural choice to its
alternative, one at a time, and both rows run again. Each run is short, 2 virtual seconds after 2 that do not count, or as
--runtime-seconds and --warm say; all of them take a quarter of an hour of processor time, one --choice
a minute.

--surface, for ` + seeds.With(func(s *seeds.Seed) bool { return s.Study.Surface != nil }) + `, says how the gain hangs on two choices that the publication leaves open: at each point
of a grid the calibrated row is fitted again and the gain is simulated; some minutes.`,
		Example: `  btrlab reproduce 002
  btrlab reproduce 002 --all --runtime-seconds 8 --warm 8
  btrlab reproduce 000 --runtime-seconds 40
  btrlab reproduce 001 --runtime-seconds 10
  btrlab reproduce 003 --size 256M --runtime-seconds 2.1
  btrlab reproduce 004 --size 256M --runtime-seconds 0.1
  btrlab reproduce 002 --runtime-seconds 20 --json
  btrlab reproduce 003 --size 256M --runtime-seconds 2.1 --row after
  btrlab reproduce 002 --sensitivity
  btrlab reproduce 000 --surface --out surface.html
  btrlab reproduce 002 --policy prewait --size 64M --runtime-seconds 0.2
  btrlab reproduce 002 --save-calibration cal.json && btrlab reproduce 002 --calibration cal.json`,
		Args:      cobra.ExactArgs(1),
		ValidArgs: seeds.Names(),
	}
	c.flags(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		seed, err := seedOf(cmd, args)
		if err == nil {
			err = c.check(cmd, seed)
		}
		if err != nil {
			return err
		}
		o := reproduce.Options{Calibration: seed.Study.Calibration, Seconds: c.seconds, Warm: c.warm, Size: c.size.N, Choice: c.choice, Published: !c.all && len(c.rows) == 0, Policies: c.policies, Stop: &a.Stop}
		if err := c.read(&o); err != nil {
			return err
		}
		return a.reproduceSeed(seed, o, &c)
	}
	app.ProfileFlags(a.Run, cmd, true)
	return cmd
}

func (c *reproduceFlags) flags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.Float64Var(&c.seconds, "runtime-seconds", 0, "virtual seconds of each row (default: what was published)")
	f.Float64Var(&c.warm, "warm", 0, "virtual seconds of the job before those that count; a short run then says what a long one does")
	f.Var(&c.size, "size", "size of all files (default: what was published)")
	f.StringVar(&c.calFile, "calibration", "", "take the calibration from this file")
	f.StringVar(&c.saveFile, "save-calibration", "", "write the calibration that was used to this file")
	f.StringVar(&c.out, "out", "", "write the report as one HTML page to this file")
	app.OutputFlag(cmd, "save-calibration", "out")
	f.StringVar(&c.costFile, "costs", "", "table of costs: a file that btrlab calibrate has written. cpu_factor multiplies it")
	f.BoolVar(&c.sensitivity, "sensitivity", false, "change each choice of the calibration by a fifth, and say what that does to both rows")
	f.StringSliceVar(&c.policies, "policy", nil, "add a row with this policy")
	app.CompletePolicies(cmd, "policy")
	f.BoolVar(&c.all, "all", false, "also run the rows of which nothing was published")
	f.Bool("published", true, "what is done without --all") // before there was --all
	f.Lookup("published").Hidden = true
	f.StringArrayVar(&c.rows, "row", nil, "run this row only, with what it is compared with; may be repeated")
	f.BoolVar(&c.surface, "surface", false, "say how the gain hangs on two choices, at the points of a grid")
	f.StringVar(&c.choice, "choice", "", "change this choice of the --sensitivity table only, by its name there")
	f.IntVar(&c.fit, "calibrate", 0, "fit the calibration to the published row before the change first, in at most so many runs, each as long as the seed needs")
	app.JSONFlag(cmd, &c.asJSON)
}

// check refuses what does not go together.
func (c *reproduceFlags) check(cmd *cobra.Command, seed *seeds.Seed) error {
	set := cmd.Flags().Changed
	err := app.Check(cmd,
		app.Not(seed.Name != reproduce.SensitivitySeed && (c.sensitivity || set("warm")), "--sensitivity and --warm are for seed %s", reproduce.SensitivitySeed),
		app.Not(c.surface && seed.Study.Surface == nil, "--surface is for %s", seeds.With(func(s *seeds.Seed) bool { return s.Study.Surface != nil })),
		app.Not(c.surface && (c.sensitivity || c.fit > 0 || set("warm")), "--surface goes with none of --sensitivity, --calibrate and --warm"),
		app.Above(c.seconds, 0, "runtime-seconds %g, want more than 0").If(set("runtime-seconds")),
		app.AtLeast(c.warm, 0, "warm %g, want at least 0 seconds"),
		app.AtLeast(c.size.N, 1<<20, "size %d, want at least 1M").If(c.size.Given),
		app.AtLeast(c.fit, 0, "calibrate %d, want at least 0 runs"),
		app.Needs("choice", "sensitivity", "--choice is for --sensitivity"),
		app.Excludes("row", "sensitivity surface all", "--row goes with none of --sensitivity, --surface and --all"),
		app.Excludes("all", "sensitivity surface", "--all goes with neither --sensitivity nor --surface"),
		app.OneOf(c.choice, reproduce.Choices(), "choice %q, want one of: %s").If(c.choice != ""),
		app.Excludes("policy", "sensitivity surface", "--policy goes with neither --sensitivity nor --surface"),
		app.Excludes("sensitivity", "out", "--sensitivity has no page for --out"))
	for _, name := range c.rows {
		if err == nil {
			err = app.Check(cmd, app.OneOf(name, seed.RowNames(), "row %q, want one of: %s"))
		}
	}
	if err != nil {
		return err
	}
	return app.ParsePolicies(cmd, c.policies)
}

// read takes the calibration and the costs from their files, where there are some.
func (c *reproduceFlags) read(o *reproduce.Options) error {
	if c.calFile != "" {
		b, err := os.ReadFile(c.calFile)
		if err == nil {
			err = json.Unmarshal(b, &o.Calibration)
		}
		if err != nil {
			return fmt.Errorf("calibration %s: %w", c.calFile, err)
		}
	}
	if c.costFile != "" {
		t := cost.Default()
		if err := loadCosts(&t, c.costFile); err != nil {
			return err
		}
		o.Costs = &t
	}
	return nil
}

// shares shows the progress of steps, of which some may run at a time; share is what a step is of
// the whole.
func shares(b *app.Bar, share func(step string) float64) func(step string, fraction float64) {
	var mu sync.Mutex
	at := map[string]float64{}
	return func(step string, fraction float64) {
		mu.Lock()
		defer mu.Unlock()
		at[step] = fraction
		sum := 0.0
		for step, fraction := range at {
			sum += share(step) * fraction
		}
		b.Set(step, uint64(1000*sum), 1000)
	}
}

// reproduceSeed fits the calibration if that is asked for, runs the experiment or the table of
// choices, and prints what came of it.
func (a verbs) reproduceSeed(seed *seeds.Seed, o reproduce.Options, c *reproduceFlags) (err error) {
	if c.fit > 0 {
		short := o
		if seed.Study.FitSeconds > 0 {
			short.Seconds, short.Warm = seed.Study.FitSeconds, seed.Study.FitWarm
		} else if o.Seconds == 0 && seed.Study.Seconds > 0 {
			short.Seconds = 1
		}
		if o.Calibration, err = reproduce.Fit(seed, short, c.fit, a.Note); err != nil {
			return a.orStopped(err)
		}
	}
	seed = reproduce.Only(seed, c.rows)
	var left []string
	if o.Published && !c.surface && !c.sensitivity {
		seed, left = reproduce.Published(seed)
	}
	bar := a.NewBar("reproduce", true)
	o.Progress = shares(bar, func(step string) float64 { return reproduce.Share(seed, step) })
	if c.surface {
		s, err := reproduce.Map(seed, o)
		bar.Done()
		if err != nil {
			return a.orStopped(err)
		}
		saved := savePage(c.out, s.WriteHTML)
		if c.asJSON {
			return errors.Join(a.PrintJSON(s), saved)
		}
		return errors.Join(s.WriteText(a.Out), saved)
	}
	if c.sensitivity {
		s, err := reproduce.Sense(o)
		bar.Done()
		if err != nil {
			return a.orStopped(err)
		}
		if c.asJSON {
			return a.PrintJSON(s)
		}
		return s.WriteText(a.Out)
	}
	r, err := reproduce.Run(seed, o)
	bar.Done()
	if err != nil {
		return a.orStopped(err)
	}
	saved := errors.Join(saveCalibration(c.saveFile, &r.Calibration), savePage(c.out, r.WriteHTML))
	if c.asJSON {
		return errors.Join(a.PrintJSON(r), saved)
	}
	if err := errors.Join(r.WriteText(a.Out), saved); err != nil || len(left) == 0 {
		return err
	}
	fmt.Fprintln(a.Out)
	a.Say("", fmt.Sprintf("--all adds %s: %s.", prose.Count(len(left), "row"), strings.Join(left, ", ")))
	return nil
}

func saveCalibration(path string, c *seeds.Calibration) error {
	if path == "" {
		return nil
	}
	err := app.ReplaceFile(path, func(w io.Writer) error {
		e := json.NewEncoder(w)
		e.SetIndent("", "  ")
		return e.Encode(c)
	})
	if err != nil {
		return fmt.Errorf("calibration %s: %w", path, err)
	}
	return nil
}

func savePage(path string, write func(io.Writer) error) error {
	if path == "" {
		return nil
	}
	if err := app.ReplaceFile(path, write); err != nil {
		return fmt.Errorf("report %s: %w", path, err)
	}
	return nil
}
