package reproduce

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"text/tabwriter"
	"time"

	"btrlab/internal/blockdev"
	"btrlab/internal/blockdev/dm"
	"btrlab/internal/measure/experiment"
	"btrlab/internal/measure/fio"
	"btrlab/internal/measure/rig"
	"btrlab/internal/measure/stats"
	"btrlab/internal/prose"
	"btrlab/internal/sched"
	"btrlab/internal/sched/cost"
	"btrlab/internal/sched/vtime"
)

// Study is a published experiment as data: one job on a fresh file, of which each row changes
// options and policy. Some rows fit one knob each, in their order; the others are predicted. A row
// that ablates is of no publication: it is another row without one change.
type Study struct {
	Seed    string
	Job     string // the fio job as it was posted
	Size    int64  // of the file, in bytes
	Seconds float64
	// Ramp is the part of the run before what is measured, in seconds of the published run; a
	// shorter run has the same share of it.
	Ramp float64
	Rows []StudyRow
	// MiB says that MiB/s were published and not iops: the figure by which rows are fitted and
	// compared.
	MiB bool
	// Written says that the file was written before the job; otherwise it is preallocated only.
	Written bool
	// Files, if it is not 0, is how many COW files there are, one for each writer, of Size
	// together. They are sparse, or Written.
	Files int
	// Room is the bytes of the image beside the files that a job fills with old versions until a
	// commit frees them.
	Room int64
	// Commit is the age at which a transaction is committed; 0 is never.
	Commit time.Duration
	// Ratio is of the figure of the first row to that of the second, by their names.
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
	// Fits names the knob that the row's figure is fitted by; empty for a row that is predicted.
	Fits string
	// Ablates names the row that this one is without one change, which About names. Published is
	// empty then.
	Ablates string
	About   string
	// Vary changes the calibration for this row, if set.
	Vary      func(c *Calibration)
	Published Means
}

// Means are the figures of a row of which no more was published. Times are in microseconds.
type Means struct {
	IOPS  float64 `json:"iops,omitempty"`
	Clat  float64 `json:"clat_mean_us,omitempty"`
	Slat  float64 `json:"slat_mean_us,omitempty"` // simulated only
	Read  float64 `json:"read_mib_per_sec,omitempty"`
	Write float64 `json:"write_mib_per_sec,omitempty"`
}

