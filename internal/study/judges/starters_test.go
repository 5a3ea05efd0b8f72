package judges

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"btrlab/internal/policy"
	"btrlab/internal/sched"
	"btrlab/internal/sched/explore"
	"btrlab/internal/study/grade"
	"btrlab/internal/study/sandbox"
	"btrlab/internal/testing/need"
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
	fairlock "btrlab/labs/13-fair-lock"
	stable "btrlab/labs/14-stable-pages"
	disk "btrlab/labs/16-serve-a-disk"
	"btrlab/labs/kit"
)

// starters are what the labs with Go begin with, and their rows, which take a while.
var starters = map[int]Lab{
	2: Baseline{lockedbaseline.Measure, lockedbaseline.Summarize, lockedbaseline.Bin, lockedbaseline.Value,
		lockedbaseline.Predict, lockedbaseline.Enough},
	3:  Locking{CanUnlock: unlocked.CanUnlock, Write: unlocked.Write, Second: &Second{Answers: unlocked.Answers}},
	4:  &Truncate{Steps: truncaterace.Steps, Answers: truncaterace.Answers},
	5:  RangeLock{New: func() kit.RangeLocker { return rangelock.New() }},
	6:  Waits{Write: movethewaits.Write, Second: &Second{Answers: movethewaits.Answers}},
	7:  Nowait{Extent: nowaitdirect.Extent, Second: &Second{Answers: nowaitdirect.Answers}},
	8:  Ring{SubmitPath: kit.SubmitPath{Submit: ring.Submit, Work: ring.Work}},
	9:  LogItem{Put: preparefirst.Put, Second: &Second{Answers: preparefirst.Answers}},
	10: Sectors{Write: unaligned.Write, Second: &Second{Answers: unaligned.Answers}},
	12: Policy{New: func() kit.Policy { return capstone.New() }},
	11: &Orders{Locked: orderawrite.Locked, Unlocked: orderawrite.Unlocked, Answers: orderawrite.Answers},
	14: Stable{Write: stable.Write, Device: stable.Device, Predict: stable.Predict, Second: &Second{Answers: stable.Answers}},
	16: Disk{New: func() kit.Flusher { return disk.New() }, Predict: disk.Predict, Second: &Second{Answers: disk.Answers}},
	13: FairLock{RangeLock: RangeLock{New: func() kit.RangeLocker { return fairlock.New() }}, Second: &Second{Answers: fairlock.Answers}},
}

// some is a Run whose searches have so many schedules in each pass; 0 is as many as they have.
func some(schedules int) *judging {
	return &judging{Run: &sandbox.Run{Schedules: schedules}, clean: true}
}

// replayed is the rows of one schedule of a workload.
func replayed(l Lab, workload, schedule string) []grade.Row {
	return Judge(l, &sandbox.Run{Only: workload, Schedule: schedule})
}

var judgedStarters = map[int][]grade.Row{}

// untouched skips a test of lab n's starter where a student has changed it, which may be in a
// handout.
func untouched(t *testing.T, n int) {
	t.Helper()
	about := lab(t, n).About()
	if ok, err := about.Untouched(root(t)); err != nil {
		t.Fatal(err)
	} else if !ok {
		t.Skipf("SKIPPED: in this handout %s of lab %d is the starter no more", about.File, n)
	}
}

// starterRows are the rows of lab n's starter.
func starterRows(t *testing.T, n int) []grade.Row {
	t.Helper()
	untouched(t, n)
	if judgedStarters[n] == nil {
		run := &sandbox.Run{}
		if lab(t, n).About().Essay != nil { // it has many scenarios
			run.Schedules = 5
		}
		judgedStarters[n] = Judge(starters[n], run)
	}
	return judgedStarters[n]
}

// TestStartersHaveNothing: no starter has a point, and the rows that are said to be given are those
// that it passes.
func TestStartersHaveNothing(t *testing.T) {
	need.Long(t)
	for _, l := range All {
		about := l.About()
		t.Run(about.Folder, func(t *testing.T) {
			if untouched(t, about.N); about.Code == nil {
				rows, err := Grade(t.Context(), root(t), about.Dir(root(t)), l, sandbox.Options{})
				if err != nil || scored(rows) != 0 || Points(l) != 100 {
					t.Errorf("%+v, %v", rows, err)
				}
				return
			}
			if starters[about.N] == nil {
				t.Fatal("the starter is not judged: add it to starters")
			}
			sum := 0.0
			var passes []string
			for _, r := range starterRows(t, about.N) {
				sum += r.Score
				if r.Pass {
					passes = append(passes, r.Name)
				}
			}
			if sum != 0 || !slices.Equal(passes, about.Given) {
				t.Errorf("the starter has %g points and passes %q, given are %q", sum, passes, about.Given)
			}
		})
	}
}

