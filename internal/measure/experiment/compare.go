package experiment

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"runtime"
	"slices"
	"sort"
	"strings"
	"text/tabwriter"

	"btrlab/internal/draw"
	"btrlab/internal/measure/fio"
	"btrlab/internal/measure/stats"
	"btrlab/internal/prose"
	"btrlab/internal/sched"
)

var errStopped = errors.New("stopped")

// run is one policy in one round.
type run struct {
	opt    *Options
	rig    Rig
	c      *content
	done   int // runs before this one
	total  int
	round  int
	policy string
	name   string // of the row
}

func (r *run) progress(step string, share float64, ios uint64) {
	if r.opt.Progress == nil {
		return
	}
	// A run's time goes, about, to running, and then to reading back and checking.
	part := map[string][2]float64{"run": {0, 0.7}, "close": {0.7, 0.8}, "check": {0.8, 0.9}, "read back": {0.9, 1}}[step]
	at := part[0] + (part[1]-part[0])*share
	r.opt.Progress(Progress{Round: r.round, Rounds: r.opt.Rounds, Policy: r.name, Step: step, IOs: ios,
		Fraction: (float64(r.done) + at) / float64(r.total)})
}

func (o *Options) stopped() bool { return o.Stop != nil && o.Stop.Load() }

// fileSize is how long the test file has to be, in bytes: whole pages. block is how much of it is
// judged as one, a power of two.
func fileSize(jf *fio.JobFile) (size int64, block int, err error) {
	block = blockSize
	fits := func(n int64) bool {
		for block > minBlock && n%int64(block) != 0 {
			block /= 2
		}
		return n%int64(block) == 0
	}
	for _, j := range jf.Jobs {
		n := max(j.FileSizeMax, j.Offset+j.Size)
		if n == 0 {
			return 0, 0, fmt.Errorf("job %s: compare needs a size in bytes", j.Name)
		}
		for d, use := range [2]bool{j.Read, j.Write} {
			for _, b := range j.BS[d] {
				if use && !fits(int64(b.Size)) {
					return 0, 0, fmt.Errorf("job %s: compare needs blocks that are multiples of %d, have %d", j.Name, minBlock, b.Size)
				}
			}
		}
		if !fits(j.Offset) {
			return 0, 0, fmt.Errorf("job %s: compare needs an offset that is a multiple of %d, have %d", j.Name, minBlock, j.Offset)
		}
		if j.Verify {
			return 0, 0, fmt.Errorf("job %s: compare puts its own stamps into the blocks; leave verify out", j.Name)
		}
		size = max(size, n)
	}
	return (size + blockSize - 1) / blockSize * blockSize, block, nil
}

func compare(t *sched.Task, rig Rig, opt Options) (*Result, error) {
	size, block, err := opt.plan()
	if err != nil {
		return nil, err
	}
	total := opt.Rounds * (len(opt.Variants) + len(opt.Others))
	first := opt.Job.Jobs[0]
	res := &Result{Virtual: t.Runtime() != nil, Job: filepath.Base(opt.Job.Name), Device: opt.Device, Model: opt.Model, Runtime: first.Runtime.Seconds(),
		Baseline: opt.Variants[0].Name, Parameters: append(append([]stats.Option(nil), opt.Job.Global...), first.Options...)}
	for _, v := range opt.Variants {
		if v.Name == "locked" || v.Name == opt.Baseline {
			res.Baseline = v.Name
		}
	}
	rows, err := opt.rows(rig)
	if err != nil {
		return nil, err
	}
	contents := map[Rig]*content{} // of each rig's test file
	for _, row := range rows {
		c := contents[row.rig]
		if c == nil {
			if c = newContent(size, block); opt.NoPayload {
				c = &content{size: size, block: block}
			}
			contents[row.rig] = c
			if err := prepare(t, row, &opt, c); err != nil && !errors.Is(err, errStopped) {
				return nil, fmt.Errorf("prepare the test file: %w", err)
			}
		}
		row.c = c
	}
	done := 0
	for round := 1; round <= opt.Rounds && !opt.stopped(); round++ {
		for k := range rows {
			// Who comes first changes from round to round: whatever drifts, drifts for all.
			row := rows[(k+round-1)%len(rows)]
			r := &run{opt: &opt, rig: row.rig, c: row.c, done: done, total: total, round: round, policy: row.Policy, name: row.Name}
			if err := r.do(t, row); err != nil {
				return nil, fmt.Errorf("policy %s, round %d: %w", row.Name, round, err)
			}
			done++
			if opt.stopped() {
				break
			}
		}
		if !opt.stopped() {
			res.Rounds = round
		}
	}
	res.finish(rows, opt.Pairs)
	if j := opt.Job.Jobs[0]; !j.NoRandomMap && res.Rounds > 0 {
		res.Pass = float64(rows[0].bytes) / float64(size) / float64(res.Rounds)
	}
	if opt.stopped() { // a row that no run of has ended has no figures
		res.Rows = slices.DeleteFunc(res.Rows, func(row *Row) bool { return len(row.RoundIOPS) == 0 })
		res.Pairs = slices.DeleteFunc(res.Pairs, func(p PairRatio) bool { return p.Ratio == 0 })
	}
	return res, nil
}

