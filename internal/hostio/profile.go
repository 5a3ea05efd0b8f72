package hostio

import "slices"

// Profile is where the machine's processors were in the kernel, and how often its tracepoints were
// passed, between Start and Stop of a Profiler.
type Profile struct {
	// Stacks are those of the samples, each from the innermost function out.
	Stacks [][]string
	// Nanos is the processor time that a sample stands for.
	Nanos float64
	// Counts is by the name of the tracepoint.
	Counts map[string]uint64
	// Seconds is how long it took.
	Seconds float64
}

// Add puts o's samples and counts to those of p.
func (p *Profile) Add(o *Profile) {
	p.Stacks, p.Nanos, p.Seconds = append(p.Stacks, o.Stacks...), o.Nanos, p.Seconds+o.Seconds
	if p.Counts == nil {
		p.Counts = map[string]uint64{}
	}
	for k, n := range o.Counts {
		p.Counts[k] += n
	}
}

// Within is the processor time, in nanoseconds, of the samples that were in one of the functions
// and in none of the others below it: what the function itself does, less what has a name of its
// own. It also says how many samples that rests on.
func (p *Profile) Within(functions, less []string) (nanos float64, samples int) {
	for _, stack := range p.Stacks {
		for _, f := range stack {
			if slices.Contains(less, f) {
				break
			}
			if slices.Contains(functions, f) {
				samples++
				break
			}
		}
	}
	return float64(samples) * p.Nanos, samples
}
