package reproduce

import (
	"encoding/json"
	"errors"
	"fmt"
	"html/template"
	"io"
	"math"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"text/tabwriter"

	"btrlab/internal/measure/experiment"
	"btrlab/internal/measure/fio"
	"btrlab/internal/measure/rig"
	"btrlab/internal/prose"
	"btrlab/internal/sched"
	"btrlab/internal/sched/vtime"
)

// Study is a published experiment as data: one job on a fresh file, of which each row changes options and policy. Some rows fit one
// knob each, in their order; the others are predicted.
type Study struct {
	Seed    string
	Job     string // the fio job as it was posted
	Size    int64  // of the file, in bytes
	Seconds float64
	Rows    []StudyRow
	// Ratio is of the iops of the first row to those of the second, by their names.
	Ratio       [2]string
	Calibration Calibration
	// Rests says what the predictions follow from.
	Rests string
}

// StudyRow is a published row and how it is simulated.
type StudyRow struct {
	Name   string
	Policy string
	Set    [][2]string // options of the job
	// Fits names the knob that the row's iops are fitted by; empty for a row that is predicted.
	Fits      string
	Published Means
}

// Means are the figures of a row of which no more was published. Times are in microseconds.
type Means struct {
	IOPS float64 `json:"iops"`
	Clat float64 `json:"clat_mean_us"`
	Slat float64 `json:"slat_mean_us,omitempty"` // simulated only
}

// StudyResult is a reproduction of a Study.
type StudyResult struct {
	Seed        string            `json:"seed"`
	Job         string            `json:"job"`
	Seconds     float64           `json:"virtual_seconds"`
	Size        int64             `json:"size"`
	Content     string            `json:"content"`
	Rests       string            `json:"rests_on"`
	Calibration Calibration       `json:"calibration"`
	Costs       []CostLine        `json:"costs"`
	Rows        []*StudyRowResult `json:"rows"`
	Ratio       struct {
		Of        string  `json:"of"`
		To        string  `json:"to"`
		Published float64 `json:"published"`
		Simulated float64 `json:"simulated"`
		Error     float64 `json:"relative_error"`
	} `json:"ratio"`
}

// StudyRowResult is a row of it.
type StudyRowResult struct {
	Name      string             `json:"name"`
	Policy    string             `json:"policy"`
	Role      string             `json:"role"` // "calibrated on" or "predicted"
	Fits      string             `json:"fits,omitempty"`
	Published Means              `json:"published"`
	Simulated Means              `json:"simulated"`
	Errors    map[string]float64 `json:"relative_errors"`
	Writes    uint64             `json:"writes"`
	Waits     map[string]float64 `json:"waits"`
	Stats     vtime.Stats        `json:"machine"`
}