// plan fills in what the options leave open and refuses what compare cannot tell apart. size is the
// size of the test file, or of all files, and block that of a write, in bytes.
func (opt *Options) plan() (size int64, block int, err error) {
	if opt.Rounds == 0 {
		opt.Rounds = DefaultRounds
	}
	if len(opt.Variants) == 0 {
		for _, p := range opt.Policies {
			opt.Variants = append(opt.Variants, Variant{Name: p, Policy: p})
		}
	}
	if len(opt.Variants) == 0 {
		return 0, 0, errors.New("no policy to compare")
	}
	tasks := opt.Job.Tasks()
	if tasks > maxWriters-1 {
		return 0, 0, fmt.Errorf("compare tells apart %d tasks, the job has %d", maxWriters-1, tasks)
	}
	if total := opt.Rounds * (len(opt.Variants) + len(opt.Others)); total > maxRuns {
		return 0, 0, fmt.Errorf("compare tells apart %d runs, have %d", maxRuns, total)
	}
	size, block, err = fileSize(opt.Job)
	if err != nil {
		return 0, 0, err
	}
	if opt.Files > 0 {
		for _, j := range opt.Job.Jobs {
			if tasks != opt.Files || j.Filenames != nil {
				return 0, 0, fmt.Errorf("job %s: each task needs a file of its own, have %d tasks, %d files and filename=%s", j.Name, tasks, opt.Files, j.Filename())
			}
		}
		size *= int64(opt.Files)
	}
	return size, block, nil
}

// rows are the rows of a comparison, in order: those on rig, then those on rigs of their own.
func (opt *Options) rows(rig Rig) (rows []*rowSum, err error) {
	for _, v := range opt.Variants {
		job, err := opt.Job.With(v.Set)
		if err != nil {
			return nil, fmt.Errorf("row %s: %w", v.Name, err)
		}
		rows = append(rows, &rowSum{Variant: v, job: job, clat: new(stats.Hist), rig: rig})
	}
	for _, o := range opt.Others {
		job, err := opt.Job.With(o.Set)
		if err != nil {
			return nil, fmt.Errorf("row %s: %w", o.Name, err)
		}
		rows = append(rows, &rowSum{Variant: Variant{Name: o.Name, About: o.About, Policy: cmp.Or(o.Open, o.Name)}, job: job, clat: new(stats.Hist), rig: o.Rig})
	}
	return rows, nil
}

