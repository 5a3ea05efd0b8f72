// Package calibrate measures what the write path's work costs a CPU of this machine, in the real
// runtime: the costs that package cost has as constants. A table of them lets virtual time predict
// what the real runtime does here.
//
// Most costs are timed in a loop of their own (probes.go). The rest can only be timed as part of a
// whole operation (paths.go): virtual time counts the units of that operation, and what its time
// leaves beyond the costs that are known is theirs. All of it is measured in rounds, one after the
// other, and the median and the spread over the rounds are told. Loops of one processor are timed
// by the processor's time, so that other processes do not count; those of two cannot be. So a pass
// of rounds is measured again until two passes agree, and a machine on which none do is refused.
//
// Model: the costs are those of btrlab, not of Linux: a system call is a function call here, and a
// wake-up is Go's.
package calibrate

import (
	"errors"
	"fmt"
	"io"
	"math"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"text/tabwriter"
	"time"

	"btrlab/internal/measure/stats"
	"btrlab/internal/sched"
	"btrlab/internal/sched/cost"
)

// Options says how to measure. The zero value takes some ten seconds.
type Options struct {
	Rounds int           // of a pass; 0 is DefaultRounds
	Passes int           // at most; 0 is DefaultPasses, and 1 takes what one pass says
	Loop   time.Duration // of each loop; 0 is DefaultLoop
	// Size of the file, in bytes: more than the processor's caches hold, or memory seems fast. 0 is
	// DefaultSize.
	Size int64
	// Progress, if set, is called before each round.
	Progress func(done, of int)
	// Stop, if set, ends the measurement with an error once it is true.
	Stop *atomic.Bool
}

// Defaults of Options.
const (
	DefaultRounds = 4
	DefaultPasses = 5
	DefaultLoop   = 20 * time.Millisecond
	DefaultSize   = 128 << 20
)

// Line is a cost, measured.
type Line struct {
	Name  string  `json:"name"`
	Unit  string  `json:"unit"`
	Model float64 `json:"model_ns"` // what the table says without a calibration
	// Nano is the median of the rounds, Low and High are their spread; all are 0 when the cost was
	// not measured.
	Nano     float64 `json:"ns"`
	Low      float64 `json:"low_ns"`
	High     float64 `json:"high_ns"`
	How      string  `json:"how"`
	Measured bool    `json:"measured"`
}

// Check is an operation that was timed, beside what the costs make of it.
type Check struct {
	Name     string  `json:"name"`
	About    string  `json:"about"`
	Measured float64 `json:"ns"`
	Low      float64 `json:"low_ns"`
	High     float64 `json:"high_ns"`
	Modelled float64 `json:"modelled_ns"`
}

// Result is a calibration.
type Result struct {
	CPUs   int     `json:"cpus"`
	Go     string  `json:"go"`
	Rounds int     `json:"rounds"`
	Lines  []Line  `json:"costs"`
	Checks []Check `json:"checks"`
	// Agreement is what Verify found, if it was asked.
	Agreement []Agreement `json:"agreement,omitempty"`
}

// Run measures, as a task of the real runtime. Meanwhile the process has one processor, or two
// where a loop needs them. The error is a *Disturbed when no two passes in a row agree.
func Run(t *sched.Task, o Options) (*Result, error) {
	if o.Rounds == 0 {
		o.Rounds = DefaultRounds
	}
	if o.Loop == 0 {
		o.Loop = DefaultLoop
	}
	if o.Size == 0 {
		o.Size = DefaultSize
	}
	if o.Passes == 0 {
		o.Passes = DefaultPasses
	}
	was := runtime.GOMAXPROCS(1)
	defer runtime.GOMAXPROCS(was)
	units := make([][cost.Count]float64, len(paths))
	for i := range paths {
		var err error
		if units[i], err = paths[i].units(min(o.Size, 16<<20)); err != nil {
			return nil, err
		}
	}
	w, err := open(t, o.Size, true)
	if err != nil {
		return nil, err
	}
	b := newBench(t, o.Size, o.Loop)
	cpus := min(was, runtime.NumCPU())
	pass := func(n int) ([]round, error) {
		rounds := make([]round, o.Rounds)
		for i := range rounds {
			if o.Progress != nil {
				o.Progress(n*o.Rounds+i, max(n+1, min(2, o.Passes))*o.Rounds)
			}
			if o.Stop != nil && o.Stop.Load() {
				return nil, errors.New("stopped")
			}
			if err := rounds[i].measure(t, b, w, units, cpus); err != nil {
				return nil, err
			}
		}
		return rounds, nil
	}
	r, err := agreed(o.Passes, pass, func(rounds []round) *Result { return result(rounds, units, cpus) })
	if err = errors.Join(err, w.close(t)); err != nil {
		return nil, err
	}
	return r, nil
}

