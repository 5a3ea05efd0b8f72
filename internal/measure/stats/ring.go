package stats

import (
	"fmt"

	"btrlab/internal/uring"
)

// Ring is which way the requests of a job's rings went.
type Ring struct {
	uring.Stats
	// Workers is the sum of the workers that the rings made.
	Workers int64 `json:"workers"`
}

// counts are the numbers of r with their names in reports, those of requests before those of the
// ring.
func (r *Ring) counts() []ringCount {
	return []ringCount{{"submitted", &r.Submitted}, {"inline", &r.Inline}, {"queued", &r.Queued}, {"punted", &r.Punted}, {"again", &r.Again},
		{"short", &r.Short}, {"cancelled", &r.Cancelled}, {"overflows", &r.Overflows}, {"workers", &r.Workers}}
}

type ringCount struct {
	name string
	n    *int64
}

// Since is r without what o has counted, which is r at an earlier time: of the workers, the rings
// have kept all.
func (r Ring) Since(o Ring) Ring {
	workers := r.Workers
	was := o.counts()
	for i, c := range r.counts() {
		*c.n -= *was[i].n
	}
	r.Workers = workers
	return r
}

// MergeRing adds o to r; either may be nil.
func MergeRing(r, o *Ring) *Ring {
	if o == nil {
		return r
	}
	if r == nil {
		r = new(Ring)
	}
	more := o.counts()
	for i, c := range r.counts() {
		*c.n += *more[i].n
	}
	return r
}

// String gives "1000 requests: 990 inline, 0 by the device, 10 by workers (8 EAGAIN, 2 short), 1
// worker".
func (r *Ring) String() string {
	s := fmt.Sprintf("%d requests: %d inline, %d by the device, %d by workers (%d EAGAIN, %d short)", r.Submitted, r.Inline, r.Queued, r.Punted, r.Again, r.Short)
	if r.Workers == 1 {
		return s + ", 1 worker"
	}
	return fmt.Sprintf("%s, %d workers", s, r.Workers)
}

// json is r as an object of the report.
func (r *Ring) json() object {
	var o object
	for _, c := range r.counts() {
		o.add(c.name, *c.n)
	}
	return o
}
