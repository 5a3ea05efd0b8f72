package judges

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"

	"btrlab/internal/judge/park"
	"btrlab/internal/policy"
	"btrlab/internal/prose"
	"btrlab/internal/sched/explore"
	"btrlab/internal/study/grade"
	"btrlab/internal/study/practice"
	"btrlab/internal/study/sandbox"
	"btrlab/internal/study/scenario"
)

// Linux is lab 17: schedules, and what kernels do that are led through them. The kernels are those
// that were recorded, so that a grade needs none.
type Linux struct{}

// About says what the lab is.
func (Linux) About() *About {
	return &About{N: 17, Folder: "17-do-it-to-linux", Title: "Do it to Linux", Minutes: 45, Blind: "answers are schedules and kernels", File: answersFile, Try: "replay"}
}

// Workloads are the tasks, with those of nobody in the places of the personal ones.
func (l Linux) Workloads() []Workload { return l.of("") }

// lab17 are the tasks that everybody has: a bug, by the kernels that have it.
var lab17 = []struct {
	name, asks string
	points     float64
	broken     []string
}{
	{"old", "a violation that Linux 5.10 does, and no later kernel", 10, []string{"5.10"}},
	{"since", "one that every kernel does that has the request: 6.1, 6.12, 6.18 and 7.3", 10, []string{"6.1", "6.12", "6.18", "7.3"}},
	{"came-back", "one of 6.1 and 6.12 that 6.18 does not do, and 7.3 does again", 12, []string{"6.1", "6.12", "7.3"}},
}

// of are the tasks of a student.
func (Linux) of(student string) (rows []Workload) {
	add := func(name, asks string, points float64, judge func(answer string) (wrong string, err error)) {
		rows = append(rows, Workload{name: name, asks: asks, points: points,
			answer: func(_ context.Context, answer string, _ func(sandbox.Progress), r *grade.Row) error {
				sandbox.Execute(name)
				wrong, err := judge(answer)
				r.Pass, r.Result = wrong == "", wrong
				if r.Pass {
					r.Result = "right"
				}
				return err
			}})
	}
	for _, k := range lab17 {
		add(k.name, k.asks+": SCENARIO POLICY SCHEDULE", k.points, func(answer string) (string, error) { return breaksOn(answer, k.broken) })
	}
	for i, e := range edgesOf(student) {
		asks := func(which string) string {
			return fmt.Sprintf("%s under unlocked: the %s STEP:1 that Linux %s refuses (refused by Linux)", e.scenario, which, e.version)
		}
		add(fmt.Sprintf("first-%d", i+1), asks("first"), 4, func(answer string) (string, error) { return e.judge(answer, true) })
		add(fmt.Sprintf("last-%d", i+1), asks("last"), 12, func(answer string) (string, error) { return e.judge(answer, false) })
	}
	for i, o := range ordersOf(student) {
		add(fmt.Sprintf("kernels-%d", i+1), fmt.Sprintf("%s '%s' under %s: the kernels of 5.10, 6.1, 6.12, 6.18 and 7.3 that end as the engine does, or none", o.Scenario, o.Schedule, o.Policy), 10,
			func(answer string) (string, error) { return sameOn(answer, o) })
	}
	return rows
}

// recordings are what each kernel did, oldest first. They are part of the program.
var recordings = sync.OnceValue(func() (list []*park.Recording) {
	for _, v := range park.RecordedVersions {
		r, err := park.Recorded(v)
		if err != nil {
			panic("judges: " + err.Error())
		}
		list = append(list, r)
	}
	return list
})

// breaksOn judges SCENARIO POLICY SCHEDULE: do just these kernels break in it as the engine does?
// It says what is wrong; "" is right.
func breaksOn(answer string, broken []string) (wrong string, err error) {
	words := strings.Fields(strings.ReplaceAll(answer, "''", ""))
	if len(words) != 2 && len(words) != 3 {
		return "want SCENARIO POLICY SCHEDULE, as in truncate-race unlocked 11:1", nil
	}
	s, err := scenario.Lookup(words[0])
	if err != nil {
		return err.Error(), nil
	}
	p, err := policy.Parse(words[1])
	if err != nil {
		return err.Error(), nil
	}
	schedule := strings.Join(words[2:], "")
	tr, err := scenario.Replay(s, &p, schedule, false)
	switch {
	case err != nil:
		return err.Error(), nil
	case tr.Kind == explore.KindMisfit:
		return misfit(tr.Violation), nil
	case tr.Kind == explore.OK:
		return "the engine itself does not break in this schedule", nil
	}
	var asked, have []string
	for _, r := range recordings() {
		x, err := r.Find(s, &p, tr.Schedule)
		if err != nil {
			return "", err
		}
		if x != nil {
			asked = append(asked, r.Version)
		}
		if x != nil && x.Outcome() == park.Broken {
			have = append(have, r.Version)
		}
	}
	switch {
	case len(asked) == 0:
		return "the engine breaks, and no kernel was led through that order: want one of an exhibit that btrlab museum --kernel 6.1 --recorded shows", nil
	case !slices.Equal(have, broken):
		return fmt.Sprintf("of the kernels that were led through it, %s, it is not just those that are asked for that break", prose.List(asked)), nil
	}
	return "", nil
}

// edge is a scenario without locks, and a kernel that forbids that task 1 comes in while task 0
// does some of its steps.
type edge struct {
	scenario, version string
	// refused has each schedule STEP:1 of the scenario.
	refused     map[string]bool
	first, last string // of those that are refused
}

