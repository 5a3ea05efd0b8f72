package reproduce

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"btrlab/internal/draw"
	"btrlab/internal/measure/experiment"
	"btrlab/internal/measure/seeds"
	"btrlab/internal/measure/stats"
	"btrlab/internal/prose"
	"btrlab/internal/sched"
)

// line is one figure of a row.
type line struct {
	name      string
	pub, sim  float64
	microSecs bool
}

// lines are the figures that were published of the row.
func (row *Row) lines() (list []line) {
	p, s := &row.Published, &row.Simulated
	all := []line{{name: "iops", pub: p.IOPS, sim: s.IOPS}, {name: "clat avg", pub: p.ClatMean, sim: s.ClatMean, microSecs: true},
		{name: "read", pub: p.Read, sim: s.Read}, {name: "write", pub: p.Write, sim: s.Write}}
	if p, s := p.Latency, s.Latency; p != nil {
		all = append(all, line{"lat min", p.Min, s.Min, true}, line{"lat avg", p.Mean, s.Mean, true}, line{"lat stdev", p.Stdev, s.Stdev, true},
			line{"lat max", p.Max, s.Max, true})
		for i, q := range seeds.Percentiles {
			all = append(all, line{fmt.Sprintf("clat p%g", q), p.Clat[i], s.Clat[i], true})
		}
	}
	for _, l := range all {
		if l.pub > 0 {
			list = append(list, l)
		}
	}
	return list
}

func (l *line) show(v float64) string {
	if l.microSecs {
		return draw.Nanos(v * 1000)
	}
	return draw.Count(v)
}

func (l *line) percent() string { return fmt.Sprintf("%+.1f%%", 100*relative(l.sim, l.pub)) }

// distributions says that the distributions of latencies were published.
func (r *Result) distributions() bool { return r.Rows[0].Published.Latency != nil }

// WriteText writes the rows, each with what was published of it.
func (r *Result) WriteText(out io.Writer) error {
	var b strings.Builder
	say := func(format string, args ...any) {
		b.WriteString(prose.Wrap(fmt.Sprintf(format, args...), prose.Width) + "\n")
	}
	say("seed %s: %s, file of %.4g GiB, %s; content %s", r.Seed, r.Job, float64(r.Size)/(1<<30), r.long(), r.Content)
	b.WriteByte('\n')
	switch {
	case len(r.published()) == 0:
	case r.distributions():
		say("The published rows, each followed by its simulation:")
		b.WriteString("\n" + prose.Table(2, r.sideBySide()) + "\n")
	default:
		if r.Rows[0].Published.Write > 0 {
			say("throughput in MiB/s:")
			b.WriteByte('\n')
		}
		b.WriteString(prose.Table(1, r.oneByOne()) + "\n")
	}
	if table := r.gains(); len(table) > 0 {
		b.WriteString(prose.Table(1, table) + "\n")
	}
	fmt.Fprintf(&b, "%s\n\n", r.ratio())
	if text := r.drainText(); text != "" {
		say("%s", text)
		b.WriteByte('\n')
	}
	if r.distributions() {
		say("%s", ranksAbout)
		b.WriteByte('\n')
		b.WriteString(prose.Table(2, r.ranks()))
		b.WriteByte('\n')
		for _, row := range r.published() {
			say("%s", row.machine())
		}
		b.WriteByte('\n')
	}
	if about, table := r.ablation(); len(table) > 0 {
		say("%s", about)
		b.WriteByte('\n')
		b.WriteString(prose.Table(1, table))
		b.WriteByte('\n')
		for _, about := range r.abouts() {
			say("%s", about)
		}
		b.WriteByte('\n')
	}
	say("%s", r.Rests)
	cal, err := json.MarshalIndent(r.Calibration, "", "  ")
	if err != nil {
		return err
	}
	misfit := ""
	if r.Misfit != nil {
		misfit = fmt.Sprintf(", misfit of the %s row %.2f", r.Rows[0].Name, *r.Misfit)
	}
	fmt.Fprintf(&b, "\ncalibration%s: %s\n", misfit, cal)
	_, err = io.WriteString(out, b.String())
	return err
}

// long says how long a row ran.
func (r *Result) long() string {
	if r.Seconds == 0 {
		return "written once"
	}
	return fmt.Sprintf("%g virtual seconds", r.Seconds)
}

