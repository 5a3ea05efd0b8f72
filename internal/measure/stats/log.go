package stats

import "fmt"

// Log is what the fsyncs of a job cost in the trees of logs.
type Log struct {
	// Fsyncs is how many went to a log; the others committed.
	Fsyncs int64 `json:"fsyncs"`
	// Costs are totals, by the name of the counter: tree_searches, leaves_cowed, bytes_shifted,
	// log_blocks, superblocks, log_bytes, ...
	Costs map[string]int64 `json:"costs"`
	// Steps counts, by the level of a tree block from the leaves on, what was done with it locked
	// for writing; HeldNs is how long it was.
	Steps  [8]int64 `json:"steps_held"`
	HeldNs [8]int64 `json:"held_ns"`
}

// MergeLog adds o to l; either may be nil.
func MergeLog(l, o *Log) *Log {
	if o == nil {
		return l
	}
	if l == nil {
		l = &Log{Costs: map[string]int64{}}
	}
	l.Fsyncs += o.Fsyncs
	for k, v := range o.Costs {
		l.Costs[k] += v
	}
	for i := range l.Steps {
		l.Steps[i] += o.Steps[i]
		l.HeldNs[i] += o.HeldNs[i]
	}
	return l
}

// Each is how much of a cost an fsync has, on average.
func (l *Log) Each(cost string) float64 { return l.share(l.Costs[cost]) }

// StepsEach and HeldEach are the steps of an fsync with a block of the level locked, and the
// nanoseconds that it was.
func (l *Log) StepsEach(level int) float64 { return l.share(l.Steps[level]) }
func (l *Log) HeldEach(level int) float64  { return l.share(l.HeldNs[level]) }

func (l *Log) share(v int64) float64 { return float64(v) / float64(max(l.Fsyncs, 1)) }

// json is l as an object of the report.
func (l *Log) json() object {
	var o, costs, steps, held object
	o.add("fsyncs", l.Fsyncs)
	for _, k := range Most(l.Costs) {
		costs.add(k, l.Costs[k])
	}
	for i := range l.Steps {
		if l.Steps[i] > 0 {
			steps.add(fmt.Sprintf("level_%d", i), l.Steps[i])
			held.add(fmt.Sprintf("level_%d", i), l.HeldNs[i])
		}
	}
	o.add("costs", costs)
	o.add("steps_held", steps)
	o.add("held_ns", held)
	return o
}
