package reproduce

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"

	"btrlab/internal/blockdev"
	"btrlab/internal/measure/seeds"
)

// knob is a parameter that a publication leaves open and that shows in the row it is fitted to.
type knob struct {
	name   string
	get    func(c *seeds.Calibration) *float64
	lo, hi float64
}

var knobs = []knob{
	{"cpu_factor", func(c *seeds.Calibration) *float64 { return &c.CPU }, 0.5, 8},
	{"idle_exit_ns", func(c *seeds.Calibration) *float64 { return &c.IdleExitNs }, 500, 50000},
	{"noise_wake_sigma", func(c *seeds.Calibration) *float64 { return &c.NoiseWake }, 0.02, 1},
	{"noise_per_sec", func(c *seeds.Calibration) *float64 { return &c.NoisePerSec }, 10, 10000},
	{"device_depth", func(c *seeds.Calibration) *float64 { return &c.Depth }, 64, 32768},
	{"gc_bytes", func(c *seeds.Calibration) *float64 { return &c.GCBytes }, 1 << 20, 1 << 30},
	{"gc_max_ms", func(c *seeds.Calibration) *float64 { return &c.GCMaxMs }, 20, 1000},
	{"interrupt_ns", func(c *seeds.Calibration) *float64 { return &c.InterruptNs }, 500, 20000},
}

// wakeup and slower are not among the choices of seed 002: its tasks seldom wake each other, and
// its device's data sheet is known.
var (
	wakeup = knob{"wakeup_ns", func(c *seeds.Calibration) *float64 { return &c.WakeupNs }, 20, 5000}
	slower = knob{"device_slower", func(c *seeds.Calibration) *float64 { return &c.Slower }, 0.001, 10}
)

func knobsNamed(names []string) (list []*knob) {
	all := append(slices.Clone(knobs), wakeup, slower)
	for _, name := range names {
		i := slices.IndexFunc(all, func(k knob) bool { return k.name == name })
		list = append(list, &all[i])
	}
	return list
}

// round leaves three figures: more are more than a fit is worth.
func (k *knob) round(c *seeds.Calibration) {
	v := k.get(c)
	p := math.Pow(10, math.Floor(math.Log10(*v))-2)
	*v = math.Round(*v/p) * p
}

// misfit is how far a simulated row is from the published one: weighted squared logarithms of the
// ratios. Nothing of another row enters. A percentile counts at most as one that is
// wrong by a factor of e: where two regimes meet it jumps.
func misfit(have, want *seeds.Figures) float64 {
	sum := 0.0
	add := func(weight, h, w float64) {
		d := max(-1, min(1, math.Log(math.Max(h, 1e-3)/w)))
		sum += weight * d * d
	}
	add(30, have.IOPS, want.IOPS)
	add(5, have.Mean, want.Mean)
	add(1, have.Stdev, want.Stdev)
	for i, p := range seeds.Percentiles {
		weight := 0.5
		if p <= 80 {
			weight = 0.7
		}
		add(weight, have.Clat[i], want.Clat[i])
	}
	return sum
}

// Fit sets the knobs to the published figures of their rows, one row after the other. tell hears of
// the runs, of which there are so many for each row.
func Fit(seed *seeds.Seed, o Options, runs int, tell func(string)) (seeds.Calibration, error) {
	s := newStudy(seed, o)
	image, err := s.image()
	if err != nil {
		return o.Calibration, err
	}
	f := &fit{study: s, image: image, runs: runs, tell: tell}
	for i := range seed.Rows {
		list := knobsNamed(seed.Rows[i].Fits)
		switch {
		case len(list) > 1:
			err = f.descend(i, list)
		case len(list) == 1:
			err = f.halve(i, list[0])
		}
		if err != nil {
			break
		}
		for _, k := range list {
			k.round(&s.opt.Calibration)
		}
	}
	return s.opt.Calibration, err
}

