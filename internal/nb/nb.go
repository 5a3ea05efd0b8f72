// Package nb is what notebooks see of btrlab: a façade whose values show themselves as tables and
// pictures. Cells are interpreted Go of about 1.13, slow and without generics, so everything that
// is measured runs here, compiled, and every run is bounded here: an interrupt does not stop a
// cell.
//
// A displayed value has SimpleRender, which the notebook kernel asks for; this package imports
// nothing of it.
package nb

import (
	"cmp"
	"fmt"
	"html"
	"slices"
	"strings"

	"btrlab/internal/draw"
	"btrlab/internal/measure/experiment"
	"btrlab/internal/measure/fio"
	"btrlab/internal/measure/rig"
	"btrlab/internal/measure/seeds"
	"btrlab/internal/measure/stats"
	"btrlab/internal/policy"
	"btrlab/internal/sched"
)

// Bounds of Options.
const (
	MaxSeconds = 10.0 // of one run
	MaxRounds  = 10
)

// Options says what to run; the zero value is seed 002's job under every policy on an image in
// memory.
type Options struct {
	// whose job: one that runs under any policy, "002" (default), or "003", whose writers have a
	// file each and fsync after each write
	Seed     string
	Policies []string // default: every preset
	Model    string   // device model: "none" (default), "nvme", "ssd-raid5", "hdd"
	Device   string   // image file; default: a fresh image in memory
	Rounds   int      // default 2, at most MaxRounds
	Seconds  float64  // of each run; default 1, at most MaxSeconds
	FileMiB  int      // size of the test file; default 256, and 8 for each of seed 003's
	Writers  int      // default: the job's 8
	// 0: the real machine; otherwise virtual time on so many CPUs, at most MaxCPUs, which gives the
	// same every time
	CPUs     int
	DirtyMiB int      // dirty data at which writers are throttled; default an eighth of the file
	Set      []string // further options of the job, as key=value
}

func (o *Options) complete() error {
	if len(o.Policies) == 0 {
		o.Policies = policy.Names()
	}
	for _, p := range o.Policies {
		if _, err := policy.Parse(p); err != nil {
			return err
		}
	}
	if o.Rounds == 0 {
		o.Rounds = 2
	}
	if o.Seconds == 0 {
		o.Seconds = 1
	}
	seed, err := o.seed()
	if err != nil {
		return err
	}
	if seed.Files > 0 && o.FileMiB == 0 {
		o.FileMiB = 8
	}
	if o.FileMiB == 0 {
		o.FileMiB = experiment.DefaultFileSize >> 20
	}
	if o.Rounds < 1 || o.Rounds > MaxRounds {
		return fmt.Errorf("rounds %d, want 1 to %d", o.Rounds, MaxRounds)
	}
	if o.Seconds < 0 || o.Seconds > MaxSeconds {
		return fmt.Errorf("seconds %g, want at most %g", o.Seconds, MaxSeconds)
	}
	if o.CPUs < 0 || o.CPUs > MaxCPUs {
		return fmt.Errorf("cpus %d, want at most %d", o.CPUs, MaxCPUs)
	}
	return nil
}

// seed is the one whose job is run.
func (o *Options) seed() (*seeds.Seed, error) {
	var names []string
	for _, s := range seeds.All() {
		if s.AnyPolicy && s.Name == cmp.Or(o.Seed, seeds.Default) {
			return s, nil
		}
		if s.AnyPolicy {
			names = append(names, s.Name)
		}
	}
	return nil, fmt.Errorf("seed %q, want %s", o.Seed, strings.Join(names, " or "))
}

func (o *Options) job() (*fio.JobFile, error) {
	seed := seeds.Get(cmp.Or(o.Seed, seeds.Default))
	jf, err := fio.Parse("seed-"+seed.Name, strings.NewReader(seed.Job))
	if err != nil {
		return nil, err
	}
	size := "size"
	if seed.Files > 0 {
		size = "filesize"
	}
	set := []string{fmt.Sprintf("%s=%dM", size, o.FileMiB), fmt.Sprintf("runtime=%dms", int64(o.Seconds*1000))}
	if o.Writers > 0 {
		set = append(set, fmt.Sprintf("numjobs=%d", o.Writers))
	}
	for _, kv := range append(set, o.Set...) {
		key, val, _ := strings.Cut(kv, "=")
		if err := jf.Set(key, val); err != nil {
			return nil, err
		}
	}
	return jf, nil
}