// agreed measures passes until two in a row agree, and returns the result of both.
func agreed(most int, pass func(n int) ([]round, error), of func([]round) *Result) (*Result, error) {
	var last []round
	var apart *Disturbed
	before, _ := busy()
	for n := range most {
		rounds, err := pass(n)
		if err != nil {
			return nil, err
		}
		if most == 1 {
			return of(rounds), nil
		}
		if n > 0 {
			if apart = disagreement(of(last), of(rounds)); apart == nil {
				return of(slices.Concat(last, rounds)), nil
			}
		}
		last = rounds
	}
	after, _ := busy()
	apart.Others = after.others(before)
	return nil, apart
}

// Disturbed is the error of a calibration on a machine that is not quiet.
type Disturbed struct {
	Cost   string
	A, B   float64 // nanoseconds in the last two passes
	Others float64 // the part of the machine that other processes had, 0 where it cannot be known
}

func (d *Disturbed) Error() string {
	s := fmt.Sprintf("the machine is not quiet: %s took %.4g ns in one pass and %.4g ns in the next", d.Cost, d.A, d.B)
	if d.Others > 0.01 {
		s += fmt.Sprintf(", and other processes had %.0f %% of the processors", 100*d.Others)
	}
	return s + "; end what else runs and try again"
}

// Two passes agree when each cost differs by less than apartMost of the larger figure, or by less
// than apartNanos.
const (
	apartMost  = 0.3
	apartNanos = 15
)

// disagreement is the cost, or the whole operation, that is furthest apart in two passes; nil when
// they agree.
func disagreement(a, b *Result) (d *Disturbed) {
	worst := 0.0
	look := func(name string, x, y float64) {
		if by := math.Abs(x - y); by > apartNanos && by > apartMost*max(x, y) && by/max(x, y) > worst {
			worst, d = by/max(x, y), &Disturbed{Cost: name, A: x, B: y}
		}
	}
	for i := range a.Lines {
		look(a.Lines[i].Name, a.Lines[i].Nano, b.Lines[i].Nano)
	}
	for i := range a.Checks {
		look(a.Checks[i].Name, a.Checks[i].Measured, b.Checks[i].Measured)
	}
	return d
}

// round is what one round measured.
type round struct {
	ns   [cost.Count]float64
	path []float64
}

func (r *round) measure(t *sched.Task, b *bench, w *work, units [][cost.Count]float64, cpus int) error {
	def := cost.Default()
	for c := range b.ns {
		b.ns[c] = def.Entries[c].Nano
	}
	for i := range probes {
		p := &probes[i]
		if p.cpus > cpus {
			continue
		}
		runtime.GOMAXPROCS(p.cpus)
		b.ns[p.cost] = max(p.run(b), 0)
		runtime.GOMAXPROCS(1)
	}
	r.path = make([]float64, len(paths))
	for i := range paths {
		p := &paths[i]
		err := w.before(t, p)
		if err == nil {
			err = w.warm(t, p)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", p.name, err)
		}
		r.path[i] = per(b.loop, p.count, func() {
			if err == nil {
				err = p.do(t, w, p.count)
			}
		})
		if err != nil {
			return fmt.Errorf("%s: %w", p.name, err)
		}
		p.share(&b.ns, &units[i], r.path[i])
	}
	r.ns = b.ns
	return nil
}

