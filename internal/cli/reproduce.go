package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync"

	"github.com/spf13/cobra"

	"btrlab/internal/measure/reproduce"
	"btrlab/internal/sched/cost"
)

// orStopped returns err, or errNothing after an interruption, which is what caused it.
func (a *app) orStopped(err error) error {
	if a.stop.Load() {
		return errNothing
	}
	return err
}

// reproduceFlags is the command line of reproduce.
type reproduceFlags struct {
	seconds, warm                            float64
	size                                     byteSize
	calFile, saveFile, costFile, out, choice string
	fit                                      int
	asJSON, sensitivity                      bool
}

func (a *app) reproduce() *cobra.Command {
	var c reproduceFlags
	cmd := &cobra.Command{
		Use:   "reproduce SEED",
		Short: "repeat a published experiment in virtual time, beside its published figures",
		Long: `Reproduce runs the job of seed 002 (8 jobs, iodepth 32, 16 GiB, 180 seconds) in virtual time, at its published size, through the
real write path. Machine and device are calibrated on the published "lock" row; the "unlocked" row is predicted, but for its iops,
p80 and p90: the time of the array's thread and the dirty limits were chosen for them. Both are shown beside the published figures
with the relative errors. The result is the same on every machine. No file data is kept.

Seed 000 (4 jobs, iodepth 64, 4 KiB to 1 MiB past the cache, 8 GiB, 300 seconds) is run before its eight patches for NOWAIT direct IO, with
them, and without each of them. The device is calibrated on the throughput before; the throughput with the patches is predicted, and the
rows without one patch say what each contributes. --calibrate needs --runtime-seconds 40 here.

Seed 001 (one writer, 4 KiB sequential buffered writes, 100,000 MiB, 600 seconds) is run through pwrite, libaio and io_uring, without the
patch and with it. The machine is calibrated on psync and on the row without the patch; the other two are predicted. --calibrate is the
number of runs for each of the two knobs, of 1 virtual second or as --runtime-seconds says.

Seed 003 (8 writers, each with a file of 128 MiB, 4 KiB to 1 MiB and an fsync after each write, 200 seconds) is run by a log tree before its six
patches, with them, and without each of them. The device is calibrated on the throughput before; the throughput with the patches is predicted.

Seed 004 (8 writers, iodepth 256, 2 KiB direct writes, 10 GiB, 60 seconds after 10) is run alone and together. The device is calibrated on the row
before the patch; the other is predicted, with seed 001's processors. Further rows say what the other designs, and each guess, are worth.

--calibrate fits the machine's speed, its idle exit and its noise, and the device's depth, garbage collection and interrupts. What it makes small is
the misfit: squared logarithms of simulated by published, 30 times that of iops, 5 of the mean, 1 of the standard deviation, 0.7 of
each clat percentile up to p80 and 0.5 of each above, none counted as more than 1.

--sensitivity says what the prediction hangs on: every knob is changed by a fifth, down and up, and every structural choice to its
alternative, one at a time, and both rows run again. Each run is short, 2 virtual seconds after 2 that do not count, or as
--runtime-seconds and --warm say; all of them take a quarter of an hour of processor time, one --choice
a minute.`,
		Example: `  btrlab reproduce 002
  btrlab reproduce 000 --runtime-seconds 40
  btrlab reproduce 001 --runtime-seconds 10
  btrlab reproduce 003 --size 256M --runtime-seconds 2.1
  btrlab reproduce 004 --size 256M --runtime-seconds 0.1
  btrlab reproduce 002 --runtime-seconds 20 --json
  btrlab reproduce 002 --sensitivity
  btrlab reproduce 002 --save-calibration cal.json && btrlab reproduce 002 --calibration cal.json`,
		Args:      cobra.ExactArgs(1),
		ValidArgs: []string{"000", "001", "002", "003", "004"},
	}
	c.flags(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		study, err := c.check(cmd, args[0])
		if err != nil {
			return err
		}
		o := reproduce.Options{Calibration: reproduce.Default002, Seconds: c.seconds, Warm: c.warm, Size: c.size.n, Choice: c.choice, Stop: &a.stop}
		if study != nil {
			o.Calibration = study.Calibration
		}
		if err := c.read(&o); err != nil {
			return err
		}
		if study != nil {
			return a.reproduceStudy(study, o, &c)
		}
		return a.reproduce002(o, &c)
	}
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
	outputFlag(cmd, "save-calibration", "out")
	f.StringVar(&c.costFile, "costs", "", "table of costs: a file that btrlab calibrate has written. cpu_factor multiplies it")
	f.BoolVar(&c.sensitivity, "sensitivity", false, "change each choice of the calibration by a fifth, and say what that does to both rows")
	f.StringVar(&c.choice, "choice", "", "change this choice of the --sensitivity table only, by its name there")
	f.IntVar(&c.fit, "calibrate", 0, "fit the calibration to the published row before the change first, in at most so many runs; of seed 002 8 virtual seconds each")
	jsonFlag(cmd, &c.asJSON)
}