func prepare(t *sched.Task, row *rowSum, opt *Options, c *content) error {
	if err := row.rig.Prepare(t, c.size); err != nil {
		return err
	}
	s, err := openRaw(t, row.rig, row.Policy)
	if err != nil {
		return err
	}
	err = c.fill(t, s.File(), func(share float64) error {
		if opt.Progress != nil {
			opt.Progress(Progress{Round: 0, Rounds: opt.Rounds, Step: "prepare", Fraction: 0})
		}
		if opt.stopped() {
			return errStopped
		}
		return nil
	})
	if cerr := s.Close(t); err == nil {
		err = cerr
	}
	return err
}

func openRaw(t *sched.Task, rig Rig, policy string) (Session, error) {
	if r, ok := rig.(RawOpener); ok {
		return r.OpenRaw(t, policy)
	}
	return rig.Open(t, policy)
}

// do is one run: the job under the policy, then the image closed and checked, then the file read
// back from the device by a new session.
func (r *run) do(t *sched.Task, row *rowSum) error {
	was := t.Policy
	t.Policy = r.policy // of the tasks that begin from here on
	defer func() { t.Policy = was }()
	s, err := r.rig.Open(t, r.policy)
	if err != nil {
		return err
	}
	r.c.begin(r.done + 1)
	// What the last run left in the heap must not be collected at this one's expense.
	runtime.GC()
	r.progress("run", 0, 0)
	res, err := fio.Run(t, row.job, fio.Options{
		Open:     Opener(s),
		Stamper:  r.stamper(),
		Progress: func(p fio.Progress) { r.progress("run", p.Fraction, p.IOs) },
		Stop:     r.opt.Stop,
		Began: func(now int64) {
			if r.opt.Began != nil {
				r.opt.Began(r.name, r.round, now)
			}
		},
		Ended: r.opt.Ended,
	})
	if n, ok := s.(Nowaiter); ok {
		again, tried := n.Again()
		row.again, row.tried = row.again+again, row.tried+tried
	}
	r.progress("close", 0, 0)
	if cerr := s.Close(t); err == nil {
		err = cerr
	}
	if err != nil {
		return err
	}
	if job, text, no := res.FirstError(); no != 0 {
		return fmt.Errorf("job %s: %s", job, text)
	}
	r.progress("check", 0, 0)
	found, err := r.rig.Check(t)
	if errors.Is(err, ErrUnchecked) {
		row.unchecked, err = true, nil
	}
	if err != nil {
		return fmt.Errorf("check: %w", err)
	}
	if r.opt.NoPayload {
		row.add(r, res, &findings{}, found)
		row.content = Unverified
		return nil
	}
	r.progress("read back", 0, 0)
	if s, err = openRaw(t, r.rig, r.policy); err != nil {
		return err
	}
	f, err := r.c.judge(t, s.File())
	if cerr := s.Close(t); err == nil {
		err = cerr
	}
	if err != nil {
		return err
	}
	row.add(r, res, f, found)
	return nil
}

// Opener opens the files of a run: the session's, or the next of its parts.
func Opener(s Session) func(*sched.Task, *fio.Job, string) (fio.Target, error) {
	p, ok := s.(Parts)
	next := 0
	return func(*sched.Task, *fio.Job, string) (fio.Target, error) {
		if !ok || len(p.Parts()) < 2 {
			return s.File(), nil
		}
		next++
		return p.Parts()[next-1], nil
	}
}

// stamper makes the stampers of the run's writers.
func (r *run) stamper() func(*fio.Job, int) fio.Stamper {
	if r.opt.NoPayload {
		return nil
	}
	return func(_ *fio.Job, task int) fio.Stamper {
		if n := int64(r.opt.Files); n > 0 {
			return shifted{r.c.newWriter(), int64(task) * r.c.size / n}
		}
		return r.c.newWriter()
	}
}

// shifted is a writer of one of several files.
type shifted struct {
	*writer
	by int64 // what lies before the file
}

// Stamp is fio.Stamper's.
func (w shifted) Stamp(p []byte, off int64) uint64 { return w.writer.Stamp(p, off+w.by) }