// Policies lists policies with what they are: those named, or every preset.
func Policies(names ...string) (Table, error) {
	t := Table{Caption: "Policies", Head: []string{"policy", "what it is", "toggles"}}
	if len(names) == 0 {
		names = policy.Names()
	}
	for _, name := range names {
		p, err := policy.Parse(name)
		if err != nil {
			return t, err
		}
		t.Rows = append(t.Rows, []string{p.Name, p.About, strings.Join(p.On(), " ")})
	}
	return t, nil
}

// Comparison is a finished comparison.
type Comparison struct {
	res *experiment.Result
}

// Compare runs the job under each policy in alternating rounds. It takes about
// policies x rounds x (seconds + 0.3) seconds.
func Compare(o Options) (*Comparison, error) {
	if err := o.complete(); err != nil {
		return nil, err
	}
	jf, err := o.job()
	if err != nil {
		return nil, err
	}
	var c *Comparison
	run := func(t *sched.Task) (err error) {
		c, err = compare(t, &o, jf)
		return err
	}
	if o.CPUs > 0 {
		err = simulate(o.CPUs, run)
	} else {
		err = run(sched.NewTask("notebook"))
	}
	if err != nil {
		return nil, err
	}
	return c, nil
}

func compare(t *sched.Task, o *Options, jf *fio.JobFile) (*Comparison, error) {
	dirty, files := int64(o.DirtyMiB)<<20, 0
	if seed, err := o.seed(); err != nil {
		return nil, err
	} else if seed.Files > 0 {
		files = jf.Jobs[0].NumJobs
	}
	l, err := rig.Open(t, rig.Config{Device: o.Device, Model: o.Model, DirtyBackground: dirty / 2, DirtyLimit: dirty, Files: files})
	if err != nil {
		return nil, err
	}
	res, err := experiment.Compare(t, l, experiment.Options{
		Job: jf, Policies: o.Policies, Rounds: o.Rounds, Device: l.DeviceName(), Model: l.ModelName(), Files: files,
	})
	if cerr := l.Close(); err == nil {
		err = cerr
	}
	return &Comparison{res}, err
}

// OK reports whether every block read back right and every image checked clean.
func (c *Comparison) OK() bool { return c.res.OK() }

// IOPS is the median iops of a policy over the rounds, 0 when it was not compared.
func (c *Comparison) IOPS(policy string) float64 {
	for _, r := range c.res.Rows {
		if r.Policy == policy {
			return r.IOPS
		}
	}
	return 0
}

// Waiting is the percent of the writers' time that a policy's waited for a lock or event by its
// class, as WaitTable has it; 0 when it was not compared.
func (c *Comparison) Waiting(policy, class string) float64 {
	for _, r := range c.res.Rows {
		if r.Policy == policy {
			return 100 * r.Waits[class]
		}
	}
	return 0
}

// Table has a row per policy.
func (c *Comparison) Table() Table {
	t := Table{
		Caption: fmt.Sprintf("%s on %s, model %s, %d rounds of %g s; ratios are to %s in the same round", c.res.Job, c.res.Device,
			c.res.Model, c.res.Rounds, c.res.Runtime, c.res.Baseline),
		Head: []string{"policy", "iops", "ratio", "min..max", "clat mean", "p50", "p99", "p99.9", "max", "content", "image"},
	}
	for _, r := range c.res.Rows {
		t.Rows = append(t.Rows, []string{r.Policy, draw.Count(r.IOPS), fmt.Sprintf("%.2f", r.Ratio),
			fmt.Sprintf("%.2f..%.2f", r.RatioMin, r.RatioMax), ns(int64(r.Clat.Mean)), ns(r.Clat.P50), ns(r.Clat.P99),
			ns(r.Clat.P999), ns(r.Clat.Max), r.Content, r.Check})
	}
	return t
}

// WaitTable shows the share of the writers' time spent waiting, by lock class.
func (c *Comparison) WaitTable() Table {
	classes := c.res.TopWaits(10)
	t := Table{Caption: "Share of the writers' time spent waiting, percent", Head: append([]string{"policy"}, classes...)}
	for _, r := range c.res.Rows {
		row := []string{r.Policy}
		for _, class := range classes {
			row = append(row, r.Percent(r.Waits[class]))
		}
		t.Rows = append(t.Rows, row)
	}
	return t
}

