// Package lockedbaseline is lab 2: how long writers wait for one lock, measured and predicted. See
// README.md.
package lockedbaseline

import (
	"math"
	"math/bits"
	"slices"

	"btrlab/labs/kit"
)

// Measure writes c's requests and returns the latency in nanoseconds of each that counts. The first
// ones count as well.
func Measure(t *kit.Task, c *kit.Client) []int64 {
	var l []int64
	for i := range c.Requests() {
		c.SleepUntil(t, c.Due(i))
		c.Write(t, i)
		l = append(l, c.Now(t)-c.Due(i))
	}
	return l
}

// Summarize is what the latencies of all writers come to, in nanoseconds, measured in elapsed
// nanoseconds.
func Summarize(writers [][]int64, elapsed int64) kit.Summary {
	l := slices.Concat(writers...)
	slices.Sort(l)
	sum := int64(0)
	for _, ns := range l {
		sum += ns
	}
	return kit.Summary{Ops: len(l), PerSecond: float64(len(l)) * 1e9 / float64(elapsed), Mean: float64(sum) / float64(len(l)),
		P50: percentile(l, 50), P99: percentile(l, 99)}
}

// percentile is the smallest of the sorted l that at least p per cent do not exceed: the nearest
// rank.
func percentile(l []int64, p int) int64 { return l[(len(l)*p+99)/100-1] }

// fine is the number of bits that a bin keeps below the highest one: 64 bins to a power of two.
const fine = 6

// Bin is the bin of a histogram that a latency falls into.
func Bin(ns int64) int {
	shift := max(0, bits.Len64(uint64(ns))-1-fine)
	return shift<<fine + int(ns>>shift)
}

// Value is the latency that stands for all of a bin: its middle.
func Value(b int) int64 {
	shift := max(0, b>>fine-1)
	return int64(b-shift<<fine)<<shift + 1<<shift/2
}

// Predict says what as many writers come to, from a run of one and a run of more than enough.
//
// A writer alone needs cycle for a write and what it does besides; in the crowd the lock is never
// free, and each write has it for hold. Either the writers find it free, or it is the lock that is
// waited for: then each comes to it once in writers holds, and has waited for what is left of that
// beside its cycle.
func Predict(alone, crowd kit.Profile, writers int) kit.Prediction {
	cycle, hold := times(alone, crowd)
	each := max(cycle, float64(writers)*hold)
	p := kit.Prediction{PerSecond: float64(writers) * 1e9 / each, Wait: each - cycle}
	p.Waiting = p.PerSecond * p.Wait / 1e9 // Little's law
	return p
}

// Enough is the smallest number of writers that get all there is.
func Enough(alone, crowd kit.Profile) int {
	cycle, hold := times(alone, crowd)
	return int(math.Ceil(cycle / hold))
}

// times are nanoseconds: from one write of a writer alone to its next, and of one hold of the lock.
func times(alone, crowd kit.Profile) (cycle, hold float64) {
	return float64(alone.Elapsed) / float64(alone.Ops), float64(crowd.Elapsed) / float64(crowd.Ops)
}
