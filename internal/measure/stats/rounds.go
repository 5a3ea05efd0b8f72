package stats

import (
	"fmt"
	"math"
	"slices"

	"gonum.org/v1/gonum/stat"
	"gonum.org/v1/gonum/stat/distuv"
)

// Median is the median of figures, of an even number the mean of the two in the middle; 0 of none.
// gonum has no median: the half of its stat.Quantile is another figure where the number is odd.
func Median(v []float64) float64 {
	m, _, _ := Spread(v)
	return m
}

// Spread is the median of figures of rounds, the least and the most; 0 of none.
func Spread(v []float64) (median, low, high float64) {
	n := len(v)
	if n == 0 {
		return 0, 0, 0
	}
	s := slices.Sorted(slices.Values(v))
	median = s[n/2]
	if n%2 == 0 {
		median = (s[n/2-1] + s[n/2]) / 2
	}
	return median, s[0], s[n-1]
}

// Versus is the figure of one row by that of another. It is taken round by round, since whatever
// drifts between rounds drifts for both. The zero value has nothing to tell.
type Versus struct {
	// Ratio is the median over the rounds, RatioMin and RatioMax are the least and the most.
	Ratio    float64 `json:"ratio"`
	RatioMin float64 `json:"ratio_min"`
	RatioMax float64 `json:"ratio_max"`
	// Sure is where the ratio lies; nil after one round.
	Sure *Interval `json:"ratio_ci95,omitempty"`

	rounds []float64
}

// Compare takes the figures of a row and of another, by round. Rounds that one of them lacks do not
// count, nor those in which the other did nothing.
func Compare(row, to []float64) Versus {
	var v Versus
	for i := range min(len(row), len(to)) {
		if to[i] > 0 {
			v.rounds = append(v.rounds, row[i]/to[i])
		}
	}
	v.Ratio, v.RatioMin, v.RatioMax = Spread(v.rounds)
	v.Sure = IntervalOf(v.rounds)
	return v
}

// Differs reports whether the rounds tell the two rows apart.
func (v Versus) Differs() bool { return v.Sure.Excludes1() }

// Sentence is "ROW does 1.50 times the FIGURE of TO (95 % confidence 1.49 to 1.51).", with more
// before the full stop. It says when the rounds show no difference, and how many would.
func (v Versus) Sentence(row, figure, to, more string) string {
	s := fmt.Sprintf("%s does %.2f times the %s of %s", row, v.Ratio, figure, to)
	switch {
	case v.Sure == nil:
		return s + "; one round says nothing of the spread" + more + "."
	case v.Differs():
		return fmt.Sprintf("%s (%v)%s.", s, v.Sure, more)
	}
	return fmt.Sprintf("%s (%v), which may be no difference at all%s. %s", s, v.Sure, more, v.Wanted())
}

// Wanted says how many rounds it would take to tell the rows apart.
func (v Versus) Wanted() string {
	if n := roundsToTell(v.rounds); n > 0 {
		return fmt.Sprintf("If that is so, some %d rounds would tell.", n)
	}
	return "No number of rounds that anybody runs would tell more here."
}

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
	logs := logarithms(ratios)
	if len(logs) < 2 || slices.ContainsFunc(logs, func(x float64) bool { return math.IsInf(x, 0) || math.IsNaN(x) }) {
		return nil
	}
	mean, dev := stat.MeanStdDev(logs, nil)
	n := float64(len(logs))
	half := quantile(n-1) * stat.StdErr(dev, n)
	return &Interval{math.Exp(mean - half), math.Exp(mean + half)}
}

func logarithms(ratios []float64) []float64 {
	logs := make([]float64, len(ratios))
	for i, r := range ratios {
		logs[i] = math.Log(r)
	}
	return logs
}

// quantile is that of Student's t for a two-sided interval.
func quantile(freedom float64) float64 {
	return distuv.StudentsT{Mu: 0, Sigma: 1, Nu: freedom}.Quantile(1 - (1-confidence)/2)
}

// roundsToTell is how many rounds would tell the ratio from 1, if their spread stays; 0 is more
// than anybody runs.
func roundsToTell(ratios []float64) int {
	mean, dev := stat.MeanStdDev(logarithms(ratios), nil)
	const most = 1000
	for n := len(ratios) + 1; n <= most; n++ {
		if quantile(float64(n-1))*stat.StdErr(dev, float64(n)) < math.Abs(mean) {
			return n
		}
	}
	return 0
}
