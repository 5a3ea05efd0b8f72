package scenario

import (
	"bytes"
	"cmp"
	"flag"
	"fmt"
	"os"
	"reflect"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"
	"text/tabwriter"

	"btrlab/internal/policy"
	"btrlab/internal/sched/explore"
	"btrlab/internal/testing/need"
)

var (
	matrixFull    = flag.Bool("matrix.full", false, "search every cell of the matrix to its end, as make bench does")
	matrixRewrite = flag.Bool("matrix.rewrite", false, "write testdata/matrix.txt anew from a full search")
	matrixOnly    = flag.String("matrix.only", "", "search the scenarios whose names match; for the others testdata/matrix.txt is believed")
)

const matrixFile = "testdata/matrix.txt"

// Limits of a cell, in schedules. The small one finds most of what one or two preemptions break; a
// cell that is known to be broken and is not broken yet is searched up to the large one.
const (
	smallCell = 200
	fullCell  = 100_000
)

// TestMatrix holds the verdict of every scenario under every preset against testdata/matrix.txt, by
// the scenario's rule and by what the policy itself promises. A cell is
//
//	proved    no schedule breaks the rule, and a full search ends
//	kept:N    no schedule with at most N preemptions breaks it, which is the scenario's bound, and all of them were tried
//	limit:N   the same, and the search ended at fullCell schedules before it came to the bound
//	broken:N  the shortest schedule that breaks it has N preemptions
//
// The third and fourth tables are the scenarios of NOWAIT, by their rule, under the presets of
// NOWAIT: buffered and direct writes. The fifth is that of direct writes of sectors under their
// designs, the sixth that of fsync. A cell of a policy that a scenario is not about is -.
//
// The full search takes eleven minutes of processor time. Of 753 cells 523 are proved, 176
// kept, 3 at the limit and 51 broken.
//
// So a new scenario, a wider policy or a wait that got lost shows as a row that differs, and a
// search that no longer ends shows with -matrix.full. By the rule, what is broken is what the
// thread of seed 002 found: whole writes, the truncate and the punch under the unlocked policies,
// because they hold no lock between two batches. By its own promise unlocked alone is broken: with
// a lost truncate a block may get two ordered extents (truncate-rewrite). Those that promise whole
// requests have no second table, because it would be the same search. Direct writes promise whole
// extents only (direct-extents-whole), and one from a mapping of its own range waited for itself
// before 5.16 (direct-mapped).
func TestMatrix(t *testing.T) {
	need.Long(t)
	full := *matrixFull || *matrixRewrite
	var table bytes.Buffer
	var byRule []Result
	want, err := os.ReadFile(matrixFile)
	if !*matrixRewrite {
		must(t, err)
	}
	rows := matrixRows(string(want))
	for _, judged := range []string{"rule", "own", "nowait", "direct", "unaligned", "fsync"} {
		own, names, scenarios := judged == "own", policy.Names(), All()
		switch judged {
		case "own":
			names = slices.DeleteFunc(names, func(name string) bool {
				c := policy.MustParse(name).Contract()
				return c.WriteAtom == policy.AtomRequest && c.TruncateHolds
			})
		case "nowait", "direct", "unaligned", "fsync":
			names = map[string][]string{"nowait": nowaitBuffered, "direct": policy.NowaitNames(), "unaligned": policy.UnalignedNames(), "fsync": policy.FsyncNames()}[judged]
			scenarios = slices.DeleteFunc(slices.Clone(scenarios), func(s *Scenario) bool {
				other := len(s.Policies) == 0 || slices.Equal(s.Policies, nowaitBuffered) != (judged == "nowait")
				return other || slices.ContainsFunc(s.Policies, func(p string) bool { return !slices.Contains(names, p) })
			})
		}
		o := Options{Own: own, Config: func(c *explore.Config) {
			c.Schedules = smallCell
			if full {
				c.Schedules = fullCell
			}
			c.NoShrink = true
		}}
		only := regexp.MustCompile(*matrixOnly)
		results, err := Matrix(slices.DeleteFunc(slices.Clone(scenarios), func(s *Scenario) bool { return !only.MatchString(s.Name) }), names, o, runtime.GOMAXPROCS(0), nil, nil)
		must(t, err)
		w := tabwriter.NewWriter(&table, 0, 1, 2, ' ', 0)
		fmt.Fprintf(w, "%s\t%s\n", judged, strings.Join(names, "\t"))
		at := 0
		for _, s := range scenarios {
			if len(s.Policies) > 0 && !slices.Contains(names, s.Policies[0]) {
				continue
			}
			line := s.Name
			for _, name := range names {
				cell := [3]string{judged, s.Name, name}
				expect := rows[cell]
				delete(rows, cell)
				have := expect
				switch {
				case len(s.Policies) > 0 && !slices.Contains(s.Policies, name):
					if have = "-"; have != expect && !*matrixRewrite {
						t.Errorf("%v: have no search want %s", cell, expect)
					}
				case only.MatchString(s.Name):
					r := &results[at]
					at++
					if have = matrixCell(s, r); strings.HasPrefix(expect, "broken") && strings.HasPrefix(have, "limit") {
						// The small search ended before the schedule that breaks it.
						deeper := o
						deeper.Config = func(c *explore.Config) { c.Schedules, c.NoShrink = fullCell, true }
						*r, err = Run(s, policy.MustParse(name), deeper)
						must(t, err)
						have = matrixCell(s, r)
					}
					if r.Scenario != s.Name || r.Policy != name {
						t.Fatalf("%s under %s, want %v", r.Scenario, r.Policy, cell)
					}
					// A small search need not end, neither by number of preemptions nor by DPOR.
					small := !full && !strings.HasPrefix(expect, "broken") && (strings.HasPrefix(have, "limit") || strings.HasPrefix(have, "kept") && expect == "proved")
					if have != expect && !*matrixRewrite && !small {
						t.Errorf("%s under %s, judged by its %s: have %s want %s: %s: %s\n%s", r.Scenario, r.Policy, judged, have,
							cmp.Or(expect, "a row in "+matrixFile), r.Kind, r.Violation, r.Replay)
					}
				}
				line += "\t" + have
			}
			fmt.Fprintln(w, line)
		}
		must(t, w.Flush())
		fmt.Fprintln(&table)
		if judged == "rule" {
			byRule = results
		}
	}
	if *matrixRewrite {
		must(t, os.WriteFile(matrixFile, append(bytes.TrimRight(table.Bytes(), "\n"), '\n'), 0o644))
		return
	}
	if *matrixOnly != "" {
		return
	}
	for cell := range rows {
		t.Errorf("%s has a row for %v, which nobody searched", matrixFile, cell)
	}
	var b strings.Builder
	must(t, WriteMatrix(&b, byRule, policy.Names(), "200 schedules"))
	for _, want := range []string{"switch at the scenario's switch points only", "not what a policy promises (--own)", "at most 200 schedules in a cell"} {
		if !strings.Contains(strings.Join(strings.Fields(b.String()), " "), want) {
			t.Errorf("the legend does not say %q:\n%s", want, b.String())
		}
	}
	if !strings.Contains(b.String(), "btrlab replay truncate-race") {
		t.Errorf("the matrix lacks a replay command:\n%s", b.String())
	}
}

