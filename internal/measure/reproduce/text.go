package reproduce

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"

	"btrlab/internal/measure/experiment"
	"btrlab/internal/prose"
)

// line is one figure of a row.
type line struct {
	name      string
	pub, sim  float64
	microSecs bool
}

func (row *Row) lines() []line {
	p, s := &row.Published, &row.Simulated
	out := []line{{name: "iops", pub: p.IOPS, sim: s.IOPS}, {name: "lat min", pub: p.Min, sim: s.Min, microSecs: true}, {name: "lat avg", pub: p.Mean, sim: s.Mean, microSecs: true},
		{name: "lat stdev", pub: p.Stdev, sim: s.Stdev, microSecs: true}, {name: "lat max", pub: p.Max, sim: s.Max, microSecs: true}}
	for i, q := range Percentiles {
		out = append(out, line{name: fmt.Sprintf("clat p%g", q), pub: p.Clat[i], sim: s.Clat[i], microSecs: true})
	}
	return out
}

func (l *line) show(v float64) string {
	if l.microSecs {
		return experiment.Nanos(v * 1000)
	}
	return experiment.Count(v)
}

func (l *line) percent() string { return fmt.Sprintf("%+.1f%%", 100*relative(l.sim, l.pub)) }

// WriteText writes the rows side by side, with relative errors.
func (r *Result) WriteText(out io.Writer) error {
	var b strings.Builder
	say := func(format string, args ...any) {
		b.WriteString(prose.Wrap(fmt.Sprintf(format, args...), prose.Width) + "\n")
	}
	say("seed %s: %d jobs, iodepth %d, 4 KiB random writes, one NOCOW file of %g GiB, %g virtual seconds", r.Seed, r.Jobs, r.IODepth, float64(r.Size)/(1<<30), r.Seconds)
	say("content %s", r.Content)
	say("The published rows, each followed by its simulation:")
	b.WriteByte('\n')
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', tabwriter.AlignRight)
	for _, row := range r.Rows {
		role, _, _ := strings.Cut(row.Role, " ")
		fmt.Fprintf(w, "\t%s\t%s\terror\t", row.Name, role)
	}
	fmt.Fprintln(w)
	cols := make([][]line, len(r.Rows))
	for i, row := range r.Rows {
		cols[i] = row.lines()
	}
	for k := range cols[0] {
		for i := range cols {
			l := &cols[i][k]
			name := ""
			if i == 0 {
				name = l.name
			}
			fmt.Fprintf(w, "%s\t%s\t%s\t%s\t", name, l.show(l.pub), l.show(l.sim), l.percent())
		}
		fmt.Fprintln(w)
	}
	w.Flush()
	fmt.Fprintf(&b, "\nunlocked / lock: published %.3f, simulated %.3f, error %+.1f%%\n", r.Ratio.Published, r.Ratio.Simulated, 100*r.Ratio.Error)
	b.WriteByte('\n')
	r.ranks(&b)
	b.WriteByte('\n')
	for _, row := range r.Rows {
		var waits []string
		for _, c := range sortedWaits(row.Waits) {
			waits = append(waits, fmt.Sprintf("%s %.1f%%", c, 100*row.Waits[c]))
		}
		now := float64(max(row.Stats.Now, 1))
		say("%s: %s writes; CPUs busy %.1f, spinning %.1f of them; %s locks stolen; time waited: %s", row.Name, experiment.Count(float64(row.Writes)),
			float64(row.Stats.CPUBusy)/now, float64(row.Stats.Spun)/now, experiment.Count(float64(row.Stats.Stolen)), strings.Join(waits, ", "))
	}
	b.WriteByte('\n')
	say("%s", r.Rests)
	cal, err := json.MarshalIndent(r.Calibration, "", "  ")
	if err != nil {
		return err
	}
	fmt.Fprintf(&b, "\ncalibration, misfit of the lock row %.2f: %s\n", r.Misfit, cal)
	_, err = io.WriteString(out, b.String())
	return err
}

const ranksAbout = "Which percentile of ours each published latency is: where a distribution has a step, few requests move a percentile far, and this " +
	"says how few."

// ranks writes the table of Row.Ranks, as far as it fits.
func (r *Result) ranks(b *strings.Builder) {
	b.WriteString(prose.Wrap(ranksAbout, prose.Width) + "\n\n")
	w := tabwriter.NewWriter(b, 0, 0, 2, ' ', tabwriter.AlignRight)
	for i := -1; i < len(r.Rows); i++ {
		name := "published"
		if i >= 0 {
			name = r.Rows[i].Name
		}
		fmt.Fprintf(w, "%s\t", name)
		for k, q := range Percentiles {
			switch {
			case q < 10 || q > 99:
			case i < 0:
				fmt.Fprintf(w, "p%g\t", q)
			default:
				fmt.Fprintf(w, "%.1f\t", r.Rows[i].Ranks[k])
			}
		}
		fmt.Fprintln(w)
	}
	w.Flush()
}

// sortedWaits are the classes, what took longest first.
func sortedWaits(m map[string]float64) []string {
	return slices.SortedFunc(maps.Keys(m), func(a, b string) int {
		return cmp.Or(cmp.Compare(m[b], m[a]), strings.Compare(a, b))
	})
}
