package grade

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"btrlab/internal/iopath/policy"
	"btrlab/internal/sched"
	"btrlab/internal/sched/explore"
	lockedbaseline "btrlab/labs/02-locked-baseline"
	unlocked "btrlab/labs/03-unlocked"
	truncaterace "btrlab/labs/04-truncate-race"
	rangelock "btrlab/labs/05-range-lock"
	movethewaits "btrlab/labs/06-move-the-waits"
	nowaitdirect "btrlab/labs/07-nowait-direct"
	ring "btrlab/labs/08-ring"
	preparefirst "btrlab/labs/09-prepare-first"
	unaligned "btrlab/labs/10-unaligned"
	orderawrite "btrlab/labs/11-order-a-write"
	capstone "btrlab/labs/12-capstone"
	"btrlab/labs/kit"
)

func root(t *testing.T) string {
	t.Helper()
	r, err := Root(".")
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func lab(t *testing.T, n int) *Course {
	t.Helper()
	l, err := Lookup(n)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// TestPredict: answers are kept, and come back beside what is right.
func TestPredict(t *testing.T) {
	l, dir := lab(t, 4), t.TempDir()
	copyIn := func(name string) {
		b, err := os.ReadFile(filepath.Join(l.Dir(root(t)), name))
		if err != nil {
			t.Fatal(err)
		}
		file := filepath.Join(l.Dir(dir), name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, b, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	copyIn("predict.json")
	if b, err := os.ReadFile(filepath.Join(l.Dir(dir), "predict.json")); err != nil || strings.Contains(string(b), `"answer"`) {
		t.Errorf("the answers lie beside what the student changes: %v", err)
	}
	if l.prediction(dir) != nil {
		t.Error("a prediction that nobody made")
	}
	for _, bad := range [][]string{{"a"}, {"a", "b", "z"}, {"a", "b", ""}, {"a", "b", "ab"}} {
		if l.Predict(dir, bad) == nil {
			t.Errorf("%q: no error", bad)
		}
	}
	if err := l.Predict(dir, []string{"a", "B", "c"}); err != nil {
		t.Fatal(err)
	}
	if p := l.prediction(dir); len(p) != 3 || p[1].Said != "b" || p[1].Right != "" {
		t.Errorf("without the instructor's file: %+v", p)
	}
	sealed := l.Seal([]byte(`[{"answer": "b", "why": "w"}, {"answer": "b"}, {"answer": "a"}]`))
	if strings.Contains(string(sealed), "answer") {
		t.Errorf("sealed answers can be read: %s", sealed)
	}
	file := filepath.Join(l.Dir(dir), SealedFile)
	if err := os.WriteFile(file, sealed, 0o644); err != nil {
		t.Fatal(err)
	}
	if p := l.prediction(dir); len(p) != 3 || p[0].Said != "a" || p[0].Right != "b" || p[0].Why != "w" || p[2].Said != "c" || p[2].Right != "a" {
		t.Errorf("a handout says %+v", p)
	}
	if err := os.WriteFile(file, []byte("!"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := l.Questions(dir); err == nil || !strings.Contains(err.Error(), "bad seal") {
		t.Errorf("a broken seal: %v", err)
	}
}

func text(r *Report) string {
	var b strings.Builder
	_ = r.WriteText(&b)
	return b.String()
}

// starters are what the labs with Go begin with, and their rows, which take a while.
var starters = map[int]Lab{
	2: Baseline{lockedbaseline.Measure, lockedbaseline.Summarize, lockedbaseline.Bin, lockedbaseline.Value,
		lockedbaseline.Predict, lockedbaseline.Enough},
	3:  Locking{unlocked.CanUnlock, unlocked.Write},
	4:  &Truncate{Steps: truncaterace.Steps, Answers: truncaterace.Answers},
	5:  RangeLock{func() kit.RangeLocker { return rangelock.New() }},
	6:  Waits{movethewaits.Write},
	7:  Nowait{nowaitdirect.Extent},
	8:  Ring{kit.SubmitPath{Submit: ring.Submit, Work: ring.Work}},
	9:  LogItem{preparefirst.Put},
	10: Sectors{unaligned.Write},
	12: Policy{New: func() kit.Policy { return capstone.New() }},
	11: &Orders{Locked: orderawrite.Locked, Unlocked: orderawrite.Unlocked, Answers: orderawrite.Answers},
}

// some is a Run whose searches have so many schedules in each pass; 0 is as many as they have.
func some(schedules int) *judging { return &judging{Run: &Run{Schedules: schedules}, clean: true} }

// replayed is the rows of one schedule of a workload.
func replayed(l Lab, workload, schedule string) []Row {
	return Judge(l, &Run{Only: workload, Schedule: schedule})
}

var judgedStarters = map[int][]Row{}

// untouched skips a test of lab n's starter where a student has changed it, which may be in a
// handout.
func untouched(t *testing.T, n int) {
	t.Helper()
	if ok, err := lab(t, n).Untouched(root(t)); err != nil {
		t.Fatal(err)
	} else if !ok {
		t.Skipf("SKIPPED: in this handout %s of lab %d is the starter no more", lab(t, n).File, n)
	}
}

// starterRows are the rows of lab n's starter.
func starterRows(t *testing.T, n int) []Row {
	t.Helper()
	untouched(t, n)
	if judgedStarters[n] == nil {
		run := &Run{}
		if lab(t, n).essay != nil { // it has many scenarios
			run.Schedules = 5
		}
		judgedStarters[n] = Judge(starters[n], run)
	}
	return judgedStarters[n]
}

// TestStartersHaveNothing: no starter has a point, and the rows that are said to be given are those
// that it passes.
func TestStartersHaveNothing(t *testing.T) {
	for _, l := range Labs {
		t.Run(l.Folder, func(t *testing.T) {
			if untouched(t, l.N); l.code == nil {
				r, err := Grade(t.Context(), root(t), l, Options{})
				if err != nil || r.Score != 0 || r.Max != 100 {
					t.Errorf("%+v, %v", r, err)
				}
				return
			}
			if starters[l.N] == nil {
				t.Fatal("the starter is not judged: add it to starters")
			}
			sum := 0.0
			var passes []string
			for _, r := range starterRows(t, l.N) {
				sum += r.Score
				if r.Pass {
					passes = append(passes, r.Name)
				}
			}
			if sum != 0 || !slices.Equal(passes, l.given) {
				t.Errorf("the starter has %g points and passes %q, given are %q", sum, passes, l.given)
			}
		})
	}
}

// TestUntouched: a clone has no say in what its starters are; a handout knows them by their
// digests.
func TestUntouched(t *testing.T) {
	l, dir := lab(t, 4), t.TempDir()
	file := filepath.Join(l.Dir(dir), l.File)
	write := func(path, text string) {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want := func(want bool) {
		t.Helper()
		if got, err := l.Untouched(dir); err != nil || got != want {
			t.Errorf("have %v, %v, want %v", got, err, want)
		}
	}
	write(file, "mine")
	want(true)
	write(filepath.Join(dir, HandoutFile), fmt.Sprintf("%x  labs/%s/%s\n", sha256.Sum256([]byte("starter")), l.Folder, l.File))
	want(false)
	write(file, "starter")
	want(true)
}

// TestCount: rows that the starter passes count together with one that it fails.
func TestCount(t *testing.T) {
	for _, tt := range []struct {
		pass string // rows of lab 5
		want float64
	}{
		{"", 0},
		{"lock-identical", 0},
		{"lock-identical lock-nested", 0},
		{"lock-touching", 10},
		{"lock-touching lock-identical", 20},
		{"virtual-time lock-nested lock-identical", 30},
	} {
		rows := []Row{{Name: "lock-identical", Max: 10}, {Name: "lock-nested", Max: 10}, {Name: "lock-touching", Max: 10}, {Name: "virtual-time", Max: 10}}
		for i := range rows {
			if rows[i].Pass = slices.Contains(strings.Fields(tt.pass), rows[i].Name); rows[i].Pass {
				rows[i].Score = rows[i].Max
			}
		}
		count(RangeLock{}, rows)
		r := Report{Rows: rows}
		if r.sum(); r.Score != tt.want {
			t.Errorf("%q: have %g points, want %g", tt.pass, r.Score, tt.want)
		}
		if got := strings.Contains(strings.Join(strings.Fields(text(&r)), " "), uncounted); got != (tt.pass != "" && tt.want == 0) {
			t.Errorf("%q: that rows do not count is said: %v\n%s", tt.pass, got, text(&r))
		}
	}
}

// TestStarters: what students begin with compiles, keeps what it promises, and does not pass.
func TestStarters(t *testing.T) {
	untouched(t, 4)
	student := starters[4]
	var r Row
	if w := races(truncaterace.Steps())[0]; w.explore(some(0), &r) != nil || !r.Violated || r.Schedule == "" {
		t.Errorf("the order of 2018 does not lose the truncate: %+v", r)
	}
	again := replayed(student, "truncate-race", r.Schedule)
	if len(again) != 1 || again[0].Pass || again[0].Trace == "" {
		t.Fatalf("the schedule does not show it again: %+v", again)
	}
	for _, step := range []string{"setISize: change i_size", "truncatePages: lock page", "dioWait: wait", "waitOrdered: "} {
		if !strings.Contains(again[0].Trace, step) {
			t.Errorf("the table does not name the student's step %q\n%s", step, again[0].Trace)
		}
	}
	for bad, want := range map[string]string{"11": "not a schedule", "11:1,11:0": "not a schedule", "11:9": "does not fit"} {
		if r := replayed(student, "truncate-race", bad)[0]; r.Pass || r.Violated || !r.Misfit || !strings.HasPrefix(r.Result, want) {
			t.Errorf("schedule %q, want %q: %+v", bad, want, r)
		}
	}
	for _, r := range starterRows(t, 5) {
		if strings.Contains(r.Result, "switching at") {
			t.Errorf("%s: the result repeats the classes: %s", r.Name, r.Result)
		}
		if r.Name != "lock-touching" {
			continue
		}
		for _, want := range []string{"[0, 8) and [8, 16) are wanted at one time", "0:[0, 8)", "Lock:", "student_wait"} {
			if !strings.Contains(r.Trace, want) {
				t.Errorf("%s: the table has no %q\n%s", r.Name, want, r.Trace)
			}
		}
		if i := strings.Index(r.Trace, "nobody is left"); i >= 0 && i < strings.Index(r.Trace, "are wanted at one time") {
			t.Errorf("%s: it seems that a wake-up is lost\n%s", r.Name, r.Trace)
		}
	}
}

// TestRingStarter: lab 8's starter keeps what a caller is promised but for RWF_NOWAIT, which may
// not sleep; that is said, and shown.
func TestRingStarter(t *testing.T) {
	for _, r := range starterRows(t, 8) {
		if r.Name == "ring-nowait" && (!strings.Contains(r.Result, "nobody may sleep for a request with RWF_NOWAIT") || !strings.Contains(r.Trace, "holder")) {
			t.Errorf("%s: %s\n%s", r.Name, r.Result, r.Trace)
		}
		t.Logf("%s: %s", r.Name, r.Result)
	}
}

// TestNowaitStarter: lab 7's starter sleeps for space and for a range, and gives nothing back when
// it stops.
func TestNowaitStarter(t *testing.T) {
	want := map[string]string{"nowait-free": "violated (nowait sleep)", "nowait-cow": "violated (undo): the range is still locked", "nowait-fiemap": "violated (nowait sleep)",
		"nowait-snapshot": "violated (leftover)", "costs": "not measured"}
	for _, r := range starterRows(t, 7) {
		if r.Pass || !strings.HasPrefix(r.Result, want[r.Name]) {
			t.Errorf("%s: have %v %q want %q", r.Name, r.Pass, r.Result, want[r.Name])
		}
	}
}

// TestSteps: what needs no execution.
func TestSteps(t *testing.T) {
	for _, tt := range []struct {
		steps []policy.SetsizeStep
		want  string
	}{
		{truncaterace.Steps(), ""},
		{truncaterace.Steps()[1:], "policy.SetISize is missing"},
		{append(truncaterace.Steps(), policy.DIOWait), "have 6 steps"},
		{[]policy.SetsizeStep{policy.DIOWait, policy.DIOWait}, "policy.DIOWait comes twice"},
		{[]policy.SetsizeStep{policy.TruncateSetsize}, "bad step 1, have policy.TruncateSetsize want one of policy.DIOWait, "},
		{[]policy.SetsizeStep{99}, "bad step 1, have policy.SetsizeStep(99) want one of policy.DIOWait, "},
	} {
		got := ""
		if err := policy.CheckSetsizeOrder(tt.steps); err != nil {
			got = err.Error()
		}
		if !strings.HasPrefix(got, tt.want) || (got == "") != (tt.want == "") {
			t.Errorf("%d: have %q want %q", tt.steps, got, tt.want)
		}
	}
}

// checkText is what check says of a file x.go.
func checkText(t *testing.T, src string, r rules) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "x.go")
	if err := os.WriteFile(file, []byte(src), 0o644); err != nil {
		t.Fatal(err)
	}
	files, err := readAll([]string{file})
	if err != nil {
		t.Fatal(err)
	}
	x, err := check(t.Context(), root(t), files, r)
	if err != nil {
		t.Fatal(err)
	}
	return strings.Join(x.bad, "\n")
}

// TestCheck: everything that would let student code wait, or keep state, where the explorer does
// not see it.
func TestCheck(t *testing.T) {
	const kitted = "package p\nimport \"btrlab/labs/kit\"\n"
	for _, tt := range []struct{ name, src, want string }{
		{"variable", "package p\nimport \"slices\"\nvar _ = 1\nfunc f() {}", "x.go:3: has a variable of the package, which outlives an execution: declare it in the function"},
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
		{"main", "package main\nfunc f() {}", "x.go:1: package main"},
		{"nothing to call", "package p\nfunc g() {}\ntype t struct{}\nfunc (t) f() {}", "no func f: want func f()"},
		{"broken", "package p\nfunc", "x.go:2:"},
		{"stores in a package", "package p\nimport \"btrlab/internal/iopath/policy\"\nfunc f() { policy.Presets[0].Name = policy.SetISize }", "x.go:3: changes policy.Presets[0].Name, or takes its address"},
		{"through an address", "package p\nimport q \"btrlab/internal/iopath/policy\"\nfunc f() { p := &q.SetISize; p = p }", "x.go:3: changes q.SetISize, or takes its address"},
		{"uses another name", "package p\nimport \"btrlab/internal/iopath/policy\"\nfunc f() { l := policy.Presets; l[0] = l[1] }", "x.go:3: uses policy.Presets, want only SetsizeStep, DIOWait"},
		{"the grader's side", "package p\nimport \"btrlab/labs/kit\"\nfunc f() { kit.On(nil) }", "x.go:3: uses kit.On, want only Task, Mutex"},
		{"copies out", kitted + "func f(q *kit.Request) { old := *q; _ = old }", "x.go:3: copies *q: what the grader"},
		{"copies as an argument", kitted + "func f(q *kit.Request) { g((*q)) }\nfunc g(any) {}", "x.go:3: copies *q: "},
		{"copies by range", kitted + "func f(w *kit.LockedWrite, l []kit.LockedWrite) { for _, *w = range l {} }", "x.go:3: copies *w: "},
		{"copies by a variable of a range", kitted + "func f(l [1]kit.Request) { for _, q := range l { g(&q) } }\nfunc g(*kit.Request) {}", "x.go:3: copies a [1]kit.Request"},
		{"copies into a literal", kitted + "func f(w *kit.LockedWrite) { g([]kit.LockedWrite{*w}) }\nfunc g([]kit.LockedWrite) {}", "x.go:3: copies *w: "},
		{"copies into a field", kitted + "type s struct{ q kit.Request }\nfunc f(q *kit.Request) *s { return &s{q: *q} }", "x.go:4: copies *q: "},
		{"copies by an alias", kitted + "type r = kit.Request\nfunc f(q *r) { var old r = *q; _ = &old }", "x.go:4: copies *q: "},
		{"copies what has one", kitted + "type s struct{ a [2]kit.Request }\nfunc f(x *s) { y := *x; _ = &y }", "x.go:4: copies *x: "},
		{"copies by a type parameter", kitted + "func f(q *kit.Request) { g(q) }\nfunc g[T any](p *T) { x := *p; _ = x }", "x.go:3: copies a btrlab/labs/kit.Request in g"},
		{"copies by append", kitted + "func f(l []kit.Request) []kit.Request { return append(l[:0:0], l...) }", "x.go:3: copies the elements of l[:0:0]"},
		{"stores through", kitted + "func f(q *kit.Request) { *q = kit.Request{} }", "x.go:3: copies *q: "},
		{"copies a lock", kitted + "type s struct{ m kit.Mutex }\nfunc f(x *s) { y := x.m; y.Init() }", "x.go:4: copies x.m, in which is a kit.Mutex"},
		{"receives a lock", kitted + "type s struct{ m kit.Mutex }\nfunc (x s) g() {}\nfunc f() {}", "x.go:4: copies a s, in which is a kit.Mutex"},
		{"makes a lock", kitted + "type s struct{ m [2]kit.Mutex }\nfunc f() *s { var x s; y := &s{m: [2]kit.Mutex{}}; y.m[0].Init(); return &x }", ""},
		{"copies a range", kitted + "func f(r *kit.Range) kit.Range { x := *r; l := []kit.Range{x}; return append(l, *r)[0] }", ""},
		{"an interface of one", kitted + "func f(q *kit.Request) { var x any = q; _ = x }", "x.go:3: makes an interface of q"},
		{"an interface by a call", kitted + "func f(q *kit.Request) { g(1, q) }\nfunc g(l ...any) {}", "x.go:3: makes an interface of q"},
		{"an interface by a panic", kitted + "func f(q *kit.Request) { panic(q) }", "x.go:3: makes an interface of q"},
		{"an interface in a literal", kitted + "func f(q *kit.Request) { _ = map[string]any{\"q\": q} }", "x.go:3: makes an interface of q"},
		{"a type parameter", kitted + "func f(q *kit.Request) { g(q) }\nfunc g[T any](p T) { _ = any(p) }", "x.go:3: hands *btrlab/labs/kit.Request to g"},
		{"a local name of a package", kitted + "func f(w *kit.LockedWrite, t *kit.Task) { kit := w; kit.Lock(t) }", ""},
		{"a package by parentheses", kitted + "func f() { (kit).On(nil) }", "x.go:3: uses (kit).On, want only Task"},
		{"recover in parentheses", "package p\nfunc f() { defer func() { _ = (recover)() }() }", "x.go:2: has a recover"},
		{"a recover of one's own", "package p\nfunc f() { recover := func() {}; recover() }", ""},
		{"another directive", "package p\nfunc f() { /*line y.go:7*/ }", "x.go:2: has the directive /*line"},
		{"own pointers", "package p\nfunc f(q *int) *int { var r *int = q; return r }", ""},
	} {
		got := checkText(t, tt.src, rules{allowed: []string{"slices", policyPath, kitPath}, entry: "f", want: "func f()"})
		if !strings.HasPrefix(got, tt.want) || (got == "") != (tt.want == "") {
			t.Errorf("%s: have %q want %q", tt.name, got, tt.want)
		}
	}
}

// TestCheckShared: what tasks share lies in fields that the explorer sees. A race in a plain one
// would never show, since nobody is switched between the look and the change.
func TestCheckShared(t *testing.T) {
	l, err := Lookup(5)
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct{ name, decls, want string }{
		{"all of kit", "type L struct { mu kit.Mutex; cond kit.Cond; held kit.Var[[]kit.Range] }", ""},
		{"embedded", "type L struct { kit.Mutex; cond kit.Cond }", ""},
		{"structs and arrays of it", "type shard struct { mu kit.Mutex; held kit.Var[int] }\ntype L struct { s [4]shard; in struct { c kit.Cond } }", ""},
		{"nodes that a Var points to", "type node struct { start uint64; next *node }\ntype L struct { root kit.Var[*node] }", ""},
		{"slice", "type L struct { held []kit.Range }", "x.go:4: field held is a plain []kit.Range, which the explorer does not see: want kit.Var[[]kit.Range]"},
		{"flag", "type L struct {\n mu kit.Mutex\n busy bool }", "x.go:6: field busy is a plain bool"},
		{"map", "type L struct { m map[int]bool }", "x.go:4: field m is a plain map[int]bool"},
		{"closure", "type L struct { f func() int }", "x.go:4: field f is a plain func() int"},
		{"pointer", "type in struct { n int }\ntype L struct { p *in }", "x.go:5: field p is a plain *in"},
		{"inner struct", "type in struct { n int }\ntype L struct { i in }", "x.go:4: field n is a plain int"},
		{"embedded struct", "type in struct { n int }\ntype L struct { in }", "x.go:4: field n is a plain int"},
		{"array", "type L struct { a [4]int }", "x.go:4: field a is a plain [4]int"},
		{"named", "type list []kit.Range\ntype L struct { l list }", "x.go:5: field l is a plain list"},
		{"another's Var", "type other struct{}\ntype L struct { v other }", ""},
		{"no struct", "type L []kit.Range", "x.go:3: func New does not return a pointer to a struct"},
		{"interface", "type I interface{ Lock() }\ntype L = I", "x.go:3: func New does not return a pointer to a struct"},
	} {
		got := checkText(t, "package p\nimport \"btrlab/labs/kit\"\nfunc New() *L { return &L{} }\n"+tt.decls+"\n", l.code.rules)
		if !strings.HasPrefix(got, tt.want) || (got == "") != (tt.want == "") {
			t.Errorf("%s: have %q want %q", tt.name, got, tt.want)
		}
	}
}

// TestWatchdog: an execution that takes too much is reported with the student's line; one that goes
// on taking steps is not.
func TestWatchdog(t *testing.T) {
	spin := func(until func() bool) {
		for !until() {
			_ = cpuTime()
		}
	}
	var d watchdog
	wrong := make(chan string, 1)
	d.begin("a workload", 200*time.Millisecond)
	d.start(false, 0, func(w string, _ bool) { wrong <- w })
	from, last := cpuTime(), cpuTime()
	spin(func() bool { // steps all the time, for longer than the limit
		if now := cpuTime(); now-last > time.Millisecond {
			d.again()
			last = now
		}
		return cpuTime()-from > 600*time.Millisecond
	})
	select {
	case w := <-wrong:
		t.Fatalf("what goes on is reported: %s", w)
	default:
	}
	var got string
	spin(func() bool {
		select {
		case got = <-wrong:
			return true
		default:
			return false
		}
	})
	if want := "a workload took 200ms of processor time and did not end"; !strings.Contains(got, want) {
		t.Errorf("have %q want %q", got, want)
	}
}

// TestWatchdogSpent: what goes on and on within its rows is ended by the processor time of the
// submission, and that is said.
func TestWatchdogSpent(t *testing.T) {
	var d watchdog
	d.begin("a workload", time.Hour)
	spent := make(chan bool, 1)
	from := cpuTime()
	d.start(false, from+200*time.Millisecond, func(_ string, is bool) { spent <- is })
	for cpuTime() < from+10*time.Second {
		d.again()
		select {
		case is := <-spent:
			if !is {
				t.Error("the limit that was reached is said to be another one")
			}
			return
		default:
		}
	}
	t.Error("a submission goes on beyond its processor time")
}

// TestStudentLine: of a stack's lines those in the student's folder, of goroutines the one that
// runs.
func TestStudentLine(t *testing.T) {
	const all = `goroutine 7 [running]:
btrlab/internal/study/grade.stacks()
	/src/internal/study/grade/watch.go:90 +0x3c

goroutine 20 [coroutine]:
btrlab/labs/_grade/05-1/student.(*RangeLock).Lock(...)
	/src/labs/_grade/05-1/student/rangelock.go:37 +0x44

goroutine 21 [runnable]:
slices.ContainsFunc[...]()
	/usr/lib/go/src/slices/slices.go:112 +0x10
btrlab/labs/_grade/05-1/student.(*RangeLock).free(...)
	/src/labs/_grade/05-1/student/rangelock.go:28 +0x54
btrlab/labs/_grade/05-1/student.(*RangeLock).Lock(...)
	/src/labs/_grade/05-1/student/rangelock.go:35 +0x54
`
	if got, want := runningLine([]byte(all)), "rangelock.go:28, called in rangelock.go:35"; got != want {
		t.Errorf("have %q want %q", got, want)
	}
	stack := "runtime: goroutine stack exceeds 67108864-byte limit\n" + all
	if got, want := crash(errors.New("exit status 2"), []byte(stack)), "rangelock.go:37: calls itself without end"; len(got) != 1 || got[0] != want {
		t.Errorf("have %q want %q", got, want)
	}
	if got := crash(errors.New("exit status 2"), []byte("no stack")); len(got) != 2 || got[0] != "exit status 2" {
		t.Errorf("have %q", got)
	}
}

// TestWords: a violation in the student's words: the kind once, the student's lines, nothing of the
// grader's own.
func TestWords(t *testing.T) {
	frame := func(fn, file string, line int) explore.Frame { return explore.Frame{Func: fn, File: file, Line: line} }
	race := explore.Violation{Kind: explore.KindRace, Named: true, What: "task 1 b writes x in step 1 that task 0 a writes in step 0; no lock orders them",
		Sides: []explore.Side{{Task: "1 b", Step: 1, Stack: explore.Stack{
			frame("btrlab/labs/kit.(*Var[...]).Store", "kit.go", 130),
			frame("btrlab/labs/_grade/05-1/student.(*RangeLock).Lock", "rangelock.go", 34),
			frame("btrlab/internal/study/grade.holders.func1", "judge.go", 442)}}}}
	panicked := explore.Violation{Kind: explore.KindPanic, Lead: "task 0 a: panic", Task: "0 a", What: "kit.Mutex.Unlock by a task that does not hold the mutex",
		At: explore.Stack{frame("btrlab/labs/kit.(*Mutex).Unlock", "kit.go", 70), frame("btrlab/labs/_grade/05-1/student.(*RangeLock).Unlock", "rangelock.go", 50)}}
	both := overlap{1, 0, span{0, 8}, span{4, 12}}
	exclude := explore.Violation{Kind: explore.KindPanic, Lead: "task 1 b: panic", Task: "1 b", What: both.String(), Panic: both}
	oracle := explore.Violation{Kind: explore.KindOracle, What: "at the end:", More: "  more"}
	gone := func(in string, class sched.ClassID) explore.Violation {
		return explore.Violation{Kind: explore.KindGone, What: "task 1 waits " + in, Waits: []sched.ClassID{class}, More: "task 1 holds nothing"}
	}
	together := workload{stuck: "both are wanted"}
	for _, tt := range []struct {
		w    workload
		v    explore.Violation
		want []string // first line with the kind, then what words has
		not  string
	}{
		{workload{}, race, []string{"violated (data race): task 1 b writes x in step 1 that task 0 a writes in step 0; no lock orders them",
			"\ntask 1 b, step 1:\n  rangelock.go:34, in Lock\na Load"}, "judge.go"},
		{workload{}, panicked, []string{"violated (panic): rangelock.go:50: kit.Mutex.Unlock by a task that does not hold the mutex (task 0 a)"}, "kit.go"},
		{workload{}, exclude, []string{"violated (exclusion): task 1 got [0, 8) while task 0 holds [4, 12)"}, "panic"},
		{workload{}, oracle, []string{"violated (oracle): at the end", "more"}, "::"},
		{together, gone("in student_wait", kit.CondClass()), []string{"violated (orphaned wait): both are wanted", "waits in student_wait\ntask 1 holds nothing"}, "lost"},
		{together, gone("for student_mutex", kit.CondClass()-1), []string{"violated (orphaned wait): task 1 waits for student_mutex"}, "wanted"},
	} {
		v := tt.w.words(tt.v)
		if got := shortly(v); got != tt.want[0] {
			t.Errorf("have %q want %q", got, tt.want[0])
		}
		for _, want := range tt.want[1:] {
			if !strings.Contains(v.String(), want) {
				t.Errorf("%q has no %q", v, want)
			}
		}
		if strings.Contains(v.String(), tt.not) {
			t.Errorf("%q has %q", v, tt.not)
		}
	}
}

// TestBuildErrors: the compiler speaks of the student's file; what it says of the grader's own is
// about the function that is called.
func TestBuildErrors(t *testing.T) {
	const out = "# btrlab/labs/_grade/04-7/student\nlabs/_grade/04-7/student/setsize.go:9:2: undefined: x\nlabs/_grade/04-7/main.go:13:63: cannot use student.Steps (value)\n"
	got := lab(t, 4).code.buildErrors(out, "labs/_grade/04-7/")
	want := []string{"setsize.go:9:2: undefined: x", "want func Steps() []policy.SetsizeStep and func Answers() map[string]string: cannot use Steps (value)"}
	if !slices.Equal(got, want) {
		t.Errorf("have %q want %q", got, want)
	}
}

// TestNothing: a folder without files is an error for people, and a report without points for an
// autograder.
func TestNothing(t *testing.T) {
	for _, l := range Labs {
		for _, dir := range []string{t.TempDir(), filepath.Join(t.TempDir(), "none")} {
			_, err := Grade(t.Context(), root(t), l, Options{Dir: dir})
			var none *NoFilesError
			if !errors.As(err, &none) {
				t.Errorf("lab %d: %v", l.N, err)
				continue
			}
			if r := l.Nothing(none); r.Pass || r.Score != 0 || r.Max != points(l.judge) || !strings.Contains(r.Rows[0].Result, dir) {
				t.Errorf("lab %d: %+v", l.N, r)
			}
		}
	}
}

// TestCancel: a grading that is cancelled ends with the context's error and leaves no file.
func TestCancel(t *testing.T) {
	r := root(t)
	left := func() []string {
		l, err := filepath.Glob(filepath.Join(r, "labs", "_grade", "04-*"))
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	before := left()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Grade(ctx, r, lab(t, 4), Options{}); !errors.Is(err, context.Canceled) {
		t.Errorf("have %v want %v", err, context.Canceled)
	}
	if after := left(); len(after) > len(before) {
		t.Errorf("left %v, before %v", after, before)
	}
}

// TestTexts: every lab has its text with all sections, three hints, and predictions with their
// answers.
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
	}
}

// TestTable: what all rows say stands once below the table, and a task that was left out is one
// line.
func TestTable(t *testing.T) {
	at := explore.Switches{"i_rwsem", "page"}
	rep := Report{Lab: 1, Title: "Be the scheduler", Unpredicted: true, Rows: []Row{
		{Name: "a", Asks: "first", Max: 40, Score: 40, Pass: true, Result: "exhausted: 3 schedules", Switch: at},
		{Name: "b", Asks: "second", Max: 40, Score: 40, Pass: true, Result: "exhausted: 4 schedules", Switch: at},
		{Name: "c", Asks: "third", Max: 20, Result: noAnswer}}}
	rep.sum()
	got := text(&rep)
	for want, n := range map[string]int{"  a, b: i_rwsem, page\n": 1, "switched at": 1, noAnswer: 1, "c: third\n": 1, "  btrlab lab predict 1\n": 1} {
		if have := strings.Count(got, want); have != n {
			t.Errorf("%q comes %d times, want %d\n%s", want, have, n, got)
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
	if err := rep.WriteGradescope(&b, 1500*time.Millisecond); err != nil {
		t.Fatal(err)
	}
	var got struct {
		Score          float64
		Execution_time float64
		Tests          []struct {
			Status     string
			Max_score  float64
			Output     string
			Visibility string
		}
	}
	if err := json.Unmarshal([]byte(b.String()), &got); err != nil {
		t.Fatal(err)
	}
	if got.Score != 40 || len(got.Tests) != 2 || got.Tests[0].Status != "passed" || got.Tests[1].Status != "failed" || got.Tests[1].Max_score != 60 ||
		!strings.Contains(got.Tests[1].Output, "--replay c=4:1") || rep.Pass || got.Execution_time != 1.5 || got.Tests[0].Visibility != "visible" {
		t.Errorf("%+v\n%s", got, b.String())
	}
	b.Reset()
	if err := (&Report{}).WriteGradescope(&b, 0); err != nil || !strings.Contains(b.String(), `"tests": []`) {
		t.Errorf("a report without rows has no list of tests: %v\n%s", err, b.String())
	}
}

// TestLockingStarter: lab 3's starter is wrong in every row, so that it has no points.
func TestLockingStarter(t *testing.T) {
	for _, r := range Judge(Locking{unlocked.CanUnlock, unlocked.Write}, &Run{}) {
		if r.Pass || r.Score != 0 {
			t.Errorf("%s: %v, %s", r.Name, r.Pass, r.Result)
		}
		t.Logf("%s: %s", r.Name, r.Result)
	}
}

// TestSectorsStarter: lab 10's starter keeps everything, lets no two writes go together, and so is
// too slow.
func TestSectorsStarter(t *testing.T) {
	for _, r := range starterRows(t, 10) {
		if want := r.Name != "virtual-time" && r.Name != "sectors-together"; r.Pass != want {
			t.Errorf("%s: %v, %s", r.Name, r.Pass, r.Result)
		}
		if r.Name == "sectors-together" && !strings.Contains(r.Result, "whoever comes second may not wait for the first") {
			t.Errorf("%s: %s", r.Name, r.Result)
		}
		t.Logf("%s: %s", r.Name, r.Result)
	}
}

// TestLogStarter: lab 9's starter waits for a leaf that it has, or writes an item where there is no
// room: no row gives a point.
func TestLogStarter(t *testing.T) {
	for _, r := range starterRows(t, 9) {
		if r.Pass || r.Score != 0 || r.Name != "costs" && !r.Violated {
			t.Errorf("%s: %v, %s", r.Name, r.Pass, r.Result)
		}
		t.Logf("%s: %s", r.Name, r.Result)
	}
}

// TestGuesses: a wrong never takes the points of a right one, and of what nobody calls never
// nothing is taken.
func TestGuesses(t *testing.T) {
	rows := func() []Row {
		return []Row{{Name: "a", Pass: true, Score: 3, Max: 3}, {Name: "b", Pass: true, Score: 3, Max: 3}, {Name: "c", Max: 3}, {Name: "d", Pass: true, Score: 3, Max: 3}}
	}
	for _, tt := range []struct {
		said map[string]string
		want float64
	}{
		{map[string]string{"a": "never", "b": "never", "c": "4:1", "d": "2:0"}, 9},
		{map[string]string{"a": "never", "b": "never", "c": "never", "d": "2:0"}, 6},
		{map[string]string{"a": " Never", "b": "1:1", "c": "never", "d": "2:0"}, 6},
		{map[string]string{"a": "1:2", "b": "1:1", "c": "never", "d": "2:0"}, 9},
		{nil, 9},
	} {
		l := rows()
		if guesses(l, tt.said); scored(l) != tt.want {
			t.Errorf("%v: have %g points want %g: %+v", tt.said, scored(l), tt.want, l)
		}
	}
}

// TestOnBasis: code that does nothing breaks nothing, and its rows count once the one passes that
// asks for something to be done.
func TestOnBasis(t *testing.T) {
	nothing := map[int]Lab{
		7: Nowait{func(*kit.Task, *kit.NowaitExtent) error { return kit.EAGAIN }},
		9: LogItem{func(*kit.Task, *kit.LogItem) error { return kit.ENOSPC }},
	}
	for n, s := range nothing {
		rows := Judge(s, &Run{})
		passed := 0
		for _, r := range rows {
			if r.Pass {
				passed++
			}
		}
		if scored(rows) != 0 || passed == 0 {
			t.Errorf("lab %d: nothing done has %g points for %d rows: %+v", n, scored(rows), passed, rows)
		}
	}
	for _, l := range Labs {
		if l.basis != "" && !slices.ContainsFunc(l.judge.Workloads(), func(w workload) bool { return w.name == l.basis }) {
			t.Errorf("lab %d has no row %s", l.N, l.basis)
		}
	}
}
