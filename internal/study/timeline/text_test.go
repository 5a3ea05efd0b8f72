package timeline_test

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"

	"btrlab/internal/policy"
	"btrlab/internal/sched"
	"btrlab/internal/sched/explore"
	"btrlab/internal/study/scenario"
	"btrlab/internal/study/timeline"
	"btrlab/internal/testing/need"
)

func text(t *testing.T, tr *scenario.Trace, lay timeline.Layout) string {
	t.Helper()
	var b strings.Builder
	must(t, timeline.WriteText(&b, tr, lay))
	return b.String()
}

// The table in full: who does what beside each other, marks, and the steps that only a line for
// every step shows.
func TestText(t *testing.T) {
	tr := small()
	for i := range tr.Steps {
		tr.Steps[i].Step = i
	}
	const want = `small, policy locked, schedule 2:1 (1 preemption)
a <b> & c

step i_size 01 0 a                1 b
--------------------------------------------------------------------------------
   1 0      #. Write: lock sem #1
  >2 0      #w                    start (waits for sem #1)
   3 4K      . unlock sem #1 [1: returns]
  !4 0       #                    lock sem #1
   6 0                            unlock sem #1 [2: returns]

The letters before the words, after the step: # holds a lock, w waits,
W both, . neither.
> marks a preemption: the task before could have gone on.
! marks step 4, the last change of the file that the verdict is about.
! violated (oracle): lost </script>
`
	if got := text(t, tr, timeline.Layout{}); got != want {
		t.Errorf("have\n%s\nwant\n%s", got, want)
	}
	if all := text(t, tr, timeline.Layout{All: true}); !strings.Contains(all, "\n   0 0      .. start\n") {
		t.Errorf("step 0 has no line:\n%s", all)
	}
}

// Where a task cannot go on the table says so, and for what it waits: a student is told to let the
// truncate run until then. It has a key to the letters of its pages.
func TestTextWaits(t *testing.T) {
	got := text(t, race(t), timeline.Layout{})
	for _, want := range []string{"unlock page 3 \\(waits for i_dio_count\\)\n", "queue for i_rwsem \\(waits\\)\n", "\npages has a letter a page: - not in memory, c clean"} {
		if !regexp.MustCompile(want).MatchString(got) {
			t.Errorf("no %q in\n%s", want, got)
		}
	}
	if strings.Contains(text(t, small(), timeline.Layout{}), "not in memory") {
		t.Error("a key to pages that are not shown")
	}
}

// What is locked and unlocked in a row is said in one line, and a loop once.
func TestTextJoins(t *testing.T) {
	tr := &scenario.Trace{Scenario: "joins", Policy: "p", Tasks: []string{"a"}, Own: 1, Columns: []string{"i_size"}, Violating: -1}
	add := func(verb, object string, held ...string) {
		s := scenario.TraceStep{Step: len(tr.Steps), What: scenario.What{Verb: verb, Object: object}, Where: "f", Enabled: 1, State: []string{"0"}}
		if verb == "queue" {
			s.What.Prep = "for"
		}
		for _, name := range held {
			s.Held = append(s.Held, explore.Named{Name: name})
		}
		tr.Steps = append(tr.Steps, s)
	}
	add("queue", "sem")
	add("lock", "sem")
	for range 4 {
		add("lock", "page 1", "sem")
		add("lock", "extent [0, 4K)", "sem", "page 1")
		add("unlock", "extent [0, 4K)", "sem", "page 1", "extent [0, 4K)")
		add("unlock", "page 1", "sem", "page 1")
	}
	add("unlock", "sem", "sem")
	for _, want := range []string{
		"\n 0-1 # f: lock sem\n", "\n 2-5 #   lock page 1, extent [0, 4K), unlock both\n", "\n6-17 # ... steps 2 to 5 again, 3 times\n", "\n  18   f: unlock sem\n",
		"all the time: i_size 0\n", "kept: nothing was violated",
	} {
		if got := text(t, tr, timeline.Layout{}); !strings.Contains(got, want) {
			t.Errorf("no %q in\n%s", want, got)
		}
	}
}

