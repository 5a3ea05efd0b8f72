package timeline_test

import (
	"bytes"
	"context"
	"fmt"
	"image/png"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"btrlab/internal/policy"
	"btrlab/internal/sched"
	"btrlab/internal/sched/explore"
	"btrlab/internal/study/scenario"
	"btrlab/internal/study/timeline"
	"btrlab/internal/testing/need"
	"btrlab/internal/testing/pagetest"
)

func TestMain(m *testing.M) {
	sched.SetChecked(true)
	os.Exit(m.Run())
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// replayer replays the truncate race under a policy.
func replayer(t *testing.T, pol string) func(schedule string) (*scenario.Trace, error) {
	t.Helper()
	s, err := scenario.Lookup("truncate-race")
	must(t, err)
	return func(schedule string) (*scenario.Trace, error) {
		return scenario.Replay(s, policy.MustParse(pol), schedule, false)
	}
}

// race is the shortest schedule that loses the truncate.
func race(t *testing.T) *scenario.Trace {
	t.Helper()
	s, err := scenario.Lookup("truncate-race")
	must(t, err)
	r, err := scenario.Run(s, policy.MustParse("unlocked"), scenario.Options{})
	must(t, err)
	if r.Verdict != explore.Violated {
		t.Fatalf("%+v", r)
	}
	tr, err := replayer(t, "unlocked")(r.Schedule)
	must(t, err)
	return tr
}

// small is a trace made by hand: task 1 waits for the lock that task 0 holds over steps 1 to 3.
func small() *scenario.Trace {
	return &scenario.Trace{Scenario: "small", About: "a <b> & c", Policy: "locked", Schedule: "2:1", Preemptions: 1, Tasks: []string{"a", "b", "d"}, Own: 2,
		Columns: []string{"i_size"}, Violating: -1, Kind: explore.KindOracle, Violation: explore.Violation{Kind: explore.KindOracle, What: "lost </script>"}, Steps: []scenario.TraceStep{
			{Step: 0, Task: 0, Kind: "start", What: scenario.What{Verb: "start"}, Enabled: 7, State: []string{"0"}, Notes: []scenario.Note{{Event: scenario.Begins, Op: 1, Text: "write [0, 4K)"}}},
			{Step: 1, Task: 0, Kind: "lock", Class: "sem", What: scenario.What{Verb: "lock", Object: "sem #1"}, Where: "Write", Enabled: 7, State: []string{"0"}},
			{Step: 2, Task: 1, Kind: "start", What: scenario.What{Verb: "start"}, Enabled: 7, Preempts: true, State: []string{"0"}, Notes: []scenario.Note{{Event: scenario.Begins, Op: 2, Text: "truncate to 0"}}},
			{Step: 3, Task: 0, Kind: "unlock", Class: "sem", What: scenario.What{Verb: "unlock", Object: "sem #1"}, Held: []explore.Named{{Name: "sem #1", Class: "sem"}}, Enabled: 5, Blocked: 2, State: []string{"4K"}, Notes: []scenario.Note{{Event: scenario.Returns, Op: 1}}},
			{Step: 4, Task: 1, Kind: "lock", Class: "sem", What: scenario.What{Verb: "lock", Object: "sem #1"}, Held: []explore.Named{{Name: "sem #1", Class: "sem"}}, Enabled: 6, State: []string{"0"}},
			{Step: 5, Task: 2, Kind: "start", What: scenario.What{Verb: "start"}, Enabled: 6, State: []string{"0"}},
			{Step: 6, Task: 1, Kind: "unlock", Class: "sem", What: scenario.What{Verb: "unlock", Object: "sem #1"}, Held: []explore.Named{{Name: "sem #1", Class: "sem"}}, Enabled: 2, State: []string{"0"}, Notes: []scenario.Note{{Event: scenario.Returns, Op: 2}}},
		}}
}

// Who can run, who waits for what and who holds what follows from the steps.
func TestMoments(t *testing.T) {
	tr := small()
	m := timeline.At(tr, 3)
	a, b, d := m.Tasks[0], m.Tasks[1], m.Tasks[2]
	if a.Phase != timeline.Ready || a.Op != "1: write [0, 4K)" || a.Next != "unlock sem #1" || timeline.Names(a.Held) != "sem #1" {
		t.Errorf("task 0: %+v", a)
	}
	if b.Phase != timeline.Waiting || b.For.Name != "sem #1" || b.Op != "2: truncate to 0" || len(b.Held) != 0 {
		t.Errorf("task 1: %+v", b)
	}
	if m = timeline.At(tr, 4); len(m.Tasks[1].Held) != 0 {
		t.Errorf("a lock about to be taken is not held: %+v", m.Tasks[1])
	}
	if d.Phase != timeline.Ready || d.Op != "" {
		t.Errorf("task 2: %+v", d)
	}
	if m = timeline.At(tr, 4); m.Tasks[0].Phase != timeline.Ended || m.Tasks[1].Phase != timeline.Ready || m.State[0] != "4K" {
		t.Errorf("before step 4: %+v", m)
	}
	if m = timeline.At(tr, 0); m.State != nil || m.Tasks[1].Op != "2: truncate to 0" {
		t.Errorf("before step 0: %+v", m)
	}
	if got := timeline.Shown(tr); !slices.Equal(got, []int{0, 1}) {
		t.Errorf("columns %v", got)
	}
	if got := timeline.Culprit(tr); got != 4 {
		t.Errorf("the last change of i_size is step 4, have %d", got)
	}
}

// Those who wait for ever have no step that says so.
func TestDeadlock(t *testing.T) {
	tr := &scenario.Trace{Tasks: []string{"ab", "ba"}, Own: 2, Violating: 2, Kind: explore.KindDeadlock, Violation: explore.Violation{Kind: explore.KindDeadlock, Named: true, What: "..."},
		Stuck: []scenario.TraceStuck{{Task: 0, For: explore.Named{Name: "mu #2", Class: "mu"}, By: 1, Whom: "mu #2, which task 1 ba holds", Held: []explore.Named{{Name: "mu #1", Class: "mu"}}},
			{Task: 1, For: explore.Named{Name: "dio_wait", Class: "dio_wait"}, By: -1, Held: []explore.Named{{Name: "mu #2", Class: "mu"}, {Name: "mu [3, 4)", Class: "mu"}}}},
		Steps: []scenario.TraceStep{
			{Task: 0, Class: "mu", What: scenario.What{Verb: "lock", Object: "mu #1"}, Enabled: 3}, {Task: 1, Class: "mu", What: scenario.What{Verb: "lock", Object: "mu #2"}, Enabled: 3},
			{Task: 1, Class: "mu", What: scenario.What{Verb: "lock", Object: "mu #3"}, Held: []explore.Named{{Name: "mu #2", Class: "mu"}}, Enabled: 2, Blocked: 1}}}
	m := timeline.At(tr, 3)
	if a := m.Tasks[0]; a.Phase != timeline.Waiting || a.For.Name != "mu #2" || timeline.Names(a.Held) != "mu #1" {
		t.Errorf("%+v", a)
	}
	if a := m.Tasks[1]; a.Phase != timeline.Waiting || a.For.Name != "dio_wait" || timeline.Names(a.Held) != "mu #2, mu [3, 4)" {
		t.Errorf("%+v", a)
	}
	if m.Holder(0) != 1 || m.Holder(1) != -1 {
		t.Errorf("task 0 waits for task %d, task 1 for %d", m.Holder(0), m.Holder(1))
	}
	var b bytes.Buffer
	must(t, timeline.WriteHTML(&b, tr))
	if !strings.Contains(b.String(), "task 0 holds mu #1, steps 0 to 3") || !strings.Contains(b.String(), "task 0 waits for mu #2") {
		t.Errorf("%s", b.String())
	}
}

// The page holds each step, the lock bars, the waits and the verdict, is well-formed where it is
// drawn, escapes what it is given and refers to nothing outside itself.
func TestPage(t *testing.T) {
	for _, tr := range []*scenario.Trace{small(), race(t)} {
		var b bytes.Buffer
		must(t, timeline.WriteHTML(&b, tr))
		text := b.String()
		for _, bad := range []string{"http://", "https://", "src=", "href=", "@import", "<b>"} {
			if rest := strings.ReplaceAll(text, `xmlns="http://www.w3.org/2000/svg"`, ""); strings.Contains(rest, bad) {
				t.Errorf("%s: the page contains %q", tr.Scenario, bad)
			}
		}
		if strings.Count(text, "</script>") != 1 {
			t.Errorf("%s: a message ends the script", tr.Scenario)
		}
		for _, want := range []string{`class="wait"`, `class="bar"`, `class="preempt"`, "culprit", "ArrowDown", "@media print"} {
			if !strings.Contains(text, want) {
				t.Errorf("%s: the page has no %q", tr.Scenario, want)
			}
		}
		for _, s := range regexp.MustCompile(`(?s)<svg class="steps".*?</svg>`).FindAllString(text, -1) {
			pagetest.WellFormedXML(t, s)
		}
	}
	var b bytes.Buffer
	must(t, timeline.WriteHTML(&b, small()))
	for _, want := range []string{"task 0 holds sem #1, steps 1 to 3", "task 1 waits for sem #1, steps 3 to 3", `id="s4"`} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("the page has no %q", want)
		}
	}
	if strings.Contains(b.String(), `id="s5"`) {
		t.Error("a daemon that only starts has a row")
	}
}

