package grade

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"btrlab/internal/data/inode"
	"btrlab/internal/iopath/policy"
	"btrlab/internal/study/scenario"
	truncaterace "btrlab/labs/04-truncate-race"
	rangelock "btrlab/labs/05-range-lock"
)

func root(t *testing.T) string {
	t.Helper()
	r, err := Root(".")
	if err != nil {
		t.Fatal(err)
	}
	return r
}

var rewrite = flag.Bool("rewrite", false, "write the schedules of lab 1's solution anew, as the explorer finds them")

// TestRewrite writes the answers of lab 1 when the engine's steps have moved.
func TestRewrite(t *testing.T) {
	if !*rewrite {
		t.Skip("only with -rewrite")
	}
	var b strings.Builder
	b.WriteString("# Found with btrlab explore.\n")
	for _, k := range lab1 {
		answer := map[string]string{"keep-the-truncate": "unlocked-drain", "keep-the-writes": "range-lock"}[k.name]
		if !k.keeps {
			x, err := scenario.Run(must(k.scenario), policy.MustParse(k.policy), scenario.Options{})
			if err != nil || x.Schedule == "" {
				t.Fatalf("%s: %+v, %v", k.name, x, err)
			}
			answer = x.Schedule
		}
		fmt.Fprintf(&b, "%s = %s\n", k.name, answer)
	}
	if err := os.WriteFile(filepath.Join(Labs[0].Dir(root(t)), "instructor", "_solution", "schedules.txt"), []byte(b.String()), 0o644); err != nil {
		t.Fatal(err)
	}
}

