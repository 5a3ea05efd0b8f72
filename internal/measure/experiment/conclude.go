package experiment

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"gonum.org/v1/gonum/stat"
	"gonum.org/v1/gonum/stat/distuv"

	"btrlab/internal/draw"
	"btrlab/internal/prose"
)

// Interval is where a ratio lies with a confidence of 95 %.
type Interval struct {
	Low  float64 `json:"low"`
	High float64 `json:"high"`
}

func (i *Interval) String() string {
	return fmt.Sprintf("95 %% confidence %.2f to %.2f", i.Low, i.High)
}

// Excludes1 reports whether the ratio is another one than 1.
func (i *Interval) Excludes1() bool { return i != nil && (i.Low > 1 || i.High < 1) }

// confidence of an Interval.
const confidence = 0.95

// IntervalOf is the interval of the ratio of which each round gave one: by Student's t of their
// logarithms, since rounds come in pairs and a ratio is as likely to be twice as half. It is nil
// for one round, which says nothing of the spread.
func IntervalOf(ratios []float64) *Interval {
	logs := make([]float64, len(ratios))
	for i, r := range ratios {
		logs[i] = math.Log(r)
	}
	if len(logs) < 2 || slices.ContainsFunc(logs, func(x float64) bool { return math.IsInf(x, 0) || math.IsNaN(x) }) {
		return nil
	}
	mean, dev := stat.MeanStdDev(logs, nil)
	n := float64(len(logs))
	half := quantile(n-1) * stat.StdErr(dev, n)
	return &Interval{math.Exp(mean - half), math.Exp(mean + half)}
}

// quantile is that of Student's t for a two-sided interval.
func quantile(freedom float64) float64 {
	return distuv.StudentsT{Mu: 0, Sigma: 1, Nu: freedom}.Quantile(1 - (1-confidence)/2)
}

// roundsToTell is how many rounds would tell the ratio from 1, if their spread stays; 0 is more
// than anybody runs.
func roundsToTell(ratios []float64) int {
	logs := make([]float64, len(ratios))
	for i, r := range ratios {
		logs[i] = math.Log(r)
	}
	mean, dev := stat.MeanStdDev(logs, nil)
	const most = 1000
	for n := len(logs) + 1; n <= most; n++ {
		if quantile(float64(n-1))*stat.StdErr(dev, float64(n)) < math.Abs(mean) {
			return n
		}
	}
	return 0
}

// Conclusion is what the comparison shows, in a sentence or two: the ratios that were asked for, or
// the fastest row beside the baseline. It is empty when there is nothing to compare.
func (r *Result) Conclusion() string {
	if len(r.Pairs) > 0 {
		var all []string
		for i := range r.Pairs {
			if s := r.Pairs[i].conclusion(); s != "" {
				all = append(all, s)
			}
		}
		return strings.Join(all, " ")
	}
	var base, best *Row
	for _, row := range r.Rows {
		switch {
		case row.Policy == r.Baseline:
			base = row
		case best == nil || row.Ratio > best.Ratio:
			best = row
		}
	}
	switch {
	case base == nil || best == nil || base.IOPS == 0 || best.IOPS == 0:
		return ""
	case best.Sure == nil:
		return fmt.Sprintf("%s did the most: %.2f times the iops of %s. One round says nothing of the spread.", best.Policy, best.Ratio, base.Policy)
	case best.Sure.Low <= 1:
		return fmt.Sprintf("Nothing is faster than %s beyond the spread of the rounds: %s has %.2f (%v).%s", base.Policy, best.Policy, best.Ratio, best.Sure,
			best.wanted())
	}
	s := fmt.Sprintf("%s does %.2f times the iops of %s (%v)", best.Policy, best.Ratio, base.Policy, best.Sure)
	var tied []string
	for _, row := range r.Rows {
		if row != best && row != base && !best.differs(row) {
			tied = append(tied, row.Policy)
		}
	}
	if len(tied) > 0 {
		return fmt.Sprintf("%s. Beside it %s cannot be told from it: the difference is within the spread.", s, prose.List(tied))
	}
	if len(r.Rows) > 2 {
		s += ", more than any other"
	}
	return fmt.Sprintf("%s. One request in a hundred takes %s or longer; with %s it is %s.", s, draw.Time(float64(best.Clat.P99)), base.Policy,
		draw.Time(float64(base.Clat.P99)))
}

