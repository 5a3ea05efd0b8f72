package reproduce

import (
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"time"

	"btrlab/internal/blockdev"
	"btrlab/internal/blockdev/dm"
	"btrlab/internal/draw"
	"btrlab/internal/measure/seeds"
	"btrlab/internal/prose"
	"btrlab/internal/sched/vtime"
)

// variation is a change of one choice.
type variation struct {
	name   string
	origin string // fitted, data sheet, guess, structure or the unlocked row
	// other names the alternative of a choice that has no size; then there is one change, and
	// factor is 0.
	other string
	cal   func(c *seeds.Calibration, factor float64)
	dev   func(p *dm.Params, factor float64)
	mach  func(m *vtime.Machine, factor float64)
	// pol is added to the policy of each row.
	pol string
}

func times(v *time.Duration, f float64) { *v = time.Duration(float64(*v) * f) }
func count(v *int, f float64)           { *v = int(math.Round(float64(*v) * f)) }

// variations are every knob and every structural choice of a calibration.
func variations() []variation {
	var list []variation
	for _, k := range knobs {
		list = append(list, variation{name: k.name, origin: "fitted", cal: func(c *seeds.Calibration, f float64) { *k.get(c) *= f }})
	}
	list = append(list,
		variation{name: "device write time", origin: "data sheet", dev: func(p *dm.Params, f float64) { times(&p.Write, f) }},
		variation{name: "device read time", origin: "data sheet", dev: func(p *dm.Params, f float64) { times(&p.Read, f) }},
		variation{name: "channels of a drive", origin: "data sheet", dev: func(p *dm.Params, f float64) { count(&p.Channels, f) }},
		variation{name: "drives", origin: "published", dev: func(p *dm.Params, f float64) { count(&p.Disks, f) }},
		variation{name: "cores", origin: "data sheet", cal: func(c *seeds.Calibration, f float64) { count(&c.Cores, f); c.CPUs = 2 * c.Cores }},
		variation{name: "endio workers", origin: "kernel", cal: func(c *seeds.Calibration, f float64) { count(&c.EndioWorkers, f) }},
		variation{name: "dirty limits", origin: "unlocked row", cal: func(c *seeds.Calibration, f float64) {
			c.DirtyBackground, c.DirtyLimit = int64(float64(c.DirtyBackground)*f), int64(float64(c.DirtyLimit)*f)
		}},
		variation{name: "calls of the io tree", origin: "kernel", cal: func(c *seeds.Calibration, f float64) { c.TreeCalls *= f }},
		variation{name: "cached calls", origin: "kernel", cal: func(c *seeds.Calibration, f float64) { c.TreeCached *= f }},
		variation{name: "thread of the array", origin: "unlocked row", cal: func(c *seeds.Calibration, f float64) { c.HandleNs *= f }},
		variation{name: "submission", origin: "guess", cal: func(c *seeds.Calibration, f float64) { c.SubmitNs *= f }},
		variation{name: "SMT slowdown", origin: "guess", cal: func(c *seeds.Calibration, f float64) { c.SMT = 1 + (c.SMT-1)*f }},
		variation{name: "length of noise", origin: "guess", cal: func(c *seeds.Calibration, f float64) { c.NoiseMeanNs = int64(float64(c.NoiseMeanNs) * f) }},
		variation{name: "device jitter", origin: "guess", dev: func(p *dm.Params, f float64) { p.Jitter *= f }},
		variation{name: "shortest GC", origin: "guess", dev: func(p *dm.Params, f float64) { times(&p.GCMin, f) }},
		variation{name: "RAID chunk", origin: "guess", dev: func(p *dm.Params, f float64) { p.ChunkBytes = int(float64(p.ChunkBytes)*f) &^ 4095 }},

		variation{name: "random numbers", origin: "chance", other: "seed 2", cal: func(c *seeds.Calibration, _ float64) { c.Seed = 2 }},
		variation{name: "random numbers", origin: "chance", other: "seed 3", cal: func(c *seeds.Calibration, _ float64) { c.Seed = 3 }},
		variation{name: "random numbers", origin: "chance", other: "seed 4", cal: func(c *seeds.Calibration, _ float64) { c.Seed = 4 }},
		variation{name: "lock handoff", origin: "structure", other: "4 ms, as 5.3", pol: "+RWSEM_HANDOFF"},
		variation{name: "lock spinning", origin: "structure", other: "none, as 3.15", mach: func(m *vtime.Machine, _ float64) { m.NoSpin = true }},
		variation{name: "run queue", origin: "structure", other: "one per CPU", mach: func(m *vtime.Machine, _ float64) { m.PerCPU = true }},
		variation{name: "noise", origin: "structure", other: "none", mach: func(m *vtime.Machine, _ float64) { m.Noise = vtime.Noise{} }},
		variation{name: "garbage collection", origin: "structure", other: "none", dev: func(p *dm.Params, _ float64) { p.GCBytes = 0 }},
		variation{name: "plug, stripe cache", origin: "structure", other: "as md's", cal: func(c *seeds.Calibration, _ float64) { c.Plug = true }},
		variation{name: "completions", origin: "structure", other: "one worker", cal: func(c *seeds.Calibration, _ float64) { c.EndioWorkers = 1 }},
		variation{name: "completions", origin: "structure", other: "newest first", cal: func(c *seeds.Calibration, _ float64) { c.EndioNewest = true }},
		variation{name: "RAID", origin: "structure", other: "0, not 5", dev: func(p *dm.Params, _ float64) { p.Parity = false }},
	)
	var origins []string // in the order in which they come first
	for _, v := range list {
		if !slices.Contains(origins, v.origin) {
			origins = append(origins, v.origin)
		}
	}
	slices.SortStableFunc(list, func(a, b variation) int {
		return slices.Index(origins, a.origin) - slices.Index(origins, b.origin)
	})
	return list
}

