package reproduce

import (
	"errors"
	"math"
	"runtime"
	"sync"
	"sync/atomic"

	"btrlab/internal/blockdev"
	"btrlab/internal/measure/seeds"
	"btrlab/internal/sched"
)

// Surface is how the ratio of an experiment hangs on two choices.
type Surface struct {
	Seed    string  `json:"seed"`
	About   string  `json:"about"`
	Seconds float64 `json:"virtual_seconds"`
	Size    int64   `json:"size"`
	X       string  `json:"x"`
	Y       string  `json:"y"`
	Knob    string  `json:"fitted_knob"`
	Of      string  `json:"of"`
	To      string  `json:"to"`
	Want    float64 `json:"published"`
	// Drain is the published drain of row Of, in ms; 0 is none.
	Drain  float64  `json:"published_drain_ms,omitempty"`
	Panels []*Panel `json:"panels"`
}

// Panel is a surface: a line of points for each value of Y.
type Panel struct {
	Name   string     `json:"name"`
	Points [][]*Point `json:"points"`
}

// Point is a point of a surface.
type Point struct {
	X float64 `json:"x"`
	Y float64 `json:"y"`
	// Knob is the value of the fitted knob, Misfit how far the row that it is fitted to is from its
	// published figure, relative; Runs is how many runs that took.
	Knob   float64 `json:"knob"`
	Misfit float64 `json:"relative_misfit"`
	Runs   int     `json:"runs"`
	// Ratio is the one that was published.
	Ratio float64 `json:"ratio"`
	// Small is the share of fsyncs that met a small leaf in a log, in the row that is compared
	// with; 0 where nothing goes to a log.
	Small float64 `json:"small_leaves_per_fsync,omitempty"`
	// Drains are those of the row that is compared; nil where none was published.
	Drains *Drains `json:"drains_ms,omitempty"`
}

// Gain is Ratio in percent.
func (p *Point) Gain() float64 { return 100 * (p.Ratio - 1) }

// fitRuns bounds the runs of the fit of a point.
const fitRuns = 4

// Map runs the surface of an experiment on all processors. With Options.Seconds or Size set these
// are what is run.
func Map(seed *seeds.Seed, o Options) (*Surface, error) {
	of := seed.Study.Surface
	if o.Seconds == 0 {
		o.Seconds = of.Seconds
	}
	if o.Size == 0 {
		o.Size = of.Size
	}
	s := newStudy(seed, o)
	image, err := s.image()
	if err != nil {
		return nil, err
	}
	to, from := seed.Row(seed.Ratio[1]), seed.Row(seed.Ratio[0])
	r := &Surface{Seed: seed.Name, About: of.About, Seconds: s.seconds, Size: s.size, X: of.X.Name, Y: of.Y.Name, Knob: to.Fits[0], Of: from.Name, To: to.Name, Drain: from.Published.DrainMs,
		Want: math.Round(seed.Figure(&from.Published)/seed.Figure(&to.Published)*1e4) / 1e4}
	var work []func() error
	panels := of.Panels
	if len(panels) == 0 {
		panels = []seeds.Panel{{Set: func(*seeds.Calibration) {}}}
	}
	m := mapper{study: s, image: image}
	for _, p := range panels {
		panel := &Panel{Name: p.Name}
		for _, y := range of.Y.Values {
			var line []*Point
			for _, x := range of.X.Values {
				point := &Point{X: x, Y: y}
				c := o.Calibration
				p.Set(&c)
				of.X.Set(&c, x)
				of.Y.Set(&c, y)
				line = append(line, point)
				work = append(work, func() error { return m.point(c, point) })
			}
			panel.Points = append(panel.Points, line)
		}
		r.Panels = append(r.Panels, panel)
	}
	return r, s.all(work)
}

// all does the work on all processors and says how far it is.
func (s *study) all(work []func() error) error {
	var next, done atomic.Int64
	errs := make([]error, len(work))
	var wg sync.WaitGroup
	for range min(runtime.GOMAXPROCS(0), len(work)) {
		wg.Go(func() {
			for n := int(next.Add(1)) - 1; n < len(work) && s.opt.stopped() == nil; n = int(next.Add(1)) - 1 {
				errs[n] = work[n]()
				s.opt.progress(stepRuns, float64(done.Add(1))/float64(len(work)))
			}
		})
	}
	wg.Wait()
	return errors.Join(append(errs, s.opt.stopped())...)
}

// mapper runs the points of a surface.
type mapper struct {
	*study
	mu    sync.Mutex // for copies of image
	image *blockdev.Memory
}

// run runs a row of the seed by its name.
func (m *mapper) run(c seeds.Calibration, name string) (*Row, error) {
	m.mu.Lock()
	image := m.image.Snapshot()
	m.mu.Unlock()
	own := *m.study
	own.opt.Calibration, own.opt.Progress = c, nil
	x := &Row{Name: name}
	for i := range m.seed.Rows {
		if m.seed.Rows[i].Name == name {
			return x, own.row(i, x, image)
		}
	}
	panic("no row " + name)
}

// point fits the knob of the row that is compared with, and runs the other one.
func (m *mapper) point(c seeds.Calibration, p *Point) error {
	to := m.seed.Row(m.seed.Ratio[1])
	k := knobsNamed(to.Fits)[0]
	want := m.seed.Figure(&to.Published)
	var before *Row
	at := newSecant(k)
	for p.Runs = 0; p.Runs < fitRuns && !at.met(); p.Runs++ {
		at.move(k.get(&c))
		x, err := m.run(c, to.Name)
		if err != nil {
			return err
		}
		if at.see(*k.get(&c), m.seed.Figure(&x.Simulated)/want) {
			before = x
		}
	}
	*k.get(&c) = at.best
	after, err := m.run(c, m.seed.Ratio[0])
	if err != nil {
		return err
	}
	p.Knob, p.Misfit = at.best, relative(m.seed.Figure(&before.Simulated), want)
	p.Ratio = math.Round(m.seed.Figure(&after.Simulated)/m.seed.Figure(&before.Simulated)*1e4) / 1e4
	p.Drains = after.Drains
	if before.Log != nil {
		p.Small = before.Log.Each(sched.LogSmall.String())
	}
	return nil
}
