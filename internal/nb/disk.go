package nb

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"time"

	"btrlab/internal/measure/served"
	"btrlab/internal/measure/stats"
	"btrlab/internal/sched"
)

// Bounds of DiskOptions.
const (
	MaxDepth = 256
	MaxDisk  = 512 // MiB
)

// DiskOptions says what a served disk is asked for; the zero value is sixteen writes of 4 KiB under
// way and a flush every second, on an image in memory.
type DiskOptions struct {
	Policies     []string // default: locked, unlocked, prewait, range-lock; the first is the base
	Model        string   // device model; default "none"
	MiB          int      // of the disk; default 256, at most MaxDisk
	Depth        int      // requests under way; default 16, at most MaxDepth
	Reads        int      // percent of the requests that read
	FlushSeconds float64  // from one flush to the next; default 1, negative is none
	Rounds       int      // default 2, at most MaxRounds
	Seconds      float64  // of each run; default 1, at most MaxSeconds
}

// Disk is a file that was served as a disk, as its guest sees it, under each policy.
type Disk struct {
	rows []served.Row
}

// ServeDisk serves a file by NBD on this machine, in real time, and is its guest.
func ServeDisk(o DiskOptions) (*Disk, error) {
	if len(o.Policies) == 0 {
		o.Policies = []string{"locked", "unlocked", "prewait", "range-lock"}
	}
	o.MiB, o.Depth, o.Rounds = cmp.Or(o.MiB, 256), cmp.Or(o.Depth, 16), cmp.Or(o.Rounds, 2)
	o.Seconds, o.FlushSeconds = cmp.Or(o.Seconds, 1), cmp.Or(o.FlushSeconds, 1)
	switch {
	case o.MiB < 1 || o.MiB > MaxDisk:
		return nil, fmt.Errorf("%d MiB, want 1 to %d", o.MiB, MaxDisk)
	case o.Depth < 1 || o.Depth > MaxDepth:
		return nil, fmt.Errorf("depth %d, want 1 to %d", o.Depth, MaxDepth)
	case o.Reads < 0 || o.Reads > 100:
		return nil, fmt.Errorf("%d percent reads, want 0 to 100", o.Reads)
	case o.Rounds < 1 || o.Rounds > MaxRounds:
		return nil, fmt.Errorf("rounds %d, want 1 to %d", o.Rounds, MaxRounds)
	case !(o.Seconds > 0) || o.Seconds > MaxSeconds || math.IsNaN(o.FlushSeconds):
		return nil, fmt.Errorf("seconds %g, want more than 0 and at most %g", o.Seconds, MaxSeconds)
	}
	second := float64(time.Second)
	rows, err := served.Run(sched.NewTask("notebook"), served.Options{Policies: o.Policies, Model: cmp.Or(o.Model, "none"), Size: int64(o.MiB) << 20, Depth: o.Depth,
		Reads: o.Reads, Flush: time.Duration(max(o.FlushSeconds, 0) * second), Time: time.Duration(o.Seconds * second), Rounds: o.Rounds, Seed: 1})
	if err != nil {
		return nil, err
	}
	return &Disk{rows}, nil
}

func (d *Disk) row(policy string) served.Row {
	for _, r := range d.rows {
		if r.Policy == policy {
			return r
		}
	}
	nan := []float64{math.NaN()}
	return served.Row{Rate: nan, Ratio: nan, P50: nan, P99: nan, Stable: nan, Lock: nan, Ordered: nan}
}

// Rate is the requests a second of a policy, in the middle of the rounds; NaN if it was not
// measured.
func (d *Disk) Rate(policy string) float64 { return stats.Median(d.row(policy).Rate) }

// Ratio is the same by the first policy's in the same round.
func (d *Disk) Ratio(policy string) float64 { return stats.Median(d.row(policy).Ratio) }

// Stable is the percent of the time of all requests that went into waits for stable pages.
func (d *Disk) Stable(policy string) float64 { return 100 * stats.Median(d.row(policy).Stable) }

// Lock is the percent that went into waits for the lock of the inode, or of a range of it.
func (d *Disk) Lock(policy string) float64 { return 100 * stats.Median(d.row(policy).Lock) }

// Table has a row for each policy.
func (d *Disk) Table() Table {
	t := Table{Caption: "A served disk", Head: []string{"policy", "requests/s", "ratio", "write p50", "p99", "stable pages", "inode lock", "ordered extents"}}
	for _, r := range d.rows {
		m := stats.Median
		t.Rows = append(t.Rows, []string{r.Policy, fmt.Sprintf("%.0f", m(r.Rate)), fmt.Sprintf("%.2f (%.2f-%.2f)", m(r.Ratio), slices.Min(r.Ratio), slices.Max(r.Ratio)),
			ns(int64(m(r.P50))), ns(int64(m(r.P99))), fmt.Sprintf("%.1f %%", 100*m(r.Stable)), fmt.Sprintf("%.1f %%", 100*m(r.Lock)), fmt.Sprintf("%.1f %%", 100*m(r.Ordered))})
	}
	return t
}

// Conclude says of each policy what the rounds show beside the first one.
func (d *Disk) Conclude() Table {
	t := Table{Head: []string{"what the rounds show"}}
	for _, s := range served.Conclude(d.rows) {
		t.Rows = append(t.Rows, []string{s})
	}
	return t
}

// Ratios draws each policy's requests a second by the first one's in the same round.
func (d *Disk) Ratios() (Figure, error) {
	var list []ratio
	var names []string
	for _, r := range d.rows {
		names = append(names, r.Policy)
		mid, low, high := stats.Spread(r.Ratio)
		list = append(list, ratio{r.Policy, mid, low, high})
	}
	return ratioBars("requests a second, relative to "+names[0], "Ratios of requests a second:", list, names)
}