// edges are all whose answer is known: every schedule is recorded, the kernel refuses some of them
// and takes others.
var edges = sync.OnceValue(func() (list []*edge) {
	unlocked := policy.MustParse("unlocked")
	all := map[string][]single{} // of a scenario
	for _, r := range recordings() {
		if r.Version == "5.10" {
			continue // it has no function that unlocks, so no place where a write ends
		}
		outcome := map[string]park.Outcome{} // of an order
		for _, x := range r.Runs {
			if x.Policy != unlocked.Name {
				continue
			}
			if all[x.Scenario] == nil {
				all[x.Scenario] = singles(must(x.Scenario), unlocked)
			}
			// Task 0 may return without having come to a place: then the other came in later.
			i := slices.IndexFunc(all[x.Scenario], func(y single) bool { return y.schedule == x.Schedule })
			if i >= 0 && !slices.ContainsFunc(x.Notes, func(n string) bool { return strings.HasPrefix(n, "task 0 returns without") }) {
				outcome[x.Scenario+all[x.Scenario][i].order] = x.Outcome()
			}
		}
		for _, name := range slices.Sorted(maps.Keys(all)) {
			e := &edge{scenario: name, version: r.Version, refused: map[string]bool{}}
			known, taken := true, false
			for _, x := range all[name] {
				o := outcome[name+x.order]
				known, taken = known && o != "", taken || o != park.Refused
				if e.refused[x.schedule] = o == park.Refused; e.refused[x.schedule] {
					e.first, e.last = cmp.Or(e.first, x.schedule), x.schedule
				}
			}
			if known && taken && e.first != "" {
				list = append(list, e)
			}
		}
	}
	return list
})

// single is a schedule STEP:1 and where it leads the tasks of Linux.
type single struct{ schedule, order string }

// singles are those of a scenario, in order of the steps.
func singles(s *scenario.Scenario, p *policy.Policy) (list []single) {
	plain, err := scenario.Replay(s, p, "", false)
	if err != nil {
		panic("judges: " + err.Error())
	}
	for k := range plain.Steps {
		schedule := fmt.Sprintf("%d:1", k)
		tr, err := scenario.Replay(s, p, schedule, false)
		if err == nil && tr.Kind != explore.KindMisfit && tr.Schedule == schedule {
			list = append(list, single{schedule, park.OrderOf(tr, s)})
		}
	}
	return list
}

// judge judges the first or the last schedule of those that are refused.
func (e *edge) judge(answer string, first bool) (wrong string, err error) {
	refused, known := e.refused[answer]
	want, which := e.last, "a later"
	if first {
		want, which = e.first, "an earlier"
	}
	switch {
	case !known:
		return fmt.Sprintf("%q is no schedule STEP:1 of %s under unlocked in which task 1 comes in", answer, e.scenario), nil
	case !refused:
		return fmt.Sprintf("not refused by Linux %s", e.version), nil
	case answer != want:
		return fmt.Sprintf("Linux %s refuses it, and %s one as well", e.version, which), nil
	}
	return "", nil
}

// edgesOf are those of a student: three scenarios.
func edgesOf(student string) (list []*edge) {
	all := slices.Clone(edges())
	draw(student, 1).Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	for _, e := range all {
		if len(list) < 3 && !slices.ContainsFunc(list, func(x *edge) bool { return x.scenario == e.scenario }) {
			list = append(list, e)
		}
	}
	return list
}

// ordersOf are schedules of a student that all kernels were led through, and that some of them end
// as the engine does.
func ordersOf(student string) []*park.Replayed {
	all := recordings()
	list := slices.DeleteFunc(slices.Clone(all[0].Runs), func(x *park.Replayed) bool {
		same := sameAs(all, x)
		return !strings.HasPrefix(x.Policy, "linux-") || len(same) == 0 || len(same) == len(all)
	})
	draw(student, 2).Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
	return list[:min(2, len(list))]
}

// sameAs are the kernels that end as the engine does in a schedule; nil if not all are recorded.
func sameAs(all []*park.Recording, o *park.Replayed) []string {
	list := []string{}
	for _, r := range all {
		i := slices.IndexFunc(r.Runs, func(x *park.Replayed) bool {
			return x.Scenario == o.Scenario && x.Policy == o.Policy && x.Schedule == o.Schedule
		})
		if i < 0 {
			return nil
		}
		if r.Runs[i].Outcome() == park.Same {
			list = append(list, r.Version)
		}
	}
	return list
}

// sameOn judges a list of kernels.
func sameOn(answer string, o *park.Replayed) (wrong string, err error) {
	have := strings.FieldsFunc(answer, func(c rune) bool { return c == ' ' || c == ',' })
	if answer == "none" {
		have = nil
	}
	for _, v := range have {
		if !slices.Contains(park.RecordedVersions, v) {
			return fmt.Sprintf("%q is none of %s", v, prose.List(park.RecordedVersions)), nil
		}
	}
	want := sameAs(recordings(), o)
	slices.Sort(have)
	slices.Sort(want)
	if !slices.Equal(slices.Compact(have), want) {
		return "these are not just the kernels that end so", nil
	}
	return "", nil
}

// draw is what a student's id draws for one part of the lab.
func draw(student string, part int) *rand.Rand {
	return rand.New(rand.NewPCG(practice.StudentSeed(student, Linux{}.About().N, part), 0))
}