// rowSum adds up what a policy did.
type rowSum struct {
	Variant
	job            *fio.JobFile
	iops           []float64
	rounds         []Round
	clat           *stats.Hist
	waits          []stats.Wait
	nowait         *stats.Nowait
	log            *stats.Log
	ring           *stats.Ring
	taskNs         int64
	bytes          uint64 // moved in all rounds
	content, check string

	rig          Rig
	c            *content
	unchecked    bool
	again, tried uint64 // requests that were not to wait
}

func (s *rowSum) add(r *run, res *stats.Run, f *findings, found []string) {
	ios, ns := uint64(0), int64(0)
	var clat stats.Hist // of this round
	for _, j := range res.Jobs {
		n, bytes := j.Total()
		ios += n
		s.bytes += bytes
		ns = max(ns, j.Read.RunNs, j.Write.RunNs)
		s.taskNs += j.RunNs
		clat.Merge(&j.Write.Clat)
		clat.Merge(&j.Read.Clat)
		s.waits = stats.MergeWaits(s.waits, j.Waits)
		s.nowait = stats.MergeNowait(s.nowait, j.Nowait)
		s.ring = stats.MergeRing(s.ring, j.Ring)
		s.log = stats.MergeLog(s.log, j.Log)
	}
	s.clat.Merge(&clat)
	if ns > 0 && !r.opt.stopped() {
		s.iops = append(s.iops, float64(ios)*1e9/float64(ns))
		s.rounds = append(s.rounds, Round{ios, s.iops[len(s.iops)-1], clat.Percentile(99)})
	}
	note := func(have *string, what string) {
		if *have != "" {
			*have += "; "
		}
		*have += fmt.Sprintf("round %d: %s", r.round, what)
	}
	if v := f.String(); v != "ok" {
		note(&s.content, v)
	}
	if len(found) > 0 {
		what := found[0]
		if len(found) > 1 {
			what = fmt.Sprintf("%s (and %d more)", what, len(found)-1)
		}
		note(&s.check, what)
	}
}

// RunTime is " of 2s" for runs of two seconds, and nothing for runs that end with the work.
func (r *Result) RunTime(unit string) string {
	if r.Runtime == 0 {
		return ""
	}
	return fmt.Sprintf(" of %g%s", r.Runtime, unit)
}

func (r *Result) finish(rows []*rowSum, pairs [][2]string) {
	var base []float64
	for _, s := range rows {
		if s.Name == r.Baseline {
			base = s.iops
		}
	}
	for _, s := range rows {
		row := &Row{Policy: s.Name, Published: s.Published, PublishedMiB: s.PublishedMiB, About: s.About, IOPS: stats.Median(s.iops), RoundIOPS: s.iops, Rounds: s.rounds, Hist: s.clat, Content: "ok", Check: "clean",
			Clat: Clat{Mean: s.clat.Mean(), P50: s.clat.Percentile(50), P99: s.clat.Percentile(99), P999: s.clat.Percentile(99.9), Max: s.clat.Max()}}
		row.Versus = stats.Compare(s.iops, base)
		if s.Name == r.Baseline {
			row.Sure = nil
		}
		if !s.unchecked { // a file of the running kernel, whose locks nobody sees
			row.Waits = map[string]float64{}
		}
		for _, w := range s.waits {
			if row.Waits != nil && s.taskNs > 0 && w.Nanos > 0 {
				row.Waits[w.Class] = float64(w.Nanos) / float64(s.taskNs)
			}
		}
		if s.content != "" {
			row.Content = s.content
		}
		if s.check != "" {
			row.Check = s.check
		} else if s.unchecked {
			row.Check = Unchecked
		}
		row.Nowait, row.Ring, row.Log = s.nowait, s.ring, s.log
		if s.tried > 0 {
			share := float64(s.again) / float64(s.tried)
			row.Again = &share
		}
		r.Rows = append(r.Rows, row)
	}
	for _, p := range pairs {
		at := func(name string) *rowSum {
			return rows[slices.IndexFunc(rows, func(s *rowSum) bool { return s.Name == name })]
		}
		a, b := at(p[0]), at(p[1])
		x := PairRatio{Row: p[0], To: p[1], Versus: stats.Compare(a.iops, b.iops)}
		switch {
		case b.Published > 0:
			x.Published = a.Published / b.Published
		case b.PublishedMiB > 0:
			x.Published = a.PublishedMiB / b.PublishedMiB
		}
		r.Pairs = append(r.Pairs, x)
	}
}