// share gives the time of a path that the other costs leave to the costs of its rest, each in
// proportion to what the model says.
func (p *path) share(ns, units *[cost.Count]float64, whole float64) {
	known, unknown := 0.0, 0.0
	for c, n := range units {
		if slices.Contains(p.rest, sched.Cost(c)) {
			unknown += n * ns[c]
		} else {
			known += n * ns[c]
		}
	}
	if unknown == 0 {
		return
	}
	f := max(whole-known, 0) / unknown
	for _, c := range p.rest {
		ns[c] *= f
	}
}

func result(rounds []round, units [][cost.Count]float64, cpus int) *Result {
	r := &Result{CPUs: cpus, Go: runtime.Version(), Rounds: len(rounds)}
	def := cost.Default()
	how := map[sched.Cost]string{}
	for _, p := range probes {
		if p.cpus <= cpus {
			how[p.cost] = p.how
		}
	}
	for _, p := range paths {
		for _, c := range p.rest {
			how[c] = "what the others leave of " + p.unit
		}
	}
	var ns [cost.Count]float64
	for c := range ns {
		e := &def.Entries[c]
		l := Line{Name: e.Name, Unit: e.Unit, Model: e.Nano, How: how[sched.Cost(c)], Measured: how[sched.Cost(c)] != ""}
		ns[c] = e.Nano
		if l.Measured {
			l.Nano, l.Low, l.High = middleOf(rounds, func(r *round) float64 { return r.ns[c] })
			ns[c] = l.Nano
		} else {
			l.How = fmt.Sprintf("needs 2 processors, have %d: the model's", cpus)
		}
		r.Lines = append(r.Lines, l)
	}
	for i, p := range paths {
		k := Check{Name: p.name, About: p.unit}
		k.Measured, k.Low, k.High = middleOf(rounds, func(r *round) float64 { return r.path[i] })
		for c, n := range units[i] {
			k.Modelled += n * ns[c]
		}
		r.Checks = append(r.Checks, k)
	}
	return r
}

// middleOf is the median of what of takes of each round, the least and the most.
func middleOf(rounds []round, of func(r *round) float64) (median, low, high float64) {
	v := make([]float64, len(rounds))
	for i := range rounds {
		v[i] = of(&rounds[i])
	}
	return stats.Spread(v)
}

// Table is the costs as virtual time takes them.
func (r *Result) Table() cost.Table {
	t := cost.Default()
	for _, l := range r.Lines {
		if l.Measured {
			if err := t.Set(l.Name, l.Nano); err != nil {
				panic(err) // the names are the table's
			}
		}
	}
	return t
}

// WriteText writes the tables.
func (r *Result) WriteText(out io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "nanoseconds, the median of %d rounds on %d processors, %s\n\n", r.Rounds, r.CPUs, r.Go)
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "cost\tper\tmodel\tmeasured\tspread\t")
	for _, l := range r.Lines {
		if !l.Measured {
			fmt.Fprintf(w, "%s\t%s\t%.4g\tnot here\t\t\n", l.Name, l.Unit, l.Model)
			continue
		}
		fmt.Fprintf(w, "%s\t%s\t%.5g\t%.4g\t%.4g..%.4g\t\n", l.Name, l.Unit, l.Model, l.Nano, l.Low, l.High)
	}
	w.Flush()
	b.WriteString("\nWhole operations, and what these costs make of them:\n\n")
	w = tabwriter.NewWriter(&b, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "operation\tcosts\tmeasured\tspread\t")
	for _, k := range r.Checks {
		fmt.Fprintf(w, "%s\t%.4g\t%.4g\t%.4g..%.4g\t\n", k.Name, k.Modelled, k.Measured, k.Low, k.High)
	}
	w.Flush()
	if len(r.Agreement) > 0 {
		b.WriteString("\nJobs in both runtimes, operations per second:\n\n")
		writeAgreement(&b, r.Agreement)
	}
	_, err := io.WriteString(out, b.String())
	return err
}