// differs reports whether the rounds tell the rows apart.
func (row *Row) differs(o *Row) bool {
	return IntervalOf(ratios(row.RoundIOPS, o.RoundIOPS)).Excludes1()
}

// wanted says how many rounds it would take to tell the row from the baseline.
func (row *Row) wanted() string { return wanted(row.ratios) }

func wanted(ratios []float64) string {
	if n := roundsToTell(ratios); n > 0 {
		return fmt.Sprintf(" If that is so, some %d rounds would tell.", n)
	}
	return " No number of rounds that anybody runs would tell more here."
}

func (p *PairRatio) conclusion() string {
	if p.Ratio == 0 {
		return ""
	}
	s := fmt.Sprintf("%s does %.2f times the iops of %s", p.Row, p.Ratio, p.To)
	switch {
	case p.Sure == nil:
		s += "; one round says nothing of the spread"
	case p.Sure.Excludes1():
		s += fmt.Sprintf(" (%v)", p.Sure)
	default:
		s += fmt.Sprintf(" (%v), which may be no difference at all", p.Sure)
	}
	if p.Published > 0 {
		s += fmt.Sprintf("; %.2f was published", p.Published)
	}
	if p.Sure != nil && !p.Sure.Excludes1() {
		return s + "." + wanted(p.ratios)
	}
	return s + "."
}

// Bounds of Notes.
const (
	roundsApart  = 1.5  // the fastest round of a row by its slowest
	longestShare = 0.25 // the longest request as a part of a run
)

// Notes say what makes the figures worth less: a run that is shorter than what it measures, rounds
// that differ, a job that has not seen all of its file.
func (r *Result) Notes() (notes []string) {
	longest, apart := (*Row)(nil), (*Row)(nil)
	for _, row := range r.Rows {
		if row.Clat.Max > int64(longestShare*r.Runtime*1e9) && (longest == nil || row.Clat.Max > longest.Clat.Max) {
			longest = row
		}
		if row.apart() > roundsApart && (apart == nil || row.apart() > apart.apart()) {
			apart = row
		}
	}
	if longest != nil && r.Runtime > 0 {
		notes = append(notes, fmt.Sprintf("A request of %s took %s, and a run %gs: a longer run (--runtime-seconds) says what a short one cannot.",
			longest.Policy, draw.Time(float64(longest.Clat.Max)), r.Runtime))
	}
	if apart != nil {
		why := "this machine is busy, or a run too short; more rounds (--rounds) and --runtime vtime tell more"
		if r.Virtual {
			why = "a run is too short; longer ones (--runtime-seconds) and more rounds (--rounds) tell more"
		}
		notes = append(notes, fmt.Sprintf("The fastest round of %s did %.1f times its slowest: %s.", apart.Policy, apart.apart(), why))
	}
	if r.Pass > 0 && r.Pass < 1 {
		notes = append(notes, fmt.Sprintf("A run of %s moves %.0f %% of its files: less than one pass, in which later requests are smaller.", r.Rows[0].Policy, 100*r.Pass))
	}
	return notes
}

// apart is the fastest round by the slowest.
func (row *Row) apart() float64 {
	if len(row.RoundIOPS) < 2 {
		return 1
	}
	return slices.Max(row.RoundIOPS) / slices.Min(row.RoundIOPS)
}

// writeConclusion writes Conclusion and Notes.
func (r *Result) writeConclusion(b *strings.Builder) {
	for i, s := range append([]string{r.Conclusion()}, r.Notes()...) {
		if s != "" {
			if i <= 1 {
				b.WriteByte('\n')
			}
			fmt.Fprintf(b, "%s\n", prose.Wrap(s, prose.Width))
		}
	}
}
