// Package reproduce repeats a published experiment in virtual time at its published size. The
// machine and the device are calibrated on the published figures before the change, and on those
// alone; the figures after it are predicted, and both are shown beside what was published.
//
// Model: what the publication does not say (dirty limits, kernel version, state of the drives) is a
// parameter of Calibration. Figures that the calibration did not look at are predictions, right or
// wrong. An overwrite in place finishes without a transaction, which costs less than in the kernel;
// five times the cost leaves both rows of seed 002 as they are. The RAID has no stripe cache, so
// two writes of one stripe do not share its parity.
package reproduce

import (
	"errors"
	"fmt"
	"math"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"btrlab/internal/blockdev"
	"btrlab/internal/blockdev/dm"
	"btrlab/internal/measure/experiment"
	"btrlab/internal/measure/fio"
	"btrlab/internal/measure/rig"
	"btrlab/internal/measure/seeds"
	"btrlab/internal/measure/stats"
	"btrlab/internal/sched"
	"btrlab/internal/sched/cost"
	"btrlab/internal/sched/vtime"
)

// Options says how to reproduce.
type Options struct {
	Calibration seeds.Calibration
	// Seconds of virtual time; 0 is the publication's.
	Seconds float64
	// Warm is how many virtual seconds of the job come before those that count: a short run then
	// says what a long one does.
	Warm float64
	// Size of the file in bytes; 0 is the publication's.
	Size int64
	// Progress, if set, is called now and then, by several goroutines.
	Progress func(step string, fraction float64)
	// Stop, if set, ends a run with an error once it is true: the figures of a part are none.
	Stop *atomic.Bool
	// Published leaves out the rows of which nothing was published.
	Published bool
	// Policies have a row each, beside those of the seed: its predicted row under another policy.
	Policies []string
	// Choice, if set, is the one that Sense changes.
	Choice string
	// Costs, if set, is the table of costs that Calibration.CPU multiplies; nil is cost.Default.
	Costs *cost.Table
}

// Result is a reproduction.
type Result struct {
	Seed    string  `json:"seed"`
	Job     string  `json:"job"`
	Jobs    int     `json:"jobs"`
	IODepth int     `json:"iodepth"`
	Seconds float64 `json:"virtual_seconds"`
	Size    int64   `json:"size"`
	Content string  `json:"content"`
	// Rests says what the prediction follows from.
	Rests       string            `json:"rests_on"`
	Calibration seeds.Calibration `json:"calibration"`
	// Misfit is how far the row that was calibrated on is from the published one, where a fit makes
	// that small.
	Misfit *float64   `json:"lock_misfit,omitempty"`
	Costs  []CostLine `json:"costs"`
	Rows   []*Row     `json:"rows"`
	Ratio  struct {
		Of        string  `json:"of"`
		To        string  `json:"to"`
		Published float64 `json:"published"`
		Simulated float64 `json:"simulated"`
		Error     float64 `json:"relative_error"`
	} `json:"ratio"`
}

// Row is a row of the experiment and its simulation.
type Row struct {
	Name      string        `json:"name"`
	Policy    string        `json:"policy"`
	Role      string        `json:"role"` // "calibrated on", "predicted" or "ablation"
	Fits      string        `json:"fits,omitempty"`
	About     string        `json:"about,omitempty"`
	Over      string        `json:"over,omitempty"` // the row before the change
	Published seeds.Figures `json:"published"`
	Simulated seeds.Figures `json:"simulated"`
	// Errors is simulated by published, less one, for every figure by its name in the text.
	Errors map[string]float64 `json:"relative_errors"`
	// Ranks are by seeds.Percentiles: which percentile of the simulation the published latency is.
	// At a step of the distribution a latency jumps with few requests, and its rank does not.
	Ranks []float64 `json:"published_is_percentile,omitempty"`
	// Contributes is of an ablation: how much the missing change adds to the figure of the row that
	// has it, as a part of the row that Ratio compares with. So the contributions and the ratio
	// have one scale.
	Contributes *float64 `json:"contributes,omitempty"`
	// Nowait has the costs of the requests that were tried without waiting; nil when none was.
	Nowait *stats.Nowait `json:"nowait,omitempty"`
	// Log has the costs of the fsyncs in the trees of logs; nil when none went to one.
	Log *stats.Log `json:"log,omitempty"`
	// Drains are those of the run; nil where none was published.
	Drains *Drains `json:"drains_ms,omitempty"`
	// Writes is how many the simulation made; Waits is the share of the writers' time by class.
	Writes uint64             `json:"writes"`
	Waits  map[string]float64 `json:"waits"`
	// Met is how many waits there were for each write, of the classes of Waits.
	Met   map[string]float64 `json:"waits_per_write"`
	Stats vtime.Stats        `json:"machine"`
}