// TestPredict: answers are kept, and come back beside what is right.
func TestPredict(t *testing.T) {
	l, dir := Labs[1], t.TempDir()
	q, err := os.ReadFile(filepath.Join(l.Dir(root(t)), "predict.json"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(l.Dir(dir), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(l.Dir(dir), "predict.json"), q, 0o644); err != nil {
		t.Fatal(err)
	}
	if l.prediction(dir) != nil {
		t.Error("a prediction that nobody made")
	}
	for _, bad := range [][]string{{"a"}, {"a", "b", "z"}, {"a", "b", ""}, {"a", "b", "ab"}} {
		if l.Predict(dir, bad) == nil {
			t.Errorf("%q: no error", bad)
		}
	}
	if err := l.Predict(dir, []string{"a", "b", "c"}); err != nil {
		t.Fatal(err)
	}
	if p := l.prediction(dir); len(p) != 3 || p[0].Said != "a" || p[0].Right != "b" || p[2].Said != "c" {
		t.Errorf("%+v", p)
	}
}

// TestSolutionsAndMutants: every solution gets full marks and every planted mistake is rejected. Labs with Go code build a program
// for each, which takes minutes: make labs sets BTRLAB_LABS.
func TestSolutionsAndMutants(t *testing.T) {
	r := root(t)
	for _, l := range Labs {
		if l.allowed != nil && os.Getenv("BTRLAB_LABS") == "" {
			t.Logf("lab %02d: skipped, make labs grades it", l.N)
			continue
		}
		instructor := filepath.Join(l.Dir(r), "instructor")
		t.Run(fmt.Sprintf("%02d/solution", l.N), func(t *testing.T) {
			x, err := Grade(r, l, Options{Dir: filepath.Join(instructor, "_solution")})
			if err != nil {
				t.Fatal(err)
			}
			if !x.Pass || x.Score != x.Max || x.Max != 100 {
				t.Errorf("the solution has %g of %g points\n%s", x.Score, x.Max, text(x))
			}
		})
		mutants, err := os.ReadDir(filepath.Join(instructor, "_mutants"))
		if err != nil {
			t.Fatal(err)
		}
		if len(mutants) < 5 {
			t.Errorf("lab %d has %d mutants, want at least 5", l.N, len(mutants))
		}
		for _, m := range mutants {
			t.Run(fmt.Sprintf("%02d/%s", l.N, m.Name()), func(t *testing.T) {
				x, err := Grade(r, l, Options{Dir: filepath.Join(instructor, "_mutants", m.Name())})
				if err != nil {
					t.Fatal(err)
				}
				if x.Pass || x.Score >= 100 {
					t.Errorf("the mutant is accepted\n%s", text(x))
				}
				for _, row := range x.Rows {
					if !row.Pass {
						first, _, _ := strings.Cut(row.Result, "\n")
						t.Logf("%s: %s", row.Name, first)
						if row.Schedule != "" {
							t.Logf("  %s", row.Replay)
						}
						break
					}
				}
			})
		}
	}
}

func text(r *Report) string {
	var b strings.Builder
	_ = r.WriteText(&b)
	return b.String()
}

// TestStarters: what students begin with compiles, keeps what it promises, and does not pass.
func TestStarters(t *testing.T) {
	student := &Student{Steps: truncaterace.Steps}
	var r Row
	if w := setsizeWorkloads()[0]; w.explore(student, &r) != nil || !r.Violated || r.Schedule == "" {
		t.Errorf("the order of 2018 does not lose the truncate: %+v", r)
	}
	if again := Judge(4, student, "truncate-race", r.Schedule); len(again) != 1 || again[0].Pass || again[0].Trace == "" {
		t.Errorf("the schedule does not show it again: %+v", again)
	}
	for _, r := range Judge(5, &Student{NewRangeLock: func() inode.RangeLocker { return rangelock.New() }}, "", "") {
		if want := r.Name != "lock-touching" && r.Name != "virtual-time"; r.Pass != want {
			t.Errorf("%s: %v, %s", r.Name, r.Pass, r.Result)
		}
	}
	inode.NewRangeLocker = nil
}

// TestOrders runs all 120 orders of the five steps: the list of those that the workloads accept is what instructor/NOTES.md says.
func TestOrders(t *testing.T) {
	if os.Getenv("BTRLAB_LABS") == "" {
		t.Skip("takes a minute: make labs")
	}
	var accepted []string
	var try func(order, left []policy.SetsizeStep)
	try = func(order, left []policy.SetsizeStep) {
		for i, s := range left {
			rest := append(append([]policy.SetsizeStep(nil), left[:i]...), left[i+1:]...)
			try(append(order[:len(order):len(order)], s), rest)
		}
		if len(left) > 0 {
			return
		}
		student := &Student{Steps: func() []policy.SetsizeStep { return order }}
		for _, w := range setsizeWorkloads() {
			var r Row
			if err := w.explore(student, &r); err != nil {
				t.Fatal(err)
			}
			if !r.Pass {
				return
			}
		}
		accepted = append(accepted, fmt.Sprint(order))
	}
	try(nil, truncaterace.Steps())
	want := []string{
		"[dio_wait set_i_size truncate_pages wait_ordered truncate_items]",
		"[dio_wait set_i_size wait_ordered truncate_pages truncate_items]",
		"[dio_wait set_i_size wait_ordered truncate_items truncate_pages]",
	}
	if !slices.Equal(accepted, want) {
		t.Errorf("accepted are\n%s\nwant\n%s", strings.Join(accepted, "\n"), strings.Join(want, "\n"))
	}
}

// TestSteps: what needs no execution.
func TestSteps(t *testing.T) {
	for _, tt := range []struct {
		steps []policy.SetsizeStep
		want  string
	}{
		{truncaterace.Steps(), ""},
		{truncaterace.Steps()[1:], "set_i_size is missing"},
		{append(truncaterace.Steps(), policy.DIOWait), "have 6 steps"},
		{[]policy.SetsizeStep{policy.DIOWait, policy.DIOWait}, "dio_wait comes twice"},
		{[]policy.SetsizeStep{policy.TruncateSetsize}, "step 1 is none of the five"},
		{[]policy.SetsizeStep{99}, "step 99 is none of the five"},
	} {
		if got := checkSteps(tt.steps); !strings.HasPrefix(got, tt.want) || (got == "") != (tt.want == "") {
			t.Errorf("%d: have %q want %q", tt.steps, got, tt.want)
		}
	}
}

// TestCheck: everything that would let student code wait, or keep state, where the explorer does not see it.
func TestCheck(t *testing.T) {
	for _, tt := range []struct{ name, src, want string }{
		{"clean", "package p\nimport \"slices\"\nvar _ = 1", "x.go:3: has a variable"},
		{"allowed", "package p\nimport \"slices\"\nfunc f(l []int) { slices.Sort(l) }", ""},
		{"sync", "package p\nimport \"sync\"", `x.go:2: imports "sync"`},
		{"atomic", "package p\nimport \"sync/atomic\"", `x.go:2: imports "sync/atomic"`},
		{"time", "package p\nimport \"time\"", `x.go:2: imports "time"`},
		{"unsafe", "package p\nimport \"unsafe\"", `x.go:2: imports "unsafe"`},
		{"os", "package p\nimport \"os\"", `x.go:2: imports "os"`},
		{"renamed", "package p\nimport s \"sync\"", `x.go:2: imports "sync"`},
		{"cgo", "package p\nimport \"C\"", `x.go:2: imports "C"`},
		{"dot", "package p\nimport . \"slices\"", `x.go:2: imports "slices" as .`},
		{"go", "package p\nfunc f() { go f() }", "x.go:2: has a go statement"},
		{"channel", "package p\nfunc f() { _ = make(chan int) }", "x.go:2: has a channel"},
		{"select", "package p\nfunc f() { select {} }", "x.go:2: has a select"},
		{"recover", "package p\nfunc f() { defer func() { recover() }() }", "x.go:2: has a recover"},
		{"init", "package p\nfunc init() {}", "x.go:2: has an init function"},
		{"directive", "package p\n//go:linkname f g\nfunc f()", "x.go:2: has the directive //go:linkname"},
		{"main", "package main", "x.go:1: package main"},
		{"broken", "package p\nfunc", "x.go:2:"},
	} {
		file := filepath.Join(t.TempDir(), "x.go")
		if err := os.WriteFile(file, []byte(tt.src), 0o644); err != nil {
			t.Fatal(err)
		}
		_, bad := Check([]string{file}, []string{"slices"})
		if got := strings.Join(bad, "\n"); !strings.HasPrefix(got, tt.want) || (got == "") != (tt.want == "") {
			t.Errorf("%s: have %q want %q", tt.name, got, tt.want)
		}
	}
}

// TestTexts: every lab has its text with all sections, three hints, and predictions with their answers.
func TestTexts(t *testing.T) {
	r := root(t)
	for _, l := range Labs {
		readme, err := l.Text(r)
		if err != nil {
			t.Error(err)
			continue
		}
		for _, h := range []string{"## Outcomes", "## Story", "## Invariants", "## Prediction", "## Tasks", "## Checkpoint", "## Questions", "## In the real kernel", fmt.Sprintf("%d minutes", l.Minutes)} {
			if !strings.Contains(readme, h) {
				t.Errorf("lab %d: README.md has no %q", l.N, h)
			}
		}
		for level := range MaxHint {
			if h, err := l.Hint(r, level+1); err != nil || len(h) < 40 {
				t.Errorf("lab %d, hint %d: %q, %v", l.N, level+1, h, err)
			}
		}
		qs, err := l.Questions(r)
		if err != nil || len(qs) < 2 {
			t.Errorf("lab %d: %d questions, %v", l.N, len(qs), err)
		}
		for _, q := range qs {
			if q.Ask == "" || q.Why == "" || len(q.Answer) != 1 || q.Answer[0] < 'a' || int(q.Answer[0]-'a') >= len(q.Choices) {
				t.Errorf("lab %d: question %+v", l.N, q)
			}
		}
		if _, err := os.Stat(filepath.Join(l.Dir(r), "instructor", "NOTES.md")); err != nil {
			t.Error(err)
		}
	}
}

// TestGradescope: results.json has the points and says what failed.
func TestGradescope(t *testing.T) {
	rep := Report{Lab: 4, Title: "The truncate race", Rows: []Row{
		{Name: "a", Asks: "b", Max: 40, Score: 40, Pass: true, Result: "exhausted: 3 schedules"},
		{Name: "c", Asks: "d", Max: 60, Result: "violated", Schedule: "4:1", Replay: "btrlab lab grade 4 --replay c=4:1"}}}
	rep.sum()
	var b strings.Builder
	if err := rep.WriteGradescope(&b); err != nil {
		t.Fatal(err)
	}
	var got struct {
		Score float64
		Tests []struct {
			Status    string
			Max_score float64
			Output    string
		}
	}
	if err := json.Unmarshal([]byte(b.String()), &got); err != nil {
		t.Fatal(err)
	}
	if got.Score != 40 || len(got.Tests) != 2 || got.Tests[0].Status != "passed" || got.Tests[1].Status != "failed" || got.Tests[1].Max_score != 60 ||
		!strings.Contains(got.Tests[1].Output, "--replay c=4:1") || rep.Pass {
		t.Errorf("%+v\n%s", got, b.String())
	}
}
