// Package linuxprice measures on the running kernel what package cost has as constants: what a copy
// of a tree block takes a processor, a search, the end of an ordered extent, a wake-up. It runs the
// seeds' jobs on files of a mounted btrfs while the kernel's stacks are sampled on every processor
// and its tracepoints are counted. A price is the processor time of the samples in a function, less
// that of the functions below it which have a price of their own, by how often the step was done.
//
// What that is worth: the samples are of the whole machine, so nothing else should use btrfs
// meanwhile. A function that the compiler has put into its caller is not seen, and a step that no
// tracepoint counts has no price; these are told as not measured. In a virtual machine the clock's
// interrupt comes late where interrupts are off.
package linuxprice

import (
	"fmt"
	"io"
	"math"
	"slices"
	"strings"

	"btrlab/internal/hostio"
	"btrlab/internal/measure/experiment"
	"btrlab/internal/measure/fio"
	"btrlab/internal/measure/linuxfile"
	"btrlab/internal/measure/seeds"
	"btrlab/internal/measure/stats"
	"btrlab/internal/prose"
	"btrlab/internal/sched"
	"btrlab/internal/sched/cost"
)

// Line is a price of the kernel beside that of the table.
type Line struct {
	Name  string  `json:"name"`
	Unit  string  `json:"unit"`
	Model float64 `json:"model_ns"`
	// Linux is what the running kernel takes; 0 where it was not measured, and Why says so.
	Linux   float64 `json:"linux_ns,omitempty"`
	Why     string  `json:"not_measured,omitempty"`
	Samples int     `json:"samples,omitempty"`
	Count   uint64  `json:"count,omitempty"`
	Job     string  `json:"job,omitempty"`
	From    string  `json:"from,omitempty"` // functions and what counts them
	// Source is that of the table's price.
	Source string `json:"source"`
}

// Error is the standard error that the number of samples leaves, as a part of the price.
func (l *Line) Error() float64 { return 1 / math.Sqrt(float64(max(l.Samples, 1))) }

// Locks is how long the kernel had blocks of logs locked for writing, of an fsync.
type Locks struct {
	Fsyncs int     `json:"fsyncs"`
	Each   float64 `json:"locks_per_fsync"`
	HeldUs float64 `json:"held_us_per_fsync"`
	Waited float64 `json:"waited_us_per_fsync"`
}

// Result is a measurement.
type Result struct {
	Kernel  string  `json:"kernel"`
	Seconds float64 `json:"seconds_of_each_job"`
	Rounds  int     `json:"rounds"`
	Lines   []Line  `json:"prices"`
	Log     *Locks  `json:"log_tree_locks,omitempty"`
	// Flush is what the device took for a flush, in microseconds: the middle one of Flushes.
	FlushUs float64 `json:"flush_us,omitempty"`
	Flushes int     `json:"flushes,omitempty"`
}

// job is one of the jobs: a seed's, with some options changed.
type job struct {
	name  string
	seed  string
	size  int64 // of all files
	files int   // 0 is one NOCOW file that is written
	set   [][2]string
}

var jobs = []job{
	{name: "fsync", seed: seeds.Fsync, size: 256 << 20, files: 8},
	{name: "overwrite", seed: seeds.Overwrite, size: 256 << 20, set: [][2]string{{"iodepth", "1"}, {"ioengine", "psync"}, {"numjobs", "2"}}},
	{name: "direct", seed: seeds.NowaitDirect, size: 256 << 20},
}

// step is how a price of the table is measured.
type step struct {
	cost sched.Cost
	job  string
	in   []string // functions, one after the other by the kernel's version
	less []string // below them, what has a price of its own
	// events are the tracepoints that count it, in sum; bytes instead of them, the bytes that the
	// job has written.
	events []string
	bytes  bool
}

var (
	copies   = []string{"btrfs_force_cow_block", "__btrfs_cow_block"}
	locking  = []string{"btrfs_tree_lock_nested", "__btrfs_tree_lock", "btrfs_tree_read_lock_nested", "__btrfs_tree_read_lock", "btrfs_lock_root_node", "btrfs_read_lock_root_node"}
	bits     = []string{"btrfs_set_extent_bit", "set_extent_bit", "__set_extent_bit", "btrfs_clear_extent_bit_changeset", "__clear_extent_bit", "clear_extent_bit", "btrfs_lock_extent_bits", "lock_extent"}
	waking   = []string{"try_to_wake_up"}
	switches = []string{"__schedule"}
)