// Run simulates all rows, as many at a time as there are processors.
func (s *Study) Run(o Options) (*StudyResult, error) {
	o.engines = true
	r := &StudyResult{Seed: s.Seed, Job: "seed-" + s.Seed + ".fio", Seconds: o.Seconds, Size: o.Size, Content: "not verified: no file data was kept",
		Rests: s.Rests, Calibration: o.Calibration, Costs: o.costLines()}
	if r.Seconds == 0 {
		r.Seconds = s.Seconds
	}
	if r.Size == 0 {
		r.Size = s.Size
	}
	for _, row := range s.Rows {
		x := &StudyRowResult{Name: row.Name, Policy: row.Policy, Role: "predicted", Fits: row.Fits, Published: row.Published}
		if row.Fits != "" {
			x.Role = "calibrated on"
		}
		r.Rows = append(r.Rows, x)
	}
	errs := make([]error, len(r.Rows))
	slots := make(chan bool, runtime.GOMAXPROCS(0))
	var wg sync.WaitGroup
	for i := range r.Rows {
		wg.Go(func() {
			slots <- true
			errs[i] = s.row(&o, i, r.Rows[i])
			<-slots
		})
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	at := map[string]*StudyRowResult{}
	for _, x := range r.Rows {
		at[x.Name] = x
		x.Errors = map[string]float64{"iops": relative(x.Simulated.IOPS, x.Published.IOPS), "clat avg": relative(x.Simulated.Clat, x.Published.Clat)}
	}
	a, b := at[s.Ratio[0]], at[s.Ratio[1]]
	x := &r.Ratio
	x.Of, x.To = a.Name, b.Name
	x.Published = math.Round(a.Published.IOPS/b.Published.IOPS*1e4) / 1e4
	x.Simulated = math.Round(a.Simulated.IOPS/b.Simulated.IOPS*1e4) / 1e4
	x.Error = relative(x.Simulated, x.Published)
	return r, nil
}

// Fit sets the knobs to the published iops of their rows, one after the other, each by halving the interval. tell hears of each run.
func (s *Study) Fit(o Options, runs int, tell func(string)) (Calibration, error) {
	o.engines = true
	if o.Seconds == 0 {
		o.Seconds = 1
	}
	for i, row := range s.Rows {
		if row.Fits == "" {
			continue
		}
		k := knobNamed(row.Fits)
		lo, hi := math.Log(k.lo), math.Log(k.hi) // the larger the knob the fewer the iops
		for n := 0; n < runs; n++ {
			v := k.get(&o.Calibration)
			if n > 0 { // the first run is of what is there
				*v = math.Exp((lo + hi) / 2)
			}
			x := &StudyRowResult{Name: row.Name, Policy: row.Policy}
			if err := s.row(&o, i, x); err != nil {
				return o.Calibration, err
			}
			if x.Simulated.IOPS > row.Published.IOPS {
				lo = math.Log(*v)
			} else {
				hi = math.Log(*v)
			}
			if tell != nil {
				tell(fmt.Sprintf("%s %.5g: %s %.0f iops, published %.0f", k.name, *v, row.Name, x.Simulated.IOPS, row.Published.IOPS))
			}
		}
		v := k.get(&o.Calibration)
		p := math.Pow(10, math.Floor(math.Log10(*v))-2)
		*v = math.Round(*v/p) * p // three figures are more than the fit is worth
	}
	return o.Calibration, nil
}

// wakeupKnob is not among those of seed 002, whose tasks seldom wake each other.
var wakeupKnob = knob{"wakeup_ns", func(c *Calibration) *float64 { return &c.WakeupNs }, 20, 5000}

func knobNamed(name string) *knob {
	if name == wakeupKnob.name {
		return &wakeupKnob
	}
	for i := range knobs {
		if knobs[i].name == name {
			return &knobs[i]
		}
	}
	panic("reproduce: no knob " + name)
}

// row simulates row i.
func (s *Study) row(o *Options, i int, out *StudyRowResult) error {
	secs, size := o.Seconds, o.Size
	if secs == 0 {
		secs = s.Seconds
	}
	if size == 0 {
		size = s.Size
	}
	c := &o.Calibration
	jf, err := fio.Parse("seed-"+s.Seed, strings.NewReader(s.Job))
	if err == nil {
		set := [][2]string{{"size", fmt.Sprint(size)}, {"runtime", fmt.Sprintf("%dms", int64(secs*1000))}, {"randseed", fmt.Sprint(c.Seed)}}
		jf, err = jf.With(append(set, s.Rows[i].Set...))
	}
	if err != nil {
		return err
	}
	part := float64(size) / float64(s.Size) // of a smaller file the same share is dirty
	cfg := rig.Config{Size: size + size/8 + 1<<30, NoPayload: true, DirtyBackground: int64(part * float64(c.DirtyBackground)),
		DirtyLimit: int64(part * float64(c.DirtyLimit)), EndioWorkers: c.EndioWorkers, Model: c.Model, Seed: c.Seed}
	st, verr := vtime.Run(o.machine(), func(t *sched.Task) { err = s.measure(t, o, cfg, jf, size, out) })
	out.Stats = st
	if err := errors.Join(err, verr); err != nil {
		return fmt.Errorf("row %s: %w", out.Name, err)
	}
	return nil
}

func (s *Study) measure(t *sched.Task, o *Options, cfg rig.Config, jf *fio.JobFile, size int64, out *StudyRowResult) error {
	l, err := rig.Open(t, cfg)
	if err != nil {
		return err
	}
	if err := l.Prepare(t, size); err != nil {
		return errors.Join(err, l.Close())
	}
	x, err := l.Open(t, out.Policy)
	if err != nil {
		return errors.Join(err, l.Close())
	}
	t.Policy = out.Policy
	res, err := fio.Run(t, jf, fio.Options{Stop: o.Stop,
		Open:     func(*sched.Task, *fio.Job, string) (fio.Target, error) { return x.File(), nil },
		Progress: func(p fio.Progress) { o.progress(out.Name, p.Fraction) }})
	if err == nil {
		var row Row
		row.take(res)
		w := &res.Jobs[0].Write
		us := func(ns float64) float64 { return math.Round(ns) / 1000 }
		out.Simulated = Means{IOPS: row.Simulated.IOPS, Clat: us(w.Clat.Mean()), Slat: us(w.Slat.Mean())}
		out.Writes, out.Waits = row.Writes, row.Waits
		if job, text, no := res.FirstError(); no != 0 {
			err = fmt.Errorf("job %s: %s", job, text)
		}
	}
	return errors.Join(err, o.stopped(), x.Close(t), l.Close())
}

// WriteText writes the rows, each with what was published of it.
func (r *StudyResult) WriteText(out io.Writer) error {
	var b strings.Builder
	say := func(format string, args ...any) {
		b.WriteString(prose.Wrap(fmt.Sprintf(format, args...), prose.Width) + "\n")
	}
	say("seed %s: %s, file of %.4g GiB, %g virtual seconds; content %s", r.Seed, filepath.Base(r.Job), float64(r.Size)/(1<<30), r.Seconds, r.Content)
	b.WriteByte('\n')
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "row\trole\tiops\tsimulated\terror\tclat avg\tsimulated\terror\t")
	for _, x := range r.Rows {
		role, _, _ := strings.Cut(x.Role, " ")
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%+.1f%%\t%s\t%s\t%+.1f%%\t\n", x.Name, role, experiment.Count(x.Published.IOPS), experiment.Count(x.Simulated.IOPS), 100*x.Errors["iops"],
			experiment.Nanos(1000*x.Published.Clat), experiment.Nanos(1000*x.Simulated.Clat), 100*x.Errors["clat avg"])
	}
	w.Flush()
	fmt.Fprintf(&b, "\n%s / %s: published %.3f, simulated %.3f, error %+.1f%%\n\n", r.Ratio.Of, r.Ratio.To, r.Ratio.Published, r.Ratio.Simulated, 100*r.Ratio.Error)
	say("%s", r.Rests)
	cal, err := json.MarshalIndent(r.Calibration, "", "  ")
	if err != nil {
		return err
	}
	fmt.Fprintf(&b, "\ncalibration: %s\n", cal)
	_, err = io.WriteString(out, b.String())
	return err
}

