package scenario

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"btrlab/internal/policy"
	"btrlab/internal/sched/explore"
	"btrlab/internal/testing/need"
)

// estimated are searches that end, long ones with -matrix.full. The short ones take about two
// seconds together.
var estimated = []struct {
	scenario, policy string
	method           explore.Method
	long             bool
}{
	{"two-writers-truncate", "unlocked-drain", explore.Bound, true},
	{"two-writers-truncate", "range-lock", explore.Bound, true},
	{"writer-punch", "unlocked", explore.Bound, true},
	{"ordered-retry", "unlocked", explore.Bound, true},
	{"ordered-retry", "modern", explore.Bound, true},
	{"truncate-writeback", "locked", explore.Bound, true},
	{"fsync-writer", "locked", explore.Bound, true},
	{"stable-pages", "modern", explore.Bound, false},
	{"page-state-fsync", "locked", explore.Bound, false},
	{"two-writers-truncate", "unlocked-drain", explore.DPOR, true},
	{"two-writers-truncate", "range-lock", explore.DPOR, true},
	{"ordered-retry", "unlocked", explore.DPOR, true},
	{"reader-writeback", "locked", explore.DPOR, true},
	{"ordered-retry", "modern", explore.DPOR, false},
	{"writer-punch", "unlocked", explore.DPOR, false},
	{"two-writers-truncate", "unlocked-drain", explore.State, true},
	{"ordered-retry", "unlocked", explore.State, true},
	{"writer-punch", "unlocked", explore.State, false},
}

// The estimate of a search is compared with what the search came to, at four points on its way; the
// table is in the log. It is no promise: the bounds are those that it keeps today, so that a
// mistake in the estimate shows.
func TestEstimate(t *testing.T) {
	need.Long(t)
	points := []float64{.1, .25, .5, .75}
	bounds := []float64{20, 8, 4, 2}
	off := make([][]float64, len(points)) // how many times too high or too low, by point
	once := map[explore.Method]bool{}
	for _, c := range estimated {
		if c.long && !*matrixFull || once[c.method] && testing.Short() {
			continue
		}
		once[c.method] = true
		s, err := Lookup(c.scenario)
		must(t, err)
		var told []explore.Progress
		r, err := Run(s, policy.MustParse(c.policy), Options{Config: func(x *explore.Config) {
			x.Method, x.NoShrink = c.method, true
			if c.method != explore.Bound {
				x.Preemptions = 0
			}
			x.Progress, x.ProgressEvery = func(p explore.Progress) { told = append(told, p) }, 1
		}})
		must(t, err)
		line := fmt.Sprintf("%-21s %-14s %-5s %6d", c.scenario, c.policy, c.method, r.Schedules)
		for i, at := range points {
			p := told[int(at*float64(r.Schedules))]
			if p.Total == 0 {
				line += "      -"
				continue
			}
			ratio := p.Total / float64(r.Schedules)
			off[i] = append(off[i], math.Exp(math.Abs(math.Log(ratio))))
			line += fmt.Sprintf("%7.2f", ratio)
			if !(ratio < bounds[i] && ratio > 1/bounds[i]) {
				t.Errorf("%s under %s by %s: after %d of %d schedules the estimate is %.0f", c.scenario, c.policy, c.method, p.Schedules, r.Schedules, p.Total)
			}
		}
		t.Log(line)
	}
	var median, worst strings.Builder
	for i := range points {
		slices.SortFunc(off[i], cmp.Compare[float64])
		fmt.Fprintf(&median, "%7.2f", off[i][len(off[i])/2])
		fmt.Fprintf(&worst, "%7.2f", off[i][len(off[i])-1])
	}
	t.Logf("%-49s%s", "times too high or too low, median:", &median)
	t.Logf("%-49s%s", "worst:", &worst)
}