var steps = []step{
	{cost: cost.CopyBlock, job: "fsync", in: copies, less: slices.Concat(locking, waking, switches), events: []string{"btrfs:btrfs_cow_block"}},
	{cost: cost.CheckBlock, job: "fsync", in: []string{"btree_csum_one_bio", "csum_one_extent_buffer"}, events: []string{"btrfs:btrfs_cow_block"}},
	{cost: cost.Search, job: "fsync", in: []string{"btrfs_search_slot"}, less: slices.Concat(copies, locking, waking, switches),
		events: []string{"btrfs:btrfs_tree_lock", "btrfs:btrfs_tree_read_lock"}},
	{cost: cost.Ordered, job: "fsync", in: []string{"btrfs_finish_one_ordered", "btrfs_finish_ordered_io"}, less: slices.Concat([]string{"btrfs_search_slot"}, copies, bits, locking, waking, switches),
		events: []string{"btrfs:btrfs_ordered_extent_remove"}},
	{cost: cost.RangeTree, job: "overwrite", in: bits, less: slices.Concat(waking, switches), events: []string{"btrfs:btrfs_set_extent_bit", "btrfs:btrfs_clear_extent_bit"}},
	{cost: cost.Reserve, job: "fsync", in: []string{"btrfs_check_data_free_space", "btrfs_delalloc_reserve_metadata"}, less: slices.Concat(bits, waking, switches),
		events: []string{"btrfs:btrfs_set_extent_bit"}},
	{cost: cost.Copy, job: "overwrite", in: []string{"copy_folio_from_iter_atomic", "copy_page_from_iter_atomic"}, bytes: true},
	{cost: cost.Checksum, job: "fsync", in: []string{"btrfs_csum_one_bio", "csum_one_bio"}, bytes: true},
	{cost: cost.PageAlloc, job: "fsync", in: []string{"filemap_add_folio", "folio_alloc_noprof", "filemap_alloc_folio_noprof"}, events: []string{"filemap:mm_filemap_add_to_page_cache"}},
	{cost: cost.Submit, job: "direct", in: []string{"btrfs_submit_bbio", "btrfs_submit_bio"}, less: slices.Concat([]string{"btrfs_csum_one_bio"}, waking, switches), events: []string{"block:block_bio_queue"}},
	{cost: cost.Complete, job: "direct", in: []string{"bio_endio"}, less: slices.Concat(bits, waking, switches), events: []string{"block:block_bio_queue"}},
	{cost: cost.Wakeup, job: "fsync", in: waking, events: []string{"sched:sched_waking"}},
	{cost: cost.Switch, job: "fsync", in: switches, events: []string{"sched:sched_switch"}},
}

// Options says how to measure.
type Options struct {
	Dir string // of a mounted btrfs that nothing else uses, with room for some GiB
	// Seconds of each job in a round; 0 is DefaultSeconds. The kernel's buffer of samples holds no
	// more than 4.
	Seconds float64
	Rounds  int // 0 is DefaultRounds
	// Progress, if set, is called before each job.
	Progress func(done, of int)
}

// Defaults of Options: a minute.
const (
	DefaultSeconds = 3
	DefaultRounds  = 5
)

const hz = 1999 // samples a second: no multiple of the kernel's own clock

// Run measures, as a task of the real runtime. It needs root.
func Run(t *sched.Task, o Options) (*Result, error) {
	if o.Seconds == 0 {
		o.Seconds = DefaultSeconds
	}
	if o.Rounds == 0 {
		o.Rounds = DefaultRounds
	}
	var counted []string
	for i := range steps {
		for _, e := range steps[i].events {
			if !slices.Contains(counted, e) {
				counted = append(counted, e)
			}
		}
	}
	p, err := hostio.NewProfiler(hz, counted)
	if err != nil {
		return nil, err
	}
	defer p.Close()
	r := &Result{Kernel: hostio.Release(), Seconds: o.Seconds, Rounds: o.Rounds}
	seen := map[string]*measured{}
	for i := range jobs {
		m := &measured{}
		seen[jobs[i].name] = m
		for n := range o.Rounds {
			if o.Progress != nil {
				o.Progress(i*o.Rounds+n, len(jobs)*o.Rounds+1)
			}
			if err := m.run(t, o, &jobs[i], p.Start, func() error { return m.add(p.Stop()) }); err != nil {
				return nil, fmt.Errorf("job %s: %w", jobs[i].name, err)
			}
		}
	}
	def := cost.Default()
	for c := range def.Entries {
		r.Lines = append(r.Lines, line(sched.Cost(c), &def, seen, p))
	}
	return r, r.locks(t, o)
}

