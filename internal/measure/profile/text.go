package profile

import (
	"cmp"
	"fmt"
	"io"
	"slices"

	"btrlab/internal/draw"
	"btrlab/internal/prose"
)

// textRows is how many rows the text has at most; a last one is the sum of the others.
const textRows = 20

// WriteText writes which locks tasks waited for longest, by class, operation and policy: what `go
// tool pprof -tags` shows of the profile, for those who have no Go.
func (l *Locks) WriteText(w io.Writer) error {
	type labels struct{ class, op, policy string }
	sums := map[labels]sum{}
	all := sum{}
	for i := range l.shards {
		s := &l.shards[i]
		s.mu.Lock()
		for k, v := range s.sum {
			at := labels{k.class, cmp.Or(k.op, "-"), cmp.Or(k.policy, "-")}
			sums[at] = sum{sums[at].count + v.count, sums[at].nanos + v.nanos}
			all = sum{all.count + v.count, all.nanos + v.nanos}
		}
		s.mu.Unlock()
	}
	if all.count == 0 {
		_, err := fmt.Fprintln(w, "no task waited for a lock")
		return err
	}
	var order []labels
	for k := range sums {
		order = append(order, k)
	}
	slices.SortFunc(order, func(a, b labels) int {
		return cmp.Or(cmp.Compare(sums[b].nanos, sums[a].nanos), cmp.Compare(a.class+" "+a.op+" "+a.policy, b.class+" "+b.op+" "+b.policy))
	})
	lines := [][]string{{"share", "time", "waits", "mean", "lock", "operation", "policy"}}
	line := func(s sum, words ...string) {
		lines = append(lines, append([]string{fmt.Sprintf("%.1f %%", 100*float64(s.nanos)/float64(max(all.nanos, 1))), draw.Nanos(float64(s.nanos)),
			draw.Count(float64(s.count)), draw.Nanos(float64(s.nanos) / float64(s.count))}, words...))
	}
	rest := all
	for _, k := range order[:min(len(order), textRows)] {
		line(sums[k], k.class, k.op, k.policy)
		rest = sum{rest.count - sums[k].count, rest.nanos - sums[k].nanos}
	}
	if rest.count > 0 {
		line(rest, "others", "-", "-")
	}
	_, err := fmt.Fprintf(w, "waits for locks: %s in all, of every task\n\n%s", draw.Nanos(float64(all.nanos)), prose.Table(1, lines))
	return err
}