// What one search breaks no other proves. TestMatrix searches by number of preemptions; here the
// broken cells and the wrong orders of the museum are searched by the other methods, which take
// different schedules for equal.
func TestBrokenIsNotExhausted(t *testing.T) {
	need.Long(t)
	text, err := os.ReadFile(matrixFile)
	must(t, err)
	type broken struct{ scenario, policy string }
	var cells []broken
	for cell, verdict := range matrixRows(string(text)) {
		if cell[0] == "rule" && strings.HasPrefix(verdict, "broken") {
			cells = append(cells, broken{cell[1], cell[2]})
		}
	}
	if len(cells) < 10 {
		t.Fatalf("%s has %d broken cells", matrixFile, len(cells))
	}
	for _, e := range Museum {
		cells = append(cells, broken{e.Scenario, e.Broken})
	}
	limit := 2000
	if testing.Short() {
		limit = 600
	}
	for _, c := range cells {
		s, err := Lookup(c.scenario)
		must(t, err)
		for _, m := range []explore.Method{explore.State, explore.DPOR} {
			r, err := Run(s, policy.MustParse(c.policy), Options{Config: func(x *explore.Config) {
				x.Method, x.Preemptions, x.NoShrink, x.Schedules = m, 0, true, limit
			}})
			must(t, err)
			if r.Verdict == explore.Exhausted {
				t.Errorf("%s under %s by %s: %s, and another search breaks it", c.scenario, c.policy, m, r.Bound)
			}
		}
	}
}