// figure is the one by which rows are fitted and compared.
func (s *Study) figure(m *Means) float64 {
	if s.MiB {
		return m.Read + m.Write
	}
	return m.IOPS
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
	Role      string             `json:"role"` // "calibrated on", "predicted" or "ablation"
	Fits      string             `json:"fits,omitempty"`
	About     string             `json:"about,omitempty"`
	Published Means              `json:"published"`
	Simulated Means              `json:"simulated"`
	Errors    map[string]float64 `json:"relative_errors"`
	// Contributes is what the change that an ablation is without adds to the figure of the row that
	// has it, as a part of the row that Ratio compares with: the contributions and the ratio have
	// one scale.
	Contributes *float64 `json:"contributes,omitempty"`
	// Nowait is what the requests cost that were tried without waiting; nil when none was.
	Nowait *stats.Nowait `json:"nowait,omitempty"`
	// Log is what the fsyncs cost in the trees of logs; nil when none went to one.
	Log    *stats.Log         `json:"log,omitempty"`
	Writes uint64             `json:"writes"`
	Waits  map[string]float64 `json:"waits"`
	Stats  vtime.Stats        `json:"machine"`
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
		x := &StudyRowResult{Name: row.Name, Policy: row.Policy, Role: "predicted", Fits: row.Fits, About: row.About, Published: row.Published}
		switch {
		case row.Fits != "":
			x.Role = "calibrated on"
		case row.Ablates != "":
			x.Role = "ablation"
		}
		r.Rows = append(r.Rows, x)
	}
	image, err := s.image(&o, r.Size)
	if err != nil {
		return nil, err
	}
	images := make([]*blockdev.Memory, len(r.Rows)) // the copies are made before any row runs
	for i := range images {
		images[i] = image.Snapshot()
	}
	errs := make([]error, len(r.Rows))
	slots := make(chan bool, runtime.GOMAXPROCS(0))
	var wg sync.WaitGroup
	for i := range r.Rows {
		wg.Go(func() {
			slots <- true
			errs[i] = s.row(&o, i, r.Rows[i], images[i])
			images[i] = nil
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
		x.Errors = map[string]float64{}
		for _, f := range x.figures() {
			x.Errors[f.name] = relative(f.sim, f.pub)
		}
	}
	a, b := at[s.Ratio[0]], at[s.Ratio[1]]
	x := &r.Ratio
	x.Of, x.To = a.Name, b.Name
	x.Published = math.Round(s.figure(&a.Published)/s.figure(&b.Published)*1e4) / 1e4
	x.Simulated = math.Round(s.figure(&a.Simulated)/s.figure(&b.Simulated)*1e4) / 1e4
	x.Error = relative(x.Simulated, x.Published)
	for i, row := range s.Rows {
		if row.Ablates != "" {
			v := math.Round((s.figure(&at[row.Ablates].Simulated)-s.figure(&r.Rows[i].Simulated))/s.figure(&b.Simulated)*1e4) / 1e4
			r.Rows[i].Contributes = &v
		}
	}
	return r, nil
}

// figures are those that were published of the row.
func (x *StudyRowResult) figures() (list []line) {
	p, m := &x.Published, &x.Simulated
	for _, l := range []line{{name: "iops", pub: p.IOPS, sim: m.IOPS}, {name: "clat avg", pub: p.Clat, sim: m.Clat, microSecs: true},
		{name: "read", pub: p.Read, sim: m.Read}, {name: "write", pub: p.Write, sim: m.Write}} {
		if l.pub > 0 {
			list = append(list, l)
		}
	}
	return list
}

// image makes the file in a fresh image, outside of any measurement.
func (s *Study) image(o *Options, size int64) (*blockdev.Memory, error) {
	free := cost.Table{}
	var image *blockdev.Memory
	var err error
	_, verr := vtime.Run(vtime.Machine{CPUs: 2, Costs: &free}, func(t *sched.Task) {
		image, err = makeFile(t, o, s.config(o, size), size, s.Written)
	})
	return image, errors.Join(err, verr)
}

// config is the rig's; of a smaller file the same share is dirty.
func (s *Study) config(o *Options, size int64) rig.Config {
	c := &o.Calibration
	part := float64(size) / float64(s.Size)
	return rig.Config{Size: size + size/8 + 1<<30 + s.Room, NoPayload: true, Files: s.Files, DirtyBackground: int64(part * float64(c.DirtyBackground)),
		DirtyLimit: int64(part * float64(c.DirtyLimit)), EndioWorkers: c.EndioWorkers, Model: c.Model, Seed: c.Seed, CommitInterval: s.Commit}
}

// Fit sets the knobs to the published figures of their rows, one after the other, each by halving
// the interval. tell hears of each run.
func (s *Study) Fit(o Options, runs int, tell func(string)) (Calibration, error) {
	o.engines = true
	if o.Seconds == 0 {
		o.Seconds = 1
	}
	size := o.Size
	if size == 0 {
		size = s.Size
	}
	image, err := s.image(&o, size)
	if err != nil {
		return o.Calibration, err
	}
	for i, row := range s.Rows {
		if row.Fits == "" {
			continue
		}
		k := knobNamed(row.Fits)
		lo, hi := math.Log(k.lo), math.Log(k.hi) // the larger the knob the smaller the figure
		for n := 0; n < runs; n++ {
			v := k.get(&o.Calibration)
			if n > 0 { // the first run is of what is there
				*v = math.Exp((lo + hi) / 2)
			}
			x := &StudyRowResult{Name: row.Name, Policy: row.Policy}
			if err := s.row(&o, i, x, image.Snapshot()); err != nil {
				return o.Calibration, err
			}
			have, want := s.figure(&x.Simulated), s.figure(&row.Published)
			if have > want {
				lo = math.Log(*v)
			} else {
				hi = math.Log(*v)
			}
			if tell != nil {
				tell(fmt.Sprintf("%s %.5g: %s %.0f %s, published %.0f", k.name, *v, row.Name, have, s.unit(), want))
			}
		}
		v := k.get(&o.Calibration)
		p := math.Pow(10, math.Floor(math.Log10(*v))-2)
		*v = math.Round(*v/p) * p // three figures are more than the fit is worth
	}
	return o.Calibration, nil
}

// Studies are the published experiments that Study describes.
func Studies() []*Study { return []*Study{&Seed000, &Seed001, &Seed003, &Seed004} }

// unit is that of figure.
func (s *Study) unit() string {
	if s.MiB {
		return "MiB/s"
	}
	return "iops"
}

// wakeupKnob is not among those of seed 002, whose tasks seldom wake each other.
var wakeupKnob = knob{"wakeup_ns", func(c *Calibration) *float64 { return &c.WakeupNs }, 20, 5000}

// slowerKnob is not either: that device's data sheet is known.
var slowerKnob = knob{"device_slower", func(c *Calibration) *float64 { return &c.Slower }, 0.001, 10}

func knobNamed(name string) *knob {
	for _, list := range [][]knob{knobs, {wakeupKnob, slowerKnob}} {
		for i := range list {
			if list[i].name == name {
				return &list[i]
			}
		}
	}
	panic("reproduce: no knob " + name)
}

// row simulates row i.
func (s *Study) row(o *Options, i int, out *StudyRowResult, image *blockdev.Memory) error {
	secs, size := o.Seconds, o.Size
	if secs == 0 {
		secs = s.Seconds
	}
	if size == 0 {
		size = s.Size
	}
	if vary := s.Rows[i].Vary; vary != nil {
		own := *o
		vary(&own.Calibration)
		o = &own
	}
	c := &o.Calibration
	jf, err := fio.Parse("seed-"+s.Seed, strings.NewReader(s.Job))
	if err == nil {
		file := "size"
		if jf.Jobs[0].FileSize > 0 {
			file = "filesize"
		}
		set := [][2]string{{file, fmt.Sprint(size / int64(max(s.Files, 1)))}, {"runtime", fmt.Sprintf("%dms", int64(secs*1000))}, {"randseed", fmt.Sprint(c.Seed)}}
		if s.Ramp > 0 {
			set = append(set, [2]string{"ramp_time", fmt.Sprintf("%dms", int64(secs*1000*s.Ramp/s.Seconds))})
		}
		jf, err = jf.With(append(set, s.Rows[i].Set...))
	}
	if err != nil {
		return err
	}
	st, verr := vtime.Run(o.machine(), func(t *sched.Task) { err = s.measure(t, o, image, s.config(o, size), jf, out) })
	out.Stats = st
	if err := errors.Join(err, verr); err != nil {
		return fmt.Errorf("row %s: %w", out.Name, err)
	}
	return nil
}

func (s *Study) measure(t *sched.Task, o *Options, image *blockdev.Memory, cfg rig.Config, jf *fio.JobFile, out *StudyRowResult) error {
	var dev blockdev.Device = image
	if cfg.Model != "none" {
		p, err := dm.Parse(cfg.Model)
		if err != nil {
			return err
		}
		if c := &o.Calibration; c.Slower > 0 {
			p = p.Slower(c.Slower)
		}
		p.Seed = cfg.Seed
		dev = dm.New(t, image, p)
	}
	l := rig.On(image, dev, cfg)
	x, err := l.Open(t, out.Policy)
	if err != nil {
		return errors.Join(err, l.Close())
	}
	t.Policy = out.Policy
	res, err := fio.Run(t, jf, fio.Options{Stop: o.Stop, Open: experiment.Opener(x),
		Progress: func(p fio.Progress) { o.progress(out.Name, p.Fraction) }})
	if err == nil {
		var row Row
		row.take(res)
		j := res.Jobs[0]
		us := func(ns float64) float64 { return math.Round(ns) / 1000 }
		mib := func(d *stats.Dir) float64 {
			return math.Round(float64(d.Bytes)/(1<<20)*1e11/float64(max(d.RunNs, 1))) / 100
		}
		out.Simulated = Means{IOPS: row.Simulated.IOPS, Clat: us(j.Write.Clat.Mean()), Slat: us(j.Write.Slat.Mean()), Read: mib(&j.Read), Write: mib(&j.Write)}
		out.Writes, out.Waits, out.Nowait = row.Writes, row.Waits, j.Nowait
		for _, j := range res.Jobs {
			out.Log = stats.MergeLog(out.Log, j.Log)
		}
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
	w := tabwriter.NewWriter(&b, 0, 0, 1, ' ', tabwriter.AlignRight) // of 80 columns
	if r.Rows[0].Published.Write > 0 {
		say("throughput in MiB/s:")
		b.WriteByte('\n')
	}
	fmt.Fprint(w, "row\trole\t")
	for _, f := range r.Rows[0].figures() {
		fmt.Fprintf(w, "%s\tsimulated\terror\t", f.name)
	}
	fmt.Fprintln(w)
	for _, x := range r.Rows {
		list := x.figures()
		if len(list) == 0 {
			continue
		}
		role, _, _ := strings.Cut(x.Role, " ")
		fmt.Fprintf(w, "%s\t%s\t", x.Name, role)
		for _, f := range list {
			fmt.Fprintf(w, "%s\t%s\t%+.1f%%\t", f.show(f.pub), f.show(f.sim), 100*x.Errors[f.name])
		}
		fmt.Fprintln(w)
	}
	w.Flush()
	fmt.Fprintf(&b, "\n%s / %s: published %.3f, simulated %.3f, error %+.1f%%\n\n", r.Ratio.Of, r.Ratio.To, r.Ratio.Published, r.Ratio.Simulated, 100*r.Ratio.Error)
	if about, table := r.ablation(); len(table) > 0 {
		say("%s", about)
		b.WriteByte('\n')
		for _, line := range table {
			fmt.Fprintln(w, strings.Join(line, "\t")+"\t")
		}
		w.Flush()
		b.WriteByte('\n')
		for _, x := range r.Rows {
			if x.About != "" {
				say("%s: %s", x.Name, x.About)
			}
		}
		b.WriteByte('\n')
	}
	say("%s", r.Rests)
	cal, err := json.MarshalIndent(r.Calibration, "", "  ")
	if err != nil {
		return err
	}
	fmt.Fprintf(&b, "\ncalibration: %s\n", cal)
	_, err = io.WriteString(out, b.String())
	return err
}

const patchesAbout = "What a patch adds to the throughput, in percent of the first row: the row with all of them less the row without it. Then the averages of " +
	"a request that was tried without waiting, but EAGAIN, which is in percent of the requests."

// ablation is the table of a study with ablations: its head, and a line for each row. One without
// requests that were tried without waiting has rows that are not of patches, and of each only what
// part of the predicted figure it has.
func (r *StudyResult) ablation() (about string, table [][]string) {
	has := func(f func(x *StudyRowResult) bool) bool { return slices.ContainsFunc(r.Rows, f) }
	if !has(func(x *StudyRowResult) bool { return x.Contributes != nil }) {
		return "", nil
	}
	if has(func(x *StudyRowResult) bool { return x.Log != nil }) {
		return logsAbout, r.logTable()
	}
	if !has(func(x *StudyRowResult) bool { return x.Nowait != nil }) {
		table = append(table, []string{"row", "iops", "of " + r.Ratio.Of})
		of := r.Rows[slices.IndexFunc(r.Rows, func(x *StudyRowResult) bool { return x.Name == r.Ratio.Of })]
		for _, x := range r.Rows {
			table = append(table, []string{x.Name, experiment.Count(x.Simulated.IOPS), fmt.Sprintf("%.3f", x.Simulated.IOPS/of.Simulated.IOPS)})
		}
		return "What other designs, and other choices for the machine, make of the predicted row:", table
	}
	table = append(table, []string{"row", "MiB/s", "adds", "slept", "EAGAIN", "searches", "paths", "leaf held", "may block"})
	for _, x := range r.Rows {
		n := x.Nowait
		if n == nil {
			n = stats.NewNowait()
		}
		adds := ""
		if x.Contributes != nil {
			adds = fmt.Sprintf("%+.1f", 100**x.Contributes)
		}
		each := func(c sched.Counter) string { return fmt.Sprintf("%.2f", n.Each(c.String())) }
		table = append(table, []string{x.Name, experiment.Count(x.Simulated.Read + x.Simulated.Write), adds, fmt.Sprintf("%.4f", n.SleepsEach()),
			fmt.Sprintf("%.2f", 100*n.Punted()), each(sched.CountSearches), each(sched.CountPaths), each(sched.CountLeafHeld), each(sched.CountMayBlock)})
	}
	return patchesAbout, table
}

const logsAbout = "What a patch adds to the throughput, in percent of the first row: the row with all of them less the row without it. Then the averages of an " +
	"fsync in the log: searches, leaves copied, bytes of log, and by level of its tree, 0 to 2 from the leaves on, steps with the write lock held, and how " +
	"long the leaf's was held."

// logTable is the ablation table of a study of fsyncs.
func (r *StudyResult) logTable() [][]string {
	table := [][]string{{"row", "MiB/s", "adds", "search", "COW", "log", "steps", "1", "2", "held"}}
	for _, x := range r.Rows {
		l := x.Log
		if l == nil {
			l = new(stats.Log)
		}
		adds := ""
		if x.Contributes != nil {
			adds = fmt.Sprintf("%+.1f", 100**x.Contributes)
		}
		each := func(c sched.LogCounter) float64 { return l.Each(c.String()) }
		table = append(table, []string{x.Name, fmt.Sprintf("%.1f", x.Simulated.Read+x.Simulated.Write), adds, fmt.Sprintf("%.2f", each(sched.LogSearches)),
			fmt.Sprintf("%.2f", each(sched.LogCOWed)), fmt.Sprintf("%.1fK", each(sched.LogBytes)/1024), fmt.Sprintf("%.1f", l.StepsEach(0)),
			fmt.Sprintf("%.1f", l.StepsEach(1)), fmt.Sprintf("%.1f", l.StepsEach(2)), experiment.Nanos(l.HeldEach(0))})
	}
	return table
}