// Effect is what a change of one choice does: relative changes of the iops and of the p99 of both
// rows and of their ratios.
type Effect struct {
	Name   string `json:"name"`
	Origin string `json:"origin"`
	Change string `json:"change"`
	// Error says why the job cannot run on such a machine; then there are no figures.
	Error    string  `json:"error,omitempty"`
	Lock     float64 `json:"lock"`
	Unlocked float64 `json:"unlocked"`
	Ratio    float64 `json:"ratio"`
	P99      P99     `json:"clat_p99"`
}

// P99 is the 99th percentile of the completion latencies of both rows, and its ratio, unlocked by
// lock: in microseconds, or relative changes.
type P99 struct {
	Lock     float64 `json:"lock"`
	Unlocked float64 `json:"unlocked"`
	Ratio    float64 `json:"ratio"`
}

// p99 is that of two rows.
func p99(row *[2]Row) P99 {
	l, u := row[0].Simulated.Percentile(99), row[1].Simulated.Percentile(99)
	return P99{l, u, math.Round(u/max(l, 1e-3)*1e4) / 1e4}
}

// Sensitivity is the effects of all choices, each changed by itself.
type Sensitivity struct {
	Seconds  float64  `json:"virtual_seconds"`
	Warm     float64  `json:"warm_virtual_seconds"`
	Size     int64    `json:"size"`
	Rests    string   `json:"rests_on"`
	Lock     float64  `json:"lock_iops"`
	Unlocked float64  `json:"unlocked_iops"`
	Ratio    float64  `json:"ratio"`
	P99      P99      `json:"clat_p99_us"`
	Effects  []Effect `json:"effects"`
}

// Defaults of a sensitivity analysis: a part of the published time, so that a hundred runs take
// minutes.
const (
	SensitivitySeconds = 2
	SensitivityWarm    = 2
)

// Choices are the names of what Sense changes, in its order.
func Choices() (names []string) {
	for _, v := range variations() {
		if !slices.Contains(names, v.name) {
			names = append(names, v.name)
		}
	}
	return names
}

// SensitivitySeed is the experiment whose choices these are.
const SensitivitySeed = seeds.Overwrite

// trial is a run of both rows with one choice changed, or with none.
type trial struct {
	v      *variation
	factor float64
	row    [2]Row
	err    [2]error
	image  [2]*blockdev.Memory
}

// trials are those of the choice, of all choices if it is empty, after one of none.
func trials(choice string) []*trial {
	list := variations()
	all := []*trial{{}}
	for i := range list {
		v := &list[i]
		switch {
		case choice != "" && v.name != choice:
		case v.other != "":
			all = append(all, &trial{v: v})
		default:
			all = append(all, &trial{v: v, factor: 0.8}, &trial{v: v, factor: 1.2})
		}
	}
	return all
}

// run runs row i of the trial.
func (x *trial) run(of *study, i int) {
	s := *of
	s.opt.Progress, s.vary, s.factor = nil, x.v, x.factor
	if x.v != nil && x.v.cal != nil {
		x.v.cal(&s.opt.Calibration, x.factor)
	}
	x.err[i] = s.row(i, &x.row[i], x.image[i])
	x.image[i] = nil
}