// When an execution breaks off, nobody has ended who is in an operation.
func TestCut(t *testing.T) {
	tr := small()
	tr.Steps, tr.Kind, tr.Violating = tr.Steps[:3], explore.KindLivelock, 2
	m := timeline.At(tr, 3)
	if m.Tasks[0].Phase != timeline.Cut || m.Tasks[1].Phase != timeline.Cut || m.Tasks[2].Phase != timeline.Idle {
		t.Errorf("%+v", m.Tasks)
	}
}

// A livelock of many thousand steps has a page that a browser can show: its beginning and its end.
func TestLongPage(t *testing.T) {
	tr := small()
	unit := slices.Clone(tr.Steps[1:])
	for i := range 3000 {
		for _, s := range unit {
			s.Step = len(tr.Steps)
			s.Preempts = i%2 == 0
			tr.Steps = append(tr.Steps, s)
		}
	}
	var b bytes.Buffer
	must(t, timeline.WriteHTML(&b, tr))
	if b.Len() > 2<<20 || !strings.Contains(b.String(), "steps in the middle are left out") || !strings.Contains(b.String(), fmt.Sprintf(`id="s%d"`, len(tr.Steps)-1)) {
		t.Errorf("%d bytes", b.Len())
	}
}

// Whoever plays chooses any task that can run, takes choices back, and ends with a schedule that
// explore and replay understand: the truncate gets lost by hand, from the empty schedule.
func TestPlay(t *testing.T) {
	p, err := timeline.NewPlay("", replayer(t, "unlocked"))
	must(t, err)
	start := p.At()
	must(t, p.Choose(0))
	if p.At() != start+1 || p.Choose(17) == nil || p.Choose(-1) == nil {
		t.Fatal("one step is done, and there is no task 17")
	}
	// The writer up to where it has given the inode lock up: the dio count is raised and nothing is
	// held.
	for {
		must(t, p.Choose(0))
		m := p.Now()
		if m.State[slices.Index(p.Trace().Columns, "dio")] == "1" && len(m.Tasks[0].Held) == 0 {
			break
		}
	}
	here, at := p.Schedule(), p.At()
	must(t, p.Choose(1))
	if p.Schedule() == here {
		t.Fatalf("schedule %q did not change", p.Schedule())
	}
	if !p.Undo() || p.Schedule() != here || p.At() != at {
		t.Fatalf("undo: schedule %q at %d, want %q at %d", p.Schedule(), p.At(), here, at)
	}
	must(t, p.Choose(0))
	p.Undo()
	must(t, p.RunOn(1)) // until it waits for the dio count, or for a page
	p.Finish()
	tr := p.Trace()
	if tr.Kind != explore.KindOracle || !p.Over() || p.Schedule() != tr.Schedule {
		t.Fatalf("%q schedule %q: the truncate is not lost", tr.Kind, p.Schedule())
	}
	again, err := replayer(t, "unlocked")(p.Schedule())
	must(t, err)
	if again.Kind != tr.Kind || len(again.Steps) != len(tr.Steps) {
		t.Fatalf("%q replays as %q", tr.Kind, again.Kind)
	}
	for p.Undo() {
	}
	if p.At() != start || p.Schedule() != "" {
		t.Fatalf("at %d, schedule %q", p.At(), p.Schedule())
	}
	p, err = timeline.NewPlay("", replayer(t, "unlocked"))
	must(t, err)
	p.Finish()
	if want := "KEPT: nothing was violated in this schedule\nthis order of the operations explains every byte: write 1, truncate 2. u takes"; !strings.HasPrefix(p.Verdict(), want) {
		t.Errorf("have %s want %s", p.Verdict(), want)
	}
	if _, err := timeline.NewPlay("0:63", replayer(t, "unlocked")); err == nil {
		t.Error("a schedule that does not fit is no error")
	}
}

