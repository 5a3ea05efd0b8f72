package judges

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"btrlab/internal/policy"
	"btrlab/internal/study/grade"
	"btrlab/internal/study/sandbox"
	"btrlab/internal/testing/need"
)

// orderAnswers are right.
var orderAnswers = map[string]string{"size-last": "16:1", "size-last-inside": Never, "size-first": Never, "delalloc-last": "14:1", "copy-early": "4:1,25:0",
	"dirty-early": "4:1,25:0", "reserve-first": Never, "source-last": Never, "dirty-late": Never, "range-first": "12:1"}

// ordered is a solution with one order for both policies.
func ordered(l []policy.WriteStep) *Orders {
	f := func() []policy.WriteStep { return l }
	return &Orders{Locked: f, Unlocked: f, Answers: func() map[string]string { return orderAnswers }}
}

// orderRows judges some rows of lab 11; no names are those of the student's orders.
func orderRows(t *testing.T, o *Orders, names ...string) (rows []grade.Row) {
	t.Helper()
	if _, bad := o.read(); bad != nil {
		t.Fatal(bad)
	}
	for _, w := range o.Workloads() {
		if names == nil && w.judge != nil || names != nil && !slices.Contains(names, w.name) {
			continue
		}
		r, judge := grade.Row{Name: w.name}, w.search
		if w.judge != nil {
			judge = w.judge
		}
		if err := judge(some(0), &r); err != nil {
			t.Fatal(err)
		}
		rows = append(rows, r)
	}
	return rows
}

// TestOrderStarter: lab 11's starter prepares pages before it has space: no row gives a point, and
// the step is named.
func TestOrderStarter(t *testing.T) {
	for _, r := range Judge(starters[11], &sandbox.Run{}) {
		if r.Pass || r.Score != 0 || r.Result != NoAnswer && !strings.Contains(r.Result, "the batch is at policy.") {
			t.Errorf("%s: %v, %s", r.Name, r.Pass, r.Result)
		}
	}
}

// TestHarmlessOrders: no order is compared with another one. Those that nobody can tell from the
// right one have full points.
func TestHarmlessOrders(t *testing.T) {
	need.Long(t)
	swap := func(s ...policy.WriteStep) []policy.WriteStep {
		l := moved(policy.NoStep, policy.NoStep)
		copy(l[5:8], s)
		return l
	}
	d, i, s := policy.DirtyPages, policy.ISizeWrite, policy.SetDelalloc
	harmless := map[string][]policy.WriteStep{
		"4.17":                swap(d, i, s),
		"delalloc first":      swap(s, i, d),
		"fault after reserve": moved(policy.FaultIn, policy.Reserve),
		"throttle at 6.1":     moved(policy.BalanceDirty, policy.Reserve),
	}
	if !testing.Short() {
		maps.Copy(harmless, map[string][]policy.WriteStep{
			"size first": swap(i, d, s),
			"fault last": moved(policy.FaultIn, policy.BalanceDirty),
		})
	}
	for name, l := range harmless {
		for _, r := range orderRows(t, ordered(l)) {
			if !r.Pass {
				t.Errorf("%s: %s: %s", name, r.Name, r.Result)
			}
		}
	}
	// Inside EOF a batch has its range locked and changes no size.
	for _, step := range []policy.WriteStep{policy.ISizeWrite, policy.SetDelalloc} {
		for _, r := range orderRows(t, ordered(moved(step, policy.DropPages)), "locked-append", "locked-inside", "unlocked-inside", "unlocked-truncate") {
			if want := r.Name != "locked-append"; r.Pass != want {
				t.Errorf("%v last: %s: %v, %s", step, r.Name, r.Pass, r.Result)
			}
		}
	}
}