var studyPage = template.Must(template.New("study").Funcs(template.FuncMap{
	"us":  func(v float64) string { return experiment.Nanos(1000 * v) },
	"n":   experiment.Count,
	"pct": func(v float64) string { return fmt.Sprintf("%+.1f%%", 100*v) },
}).Parse(`<!doctype html>
<html lang="en"><meta charset="utf-8"><title>Seed {{.R.Seed}} in virtual time</title>
<style>body{font:15px/1.5 sans-serif;max-width:60em;margin:2em auto;padding:0 1em}table{border-collapse:collapse}
th,td{padding:.15em .8em;text-align:right;border-bottom:1px solid #ccc}th:first-child,td:first-child{text-align:left}pre{background:#f4f4f4;padding:1em}</style>
<h1>Seed {{.R.Seed}} in virtual time</h1>
<p>{{.R.Job}}, {{.R.Seconds}} virtual seconds. Content {{.R.Content}}.</p>
<table><tr><th>row<th>role<th>iops published<th>simulated<th>error<th>clat published<th>simulated<th>error</tr>
{{range .R.Rows}}<tr><td>{{.Name}}<td>{{.Role}}<td>{{n .Published.IOPS}}<td>{{n .Simulated.IOPS}}<td>{{pct (index .Errors "iops")}}<td>{{us .Published.Clat}}<td>{{us .Simulated.Clat}}<td>{{pct (index .Errors "clat avg")}}</tr>
{{end}}</table>
<p>{{.R.Ratio.Of}} / {{.R.Ratio.To}}: published {{.R.Ratio.Published}}, simulated {{.R.Ratio.Simulated}}.</p>
<p>{{.R.Rests}}</p>
<h2>Calibration</h2><pre>{{.Calibration}}</pre>
<h2>Costs</h2><table><tr><th>name<th>unit<th>ns<th>source</tr>
{{range .R.Costs}}<tr><td>{{.Name}}<td>{{.Unit}}<td>{{printf "%.3g" .Nanos}}<td style="text-align:left">{{.Source}}</tr>
{{end}}</table></html>
`))

// WriteHTML writes the report as one page.
func (r *StudyResult) WriteHTML(w io.Writer) error {
	cal, err := json.MarshalIndent(r.Calibration, "", "  ")
	if err != nil {
		return err
	}
	return studyPage.Execute(w, struct {
		R           *StudyResult
		Calibration string
	}{r, string(cal)})
}
