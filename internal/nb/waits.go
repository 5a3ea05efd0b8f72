package nb

import (
	"fmt"
	"os"
	"path/filepath"
	"sort"

	pprof "github.com/google/pprof/profile"

	"btrlab/internal/measure/profile"
)

// Waits is a lock profile: what was waited for, in which operation, how often and how long.
type Waits struct {
	// Policy the job ran under.
	Policy string
	rows   []waitRow
}

type waitRow struct {
	lock, op     string
	count, nanos int64
}

// Profile runs the job of o once under one policy with the lock profile on.
func Profile(o Options, policy string) (*Waits, error) {
	dir, err := os.MkdirTemp("", "btrlab-profile-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	file := filepath.Join(dir, "lock.pprof")
	stop, err := profile.Start(profile.Paths{Lock: file})
	if err != nil {
		return nil, err
	}
	o.Policies, o.Rounds = []string{policy}, 1
	_, err = Compare(o)
	if serr := stop(); err == nil {
		err = serr
	}
	if err != nil {
		return nil, err
	}
	return readWaits(policy, file)
}

// readWaits adds up a lock profile by lock and operation.
func readWaits(policy, file string) (*Waits, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	p, err := pprof.Parse(f)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	if len(p.SampleType) < 2 {
		return nil, fmt.Errorf("%s: %d sample types, want contentions and delay", file, len(p.SampleType))
	}
	sum := map[[2]string]*waitRow{}
	for _, s := range p.Sample {
		key := [2]string{label(s, "lock"), label(s, "op")}
		if sum[key] == nil {
			sum[key] = &waitRow{lock: key[0], op: key[1]}
		}
		sum[key].count += s.Value[0]
		sum[key].nanos += s.Value[1]
	}
	w := &Waits{Policy: policy}
	for _, r := range sum {
		w.rows = append(w.rows, *r)
	}
	sort.Slice(w.rows, func(i, j int) bool {
		a, b := w.rows[i], w.rows[j]
		if a.nanos != b.nanos {
			return a.nanos > b.nanos
		}
		return a.lock+a.op < b.lock+b.op
	})
	return w, nil
}

func label(s *pprof.Sample, key string) string {
	if v := s.Label[key]; len(v) > 0 {
		return v[0]
	}
	return "-"
}

// Table has a row per lock and operation, the longest first.
func (w *Waits) Table() Table {
	t := Table{Caption: "Waits under " + w.Policy, Head: []string{"lock", "operation", "waits", "total", "mean"}}
	for _, r := range w.rows {
		t.Rows = append(t.Rows, []string{r.lock, r.op, fmt.Sprint(r.count), ns(r.nanos), ns(r.nanos / max(r.count, 1))})
	}
	return t
}

// Nanos is the time waited for a lock in all operations.
func (w *Waits) Nanos(lock string) int64 {
	var n int64
	for _, r := range w.rows {
		if r.lock == lock {
			n += r.nanos
		}
	}
	return n
}