// fit is a fit of the calibration of study.
type fit struct {
	*study
	image *blockdev.Memory
	runs  int
	tell  func(string)
}

// halve fits one knob by the figure of row i: it halves the interval of the knob and keeps the
// value whose figure was the nearest, which need not be the last one. The larger a knob the smaller
// the figure.
func (f *fit) halve(i int, k *knob) error {
	row := &f.seed.Rows[i]
	v := k.get(&f.opt.Calibration)
	lo, hi := math.Log(k.lo), math.Log(k.hi)
	best, off := *v, math.Inf(1)
	for n := range f.runs {
		if n > 0 { // the first run is of what is there
			*v = math.Exp((lo + hi) / 2)
		}
		x := &Row{Name: row.Name}
		if err := f.row(i, x, f.image.Snapshot()); err != nil {
			return err
		}
		have, want := f.seed.Figure(&x.Simulated), f.seed.Figure(&row.Published)
		if d := math.Abs(have - want); d < off {
			best, off = *v, d
		}
		if have > want {
			lo = math.Log(*v)
		} else {
			hi = math.Log(*v)
		}
		f.tell(fmt.Sprintf("%s %.5g: %s %.0f %s, published %.0f", k.name, *v, row.Name, have, f.seed.Unit(), want))
	}
	*v = best
	return nil
}

// descend fits several knobs by all figures of row i, one after the other, each step tried up and
// down, until no step of the smallest size helps or the budget of runs is used up. It tells of
// every improvement.
func (f *fit) descend(i int, list []*knob) error {
	score := math.Inf(1)
	if _, err := f.try(i, &score, f.opt.Calibration); err != nil {
		return err
	}
	runs := f.runs
	for step := 2.0; step > 1.08 && runs > 0; step = math.Sqrt(step) {
		for again := true; again && runs > 0; {
			again = false
			for _, k := range list {
				up, down := f.opt.Calibration, f.opt.Calibration
				*k.get(&up) = math.Min(*k.get(&up)*step, k.hi)
				*k.get(&down) = math.Max(*k.get(&down)/step, k.lo)
				if err := f.opt.stopped(); err != nil {
					return err
				}
				better, _ := f.try(i, &score, up, down)
				again = again || better
				if runs -= 2; runs <= 0 {
					break
				}
			}
		}
	}
	return nil
}

// try runs row i by each of the calibrations, side by side, and keeps the best if it is better than
// score. A machine on which the job cannot run is no candidate.
func (f *fit) try(i int, score *float64, cands ...seeds.Calibration) (better bool, err error) {
	row := &f.seed.Rows[i]
	rows := make([]*Row, len(cands))
	errs := make([]error, len(cands))
	images := make([]*blockdev.Memory, len(cands))
	for k := range cands {
		images[k] = f.image.Snapshot()
	}
	var wg sync.WaitGroup
	for k := range cands {
		wg.Go(func() {
			s := *f.study
			s.opt.Calibration = cands[k]
			rows[k] = &Row{Name: row.Name, Published: row.Published}
			errs[k] = s.row(i, rows[k], images[k])
		})
	}
	wg.Wait()
	for k, x := range rows {
		if errs[k] != nil {
			continue
		}
		if m := misfit(&x.Simulated, &row.Published); m < *score {
			*score, f.opt.Calibration, better = m, cands[k], true
			f.tell(fmt.Sprintf("misfit %.3f: %s; iops %.0f, mean %.0fus, p50 %.0fus, p99 %.0fus", m, knobText(&cands[k]), x.Simulated.IOPS, x.Simulated.Mean,
				x.Simulated.Percentile(50), x.Simulated.Percentile(99)))
		}
	}
	return better, errors.Join(errs...)
}

// knobText is the knobs with their values.
func knobText(c *seeds.Calibration) string {
	s := ""
	for _, k := range knobs {
		s += fmt.Sprintf(" %s=%.4g", k.name, *k.get(c))
	}
	return s[1:]
}
