package stats

import (
	"math"
	"slices"
	"testing"
)

// TestSpread: of an even number of rounds the median is between the two in the middle, and the
// caller's figures keep their order, which is that of the rounds.
func TestSpread(t *testing.T) {
	for _, c := range []struct{ v, want []float64 }{
		{nil, []float64{0, 0, 0}},
		{[]float64{7}, []float64{7, 7, 7}},
		{[]float64{3, 1, 2}, []float64{2, 1, 3}},
		{[]float64{400, 100, 300, 200}, []float64{250, 100, 400}},
	} {
		was := slices.Clone(c.v)
		m, low, high := Spread(c.v)
		if have := []float64{m, low, high}; !slices.Equal(have, c.want) || Median(c.v) != m || !slices.Equal(c.v, was) {
			t.Errorf("of %v: %v, median %v, want %v; left as %v", was, have, Median(c.v), c.want, c.v)
		}
	}
}

// The interval of Student's t over logarithms: of two ratios, x and 1/x, it lies about 1, and of
// one, or of none that is a number, there is none.
func TestInterval(t *testing.T) {
	if IntervalOf([]float64{2}) != nil || IntervalOf(nil) != nil || IntervalOf([]float64{2, 0}) != nil {
		t.Error("an interval of one ratio, of none, or of 0")
	}
	i := IntervalOf([]float64{1.25, 0.8})
	if math.Abs(i.Low*i.High-1) > 1e-9 || i.Excludes1() {
		t.Errorf("of 1.25 and 0.8: %v", i)
	}
	// t is 4.303 for two degrees of freedom; the logarithms 0.1, 0.2, 0.3 have a mean of 0.2 and a
	// standard error of 0.1/sqrt(3).
	i = IntervalOf([]float64{math.Exp(0.1), math.Exp(0.2), math.Exp(0.3)})
	half := 4.302653 * 0.1 / math.Sqrt(3)
	if math.Abs(math.Log(i.Low)-(0.2-half)) > 1e-5 || math.Abs(math.Log(i.High)-(0.2+half)) > 1e-5 {
		t.Errorf("have %v, want %.4f and %.4f", i, math.Exp(0.2-half), math.Exp(0.2+half))
	}
	if i.Excludes1() || !(&Interval{1.01, 2}).Excludes1() || !(&Interval{0.5, 0.99}).Excludes1() || (*Interval)(nil).Excludes1() {
		t.Error("Excludes1 is wrong")
	}
}

// TestSentence: a figure is compared round by round, and the sentence says no more than the rounds
// do. Two rounds of three on one side tell nothing yet, whatever their median.
func TestSentence(t *testing.T) {
	for _, c := range []struct {
		a, b []float64
		more string
		want string
	}{
		{[]float64{107, 214, 107}, []float64{100, 200, 100}, "; 1.07 was published", "a does 1.07 times the reads of b (95 % confidence 1.07 to 1.07); 1.07 was published."},
		{[]float64{107}, []float64{100, 0}, "", "a does 1.07 times the reads of b; one round says nothing of the spread."},
		{[]float64{87, 115, 100, 9}, []float64{100, 100, 100}, "; 2 was", "a does 1.00 times the reads of b (95 % confidence 0.71 to 1.41), which may be no difference at all; 2 was. " +
			"No number of rounds that anybody runs would tell more here."},
		{[]float64{105, 160, 101}, []float64{100, 100, 100}, "", "a does 1.05 times the reads of b (95 % confidence 0.63 to 2.25), which may be no difference at all. " +
			"If that is so, some 11 rounds would tell."},
	} {
		if have := Compare(c.a, c.b).Sentence("a", "reads", "b", c.more); have != c.want {
			t.Errorf("of %v and %v\nhave %q\nwant %q", c.a, c.b, have, c.want)
		}
	}
}