// line is the price of a cost.
func line(c sched.Cost, def *cost.Table, seen map[string]*measured, p *hostio.Profiler) Line {
	e := &def.Entries[c]
	l := Line{Name: e.Name, Unit: e.Unit, Model: e.Nano, Source: e.Source}
	i := slices.IndexFunc(steps, func(s step) bool { return s.cost == c })
	if i < 0 {
		l.Why = "no function and tracepoint of its own"
		return l
	}
	s := &steps[i]
	m := seen[s.job]
	have := p.Functions(s.in)
	by := strings.Join(s.events, " + ")
	if s.bytes {
		by, l.Count = "the bytes written", m.bytes
	}
	for _, ev := range s.events {
		l.Count += m.profile.Counts[ev]
	}
	l.Job, l.From = s.job, fmt.Sprintf("%s by %s", strings.Join(have, ", "), by)
	nanos, samples := m.profile.Within(s.in, s.less)
	switch l.Samples = samples; {
	case len(have) == 0:
		l.Why = "this kernel has no function of the name " + s.in[0]
	case l.Count == 0:
		l.Why = "nothing was counted by " + by
	case samples < 20:
		l.Why = fmt.Sprintf("%d samples are too few", samples)
	default:
		l.Linux = nanos / float64(l.Count)
	}
	return l
}

// measured is what the rounds of a job left.
type measured struct {
	profile hostio.Profile
	bytes   uint64
}

func (m *measured) add(p *hostio.Profile, err error) error {
	if err == nil {
		m.profile.Add(p)
	}
	return err
}

// run does a job; begin and end are called when it has its files, and when it is over.
func (m *measured) run(t *sched.Task, o Options, j *job, begin, end func() error) (err error) {
	d, err := linuxfile.Open(o.Dir, j.files == 0, nil)
	if err != nil {
		return err
	}
	if d.FileSystem() != "btrfs" {
		return fmt.Errorf("%s is on %s, want btrfs", o.Dir, d.FileSystem())
	}
	d.Files = j.files
	defer func() {
		if e := d.Close(); err == nil {
			err = e
		}
	}()
	if err := d.Prepare(t, j.size); err != nil {
		return err
	}
	s, err := d.Open(t, linuxfile.Row)
	if err != nil {
		return err
	}
	if j.files == 0 {
		if err := fill(t, s.File(), j.size); err != nil {
			return err
		}
	}
	jf, err := fio.Parse("seed-"+j.seed, strings.NewReader(seeds.Get(j.seed).Job))
	if err != nil {
		return err
	}
	size := "size"
	if jf.Jobs[0].FileSizeMax > 0 {
		size = "filesize"
	}
	jf, err = jf.With(append([][2]string{{size, fmt.Sprint(j.size / int64(max(j.files, 1)))}, {"runtime", fmt.Sprintf("%dms", int64(o.Seconds*1000))}, {"time_based", "1"}}, j.set...))
	if err != nil {
		return err
	}
	if err := begin(); err != nil {
		return err
	}
	res, err := fio.Run(t, jf, fio.Options{Open: experiment.Opener(s)})
	if e := end(); err == nil {
		err = e
	}
	if err != nil {
		return err
	}
	for _, x := range res.Jobs {
		m.bytes += uint64(x.Write.Bytes)
	}
	return s.Close(t)
}

// fill writes the file once, so that a job overwrites it.
func fill(t *sched.Task, f fio.Target, size int64) error {
	buf := make([]byte, 1<<20)
	for off := int64(0); off < size; off += int64(len(buf)) {
		if _, err := f.WriteAt(t, buf, off); err != nil {
			return err
		}
	}
	return f.Fsync(t)
}

// The tracepoints of the second pass.
const (
	lockEvent   = "btrfs:btrfs_tree_lock"
	unlockEvent = "btrfs:btrfs_tree_unlock"
	syncEvent   = "btrfs:btrfs_sync_file"
	issueEvent  = "block:block_rq_issue"
	endEvent    = "block:block_rq_complete"
)

// lockSeconds is short: each lock is an event, and the kernel's buffer holds some 40,000 of a CPU.
const lockSeconds = 0.5