// CostTable shows what requests cost that were tried without waiting: averages of a request, and
// the percentage that answered EAGAIN.
func (c *Comparison) CostTable() Table {
	return Table{Caption: "A request that was tried without waiting", Head: experiment.NowaitHead, Rows: c.res.NowaitCosts()}
}

// LogTable shows what an fsync that went to a log cost in its tree, on average: steps are those
// with the write lock of a level held.
func (c *Comparison) LogTable() Table {
	return Table{Caption: experiment.LogAbout, Head: experiment.LogHead, Rows: c.res.LogCosts()}
}

// LogSteps and LogHeld are, of an fsync of a policy that went to a log, the steps with the write
// lock of a level held and the nanoseconds that it was held, by level from the leaves on. They are
// 0 when none went to a log.
func (c *Comparison) LogSteps(policy string, level int) float64 {
	if l := c.log(policy); l != nil && level >= 0 && level < len(l.Steps) {
		return l.StepsEach(level)
	}
	return 0
}

// LogHeld: see LogSteps.
func (c *Comparison) LogHeld(policy string, level int) float64 {
	if l := c.log(policy); l != nil && level >= 0 && level < len(l.HeldNs) {
		return l.HeldEach(level)
	}
	return 0
}

func (c *Comparison) log(policy string) *stats.Log {
	for _, r := range c.res.Rows {
		if r.Policy == policy {
			return r.Log
		}
	}
	return nil
}

func ns(n int64) string { return draw.Nanos(float64(n)) }

// Table shows itself as an HTML table, and as text.
type Table struct {
	Caption string
	Head    []string
	Rows    [][]string
}

// SimpleRender is what the notebook kernel asks for.
func (t Table) SimpleRender() map[string]interface{} {
	return map[string]interface{}{"text/html": t.HTML(), "text/plain": t.String()}
}

// HTML is the table with its caption. It scrolls where it is wider than the page; columns of words
// stand left and columns of numbers right, which Jupyter would all set right.
func (t Table) HTML() string {
	var b strings.Builder
	styles := make([]string, len(t.Head))
	for i := range t.Head {
		styles[i] = "text-align:right;vertical-align:top;white-space:nowrap"
		if t.words(i) {
			styles[i] = "text-align:left;vertical-align:top"
			if t.sentences(i) {
				styles[i] += ";min-width:12em" // beside a wide column it would have a word a line
			}
		}
	}
	row := func(tag string, cells []string) {
		b.WriteString("<tr>")
		for i, c := range cells {
			fmt.Fprintf(&b, `<%s style="%s">%s</%s>`, tag, styles[min(i, len(styles)-1)], html.EscapeString(c), tag)
		}
		b.WriteString("</tr>")
	}
	fmt.Fprintf(&b, `<div style="overflow-x:auto"><table><caption style="text-align:left">%s</caption><thead>`, html.EscapeString(t.Caption))
	row("th", t.Head)
	b.WriteString("</thead><tbody>")
	for _, r := range t.Rows {
		row("td", r)
	}
	b.WriteString("</tbody></table></div>")
	return b.String()
}

// words reports whether a column has words: something that begins with a letter.
func (t Table) words(column int) bool {
	for _, r := range t.Rows {
		if column < len(r) && r[column] != "" && !strings.ContainsRune("0123456789+-.", rune(r[column][0])) {
			return true
		}
	}
	return len(t.Rows) == 0
}

// sentences reports whether a column of words has a long cell.
func (t Table) sentences(column int) bool {
	return slices.ContainsFunc(t.Rows, func(r []string) bool { return column < len(r) && len(r[column]) > 24 })
}

// String is the table in columns.
func (t Table) String() string {
	width := make([]int, len(t.Head))
	for _, r := range append([][]string{t.Head}, t.Rows...) {
		for i, c := range r {
			width[i] = max(width[i], len(c))
		}
	}
	var b strings.Builder
	b.WriteString(t.Caption)
	for _, r := range append([][]string{t.Head}, t.Rows...) {
		b.WriteByte('\n')
		for i, c := range r {
			fmt.Fprintf(&b, "%-*s  ", width[i], c)
		}
	}
	return b.String()
}