// withPolicies is the seed with a row for each of the policies.
func withPolicies(seed *seeds.Seed, policies []string) *seeds.Seed {
	if len(policies) == 0 {
		return seed
	}
	more := *seed
	more.Rows = slices.Clone(seed.Rows)
	of := seed.Row(seed.Ratio[0])
	for _, name := range policies {
		more.Rows = append(more.Rows, seeds.Row{Name: name, Policy: name, Set: of.Set, Vary: of.Vary, Ablates: of.Name, About: "the row " + of.Name + " under policy " + name})
	}
	return &more
}

// Only is the seed with the rows of these names alone, each with those that it is compared with:
// the row before or after the change where each job has both, and otherwise the two of the ratio.
// Without names it is the seed. A name that the seed does not have panics.
func Only(seed *seeds.Seed, names []string) *seeds.Seed {
	if len(names) == 0 {
		return seed
	}
	fewer := *seed
	keep := map[string]bool{}
	for i := len(names) - 1; i >= 0; i-- { // the ratio is the first one's
		row := seed.Row(names[i])
		fewer.Ratio = seed.Ratio
		for _, r := range seed.Rows {
			if r.Over != "" && (r.Name == row.Name || r.Over == row.Name) {
				fewer.Ratio = [2]string{r.Name, r.Over}
			}
		}
		for _, name := range []string{row.Name, row.Ablates, fewer.Ratio[0], fewer.Ratio[1]} {
			keep[name] = true
		}
	}
	fewer.Rows = slices.DeleteFunc(slices.Clone(seed.Rows), func(r seeds.Row) bool { return !keep[r.Name] })
	return &fewer
}

// Published is the seed with the published rows alone, and the names of those that it leaves out.
func Published(seed *seeds.Seed) (fewer *seeds.Seed, left []string) {
	own := *seed
	own.Rows = slices.DeleteFunc(slices.Clone(own.Rows), func(r seeds.Row) bool {
		if r.Ablates != "" {
			left = append(left, r.Name)
		}
		return r.Ablates != ""
	})
	return &own, left
}

// Run simulates all rows, as many at a time as there are processors.
func Run(seed *seeds.Seed, o Options) (*Result, error) {
	if o.Published {
		seed, _ = Published(seed)
	}
	seed = withPolicies(seed, o.Policies)
	s := newStudy(seed, o)
	r := &Result{Seed: seed.Name, Job: "seed-" + seed.Name + ".fio", Seconds: s.seconds, Size: s.size, Content: "not verified: no file data was kept",
		Rests: seed.Study.Rests(&o.Calibration), Calibration: o.Calibration, Costs: s.costLines()}
	jf, err := s.job(s.seconds, s.randseed, nil)
	if err != nil {
		return nil, err
	}
	r.Jobs, r.IODepth = jf.Jobs[0].NumJobs, jf.Jobs[0].IODepth
	for i := range seed.Rows {
		row := &seed.Rows[i]
		r.Rows = append(r.Rows, &Row{Name: row.Name, Policy: row.Policy, Role: row.Role(), Fits: strings.TrimSpace(strings.Join(append(slices.Clone(row.Fits), row.Chose), " ")), About: row.About, Over: row.Over, Published: row.Published})
	}
	if err := s.rows(r.Rows); err != nil {
		return nil, err
	}
	s.conclude(r)
	return r, nil
}

