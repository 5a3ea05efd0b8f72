package reproduce

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"

	"gonum.org/v1/gonum/optimize"

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

// wakeup, slower and flush are not among the choices of seed 002: its tasks seldom wake each other,
// and its device's data sheet is known.
var (
	flush  = knob{"device_flush_ns", func(c *seeds.Calibration) *float64 { return &c.FlushNs }, 1000, 1e8}
	wakeup = knob{"wakeup_ns", func(c *seeds.Calibration) *float64 { return &c.WakeupNs }, 20, 5000}
	slower = knob{"device_slower", func(c *seeds.Calibration) *float64 { return &c.Slower }, 0.001, 100}
)

func knobsNamed(names []string) (list []*knob) {
	all := append(slices.Clone(knobs), wakeup, slower, flush)
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
			err = f.search(i, list)
		case len(list) == 1:
			err = f.meet(i, list[0])
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

// closeEnough is how far from the published figure a fit of one knob may end, as a logarithm.
const closeEnough = 0.0005

// secant looks for the value of a knob by which a figure is the published one, by secants in
// logarithms: the first step takes it that a knob twice as large halves the figure. No step is by
// more than a factor of two. What is kept is the value whose figure was the nearest, which need not
// be the last one.
type secant struct {
	k             *knob
	best, off     float64
	at, by, slope float64 // of the last run; by is the logarithm of have to want
}

func newSecant(k *knob) *secant {
	return &secant{k: k, off: math.Inf(1), at: math.NaN(), by: math.NaN(), slope: -1}
}

// met reports whether the best value is close enough.
func (s *secant) met() bool { return s.off < closeEnough }

// move sets the knob to the next value to try, which at first is the one that it has.
func (s *secant) move(v *float64) {
	if !math.IsNaN(s.at) {
		step := max(-math.Ln2, min(math.Ln2, -s.by/s.slope))
		*v = max(s.k.lo, min(s.k.hi, math.Exp(s.at+step)))
	}
}

// see takes what a run with the value v had, relative to what was published, and reports whether it
// is the nearest.
func (s *secant) see(v, ratio float64) bool {
	at, by := math.Log(v), math.Log(ratio)
	if slope := (by - s.by) / (at - s.at); math.Abs(slope) > 1e-4 && math.Abs(slope) < 100 {
		s.slope = slope
	}
	s.at, s.by = at, by
	if math.Abs(by) >= s.off {
		return false
	}
	s.best, s.off = v, math.Abs(by)
	return true
}

// meet fits one knob by the figure of row i.
func (f *fit) meet(i int, k *knob) error {
	row := &f.seed.Rows[i]
	v := k.get(&f.opt.Calibration)
	want := f.seed.Figure(&row.Published)
	at := newSecant(k)
	for n := 0; n < f.runs && !at.met(); n++ {
		at.move(v)
		x := &Row{Name: row.Name}
		if err := f.row(i, x, f.image.Snapshot()); err != nil {
			return err
		}
		have := f.seed.Figure(&x.Simulated)
		f.tell(fmt.Sprintf("%s %.5g: %s %.0f %s, published %.0f, %+.1f%%", k.name, *v, row.Name, have, f.seed.Unit(), want, 100*relative(have, want)))
		at.see(*v, have/want)
	}
	if f.runs > 0 {
		*v = at.best
	}
	return nil
}

// search fits several knobs by all figures of row i with CMA-ES, which asks for values alone: a
// simulation has steps and chance, and no slope to follow. A generation runs side by side. It
// begins from what is there, keeps the best, and tells of every improvement.
func (f *fit) search(i int, list []*knob) error {
	s := search{fit: f, row: &f.seed.Rows[i], from: f.opt.Calibration, score: math.Inf(1)}
	begin := make([]float64, len(list))
	for n, k := range list {
		begin[n] = math.Log(*k.get(&s.from))
	}
	if s.try(i, s.from); s.err != nil || f.runs == 0 {
		return s.err
	}
	of := func(x []float64) float64 {
		c := s.from
		for n, k := range list {
			*k.get(&c) = max(k.lo, min(k.hi, math.Exp(x[n])))
		}
		return s.try(i, c)
	}
	settings := &optimize.Settings{FuncEvaluations: f.runs, Concurrent: runtime.GOMAXPROCS(0), Converger: optimize.NeverTerminate{}}
	method := &optimize.CmaEsChol{InitStepSize: 0.3, Src: rand.NewPCG(s.from.Seed, 0)}
	_, err := optimize.Minimize(optimize.Problem{Func: of, Status: s.status}, begin, settings, method)
	f.opt.Calibration = s.best
	return errors.Join(err, f.opt.stopped())
}

// search is a search for several knobs.
type search struct {
	*fit
	row  *seeds.Row
	from seeds.Calibration

	mu    sync.Mutex // protects what follows, and the image that others are copied from
	best  seeds.Calibration
	score float64
	err   error // of the last run
}

// status ends the search when the user does.
func (s *search) status() (optimize.Status, error) {
	if s.opt.stopped() != nil {
		return optimize.MethodConverge, nil
	}
	return optimize.NotTerminated, nil
}

// try is the misfit of row i by c. A machine on which the job cannot run is no candidate.
func (s *search) try(i int, c seeds.Calibration) float64 {
	s.mu.Lock()
	image := s.image.Snapshot()
	s.mu.Unlock()
	own := *s.study
	own.opt.Calibration = c
	x := &Row{Name: s.row.Name, Published: s.row.Published}
	err := own.row(i, x, image)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err = err; err != nil {
		return math.Inf(1)
	}
	m := misfit(&x.Simulated, &s.row.Published)
	if m < s.score {
		s.score, s.best = m, c
		s.tell(fmt.Sprintf("misfit %.3f: %s; iops %.0f, mean %.0fus, p50 %.0fus, p99 %.0fus", m, knobText(&c), x.Simulated.IOPS, x.Simulated.Mean,
			x.Simulated.Percentile(50), x.Simulated.Percentile(99)))
	}
	return m
}

// knobText is the knobs with their values.
func knobText(c *seeds.Calibration) string {
	s := ""
	for _, k := range knobs {
		s += fmt.Sprintf(" %s=%.4g", k.name, *k.get(c))
	}
	return s[1:]
}