// TopWaits lists the classes, at most most, that some policy waited for at least a thousandth of
// its time: those with the largest shares, in the order of the write path. Row.OtherWaits is the
// rest.
func (r *Result) TopWaits(most int) []string {
	order := []string{"i_rwsem", "range_lock", "dio_wait", "space_ticket", "balance_dirty", "ordered_extent", "page", "stable_page", "extent"}
	top := map[string]float64{}
	for _, row := range r.Rows {
		for c, v := range row.Waits {
			if v >= 0.001 {
				top[c] = max(top[c], v)
			}
		}
	}
	var out []string
	for c := range top {
		out = append(out, c)
	}
	sort.Slice(out, func(i, k int) bool {
		return top[out[i]] > top[out[k]] || top[out[i]] == top[out[k]] && out[i] < out[k]
	})
	out = out[:min(most, len(out))]
	rank := func(c string) int {
		if i := slices.Index(order, c); i >= 0 {
			return i
		}
		return len(order)
	}
	sort.Slice(out, func(i, k int) bool {
		a, b := rank(out[i]), rank(out[k])
		return a < b || a == b && out[i] < out[k]
	})
	return out
}

// Percent shows a share of the waits, "-" where they are not known.
func (row *Row) Percent(share float64) string {
	if row.Waits == nil {
		return "-"
	}
	return fmt.Sprintf("%.1f", 100*share)
}

// AllWaits is the share of the writers' time spent waiting for anything.
func (row *Row) AllWaits() float64 {
	sum := 0.0
	for _, v := range row.Waits {
		sum += v
	}
	return sum
}

// OtherWaits is AllWaits without the classes.
func (row *Row) OtherWaits(classes []string) float64 {
	sum := row.AllWaits()
	for _, c := range classes {
		sum -= row.Waits[c]
	}
	return max(0, sum)
}

// writePairs writes what the rows are, what was published of them, and the ratios of pairs.
func (r *Result) writePairs(b *strings.Builder) {
	for i, row := range r.Rows {
		if row.About == "" {
			continue
		}
		if i == 0 {
			b.WriteByte('\n')
		}
		fmt.Fprintf(b, "%s: %s", row.Policy, row.About)
		if row.Published > 0 {
			fmt.Fprintf(b, "; published %s iops", draw.Count(row.Published))
		}
		if row.PublishedMiB > 0 {
			fmt.Fprintf(b, "; published %s MiB/s", draw.Count(row.PublishedMiB))
		}
		b.WriteByte('\n')
	}
	for i, p := range r.Pairs {
		if i == 0 {
			b.WriteByte('\n')
		}
		fmt.Fprintf(b, "%s / %s: %.2f (%.2f-%.2f)", p.Row, p.To, p.Ratio, p.RatioMin, p.RatioMax)
		if p.Published > 0 {
			fmt.Fprintf(b, ", published %.2f", p.Published)
		}
		b.WriteByte('\n')
	}
}

// NowaitHead and NowaitCosts are the table of what requests cost that were tried without waiting:
// averages of a request by the patch of seed 000 that took them away, sleeps, and the percentage
// that answered EAGAIN. It is empty when no row has such ones.
var NowaitHead = []string{"policy", "D0: pages flushed", "D1: range waited for", "D2: tree searches", "D3: paths for references", "D4: paths kept",
	"D5: steps with a leaf held", "D6: memory waited for", "D7: space flushed for", "sleeps", "EAGAIN, percent"}