// A browser shows the page: the picture, and the paper, go where CI keeps artifacts.
func TestInChromium(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: no browser")
	}
	browser := need.Browser(t)
	dir, err := filepath.Abs("../../../artifacts/timeline")
	must(t, err)
	must(t, os.MkdirAll(dir, 0o755))
	name := filepath.Join(dir, "truncate-race.html")
	var b bytes.Buffer
	must(t, timeline.WriteHTML(&b, race(t)))
	must(t, os.WriteFile(name, b.Bytes(), 0o644))
	picture := filepath.Join(dir, "truncate-race.png")
	chromium := func(args ...string) []byte {
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
		defer cancel()
		cmd := exec.CommandContext(ctx, browser, append([]string{"--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking",
			"--user-data-dir=" + t.TempDir()}, args...)...)
		cmd.WaitDelay = 5 * time.Second
		var stderr strings.Builder
		cmd.Stderr = &stderr
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("%v: %v\n%s", args, err, stderr.String())
		}
		return out
	}
	os.Remove(picture)
	chromium("--hide-scrollbars", "--window-size=1280,1500", "--screenshot="+picture, "file://"+name)
	f, err := os.Open(picture)
	must(t, err)
	defer f.Close()
	img, err := png.Decode(f)
	must(t, err)
	if s := img.Bounds().Size(); s.X != 1280 || s.Y != 1500 {
		t.Errorf("picture %v", s)
	}
	// The script ran when the panel shows a step: the one marked.
	if dom := chromium("--dump-dom", "file://"+name); !regexp.MustCompile(`<section id="now"[^>]*><div><strong>step \d+: .*✗</strong>`).Match(dom) {
		t.Error("the panel shows no step")
	}
}