// ratio is the sentence of Ratio.
func (r *Result) ratio() string {
	x := &r.Ratio
	if x.Published == 0 {
		return fmt.Sprintf("%s / %s: simulated %.3f", x.Of, x.To, x.Simulated)
	}
	return fmt.Sprintf("%s / %s: published %.3f, simulated %.3f, error %+.1f%%", x.Of, x.To, x.Published, x.Simulated, 100*x.Error)
}

// gains is the table of an experiment with two rows for each job: before, after, and what was
// gained. Empty for others.
func (r *Result) gains() (table [][]string) {
	at := map[string]*Row{}
	for _, x := range r.Rows {
		at[x.Name] = x
		before := at[x.Over]
		if x.Over == "" || before == nil {
			continue
		}
		a, b := before.Simulated.Write, x.Simulated.Write
		table = append(table, []string{strings.TrimSuffix(x.Over, " before"), fmt.Sprintf("%.1f", a), fmt.Sprintf("%.1f", b), fmt.Sprintf("%+.1f%%", 100*(b/a-1))})
	}
	if len(table) > 0 {
		table = slices.Insert(table, 0, []string{"job", "before", "after", "gain"})
	}
	return table
}

// oneByOne is the table of rows of which few figures were published: a line for each.
func (r *Result) oneByOne() (table [][]string) {
	head := []string{"row", "role"}
	for _, l := range r.Rows[0].lines() {
		head = append(head, l.name, "simulated", "error")
	}
	table = append(table, head)
	for _, x := range r.published() {
		list := x.lines()
		role, _, _ := strings.Cut(x.Role, " ")
		cells := []string{x.Name, role}
		for _, l := range list {
			cells = append(cells, l.show(l.pub), l.show(l.sim), l.percent())
		}
		table = append(table, cells)
	}
	return table
}

// sideBySide is the table of rows of which a distribution was published: a line for each figure.
func (r *Result) sideBySide() (table [][]string) {
	var head []string
	rows := r.published()
	for _, row := range rows {
		role, _, _ := strings.Cut(row.Role, " ")
		head = append(head, "", row.Name, role, "error")
	}
	table = append(table, head)
	for i := range r.Rows[0].lines() {
		var cells []string
		for k, row := range rows {
			l := row.lines()[i]
			if k > 0 {
				l.name = ""
			}
			cells = append(cells, l.name, l.show(l.pub), l.show(l.sim), l.percent())
		}
		table = append(table, cells)
	}
	return table
}

// machine says what the simulated machine did in a row.
func (row *Row) machine() string {
	var waits []string
	for _, c := range sortedWaits(row.Waits) {
		waits = append(waits, fmt.Sprintf("%s %.1f%% (%.3g for each write)", c, 100*row.Waits[c], row.Met[c]))
	}
	now := float64(max(row.Stats.Now, 1))
	return fmt.Sprintf("%s: %s writes; CPUs busy %.1f, spinning %.1f of them; %s locks stolen; time waited: %s", row.Name, draw.Count(float64(row.Writes)),
		float64(row.Stats.CPUBusy)/now, float64(row.Stats.Spun)/now, draw.Count(float64(row.Stats.Stolen)), strings.Join(waits, ", "))
}

const ranksAbout = "Which percentile of ours each published latency is: where a distribution has a step, few requests move a percentile far, and this " +
	"says how few."

// ranks is the table of Row.Ranks, as far as it fits.
func (r *Result) ranks() [][]string {
	rows := r.published()
	table := make([][]string, 1+len(rows))
	table[0] = []string{"published"}
	for i, row := range rows {
		table[1+i] = []string{row.Name}
	}
	for k, q := range seeds.Percentiles {
		if q < 10 || q > 99 {
			continue
		}
		table[0] = append(table[0], fmt.Sprintf("p%g", q))
		for i, row := range rows {
			table[1+i] = append(table[1+i], fmt.Sprintf("%.1f", row.Ranks[k]))
		}
	}
	return table
}

// sortedWaits are the classes, what took longest first.
func sortedWaits(m map[string]float64) []string {
	return slices.SortedFunc(maps.Keys(m), func(a, b string) int {
		return cmp.Or(cmp.Compare(m[b], m[a]), strings.Compare(a, b))
	})
}

// adds is Contributes in percent.
func (row *Row) adds() string {
	if row.Contributes == nil {
		return ""
	}
	return fmt.Sprintf("%+.1f", 100**row.Contributes)
}

const patchesAbout = "What a patch adds to the throughput, in percent of the first row: the row with all of them less the row without it. Then " + experiment.NowaitAbout + "."