// rows simulates rows, which are those of the seed.
func (s *study) rows(rows []*Row) error {
	image, err := s.image()
	if err != nil {
		return err
	}
	images := make([]*blockdev.Memory, len(rows)) // the copies are made before any row runs
	for i := range images {
		images[i] = image.Snapshot()
	}
	errs := make([]error, len(rows))
	slots := make(chan bool, runtime.GOMAXPROCS(0))
	var wg sync.WaitGroup
	for i := range rows {
		wg.Go(func() {
			slots <- true
			errs[i] = s.row(i, rows[i], images[i])
			images[i] = nil
			<-slots
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

// conclude compares the rows with what was published, and with each other.
func (s *study) conclude(r *Result) {
	at := map[string]*Row{}
	for _, x := range r.Rows {
		at[x.Name] = x
		x.Errors = map[string]float64{}
		for _, l := range x.lines() {
			x.Errors[l.name] = relative(l.sim, l.pub)
		}
	}
	for i := range s.seed.Rows {
		if row := &s.seed.Rows[i]; len(row.Fits) > 1 {
			m := math.Round(misfit(&r.Rows[i].Simulated, &row.Published)*1e3) / 1e3
			r.Misfit = &m
		}
	}
	figure := s.seed.Figure
	a, b := at[s.seed.Ratio[0]], at[s.seed.Ratio[1]]
	x := &r.Ratio
	x.Of, x.To = a.Name, b.Name
	if of := figure(&b.Published); of > 0 {
		x.Published = math.Round(figure(&a.Published)/of*1e4) / 1e4
	}
	x.Simulated = math.Round(figure(&a.Simulated)/figure(&b.Simulated)*1e4) / 1e4
	x.Error = relative(x.Simulated, x.Published)
	for i, row := range s.seed.Rows {
		if row.Ablates != "" {
			v := math.Round((figure(&at[row.Ablates].Simulated)-figure(&r.Rows[i].Simulated))/figure(&b.Simulated)*1e4) / 1e4
			r.Rows[i].Contributes = &v
		}
	}
}

// relative is the error of have against want.
func relative(have, want float64) float64 {
	if want == 0 {
		return 0
	}
	return math.Round((have/want-1)*1e4) / 1e4
}

// study is an experiment with the options of a run.
type study struct {
	seed    *seeds.Seed
	opt     Options
	size    int64
	seconds float64
	// randseed is that of the job, whatever a choice makes of Calibration.Seed.
	randseed uint64

	// vary changes the machine or the device by factor.
	vary   *variation
	factor float64
}

func newStudy(seed *seeds.Seed, o Options) *study {
	s := &study{seed: seed, opt: o, size: o.Size, seconds: o.Seconds, randseed: o.Calibration.Seed}
	if s.size == 0 {
		s.size = seed.Study.Size
	}
	if s.seconds == 0 {
		s.seconds = seed.Study.Seconds
	}
	return s
}

// image makes the files in a fresh image, outside of any measurement.
func (s *study) image() (*blockdev.Memory, error) {
	free := cost.Table{} // nothing of this is measured, so nothing needs to cost time
	var image *blockdev.Memory
	var err error
	_, verr := vtime.Run(vtime.Machine{CPUs: 2, Costs: &free}, func(t *sched.Task) {
		image, err = makeFile(t, &s.opt, s.config(), s.size, s.seed.Study.Written)
	})
	return image, errors.Join(err, verr)
}

// config is the rig's; of a smaller file the same share is dirty.
func (s *study) config() rig.Config {
	c := &s.opt.Calibration
	part := float64(s.size) / float64(s.seed.Study.Size)
	return rig.Config{Size: s.size + s.size/8 + 1<<30 + s.seed.Study.Room, NoPayload: true, Files: s.seed.Files, DirtyBackground: int64(part * float64(c.DirtyBackground)),
		DirtyLimit: int64(part * float64(c.DirtyLimit)), EndioWorkers: c.EndioWorkers, EndioNewest: c.EndioNewest, Model: c.Model, Seed: c.Seed, CommitInterval: s.seed.Study.Commit,
		SmallLeaf: c.SmallLeaf, CacheLimit: s.seed.Study.CacheLimit}
}

// makeFile makes the test file in a fresh image, and writes it once if it is to be written.
func makeFile(t *sched.Task, o *Options, cfg rig.Config, size int64, written bool) (*blockdev.Memory, error) {
	cfg.Model = ""
	l, err := rig.Open(t, cfg)
	if err != nil {
		return nil, err
	}
	image := l.Device().(*blockdev.Memory)
	if err := l.Prepare(t, size); err != nil || !written {
		return image, err
	}
	s, err := l.Open(t, "locked")
	if err != nil {
		return nil, err
	}
	buf := make([]byte, 1<<20)
	for off := int64(0); off < size && err == nil; off += int64(len(buf)) {
		_, err = s.File().WriteAt(t, buf[:min(int64(len(buf)), size-off)], off)
		if off%(1<<28) == 0 {
			o.progress(stepFile, float64(off)/float64(size))
		}
		err = errors.Join(err, o.stopped())
	}
	return image, errors.Join(err, s.Close(t))
}

// The steps of which Options.Progress hears, besides the rows by their names.
const (
	stepFile = "write the file"
	stepRuns = "runs" // of a table of choices, or of a surface
)

// Share returns the part of the whole run that a step takes.
func Share(seed *seeds.Seed, step string) float64 {
	file := 0.0
	if seed.Study.Written {
		file = 0.1
	}
	switch step {
	case stepFile:
		return file
	case stepRuns:
		return 1 - file
	}
	return (1 - file) / float64(len(seed.Rows))
}

// stopped is the error of a run that Stop ended.
func (o *Options) stopped() error {
	if o.Stop != nil && o.Stop.Load() {
		return errors.New("stopped")
	}
	return nil
}

func (o *Options) progress(step string, fraction float64) {
	if o.Progress != nil {
		o.Progress(step, fraction)
	}
}

// job is the seed's job, scaled, with the options of a row. What a warm-up left in the cache stays.
func (s *study) job(seconds float64, randseed uint64, set [][2]string) (*fio.JobFile, error) {
	jf, err := fio.Parse("seed-"+s.seed.Name, strings.NewReader(s.seed.Job))
	if err != nil {
		return nil, err
	}
	file := "size"
	if jf.Jobs[0].FileSizeMax > 0 {
		file = "filesize"
	}
	all := [][2]string{{file, fmt.Sprint(s.size / int64(max(s.seed.Files, 1)))}, {"randseed", fmt.Sprint(randseed)}}
	if seconds > 0 {
		all = append(all, [2]string{"runtime", fmt.Sprintf("%dms", int64(seconds*1000))})
	}
	if ramp := s.seed.Study.Ramp; ramp > 0 {
		all = append(all, [2]string{"ramp_time", fmt.Sprintf("%dms", int64(seconds*1000*ramp/s.seed.Study.Seconds))})
	}
	if s.opt.Warm > 0 {
		all = append(all, [2]string{"invalidate", "0"})
	}
	return jf.With(append(all, set...))
}

// ofRow is the study with files of the row's own, as much smaller as the study's are.
func (s *study) ofRow(row *seeds.Row) *study {
	own, seed := *s, *s.seed
	seed.Files, seed.Study.Size = row.Files, row.Size
	own.size = int64(float64(row.Size) * float64(s.size) / float64(s.seed.Study.Size))
	own.seed = &seed
	return &own
}

// row simulates row i.
func (s *study) row(i int, out *Row, image *blockdev.Memory) error {
	row := &s.seed.Rows[i]
	if row.Vary != nil {
		own := *s
		row.Vary(&own.opt.Calibration)
		s = &own
	}
	var err error
	if row.Files != 0 {
		s = s.ofRow(row)
		if image, err = s.image(); err != nil {
			return err
		}
	}
	st, verr := vtime.Run(s.machine(), func(t *sched.Task) { err = s.measure(t, image, row, out) })
	out.Stats = st
	if err := errors.Join(err, verr); err != nil {
		return fmt.Errorf("row %s: %w", out.Name, err)
	}
	return nil
}

// measure runs the job on the image.
func (s *study) measure(t *sched.Task, image *blockdev.Memory, row *seeds.Row, out *Row) error {
	o := &s.opt
	jf, err := s.job(s.seconds, s.randseed, row.Set)
	if err != nil {
		return err
	}
	var dev blockdev.Device = image
	if o.Calibration.Model != "none" {
		p, err := s.device()
		if err != nil {
			return err
		}
		dev = dm.New(t, image, p)
	}
	l := rig.On(image, dev, s.config())
	pol := row.Policy
	if s.vary != nil {
		pol += s.vary.pol
	}
	x, err := l.Open(t, pol)
	if err != nil {
		return errors.Join(err, l.Close())
	}
	t.Policy = pol
	if o.Warm > 0 {
		err = s.warm(t, x, row)
	}
	if err == nil {
		var res *stats.Run
		opt := fio.Options{Stop: o.Stop, Open: experiment.Opener(x), Progress: func(p fio.Progress) { o.progress(row.Name, p.Fraction) }}
		start, fly := t.Now(), inFlight{}
		if s.seed.Rows[0].Published.DrainMs > 0 {
			opt.Request = func(from, to int64) { fly.add(from-start, to-start) }
		}
		res, err = fio.Run(t, jf, opt)
		if err == nil {
			err = out.take(res, s.seed.Rows[0].Published.Latency != nil)
		}
		if s.seed.Rows[0].Published.DrainMs > 0 {
			end := int64(jf.Jobs[0].Runtime)
			out.Drains, out.Simulated.DrainMs = fly.drains(end), math.Round(float64(fly.end-end)/1e4)/100
		}
	}
	return errors.Join(err, o.stopped(), x.Close(t), l.Close())
}

// warm runs the part of the job before what is measured, with other random numbers.
func (s *study) warm(t *sched.Task, x experiment.Session, row *seeds.Row) error {
	jf, err := s.job(s.opt.Warm, s.randseed+1, row.Set)
	if err == nil {
		_, err = fio.Run(t, jf, fio.Options{Stop: s.opt.Stop, Open: experiment.Opener(x)})
	}
	return err
}

// published are the rows of which something was.
func (r *Result) published() (list []*Row) {
	for _, x := range r.Rows {
		if len(x.lines()) > 0 {
			list = append(list, x)
		}
	}
	return list
}

// take is the row's figures, from all jobs together, with the distribution of latencies or without.
func (row *Row) take(res *stats.Run, latencies bool) error {
	j := res.Jobs[0]
	for _, o := range res.Jobs[1:] {
		j.Merge(o)
	}
	w := &j.Write
	mean := func(h *stats.Hist) float64 { return math.Round(h.Mean()) / 1000 }
	mib := func(d *stats.Dir) float64 {
		return math.Round(float64(d.Bytes)/(1<<20)*1e11/float64(max(d.RunNs, 1))) / 100
	}
	row.Simulated = seeds.Figures{IOPS: math.Round(float64(w.IOs)*1e11/float64(max(w.RunNs, 1))) / 100, ClatMean: mean(&w.Clat), SlatMean: mean(&w.Slat),
		Read: mib(&j.Read), Write: mib(w)}
	if latencies {
		row.latency(w)
	}
	row.Writes, row.Nowait, row.Log = w.IOs, j.Nowait, j.Log
	row.Waits, row.Met = map[string]float64{}, map[string]float64{}
	for _, x := range j.Waits {
		if v := float64(x.Nanos) / float64(max(j.RunNs, 1)); v >= 0.0005 {
			row.Waits[x.Class] = math.Round(v*1e4) / 1e4
			row.Met[x.Class] = math.Round(float64(x.Count)/float64(max(w.IOs, 1))*1e5) / 1e5
		}
	}
	if job, text, no := res.FirstError(); no != 0 {
		return fmt.Errorf("job %s: %s", job, text)
	}
	return nil
}

// latency is the distribution of the writes, and the ranks of the published one in it.
func (row *Row) latency(w *stats.Dir) {
	us := func(ns float64) float64 { return math.Round(ns/10) / 100 }
	l := &seeds.Latency{Min: us(float64(w.Lat.Min())), Mean: us(w.Lat.Mean()), Stdev: us(w.Lat.Stddev()), Max: us(float64(w.Lat.Max()))}
	for _, p := range seeds.Percentiles {
		l.Clat = append(l.Clat, us(float64(w.Clat.Percentile(p))))
	}
	row.Simulated.Latency = l
	if row.Published.Latency == nil {
		return
	}
	for _, us := range row.Published.Clat {
		row.Ranks = append(row.Ranks, math.Round(10*w.Clat.Rank(int64(us*1000)))/10)
	}
}
