package judges

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"btrlab/internal/policy"
	"btrlab/internal/study/grade"
	truncaterace "btrlab/labs/04-truncate-race"
)

// drainFirst is the order of lab 4's solution.
var drainFirst = []policy.SetsizeStep{policy.DIOWait, policy.SetISize, policy.TruncatePages, policy.WaitOrdered, policy.TruncateItems}

// swapRow judges one answer, by searches of some hundred schedules. kept are the workloads that the
// order itself keeps; none is all of them.
func swapRow(t *testing.T, order []policy.SetsizeStep, name, answer string, kept ...string) (r grade.Row) {
	t.Helper()
	l, j := &Truncate{order: order, answers: map[string]string{name: answer}}, some(300)
	for _, w := range races(order) {
		j.done = append(j.done, grade.Row{Name: w.name, Pass: kept == nil || slices.Contains(kept, w.name)})
	}
	for _, w := range l.swaps() {
		if w.name == name {
			r = grade.Row{Name: w.name, Max: w.points}
			if err := w.judge(j, &r); err != nil {
				t.Fatal(err)
			}
			return r
		}
	}
	t.Fatalf("no question %s", name)
	return r
}

// swapAnswers are those of the solution.
func swapAnswers(t *testing.T) map[string]string {
	b, err := os.ReadFile(filepath.Join(lab(t, 4).About().Dir(root(t)), "instructor", "_solution", "setsize.go"))
	if err != nil {
		t.Fatal(err)
	}
	answers := map[string]string{}
	for _, m := range regexp.MustCompile(`(?m)^\s*"(swap-\d-\d)":\s*"(.*)",`).FindAllStringSubmatch(string(b), -1) {
		answers[m[1]] = m[2]
	}
	if len(answers) != lastSwap {
		t.Fatalf("the solution has %v", answers)
	}
	return answers
}

// TestRewriteSwaps writes the answers of lab 4's solution when the engine's steps have moved.
func TestRewriteSwaps(t *testing.T) {
	if !*rewrite {
		t.Skip("only with -rewrite")
	}
	file := filepath.Join(lab(t, 4).About().Dir(root(t)), "instructor", "_solution", "setsize.go")
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	text := string(b)
	l, j := &Truncate{order: drainFirst}, some(1_000)
	for i := 1; i <= lastSwap; i++ {
		q := l.swap(i)
		answer := Never
		for _, w := range q.rows() {
			var row, r grade.Row
			if answer != Never {
				break
			}
			// the one that the row names
			if err := w.explore(j, &row); err != nil || !row.Violated {
				continue
			}
			if w.beside().explore(j, &r) == nil && r.Violated {
				answer = w.name + "=" + r.Schedule
			}
		}
		text = regexp.MustCompile(fmt.Sprintf(`(?m)^(\s*%q:\s*)".*",$`, q.name)).ReplaceAllString(text, fmt.Sprintf("${1}%q,", answer))
	}
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// TestSwaps: an answer to a swap is judged by what it does: with its schedule it has all points,
// without half, and a workload that says nothing of the swap has none, be it that it keeps the swap
// or that the order violates it anyway.
func TestSwaps(t *testing.T) {
	of2018 := truncaterace.Steps()
	answers := swapAnswers(t)
	name, schedule, _ := strings.Cut(answers["swap-1-2"], "=")
	printed := grade.Row{}
	if w, _ := (&Truncate{order: drainFirst}).swap(1).row(name); w.explore(some(0), &printed) != nil || !printed.Violated {
		t.Fatalf("%s: %+v", name, printed)
	}
	for _, tt := range []struct {
		about, swap, answer string
		order               []policy.SetsizeStep
		kept                []string
		score               float64
		want                string
	}{
		{"solution", "swap-1-2", answers["swap-1-2"], drainFirst, nil, 10, "found: violated (oracle)"},
		{"solution", "swap-2-3", answers["swap-2-3"], drainFirst, nil, 10, "found: violated (oracle)"},
		{"solution", "swap-4-5", answers["swap-4-5"], drainFirst, nil, 10, "found: violated (oracle)"},
		{"not given", "swap-1-2", "?", drainFirst, nil, 0, NoAnswer},
		{"no schedule", "swap-1-2", name, drainFirst, nil, 5, "truncate-race tells, half the points; no schedule is given"},
		{"no preemption", "swap-1-2", name + "=", drainFirst, nil, 5, "truncate-race tells, half the points; nothing is violated by this schedule"},
		{"printed", "swap-1-2", name + "=" + printed.Schedule, drainFirst, nil, 5, "truncate-race tells, half the points; "},
		{"no such task", "swap-1-2", name + "=2:9", drainFirst, nil, 5, "truncate-race tells, half the points; the schedule names step 2"},
		{"of another swap", "swap-1-2", answers["swap-4-5"], drainFirst, nil, 0, "shrink-writeback keeps the swap: "},
		{"never", "swap-1-2", Never, drainFirst, nil, 0, "it can be broken: oracle"},
		{"no workload", "swap-1-2", "truncate-rac=11:1", drainFirst, nil, 0, `no workload "truncate-rac", want one of truncate-race, `},
		{"broken anyway", "swap-4-5", name + "=" + schedule, of2018, []string{"shrink-writeback"}, 0, "truncate-race is violated by your order as it is"},
		{"a wrong order", "swap-4-5", answers["swap-4-5"], of2018, []string{"shrink-writeback"}, 10, "found: violated (oracle)"},
	} {
		r := swapRow(t, tt.order, tt.swap, tt.answer, tt.kept...)
		score := r.Score
		if r.Pass {
			score = r.Max // as Judge does
		}
		if score != tt.score || !strings.HasPrefix(r.Result, tt.want) || r.Violated || r.Misfit {
			t.Errorf("%s, %s = %q: have %g %q, want %g %q", tt.about, tt.swap, tt.answer, score, r.Result, tt.score, tt.want)
		}
	}
}

// TestSwapNever: never is searched, and one of the swaps of the solution matters to nobody.
func TestSwapNever(t *testing.T) {
	if r := swapRow(t, drainFirst, "swap-3-4", Never); !r.Pass || !strings.HasPrefix(r.Result, "never: 6 workloads kept in ") {
		t.Errorf("have %v %q", r.Pass, r.Result)
	}
}

// TestSwapReplay: --replay runs an answer under the order with the swap, and shows its steps.
func TestSwapReplay(t *testing.T) {
	l := &Truncate{Steps: func() []policy.SetsizeStep { return drainFirst }, Answers: func() map[string]string { return nil }}
	answer := swapAnswers(t)["swap-1-2"]
	r := replayed(l, "swap-1-2", answer)[0]
	if !r.Violated || r.Schedule != answer || !strings.Contains(r.Trace, "other reader") {
		t.Errorf("%+v", r)
	}
	if r := swapRow(t, drainFirst, "swap-1-2", "newer"); !strings.HasSuffix(r.Result, "shrink-writeback, or never") {
		t.Errorf("%+v", r)
	}
	if r := replayed(l, "swap-1-2", "never")[0]; !r.Misfit || !strings.HasPrefix(r.Result, `no workload "never"`) || strings.Contains(r.Result, "or never") {
		t.Errorf("%+v", r)
	}
}

// TestSwapReader: the reader of the questions breaks no right order by itself: what an answer
// shows, the swap has done.
func TestSwapReader(t *testing.T) {
	for _, w := range races(drainFirst) {
		var r grade.Row
		if w.beside().explore(some(300), &r) != nil || !r.Pass {
			t.Errorf("%s: %s", w.name, r.Result)
		}
	}
}