// Sense runs both rows of SensitivitySeed as they are, and with each choice changed by a fifth down
// and up or to its alternative, on all processors. With Options.Choice it is that choice alone.
func Sense(o Options) (*Sensitivity, error) {
	if o.Seconds == 0 {
		o.Seconds, o.Warm = SensitivitySeconds, SensitivityWarm
	}
	s := newStudy(seeds.Get(SensitivitySeed), o)
	image, err := s.image()
	if err != nil {
		return nil, err
	}
	list := trials(o.Choice)
	for _, x := range list {
		for i := range x.image {
			x.image[i] = image.Snapshot()
		}
	}
	var work []func() error
	for _, x := range list {
		for i := range x.row {
			work = append(work, func() error { x.run(s, i); return nil })
		}
	}
	if err := errors.Join(s.all(work), list[0].err[0], list[0].err[1]); err != nil {
		return nil, err
	}
	return s.effects(list), nil
}

// effects compares the trials with the first one, which changes nothing.
func (s *study) effects(list []*trial) *Sensitivity {
	r := &Sensitivity{Seconds: s.seconds, Warm: s.opt.Warm, Size: s.size, Rests: s.seed.Study.Rests(&s.opt.Calibration),
		Lock: list[0].row[0].Simulated.IOPS, Unlocked: list[0].row[1].Simulated.IOPS}
	r.Ratio = math.Round(r.Unlocked/r.Lock*1e4) / 1e4
	r.P99 = p99(&list[0].row)
	for _, x := range list[1:] {
		e := Effect{Name: x.v.name, Origin: x.v.origin, Change: x.v.other}
		if x.v.other == "" {
			e.Change = fmt.Sprintf("%+.0f%%", 100*(x.factor-1))
		}
		if err := errors.Join(x.err[0], x.err[1]); err != nil {
			e.Error = strings.ReplaceAll(err.Error(), "\n", "; ")
		} else {
			l, u := x.row[0].Simulated.IOPS, x.row[1].Simulated.IOPS
			e.Lock, e.Unlocked, e.Ratio = relative(l, r.Lock), relative(u, r.Unlocked), relative(u/l, r.Unlocked/r.Lock)
			p := p99(&x.row)
			e.P99 = P99{relative(p.Lock, r.P99.Lock), relative(p.Unlocked, r.P99.Unlocked), relative(p.Unlocked/p.Lock, r.P99.Unlocked/r.P99.Lock)}
		}
		r.Effects = append(r.Effects, e)
	}
	return r
}

// WriteText writes the table.
func (s *Sensitivity) WriteText(out io.Writer) error {
	var b strings.Builder
	say := func(format string, args ...any) {
		b.WriteString(prose.Wrap(fmt.Sprintf(format, args...), prose.Width) + "\n")
	}
	say("%s", s.Rests)
	b.WriteByte('\n')
	say("As calibrated: lock %.0f iops, unlocked %.0f, ratio %.3f; p99 %s and %s, ratio %.2f; in %g virtual seconds after %g that do not count, file of %g GiB. "+
		"Each line is two runs with one choice changed, and how far both rows and their ratio move, of iops and of the p99 of clat, in percent. A run so short "+
		"owes some of that to chance, and most of what moves a p99: the lines of other random numbers say how much:",
		s.Lock, s.Unlocked, s.Ratio, draw.Nanos(s.P99.Lock*1000), draw.Nanos(s.P99.Unlocked*1000), s.P99.Ratio, s.Seconds, s.Warm, float64(s.Size)/(1<<30))
	b.WriteByte('\n')
	origin := ""
	fmt.Fprintf(&b, "%-20s %-13s %22s %22s\n", "", "", "iops, %        ", "p99, %        ")
	fmt.Fprintf(&b, "%-20s %-13s %6s %8s %6s %6s %8s %6s\n", "choice", "change", "lock", "unlocked", "ratio", "lock", "unlocked", "ratio")
	for _, e := range s.Effects {
		if e.Origin != origin {
			origin = e.Origin
			fmt.Fprintf(&b, "%s:\n", origin)
		}
		if e.Error != "" {
			fmt.Fprintf(&b, "%-20s %-13s no run\n", e.Name, e.Change)
			continue
		}
		fmt.Fprintf(&b, "%-20s %-13s %+6.1f %+8.1f %+6.1f %+6.0f %+8.0f %+6.0f\n", e.Name, e.Change, 100*e.Lock, 100*e.Unlocked, 100*e.Ratio,
			100*e.P99.Lock, 100*e.P99.Unlocked, 100*e.P99.Ratio)
	}
	for _, e := range s.Effects {
		if e.Error != "" {
			say("%s %s: %s", e.Name, e.Change, e.Error)
		}
	}
	_, err := io.WriteString(out, b.String())
	return err
}