// DPOR does not end where the catalogue says so, and so it is not begun there. It ends in all other
// cells of the scenarios that it proves, or TestMatrix has another verdict.
func TestTooMany(t *testing.T) {
	for _, s := range catalog {
		for _, name := range s.TooMany {
			limit := smallCell
			if *matrixFull {
				limit = CellSchedules
			}
			r, err := Run(s, policy.MustParse(name), Options{Config: func(c *explore.Config) {
				c.Method, c.Preemptions, c.Schedules, c.NoShrink = explore.DPOR, 0, limit, true
			}})
			must(t, err)
			if !s.Prove || s.Preemptions == 0 || r.Verdict != explore.Bounded {
				t.Errorf("%s under %s, which DPOR proves: %v, by DPOR: %s", s.Name, name, s.Prove, r.Bound)
			}
		}
	}
}

// matrixCell is a result as testdata has it.
func matrixCell(s *Scenario, r *Result) string {
	switch {
	case r.Verdict == explore.Violated && r.Kind != explore.KindOracle:
		return fmt.Sprintf("broken:%d:%s", r.Preemptions, strings.ReplaceAll(string(r.Kind), " ", "-"))
	case r.Verdict == explore.Violated:
		return fmt.Sprintf("broken:%d", r.Preemptions)
	case r.Verdict == explore.Exhausted:
		return "proved"
	case r.Preemptions < s.Preemptions || s.Preemptions == 0:
		return fmt.Sprintf("limit:%d", r.Preemptions)
	}
	return fmt.Sprintf("kept:%d", r.Preemptions)
}

// matrixRows reads testdata: the cells by judgement, scenario and policy.
func matrixRows(text string) map[[3]string]string {
	rows := map[[3]string]string{}
	var head []string
	for _, l := range strings.Split(text, "\n") {
		f := strings.Fields(l)
		switch {
		case len(f) == 0:
			head = nil
		case head == nil:
			head = f
		default:
			for i, c := range f[1:] {
				rows[[3]string{head[0], f[0], head[i+1]}] = c
			}
		}
	}
	return rows
}

// Cells that are searched at the same time come out as each does alone, in the same order.
func TestMatrixByJobs(t *testing.T) {
	var scenarios []*Scenario
	for _, name := range []string{"truncate-race", "two-writers-overlap", "stable-pages"} {
		s, err := Lookup(name)
		must(t, err)
		scenarios = append(scenarios, s)
	}
	o := Options{Config: func(c *explore.Config) { c.Schedules = smallCell }}
	var want []Result
	for _, jobs := range []int{1, 4} {
		told, rows := -1, []string(nil)
		have, err := Matrix(scenarios, policy.Names(), o, jobs, func(done, all int) {
			if told++; done != told || all != len(scenarios)*len(policy.Names()) {
				t.Errorf("call %d: %d of %d", told, done, all)
			}
		}, func(s string, results []Result) {
			// a row comes as soon as it has ended, and not at the end of all
			if rows = append(rows, s); len(results) != len(policy.Names()) || results[0].Scenario != s || jobs == 1 && told != len(rows)*len(results) {
				t.Errorf("row %d, %s: %d results after %d searches", len(rows), s, len(results), told)
			}
		})
		if !slices.Equal(rows, []string{"truncate-race", "two-writers-overlap", "stable-pages"}) {
			t.Errorf("%d jobs: rows %q", jobs, rows)
		}
		must(t, err)
		for i := range have {
			have[i].Seconds = 0
		}
		if want == nil {
			want = have
		}
		if n := len(scenarios) * len(policy.Names()); told != n || len(have) != n {
			t.Errorf("%d jobs: %d results, told of %d, want %d", jobs, len(have), told, n)
		}
		if !reflect.DeepEqual(have, want) {
			t.Errorf("%d jobs: have %+v\nwant %+v", jobs, have, want)
		}
	}
}
