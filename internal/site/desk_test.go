package site

import (
	"encoding/json"
	"os"
	"strings"
	"testing"

	"btrlab/internal/sched"
	"btrlab/internal/sched/explore"
	"btrlab/internal/study/levels"
	"btrlab/internal/study/scenario"
	"btrlab/internal/study/timeline"
)

func TestMain(m *testing.M) {
	sched.SetChecked(true)
	os.Exit(m.Run())
}

// ask asks a question as the page does, in JSON.
func ask[R any](t *testing.T, d *Desk, what string, args any) R {
	t.Helper()
	in, err := json.Marshal(args)
	if err != nil {
		t.Fatal(err)
	}
	out, err := d.Ask(what, in)
	if err != nil {
		t.Fatalf("%s %s: %v", what, in, err)
	}
	var r R
	if err := json.Unmarshal(out, &r); err != nil {
		t.Fatalf("%s: %v", out, err)
	}
	return r
}

// A player loses the truncate with the page's moves, takes a step back and plays it again, and the
// address of a place opens there.
func TestGame(t *testing.T) {
	var d Desk
	v := ask[View](t, &d, "open", Place{Scenario: "truncate-race", Policy: "unlocked"})
	if v.Goal != "make the truncate get lost" || len(v.Tasks) != 2 || !v.Tasks[0].Can || len(v.Did) != 0 || v.Over {
		t.Fatalf("%+v", v)
	}
	says := func(list []timeline.Term, word string) string {
		for _, x := range list {
			if x.Term == word {
				return x.Says
			}
		}
		return ""
	}
	if len(v.Legend) != len(v.State) || !strings.Contains(says(v.Legend, "dio"), "without its lock") || says(v.Terms, "i_rwsem") == "" || says(v.Terms, "planLocked") == "" {
		t.Errorf("the words of the page are not explained: %+v %+v", v.Legend, v.Terms)
	}
	last := func() string { return v.Did[len(v.Did)-1].Text }
	for v = ask[View](t, &d, "move", Move{Do: "step"}); !strings.Contains(last(), "unlock i_rwsem"); {
		v = ask[View](t, &d, "move", Move{Do: "step"})
	}
	let := v
	v = ask[View](t, &d, "move", Move{Do: "step", Task: 1})
	if v.Schedule == let.Schedule || !v.Did[len(v.Did)-1].Preempts {
		t.Fatalf("a step of the other task is no preemption: %+v", v)
	}
	if v = ask[View](t, &d, "move", Move{Do: "undo"}); v.Place != let.Place {
		t.Fatalf("undo leads to %+v, want %+v", v.Place, let.Place)
	}
	if v = ask[View](t, &d, "move", Move{Do: "step", Task: 5}); v.Message != "there is no task 5" || v.Place != let.Place {
		t.Fatalf("a task that is not there: %q at %+v", v.Message, v.Place)
	}
	v = ask[View](t, &d, "move", Move{Do: "run", Task: 1})
	if v.Tasks[1].Can || !v.Tasks[1].Waits || !strings.HasPrefix(v.Tasks[1].Status, "WAITS for i_dio_count") {
		t.Fatalf("the truncate does not wait: %+v", v.Tasks[1])
	}
	v = ask[View](t, &d, "move", Move{Do: "step", Task: 1})
	if !strings.Contains(v.Message, "1 truncate waits for i_dio_count") {
		t.Fatalf("the refusal says %q", v.Message)
	}
	changes := 0
	for !v.Over {
		before := v
		v = ask[View](t, &d, "move", Move{Do: "next"})
		// a value is marked as changed when the place before has another
		for i, c := range v.State {
			if was := before.State[i].Value; c.Changed != (c.Value != was) {
				t.Errorf("%s is %q and was %q, marked as changed: %v", c.Name, c.Value, was, c.Changed)
			} else if c.Changed {
				changes++
			}
		}
	}
	if changes < 4 {
		t.Errorf("%d changes of the file from the wait to the end", changes)
	}
	ask[View](t, &d, "move", Move{Do: "undo"})
	v = ask[View](t, &d, "move", Move{Do: "finish"})
	if !v.Over || !v.Violated || !strings.Contains(v.Verdict, "truncate 2 to 4K has returned") {
		t.Fatalf("%+v", v)
	}
	if n := len(v.Did); n == 0 || v.At < n {
		t.Fatalf("%d steps are shown, %d done", n, v.At)
	}
	var other Desk
	let.At++ // a place in the middle of that schedule
	again := ask[View](t, &other, "open", Place{Scenario: let.Scenario, Policy: let.Policy, Schedule: v.Schedule, At: let.At})
	if again.At != let.At || again.Schedule != v.Schedule || again.Over {
		t.Fatalf("the address opens %+v, want step %d of %q", again.Place, let.At, v.Schedule)
	}
	page := ask[string](t, &d, "timeline", v.Place)
	if !strings.HasPrefix(page, "<!doctype html>") || !strings.Contains(page, "truncate 2 to 4K has returned") {
		t.Errorf("the timeline is %.80q", page)
	}
}

