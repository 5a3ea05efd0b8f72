package reproduce

import (
	"errors"
	"fmt"
	"math"
	"sync"

	"btrlab/internal/blockdev"
)

// knob is a parameter that the publication leaves open and that shows in the lock row.
type knob struct {
	name   string
	get    func(c *Calibration) *float64
	lo, hi float64
}

var knobs = []knob{
	{"cpu_factor", func(c *Calibration) *float64 { return &c.CPU }, 0.5, 8},
	{"idle_exit_ns", func(c *Calibration) *float64 { return &c.IdleExitNs }, 500, 50000},
	{"noise_wake_sigma", func(c *Calibration) *float64 { return &c.NoiseWake }, 0.02, 1},
	{"noise_per_sec", func(c *Calibration) *float64 { return &c.NoisePerSec }, 10, 10000},
	{"device_depth", func(c *Calibration) *float64 { return &c.Depth }, 64, 32768},
	{"gc_bytes", func(c *Calibration) *float64 { return &c.GCBytes }, 1 << 20, 1 << 30},
	{"gc_max_ms", func(c *Calibration) *float64 { return &c.GCMaxMs }, 20, 1000},
	{"interrupt_ns", func(c *Calibration) *float64 { return &c.InterruptNs }, 500, 20000},
}

// misfit is how far the simulated lock row is from the published one: weighted squared logarithms
// of the ratios. Nothing of the unlocked row enters. A percentile counts at most as one that is
// wrong by a factor of e: where two regimes meet it jumps.
func misfit(have, want *Figures) float64 {
	sum := 0.0
	add := func(weight, h, w float64) {
		d := max(-1, min(1, math.Log(math.Max(h, 1e-3)/w)))
		sum += weight * d * d
	}
	add(30, have.IOPS, want.IOPS)
	add(5, have.Mean, want.Mean)
	add(1, have.Stdev, want.Stdev)
	for i, p := range Percentiles {
		weight := 0.5
		if p <= 80 {
			weight = 0.7
		}
		add(weight, have.Clat[i], want.Clat[i])
	}
	return sum
}

// Calibrate fits the knobs to the published lock row, one after the other, each step tried up and
// down, until no step of the smallest size helps or the budget of runs is used up. tell hears of
// every improvement.
func Calibrate(o Options, runs int, tell func(string)) (Calibration, error) {
	b, err := Prepare(&o)
	if err != nil {
		return o.Calibration, err
	}
	want := Published002["lock"]
	best := o.Calibration
	score := math.Inf(1)
	try := func(cands []Calibration) (int, error) {
		rows := make([]*Row, len(cands))
		errs := make([]error, len(cands))
		images := make([]*blockdev.Memory, len(cands))
		for i := range cands {
			images[i] = b.image.Snapshot()
		}
		var wg sync.WaitGroup
		for i := range cands {
			wg.Go(func() {
				c := o
				c.Calibration = cands[i]
				rows[i] = &Row{Name: "lock", Policy: "locked"}
				errs[i] = b.run(&c, rows[i], images[i])
			})
		}
		wg.Wait()
		at := -1
		for i, row := range rows {
			if errs[i] != nil {
				continue // a machine on which the job cannot run is no candidate
			}
			if m := misfit(&row.Simulated, &want); m < score {
				score, best, at = m, cands[i], i
				if tell != nil {
					tell(fmt.Sprintf("misfit %.3f: %s; iops %.0f, mean %.0fus, p50 %.0fus, p99 %.0fus", m, best.String(), row.Simulated.IOPS, row.Simulated.Mean,
						row.Simulated.Clat[6], row.Simulated.Clat[12]))
				}
			}
		}
		return at, errors.Join(errs...)
	}
	if _, err := try([]Calibration{best}); err != nil {
		return best, err
	}
	for step := 2.0; step > 1.08 && runs > 0; step = math.Sqrt(step) {
		for again := true; again && runs > 0; {
			again = false
			for _, k := range knobs {
				up, down := best, best
				*k.get(&up) = math.Min(*k.get(&up)*step, k.hi)
				*k.get(&down) = math.Max(*k.get(&down)/step, k.lo)
				if err := o.stopped(); err != nil {
					return best, err
				}
				at, _ := try([]Calibration{up, down})
				again = again || at >= 0
				if runs -= 2; runs <= 0 {
					break
				}
			}
		}
	}
	// Three figures are more than the fit is worth.
	for _, k := range knobs {
		v := k.get(&best)
		p := math.Pow(10, math.Floor(math.Log10(*v))-2)
		*v = math.Round(*v/p) * p
	}
	return best, nil
}

func (c *Calibration) String() string {
	s := ""
	for _, k := range knobs {
		s += fmt.Sprintf(" %s=%.4g", k.name, *k.get(c))
	}
	return s[1:]
}