// An operation that fails says why, and is still the one that its task is in: its error begins with
// the name of an operation, too.
func TestFails(t *testing.T) {
	tr := small()
	tr.Steps[3].Notes = []scenario.Note{{Event: scenario.Fails, Op: 1, Text: "write /file: no space left on device"}}
	if got := text(t, tr, timeline.Layout{Width: 132}); !strings.Contains(got, "[1: write /file: no space left on device]") {
		t.Errorf("the error is not shown:\n%s", got)
	}
	if m := timeline.At(tr, 4); m.Tasks[0].Op != "1: write [0, 4K)" {
		t.Errorf("task 0 is in %q", m.Tasks[0].Op)
	}
}

// A task in a wait waits until another one has woken it, and from then on it can run, though its
// next step is still the end of the wait.
func TestWokenCanRun(t *testing.T) {
	tr := &scenario.Trace{Tasks: []string{"waker", "waiter"}, Own: 2, Violating: -1, Steps: []scenario.TraceStep{
		{Step: 0, Task: 1, Kind: "wait", Enabled: 3},
		{Step: 1, Task: 0, Kind: "wake", Enabled: 1},
		{Step: 2, Task: 0, Kind: "atomic", Enabled: 3},
		{Step: 3, Task: 1, Kind: "resume", Class: "q", What: scenario.What{Object: "queue"}, Enabled: 2},
	}}
	for n, want := range []timeline.Phase{timeline.Ready, timeline.Waiting, timeline.Ready, timeline.Ready} {
		if a := timeline.At(tr, n).Tasks[1]; a.Phase != want || (want == timeline.Waiting) != (a.For.Name == "queue") {
			t.Errorf("before step %d: %+v, want %v", n, a, want)
		}
	}
}