// The page's searches are those of the command line, and end when the page says so.
func TestSearch(t *testing.T) {
	var d Desk
	f := ask[Found](t, &d, "explore", Search{Scenario: "truncate-race", Policy: "unlocked"})
	if f.Verdict != explore.Violated || f.Schedule != "11:1" || !strings.Contains(f.Replay, "replay truncate-race 11:1") {
		t.Errorf("%+v", f)
	}
	f = ask[Found](t, &d, "explore", Search{Scenario: "truncate-race", Policy: "unlocked-drain"})
	s, pol, err := (&Place{Scenario: "truncate-race", Policy: "unlocked-drain"}).find()
	if err != nil {
		t.Fatal(err)
	}
	want, err := scenario.Run(s, pol, scenario.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if f.Verdict != explore.Exhausted || f.Schedules != want.Schedules || f.Cut != want.Cut {
		t.Errorf("have %+v, want %+v", f, want)
	}
	f = ask[Found](t, &d, "explore", Search{Scenario: "truncate-race", Policy: "unlocked-drain", Preemptions: -1})
	if f.Verdict != explore.Exhausted {
		t.Errorf("without a bound: %+v", f)
	}
	// Warming up ends for a question that waits, and else changes nothing but what the browser has
	// compiled.
	yields := 0
	d.Yield = func() { yields++ }
	if d.Warm(func() bool { return true }) || !d.Warm(func() bool { return false }) {
		t.Error("warming up does not do what the question that waits asks of it")
	}
	if yields == 0 {
		t.Error("warming up never let the page be heard")
	}
	// What the page says while it is listened to ends the search.
	d.Yield = d.Stop
	f = ask[Found](t, &d, "explore", Search{Scenario: "enospc", Policy: "modern", Preemptions: -1})
	if !f.Stopped || f.Verdict != explore.Bounded {
		t.Errorf("a search without end is not stopped: %+v", f)
	}
	for _, bad := range []Search{{Scenario: "none", Policy: "locked"}, {Scenario: "truncate-race", Policy: "lokced"}} {
		in, _ := json.Marshal(bad)
		if _, err := d.Ask("explore", in); err == nil {
			t.Errorf("%+v is no error", bad)
		}
	}
}

// The catalogue has everything that the command line has, and the spec of turned switches is a
// policy.
func TestCatalog(t *testing.T) {
	var d Desk
	c := ask[Catalog](t, &d, "catalog", struct{}{})
	if len(c.Scenarios) != len(scenario.All()) || len(c.Museum) != len(scenario.Museum) || len(c.Policies) < 17 || len(c.Toggles) < 60 {
		t.Errorf("%d scenarios, %d exhibits, %d policies, %d toggles", len(c.Scenarios), len(c.Museum), len(c.Policies), len(c.Toggles))
	}
	broken, fixed := "may be undone", "a truncate that has returned holds"
	for spec, want := range map[string]string{"unlocked": broken, "unlocked+SETSIZE_DRAIN_FIRST": fixed, "locked": fixed} {
		if p := ask[PolicyInfo](t, &d, "policy", map[string]string{"spec": spec}); !strings.Contains(p.Promise, want) || p.Spec != spec {
			t.Errorf("%s: %+v, want %q", spec, p, want)
		}
	}
	if _, err := d.Ask("policy", []byte(`{"spec":"unlocked+SETSIZE_DRAIN_FIRTS"}`)); err == nil || !strings.Contains(err.Error(), "SETSIZE_DRAIN_FIRST") {
		t.Errorf("a slip is %v", err)
	}
	if _, err := d.Ask("who", nil); err == nil {
		t.Error("a question that nobody asks is no error")
	}
}

// An exhibit proves itself twice, and has a timeline of its bug.
func TestExhibit(t *testing.T) {
	var d Desk
	x := ask[Exhibited](t, &d, "exhibit", map[string]int{"number": 1})
	if !x.OK || x.Wrong.Verdict != explore.Violated || x.Right.Verdict != explore.Exhausted || !strings.Contains(x.Timeline, "truncate-race under unlocked") {
		t.Errorf("%+v", x)
	}
}

// A level is played as a scenario is: its lines are steps. It is won with a schedule that breaks
// it, or with never where none does.
func TestLevel(t *testing.T) {
	var d Desk
	v := ask[View](t, &d, "open", Place{Level: "lost-update"})
	if v.Level == nil || v.Level.Rule != "x is 2 at the end" || v.Level.Moral != "" || v.Tasks[0].Line != 0 || len(v.Tasks[0].Lines) != 2 {
		t.Fatalf("%+v", v)
	}
	v = ask[View](t, &d, "move", Move{Do: "step"})
	if v.Tasks[0].Line != 1 || v.Tasks[1].Line != 0 || v.Did[0].Text != "r = x" {
		t.Fatalf("after a line: %+v", v)
	}
	ask[View](t, &d, "move", Move{Do: "step", Task: 1})
	v = ask[View](t, &d, "move", Move{Do: "finish"})
	if !v.Violated || v.Level.Moral == "" || !strings.Contains(v.Verdict, "x is 1 at the end") || v.Tasks[1].Line != 2 {
		t.Fatalf("the update is not lost: %+v", v)
	}
	if j := ask[Judged](t, &d, "never", map[string]string{"level": "lost-update"}); j.Won || j.Moral != "" {
		t.Errorf("never: %+v", j)
	}
	if j := ask[Judged](t, &d, "never", map[string]string{"level": "one-lock"}); !j.Won || j.Moral == "" || j.Schedules == 0 || !strings.Contains(j.Replay, "one-lock") {
		t.Errorf("never: %+v", j)
	}
	if page := ask[string](t, &d, "timeline", v.Place); !strings.Contains(page, "lost-update") {
		t.Errorf("the timeline is %.80q", page)
	}
}

// A player who takes the last step before a deadlock back sees a task that can run, and not the
// wait that came later.
func TestUndoDeadlock(t *testing.T) {
	var d Desk
	ask[View](t, &d, "open", Place{Level: "two-forks"})
	ask[View](t, &d, "move", Move{Do: "step", Task: 0})
	if v := ask[View](t, &d, "move", Move{Do: "step", Task: 1}); !v.Tasks[0].Waits || !v.Violated {
		t.Fatalf("no deadlock: %+v", v)
	}
	v := ask[View](t, &d, "move", Move{Do: "undo"})
	if x := v.Tasks[0]; !x.Can || x.Waits || x.Status != "can run" || x.Held != "holds f" {
		t.Errorf("after undo: %+v", x)
	}
}

// A program that a visitor has written is explored and played as a level is; an error names its
// line.
func TestProgram(t *testing.T) {
	var d Desk
	p := ask[Proved](t, &d, "program", map[string]string{"program": levels.TextExample})
	if p.Verdict != explore.Violated || p.Schedule == "" || !strings.Contains(p.Violated, "x is 1 at the end") || !strings.Contains(p.Says, "1 preemption") {
		t.Errorf("%+v", p)
	}
	v := ask[View](t, &d, "open", Place{Program: levels.TextExample, Schedule: p.Schedule, At: 1000})
	if !v.Over || !v.Violated || v.Program != levels.TextExample || v.Replay != "" || len(v.Tasks[0].Lines) != 4 {
		t.Errorf("%+v", v)
	}
	if page := ask[string](t, &d, "timeline", v.Place); strings.Contains(page, "Replay:") || !strings.Contains(page, "x = r + 1") {
		t.Errorf("the timeline is %.80q", page)
	}
	fixed := "x = 0\nrule x is 2\ntask a\nx += 1\ntask b\nx += 1"
	p = ask[Proved](t, &d, "program", map[string]string{"program": fixed})
	if p.Verdict != explore.Exhausted || !strings.Contains(p.Says, "exhausted") {
		t.Errorf("%+v", p)
	}
	for _, what := range []string{"program", "open"} {
		if _, err := d.Ask(what, []byte(`{"program":"x = 0\ntask a\nx -= 1"}`)); err == nil || !strings.Contains(err.Error(), "line 3: have \"x -= 1\", want lock, unlock, = or +=") {
			t.Errorf("%s: %v", what, err)
		}
	}
}