// TestStarters: what students begin with compiles, keeps what it promises, and does not pass.
func TestStarters(t *testing.T) {
	untouched(t, 4)
	student := starters[4]
	var r grade.Row
	if w := races(truncaterace.Steps())[0]; w.explore(some(0), &r) != nil || !r.Violated || r.Schedule == "" {
		t.Errorf("the order of 2018 does not lose the truncate: %+v", r)
	}
	again := replayed(student, "truncate-race", r.Schedule)
	if len(again) != 1 || again[0].Pass || again[0].Trace == "" {
		t.Fatalf("the schedule does not show it again: %+v", again)
	}
	for _, step := range []string{"setISize: change i_size", "truncatePages: trylock page 1", "dioWait: wait", "waitOrdered: "} {
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
	need.Long(t)
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

// TestWords: a violation in the student's words: the kind once, the student's lines, nothing of the
// grader's own.
func TestWords(t *testing.T) {
	frame := func(fn, file string, line int) explore.Frame { return explore.Frame{Func: fn, File: file, Line: line} }
	race := explore.Violation{Kind: explore.KindRace, Named: true, What: "task 1 b writes x in step 1 that task 0 a writes in step 0; no lock orders them",
		Sides: []explore.Side{{Task: "1 b", Step: 1, Stack: explore.Stack{
			frame("btrlab/labs/kit.(*Var[...]).Store", "kit.go", 130),
			frame("btrlab/labs/_grade/05-1/student.(*RangeLock).Lock", "rangelock.go", 34),
			frame("btrlab/internal/study/judges.holders.func1", "judge.go", 442)}}}}
	panicked := explore.Violation{Kind: explore.KindPanic, Lead: "task 0 a: panic", Task: "0 a", What: "kit.Mutex.Unlock by a task that does not hold the mutex",
		At: explore.Stack{frame("btrlab/labs/kit.(*Mutex).Unlock", "kit.go", 70), frame("btrlab/labs/_grade/05-1/student.(*RangeLock).Unlock", "rangelock.go", 50)}}
	both := breach{overlaps, "task 1 got [0, 8) while task 0 holds [4, 12)"}
	exclude := explore.Violation{Kind: explore.KindPanic, Lead: "task 1 b: panic", Task: "1 b", What: both.String(), Panic: both}
	oracle := explore.Violation{Kind: explore.KindOracle, What: "at the end:", More: "  more"}
	gone := func(in string, class sched.ClassID) explore.Violation {
		return explore.Violation{Kind: explore.KindGone, What: "task 1 waits " + in, Waits: []sched.ClassID{class}, More: "task 1 holds nothing"}
	}
	together := Workload{stuck: "both are wanted"}
	for _, tt := range []struct {
		w    Workload
		v    explore.Violation
		want []string // first line with the kind, then what words has
		not  string
	}{
		{Workload{}, race, []string{"violated (data race): task 1 b writes x in step 1 that task 0 a writes in step 0; no lock orders them",
			"\ntask 1 b, step 1:\n  rangelock.go:34, in Lock\na Load"}, "judge.go"},
		{Workload{}, panicked, []string{"violated (panic): rangelock.go:50: kit.Mutex.Unlock by a task that does not hold the mutex (task 0 a)"}, "kit.go"},
		{Workload{}, exclude, []string{"violated (exclusion): task 1 got [0, 8) while task 0 holds [4, 12)"}, "panic"},
		{Workload{}, oracle, []string{"violated (oracle): at the end", "more"}, "::"},
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

// TestLockingStarter: lab 3's starter is wrong in every row, so that it has no points.
func TestLockingStarter(t *testing.T) {
	for _, r := range Judge(starters[3], &sandbox.Run{}) {
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
		if want := r.Name != "virtual-time" && r.Name != "sectors-together" && r.Result != NoAnswer; r.Pass != want {
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
		if r.Pass || r.Score != 0 || r.Name != "costs" && r.Result != NoAnswer && !r.Violated {
			t.Errorf("%s: %v, %s", r.Name, r.Pass, r.Result)
		}
		t.Logf("%s: %s", r.Name, r.Result)
	}
}

// TestOnBasis: code that does nothing breaks nothing, and its rows count once the one passes that
// asks for something to be done.
func TestOnBasis(t *testing.T) {
	nothing := map[int]Lab{
		7: Nowait{Extent: func(*kit.Task, *kit.NowaitExtent) error { return kit.EAGAIN }},
		9: LogItem{Put: func(*kit.Task, *kit.LogItem) error { return kit.ENOSPC }},
	}
	for n, s := range nothing {
		rows := Judge(s, &sandbox.Run{})
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
	for _, l := range All {
		if l.About().Basis != "" && !slices.ContainsFunc(l.Workloads(), func(w Workload) bool { return w.name == l.About().Basis }) {
			t.Errorf("lab %d has no row %s", l.About().N, l.About().Basis)
		}
	}
}

func root(t *testing.T) string {
	t.Helper()
	r, err := sandbox.Root(".")
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// lab is the lab with a number.
func lab(t *testing.T, n int) Lab {
	t.Helper()
	for _, l := range All {
		if l.About().N == n {
			return l
		}
	}
	t.Fatalf("no lab %d", n)
	return nil
}

func put(t *testing.T, dir, name, text string) {
	t.Helper()
	file := filepath.Join(dir, filepath.FromSlash(name))
	if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o755), os.WriteFile(file, []byte(text), 0o644)); err != nil {
		t.Fatal(err)
	}
}