// A picture of chosen steps has a row for each of them and for the culprit, and no lane or column
// that none of them needs; without a choice every task that does something has its lane.
func TestPictureOfSteps(t *testing.T) {
	tr := race(t)
	var few, all bytes.Buffer
	must(t, timeline.WriteSVG(&few, tr, []int{11, 16}))
	must(t, timeline.WriteSVG(&all, tr, nil))
	culprit := timeline.Culprit(tr)
	for _, i := range []int{11, 16, culprit} {
		if !strings.Contains(few.String(), fmt.Sprintf(`id="s%d"`, i)) {
			t.Errorf("step %d is not drawn", i)
		}
	}
	if n := strings.Count(few.String(), `class="hit"`); n != 3 {
		t.Errorf("%d steps are drawn, want 3", n)
	}
	lanes := func(svg *bytes.Buffer) int { return strings.Count(svg.String(), `class="lane"`) }
	if lanes(&all) != 2 || lanes(&few) != 2 {
		t.Errorf("%d lanes and %d, want 2 and 2", lanes(&all), lanes(&few))
	}
	for _, column := range []string{">i_size<", ">dio<"} {
		if !strings.Contains(all.String(), column) {
			t.Errorf("the picture has no column %s", column)
		}
	}
	if strings.Contains(few.String(), ">dio<") {
		t.Error("a column that says the same in all rows is drawn")
	}
	var one bytes.Buffer
	must(t, timeline.WriteSVG(&one, tr, []int{culprit}))
	if lanes(&one) != 1 {
		t.Errorf("one step has %d lanes, want that of its task", lanes(&one))
	}
}

// A picture is XML with nothing outside it, says what is violated, and keeps the steps that tell
// the story: the preemption, the culprit, each change of the state, and the end of each operation.
// Steps that change nothing are left out.
func TestPicture(t *testing.T) {
	tr := race(t)
	var b bytes.Buffer
	must(t, timeline.WriteSVG(&b, tr, nil))
	text := b.String()
	pagetest.WellFormedXML(t, text)
	for _, bad := range []string{"href=", "src=", "@import", "<script"} {
		if strings.Contains(text, bad) {
			t.Errorf("the picture contains %q", bad)
		}
	}
	for _, want := range []string{`class="preempt"`, `class="row culprit"`, `class="bar"`, `class="wait"`, "<desc>" + tr.Violation.Violated()[:20], "◁"} {
		if !strings.Contains(text, want) {
			t.Errorf("the picture has no %q", want)
		}
	}
	drawn := strings.Count(text, `class="hit"`)
	if drawn < 10 || drawn > len(tr.Steps)*2/3 {
		t.Errorf("%d of %d steps are drawn, want those that change something", drawn, len(tr.Steps))
	}
	for i, s := range tr.Steps {
		if i > 0 && !slices.Equal(s.State, tr.Steps[i-1].State) && !strings.Contains(text, fmt.Sprintf(`id="s%d"`, i)) {
			t.Errorf("step %d changes the state and is not drawn", i)
		}
	}
}