// ablation is the table of a study with ablations: its head, and a line for each row. Where iops
// were published the rows are other designs and choices, not patches, and the table has what part
// of the predicted figure each has.
func (r *Result) ablation() (about string, table [][]string) {
	has := func(f func(x *Row) bool) bool { return slices.ContainsFunc(r.Rows, f) }
	if !has(func(x *Row) bool { return x.Contributes != nil }) {
		return "", nil
	}
	if has(func(x *Row) bool { return x.Log != nil }) {
		return logsAbout, r.logTable()
	}
	if r.distributions() {
		return waitsAbout, r.waitsTable()
	}
	if r.Rows[0].Published.IOPS > 0 {
		table = append(table, []string{"row", "iops", "of " + r.Ratio.Of})
		of := r.Rows[slices.IndexFunc(r.Rows, func(x *Row) bool { return x.Name == r.Ratio.Of })]
		for _, x := range r.Rows {
			table = append(table, []string{x.Name, draw.Count(x.Simulated.IOPS), fmt.Sprintf("%.3f", x.Simulated.IOPS/of.Simulated.IOPS)})
		}
		return "What other designs, and other choices for the machine, make of the predicted row:", table
	}
	table = append(table, append([]string{"row", "MiB/s", "adds"}, experiment.NowaitShort...))
	for _, x := range r.Rows {
		n := x.Nowait
		if n == nil {
			n = stats.NewNowait()
		}
		table = append(table, append([]string{x.Name, draw.Count(x.Simulated.Read + x.Simulated.Write), x.adds()}, experiment.NowaitCells(n)...))
	}
	return patchesAbout, table
}

const waitsAbout = "The two rows beside what the thread proposes: iops, those of the second row as 1, and latencies; then what part of their time the writers " +
	"waited, in percent: for the inode's lock, in balance_dirty_pages, for pages under writeback and ordered extents, and for metadata: space, transactions and tree blocks."

// waitsTable is the ablation table of a study of latencies.
func (r *Result) waitsTable() [][]string {
	table := [][]string{{"row", "iops", "of " + r.Ratio.Of, "mean", "p50", "p99", "inode", "dirty", "pages", "metadata"}}
	of := r.Rows[slices.IndexFunc(r.Rows, func(x *Row) bool { return x.Name == r.Ratio.Of })]
	for _, x := range r.Rows {
		f := &x.Simulated
		us := func(v float64) string { l := line{microSecs: true}; return l.show(v) }
		cells := []string{x.Name, draw.Count(f.IOPS), fmt.Sprintf("%.3f", f.IOPS/of.Simulated.IOPS), us(f.Mean), us(f.Percentile(50)), us(f.Percentile(99))}
		for _, prefixes := range [][]string{{"i_rwsem", "range_lock"}, {"balance_dirty"}, {"stable_page", "ordered_extent"}, {"space_ticket", "transaction", "tree_"}} {
			sum := 0.0
			for _, class := range sortedWaits(x.Waits) {
				if slices.ContainsFunc(prefixes, func(p string) bool { return strings.HasPrefix(class, p) }) {
					sum += x.Waits[class]
				}
			}
			cells = append(cells, fmt.Sprintf("%.1f", 100*sum))
		}
		table = append(table, cells)
	}
	return table
}

const logsAbout = "What a patch adds to the throughput, in percent of the first row: the row with all of them less the row without it. Then the averages of an " +
	"fsync in the log: searches, leaves copied, bytes of log, and by level of its tree, 0 to 2 from the leaves on, steps with the write lock held, and how " +
	"long the leaf's was held; then how often the free space of a neighbour was asked twice (L1), sizes were added up (L3) and a path was let go (L5)."

// logTable is the ablation table of a study of fsyncs.
func (r *Result) logTable() [][]string {
	table := [][]string{{"row", "MiB/s", "adds", "search", "COW", "log", "steps", "1", "2", "held", "room", "sums", "let go"}}
	for _, x := range r.Rows {
		l := x.Log
		if l == nil {
			l = new(stats.Log)
		}
		c := experiment.LogCells(l)
		each := func(c sched.LogCounter) string { return fmt.Sprintf("%.2f", l.Each(c.String())) }
		table = append(table, []string{x.Name, fmt.Sprintf("%.1f", x.Simulated.Read+x.Simulated.Write), x.adds(), c[0], c[1], c[5], c[6], c[7], c[8], c[9],
			each(sched.LogRechecks), each(sched.LogSums), each(sched.LogReleases)})
	}
	return table
}