// locks runs the job of fsyncs once more with an event for each lock of a tree block, and each
// request of the device.
func (r *Result) locks(t *sched.Task, o Options) error {
	x, err := hostio.NewTracer([]string{lockEvent, unlockEvent, syncEvent, issueEvent, endEvent})
	if err != nil {
		return err
	}
	defer x.Close()
	var records []hostio.TraceRecord
	o.Seconds = lockSeconds
	m := &measured{}
	if err := m.run(t, o, &jobs[0], x.Start, func() (err error) { records, err = x.Stop(); return err }); err != nil {
		return fmt.Errorf("job %s: %w", jobs[0].name, err)
	}
	r.Log, r.FlushUs, r.Flushes = held(records)
	return nil
}

// held adds up the locks of logs and finds the middle flush.
func held(records []hostio.TraceRecord) (l *Locks, flushUs float64, flushes int) {
	l = &Locks{}
	since := map[int64]uint64{} // by block
	sent := map[int64]uint64{}  // by device, which has one flush at a time
	var took []float64
	locks, nanos, waited := 0, uint64(0), uint64(0)
	for i := range records {
		e := &records[i]
		switch block := e.Int("block"); e.Name {
		case syncEvent:
			l.Fsyncs++
		case lockEvent:
			if e.Int("is_log_tree") != 0 {
				since[block] = e.Time
				waited += uint64(e.Int("diff_ns"))
			}
		case unlockEvent:
			if from, ok := since[block]; ok {
				delete(since, block)
				locks, nanos = locks+1, nanos+e.Time-from
			}
		case issueEvent, endEvent:
			dev := e.Int("dev")
			switch from, ok := sent[dev]; {
			case e.String("rwbs") != "FF":
			case e.Name == issueEvent:
				sent[dev] = e.Time
			case ok:
				delete(sent, dev)
				took = append(took, float64(e.Time-from)/1e3)
			}
		}
	}
	if l.Fsyncs > 0 {
		n := float64(l.Fsyncs)
		l.Each, l.HeldUs, l.Waited = float64(locks)/n, float64(nanos)/n/1e3, float64(waited)/n/1e3
	}
	return l, stats.Median(took), len(took)
}

// WriteText writes the table.
func (r *Result) WriteText(out io.Writer) error {
	var b strings.Builder
	say := func(format string, args ...any) {
		b.WriteString(prose.Wrap(fmt.Sprintf(format, args...), prose.Width) + "\n")
	}
	say("prices of Linux %s on this machine beside those of the model, in nanoseconds, from %d rounds of jobs of %g s:", r.Kernel, r.Rounds, r.Seconds)
	b.WriteByte('\n')
	table := [][]string{{"cost", "per", "model", "linux", "+-", "times", "job"}}
	for i := range r.Lines {
		if l := &r.Lines[i]; l.Linux > 0 {
			times := "-"
			if l.Model > 0 {
				times = fmt.Sprintf("%.2f", l.Linux/l.Model)
			}
			table = append(table, []string{l.Name, l.Unit, fmt.Sprintf("%.4g", l.Model), fmt.Sprintf("%.4g", l.Linux), fmt.Sprintf("%.0f %%", 100*l.Error()), times, l.Job})
		}
	}
	b.WriteString(prose.Table(2, table))
	b.WriteByte('\n')
	if l := r.Log; l != nil && l.Fsyncs > 0 {
		say("Blocks of logs were locked for writing %.1f times an fsync, for %.0f us in sum, and waited for %.0f us, in %d fsyncs of %g s with an event for each lock.",
			l.Each, l.HeldUs, l.Waited, l.Fsyncs, lockSeconds)
	}
	if r.Flushes > 0 {
		say("A flush took the device %.0f us, the middle one of %d.", r.FlushUs, r.Flushes)
	}
	b.WriteByte('\n')
	for i := range r.Lines {
		if l := &r.Lines[i]; l.Linux > 0 {
			say("%s: %d samples in %s: %s", l.Name, l.Samples, l.From, fmt.Sprintf("%d", l.Count))
		}
	}
	b.WriteByte('\n')
	say("Not measured on Linux, with the source of the model's price:")
	for i := range r.Lines {
		if l := &r.Lines[i]; l.Linux == 0 {
			say("%s: %s; %s", l.Name, l.Why, l.Source)
		}
	}
	_, err := io.WriteString(out, b.String())
	return err
}
