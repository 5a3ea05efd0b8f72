package scenario

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"btrlab/internal/policy"
	"btrlab/internal/sched/explore"
)

// What a user waits for is schedules: those up to the first violation, and those up to the proof
// that there is none. TestSchedulesNeeded prints them for the methods, on every scenario with
// -matrix.full, as make bench does, and on a few without.
//
// The left half is a policy that breaks the scenario: of the matrix, or else a wrong order of the
// museum. By chance are the median and the worst of some seeds. The right half is a policy that the
// matrix calls proved. A dash is no such policy; >N is a search that came to its limit; refused is
// DPOR in a scenario where it gives up. DPOR can need more schedules than there are, because it
// also tries what the daemons do after the last task has ended.

// neededSample are the scenarios of make test: short searches, and one of them by a wrong order.
var neededSample = []string{"truncate-race", "two-writers-overlap", "direct-extents-whole", "mmap-source", "writer-fallocate"}

// Limits in schedules.
const (
	neededSmall = 2_000
	neededFull  = 50_000
)

// needed is how many schedules a search made; 0 is a search that DPOR refused.
type needed struct {
	schedules int
	limit     bool // and had not found what it looked for
}

func (n needed) String() string {
	switch {
	case n.schedules == 0:
		return "refused"
	case n.limit:
		return fmt.Sprintf(">%d", n.schedules)
	}
	return fmt.Sprint(n.schedules)
}

// neededFor searches s under a policy, up to a violation or to the end.
func neededFor(t *testing.T, s *Scenario, pol string, m explore.Method, seed uint64, limit int, want explore.Verdict) needed {
	t.Helper()
	r, err := Run(s, policy.MustParse(pol), Options{Config: func(c *explore.Config) {
		c.Method, c.Preemptions, c.Schedules, c.Seed, c.NoShrink = m, 0, limit, seed, true
	}})
	must(t, err)
	switch {
	case m == explore.DPOR && r.Bound.Refused:
		return needed{}
	case r.Verdict != want && r.Verdict != explore.Bounded:
		t.Errorf("%s under %s by %s: %s %s, want %s", s.Name, pol, m, r.Verdict, r.Violation, want)
	}
	if want == explore.Violated && r.Found > 0 {
		return needed{r.Found, false}
	}
	return needed{r.Schedules, r.Verdict != want}
}

// neededPolicies are, for each scenario, a policy that breaks it and one that does not.
func neededPolicies(t *testing.T) (broken, proved map[string]string) {
	t.Helper()
	text, err := os.ReadFile(matrixFile)
	must(t, err)
	broken, proved = map[string]string{}, map[string]string{}
	rows := matrixRows(string(text))
	for _, s := range catalog {
		names := s.Policies
		if len(names) == 0 {
			names = policy.Names()
		}
		for _, judged := range []string{"rule", "nowait", "direct", "unaligned", "fsync"} {
			for _, name := range names {
				switch cell := rows[[3]string{judged, s.Name, name}]; {
				case strings.HasPrefix(cell, "broken") && broken[s.Name] == "":
					broken[s.Name] = name
				case cell == "proved" && proved[s.Name] == "":
					proved[s.Name] = name
				}
			}
		}
		if i := slices.IndexFunc(Museum, func(e Exhibit) bool { return e.Scenario == s.Name }); broken[s.Name] == "" && i >= 0 {
			broken[s.Name] = Museum[i].Broken
		}
	}
	return broken, proved
}

func TestSchedulesNeeded(t *testing.T) {
	limit, seeds, names := neededSmall, 3, neededSample
	if *matrixFull {
		limit, seeds, names = neededFull, 9, Names()
	}
	broken, proved := neededPolicies(t)
	const half = "  %-40s %7s %7s %7s"
	t.Logf("schedules up to the first violation and up to the end, at most %d; by chance with %d seeds", limit, seeds)
	t.Logf("%-21s"+half+" %7s %7s"+half, "scenario", "first violation under", "dpor", "bound", "naive", "random", "worst", "exhausted under", "dpor", "bound", "naive")
	methods := []explore.Method{explore.DPOR, explore.Bound, explore.Naive}
	ended := map[explore.Method]int{}
	for _, name := range names {
		s, err := Lookup(name)
		must(t, err)
		row := []any{name, "-", "-", "-", "-", "-", "-", "-", "-", "-", "-"}
		if pol := broken[name]; pol != "" {
			row[1] = pol
			for i, m := range methods {
				row[2+i] = neededFor(t, s, pol, m, 0, limit, explore.Violated)
			}
			var by []needed
			for seed := range uint64(seeds) {
				by = append(by, neededFor(t, s, pol, explore.Random, seed, limit, explore.Violated))
			}
			slices.SortFunc(by, func(a, b needed) int { return a.schedules - b.schedules })
			row[5], row[6] = by[seeds/2], by[seeds-1]
		}
		if pol := proved[name]; pol != "" {
			row[7] = pol
			for i, m := range methods {
				n := neededFor(t, s, pol, m, 0, limit, explore.Exhausted)
				row[8+i] = n
				if n.schedules > 0 && !n.limit {
					ended[m]++
				}
			}
		}
		t.Logf("%-21s"+half+" %7s %7s"+half, row...)
	}
	t.Logf("searches that ended: dpor %d, bound %d, naive %d", ended[explore.DPOR], ended[explore.Bound], ended[explore.Naive])
	if ended[explore.DPOR] == 0 || ended[explore.Bound] == 0 {
		t.Error("no search of the sample ends")
	}
}