// NowaitAbout says what the columns are, where their heads are short.
const NowaitAbout = "averages of a request that was tried without waiting, by the patch that took them away: pages flushed (D0), waits for the range (D1), tree " +
	"searches (D2), paths for the search of other references (D3), paths kept beside another (D4), steps with a leaf locked for nothing (D5), steps that wait for memory " +
	"(D6), and that flush to reserve space (D7); then sleeps, and EAGAIN in percent"

// NowaitCosts is that table.
func (r *Result) NowaitCosts() (list [][]string) {
	for _, row := range r.Rows {
		if n := row.Nowait; n != nil && n.Tried > 0 {
			list = append(list, append([]string{row.Policy}, NowaitCells(n)...))
		}
	}
	return list
}

// NowaitCells are the cells of a row of that table.
func NowaitCells(n *stats.Nowait) (cells []string) {
	for _, c := range []sched.Counter{sched.CountPageFlush, sched.CountRangeWait, sched.CountSearches, sched.CountOwnPath, sched.CountKeptPath, sched.CountLeafHeld,
		sched.CountMemoryWait, sched.CountReserveFlush} {
		cells = append(cells, fmt.Sprintf("%.2f", n.Each(c.String())))
	}
	return append(cells, fmt.Sprintf("%.4f", n.SleepsEach()), fmt.Sprintf("%.2f", 100*n.Punted()))
}

// NowaitShort are the heads of those cells in text.
var NowaitShort = []string{"D0", "D1", "D2", "D3", "D4", "D5", "D6", "D7", "slept", "EAGAIN"}

// writeCosts writes the table of NowaitCosts, under shorter heads.
func (r *Result) writeCosts(b *strings.Builder) {
	if list := r.NowaitCosts(); len(list) > 0 {
		b.WriteString("\n" + prose.Wrap(NowaitAbout, prose.Width) + "\n\n")
		b.WriteString(prose.Table(1, append([][]string{append([]string{"policy"}, NowaitShort...)}, list...)))
	}
}

// LogHead and LogCosts are the table of what fsyncs cost that went to a log: averages of an fsync.
// It is empty when no row has such ones.
var LogHead = []string{"policy", "search", "COW", "moved", "blocks", "super", "log", "steps", "1", "2", "held", "1", "2"}

// LogCosts is that table.
func (r *Result) LogCosts() (list [][]string) {
	for _, row := range r.Rows {
		if row.Log != nil {
			list = append(list, append([]string{row.Policy}, LogCells(row.Log)...))
		}
	}
	return list
}

// LogCells are the cells of a row of that table.
func LogCells(l *stats.Log) []string {
	each := func(c sched.LogCounter) string { return fmt.Sprintf("%.2f", l.Each(c.String())) }
	kib := func(c sched.LogCounter) string { return fmt.Sprintf("%.1fK", l.Each(c.String())/1024) }
	line := []string{each(sched.LogSearches), each(sched.LogCOWed), kib(sched.LogShifted), each(sched.LogBlocks), each(sched.LogSupers), kib(sched.LogBytes)}
	for level := range 3 {
		line = append(line, fmt.Sprintf("%.1f", l.StepsEach(level)))
	}
	for level := range 3 {
		line = append(line, draw.Nanos(l.HeldEach(level)))
	}
	return line
}

// LogAbout says what the table is.
const LogAbout = "an fsync that went to a log: searches, leaves copied, bytes moved in leaves, blocks, superblocks and bytes written; and by level of the " +
	"tree, 0 to 2 from the leaves on, steps with the write lock held, and how long it was held"

// writeLogs writes the table of LogCosts.
func (r *Result) writeLogs(b *strings.Builder) {
	if list := r.LogCosts(); len(list) > 0 {
		fmt.Fprintf(b, "\n%s\n\n", prose.Wrap(LogAbout, prose.Width))
		b.WriteString(prose.Table(1, append([][]string{LogHead}, list...)))
	}
}

// imageWord is what became of the row's image, in a word.
func (r *Row) imageWord() string {
	read, checked := r.Content != Unverified, r.Check != Unchecked
	switch {
	case read && r.Content != "ok" || checked && r.Check != "clean":
		return "WRONG"
	case read || checked:
		return "ok"
	}
	return "-"
}