// check refuses what does not go together, and returns the study of the seed; seed 002 has none.
func (c *reproduceFlags) check(cmd *cobra.Command, seed string) (study *reproduce.Study, err error) {
	names := []string{"002"}
	for _, s := range reproduce.Studies() {
		names = append(names, s.Seed)
		if s.Seed == seed {
			study = s
		}
	}
	slices.Sort(names)
	switch {
	case study == nil && seed != "002":
		err = usagef(cmd, "seed %q, want %s", seed, strings.Join(names, ", "))
	case study != nil && (c.sensitivity || cmd.Flags().Changed("warm")):
		err = usagef(cmd, "--sensitivity and --warm are for seed 002")
	case cmd.Flags().Changed("runtime-seconds") && c.seconds <= 0:
		err = usagef(cmd, "runtime-seconds %g, want more than 0", c.seconds)
	case c.warm < 0:
		err = usagef(cmd, "warm %g, want at least 0 seconds", c.warm)
	case c.size.set && c.size.n < 1<<20:
		err = usagef(cmd, "size %d, want at least 1M", c.size.n)
	case c.fit < 0:
		err = usagef(cmd, "calibrate %d, want at least 0 runs", c.fit)
	case c.choice != "" && !c.sensitivity:
		err = usagef(cmd, "--choice is for --sensitivity")
	case c.choice != "" && !slices.Contains(reproduce.Choices(), c.choice):
		err = usagef(cmd, "choice %q, want one of: %s", c.choice, strings.Join(reproduce.Choices(), ", "))
	case c.sensitivity && c.out != "":
		err = usagef(cmd, "--sensitivity has no page for --out")
	}
	return study, err
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
func (b *bar) shares(share func(step string) float64) func(step string, fraction float64) {
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
		b.set(step, uint64(1000*sum), 1000)
	}
}

// shares002 gives the steps of seed 002 as shares of the whole; the table of choices has two of
// them.
var shares002 = map[string]float64{"write the file": 0.1, "lock": 0.45, "unlocked": 0.45, "sensitivity": 0.9}

func (a *app) reproduce002(o reproduce.Options, c *reproduceFlags) error {
	if c.fit > 0 {
		short := o
		short.Seconds, short.Warm = 8, 4 // the dirty pages of the start have gone by then
		var err error
		if o.Calibration, err = reproduce.Calibrate(short, c.fit, a.note); err != nil {
			return a.orStopped(err)
		}
	}
	bar := a.newBar("reproduce", true)
	o.Progress = bar.shares(func(step string) float64 { return shares002[step] })
	if c.sensitivity {
		s, err := reproduce.Sensitivity002(o)
		bar.done()
		if err != nil {
			return a.orStopped(err)
		}
		if c.asJSON {
			return a.printJSON(s)
		}
		return s.WriteText(a.out)
	}
	r, err := reproduce.Seed002(o)
	bar.done()
	if err != nil {
		return a.orStopped(err)
	}
	return a.reproduced(r, &r.Calibration, c)
}

// reproduceStudy fits a study if that is asked for, and runs it.
func (a *app) reproduceStudy(s *reproduce.Study, o reproduce.Options, c *reproduceFlags) (err error) {
	if c.fit > 0 {
		if o.Calibration, err = s.Fit(o, c.fit, a.note); err != nil {
			return a.orStopped(err)
		}
	}
	bar := a.newBar("reproduce", true)
	o.Progress = bar.shares(func(string) float64 { return 1 / float64(len(s.Rows)) })
	r, err := s.Run(o)
	bar.done()
	if err != nil {
		return a.orStopped(err)
	}
	return a.reproduced(r, &r.Calibration, c)
}

// reproduced saves and prints what a reproduction came to.
func (a *app) reproduced(r interface {
	WriteText(w io.Writer) error
	WriteHTML(w io.Writer) error
}, cal *reproduce.Calibration, c *reproduceFlags) error {
	saved := errors.Join(saveCalibration(c.saveFile, cal), savePage(c.out, r.WriteHTML))
	if c.asJSON {
		return errors.Join(a.printJSON(r), saved)
	}
	return errors.Join(r.WriteText(a.out), saved)
}

func saveCalibration(path string, c *reproduce.Calibration) error {
	if path == "" {
		return nil
	}
	err := replaceFile(path, func(w io.Writer) error {
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
	if err := replaceFile(path, write); err != nil {
		return fmt.Errorf("report %s: %w", path, err)
	}
	return nil
}