// TestWrongOrders: a wrong order fails in the row of what can tell, at the step that is named, and
// has the points of the others.
func TestWrongOrders(t *testing.T) {
	for _, tt := range []struct {
		step, after policy.WriteStep
		row, want   string
	}{
		{policy.FaultIn, policy.LockExtent, "locked-source", `lock order.* at policy\.FaultIn`},
		{policy.LockExtent, policy.CopyFromUser, "locked-part", `oracle`},
		{policy.LockExtent, policy.DirtyPages, "locked-again", `panic.* at policy\.LockExtent`},
		{policy.ISizeWrite, policy.DropPages, "locked-append", `oracle.* at policy\.DropPages`},
		{policy.SetDelalloc, policy.DropPages, "locked-append", `panic.* at policy\.DropPages`},
		{policy.BalanceDirty, policy.SetDelalloc, "locked-throttle", `lock order.* at policy\.BalanceDirty`},
		{policy.BalanceDirty, policy.PreparePages, "locked-throttle", `lock order.* at policy\.BalanceDirty`},
	} {
		s := ordered(moved(tt.step, tt.after))
		for _, r := range orderRows(t, s, tt.row, "unlocked-truncate") {
			if r.Name == tt.row {
				if r.Pass || !regexp.MustCompile(tt.want).MatchString(r.Result) {
					t.Errorf("%v after %v: %s: %q want %q", tt.step, tt.after, r.Name, r.Result, tt.want)
				}
				if r.Trace == "" {
					t.Errorf("%v after %v: %s: schedule %q is not shown", tt.step, tt.after, r.Name, r.Schedule)
				}
			}
			if r.Name == "unlocked-truncate" && !r.Pass {
				t.Errorf("%v after %v: %s: %s", tt.step, tt.after, r.Name, r.Result)
			}
		}
	}
}

// TestOrderAnswers: a schedule is run and never is searched; what can be broken is said without the
// schedule.
func TestOrderAnswers(t *testing.T) {
	for name, tt := range map[string]struct{ answer, want string }{
		"size-last":     {Never, "it can be broken: oracle"},
		"size-first":    {"16:1", "nothing is violated by this schedule"},
		"delalloc-last": {"1:7", "the schedule names step 1"},
		"copy-early":    {"later", "not a schedule"},
		"range-first":   {"?", NoAnswer},
		"dirty-early":   {"4:1,25:0", "found: violated (panic)"},
		"dirty-late":    {" never ", "never: exhausted"},
	} {
		s := ordered(moved(policy.NoStep, policy.NoStep))
		s.Answers = func() map[string]string { return map[string]string{name: tt.answer} }
		pass := strings.HasPrefix(tt.want, "found") || strings.HasPrefix(tt.want, "never")
		for _, r := range orderRows(t, s, name) {
			if !strings.HasPrefix(r.Result, tt.want) || r.Schedule != "" || r.Violated || r.Misfit || r.Pass != pass {
				t.Errorf("%s = %q: have %v %q (schedule %q), want %q", name, tt.answer, r.Pass, r.Result, r.Schedule, tt.want)
			}
		}
	}
	for _, r := range orderRows(t, ordered(moved(policy.NoStep, policy.NoStep)), slices.Collect(maps.Keys(orderAnswers))...) {
		if !r.Pass {
			t.Errorf("%s: %s", r.Name, r.Result)
		}
	}
	s := ordered(moved(policy.NoStep, policy.NoStep))
	s.Answers = func() map[string]string { return map[string]string{"sizelast": Never} }
	if r := Judge(s, &sandbox.Run{}); len(r) != 1 || !strings.Contains(r[0].Result, `unknown question "sizelast"`) {
		t.Errorf("%+v", r)
	}
}

// TestRewriteOrders writes the answers of lab 11's solution when the engine's steps have moved.
func TestRewriteOrders(t *testing.T) {
	if !*rewrite {
		t.Skip("only with -rewrite")
	}
	file := filepath.Join(lab(t, 11).About().Dir(root(t)), "instructor", "_solution", "order.go")
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	text := string(b)
	for _, w := range new(Orders).questions() {
		var r grade.Row
		if err := w.explore(some(0), &r); err != nil {
			t.Fatal(err)
		}
		answer := Never
		if r.Violated {
			answer = r.Schedule
		}
		text = regexp.MustCompile(fmt.Sprintf(`(?m)^(\s*%q:\s*)".*",$`, w.name)).ReplaceAllString(text, fmt.Sprintf("${1}%q,", answer))
	}
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}
