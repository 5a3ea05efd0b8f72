package stats

import (
	"maps"
	"slices"
)

// Nowait is what requests that were tried without waiting cost, and where they stopped or slept.
// What a ring's workers did for requests that were handed to them is not in it.
type Nowait struct {
	// Tried is how many requests these were.
	Tried int64 `json:"tried"`
	// Costs are totals, by the name of the sched.Counter: tree_searches, path_allocations.
	Costs map[string]int64 `json:"costs"`
	// Again counts the answers EAGAIN, by place and reason: "lock_extent: another task has the
	// range locked".
	Again map[string]int64 `json:"eagain"`
	// Slept counts the sleeps, by what was awaited and the step: "stable_page in prepare_pages".
	Slept map[string]int64 `json:"slept"`
}

// NewNowait makes an empty one.
func NewNowait() *Nowait {
	return &Nowait{Costs: map[string]int64{}, Again: map[string]int64{}, Slept: map[string]int64{}}
}

// MergeNowait adds o to n; either may be nil.
func MergeNowait(n, o *Nowait) *Nowait {
	if o == nil {
		return n
	}
	if n == nil {
		n = NewNowait()
	}
	n.Tried += o.Tried
	for _, m := range [...][2]map[string]int64{{n.Costs, o.Costs}, {n.Again, o.Again}, {n.Slept, o.Slept}} {
		for k, v := range m[1] {
			m[0][k] += v
		}
	}
	return n
}

// Each is how much of a cost a request has, on average.
func (n *Nowait) Each(cost string) float64 { return n.share(n.Costs[cost]) }

// Punted is the share of the requests that answered EAGAIN, SleepsEach how often a request slept.
func (n *Nowait) Punted() float64     { return n.share(total(n.Again)) }
func (n *Nowait) SleepsEach() float64 { return n.share(total(n.Slept)) }

func (n *Nowait) share(v int64) float64 { return float64(v) / float64(max(n.Tried, 1)) }

func total(m map[string]int64) (sum int64) {
	for _, v := range m {
		sum += v
	}
	return sum
}

// Most lists the keys of one of the maps, those with the most first.
func Most(m map[string]int64) []string {
	return slices.SortedFunc(maps.Keys(m), func(a, b string) int {
		switch {
		case m[a] != m[b]:
			return int(min(max(m[b]-m[a], -1), 1))
		case a < b:
			return -1
		}
		return 1
	})
}

// json is n as an object of the report.
func (n *Nowait) json() object {
	var o object
	o.add("tried", n.Tried)
	for _, part := range [...]struct {
		name string
		m    map[string]int64
	}{{"costs", n.Costs}, {"eagain", n.Again}, {"slept", n.Slept}} {
		var counts object
		for _, k := range Most(part.m) {
			counts.add(k, part.m[k])
		}
		o.add(part.name, counts)
	}
	return o
}
