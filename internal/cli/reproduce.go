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

// orStopped returns err, or errStopped if SIGINT caused it.
func (a *app) orStopped(err error) error {
	if a.stop.Load() {
		return errNothing
	}
	return err
}

func (a *app) reproduce() *cobra.Command {
	var asJSON, sensitivity bool
	var seconds, warm float64
	var size byteSize
	var calFile, saveFile, costFile, out, choice string
	var fit int
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
  btrlab reproduce 004 --size 256M --runtime-seconds 0.1
  btrlab reproduce 002 --runtime-seconds 20 --json
  btrlab reproduce 002 --sensitivity
  btrlab reproduce 002 --save-calibration cal.json && btrlab reproduce 002 --calibration cal.json`,
		Args:      cobra.ExactArgs(1),
		ValidArgs: []string{"000", "001", "002", "003", "004"},
	}
	f := cmd.Flags()
	f.Float64Var(&seconds, "runtime-seconds", 0, "virtual seconds of each row (default: the published 180)")
	f.Float64Var(&warm, "warm", 0, "virtual seconds of the job before those that count; a short run then says what a long one does")
	f.Var(&size, "size", "size of the file (default: the published 16G)")
	f.StringVar(&calFile, "calibration", "", "take the calibration from this file")
	f.StringVar(&saveFile, "save-calibration", "", "write the calibration that was used to this file")
	f.StringVar(&out, "out", "", "write the report as one HTML page to this file")
	outputFlag(cmd, "save-calibration", "out")
	f.StringVar(&costFile, "costs", "", "table of costs: a file that btrlab calibrate has written. cpu_factor multiplies it")
	f.BoolVar(&sensitivity, "sensitivity", false, "change each choice of the calibration by a fifth, and say what that does to both rows")
	f.StringVar(&choice, "choice", "", "change this choice of the --sensitivity table only, by its name there")
	f.IntVar(&fit, "calibrate", 0, "fit the calibration to the published lock row first, in at most so many runs of 8 virtual seconds")
	jsonFlag(cmd, &asJSON)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		var study *reproduce.Study
		names := []string{"002"}
		for _, s := range reproduce.Studies() {
			names = append(names, s.Seed)
			if s.Seed == args[0] {
				study = s
			}
		}
		slices.Sort(names)
		switch {
		case study == nil && args[0] != "002":
			return usagef(cmd, "seed %q, want %s", args[0], strings.Join(names, ", "))
		case study != nil && (sensitivity || f.Changed("warm")):
			return usagef(cmd, "--sensitivity and --warm are for seed 002")
		case f.Changed("runtime-seconds") && seconds <= 0:
			return usagef(cmd, "runtime-seconds %g, want more than 0", seconds)
		case warm < 0:
			return usagef(cmd, "warm %g, want at least 0 seconds", warm)
		case size.set && size.n < 1<<20:
			return usagef(cmd, "size %d, want at least 1M", size.n)
		case fit < 0:
			return usagef(cmd, "calibrate %d, want at least 0 runs", fit)
		case choice != "" && !sensitivity:
			return usagef(cmd, "--choice is for --sensitivity")
		case choice != "" && !slices.Contains(reproduce.Choices(), choice):
			return usagef(cmd, "choice %q, want one of: %s", choice, strings.Join(reproduce.Choices(), ", "))
		case sensitivity && out != "":
			return usagef(cmd, "--sensitivity has no page for --out")
		}
		o := reproduce.Options{Calibration: reproduce.Default002, Seconds: seconds, Warm: warm, Size: size.n, Choice: choice, Stop: &a.stop}
		if study != nil {
			o.Calibration = study.Calibration
		}
		if calFile != "" {
			b, err := os.ReadFile(calFile)
			if err == nil {
				err = json.Unmarshal(b, &o.Calibration)
			}
			if err != nil {
				return fmt.Errorf("calibration %s: %w", calFile, err)
			}
		}
		if costFile != "" {
			t := cost.Default()
			if err := loadCosts(&t, costFile); err != nil {
				return err
			}
			o.Costs = &t
		}
		if study != nil {
			return a.reproduceStudy(study, o, fit, saveFile, out, asJSON)
		}
		if fit > 0 {
			c := o
			c.Seconds, c.Warm = 8, 4 // the dirty pages of the start have gone by then
			var err error
			if o.Calibration, err = reproduce.Calibrate(c, fit, func(s string) { fmt.Fprintln(a.err, "btrlab: note:", s) }); err != nil {
				return a.orStopped(err)
			}
		}
		bar := a.newBar("reproduce", true)
		var mu sync.Mutex
		at := map[string]float64{}
		o.Progress = func(step string, fraction float64) {
			mu.Lock()
			defer mu.Unlock()
			at[step] = fraction
			bar.set(step, uint64(100*at["write the file"]+450*at["lock"]+450*at["unlocked"]+900*at["sensitivity"]), 1000)
		}
		if sensitivity {
			s, err := reproduce.Sensitivity002(o)
			bar.done()
			if err != nil {
				return a.orStopped(err)
			}
			if asJSON {
				return a.printJSON(s)
			}
			return s.WriteText(a.out)
		}
		r, err := reproduce.Seed002(o)
		bar.done()
		if err != nil {
			return a.orStopped(err)
		}
		return a.reproduced(r, &r.Calibration, saveFile, out, asJSON)
	}
	return cmd
}

// reproduceStudy fits a study if that is asked for, and runs it.
func (a *app) reproduceStudy(s *reproduce.Study, o reproduce.Options, fit int, saveFile, out string, asJSON bool) (err error) {
	if fit > 0 {
		if o.Calibration, err = s.Fit(o, fit, a.note); err != nil {
			return a.orStopped(err)
		}
	}
	bar := a.newBar("reproduce", true)
	var mu sync.Mutex
	at := map[string]float64{}
	o.Progress = func(row string, fraction float64) {
		mu.Lock()
		defer mu.Unlock()
		at[row] = fraction
		sum := 0.0
		for _, v := range at {
			sum += v
		}
		bar.set(row, uint64(1000*sum/float64(len(s.Rows))), 1000)
	}
	r, err := s.Run(o)
	bar.done()
	if err != nil {
		return a.orStopped(err)
	}
	return a.reproduced(r, &r.Calibration, saveFile, out, asJSON)
}

// reproduced saves and prints what a reproduction came to.
func (a *app) reproduced(r interface {
	WriteText(w io.Writer) error
	WriteHTML(w io.Writer) error
}, c *reproduce.Calibration, saveFile, out string, asJSON bool) error {
	saved := errors.Join(saveCalibration(saveFile, c), savePage(out, r.WriteHTML))
	if asJSON {
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
