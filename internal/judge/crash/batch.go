package crash

import (
	"btrlab/internal/blockdev"
	"btrlab/internal/sched"
)

// Batches are the sequences of a bounded run in order, so many in each: what a machine that does a
// part of the run is given, one after the other.
type Batches struct {
	Sequences int
	size      int
	at        func(n int) *Sequence
}

// batchSizes are those of a batch of sequences of one, two and three operations: a few seconds.
var batchSizes = []int{10, 100, 500}

// NewBatches are those of all sequences of a length from 1 to 3, or of so many that seed draws; a
// sample of 0 is all.
func NewBatches(length, sample int, seed uint64) *Batches {
	if sample > 0 {
		l := Sampled(length, sample, seed)
		return &Batches{len(l), batchSizes[0], func(n int) *Sequence { return l[n] }}
	}
	p := NewSpace(length)
	return &Batches{p.Len(), batchSizes[length-1], p.At}
}

// Len is the number of batches.
func (b *Batches) Len() int { return (b.Sequences + b.size - 1) / b.size }

// Batch is the outcome of a batch.
type Batch struct {
	Sequences int `json:"sequences"`
	States    int `json:"states"`
	Losing    int `json:"losing,omitempty"` // sequences that lose something
	// First is what the first of them loses.
	First *Lost `json:"first,omitempty"`
}

// Lost is what a sequence loses, with the fewest lost writes that show it.
type Lost struct {
	Script   []string `json:"script"`
	Rule     string   `json:"rule"`
	Text     string   `json:"text"`
	State    string   `json:"state"`
	Timeline []string `json:"timeline"`
}

// Run runs batch n on the image on base. It ends early, with false, when stop says so.
func (b *Batches) Run(t *sched.Task, base blockdev.Device, o Options, n int, stop func() bool) (sum Batch, whole bool, err error) {
	for i := n * b.size; i < min((n+1)*b.size, b.Sequences); i++ {
		if stop() {
			return sum, false, nil
		}
		q := b.at(i)
		c, rec, states, err := q.Run(t, base, o)
		if err != nil {
			return sum, false, err
		}
		sum.Sequences++
		sum.States += states
		if c == nil {
			continue
		}
		if sum.Losing++; sum.Losing > 1 {
			continue
		}
		if c, err = rec.Shrink(t, c); err != nil {
			return sum, false, err
		}
		sum.First = &Lost{q.Lines(), c.Loss.Rule, c.Loss.Text, c.State.String(), rec.Timeline(c.State)}
	}
	return sum, true, nil
}

// Add joins the outcome of another batch, of later sequences.
func (b *Batch) Add(o *Batch) {
	b.Sequences, b.States, b.Losing = b.Sequences+o.Sequences, b.States+o.States, b.Losing+o.Losing
	if b.First == nil {
		b.First = o.First
	}
}