// Every scenario, and every exhibit of the museum, fits a terminal of 80 columns, and every step of
// a task that is shown is in one of the lines, in order.
func TestTextFits(t *testing.T) {
	need.Long(t)
	var traces []*scenario.Trace
	for _, s := range scenario.All() {
		tr, err := scenario.Replay(s, policy.MustParse("unlocked"), "", false)
		must(t, err)
		traces = append(traces, tr)
	}
	for i := range scenario.Museum {
		x, err := scenario.Museum[i].Show(scenario.Options{Config: func(c *explore.Config) { c.Schedules = 1000 }})
		must(t, err)
		if x.Trace == nil {
			t.Fatalf("exhibit %d is not found", x.Number)
		}
		traces = append(traces, x.Trace)
		var b strings.Builder
		must(t, timeline.WriteExhibit(&b, x, timeline.Layout{}))
		fits(t, x.Title, b.String(), 80)
	}
	numbers := regexp.MustCompile(`^ *[>!]{0,2}(\d+)(?:-(\d+))? `)
	for _, tr := range traces {
		for _, lay := range []timeline.Layout{{}, {All: true}, {Width: 132}} {
			got := text(t, tr, lay)
			fits(t, tr.Scenario, got, max(lay.Width, 80))
			if again := text(t, tr, lay); again != got {
				t.Errorf("%s: two texts", tr.Scenario)
			}
			covered := map[int]bool{}
			last := -1
			_, body, _ := strings.Cut(got, "---\n")
			body, _, _ = strings.Cut(body, "\n\n")
			lines := strings.Split(body, "\n")
			for _, l := range lines {
				m := numbers.FindStringSubmatch(l)
				if m == nil {
					continue
				}
				from, _ := strconv.Atoi(m[1])
				to := from
				if m[2] != "" {
					to, _ = strconv.Atoi(m[2])
				}
				if from <= last || to < from {
					t.Errorf("%s: %q after step %d", tr.Scenario, l, last)
				}
				for last = from; last < to; last++ {
					covered[last] = true
				}
				covered[to] = true
			}
			for i, s := range tr.Steps {
				if s.Task < tr.Own && s.Kind != "start" && !covered[i] {
					t.Errorf("%s: step %d, %s, is in no line:\n%s", tr.Scenario, i, s.What, got)
				}
			}
			if !lay.All && len(lines) > 60 {
				t.Errorf("%s: %d lines", tr.Scenario, len(lines))
			}
		}
	}
}

func fits(t *testing.T, name, text string, width int) {
	t.Helper()
	for _, l := range strings.Split(text, "\n") {
		if n := utf8.RuneCountInString(l); n > width {
			t.Errorf("%s: %d characters, want at most %d: %s", name, n, width, l)
		}
	}
}

// A value that was chosen stands in the text, on the page and in the schedule.
func TestChoiceShown(t *testing.T) {
	prog := func(w *explore.World) {
		w.Go("copier", func(t *sched.Task) {
			w.Call(t)
			w.Note(scenario.Note{Event: scenario.Begins, Op: 1, Text: "write [0, 4K)"})
			w.Choose(3, "short copy")
			w.Return(t)
			w.Note(scenario.Note{Event: scenario.Returns, Op: 1})
		})
	}
	x := explore.Replay(explore.Config{}, "", prog)
	at := slices.IndexFunc(x.Steps, func(s explore.Step) bool { return s.NVal > 0 })
	y := explore.Replay(explore.Config{}, fmt.Sprintf("%d=2", at), prog)
	tr := scenario.TraceOf(&y, 1)
	const want = "choose short copy = 2 of 0 to 2"
	if tr.Schedule != fmt.Sprintf("%d=2", at) || tr.Steps[at].Val != 2 || tr.Steps[at].NVal != 3 {
		t.Errorf("schedule %q, step %+v", tr.Schedule, tr.Steps[at])
	}
	var b strings.Builder
	must(t, timeline.WriteHTML(&b, tr))
	if got := text(t, tr, timeline.Layout{}); !strings.Contains(got, want) || !strings.Contains(b.String(), want) {
		t.Errorf("no %q in\n%s", want, got)
	}
}

// Where the state leaves no room for words beside it, they stand below it, and no line is cut into
// pieces of a few letters.
func TestTextBelow(t *testing.T) {
	tr := &scenario.Trace{Scenario: "below", Tasks: []string{"a", "b"}, Own: 2, Columns: []string{"writes"}, Violating: -1}
	for i := range 4 {
		tr.Steps = append(tr.Steps, scenario.TraceStep{Step: i, Task: i / 2, What: scenario.What{Verb: "change", Object: "the disk"}, Where: "Flush:47", Enabled: 3,
			State: []string{strings.Repeat("0:durable ", 5) + strconv.Itoa(i)}})
	}
	const want = "\n   3 0:durable 0:durable 0:durable 0:durable 0:durable 3\n"
	got := text(t, tr, timeline.Layout{})
	if !strings.Contains(got, want) || !regexp.MustCompile(`(?m)^ +Flush:47: change the disk$`).MatchString(got) {
		t.Errorf("have\n%s", got)
	}
}

// A step that takes i_rwsem shared says so, and who holds it how: a try as well.
func TestShared(t *testing.T) {
	s, err := scenario.Lookup("nowait-dio-range")
	must(t, err)
	tr, err := scenario.Replay(s, policy.MustParse("nowait-6.1"), "", false)
	must(t, err)
	got := text(t, tr, timeline.Layout{})
	for _, want := range []string{"lock i_rwsem shared", "unlock i_rwsem shared", "i_rwsem is taken exclusive, unless a line says shared."} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in\n%s", want, got)
		}
	}
	held := map[string]bool{}
	for _, tr := range []*scenario.Trace{tr, race(t)} {
		for n := range tr.Steps {
			m := timeline.At(tr, n)
			for i := range m.Tasks {
				held[m.Tasks[i].Holding()] = true
			}
		}
	}
	if !held["holds i_rwsem shared"] || !held["holds i_rwsem exclusive"] {
		t.Errorf("have %v", held)
	}
}
