// Package lockedbaseline is lab 2: how long writers wait for one lock, measured and predicted. See
// README.md.
package lockedbaseline

import (
	"slices"

	"btrlab/labs/kit"
)

// Measure writes c's requests and returns the latency in nanoseconds of each that counts.
//
// This one waits for the end of each request before it thinks of the next. Change it.
func Measure(t *kit.Task, c *kit.Client) []int64 {
	var l []int64
	for i := range c.Requests() {
		c.SleepUntil(t, c.Due(i))
		begin := c.Now(t)
		c.Write(t, i)
		l = append(l, c.Now(t)-begin)
	}
	return l
}

// Summarize is what the latencies of all writers come to, in nanoseconds, measured in elapsed
// nanoseconds.
//
// This one summarizes the writers, and then their summaries. Change it.
func Summarize(writers [][]int64, elapsed int64) kit.Summary {
	var s kit.Summary
	for _, l := range writers {
		l = slices.Sorted(slices.Values(l))
		s.Ops = len(l)
		s.PerSecond += 1e9 / mean(l)
		s.Mean += mean(l) / float64(len(writers))
		s.P50 += l[len(l)/2] / int64(len(writers))
		s.P99 += l[len(l)*99/100] / int64(len(writers))
	}
	return s
}

// mean is the mean of l.
func mean(l []int64) float64 {
	sum := int64(0)
	for _, ns := range l {
		sum += ns
	}
	return float64(sum) / float64(len(l))
}

// Bin is the bin of a histogram that a latency falls into, and Value the latency that stands for
// all of a bin, both in nanoseconds.
//
// This one has a bin for each microsecond. Change it.
func Bin(ns int64) int  { return int(ns / 1000) }
func Value(b int) int64 { return int64(b)*1000 + 500 }

// Predict says what as many writers come to, from a run of one and a run of more than enough.
//
// In this one nobody waits for anybody. Change it.
func Predict(alone, crowd kit.Profile, writers int) kit.Prediction {
	each := float64(alone.Elapsed) / float64(alone.Ops)
	return kit.Prediction{PerSecond: float64(writers) * 1e9 / each}
}

// Enough is the smallest number of writers that get all there is: with more of them the throughput
// does not grow.
func Enough(alone, crowd kit.Profile) int {
	return crowd.Writers
}
