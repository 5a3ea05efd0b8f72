package sched

// Counter is one of the costs of a request that do not show as time: what the patches of seed 000 removed.
type Counter uint8

// The counters.
const (
	CountSearches Counter = iota // descents from the root of a tree
	CountPaths                   // paths taken from the free list, or allocated
	CountLeafHeld                // steps done with a leaf locked that need nothing of it
	CountMayBlock                // steps of a NOWAIT request that sleep if what they want is busy
	Counters                     // how many there are
)

var counterNames = [Counters]string{"tree_searches", "path_allocations", "leaf_held_steps", "blocking_points"}

func (c Counter) String() string { return counterNames[c] }

// Counts are the costs of a task's requests. A task counts for whoever sets Task.Counts, and does nothing otherwise.
type Counts struct {
	N [Counters]int64
	// Tried counts the requests that were NOWAIT.
	Tried int64
	// Again counts the answers to NOWAIT requests that would have slept, by kiocb.Again.
	Again [32]int64
}

// Add adds o.
func (c *Counts) Add(o *Counts) {
	c.Tried += o.Tried
	for i := range c.N {
		c.N[i] += o.N[i]
	}
	for i := range c.Again {
		c.Again[i] += o.Again[i]
	}
}

// Punts is the number of answers in Again.
func (c *Counts) Punts() (n int64) {
	for _, v := range c.Again {
		n += v
	}
	return n
}

// Count counts c once.
func (t *Task) Count(c Counter) {
	if t.Counts != nil {
		t.Counts.N[c]++
	}
}

// CountTried counts a NOWAIT request.
func (t *Task) CountTried() {
	if t.Counts != nil {
		t.Counts.Tried++
	}
}