func (r *Result) writeText(out io.Writer) error {
	var b strings.Builder
	model := r.Model
	if model == "" {
		model = "none"
	}
	fmt.Fprintf(&b, "job %s, device %s, model %s, %s%s\n", r.Job, r.Device, model, prose.Count(r.Rounds, "round"), r.RunTime("s"))
	fmt.Fprintf(&b, "%s\n\n", prose.Wrap("ratio is of iops to "+r.Baseline+", latencies are clat, image says whether it is clean and reads back as it was written", prose.Width))
	w := tabwriter.NewWriter(&b, 0, 0, 1, ' ', tabwriter.AlignRight) // of 80 columns
	fmt.Fprintln(w, "policy\tiops\tratio\tmin-max\tmean\tp50\tp99\tp99.9\tmax\timage\t")
	for _, row := range r.Rows {
		c := row.Clat
		fmt.Fprintf(w, "%s\t%s\t%.2f\t%.2f-%.2f\t%s\t%s\t%s\t%s\t%s\t%s\t\n", row.Policy, draw.Count(row.IOPS), row.Ratio, row.RatioMin, row.RatioMax,
			draw.Nanos(c.Mean), draw.Nanos(float64(c.P50)), draw.Nanos(float64(c.P99)), draw.Nanos(float64(c.P999)), draw.Nanos(float64(c.Max)),
			row.imageWord())
	}
	w.Flush()
	r.writePairs(&b)
	classes := r.TopWaits(8)
	if len(classes) > 0 {
		b.WriteString("\nshare of the writers' time spent waiting, in percent\n\n")
		line := func(name string, share func(row *Row) float64) {
			fmt.Fprintf(w, "%s\t", name)
			for _, row := range r.Rows {
				fmt.Fprintf(w, "%s\t", row.Percent(share(row)))
			}
			fmt.Fprintln(w)
		}
		fmt.Fprint(w, "\t")
		for _, row := range r.Rows {
			fmt.Fprintf(w, "%s\t", row.Policy)
		}
		fmt.Fprintln(w)
		for _, c := range classes {
			line(c, func(row *Row) float64 { return row.Waits[c] })
		}
		line("other", func(row *Row) float64 { return row.OtherWaits(classes) })
		line("all waits", (*Row).AllWaits)
		w.Flush()
	}
	r.writeCosts(&b)
	r.writeLogs(&b)
	for _, row := range r.Rows {
		if row.Content != "ok" && row.Content != Unverified {
			fmt.Fprintf(&b, "\n%s: content: %s\n", row.Policy, row.Content)
		}
		if row.Check != "clean" && row.Check != Unchecked {
			fmt.Fprintf(&b, "\n%s: check: %s\n", row.Policy, row.Check)
		}
	}
	for _, row := range r.Rows {
		if row.Again != nil {
			fmt.Fprintf(&b, "\n%s: RWF_NOWAIT answered EAGAIN to %.1f %% of the requests\n", row.Policy, 100**row.Again)
		}
		if row.Ring != nil {
			fmt.Fprintf(&b, "\n%s\n", prose.Wrap(row.Policy+": "+row.Ring.String(), prose.Width))
		}
		if n := row.Nowait; n != nil {
			for _, k := range stats.Most(n.Again) {
				fmt.Fprintf(&b, "%s: %d EAGAIN at %s\n", row.Policy, n.Again[k], k)
			}
			for _, k := range stats.Most(n.Slept) {
				fmt.Fprintf(&b, "%s: slept %d times under NOWAIT: %s\n", row.Policy, n.Slept[k], k)
			}
		}
	}
	if len(r.Rows) > 0 && r.Rows[0].Content == Unverified {
		b.WriteString("\ncontent not verified: no file data was kept\n")
	}
	r.writeConclusion(&b)
	_, err := io.WriteString(out, b.String())
	return err
}
